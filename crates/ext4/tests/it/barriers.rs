//! Power cuts under each way to keep the commit record in its place. With a volatile cache a drain
//! is as safe as a flush, since it flushes too; without one, where flushes vanish, what has
//! completed is there and a cut loses only what is in flight. A record without a flush on a
//! volatile cache loses promises: these campaigns can fail.

use crate::support::oracle::Oracle;
use crate::support::workload::{self, Shared};
use crate::support::{Cell, FLASH, SAFE_FLASH, checked, modelled, mount, seeds};
use base::Rng;
use block::{Device, Queue, QueueConfig, SyncWrites};
use cache::{PageCache, PageCacheConfig};
use device::{Cut, MemoryDevice, RecordDevice, WriteLog};
use ext4::{Ext4, MountOptions};
use jbd2::{CommitRecord, JournalIo};
use rt::{Cx, SpinLock, World, WorldConfig};
use std::sync::Arc;
use vfs::FileSystem;

/// A recorded run that stopped in the middle.
struct Run {
    base: MemoryDevice,
    log: WriteLog,
    oracle: Oracle,
}

fn mount_with(cx: &mut Cx, device: Arc<dyn Device>, record: CommitRecord, seed: u64) -> Arc<Ext4> {
    let config = QueueConfig {
        sync_writes: SyncWrites { noidle: !seed.is_multiple_of(2) },
        ..QueueConfig::elevator(if seed.is_multiple_of(3) { "none" } else { "deadline" })
    };
    let queue = Queue::new(cx.runtime(), device, config).expect("a queue");
    let config = PageCacheConfig {
        dirty_interval: base::Nanos::from_millis(2),
        dirty_expire: base::Nanos::from_millis(5),
        ..PageCacheConfig::with_limit(64 << 20)
    };
    let pages = PageCache::new(cx.runtime(), config);
    let options = MountOptions {
        barrier: record,
        journal_io: JournalIo::ALL[seed as usize % 5].1,
        flush_metadata: seed.is_multiple_of(3),
        journal_yield: seed.is_multiple_of(2),
        journal_chain: seed % 3 != 1,
        ..MountOptions::default()
    };
    Ext4::mount(cx, &queue, &pages, options).expect("mounts")
}

fn record(seed: u64, record: CommitRecord, volatile: bool) -> Run {
    let mut world = World::new(WorldConfig::exploring(seed));
    world.run("barriers", |cx| {
        let memory = Cell::new("ext4", 1024).journal(1024).fresh(cx, 24 << 20);
        let base = memory.fork();
        let device = modelled(cx, if volatile { FLASH } else { SAFE_FLASH }, memory);
        assert_eq!(device.info().volatile_cache, volatile);
        let device = Arc::new(RecordDevice::new(device));
        let fs = mount_with(cx, device.clone(), record, seed);
        let log = device.clone();
        let shared = Arc::new(Shared {
            fs: fs.clone(),
            oracle: SpinLock::new(Oracle::default()),
            position: Box::new(move || log.len()),
        });
        workload::run(cx, &shared, seed, 4, 80);
        fs.shutdown_hard();
        let oracle = std::mem::take(&mut *shared.oracle.lock(cx));
        Run { base, log: device.log(), oracle }
    })
}

impl Run {
    /// A random cut; without a volatile cache only what was in flight may be lost.
    fn cut(&self, rng: &mut Rng, volatile: bool) -> Cut {
        let mut cut = self.log.random_cut(rng);
        if !volatile {
            cut.drop.clear();
            cut.torn.retain(|(index, _)| *index >= cut.upto);
        }
        cut
    }

    /// Recovers the image of a cut: `Err` where a promise was broken or the image is damaged.
    fn verify(&self, cut: &Cut) -> Result<(), String> {
        let image = Arc::new(self.log.device_after(&self.base, cut));
        let sound = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            rt::testing::real(|cx| {
                let (fs, _) = mount(cx, image.clone());
                self.oracle.verify(cx, &*fs, cut.upto)?;
                fs.unmount(cx).expect("unmount after recovery");
                checked(cx, &image, "after recovery");
                Ok(())
            })
        }));
        sound.unwrap_or_else(|_| Err("the recovered image is damaged".to_owned()))
    }
}

fn campaign(way: CommitRecord, volatile: bool, count: u64) {
    for seed in seeds(count) {
        let run = record(seed, way, volatile);
        assert!(run.oracle.promises() > 10, "the workload promises something");
        let mut rng = Rng::new(seed, 72);
        for _ in 0..30 {
            let cut = run.cut(&mut rng, volatile);
            run.verify(&cut).unwrap_or_else(|message| {
                panic!("{way:?} volatile {volatile} IOPATH_SEED={seed} {cut:?}: {message}")
            });
        }
    }
}

#[test]
fn a_drain_keeps_promises_with_and_without_a_volatile_cache() {
    campaign(CommitRecord::Barrier, true, 5);
    campaign(CommitRecord::Barrier, false, 5);
}

#[test]
fn a_flush_keeps_promises_without_a_volatile_cache() {
    campaign(CommitRecord::FlushFua, false, 5);
}

/// Where nothing is volatile the journal's waits are enough, barrier or not.
#[test]
fn a_plain_record_keeps_promises_only_without_a_volatile_cache() {
    campaign(CommitRecord::Plain, false, 2);
    let run = record(1, CommitRecord::Plain, true);
    let mut rng = Rng::new(1, 72);
    let broken = (0..40).filter(|_| run.verify(&run.cut(&mut rng, true)).is_err()).count();
    assert!(broken > 0, "no cut has lost anything without a flush");
}
