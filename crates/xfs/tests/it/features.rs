//! What a mount does at every feature: refused by name, read-only, or taken.

use std::sync::Arc;

use crate::support::*;
use cache::{PageCache, PageCacheConfig};
use device::MemoryDevice;
use rt::Cx;
use vfs::{FileSystem, FileType, NewNode};
use xfs::format::features::{Access, KNOWN, Set, Version};
use xfs::format::{Kind, RawSuper, verifier};
use xfs::{MkfsOptions, MountError, MountOptions, Xfs};

/// Sets a feature's bit in a superblock.
fn set_bit(raw: &mut RawSuper, set: Set, bit: u32) {
    let word = match set {
        Set::Version => {
            raw.sb_versionnum.set(raw.sb_versionnum.get() | 1 << bit);
            return;
        }
        Set::Features2 => &mut raw.sb_features2,
        Set::Compat => &mut raw.sb_features_compat,
        Set::RoCompat => &mut raw.sb_features_ro_compat,
        Set::Incompat => &mut raw.sb_features_incompat,
        Set::LogIncompat => &mut raw.sb_features_log_incompat,
        Set::Field => match bit {
            0 | 4 => {
                let number = if bit == 0 { 4 } else { 3 };
                raw.sb_versionnum.set(raw.sb_versionnum.get() & !0xf | number);
                return;
            }
            3 => {
                raw.sb_versionnum.set(raw.sb_versionnum.get() & !Version::DIRV2.bits());
                return;
            }
            1 => {
                raw.sb_rblocks.set(1000);
                raw.sb_rextents.set(1000);
                raw.sb_rbmblocks.set(1);
                raw.sb_rextslog = 9;
                return;
            }
            _ => {
                raw.sb_logstart.set(0);
                return;
            }
        },
    };
    word.set(word.get() | 1 << bit);
}

/// Changes the superblock.
fn change(cx: &mut Cx, device: &Arc<MemoryDevice>, change: impl FnOnce(&mut RawSuper)) {
    let queue = queue(cx, device.clone());
    let mut page = queue.read(cx, base::Sector(0), 4096).expect("memory");
    let sector = &mut page.make_mut()[..512];
    change(RawSuper::view_mut(sector).expect("a sector"));
    verifier::update_crc(Kind::Super, sector);
    queue.write(cx, base::Sector(0), page, block::BioFlags::empty()).expect("memory");
}

/// An empty file system with one more bit.
fn made_with(cx: &mut Cx, set: Set, bit: u32) -> Arc<MemoryDevice> {
    let device = Arc::new(MemoryDevice::new(96 << 20));
    let before = queue(cx, device.clone());
    let options = MkfsOptions { log_size: Some(12 << 20), ..MkfsOptions::default() };
    xfs::mkfs(cx, &before, &options).expect("mkfs");
    change(cx, &device, |raw| set_bit(raw, set, bit));
    device
}

/// Mounts an empty file system with one more bit; answers the error, if any.
fn mounted_with(set: Set, bit: u32) -> Option<String> {
    in_world(move |cx| {
        let device = made_with(cx, set, bit);
        match try_mount(cx, device) {
            Ok(fs) => {
                fs.unmount(cx).expect("unmount");
                None
            }
            Err(MountError::Unsupported(reason)) => Some(reason.name),
            Err(other) => panic!("{set:?} bit {bit}: {other}"),
        }
    })
}

#[test]
fn every_known_feature_is_taken_or_refused_by_its_name() {
    for feature in KNOWN {
        // These change what the superblock's other numbers or the metadata's UUIDs mean, or all of
        // the metadata (see `v4.rs`, `metadir.rs`).
        if ["metauuid", "metadir", "v4"].contains(&feature.name) {
            continue;
        }
        let refused = mounted_with(feature.set, feature.bit);
        match feature.access {
            Access::Refused => assert_eq!(refused.as_deref(), Some(feature.name)),
            _ => assert_eq!(refused, None, "{}", feature.name),
        }
    }
}

#[test]
fn unknown_features_mean_what_their_word_says() {
    assert_eq!(mounted_with(Set::Incompat, 21).as_deref(), Some("FEATURE_I21"));
    assert_eq!(mounted_with(Set::RoCompat, 21), None);
    assert_eq!(mounted_with(Set::Compat, 21), None);
}

fn mount_for_writing(cx: &mut Cx, device: Arc<MemoryDevice>) -> Result<Arc<Xfs>, MountError> {
    let queue = queue(cx, device);
    let pages = PageCache::new(cx.runtime(), PageCacheConfig::default());
    let options = MountOptions { read_only: false, ..MountOptions::default() };
    Xfs::mount(cx, &queue, &pages, options)
}

/// Goal: what cannot be written is refused by its name, and nothing was written by then. Method:
/// every feature that forbids writing, set on an empty file system.
#[test]
fn a_mount_for_writing_is_refused_before_anything_is_written() {
    for feature in KNOWN.iter().filter(|feature| feature.access != Access::ReadWrite) {
        let (set, bit) = (feature.set, feature.bit);
        in_world(move |cx| {
            let device = made_with(cx, set, bit);
            let before = device.snapshot();
            match mount_for_writing(cx, device.clone()) {
                Err(MountError::Unsupported(reason)) => {
                    assert_eq!(reason.name, feature.name);
                }
                Err(other) => panic!("{}: {other}", feature.name),
                Ok(_) => panic!("{} was mounted for writing", feature.name),
            }
            assert!(device.snapshot() == before, "{}: the device was written", feature.name);
        });
    }
}

/// Goal: mkfs.xfs of 2025 says unasked that files may exchange ranges; that allows an operation
/// which is not offered here, and changes nothing else. Method: names and content are written to
/// such an image; the kernel, which knows the bit, reads them; the repair tool, which need not, is
/// content with the image without it.
#[test]
fn files_are_written_where_ranges_may_be_exchanged() {
    let device = in_world(|cx| {
        let device = made_with(cx, Set::Incompat, 6);
        let fs = mount_for_writing(cx, device.clone()).expect("a mount");
        for n in 0..200u32 {
            let (name, node) = (format!("file-{n}"), NewNode::new(FileType::Regular, 0o640));
            let file = fs.create(cx, fs.root(), name.as_bytes(), &node).expect("create").ino;
            let text = name.repeat(n as usize);
            assert_eq!(fs.write(cx, file, 0, text.as_bytes()), Ok(text.len()));
        }
        fs.unmount(cx).expect("unmount");
        device
    });
    let image = testkit::image::write_device(&device);
    let tree = kernel_tree(image.path());
    assert_eq!(tree.len(), 201);
    assert_eq!(tree[&b"file-7"[..]].size, 42);
    in_world({
        let device = device.clone();
        move |cx| change(cx, &device, without_exchange)
    });
    let image = testkit::image::write_device(&device);
    xfs_repair(image.path()).expect("xfs_repair");
}

/// Goal: a file system whose log may hold intents of attributes is mounted and recovered, and a
/// clean unmount takes the bit away, as the kernel's does. Method: the bit set on a clean image and
/// on one with a dirty log, by us and by the kernel.
#[test]
fn a_clean_unmount_leaves_no_bits_of_the_log() {
    let bit_of = |image: &std::path::Path| {
        let args: [&dyn AsRef<std::ffi::OsStr>; 6] =
            [&"-r", &"-c", &"sb 0", &"-c", &"p features_log_incompat", &image];
        testkit::newest::run_ok("xfs_db", &args).trim().to_owned()
    };
    for dirty in [false, true] {
        let device = in_world(move |cx| {
            let device = made_with(cx, Set::LogIncompat, 0);
            if dirty {
                let fs = mount_for_writing(cx, device.clone()).expect("a mount");
                let node = NewNode::new(FileType::Regular, 0o640);
                fs.create(cx, fs.root(), b"in the log", &node).expect("create");
                fs.sync(cx).expect("sync");
                let cut = crate::world::loaded(&device.snapshot());
                fs.shutdown_hard();
                return cut;
            }
            device
        });
        let image = testkit::image::write_device(&device);
        assert_eq!(bit_of(image.path()), "features_log_incompat = 0x1");
        drop(testkit::judge::LoopMount::new(image.path(), "xfs", "rw").expect("a mount"));
        assert_eq!(bit_of(image.path()), "features_log_incompat = 0", "the kernel's unmount");
        let found = in_world({
            let device = device.clone();
            move |cx| {
                let fs = mount_for_writing(cx, device).expect("a mount");
                let found = fs.lookup(cx, fs.root(), b"in the log").is_ok();
                fs.unmount(cx).expect("unmount");
                found
            }
        });
        assert_eq!(found, dirty);
        let image = testkit::image::write_device(&device);
        assert_eq!(bit_of(image.path()), "features_log_incompat = 0");
        xfs_repair(image.path()).expect("xfs_repair");
    }
}

/// Clears the bit of exchanged ranges.
fn without_exchange(raw: &mut RawSuper) {
    raw.sb_features_incompat.set(raw.sb_features_incompat.get() & !(1 << 6));
}
