//! Damage of XFS with right checksums, each kind by itself: what a repair makes of it, and that
//! xfs_repair finds nothing afterwards.

#[path = "xfs_structures/shared.rs"]
mod shared;
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

/// A key in the root of a block map is not that of its child: nobody saw it, and the kernel refuses
/// to change such a file. A FIFO has a size. Both are put right, and cost nothing.
#[test]
fn numbers_that_no_reader_needs_are_put_right() {
    let kind = kind("xfs-4k");
    let (base, [file, fifo]) = kind.image_with(|cx, fs| {
        let file = create(cx, fs, fs.root(), "file");
        for piece in 0..600u64 {
            write(cx, fs, file, piece, piece * 8192, 4096);
        }
        let fifo = vfs::NewNode::new(vfs::FileType::Fifo, 0o644);
        [file, fs.create(cx, fs.root(), b"fifo", &fifo).expect("a FIFO").ino]
    });
    let before = manifest(&base).expect("sound");
    for (ino, byte) in [(file, FORK + 4 + 8 + 7), (fifo, 56 + 7)] {
        let device = Arc::new(base.fork());
        change_slot(&device, ino, |slot| slot[byte] ^= 0x10);
        let (plan, after) = repaired(&device);
        assert!(!plan.findings.is_empty() && plan.is_safe(), "{:#?}", plan.findings);
        assert_eq!(differences(&before, &after), [""; 0], "{byte}: {:#?}", plan.findings);
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

/// The plan that may give up the log.
fn plan_without_log(device: &Arc<MemoryDevice>) -> Plan {
    let options = repair::PlanOptions { zero_log: true, ..Default::default() };
    let planned = rt::testing::world(|cx| {
        let queue = support::queue(cx, device.clone());
        repair::plan_with(cx, &queue, options, &mut |_| true).expect("a plan")
    });
    assert_eq!(planned.left, [""; 0], "{:#?}", planned.findings);
    planned
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
    let planned = plan_without_log(&device);
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

/// Blocks of inodes that were swapped go back: each inode says its number under a right checksum.
/// What lies over another block of inodes is gone, and no file gets the content of another.
#[test]
fn blocks_of_inodes_that_were_swapped_go_back() {
    for name in ["xfs-4k", "xfs-rmap-4k", "xfs-parent-4k", "xfs-1k", "xfs-parent-1k"] {
        let kind = kind(name);
        let base = kind.image();
        let before = manifest(&base).expect("a sound image");
        let image = base.snapshot();
        let g = xfs_support::geometry(&image).expect("sound");
        let size = g.block_size as usize;
        let root = g.linear(g.ino_place(g.root_ino).0) as usize;
        // Blocks of one chunk.
        for [one, other] in [[1, 3], [2, 7]].map(|pair| pair.map(|block| (root + block) * size)) {
            let [first, second] = [one, other].map(|at| image[at..at + size].to_vec());
            assert!([&first, &second].iter().all(|block| block.starts_with(b"IN")), "{name}");
            let device = Arc::new(base.fork());
            device.write_at(one as u64, &second);
            device.write_at(other as u64, &first);
            let (plan, after) = repaired(&device);
            assert_eq!(differences(&before, &after), [""; 0], "{name}: {:#?}", plan.findings);
            assert!(plan.findings.iter().all(|finding| finding.safe), "{:#?}", plan.findings);
            let device = Arc::new(base.fork());
            device.write_at(one as u64, &second);
            let (plan, after) = repaired(&device);
            assert!(plan.findings.iter().any(|finding| finding.loss.is_some()), "{name}");
            for path in differences(&before, &after) {
                let kept =
                    content(&after, &path).is_none_or(|sum| Some(sum) == content(&before, &path));
                assert!(kept || path.starts_with("lost+found"), "{name}: {path}");
            }
        }
    }
}

/// Single inodes that were swapped, or a block of them that was rotated, go back: each says its
/// number under a right checksum. One that lies over another costs that one, and no file gets the
/// content of another.
#[test]
fn inodes_that_were_swapped_go_back() {
    for name in ["xfs-4k", "xfs-rmap-4k", "xfs-parent-4k", "xfs-1k"] {
        let kind = kind(name);
        let base = kind.image();
        let before = manifest(&base).expect("a sound image");
        let image = base.snapshot();
        let g = xfs_support::geometry(&image).expect("sound");
        let size = g.block_size as usize;
        let start = (g.linear(g.ino_place(g.root_ino).0) as usize + 4) * size;
        let slot = |index: usize| start + 512 * index..start + 512 * (index + 1);
        for [one, other] in [[0, 1], [1, 11]] {
            let device = Arc::new(base.fork());
            device.write_at(slot(one).start as u64, &image[slot(other)]);
            device.write_at(slot(other).start as u64, &image[slot(one)]);
            let (plan, after) = repaired(&device);
            assert_eq!(differences(&before, &after), [""; 0], "{name}: {:#?}", plan.findings);
            assert!(plan.is_safe(), "{name}: {:#?}", plan.findings);
            let device = Arc::new(base.fork());
            device.write_at(slot(one).start as u64, &image[slot(other)]);
            let (plan, after) = repaired(&device);
            assert!(plan.findings.iter().any(|finding| finding.loss.is_some()), "{name}");
            for path in differences(&before, &after) {
                let kept =
                    content(&after, &path).is_none_or(|sum| Some(sum) == content(&before, &path));
                assert!(kept || path.starts_with("lost+found"), "{name}: {path}");
            }
        }
        let device = Arc::new(base.fork());
        device.write_at(start as u64, &image[start + 512..start + 4096]);
        device.write_at(slot(7).start as u64, &image[slot(0)]);
        let (plan, after) = repaired(&device);
        assert_eq!(differences(&before, &after), [""; 0], "{name}: {:#?}", plan.findings);
    }
}

/// A free inode with blocks, flags or attributes, its checksum right: xfs_repair names it, and
/// Linux refuses to take it into use.
#[test]
fn a_free_inode_has_nothing() {
    let base = kind("xfs-4k").image();
    let before = manifest(&base).expect("a sound image");
    let image = base.snapshot();
    let g = xfs_support::geometry(&image).expect("sound");
    let mut slots = (0..image.len()).step_by(g.inode_size as usize);
    let is_free = |at: &usize| image[*at..].starts_with(b"IN\0\0");
    let free = slots.find(is_free).expect("a free inode");
    let free = Ino(u64::from_be_bytes(image[free + 152..free + 160].try_into().expect("eight")));
    for (field, at) in [("nblocks", 71), ("forkoff", 82), ("anextents", 81), ("aformat", 83)] {
        let device = Arc::new(base.fork());
        change_slot(&device, free, |slot| slot[at] = 1);
        let file = testkit::image::write_device(&device);
        testkit::judge::xfs_repair(file.path()).expect_err("it is damage");
        let (plan, after) = repaired(&device);
        assert_eq!(differences(&before, &after), [""; 0], "{field}");
        assert!(plan.is_safe(), "{field}: {:#?}", plan.findings);
    }
}

/// The attributes of a FIFO begin elsewhere, or `..` in a directory is no directory by its type.
#[test]
fn a_fork_of_a_fifo_and_the_type_of_a_dot_are_put_right() {
    let (base, fifo) = kind("xfs-parent-4k").image_with(|cx, fs| {
        let dir = mkdir(cx, fs, fs.root(), "dir");
        for n in 0..60 {
            create(cx, fs, dir, &format!("a-rather-long-name-{n}"));
        }
        let new = vfs::NewNode::new(vfs::FileType::Fifo, 0o600);
        fs.create(cx, dir, b"fifo", &new).expect("a FIFO").ino
    });
    let before = manifest(&base).expect("a sound image");
    let device = Arc::new(base.fork());
    change_slot(&device, fifo, |slot| slot[82] = 3);
    let (plan, after) = repaired(&device);
    assert_eq!(differences(&before, &after), [""; 0], "{:#?}", plan.findings);
    let image = base.snapshot();
    let mut read = xfs_support::metadata(&base).into_iter().map(|block| block as usize * 4096);
    let block = read.find(|&at| image[at..].starts_with(b"XDB3")).expect("a block of names");
    // The entries of `.` and `..`: eight bytes, the length of the name, the name, the type.
    for at in [64 + 10, 80 + 11] {
        let device = Arc::new(base.fork());
        let mut piece = image[block..block + 4096].to_vec();
        assert_eq!(piece[at], 2);
        piece[at] = 7;
        verifier::update_crc(Block::DirBlock, &mut piece);
        device.write_at(block as u64, &piece);
        let file = testkit::image::write_device(&device);
        testkit::judge::xfs_repair(file.path()).expect_err("it is damage");
        let (plan, after) = repaired(&device);
        assert_eq!(differences(&before, &after), [""; 0], "{at}: {:#?}", plan.findings);
    }
}

/// Blocks of a map whose neighbours are wrong: Linux goes from one to the next. The map is written
/// anew.
#[test]
fn neighbours_in_a_map_are_put_right() {
    let (base, _) = kind("xfs-4k").image_with(|cx, fs| {
        let file = create(cx, fs, fs.root(), "file");
        (0..600).for_each(|n| write(cx, fs, file, n, n * 8192, 100));
    });
    let before = manifest(&base).expect("a sound image");
    let image = base.snapshot();
    let read = xfs_support::metadata(&base).into_iter().map(|block| block as usize * 4096);
    let leaves: Vec<usize> = read.filter(|&at| image[at..].starts_with(b"BMA3")).collect();
    assert!(leaves.len() > 1, "{leaves:?}");
    for (index, &leaf) in leaves.iter().enumerate() {
        for (at, value) in [(8, 7u64), (16, 7), (16, u64::MAX)] {
            let device = Arc::new(base.fork());
            let mut block = image[leaf..leaf + 4096].to_vec();
            block[at..at + 8].copy_from_slice(&value.to_be_bytes());
            if block == image[leaf..leaf + 4096] {
                continue;
            }
            verifier::update_crc(Block::Bmap, &mut block);
            device.write_at(leaf as u64, &block);
            let (plan, after) = repaired(&device);
            let text = format!("leaf {index}, {at}: {:#?}", plan.findings);
            assert_eq!(differences(&before, &after), [""; 0], "{text}");
            assert!(plan.is_safe(), "{text}");
        }
    }
}

/// Fields that no name and no file depends on, and that Linux looks at: free realtime extents
/// without a section, the unused ranges of a directory, what is used of a leaf of attributes.
#[test]
fn fields_that_linux_refuses_are_found() {
    let (base, ()) = kind("xfs-4k").image_with(|cx, fs| {
        let dir = mkdir(cx, fs, fs.root(), "dir");
        for n in 0..40 {
            let file = create(cx, fs, dir, &format!("a-rather-long-name-{n}"));
            for n in 0..8 {
                let (name, value) = (format!("user.{n}"), vec![b'a'; 60]);
                fs.setxattr(cx, file, name.as_bytes(), &value, Default::default()).expect("set");
            }
        }
        fs.unlink(cx, dir, b"a-rather-long-name-7").expect("unlink");
    });
    let before = manifest(&base).expect("a sound image");
    let image = base.snapshot();
    let owned = |at: usize, magic: &[u8]| {
        let read = xfs_support::metadata(&base).into_iter().map(|block| block as usize * 4096);
        let mut fitting = read.into_iter().filter(|&block| image[block + at..].starts_with(magic));
        fitting.next().expect("such a block")
    };
    let (block, leaf) = (owned(0, b"XDB3"), owned(8, &[0x3b, 0xee]));
    let super_block = (0, 512, Block::Super);
    let cases = [
        (super_block, 159),
        ((block, 4096, Block::DirBlock), 49),
        ((leaf, 4096, Block::AttrLeaf), 59),
        ((leaf, 4096, Block::AttrLeaf), 61),
    ];
    for ((start, len, kind), at) in cases {
        let device = Arc::new(base.fork());
        let mut piece = image[start..start + len].to_vec();
        piece[at] ^= 0x09;
        verifier::update_crc(kind, &mut piece);
        device.write_at(start as u64, &piece);
        let file = testkit::image::write_device(&device);
        testkit::judge::xfs_repair(file.path()).expect_err("it is damage");
        let (plan, after) = repaired(&device);
        assert_eq!(differences(&before, &after), [""; 0], "{kind:?} {at}: {:#?}", plan.findings);
    }
}

/// A leaf of attributes whose free ranges cannot be: Linux does not read it, or the newest
/// xfs_repair clears the attributes. It is written anew with all of them.
#[test]
fn free_ranges_of_attributes_cost_none() {
    let (base, _) = kind("xfs-4k").image_with(|cx, fs| {
        let file = create(cx, fs, fs.root(), "file");
        for n in 0..20 {
            let (name, value) = (format!("user.{n}"), vec![b'a'; 60 + n]);
            fs.setxattr(cx, file, name.as_bytes(), &value, Default::default()).expect("setxattr");
        }
    });
    let before = manifest(&base).expect("a sound image");
    let image = base.snapshot();
    let read = xfs_support::metadata(&base).into_iter().map(|block| block as usize * 4096);
    let is_leaf = |at: &usize| image[at + 8..at + 10] == [0x3b, 0xee] && image[at + 57] > 1;
    let leaf = read.into_iter().find(is_leaf).expect("a leaf");
    for (base_of, size) in [(2u16, 0u16), (4, 4), (4092, 8), (84, 4)] {
        let device = Arc::new(base.fork());
        let mut block = image[leaf..leaf + 4096].to_vec();
        block[68..70].copy_from_slice(&base_of.to_be_bytes());
        block[70..72].copy_from_slice(&size.to_be_bytes());
        verifier::update_crc(Block::AttrLeaf, &mut block);
        device.write_at(leaf as u64, &block);
        let file = testkit::image::write_device(&device);
        let judged = testkit::judge::xfs_repair(file.path());
        assert!(judged.is_err(), "{size} bytes at {base_of} are damage");
        let (plan, after) = repaired(&device);
        assert_eq!(differences(&before, &after), [""; 0], "{base_of}: {:#?}", plan.findings);
    }
}

/// One record of the reverse map with a wrong field and a right checksum, or a group's records of
/// inodes: the record is wrong, and no file loses anything.
#[test]
fn a_wrong_record_costs_no_file() {
    let kind = kind("xfs-rmap-4k");
    let base = kind.image();
    let before = manifest(&base).expect("a sound image");
    let image = base.snapshot();
    let g = xfs_support::geometry(&image).expect("sound");
    let agf_of = |ag: u32| {
        let at = g.header_sector(ag, AgHeader::Agf).bytes() as usize;
        *RawAgf::view(&image[at..at + 512]).expect("a sector")
    };
    let one_leaf = |&ag: &u32| agf_of(ag).agf_rmap_level.get() == 1;
    let ag = (0..g.ag_count()).find(one_leaf).expect("a group whose root is a leaf");
    let agf = agf_of(ag);
    let root = xfs::format::AgBlock { ag, block: agf.agf_rmap_root.get() };
    let size = g.block_size as usize;
    let at = g.linear(root) as usize * size;
    let count = usize::from(u16::from_be_bytes([image[at + 6], image[at + 7]]));
    let mut hit = 0;
    for index in (0..count).step_by(4) {
        let record = 56 + 24 * index;
        let owner = u64::from_be_bytes(image[at + record + 8..][..8].try_into().expect("eight"));
        if owner >= 1 << 62 {
            continue;
        }
        let metadata = [3u64, 4, 7].map(u64::wrapping_neg);
        let owners = [999_999, g.root_ino.0].into_iter().chain(metadata).map(|wrong| (8, wrong));
        for (field, wrong) in owners.chain([(16, 77)]) {
            let device = Arc::new(base.fork());
            let mut block = image[at..at + size].to_vec();
            let place = record + field;
            block[place..place + 8].copy_from_slice(&u64::to_be_bytes(wrong));
            verifier::update_crc(Block::Rmap, &mut block);
            device.write_at(at as u64, &block);
            let (_, after) = repaired(&device);
            assert_eq!(differences(&before, &after), [""; 0], "record {index}, {field}: {wrong}");
            hit += 1;
        }
    }
    assert!(hit > 10, "{hit}");
}

/// A record of the inode btree that says another place, its checksum right: the chunk is where its
/// inodes are.
#[test]
fn a_chunk_is_where_its_inodes_are() {
    for name in ["xfs-4k", "xfs-rmap-4k", "xfs-1k"] {
        let base = kind(name).image();
        let before = manifest(&base).expect("a sound image");
        let image = base.snapshot();
        let g = xfs_support::geometry(&image).expect("sound");
        let size = g.block_size as usize;
        for ag in 0..g.ag_count() {
            let agi = g.header_sector(ag, AgHeader::Agi).bytes() as usize;
            let agi = *RawAgi::view(&image[sector(agi)]).expect("a sector");
            let root = xfs::format::AgBlock { ag, block: agi.agi_root.get() };
            let at = g.linear(root) as usize * size;
            let mut block = image[at..at + size].to_vec();
            let count = usize::from(u16::from_be_bytes([block[6], block[7]]));
            let last = 56 + 16 * (count - 1);
            // Into the headers of the group, and behind the last one.
            let right = block[last..last + 4].to_vec();
            let others = [64, u32::MAX - 63, 6400].map(u32::to_be_bytes);
            for start in others.into_iter().filter(|start| right != start) {
                let device = Arc::new(base.fork());
                block[last..last + 4].copy_from_slice(&start);
                verifier::update_crc(Block::Inobt, &mut block);
                device.write_at(at as u64, &block);
                let (_, after) = repaired(&device);
                assert_eq!(differences(&before, &after), [""; 0], "{name}: group {ag}, {start:?}");
            }
        }
    }
}

/// The sector at a byte.
fn sector(at: usize) -> std::ops::Range<usize> {
    at..at + 512
}

/// Blocks of directories that are larger than those of the file system, swapped: they go back.
#[test]
fn large_blocks_of_directories_go_back() {
    let base = kind("xfs-dir16k-4k").image();
    let before = manifest(&base).expect("a sound image");
    let image = base.snapshot();
    let size = 16384;
    let is_data =
        |at: &usize| [*b"XDB3", *b"XDD3"].iter().any(|magic| image[*at..].starts_with(magic));
    let blocks: Vec<usize> = (0..image.len() - size).step_by(4096).filter(is_data).collect();
    assert!(blocks.len() > 1, "{blocks:?}");
    for pair in blocks.windows(2) {
        let (one, other) = (pair[0], pair[1]);
        let device = Arc::new(base.fork());
        device.write_at(one as u64, &image[other..other + size]);
        device.write_at(other as u64, &image[one..one + size]);
        let (plan, after) = repaired(&device);
        assert_eq!(differences(&before, &after), [""; 0], "{:#?}", plan.findings);
        assert!(plan.findings.iter().all(|finding| finding.safe), "{:#?}", plan.findings);
    }
}

/// A block of inodes of another group lies over one: the inodes below are gone, those above stay
/// where they are, and nothing is made of the copy.
#[test]
fn a_copy_of_other_inodes_is_no_inode() {
    for name in ["xfs-rmap-4k", "xfs-parent-4k"] {
        let base = kind(name).image();
        let image = base.snapshot();
        let is_inodes = |at: &usize| image[*at..].starts_with(b"IN") && image[at + 4] == 3;
        let blocks: Vec<usize> = (0..image.len()).step_by(4096).filter(is_inodes).collect();
        let before = manifest(&base).expect("a sound image");
        for (index, &at) in blocks.iter().enumerate().step_by(3) {
            let from = blocks[(index * 7 + 5) % blocks.len()];
            if from == at {
                continue;
            }
            let device = Arc::new(base.fork());
            device.write_at(at as u64, &image[from..from + 4096]);
            let (plan, after) = repaired(&device);
            let odd = plan.findings.iter().find(|finding| finding.rule == "inode-extents");
            assert!(odd.is_none(), "{name}: {from} over {at}: {odd:?}");
            for path in differences(&before, &after)
                .iter()
                .filter(|path| before.contains_key(path.as_bytes()))
            {
                let (was, is) = (content(&before, path), content(&after, path));
                assert!(is.is_none() || is == was, "{name}: {from} over {at}: {path}");
            }
        }
    }
}

/// No program can name an attribute with a zero byte in its name: it goes.
#[test]
fn attributes_without_a_name_go() {
    for name in ["xfs-4k", "xfs-parent-1k"] {
        let base = kind(name).image();
        let before = manifest(&base).expect("a sound image");
        let image = base.snapshot();
        let size = xfs_support::geometry(&image).expect("sound").block_size as usize;
        let text = b"number-7";
        let name_in =
            |at: usize| image[at..at + size].windows(text.len()).position(|bytes| bytes == text);
        let leaf = (0..image.len()).step_by(size).find_map(|at| {
            let is_leaf = image[at + 8..].starts_with(&[0x3b, 0xee]);
            is_leaf.then(|| name_in(at)).flatten().map(|place| (at, place))
        });
        let (at, place) = leaf.expect("a leaf of attributes");
        let mut block = image[at..at + size].to_vec();
        block[place + 3] = 0;
        verifier::update_crc(Block::AttrLeaf, &mut block);
        let device = Arc::new(base.fork());
        device.write_at(at as u64, &block);
        let (_, after) = repaired(&device);
        assert_eq!(differences(&before, &after), ["attributes"], "{name}");
    }
}

/// A device, and it again after more work, both unmounted.
fn before_and_after_work(kind: &Kind) -> [Arc<MemoryDevice>; 2] {
    let old = kind.image();
    let new = Arc::new(old.fork());
    rt::testing::world(|cx| {
        let fs = xfs_support::mount(cx, new.clone()).expect("a sound image");
        let dir = mkdir(cx, &*fs, fs.root(), "new");
        for n in 0..150u64 {
            let ino = create(cx, &*fs, dir, &format!("file{n}"));
            write(cx, &*fs, ino, n, 0, 5000);
        }
        for n in (0..150).step_by(2) {
            fs.unlink(cx, dir, format!("file{n}").as_bytes()).expect("unlink");
        }
        fs.unmount(cx).expect("unmount");
    });
    [old, new]
}

/// One block of free space or of the reverse map keeps its old content: it says that new inodes lie
/// in free blocks, or in those of others. The other structures know better, and no file is lost.
#[test]
fn a_lost_write_of_a_btree_costs_no_file() {
    for name in ["xfs-4k", "xfs-rmap-4k", "xfs-parent-1k"] {
        let [old, new] = before_and_after_work(kind(name));
        let before = manifest(&new).expect("sound");
        let (was, is) = (old.snapshot(), new.snapshot());
        let g = xfs_support::geometry(&is).expect("sound");
        let size = g.block_size as usize;
        let kinds = [Block::FreeByBlock, Block::FreeBySize, Block::Rmap];
        let mut hit = 0;
        for at in (0..is.len()).step_by(size) {
            let of_tree = Block::recognise(&is[at..at + size]).filter(|kind| kinds.contains(kind));
            if of_tree.is_none() || of_tree != Block::recognise(&was[at..at + size]) {
                continue;
            }
            if was[at..at + size] != is[at..at + size] {
                let device = Arc::new(new.fork());
                device.write_at(at as u64, &was[at..at + size]);
                let (_, after) = repaired(&device);
                assert_eq!(differences(&before, &after), [""; 0], "{name}, {of_tree:?} at {at}");
                hit += 1;
            }
        }
        assert!(hit >= 2, "{name}: {hit} blocks");
    }
}

/// A log with changes to a block of inodes that is gone: nothing is planned without `zero_log`;
/// with it all else that the log holds is replayed.
#[test]
fn a_log_is_replayed_around_what_is_gone() {
    let kind = kind("xfs-4k");
    let [_, device] = before_and_after_work(kind);
    let mut inos = Vec::new();
    let dirty = Arc::new(device.fork());
    let mut image = rt::testing::world(|cx| {
        let fs = xfs_support::mount(cx, dirty.clone()).expect("a sound image");
        let dir = fs.lookup(cx, fs.root(), b"new").expect("the directory").ino;
        for n in (1..150).step_by(2) {
            let ino = fs.lookup(cx, dir, format!("file{n}").as_bytes()).expect("a file").ino;
            let mode = vfs::SetAttr { mode: Some(0o640), ..Default::default() };
            fs.setattr(cx, ino, &mode).expect("chmod");
            inos.push(ino);
        }
        fs.sync(cx).expect("sync");
        let image = dirty.snapshot();
        fs.unmount(cx).expect("unmount");
        image
    });
    let before = manifest(&Arc::new(MemoryDevice::from_image(&image))).expect("replayed");
    let g = xfs_support::geometry(&image).expect("sound");
    let place = g.linear(g.ino_place(inos[20]).0) as usize * g.block_size as usize;
    image[place..place + g.block_size as usize].fill(0);
    let damaged = Arc::new(MemoryDevice::from_image(&image));
    let refused = plan(&damaged).expect_err("no plan").to_string();
    assert!(refused.contains("--zero-log"), "{refused}");
    let planned = plan_without_log(&damaged);
    let dir = tempfile::tempdir().expect("a directory");
    apply(&(damaged.clone() as _), &planned, dir.path());
    let file = testkit::image::write_device(&damaged);
    testkit::judge::xfs_repair(file.path()).expect("sound");
    let after = manifest(&damaged).expect("mounted");
    let kept = |number: usize| after.get(format!("new/file{number}").as_bytes());
    let of_block = g.inodes_per_block() as usize;
    let there = (1..150).step_by(2).filter(|&number| kept(number).is_some()).count();
    assert!((75 - of_block..75).contains(&there), "{there} of 75 files");
    for (path, entry) in after.iter().filter(|(path, _)| path.starts_with(b"new/")) {
        assert_eq!((entry.mode, before.get(path)), (0o640, Some(entry)), "{path:?}");
    }
}

/// The first block of a clean log is gone: the newest xfs_repair takes the log for none. Nothing is
/// lost, so the log is made empty anew.
#[test]
fn the_first_block_of_a_clean_log_comes_back() {
    for name in ["xfs-4k", "xfs-rmap-4k"] {
        let base = kind(name).image();
        let before = manifest(&base).expect("sound");
        let g = xfs_support::geometry(&base.snapshot()).expect("sound");
        for byte in [0u8, 0x5a] {
            let device = Arc::new(base.fork());
            device.write_at(g.sector(g.log_start).bytes(), &[byte; 300]);
            let (plan, after) = repaired(&device);
            assert!(plan.is_safe(), "{name}: {:#?}", plan.findings);
            let rules = plan.findings.iter().map(|found| found.rule).collect::<Vec<_>>();
            assert!(rules.contains(&"log-start"), "{name}, {byte}: {rules:?}");
            assert_eq!(differences(&before, &after), [""; 0], "{name}, {byte}");
        }
    }
}

/// The number of an inode in an entry is damaged, below a right checksum or a wrong one. The name
/// can be read, and one inode that looks alike lacks a name: it gets that one.
#[test]
fn a_name_with_a_damaged_number_is_kept() {
    for name in ["xfs-4k", "xfs-1k"] {
        let (base, _) = kind(name).image_with(|cx, fs| {
            let dir = mkdir(cx, fs, fs.root(), "dir");
            for n in 0..60u64 {
                let ino = create(cx, fs, dir, &format!("name-{n:02}"));
                write(cx, fs, ino, n, 0, 3000);
            }
            mkdir(cx, fs, dir, "directory");
        });
        let before = manifest(&base).expect("sound");
        let image = base.snapshot();
        let g = xfs_support::geometry(&image).expect("sound");
        let size = g.block_size as usize;
        for wanted in ["name-33", "directory"] {
            let pattern = [&[wanted.len() as u8][..], wanted.as_bytes()].concat();
            let len = g.dir_block_size as usize;
            let mut places = (0..image.len() - len).step_by(size).filter_map(|at| {
                let block = &image[at..at + len];
                let kind = Block::recognise(block)?;
                let found = block.windows(pattern.len()).position(|part| part == pattern)?;
                matches!(kind, Block::DirBlock | Block::DirData).then_some((at, kind, found - 8))
            });
            let (at, kind, entry) = places.next_back().expect("a block with the name");
            for sound in [false, true] {
                let device = Arc::new(base.fork());
                let mut block = image[at..at + len].to_vec();
                (block[entry + 6], block[entry + 7]) = (0x6a, 0x41);
                if sound {
                    verifier::update_crc(kind, &mut block);
                }
                device.write_at(at as u64, &block);
                let (plan, after) = repaired(&device);
                assert!(!plan.is_safe(), "a guess");
                assert_eq!(differences(&before, &after), [""; 0], "{name}, {wanted}, {sound}");
            }
        }
    }
}

/// A run of blocks that ends behind 2^32, below a right checksum, in a btree of a group: no sum
/// overflows, and no file loses anything.
#[test]
fn runs_without_end_cost_no_file() {
    let kind = kind("xfs-rmap-4k");
    let base = kind.image();
    let before = manifest(&base).expect("sound");
    let image = base.snapshot();
    let size = 4096;
    let kinds = [Block::FreeByBlock, Block::FreeBySize, Block::Rmap, Block::Refcount];
    let mut seen = std::collections::BTreeSet::new();
    for at in (0..image.len()).step_by(size) {
        let block = &image[at..at + size];
        let Some(of) = Block::recognise(block).filter(|kind| kinds.contains(kind)) else {
            continue;
        };
        let leaf = block[4..6] == [0, 0] && block[6..8] != [0, 0];
        if !leaf || !seen.insert(format!("{of:?}")) {
            continue;
        }
        for (field, value) in [(0, 0xffff_fff0u32), (4, 0xffff_ff00)] {
            let device = Arc::new(base.fork());
            let mut block = block.to_vec();
            block[56 + field..60 + field].copy_from_slice(&value.to_be_bytes());
            verifier::update_crc(of, &mut block);
            device.write_at(at as u64, &block);
            let (_, after) = repaired(&device);
            assert_eq!(differences(&before, &after), [""; 0], "{of:?}, {field}");
        }
    }
    assert!(seen.len() >= 3, "{seen:?}");
}
