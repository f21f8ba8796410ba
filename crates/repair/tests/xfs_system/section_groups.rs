//! A realtime section in groups: the files of the groups follow from what lies in them, and a file
//! that lost its map gets it back from their reverse maps.

use base::Ino;
use xfs::format::Extent;
use xfs::format::inode::{Flags, Flags2, MetadataType, fork_ranges};

use super::{GROUPS, Image, image};
use crate::xfs_support::{change_slot, geometry};
use crate::{FORK, RawInode};

/// A damage of an inode, with its name.
type Damage = (&'static str, fn(&mut [u8]));

fn raw(slot: &mut [u8]) -> &mut RawInode {
    RawInode::view_mut(slot).expect("a slot")
}

/// What is done to each inode of the section's files.
const DAMAGES: [Damage; 10] = [
    ("gone", |slot| slot.fill(0)),
    ("another kind", |slot| {
        let other = if raw(slot).di_onlink.get() == 7 { 8 } else { 7 };
        raw(slot).di_onlink.set(other);
    }),
    ("no kind", |slot| raw(slot).di_onlink.set(0)),
    ("another group", |slot| {
        let group = raw(slot).di_projid_lo.get();
        raw(slot).di_projid_lo.set(group + 1);
    }),
    ("a size", |slot| raw(slot).di_size.set(12345)),
    ("a larger size", |slot| raw(slot).di_size.set(1 << 30)),
    ("a directory", |slot| raw(slot).di_mode.set(0x4000)),
    ("a list of extents", |slot| raw(slot).di_format = 2),
    ("no root", |slot| {
        let end = fork_ranges(raw(slot).di_forkoff, slot.len()).0.end;
        slot[FORK..end].fill(0);
    }),
    ("an inode of users", |slot| {
        let flags = Flags2::from_bits_retain(raw(slot).di_flags2.get()) - Flags2::METADATA;
        raw(slot).di_flags2.set(flags.bits());
    }),
];

/// All inodes in use of a file system.
fn inodes(image: &Image) -> Vec<(Ino, Vec<u8>)> {
    let bytes = image.data.snapshot();
    let g = geometry(&bytes).expect("sound");
    let slots = bytes.chunks_exact(g.inode_size as usize);
    let slots = slots.filter(|slot| slot[..2] == *b"IN" && slot[4] == 3 && slot[2..4] != [0, 0]);
    let number = |slot: &[u8]| RawInode::view(slot).expect("a slot").di_ino.get();
    slots.map(|slot| (Ino(number(slot)), slot.to_vec())).collect()
}

/// The inodes of the section's files: bitmaps, summaries, btrees.
fn section_files(image: &Image) -> Vec<(Ino, MetadataType)> {
    let all = inodes(image);
    let held = all.iter().filter_map(|(ino, slot)| {
        let raw = RawInode::view(slot).expect("a slot");
        let metadata = Flags2::of(slot).contains(Flags2::METADATA);
        let mut kinds = MetadataType::OF_GROUP.into_iter().map(|(_, holds)| holds);
        let holds = kinds.find(|&holds| holds as u16 == raw.di_onlink.get())?;
        metadata.then_some((*ino, holds))
    });
    held.collect()
}

/// Every file of the groups may be damaged or gone: it is made anew.
#[test]
fn each_file_of_a_group_follows_from_its_content() {
    for (index, kind) in GROUPS.into_iter().enumerate() {
        let (base, _) = image(kind);
        let before = base.manifest();
        let files = section_files(&base);
        assert!(files.len() >= 2, "{kind:?}: {files:?}");
        // The first group's and the last one's.
        let ends = files.iter().take(4).chain(files.iter().rev().take(2));
        for (file, &(ino, holds)) in ends.enumerate() {
            for (what, damage) in DAMAGES.into_iter().skip((index + file) % 3).step_by(3) {
                let image = base.fork();
                change_slot(&image.data, ino, damage);
                image.repaired(&format!("{kind:?}: {holds:?} in {ino}: {what}"));
                image.same(&before, &format!("{kind:?}: {holds:?} in {ino}: {what}"));
            }
        }
        // All of them.
        let image = base.fork();
        for (ino, _) in files {
            change_slot(&image.data, ino, |slot| slot.fill(0));
        }
        image.repaired(&format!("{kind:?}: all gone"));
        image.same(&before, &format!("{kind:?}: all gone"));
    }
}

/// The directory of the groups is gone, and with it every name of their files.
#[test]
fn the_directory_of_the_groups_is_made_anew() {
    for kind in GROUPS {
        let (base, _) = image(kind);
        let before = base.manifest();
        let all = inodes(&base);
        let directory = |slot: &[u8]| {
            let raw = RawInode::view(slot).expect("a slot");
            Flags2::of(slot).contains(Flags2::METADATA) && raw.di_mode.get() & 0xf000 == 0x4000
        };
        let dirs: Vec<Ino> =
            all.iter().filter(|(_, slot)| directory(slot)).map(|(ino, _)| *ino).collect();
        assert_eq!(dirs.len(), 2, "{kind:?}: the root and \"rtgroups\"");
        for ino in dirs {
            let image = base.fork();
            change_slot(&image.data, ino, |slot| slot.fill(0));
            image.repaired(&format!("{kind:?}: directory {ino} gone"));
            image.same(&before, &format!("{kind:?}: directory {ino} gone"));
        }
    }
}

/// A file whose map is gone, or says what is another's, has what the reverse map names.
#[test]
fn reverse_maps_of_the_section_give_maps_back() {
    let lost: [Damage; 2] = [
        ("no extents", |slot| {
            raw(slot).di_big_nextents.set(0);
            slot[FORK..FORK + 96].fill(0);
        }),
        ("not in the section", |slot| {
            let flags = Flags::from_bits_retain(raw(slot).di_flags.get()) - Flags::REALTIME;
            raw(slot).di_flags.set(flags.bits());
        }),
    ];
    let mut pairs = 0;
    for kind in [GROUPS[0], GROUPS[1], GROUPS[2]] {
        let (base, inos) = image(kind);
        let before = base.manifest();
        for (what, damage) in lost {
            let image = base.fork();
            change_slot(&image.data, inos[5], damage);
            image.repaired(&format!("{kind:?}: {what}"));
            image.same(&before, &format!("{kind:?}: {what}"));
        }
        if inos.iter().any(|&ino| has_map(&base, ino)) {
            continue;
        }
        let image = base.fork();
        let mut start = None;
        change_slot(&image.data, inos[3], |slot| start = Some(Extent::read(&slot[FORK..]).start));
        change_slot(&image.data, inos[4], |slot| {
            let (own, start) = (Extent::read(&slot[FORK..]), start.expect("it was read"));
            assert_ne!(own.start, start, "two files");
            Extent { start, ..own }.write(&mut slot[FORK..FORK + 16]);
        });
        image.repaired(&format!("{kind:?}: another's extent"));
        image.same(&before, &format!("{kind:?}: another's extent"));
        pairs += 1;
    }
    assert!(pairs > 0, "extents in the inodes");
}

/// Whether a file's extents do not fit its inode.
fn has_map(image: &Image, ino: Ino) -> bool {
    let all = inodes(image);
    let slot = all.into_iter().find(|(other, _)| *other == ino).expect("in use").1;
    RawInode::view(&slot).expect("a slot").di_format == 3
}

/// Two files of the section share blocks, and one has lost the mark for that.
#[test]
fn files_that_share_blocks_of_the_section_are_marked() {
    for kind in [GROUPS[0], GROUPS[3]] {
        let (base, inos) = image(kind);
        let before = base.manifest();
        let image = base.fork();
        change_slot(&image.data, inos[19], |slot| {
            let flags = Flags2::from_bits_retain(raw(slot).di_flags2.get());
            assert!(flags.contains(Flags2::REFLINK), "it shares blocks");
            raw(slot).di_flags2.set((flags - Flags2::REFLINK).bits());
        });
        assert!(image.repaired(&format!("{kind:?}")).is_safe(), "the reference counts know it");
        image.same(&before, &format!("{kind:?}"));
    }
}
