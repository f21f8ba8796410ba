//! What the file must hold, after operations that succeed and those that are refused.

use crate::content::pattern;
use crate::fsx::{Op, SOURCE_NUMBER, SOURCE_SIZE, Way};

/// One file as bytes.
pub struct Model {
    /// What it must hold.
    pub bytes: Vec<u8>,
    source: Vec<u8>,
}

/// How an operation that was refused may have left the file.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Left {
    /// As it was.
    Old,
    /// Each block as before or as after, the size in between.
    Blocks,
}

impl Default for Model {
    fn default() -> Model {
        Model::new()
    }
}

impl Model {
    /// An empty file.
    pub fn new() -> Model {
        let mut source = vec![0; SOURCE_SIZE as usize];
        pattern(SOURCE_NUMBER, 0, &mut source);
        Model { bytes: Vec::new(), source }
    }

    /// The size, bytes.
    pub fn size(&self) -> u64 {
        self.bytes.len() as u64
    }

    /// How many bytes an operation moves where nothing is in its way.
    pub fn moves(&self, op: &Op) -> u64 {
        match *op {
            Op::Write { len, .. } => len,
            Op::Read { at, len, .. } => len.min(self.size().saturating_sub(at)),
            Op::Copy { second, from, len, .. } => {
                let end = if second { SOURCE_SIZE } else { self.size() };
                len.min(end.saturating_sub(from))
            }
            _ => 0,
        }
    }

    /// What a read must answer.
    pub fn read(&self, at: u64, len: u64) -> &[u8] {
        let rest = self.bytes.get(at as usize..).unwrap_or(&[]);
        &rest[..rest.len().min(len as usize)]
    }

    /// An operation moved `count` bytes, of `data` where it is a write; the others are done whole.
    pub fn apply(&mut self, op: &Op, data: &[u8], count: u64) {
        let size = self.bytes.len();
        match *op {
            Op::Write { at, .. } => self.put(at, &data[..count as usize]),
            Op::Copy { second, from, to, .. } => self.put_copy(second, from, to, count),
            Op::Clone { second, from, to, len } => self.put_copy(second, from, to, len),
            Op::Punch { at, len } => self.zero(at, len, true),
            Op::Zero { at, len, keep_size } => self.zero(at, len, keep_size),
            Op::Allocate { at, len, keep_size: false } => {
                self.bytes.resize(size.max((at + len) as usize), 0);
            }
            Op::Collapse { at, len } => {
                self.bytes.drain(at as usize..(at + len) as usize);
            }
            Op::Insert { at, len } => {
                let hole = std::iter::repeat_n(0, len as usize);
                self.bytes.splice(at as usize..at as usize, hole);
            }
            Op::Truncate { size } => self.bytes.resize(size as usize, 0),
            _ => {}
        }
    }

    /// As [`Model::apply`] of an operation that moved only `count` bytes, or was refused.
    pub fn apply_part(&mut self, op: &Op, data: &[u8], count: u64) {
        if count > 0 {
            self.apply(op, data, count);
        }
    }

    fn put(&mut self, at: u64, data: &[u8]) {
        let (from, to) = (at as usize, at as usize + data.len());
        if data.is_empty() {
            return;
        }
        self.bytes.resize(self.bytes.len().max(to), 0);
        self.bytes[from..to].copy_from_slice(data);
    }

    fn put_copy(&mut self, second: bool, from: u64, to: u64, len: u64) {
        let source = if second { &self.source } else { &self.bytes };
        let part = source[from as usize..(from + len) as usize].to_vec();
        self.put(to, &part);
    }

    fn zero(&mut self, at: u64, len: u64, keep_size: bool) {
        if !keep_size {
            self.bytes.resize(self.bytes.len().max((at + len) as usize), 0);
        }
        let end = ((at + len) as usize).min(self.bytes.len());
        let from = (at as usize).min(end);
        self.bytes[from..end].fill(0);
    }

    /// The operation was refused for want of space, and the file holds `found` now: takes over what
    /// it may have done. A write and a copy that move nothing leave everything as it was; what a
    /// mapping had and could not be written back is lost; the others may have come to any block,
    /// of `block` bytes; and so may a direct write where those may be `torn`.
    ///
    /// # Errors
    /// What it cannot have done.
    pub fn refused(
        &mut self,
        op: &Op,
        data: &[u8],
        found: &[u8],
        (block, torn): (u64, bool),
    ) -> Result<(), String> {
        let left = match *op {
            Op::Write { way: Way::Mapped, .. }
            | Op::Zero { .. }
            | Op::Punch { .. }
            | Op::Allocate { .. }
            | Op::Clone { .. } => Left::Blocks,
            Op::Write { way: Way::Direct, .. } if torn => Left::Blocks,
            _ => Left::Old,
        };
        if left == Left::Old {
            return same(found, &self.bytes);
        }
        let mut after = Model { bytes: self.bytes.clone(), source: self.source.clone() };
        after.apply(op, data, self.moves(op));
        let (old, new) = (&self.bytes, &after.bytes);
        if found.len() < old.len() || found.len() > new.len() {
            let sizes = [found.len(), old.len(), new.len()];
            return Err(format!("size {}, not one of {} to {}", sizes[0], sizes[1], sizes[2]));
        }
        for (index, part) in found.chunks(block as usize).enumerate() {
            let from = index * block as usize;
            // What is behind the old end reads as zeros.
            let is = |of: &[u8]| {
                let of = of.get(from..).unwrap_or(&[]);
                let common = part.len().min(of.len());
                part[..common] == of[..common] && part[common..].iter().all(|&byte| byte == 0)
            };
            if !is(old) && !is(new) {
                return Err(format!("the block at {from} is neither as before nor as after"));
            }
        }
        self.bytes = found.to_vec();
        Ok(())
    }
}

/// The first place in which two contents differ.
///
/// # Errors
/// It, in words.
pub fn same(found: &[u8], expected: &[u8]) -> Result<(), String> {
    if found == expected {
        return Ok(());
    }
    let pairs = || found.iter().zip(expected).enumerate();
    let first = pairs().find(|(_, (a, b))| a != b);
    let last = pairs().rfind(|(_, (a, b))| a != b);
    let show = |place: Option<(usize, (&u8, &u8))>| match place {
        Some((at, (a, b))) => format!("byte {at} is {a:#x}, not {b:#x}"),
        None => "no byte that both have".into(),
    };
    let (found, expected) = (found.len(), expected.len());
    Err(format!("{found} bytes, {expected} expected; first {}, last {}", show(first), show(last)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn model(bytes: &[u8]) -> Model {
        Model { bytes: bytes.to_vec(), ..Model::new() }
    }

    #[test]
    fn operations_leave_what_their_calls_do() {
        let mut m = model(b"abcdef");
        m.apply(&Op::Punch { at: 1, len: 2 }, &[], 0);
        assert_eq!(m.bytes, b"a\0\0def");
        m.apply(&Op::Write { way: Way::Cached, at: 7, len: 4 }, b"wxyz", 2);
        assert_eq!(m.bytes, b"a\0\0def\0wx", "a gap is zero, and only what was taken is there");
        m.apply(&Op::Collapse { at: 1, len: 2 }, &[], 0);
        assert_eq!(m.bytes, b"adef\0wx");
        m.apply(&Op::Insert { at: 1, len: 1 }, &[], 0);
        assert_eq!(m.bytes, b"a\0def\0wx");
        m.apply(&Op::Copy { second: false, from: 2, to: 6, len: 3 }, &[], 3);
        assert_eq!(m.bytes, b"a\0def\0def");
        m.apply(&Op::Zero { at: 8, len: 3, keep_size: true }, &[], 0);
        assert_eq!(m.bytes, b"a\0def\0de\0");
        m.apply(&Op::Zero { at: 8, len: 3, keep_size: false }, &[], 0);
        assert_eq!(m.bytes, b"a\0def\0de\0\0\0");
        assert_eq!(m.moves(&Op::Read { way: Way::Cached, at: 10, len: 9 }), 1);
        assert_eq!(m.read(10, 9), b"\0");
    }

    /// A refused write changes nothing; a refused punch may have come to some blocks, whole.
    #[test]
    fn refused_operations_are_held_to_what_they_may_leave() {
        let write = Op::Write { way: Way::Cached, at: 0, len: 2 };
        assert!(model(b"abcd").refused(&write, b"xy", b"abcd", (2, false)).is_ok());
        assert!(model(b"abcd").refused(&write, b"xy", b"xbcd", (2, false)).is_err());
        assert!(model(b"abcd").refused(&write, b"xy", b"abcd\0", (2, false)).is_err());
        let direct = Op::Write { way: Way::Direct, at: 0, len: 4 };
        assert!(model(b"abcd").refused(&direct, b"wxyz", b"wxcd", (2, true)).is_ok());
        assert!(model(b"abcd").refused(&direct, b"wxyz", b"wxcd", (2, false)).is_err());
        let punch = Op::Punch { at: 0, len: 4 };
        let mut m = model(b"abcd");
        assert!(m.refused(&punch, &[], b"ab\0\0", (2, false)).is_ok());
        assert_eq!(m.bytes, b"ab\0\0");
        assert!(
            model(b"abcd").refused(&punch, &[], b"a\0\0\0", (2, false)).is_err(),
            "half a block"
        );
        let ahead = Op::Allocate { at: 2, len: 6, keep_size: false };
        assert!(model(b"abcd").refused(&ahead, &[], b"abcd\0\0", (2, false)).is_ok());
        assert!(
            model(b"abcd").refused(&ahead, &[], b"abcd\0\0\0\0\0", (2, false)).is_err(),
            "too long"
        );
        assert!(model(b"abcd").refused(&ahead, &[], b"abcdx", (2, false)).is_err(), "not zero");
    }
}
