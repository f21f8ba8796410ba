//! Directories that ignore the case of names.

use std::sync::Arc;

use crate::support::*;
use base::{Errno, Ino};
use device::MemoryDevice;
use ext4::MkfsOptions;
use ext4::check::{CheckOptions, Rule};
use ext4::format::InodeFlags;
use ext4::format::casefold::{self, Encoding};
use ext4::format::hash::{HashVersion, hash_name};
use rt::Cx;
use vfs::{DirEntry, FileSystem, FileType, NewNode, RenameFlags};

const BYTES: u64 = 48 << 20;
const FOLDS: u32 = InodeFlags::CASEFOLD.bits();
const CELLS: [Cell; 4] = [
    Cell::new("ext4", 4096).features("casefold"),
    Cell::new("ext4", 1024).features("casefold,orphan_file"),
    Cell::new("ext4", 1024).features("casefold,^dir_index,^metadata_csum"),
    Cell::new("ext4", 2048).features("casefold,inline_data,bigalloc"),
];

fn new_file() -> NewNode<'static> {
    NewNode::new(FileType::Regular, 0o644)
}

fn strict(cx: &mut Cx) -> Arc<MemoryDevice> {
    let device = Arc::new(MemoryDevice::new(BYTES));
    let options =
        MkfsOptions { encoding: Some(Encoding { strict: true }), ..MkfsOptions::default() };
    let queue = queue(cx, device.clone());
    ext4::mkfs(cx, &queue, &options).expect("mkfs");
    device
}

/// A new directory that ignores case.
pub fn folding(cx: &mut Cx, fs: &dyn FileSystem, name: &str) -> Ino {
    let dir = mkdir(cx, fs, fs.root(), name);
    let flags = fs.getattr(cx, dir).expect("attributes").flags;
    fs.set_flags(cx, dir, flags | FOLDS).expect("an empty directory");
    dir
}

pub fn names(cx: &mut Cx, fs: &dyn FileSystem, dir: Ino) -> Vec<Vec<u8>> {
    let mut names = Vec::new();
    let mut emit = |entry: DirEntry| {
        names.push(entry.name.to_vec());
        true
    };
    fs.readdir(cx, dir, 0, &mut emit).expect("a listing");
    names.retain(|name| name != b"." && name != b"..");
    names.sort();
    names
}

/// Goal: names are kept as they were given, and found, refused, renamed and removed in every case;
/// nothing of it stays in a cache.
#[test]
fn names_are_found_in_every_case() {
    for cell in CELLS {
        rt::testing::world(|cx| {
            let device = cell.fresh(cx, BYTES);
            let (fs, _) = mount(cx, device.clone());
            let dir = folding(cx, &*fs, "Dir");
            let ino = create(cx, &*fs, dir, "Straße Å");
            let found = fs.lookup(cx, dir, "STRASSE a\u{30a}".as_bytes()).expect("found").ino;
            assert_eq!(found, ino);
            let twice = fs.create(cx, dir, "strasse å".as_bytes(), &new_file());
            assert_eq!(twice.expect_err("it is there"), Errno::EEXIST);
            assert_eq!(names(cx, &*fs, dir), ["Straße Å".as_bytes()]);
            // Linux: two names of one inode, so nothing happens.
            let none = RenameFlags::empty();
            let (old, new) = ("strasse å".as_bytes(), "STRASSE Å".as_bytes());
            fs.rename(cx, dir, old, dir, new, none).expect("nothing to do");
            assert_eq!(names(cx, &*fs, dir), ["Straße Å".as_bytes()]);
            let other = create(cx, &*fs, dir, "other");
            fs.rename(cx, dir, b"OTHER", dir, new, none).expect("replaces");
            assert_eq!(names(cx, &*fs, dir), ["Straße Å".as_bytes()]);
            assert_eq!(fs.lookup(cx, dir, old).expect("found").ino, other);
            fs.unlink(cx, dir, new).expect("unlink");
            for name in ["Straße Å", "strasse å", "STRASSE Å", "other"] {
                let gone = fs.lookup(cx, dir, name.as_bytes());
                assert_eq!(gone.expect_err("removed"), Errno::ENOENT, "{name}");
            }
            let below = mkdir(cx, &*fs, dir, "Below");
            assert_ne!(fs.getattr(cx, below).expect("attributes").flags & FOLDS, 0);
            let file = create(cx, &*fs, below, "f");
            assert_eq!(fs.getattr(cx, file).expect("attributes").flags & FOLDS, 0);
            // Bytes that are no UTF-8 are themselves.
            fs.create(cx, dir, b"caf\xe9", &new_file()).expect("created");
            fs.create(cx, dir, b"CAF\xe9", &new_file()).expect("created");
            close(cx, &*fs, &device, &format!("{cell:?}"));
        });
    }
}

/// Goal: the flag comes and goes on empty directories only, and not without the feature.
#[test]
fn the_flag_needs_an_empty_directory_and_the_feature() {
    rt::testing::world(|cx| {
        let device = CELLS[0].fresh(cx, BYTES);
        let (fs, _) = mount(cx, device.clone());
        let dir = folding(cx, &*fs, "d");
        let flags = fs.getattr(cx, dir).expect("attributes").flags;
        create(cx, &*fs, dir, "x");
        let refused = fs.set_flags(cx, dir, flags & !FOLDS);
        assert_eq!(refused.expect_err("not empty"), Errno::ENOTEMPTY);
        fs.unlink(cx, dir, b"X").expect("unlink");
        fs.set_flags(cx, dir, flags & !FOLDS).expect("empty");
        assert_ne!(create(cx, &*fs, dir, "plain"), create(cx, &*fs, dir, "PLAIN"));
        let file = create(cx, &*fs, dir, "f");
        let flags = fs.getattr(cx, file).expect("attributes").flags;
        assert_eq!(fs.set_flags(cx, file, flags | FOLDS).expect_err("a file"), Errno::EOPNOTSUPP);
        assert!(fs.ignores_case());
        close(cx, &*fs, &device, "flags");

        let device = fresh(cx, BYTES, "ext4", 4096);
        let (fs, _) = mount(cx, device);
        let dir = mkdir(cx, &*fs, fs.root(), "d");
        let flags = fs.getattr(cx, dir).expect("attributes").flags;
        let refused = fs.set_flags(cx, dir, flags | FOLDS);
        assert_eq!(refused.expect_err("no feature"), Errno::EOPNOTSUPP);
        assert!(!fs.ignores_case());
    });
}

/// Goal: a strict file system takes UTF-8 only, in directories that ignore case; the check says
/// where there is something else.
#[test]
fn a_strict_file_system_takes_utf8_only() {
    rt::testing::world(|cx| {
        let device = strict(cx);
        let (fs, _) = mount(cx, device.clone());
        let dir = folding(cx, &*fs, "d");
        let new = new_file();
        for name in [b"caf\xe9".as_slice(), b"q\x80", b"\xed\xa0\x80", b"\xf4\x90\x80\x80"] {
            assert_eq!(fs.create(cx, dir, name, &new).expect_err("no UTF-8"), Errno::EINVAL);
            fs.create(cx, fs.root(), name, &new).expect("created");
        }
        // Not assigned by Unicode 12.1 is UTF-8 all the same.
        create(cx, &*fs, dir, "\u{378}\u{1fad6}");
        create(cx, &*fs, dir, "cafe");
        close(cx, &*fs, &device, "strict");

        let mut image = device.snapshot().to_vec();
        let at = image.windows(4).position(|bytes| bytes == b"cafe").expect("the entry");
        image[at + 3] = 0xe9;
        let device = Arc::new(MemoryDevice::from_image(&image));
        let queue = queue(cx, device);
        let report = ext4::check(cx, &queue, &CheckOptions::default()).expect("a check");
        assert!(report.findings.iter().any(|found| found.rule == Rule::DirNameEncoding));
    });
}

/// Goal: names of a tree of two levels are found in another case, also after a mount, and e2fsck
/// agrees with every hash. A second name that is the same but for its case is found by the check.
#[test]
fn trees_are_sorted_by_folded_names() {
    rt::testing::world(|cx| {
        let device = CELLS[1].fresh(cx, BYTES);
        let (fs, _) = mount(cx, device.clone());
        let dir = folding(cx, &*fs, "d");
        let name = |n: u32| format!("Ärger-{n:05}-{}", "Ω".repeat(90));
        let ino = create(cx, &*fs, dir, &name(0));
        for n in 1..900 {
            fs.link(cx, ino, dir, name(n).as_bytes()).expect("a link");
        }
        fs.unmount(cx).expect("unmount");
        let (fs, _) = mount(cx, device.clone());
        for n in (0..900).step_by(7) {
            let other = name(n).to_lowercase();
            assert_eq!(fs.lookup(cx, dir, other.as_bytes()).expect("found").ino, ino);
            fs.unlink(cx, dir, other.as_bytes()).expect("unlink");
        }
        assert_eq!(names(cx, &*fs, dir).len(), 900 - 129);
        create(cx, &*fs, fs.root(), "AaAaAaAa");
        close(cx, &*fs, &device, "tree");
    });
}

/// Goal: a name that stands twice but for its case is found. (e2fsck 1.47.4 says nothing of it.)
#[test]
fn the_check_finds_names_that_differ_in_case_only() {
    rt::testing::world(|cx| {
        // Without checksums, so that nothing else is wrong.
        let device = CELLS[2].fresh(cx, BYTES);
        let (fs, _) = mount(cx, device.clone());
        let dir = folding(cx, &*fs, "d");
        create(cx, &*fs, dir, "name-one");
        create(cx, &*fs, dir, "name-two");
        fs.unmount(cx).expect("unmount");
        let mut image = device.snapshot().to_vec();
        let places = image.windows(8).enumerate().filter(|(_, bytes)| bytes == b"name-two");
        for at in places.map(|(at, _)| at).collect::<Vec<_>>() {
            image[at..at + 8].copy_from_slice(b"NAME-one");
        }
        let queue = queue(cx, Arc::new(MemoryDevice::from_image(&image)));
        let report = ext4::check(cx, &queue, &CheckOptions::default()).expect("a check");
        assert!(report.findings.iter().any(|found| found.rule == Rule::DirDuplicate));
    });
}

/// Goal: folded forms have the hashes that e2fsprogs computes.
#[test]
fn hashes_are_those_of_debugfs() {
    let plain =
        ["Straße", "ǅ", "ﬃ", "Ὠ", "각", "a\u{345}\u{301}", "x\u{ad}Y", "İI", "\u{390}\u{390}"];
    let later = ["\u{105c9}", "\u{180f}A", "A\u{1e4ef}\u{300}", "\u{11383}", "\u{16121}\u{323}"];
    let long = "\u{390}".repeat(80);
    let names: Vec<&str> = plain.iter().chain(&later).copied().chain([long.as_str()]).collect();
    let command = |name: &&str| format!("dx_hash -h half_md4 -c -e utf8 \"{name}\"\n");
    let file = tempfile::NamedTempFile::new().expect("a temporary file");
    std::fs::write(file.path(), names.iter().map(command).collect::<String>()).expect("commands");
    let text = testkit::newest::run_ok("debugfs", &[&"-f", &file.path()]);
    for name in names {
        let folded = casefold::fold(name.as_bytes()).expect("UTF-8");
        let hash = hash_name(HashVersion::HalfMd4, &[0; 4], &folded);
        let line = format!("Hash of {name} is {:#x} (minor {:#x})", hash.major, hash.minor);
        assert!(text.contains(&line), "{line}: not in\n{text}");
    }
}
