//! Damage of XFS with right checksums, each kind by itself: what a repair makes of it, and that
//! xfs_repair finds nothing afterwards.

mod support;
mod xfs_support;

use std::collections::BTreeMap;
use std::sync::Arc;

use base::Ino;
use device::MemoryDevice;
use repair::Plan;
use support::{apply, plan, write};
use testkit::content::{create, mkdir};
use testkit::manifest::Manifest;
use vfs::FileSystem;
use xfs::format::ag::{RawAgf, RawAgi};
use xfs::format::{AgHeader, Kind as Block, verifier};
use xfs_support::{KINDS, Kind, change_slot, manifest};

/// Where the data fork begins in an inode.
const FORK: usize = 176;

/// Repairs an image in one run; the judges find nothing, a second repair neither.
#[track_caller]
fn repaired(device: &Arc<MemoryDevice>) -> (Plan, Manifest) {
    let planned = plan(device).expect("a plan");
    assert_eq!(planned.left, [""; 0], "{:#?}", planned.findings);
    assert!(!planned.findings.is_empty(), "the damage is seen");
    let dir = tempfile::tempdir().expect("a directory");
    apply(&(device.clone() as _), &planned, dir.path());
    let file = testkit::image::write_device(device);
    testkit::judge::xfs_repair(file.path()).expect("sound");
    assert!(plan(device).expect("a plan").is_clean(), "a second repair finds nothing");
    let after = manifest(device).expect("it is mounted");
    (planned, after)
}

fn content(tree: &Manifest, path: &str) -> Option<String> {
    tree.get(path.as_bytes()).and_then(|entry| entry.sha256.clone())
}

fn kind(name: &str) -> &'static Kind {
    KINDS.iter().find(|kind| kind.name == name).expect("a known kind")
}

/// The paths whose entries are not as they were.
fn differences(before: &Manifest, after: &Manifest) -> Vec<String> {
    let all: BTreeMap<_, _> = before.iter().chain(after).collect();
    let differs = |path: &&Vec<u8>| before.get(*path) != after.get(*path);
    all.into_keys().filter(differs).map(|path| path.escape_ascii().to_string()).collect()
}

/// File `a` is given the blocks of file `b`, its checksum right. xfs_repair removes `b` or joins
/// both. Where reverse mappings say who owns what, both files have their own content again; where
/// nothing does, both stay, and the plan says that one of them may have the other's content.
#[test]
fn a_block_that_two_files_claim_belongs_to_the_one_that_the_reverse_map_names() {
    for name in ["xfs-rmap-4k", "xfs-parent-1k", "xfs-4k", "xfs-old-4k"] {
        let kind = kind(name);
        let (device, [a, b]) = kind.image_with(|cx, fs| {
            let root = fs.root();
            [1, 2].map(|number| {
                let ino = create(cx, fs, root, if number == 1 { "a" } else { "b" });
                write(cx, fs, ino, number, 0, 40_000);
                ino
            })
        });
        let before = manifest(&device).expect("sound");
        let mut theirs = Vec::new();
        change_slot(&device, b, |slot| theirs.extend_from_slice(&slot[FORK..FORK + 16]));
        change_slot(&device, a, |slot| slot[FORK..FORK + 16].copy_from_slice(&theirs));
        let (plan, after) = repaired(&device);
        assert_eq!(content(&after, "b"), content(&before, "b"), "{name}: b keeps its content");
        if kind.rmapbt {
            assert_eq!(content(&after, "a"), content(&before, "a"), "{name}: a has its own again");
            assert!(plan.is_safe(), "{name}: {:#?}", plan.findings);
        } else {
            assert_eq!(content(&after, "a"), content(&before, "b"), "{name}: a stays");
            let told = plan.findings.iter().any(|finding| finding.loss.is_some());
            assert!(told, "{name}: {:#?}", plan.findings);
        }
    }
}

/// The list of extents is cut to nothing, or its first extent lies elsewhere: reverse mappings give
/// it back.
#[test]
fn a_map_that_is_wrong_comes_back_from_the_reverse_mappings() {
    let kind = kind("xfs-rmap-4k");
    for damage in ["none", "elsewhere"] {
        let (device, ino) = kind.image_with(|cx, fs| {
            let ino = create(cx, fs, fs.root(), "file");
            for piece in 0..5u64 {
                write(cx, fs, ino, piece, piece * 65_536, 8192);
            }
            ino
        });
        let before = manifest(&device).expect("sound");
        change_slot(&device, ino, |slot| match damage {
            "none" => {
                slot[24..32].fill(0);
                slot[76..80].fill(0);
            }
            _ => slot[FORK + 13] ^= 0x40,
        });
        let (plan, after) = repaired(&device);
        assert_eq!(differences(&before, &after), [""; 0], "{damage}: {:#?}", plan.findings);
    }
}

/// The inode of a directory is zeroed: what it held is in `lost+found`; with parent pointers the
/// directory is made again, and holds it.
#[test]
fn what_a_lost_directory_held_is_found_again() {
    for name in ["xfs-4k", "xfs-parent-4k"] {
        let kind = kind(name);
        let (device, (dir, child)) = kind.image_with(|cx, fs| {
            let dir = mkdir(cx, fs, fs.root(), "dir");
            let child = create(cx, fs, dir, "child");
            write(cx, fs, child, 5, 0, 10_000);
            let below = mkdir(cx, fs, dir, "below");
            create(cx, fs, below, "deep");
            (dir, child)
        });
        let before = manifest(&device).expect("sound");
        change_slot(&device, dir, |slot| slot.fill(0));
        let (_, after) = repaired(&device);
        let new = match kind.compat {
            "7.2" => "dir/child".to_owned(),
            _ => format!("lost+found/{child}"),
        };
        assert_eq!(content(&after, &new), content(&before, "dir/child"), "{name}: {after:#?}");
        let deep = after.keys().filter(|path| path.ends_with(b"/deep")).count();
        assert_eq!(deep, 1, "{name}: {after:#?}");
    }
}

/// The block of names of a large directory is zeroed: parent pointers know the names.
#[test]
fn names_of_a_lost_block_come_back_from_parent_pointers() {
    let kind = kind("xfs-parent-1k");
    let (device, dir) = kind.image_with(|cx, fs| {
        let dir = mkdir(cx, fs, fs.root(), "dir");
        for n in 0..200 {
            create(cx, fs, dir, &format!("a-name-of-some-length-{n:03}"));
        }
        dir
    });
    let before = manifest(&device).expect("sound");
    let g = xfs_support::geometry(&device.snapshot()).expect("sound");
    let mut start = 0;
    change_slot(&device, dir, |slot| {
        start = g.linear(g.split(xfs::format::Extent::read(&slot[FORK..]).start));
    });
    device.write_at((start + 1) * 1024, &[0; 1024]);
    let (plan, after) = repaired(&device);
    assert_eq!(differences(&before, &after), [""; 0], "{:#?}", plan.findings);
    assert!(plan.is_safe() || !plan.findings.is_empty());
}

/// Directories above each other, with two parents, with a wrong `..`.
#[test]
fn directories_have_one_place_in_the_tree() {
    let kind = kind("xfs-4k");
    let (device, [outer, inner, other]) = kind.image_with(|cx, fs| {
        let outer = mkdir(cx, fs, fs.root(), "outer");
        let inner = mkdir(cx, fs, outer, "inner");
        create(cx, fs, inner, "file");
        let other = mkdir(cx, fs, fs.root(), "other");
        mkdir(cx, fs, other, "entry");
        [outer, inner, other]
    });
    // The entry of `other` names `inner` as well: small directories end with the inode's number.
    let number = |ino: Ino| (ino.0 as u32).to_be_bytes();
    let end = FORK + 6 + 3 + 5 + 1;
    change_slot(&device, other, |slot| slot[end..end + 4].copy_from_slice(&number(inner)));
    // `inner` says that it lies in `other`, which was made to hold it: that name stays.
    change_slot(&device, inner, |slot| slot[FORK + 2..FORK + 6].copy_from_slice(&number(other)));
    let (_, after) = repaired(&device);
    assert!(after.contains_key(&b"other/entry/file"[..]), "{after:#?}");
    assert!(!after.contains_key(&b"outer/inner"[..]), "{after:#?}");
    // Its own ancestor: the directory in `outer` names `outer`.
    let (device, [outer_again, lower]) = kind.image_with(|cx, fs| {
        let outer = mkdir(cx, fs, fs.root(), "outer");
        let lower = mkdir(cx, fs, outer, "lower");
        mkdir(cx, fs, lower, "entry");
        [outer, lower]
    });
    assert_eq!(outer_again, outer);
    change_slot(&device, lower, |slot| slot[end..end + 4].copy_from_slice(&number(outer)));
    let (_, after) = repaired(&device);
    assert!(after.contains_key(&b"outer/lower"[..]), "{after:#?}");
}

/// A log that cannot be read: no plan without a word; with `zero_log` it is made empty, the tree
/// stays, and the newest xfs_repair finds the sequence numbers of all metadata behind it.
#[test]
fn a_log_that_cannot_be_read_is_given_up_only_when_asked() {
    let kind = kind("xfs-4k");
    let device = kind.image();
    let before = manifest(&device).expect("sound");
    let g = xfs_support::geometry(&device.snapshot()).expect("sound");
    let (start, blocks) = (g.sector(g.log_start).bytes(), g.log_blocks);
    for block in 0..u64::from(blocks) {
        device.write_at(start + block * 4096, &[0x5a; 4096]);
    }
    let refused = plan(&device).expect_err("no plan").to_string();
    assert!(refused.contains("--zero-log"), "{refused}");
    let options = repair::PlanOptions { zero_log: true, ..Default::default() };
    let planned = rt::testing::world(|cx| {
        let queue = support::queue(cx, device.clone());
        repair::plan_with(cx, &queue, options, &mut |_| true).expect("a plan")
    });
    assert_eq!(planned.left, [""; 0], "{:#?}", planned.findings);
    assert!(!planned.is_safe(), "what the log held is lost");
    let dir = tempfile::tempdir().expect("a directory");
    apply(&(device.clone() as _), &planned, dir.path());
    let file = testkit::image::write_device(&device);
    testkit::judge::xfs_repair(file.path()).expect("sound");
    assert!(plan(&device).expect("a plan").is_clean());
    assert_eq!(differences(&before, &manifest(&device).expect("mounted")), [""; 0]);
}

/// Where only counters and links were wrong, all inodes were read twice more than by the checks,
/// and the btrees of the group were built anew.
#[test]
fn counters_and_links_are_stored_without_building_anything_anew() {
    for name in ["xfs-4k", "xfs-parent-1k"] {
        let (device, [file, dir]) = kind(name).image_with(|cx, fs| {
            let root = fs.root();
            [create(cx, fs, root, "a"), mkdir(cx, fs, root, "b")]
        });
        let (image, before) = (device.snapshot(), manifest(&device).expect("sound"));
        change_slot(&device, file, |slot| slot[16..20].copy_from_slice(&9u32.to_be_bytes()));
        change_slot(&device, dir, |slot| slot[16..20].copy_from_slice(&7u32.to_be_bytes()));
        let g = xfs_support::geometry(&image).expect("a sound image");
        for (ag, header, kind) in [(1, AgHeader::Agf, Block::Agf), (0, AgHeader::Agi, Block::Agi)] {
            let at = g.header_sector(ag, header).bytes() as usize;
            let mut sector = image[at..at + g.sector_size as usize].to_vec();
            match kind {
                Block::Agf => RawAgf::view_mut(&mut sector).expect("a sector").agf_freeblks.set(1),
                _ => RawAgi::view_mut(&mut sector).expect("a sector").agi_freecount.set(3),
            }
            verifier::update_crc(kind, &mut sector);
            device.write_at(at as u64, &sector);
        }
        let (plan, after) = repaired(&device);
        assert!(plan.is_safe() && after == before, "{name}: {:#?}", plan.findings);
        // The superblock was marked in between.
        let behind = g.block_size as usize;
        let now = device.snapshot();
        let other = (behind..now.len()).find(|&at| now[at] != image[at]);
        assert_eq!(other, None, "{name}: {:#?}", plan.findings);
    }
}
