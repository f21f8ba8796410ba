//! Symbolic links, long names, device nodes, renames of directories: what the kernel reads.

use base::Errno;
use rt::Cx;
use testkit::{judge, manifest};
use vfs::{FileSystem, FileType, NewNode, RenameFlags, makedev};

use super::support::*;

fn make_tree(cx: &mut Cx, fs: &dyn FileSystem, block_size: usize) {
    let root = fs.root();
    for len in [1, 58, 59, 60, 61, 255, block_size - 1] {
        let target = vec![b't'; len];
        let name = format!("link-{len}");
        let attr = fs.create(cx, root, name.as_bytes(), &NewNode::symlink(&target)).expect(&name);
        assert_eq!((attr.size, attr.mode), (len as u64, 0o777));
        assert_eq!(fs.readlink(cx, attr.ino).expect("its target"), target);
    }
    let long = vec![b't'; block_size];
    let refused = fs.create(cx, root, b"too long", &NewNode::symlink(&long));
    assert_eq!(refused.err(), Some(Errno::ENAMETOOLONG));
    for len in [1, 2, 3, 4, 5, 254, 255] {
        touch(cx, fs, root, &vec![b'n'; len]);
    }
    for (number, rdev) in [(1, makedev(8, 1)), (2, makedev(259, 70_000))] {
        let node = NewNode { rdev, ..NewNode::new(FileType::BlockDevice, 0o660) };
        fs.create(cx, root, format!("dev{number}").as_bytes(), &node).expect("a device");
    }
    for (name, kind) in [("fifo", FileType::Fifo), ("socket", FileType::Socket)] {
        fs.create(cx, root, name.as_bytes(), &NewNode::new(kind, 0o600).owner(70_000, 80_000))
            .expect("a node");
    }
    // a/b/c moves to x/c, then the two parents change places.
    let a = mkdir(cx, fs, root, b"a");
    let b = mkdir(cx, fs, a, b"b");
    let c = mkdir(cx, fs, b, b"c");
    let x = mkdir(cx, fs, root, b"x");
    touch(cx, fs, c, b"inside");
    let none = RenameFlags::empty();
    assert_eq!(fs.rename(cx, root, b"a", c, b"deeper", none), Err(Errno::EINVAL));
    assert_eq!(fs.rename(cx, c, b"inside", root, b"a", RenameFlags::EXCHANGE), Err(Errno::EINVAL));
    fs.rename(cx, b, b"c", x, b"c", none).expect("a directory moves");
    assert_eq!(fs.lookup(cx, c, b"..").expect("its parent").ino, x);
    fs.rename(cx, root, b"a", root, b"x", RenameFlags::EXCHANGE).expect("two change places");
    fs.rename(cx, x, b"c", root, b"fifo", RenameFlags::EXCHANGE).expect("a directory and a fifo");
    assert_eq!(fs.lookup(cx, c, b"..").expect("its parent").ino, root);
    assert_eq!(fs.getattr(cx, x).expect("attributes").nlink, 2);
    // A directory takes the place of an empty one.
    let empty = mkdir(cx, fs, root, b"empty");
    fs.rename(cx, root, b"fifo", root, b"empty", none).expect("an empty directory is replaced");
    assert_eq!(fs.getattr(cx, empty).err(), Some(Errno::ESTALE));
}

/// All node types and lengths of names and targets; the kernel's mount reads the same tree.
#[test]
fn the_kernel_reads_the_same_tree() {
    for (shape, block_size) in [
        ("-t ext2 -b 1024", 1024),
        ("-t ext3 -b 2048 -I 128", 2048),
        ("-t ext4 -b 1024", 1024),
        ("-t ext4 -b 4096", 4096),
    ] {
        let image = Image::new(shape, 16);
        let ours = rt::testing::real(|cx| {
            let fs = image.mount(cx);
            make_tree(cx, &*fs, block_size);
            let ours = manifest::of_fs(cx, &*fs).expect("our tree");
            close(cx, fs, &image);
            let fs = image.mount(cx);
            let again = manifest::of_fs(cx, &*fs).expect("our tree");
            assert_eq!(manifest::diff(&ours, &again), "");
            close(cx, fs, &image);
            ours
        });
        let kernel = judge::kernel_manifest(image.to_file().path(), &shape[3..7]);
        assert_eq!(manifest::diff(&ours, &kernel), "", "{shape}");
    }
}

/// Tasks that move directories into each other in all directions neither wait for ever nor make a
/// circle: whatever order the schedule brings, e2fsck finds one tree.
#[test]
fn directories_that_move_at_once_stay_a_tree() {
    use std::sync::Arc;
    let image = Image::new("-t ext4 -b 1024", 16);
    let bytes = image.device.snapshot();
    for seed in 0..20 {
        let image = Image { device: Arc::new(device::MemoryDevice::from_image(&bytes)) };
        rt::World::new(rt::WorldConfig::exploring(seed)).run("main", |cx| {
            let fs = image.mount(cx);
            let root = fs.root();
            let dirs: Vec<_> =
                (0..5).map(|n| mkdir(cx, &*fs, root, format!("d{n}").as_bytes())).collect();
            let tasks: Vec<_> = (0..4u64)
                .map(|task| {
                    let (fs, dirs) = (fs.clone(), dirs.clone());
                    cx.spawn("mover", move |cx| {
                        let mut rng = base::Rng::new(seed, task);
                        let all = [vec![root], dirs].concat();
                        for _ in 0..60 {
                            let (from, to) = (*rng.pick(&all), *rng.pick(&all));
                            let name = |n: u64| format!("d{n}").into_bytes();
                            let (old, new) = (name(rng.below(5)), name(rng.below(5)));
                            let flags = match rng.below(3) {
                                0 => RenameFlags::EXCHANGE,
                                _ => RenameFlags::empty(),
                            };
                            let _ = fs.rename(cx, from, &old, to, &new, flags);
                            let _ = fs.rmdir(cx, to, &name(rng.below(5)));
                            let node = NewNode::new(FileType::Directory, 0o755);
                            let _ = fs.create(cx, from, &name(rng.below(5)), &node);
                        }
                    })
                })
                .collect();
            for task in tasks {
                task.join(cx);
            }
            close(cx, fs, &image);
        });
    }
}

/// OS threads that create, link, rename and remove at once in one directory and in their own.
#[test]
fn threads_share_a_directory() {
    let image = Image::new("-t ext4 -b 1024", 32);
    rt::testing::real(|cx| {
        let fs = image.mount(cx);
        let root = fs.root();
        let shared = mkdir(cx, &*fs, root, b"shared");
        let tasks: Vec<_> = (0..4u64)
            .map(|task| {
                let fs = fs.clone();
                cx.spawn("worker", move |cx| {
                    let own = mkdir(cx, &*fs, root, format!("own{task}").as_bytes());
                    for number in 0..1500 {
                        let name = format!("{task}-{number}").into_bytes();
                        let ino = touch(cx, &*fs, shared, &name);
                        match number % 3 {
                            0 => fs.unlink(cx, shared, &name).expect("its own name"),
                            1 => fs
                                .rename(cx, shared, &name, own, &name, RenameFlags::empty())
                                .expect("its own name"),
                            _ => drop(fs.link(cx, ino, own, &name).expect("a second name")),
                        }
                    }
                    own
                })
            })
            .collect();
        let owns: Vec<_> = tasks.into_iter().map(|task| task.join(cx)).collect();
        assert_eq!(list(cx, &*fs, shared).len(), 4 * 500);
        for own in owns {
            assert_eq!(list(cx, &*fs, own).len(), 1000);
        }
        close(cx, fs, &image);
    });
}

/// The number of names of an inode ends at 65000, as in the kernel.
#[test]
fn an_inode_has_at_most_65000_names() {
    let image = Image::new("-t ext4 -b 4096", 32);
    rt::testing::real(|cx| {
        let fs = image.mount(cx);
        let root = fs.root();
        let ino = touch(cx, &*fs, root, b"0");
        for number in 1..65_000 {
            fs.link(cx, ino, root, number.to_string().as_bytes()).expect("a further name");
        }
        let refused = fs.link(cx, ino, root, b"one too many").err();
        assert_eq!(refused, Some(Errno::EMLINK));
        close(cx, fs, &image);
    });
}
