//! The log under pressure, in virtual time: it wraps, it is full, tasks wait for space, the device
//! fails, the power goes.
//!
//! The "file system" is a set of groups' headers and a raw area of free blocks: each transaction
//! writes a number into several buffers and an inode, all or none of which a recovery must find.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::log_common::{Volume, mkfs, scratch};
use base::Sector;
use block::Device;
use device::{Fault, FaultDevice, MemoryDevice, RecordDevice, Rule};
use rt::{Cx, World, WorldConfig};
use xfs::buf::{Buf, BufMap, BufOps, INODE_CLUSTER};
use xfs::format::{Kind, U64};
use xfs::log::buf_item::walk::Variant;
use xfs::log::inode_item::{InodeFields, InodeItem, InodePlace};
use xfs::log::{Log, LogOptions};
use xfs::trans::{LogReservation, Trans};

static DATA: BufOps =
    BufOps { name: "data", kinds: &[Kind::DirData], check: None, unmapped: false };

/// Blocks of the raw area, each of 64 KiB, and where it begins: in the second group, behind its
/// headers, where a fresh file system has nothing.
const BLOCKS: u64 = 24;
const FIRST: u64 = 6144 * 8 + 4096;
const BYTES: usize = 65536;
/// What the inode's counter begins with, above what mkfs leaves there.
const BASE: u64 = 1000;

/// The image that all of it starts from, made once.
fn fresh() -> MemoryDevice {
    let dir = scratch();
    let image = mkfs(dir.path(), "a.img", 96 << 20, &["--unsupported", "-l", "size=6m"]);
    testkit::image::load(&image)
}

fn world<T: Send + 'static>(
    config: WorldConfig,
    body: impl FnOnce(&mut Cx) -> T + Send + 'static,
) -> T {
    World::new(config).run("test", body)
}

fn map(block: u64) -> BufMap {
    BufMap { daddr: Sector(FIRST + block * 128), len: 128 }
}

/// What one block says: its number and the count of the last transaction that wrote it.
fn stamp(buf: &Arc<Buf>, uuid: [u8; 16], count: u64, full: bool) -> (usize, usize) {
    let (from, to) = if full { (0, BYTES - 1) } else { (4096, 4096 + 16) };
    buf.with_mut(|bytes| {
        if full {
            bytes.fill(count as u8);
            bytes[0..4].copy_from_slice(&Kind::DirData.magic().to_be_bytes());
            bytes[8..16].copy_from_slice(&U64::new(buf.daddr().0).to_bytes());
            bytes[24..40].copy_from_slice(&uuid);
        }
        bytes[4096..4104].copy_from_slice(&count.to_be_bytes());
    });
    (from, to)
}

struct Stage {
    volume: Volume,
    log: Arc<Log>,
    inode: Arc<InodeItem>,
    image: Vec<u8>,
}

fn set(cx: &mut Cx, device: Arc<dyn Device>, variant: Variant) -> Stage {
    let volume = Volume::on(cx, device);
    let options = LogOptions { variant, ..LogOptions::default() };
    let log = volume.mount(cx, options);
    let geometry = &volume.geometry;
    let (block, offset) = geometry.ino_place(geometry.root_ino);
    let len = geometry.chunks.cluster_blocks * geometry.block_sectors() as u32;
    let cluster = BufMap { daddr: geometry.ag_sector(block), len };
    let image = {
        let buf = log.bufs().read(cx, &[cluster], &INODE_CLUSTER).expect("the cluster");
        buf.with_range(offset, geometry.inode_size as usize, |bytes| bytes.to_vec())
    };
    let place = InodePlace { ino: geometry.root_ino.0, cluster, offset: offset as u32 };
    Stage { log, inode: InodeItem::new(place), image, volume }
}

impl Stage {
    /// Writes `count` into the blocks of a group of four, one of them whole; then into the inode.
    fn change(&mut self, cx: &mut Cx, count: u64) -> xfs::Result<u64> {
        let uuid = self.volume.geometry.meta_uuid;
        let mut trans = Trans::alloc(cx, &self.log, LogReservation::new(4 * 66000 + 4096))?;
        for block in 0..4 {
            let block = (count * 4 + block) % BLOCKS;
            let first_time = count < BLOCKS / 4;
            let buf = match first_time {
                true => trans.get_buf(cx, &[map(block)], &DATA)?,
                false => trans.read_buf(cx, &[map(block)], &DATA)?,
            };
            if first_time {
                buf.zero();
            }
            let (first, last) = stamp(&buf, uuid, count, first_time || block.is_multiple_of(4));
            trans.log_buf(&buf, first, last);
        }
        self.image[104..112].copy_from_slice(&(BASE + count).to_be_bytes());
        trans.log_inode(&self.inode, &self.image, InodeFields::CORE);
        trans.commit(cx)
    }
}

/// What a recovered device says: the last transaction by the inode, which must be what
/// all blocks agree with; None where there was none yet.
fn judge(cx: &mut Cx, device: Arc<dyn Device>) -> Option<u64> {
    let volume = Volume::on(cx, device);
    let recovered = volume.recover(cx).expect("recovered");
    let bufs = volume.bufs();
    let geometry = &volume.geometry;
    let (block, offset) = geometry.ino_place(geometry.root_ino);
    let len = geometry.chunks.cluster_blocks * geometry.block_sectors() as u32;
    let cluster = BufMap { daddr: geometry.ag_sector(block), len };
    let size = geometry.inode_size as usize;
    let last = {
        let buf = bufs.read(cx, &[cluster], &INODE_CLUSTER).expect("the cluster");
        buf.with_range(offset, size, |inode| {
            xfs::format::verifier::verify(
                Kind::Inode,
                inode,
                &geometry.expect(Sector(0), None),
                xfs::format::At::Inode(geometry.root_ino),
            )
            .expect("a valid inode");
            u64::from_be_bytes(inode[104..112].try_into().expect("eight bytes"))
        })
    };
    assert!(recovered.unfinished.is_empty());
    let last = last.checked_sub(BASE)?;
    // The transaction `last` wrote a group of four; the five before it wrote the others.
    for count in (0..=last).rev().take(BLOCKS as usize / 4) {
        for index in 0..4 {
            let block = (count * 4 + index) % BLOCKS;
            let buf = bufs.read(cx, &[map(block)], &DATA).expect("a valid block");
            let found =
                buf.with(|bytes| u64::from_be_bytes(bytes[4096..4104].try_into().expect("8")));
            assert_eq!(found, count, "block {block} after transaction {last}");
        }
    }
    Some(last)
}

/// The log of 6 MiB goes round several times, with each variant, and ends clean; the same work
/// gives the same log in two runs.
#[test]
fn the_log_goes_round_and_ends_clean() {
    let base = fresh();
    for variant in Variant::ALL {
        let run = |base: MemoryDevice| {
            world(WorldConfig { seed: 5, ..WorldConfig::default() }, move |cx| {
                let device = Arc::new(base);
                let mut stage = set(cx, device.clone(), variant);
                for count in 0..300 {
                    let seq = stage.change(cx, count).expect("committed");
                    if count % 3 == 0 {
                        stage.log.force_seq(cx, seq).expect("forced");
                    }
                }
                stage.log.unmount(cx).expect("unmounted");
                let stats = stage.log.stats();
                assert!(stats.record_bytes > 3 * (6 << 20), "{stats:?}");
                assert_eq!((stats.overruns, stats.failures), (0, 0));
                let last = judge(cx, device.clone());
                assert_eq!(last, Some(299));
                let found = xfs::log::recovery::find(cx, &stage.volume.queue, stage.volume.log());
                assert!(found.expect("a head").clean);
                (stats, device.snapshot())
            })
        };
        let (first, second) = (run(base.fork()), run(base.fork()));
        assert_eq!(first.0, second.0);
        assert!(first.1 == second.1, "two runs of {variant:?} gave two images");
    }
}

/// More tasks than the log has room for: all wait, all go on, nobody overtakes for ever.
#[test]
fn many_tasks_wait_for_space_and_all_go_on() {
    let base = fresh();
    for seed in 0..8 {
        let base = base.fork();
        world(WorldConfig::exploring(seed), move |cx| {
            let device: Arc<dyn Device> = Arc::new(base);
            let stage = set(cx, device.clone(), Variant::Runs);
            let (log, uuid) = (stage.log.clone(), stage.volume.geometry.meta_uuid);
            let done = Arc::new(AtomicU64::new(0));
            let tasks: Vec<_> = (0..24)
                .map(|block| {
                    let (log, done) = (log.clone(), done.clone());
                    cx.spawn("writer", move |cx| {
                        for count in 0..12 {
                            let reservation = LogReservation::new(400 << 10).times(2);
                            let mut trans = Trans::alloc(cx, &log, reservation).expect("space");
                            let buf = trans.get_buf(cx, &[map(block)], &DATA).expect("a block");
                            if count == 0 {
                                buf.zero();
                            }
                            let (first, last) = stamp(&buf, uuid, count, true);
                            trans.log_buf(&buf, first, last);
                            trans.hold(&buf);
                            for _ in 0..3 {
                                trans.roll(cx).expect("rolled");
                                trans.log_buf(&buf, first, last);
                            }
                            let seq = trans.commit(cx).expect("committed");
                            if (count + block) % 5 == 0 {
                                log.force_seq(cx, seq).expect("forced");
                            }
                            done.fetch_add(1, Ordering::Relaxed);
                        }
                    })
                })
                .collect();
            tasks.into_iter().for_each(|task| task.join(cx));
            assert_eq!(done.load(Ordering::Relaxed), 24 * 12);
            let stats = log.stats();
            assert!(stats.space_waits > 0, "nobody waited: {stats:?}");
            log.unmount(cx).expect("unmounted");
        });
    }
}

/// The power goes at any write; writes that were not flushed are lost or torn in any mix. What was
/// forced is there, each transaction is there whole or not at all.
#[test]
fn a_cut_at_any_write_leaves_whole_transactions() {
    let base = fresh();
    let image = base.fork();
    let (log, forced) = world(WorldConfig { seed: 9, ..WorldConfig::default() }, move |cx| {
        let mut info = image.info().clone();
        info.volatile_cache = true;
        let device = MemoryDevice::with_info(info);
        for at in (0..image.info().bytes()).step_by(1 << 20) {
            let mut chunk = vec![0; 1 << 20];
            image.read_at(at, &mut chunk);
            if chunk.iter().any(|&byte| byte != 0) {
                device.write_at(at, &chunk);
            }
        }
        let device = Arc::new(RecordDevice::new(Arc::new(device)));
        let mut stage = set(cx, device.clone(), Variant::Runs);
        let mut forced = Vec::new();
        for count in 0..80 {
            let seq = stage.change(cx, count).expect("committed");
            if count % 4 == 1 {
                stage.log.force_seq(cx, seq).expect("forced");
                forced.push((device.len(), count));
            }
        }
        stage.log.force(cx).expect("forced");
        stage.log.abandon(cx);
        (device.take_log(), forced)
    });
    let mut rng = base::Rng::new(11, 0);
    let points = log.cut_points();
    assert!(points.len() > 60, "{} points", points.len());
    for round in 0..120 {
        let cut = match round % 2 {
            0 => log.random_cut(&mut rng),
            _ => log.random_losses(*rng.pick(&points), &mut rng),
        };
        let upto = cut.upto;
        let device: Arc<dyn Device> = Arc::new(log.device_after(&base, &cut));
        let least = forced.iter().rev().find(|row| row.0 <= upto).map(|row| row.1);
        let last = world(WorldConfig { seed: round, ..WorldConfig::default() }, move |cx| {
            let first = judge(cx, device.clone());
            // A second recovery finds the same.
            assert_eq!(judge(cx, device), first);
            first
        });
        assert!(last >= least, "round {round}: {last:?} is older than {least:?}, which was forced");
    }
}

/// A log device that fails: who waits gets an error, everybody after it too, and nothing hangs.
#[test]
fn a_failing_log_shuts_the_file_system_down() {
    let base = fresh();
    world(WorldConfig { seed: 3, ..WorldConfig::default() }, move |cx| {
        let faulty = Arc::new(FaultDevice::new(cx.runtime(), Arc::new(base)));
        let mut stage = set(cx, faulty.clone(), Variant::Runs);
        let seq = stage.change(cx, 0).expect("committed");
        stage.log.force_seq(cx, seq).expect("forced");
        let log = stage.volume.log();
        let sectors = log.start.0..log.start.0 + u64::from(log.blocks);
        faulty.add(Rule::on(block::Op::Write, sectors, Fault::Fail(block::Cause::Io)));
        let seq = stage.change(cx, 1).expect("committed in memory");
        assert!(stage.log.force_seq(cx, seq).is_err());
        assert!(stage.log.shut_down().is_some());
        assert!(matches!(stage.change(cx, 2), Err(xfs::XfsError::Shutdown(_))));
        assert!(stage.log.unmount(cx).is_err());
        faulty.clear();
        assert_eq!(judge(cx, faulty), Some(0), "what was not forced is not there");
    });
}
