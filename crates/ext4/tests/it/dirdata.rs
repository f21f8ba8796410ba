//! `dirdata`: entries with data behind their names, as servers of Lustre have them. No tool at hand
//! makes them, so the blocks of a sound image are written anew, entry by entry.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::support::*;
use base::{Errno, Ino, Rng};
use device::{MemoryDevice, RecordDevice};
use ext4::MountOptions;
use ext4::format::dir::{self, DirLayout};
use ext4::format::features::Incompat;
use ext4::format::{Geometry, RawSuper, htree};
use rt::Cx;
use vfs::{FileSystem, FileType};

mod indexed;

fn read_only() -> MountOptions {
    MountOptions { read_only: true, ..MountOptions::default() }
}

/// Sets the feature.
fn with_feature(image: &mut [u8]) {
    set_feature(image, true);
}

fn set_feature(image: &mut [u8], on: bool) {
    // The copy in the second group, too.
    for at in [1024, 8193 * 1024] {
        let raw = RawSuper::view_mut(&mut image[at..]).expect("long enough");
        let mut features = raw.features();
        features.incompat.set(Incompat::DIRDATA, on);
        raw.set_features(&features);
        raw.set_checksum();
    }
}

/// Writes a block of a directory anew: every other entry gets a FID of 17 bytes or two pieces of
/// data, as far as there is room. Answers how many have some.
fn give_data(block: &mut [u8], layout: DirLayout, rng: &mut Rng) -> usize {
    let list: Vec<(u32, u8, Vec<u8>)> = dir::entries(block, layout)
        .filter(|entry| entry.ino != 0)
        .map(|entry| (entry.ino, entry.file_type, entry.name.to_vec()))
        .collect();
    let end = layout.end();
    let plain = |name: &[u8]| (8 + name.len()).next_multiple_of(4);
    let mut spare = end - list.iter().map(|(.., name)| plain(name)).sum::<usize>();
    let (mut at, mut given, mut last) = (0, 0, 0);
    block[..end].fill(0);
    for (ino, file_type, name) in list {
        let mut bytes = name.clone();
        let mut bits = 0;
        let two = rng.below(2) == 1;
        let more = if two { vec![17, 5] } else { vec![17] };
        let len: usize = 1 + more.iter().sum::<usize>();
        let dots = name == b"." || name == b"..";
        if rng.below(2) == 1 && !dots && spare >= len + 4 {
            bits = if two { 0x30 } else { 0x10 };
            bytes.push(0);
            for len in more {
                bytes.push(len as u8);
                // Bytes that no name may hold.
                bytes.extend((1..len).map(|_| b'/'));
            }
            given += 1;
        }
        let rec_len = (8 + bytes.len()).next_multiple_of(4);
        spare -= rec_len - plain(&name);
        block[at..at + 4].copy_from_slice(&ino.to_le_bytes());
        block[at + 4..at + 6].copy_from_slice(&(rec_len as u16).to_le_bytes());
        (block[at + 6], block[at + 7]) = (name.len() as u8, file_type | bits);
        block[at + 8..at + 8 + bytes.len()].copy_from_slice(&bytes);
        (last, at) = (at, at + rec_len);
    }
    block[last + 4..last + 6].copy_from_slice(&((end - last) as u16).to_le_bytes());
    given
}

/// The names in a directory, and what they are.
type Listing = BTreeMap<Vec<u8>, (u64, FileType)>;

fn names(cx: &mut Cx, fs: &dyn FileSystem, dir: Ino) -> Listing {
    let mut list = Listing::new();
    fs.readdir(cx, dir, 0, &mut |entry| {
        let kind = entry.kind.expect("the type is known");
        list.insert(entry.name.to_vec(), (entry.ino.0, kind));
        true
    })
    .expect("listed");
    list
}

/// A sound image with a short directory and an indexed one, what they hold, and where their leaves
/// are.
fn image(features: &str) -> (Vec<u8>, Vec<(Ino, Listing)>) {
    let file = tempfile::NamedTempFile::new().expect("a file");
    // The leaf of a name follows from the seed.
    let seed = "hash_seed=11223344-5566-4788-89aa-0123456789ab";
    let args = ["-t", "ext4", "-b", "1024", "-E", seed, "-O", features];
    testkit::judge::mke2fs(file.path(), 16 << 20, &args);
    let device = Arc::new(testkit::image::load(file.path()));
    let trees = rt::testing::world(|cx| {
        let (fs, _) = try_mount(cx, device.clone(), 8 << 20, MountOptions::default()).expect("ok");
        let mut trees = Vec::new();
        for (dir, count) in [("few", 7), ("many", 300)] {
            let dir = mkdir(cx, &*fs, fs.root(), dir);
            for n in 0..count {
                let name = format!("{n:0width$}", width = 1 + n % 40);
                match n % 5 {
                    0 => mkdir(cx, &*fs, dir, &name),
                    _ => create(cx, &*fs, dir, &name),
                };
            }
            trees.push((dir, names(cx, &*fs, dir)));
        }
        fs.unmount(cx).expect("unmount");
        trees
    });
    (device.snapshot(), trees)
}

/// The blocks of a directory of an image without the feature, and its generation.
fn blocks_of(image: &[u8], size: usize, dir: Ino) -> (Vec<usize>, u32) {
    let file = testkit::image::write(image);
    let text = testkit::judge::debugfs(file.path(), false, &format!("blocks <{}>\n", dir.0));
    let stat = testkit::judge::debugfs(file.path(), false, &format!("stat <{}>\n", dir.0));
    let after = stat.split("Generation: ").nth(1).and_then(|text| text.split_whitespace().next());
    let generation = after.and_then(|word| word.parse().ok()).expect("a generation");
    let blocks = text.split_whitespace().filter_map(|word| word.parse::<usize>().ok());
    // That of the extent tree is among them.
    let is_tree = |block: &usize| image[block * size..][..2] == [0x0a, 0xf3];
    (blocks.filter(|block| !is_tree(block)).collect(), generation)
}

/// The names of a directory, `.` and `..` left out, with what lies behind each; every block is
/// sound.
fn behind(image: &[u8], dir: Ino) -> BTreeMap<Vec<u8>, Vec<u8>> {
    let g = Geometry::parse(&image[1024..2048], 0).expect("sound");
    let (size, layout) = (g.block_size as usize, g.dir_layout());
    let mut plain = image.to_vec();
    set_feature(&mut plain, false);
    let (blocks, generation) = blocks_of(&plain, size, dir);
    let mut found = BTreeMap::new();
    let indexed = blocks.len() > 1;
    for block in blocks.into_iter().skip(usize::from(indexed)) {
        let data = &image[block * size..][..size];
        if htree::is_node(data) {
            continue;
        }
        if layout.checksum {
            let seed = g.checksums.inode_seed(dir, generation);
            dir::verify_checksum(seed, data).expect("its sum");
        }
        dir::check(data, layout, g.inodes_count).expect("sound entries");
        let names = dir::entries(data, layout).filter(|entry| entry.ino != 0);
        for entry in names.filter(|entry| !matches!(entry.name, b"." | b"..")) {
            let kept = dir::behind(data, layout, entry.offset);
            assert!(found.insert(entry.name.to_vec(), kept).is_none(), "{:?} twice", entry.name);
        }
    }
    found
}

/// Gives data to all blocks of names of the directories.
fn with_data(image: &mut [u8], dirs: &[Ino]) -> usize {
    let g = Geometry::parse(&image[1024..2048], 0).expect("sound");
    let (size, layout) = (g.block_size as usize, g.dir_layout());
    let mut rng = Rng::new(3, 4);
    let mut given = 0;
    for dir in dirs {
        let (blocks, generation) = blocks_of(image, size, *dir);
        // The root of an index has the dots alone.
        let indexed = blocks.len() > 1;
        for block in blocks.into_iter().skip(usize::from(indexed)) {
            let data = &mut image[block * size..][..size];
            let seed = g.checksums.inode_seed(*dir, generation);
            given += give_data(data, layout, &mut rng);
            dir::set_checksum(seed, data);
        }
    }
    with_feature(image);
    given
}

/// Goal: names, types and files are those of before, in directories with and without an index, with
/// and without checksums; nothing is written. Method: data in half of the entries.
#[test]
fn names_with_data_are_read() {
    for features in ["^metadata_csum,^has_journal", "^has_journal,metadata_csum"] {
        let (mut image, trees) = image(features);
        let dirs: Vec<Ino> = trees.iter().map(|(dir, _)| *dir).collect();
        assert!(with_data(&mut image, &dirs) > 50, "{features}: there is something to step over");
        let record = Arc::new(RecordDevice::new(Arc::new(MemoryDevice::from_image(&image))));
        rt::testing::world(|cx| {
            let (fs, _) = try_mount(cx, record.clone(), 8 << 20, read_only()).expect("read");
            for (dir, before) in &trees {
                assert!(names(cx, &*fs, *dir) == *before, "{features}");
                for (name, (ino, kind)) in before {
                    if name != b"." && name != b".." {
                        let attr = fs.lookup(cx, *dir, name).expect("found");
                        assert_eq!((attr.ino.0, attr.kind), (*ino, *kind), "{features}: {name:?}");
                    }
                }
                assert_eq!(fs.lookup(cx, *dir, b"nobody").err(), Some(Errno::ENOENT));
            }
            fs.unmount(cx).expect("unmount");
        });
        assert!(record.is_empty(), "nothing is written");
    }
}

/// What check says of an image.
fn said_by_check(image: &[u8]) -> Vec<String> {
    rt::testing::world(|cx| {
        let queue = queue(cx, Arc::new(MemoryDevice::from_image(image)));
        let report = ext4::check::check(cx, &queue, &ext4::check::CheckOptions::default());
        report.expect("checked").findings.iter().map(ToString::to_string).collect()
    })
}

/// Gives the `..` of an index's root data, behind which the root's own follow.
fn data_behind_dot_dot(image: &mut [u8], root: usize) {
    let (size, by) = (1024, 16);
    let block = &mut image[root * size..][..size];
    block.copy_within(24..size - by, 24 + by);
    block[22..24 + by].fill(0);
    block[19] |= 0x10;
    block[23] = 17;
    let limit = u16::from_le_bytes([block[32 + by], block[33 + by]]) - by as u16 / 8;
    block[32 + by..34 + by].copy_from_slice(&limit.to_le_bytes());
}

/// Goal: check reads names with data, finds nothing in sound images and what is wrong in others:
/// data that leave their entry, a name in the wrong leaf, a name twice, an index that is not where
/// data of `..` end. Method: the image of the other tests, a change at a time.
#[test]
fn names_with_data_are_checked() {
    for features in ["^metadata_csum,^has_journal", "^has_journal,metadata_csum"] {
        let (mut image, trees) = image(features);
        let dirs: Vec<Ino> = trees.iter().map(|(dir, _)| *dir).collect();
        let (blocks, _) = blocks_of(&image, 1024, dirs[1]);
        assert!(with_data(&mut image, &dirs) > 50, "{features}");
        assert_eq!(said_by_check(&image), [""; 0], "{features}");
        if features.ends_with("metadata_csum") {
            continue;
        }
        let layout = Geometry::parse(&image[1024..2048], 0).expect("sound").dir_layout();
        let leaf = blocks[1] * 1024;
        let list = |image: &[u8]| -> Vec<(usize, Vec<u8>)> {
            let block = &image[leaf..leaf + 1024];
            let entries = dir::entries(block, layout).filter(|entry| entry.ino != 0);
            entries.map(|entry| (leaf + entry.offset as usize, entry.name.to_vec())).collect()
        };
        let names = list(&image);
        let has_data = |at: usize| image[at + 7] & 0x10 != 0;
        let (at, name) = names.iter().find(|(at, _)| has_data(*at)).expect("one with data");
        let mut broken = image.clone();
        broken[at + 8 + name.len() + 1] = 0;
        assert!(said_by_check(&broken).iter().any(|text| text.contains("dir-")), "{broken:?}");
        let mut broken = image.clone();
        broken[at + 8..at + 8 + name.len()].fill(b'x');
        let found = said_by_check(&broken);
        assert!(found.iter().any(|text| text.contains("htree-hash")), "{found:?}");
        data_behind_dot_dot(&mut image, blocks[0]);
        assert_eq!(said_by_check(&image), [""; 0], "data behind `..`");
        let mut broken = image.clone();
        broken[blocks[0] * 1024 + 23] = 21;
        let found = said_by_check(&broken);
        assert!(found.iter().any(|text| text.contains("htree-root")), "{found:?}");
        let mut broken = image.clone();
        broken[at + 7] = broken[at + 7] & 0xf0 | 5;
        let found = said_by_check(&broken);
        assert!(found.iter().any(|text| text.contains("dir-entry-type")), "{found:?}");
    }
}

/// The image after names were made, removed, moved and replaced; `with` are two names with data of
/// each directory.
fn changed(image: &[u8], few: Ino, many: Ino, with: &[Vec<u8>]) -> Vec<u8> {
    let device = Arc::new(MemoryDevice::from_image(image));
    rt::testing::world(|cx| {
        let (fs, _) =
            try_mount(cx, device.clone(), 8 << 20, MountOptions::default()).expect("written");
        let flags = vfs::RenameFlags::default();
        for n in 0..60 {
            create(cx, &*fs, few, &format!("new-{n:050}"));
        }
        let new = |n: usize| format!("new-{n:050}");
        fs.unlink(cx, few, new(7).as_bytes()).expect("gone");
        fs.rename(cx, few, &with[0], few, b"moved-to-a-longer-name", flags).expect("moved");
        fs.rename(cx, few, &with[1], few, new(9).as_bytes(), flags).expect("over another");
        create(cx, &*fs, many, "a-new-name");
        fs.unlink(cx, many, &with[2]).expect("gone");
        fs.rename(cx, many, &with[3], few, b"from-the-indexed-one", flags).expect("moved");
        fs.unmount(cx).expect("unmount");
    });
    device.snapshot()
}

/// Goal: data stay behind the names that stay, go with a name that is moved, and go away with a
/// name or with what it led to; new names have none. Method: the bytes of all blocks after each
/// kind of change, in a short directory that grows and in an indexed one.
#[test]
fn data_are_kept_when_names_change() {
    for features in ["^metadata_csum,^has_journal", "metadata_csum"] {
        let (mut image, trees) = image(features);
        let dirs: Vec<Ino> = trees.iter().map(|(dir, _)| *dir).collect();
        assert!(with_data(&mut image, &dirs) > 50, "{features}");
        let (few, many) = (dirs[0], dirs[1]);
        let before = [behind(&image, few), behind(&image, many)];
        let is_file = |tree: usize, name: &[u8]| {
            let kind = trees[tree].1.get(name).map(|(_, kind)| *kind);
            kind == Some(FileType::Regular)
        };
        let with: Vec<Vec<u8>> = before
            .iter()
            .enumerate()
            .flat_map(|(tree, list)| {
                let files = list.iter().filter(move |(name, _)| is_file(tree, name));
                files.filter(|(_, kept)| !kept.is_empty()).take(2).map(|(name, _)| name.clone())
            })
            .collect();
        assert_eq!(with.len(), 4, "two names with data in each");
        let image = changed(&image, few, many, &with);
        let [mut wanted_few, mut wanted_many] = before.clone();
        for n in (0..60).filter(|&n| n != 7) {
            wanted_few.insert(format!("new-{n:050}").into_bytes(), Vec::new());
        }
        let moved = wanted_few.remove(&with[0]).expect("it was there");
        wanted_few.insert(b"moved-to-a-longer-name".to_vec(), moved);
        wanted_few.remove(&with[1]);
        wanted_many.remove(&with[2]);
        let moved = wanted_many.remove(&with[3]).expect("it was there");
        wanted_few.insert(b"from-the-indexed-one".to_vec(), moved);
        wanted_many.insert(b"a-new-name".to_vec(), Vec::new());
        let found = behind(&image, few);
        // What replaces another name has its data where there is room for them.
        let over = format!("new-{:050}", 9).into_bytes();
        let kept = &found[&over];
        assert!(kept.is_empty() || *kept == before[0][&with[1]], "{features}");
        wanted_few.insert(over, kept.clone());
        assert!(found == wanted_few, "{features}");
        assert!(behind(&image, many) == wanted_many, "{features}");
        rt::testing::world(|cx| {
            let device = Arc::new(MemoryDevice::from_image(&image));
            let (fs, _) = try_mount(cx, device, 8 << 20, read_only()).expect("read");
            for (dir, wanted) in [(few, &wanted_few), (many, &wanted_many)] {
                let listed = names(cx, &*fs, dir);
                let listed: Vec<&Vec<u8>> =
                    listed.keys().filter(|name| !matches!(&name[..], b"." | b"..")).collect();
                let wanted: Vec<&Vec<u8>> =
                    wanted.keys().filter(|name| !matches!(&name[..], b"." | b"..")).collect();
                assert!(listed == wanted, "{features}");
            }
            fs.unmount(cx).expect("unmount");
        });
    }
}

/// Goal: data that leave their entry are damage, and no read leaves a block. Method: lengths of 0
/// and 255, and all upper bits without data.
#[test]
fn data_that_do_not_fit_are_damage() {
    let layout = {
        let (mut image, _) = image("^metadata_csum,^has_journal");
        with_feature(&mut image);
        Geometry::parse(&image[1024..2048], 0).expect("sound").dir_layout()
    };
    let block = |bits: u8, len: u8| {
        let mut block = vec![0; 1024];
        block[..8].copy_from_slice(&[11, 0, 0, 0, 28, 0, 3, 1 | bits]);
        block[8..11].copy_from_slice(b"abc");
        block[12] = len;
        block[28 + 4..28 + 6].copy_from_slice(&996u16.to_le_bytes());
        block
    };
    assert_eq!(dir::check(&block(0x10, 16), layout, 100), Ok(()));
    assert_eq!(dir::check(&block(0, 0), layout, 100), Ok(()));
    for (bits, len) in [(0x10, 0), (0x10, 17), (0x10, 255), (0x30, 16), (0xf0, 3)] {
        assert!(dir::check(&block(bits, len), layout, 100).is_err(), "{bits:#x} {len}");
        assert_eq!(dir::entries(&block(bits, len), layout).next().map(|e| e.file_type), Some(1));
    }
}

/// Goal: what changes the place of the data, or of names, is refused by name.
#[test]
fn what_is_not_known_is_refused() {
    for features in ["inline_data", "encrypt", "casefold"] {
        let (mut image, _) = image(&format!("^has_journal,{features}"));
        with_feature(&mut image);
        rt::testing::world(|cx| {
            let device = Arc::new(MemoryDevice::from_image(&image));
            match try_mount(cx, device, 8 << 20, read_only()).err() {
                Some(error) => assert!(error.to_string().contains("dirdata"), "{error}"),
                None => panic!("{features}: mounted"),
            }
        });
    }
}
