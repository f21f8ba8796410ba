//! Encrypted directories that ignore the case of names.

use std::path::Path;
use std::sync::Arc;

use crate::casefold::{folding, names};
use crate::encrypt::mount_with;
use crate::support::*;
use base::{Errno, Ino};
use device::MemoryDevice;
use ext4::Ext4;
use ext4::format::InodeFlags;
use fscrypt::{KeyName, KeyRing, MasterKey, Policy};
use rt::Cx;
use vfs::{FileSystem, FileType, NewNode, RenameFlags};

const CELL: Cell = Cell::new("ext4", 1024).features("encrypt,casefold,orphan_file");

pub fn key() -> MasterKey {
    MasterKey::new(vec![b'K'; 64]).expect("64 bytes")
}

/// A ring with the key.
pub fn ring() -> KeyRing {
    let mut ring = KeyRing::default();
    ring.add(key());
    ring
}

pub fn policy() -> Policy {
    Policy::new(key().identifier())
}

fn kernels(file: &str) -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/casefold").join(file)
}

/// The image that kernel 7.2 made, and its directory.
fn of_the_kernel(cx: &mut Cx, keys: &[MasterKey]) -> (Arc<MemoryDevice>, Arc<Ext4>, Ino) {
    let file = tempfile::NamedTempFile::new().expect("a temporary file");
    testkit::packed::unpack(&kernels("encrypted.img.zst"), file.path());
    let device = Arc::new(testkit::image::load(file.path()));
    let fs = mount_with(cx, &device, keys);
    let dir = fs.lookup(cx, fs.root(), b"d").expect("the directory").ino;
    (device, fs, dir)
}

fn content(cx: &mut Cx, fs: &Ext4, dir: Ino, name: &str) -> String {
    let ino = fs.lookup(cx, dir, name.as_bytes()).unwrap_or_else(|e| panic!("{name}: {e}")).ino;
    let mut bytes = vec![0; 99];
    let count = fs.read(cx, ino, 0, &mut bytes).expect("read");
    String::from_utf8_lossy(&bytes[..count]).into_owned()
}

/// Goal: with the key, names of kernel 7.2 are found in every case, in a block and in a tree, and
/// names come and go; nothing is wrong afterwards.
#[test]
fn names_of_the_kernel_are_found_in_every_case() {
    rt::testing::world(|cx| {
        let (device, fs, dir) = of_the_kernel(cx, &[key()]);
        assert_eq!(content(cx, &fs, dir, "hELLO"), "content of Hello\n");
        assert_eq!(content(cx, &fs, dir, "STRASSE"), "content of Straße\n");
        assert_eq!(content(cx, &fs, dir, &"l".repeat(255)), "long\n");
        let below = fs.lookup(cx, dir, b"SUB").expect("the directory").ino;
        assert_eq!(names(cx, &*fs, below).len(), 399);
        for n in (0..400).filter(|n| *n != 7) {
            let name = format!("nAmE-{n}");
            fs.lookup(cx, below, name.as_bytes()).unwrap_or_else(|e| panic!("{name}: {e}"));
            if n % 3 == 0 {
                fs.unlink(cx, below, name.as_bytes()).expect("unlink");
            }
        }
        for n in 0..500 {
            create(cx, &*fs, below, &format!("Another-{n}"));
        }
        let (node, none) = (NewNode::new(FileType::Regular, 0o644), RenameFlags::empty());
        assert_eq!(fs.create(cx, below, b"ANOTHER-9", &node).err(), Some(Errno::EEXIST));
        fs.rename(cx, below, b"ANOTHER-9", dir, b"world", none).expect("replaces");
        assert_eq!(content(cx, &fs, dir, "World"), "");
        close(cx, &*fs, &device, "with the key");
    });
}

/// Goal: without the key, names are shown as the kernel shows them, can be removed by that, long
/// ones and those in a tree too, and nothing can be made.
#[test]
fn names_of_the_kernel_are_removed_without_the_key() {
    rt::testing::world(|cx| {
        let (device, fs, dir) = of_the_kernel(cx, &[]);
        let shown = names(cx, &*fs, dir);
        let text = std::fs::read_to_string(kernels("encrypted.names")).expect("the list");
        let mut expected: Vec<_> = text.lines().map(|line| line.as_bytes().to_vec()).collect();
        expected.sort();
        assert_eq!(shown, expected);
        let node = NewNode::new(FileType::Regular, 0o644);
        assert_eq!(fs.create(cx, dir, b"new", &node).err(), Some(Errno::ENOKEY));
        for name in shown {
            let found = fs.lookup(cx, dir, &name).expect("a name");
            if found.kind == FileType::Directory {
                for below in names(cx, &*fs, found.ino) {
                    fs.unlink(cx, found.ino, &below).expect("unlink");
                }
                fs.rmdir(cx, dir, &name).expect("rmdir");
            } else {
                fs.unlink(cx, dir, &name).expect("unlink");
            }
        }
        assert!(names(cx, &*fs, dir).is_empty());
        close(cx, &*fs, &device, "without the key");
    });
}

/// Goal: a directory becomes one by either order of its flag and its policy; policies of version 1
/// cannot; trees grow over splits, and everything is sound.
#[test]
fn directories_become_encrypted_and_folding_in_either_order() {
    rt::testing::world(|cx| {
        let device = CELL.fresh(cx, 48 << 20);
        let fs = mount_with(cx, &device, &[key()]);
        let one = Policy { key: KeyName::Descriptor(key().descriptor()), ..policy() };
        let first = folding(cx, &*fs, "first");
        assert_eq!(fs.encrypt_directory(cx, first, one), Err(Errno::EINVAL));
        fs.encrypt_directory(cx, first, policy()).expect("a policy");
        // The root folds: what is below does too.
        let second = mkdir(cx, &*fs, fs.root(), "second");
        let flags = fs.getattr(cx, second).expect("attributes").flags;
        let folds = InodeFlags::CASEFOLD.bits();
        fs.set_flags(cx, second, flags & !folds).expect("empty");
        fs.encrypt_directory(cx, second, policy()).expect("a policy");
        let flags = fs.getattr(cx, second).expect("attributes").flags;
        fs.set_flags(cx, second, flags | folds).expect("empty");
        let third = mkdir(cx, &*fs, fs.root(), "third");
        let flags = fs.getattr(cx, third).expect("attributes").flags;
        fs.set_flags(cx, third, flags & !folds).expect("empty");
        fs.encrypt_directory(cx, third, one).expect("a policy");
        let flags = fs.getattr(cx, third).expect("attributes").flags;
        assert_eq!(fs.set_flags(cx, third, flags | folds), Err(Errno::EINVAL));
        for dir in [first, second] {
            let name = |n: u32| format!("Größe-{n:04}-{}", "x".repeat(n as usize % 200));
            for n in 0..300 {
                create(cx, &*fs, dir, &name(n));
            }
            fs.create(cx, dir, b"caf\xe9", &NewNode::new(FileType::Regular, 0o644)).expect("bytes");
            assert_eq!(fs.lookup(cx, dir, b"CAF\xe9").err(), Some(Errno::ENOENT));
            for n in (0..300).step_by(2) {
                let other = name(n).to_uppercase();
                fs.unlink(cx, dir, other.as_bytes()).unwrap_or_else(|e| panic!("{other}: {e}"));
            }
            assert_eq!(names(cx, &*fs, dir).len(), 151);
        }
        fs.unmount(cx).expect("unmount");
        let fs = mount_with(cx, &device, &[key()]);
        fs.lookup(cx, second, "GRÖSSE-0001-X".as_bytes()).expect("found after a mount");
        close(cx, &*fs, &device, "either order");
    });
}
