//! Fast commits that we write: recovered by us, by the kernel and by e2fsck, with every promise of
//! an fsync kept.

use crate::support::campaign::{self, Plan};
use crate::support::recovered::*;
use crate::support::*;
use base::{Ino, Rng};
use jbd2::JournalMode;
use rt::Cx;
use std::collections::BTreeMap;
use testkit::judge;
use testkit::manifest::{self, Entry, Manifest};
use testkit::timed::DISK;
use testkit::trials;
use vfs::{FallocMode, FileSystem, RenameFlags, SetAttr};

const fn cell(block: u32) -> Cell {
    Cell::new("ext4", block).features("fast_commit").journal(1024)
}

/// Goal: what fsync promised is there after any cut, by our recovery, the kernel's and e2fsck's.
/// Method: the campaign of the other modes; most of its transactions are ineligible.
#[test]
fn fast_commits_keep_what_fsync_promised() {
    let plan = |block| Plan { cell: cell(block), mode: JournalMode::Ordered, steps: 12, random: 4 };
    campaign::run(plan(4096), seeds(1));
}

#[test]
fn any_operations_are_recovered() {
    for (seed, block) in seeds(2).zip([4096, 1024].into_iter().cycle()) {
        let run = Recording { cell: cell(block), seed, bytes: 24 << 20, cache: 2 << 20 };
        trials::anything_goes(run, 30, &campaign::config(seed, 10));
    }
}

/// Files of a directory, changed in all ways that fast commits can report.
struct Files<'a> {
    fs: &'a dyn FileSystem,
    dir: Ino,
    names: BTreeMap<String, Ino>,
    rng: Rng,
    made: u32,
}

impl Files<'_> {
    fn any(&mut self) -> (String, Ino) {
        let at = self.rng.below(self.names.len() as u64) as usize;
        let (name, ino) = self.names.iter().nth(at).expect("there are files");
        (name.clone(), *ino)
    }

    fn new_name(&mut self) -> String {
        self.made += 1;
        let long = "x".repeat(self.rng.below(200) as usize);
        format!("n{}{long}", self.made)
    }

    fn write_some(&mut self, cx: &mut Cx, ino: Ino) {
        let (at, len) = (self.rng.below(40_000), 1 + self.rng.below(20_000) as usize);
        let mut bytes = vec![0; len];
        pattern(self.rng.next_u64(), at, &mut bytes);
        self.fs.write(cx, ino, at, &bytes).expect("write");
    }

    fn change_any(&mut self, cx: &mut Cx) {
        let (fs, dir) = (self.fs, self.dir);
        let (name, ino) = self.any();
        match self.rng.below(10) {
            0 | 1 => {
                let name = self.new_name();
                let ino = create(cx, fs, dir, &name);
                self.write_some(cx, ino);
                self.names.insert(name, ino);
            }
            2 => self.write_some(cx, ino),
            3 => {
                let size = self.rng.below(50_000);
                let set = SetAttr { size: Some(size), ..SetAttr::default() };
                fs.setattr(cx, ino, &set).expect("truncate");
            }
            4 => {
                let new = self.new_name();
                fs.link(cx, ino, dir, new.as_bytes()).expect("link");
                self.names.insert(new, ino);
            }
            5 if self.names.len() > 4 => {
                if self.rng.below(2) == 0 {
                    // It is held open to the end, and goes with the power.
                    fs.open(cx, ino).expect("open");
                }
                fs.unlink(cx, dir, name.as_bytes()).expect("unlink");
                self.names.remove(&name);
            }
            6 => {
                let new = if self.rng.below(2) == 0 { self.any().0 } else { self.new_name() };
                let (old, to) = (name.as_bytes(), new.as_bytes());
                fs.rename(cx, dir, old, dir, to, RenameFlags::default()).expect("rename");
                if self.names.get(&new) != Some(&ino) {
                    self.names.remove(&name);
                    self.names.insert(new, ino);
                }
            }
            7 => {
                let mode = Some(0o600 + self.rng.below(64) as u16);
                fs.setattr(cx, ino, &SetAttr { mode, ..SetAttr::default() }).expect("chmod");
            }
            8 => {
                let (at, len) = (self.rng.below(50_000), 1 + self.rng.below(30_000));
                fs.fallocate(cx, ino, FallocMode::PunchHole, at, len).expect("punch");
            }
            _ => {
                let (at, len) = (self.rng.below(50_000), 1 + self.rng.below(30_000));
                let mode = FallocMode::Allocate { keep_size: false };
                fs.fallocate(cx, ino, mode, at, len).expect("fallocate");
            }
        }
    }
}

/// An image after an fsync, the names that were there, and the file that was synced.
struct Synced {
    image: Vec<u8>,
    names: Vec<String>,
    name: String,
    entry: Entry,
}

/// Runs `count` fsyncs with changes between them; answers the images after those that were fast
/// commits, and how many were not.
fn synced_images(cell: Cell, seed: u64, count: u64) -> (Vec<Synced>, u64) {
    rt::testing::world(|cx| {
        let device = cell.fresh(cx, 24 << 20);
        let (fs, _) = mount(cx, device.clone());
        let dir = mkdir(cx, &*fs, fs.root(), "d");
        // The first inodes commit whole; the directory is one of them.
        for n in 0..20 {
            create(cx, &*fs, fs.root(), &format!("first{n}"));
        }
        let names = (0..4).map(|n| (format!("f{n}"), create(cx, &*fs, dir, &format!("f{n}"))));
        let names = names.collect();
        let mut files = Files { fs: &*fs, dir, names, rng: Rng::new(seed, 24), made: 0 };
        fs.sync(cx).expect("sync");
        let (mut images, mut fast) = (Vec::new(), 0);
        for _ in 0..count {
            for _ in 0..1 + files.rng.below(5) {
                files.change_any(cx);
            }
            let (name, ino) = files.any();
            fs.fsync(cx, ino, false).expect("fsync");
            let before = std::mem::replace(&mut fast, counters_of(&fs).fast_commits);
            if fast > before {
                let image = device.snapshot();
                let tree = manifest::of_fs(cx, &*fs).expect("readable");
                let entry = tree[format!("d/{name}").as_bytes()].clone();
                let names = files.names.keys().cloned().collect();
                images.push(Synced { image, names, name, entry });
            }
        }
        let fallbacks = counters_of(&fs).fast_fallbacks;
        fs.shutdown_hard();
        (images, fallbacks)
    })
}

fn counters_of(fs: &ext4::Ext4) -> jbd2::JournalStats {
    fs.journal_stats().expect("there is a journal")
}

fn names_in(tree: &Manifest) -> Vec<String> {
    let below = tree.keys().filter_map(|path| path.strip_prefix(b"d/"));
    below.map(|name| String::from_utf8_lossy(name).into_owned()).collect()
}

/// Goal: after a fast commit all names are as they were, and the file that was synced has its
/// content, by four who recover; they leave the same files.
#[test]
fn each_fast_commit_is_recovered_by_all() {
    let mut judged = 0;
    for (seed, block) in seeds(2).zip([4096, 1024].into_iter().cycle()) {
        let (images, fallbacks) = synced_images(cell(block), seed, 14);
        assert!(images.len() >= 3, "{} fast commits, {fallbacks} were none", images.len());
        for (at, synced) in images.iter().enumerate() {
            let what = format!("{block}, seed {seed}, fast commit {at}");
            let (ours, device) = recovered_by_us(&synced.image);
            assert_eq!(names_in(&ours), synced.names, "{what}");
            let found = &ours[format!("d/{}", synced.name).as_bytes()];
            let wanted = Entry { nlink: found.nlink, ..synced.entry.clone() };
            assert_eq!(*found, wanted, "{what}");
            if at != 3 && seed_count(2) == 2 {
                continue;
            }
            e2fsck(&device, &what);
            let ours = files_of(ours);
            let kernel = files_of(recovered_by_kernel(&synced.image, "ext4"));
            assert_equal(&ours, &kernel, &format!("{what}, kernel"));
            for newest in [false, true] {
                let theirs = files_of(by_e2fsck(&synced.image, newest));
                assert_equal(&ours, &theirs, &format!("{what}, e2fsck, newest {newest}"));
            }
            judged += 1;
        }
    }
    assert!(judged >= 2, "{judged} images judged by others");
}

fn files_of(mut tree: Manifest) -> Manifest {
    // A file that has lost its last name e2fsck brings back.
    tree.retain(|name, entry| entry.kind == "file" && !name.starts_with(b"lost+found/"));
    tree
}

fn by_e2fsck(image: &[u8], newest: bool) -> Manifest {
    let file = testkit::image::write(image);
    let args: [&dyn AsRef<std::ffi::OsStr>; 4] = [&"-E", &"journal_only", &"-fy", &file.path()];
    let output =
        if newest { testkit::newest::run("e2fsck", &args) } else { judge::run("e2fsck", &args) };
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    judge::e2fsck(file.path()).unwrap_or_else(|found| panic!("{said}\n{found}"));
    judge::kernel_manifest(file.path(), "ext4")
}

/// Goal: a fast commit is one request behind a flush and through the cache, where a commit of the
/// transaction is two; and a second fsync without a change between is a flush alone.
#[test]
fn a_fast_commit_is_one_request() {
    let counted = |features: &'static str| {
        rt::testing::world(|cx| {
            let cell = Cell { features, ..cell(4096) };
            let device = cell.fresh(cx, 24 << 20);
            let (fs, queue) = mount(cx, device);
            let ino = (0..20).map(|n| create(cx, &*fs, fs.root(), &format!("{n}"))).last();
            let ino = ino.expect("there are twenty");
            fs.sync(cx).expect("sync");
            let mut counts = Vec::new();
            for at in [0, 4096, 8192] {
                fs.write(cx, ino, at, &[7; 4096]).expect("write");
                let before = queue.stats();
                fs.fsync(cx, ino, true).expect("fsync");
                let after = queue.stats();
                counts.push((after.writes - before.writes, after.write_bytes - before.write_bytes));
            }
            let before = queue.stats();
            fs.fsync(cx, ino, false).expect("fsync");
            counts.push((queue.stats().writes - before.writes, 0));
            fs.unmount(cx).expect("unmount");
            counts
        })
    };
    let fast = counted("fast_commit");
    assert_eq!(fast, [(2, 8192), (2, 8192), (2, 8192), (0, 0)]);
    let full = counted("");
    assert!(full[1].0 >= 3 && full[1].1 >= 4 * 4096, "{full:?}");
}

/// What creating and syncing files costs: nanoseconds and write requests of one file.
fn cost_of_files(machine: &str, features: &'static str, files: u64) -> (u64, f64) {
    rt::testing::world(|cx| {
        let memory = Cell { features, ..cell(4096) }.fresh(cx, 24 << 20);
        let device = modelled(cx, machine, memory);
        let (fs, queue) = mount(cx, device);
        for n in 0..20 {
            create(cx, &*fs, fs.root(), &format!("first{n}"));
        }
        fs.sync(cx).expect("sync");
        let (start, before) = (cx.now(), queue.stats().writes);
        for n in 0..files {
            let ino = create(cx, &*fs, fs.root(), &format!("{n}"));
            fs.write(cx, ino, 0, &[7; 4096]).expect("write");
            fs.fsync(cx, ino, false).expect("fsync");
        }
        let (time, writes) = (cx.now().since(start).0, queue.stats().writes - before);
        fs.unmount(cx).expect("unmount");
        (time / files, writes as f64 / files as f64)
    })
}

/// Goal: a created, written and synced file takes two writes (its data, the fast commit) where full
/// commits take three, and less time where the log is far from the data. On flash the flush takes
/// nearly all of the time, and both commits have one. Modelled.
#[test]
fn fast_commits_save_a_write_of_each_file() {
    for machine in [FLASH, SAFE_FLASH, DISK] {
        let (fast, fast_writes) = cost_of_files(machine, "fast_commit", 200);
        let (full, full_writes) = cost_of_files(machine, "", 200);
        println!(
            "{machine}: {fast} ns, {fast_writes} writes; full {full} ns, {full_writes} writes"
        );
        assert!(fast_writes < 2.2 && full_writes >= 3.0, "{machine}: {fast_writes}, {full_writes}");
        assert!(fast < full, "{machine}: {fast} ns a file, full commits {full}");
    }
}
