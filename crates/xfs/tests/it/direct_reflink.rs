//! Direct I/O on files that share blocks: whoever writes gets blocks of his own, the others keep
//! theirs, whatever goes wrong. Power cuts are in `cow.rs`.

use std::sync::Arc;

use crate::world::{Cell, checked, file, mount, repaired, seeds, timed};
use base::{Errno, Ino, Rng};
use block::{Cause, Op};
use device::{Fault, FaultDevice, Rule};
use rt::{Cx, World, WorldConfig};
use vfs::{FileSystem, SetAttr};
use xfs::Xfs;

const CELLS: &[(Cell, usize)] = &[
    (Cell(&[]), 4096),
    (Cell(&[('b', "size=1024"), ('m', "rmapbt=1")]), 1024),
    (Cell(&[('b', "size=1024")]), 1024),
];

/// Bytes of the file that is cloned.
const SOURCE: usize = 400 << 10;
/// Bytes that the others may grow to.
const MOST: usize = 600 << 10;

/// Bytes that tell their place and who wrote them.
fn pattern(who: u64, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    testkit::content::pattern(who, 0, &mut bytes);
    bytes
}

/// Goal: files that share blocks change one by one, whichever way they are written and read.
/// Method: three tasks clone parts of one file into files of their own and write those, directly
/// (also parts of a block) and through the page cache, in explored schedules; a byte array each; a
/// remount; both judges.
#[test]
fn clones_agree_with_arrays() {
    for seed in seeds(6) {
        let (cell, block) = CELLS[seed as usize % 3];
        World::new(WorldConfig::exploring(seed)).run("clones", |cx| {
            let what = format!("seed {seed}: {cell:?}");
            let memory = cell.fresh(cx, 96 << 20);
            let (fs, _) = mount(cx, timed(cx, &memory, seed), 8 << 20);
            let content = pattern(seed, SOURCE);
            let source = file(cx, &fs, fs.root(), "source");
            assert_eq!(fs.write_direct(cx, source, 0, &content), Ok(SOURCE));
            let tasks: Vec<_> = (0..3u64)
                .map(|task| {
                    let (fs, content) = (fs.clone(), content.clone());
                    let ino = file(cx, &fs, fs.root(), &format!("clone {task}"));
                    cx.spawn("task", move |cx| {
                        let mut own = Own { ino, bytes: Vec::new(), rng: Rng::new(seed, task) };
                        (0..40).for_each(|_| own.step(cx, &fs, (source, &content), block));
                        own
                    })
                })
                .collect();
            let clones: Vec<Own> = tasks.into_iter().map(|task| task.join(cx)).collect();
            fs.unmount(cx).expect("unmount");
            checked(cx, &memory).unwrap_or_else(|found| panic!("{what}: {found}"));
            repaired(&memory).unwrap_or_else(|found| panic!("{what}: {found}"));
            let (fs, _) = mount(cx, memory, 8 << 20);
            for (ino, bytes) in
                clones.iter().map(|own| (own.ino, &own.bytes)).chain([(source, &content)])
            {
                let mut found = vec![0xee; MOST + (SOURCE << 1)];
                let direct = fs.read_direct(cx, ino, 0, &mut found).expect("read");
                assert_eq!(direct, bytes.len(), "{what}: size of {ino}");
                assert!(found[..direct] == bytes[..], "{what}: {ino} after a remount");
            }
            fs.unmount(cx).expect("unmount");
        });
    }
}

/// A file of a task's own, beside the bytes that it must hold.
struct Own {
    ino: Ino,
    bytes: Vec<u8>,
    rng: Rng,
}

impl Own {
    fn step(&mut self, cx: &mut Cx, fs: &Xfs, source: (Ino, &[u8]), block: usize) {
        let sectors = |rng: &mut Rng, bytes: usize| rng.below((bytes / 512) as u64) as usize * 512;
        let at = sectors(&mut self.rng, MOST);
        let len = 512 + sectors(&mut self.rng, 64 << 10);
        match self.rng.below(20) {
            0..=8 => self.write(cx, fs, at, len, true),
            9..=10 => self.write(cx, fs, at, len, false),
            11..=13 => self.read(cx, fs, at, len),
            14..=17 => self.clone(cx, fs, source, block),
            18 => {
                let set = SetAttr { size: Some(at as u64), ..SetAttr::default() };
                fs.setattr(cx, self.ino, &set).expect("truncate");
                self.bytes.resize(at, 0);
            }
            _ => fs.fsync(cx, self.ino, false).expect("fsync"),
        }
    }

    fn write(&mut self, cx: &mut Cx, fs: &Xfs, at: usize, len: usize, direct: bool) {
        let data = pattern(self.rng.next_u64(), len);
        let written = match direct {
            true => fs.write_direct(cx, self.ino, at as u64, &data),
            false => fs.write(cx, self.ino, at as u64, &data),
        };
        assert_eq!(written, Ok(len), "direct {direct}");
        self.bytes.resize(self.bytes.len().max(at + len), 0);
        self.bytes[at..at + len].copy_from_slice(&data);
    }

    fn read(&mut self, cx: &mut Cx, fs: &Xfs, at: usize, len: usize) {
        let mut found = vec![0xee; len];
        let direct = self.rng.chance(0.7);
        let read = match direct {
            true => fs.read_direct(cx, self.ino, at as u64, &mut found),
            false => fs.read(cx, self.ino, at as u64, &mut found),
        };
        let wanted = self.bytes.get(at..).unwrap_or(&[]);
        let wanted = &wanted[..wanted.len().min(len)];
        assert_eq!(read, Ok(wanted.len()));
        assert!(found[..wanted.len()] == *wanted, "{} at {at}, direct {direct}", self.ino);
    }

    fn clone(&mut self, cx: &mut Cx, fs: &Xfs, (source, content): (Ino, &[u8]), block: usize) {
        let blocks = (SOURCE / block) as u64;
        let from = self.rng.below(blocks) as usize * block;
        let len = (block * (1 + self.rng.below(blocks / 2) as usize)).min(SOURCE - from);
        let to = self.rng.below(blocks) as usize * block;
        let result = fs.clone_range(cx, (source, from as u64), (self.ino, to as u64), len as u64);
        assert_eq!(result, Ok(()), "{from}+{len} to {to}: {:?}", fs.error());
        self.bytes.resize(self.bytes.len().max(to + len), 0);
        self.bytes[to..to + len].copy_from_slice(&content[from..from + len]);
    }
}

/// Goal: an error while shared blocks are overwritten takes nothing from the file that shares them,
/// and the writer has what the call answers; the rest is what it was. Method: fail one write of the
/// call, ever further on, then all from there on; again when the device works; a remount; our
/// check.
#[test]
fn a_fault_while_shared_blocks_are_written() {
    let (mut skip, mut hit) = (0, true);
    while hit && skip < 24 {
        for fails in [1, u64::MAX] {
            hit = rt::testing::world(|cx| fault_at(cx, skip, fails));
        }
        skip += 1;
    }
    assert!(skip >= 3, "only {skip} bios");
}

fn fault_at(cx: &mut Cx, skip: u64, fails: u64) -> bool {
    let what = format!("from bio {skip}, {fails} of them");
    let memory = CELLS[0].0.fresh(cx, 64 << 20);
    let faults = Arc::new(FaultDevice::new(cx.runtime(), memory.clone()));
    let (fs, _) = mount(cx, faults.clone(), 8 << 20);
    let old = pattern(1, 2 << 20);
    let source = file(cx, &fs, fs.root(), "source");
    assert_eq!(fs.write_direct(cx, source, 0, &old), Ok(old.len()));
    let copy = file(cx, &fs, fs.root(), "copy");
    fs.clone_range(cx, (source, 0), (copy, 0), 0).expect("cloned");
    fs.sync(cx).expect("sync");
    let hits = faults.hits();
    faults.add(Rule { count: fails, ..Rule::nth(Op::Write, skip, Fault::Fail(Cause::Io)) });
    let (at, new) = (8192 + 512, pattern(2, (1 << 20) + 1024));
    let written = fs.write_direct(cx, copy, at as u64, &new);
    let hit = faults.hits() > hits;
    faults.clear();
    let done = match written {
        Ok(done) => done,
        Err(errno) => {
            assert!([Errno::EIO, Errno::EROFS].contains(&errno), "{what}: {errno}");
            0
        }
    };
    assert!(hit || done == new.len(), "{what}: short without an error");
    let mut wanted = old.clone();
    wanted[at..at + done].copy_from_slice(&new[..done]);
    let judge = |cx: &mut Cx, fs: &Xfs, when: &str| {
        let mut found = vec![0xee; old.len()];
        assert_eq!(fs.read_direct(cx, source, 0, &mut found), Ok(old.len()));
        assert!(found == old, "{what}: the source, {when}");
        assert_eq!(fs.read_direct(cx, copy, 0, &mut found), Ok(old.len()));
        for (number, sector) in found.chunks_exact(512).enumerate() {
            let (here, end) = (number * 512, (number + 1) * 512);
            let fine = *sector == wanted[here..end]
                || (at + done..at + new.len()).contains(&here)
                    && *sector == new[here - at..end - at];
            assert!(fine, "{what}: sector {number} of the copy, {when}");
        }
    };
    judge(cx, &fs, "at once");
    if fails == 1 && done < new.len() && fs.error().is_none() {
        let again = fs.write_direct(cx, copy, (at + done) as u64, &new[done..]);
        assert_eq!(again, Ok(new.len() - done), "{what}: again");
    }
    let _ = fs.unmount(cx);
    let (fs, _) = mount(cx, memory.clone(), 8 << 20);
    judge(cx, &fs, "after a remount");
    fs.unmount(cx).expect("unmount");
    checked(cx, &memory).unwrap_or_else(|found| panic!("{what}: {found}"));
    hit
}
