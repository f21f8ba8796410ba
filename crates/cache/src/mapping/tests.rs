//! A toy file system on a byte-array device, and what its files must look like.

mod counts;
mod errors;
mod model;
mod pressure;

use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Arc;

use base::unit::SECTOR_SIZE;
use base::{Errno, Nanos, Sector};
use block::{BioFlags, Cause, Device, DeviceInfo, DeviceIo, Op, Queue, QueueConfig};
use rt::{Cx, Runtime, SpinLock};

use super::{IomapIter, IomapOps, Mapping};
use crate::iomap::{Iomap, IomapKind};
use crate::page_cache::{PageCache, PageCacheConfig};
use crate::writeback::{Backing, WritebackControl};

/// One request as the device saw it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Seen {
    pub(super) op: Op,
    pub(super) off: u64,
    pub(super) len: u64,
    pub(super) segs: usize,
    pub(super) flags: BioFlags,
}

/// What the test device does and has seen.
#[derive(Default)]
pub(super) struct Disk {
    pub(super) bytes: Vec<u8>,
    pub(super) seen: Vec<Seen>,
    /// Time that a request takes, 0 for completion inside `submit`.
    pub(super) delay: Nanos,
    /// Requests that will still fail.
    pub(super) failures: u32,
}

/// A memory device whose completions come when the clock says so.
pub(super) struct TestDevice {
    info: DeviceInfo,
    runtime: Runtime,
    pub(super) disk: Arc<SpinLock<Disk>>,
}

impl TestDevice {
    fn new(runtime: &Runtime, bytes: usize) -> TestDevice {
        let disk = Disk { bytes: vec![0xdb; bytes], ..Disk::default() };
        TestDevice {
            info: DeviceInfo::plain(bytes as u64 / SECTOR_SIZE),
            runtime: runtime.clone(),
            disk: Arc::new(SpinLock::new(disk)),
        }
    }
}

impl Disk {
    /// Moves the data of a request; false where it is to fail.
    fn carry_out(&mut self, io: &mut DeviceIo) -> bool {
        let (off, len) = (io.sector.bytes(), io.bytes());
        self.seen.push(Seen { op: io.op, off, len, segs: io.segs.len(), flags: io.flags });
        if self.failures > 0 {
            self.failures -= 1;
            return false;
        }
        let mut at = off as usize;
        for seg in &mut io.segs {
            let place = &mut self.bytes[at..at + seg.len as usize];
            match io.op {
                Op::Read => seg.bytes_mut().copy_from_slice(place),
                _ => place.copy_from_slice(seg.bytes()),
            }
            at += seg.len as usize;
        }
        true
    }
}

impl Device for TestDevice {
    fn info(&self) -> &DeviceInfo {
        &self.info
    }

    fn submit(&self, mut io: DeviceIo) {
        let delay = self.disk.lock_irq().delay;
        let disk = self.disk.clone();
        let finish = move || {
            let done = disk.lock_irq().carry_out(&mut io);
            if done { io.succeed() } else { io.fail(Cause::Io) }
        };
        if delay == Nanos::ZERO {
            return finish();
        }
        self.runtime.at(self.runtime.now() + delay, Box::new(move |_| finish()));
    }

    fn name(&self) -> String {
        "test device".into()
    }
}

/// A file system of files that lie side by side: byte `b` of file `f` is byte `f * room + b` of the
/// device, once its block is allocated, which happens at write-out. A freed block is poisoned.
pub(super) struct ToyFs {
    pub(super) room: u64,
    block: u64,
    pub(super) disk: Arc<SpinLock<Disk>>,
    allocated: rt::Mutex<BTreeSet<u64>>,
    /// Makes `writepages` and `reserve` fail.
    pub(super) errno: SpinLock<Option<Errno>>,
    /// The map returns only so many bytes at once.
    pub(super) map_max: u64,
    /// Time that the map takes, as if it read metadata.
    pub(super) map_delay: Nanos,
    /// Keeps write-back away from a file that shrinks.
    writeback: rt::Mutex<()>,
}

impl ToyFs {
    pub(super) fn new(room: u64, block: u64, disk: Arc<SpinLock<Disk>>) -> ToyFs {
        ToyFs {
            room,
            block,
            disk,
            allocated: rt::Mutex::new(BTreeSet::new()),
            errno: SpinLock::new(None),
            map_max: u64::MAX,
            map_delay: Nanos::ZERO,
            writeback: rt::Mutex::named("write-back", ()),
        }
    }

    fn place(&self, file: u64, off: u64) -> u64 {
        file * self.room + off
    }

    /// Frees the blocks of `range` of a file.
    fn free(&self, cx: &mut Cx, mapping: &Mapping, range: Range<u64>) {
        let first = self.place(mapping.id(), range.start.div_ceil(self.block) * self.block);
        let last = self.place(mapping.id(), range.end.min(self.room) / self.block * self.block);
        let mut allocated = self.allocated.lock(cx);
        let gone: Vec<u64> = allocated
            .range(first / self.block..(last / self.block).max(first / self.block))
            .copied()
            .collect();
        for block in gone {
            allocated.remove(&block);
            let at = (block * self.block) as usize;
            self.disk.lock_irq().bytes[at..at + self.block as usize].fill(0xee);
        }
    }

    pub(super) fn truncate(&self, cx: &mut Cx, mapping: &Arc<Mapping>, size: u64) {
        let guard = self.writeback.lock(cx);
        mapping.truncate(cx, size).expect("truncates");
        self.free(cx, mapping, size..u64::MAX);
        drop(guard);
    }

    pub(super) fn punch(&self, cx: &mut Cx, mapping: &Arc<Mapping>, range: Range<u64>) {
        let guard = self.writeback.lock(cx);
        mapping.punch(cx, range.clone()).expect("punches");
        self.free(cx, mapping, range);
        drop(guard);
    }
}

impl IomapOps for ToyFs {
    fn begin(
        &self,
        cx: &mut Cx,
        iter: &mut IomapIter<'_>,
        range: Range<u64>,
    ) -> Result<Iomap, Errno> {
        let Range { start, end } = range;
        let whole = start.is_multiple_of(self.block) && end.is_multiple_of(self.block);
        assert!(whole && start < end, "whole blocks");
        if self.map_delay > Nanos::ZERO {
            cx.sleep(self.map_delay);
        }
        let allocated = self.allocated.lock(cx);
        let there = |at: &u64| {
            *at < self.room && allocated.contains(&(self.place(iter.file, *at) / self.block))
        };
        let first = there(&start);
        let mut blocks =
            (start..end.min(start.saturating_add(self.map_max))).step_by(self.block as usize);
        let until = blocks.find(|at| there(at) != first).unwrap_or(end);
        let len = (until - start).min(self.map_max);
        let sector = Sector(self.place(iter.file, start) / SECTOR_SIZE);
        let kind = if first { IomapKind::Mapped(sector) } else { IomapKind::Hole };
        Ok(Iomap { offset: start, len, kind })
    }

    fn reserve(&self, _: &mut Cx, range: Range<u64>) -> Result<(), Errno> {
        assert!(range.end <= self.room, "a file has no room for {range:?}");
        self.errno.lock_irq().map_or(Ok(()), Err)
    }

    fn writepages(
        &self,
        cx: &mut Cx,
        m: &Arc<Mapping>,
        wb: &mut WritebackControl<'_>,
    ) -> Result<(), Errno> {
        let _guard = self.writeback.lock(cx);
        while let Some(range) = m.next_dirty(cx, wb)? {
            if self.map_delay > Nanos::ZERO {
                cx.sleep(self.map_delay);
            }
            if let Some(errno) = *self.errno.lock_irq() {
                return Err(errno);
            }
            let first = self.place(m.id(), range.start);
            let blocks = first / self.block..self.place(m.id(), range.end) / self.block;
            self.allocated.lock(cx).extend(blocks);
            m.write_extent(
                cx,
                wb,
                range.start,
                range.end - range.start,
                Sector(first / SECTOR_SIZE),
            );
        }
        Ok(())
    }
}

/// A device, a cache, a backing and the toy file system on them.
pub(super) struct Rig {
    pub(super) disk: Arc<SpinLock<Disk>>,
    pub(super) cache: Arc<PageCache>,
    pub(super) backing: Arc<Backing>,
    pub(super) fs: Arc<ToyFs>,
    pub(super) ops: Arc<dyn IomapOps>,
}

impl Rig {
    /// `files` files of at most `room` bytes.
    pub(super) fn new(
        cx: &mut Cx,
        config: PageCacheConfig,
        block: u32,
        files: u64,
        room: u64,
    ) -> Rig {
        let runtime = cx.runtime().clone();
        let device = TestDevice::new(&runtime, (files * room) as usize);
        let disk = device.disk.clone();
        let queue = Queue::new(&runtime, Arc::new(device), QueueConfig::default()).expect("queue");
        let cache = PageCache::new(&runtime, config);
        let backing = cache.backing(queue, block);
        let fs = Arc::new(ToyFs::new(room, u64::from(block), disk.clone()));
        let ops: Arc<dyn IomapOps> = fs.clone();
        Rig { disk, cache, backing, fs, ops }
    }

    /// Changes the file system, of which no file was opened yet.
    pub(super) fn with_fs(mut self, change: impl FnOnce(&mut ToyFs)) -> Rig {
        let mut fs = ToyFs::new(self.fs.room, self.fs.block, self.disk.clone());
        change(&mut fs);
        self.fs = Arc::new(fs);
        self.ops = self.fs.clone();
        self
    }

    /// The mapping of file `id`, of `size` bytes.
    pub(super) fn file(&self, id: u64, size: u64) -> Arc<Mapping> {
        Mapping::new(&self.backing, id, size, Arc::downgrade(&self.ops))
    }

    /// What the device has seen since the last call, as "W off+len" in KiB.
    pub(super) fn seen(&self) -> String {
        let seen = std::mem::take(&mut self.disk.lock_irq().seen);
        let words = seen.iter().map(|seen| {
            let op = if seen.op == Op::Read { 'R' } else { 'W' };
            format!("{op}{}+{}", seen.off as f64 / 1024.0, seen.len as f64 / 1024.0)
        });
        words.collect::<Vec<_>>().join(" ")
    }

    pub(super) fn finish(self, cx: &mut Cx) {
        self.backing.sync(cx).expect("syncs");
        self.backing.shutdown(cx);
    }
}

pub(super) fn config(folio_size: u32, limit_bytes: u64) -> PageCacheConfig {
    PageCacheConfig { folio_size, ..PageCacheConfig::with_limit(limit_bytes) }
}
