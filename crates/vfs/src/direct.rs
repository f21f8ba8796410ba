//! Direct I/O: between the caller's pages and the device, past the page cache.
//!
//! ```text
//! check alignment -> write back and drop the cached range
//!   -> GetBlock: a run of blocks -> pieces -> sections -> bios          (repeated)
//!   -> wait for all -> the file system makes new blocks part of the file, and the size grow
//!   -> drop what readers brought in meanwhile
//! ```
//!
//! [`Engine`] is the part from the map to the bios. A file system gives it a map of its own
//! ([`GetBlock`]), whose runs may be long, may be new, and may carry the *boundary* mark; what the
//! mark is used for is a choice of the mount ([`Boundary`]). File systems whose maps say no more
//! than [`cache::MappingOps`] does use [`read()`] and [`write()`] with a [`Mapping`].
//!
//! A read takes any range; holes and unwritten extents give zeros without the device. A write goes
//! to the device wherever its map has a sector; where it has none the page cache does it, as in
//! Linux's fallback to buffered I/O. New blocks become part of the file when their content is
//! there, so no crash and no error shows what was on the disk before.
//!
//! The caller is the file system: it holds the inode's lock over the call (shared for a read and
//! for a write that changes no map, else exclusive), so that no truncate frees the blocks of bios
//! in flight, and has no journal handle open. Many calls are in flight where many tasks make them.
//!
//! Not modelled compared with Linux: pinning of user memory, and faults in it (slices are copied
//! through pages; [`Memory::Pages`] copies nothing); completion in the caller's absence.

mod boundary;
mod cached;
mod collect;
mod ends;
mod engine;
mod memory;

pub use boundary::Boundary;
pub use cached::{at_host, read, read_pages, read_with, write, write_buffered, write_pages};
pub use engine::{Chunk, DirectOptions, Engine, GetBlock, Run, Stop, Transfer};
pub use memory::{Memory, Rest};

use base::Errno;
use cache::Mapping;

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

#[cfg(test)]
mod tests {
    use super::*;
    use base::Sector;
    use base::rng::Rng;
    use base::unit::SECTOR_SIZE;
    use block::{Queue, QueueConfig};
    use cache::{Iomap, IomapKind, Iomaps};
    use cache::{MappingOps, PageCache, PageCacheConfig, WritebackControl};
    use rt::{Cx, SpinLock};
    use std::collections::BTreeSet;
    use std::sync::Arc;

    const BLOCK: u64 = 4096;

    /// One file whose block `n` is block `2 n` of the device, so that no two pieces are neighbours.
    struct Toy(SpinLock<BTreeSet<u64>>);

    impl MappingOps for Toy {
        fn map(&self, _: &mut Cx, _: &Arc<Mapping>, off: u64, _: u64) -> Result<Iomaps, Errno> {
            let block = off / BLOCK;
            let there = self.0.lock_irq().contains(&block);
            let sector = Sector(2 * block * BLOCK / SECTOR_SIZE);
            let kind = if there { IomapKind::Mapped(sector) } else { IomapKind::Hole };
            Ok([Iomap { offset: off, len: BLOCK, kind }].into_iter().collect())
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
