//! Direct I/O: between the caller's pages and the device, past the page cache.
//!
//! ```text
//! check alignment -> write back and drop the cached range -> map -> bios, plugged -> wait
//!                 -> (after a write) drop what readers brought in meanwhile
//! ```
//!
//! A read takes any range; holes and unwritten extents give zeros without the device. A write goes
//! to the device where it overwrites blocks inside the file, and where the file system can give
//! whole blocks to a hole that read as zeros until the data is there (unwritten extents). Parts
//! that need blocks of another kind, or make the file longer, go through the cache, are written out
//! and dropped again, as Linux's file systems do where they fall back to buffered I/O.
//!
//! The caller is the file system: it holds the inode's lock over the call (shared for a read,
//! exclusive for a write), so that no truncate frees the blocks of bios in flight, and has no
//! journal handle open.
//!
//! Not modelled compared with Linux: pinning of user memory (slices are copied through pages; the
//! functions with `pages` in their name copy nothing), asynchronous completion, and the mapping of
//! extents block by block with a boundary hint.

use std::sync::Arc;

use base::unit::SECTOR_SIZE;
use base::{Errno, Page, Sector};
use block::{Bio, BioFlags, IoGroup, Op, Plug, Segment, Segments};
use cache::{Mapping, Piece, Pieces};
use rt::{Cx, SpinLock};

/// Largest page that slices are copied through, in bytes.
const BOUNCE_BYTES: u64 = 64 << 10;
/// Bytes that are mapped, sent off and waited for at once.
const WINDOW_BYTES: u64 = 8 << 20;

/// A part of what a direct read gives, in ascending order without gaps.
#[derive(Clone, Debug)]
pub struct Chunk {
    /// First byte in the file.
    pub off: u64,
    /// Length in bytes.
    pub len: u64,
    /// The memory that the device filled; `None` where the file has a hole.
    pub data: Option<Segment>,
}

/// What offset and length of direct I/O on `mapping` must be multiples of, in bytes: the device's
/// logical block (Linux: `statx` `stx_dio_offset_align`).
pub fn alignment(mapping: &Mapping) -> u64 {
    u64::from(mapping.backing().queue().info().logical_block)
}

/// Whether direct I/O may ask for this range.
///
/// # Errors
/// `EINVAL` where offset or length is not a multiple of [`alignment`], or the end has no number.
pub fn check(mapping: &Mapping, off: u64, len: u64) -> Result<(), Errno> {
    let unit = alignment(mapping);
    if off.is_multiple_of(unit) && len.is_multiple_of(unit) && off.checked_add(len).is_some() {
        Ok(())
    } else {
        Err(Errno::EINVAL)
    }
}

/// Reads from `off` on into `buf`; answers how many bytes the file had there. May park.
///
/// # Errors
/// `EINVAL` where offset or length is not a multiple of [`alignment`]; `EIO` of the device or of
/// the write-back before it; those of the file system's map.
pub fn read(cx: &mut Cx, mapping: &Arc<Mapping>, off: u64, buf: &mut [u8]) -> Result<usize, Errno> {
    check(mapping, off, buf.len() as u64)?;
    let mut done = 0;
    while done < buf.len() {
        let len = (buf.len() - done).min(WINDOW_BYTES as usize);
        let mut got = 0;
        for chunk in read_pages(cx, mapping, off + done as u64, len as u64)? {
            let place = &mut buf[done + got..][..chunk.len as usize];
            match chunk.data {
                Some(seg) => place.copy_from_slice(&seg.bytes()[..chunk.len as usize]),
                None => place.fill(0),
            }
            got += chunk.len as usize;
        }
        done += got;
        if got < len {
            break;
        }
    }
    Ok(done)
}

/// Reads `off..off + len`, as far as the file goes, into new pages and copies nothing. May park.
///
/// # Errors
/// As [`read`].
pub fn read_pages(
    cx: &mut Cx,
    mapping: &Arc<Mapping>,
    off: u64,
    len: u64,
) -> Result<Vec<Chunk>, Errno> {
    check(mapping, off, len)?;
    let end = (off + len).min(mapping.size());
    if off >= end {
        return Ok(Vec::new());
    }
    mapping.flush(cx, off..end)?;
    let pieces = map_all(off, end, |at, len| mapping.map(cx, at, len))?;
    let filled = Arc::new(SpinLock::new(Vec::new()));
    let (group, mut plug) = (IoGroup::new(), Plug::new());
    let mut chunks = Vec::new();
    for piece in pieces {
        let Some(sector) = piece.sector else {
            chunks.push(Chunk { off: piece.off, len: piece.len, data: None });
            continue;
        };
        // The last sector of the file is read as a whole.
        let whole = piece.len.next_multiple_of(alignment(mapping));
        for (from, segs) in split(mapping, whole) {
            let at = piece.off + from;
            let filled = filled.clone();
            let end = group.end_with(move |segs| filled.lock_irq().push((at, segs)));
            let place = Sector(sector.0 + from / SECTOR_SIZE);
            let bio = Bio::new(Op::Read, place, segs, BioFlags::SYNC, end);
            mapping.backing().queue().submit_plugged(cx, &mut plug, bio);
        }
    }
    plug.finish(cx);
    group.wait(cx).map_err(|error| error.to_errno())?;
    for (at, segs) in filled.lock(cx).drain(..) {
        let mut at = at;
        for seg in segs {
            let len = u64::from(seg.len).min(end - at);
            chunks.push(Chunk { off: at, len, data: Some(seg) });
            at += len;
        }
    }
    chunks.sort_by_key(|chunk| chunk.off);
    Ok(chunks)
}

/// Empty segments for `len` bytes, in bios of what the device takes at once, each with its place.
fn split(mapping: &Mapping, len: u64) -> Vec<(u64, Segments)> {
    let info = mapping.backing().queue().info();
    let bytes_max = u64::from(info.max_bytes);
    let (mut bios, mut at) = (Vec::new(), 0);
    while at < len {
        let (first, mut segs) = (at, Segments::new());
        while at < len && segs.len() < usize::from(info.max_segments.max(1)) {
            let now = BOUNCE_BYTES.min(len - at).min(bytes_max - (at - first));
            if now == 0 {
                break;
            }
            segs.push(Segment::whole(Page::zeroed(now as usize)));
            at += now;
        }
        bios.push((first, segs));
    }
    bios
}

/// The pieces of exactly `off..end`, both multiples of the sector or the end of the file.
fn map_all(
    off: u64,
    end: u64,
    mut map: impl FnMut(u64, u64) -> Result<Pieces, Errno>,
) -> Result<Vec<Piece>, Errno> {
    let (mut pieces, mut at) = (Vec::new(), off);
    while at < end {
        let before = at;
        for piece in map(at, end - at)? {
            // The map answers in blocks: what lies before `at` and behind `end` is cut off.
            let skip = at.saturating_sub(piece.off);
            let last = (piece.off + piece.len).min(end);
            if last <= at {
                continue;
            }
            let sector = piece.sector.map(|sector| Sector(sector.0 + skip / SECTOR_SIZE));
            pieces.push(Piece { off: at, len: last - at, sector });
            at = last;
        }
        if at == before {
            return Err(Errno::EIO);
        }
    }
    Ok(pieces)
}

/// Writes `data` to `off`; the file may grow. When it returns, the data has reached the device (not
/// yet the medium: `fsync` flushes). May park.
///
/// # Errors
/// `EINVAL` where offset or length is not a multiple of [`alignment`]; `ENOSPC` and what else the
/// file system says where blocks are needed; `EIO`. Parts may have been written.
pub fn write(cx: &mut Cx, mapping: &Arc<Mapping>, off: u64, data: &[u8]) -> Result<usize, Errno> {
    check(mapping, off, data.len() as u64)?;
    let mut at = off;
    for window in data.chunks(WINDOW_BYTES as usize) {
        let pages = window.chunks(BOUNCE_BYTES as usize);
        let segs: Vec<_> = pages.map(|part| Segment::whole(Page::from_slice(part))).collect();
        at += write_pages(cx, mapping, at, segs)?;
    }
    Ok(data.len())
}

/// Writes the pages' bytes to `off` on and copies nothing where blocks are overwritten: the pages
/// must not be needed for writing until the call returns, or they are copied then. May park.
///
/// # Errors
/// As [`write()`].
pub fn write_pages(
    cx: &mut Cx,
    mapping: &Arc<Mapping>,
    off: u64,
    segs: Vec<Segment>,
) -> Result<u64, Errno> {
    let len = block::bytes_of(&segs);
    check(mapping, off, len)?;
    for seg in &segs {
        check(mapping, 0, u64::from(seg.len))?;
    }
    if len == 0 {
        return Ok(0);
    }
    mapping.invalidate(cx, off..off + len)?;
    let inside = (off + len).min(mapping.size() / alignment(mapping) * alignment(mapping));
    let mut source = Source { segs, index: 0, used: 0 };
    let (group, mut plug) = (IoGroup::new(), Plug::new());
    let mut at = off;
    let pieces = match off < inside {
        true => map_all(off, inside, |at, len| mapping.map_write(cx, at, len))?,
        false => Vec::new(),
    };
    let mut buffered = Vec::new();
    for &piece in &pieces {
        at = piece.off + piece.len;
        let Some(sector) = piece.sector else {
            buffered.push((piece.off, source.take(piece.len, usize::MAX)));
            continue;
        };
        submit_writes(cx, mapping, &mut plug, &group, &mut source, sector, piece.len);
    }
    plug.finish(cx);
    let direct = group.wait(cx).map_err(|error| error.to_errno());
    if at < off + len {
        buffered.push((at, source.take(off + len - at, usize::MAX)));
    }
    if direct.is_ok() {
        for piece in pieces.iter().filter(|piece| piece.sector.is_some()) {
            mapping.end_direct(cx, piece.off, piece.len)?;
        }
    }
    for (from, segs) in buffered {
        write_buffered(cx, mapping, from, &segs)?;
    }
    // A reader, or readahead beside us, may have brought old content in.
    mapping.invalidate(cx, off..off + len)?;
    direct.map(|()| len)
}

fn submit_writes(
    cx: &mut Cx,
    mapping: &Mapping,
    plug: &mut Plug,
    group: &IoGroup,
    source: &mut Source,
    sector: Sector,
    len: u64,
) {
    let queue = mapping.backing().queue();
    let segments_max = usize::from(queue.info().max_segments.max(1));
    let mut done = 0;
    while done < len {
        let segs = source.take((len - done).min(u64::from(queue.info().max_bytes)), segments_max);
        let place = Sector(sector.0 + done / SECTOR_SIZE);
        done += block::bytes_of(&segs);
        let bio = Bio::new(Op::Write, place, segs, BioFlags::SYNC, group.end());
        queue.submit_plugged(cx, plug, bio);
    }
}

/// Through the cache: where blocks are missing, or the file grows.
fn write_buffered(
    cx: &mut Cx,
    mapping: &Arc<Mapping>,
    off: u64,
    segs: &[Segment],
) -> Result<(), Errno> {
    let mut at = off;
    for seg in segs {
        mapping.write(cx, at, seg.bytes())?;
        at += u64::from(seg.len);
    }
    mapping.flush(cx, off..at)
}

/// The caller's pages, taken from the front in any lengths.
struct Source {
    segs: Vec<Segment>,
    index: usize,
    used: u32,
}

impl Source {
    /// The next `len` bytes, or less where more than `segments_max` segments would be needed.
    fn take(&mut self, len: u64, segments_max: usize) -> Segments {
        let (mut segs, mut left) = (Segments::new(), len);
        while left > 0 && segs.len() < segments_max {
            let Some(seg) = self.segs.get(self.index) else { break };
            let now = u64::from(seg.len - self.used).min(left) as u32;
            let (page, offset) = (seg.page.clone(), seg.offset + self.used);
            segs.push(Segment { page, offset, len: now });
            self.used += now;
            left -= u64::from(now);
            if self.used == seg.len {
                (self.index, self.used) = (self.index + 1, 0);
            }
        }
        segs
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::rng::Rng;
    use block::{Queue, QueueConfig};
    use cache::{MappingOps, PageCache, PageCacheConfig, Pieces, WritebackControl};
    use std::collections::BTreeSet;

    const BLOCK: u64 = 4096;

    /// One file whose block `n` is block `2 n` of the device, so that no two pieces are neighbours.
    struct Toy(SpinLock<BTreeSet<u64>>);

    impl MappingOps for Toy {
        fn map(&self, _: &mut Cx, _: &Arc<Mapping>, off: u64, _: u64) -> Result<Pieces, Errno> {
            let block = off / BLOCK;
            let there = self.0.lock_irq().contains(&block);
            let sector = there.then(|| Sector(2 * block * BLOCK / SECTOR_SIZE));
            Ok([Piece { off, len: BLOCK, sector }].into_iter().collect())
        }

        fn writepages(
            &self,
            cx: &mut Cx,
            m: &Arc<Mapping>,
            wb: &mut WritebackControl<'_>,
        ) -> Result<(), Errno> {
            while let Some(range) = m.next_dirty(cx, wb)? {
                let block = range.start / BLOCK;
                self.0.lock_irq().insert(block);
                let sector = Sector(2 * block * BLOCK / SECTOR_SIZE);
                m.write_extent(cx, wb, block * BLOCK, BLOCK, sector);
            }
            Ok(())
        }
    }

    fn rig(cx: &mut Cx) -> (Arc<Queue>, Arc<Mapping>, Arc<Toy>) {
        let runtime = cx.runtime().clone();
        let device = Arc::new(device::MemoryDevice::new(8 << 20));
        let queue = Queue::new(&runtime, device, QueueConfig::default()).expect("queue");
        let cache = PageCache::new(&runtime, PageCacheConfig::with_limit(16 << 20));
        let toy = Arc::new(Toy(SpinLock::new(BTreeSet::new())));
        let ops: Arc<dyn MappingOps> = toy.clone();
        let backing = cache.backing(queue.clone(), BLOCK as u32);
        (queue, Mapping::new(&backing, 1, 0, Arc::downgrade(&ops)), toy)
    }

    /// Offset and length must be multiples of the logical block; nothing else need be.
    #[test]
    fn unaligned_requests_are_refused() {
        rt::testing::both(|cx| {
            let (_, file, _ops) = rig(cx);
            assert_eq!(alignment(&file), 512);
            assert_eq!(write(cx, &file, 1, &[0; 512]), Err(Errno::EINVAL));
            assert_eq!(write(cx, &file, 512, &[0; 100]), Err(Errno::EINVAL));
            assert_eq!(read(cx, &file, 100, &mut [0; 512]), Err(Errno::EINVAL));
            assert_eq!(read(cx, &file, 0, &mut [0; 511]), Err(Errno::EINVAL));
            assert_eq!(read(cx, &file, u64::MAX - 511, &mut [0; 512]), Err(Errno::EINVAL));
            assert_eq!(write(cx, &file, 512, &[7; 1024]), Ok(1024));
            assert_eq!((file.size(), read(cx, &file, 2048, &mut [0; 512])), (1536, Ok(0)));
            file.truncate(cx, 1000).expect("truncates");
            let mut buf = [9; 1024];
            assert_eq!(read(cx, &file, 0, &mut buf), Ok(1000));
            assert!(buf[..512].iter().all(|&b| b == 0) && buf[512..1000].iter().all(|&b| b == 7));
        });
    }

    /// Random direct and buffered reads, writes and truncates agree with a byte array.
    #[test]
    fn direct_and_buffered_agree() {
        for seed in rt::testing::seeds(6) {
            rt::testing::world(|cx| {
                let (_queue, file, toy) = rig(cx);
                let (mut rng, mut model) = (Rng::new(seed, 0), Vec::<u8>::new());
                for step in 0..300 {
                    let mut off = rng.below(200_000);
                    let mut len = rng.below(40_000) + 1;
                    let direct = rng.chance(0.6);
                    if direct {
                        (off, len) = (off / 512 * 512, len.next_multiple_of(512));
                    }
                    let (at, mut buf) = (off as usize, vec![0; len as usize]);
                    if rng.chance(0.5) {
                        rng.fill(&mut buf);
                        if direct {
                            assert_eq!(write(cx, &file, off, &buf), Ok(buf.len()));
                        } else {
                            file.write(cx, off, &buf).expect("writes");
                        }
                        model.resize(model.len().max(at + buf.len()), 0);
                        model[at..at + buf.len()].copy_from_slice(&buf);
                    } else if rng.chance(0.9) {
                        let count = if direct {
                            read(cx, &file, off, &mut buf).expect("reads")
                        } else {
                            file.read(cx, off, &mut buf).expect("reads")
                        };
                        let want = model.get(at..).unwrap_or(&[]);
                        let want = &want[..want.len().min(buf.len())];
                        assert!(&buf[..count] == want, "seed {seed} step {step}: {off}+{len}");
                    } else {
                        file.truncate(cx, off).expect("truncates");
                        toy.0.lock_irq().split_off(&off.div_ceil(BLOCK));
                        model.resize(at, 0);
                    }
                }
            });
        }
    }

    /// An overwrite goes to the device without the cache, holes are not asked of the device, and a
    /// dirty range is written out before it is read.
    #[test]
    fn the_device_sees_what_is_asked_and_no_more() {
        rt::testing::world(|cx| {
            let (queue, file, _ops) = rig(cx);
            file.write(cx, 0, &[1; 4096]).expect("writes");
            file.write(cx, 3 * BLOCK, &[2; 4096]).expect("writes");
            let mut buf = vec![9; 4 * BLOCK as usize];
            assert_eq!(read(cx, &file, 0, &mut buf), Ok(buf.len()));
            let sums: Vec<u32> =
                buf.chunks(4096).map(|c| c.iter().map(|&b| u32::from(b)).sum()).collect();
            assert_eq!(sums, vec![4096, 0, 0, 8192]);
            let stats = queue.stats();
            assert_eq!((stats.write_bytes, stats.read_bytes), (8192, 8192));
            assert_eq!(write(cx, &file, 512, &[3; 1024]), Ok(1024));
            let stats = queue.stats();
            assert_eq!((stats.write_bytes, stats.read_bytes), (8192 + 1024, 8192));
            assert_eq!(file.read(cx, 512, &mut buf[..4]), Ok(4));
            assert_eq!(buf[..4], [3; 4]);
        });
    }
}
