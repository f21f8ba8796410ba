//! Every feature bit: what a mount does where it is set. Writing is refused by the feature's name
//! before anything is written; reading works where it is safe, and shows what the kernel shows;
//! where it is not safe it is refused by name too. `docs/features.md` says the same as the table in
//! the code: `IOPATH_BLESS=1` writes it anew.

use crate::support::queue;
use cache::{PageCache, PageCacheConfig};
use device::{MemoryDevice, RecordDevice};
use ext4::format::RawSuper;
use ext4::format::features::{self, Access, Feature, Features, Incompat, KNOWN, Set};
use ext4::{Ext4, MountError, MountOptions};
use rt::Cx;
use std::fmt::Write;
use std::path::Path;
use std::sync::Arc;
use testkit::judge;
use testkit::manifest;
use vfs::FileSystem;

/// Features of which mke2fs (with tune2fs, debugfs) makes whole file systems: its options, and
/// commands of debugfs afterwards.
const MADE: &[(&str, &[&str])] = &[
    ("bigalloc", &["-O", "bigalloc", "-C", "16384"]),
    ("quota", &["-O", "quota"]),
    ("project", &["-O", "project,quota", "-I", "256"]),
    ("mmp", &["-O", "mmp"]),
    ("verity", &["-O", "verity"]),
    ("meta_bg", &["-O", "meta_bg,^resize_inode"]),
    ("sparse_super2", &["-O", "sparse_super2,^sparse_super,^resize_inode"]),
    ("fast_commit", &["-O", "fast_commit"]),
    ("stable_inodes", &["-O", "stable_inodes"]),
    ("large_dir", &["-O", "large_dir"]),
    ("ea_inode", &["-O", "ea_inode"]),
    ("inline_data", &["-O", "inline_data"]),
    ("encrypt", &["-O", "encrypt"]),
    ("casefold", &["-O", "casefold"]),
    ("journal_dev", &["-O", "journal_dev"]),
];

/// An image with a tree in it.
fn image(args: &[&str]) -> Vec<u8> {
    let tree = tempfile::tempdir().expect("a directory");
    let root = tree.path();
    std::fs::create_dir_all(root.join("a/b")).expect("directories");
    for n in 0..200usize {
        let content: Vec<u8> = (0..n * 331).map(|at| (at / 5 + n) as u8).collect();
        std::fs::write(root.join(format!("a/file{n}")), content).expect("a file");
    }
    std::fs::write(root.join("a/b/large"), vec![0x5a; 3_000_000]).expect("a file");
    std::os::unix::fs::symlink("file7", root.join("a/link")).expect("a link");
    std::fs::hard_link(root.join("a/file9"), root.join("hard")).expect("a link");
    let source = root.display().to_string();
    let mut all = vec!["-t", "ext4", "-b", "4096"];
    all.extend(args);
    if !args.contains(&"journal_dev") {
        all.extend(["-d", &source]);
    }
    let file = tempfile::NamedTempFile::new().expect("a temporary file");
    judge::mke2fs(file.path(), 48 << 20, &all);
    testkit::image::read(file.path())
}

/// The image with one more feature bit.
fn with_bit(image: &[u8], set: Set, bit: u32) -> Vec<u8> {
    let mut image = image.to_vec();
    let raw = RawSuper::view_mut(&mut image[1024..]).expect("long enough");
    let old = raw.features();
    let word = |of: Set, bits: u32| if of == set { bits | 1 << bit } else { bits };
    raw.set_features(&Features::from_bits(
        word(Set::Compat, old.compat.bits()),
        word(Set::Incompat, old.incompat.bits()),
        word(Set::RoCompat, old.ro_compat.bits()),
    ));
    raw.s_encoding.set(1);
    raw.set_checksum();
    image
}

/// The image without a feature that nothing in it uses.
fn without(image: &[u8], feature: Incompat) -> Vec<u8> {
    let mut image = image.to_vec();
    let raw = RawSuper::view_mut(&mut image[1024..]).expect("long enough");
    let mut features = raw.features();
    features.incompat -= feature;
    raw.set_features(&features);
    raw.set_checksum();
    image
}

/// Mounts on a device that notes every write; there must be none where the mount fails or is
/// read-only.
fn mount(cx: &mut Cx, image: &[u8], read_only: bool) -> Result<Arc<Ext4>, MountError> {
    let device = Arc::new(RecordDevice::new(Arc::new(MemoryDevice::from_image(image))));
    let queue = queue(cx, device.clone());
    let pages = PageCache::new(cx.runtime(), PageCacheConfig::with_limit(16 << 20));
    let options = MountOptions { read_only, ..MountOptions::default() };
    let result = Ext4::mount(cx, &queue, &pages, options);
    if result.is_err() || read_only {
        assert!(device.is_empty(), "nothing is written");
    }
    result
}

/// Asserts that a mount fails because of the feature of this name.
fn refused(cx: &mut Cx, image: &[u8], read_only: bool, name: &str) {
    let what = if read_only { "reading" } else { "writing" };
    match mount(cx, image, read_only) {
        Ok(_) => panic!("{name}: mounted for {what}"),
        Err(MountError::Unsupported(reason)) => {
            let text = reason.to_string();
            assert!(text.contains(name), "{name}: refused with {text:?}");
        }
        Err(other) => panic!("{name}: refused for {what} with {other}"),
    }
}

/// Goal: each bit alone decides as the table says. Method: the bit is set in the superblock of a
/// sound image; so are all the bits that have no name.
#[test]
fn every_bit_is_honoured_before_anything_is_written() {
    let plain = image(&[]);
    let named = KNOWN.iter().map(|f| (f.set, f.bit, f.name.to_string(), f.access));
    let nameless = [Set::Compat, Set::Incompat, Set::RoCompat].into_iter().flat_map(|set| {
        (0..32).filter_map(move |bit| {
            let known = KNOWN.iter().any(|f| f.set == set && f.bit == bit);
            let access = if set == Set::Incompat { Access::Refused } else { Access::ReadOnly };
            (!known).then(|| (set, bit, features::name(set, bit), access))
        })
    });
    for (set, bit, name, access) in named.chain(nameless) {
        let image = with_bit(&plain, set, bit);
        rt::testing::world(|cx| {
            if access < Access::ReadWrite {
                refused(cx, &image, false, &name);
            }
            if access == Access::Refused {
                refused(cx, &image, true, &name);
            }
        });
    }
}

/// Goal: real file systems with a feature that we cannot write are refused for writing and, where
/// reading is safe, read as the kernel reads them.
#[test]
fn images_with_the_feature_are_refused_or_read_as_the_kernel_does() {
    for (name, args) in MADE {
        let image = image(args);
        let feature = features::find(name).unwrap_or_else(|| panic!("{name} is known"));
        rt::testing::world(|cx| match feature.access {
            Access::Refused => {
                refused(cx, &image, true, name);
                refused(cx, &image, false, name);
            }
            Access::ReadOnly => {
                refused(cx, &image, false, name);
                same_as_the_kernel(cx, &image, name);
            }
            Access::ReadWrite => same_as_the_kernel(cx, &image, name),
        });
    }
}

fn same_as_the_kernel(cx: &mut Cx, image: &[u8], name: &str) {
    let fs = mount(cx, image, true).unwrap_or_else(|error| panic!("{name}: {error}"));
    let ours = manifest::of_fs(cx, &*fs).unwrap_or_else(|errno| panic!("{name}: {errno}"));
    fs.unmount(cx).expect("unmount");
    assert!(ours.len() > 200, "{name}: the tree is there");
    // The kernels of most distributions know no casefold; no directory here ignores case.
    let image = without(image, Incompat::CASEFOLD);
    let file = testkit::image::write(&image);
    let theirs = judge::kernel_manifest(file.path(), "ext4");
    let difference = manifest::diff(&ours, &theirs);
    assert!(difference.is_empty(), "{name}: ours left, the kernel's right:\n{difference}");
}

/// Goal: a journal on another device is told from a journal inside: without it nothing is written.
#[test]
fn an_external_journal_is_not_done_without() {
    let mut image = image(&[]);
    let raw = RawSuper::view_mut(&mut image[1024..]).expect("long enough");
    raw.s_journal_inum.set(0);
    raw.s_journal_dev.set(0x701);
    raw.set_checksum();
    rt::testing::world(|cx| {
        let error = mount(cx, &image, false).expect_err("refused");
        assert!(error.to_string().contains("journal"), "{error}");
        mount(cx, &image, true).expect("its log is empty");
    });
}

/// Features of the places of superblocks and descriptors.
const LAYOUTS: [&str; 3] = ["meta_bg", "sparse_super2", "stable_inodes"];

fn row(feature: &Feature) -> String {
    let set = match feature.set {
        Set::Compat => "compat",
        Set::Incompat => "incompat",
        Set::RoCompat => "ro_compat",
    };
    let answer = |yes: bool| if yes { "yes" } else { "refused" };
    let test = match (feature.access, MADE.iter().any(|(name, _)| *name == feature.name)) {
        (Access::ReadWrite, _) if feature.name == "fast_commit" => {
            "`fast_commit`, `fast_commit_write`: the kernel's images and ours, cut; bad records"
        }
        (Access::ReadWrite, _) if feature.name == "dirdata" => {
            "`dirdata`: entries with data behind their names, made by hand; both e2fsck without it"
        }
        (Access::ReadWrite, _) if feature.name == "mmp" => {
            "`mmp`: mounts beside each other; the kernel in turns"
        }
        (Access::ReadWrite, _) if feature.name == "casefold" => {
            "`casefold`: hashes beside debugfs, both e2fsck; the campaigns; mkfs beside mke2fs"
        }
        (Access::ReadWrite, _) if feature.name == "verity" => {
            "`verity`: digests beside fsverity, both e2fsck, cuts; damaged files"
        }
        (Access::ReadWrite, _) if feature.name == "bigalloc" => {
            "`bigalloc`: the kernel's clusters, it in turns; the campaigns; mkfs beside mke2fs"
        }
        (Access::ReadWrite, _) if LAYOUTS.contains(&feature.name) => {
            "`layouts`: all groups, the kernel in turns; mkfs beside mke2fs"
        }
        (Access::ReadWrite, false) => "the campaigns",
        (Access::ReadWrite, true) => "the campaigns; mke2fs's image against the kernel's mount",
        (Access::ReadOnly, _) if feature.name == "shared_blocks" => {
            "bit set; debugfs's image: checked, resized, and parted by `tune`"
        }
        (Access::ReadOnly, true) => "bit set; mke2fs's image against the kernel's mount",
        (Access::Refused, true) => "bit set; mke2fs's image",
        (_, false) => "bit set",
    };
    format!(
        "| `{}` | {set} {} | {} | {} | {test} |\n",
        feature.name,
        feature.bit,
        answer(feature.access >= Access::ReadOnly),
        answer(feature.access == Access::ReadWrite),
    )
}

const HEAD: &str = "\
# Feature bits of ext2, ext3 and ext4

What a mount does where a bit is set. `refused` names the feature, and comes before anything is
written. A bit without a name is refused for writing; without a name among the incompatible ones it
is refused for reading as well. Without the device of an external journal
nothing is written.

This table is that of `crates/ext4/src/format/features.rs`; the test `features` of `iopath-ext4`
compares the two (`IOPATH_BLESS=1` writes this file anew), sets every bit in a sound image, and
mounts images of mke2fs.

| feature | bit | read | write | tested with |
| --- | --- | --- | --- | --- |
";

/// Goal: the document is the code's table.
#[test]
fn the_document_is_the_table() {
    let mut text = HEAD.to_string();
    for feature in KNOWN {
        write!(text, "{}", row(feature)).expect("a string takes text");
    }
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/features.md");
    if std::env::var_os("IOPATH_BLESS").is_some() {
        std::fs::write(&path, &text).expect("the document can be written");
    }
    let found = std::fs::read_to_string(&path).expect("docs/features.md");
    assert!(found == text, "docs/features.md is not the table: run this test with IOPATH_BLESS=1");
}
