//! Full disks: no block, no inode, no space for an attribute.

use std::collections::BTreeMap;

use base::{Errno, Ino, Rng};
use rt::Cx;
use vfs::{FileSystem, FileType, NewNode, RenameFlags, XattrFlags};

use super::support::*;

/// Adds long names, directories and attributes until nothing fits, removes some, adds again: every
/// name that was promised is there, and no other.
fn fill_repeatedly(cx: &mut Cx, image: &Image, seed: u64) {
    let mut rng = Rng::new(seed, 4);
    let mut fs = image.mount(cx);
    let root = fs.root();
    let mut names: BTreeMap<Vec<u8>, (Ino, bool)> = BTreeMap::new();
    let value = vec![b'v'; 400];
    let mut number = 0;
    for _ in 0..4 {
        let mut refused = 0;
        while refused < 25 {
            number += 1;
            let width = 10 + rng.below(240) as usize;
            let name = format!("{number:0>width$}").into_bytes();
            let is_dir = rng.chance(0.2);
            let kind = if is_dir { FileType::Directory } else { FileType::Regular };
            match fs.create(cx, root, &name, &NewNode::new(kind, 0o700)) {
                Ok(attr) => {
                    let value = [value.as_slice(), &name].concat();
                    let set = fs.setxattr(cx, attr.ino, b"user.v", &value, XattrFlags::empty());
                    assert!(matches!(set, Ok(()) | Err(Errno::ENOSPC)), "{set:?}");
                    names.insert(name, (attr.ino, is_dir));
                }
                Err(errno) => {
                    assert_eq!(errno, Errno::ENOSPC);
                    refused += 1;
                }
            }
        }
        compare(cx, &*fs, &names);
        // Moving within a full directory may need space too.
        for name in names.keys().cloned().step_by(9).collect::<Vec<_>>() {
            let to = [b"m".as_slice(), &name[..name.len() - 1]].concat();
            match fs.rename(cx, root, &name, root, &to, RenameFlags::NOREPLACE) {
                Ok(()) => {
                    let node = names.remove(&name).expect("it was there");
                    names.insert(to, node);
                }
                Err(errno) => assert!([Errno::ENOSPC, Errno::EEXIST].contains(&errno), "{errno}"),
            }
        }
        close(cx, fs, image);
        fs = image.mount(cx);
        compare(cx, &*fs, &names);
        let gone: Vec<_> = names.keys().filter(|_| rng.chance(0.6)).cloned().collect();
        for name in gone {
            match names.remove(&name) {
                Some((_, true)) => fs.rmdir(cx, root, &name).expect("an empty directory"),
                _ => fs.unlink(cx, root, &name).expect("a file"),
            }
        }
    }
    close(cx, fs, image);
}

fn compare(cx: &mut Cx, fs: &dyn FileSystem, names: &BTreeMap<Vec<u8>, (Ino, bool)>) {
    let root = fs.root();
    let mut seen = list(cx, fs, root);
    seen.retain(|(name, _)| name != b"lost+found");
    seen.sort();
    let expected: Vec<_> = names.iter().map(|(name, (ino, _))| (name.clone(), *ino)).collect();
    assert_eq!(seen, expected);
}

#[test]
fn a_full_file_system_keeps_its_promises() {
    for (seed, shape) in [
        // Blocks run out first, then inodes.
        "-t ext4 -b 1024 -O ^has_journal -N 4000",
        "-t ext4 -b 1024 -N 200",
        "-t ext3 -b 1024 -N 4000",
        "-t ext2 -b 1024 -N 4000 -O ^dir_index",
    ]
    .iter()
    .enumerate()
    {
        let image = Image::new(shape, 4);
        rt::testing::world(|cx| fill_repeatedly(cx, &image, seed as u64));
    }
}
