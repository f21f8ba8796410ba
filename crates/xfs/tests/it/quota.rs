//! Quota: usage beside what inodes really have, limits, projects, power cuts, a full file system;
//! our check and xfs_repair compare the counts of every image.

use std::sync::Arc;

use crate::world::{Cell, checked, mount_read_only, mount_with, repaired};
use base::{Errno, Ino};
use device::MemoryDevice;
use rt::{Cred, Cx};
use vfs::quota::{Dqblk, Grace, Kind, Limits, Project, Quota};
use vfs::{FallocMode, FileSystem, FileType, NewNode, RenameFlags, SetAttr, XattrFlags};
use xfs::{MountOptions, QuotaMode, Xfs};

/// File systems: the default, one with reverse maps and small blocks, one with parent pointers.
const CELLS: [Cell; 3] = [
    Cell(&[]),
    Cell(&[('m', "rmapbt=1"), ('b', "size=1024"), ('d', "agcount=2")]),
    Cell(&[('n', "parent=1"), ('m', "rmapbt=1")]),
];

const COUNT_ALL: QuotaMode = QuotaMode::Count([Some(true); 3]);

fn options(quota: QuotaMode) -> MountOptions {
    MountOptions { quota, ..MountOptions::default() }
}

fn mount(cx: &mut Cx, device: &Arc<MemoryDevice>, quota: QuotaMode) -> Arc<Xfs> {
    mount_with(cx, device.clone(), 8 << 20, options(quota)).0
}

fn node(kind: FileType, uid: u32, gid: u32) -> NewNode<'static> {
    NewNode { uid, gid, ..NewNode::new(kind, 0o777) }
}

fn make(cx: &mut Cx, fs: &Xfs, dir: Ino, name: &str, uid: u32, gid: u32) -> Ino {
    let made = fs.create(cx, dir, name.as_bytes(), &node(FileType::Regular, uid, gid));
    made.unwrap_or_else(|errno| panic!("{name}: {errno} {:?}", fs.error())).ino
}

fn entry(cx: &mut Cx, fs: &Xfs, kind: Kind, id: u32) -> Dqblk {
    let report = fs.report(cx, kind).expect("a report");
    let account = report.into_iter().find(|account| account.id == id);
    account.map_or(Dqblk::default(), |account| account.entry)
}

fn usage(cx: &mut Cx, fs: &Xfs, kind: Kind, id: u32) -> (u64, u64) {
    let entry = entry(cx, fs, kind, id);
    (entry.space, entry.inodes)
}

fn chown(cx: &mut Cx, fs: &Xfs, ino: Ino, uid: u32, gid: u32) -> Result<(), Errno> {
    let set = SetAttr { uid: Some(uid), gid: Some(gid), ..SetAttr::default() };
    fs.setattr(cx, ino, &set).map(|_| ())
}

fn as_user<T>(cx: &mut Cx, uid: u32, act: impl FnOnce(&mut Cx) -> T) -> T {
    let before = cx.set_cred(Cred { uid, gid: uid, ..Cred::default() });
    let result = act(cx);
    cx.set_cred(before);
    result
}

fn judged(cx: &mut Cx, fs: &Xfs, device: &Arc<MemoryDevice>, what: &str) {
    fs.unmount(cx).unwrap_or_else(|errno| panic!("{what}: unmount: {errno} {:?}", fs.error()));
    checked(cx, device).unwrap_or_else(|text| panic!("{what}: {text}"));
    repaired(device).unwrap_or_else(|text| panic!("{what}: {text}"));
}

fn user_limits(limits: Limits, cx: &mut Cx, fs: &Xfs, id: u32) {
    fs.set_limits(cx, Kind::User, id, &limits).expect("limits");
}

#[test]
fn usage_follows_every_change() {
    // Goal: after each kind of operation the accounts say what the inodes do.
    for cell in CELLS {
        rt::testing::both(|cx| {
            let device = cell.fresh(cx, 320 << 20);
            let fs = mount(cx, &device, COUNT_ALL);
            let block = u64::from(fs.statfs(cx).expect("statfs").block_size);
            let root = fs.root();
            assert_eq!(usage(cx, &fs, Kind::User, 1000), (0, 0));
            // The root directory, and two of the realtime section.
            assert_eq!(usage(cx, &fs, Kind::User, 0), (0, 3));
            let file = make(cx, &fs, root, "file", 1000, 100);
            assert_eq!(usage(cx, &fs, Kind::User, 1000), (0, 1));
            fs.write(cx, file, 0, &vec![1; 20 * block as usize]).expect("write");
            fs.sync(cx).expect("sync");
            let attr = fs.getattr(cx, file).expect("stat");
            assert!(attr.blocks * 512 >= 20 * block);
            assert_eq!(usage(cx, &fs, Kind::Group, 100), (attr.blocks * 512, 1));
            let dir = node(FileType::Directory, 1000, 7);
            let dir = fs.create(cx, root, b"dir", &dir).expect("dir").ino;
            assert_eq!(usage(cx, &fs, Kind::User, 1000), (attr.blocks * 512, 2));
            chown(cx, &fs, file, 2000, 100).expect("chown");
            assert_eq!(usage(cx, &fs, Kind::User, 1000), (0, 1));
            assert_eq!(usage(cx, &fs, Kind::User, 2000), (attr.blocks * 512, 1));
            assert_eq!(usage(cx, &fs, Kind::Group, 100), (attr.blocks * 512, 1));
            let set = SetAttr { size: Some(3 * block), ..SetAttr::default() };
            fs.setattr(cx, file, &set).expect("truncate");
            assert_eq!(usage(cx, &fs, Kind::User, 2000), (3 * block, 1));
            let value = vec![7; 900];
            fs.setxattr(cx, file, b"user.large", &value, XattrFlags::empty()).expect("xattr");
            let now = fs.getattr(cx, file).expect("stat").blocks * 512;
            assert_eq!(usage(cx, &fs, Kind::User, 2000), (now, 1));
            // Not written yet when its owner changes.
            fs.write(cx, file, 10 * block, &vec![2; 5 * block as usize]).expect("write");
            chown(cx, &fs, file, 3000, 100).expect("chown");
            fs.fsync(cx, file, false).expect("fsync");
            let now = fs.getattr(cx, file).expect("stat").blocks * 512;
            assert_eq!(usage(cx, &fs, Kind::User, 3000), (now, 1));
            assert_eq!(usage(cx, &fs, Kind::User, 2000), (0, 0));
            // Open while its last name goes: charged until it is closed.
            fs.open(cx, file).expect("open");
            fs.unlink(cx, root, b"file").expect("unlink");
            assert_eq!(usage(cx, &fs, Kind::User, 3000), (now, 1));
            fs.release(cx, file).expect("close");
            assert_eq!(usage(cx, &fs, Kind::User, 3000), (0, 0));
            for index in 0..300 {
                make(cx, &fs, dir, &format!("name of file {index}"), 1000, 7);
            }
            let of_dir = fs.getattr(cx, dir).expect("stat").blocks * 512;
            assert_eq!(usage(cx, &fs, Kind::User, 1000), (of_dir, 301));
            for index in 0..300 {
                fs.unlink(cx, dir, format!("name of file {index}").as_bytes()).expect("unlink");
            }
            fs.rmdir(cx, root, b"dir").expect("rmdir");
            assert_eq!(usage(cx, &fs, Kind::User, 1000), (0, 0));
            make(cx, &fs, root, "last", 5, 6);
            judged(cx, &fs, &device, &format!("{cell:?}"));
        });
    }
}

#[test]
fn counting_begins_goes_on_and_ends_as_the_mount_says() {
    // Goal: what is there already is counted when a mount first asks; the flags stay; records of
    // ids far apart; noquota forgets.
    rt::testing::world(|cx| {
        let device = CELLS[0].fresh(cx, 320 << 20);
        let fs = mount(cx, &device, QuotaMode::AsBefore);
        assert_eq!(fs.kinds(), vec![]);
        assert_eq!(fs.report(cx, Kind::User), Err(Errno::ESRCH));
        let ids = [0, 1, 29, 30, 1000, 65_535, 4_294_967_294];
        for (index, &id) in ids.iter().enumerate() {
            let ino = make(cx, &fs, fs.root(), &format!("f{index}"), id, id / 2);
            fs.write(cx, ino, 0, &vec![3; 10_000 * (index + 1)]).expect("write");
        }
        fs.unmount(cx).expect("unmount");
        let fs = mount(cx, &device, QuotaMode::Count([Some(true), Some(false), None]));
        assert_eq!(fs.kinds(), vec![Kind::User, Kind::Group]);
        assert_eq!(usage(cx, &fs, Kind::User, 65_535), (61_440, 1));
        assert_eq!(usage(cx, &fs, Kind::Group, 2_147_483_647), (73_728, 1));
        assert_eq!(usage(cx, &fs, Kind::Group, 0), (12_288 + 20_480, 5));
        judged(cx, &fs, &device, "counted at the mount");
        let fs = mount_read_only(cx, device.clone());
        assert_eq!(fs.kinds(), vec![Kind::User, Kind::Group]);
        assert_eq!(usage(cx, &fs, Kind::User, 4_294_967_294), (73_728, 1));
        let fs = mount(cx, &device, QuotaMode::AsBefore);
        fs.unlink(cx, fs.root(), b"f4").expect("unlink");
        assert_eq!(usage(cx, &fs, Kind::User, 1000), (0, 0));
        judged(cx, &fs, &device, "went on");
        let fs = mount(cx, &device, QuotaMode::Off);
        fs.unlink(cx, fs.root(), b"f5").expect("unlink");
        judged(cx, &fs, &device, "not counted");
        let fs = mount(cx, &device, COUNT_ALL);
        assert_eq!(usage(cx, &fs, Kind::User, 65_535), (0, 0));
        assert_eq!(usage(cx, &fs, Kind::Project, 0).1, 8);
        judged(cx, &fs, &device, "counted again");
    });
}

#[test]
fn limits_hold_and_leave_nothing_half_done() {
    // Goal: inodes and blocks up to the limit and no further, by every way to take some.
    for cell in CELLS {
        rt::testing::world(|cx| {
            let device = cell.fresh(cx, 320 << 20);
            let fs = mount(cx, &device, COUNT_ALL);
            let root = fs.root();
            let block = u64::from(fs.statfs(cx).expect("statfs").block_size);
            let hard = Limits { block_hard: 400, inode_hard: 5, ..Limits::default() };
            user_limits(hard, cx, &fs, 1000);
            let files: Vec<Ino> =
                (0..5).map(|n| make(cx, &fs, root, &format!("f{n}"), 1000, 1)).collect();
            let sixth = fs.create(cx, root, b"f5", &node(FileType::Regular, 1000, 1));
            assert_eq!(sixth.map(|_| ()), Err(Errno::EDQUOT));
            assert_eq!(fs.lookup(cx, root, b"f5").map(|_| ()), Err(Errno::ENOENT));
            let many = vec![1u8; 300 << 10];
            assert_eq!(fs.write(cx, files[0], 0, &many), Ok(300 << 10));
            // A write that does not fit is cut at the limit.
            let fits = fs.write(cx, files[1], 0, &many).expect("a part") as u64;
            assert!(fits <= 100 << 10 && fits + 2 * block > 100 << 10, "{fits}");
            assert_eq!(fs.write(cx, files[2], 0, &many[..9000]), Err(Errno::EDQUOT));
            fs.sync(cx).expect("sync");
            assert_eq!(fs.write(cx, files[2], 0, &many[..9000]), Err(Errno::EDQUOT));
            let space = |cx: &mut Cx| usage(cx, &fs, Kind::User, 1000).0;
            assert!(space(cx) <= 400 << 10);
            let grown =
                fs.fallocate(cx, files[3], FallocMode::Allocate { keep_size: false }, 0, 64 << 10);
            assert_eq!(grown, Err(Errno::EDQUOT));
            let value = vec![1; 3000];
            let set = fs.setxattr(cx, files[3], b"user.a", &value, XattrFlags::empty());
            assert_eq!(set, Err(Errno::EDQUOT));
            // Root gives somebody more than he may have; he cannot do so himself.
            let other = make(cx, &fs, root, "other", 7, 1);
            let refused = as_user(cx, 7, |cx| chown(cx, &fs, other, 1000, 1));
            assert_eq!(refused, Err(Errno::EDQUOT));
            chown(cx, &fs, other, 1000, 1).expect("root may");
            assert_eq!(usage(cx, &fs, Kind::User, 1000).1, 6);
            fs.unlink(cx, root, b"f0").expect("unlink");
            assert_eq!(fs.write(cx, files[2], 0, &many[..9000]), Ok(9000));
            judged(cx, &fs, &device, &format!("{cell:?}"));
        });
    }
}

/// Goal: blocks for copies of shared ones count against the limits of the file's owners until they
/// take the place of the old ones; a new owner takes them over; those that are given back do not
/// count. Method: a clone that fills its limit is overwritten, the limit rises block by block.
#[test]
fn copies_of_shared_blocks_count_until_they_are_in_place() {
    // In virtual time: in real time the flusher may put the copies in place before it is asked.
    rt::testing::world(|cx| {
        let device = Cell(&[]).fresh(cx, 320 << 20);
        let fs = mount(cx, &device, COUNT_ALL);
        let root = fs.root();
        let [from, to] = [0, 1000].map(|uid| make(cx, &fs, root, &format!("{uid}"), uid, 1));
        fs.write(cx, from, 0, &[1; 10 * 4096]).expect("write");
        fs.clone_range(cx, (from, 0), (to, 0), 10 * 4096).expect("clone");
        let hard = |blocks: u64| Limits { block_hard: 4 * blocks, ..Limits::default() };
        user_limits(hard(10), cx, &fs, 1000);
        assert_eq!(fs.write(cx, to, 0, &[2; 4096]), Err(Errno::EDQUOT));
        user_limits(hard(13), cx, &fs, 1000);
        assert_eq!(fs.write(cx, to, 0, &[2; 3 * 4096]), Ok(3 * 4096));
        assert_eq!(fs.write(cx, to, 5 * 4096, &[3; 1]), Err(Errno::EDQUOT));
        fs.fsync(cx, to, false).expect("fsync");
        assert_eq!(fs.write(cx, to, 4 * 4096, &[3; 3 * 4096]), Ok(3 * 4096));
        assert_eq!(fs.write(cx, to, 8 * 4096, &[3; 1]), Err(Errno::EDQUOT));
        // Copies that nobody wants any more.
        let short = SetAttr { size: Some(4 * 4096), ..SetAttr::default() };
        fs.setattr(cx, to, &short).expect("truncate");
        user_limits(hard(14), cx, &fs, 1000);
        fs.clone_range(cx, (from, 0), (to, 0), 10 * 4096).expect("clone");
        user_limits(hard(13), cx, &fs, 1000);
        assert_eq!(fs.write(cx, to, 0, &[4; 3 * 4096]), Ok(3 * 4096));
        user_limits(hard(13), cx, &fs, 7);
        chown(cx, &fs, to, 7, 1).expect("chown");
        assert_eq!(fs.write(cx, to, 9 * 4096, &[5; 1]), Err(Errno::EDQUOT));
        let other = make(cx, &fs, root, "other", 1000, 1);
        assert_eq!(fs.write(cx, other, 0, &[6; 13 * 4096]), Ok(13 * 4096));
        fs.sync(cx).expect("sync");
        assert_eq!(fs.write(cx, to, 9 * 4096, &[5; 1]), Ok(1));
        judged(cx, &fs, &device, "copies");
    });
}

#[test]
fn soft_limits_hold_after_their_grace() {
    rt::testing::world(|cx| {
        let device = CELLS[0].fresh(cx, 320 << 20);
        let fs = mount(cx, &device, COUNT_ALL);
        let root = fs.root();
        let soft = Limits { inode_soft: 2, block_soft: 8, ..Limits::default() };
        user_limits(soft, cx, &fs, 1000);
        fs.set_grace(cx, Kind::User, Grace { blocks: 1000, inodes: 100, realtime: 50 })
            .expect("grace");
        assert_eq!(fs.grace(cx, Kind::User), Ok(Grace { blocks: 1000, inodes: 100, realtime: 50 }));
        for n in 0..4 {
            make(cx, &fs, root, &format!("f{n}"), 1000, 1);
        }
        let now = cx.realtime().sec as u64;
        let end = entry(cx, &fs, Kind::User, 1000).inode_time;
        assert!((now + 90..now + 105).contains(&end), "{now} {end}");
        cx.sleep(base::Nanos::from_secs(200));
        let late = fs.create(cx, root, b"late", &node(FileType::Regular, 1000, 1));
        assert_eq!(late.map(|_| ()), Err(Errno::EDQUOT));
        for n in 0..3 {
            fs.unlink(cx, root, format!("f{n}").as_bytes()).expect("unlink");
        }
        assert_eq!(entry(cx, &fs, Kind::User, 1000).inode_time, 0);
        make(cx, &fs, root, "again", 1000, 1);
        judged(cx, &fs, &device, "soft limits");
        let fs = mount(cx, &device, QuotaMode::AsBefore);
        assert_eq!(fs.grace(cx, Kind::User), Ok(Grace { blocks: 1000, inodes: 100, realtime: 50 }));
        assert_eq!(entry(cx, &fs, Kind::User, 1000).block_soft, 8);
        judged(cx, &fs, &device, "again");
    });
}

#[test]
fn projects_are_inherited_and_not_left() {
    rt::testing::world(|cx| {
        let device = CELLS[0].fresh(cx, 320 << 20);
        let fs = mount(cx, &device, COUNT_ALL);
        let root = fs.root();
        let dir = fs.create(cx, root, b"p", &node(FileType::Directory, 1, 1)).expect("mkdir").ino;
        fs.set_project(cx, dir, Project { id: 77, inherit: true }).expect("project");
        let below = fs.create(cx, dir, b"d", &node(FileType::Directory, 1, 1)).expect("mkdir").ino;
        assert_eq!(fs.project(cx, below), Ok(Project { id: 77, inherit: true }));
        let file = make(cx, &fs, below, "f", 1, 1);
        assert_eq!(fs.project(cx, file), Ok(Project { id: 77, inherit: false }));
        assert_eq!(usage(cx, &fs, Kind::Project, 77).1, 3);
        let outside = make(cx, &fs, root, "outside", 1, 1);
        assert_eq!(fs.link(cx, outside, dir, b"in").map(|_| ()), Err(Errno::EXDEV));
        let moved = fs.rename(cx, root, b"outside", dir, b"in", RenameFlags::empty());
        assert_eq!(moved, Err(Errno::EXDEV));
        fs.rename(cx, below, b"f", root, b"out", RenameFlags::empty()).expect("it may leave");
        let limits = Limits { inode_hard: 4, block_hard: 40, ..Limits::default() };
        fs.set_limits(cx, Kind::Project, 77, &limits).expect("limits");
        make(cx, &fs, dir, "four", 1, 1);
        // A project is a tree of its own, which is full.
        let five = fs.create(cx, dir, b"five", &node(FileType::Regular, 1, 1));
        assert_eq!(five.map(|_| ()), Err(Errno::ENOSPC));
        fs.set_project(cx, file, Project { id: 0, inherit: true }).expect("project");
        assert_eq!(fs.project(cx, file), Ok(Project { id: 0, inherit: false }));
        make(cx, &fs, dir, "five", 1, 1);
        judged(cx, &fs, &device, "projects");
    });
}

/// A kind that is counted from a later mount on gets its inode while others are counted already:
/// nobody was charged for it in memory, and the mount was shut down.
#[test]
fn kinds_are_counted_one_after_the_other() {
    for cell in CELLS {
        rt::testing::both(|cx| {
            let device = cell.fresh(cx, 320 << 20);
            for kinds in [[true, false, false], [true, true, false], [true; 3]] {
                let quota = QuotaMode::Count(kinds.map(|counted| counted.then_some(true)));
                let fs = mount(cx, &device, quota);
                let name = format!("file-{}", kinds.iter().filter(|&&counted| counted).count());
                let root = fs.root();
                make(cx, &fs, root, &name, 1000, 1000);
                let all = name["file-".len()..].parse().expect("a number");
                for (kind, id) in [(Kind::User, 1000), (Kind::Group, 1000), (Kind::Project, 0)] {
                    let counted = if kinds[kind as usize] { all } else { 0 };
                    let inodes = match (fs.kinds().contains(&kind), kind) {
                        (false, _) => 0,
                        // The root directory, and two of the realtime section.
                        (true, Kind::Project) => usage(cx, &fs, kind, id).1 - 3,
                        (true, _) => usage(cx, &fs, kind, id).1,
                    };
                    assert_eq!(inodes, counted, "{kinds:?} {kind:?}");
                }
                judged(cx, &fs, &device, &name);
            }
        });
    }
}

/// Goal: limits of id 0 hold for who has none of their own, also after a remount, with their grace.
/// Method: a user without limits, one with larger ones, and root.
#[test]
fn default_limits_hold_for_all_others() {
    let cell = CELLS[1];
    rt::testing::both(|cx| {
        let device = cell.fresh(cx, 320 << 20);
        let fs = mount(cx, &device, COUNT_ALL);
        let defaults = Limits { block_hard: 64, inode_soft: 3, ..Limits::default() };
        user_limits(defaults, cx, &fs, 0);
        user_limits(Limits { block_hard: 1024, ..Limits::default() }, cx, &fs, 20);
        for round in 0..2 {
            let last = round == 1;
            let fs = if last { mount(cx, &device, COUNT_ALL) } else { fs.clone() };
            let dir = fs.root();
            for (uid, kib, errno) in
                [(10, 64, Some(Errno::EDQUOT)), (20, 1024, None), (0, 4096, None)]
            {
                let name = format!("file-{uid}-{round}");
                let ino = make(cx, &fs, dir, &name, uid, 0);
                let bytes = vec![7; 100 << 10];
                let written = as_user(cx, uid, |cx| fs.write(cx, ino, 0, &bytes));
                let full = written
                    .err()
                    .or_else(|| (written.unwrap_or(0) < bytes.len()).then_some(Errno::EDQUOT));
                assert_eq!(full, errno, "user {uid} with {kib} KiB");
                fs.unlink(cx, dir, name.as_bytes()).expect("unlink");
            }
            let report = entry(cx, &fs, Kind::User, 10);
            assert_eq!((report.block_hard, report.inode_hard), (0, 0), "its own");
            for n in 0..5 {
                make(cx, &fs, dir, &format!("many-{n}-{round}"), 10, 0);
            }
            assert!(entry(cx, &fs, Kind::User, 10).inode_time > 0, "the grace runs");
            if last {
                judged(cx, &fs, &device, "default limits");
            } else {
                fs.unmount(cx).expect("unmount");
            }
        }
    });
}
