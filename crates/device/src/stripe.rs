//! A stripe over equal devices, as the device mapper's: chunks in turn.
//!
//! Chunk `n` of the stripe lies on member `n % width`, behind the chunks that are there already. A
//! request is cut at the ends of chunks, in one of two ways ([`Cutter`]); the parts go to their
//! members at once, and the request is done when all of them are.
//!
//! Not modelled: parity, failed members, chunks of different sizes.

use std::sync::Arc;

use base::unit::SECTOR_SIZE;
use base::{Page, Sector};
use block::{Device, DeviceError, DeviceInfo, DeviceIo, Op, Segment, Segments};
use rt::SpinLock;
use smallvec::SmallVec;

/// How a request is cut at the ends of chunks.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Cutter {
    /// At sectors, as Linux does it since 3.14: as few parts as there are chunks.
    #[default]
    Sectors,
    /// As the device mapper of 2006: whole segments together as far as the chunk reaches; a segment
    /// across the end of a chunk is cut in two, and both halves are parts of their own.
    Segments,
}

/// A part of a request: first sector on the stripe, and how many. It lies in one chunk.
pub type Part = (u64, u64);

impl Cutter {
    /// The parts of a request at `sector` with segments of `lengths` bytes, in chunks of `chunk`
    /// sectors.
    pub fn cut(
        self,
        chunk: u64,
        sector: u64,
        lengths: impl IntoIterator<Item = u32>,
    ) -> SmallVec<[Part; 8]> {
        let mut parts = SmallVec::new();
        let lengths = lengths.into_iter().map(|len| u64::from(len) / SECTOR_SIZE);
        if self == Cutter::Sectors {
            cut_range(chunk, sector, lengths.sum(), &mut parts);
            return parts;
        }
        let (mut at, mut run) = (sector, sector);
        let mut part = |from: u64, to: u64| {
            if from < to {
                parts.push((from, to - from));
            }
        };
        for mut left in lengths {
            while left > 0 {
                let room = chunk - at % chunk;
                if left < room {
                    at += left;
                    break;
                }
                // The segment reaches the end of the chunk, or beyond it.
                if left > room {
                    part(run, at);
                    run = at;
                }
                at += room;
                left -= room;
                part(run, at);
                run = at;
                if left > 0 && left < chunk {
                    at += left;
                    left = 0;
                    part(run, at);
                    run = at;
                }
            }
        }
        part(run, at);
        parts
    }
}

/// Cuts a range at the ends of chunks.
fn cut_range(chunk: u64, sector: u64, count: u64, parts: &mut SmallVec<[Part; 8]>) {
    let (mut at, end) = (sector, sector + count);
    while at < end {
        let next = ((at / chunk + 1) * chunk).min(end);
        parts.push((at, next - at));
        at = next;
    }
}

/// Devices that make no stripe.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum StripeError {
    /// There is none.
    #[error("a stripe needs a device at least")]
    Empty,
    /// The chunk is none.
    #[error("a chunk of {0} bytes: it must be a multiple of the logical block of {1} bytes")]
    Chunk(u64, u32),
    /// A member is too small for one chunk.
    #[error("{0} is smaller than a chunk of {1} bytes")]
    Small(String, u64),
    /// Members differ in what requests they take.
    #[error("{0} has logical blocks of {1} bytes, {2} of {3}")]
    Block(String, u32, String, u32),
}

/// A stripe over other devices.
pub struct StripeDevice {
    members: Vec<Arc<dyn Device>>,
    info: DeviceInfo,
    /// Sectors of a chunk.
    chunk: u64,
    cutter: Cutter,
}

impl StripeDevice {
    /// A stripe of chunks of `chunk` bytes over `members`, each used as far as the smallest goes.
    ///
    /// # Errors
    /// Where these devices and this chunk make none.
    pub fn new(
        members: Vec<Arc<dyn Device>>,
        chunk: u64,
        cutter: Cutter,
    ) -> Result<StripeDevice, StripeError> {
        let Some(first) = members.first() else { return Err(StripeError::Empty) };
        let block = first.info().logical_block;
        if chunk == 0 || chunk > 1 << 30 || !chunk.is_multiple_of(u64::from(block)) {
            return Err(StripeError::Chunk(chunk, block));
        }
        for member in &members {
            let own = member.info().logical_block;
            if own != block {
                return Err(StripeError::Block(first.name(), block, member.name(), own));
            }
            if member.info().bytes() < chunk {
                return Err(StripeError::Small(member.name(), chunk));
            }
        }
        let infos = || members.iter().map(|member| member.info());
        let width = members.len() as u64;
        let rows = infos().map(|info| info.bytes() / chunk).min().unwrap_or(0);
        let max_bytes = infos().map(|info| info.max_bytes).min().unwrap_or(block);
        // So that no member gets more than it takes at once.
        let parts = (u64::from(max_bytes) / chunk + 2).div_ceil(width) * 3;
        let depth = infos().map(|info| u64::from(info.depth) * width.min(8)).min().unwrap_or(1);
        let info = DeviceInfo {
            sectors: rows * width * chunk / SECTOR_SIZE,
            physical_block: infos().map(|info| info.physical_block).max().unwrap_or(block),
            max_bytes,
            max_segments: infos().map(|info| info.max_segments).min().unwrap_or(1),
            volatile_cache: infos().any(|info| info.volatile_cache),
            fua: infos().all(|info| info.fua),
            discard: infos().all(|info| info.discard),
            write_zeroes: infos().all(|info| info.write_zeroes),
            read_only: infos().any(|info| info.read_only),
            depth: (depth / parts).clamp(1, 1 << 16) as u32,
            rotational: infos().any(|info| info.rotational),
            chunk: chunk as u32,
            ..first.info().clone()
        };
        Ok(StripeDevice { members, info, chunk: chunk / SECTOR_SIZE, cutter })
    }

    /// The member with a sector of the stripe, and the sector on it.
    fn place(&self, sector: u64) -> (usize, Sector) {
        let (number, within) = (sector / self.chunk, sector % self.chunk);
        let width = self.members.len() as u64;
        ((number % width) as usize, Sector(number / width * self.chunk + within))
    }

    fn flush(&self, io: DeviceIo) {
        let parent = Parent::new(io, self.members.len());
        for (index, member) in self.members.iter().enumerate() {
            let parent = parent.clone();
            let end = move |_: Segments, result: Result<(), DeviceError>| {
                parent.end(
                    0,
                    Segments::new(),
                    result.map_err(|error| DeviceError { sector: Sector(0), count: 0, ..error }),
                );
            };
            let mut part =
                DeviceIo::new(Op::Flush, Sector(0), Segments::new(), block::BioFlags::SYNC, end);
            part.more = index + 1 < self.members.len();
            member.submit(part);
        }
    }
}

/// A request whose parts are on their way.
struct Parent(SpinLock<State>);

struct State {
    io: Option<DeviceIo>,
    left: usize,
    /// The lowest and the highest sector that failed, with the first error.
    failed: Option<(u64, u64, DeviceError)>,
    /// What the parts of a read brought, by their first sector.
    filled: Vec<(u64, Segments)>,
}

impl Parent {
    fn new(io: DeviceIo, parts: usize) -> Arc<Parent> {
        let state = State { io: Some(io), left: parts, failed: None, filled: Vec::new() };
        Arc::new(Parent(SpinLock::named("stripe", state)))
    }

    /// The part at `sector` is done; an error is reported in sectors of the stripe.
    fn end(&self, sector: u64, segs: Segments, result: Result<(), DeviceError>) {
        let mut state = self.0.lock_irq();
        if let Err(error) = result {
            let (from, to) = (error.sector.0, error.sector.0 + error.count);
            state.failed = Some(match state.failed.take() {
                None => (from, to, error),
                Some((low, high, first)) => (low.min(from), high.max(to), first),
            });
        }
        if !segs.is_empty() {
            state.filled.push((sector, segs));
        }
        state.left -= 1;
        if state.left > 0 {
            return;
        }
        let mut io = state.io.take().expect("a request ends once");
        let (failed, filled) = (state.failed.take(), std::mem::take(&mut state.filled));
        drop(state);
        if io.op == Op::Read {
            put_together(&mut io.segs, filled);
        }
        match failed {
            None => io.succeed(),
            Some((low, high, error)) => {
                let count = high - low;
                io.complete(Err(DeviceError { sector: Sector(low), count, ..error }));
            }
        }
    }
}

/// Puts what the parts of a read brought into the segments of the request.
fn put_together(segs: &mut Segments, mut filled: Vec<(u64, Segments)>) {
    filled.sort_by_key(|part| part.0);
    let mut pieces = filled.into_iter().flat_map(|part| part.1);
    for seg in segs {
        let mut done = 0;
        while done < seg.len {
            let Some(piece) = pieces.next() else { return };
            if piece.len == seg.len && done == 0 {
                *seg = piece;
                break;
            }
            let to = &mut seg.bytes_mut()[done as usize..][..piece.len as usize];
            to.copy_from_slice(piece.bytes());
            done += piece.len;
        }
    }
}

/// The bytes `from..from + len` of a request's segments. For a read a segment that is cut gets
/// memory of its own.
fn slice(segs: &[Segment], from: u64, len: u64, read: bool) -> Segments {
    let (mut out, mut before) = (Segments::new(), 0u64);
    for seg in segs {
        let (start, end) = (before.max(from), (before + u64::from(seg.len)).min(from + len));
        if start < end {
            let part = (end - start) as u32;
            let whole = part == seg.len;
            out.push(match read && !whole {
                true => Segment::whole(Page::zeroed(part as usize)),
                false => {
                    let offset = seg.offset + (start - before) as u32;
                    Segment { page: seg.page.clone(), offset, len: part }
                }
            });
        }
        before += u64::from(seg.len);
    }
    out
}

impl Device for StripeDevice {
    fn info(&self) -> &DeviceInfo {
        &self.info
    }

    fn submit(&self, mut io: DeviceIo) {
        if io.op == Op::Flush {
            return self.flush(io);
        }
        let (op, first, flags, ioc, more) = (io.op, io.sector.0, io.flags, io.ioc, io.more);
        let read = op == Op::Read;
        let parts = match op.has_data() {
            true => self.cutter.cut(self.chunk, first, io.segs.iter().map(|seg| seg.len)),
            false => {
                let mut parts = SmallVec::new();
                cut_range(self.chunk, first, io.count, &mut parts);
                parts
            }
        };
        if parts.len() == 1 {
            // As it is, moved to its member; what is said of it is moved back.
            let (index, place) = self.place(first);
            let mut moved = io.wrap(move |io, result| {
                io.complete(result.map_err(|error| DeviceError {
                    sector: Sector(first + error.sector.0.saturating_sub(place.0)),
                    ..error
                }));
            });
            moved.sector = place;
            return self.members[index].submit(moved);
        }
        let pieces: Vec<Segments> = parts
            .iter()
            .map(|part| {
                let (from, len) = ((part.0 - first) * SECTOR_SIZE, part.1 * SECTOR_SIZE);
                slice(&io.segs, from, len, read)
            })
            .collect();
        if read {
            // The parts have the memory now, alone, so that a device fills it in place.
            for seg in &mut io.segs {
                seg.page = Page::zeroed(seg.page.len());
            }
        }
        let parent = Parent::new(io, parts.len());
        for (number, (&(sector, count), segs)) in parts.iter().zip(pieces).enumerate() {
            let (index, place) = self.place(sector);
            let parent = parent.clone();
            let end = move |segs: Segments, result: Result<(), DeviceError>| {
                let result = result.map_err(|error| DeviceError {
                    sector: Sector(sector + (error.sector.0.saturating_sub(place.0)).min(count)),
                    ..error
                });
                parent.end(sector, if read { segs } else { Segments::new() }, result);
            };
            let mut part = match op.has_data() {
                true => DeviceIo::new(op, place, segs, flags, end),
                false => DeviceIo::ranged(op, place, count, flags, end),
            };
            (part.ioc, part.more) = (ioc, more || number + 1 < parts.len());
            self.members[index].submit(part);
        }
    }

    fn name(&self) -> String {
        let names: Vec<String> = self.members.iter().map(|member| member.name()).collect();
        let bytes = self.chunk * SECTOR_SIZE;
        format!("stripe of {} by {bytes} bytes ({})", self.members.len(), names.join(", "))
    }
}
