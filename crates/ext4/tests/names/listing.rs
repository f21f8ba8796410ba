//! Listing a directory while it changes.

use base::map::HashMap;
use base::{Ino, Rng};
use rt::Cx;
use vfs::FileSystem;

use super::support::*;

/// Takes up to `count` names from a listing; answers the cookie to go on with, `None` at the end.
fn take(
    cx: &mut Cx,
    fs: &dyn FileSystem,
    dir: Ino,
    cookie: u64,
    count: u64,
    seen: &mut HashMap<Vec<u8>, u32>,
) -> Option<u64> {
    let (mut left, mut next) = (count, None);
    fs.readdir(cx, dir, cookie, &mut |entry| {
        if left == 0 {
            return false;
        }
        left -= 1;
        assert!(entry.cookie > next.unwrap_or(cookie), "positions grow");
        next = Some(entry.cookie);
        *seen.entry(entry.name.to_vec()).or_default() += 1;
        true
    })
    .expect("the directory can be listed");
    next
}

fn list_while_changing(cx: &mut Cx, image: &Image, stable: usize, churn: usize, seed: u64) {
    let mut rng = Rng::new(seed, 0);
    let mut fs = image.mount(cx);
    let root = fs.root();
    let dir = mkdir(cx, &*fs, root, b"dir");
    let ino = touch(cx, &*fs, root, b"file");
    for number in 0..stable {
        fs.link(cx, ino, dir, format!("stable-{number}").as_bytes()).expect("a name");
    }
    let mut live: Vec<bool> = vec![false; churn];
    let mut seen = HashMap::default();
    let mut cookie = 0;
    let mut rounds = 0;
    while let Some(next) = take(cx, &*fs, dir, cookie, 1 + rng.below(40), &mut seen) {
        cookie = next;
        for _ in 0..30 {
            let number = rng.below(churn as u64) as usize;
            let name = format!("churn-{number}-with-a-rather-long-name");
            if live[number] {
                fs.unlink(cx, dir, name.as_bytes()).expect("it is there");
            } else {
                fs.link(cx, ino, dir, name.as_bytes()).expect("it is not there");
            }
            live[number] = !live[number];
        }
        rounds += 1;
        if rounds % 20 == 0 {
            fs.unmount(cx).expect("the unmount succeeds");
            fs = image.mount(cx);
        }
    }
    for number in 0..stable {
        let name = format!("stable-{number}").into_bytes();
        assert_eq!(seen.get(&name), Some(&1), "{}", lossy(&name));
    }
    assert_eq!((seen[b".".as_slice()], seen[b"..".as_slice()]), (1, 1));
    close(cx, fs, image);
}

/// A name that is there all the time comes exactly once, whatever is added and removed meanwhile,
/// also when the listing goes on after a remount: in trees, in single blocks that become trees
/// during the listing, and in linear directories.
#[test]
fn a_stable_name_is_listed_exactly_once() {
    for (seed, shape) in SHAPES.iter().enumerate() {
        for (stable, churn) in [(1000, 3000), (20, 600)] {
            let image = Image::new(shape, 16);
            let seed = seed as u64;
            rt::testing::world(|cx| list_while_changing(cx, &image, stable, churn, seed));
        }
    }
}

/// With the legacy hash, which has no minor part, too.
#[test]
fn names_of_a_weak_hash_are_listed_exactly_once() {
    for hash in ["legacy", "tea"] {
        let tune = format!("ssv def_hash_version {hash}\n");
        let image = Image::tuned("-t ext4 -b 1024", 32, &tune);
        rt::testing::world(|cx| list_while_changing(cx, &image, 8000, 4000, 9));
    }
}
