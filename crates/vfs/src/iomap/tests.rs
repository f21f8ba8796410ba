//! Direct I/O through the drivers on a toy file.

use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::{Arc, Weak};

use base::rng::Rng;
use base::unit::SECTOR_SIZE;
use base::{Errno, Sector};
use block::{Queue, QueueConfig};
use cache::{Intent, Iomap, IomapIter, IomapKind, IomapOps, Mapping};
use cache::{PageCache, PageCacheConfig, WritebackControl};
use rt::{Cx, Mutex, RwLock, SpinLock};

use super::{DirectWrites, FileParts, FileState, IomapFile};
use crate::FileType;
use crate::direct::{DirectOptions, Memory, alignment};

const BLOCK: u64 = 4096;

/// One file whose block `n` is block `2 n` of the device, so that no two pieces are neighbours.
struct Toy {
    blocks: SpinLock<BTreeSet<u64>>,
    mapping: SpinLock<Weak<Mapping>>,
}

impl Toy {
    fn place(block: u64) -> Sector {
        Sector(2 * block * BLOCK / SECTOR_SIZE)
    }
}

/// A write past the page cache is given odd blocks, which become part of the file at its end; even
/// ones go through the page cache.
impl IomapOps for Toy {
    fn begin(
        &self,
        _: &mut Cx,
        iter: &mut IomapIter<'_>,
        range: Range<u64>,
    ) -> Result<Iomap, Errno> {
        let block = range.start / BLOCK;
        let kind = if self.blocks.lock_irq().contains(&block) {
            IomapKind::Mapped(Toy::place(block))
        } else if iter.intent != Intent::Write || block.is_multiple_of(2) {
            IomapKind::Hole
        } else {
            iter.private::<BTreeSet<u64>>().insert(block);
            IomapKind::Unwritten(Toy::place(block))
        };
        Ok(Iomap { offset: range.start, len: BLOCK, kind })
    }

    fn end(
        &self,
        _: &mut Cx,
        iter: &mut IomapIter<'_>,
        range: Range<u64>,
        complete: bool,
    ) -> (u64, Result<(), Errno>) {
        let mut given: BTreeSet<u64> = iter.take_private();
        let mut end = range.end;
        if !complete && given.contains(&(end / BLOCK)) {
            end = (end / BLOCK * BLOCK).max(range.start);
        }
        given.retain(|block| block * BLOCK < end);
        self.blocks.lock_irq().append(&mut given);
        let mapping = self.mapping.lock_irq().upgrade().expect("the file is open");
        if end > mapping.size() {
            mapping.set_size(end);
        }
        (end, Ok(()))
    }

    fn writepages(
        &self,
        cx: &mut Cx,
        m: &Arc<Mapping>,
        wb: &mut WritebackControl<'_>,
    ) -> Result<(), Errno> {
        while let Some(range) = m.next_dirty(cx, wb)? {
            let block = range.start / BLOCK;
            self.blocks.lock_irq().insert(block);
            m.write_extent(cx, wb, block * BLOCK, BLOCK, Toy::place(block));
        }
        Ok(())
    }
}

/// A file of the toy.
struct ToyFile {
    toy: Arc<Toy>,
    mapping: Arc<Mapping>,
    lock: RwLock<()>,
    writeback: Mutex<()>,
}

impl IomapFile for ToyFile {
    fn parts(&self) -> FileParts<'_> {
        FileParts {
            ops: &*self.toy,
            rwsem: &self.lock,
            writeback: &self.writeback,
            pages: Some(&self.mapping),
            block_size: BLOCK as u32,
            direct: DirectOptions::default(),
        }
    }

    fn state(&self, _: &Cx) -> FileState {
        FileState {
            kind: FileType::Regular,
            size: self.mapping.size(),
            size_on_disk: self.mapping.size(),
            size_max: 1 << 40,
            freed: false,
            has_unwritten: false,
            inline: false,
        }
    }

    fn mapping(&self, _: &Cx) -> &Arc<Mapping> {
        &self.mapping
    }

    fn is_inline(&self, _: &mut Cx) -> bool {
        false
    }

    fn has_delalloc(&self, _: &Cx) -> bool {
        false
    }

    fn direct_writes(&self, _: &Cx) -> DirectWrites {
        DirectWrites::Shared
    }

    fn check_writable(&self) -> Result<(), Errno> {
        Ok(())
    }

    fn stamp_times(&self, _: &Cx) {}

    fn flush(&self, cx: &mut Cx, range: Range<u64>) -> Result<(), Errno> {
        self.mapping.flush(cx, range)
    }

    fn allocate(&self, _: &mut Cx, _: Range<u64>) -> Result<u64, Errno> {
        Err(Errno::EOPNOTSUPP)
    }

    fn drop_delalloc(&self, _: &mut Cx, _: Range<u64>) {}

    fn unmap(&self, _: &mut Cx, _: Range<u64>) -> Result<(), Errno> {
        Err(Errno::EOPNOTSUPP)
    }

    fn extend(&self, _: &mut Cx, _: u64) -> Result<(), Errno> {
        Ok(())
    }

    fn truncate(&self, _: &mut Cx, _: u64) -> Result<(), Errno> {
        Ok(())
    }

    fn note_fallocate(&self, _: &mut Cx, _: bool) -> Result<(), Errno> {
        Ok(())
    }

    fn note_direct_write(&self, _: &mut Cx, _: Intent, _: bool) -> Result<(), Errno> {
        Ok(())
    }
}

impl std::ops::Deref for ToyFile {
    type Target = Arc<Mapping>;

    fn deref(&self) -> &Arc<Mapping> {
        &self.mapping
    }
}

fn write(cx: &mut Cx, file: &ToyFile, off: u64, data: &[u8]) -> Result<usize, Errno> {
    super::write_direct(cx, file, off, Memory::Bytes(data)).map(|bytes| bytes as usize)
}

fn read(cx: &mut Cx, file: &ToyFile, off: u64, buf: &mut [u8]) -> Result<usize, Errno> {
    super::read_direct(cx, file, off, buf)
}

fn rig(cx: &mut Cx) -> (Arc<Queue>, ToyFile, Arc<Toy>) {
    let runtime = cx.runtime().clone();
    let device = Arc::new(device::MemoryDevice::new(8 << 20));
    let queue = Queue::new(&runtime, device, QueueConfig::default()).expect("queue");
    let cache = PageCache::new(&runtime, PageCacheConfig::with_limit(16 << 20));
    let mapping = SpinLock::new(Weak::new());
    let toy = Arc::new(Toy { blocks: SpinLock::new(BTreeSet::new()), mapping });
    let ops: Arc<dyn IomapOps> = toy.clone();
    let backing = cache.backing(queue.clone(), BLOCK as u32);
    let mapping = Mapping::new(&backing, 1, 0, Arc::downgrade(&ops));
    *toy.mapping.lock_irq() = Arc::downgrade(&mapping);
    (
        queue,
        ToyFile { toy: toy.clone(), mapping, lock: RwLock::new(()), writeback: Mutex::new(()) },
        toy,
    )
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
        assert_eq!((file.mapping.size(), read(cx, &file, 2048, &mut [0; 512])), (1536, Ok(0)));
        file.mapping.truncate(cx, 1000).expect("truncates");
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
                    file.mapping.truncate(cx, off).expect("truncates");
                    toy.blocks.lock_irq().split_off(&off.div_ceil(BLOCK));
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
