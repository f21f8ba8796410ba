//! Direct I/O under every rule for boundaries, on indirect blocks and extents: the content, the
//! layout, faults at each bio, and power cuts.

use std::sync::Arc;

use crate::support::*;
use base::{Errno, Ino, Page, Rng};
use block::{Cause, Op, QueueConfig, Segment};
use cache::{PageCache, PageCacheConfig};
use device::{Fault, FaultDevice, RecordDevice, Rule};
use ext4::{Ext4, MountOptions};
use rt::{Cx, World, WorldConfig};
use testkit::{crash, mixed};
use vfs::FileSystem;
use vfs::direct::{Boundary, DirectOptions};

fn options(boundary: Boundary, page_size: u32) -> MountOptions {
    MountOptions { direct: DirectOptions { boundary, page_size }, ..MountOptions::default() }
}

fn mount_with(
    cx: &mut Cx,
    device: Arc<dyn block::Device>,
    folio_size: u32,
    options: MountOptions,
) -> (Arc<Ext4>, Arc<block::Queue>) {
    let queue = queue(cx, device);
    let config = PageCacheConfig { folio_size, ..PageCacheConfig::with_limit(8 << 20) };
    let pages = PageCache::new(cx.runtime(), config);
    (Ext4::mount(cx, &queue, &pages, options).expect("mount"), queue)
}

/// Goal: whoever reads sees what was written last, whichever way, under every rule. Method: three
/// tasks, each with a third of one file for its own, mix direct and buffered reads and writes with
/// holes; one in four worlds grows and shrinks the file alone; a remount; e2fsck.
#[test]
fn every_rule_agrees_with_an_array() {
    for seed in seeds(7) {
        let rule = Boundary::ALL[seed as usize % 7];
        let (kind, block) = [("ext3", 4096), ("ext3", 1024), ("ext4", 4096), ("ext2", 1024)]
            [(seed / 2) as usize % 4];
        let folio = [4096, 16384, 65536][seed as usize % 3];
        World::new(WorldConfig::exploring(seed)).run("model", |cx| {
            let what = format!("seed {seed}: {kind} of {block}, {rule}, folios of {folio}");
            let device = fresh(cx, 32 << 20, kind, block);
            let page = [4096, 16384][seed as usize % 2];
            // As the rule has it, and the other way round.
            let reservation = [None, Some(!rule.is_modern()), Some(rule.is_modern())];
            let reservation = reservation[(seed / 7) as usize % 3];
            let laid_out = MountOptions { reservation, ..options(rule, page) };
            let (fs, _) = mount_with(cx, device.clone(), folio, laid_out);
            let file = create(cx, &*fs, fs.root(), "file");
            let shared: Arc<dyn FileSystem> = fs.clone();
            let parts = mixed::run(cx, &shared, file, seed);
            fs.fsync(cx, file, false).expect("fsync");
            fs.unmount(cx).expect("unmount");
            e2fsck(&device, &what);
            let (fs, _) = mount_with(cx, device, folio, options(rule, page));
            mixed::verify(cx, &*fs, file, &parts, &what);
            fs.unmount(cx).expect("unmount");
        });
    }
}

/// Goal: an error on one bio of many loses nothing and tells nothing that did not happen. Method:
/// fail one data bio of a call (the first, second, third .., then ever further on), then all from
/// there on; what the call answers is there
/// after a remount, what lies behind is zeros, and e2fsck is content.
#[test]
fn a_fault_at_each_bio() {
    for (kind, rule) in [
        ("ext3", Boundary::EveryPiece),
        ("ext3", Boundary::AfterAdd),
        ("ext3", Boundary::Prefetch),
        ("ext4", Boundary::Prefetch),
    ] {
        let (mut skip, mut hit) = (0, true);
        while hit {
            for fails in [1, u64::MAX] {
                hit = rt::testing::world(|cx| fault_at(cx, kind, rule, skip, fails));
            }
            skip += if skip < 3 { 1 } else { skip / 2 };
        }
        assert!(skip > 2, "{kind}, {rule}: only {skip} bios");
    }
}

fn fault_at(cx: &mut Cx, kind: &'static str, rule: Boundary, skip: u64, fails: u64) -> bool {
    let what = format!("{kind}, {rule}, from bio {skip}, {fails} of them");
    let memory = fresh(cx, 12 << 20, kind, 4096);
    // What the blocks held before must not be seen.
    let (fs, _) = mount_with(cx, memory.clone(), 4096, MountOptions::default());
    let old = create(cx, &*fs, fs.root(), "old");
    fs.write(cx, old, 0, &vec![0xee; 7 << 20]).expect("write");
    fs.sync(cx).expect("sync");
    fs.unlink(cx, fs.root(), b"old").expect("unlink");
    fs.unmount(cx).expect("unmount");
    let faults = Arc::new(FaultDevice::new(cx.runtime(), memory.clone()));
    let (fs, _) = mount_with(cx, faults.clone(), 4096, options(rule, 4096));
    let file = create(cx, &*fs, fs.root(), "file");
    let head = vec![3; 20_480 + 512];
    assert_eq!(fs.write_direct(cx, file, 0, &head), Ok(head.len()));
    let hits = faults.hits();
    faults.add(Rule { count: fails, ..Rule::nth(Op::Write, skip, Fault::Fail(Cause::Io)) });
    let data = vec![7; (5 << 20) - 1024];
    let data = &data[..if rule == Boundary::EveryPiece { 1 << 20 } else { data.len() }];
    let written = fs.write_direct(cx, file, head.len() as u64, data);
    let hit = faults.hits() > hits;
    faults.clear();
    let done = match written {
        Ok(done) => done,
        Err(errno) => {
            assert_eq!(errno, Errno::EIO, "{what}");
            0
        }
    };
    assert!(hit || done == data.len(), "{what}: short without an error");
    let size = fs.getattr(cx, file).expect("attributes").size;
    assert_eq!(size, (head.len() + done) as u64, "{what}");
    // Once more, now that the device works: nothing of the failure is left.
    let rest = &data[done..];
    if fails == 1 && done < data.len() {
        let at = (head.len() + done) as u64;
        assert_eq!(fs.write_direct(cx, file, at, rest), Ok(rest.len()), "{what}: again");
    }
    fs.unmount(cx).expect("unmount");
    checked(cx, &memory, &what);
    if skip.is_multiple_of(3) {
        e2fsck(&memory, &what);
    }
    let (fs, _) = mount_with(cx, memory, 4096, MountOptions::default());
    let mut bytes = vec![0; 6 << 20];
    let len = fs.read(cx, file, 0, &mut bytes).expect("read");
    assert!(bytes[..head.len()].iter().all(|&byte| byte == 3), "{what}: the head");
    assert!(bytes[head.len()..len].iter().all(|&byte| byte == 7), "{what}: the rest");
    fs.unmount(cx).expect("unmount");
    hit
}

/// Goal: a power cut while a file grows by direct writes leaves a prefix of what was written: never
/// a size without data, never what the blocks held before. Method: the free space is full of
/// another pattern; all cuts of a run, under the oldest rule, the shipped one, and ours.
#[test]
fn growing_may_be_cut_anywhere() {
    for (seed, (kind, rule)) in [
        ("ext3", Boundary::Prefetch),
        ("ext3", Boundary::EveryPiece),
        ("ext4", Boundary::Prefetch),
        ("ext3", Boundary::AfterAdd),
    ]
    .into_iter()
    .enumerate()
    {
        let seed = seed as u64;
        let (base, log, file) = World::new(WorldConfig::exploring(seed)).run("cut", |cx| {
            let memory = fresh(cx, 24 << 20, kind, 1024);
            let (fs, _) = mount(cx, memory.clone());
            let old = create(cx, &*fs, fs.root(), "old");
            fs.write(cx, old, 0, &vec![0xee; 14 << 20]).expect("write");
            let file = create(cx, &*fs, fs.root(), "file");
            fs.sync(cx).expect("sync");
            fs.unlink(cx, fs.root(), b"old").expect("unlink");
            fs.unmount(cx).expect("unmount");
            let base = memory.fork();
            let device = Arc::new(RecordDevice::new(timed(cx, &memory, seed)));
            let (fs, _) = mount_with(cx, device.clone(), 4096, options(rule, 4096));
            let (mut rng, mut at) = (Rng::new(seed, 8), 0);
            for _ in 0..24 {
                let data = vec![7; 512 * (1 + rng.below(600) as usize)];
                at += fs.write_direct(cx, file, at, &data).expect("write") as u64;
                if rng.chance(0.2) {
                    fs.fsync(cx, file, rng.chance(0.5)).expect("fsync");
                }
            }
            fs.shutdown_hard();
            (base, device.log(), file)
        });
        crash::explore(&crate::support::campaign::config(seed, 40), &base, &log, |image, _| {
            rt::testing::real(|cx| {
                let (fs, _) = mount(cx, image.clone());
                let mut bytes = vec![0; 16 << 20];
                let len = fs.read(cx, file, 0, &mut bytes).expect("read");
                fs.unmount(cx).expect("unmount");
                checked(cx, &image, "after a cut");
                match bytes[..len].iter().position(|byte| *byte != 7) {
                    Some(at) => Err(format!("byte {at} of {len} is {:#x}", bytes[at])),
                    None => Ok(()),
                }
            })
        });
    }
}

/// Writes `len` bytes of one page to the file's `off`, past the cache.
fn write_pages(cx: &mut Cx, fs: &Ext4, file: Ino, off: u64, len: u64) {
    let page = Page::zeroed(65536);
    let count = len / 65536;
    let segment = Segment { page, offset: 0, len: 65536 };
    let pages = vec![segment; count as usize];
    assert_eq!(fs.write_direct_pages(cx, file, off, &pages), Ok(len));
}

/// Goal: blocks are laid out as the document's ext3 did it, and as ours does; and old or ours,
/// e2fsck takes it. Method: 64 MiB in calls of 16 MiB on an empty ext3; the runs that fiemap tells.
#[test]
fn tables_lie_between_data_or_apart() {
    let mut runs = Vec::new();
    for rule in [Boundary::AfterAdd, Boundary::Prefetch] {
        rt::testing::world(|cx| {
            let device = fresh(cx, 192 << 20, "ext3", 4096);
            let (fs, queue) = mount_with(cx, device.clone(), 4096, options(rule, 4096));
            let file = create(cx, &*fs, fs.root(), "file");
            let before = queue.stats();
            for call in 0..4 {
                write_pages(cx, &fs, file, call * (16 << 20), 16 << 20);
            }
            let after = queue.stats();
            assert_eq!(after.write_bytes - before.write_bytes, 64 << 20, "{rule}: the data alone");
            let map = fs.fiemap(cx, file, 0, 64 << 20).expect("fiemap");
            let mut merged: Vec<(u64, u64)> = Vec::new();
            for extent in map {
                match merged.last_mut() {
                    Some(last) if last.0 + last.1 == extent.physical() => last.1 += extent.len,
                    _ => merged.push((extent.physical(), extent.len)),
                }
            }
            runs.push(merged.iter().map(|run| run.1 >> 12).collect::<Vec<_>>());
            fs.unmount(cx).expect("unmount");
            e2fsck(&device, rule.name());
        });
    }
    // Twelve direct blocks, then a table's worth each; the second table comes with the double one.
    let mut tables = vec![12];
    tables.extend([1024; 15]);
    tables.push(1012);
    assert_eq!(runs[0], tables);
    assert_eq!(runs[1], [64 << 8], "ours: one run");
}

/// Goal: the bios of direct calls on a real ext3, read back after a remount so that each table must
/// be read from the device. Method: the trace of the queue, in words, for every rule.
#[test]
fn reads_of_a_real_ext3() {
    let mut lines = Vec::new();
    for rule in Boundary::ALL {
        rt::testing::world(|cx| {
            let device = fresh(cx, 64 << 20, "ext3", 4096);
            let (fs, _) = mount_with(cx, device.clone(), 4096, options(Boundary::AfterAdd, 4096));
            let file = create(cx, &*fs, fs.root(), "file");
            write_pages(cx, &fs, file, 0, 9 << 20);
            fs.unmount(cx).expect("unmount");
            let queue = block::Queue::new(
                cx.runtime(),
                device,
                QueueConfig { trace_events: 1 << 16, ..QueueConfig::default() },
            )
            .expect("a queue");
            let pages = PageCache::new(cx.runtime(), PageCacheConfig::with_limit(8 << 20));
            let fs = Ext4::mount(cx, &queue, &pages, options(rule, 4096)).expect("mount");
            let mut bytes = vec![0; 9 << 20];
            fs.getattr(cx, file).expect("attributes");
            let _before = queue.take_trace();
            assert_eq!(fs.read_direct(cx, file, 0, &mut bytes), Ok(9 << 20));
            let (events, _) = queue.take_trace();
            let mut words: Vec<(bool, u64, u64, u32)> = Vec::new();
            let dispatched = |event: &&block::TraceEvent| {
                event.kind == block::trace::TraceKind::Dispatched && event.op == Op::Read
            };
            for event in events.iter().filter(dispatched) {
                let meta = event.flags.contains(block::BioFlags::META);
                let (at, count) = (event.sector.0 / 8, event.count / 8);
                match words.last_mut() {
                    Some(last) if !meta && !last.0 && last.1 + last.2 == at => {
                        last.2 += count;
                        last.3 += 1;
                    }
                    _ => words.push((meta, at, count, 1)),
                }
            }
            let first = words.iter().map(|word| word.1).min().unwrap_or(0);
            let word = |&(meta, at, count, bios): &(bool, u64, u64, u32)| match meta {
                true => format!("meta {}", at - first),
                false => format!("{}+{count}/{bios}", at - first),
            };
            let line: Vec<String> = words.iter().map(word).collect();
            lines.push(format!("{rule}: {}", line.join(" ")));
            fs.unmount(cx).expect("unmount");
        });
    }
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/direct_reads.txt");
    testkit::kept::compare(path, &(lines.join("\n") + "\n"));
}

/// Goal: what direct writes of ours leave, the kernel reads, and the other way round. Method: fio
/// with direct I/O on the kernel's loop mount verifies our file and writes one; we read that.
#[test]
fn the_kernel_and_ours_read_each_other() {
    for rule in [Boundary::AfterAdd, Boundary::Prefetch] {
        let image = rt::testing::real(|cx| {
            let device = fresh(cx, 64 << 20, "ext3", 4096);
            let (fs, _) = mount_with(cx, device.clone(), 4096, options(rule, 4096));
            let file = create(cx, &*fs, fs.root(), "ours");
            let data = vec![0xa5; 1 << 20];
            for call in 0..16 {
                assert_eq!(fs.write_direct(cx, file, call << 20, &data), Ok(data.len()));
            }
            fs.unmount(cx).expect("unmount");
            testkit::image::write_device(&device)
        });
        {
            let mount = testkit::judge::LoopMount::new(image.path(), "ext3", "rw");
            let mount = mount.expect("the kernel mounts our image");
            let fio = |name: &str, more: &[&str]| {
                let file = format!("--filename={}", mount.path().join(name).display());
                let common = ["--name=x", &file, "--bs=1m", "--size=16m", "--direct=1"];
                let args: Vec<&dyn AsRef<std::ffi::OsStr>> = common
                    .iter()
                    .chain(more)
                    .map(|word| word as &dyn AsRef<std::ffi::OsStr>)
                    .collect();
                testkit::judge::run_ok("fio", &args);
            };
            let verify = ["--rw=read", "--verify=pattern", "--verify_pattern=0xa5"];
            fio("ours", &verify);
            fio("theirs", &["--rw=write", "--buffer_pattern=0x5a", "--fallocate=none"]);
        }
        let device = Arc::new(testkit::image::load(image.path()));
        rt::testing::real(|cx| {
            let (fs, _) = mount_with(cx, device.clone(), 4096, options(rule, 4096));
            let file = fs.lookup(cx, fs.root(), b"theirs").expect("their file").ino;
            let mut bytes = vec![0; 16 << 20];
            assert_eq!(fs.read_direct(cx, file, 0, &mut bytes), Ok(16 << 20));
            assert!(bytes.iter().all(|&byte| byte == 0x5a), "{rule}");
            fs.unmount(cx).expect("unmount");
        });
        e2fsck(&device, rule.name());
    }
}
