//! One file under a seeded stream of operations, each compared byte for byte with a copy in memory,
//! while a neighbour fills the device and empties it again.
//!
//! - [`Op`] is one operation, [`Stream`] draws them, [`model::Model`] knows what each leaves;
//! - a [`FsxTarget`] carries them out: a mount, or a file system in process ([`in_process`]);
//! - [`run`](run::run) does all of it, and judges every `ENOSPC`: [`space::Cost`] says what the
//!   operation needs at the worst, and the file system must have had less than that;
//! - [`neighbour::Neighbour`] is who fills and empties.
//!
//! After Avadis Tevanian's fsx, the file system exerciser of NeXT and Apple (2001).

pub mod in_process;
pub mod model;
pub mod neighbour;
pub mod run;
pub mod space;

use base::{Errno, Rng};

/// Bytes of the second file, from which ranges are copied.
pub const SOURCE_SIZE: u64 = 512 << 10;
/// The number that determines the second file's content.
pub const SOURCE_NUMBER: u64 = 0;

/// How content is moved.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Way {
    /// Through the page cache.
    Cached,
    /// Past it.
    Direct,
    /// By a shared mapping, inside of the file.
    Mapped,
}

/// One operation on the file; offsets, lengths and sizes in bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[expect(missing_docs, reason = "the fields are named after the arguments of the calls")]
pub enum Op {
    /// New content.
    Write { way: Way, at: u64, len: u64 },
    /// Compared with the model.
    Read { way: Way, at: u64, len: u64 },
    /// A copy from the same file, or from the second one.
    Copy { second: bool, from: u64, to: u64, len: u64 },
    /// Blocks shared with the same file, or with the second one.
    Clone { second: bool, from: u64, to: u64, len: u64 },
    /// A hole.
    Punch { at: u64, len: u64 },
    /// Zeros.
    Zero { at: u64, len: u64, keep_size: bool },
    /// Space ahead.
    Allocate { at: u64, len: u64, keep_size: bool },
    /// A range is cut out, and what is behind it moves to the front.
    Collapse { at: u64, len: u64 },
    /// A hole is put in, and what is behind it moves to the back.
    Insert { at: u64, len: u64 },
    /// A new size.
    Truncate { size: u64 },
    /// fsync, or fdatasync.
    Sync { data_only: bool },
    /// Closed and opened again; then all is compared.
    Reopen,
    /// Caches are emptied; then all is compared.
    DropCaches,
    /// Unmounted and mounted again; then all is compared.
    Remount,
}

/// The sort of an operation: what a place can, or cannot.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
#[expect(missing_docs, reason = "as those of `Op`")]
pub enum Sort {
    Write,
    DirectWrite,
    MappedWrite,
    Read,
    DirectRead,
    MappedRead,
    Copy,
    Clone,
    Punch,
    Zero,
    Allocate,
    Collapse,
    Insert,
    Truncate,
    Sync,
    Reopen,
    DropCaches,
    Remount,
}

impl Op {
    /// Its sort.
    pub fn sort(&self) -> Sort {
        match self {
            Op::Write { way: Way::Cached, .. } => Sort::Write,
            Op::Write { way: Way::Direct, .. } => Sort::DirectWrite,
            Op::Write { way: Way::Mapped, .. } => Sort::MappedWrite,
            Op::Read { way: Way::Cached, .. } => Sort::Read,
            Op::Read { way: Way::Direct, .. } => Sort::DirectRead,
            Op::Read { way: Way::Mapped, .. } => Sort::MappedRead,
            Op::Copy { .. } => Sort::Copy,
            Op::Clone { .. } => Sort::Clone,
            Op::Punch { .. } => Sort::Punch,
            Op::Zero { .. } => Sort::Zero,
            Op::Allocate { .. } => Sort::Allocate,
            Op::Collapse { .. } => Sort::Collapse,
            Op::Insert { .. } => Sort::Insert,
            Op::Truncate { .. } => Sort::Truncate,
            Op::Sync { .. } => Sort::Sync,
            Op::Reopen => Sort::Reopen,
            Op::DropCaches => Sort::DropCaches,
            Op::Remount => Sort::Remount,
        }
    }

    /// The range of the file that it may give new content or blocks: offset and length, bytes.
    pub fn range(&self) -> (u64, u64) {
        match *self {
            Op::Write { at, len, .. }
            | Op::Read { at, len, .. }
            | Op::Punch { at, len }
            | Op::Zero { at, len, .. }
            | Op::Allocate { at, len, .. }
            | Op::Collapse { at, len }
            | Op::Insert { at, len } => (at, len),
            Op::Copy { to, len, .. } | Op::Clone { to, len, .. } => (to, len),
            _ => (0, 0),
        }
    }

    /// What is left of it after `done` bytes, where that is an operation again.
    pub fn rest(self, done: u64) -> Op {
        match self {
            Op::Write { way, at, len } => Op::Write { way, at: at + done, len: len - done },
            Op::Copy { second, from, to, len } => {
                Op::Copy { second, from: from + done, to: to + done, len: len - done }
            }
            other => other,
        }
    }
}

/// Why an operation did not succeed.
#[derive(Debug)]
pub enum Refused {
    /// Its answer.
    Errno(Errno),
    /// What the place saw that must not be.
    Wrong(String),
}

impl From<Errno> for Refused {
    fn from(errno: Errno) -> Refused {
        Refused::Errno(errno)
    }
}

/// Where the operations are carried out: one file, which is empty at first, and a second one with
/// [`SOURCE_SIZE`] bytes of the pattern of number [`SOURCE_NUMBER`].
pub trait FsxTarget {
    /// Carries an operation out; `bytes` are a write's content, and get a read's. Returns how many
    /// bytes were moved (0 where none are).
    ///
    /// # Errors
    /// What the operation answers; what must not be.
    fn run(&mut self, op: &Op, bytes: &mut [u8]) -> Result<u64, Refused>;

    /// The size of the file, bytes.
    ///
    /// # Errors
    /// What is answered instead.
    fn size(&mut self) -> Result<u64, Refused>;

    /// Blocks that are free for whoever runs the operations.
    fn free(&mut self) -> u64;

    /// What the neighbour does rests, or goes on; when this returns it does nothing.
    fn rest(&mut self, rest: bool);
}

/// What a stream draws.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Operations.
    pub ops: u64,
    /// Largest size of the file, bytes; a multiple of 64 KiB.
    pub size_max: u64,
    /// Longest range of an operation, bytes.
    pub len_max: u64,
    /// What direct I/O is aligned to, bytes.
    pub align: u64,
    /// What clones, collapse and insert are aligned to, bytes.
    pub block: u64,
    /// Sorts that are not tried.
    pub without: Vec<Sort>,
}

/// Draws operations.
pub struct Stream {
    rng: Rng,
    plan: Plan,
}

impl Stream {
    /// The stream of a seed.
    pub fn new(seed: u64, plan: Plan) -> Stream {
        Stream { rng: Rng::new(seed, 70), plan }
    }

    /// The next operation on a file of `size` bytes.
    pub fn next(&mut self, size: u64) -> Op {
        loop {
            let op = self.draw(size);
            if let Some(op) = op.filter(|op| !self.plan.without.contains(&op.sort())) {
                return op;
            }
        }
    }

    /// Leaves a sort out from now on.
    pub fn leave_out(&mut self, sort: Sort) {
        self.plan.without.push(sort);
    }

    fn draw(&mut self, size: u64) -> Option<Op> {
        let keep_size = self.rng.chance(0.5);
        let second = self.rng.chance(0.5);
        let (at, len) = self.range(self.plan.size_max, 1);
        let op = match self.rng.below(1000) {
            0..200 => Op::Write { way: Way::Cached, at, len },
            200..280 => self.aligned(|at, len| Op::Write { way: Way::Direct, at, len }),
            280..360 => {
                let (at, len) = self.inside(size)?;
                Op::Write { way: Way::Mapped, at, len }
            }
            360..460 => Op::Read { way: Way::Cached, at, len },
            460..530 => self.aligned(|at, len| Op::Read { way: Way::Direct, at, len }),
            530..600 => {
                let (at, len) = self.inside(size)?;
                Op::Read { way: Way::Mapped, at, len }
            }
            600..640 => self.copy(second, size, 1)?,
            640..680 => self.copy(second, size, self.plan.block)?,
            680..740 => Op::Punch { at, len },
            740..785 => Op::Zero { at, len, keep_size },
            785..840 => Op::Allocate { at, len, keep_size },
            840..855 => self.shift(size, true)?,
            855..870 => self.shift(size, false)?,
            870..910 => Op::Truncate { size: self.size(size) },
            910..980 => Op::Sync { data_only: keep_size },
            980..992 => Op::Reopen,
            992..998 => Op::DropCaches,
            _ => Op::Remount,
        };
        Some(op)
    }

    /// A size: often that of a page or a little beside it.
    fn size(&mut self, size: u64) -> u64 {
        let any = self.rng.below(self.plan.size_max + 1);
        match self.rng.below(10) {
            0 => 0,
            1..=3 => any / 4096 * 4096,
            // A little less, or more.
            4..=6 => (size + self.rng.below(8192)).saturating_sub(4096).min(self.plan.size_max),
            _ => any,
        }
    }

    /// A range below `end`, which is not 0, in units of `unit` bytes; mostly a short one, and every
    /// other one of whole pages.
    fn range(&mut self, end: u64, unit: u64) -> (u64, u64) {
        let unit = if self.rng.chance(0.4) { unit.max(4096) } else { unit };
        let longest = match self.rng.below(10) {
            0..=4 => 6000,
            5..=8 => self.plan.len_max / 4,
            _ => self.plan.len_max,
        };
        if end <= unit {
            return (0, end);
        }
        let at = self.rng.below(end) / unit * unit;
        let len = (1 + self.rng.below(longest)).next_multiple_of(unit).min(end - at);
        (at, len)
    }

    fn aligned(&mut self, op: impl Fn(u64, u64) -> Op) -> Op {
        let (at, len) = self.range(self.plan.size_max, self.plan.align);
        op(at, len)
    }

    fn inside(&mut self, size: u64) -> Option<(u64, u64)> {
        (size > 0).then(|| self.range(size, 1))
    }

    /// With a `unit` of 1 a copy, else a clone.
    fn copy(&mut self, second: bool, size: u64, unit: u64) -> Option<Op> {
        let source = if second { SOURCE_SIZE } else { size } / unit * unit;
        let (from, len) = (source > 0).then(|| self.range(source, unit))?;
        let to = self.rng.below(self.plan.size_max) / unit * unit;
        let len = len.min(self.plan.size_max - to);
        let apart = second || to + len <= from || from + len <= to;
        let op = match unit {
            1 => Op::Copy { second, from, to, len },
            _ => Op::Clone { second, from, to, len },
        };
        (apart && len > 0 && len.is_multiple_of(unit)).then_some(op)
    }

    /// A range of whole blocks that is cut out of the file, or put in.
    fn shift(&mut self, size: u64, collapse: bool) -> Option<Op> {
        let (at, len) = self.range(self.plan.size_max, self.plan.block.max(4096));
        let fits = match collapse {
            true => at + len < size,
            false => at < size && size + len <= self.plan.size_max,
        };
        let op = if collapse { Op::Collapse { at, len } } else { Op::Insert { at, len } };
        fits.then_some(op)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every sort comes, and every range is one that its call takes.
    #[test]
    fn a_stream_keeps_its_plan() {
        let plan = Plan {
            ops: 0,
            size_max: 1 << 20,
            len_max: 128 << 10,
            align: 512,
            block: 4096,
            without: vec![Sort::Collapse],
        };
        let mut stream = Stream::new(1, plan);
        let mut sorts = std::collections::BTreeSet::new();
        for number in 0..20_000u64 {
            let size = number * 331 % (1 << 20);
            let op = stream.next(size);
            sorts.insert(op.sort());
            let (at, len) = op.range();
            assert!(at + len <= 1 << 20, "{op:?}");
            match op {
                Op::Write { way: Way::Direct, .. } | Op::Read { way: Way::Direct, .. } => {
                    assert!((at | len).is_multiple_of(512) && len > 0, "{op:?}");
                }
                Op::Write { way: Way::Mapped, .. } | Op::Read { way: Way::Mapped, .. } => {
                    assert!(at + len <= size && len > 0, "{op:?} of {size}");
                }
                Op::Clone { from, to, len, .. } => {
                    assert!((from | to | len).is_multiple_of(4096) && len > 0, "{op:?}");
                }
                _ => {}
            }
        }
        // All but the one that the plan leaves out.
        assert_eq!(sorts.len(), 17, "{sorts:?}");
    }
}
