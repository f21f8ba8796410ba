//! Direct I/O on an image file that is open past the host's page cache, in real time: how many
//! calls the host sees is counted exactly.

use crate::support::*;
use base::Page;
use block::trace::TraceKind;
use block::{Op, Queue, QueueConfig, Segment};
use cache::{PageCache, PageCacheConfig};
use device::{Engine, OpenOptions};
use ext4::{Ext4, MountOptions};
use rt::Cx;
use std::path::Path;
use std::sync::Arc;
use vfs::FileSystem;

/// Bytes of a call, which is also what the device takes at once.
const CALL: u64 = 4 << 20;

/// Size of the file in MiB: more than a group of blocks, or `IOPATH_DIRECT_MIB`.
fn file_mib() -> u64 {
    std::env::var("IOPATH_DIRECT_MIB").ok().and_then(|text| text.parse().ok()).unwrap_or(160)
}

fn mounted(cx: &mut Cx, path: &Path, engine: Engine) -> (Arc<Queue>, Arc<Ext4>) {
    let options = OpenOptions { write: true, direct: true, engine };
    let device = device::open(path, options).expect("the image opens");
    let config = QueueConfig { trace_events: 1 << 16, ..QueueConfig::default() };
    let queue = Queue::new(cx.runtime(), device, config).expect("a queue");
    let pages = PageCache::new(cx.runtime(), PageCacheConfig::with_limit(8 << 20));
    let fs = Ext4::mount(cx, &queue, &pages, MountOptions::default()).expect("mount");
    (queue, fs)
}

/// The requests of one kind that went to the device since the last look: sector and sectors.
fn dispatched(queue: &Queue, op: Op) -> Vec<(u64, u64)> {
    let (events, lost) = queue.take_trace();
    assert_eq!(lost, 0, "the ring was long enough");
    let sent = events.iter().filter(|event| event.kind == TraceKind::Dispatched && event.op == op);
    sent.map(|event| (event.sector.0, event.count)).collect()
}

/// What the calls must send: each call as one request, but for the gaps between runs.
fn expected(runs: &[(u64, u64, u64)], bytes: u64) -> Vec<(u64, u64)> {
    let mut sent = Vec::new();
    for call in (0..bytes).step_by(CALL as usize) {
        for &(logical, physical, len) in runs {
            let (from, to) = (call.max(logical), (call + CALL).min(logical + len));
            if from < to {
                sent.push(((physical + from - logical) >> 9, (to - from) >> 9));
            }
        }
    }
    sent.sort_unstable();
    sent
}

/// The runs of a file, neighbours joined: place in the file, on the device, length, in bytes.
fn runs(cx: &mut Cx, fs: &Ext4, file: base::Ino, bytes: u64) -> Vec<(u64, u64, u64)> {
    let mut runs: Vec<(u64, u64, u64)> = Vec::new();
    for extent in fs.fiemap(cx, file, 0, bytes).expect("fiemap") {
        match runs.last_mut() {
            Some(last) if last.1 + last.2 == extent.physical() => last.2 += extent.len,
            _ => runs.push((extent.offset, extent.physical(), extent.len)),
        }
    }
    runs
}

/// Goal: a stream of direct calls of 4 MiB to an ext3 costs the host one write a call and one more
/// at each gap of the metadata, where the kernel's ext3 on a loop device needs nine; reads the
/// same. Method: the requests that were dispatched against the map, one by one; both engines, the
/// caller's pages and the caller's bytes; an ext3 of mke2fs, e2fsck, and the content.
#[test]
fn calls_on_an_image_are_counted() {
    let bytes = file_mib() << 20;
    for (engine, shared) in [(Engine::Uring, true), (Engine::Psync, false)] {
        let image = tempfile::NamedTempFile::new().expect("a temporary file");
        testkit::judge::mke2fs(image.path(), bytes + (64 << 20), &["-t", "ext3", "-b", "4096"]);
        rt::testing::real(|cx| {
            let (queue, fs) = mounted(cx, image.path(), engine);
            let file = create(cx, &*fs, fs.root(), "file");
            queue.take_trace();
            let mut sent = Vec::new();
            for call in 0..bytes / CALL {
                let page = Page::from_slice(&vec![call as u8 + 1; CALL as usize]);
                let written = match shared {
                    true => {
                        let segment = Segment { page, offset: 0, len: CALL as u32 };
                        fs.write_direct_pages(cx, file, call * CALL, &[segment])
                    }
                    false => fs.write_direct(cx, file, call * CALL, &page).map(|n| n as u64),
                };
                assert_eq!(written, Ok(CALL));
                sent.extend(dispatched(&queue, Op::Write));
            }
            let runs = runs(cx, &fs, file, bytes);
            let inside = |sector: u64| {
                runs.iter().any(|run| (run.1 >> 9..(run.1 + run.2) >> 9).contains(&sector))
            };
            // The journal may have committed meanwhile.
            sent.retain(|write| inside(write.0));
            sent.sort_unstable();
            let wanted = expected(&runs, bytes);
            assert_eq!(sent, wanted, "{engine:?}: the data writes");
            let gaps = runs.len() as u64 - 1;
            assert!(gaps <= bytes.div_ceil(120 << 20), "{gaps} gaps in {} MiB", bytes >> 20);
            assert!(wanted.len() as u64 <= bytes / CALL + gaps, "{} writes", wanted.len());
            fs.sync(cx).expect("sync");
            fs.unmount(cx).expect("unmount");
        });
        rt::testing::real(|cx| {
            let (queue, fs) = mounted(cx, image.path(), engine);
            let file = fs.lookup(cx, fs.root(), b"file").expect("the file").ino;
            let runs = runs(cx, &fs, file, bytes);
            queue.take_trace();
            let (mut data, mut sent) = (vec![0; CALL as usize], Vec::new());
            for call in 0..bytes / CALL {
                assert_eq!(fs.read_direct(cx, file, call * CALL, &mut data), Ok(data.len()));
                assert!(data.iter().all(|&byte| byte == call as u8 + 1), "call {call}");
                sent.extend(dispatched(&queue, Op::Read));
            }
            sent.sort_unstable();
            assert_eq!(sent, expected(&runs, bytes), "{engine:?}: reads, with the map in memory");
            fs.unmount(cx).expect("unmount");
        });
        testkit::judge::e2fsck(image.path()).unwrap_or_else(|found| panic!("{engine:?}: {found}"));
    }
}
