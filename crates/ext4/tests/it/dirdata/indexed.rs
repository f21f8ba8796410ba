//! Indexed directories of which names have data. e2fsck refuses the feature, so it judges the same
//! image without it: no bits that say that data follow, and roots where they are without such.

use super::*;
use ext4::format::htree::Node;

const FEATURES: [&str; 2] = ["^metadata_csum,^has_journal", "metadata_csum"];

/// Cuts the data out of an image: what e2fsck knows stays. All else is judged by it.
fn without_data(image: &[u8], dirs: &[Ino]) -> Vec<u8> {
    let mut plain = image.to_vec();
    set_feature(&mut plain, false);
    let g = Geometry::parse(&plain[1024..2048], 0).expect("sound");
    let (size, layout) = (g.block_size as usize, g.dir_layout());
    for dir in dirs {
        let (blocks, generation) = blocks_of(&plain, size, *dir);
        let seed = g.checksums.inode_seed(*dir, generation);
        let indexed = blocks.len() > 1;
        for (logical, block) in blocks.into_iter().enumerate() {
            let data = &mut plain[block * size..][..size];
            let root = indexed && logical == 0;
            if !root && htree::is_node(data) {
                continue;
            }
            let walk = DirLayout { checksum: layout.checksum && !root, ..layout };
            let found: Vec<usize> =
                dir::entries(data, walk).map(|entry| entry.offset as usize).collect();
            for &at in &found {
                data[at + 7] &= 0x0f;
            }
            if root {
                plain_root(data, &found, layout);
                htree::set_checksum(seed, data, htree::ROOT_ARRAY);
            } else {
                dir::set_checksum(seed, data);
            }
        }
    }
    plain
}

/// Moves a root to where it is without data behind `.` and `..`.
fn plain_root(data: &mut [u8], dots: &[usize], layout: DirLayout) {
    let size = data.len();
    // By the first bytes of the pairs: what fits into the rest of the block.
    let tail = if layout.checksum { 8 } else { 0 };
    let limit = |at: usize| (size - at - tail) / 8;
    let is_array = |at: &usize| usize::from(Node::new(data, *at).limit()) == limit(*at);
    let array = (32..200).step_by(4).find(is_array).expect("a root says its room");
    let pairs = data[array - 8..array + 8 * usize::from(Node::new(data, array).count())].to_vec();
    let dot_dot = data[dots[1]..dots[1] + 4].to_vec();
    data[4..6].copy_from_slice(&12u16.to_le_bytes());
    data[9..].fill(0);
    data[12..16].copy_from_slice(&dot_dot);
    data[16..18].copy_from_slice(&(size as u16 - 12).to_le_bytes());
    data[18..22].copy_from_slice(&[2, 2, b'.', b'.']);
    data[24..24 + pairs.len()].copy_from_slice(&pairs);
    data[32..34].copy_from_slice(&(limit(32) as u16).to_le_bytes());
}

/// Gives data to `.` and `..` of a short directory, whose other entries move.
fn data_behind_both_dots(image: &mut [u8], block: usize, layout: DirLayout) {
    let data = &mut image[block * 1024..][..1024];
    let end = layout.end();
    let rest = u16::from_le_bytes([data[16], data[17]]) as usize;
    let names = data[12 + rest..end].to_vec();
    let parent = data[12..16].to_vec();
    // 17 and 5 bytes behind `.`, 17 behind `..`: 32 and 28 with their headers.
    let (first, second) = (8 + 2 + 17 + 5, 8 + 3 + 17);
    assert_eq!((first, second), (32, 28));
    data[12..end].fill(0);
    data[4..8].copy_from_slice(&[first as u8, 0, 1, 2 | 0x30]);
    data[8..11].copy_from_slice(&[b'.', 0, 17]);
    data[27] = 5;
    data[32..36].copy_from_slice(&parent);
    data[36..40].copy_from_slice(&[second as u8, 0, 2, 2 | 0x10]);
    data[40..44].copy_from_slice(&[b'.', b'.', 0, 17]);
    let keep = end - 60;
    data[60..end].copy_from_slice(&names[..keep.min(names.len())]);
    // The last entry lost as many bytes as the dots won, or all of its own.
    let mut at = 60;
    loop {
        let len = u16::from_le_bytes([data[at + 4], data[at + 5]]) as usize;
        if at + len >= end {
            data[at + 4..at + 6].copy_from_slice(&((end - at) as u16).to_le_bytes());
            return;
        }
        at += len;
    }
}

/// Levels that the root of an index says.
fn levels(image: &[u8], block: usize, names: dir::Names) -> u8 {
    htree::parse_root(&image[block * 1024..][..1024], names, 1).expect("a root").levels
}

fn long(n: usize) -> String {
    format!("{n:0>200}")
}

fn fill(cx: &mut Cx, fs: &dyn FileSystem, dir: Ino, numbers: std::ops::Range<usize>) {
    for n in numbers {
        create(cx, fs, dir, &long(n));
    }
}

/// An image with data behind names of both directories, and behind the dots of the short one; where
/// the first block of that is.
fn image_with_data(features: &str) -> (Vec<u8>, Vec<Ino>, usize, DirLayout) {
    let (mut image, trees) = image(features);
    let dirs: Vec<Ino> = trees.iter().map(|(dir, _)| *dir).collect();
    let (blocks, generation) = blocks_of(&image, 1024, dirs[0]);
    assert!(with_data(&mut image, &dirs) > 50, "{features}");
    let g = Geometry::parse(&image[1024..2048], 0).expect("sound");
    data_behind_both_dots(&mut image, blocks[0], g.dir_layout());
    let seed = g.checksums.inode_seed(dirs[0], generation);
    dir::set_checksum(seed, &mut image[blocks[0] * 1024..][..1024]);
    assert_eq!(said_by_check(&image), [""; 0], "{features}: the image to begin with");
    (image, dirs, blocks[0], g.dir_layout())
}

fn changed_by(image: &[u8], change: impl FnOnce(&mut Cx, &dyn FileSystem)) -> Vec<u8> {
    let device = Arc::new(MemoryDevice::from_image(image));
    rt::testing::world(|cx| {
        let (fs, _) =
            try_mount(cx, device.clone(), 8 << 20, MountOptions::default()).expect("written");
        change(cx, &*fs);
        fs.unmount(cx).expect("unmount");
    });
    device.snapshot()
}

/// What check and e2fsck say of an image: nothing.
fn judge(image: &[u8], dirs: &[Ino], what: &str) {
    assert_eq!(said_by_check(image), [""; 0], "{what}");
    let file = testkit::image::write(&without_data(image, dirs));
    testkit::judge::e2fsck(file.path()).unwrap_or_else(|text| panic!("{what}: {text}"));
}

/// Goal: a directory with data becomes indexed, its leaves are split and its index gets a level,
/// and all data stay, those of `.` and `..` too. Method: 700 long names in each of two directories;
/// the bytes of all leaves, check, and e2fsck on the image without data.
#[test]
fn indexes_grow_over_names_with_data() {
    for features in FEATURES {
        let (image, dirs, first, layout) = image_with_data(features);
        let dots = image[first * 1024..][..60].to_vec();
        let before: Vec<_> = dirs.iter().map(|&dir| behind(&image, dir)).collect();
        let mut image = changed_by(&image, |cx, fs| {
            for n in 0..700 {
                for &dir in &dirs {
                    create(cx, fs, dir, &long(n));
                }
            }
        });
        judge(&image, &dirs, features);
        assert_eq!(levels(&image, first, layout.names), 1, "{features}: the index has a level");
        let found = &image[first * 1024..][..60];
        // The second entry is the last one now.
        assert!(found[..36] == dots[..36] && found[38..] == dots[38..], "{features}: {found:?}");
        for (dir, before) in dirs.iter().zip(before) {
            let mut wanted: BTreeMap<_, _> = before;
            wanted.extend((0..700).map(|n| (long(n).into_bytes(), Vec::new())));
            assert!(behind(&image, *dir) == wanted, "{features}: data of {dir:?}");
        }
        image = changed_by(&image, |cx, fs| {
            for n in 0..700 {
                let found = fs.lookup(cx, dirs[0], long(n).as_bytes());
                assert!(found.is_ok(), "{features}: {n}");
                fs.unlink(cx, dirs[0], long(n).as_bytes()).expect("gone");
            }
        });
        judge(&image, &dirs, features);
    }
}

/// Goal: a name that is moved into an indexed directory takes its data with it, whether its leaf
/// has room or is split. Method: all names of the indexed directory, into the other one that was
/// filled before, and back under longer names.
#[test]
fn names_that_are_moved_take_their_data_into_leaves() {
    for features in FEATURES {
        let (image, dirs, _, _) = image_with_data(features);
        let [few, many] = [dirs[0], dirs[1]];
        let before = behind(&image, many);
        let names: Vec<&Vec<u8>> = before.keys().collect();
        let moved = |name: &[u8]| [b"moved-", name].concat();
        let filled = changed_by(&image, |cx, fs| {
            fill(cx, fs, few, 0..200);
            for name in &names {
                fs.rename(cx, many, name, few, &moved(name), Default::default()).expect("moved");
            }
        });
        judge(&filled, &dirs, features);
        let found = behind(&filled, few);
        for (name, kept) in &before {
            assert_eq!(found.get(&moved(name)), Some(kept), "{features}: {name:?}");
        }
        assert!(behind(&filled, many).is_empty(), "{features}: all are gone");
        let back = changed_by(&filled, |cx, fs| {
            for name in &names {
                let from = moved(name);
                fs.rename(cx, few, &from, many, name, Default::default()).expect("moved back");
            }
        });
        judge(&back, &dirs, features);
        assert!(behind(&back, many) == before, "{features}: as before");
    }
}

/// Goal: the data behind `..` are of the directory above: in another one they go, and the index
/// moves up. Method: an indexed directory with such data, into the other one.
#[test]
fn a_directory_that_is_moved_loses_the_data_of_its_parent() {
    for features in FEATURES {
        let (image, dirs, first, layout) = image_with_data(features);
        let flags = vfs::RenameFlags::default();
        let image = changed_by(&image, |cx, fs| {
            fill(cx, fs, dirs[0], 0..300);
            fs.rename(cx, fs.root(), b"few", dirs[1], b"moved", flags).expect("moved");
            for n in 0..300 {
                assert!(fs.lookup(cx, dirs[0], long(n).as_bytes()).is_ok(), "{features}: {n}");
            }
            assert_eq!(fs.lookup(cx, dirs[0], b"..").expect("above").ino, dirs[1]);
        });
        judge(&image, &dirs, features);
        let root = &image[first * 1024..][..1024];
        // Behind `.` and its data, `..` has none.
        assert_eq!(root[7..9], [2 | 0x30, b'.']);
        assert_eq!(
            root[32..42],
            [&(dirs[1].0 as u32).to_le_bytes()[..], &root[36..40], b".."].concat()
        );
        assert_eq!((root[39], htree::root_array(root, layout.names)), (2, 32 + 12 + 8));
        let image = changed_by(&image, |cx, fs| {
            fill(cx, fs, dirs[0], 300..500);
        });
        judge(&image, &dirs, features);
    }
}

/// Goal: nothing in such an image makes us panic or wait for ever. Method: as for other images, by
/// seed, with checksums and without.
#[test]
fn mutated_images_with_data_never_break_us() {
    for features in FEATURES {
        let (image, dirs, ..) = image_with_data(features);
        let image = changed_by(&image, |cx, fs| fill(cx, fs, dirs[0], 0..300));
        let device = Arc::new(MemoryDevice::from_image(&image));
        let seeds = testkit::campaign::seeds(60);
        crate::mutate::campaign_of(&format!("dirdata,{features}"), &device, 1024, seeds);
    }
}

/// Goal: an index whose root is not where the dots end is read by its leaves, and a new name there
/// is refused. Method: an index with data behind `..`, as if data took four bytes more.
#[test]
fn a_root_elsewhere_is_not_trusted() {
    let (mut image, trees) = image(FEATURES[0]);
    let dirs: Vec<Ino> = trees.iter().map(|(dir, _)| *dir).collect();
    let (blocks, _) = blocks_of(&image, 1024, dirs[1]);
    with_data(&mut image, &dirs);
    data_behind_dot_dot(&mut image, blocks[0]);
    image[blocks[0] * 1024 + 23] = 21;
    let after = changed_by(&image, |cx, fs| {
        assert!(names(cx, fs, dirs[1]) == trees[1].1, "all names are read");
        let node = vfs::NewNode::new(FileType::Regular, 0o644);
        let refused = fs.create(cx, dirs[1], b"a-new-name", &node).err();
        assert_eq!(refused, Some(Errno::EOPNOTSUPP));
    });
    let root = blocks[0] * 1024..(blocks[0] + 1) * 1024;
    assert_eq!(after[root.clone()], image[root]);
}
