//! Extended attributes: in the inode, in the block, shared.

use std::collections::BTreeMap;

use base::{Errno, Ino, Rng};
use rt::Cx;
use testkit::{judge, manifest};
use vfs::{FileSystem, XattrFlags};

use super::support::*;

const ANY: XattrFlags = XattrFlags::empty();

type Map = BTreeMap<Vec<u8>, Vec<u8>>;

fn all(cx: &mut Cx, fs: &dyn FileSystem, ino: Ino) -> Map {
    let names = fs.listxattr(cx, ino).expect("the names");
    names
        .into_iter()
        .map(|name| {
            let value = fs.getxattr(cx, ino, &name).expect("a listed attribute has a value");
            (name, value)
        })
        .collect()
}

fn random_attributes(cx: &mut Cx, image: &Image, seed: u64) {
    let mut rng = Rng::new(seed, 3);
    let mut fs = image.mount(cx);
    let root = fs.root();
    let files: Vec<_> =
        (0..4).map(|n| touch(cx, &*fs, root, format!("file{n}").as_bytes())).collect();
    let mut model = vec![Map::new(); files.len()];
    for step in 0..1200 {
        let at = rng.below(files.len() as u64) as usize;
        let (ino, map) = (files[at], &mut model[at]);
        let prefix = rng.pick(&["user.", "trusted.", "security."]);
        let name = format!("{prefix}{}", rng.below(6)).into_bytes();
        if rng.chance(0.3) {
            let result = fs.removexattr(cx, ino, &name);
            let expected = map.remove(&name).map(|_| ()).ok_or(Errno::ENODATA);
            assert_eq!(result, expected);
        } else {
            let bound = if rng.chance(0.3) { 1500 } else { 40 };
            let value = vec![b'v'; rng.below(bound) as usize];
            let flags = *rng.pick(&[ANY, ANY, XattrFlags::CREATE, XattrFlags::REPLACE]);
            let result = fs.setxattr(cx, ino, &name, &value, flags);
            match (result, map.contains_key(&name)) {
                (Err(Errno::EEXIST), true) => assert_eq!(flags, XattrFlags::CREATE),
                (Err(Errno::ENODATA), false) => assert_eq!(flags, XattrFlags::REPLACE),
                (Err(Errno::ENOSPC), _) => {
                    let size: usize = map.values().map(Vec::len).sum();
                    assert!(size + value.len() > 700, "{size} and {} bytes fit", value.len());
                }
                (result, _) => {
                    result.expect("it fits");
                    map.insert(name, value);
                }
            }
        }
        assert_eq!(all(cx, &*fs, files[at]), model[at]);
        if step % 300 == 299 {
            close(cx, fs, image);
            fs = image.mount(cx);
        }
    }
    for (ino, map) in files.iter().zip(&model) {
        assert_eq!(all(cx, &*fs, *ino), *map);
    }
    for number in 0..files.len() {
        fs.unlink(cx, root, format!("file{number}").as_bytes()).expect("the file goes");
    }
    close(cx, fs, image);
}

/// Values of all sizes on every type of file system, against maps.
#[test]
fn attributes_behave_like_maps() {
    for (seed, shape) in SHAPES.iter().enumerate() {
        let image = Image::new(shape, 16);
        rt::testing::world(|cx| random_attributes(cx, &image, seed as u64));
    }
}

/// Values at and around the limits of inode and block; the kernel reads the same.
#[test]
fn values_fit_to_the_last_byte() {
    for shape in ["-t ext4 -b 1024", "-t ext4 -b 4096", "-t ext3 -b 1024 -I 128"] {
        let image = Image::new(shape, 16);
        let ours = rt::testing::real(|cx| {
            let fs = image.mount(cx);
            let root = fs.root();
            let block = fs.getattr(cx, root).expect("attributes").blksize as usize;
            let inner = if shape.contains("-I 128") { 0 } else { 256 - 160 - 4 - 4 - 20 };
            let outer = block - 32 - 4 - 20;
            let mut free = fs.statfs(cx).expect("counts").blocks_free;
            let mut lens = vec![0, 1, 3, 4, 5, inner, inner + 1, outer - 1, outer, outer + 1];
            lens.sort_unstable();
            lens.dedup();
            for len in lens {
                let ino = touch(cx, &*fs, root, format!("file-{len}").as_bytes());
                let result = fs.setxattr(cx, ino, b"user.a", &vec![b'x'; len], ANY);
                assert_eq!(result.is_ok(), len <= outer, "{len} bytes: {result:?}");
                let now = fs.statfs(cx).expect("counts").blocks_free;
                let used = free - now;
                free = now;
                let outside = (inner == 0 || len > inner) && len <= outer;
                assert_eq!(used, u64::from(outside), "{len} bytes, {shape}");
            }
            let ours = manifest::of_fs(cx, &*fs).expect("our tree");
            close(cx, fs, &image);
            ours
        });
        let kernel = judge::kernel_manifest(image.to_file().path(), &shape[3..7]);
        assert_eq!(manifest::diff(&ours, &kernel), "", "{shape}");
    }
}

/// Files with equal attributes share a block, up to 1024 of them; the last one frees it, and a
/// change of one leaves the others alone.
#[test]
fn equal_attributes_share_a_block() {
    let image = Image::new("-t ext4 -b 1024", 16);
    rt::testing::real(|cx| {
        let mut fs = image.mount(cx);
        let root = fs.root();
        let value = vec![b's'; 500];
        let name = |n: u32| format!("f{n}").into_bytes();
        let free = |cx: &mut Cx, fs: &dyn FileSystem| fs.statfs(cx).expect("counts").blocks_free;
        let dir = mkdir(cx, &*fs, root, b"dir");
        for number in 0..1500 {
            touch(cx, &*fs, dir, &name(number));
        }
        let before = free(cx, &*fs);
        for number in 0..1500 {
            let ino = fs.lookup(cx, dir, &name(number)).expect("found").ino;
            fs.setxattr(cx, ino, b"security.selinux", &value, ANY).expect("it fits");
        }
        assert_eq!(before - free(cx, &*fs), 2);
        close(cx, fs, &image);
        fs = image.mount(cx);
        let one = fs.lookup(cx, dir, &name(3)).expect("found").ino;
        fs.setxattr(cx, one, b"user.more", &value[..200], ANY).expect("it fits");
        let other = fs.lookup(cx, dir, &name(4)).expect("found").ino;
        assert_eq!(fs.listxattr(cx, other).expect("names").len(), 1);
        assert_eq!(fs.listxattr(cx, one).expect("names").len(), 2);
        close(cx, fs, &image);
        fs = image.mount(cx);
        for number in 0..1500 {
            fs.unlink(cx, dir, &name(number)).expect("the file goes");
        }
        fs.sync(cx).expect("freed blocks come back with a commit");
        assert_eq!(free(cx, &*fs), before);
        close(cx, fs, &image);
    });
}

/// An inode from the time of smaller extra fields gets the wanted ones when an attribute is set, if
/// there is room, and its attributes survive.
#[test]
fn an_old_inode_grows_its_extra_fields() {
    let image = Image::new("-t ext4 -b 1024", 16);
    let ino = rt::testing::real(|cx| {
        let fs = image.mount(cx);
        let root = fs.root();
        let ino = touch(cx, &*fs, root, b"old");
        close(cx, fs, &image);
        ino
    });
    let file = image.to_file();
    judge::debugfs(file.path(), true, "sif /old extra_isize 4\n");
    let image = Image { device: std::sync::Arc::new(testkit::image::load(file.path())) };
    rt::testing::real(|cx| {
        let fs = image.mount(cx);
        fs.setxattr(cx, ino, b"user.a", b"first", ANY).expect("it fits");
        fs.setxattr(cx, ino, b"user.b", b"second", ANY).expect("it fits");
        assert_eq!(fs.getxattr(cx, ino, b"user.a").expect("there"), b"first");
        close(cx, fs, &image);
    });
    let text = judge::debugfs(image.to_file().path(), false, "stat /old\n");
    assert!(text.contains("Size of extra inode fields: 32"), "{text}");
}
