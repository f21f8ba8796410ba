//! Which bios a direct call on XFS sends, and which the fsync behind it: kept as text.

use std::sync::Arc;

use crate::world::{Cell, file, mount_with};
use base::Ino;
use block::trace::TraceKind;
use block::{BioFlags, Op, Queue};
use rt::Cx;
use testkit::kept;
use vfs::direct::Boundary;
use vfs::{FallocMode, FileSystem};
use xfs::{MountOptions, Xfs};

/// A file system with files of every kind of block.
struct Bed {
    fs: Arc<Xfs>,
    queue: Arc<Queue>,
    ino: Ino,
    /// The first sector that the scenario's file had, or got.
    first: Option<u64>,
}

const K: u64 = 1024;

impl Bed {
    /// The bios since the last look: of data the place behind the file's first sector, and sectors;
    /// the log and other metadata by name, once for several.
    fn sent(&mut self) -> String {
        let (events, lost) = self.queue.take_trace();
        assert_eq!(lost, 0, "the ring was long enough");
        let mut words: Vec<String> = Vec::new();
        for event in events.iter().filter(|event| event.kind == TraceKind::Queued) {
            let word = match event.op {
                Op::Flush => "flush".to_owned(),
                _ if event.flags.contains(BioFlags::META) => match event.op {
                    Op::Read => "meta".to_owned(),
                    _ => "log".to_owned(),
                },
                op => {
                    let first = *self.first.get_or_insert(event.sector.0);
                    let at = event.sector.0 as i64 - first as i64;
                    let op = if op == Op::Read { 'r' } else { 'w' };
                    format!("{op}{at:+}[{}]", event.count)
                }
            };
            if words.last() != Some(&word) || word.contains('[') {
                words.push(word);
            }
        }
        words.join(" ")
    }
}

fn bed(cx: &mut Cx, rule: Boundary) -> Bed {
    let memory = Cell(&[]).fresh(cx, 64 << 20);
    let mut options = MountOptions::default();
    options.direct.boundary = rule;
    options.direct.page_size = 4096;
    let (fs, queue) = mount_with(cx, memory, 8 << 20, options);
    let ino = file(cx, &fs, fs.root(), "file");
    Bed { fs, queue, ino, first: None }
}

/// Three written blocks, three unwritten, a hole of two, two written.
fn mixed(cx: &mut Cx, bed: &mut Bed) {
    let (fs, ino) = (&bed.fs, bed.ino);
    let mode = FallocMode::Allocate { keep_size: false };
    fs.fallocate(cx, ino, mode, 0, 40 * K).expect("allocated");
    fs.fallocate(cx, ino, FallocMode::PunchHole, 24 * K, 8 * K).expect("punched");
    fs.write_direct(cx, ino, 0, &[1; 12 << 10]).expect("written");
    fs.write_direct(cx, ino, 32 * K, &[1; 8 << 10]).expect("written");
    let map = fs.fiemap(cx, ino, 0, u64::MAX).expect("fiemap");
    bed.first = Some(map[0].physical() / 512);
}

type Scenario = (&'static str, fn(&mut Cx, &mut Bed), u64, u64, bool);

fn scenarios() -> Vec<Scenario> {
    let nothing: fn(&mut Cx, &mut Bed) = |_, _| {};
    let shared: fn(&mut Cx, &mut Bed) = |cx, bed| {
        mixed(cx, bed);
        let clone = file(cx, &bed.fs, bed.fs.root(), "clone");
        bed.fs.clone_range(cx, (bed.ino, 0), (clone, 0), 0).expect("cloned");
    };
    let cached: fn(&mut Cx, &mut Bed) = |cx, bed| {
        mixed(cx, bed);
        bed.fs.write(cx, bed.ino, 4 * K, &[9; 100]).expect("written");
    };
    vec![
        ("an empty file grows", nothing, 0, 64 * K, true),
        ("an empty file grows by a part of a block", nothing, 0, 4 * K + 512, true),
        ("a file grows behind its end", mixed, 48 * K, 8 * K, true),
        ("written blocks", mixed, 4 * K, 8 * K, true),
        ("sectors of written blocks", mixed, 4 * K + 512, 2 * K, true),
        ("unwritten blocks", mixed, 12 * K, 12 * K, true),
        ("sectors of unwritten blocks", mixed, 12 * K + 512, 6 * K, true),
        ("a hole", mixed, 24 * K, 8 * K, true),
        ("sectors of a hole", mixed, 24 * K + 512, K, true),
        ("written, unwritten, a hole, written", mixed, 0, 40 * K, true),
        ("the same, read", mixed, 0, 40 * K, false),
        ("over the end, read", mixed, 36 * K, 16 * K, false),
        ("shared blocks", shared, 0, 8 * K, true),
        ("sectors of a shared block", shared, 512, K, true),
        ("a block that is dirty in the page cache", cached, 0, 12 * K, true),
        ("the same, read", cached, 0, 12 * K, false),
    ]
}

/// Goal: exactly the bios of each kind of block, with nothing of the log between the data of a
/// call, under ours and under the rules that walk memory by pages: there is no mark on XFS, so all
/// of those are one. Method: the queue's trace, kept as text.
#[test]
fn bios_of_every_kind_of_block() {
    let mut text = String::new();
    for (name, prepare, off, len, write) in scenarios() {
        text += &format!("== {name}\n");
        text += &kept::by_outcome(Boundary::ALL.into_iter().map(|rule| {
            let line = rt::testing::world(|cx| {
                let mut bed = bed(cx, rule);
                prepare(cx, &mut bed);
                bed.fs.sync(cx).expect("sync");
                if name.contains("cache") {
                    bed.fs.write(cx, bed.ino, 4 * K, &[9; 100]).expect("written");
                }
                bed.queue.take_trace();
                let mut data = vec![7; len as usize];
                let done = match write {
                    true => bed.fs.write_direct(cx, bed.ino, off, &data),
                    false => bed.fs.read_direct(cx, bed.ino, off, &mut data),
                };
                let call = bed.sent();
                bed.fs.fsync(cx, bed.ino, false).expect("fsync");
                let line = format!("{call} -> {done:?} | fsync: {}", bed.sent());
                bed.fs.unmount(cx).expect("unmount");
                line
            });
            (rule.name(), line)
        }));
    }
    kept::compare(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/direct_bios.txt"), &text);
}
