//! Damaged directories and attributes: errors, and never a panic, an endless loop, or a wrong
//! answer where checksums could tell.

use std::sync::Arc;

use base::map::HashMap;
use base::{Errno, Ino, Rng};
use device::MemoryDevice;
use rt::Cx;
use testkit::judge;
use vfs::{FileSystem, FileType, NewNode, RenameFlags, XattrFlags};

use super::support::*;

const NAMES: usize = 5000;

fn name(number: usize) -> Vec<u8> {
    format!("name-{number:05}").into_bytes()
}

/// An image with a tree of two levels, a linear directory, attributes in inodes and blocks, and the
/// device blocks of all of them.
struct Sample {
    image: Image,
    dir: Ino,
    target: Ino,
    blocks: Vec<u64>,
}

fn sample(options: &str) -> Sample {
    let image = Image::new(&format!("-t ext4 -b 1024 {options}"), 8);
    let (dir, target) = rt::testing::real(|cx| {
        let fs = image.mount(cx);
        let root = fs.root();
        let dir = mkdir(cx, &*fs, root, b"dir");
        let target = touch(cx, &*fs, root, b"file");
        for number in 0..NAMES {
            fs.link(cx, target, dir, &name(number)).expect("a name");
        }
        let small = mkdir(cx, &*fs, root, b"small");
        for number in 0..20 {
            let ino = touch(cx, &*fs, small, &name(number));
            let value = vec![b'v'; 30 * number];
            fs.setxattr(cx, ino, b"user.a", &value, XattrFlags::empty()).expect("it fits");
        }
        let long = NewNode::symlink(&[b't'; 100]);
        fs.create(cx, small, b"link", &long).expect("a symlink");
        close(cx, fs, &image);
        (dir, target)
    });
    let file = image.to_file();
    let mut blocks = Vec::new();
    for command in ["blocks /dir", "blocks /small", "blocks /small/link"] {
        let text = judge::debugfs(file.path(), false, &format!("{command}\n"));
        blocks.extend(text.split_whitespace().filter_map(|word| word.parse::<u64>().ok()));
    }
    for number in 0..20 {
        let path = format!("/small/name-{number:05}");
        let text = judge::debugfs(file.path(), false, &format!("stat {path}\n"));
        let acl = text.split("File ACL: ").nth(1).and_then(|rest| rest.split_whitespace().next());
        let acl: u64 = acl.expect("stat tells it").parse().expect("a number");
        blocks.extend((acl != 0).then_some(acl));
    }
    assert!(blocks.len() > 100, "{blocks:?}");
    Sample { image, dir, target, blocks }
}

/// Changes one to four bytes of one of the blocks, more often in the first ones.
fn mutate(device: &MemoryDevice, blocks: &[u64], rng: &mut Rng) {
    let among = if rng.chance(0.5) { blocks.len() } else { 3 };
    let block = blocks[rng.below(among as u64) as usize];
    for _ in 0..1 + rng.below(4) {
        let within = if rng.chance(0.5) { 64 } else { 1024 };
        let at = block * 1024 + rng.below(within);
        let value = *rng.pick(&[0, 1, 0x7f, 0x80, 0xff, 12, b'/', rng.clone().next_u32() as u8]);
        device.write_at(at, &[value]);
    }
}

/// Does all that touches names and attributes; the errors that may come are those of damage, and
/// those that damage makes look right.
fn exercise(cx: &mut Cx, fs: &dyn FileSystem, dir: Ino, rng: &mut Rng) {
    let root = fs.root();
    let mut results: Vec<Result<(), Errno>> = Vec::new();
    for _ in 0..60 {
        let number = rng.below(NAMES as u64) as usize;
        results.push(fs.lookup(cx, dir, &name(number)).map(drop));
    }
    for path in [dir, root] {
        let mut count = 0;
        results.push(fs.readdir(cx, path, 0, &mut |_| {
            count += 1;
            count < 100_000
        }));
    }
    if let Ok(small) = fs.lookup(cx, root, b"small") {
        for number in 0..20 {
            let Ok(attr) = fs.lookup(cx, small.ino, &name(number)) else { continue };
            results.push(fs.listxattr(cx, attr.ino).map(drop));
            results.push(fs.setxattr(cx, attr.ino, b"user.b", b"new", XattrFlags::empty()));
        }
        if let Ok(link) = fs.lookup(cx, small.ino, b"link") {
            results.push(fs.readlink(cx, link.ino).map(drop));
        }
        results.push(fs.rename(cx, dir, &name(1), small.ino, b"moved", RenameFlags::empty()));
    }
    for number in 0..40 {
        let node = NewNode::new(FileType::Regular, 0o644);
        results.push(fs.create(cx, dir, format!("new {number}").as_bytes(), &node).map(drop));
        let number = rng.below(NAMES as u64) as usize;
        results.push(fs.unlink(cx, dir, &name(number)));
    }
    results.push(fs.rmdir(cx, root, b"small"));
    use Errno as E;
    let allowed = [
        E::EUCLEAN,
        E::EROFS,
        E::ENOENT,
        E::EEXIST,
        E::ENOTEMPTY,
        E::ENOTDIR,
        E::EISDIR,
        E::ENODATA,
        E::EINVAL,
        E::EMLINK,
        E::ENOSPC,
        E::EPERM,
    ];
    for errno in results.into_iter().filter_map(Result::err) {
        assert!(allowed.contains(&errno), "{errno}");
    }
}

/// Without checksums everything reaches the checks of the structures.
#[test]
fn damage_without_checksums_is_survived() {
    let sample = sample("-O ^metadata_csum");
    for seed in rt::testing::seeds(150) {
        let mut rng = Rng::new(seed, 1);
        let device = Arc::new(sample.image.device.fork());
        mutate(&device, &sample.blocks, &mut rng);
        let image = Image { device };
        rt::testing::world(|cx| {
            let fs = image.mount(cx);
            exercise(cx, &*fs, sample.dir, &mut rng);
            let _ = fs.unmount(cx);
        });
    }
}

/// With checksums a damaged block is refused whole: every name is found right or not answered for,
/// and none is said not to be there.
#[test]
fn damage_with_checksums_is_never_believed() {
    let sample = sample("");
    let mut refused = 0;
    for seed in rt::testing::seeds(60) {
        let mut rng = Rng::new(seed, 2);
        let device = Arc::new(sample.image.device.fork());
        mutate(&device, &sample.blocks, &mut rng);
        let image = Image { device };
        rt::testing::world(|cx| {
            let fs = image.mount(cx);
            for number in (0..NAMES).step_by(3) {
                match fs.lookup(cx, sample.dir, &name(number)) {
                    Ok(attr) => assert_eq!(attr.ino, sample.target),
                    Err(errno) => {
                        assert_eq!(errno, Errno::EUCLEAN, "seed {seed}");
                        refused += 1;
                    }
                }
            }
            let mut seen = HashMap::default();
            let listed = fs.readdir(cx, sample.dir, 0, &mut |entry| {
                *seen.entry(entry.name.to_vec()).or_insert(0) += 1;
                true
            });
            assert!(seen.values().all(|count| *count == 1));
            match listed {
                Ok(()) => assert_eq!(seen.len(), NAMES + 2),
                Err(errno) => assert_eq!(errno, Errno::EUCLEAN),
            }
            exercise(cx, &*fs, sample.dir, &mut rng);
            let _ = fs.unmount(cx);
        });
    }
    assert!(refused > 0, "some leaf was damaged");
}

/// A tree whose root is damaged: names are still found, one block after the other; nothing is
/// changed.
#[test]
fn names_of_a_broken_tree_are_found_without_it() {
    let sample = sample("");
    let device = Arc::new(sample.image.device.fork());
    device.write_at(sample.blocks[0] * 1024 + 28, &[9]);
    let image = Image { device };
    rt::testing::real(|cx| {
        let fs = image.mount(cx);
        for number in (0..NAMES).step_by(100) {
            let found = fs.lookup(cx, sample.dir, &name(number)).expect("found without the tree");
            assert_eq!(found.ino, sample.target);
        }
        let refused = fs.lookup(cx, sample.dir, b"not there").err();
        assert_eq!(refused, Some(Errno::EUCLEAN), "it might be in a block that cannot be read");
        let refused = fs.unlink(cx, sample.dir, &name(7)).err();
        assert_eq!(refused, Some(Errno::EROFS));
        assert!(fs.error().expect("the damage is told").contains("hash tree"));
        let _ = fs.unmount(cx);
    });
}
