//! Direct I/O on XFS: growth and holes past the page cache, faults at each bio, power cuts, shared
//! blocks, and how many calls an image sees.

use std::sync::Arc;

use crate::world::{Cell, checked, file, mount, repaired, seeds, timed};
use base::{Errno, Page, Rng};
use block::trace::TraceKind;
use block::{Cause, Op, Queue, QueueConfig, Segment};
use cache::{PageCache, PageCacheConfig};
use device::{Engine, Fault, FaultDevice, OpenOptions, RecordDevice, Rule};
use rt::{Cx, World, WorldConfig};
use testkit::crash::{self, CrashConfig};
use testkit::mixed;
use vfs::direct::Boundary;
use vfs::{FileSystem, SetAttr};
use xfs::{MountOptions, Xfs};

const CELLS: &[Cell] = &[
    Cell(&[]),
    Cell(&[('b', "size=1024"), ('m', "rmapbt=1")]),
    Cell(&[('d', "agcount=2,sunit=64,swidth=256")]),
];

fn with_folios(
    cx: &mut Cx,
    device: Arc<dyn block::Device>,
    folio_size: u32,
    rule: Boundary,
) -> Arc<Xfs> {
    let queue = crate::world::queue(cx, device);
    let config = PageCacheConfig { folio_size, ..PageCacheConfig::with_limit(8 << 20) };
    let pages = PageCache::new(cx.runtime(), config);
    let mut options = MountOptions { read_only: false, ..MountOptions::default() };
    options.direct.boundary = rule;
    Xfs::mount(cx, &queue, &pages, options).unwrap_or_else(|error| panic!("mount: {error}"))
}

/// Goal: whoever reads sees what was written last, whichever way. Method: three tasks, each with a
/// third of one file for its own, mix direct and buffered reads and writes with holes; one in four
/// worlds grows and shrinks the file alone; folios of 4 to 64 KiB; a remount; the judges.
#[test]
fn mixed_access_agrees_with_an_array() {
    for seed in seeds(6) {
        let folio = [4096, 16384, 65536][seed as usize % 3];
        let cell = CELLS[(seed / 2) as usize % 3];
        let rule = [Boundary::Prefetch, Boundary::EveryPiece][usize::from(seed % 5 == 4)];
        World::new(WorldConfig::exploring(seed)).run("model", |cx| {
            let what = format!("seed {seed}: {cell:?}, folios of {folio}");
            let memory = cell.fresh(cx, 96 << 20);
            let fs = with_folios(cx, timed(cx, &memory, seed), folio, rule);
            let ino = file(cx, &fs, fs.root(), "file");
            let shared: Arc<dyn FileSystem> = fs.clone();
            let parts = mixed::run(cx, &shared, ino, seed);
            fs.fsync(cx, ino, false).expect("fsync");
            fs.unmount(cx).expect("unmount");
            checked(cx, &memory).unwrap_or_else(|found| panic!("{what}: {found}"));
            repaired(&memory).unwrap_or_else(|found| panic!("{what}: {found}"));
            let fs = with_folios(cx, memory, folio, rule);
            mixed::verify(cx, &*fs, ino, &parts, &what);
            fs.unmount(cx).expect("unmount");
        });
    }
}

/// Blocks full of 0xee that nothing refers to any more.
fn with_old_content(cx: &mut Cx, cell: Cell, bytes: u64) -> Arc<device::MemoryDevice> {
    let memory = cell.fresh(cx, 64 << 20);
    let (fs, _) = mount(cx, memory.clone(), 8 << 20);
    let old = file(cx, &fs, fs.root(), "old");
    assert_eq!(fs.write(cx, old, 0, &vec![0xee; bytes as usize]), Ok(bytes as usize));
    fs.sync(cx).expect("sync");
    fs.unlink(cx, fs.root(), b"old").expect("unlink");
    fs.unmount(cx).expect("unmount");
    memory
}

/// Goal: an error on one bio of many loses nothing and tells nothing that did not happen. Method:
/// fail one write of a growing call, then all from there on; what the call answers is there after
/// a remount, and nothing else.
#[test]
fn a_fault_at_each_bio() {
    let (mut skip, mut hit) = (0, true);
    while hit && skip < 40 {
        for fails in [1, u64::MAX] {
            hit = rt::testing::world(|cx| fault_at(cx, skip, fails));
        }
        skip += 1;
    }
    assert!(skip >= 5, "only {skip} bios");
}

fn fault_at(cx: &mut Cx, skip: u64, fails: u64) -> bool {
    let what = format!("from bio {skip}, {fails} of them");
    let memory = with_old_content(cx, CELLS[0], 40 << 20);
    let faults = Arc::new(FaultDevice::new(cx.runtime(), memory.clone()));
    let (fs, _) = mount(cx, faults.clone(), 8 << 20);
    let ino = file(cx, &fs, fs.root(), "file");
    let head = vec![3; 20_480 + 512];
    assert_eq!(fs.write_direct(cx, ino, 0, &head), Ok(head.len()));
    let hits = faults.hits();
    faults.add(Rule { count: fails, ..Rule::nth(Op::Write, skip, Fault::Fail(Cause::Io)) });
    let data = vec![7; (5 << 20) - 1024];
    let written = fs.write_direct(cx, ino, head.len() as u64, &data);
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
    let size = fs.getattr(cx, ino).expect("attributes").size;
    assert_eq!(size, (head.len() + done) as u64, "{what}");
    if fails == 1 && done < data.len() {
        let at = (head.len() + done) as u64;
        let rest = &data[done..];
        assert_eq!(fs.write_direct(cx, ino, at, rest), Ok(rest.len()), "{what}: again");
    }
    fs.unmount(cx).expect("unmount");
    checked(cx, &memory).unwrap_or_else(|found| panic!("{what}: {found}"));
    let (fs, _) = mount(cx, memory, 8 << 20);
    let mut bytes = vec![0; 6 << 20];
    let len = fs.read(cx, ino, 0, &mut bytes).expect("read");
    assert!(bytes[..head.len()].iter().all(|&byte| byte == 3), "{what}: the head");
    assert!(bytes[head.len()..len].iter().all(|&byte| byte == 7), "{what}: the rest");
    fs.unmount(cx).expect("unmount");
    hit
}

/// Goal: a power cut while a file grows, or a hole is filled, by direct writes leaves what was
/// there or what was written: never a size without data, never what the blocks held before.
/// Method: the free space is full of another pattern; cuts of a run.
#[test]
fn growing_and_filling_may_be_cut_anywhere() {
    for seed in seeds(3) {
        let cell = CELLS[seed as usize % 3];
        let (base, log, inos) = World::new(WorldConfig::exploring(seed)).run("cut", |cx| {
            let memory = with_old_content(cx, cell, 40 << 20);
            let (fs, _) = mount(cx, memory.clone(), 8 << 20);
            let inos = ["grows", "filled"].map(|name| file(cx, &fs, fs.root(), name));
            let set = SetAttr { size: Some(4 << 20), ..SetAttr::default() };
            fs.setattr(cx, inos[1], &set).expect("truncate");
            fs.unmount(cx).expect("unmount");
            let base = memory.fork();
            let device = Arc::new(RecordDevice::new(timed(cx, &memory, seed)));
            let (fs, _) = mount(cx, device.clone(), 8 << 20);
            let (mut rng, mut at) = (Rng::new(seed, 8), 0);
            for _ in 0..24 {
                let data = vec![7; 512 * (1 + rng.below(600) as usize)];
                at += fs.write_direct(cx, inos[0], at, &data).expect("write") as u64;
                let hole = rng.below(4000) * 512;
                fs.write_direct(cx, inos[1], hole, &data).expect("write");
                if rng.chance(0.2) {
                    let ino = inos[rng.below(2) as usize];
                    fs.fsync(cx, ino, rng.chance(0.5)).expect("fsync");
                }
            }
            fs.shutdown_hard();
            (base, device.log(), inos)
        });
        let config = CrashConfig { random: 30, at_flushes_max: 40, ..CrashConfig::new(seed) };
        crash::explore(&config, &base, &log, |image, _| {
            rt::testing::real(|cx| {
                let (fs, _) = mount(cx, image.clone(), 16 << 20);
                let mut bytes = vec![0; 16 << 20];
                let mut wrong = None;
                for (ino, fine) in [(inos[0], &[7][..]), (inos[1], &[0, 7][..])] {
                    let len = fs.read(cx, ino, 0, &mut bytes).expect("read");
                    let found = bytes[..len].iter().position(|byte| !fine.contains(byte));
                    wrong = wrong.or(found.map(|at| (ino, at, len, bytes[at])));
                }
                fs.unmount(cx).expect("unmount");
                checked(cx, &image)?;
                match wrong {
                    Some((ino, at, len, byte)) => {
                        Err(format!("{ino:?}: byte {at} of {len} is {byte:#x}"))
                    }
                    None => Ok(()),
                }
            })
        });
    }
}

/// Goal: on an image that is open past the host's cache a stream of direct calls of 4 MiB costs one
/// write a call, growth included, and begins at a unit of the stripe. Method: the requests that
/// were dispatched, in real time, by both engines; xfs_repair.
#[test]
fn calls_on_an_image_are_counted() {
    const CALL: u64 = 4 << 20;
    for (engine, calls) in [(Engine::Uring, 20), (Engine::Psync, 10)] {
        let image = tempfile::NamedTempFile::new().expect("a temporary file");
        image.as_file().set_len(320 << 20).expect("its size");
        let path = image.path();
        let stripe = "sunit=256,swidth=1024,agcount=2";
        let args: [&dyn AsRef<_>; 7] = [&"-q", &"-f", &"-d", &stripe, &"-l", &"size=64m", &path];
        testkit::judge::run_ok("mkfs.xfs", &args);
        rt::testing::real(|cx| {
            let options = OpenOptions { write: true, direct: true, engine };
            let device = device::open(path, options).expect("the image opens");
            let config = QueueConfig { trace_events: 1 << 16, ..QueueConfig::default() };
            let queue = Queue::new(cx.runtime(), device, config).expect("a queue");
            let pages = PageCache::new(cx.runtime(), PageCacheConfig::with_limit(8 << 20));
            let options = MountOptions { read_only: false, ..MountOptions::default() };
            let fs = Xfs::mount(cx, &queue, &pages, options).expect("mount");
            let ino = file(cx, &fs, fs.root(), "file");
            queue.take_trace();
            for call in 0..calls {
                let page = Page::from_slice(&vec![call as u8 + 1; CALL as usize]);
                let segment = Segment { page, offset: 0, len: CALL as u32 };
                assert_eq!(fs.write_direct_pages(cx, ino, call * CALL, &[segment]), Ok(CALL));
            }
            let map = fs.fiemap(cx, ino, 0, u64::MAX).expect("fiemap");
            assert!(map[0].physical().is_multiple_of(128 << 10), "a unit: {map:?}");
            let (events, _) = queue.take_trace();
            let inside = |sector: u64| {
                let byte = sector << 9;
                map.iter().any(|part| (part.physical()..part.physical() + part.len).contains(&byte))
            };
            let sent: Vec<u64> = events
                .iter()
                .filter(|event| event.kind == TraceKind::Dispatched && event.op == Op::Write)
                .filter(|event| inside(event.sector.0))
                .map(|event| event.count << 9)
                .collect();
            let gaps = map.windows(2).filter(|w| w[0].physical() + w[0].len != w[1].physical());
            assert!(sent.len() as u64 <= calls + gaps.count() as u64, "{engine:?}: {sent:?}");
            assert_eq!(sent.iter().sum::<u64>(), calls * CALL, "each byte once");
            let mut data = vec![0; CALL as usize];
            for call in 0..calls {
                assert_eq!(fs.read_direct(cx, ino, call * CALL, &mut data), Ok(data.len()));
                assert!(data.iter().all(|&byte| byte == call as u8 + 1), "call {call}");
            }
            fs.unmount(cx).expect("unmount");
        });
        testkit::judge::xfs_repair(path).unwrap_or_else(|found| panic!("{engine:?}: {found}"));
    }
}
