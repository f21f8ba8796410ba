//! What a sequential reader of 4 KiB sends to the device: the windows, and how many at once.

use crate::support::{Cell, FLASH, create};
use block::{Op, Queue, QueueConfig, TraceEvent, TraceKind};
use cache::{PageCache, PageCacheConfig};
use ext4::{Ext4, MountOptions};
use model::Profile;
use vfs::FileSystem;

const FILE_BYTES: u64 = 4 << 20;

/// Reads a file from the start with a cold cache; the read requests of file data, in order.
fn sequential_read(early: bool, readahead_bytes: Option<u32>) -> Vec<TraceEvent> {
    rt::testing::world(|cx| {
        let memory = Cell::new("ext4", 4096).fresh(cx, 64 << 20);
        let mut machine = Profile::built_in(FLASH);
        // A window is one request.
        machine.queue.max_segments = 256;
        let device = machine.device(cx.runtime(), memory).expect("flash of any size");
        let config = QueueConfig { trace_events: 1 << 16, ..QueueConfig::elevator("deadline") };
        let queue = Queue::new(cx.runtime(), device, config).expect("a queue");
        let mut name = Some("file");
        let mut events = Vec::new();
        for _ in 0..2 {
            let limits = PageCacheConfig::with_limit(64 << 20);
            let config = PageCacheConfig { readahead_early: early, ..limits };
            let pages = PageCache::new(cx.runtime(), config);
            let options = MountOptions { readahead_bytes, ..MountOptions::default() };
            let fs = Ext4::mount(cx, &queue, &pages, options).expect("mounts");
            match name.take() {
                Some(name) => {
                    let ino = create(cx, &*fs, fs.root(), name);
                    fs.write(cx, ino, 0, &vec![7; FILE_BYTES as usize]).expect("written");
                }
                None => {
                    let ino = fs.lookup(cx, fs.root(), b"file").expect("there").ino;
                    let mut buf = [0; 4096];
                    fs.getattr(cx, ino).expect("an inode");
                    queue.take_trace();
                    for at in (0..FILE_BYTES).step_by(4096) {
                        assert_eq!(fs.read(cx, ino, at, &mut buf).expect("read"), 4096);
                    }
                    events = queue.take_trace().0;
                }
            }
            fs.unmount(cx).expect("unmounts");
        }
        let data = |event: &TraceEvent| event.op == Op::Read && event.count > 8;
        events.into_iter().filter(data).collect()
    })
}

/// Sizes in KiB of the requests, and how many at most were on their way at once.
fn windows(events: &[TraceEvent]) -> (Vec<u64>, usize) {
    let (mut sizes, mut under_way, mut most) = (Vec::new(), 0, 0);
    for event in events {
        match event.kind {
            TraceKind::Dispatched => {
                sizes.push(event.count / 2);
                under_way += 1;
                most = most.max(under_way);
            }
            TraceKind::Completed => under_way -= 1,
            _ => {}
        }
    }
    (sizes, most)
}

#[test]
fn one_window_is_on_its_way_at_a_time() {
    let (sizes, most) = windows(&sequential_read(false, None));
    assert_eq!(sizes[..5], [16, 32, 64, 128, 128]);
    assert!(sizes[3..sizes.len() - 1].iter().all(|&size| size == 128), "{sizes:?}");
    assert_eq!(sizes.iter().sum::<u64>(), FILE_BYTES / 1024);
    assert_eq!(most, 1);
}

/// As Linux has it: the marker is looked at before the reader waits, so a device that is slower
/// than the reader has the next window already when it ends one.
#[test]
fn an_early_marker_keeps_the_next_window_queued() {
    let (sizes, most) = windows(&sequential_read(true, None));
    assert_eq!(sizes[..5], [16, 32, 64, 128, 128]);
    assert_eq!(sizes.iter().sum::<u64>(), FILE_BYTES / 1024);
    assert_eq!(most, 2);
}

#[test]
fn a_mount_may_have_windows_of_its_own() {
    let (sizes, _) = windows(&sequential_read(false, Some(32 << 10)));
    assert!(sizes.iter().all(|&size| size <= 32), "{sizes:?}");
    let (sizes, _) = windows(&sequential_read(false, Some(1 << 20)));
    assert!(sizes.contains(&1024), "{sizes:?}");
    // Switched off, every read is a request of its own, which is too small to be counted here.
    assert_eq!(windows(&sequential_read(false, Some(0))), (Vec::new(), 0));
}
