//! What a mount does at every feature: refused by name, read-only, or taken.

mod support;

use std::sync::Arc;

use device::MemoryDevice;
use support::*;
use vfs::FileSystem;
use xfs::format::features::{Access, KNOWN, Set};
use xfs::format::{Kind, RawSuper, seal};
use xfs::{MkfsOptions, MountError};

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
            0 => {
                raw.sb_versionnum.set(raw.sb_versionnum.get() & !0xf | 4);
                return;
            }
            1 => {
                raw.sb_rblocks.set(1000);
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

/// Mounts an empty file system with one more bit; answers the error, if any.
fn mounted_with(set: Set, bit: u32) -> Option<String> {
    in_world(move |cx| {
        let device = Arc::new(MemoryDevice::new(64 << 20));
        let before = queue(cx, device.clone());
        let options = MkfsOptions { log_size: Some(12 << 20), ..MkfsOptions::default() };
        xfs::mkfs(cx, &before, &options).expect("mkfs");
        let mut page = before.read(cx, base::Sector(0), 4096).expect("memory");
        let sector = &mut page.make_mut()[..512];
        set_bit(RawSuper::view_mut(sector).expect("a sector"), set, bit);
        seal::reseal(Kind::Super, sector);
        before.write(cx, base::Sector(0), page, block::BioFlags::empty()).expect("memory");
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
        // These change what the superblock's other numbers or the metadata's UUIDs mean.
        if ["metauuid"].contains(&feature.name) {
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
