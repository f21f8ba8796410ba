//! Writing tar archives: POSIX.1-2001 (pax), with times in nanoseconds, attributes as the
//! `SCHILY.xattr.` records that GNU tar and bsdtar read, and files with holes in GNU's sparse
//! format 1.0, which a reader that does not know it unpacks as a file of the map and the data.

use std::io::Write;
use std::ops::Range;

use anyhow::{Context, Result};
use base::Timespec;
use rt::Cx;
use vfs::FileType;

use super::content;
use super::{Batch, Event, Keep, Meta, Problems, Sink};
use crate::text;

/// Bytes of a header and of the unit that contents are padded to.
pub const BLOCK: usize = 512;

/// An archive that receives a tree.
pub struct TarSink<W: Write> {
    out: W,
    keep: Keep,
    /// The file that came last.
    file: Option<Member>,
    skipped: u64,
}

/// The content of a regular file on its way.
struct Member {
    /// Where data lies in the file, rising; all of it where there are no holes.
    stretches: Vec<Range<u64>>,
    /// Bytes of data that the header promises.
    stored: u64,
    /// Bytes of data that were written.
    done: u64,
    /// Bytes of the map before the data.
    map: u64,
}

impl<W: Write> TarSink<W> {
    /// Writes the archive to `out`.
    pub fn new(out: W, keep: Keep) -> TarSink<W> {
        TarSink { out, keep, file: None, skipped: 0 }
    }

    /// How many sockets were left out, which archives cannot hold.
    pub fn skipped(&self) -> u64 {
        self.skipped
    }

    fn node(&mut self, batch: &Batch, at: usize) -> Result<()> {
        let Event::Node { path, meta, target, xattrs } = &batch.events[at] else { return Ok(()) };
        let kind = match meta.kind {
            FileType::Regular => b'0',
            FileType::Symlink => b'2',
            FileType::CharDevice => b'3',
            FileType::BlockDevice => b'4',
            FileType::Directory => b'5',
            FileType::Fifo => b'6',
            FileType::Socket => {
                self.skipped += 1;
                return Ok(());
            }
        };
        let meta = self.keep.adjust(batch.at(path), meta)?;
        let path = member(batch.at(path), meta.kind);
        let mut records = Vec::new();
        for event in &batch.events[at + 1..at + 1 + *xattrs as usize] {
            if let Event::Xattr { name, value } = event {
                let key = [b"SCHILY.xattr.", batch.at(name)].concat();
                record(&mut records, &key, batch.at(value));
            }
        }
        let meta = match self.keep.owner {
            true => meta,
            false => Meta { uid: 0, gid: 0, ..meta },
        };
        match batch.events.get(at + 1 + *xattrs as usize) {
            Some(Event::Stretches(pairs)) if kind == b'0' => {
                return self.sparse_member(
                    &path,
                    &meta,
                    content::read_stretches(batch.at(pairs)),
                    records,
                );
            }
            _ => self.member(&path, kind, &meta, batch.at(target), records)?,
        }
        if kind == b'0' {
            let stretches = Some(0..meta.size).into_iter().collect();
            self.file = Some(Member { stretches, stored: meta.size, done: 0, map: 0 });
        }
        Ok(())
    }

    /// A file with holes: its map stands before its data.
    fn sparse_member(
        &mut self,
        path: &[u8],
        meta: &Meta,
        stretches: Vec<Range<u64>>,
        mut records: Vec<u8>,
    ) -> Result<()> {
        let stored = stretches.iter().map(|data| data.end - data.start).sum();
        // A hole at the end is marked by an empty stretch behind it.
        let last = stretches.last().is_none_or(|data| data.end < meta.size);
        let end = last.then_some(meta.size..meta.size);
        let pairs = stretches.iter().cloned().chain(end);
        let mut map = format!("{}\n", stretches.len() + usize::from(last));
        pairs
            .for_each(|data| map.push_str(&format!("{}\n{}\n", data.start, data.end - data.start)));
        let mut map = map.into_bytes();
        map.resize(map.len().next_multiple_of(BLOCK), 0);
        record(&mut records, b"GNU.sparse.major", b"1");
        record(&mut records, b"GNU.sparse.minor", b"0");
        record(&mut records, b"GNU.sparse.name", path);
        record(&mut records, b"GNU.sparse.realsize", meta.size.to_string().as_bytes());
        let (above, name) = super::split(path);
        let parts = [above, b"GNUSparseFile.0", name];
        let cover =
            parts.into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join(&b'/');
        let size = map.len() as u64 + stored;
        self.member(&cover, b'0', &Meta { size, ..*meta }, b"", records)?;
        self.out.write_all(&map)?;
        self.file = Some(Member { stretches, stored, done: 0, map: map.len() as u64 });
        Ok(())
    }

    fn member(
        &mut self,
        path: &[u8],
        kind: u8,
        meta: &Meta,
        target: &[u8],
        mut records: Vec<u8>,
    ) -> Result<()> {
        let size = if kind == b'0' { meta.size } else { 0 };
        if path.len() > 100 {
            record(&mut records, b"path", path);
        }
        if target.len() > 100 {
            record(&mut records, b"linkpath", target);
        }
        for (key, value) in [("uid", u64::from(meta.uid)), ("gid", u64::from(meta.gid))] {
            if value > 0o7777777 {
                record(&mut records, key.as_bytes(), value.to_string().as_bytes());
            }
        }
        if size > 0o77777777777 {
            record(&mut records, b"size", size.to_string().as_bytes());
        }
        if self.keep.times {
            record(&mut records, b"mtime", seconds(meta.mtime).as_bytes());
            record(&mut records, b"atime", seconds(meta.atime).as_bytes());
        }
        if !records.is_empty() {
            let plain = Meta { mode: 0o644, uid: 0, gid: 0, ..*meta };
            self.out.write_all(&header(b"pax", b'x', &plain, b"", records.len() as u64))?;
            let padded = records.len().next_multiple_of(BLOCK);
            records.resize(padded, 0);
            self.out.write_all(&records)?;
        }
        Ok(self.out.write_all(&header(path, kind, meta, target, size))?)
    }

    fn zeros(&mut self, mut count: u64) -> Result<()> {
        let zeros = [0; 16 << 10];
        while count > 0 {
            let part = count.min(zeros.len() as u64);
            self.out.write_all(&zeros[..part as usize])?;
            count -= part;
        }
        Ok(())
    }

    /// Writes what of `data` belongs to the member; what is missing before it becomes zeros. A file
    /// that changed while it was read must not break what the header says.
    fn data(&mut self, offset: u64, data: &[u8]) -> Result<()> {
        let Some(mut member) = self.file.take() else { return Ok(()) };
        let end = offset + data.len() as u64;
        let first = member.stretches.partition_point(|part| part.end <= offset);
        let mut before: u64 =
            member.stretches[..first].iter().map(|part| part.end - part.start).sum();
        for part in &member.stretches[first..] {
            if part.start >= end {
                break;
            }
            let (from, to) = (part.start.max(offset), part.end.min(end));
            let place = before + from - part.start;
            self.zeros(place.saturating_sub(member.done))?;
            self.out.write_all(&data[(from - offset) as usize..(to - offset) as usize])?;
            member.done = place + to - from;
            before += part.end - part.start;
        }
        self.file = Some(member);
        Ok(())
    }

    fn end(&mut self) -> Result<()> {
        let Some(member) = self.file.take() else { return Ok(()) };
        self.zeros(member.stored - member.done)?;
        let size = member.map + member.stored;
        self.zeros(size.next_multiple_of(BLOCK as u64) - size)
    }

    fn link(&mut self, path: &[u8], to: &[u8]) -> Result<()> {
        let meta = Meta {
            kind: FileType::Regular,
            mode: 0o644,
            uid: 0,
            gid: 0,
            rdev: 0,
            size: 0,
            atime: Timespec::default(),
            mtime: Timespec::default(),
            linked: true,
            id: None,
            kept: false,
        };
        let mut records = Vec::new();
        for (key, value) in [(b"path" as &[u8], path), (b"linkpath", to)] {
            if value.len() > 100 {
                record(&mut records, key, value);
            }
        }
        let keep = std::mem::replace(&mut self.keep.times, false);
        let done = self.member(path, b'1', &meta, to, records);
        self.keep.times = keep;
        done
    }
}

impl<W: Write> Sink for TarSink<W> {
    fn event(&mut self, _cx: &mut Cx, batch: &Batch, at: usize) -> Result<()> {
        let done = match &batch.events[at] {
            Event::Node { .. } => self.node(batch, at),
            Event::Xattr { .. } | Event::Stretches(_) | Event::Shared(_) => Ok(()),
            Event::Link { path, to } => self.link(batch.at(path), batch.at(to)),
            Event::Data { offset, data } => self.data(*offset, batch.at(data)),
            // What could not be read of a file is filled with zeros: its length has been written.
            Event::End | Event::Problem(_) => self.end(),
        };
        done.context("writing the archive")
    }

    fn abandon(&mut self) {}

    fn is_over(&self, _error: &anyhow::Error) -> bool {
        true
    }

    fn finish(&mut self, _cx: &mut Cx, _problems: &mut Problems) -> Result<()> {
        self.zeros(2 * BLOCK as u64)?;
        self.out.flush().context("writing the archive")
    }
}

/// The name of a member: `./` for the root, and a slash behind directories.
fn member(path: &[u8], kind: FileType) -> Vec<u8> {
    match (path.is_empty(), kind) {
        (true, _) => b"./".to_vec(),
        (_, FileType::Directory) => [path, b"/"].concat(),
        _ => path.to_vec(),
    }
}

/// A pax record: its own length in decimal, key, value.
fn record(out: &mut Vec<u8>, key: &[u8], value: &[u8]) {
    let rest = key.len() + value.len() + 3;
    let mut len = rest + 1;
    while rest + len.to_string().len() != len {
        len = rest + len.to_string().len();
    }
    out.extend_from_slice(format!("{len} ").as_bytes());
    out.extend_from_slice(key);
    out.push(b'=');
    out.extend_from_slice(value);
    out.push(b'\n');
}

/// `seconds.nanoseconds`; before 1970 with a minus sign, as pax counts.
fn seconds(time: Timespec) -> String {
    let nanos = time.as_nanos();
    let (sign, nanos) = (if nanos < 0 { "-" } else { "" }, nanos.unsigned_abs());
    format!("{sign}{}.{:09}", nanos / 1_000_000_000, nanos % 1_000_000_000)
}

/// A ustar header; what does not fit is cut, and stated in pax records.
fn header(path: &[u8], kind: u8, meta: &Meta, target: &[u8], size: u64) -> [u8; BLOCK] {
    let mut block = [0; BLOCK];
    let mut put = |at: usize, len: usize, bytes: &[u8]| {
        let len = bytes.len().min(len);
        block[at..at + len].copy_from_slice(&bytes[..len]);
    };
    let octal = |value: u64, digits: usize| {
        let most = (1u64 << (3 * digits)) - 1;
        format!("{:0digits$o}", value.min(most)).into_bytes()
    };
    put(0, 100, path);
    put(100, 8, &octal(meta.mode.into(), 7));
    put(108, 8, &octal(meta.uid.into(), 7));
    put(116, 8, &octal(meta.gid.into(), 7));
    put(124, 12, &octal(size, 11));
    put(136, 12, &octal(meta.mtime.sec.max(0) as u64, 11));
    put(148, 8, b"        ");
    put(156, 1, &[kind]);
    put(157, 100, target);
    put(257, 8, b"ustar\x0000");
    put(329, 8, &octal(vfs::major(meta.rdev).into(), 7));
    put(337, 8, &octal(vfs::minor(meta.rdev).into(), 7));
    let sum: u64 = block.iter().map(|&b| u64::from(b)).sum();
    block[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    block
}

/// For messages: a path of the archive.
pub fn shown(path: &[u8]) -> String {
    text::printable(path)
}
