//! What campaigns write into files, so that a reader knows every byte.

use std::sync::Arc;

use base::{Ino, Nanos};
use rt::Cx;
use vfs::{FallocMode, FileSystem, FileType, NewNode, SeekWhence, SetAttr};

/// Creates a regular file.
pub fn create(cx: &mut Cx, fs: &dyn FileSystem, dir: Ino, name: &str) -> Ino {
    let node = NewNode::new(FileType::Regular, 0o644);
    fs.create(cx, dir, name.as_bytes(), &node).unwrap_or_else(|e| panic!("{name}: {e}")).ino
}

/// Creates a directory.
pub fn mkdir(cx: &mut Cx, fs: &dyn FileSystem, dir: Ino, name: &str) -> Ino {
    let node = NewNode::new(FileType::Directory, 0o755);
    fs.create(cx, dir, name.as_bytes(), &node).unwrap_or_else(|e| panic!("{name}: {e}")).ino
}

/// The bytes of file number `file` at `offset`: what a reader must find wherever a writer wrote.
/// None of them is zero.
pub fn pattern(file: u64, offset: u64, bytes: &mut [u8]) {
    const ODD: u64 = 0x0101_0101_0101_0101;
    let word =
        |number: u64| (((file << 32) ^ number).wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ file) | ODD;
    let (number, skip) = (offset / 8, (offset % 8) as usize);
    let first = bytes.len().min(8 - skip);
    let (head, rest) = bytes.split_at_mut(first);
    head.copy_from_slice(&word(number).to_le_bytes()[skip..skip + first]);
    for (number, part) in (number + 1..).zip(rest.chunks_mut(8)) {
        part.copy_from_slice(&word(number).to_le_bytes()[..part.len()]);
    }
}

/// The first byte that is neither zero nor what [`pattern`] has there.
pub fn foreign(file: u64, bytes: &[u8], offset: u64) -> Option<usize> {
    const PART: usize = 4096;
    let mut expected = [0; PART];
    bytes.chunks(PART).enumerate().find_map(|(index, part)| {
        let expected = &mut expected[..part.len()];
        pattern(file, offset + (index * PART) as u64, expected);
        if part == expected {
            return None;
        }
        let foreign = part.iter().zip(expected.iter()).position(|(a, b)| *a != 0 && a != b);
        foreign.map(|at| index * PART + at)
    })
}

/// Appends `records` records of `len` bytes from each of several tasks at once, and asserts that
/// the file holds each of them once and whole.
pub fn appended_at_once<F: FileSystem + 'static>(
    cx: &mut Cx,
    fs: &Arc<F>,
    records: u8,
    len: usize,
) {
    const TASKS: u8 = 3;
    let file = create(cx, &**fs, fs.root(), "appended");
    let tasks: Vec<_> = (1..=TASKS)
        .map(|task| {
            let fs = fs.clone();
            cx.spawn("appender", move |cx| {
                for _ in 0..records {
                    let (_, count) = fs.append(cx, file, &vec![task; len]).expect("room");
                    assert_eq!(count, len);
                    cx.yield_now();
                }
            })
        })
        .collect();
    tasks.into_iter().for_each(|task| task.join(cx));
    let mut bytes = vec![0; (usize::from(TASKS * records) + 1) * len];
    let size = fs.read(cx, file, 0, &mut bytes).expect("readable");
    assert_eq!(size, usize::from(TASKS * records) * len, "an appender wrote over another");
    for task in 1..=TASKS {
        let own = bytes.chunks(len).filter(|record| record.iter().all(|&byte| byte == task));
        assert_eq!(own.count(), usize::from(records), "records of task {task}");
    }
}

/// Bytes of the files of [`beside_syncs`].
const SYNCED: u64 = 16384;

/// Calls `body` with files whose content is on its way to the device, each time a little further:
/// another task syncs the file meanwhile. For a device whose writes take up to some milliseconds.
fn beside_syncs<F: FileSystem + 'static>(
    cx: &mut Cx,
    fs: &Arc<F>,
    what: &str,
    mut body: impl FnMut(&mut Cx, &F, Ino, u64),
) {
    for delay in (0..4_000).step_by(20) {
        let file = create(cx, &**fs, fs.root(), &format!("{what}{delay}"));
        // Inside of the file, where blocks may be marked as written after their content.
        resize(cx, &**fs, file, SYNCED);
        fs.fsync(cx, file, false).expect("fsync");
        assert_eq!(fs.write(cx, file, 0, &[7; SYNCED as usize]), Ok(SYNCED as usize));
        let syncing = fs.clone();
        let sync = cx.spawn("sync", move |cx| syncing.fsync(cx, file, true));
        cx.sleep(Nanos::from_micros(delay));
        body(cx, fs, file, delay);
        sync.join(cx).expect("fsync");
    }
}

fn resize(cx: &mut Cx, fs: &dyn FileSystem, file: Ino, size: u64) {
    let set = SetAttr { size: Some(size), ..SetAttr::default() };
    fs.setattr(cx, file, &set).expect("setattr");
}

/// Content on its way to the device is data to who seeks, however far it has come.
pub fn is_no_hole_on_its_way<F: FileSystem + 'static>(cx: &mut Cx, fs: &Arc<F>) {
    beside_syncs(cx, fs, "seek", |cx, fs, file, delay| {
        assert_eq!(fs.seek(cx, file, 0, SeekWhence::Data), Ok(0), "data after {delay} us");
        assert_eq!(fs.seek(cx, file, 0, SeekWhence::Hole), Ok(SYNCED), "hole after {delay} us");
    });
}

/// Content that is cut away in the middle of a block while it is on its way to the device does not
/// come back; nor what is cut off at the end, where the file grows again. `punches` where the file
/// system has holes.
pub fn is_cut_on_its_way<F: FileSystem + 'static>(cx: &mut Cx, fs: &Arc<F>, punches: bool) {
    let zeros = |cx: &mut Cx, fs: &F, file, (from, to), what: String| {
        let mut bytes = vec![0xee; SYNCED as usize];
        for synced in [false, true] {
            assert_eq!(fs.read(cx, file, 0, &mut bytes), Ok(bytes.len()), "{what}");
            let wrong = bytes.iter().enumerate().find(|&(at, &byte)| {
                let cut = (from..to).contains(&(at as u64));
                byte != if cut { 0 } else { 7 }
            });
            assert_eq!(wrong, None, "{what}, synced: {synced}");
            fs.fsync(cx, file, true).expect("fsync");
        }
    };
    if punches {
        beside_syncs(cx, fs, "punch", |cx, fs, file, delay| {
            fs.fallocate(cx, file, FallocMode::PunchHole, 1000, 8000).expect("punch");
            zeros(cx, fs, file, (1000, 9000), format!("punched after {delay} us"));
        });
    }
    beside_syncs(cx, fs, "cut", |cx, fs, file, delay| {
        resize(cx, fs, file, 9000);
        resize(cx, fs, file, SYNCED);
        zeros(cx, fs, file, (9000, SYNCED), format!("cut after {delay} us"));
    });
}
