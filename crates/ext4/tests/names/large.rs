//! Directories of very many names.

use base::Errno;
use base::map::HashSet;
use rt::Cx;
use vfs::FileSystem;

use super::support::*;

/// Names for few inodes, so that the image stays small: every inode gets `PER_INODE`.
const PER_INODE: usize = 40_000;

fn name(number: usize) -> Vec<u8> {
    format!("name-{number:07}").into_bytes()
}

/// Gives a directory `count` names, finds them all after a remount, and removes them again.
fn fill_and_empty(cx: &mut Cx, image: &Image, count: usize) {
    let mut fs = image.mount(cx);
    let root = fs.root();
    let dir = mkdir(cx, &*fs, root, b"large");
    let mut ino = touch(cx, &*fs, dir, &name(0));
    for number in 1..count {
        if number % PER_INODE == 0 {
            ino = touch(cx, &*fs, dir, &name(number));
        } else {
            fs.link(cx, ino, dir, &name(number)).expect("a further name");
        }
    }
    assert_eq!(fs.link(cx, ino, dir, &name(count / 2)), Err(Errno::EEXIST));
    close(cx, fs, image);

    fs = image.mount(cx);
    let seen = list(cx, &*fs, dir);
    assert_eq!(seen.len(), count);
    let names: HashSet<_> = seen.into_iter().map(|(name, _)| name).collect();
    assert_eq!(names.len(), count);
    for number in (0..count).step_by(7) {
        assert!(names.contains(&name(number)));
        fs.lookup(cx, dir, &name(number)).expect("the name is found");
    }
    assert_eq!(fs.lookup(cx, dir, b"not there"), Err(Errno::ENOENT));
    assert_eq!(fs.rmdir(cx, root, b"large"), Err(Errno::ENOTEMPTY));
    for number in (0..count).rev() {
        fs.unlink(cx, dir, &name(number)).expect("the name goes");
    }
    assert!(list(cx, &*fs, dir).is_empty());
    close(cx, fs, image);

    fs = image.mount(cx);
    let name = vec![b'n'; 255];
    touch(cx, &*fs, dir, &name);
    fs.unlink(cx, dir, &name).expect("an emptied tree still works");
    fs.rmdir(cx, root, b"large").expect("an emptied tree can be removed");
    close(cx, fs, image);
}

/// How deep debugfs sees the tree of `/large`.
fn levels(image: &Image) -> u32 {
    let text = testkit::judge::debugfs(image.to_file().path(), false, "htree_dump /large\n");
    let at = text.find("Indirect levels: ").expect("debugfs shows a tree");
    let digits = text[at + 17..].chars().take_while(char::is_ascii_digit);
    digits.collect::<String>().parse().expect("a number")
}

#[test]
fn two_hundred_thousand_names_in_blocks_of_1_kib() {
    let image = Image::new("-t ext4 -b 1024", 64);
    rt::testing::real(|cx| fill_and_empty(cx, &image, 200_000));
}

#[test]
fn two_hundred_thousand_names_in_blocks_of_4_kib() {
    let image = Image::new("-t ext4 -b 4096", 64);
    rt::testing::real(|cx| fill_and_empty(cx, &image, 200_000));
}

#[test]
fn a_tree_on_indirect_blocks_grows_too() {
    let image = Image::new("-t ext3 -b 1024", 64);
    rt::testing::real(|cx| fill_and_empty(cx, &image, 30_000));
}

#[test]
fn a_linear_directory_grows_too() {
    let image = Image::new("-t ext2 -b 1024 -O ^dir_index", 16);
    rt::testing::real(|cx| fill_and_empty(cx, &image, 3_000));
}

/// Nodes split and the tree gets its second level; the kernel reads the same names.
#[test]
fn a_tree_of_two_levels_is_what_the_kernel_expects() {
    let image = Image::new("-t ext4 -b 1024", 32);
    rt::testing::real(|cx| {
        let fs = image.mount(cx);
        let root = fs.root();
        let dir = mkdir(cx, &*fs, root, b"large");
        let ino = touch(cx, &*fs, dir, b"first");
        for number in 0..20_000 {
            fs.link(cx, ino, dir, &name(number)).expect("a further name");
        }
        close(cx, fs, &image);
    });
    assert_eq!(levels(&image), 1);
    let file = image.to_file();
    let mount =
        testkit::judge::LoopMount::new(file.path(), "ext4", "rw").expect("the kernel mounts");
    let large = mount.path().join("large");
    assert_eq!(std::fs::read_dir(&large).expect("listed").count(), 20_001);
    // The kernel changes it, and then we again.
    for number in 0..5_000 {
        std::fs::remove_file(large.join(format!("name-{number:07}"))).expect("found by the kernel");
        std::fs::hard_link(large.join("first"), large.join(format!("kernel-{number}")))
            .expect("added by the kernel");
    }
    drop(mount);
    let image = Image { device: std::sync::Arc::new(testkit::image::load(file.path())) };
    rt::testing::real(|cx| {
        let fs = image.mount(cx);
        let root = fs.root();
        let dir = fs.lookup(cx, root, b"large").expect("found").ino;
        assert_eq!(list(cx, &*fs, dir).len(), 20_001);
        for number in 0..5_000 {
            fs.unlink(cx, dir, format!("kernel-{number}").as_bytes()).expect("found by us");
            assert_eq!(fs.lookup(cx, dir, &name(number)), Err(Errno::ENOENT));
        }
        close(cx, fs, &image);
    });
}

/// A directory whose count of subdirectories no longer fits stops counting (`dir_nlink`); without
/// that feature it refuses the next one.
#[test]
fn a_directory_may_have_more_than_65000_subdirectories() {
    let image = Image::new("-t ext4 -b 1024 -N 66000 -I 128", 160);
    rt::testing::real(|cx| {
        let fs = image.mount(cx);
        let root = fs.root();
        let dir = mkdir(cx, &*fs, root, b"d");
        for number in 0..65_005 {
            mkdir(cx, &*fs, dir, format!("{number}").as_bytes());
        }
        assert_eq!(fs.getattr(cx, dir).expect("attributes").nlink, 1);
        close(cx, fs, &image);
        let fs = image.mount(cx);
        for number in 0..65_005 {
            fs.rmdir(cx, dir, format!("{number}").as_bytes()).expect("an empty directory");
        }
        assert_eq!(fs.getattr(cx, dir).expect("attributes").nlink, 1);
        fs.rmdir(cx, root, b"d").expect("an empty directory");
        close(cx, fs, &image);
    });
}

/// Long names fill leaves of 1 KiB with three each, so that the tree gets its third level, which
/// `large_dir` allows; without it the directory is full at that point, and stays whole.
#[test]
fn a_tree_has_three_levels_where_the_file_system_allows_it() {
    let long = |number: usize| format!("{number:0>250}").into_bytes();
    for (options, allowed) in [("-O large_dir", true), ("", false)] {
        let image = Image::new(&format!("-t ext4 -b 1024 {options}"), 64);
        rt::testing::real(|cx| {
            let mut fs = image.mount(cx);
            let root = fs.root();
            let dir = mkdir(cx, &*fs, root, b"large");
            let ino = touch(cx, &*fs, dir, b"first");
            let count = 45_000;
            let made = (0..count).find(|number| {
                let result = fs.link(cx, ino, dir, &long(*number)).err();
                assert!(matches!(result, None | Some(Errno::ENOSPC)));
                result.is_some()
            });
            assert_eq!(made.is_none(), allowed, "{made:?}");
            close(cx, fs, &image);
            fs = image.mount(cx);
            let made = made.unwrap_or(count);
            assert!(made > 20_000, "{made}");
            assert_eq!(list(cx, &*fs, dir).len(), made + 1);
            for number in (0..made).step_by(3) {
                fs.unlink(cx, dir, &long(number)).expect("found in a deep tree");
            }
            close(cx, fs, &image);
        });
        assert_eq!(levels(&image), if allowed { 2 } else { 1 });
        let file = image.to_file();
        let mount = testkit::judge::LoopMount::new(file.path(), "ext4", "ro").expect("it mounts");
        let by_the_kernel = std::fs::read_dir(mount.path().join("large")).expect("listed").count();
        let ours = rt::testing::real(|cx| {
            let fs = image.mount(cx);
            let root = fs.root();
            let dir = fs.lookup(cx, root, b"large").expect("found").ino;
            let count = list(cx, &*fs, dir).len();
            close(cx, fs, &image);
            count
        });
        assert_eq!(by_the_kernel, ours);
    }
}
