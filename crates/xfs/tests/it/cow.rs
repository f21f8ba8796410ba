//! Files that share blocks, cloned and written by us: they have the bytes that they should have,
//! whatever the others do, also after a power cut; xfs_repair and the kernel have the last word.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::log_common::replayed::compare;
use crate::log_common::{Volume, mkfs, real, repair, scratch};
use base::{Errno, Ino, Rng};
use block::{Device, Queue, QueueConfig};
use cache::{PageCache, PageCacheConfig};
use device::{MemoryDevice, RecordDevice};
use rt::{Cx, World, WorldConfig};
use testkit::judge;
use testkit::twin::Twin;
use vfs::FileSystem;
use xfs::{CheckOptions, MountOptions, Xfs};

/// An image of mkfs.xfs with some empty files, made by the kernel.
fn image(dir: &Path, size: u64, args: &[&str], files: usize) -> PathBuf {
    let image = mkfs(dir, "image", size, args);
    let mount = judge::LoopMount::new(&image, "xfs", "rw").expect("mounted");
    for number in 0..files {
        std::fs::File::create(mount.path().join(format!("f{number}"))).expect("created");
    }
    drop(mount);
    image
}

fn mount(cx: &mut Cx, queue: &Arc<Queue>, cache: u64) -> Arc<Xfs> {
    let pages = PageCache::new(cx.runtime(), PageCacheConfig::with_limit(cache));
    let options = MountOptions { read_only: false, ..MountOptions::default() };
    Xfs::mount(cx, queue, &pages, options).expect("the image mounts")
}

fn file(cx: &mut Cx, fs: &Xfs, number: usize) -> Ino {
    fs.lookup(cx, fs.root(), format!("f{number}").as_bytes()).expect("lookup").ino
}

/// Clones a random range of whole blocks, or up to the end of both files.
fn clone(cx: &mut Cx, fs: &Xfs, rng: &mut Rng, twins: &mut [Twin], block: usize) {
    let (from, to) =
        (rng.below(twins.len() as u64) as usize, rng.below(twins.len() as u64) as usize);
    let size = twins[from].bytes.len();
    if size == 0 {
        return;
    }
    let start = rng.below((size / block + 1) as u64) as usize * block;
    let target = rng.below((twins[to].bytes.len() / block + 3) as u64) as usize * block;
    let whole = size.saturating_sub(start);
    let len = match rng.below(3) {
        0 => whole,
        _ => (1 + rng.below(40) as usize) * block,
    };
    let fits = start + len <= size && len > 0;
    let at_end = start + len == size && target + len >= twins[to].bytes.len();
    let apart = from != to || start + len <= target || target + len <= start;
    let (source, goal) = ((twins[from].ino, start as u64), (twins[to].ino, target as u64));
    let result = fs.clone_range(cx, source, goal, len as u64);
    if len == 0 {
        return;
    }
    if !fits || !apart || (len % block != 0 && !at_end) {
        assert_eq!(result, Err(Errno::EINVAL), "{start}+{len} of {size} to {target}");
        return;
    }
    result.unwrap_or_else(|error| panic!("{start}+{len} to {target}: {error} {:?}", fs.error()));
    let bytes = twins[from].bytes[start..start + len].to_vec();
    let all = &mut twins[to].bytes;
    all.resize(all.len().max(target + len), 0);
    all[target..target + len].copy_from_slice(&bytes);
}

const FORMATS: [(usize, &[&str]); 3] = [
    (4096, &["-m", "reflink=1,rmapbt=1"]),
    (1024, &["-b", "size=1024", "-m", "reflink=1,rmapbt=1"]),
    (1024, &["-b", "size=1024", "-m", "reflink=1,rmapbt=0"]),
];

/// Goal: files that share blocks change one by one. Method: random operations and clones on four
/// files, with a small cache and a large one, remounted and judged after each round.
#[test]
fn clones_and_writes_agree_with_bytes() {
    for (number, (block, args)) in FORMATS.into_iter().enumerate() {
        let dir = scratch();
        let image = image(dir.path(), 320 << 20, args, 4);
        let mut rng = Rng::new(number as u64, 3);
        let mut contents = vec![Vec::new(); 4];
        for round in 0..5 {
            let cache = if round % 2 == 0 { 2 << 20 } else { 64 << 20 };
            contents = real(|cx| {
                let queue = Volume::open(cx, &image).queue;
                let fs = mount(cx, &queue, cache);
                let contents = round_of(cx, &fs, &mut rng, contents, block);
                fs.unmount(cx).expect("unmount");
                contents
            });
            repair(&image).unwrap_or_else(|text| panic!("{args:?}: xfs_repair -n: {text}"));
        }
        let kernel = judge::LoopMount::new(&image, "xfs", "ro").expect("the kernel mounts");
        for (number, bytes) in contents.iter().enumerate() {
            let found = std::fs::read(kernel.path().join(format!("f{number}"))).expect("read");
            assert!(found == *bytes, "{args:?}: the kernel reads f{number} otherwise");
        }
    }
}

fn round_of(
    cx: &mut Cx,
    fs: &Arc<Xfs>,
    rng: &mut Rng,
    contents: Vec<Vec<u8>>,
    block: usize,
) -> Vec<Vec<u8>> {
    let mut twins = Vec::new();
    for (index, bytes) in contents.into_iter().enumerate() {
        let twin = Twin { ino: file(cx, fs, index), bytes };
        twin.check(cx, &**fs, "remount");
        twins.push(twin);
    }
    for _ in 0..70 {
        let index = rng.below(4) as usize;
        if rng.chance(0.05) {
            let len = twins[index].bytes.len() as u64;
            let (from, len) = (rng.below(len + 1), rng.below(300_000));
            fs.unshare_range(cx, twins[index].ino, from, len).expect("unshared");
        } else if rng.chance(0.35) {
            clone(cx, fs, rng, &mut twins, block);
        } else {
            twins[index].step(cx, &**fs, rng);
        }
        if rng.chance(0.2) {
            twins.iter().for_each(|twin| twin.check(cx, &**fs, "a step"));
        }
    }
    twins.iter().for_each(|twin| twin.check(cx, &**fs, "the round"));
    twins.into_iter().map(|twin| twin.bytes).collect()
}

const BLOCK: usize = 4096;
const BLOCKS: usize = 24;

/// What the blocks of a file may hold after a cut: the stamp of the last fsync, and all later ones.
#[derive(Clone, Default)]
struct History {
    /// Place in the device's log and stamps of all blocks, at each fsync.
    synced: Vec<(usize, Vec<u64>)>,
    now: Vec<u64>,
}

/// The stamps of a block's sectors: a write in place may be torn between them.
fn stamps_of(cx: &mut Cx, fs: &Xfs, ino: Ino, block: usize) -> Vec<u64> {
    let mut bytes = vec![0; BLOCK];
    let read = fs.read(cx, ino, (block * BLOCK) as u64, &mut bytes).expect("read");
    assert_eq!(read, BLOCK, "block {block} of {ino}");
    let sectors = bytes.chunks_exact(512).map(|sector| {
        let stamp = u64::from_le_bytes(sector[..8].try_into().expect("eight bytes"));
        let whole = sector.chunks_exact(8).all(|word| word == stamp.to_le_bytes());
        assert!(whole, "block {block} of {ino} has a mixed sector");
        stamp
    });
    sectors.collect()
}

fn write_block(cx: &mut Cx, fs: &Xfs, ino: Ino, block: usize, stamp: u64, direct: bool) {
    let data: Vec<u8> = stamp.to_le_bytes().repeat(BLOCK / 8);
    let at = (block * BLOCK) as u64;
    let written = match direct {
        true => fs.write_direct(cx, ino, at, &data),
        false => fs.write(cx, ino, at, &data),
    };
    assert_eq!(written, Ok(BLOCK));
}

fn queue(cx: &mut Cx, device: Arc<dyn Device>) -> Arc<Queue> {
    Queue::new(cx.runtime(), device, QueueConfig::default()).expect("a queue")
}

/// Writes into three clones of one file, which is never written itself; past the page cache all
/// of it, half of it, or nothing.
fn workload(cx: &mut Cx, device: &Arc<RecordDevice>, direct: f64) -> Vec<History> {
    let queue = queue(cx, device.clone());
    let fs = mount(cx, &queue, 16 << 20);
    let inos: Vec<Ino> = (0..4).map(|number| file(cx, &fs, number)).collect();
    for block in 0..BLOCKS {
        write_block(cx, &fs, inos[0], block, block as u64 + 1, direct > 0.0);
    }
    let first: Vec<u64> = (1..=BLOCKS as u64).collect();
    let mut histories = vec![History { synced: Vec::new(), now: first }; 4];
    for &ino in &inos[1..] {
        fs.clone_range(cx, (inos[0], 0), (ino, 0), 0).expect("cloned");
    }
    fs.sync(cx).expect("synced");
    for history in &mut histories {
        history.synced.push((device.len(), history.now.clone()));
    }
    let (mut rng, mut stamp) = (Rng::new(5, 5), 1000);
    for _ in 0..160 {
        let index = 1 + rng.below(3) as usize;
        stamp += 1;
        match rng.below(12) {
            0..=7 => {
                let block = rng.below(BLOCKS as u64) as usize;
                let direct = rng.chance(direct);
                write_block(cx, &fs, inos[index], block, stamp, direct);
                histories[index].now[block] = stamp;
            }
            8..=10 => {
                fs.fsync(cx, inos[index], false).expect("synced");
                let now = histories[index].now.clone();
                histories[index].synced.push((device.len(), now));
            }
            _ => {
                // Shared again: what was written before is in both, durable or not.
                fs.fsync(cx, inos[index], false).expect("synced");
                fs.clone_range(cx, (inos[0], 0), (inos[index], 0), 0).expect("cloned");
                fs.fsync(cx, inos[index], false).expect("synced");
                histories[index].now = histories[0].now.clone();
                let now = histories[0].now.clone();
                histories[index].synced.push((device.len(), now));
            }
        }
    }
    fs.shutdown_hard();
    cx.sleep(rt::Nanos::from_millis(10));
    histories
}

/// Goal: after a power cut anywhere a file that shares blocks has what was made durable, or
/// something that was written later, block by block; the one that was never written has all of its
/// own; nothing is lost. Method: the write log of a device with a volatile cache, cut at random;
/// through the page cache, past it, and both in turn.
#[test]
fn a_power_cut_leaves_each_of_the_sharing_files_its_own() {
    for (direct, rounds) in [(0.0, 30), (1.0, 16), (0.5, 10)] {
        cut_sharing_files(direct, rounds);
    }
}

fn cut_sharing_files(direct: f64, rounds: u64) {
    let dir = scratch();
    let args = ["--unsupported", "-l", "size=13m", "-m", "reflink=1,rmapbt=1"];
    let path = image(dir.path(), 96 << 20, &args, 4);
    let bytes = std::fs::read(&path).expect("the image can be read");
    let base = MemoryDevice::from_image(&bytes);
    let copy = base.fork();
    let (log, histories) =
        World::new(WorldConfig { seed: 7, ..WorldConfig::default() }).run("test", move |cx| {
            let mut info = copy.info().clone();
            info.volatile_cache = true;
            let inner = MemoryDevice::with_info(info);
            for at in (0..copy.info().bytes()).step_by(1 << 20) {
                let mut chunk = vec![0; 1 << 20];
                copy.read_at(at, &mut chunk);
                if chunk.iter().any(|&byte| byte != 0) {
                    inner.write_at(at, &chunk);
                }
            }
            let device = Arc::new(RecordDevice::new(Arc::new(inner)));
            let histories = workload(cx, &device, direct);
            (device.take_log(), histories)
        });
    let asked = std::env::var("IOPATH_SEEDS").ok().and_then(|text| text.parse().ok());
    let mut rng = Rng::new(11, 0);
    for round in 0..asked.unwrap_or(rounds) {
        let cut = match round % 2 {
            0 => log.random_cut(&mut rng),
            _ => log.random_losses(*rng.pick(&log.cut_points()), &mut rng),
        };
        let after = log.device_after(&base, &cut);
        let (upto, known) = (cut.upto, histories.clone());
        if round < 3 || (direct == 0.0 && round < 6) {
            // The kernel carries out what is left to do, and ends where we do.
            let dirty = dir.path().join("dirty.img");
            std::fs::write(&dirty, log.image_after(&bytes, &cut)).expect("written");
            compare(dir.path(), &dirty);
        }
        World::new(WorldConfig { seed: round, ..WorldConfig::default() }).run("test", move |cx| {
            judge_cut(cx, Arc::new(after), upto, &known, round);
        });
    }
}

fn judge_cut(cx: &mut Cx, device: Arc<dyn Device>, upto: usize, known: &[History], round: u64) {
    let queue = queue(cx, device);
    let fs = mount(cx, &queue, 16 << 20);
    for (number, history) in known.iter().enumerate() {
        let least = history.synced.iter().rev().find(|row| row.0 <= upto);
        let Some((_, least)) = least else { continue };
        let ino = file(cx, &fs, number);
        for (block, &least) in least.iter().enumerate() {
            for found in stamps_of(cx, &fs, ino, block) {
                let fixed = number == 0 && found != least;
                // Cloned again: the stamps of the first file are below all others.
                let older = found < least && found != block as u64 + 1;
                let text = format!("round {round}: f{number} block {block}: {found}, {least}");
                assert!(!fixed && !older, "{text}");
            }
        }
    }
    fs.unmount(cx).expect("unmounted");
    let report = xfs::check(cx, &queue, &CheckOptions::default()).expect("readable");
    assert!(report.findings.is_empty(), "round {round}: {:?}", report.findings);
}
