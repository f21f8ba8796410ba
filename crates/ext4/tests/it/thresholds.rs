//! Past the sizes at which formats change their ways: the second block group and beyond, a journal
//! that wraps several times, files larger than the cache, extent trees of depth two and more built
//! by plain writes, all levels of indirect blocks, many directories. Then e2fsck finds nothing, and
//! the kernel's loop mount reads the same tree.

use crate::support::*;
use base::Rng;
use device::MemoryDevice;
use rt::Cx;
use std::sync::Arc;
use testkit::judge;
use testkit::manifest::{self, Manifest};
use vfs::{FileSystem, FileType, NewNode, SetAttr, XattrFlags};

/// The tree as we read it after a remount.
fn read_by_us(cx: &mut Cx, device: &Arc<MemoryDevice>) -> Manifest {
    let (fs, _) = mount(cx, device.clone());
    let tree = manifest::of_fs(cx, &*fs).expect("the tree is readable");
    fs.unmount(cx).expect("unmount");
    tree
}

/// e2fsck, our check, and the kernel's mount agree with us.
fn judged(cx: &mut Cx, device: &Arc<MemoryDevice>, kind: &str, what: &str) -> Manifest {
    let ours = read_by_us(cx, device);
    checked(cx, device, what);
    e2fsck(device, what);
    let image = testkit::image::write_device(device);
    let theirs = judge::kernel_manifest(image.path(), kind);
    let difference = manifest::diff(&ours, &theirs);
    assert!(difference.is_empty(), "{what}: ours left, the kernel's right:\n{difference}");
    ours
}

fn write_all(cx: &mut Cx, fs: &dyn FileSystem, file: base::Ino, tag: u64, from: u64, to: u64) {
    let mut data = vec![0; 256 << 10];
    let mut offset = from;
    while offset < to {
        let len = (to - offset).min(data.len() as u64) as usize;
        pattern(tag, offset, &mut data[..len]);
        assert_eq!(fs.write(cx, file, offset, &data[..len]), Ok(len));
        offset += len as u64;
    }
}

/// One node of every type, with everything that an inode can have.
fn one_of_each(cx: &mut Cx, fs: &dyn FileSystem) {
    let dir = mkdir(cx, fs, fs.root(), "kinds");
    let target = [b'x'; 100];
    for (name, kind) in [
        ("fifo", FileType::Fifo),
        ("socket", FileType::Socket),
        ("char", FileType::CharDevice),
        ("block", FileType::BlockDevice),
    ] {
        let rdev = vfs::makedev(259, 70_000);
        let node = NewNode { rdev, ..NewNode::new(kind, 0o640) };
        fs.create(cx, dir, name.as_bytes(), &node).expect("create");
    }
    for (name, target) in [("fast", &target[..20]), ("slow", &target[..])] {
        let node = NewNode { target: Some(target), ..NewNode::new(FileType::Symlink, 0o777) };
        fs.create(cx, dir, name.as_bytes(), &node).expect("symlink");
    }
    let file = create(cx, fs, dir, "attributes");
    for n in 0..12 {
        let name = format!("user.attribute-{n}");
        let value = vec![n as u8 + b'a'; 10 + n * 5];
        fs.setxattr(cx, file, name.as_bytes(), &value, XattrFlags::empty()).expect("setxattr");
    }
    fs.link(cx, file, fs.root(), b"hard-link").expect("link");
    let time = base::Timespec { sec: 5_000_000_000, nsec: 123_456_789 };
    let set = SetAttr {
        uid: Some(100_000),
        gid: Some(70_000),
        mode: Some(0o4751),
        mtime: (fs.getattr(cx, file).expect("getattr").btime.is_some()).then_some(time),
        ..SetAttr::default()
    };
    fs.setattr(cx, file, &set).expect("setattr");
}

/// Goal: files and directories in many block groups, with a cache far smaller than the data and a
/// journal that wraps several times.
#[test]
fn many_groups_with_small_cache_and_journal() {
    for cell in [
        Cell::new("ext4", 1024).journal(1024),
        Cell::new("ext3", 1024).journal(1024),
        Cell::new("ext2", 1024),
        Cell::new("ext4", 1024).journal(1024).mke2fs(),
    ] {
        let what = format!("{cell:?}");
        rt::testing::real(|cx| {
            let device = cell.fresh(cx, 96 << 20);
            let (fs, queue) = mount_cached(cx, device.clone(), 2 << 20);
            one_of_each(cx, &*fs);
            let before = queue.stats();
            for d in 0..24u64 {
                let dir = mkdir(cx, &*fs, fs.root(), &format!("d{d}"));
                for f in 0..40 {
                    let file = create(cx, &*fs, dir, &format!("file-{f}"));
                    write_all(cx, &*fs, file, d << 8 | f, 0, f * 3000);
                }
                let fat = create(cx, &*fs, dir, "fat");
                write_all(cx, &*fs, fat, d, 0, 400_000);
                fs.fsync(cx, fat, false).expect("fsync");
            }
            let used = groups_in_use(cx, &device);
            assert!(used >= 4, "{what}: only {used} groups hold data");
            let written = queue.stats().write_bytes - before.write_bytes;
            assert!(written > 30 << 20, "{what}: {written} bytes");
            for d in (0..24u64).step_by(3) {
                let dir = fs.lookup(cx, fs.root(), format!("d{d}").as_bytes()).expect("dir").ino;
                for f in 0..40 {
                    fs.unlink(cx, dir, format!("file-{f}").as_bytes()).expect("unlink");
                }
            }
            fs.unmount(cx).expect("unmount");
            let tree = judged(cx, &device, cell.kind, &what);
            assert!(tree.len() > 650, "{what}: {} names", tree.len());
        });
    }
}

/// Groups in whose middle something lies that is not zero.
fn groups_in_use(_cx: &mut Cx, device: &MemoryDevice) -> usize {
    let image = device.snapshot();
    let group = 8192 * 1024;
    let middle = |start: usize| &image[start + group / 4..(start + group).min(image.len())];
    (0..image.len() / group).filter(|n| middle(n * group).iter().any(|&byte| byte != 0)).count()
}

/// Goal: an extent tree of depth two and more through plain writes, then cut and overwritten.
/// Method: blocks in random order, two apart, so that no two join, synced now and then.
#[test]
fn scattered_writes_build_a_deep_extent_tree() {
    rt::testing::real(|cx| {
        let device = Cell::new("ext4", 1024).journal(1024).fresh(cx, 96 << 20);
        let (fs, _) = mount_cached(cx, device.clone(), 2 << 20);
        let file = create(cx, &*fs, fs.root(), "scattered");
        let mut order: Vec<u64> = (0..16_000).collect();
        Rng::new(1, 1).shuffle(&mut order);
        let mut data = [0; 1024];
        for (count, n) in order.iter().enumerate() {
            pattern(3, n * 2048, &mut data);
            assert_eq!(fs.write(cx, file, n * 2048, &data), Ok(1024));
            if count % 2000 == 0 {
                fs.fsync(cx, file, true).expect("fsync");
            }
        }
        fs.unmount(cx).expect("unmount");
        let image = testkit::image::write_device(&device);
        let tree = judge::debugfs(image.path(), false, "ex /scattered");
        // Each line begins with its level and the depth: which one follows from the order in which
        // blocks were written back.
        let root = tree.lines().find_map(|line| line.trim_start().strip_prefix("0/"));
        let depth = root.and_then(|line| line.split_whitespace().next()?.parse::<u16>().ok());
        assert!(depth >= Some(2), "the tree is not deep:\n{}", &tree[..tree.len().min(500)]);
        judged(cx, &device, "ext4", "a deep tree");

        let (fs, _) = mount_cached(cx, device.clone(), 2 << 20);
        let file = fs.lookup(cx, fs.root(), b"scattered").expect("lookup").ino;
        let mut read = [0; 1024];
        for n in 0..16_000u64 {
            pattern(3, n * 2048, &mut data);
            assert_eq!(fs.read(cx, file, n * 2048, &mut read), Ok(1024));
            assert_eq!(read, data, "block {n}");
        }
        write_all(cx, &*fs, file, 3, 10_000_000, 14_000_000);
        let set = SetAttr { size: Some(20_000_001), ..SetAttr::default() };
        fs.setattr(cx, file, &set).expect("truncate");
        fs.unmount(cx).expect("unmount");
        judged(cx, &device, "ext4", "a deep tree, cut");
        let (fs, _) = mount(cx, device.clone());
        fs.unlink(cx, fs.root(), b"scattered").expect("unlink");
        fs.unmount(cx).expect("unmount");
        judged(cx, &device, "ext4", "a deep tree, removed");
    });
}

/// Goal: one file that goes over three large groups, with a cache of 8 MiB, read back whole, in few
/// extents.
#[test]
fn a_large_file_crosses_groups_of_128_mib() {
    rt::testing::real(|cx| {
        let device = Cell::new("ext4", 4096).fresh(cx, 512 << 20);
        let (fs, _) = mount_cached(cx, device.clone(), 8 << 20);
        let (size, file) = (300 << 20, create(cx, &*fs, fs.root(), "large"));
        write_all(cx, &*fs, file, 9, 0, size);
        fs.unmount(cx).expect("unmount");
        let (fs, _) = mount_cached(cx, device.clone(), 8 << 20);
        let file = fs.lookup(cx, fs.root(), b"large").expect("lookup").ino;
        let (mut read, mut expected) = (vec![0; 1 << 20], vec![0; 1 << 20]);
        for offset in (0..size).step_by(1 << 20) {
            assert_eq!(fs.read(cx, file, offset, &mut read), Ok(read.len()));
            pattern(9, offset, &mut expected);
            assert!(read == expected, "content from {offset}");
        }
        let extents = fs.fiemap(cx, file, 0, size).expect("fiemap");
        assert!(extents.len() <= 12, "{} extents", extents.len());
        fs.unmount(cx).expect("unmount");
        checked(cx, &device, "a large file");
        e2fsck(&device, "a large file");
    });
}
