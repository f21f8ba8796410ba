//! Hashes: every version, and names whose hashes are equal.

use base::map::HashMap;
use base::{Errno, Rng};
use ext4::format::Geometry;
use ext4::format::hash::{HashVersion, hash_name};
use vfs::FileSystem;

use super::support::*;

const VERSIONS: [&str; 3] = ["legacy", "half_md4", "tea"];

/// Every hash version with both kinds of characters: names of bytes above 127 end up where e2fsck
/// and the kernel look for them.
#[test]
fn every_hash_version_is_used_as_the_superblock_says() {
    for hash in VERSIONS {
        for flags in [1, 2] {
            let tune = format!("ssv def_hash_version {hash}\nssv flags {flags}\n");
            let image = Image::tuned("-t ext4 -b 1024", 16, &tune);
            rt::testing::world(|cx| {
                let fs = image.mount(cx);
                let root = fs.root();
                let dir = mkdir(cx, &*fs, root, b"dir");
                let ino = touch(cx, &*fs, root, b"file");
                for number in 0..2000u32 {
                    let name = [b"\xfe\x80\xc3".as_slice(), number.to_string().as_bytes()].concat();
                    fs.link(cx, ino, dir, &name).expect("a name");
                }
                close(cx, fs, &image);
            });
            let file = image.to_file();
            let mount = testkit::judge::LoopMount::new(file.path(), "ext4", "ro").expect("mounts");
            use std::os::unix::ffi::OsStrExt;
            let name = std::ffi::OsStr::from_bytes(b"\xfe\x80\xc3777");
            assert!(mount.path().join("dir").join(name).exists(), "{hash}, flags {flags}");
        }
    }
}

/// Pairs of names of 250 bytes with one hash.
fn pairs(version: HashVersion, seed: &[u32; 4], names: usize) -> Vec<[Vec<u8>; 2]> {
    let mut rng = Rng::new(5, 5);
    let mut by_hash: HashMap<u32, Vec<u8>> = HashMap::default();
    let mut pairs = Vec::new();
    for _ in 0..names {
        let name: Vec<u8> = (0..250).map(|_| b'a' + rng.below(26) as u8).collect();
        let hash = hash_name(version, seed, &name).major;
        if let Some(other) = by_hash.insert(hash, name.clone()) {
            pairs.push([other, name]);
        }
    }
    pairs
}

/// Names of one hash are parted by splits and found on both sides: leaves of 1 KiB hold three names
/// of 250 bytes, so that many splits fall between two of one hash.
#[test]
fn names_of_one_hash_may_lie_in_two_leaves() {
    for hash in VERSIONS {
        let tune = format!("ssv def_hash_version {hash}\n");
        let image = Image::tuned("-t ext4 -b 1024", 16, &tune);
        let geometry = Geometry::parse(&image.device.snapshot()[1024..2048], 1).expect("valid");
        let pairs = pairs(geometry.hash_version, &geometry.hash_seed, 150_000);
        assert!(pairs.len() >= 2, "{hash}: {} pairs", pairs.len());
        rt::testing::real(|cx| {
            let mut fs = image.mount(cx);
            let root = fs.root();
            let dir = mkdir(cx, &*fs, root, b"dir");
            let ino = touch(cx, &*fs, root, b"file");
            // The pairs alone, then fillers that split every leaf, then all a second time.
            for [a, b] in &pairs {
                fs.link(cx, ino, dir, a).expect("a name");
                fs.link(cx, ino, dir, b).expect("a name of the same hash");
                assert_eq!(fs.link(cx, ino, dir, a), Err(Errno::EEXIST));
            }
            let filler = |n: usize| format!("{n:0>200}").into_bytes();
            for number in 0..600 {
                fs.link(cx, ino, dir, &filler(number)).expect("a filler");
            }
            close(cx, fs, &image);
            fs = image.mount(cx);
            assert_eq!(list(cx, &*fs, dir).len(), 2 * pairs.len() + 600);
            for [a, b] in &pairs {
                assert_eq!(fs.link(cx, ino, dir, b), Err(Errno::EEXIST));
                fs.unlink(cx, dir, a).expect("found");
                fs.lookup(cx, dir, b).expect("the other one is still there");
                assert_eq!(fs.lookup(cx, dir, a).err(), Some(Errno::ENOENT));
                fs.link(cx, ino, dir, a).expect("back again");
            }
            close(cx, fs, &image);
        });
    }
}

/// Three names in a leaf of which the lower two have one hash: the split parts them.
#[test]
fn a_split_between_two_names_of_one_hash_is_marked() {
    let image = Image::new("-t ext4 -b 1024", 16);
    let geometry = Geometry::parse(&image.device.snapshot()[1024..2048], 1).expect("valid");
    let (version, seed) = (geometry.hash_version, geometry.hash_seed);
    let pairs = pairs(version, &seed, 150_000);
    let hash = |name: &[u8]| hash_name(version, &seed, name).major;
    let [a, b] = pairs.iter().min_by_key(|[a, _]| hash(a)).expect("a pair");
    let above = |n: u32| format!("{n:0>250}").into_bytes();
    let mut higher = (0..).map(above).filter(|name| hash(name) > hash(a));
    rt::testing::real(|cx| {
        let fs = image.mount(cx);
        let root = fs.root();
        let dir = mkdir(cx, &*fs, root, b"dir");
        let ino = touch(cx, &*fs, root, b"file");
        for name in [a, b, &higher.next().expect("endless"), &higher.next().expect("endless")] {
            fs.link(cx, ino, dir, name).expect("a name");
        }
        for name in [a, b] {
            fs.lookup(cx, dir, name).expect("found in its leaf or in the continuation");
        }
        close(cx, fs, &image);
    });
    let text = testkit::judge::debugfs(image.to_file().path(), false, "htree_dump /dir\n");
    let odd = text.lines().filter_map(|line| line.split("Hash 0x").nth(1)).any(|rest| {
        let digits: String = rest.chars().take_while(char::is_ascii_hexdigit).collect();
        u32::from_str_radix(&digits, 16).is_ok_and(|hash| hash & 1 == 1)
    });
    assert!(odd, "a continuation is marked in the tree:\n{text}");
}
