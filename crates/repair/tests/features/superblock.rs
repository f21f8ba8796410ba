//! Fields of the superblock and of descriptors that are wrong below a right checksum.

use ext4::format::GroupFlags;
use ext4::format::features::{Compat, Incompat, RoCompat};

use super::*;

/// Changes the superblock, with its checksum right again.
fn edit_super(device: &MemoryDevice, with: impl FnOnce(&mut RawSuper)) {
    let mut bytes = device.snapshot()[1024..2048].to_vec();
    let raw = RawSuper::view_mut(&mut bytes).expect("1024 bytes");
    with(raw);
    raw.set_checksum();
    device.write_at(1024, &bytes);
}

/// Changes a group's descriptor, with its checksum right again.
fn edit_group(device: &MemoryDevice, group: u32, with: impl FnOnce(&mut GroupDesc)) {
    let image = device.snapshot();
    let g = geometry(&image);
    let (block, offset) = g.desc_place(group);
    let at = block.0 as usize * g.block_size as usize + offset;
    let mut bytes = image[at..at + g.desc_size as usize].to_vec();
    let mut desc = GroupDesc::read(&bytes);
    with(&mut desc);
    desc.emit(&mut bytes, group, &g);
    device.write_at(at as u64, &bytes);
}

/// A wrong number in the superblock is that of a user's file: that file stays as it is, and the
/// right one is found.
#[test]
fn a_wrong_number_of_a_system_file_costs_no_file() {
    for kind in ["mke2fs-1k", "ext4-4k", "ext3-1k", "bigalloc-4k"] {
        let (device, before) = of(kind);
        let large = ino_of(&device, "deep0/file3");
        let raw = RawSuper::read(&device.snapshot()[1024..2048]).expect("1024 bytes");
        let numbers: [&dyn Fn(&mut RawSuper); 7] = [
            &|raw| raw.s_first_ino.set(large + 1),
            &|raw| raw.s_journal_inum.set(large),
            &|raw| raw.s_journal_inum.set(0),
            &|raw| raw.s_orphan_file_inum.set(large),
            &|raw| raw.s_usr_quota_inum.set(large),
            &|raw| raw.s_grp_quota_inum.set(large),
            &|raw| raw.s_journal_uuid[3] = 5,
        ];
        for (what, change) in numbers.into_iter().enumerate() {
            let device = Arc::new(device.fork());
            edit_super(&device, change);
            assert_eq!(repaired(&device), before, "{kind}, {what}");
            let now = RawSuper::read(&device.snapshot()[1024..2048]).expect("1024 bytes");
            let of = |raw: &RawSuper| {
                let quotas = [raw.s_usr_quota_inum, raw.s_grp_quota_inum].map(|ino| ino.get());
                (raw.s_first_ino, raw.s_journal_inum, raw.s_orphan_file_inum, quotas)
            };
            assert_eq!(of(&now), of(&raw), "{kind}, {what}");
        }
    }
}

/// Descriptors that contradict themselves: the counts and the bitmaps have it, and no file is lost.
#[test]
fn flags_of_groups_cost_no_file() {
    for kind in ["mke2fs-1k", "ext4-4k", "ext4-uninit", "ext2-1k", "ext3-1k"] {
        let (device, before) = of(kind);
        let g = geometry(&device.snapshot());
        for group in 0..g.groups_count.min(2) {
            let flags = |flag| move |desc: &mut GroupDesc| desc.flags.toggle(flag);
            let unused = |desc: &mut GroupDesc| desc.itable_unused ^= 0x1010;
            let changes: [&dyn Fn(&mut GroupDesc); 3] =
                [&flags(GroupFlags::INODE_UNINIT), &flags(GroupFlags::BLOCK_UNINIT), &unused];
            for (number, change) in changes.into_iter().enumerate() {
                let device = Arc::new(device.fork());
                edit_group(&device, group, change);
                let left = plan(&device).expect("a plan");
                assert!(left.left.is_empty(), "{kind}, {group}, {number}: {:?}", left.left);
                if !left.is_clean() {
                    assert_eq!(repaired(&device), before, "{kind}, {group}, {number}");
                }
            }
        }
    }
}

/// Room for descriptors that reaches over bitmaps and tables is taken back.
#[test]
fn too_much_room_for_descriptors_costs_no_file() {
    for kind in ["ext4-4k", "ext2-4k", "mke2fs-1k"] {
        let (device, before) = of(kind);
        let reserved = |device: &MemoryDevice| {
            let raw = RawSuper::read(&device.snapshot()[1024..2048]).expect("1024 bytes");
            raw.s_reserved_gdt_blocks.get()
        };
        let right = reserved(&device);
        edit_super(&device, |raw| raw.s_reserved_gdt_blocks.set(right + 3));
        assert_eq!(repaired(&device), before, "{kind}");
        assert_eq!(reserved(&device), right, "{kind}");
    }
}

/// One group, no checksums, no copy: a field that fits no other is set to what the rest fits.
#[test]
fn a_superblock_without_copies_is_restored() {
    let (device, before) = of("ext2-4k");
    assert_eq!(geometry(&device.snapshot()).groups_count, 1, "no copies");
    let changes: [&dyn Fn(&mut RawSuper); 10] = [
        &|raw| {
            raw.s_min_extra_isize.set(0xffff);
            raw.s_want_extra_isize.set(0xffff);
        },
        &|raw| raw.s_magic.set(0),
        &|raw| raw.s_rev_level.set(0x401),
        &|raw| raw.s_r_blocks_count_lo.set(!0),
        &|raw| raw.s_log_cluster_size.set(7),
        &|raw| raw.s_clusters_per_group.set(77),
        &|raw| raw.s_inode_size.set(0x190),
        &|raw| raw.s_first_data_block.set(1),
        &|raw| raw.s_log_block_size.set(0x42),
        &|raw| raw.s_inodes_count.set(0xffff),
    ];
    for (number, change) in changes.into_iter().enumerate() {
        let device = Arc::new(device.fork());
        edit_super(&device, change);
        assert_eq!(repaired(&device), before, "{number}");
    }
}

/// Features that inodes need are set again; those that the checksum of the superblock knows come
/// back, and nothing that belongs to them is given up.
#[test]
fn lost_features_come_back() {
    let features = |device: &MemoryDevice| {
        RawSuper::read(&device.snapshot()[1024..2048]).expect("1024 bytes").features()
    };
    for (kind, lost) in [("ext2-4k", RoCompat::LARGE_FILE), ("ext4-4k", RoCompat::all())] {
        let (device, before) = of(kind);
        let right = features(&device);
        let mut bytes = device.snapshot()[1024..2048].to_vec();
        let raw = RawSuper::view_mut(&mut bytes).expect("1024 bytes");
        raw.s_feature_ro_compat.set(raw.s_feature_ro_compat.get() & !lost.bits());
        device.write_at(1024, &bytes);
        assert_eq!(repaired(&device), before, "{kind}");
        assert_eq!(features(&device), right, "{kind}");
    }
    let (device, before) = of("ext2-4k");
    let right = features(&device);
    edit_super(&device, |raw| {
        raw.s_feature_compat.set(raw.s_feature_compat.get() & !Compat::EXT_ATTR.bits());
    });
    assert_eq!(repaired(&device), before);
    assert_eq!(features(&device), right);
}

/// A size of descriptors that cannot be, where none is used.
#[test]
fn an_unused_size_of_descriptors_is_cleared() {
    let (device, before) = of("ext2-4k");
    edit_super(&device, |raw| raw.s_desc_size.set(12));
    assert_eq!(repaired(&device), before);
}

/// A file system of the Hurd is not repaired; a sound one need not be.
#[test]
fn a_sound_image_is_not_refused() {
    let file = crate::support::by_mke2fs(8 << 20, "", &["-t", "ext2", "-o", "hurd"]);
    let image = std::fs::read(file.path()).expect("made");
    let sound = Arc::new(MemoryDevice::from_image(&image));
    assert!(plan(&sound).expect("a plan").is_clean());
    // Features count in revision 0, too.
    let old = crate::support::by_mke2fs(24 << 20, "", &["-t", "ext2", "-r", "0"]);
    let args: [&dyn AsRef<std::ffi::OsStr>; 3] = [&"-O", &"quota", &old.path()];
    assert!(testkit::judge::run("tune2fs", &args).status.success());
    let old = Arc::new(MemoryDevice::from_image(&std::fs::read(old.path()).expect("made")));
    assert!(plan(&old).expect("a plan").is_clean());
    let damaged = Arc::new(sound.fork());
    edit_super(&damaged, |raw| raw.s_free_inodes_count.set(7));
    assert!(matches!(plan(&damaged), Err(repair::RepairError::Feature(_))));
}

/// A bit of the features is lost in the first superblock, below a right checksum or none: the
/// copies know it, and the content fits them.
#[test]
fn the_copies_know_features_that_the_first_superblock_lost() {
    let bits = |raw: &RawSuper| raw.features();
    for kind in ["ext4-1k", "ext2-1k", "ext4-uninit", "ext3-1k"] {
        let (base, before) = of(kind);
        let right = bits(&RawSuper::read(&base.snapshot()[1024..2048]).expect("1024 bytes"));
        let lost =
            [Incompat::EXTENTS, Incompat::FILETYPE, Incompat::SIXTY_FOUR_BIT, Incompat::FLEX_BG];
        for bit in lost.into_iter().filter(|&bit| right.incompat.contains(bit)) {
            let device = Arc::new(base.fork());
            edit_super(&device, |raw| {
                raw.s_feature_incompat.set(raw.s_feature_incompat.get() & !bit.bits());
            });
            assert_eq!(repaired(&device), before, "{kind}: {bit:?}");
            let now = RawSuper::read(&device.snapshot()[1024..2048]).expect("1024 bytes");
            assert!(
                bits(&now).incompat.contains(bit) || bit == Incompat::FLEX_BG,
                "{kind}: {bit:?}"
            );
        }
    }
}
