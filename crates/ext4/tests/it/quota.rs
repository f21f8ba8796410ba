//! Quota: usage beside what inodes really have, limits, projects, growing files of entries, power
//! cuts; e2fsck judges every image.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::support::campaign::{self, Plan};
use crate::support::*;
use base::{Errno, Ino, Nanos, Rng};
use device::MemoryDevice;
use ext4::Ext4;
use ext4::format::quota::Kind;
use ext4::quota::{Grace, Limits};
use jbd2::JournalMode;
use rt::{Cred, Cx};
use vfs::{FallocMode, FileSystem, FileType, NewNode, RenameFlags, SetAttr, XattrFlags};

const ALL: &str = "quota,project";

fn node(kind: FileType, uid: u32, gid: u32) -> NewNode<'static> {
    NewNode { uid, gid, ..NewNode::new(kind, 0o777) }
}

fn make(cx: &mut Cx, fs: &Ext4, dir: Ino, name: &str, uid: u32, gid: u32) -> Ino {
    let made = fs.create(cx, dir, name.as_bytes(), &node(FileType::Regular, uid, gid));
    made.unwrap_or_else(|errno| panic!("{name}: {errno}")).ino
}

fn usage(cx: &mut Cx, fs: &Ext4, kind: Kind, id: u32) -> (u64, u64) {
    let report = fs.quota_report(cx, kind).expect("a report");
    let entry = report.into_iter().find(|(found, _)| *found == id);
    entry.map_or((0, 0), |(_, entry)| (entry.space, entry.inodes))
}

fn chown(cx: &mut Cx, fs: &Ext4, ino: Ino, uid: u32, gid: u32) -> Result<(), Errno> {
    let set = SetAttr { uid: Some(uid), gid: Some(gid), ..SetAttr::default() };
    fs.setattr(cx, ino, &set).map(|_| ())
}

/// Acts as another user.
fn as_user<T>(cx: &mut Cx, uid: u32, gid: u32, act: impl FnOnce(&mut Cx) -> T) -> T {
    let before = cx.set_cred(Cred { uid, gid, ..Cred::default() });
    let result = act(cx);
    cx.set_cred(before);
    result
}

fn judged(cx: &mut Cx, fs: &Ext4, device: &Arc<MemoryDevice>, what: &str) {
    fs.unmount(cx).unwrap_or_else(|errno| panic!("{what}: unmount: {errno}"));
    checked(cx, device, what);
    e2fsck(device, what);
}

#[test]
fn usage_follows_every_change() {
    // Goal: after each kind of operation the accounts say what the inodes do.
    for cell in [
        Cell::new("ext4", 1024).features(ALL),
        Cell::new("ext4", 4096).features(ALL),
        Cell::new("ext4", 4096).features("quota").mke2fs(),
        Cell::new("ext3", 1024).features("quota"),
        Cell::new("ext4", 1024).features("quota,project,^has_journal"),
    ] {
        rt::testing::both(|cx| {
            let device = cell.fresh(cx, 24 << 20);
            let (fs, _) = mount(cx, device.clone());
            let block = u64::from(cell.block);
            let root = fs.root();
            assert_eq!(usage(cx, &fs, Kind::User, 1000), (0, 0));
            let file = make(cx, &fs, root, "file", 1000, 100);
            assert_eq!(usage(cx, &fs, Kind::User, 1000), (0, 1));
            fs.write(cx, file, 0, &vec![1; 20 * cell.block as usize]).expect("write");
            fs.sync(cx).expect("sync");
            let attr = fs.getattr(cx, file).expect("stat");
            assert!(attr.blocks * 512 >= 20 * block);
            assert_eq!(usage(cx, &fs, Kind::Group, 100), (attr.blocks * 512, 1));
            let dir =
                fs.create(cx, root, b"dir", &node(FileType::Directory, 1000, 7)).expect("dir");
            assert_eq!(usage(cx, &fs, Kind::User, 1000), (attr.blocks * 512 + block, 2));
            chown(cx, &fs, file, 2000, 100).expect("chown");
            assert_eq!(usage(cx, &fs, Kind::User, 1000), (block, 1));
            assert_eq!(usage(cx, &fs, Kind::User, 2000), (attr.blocks * 512, 1));
            assert_eq!(usage(cx, &fs, Kind::Group, 100), (attr.blocks * 512, 1));
            let set = SetAttr { size: Some(3 * block), ..SetAttr::default() };
            fs.setattr(cx, file, &set).expect("truncate");
            assert_eq!(usage(cx, &fs, Kind::User, 2000), (3 * block, 1));
            let value = vec![7; 400];
            fs.setxattr(cx, file, b"user.large", &value, XattrFlags::empty()).expect("xattr");
            assert_eq!(usage(cx, &fs, Kind::User, 2000), (4 * block, 1));
            // A shared attribute block is charged to each of its owners.
            let twin = make(cx, &fs, dir.ino, "twin", 3000, 100);
            fs.setxattr(cx, twin, b"user.large", &value, XattrFlags::empty()).expect("xattr");
            assert_eq!(usage(cx, &fs, Kind::User, 3000), (block, 1));
            fs.removexattr(cx, file, b"user.large").expect("xattr");
            assert_eq!(usage(cx, &fs, Kind::User, 2000), (3 * block, 1));
            // Open while its last name goes: charged until it is closed.
            fs.open(cx, file).expect("open");
            fs.unlink(cx, root, b"file").expect("unlink");
            assert_eq!(usage(cx, &fs, Kind::User, 2000), (3 * block, 1));
            fs.release(cx, file).expect("close");
            assert_eq!(usage(cx, &fs, Kind::User, 2000), (0, 0));
            fs.unlink(cx, dir.ino, b"twin").expect("unlink");
            fs.rmdir(cx, root, b"dir").expect("rmdir");
            assert_eq!(usage(cx, &fs, Kind::User, 1000), (0, 0));
            judged(cx, &fs, &device, &format!("{cell:?}"));
        });
    }
}

#[test]
fn many_ids_grow_the_tree_and_stay() {
    // Goal: ids that share blocks of the tree and ids that do not; every level, the lists of free
    // slots, several blocks of the file; found again after a remount.
    for block in [1024, 4096] {
        rt::testing::world(|cx| {
            let cell = Cell::new("ext4", block).features(ALL).journal(1024);
            let device = cell.fresh(cx, 24 << 20);
            let (fs, _) = mount(cx, device.clone());
            let root = fs.root();
            let mut rng = Rng::new(3, u64::from(block));
            let mut counts: BTreeMap<u32, u64> = BTreeMap::new();
            for n in 0..300u32 {
                let id = match n % 3 {
                    0 => n,
                    1 => rng.next_u32(),
                    _ => 0xffff_fff0 + n % 15,
                };
                make(cx, &fs, root, &format!("f{n}"), id, id ^ 5);
                *counts.entry(id).or_default() += 1;
            }
            fs.unmount(cx).expect("unmount");
            let (fs, _) = mount(cx, device.clone());
            for (&id, &count) in counts.iter().filter(|(id, _)| **id != 0) {
                assert_eq!(usage(cx, &fs, Kind::User, id).1, count, "id {id}");
            }
            // Entries that were made before are used again.
            for n in 0..300 {
                fs.unlink(cx, root, format!("f{n}").as_bytes()).expect("unlink");
            }
            let report = fs.quota_report(cx, Kind::User).expect("a report");
            assert!(report.iter().all(|(id, entry)| *id == 0 || entry.inodes == 0));
            make(cx, &fs, root, "again", 9, 9);
            judged(cx, &fs, &device, "many ids");
        });
    }
}

#[test]
fn hard_limits_are_met_to_the_block() {
    // Goal: a user gets what the limit says and EDQUOT for the next byte; root is not held; what
    // was promised and never written comes back.
    rt::testing::both(|cx| {
        let device = Cell::new("ext4", 1024).features(ALL).fresh(cx, 24 << 20);
        let (fs, _) = mount(cx, device.clone());
        let root = fs.root();
        let limits = Limits { block_hard: 64, inode_hard: 3, ..Limits::default() };
        fs.quota_set(cx, Kind::User, 1000, &limits).expect("limits");
        let file = make(cx, &fs, root, "a", 1000, 1000);
        make(cx, &fs, root, "b", 1000, 1000);
        as_user(cx, 1000, 1000, |cx| {
            let third = fs.create(cx, root, b"c", &node(FileType::Regular, 1000, 1000));
            third.expect("the third inode is allowed");
            let fourth = fs.create(cx, root, b"d", &node(FileType::Regular, 1000, 1000));
            assert_eq!(fourth.map(|_| ()), Err(Errno::EDQUOT));
            assert_eq!(fs.write(cx, file, 0, &[1; 100 << 10]), Ok(64 << 10), "up to the limit");
            assert_eq!(fs.write(cx, file, 64 << 10, &[1; 1]), Err(Errno::EDQUOT));
            // Dirty pages that never get blocks give their promise back.
            let set = SetAttr { size: Some(10 << 10), ..SetAttr::default() };
            fs.setattr(cx, file, &set).expect("truncate");
            assert_eq!(fs.write(cx, file, 10 << 10, &[2; 54 << 10]), Ok(54 << 10));
            fs.sync(cx).expect("sync");
            assert_eq!(fs.write(cx, file, 64 << 10, &[1; 1]), Err(Errno::EDQUOT));
            let more =
                fs.fallocate(cx, file, FallocMode::Allocate { keep_size: true }, 65 << 10, 4096);
            assert_eq!(more, Err(Errno::EDQUOT));
            let dir = fs.create(cx, root, b"dir", &node(FileType::Directory, 1000, 1000));
            assert_eq!(dir.map(|_| ()), Err(Errno::EDQUOT));
        });
        assert_eq!(usage(cx, &fs, Kind::User, 1000), (64 << 10, 3));
        assert_eq!(fs.write(cx, file, 64 << 10, &[1; 1024]), Ok(1024), "root is not held");
        fs.sync(cx).expect("sync");
        assert_eq!(usage(cx, &fs, Kind::User, 1000), (65 << 10, 3));
        // Giving away is a question of the new owner's limits.
        let other = make(cx, &fs, root, "other", 2000, 2000);
        as_user(cx, 5, 5, |cx| {
            assert_eq!(chown(cx, &fs, other, 1000, 2000), Err(Errno::EDQUOT));
            chown(cx, &fs, other, 3000, 2000).expect("no limits there");
        });
        judged(cx, &fs, &device, "hard limits");
    });
}

#[test]
fn hard_limits_of_groups_and_projects_are_met_to_the_block() {
    rt::testing::both(|cx| {
        let device = Cell::new("ext4", 1024).features(ALL).fresh(cx, 24 << 20);
        let (fs, _) = mount(cx, device.clone());
        let root = fs.root();
        let limits = Limits { block_hard: 16, inode_hard: 2, ..Limits::default() };
        fs.quota_set(cx, Kind::Group, 7, &limits).expect("limits of a group");
        let limits = Limits { block_hard: 32, inode_hard: 3, ..Limits::default() };
        fs.quota_set(cx, Kind::Project, 77, &limits).expect("limits of a project");
        let dir = fs.create(cx, root, b"p", &node(FileType::Directory, 0, 0)).expect("dir").ino;
        fs.set_project(cx, dir, 77, true).expect("project");
        let grouped = make(cx, &fs, root, "grouped", 1, 7);
        let inside = make(cx, &fs, dir, "inside", 2, 8);
        let regular = |uid, gid| node(FileType::Regular, uid, gid);
        as_user(cx, 1, 7, |cx| {
            assert_eq!(fs.write(cx, grouped, 0, &[1; 20 << 10]), Ok(16 << 10));
            assert_eq!(fs.write(cx, grouped, 16 << 10, &[1]), Err(Errno::EDQUOT));
            fs.create(cx, root, b"second", &regular(1, 7)).expect("the group's second inode");
            let third = fs.create(cx, root, b"third", &regular(1, 7));
            assert_eq!(third.map(drop), Err(Errno::EDQUOT));
            fs.create(cx, root, b"third", &regular(1, 9)).expect("no limits in that group");
        });
        as_user(cx, 2, 8, |cx| {
            // The directory's own block is the project's.
            assert_eq!(fs.write(cx, inside, 0, &[1; 40 << 10]), Ok(31 << 10));
            assert_eq!(fs.write(cx, inside, 31 << 10, &[1]), Err(Errno::EDQUOT));
            fs.create(cx, dir, b"second", &regular(2, 8)).expect("the project's third inode");
            let third = fs.create(cx, dir, b"third", &regular(2, 8));
            assert_eq!(third.map(drop), Err(Errno::EDQUOT));
            fs.create(cx, root, b"outside", &regular(2, 8)).expect("no limits out of the project");
        });
        fs.sync(cx).expect("sync");
        assert_eq!(usage(cx, &fs, Kind::Group, 7), (16 << 10, 2));
        assert_eq!(usage(cx, &fs, Kind::Project, 77), (32 << 10, 3));
        judged(cx, &fs, &device, "limits of groups and projects");
    });
}

#[test]
fn soft_limits_hold_when_their_grace_is_over() {
    rt::testing::world(|cx| {
        let device = Cell::new("ext4", 1024).features(ALL).fresh(cx, 24 << 20);
        let (fs, _) = mount(cx, device.clone());
        let root = fs.root();
        fs.quota_set_grace(cx, Kind::Group, Grace { blocks: 100, inodes: 50, realtime: 0 })
            .expect("grace");
        let limits = Limits { block_soft: 8, inode_soft: 1, ..Limits::default() };
        fs.quota_set(cx, Kind::Group, 7, &limits).expect("limits");
        let file = make(cx, &fs, root, "a", 1, 7);
        as_user(cx, 1, 7, |cx| {
            fs.write(cx, file, 0, &[1; 9 << 10]).expect("over the soft limit");
            fs.sync(cx).expect("sync");
            fs.create(cx, root, b"b", &node(FileType::Regular, 1, 7)).expect("over it");
            cx.sleep(Nanos::from_secs(60));
            fs.write(cx, file, 9 << 10, &[1; 1024]).expect("in the grace period");
            let third = fs.create(cx, root, b"c", &node(FileType::Regular, 1, 7));
            assert_eq!(third.map(|_| ()), Err(Errno::EDQUOT), "inodes have a shorter one");
            cx.sleep(Nanos::from_secs(60));
            assert_eq!(fs.write(cx, file, 10 << 10, &[1; 1024]), Err(Errno::EDQUOT));
            let set = SetAttr { size: Some(4096), ..SetAttr::default() };
            fs.setattr(cx, file, &set).expect("truncate");
            fs.write(cx, file, 4096, &[1; 2048]).expect("below it all is well again");
        });
        assert_eq!(fs.quota_grace(Kind::Group), Ok(Grace { blocks: 100, inodes: 50, realtime: 0 }));
        judged(cx, &fs, &device, "soft limits");
    });
}

#[test]
fn projects_are_inherited_and_keep_to_themselves() {
    rt::testing::both(|cx| {
        let device = Cell::new("ext4", 4096).features(ALL).fresh(cx, 24 << 20);
        let (fs, _) = mount(cx, device.clone());
        let root = fs.root();
        let dir = fs.create(cx, root, b"p", &node(FileType::Directory, 0, 0)).expect("dir").ino;
        fs.set_project(cx, dir, 77, true).expect("project");
        let inside = make(cx, &fs, dir, "in", 1, 1);
        assert_eq!(fs.project(cx, inside), Ok((77, false)));
        let sub = fs.create(cx, dir, b"sub", &node(FileType::Directory, 0, 0)).expect("dir").ino;
        assert_eq!(fs.project(cx, sub), Ok((77, true)));
        assert_eq!(usage(cx, &fs, Kind::Project, 77), (2 * 4096, 3));
        let outside = make(cx, &fs, root, "out", 1, 1);
        let none = RenameFlags::empty();
        assert_eq!(fs.rename(cx, root, b"out", dir, b"out", none), Err(Errno::EXDEV));
        assert_eq!(fs.link(cx, outside, dir, b"out").map(|_| ()), Err(Errno::EXDEV));
        fs.rename(cx, dir, b"in", root, b"in", none).expect("out of it is allowed");
        fs.set_project(cx, inside, 0, false).expect("project");
        assert_eq!(usage(cx, &fs, Kind::Project, 77), (2 * 4096, 2));
        judged(cx, &fs, &device, "projects");
    });
}

#[test]
fn every_cut_leaves_usage_that_e2fsck_counts() {
    let plan = |block, features| Plan {
        cell: Cell::new("ext4", block).journal(1024).features(features),
        mode: JournalMode::Ordered,
        steps: 80,
        random: 20,
    };
    campaign::run(plan(4096, ALL), seeds(1));
    campaign::run(plan(1024, "quota"), seeds(1));
}

/// What one task does to files of its own, whose owners are ever new.
fn give_away(cx: &mut Cx, fs: &Ext4, number: u64, seed: u64) {
    let mut rng = Rng::new(seed, number);
    let dir = mkdir(cx, fs, fs.root(), &format!("d{number}"));
    let mut files: Vec<(String, Ino)> = Vec::new();
    for step in 0..60u64 {
        let id = rng.next_u32() >> rng.below(30);
        match rng.below(10) {
            0..=3 => {
                let name = format!("f{step}");
                let ino = make(cx, fs, dir, &name, id, id / 2);
                files.push((name, ino));
            }
            4..=5 if !files.is_empty() => {
                let (name, _) = files.swap_remove(rng.below(files.len() as u64) as usize);
                fs.unlink(cx, dir, name.as_bytes()).expect("unlink");
            }
            6 if !files.is_empty() => {
                let (_, ino) = files[rng.below(files.len() as u64) as usize];
                fs.write(cx, ino, rng.below(100_000), &[9; 5000]).expect("write");
            }
            7 if !files.is_empty() => {
                let (_, ino) = files[rng.below(files.len() as u64) as usize];
                fs.fsync(cx, ino, false).expect("fsync");
            }
            8 if rng.chance(0.3) => {
                let kind = *rng.pick(&Kind::ALL);
                let limits = Limits { inode_soft: rng.below(3), ..Limits::default() };
                fs.quota_set(cx, kind, id, &limits).expect("limits");
                let grace = Grace { blocks: 1 + id / 2, inodes: 7, realtime: 0 };
                fs.quota_set_grace(cx, kind, grace).expect("grace");
                // Ids that nobody needs any more go with a sync.
                fs.sync(cx).expect("sync");
            }
            8 if !files.is_empty() => {
                let (_, ino) = files[rng.below(files.len() as u64) as usize];
                fs.set_project(cx, ino, id, false).expect("a project");
            }
            _ if !files.is_empty() => {
                let (_, ino) = files[rng.below(files.len() as u64) as usize];
                chown(cx, fs, ino, id, id / 3).expect("chown");
            }
            _ => {}
        }
    }
}

#[test]
fn new_ids_and_new_owners_may_be_cut_anywhere() {
    // Goal: entries are being made, and inodes change their owners, while the power fails.
    for seed in seeds(2) {
        let cell = Cell::new("ext4", [1024, 4096][seed as usize % 2]).features(ALL).journal(1024);
        let run = Recording { cell, seed, bytes: 24 << 20, cache: 2 << 20 };
        let recorded = run.run(|cx, fs, _| {
            let tasks: Vec<_> = (0..4)
                .map(|number| {
                    let fs = fs.clone();
                    cx.spawn("giver", move |cx| give_away(cx, &fs, number, seed))
                })
                .collect();
            tasks.into_iter().for_each(|task| task.join(cx));
        });
        recorded.explore(&campaign::config(seed, 20), 25, |_, _, _| Ok(()));
    }
}

#[test]
fn ids_that_are_no_longer_used_go() {
    // Goal: an id whose last file went has no entry after a sync, unless it has limits; its room is
    // used again, so that the file does not grow; one that somebody is about to use stays.
    for block in [1024, 4096] {
        rt::testing::both(|cx| {
            let cell = Cell::new("ext4", block).features(ALL).journal(1024);
            let device = cell.fresh(cx, 24 << 20);
            let (mut fs, _) = mount(cx, device.clone());
            let root = fs.root();
            let ids = |cx: &mut Cx, fs: &Ext4, kind| -> Vec<u32> {
                let report = fs.quota_report(cx, kind).expect("a report");
                report.into_iter().map(|(id, _)| id).collect()
            };
            let limits = Limits { block_hard: 100, ..Limits::default() };
            fs.quota_set(cx, Kind::User, 77_777, &limits).expect("limits");
            let mut free = None;
            for wave in 0..4u32 {
                let id = |n: u32| 1000 + (n * 70_001 + wave * 13) % 3_000_000;
                for n in 0..120 {
                    make(cx, &fs, root, &format!("f{n}"), id(n), id(n) / 2);
                }
                assert_eq!(ids(cx, &fs, Kind::User).len(), 122);
                for n in 0..120 {
                    fs.unlink(cx, root, format!("f{n}").as_bytes()).expect("unlink");
                }
                fs.sync(cx).expect("sync");
                assert_eq!(ids(cx, &fs, Kind::User), [0, 77_777], "wave {wave}");
                assert_eq!(ids(cx, &fs, Kind::Group), [0], "wave {wave}");
                let now = fs.statfs(cx).expect("counts").blocks_free;
                if wave > 0 {
                    let before = free.expect("a wave was before");
                    assert!(now + 4 * 4096 / u64::from(block) >= before, "{now}, {before} before");
                } else {
                    free = Some(now);
                }
            }
            let name = "kept";
            make(cx, &fs, root, name, 5, 6);
            fs.unmount(cx).expect("unmount");
            fs = mount(cx, device.clone()).0;
            assert_eq!(ids(cx, &fs, Kind::User), [0, 5, 77_777]);
            fs.quota_set(cx, Kind::User, 77_777, &Limits::default()).expect("no limits");
            fs.unlink(cx, root, name.as_bytes()).expect("unlink");
            fs.unmount(cx).expect("unmount");
            fs = mount(cx, device.clone()).0;
            assert_eq!(ids(cx, &fs, Kind::User), [0]);
            judged(cx, &fs, &device, &format!("blocks of {block}"));
        });
    }
}

#[test]
fn a_wrong_account_is_found_by_both_checks() {
    // Goal: the judges can fail: an inode changes its owner behind the file system's back.
    rt::testing::real(|cx| {
        let device = Cell::new("ext4", 1024).features("quota").fresh(cx, 16 << 20);
        let file = testkit::image::write_device(&device);
        testkit::judge::debugfs(file.path(), true, "sif lost+found uid 1000\n");
        assert!(testkit::judge::e2fsck(file.path()).is_err());
        let image = Arc::new(testkit::image::load(file.path()));
        let queue = queue(cx, image);
        let report = ext4::check(cx, &queue, &Default::default()).expect("check runs");
        let rules: Vec<&str> = report.findings.iter().map(|found| found.rule.name()).collect();
        assert_eq!(rules, ["quota-usage", "quota-usage"], "{:?}", report.findings);
    });
}

#[test]
fn links_in_inodes_may_be_counted_or_not() {
    // Goal: Linux counts a symbolic link whose target lies in its inode, e2fsck does not; an image
    // of either is sound. Method: one of mke2fs, which counts as e2fsck does.
    let dir = tempfile::tempdir().expect("a directory");
    let tree = dir.path().join("tree");
    std::fs::create_dir(&tree).expect("a directory");
    std::os::unix::fs::symlink("y".repeat(70), tree.join("link")).expect("a link");
    let image = dir.path().join("image");
    let from = tree.to_str().expect("a path");
    let args = ["-t", "ext4", "-O", "inline_data,quota", "-d", from];
    testkit::judge::mke2fs(&image, 16 << 20, &args);
    testkit::judge::e2fsck(&image).expect("sound by its count");
    let findings = rt::testing::real(|cx| {
        let queue = queue(cx, Arc::new(testkit::image::load(&image)));
        ext4::check(cx, &queue, &Default::default()).expect("check runs").findings
    });
    assert_eq!(findings, []);
}
