//! Damage to what only some features have: what is kept of it.

use std::collections::BTreeMap;
use std::sync::Arc;

use base::Ino;
use device::MemoryDevice;
use ext4::format::mmp::Mmp;
use ext4::format::{At, Geometry, GroupDesc, InodeFlags, InodeValues, RawSuper};
use testkit::content::{create, mkdir};
use testkit::manifest::Manifest;
use vfs::{FileSystem, Namespace};

use crate::support::*;

mod dirdata;
mod superblock;
mod values;

fn of(name: &str) -> (Arc<MemoryDevice>, Manifest) {
    let kinds = KINDS.iter().chain(FEATURES);
    let device = kinds.filter(|kind| kind.name == name).map(Kind::image).next().expect("a kind");
    let before = manifest(&device).expect("a sound image");
    (device, before)
}

fn ino_of(device: &Arc<MemoryDevice>, name: &str) -> u32 {
    rt::testing::world(|cx| {
        let fs = mount(cx, Arc::new(device.fork())).expect("a sound image");
        let names = Namespace::new(fs);
        names.lstat(cx, format!("/{name}").as_bytes()).expect("the name").ino.0 as u32
    })
}

fn geometry(image: &[u8]) -> Geometry {
    Geometry::parse(&image[1024..2048], 0).expect("a sound superblock")
}

/// Changes an inode, with its checksum right again; answers what it was.
fn change(
    device: &MemoryDevice,
    ino: u32,
    with: impl FnOnce(&mut InodeValues, &mut [u8]),
) -> InodeValues {
    let mut image = device.snapshot();
    let g = geometry(&image);
    let place = slot_place(&image, &g, ino).expect("a sound descriptor");
    let slot = &mut image[place.clone()];
    let old = InodeValues::read(slot, &g);
    let mut values = old;
    with(&mut values, slot);
    values.emit(slot, Ino(ino.into()), &g);
    device.write_at(place.start as u64, slot);
    old
}

/// Sets a field of an inode's slot, whatever it holds, with the checksum right again.
fn set_word(device: &MemoryDevice, ino: u32, field: usize, word: u16) {
    let mut image = device.snapshot();
    let g = geometry(&image);
    let place = slot_place(&image, &g, ino).expect("a sound descriptor");
    let slot = &mut image[place.clone()];
    slot[field..field + 2].copy_from_slice(&word.to_le_bytes());
    let generation = InodeValues::generation_of(slot);
    g.checksums.inode_seed(Ino(ino.into()), generation).set_inode(slot);
    device.write_at(place.start as u64, slot);
}

/// The block that the first extent in an inode begins with.
fn first_block(values: &InodeValues) -> u64 {
    u32::from_le_bytes(values.block[20..24].try_into().expect("four bytes")).into()
}

/// Repairs, has e2fsck judge, and looks at the tree.
fn repaired(device: &Arc<MemoryDevice>) -> Manifest {
    let plan = plan(device).expect("a plan");
    assert!(plan.left.is_empty() && !plan.is_clean(), "{:?}", plan.left);
    let dir = tempfile::tempdir().expect("a directory");
    apply(&(device.clone() as _), &plan, dir.path());
    testkit::judge::e2fsck_device(device).expect("clean");
    manifest(device).expect("mounted")
}

fn flags_of(device: &MemoryDevice, ino: u32) -> InodeFlags {
    change(device, ino, |_, _| ()).flags
}

fn entry<'m>(tree: &'m Manifest, name: &str) -> &'m testkit::manifest::Entry {
    tree.get(name.as_bytes()).unwrap_or_else(|| panic!("{name} is there"))
}

/// A symbolic link whose target shrank to less than 60 bytes stayed in its block: the kernel reads
/// it out of the inode, and e2fsck calls it invalid. The check was silent.
#[test]
fn a_short_target_goes_into_the_inode() {
    let (device, _) = of("ext4-1k");
    let ino = ino_of(&device, "slow");
    let old = change(&device, ino, |values, _| values.size = 5);
    device.write_at(first_block(&old) * 1024, b"short\0");
    rt::testing::world(|cx| {
        let queue = queue(cx, device.clone());
        let report = ext4::check(cx, &queue, &Default::default()).expect("check runs");
        assert!(report.findings.iter().any(|f| f.rule == ext4::Rule::InodeSymlink));
    });
    assert_eq!(entry(&repaired(&device), "slow").target.as_deref(), Some("73686f7274"));
}

/// The size of a file with verity comes from its descriptor, and the tree behind its end stays.
#[test]
fn a_size_follows_from_the_verity_descriptor() {
    let (device, before) = of("verity-1k");
    let ino = ino_of(&device, "sealed");
    change(&device, ino, |values, _| values.size = 1000);
    let after = repaired(&device);
    assert!(flags_of(&device, ino).contains(InodeFlags::VERITY));
    assert_eq!(entry(&after, "sealed").sha256, entry(&before, "sealed").sha256);
}

/// A file whose descriptor is damaged keeps its content, without verity, and nothing lies behind
/// its end.
#[test]
fn a_file_with_a_damaged_descriptor_keeps_its_content() {
    let (device, before) = of("verity-1k");
    let ino = ino_of(&device, "sealed");
    let end = rt::testing::world(|cx| {
        let fs = mount(cx, Arc::new(device.fork())).expect("a sound image");
        let descriptor = fs.fiemap(cx, Ino(ino.into()), 0, i64::MAX as u64).expect("its map");
        let last = descriptor.last().expect("a part");
        last.content().expect("a place").0 * 512 + last.len
    });
    device.write_at(end - 1024, &[0; 1024]);
    let after = repaired(&device);
    assert!(!flags_of(&device, ino).contains(InodeFlags::VERITY));
    assert_eq!(entry(&after, "sealed").sha256, entry(&before, "sealed").sha256);
}

/// A directory in its inode whose attribute is gone keeps the names in the first 60 bytes; what the
/// others named is in `lost+found`.
#[test]
fn a_directory_in_its_inode_survives_the_loss_of_its_attribute() {
    let (device, _) = of("inline-1k");
    rt::testing::world(|cx| {
        let fs = mount(cx, device.clone()).expect("a sound image");
        let dir = mkdir(cx, &*fs, fs.root(), "few");
        for n in 0..6 {
            let ino = create(cx, &*fs, dir, &format!("file{n}"));
            write(cx, &*fs, ino, 9000 + n, 0, 70);
        }
        fs.unmount(cx).expect("unmount");
    });
    let before = manifest(&device).expect("a sound image");
    let ino = ino_of(&device, "few");
    change(&device, ino, |values, slot| {
        assert!(values.flags.contains(InodeFlags::INLINE_DATA));
        // The number of the prefix: the attribute is another one then.
        let entry = 128 + usize::from(values.extra_isize) + 4;
        assert_eq!(slot[entry + 1], 7, "system.data");
        slot[entry + 1] = 1;
    });
    let after = repaired(&device);
    assert_eq!(entry(&after, "few/file2").sha256, entry(&before, "few/file2").sha256);
    let contents = |tree: &Manifest| {
        let mut all: Vec<_> = tree.values().filter_map(|entry| entry.sha256.clone()).collect();
        all.sort();
        all
    };
    assert_eq!(contents(&after), contents(&before), "no file is lost");
    assert!(!after.contains_key(&b"few/file5"[..]));
}

/// A cluster that two files claim is copied for one of them: both can be read, and e2fsck finds the
/// clusters and the counts right.
#[test]
fn a_cluster_that_two_files_claim_is_copied() {
    let (device, before) = of("bigalloc-1k");
    let target = first_block(&change(&device, ino_of(&device, "large"), |_, _| ()));
    change(&device, ino_of(&device, "deep0/file4"), |values, _| {
        values.block[20..24].copy_from_slice(&(target as u32).to_le_bytes());
    });
    let after = repaired(&device);
    assert_eq!(entry(&after, "large").sha256, entry(&before, "large").sha256);
    assert!(after.contains_key(&b"deep0/file4"[..]));
}

/// A plain file that says it was encrypted is read as it is; an encrypted directory keeps all its
/// names, whose bytes are of any value.
#[test]
fn a_flag_of_encryption_without_a_context_is_dropped() {
    let (device, before) = of("encrypt-1k");
    let ino = ino_of(&device, "large");
    change(&device, ino, |values, _| values.flags |= InodeFlags::ENCRYPT);
    assert_eq!(repaired(&device), before);
}

/// Quota files are counted anew where an owner changed, and where one is damaged.
#[test]
fn quota_files_are_counted_anew() {
    for damaged in [false, true] {
        let (device, before) = of("bigalloc-4k");
        let ino = ino_of(&device, "large");
        change(&device, ino, |values, _| values.uid = 4711);
        if damaged {
            let file = change(&device, 4, |_, _| ());
            device.write_at(first_block(&file) * 4096 + 1024, &[0xff; 1024]);
        }
        let after = repaired(&device);
        assert_eq!(after.len(), before.len());
    }
}

/// Names that fast commits hold are there after a repair, though another structure is damaged.
#[test]
fn fast_commits_are_replayed_before_a_repair() {
    let (device, before) = of("fast-commit-1k");
    assert!(before.contains_key(&b"quick-last"[..]) && !before.contains_key(&b"quick3"[..]));
    // A free inode count in the superblock, whose checksum does not fit any more.
    device.write_at(1024 + 16, &[1, 2, 3, 4]);
    assert_eq!(repaired(&device), before);
}

/// What e2fsck complained about after a repair, or what a repair left: the high half of a
/// directory's size, a hash tree of one block, flags of a FIFO, and reserved inodes that hold what
/// they cannot. The check was silent about all but the flags.
#[test]
fn fields_that_were_passed_over_are_repaired() {
    let (device, before) = of("ext4-1k");
    let names = ["deep0/empty0", "deep0/empty1", "fifo", "fast", "slow"];
    let [sized, indexed, fifo, fast, slow] = names.map(|name| ino_of(&device, name));
    for ino in [sized, fast, slow, fifo] {
        set_word(&device, ino, 0x6e, 0x40);
    }
    change(&device, indexed, |values, _| values.flags |= InodeFlags::INDEX);
    change(&device, fifo, |values, _| values.flags |= InodeFlags::IMMUTABLE | InodeFlags::APPEND);
    for ino in [1, 6, 9] {
        change(&device, ino, |values, _| (values.mode, values.links) = (0o100_644, 1));
    }
    rt::testing::world(|cx| {
        let queue = queue(cx, device.clone());
        let report = ext4::check(cx, &queue, &Default::default()).expect("check runs");
        let found = |ino: u32| {
            let of_it = |at| matches!(at, At::Inode(i) | At::Block(i, _) if i.0 == u64::from(ino));
            report.findings.iter().any(|finding| of_it(finding.at))
        };
        assert!(
            [sized, indexed, fifo, fast, slow, 1, 6, 9].into_iter().all(found),
            "{:?}",
            report.findings
        );
    });
    assert_eq!(repaired(&device), before);
}

/// Light damage cost three walks over all inodes and names: it costs one.
#[test]
fn light_damage_is_repaired_by_the_counts_of_one_check() {
    let (device, before) = of("ext4-1k");
    let links = change(&device, ino_of(&device, "large"), |values, _| values.links = 9).links;
    // Both bitmaps of the first group, with wrong checksums.
    let image = device.snapshot();
    let g = geometry(&image);
    let (block, offset) = g.desc_place(0);
    let desc = GroupDesc::read(&image[block.0 as usize * 1024 + offset..]);
    for (bitmap, byte) in [(desc.block_bitmap, 0x5a), (desc.inode_bitmap, 0)] {
        device.write_at(bitmap * 1024 + 8, &[byte]);
    }
    let once = reads(&device, |cx, queue| {
        ext4::check(cx, queue, &Default::default()).expect("check runs");
    });
    let all = reads(&device, |cx, queue| {
        repair::plan(cx, queue, &mut |_| true).expect("a plan");
    });
    assert!(all < once * 3 / 2, "{all} reads, a check makes {once}");
    assert_eq!(repaired(&device), before);
    assert_eq!(change(&device, ino_of(&device, "large"), |_, _| ()).links, links);
}

/// The inode tables of all groups were zeroed, and so was what says which inodes were in use: the
/// journal's copies of the tables have them. Nothing is lost, and all of it is told.
#[test]
fn inode_tables_that_were_zeroed_come_back_from_the_journal() {
    for (name, bitmaps) in
        [("ext4-1k", false), ("ext4-1k", true), ("mke2fs-1k", true), ("ext3-1k", true)]
    {
        let (device, before) = of(name);
        let image = device.snapshot();
        let g = geometry(&image);
        let block = u64::from(g.block_size);
        for group in 0..g.groups_count {
            let (place, offset) = g.desc_place(group);
            let place = place.0 as usize * block as usize + offset;
            let bytes = &image[place..place + g.desc_size as usize];
            let desc = GroupDesc::parse(bytes, group, &g).expect("a sound descriptor");
            // The first block of the first table has the journal's own inode.
            let first = u64::from(group == 0) * 2;
            let len = (u64::from(g.itable_blocks) - first) * block;
            device.write_at((desc.inode_table + first) * block, &vec![0; len as usize]);
            if bitmaps {
                device.write_at(desc.inode_bitmap * block, &vec![0; block as usize]);
            }
        }
        let after = repaired(&device);
        // mke2fs made lost+found without the journal: the root gets a new one.
        let own = |name: &&Vec<u8>| !name.is_empty() && name[..] != b"lost+found"[..];
        let names = before.keys().chain(after.keys()).filter(own);
        let changed = names.filter(|name| before.get(*name) != after.get(*name));
        let changed: Vec<_> = changed.map(|name| String::from_utf8_lossy(name)).collect();
        assert!(changed.is_empty(), "{name}, bitmaps zeroed: {bitmaps}: {changed:?}");
    }
}

/// Names of inodes that are gone are removed; an inode that the journal still holds comes back.
#[test]
fn names_of_inodes_that_are_gone_are_removed() {
    for (name, journal) in [("ext4-1k", true), ("ext4-nojournal", false)] {
        let (device, mut before) = of(name);
        for name in ["big/a-rather-long-name-00008", "deep0/file1"] {
            let ino = ino_of(&device, name);
            let image = device.snapshot();
            let place = slot_place(&image, &geometry(&image), ino).expect("a sound descriptor");
            device.write_at(place.start as u64, &vec![0; place.len()]);
            if !journal {
                before.remove(name.as_bytes());
            }
        }
        assert_eq!(repaired(&device), before, "{name}");
    }
}

/// The block of multi-mount protection: damaged, somewhere else, and held by somebody.
#[test]
fn multi_mount_protection_is_repaired_and_respected() {
    let (device, before) = of("mmp-1k");
    let raw =
        |device: &MemoryDevice| RawSuper::read(&device.snapshot()[1024..2048]).expect("sound");
    let block = raw(&device).s_mmp_block.get();
    let damaged = Arc::new(device.fork());
    damaged.write_at(block * 1024, &[0x77; 300]);
    assert_eq!(repaired(&damaged), before);
    // In the inode table, and behind the end.
    for place in [60, 1 << 40] {
        let moved = Arc::new(device.fork());
        let mut bytes = moved.snapshot()[1024..2048].to_vec();
        let wrong = RawSuper::view_mut(&mut bytes).expect("1024 bytes");
        wrong.s_mmp_block.set(place);
        wrong.set_checksum();
        moved.write_at(1024, &bytes);
        assert_eq!(repaired(&moved), before);
        assert_ne!(raw(&moved).s_mmp_block.get(), place);
    }
    let held = Arc::new(device.fork());
    let mut page = held.snapshot()[block as usize * 1024..][..1024].to_vec();
    let seed = geometry(&held.snapshot()).checksums.seed;
    let mut mmp = Mmp::parse(&page, Some(seed)).expect("sound");
    (mmp.sequence, mmp.node) = (5, "another".into());
    mmp.emit(&mut page, Some(seed));
    held.write_at(block * 1024, &page);
    let refused = plan(&held).expect_err("somebody writes");
    assert!(refused.to_string().contains("another"), "{refused}");
}

/// The first blocks of two directories that were swapped go back, each by its `.`.
#[test]
fn first_blocks_of_directories_go_back() {
    for kind in ["ext2-1k", "ext4-4k", "ext4-uninit", "mke2fs-1k"] {
        let (device, before) = of(kind);
        let image = device.snapshot();
        let g = geometry(&image);
        let size = g.block_size as usize;
        let dirs = ["big", "deep0"].map(|name| ino_of(&device, name));
        let block_of = |ino: u32| {
            let values = change(&device, ino, |_, _| ());
            let mapped = match values.flags.contains(InodeFlags::EXTENTS) {
                true => first_block(&values),
                false => u32::from_le_bytes(values.block[..4].try_into().expect("four")).into(),
            };
            mapped as usize * size
        };
        let [one, other] = dirs.map(block_of);
        device.write_at(one as u64, &image[other..other + size]);
        device.write_at(other as u64, &image[one..one + size]);
        let planned = plan(&device).expect("a plan");
        assert!(planned.is_safe(), "{kind}: {:#?}", planned.findings);
        assert_eq!(repaired(&device), before, "{kind}");
    }
}

/// Blocks of the inode tables that were swapped go back, each by the checksums of its inodes. What
/// lies over another one is no file of that place: none has the content of another.
#[test]
fn blocks_of_inode_tables_go_back() {
    for kind in ["ext4-1k", "ext4-4k", "mke2fs-1k"] {
        let (device, before) = of(kind);
        let image = device.snapshot();
        let g = geometry(&image);
        let size = g.block_size as usize;
        let [one, other] = ["slow", "deep0"].map(|name| {
            let ino = ino_of(&device, name);
            crate::support::slot_place(&image, &g, ino).expect("a sound image").start / size * size
        });
        assert_ne!(one, other, "{kind}");
        let [first, second] = [one, other].map(|at| &image[at..at + size]);
        let swapped = Arc::new(device.fork());
        swapped.write_at(one as u64, second);
        swapped.write_at(other as u64, first);
        let planned = plan(&swapped).expect("a plan");
        assert!(planned.is_safe(), "{kind}: {:#?}", planned.findings);
        assert_eq!(repaired(&swapped), before, "{kind}");
        // One lies over the other, whole or torn, and is in its place too or not.
        for (gone, len) in [(false, size), (true, size), (false, size - 512), (true, size - 512)] {
            let copied = Arc::new(device.fork());
            copied.write_at(other as u64, &first[..len]);
            if gone {
                copied.write_at(one as u64, &vec![0; size]);
            }
            let after = repaired(&copied);
            if len == size || !gone {
                assert_eq!(entry(&after, "slow"), entry(&before, "slow"), "{kind}, {gone}");
            }
            for (path, now) in &after {
                let then = before.get(path);
                let kept = then.is_none_or(|then| then.sha256 == now.sha256);
                assert!(kept, "{kind}, {gone}: {path:?}");
            }
        }
    }
}

/// Sectors of the inode tables that were swapped, and a table that moved as a whole, go back, each
/// inode by its own checksum. A sector that lies over another costs the inodes below: none has the
/// content of another.
#[test]
fn sectors_of_inode_tables_go_back() {
    for kind in ["mke2fs-1k", "ext4-4k", "verity-64k"] {
        let (device, before) = of(kind);
        let image = device.snapshot();
        let g = geometry(&image);
        let slot = |ino: u32| crate::support::slot_place(&image, &g, ino).expect("sound");
        let [one, other] =
            ["slow", "deep0"].map(|name| slot(ino_of(&device, name)).start / 512 * 512);
        assert_ne!(one, other, "{kind}");
        let swapped = Arc::new(device.fork());
        swapped.write_at(one as u64, &image[other..other + 512]);
        swapped.write_at(other as u64, &image[one..one + 512]);
        let planned = plan(&swapped).expect("a plan");
        assert!(planned.is_safe(), "{kind}: {:#?}", planned.findings);
        assert_eq!(repaired(&swapped), before, "{kind}");
        let start = slot(11).start / 512 * 512;
        let rotated = Arc::new(device.fork());
        let len = 5 * 1024;
        rotated.write_at(start as u64, &image[start + 512..start + len]);
        rotated.write_at((start + len - 512) as u64, &image[start..start + 512]);
        let after = repaired(&rotated);
        assert!(after == before, "{kind}: {:?}", testkit::manifest::diff(&before, &after));
        let copied = Arc::new(device.fork());
        copied.write_at(other as u64, &image[one..one + 512]);
        let after = repaired(&copied);
        assert_eq!(entry(&after, "slow"), entry(&before, "slow"), "{kind}");
        for (path, now) in &after {
            let kept = before.get(path).is_none_or(|then| then.sha256 == now.sha256);
            assert!(kept, "{kind}: {path:?}");
        }
    }
}

/// A file whose mode became that of a device has content all the same, and keeps it; what makes no
/// sense as a file is no device either.
#[test]
fn no_device_is_made_of_a_file() {
    for kind in ["ext2-1k", "ext4-1k", "ext4-nojournal"] {
        let (device, before) = of(kind);
        let ino = ino_of(&device, "large");
        let mode = 0o20644;
        set_word(&device, ino, 0, mode);
        let after = repaired(&device);
        assert!(after == before, "{kind}: {}", testkit::manifest::diff(&before, &after));
        set_word(&device, ino, 0, mode);
        (40..100).step_by(2).for_each(|field| set_word(&device, ino, field, 0xf7f7));
        let after = repaired(&device);
        assert!(after.values().all(|entry| entry.kind != "char"), "{kind}");
        assert!(!after.contains_key(&b"large"[..]), "{kind}");
    }
}

/// The inode that reserves descriptors, damaged in a file system that has no such reserve: it is
/// emptied. It stayed, and nothing at all was repaired.
#[test]
fn the_resize_inode_of_no_reserve_is_emptied() {
    let (device, before) = of("meta-bg-1k");
    let image = device.snapshot();
    let g = geometry(&image);
    assert!(!g.features.compat.contains(ext4::format::features::Compat::RESIZE_INODE));
    let slot = crate::support::slot_place(&image, &g, 7).expect("sound");
    device.write_at(slot.start as u64, b"!!");
    assert_eq!(repaired(&device), before);
}

/// `resize_inode` beside `meta_bg`: two places for further descriptors, which Linux makes no larger
/// and e2fsck does not leave; a reserve without the feature. The check was silent. Method: a
/// reserve that gets `meta_bg`, the reverse, and one without its feature. Copies know better; where
/// there are none the reserve goes.
#[test]
fn two_places_for_descriptors_become_one() {
    let reserve = "resize_inode";
    for (kind, words) in [
        ("ext4-1k", "meta_bg"),
        ("meta-bg-1k", reserve),
        ("ext4-1k", "^resize_inode"),
        ("ext4-4k", "meta_bg"),
        ("ext4-4k", "^resize_inode"),
    ] {
        let (device, before) = of(kind);
        let right = geometry(&device.snapshot());
        let mut image = device.snapshot();
        let raw = RawSuper::view_mut(&mut image[1024..2048]).expect("1024 bytes");
        let mut features = raw.features();
        features.edit(words).expect("names");
        raw.set_features(&features);
        raw.set_checksum();
        device.write_at(1024, &image[1024..2048]);
        rt::testing::world(|cx| {
            let fs = mount(cx, Arc::new(device.fork())).expect("Linux mounts it, too");
            let more = fs.geometry().blocks_count + 5000;
            assert_eq!(fs.grow(cx, more), Err(base::Errno::EOPNOTSUPP));
            fs.unmount(cx).expect("unmount");
        });
        rt::testing::world(|cx| {
            let queue = queue(cx, device.clone());
            let report = ext4::check(cx, &queue, &Default::default()).expect("check runs");
            assert!(report.findings.iter().any(|f| f.rule == ext4::Rule::SuperReserve));
        });
        let after = repaired(&device);
        assert_eq!(testkit::manifest::diff(&before, &after), "", "{kind}");
        let g = geometry(&device.snapshot());
        assert_eq!(g.reserve_fault(), None, "{kind}");
        if right.groups_count > 1 {
            assert_eq!(g, right, "{kind}");
            continue;
        }
        assert_eq!(g.reserved_gdt_blocks, 0, "{kind}");
        assert!(!g.features.to_string().contains(reserve), "{kind}");
    }
}

/// The end of a list of attributes is four zero bytes: e2fsck takes two of them for none.
#[test]
fn the_end_of_a_list_of_attributes_is_put_right() {
    let (base, before) = of("ext2-1k");
    let image = base.snapshot();
    let is_list = |block: &&[u8]| block[..4] == ext4::format::xattr::MAGIC.to_le_bytes();
    let place = image.chunks(1024).position(|block| is_list(&block)).expect("attributes") * 1024;
    let mut at = place + 32;
    while image[at..at + 4] != [0; 4] {
        at += ext4::format::xattr::entry_len(image[at].into());
    }
    let device = Arc::new(base.fork());
    device.write_at(at as u64 + 2, &[1]);
    assert_eq!(repaired(&device), before);
}
