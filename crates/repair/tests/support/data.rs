//! Data behind names (`dirdata`), given to all directories of an image and taken from them: no tool
//! makes them, and e2fsck knows an image only without.

use std::collections::BTreeMap;

use base::Ino;
use ext4::format::checksum::InodeSeed;
use ext4::format::dir::{self, DirLayout};
use ext4::format::features::Incompat;
use ext4::format::htree::{self, Node};
use ext4::format::{FileKind, Geometry, InodeFlags, InodeValues, RawSuper};

use super::slot_place;

/// Bytes of a FID, with the byte that counts them.
const FID: usize = 17;

/// A directory of an image.
struct Directory {
    ino: u32,
    seed: InodeSeed,
    indexed: bool,
    blocks: Vec<u64>,
}

fn geometry(image: &[u8]) -> Geometry {
    Geometry::parse(&image[1024..2048], 0).expect("a sound superblock")
}

/// Sets the feature in all superblocks, or clears it.
fn set_feature(image: &mut [u8], on: bool) {
    let g = geometry(image);
    for group in 0..g.groups_count {
        let block =
            u64::from(g.first_data_block) + u64::from(group) * u64::from(g.blocks_per_group);
        let at = if group == 0 { 1024 } else { (block * u64::from(g.block_size)) as usize };
        let Some(raw) = image.get_mut(at..).and_then(RawSuper::view_mut) else { continue };
        if raw.s_magic.get() == 0xef53 {
            let mut features = raw.features();
            features.incompat.set(Incompat::DIRDATA, on);
            raw.set_features(&features);
            if features.metadata_csum() {
                raw.set_checksum();
            }
        }
    }
}

fn half(bytes: &[u8], at: usize) -> u64 {
    u16::from_le_bytes([bytes[at], bytes[at + 1]]).into()
}

fn word(bytes: &[u8], at: usize) -> u64 {
    half(bytes, at) | half(bytes, at + 2) << 16
}

/// The blocks of a sound extent tree, in order.
fn extents(image: &[u8], size: usize, node: &[u8], blocks: &mut Vec<u64>) {
    for index in 0..half(node, 2) as usize {
        let at = 12 * (index + 1);
        if half(node, 6) == 0 {
            let start = word(node, at + 8) | half(node, at + 6) << 32;
            blocks.extend(start..start + half(node, at + 4));
        } else {
            let below = (word(node, at + 4) | half(node, at + 8) << 32) as usize * size;
            extents(image, size, &image[below..below + size], blocks);
        }
    }
}

/// The blocks of a short map of block numbers.
fn mapped(image: &[u8], size: usize, map: &[u8], blocks: &mut Vec<u64>) {
    blocks.extend((0..12).map(|at| word(map, 4 * at)));
    let below = word(map, 48) as usize * size;
    if below > 0 {
        blocks.extend((0..size / 4).map(|at| word(&image[below..], 4 * at)));
    }
    blocks.retain(|&block| block != 0);
}

fn directories(image: &[u8]) -> Vec<Directory> {
    let g = geometry(image);
    let size = g.block_size as usize;
    let mut list = Vec::new();
    for ino in 2..=g.inodes_count {
        let Some(place) = slot_place(image, &g, ino) else { continue };
        let slot = &image[place];
        let values = InodeValues::read(slot, &g);
        if values.kind() != Some(FileKind::Directory) || values.links == 0 {
            continue;
        }
        let seed = g.checksums.inode_seed(Ino(ino.into()), InodeValues::generation_of(slot));
        let mut blocks = Vec::new();
        match values.flags.contains(InodeFlags::EXTENTS) {
            true => extents(image, size, &values.block, &mut blocks),
            false => mapped(image, size, &values.block, &mut blocks),
        }
        blocks.truncate(values.size as usize / size);
        let indexed = values.flags.contains(InodeFlags::INDEX);
        list.push(Directory { ino, seed, indexed, blocks });
    }
    list
}

/// The blocks of a directory.
pub fn blocks_of(image: &[u8], ino: u32) -> Vec<u64> {
    let dirs = directories(image).into_iter();
    dirs.filter(|dir| dir.ino == ino).map(|dir| dir.blocks).next().expect("the directory")
}

/// Is it a block of entries?
fn is_leaf(data: &[u8], logical: usize, indexed: bool) -> bool {
    !indexed || logical > 0 && !htree::is_node(data)
}

/// An entry to be written: inode, type with its upper bits, name, what follows.
type Written = (u32, u8, Vec<u8>, Vec<u8>);

fn write_entries(data: &mut [u8], end: usize, list: &[Written]) {
    data[..end].fill(0);
    let (mut at, mut last) = (0, 0);
    for (ino, kind, name, behind) in list {
        let len = (8 + name.len() + behind.len()).next_multiple_of(4);
        data[at..at + 4].copy_from_slice(&ino.to_le_bytes());
        data[at + 4..at + 8].copy_from_slice(&[
            len as u8,
            (len >> 8) as u8,
            name.len() as u8,
            *kind,
        ]);
        data[at + 8..at + 8 + name.len()].copy_from_slice(name);
        data[at + 8 + name.len()..at + 8 + name.len() + behind.len()].copy_from_slice(behind);
        (last, at) = (at, at + len);
    }
    data[last + 4..last + 6].copy_from_slice(&((end - last) as u16).to_le_bytes());
}

/// What a name gets: a FID, and behind every other one of these five bytes more; which depends on
/// the inode.
fn behind_of(ino: u32) -> (u8, Vec<u8>) {
    let fid = |len: usize| (1..len).map(move |at| (ino as usize * 7 + at) as u8);
    let mut bytes = vec![0, FID as u8];
    bytes.extend(fid(FID));
    if ino.is_multiple_of(2) {
        return (0x10, bytes);
    }
    bytes.push(5);
    bytes.extend(fid(5));
    (0x30, bytes)
}

/// The image with data behind names, as far as there is room, and behind `.` and `..` of linear
/// directories and of indexed ones.
pub fn give(image: &[u8]) -> Vec<u8> {
    let mut image = image.to_vec();
    let g = geometry(&image);
    let (size, layout) = (g.block_size as usize, g.dir_layout());
    for dir in directories(&image) {
        for (logical, &block) in dir.blocks.iter().enumerate() {
            let data = &mut image[block as usize * size..][..size];
            if is_leaf(data, logical, dir.indexed) {
                give_leaf(data, layout);
                dir::set_checksum(dir.seed, data);
            } else if logical == 0 {
                let array = give_root(data, layout);
                htree::set_checksum(dir.seed, data, array);
            }
        }
    }
    set_feature(&mut image, true);
    image
}

fn give_leaf(data: &mut [u8], layout: DirLayout) {
    let used = dir::entries(data, layout).filter(|entry| entry.ino != 0);
    let mut list: Vec<Written> =
        used.map(|entry| (entry.ino, entry.file_type, entry.name.to_vec(), Vec::new())).collect();
    if list.is_empty() {
        return;
    }
    let taken: usize = list.iter().map(|(.., name, _)| dir::entry_len(name.len())).sum();
    // Some room stays.
    let mut spare = (layout.end() - taken).saturating_sub(80);
    for (ino, kind, name, behind) in &mut list {
        let (bits, bytes) = behind_of(*ino);
        if spare >= bytes.len() + 4 && *ino % 5 != 0 {
            spare -= dir::entry_len(name.len() + bytes.len()) - dir::entry_len(name.len());
            (*kind, *behind) = (*kind | bits, bytes);
        }
    }
    write_entries(data, layout.end(), &list);
}

/// Gives `..` of a root a FID; where its pairs begin then.
fn give_root(data: &mut [u8], layout: DirLayout) -> usize {
    let by = dir::entry_len(2 + 1 + FID) - dir::entry_len(2);
    let (old, new) = (htree::ROOT_ARRAY, htree::ROOT_ARRAY + by);
    let end = old + 8 * usize::from(Node::new(data, old).count());
    data.copy_within(old - 8..end, new - 8);
    let (_, bytes) = behind_of(2 * (word(data, 12) as u32));
    data[19] |= 0x10;
    data[22..new - 8].fill(0);
    data[22..22 + bytes.len()].copy_from_slice(&bytes);
    data[end + by..].fill(0);
    data[new..new + 2].copy_from_slice(&htree::limit(layout, new).to_le_bytes());
    new
}

/// The image without the feature, and without what is known by it alone.
pub fn take(image: &[u8]) -> Vec<u8> {
    let mut image = image.to_vec();
    set_feature(&mut image, false);
    let g = geometry(&image);
    let (size, layout) = (g.block_size as usize, g.dir_layout());
    for dir in directories(&image) {
        for (logical, &block) in dir.blocks.iter().enumerate() {
            let data = &mut image[block as usize * size..][..size];
            if is_leaf(data, logical, dir.indexed) {
                let found: Vec<u32> =
                    dir::entries(data, layout).map(|entry| entry.offset).collect();
                found.iter().for_each(|&at| data[at as usize + 7] &= 0x0f);
                dots_in_place(data, layout, logical);
                dir::set_checksum(dir.seed, data);
            } else if logical == 0 {
                take_root(data, layout);
                htree::set_checksum(dir.seed, data, htree::ROOT_ARRAY);
            }
        }
    }
    image
}

/// e2fsck wants `..` at its place: the room of `.` is that of no data.
fn dots_in_place(data: &mut [u8], layout: DirLayout, logical: usize) {
    if logical > 0 || half(data, 4) == 12 {
        return;
    }
    let used = dir::entries(data, layout).filter(|entry| entry.ino != 0);
    let list: Vec<Written> =
        used.map(|entry| (entry.ino, entry.file_type, entry.name.to_vec(), Vec::new())).collect();
    write_entries(data, layout.end(), &list);
}

fn take_root(data: &mut [u8], layout: DirLayout) {
    let size = data.len();
    let says_room = |at: &usize| Node::new(data, *at).limit() == htree::limit(layout, *at);
    let array = (htree::ROOT_ARRAY..200).step_by(4).find(says_room).expect("a root says its room");
    let count = usize::from(Node::new(data, array).count());
    let pairs = data[array - 8..array + 8 * count].to_vec();
    let second = half(data, 4) as usize;
    let parent = data[second..second + 4].to_vec();
    let own = word(data, 0) as u32;
    let kind = |at: usize| data[at + 7] & 0x0f;
    let list = [
        (own, kind(0), b".".to_vec(), Vec::new()),
        (word(&parent, 0) as u32, kind(second), b"..".to_vec(), Vec::new()),
    ];
    write_entries(data, size, &list);
    data[24..24 + pairs.len()].copy_from_slice(&pairs);
    let limit = htree::limit(layout, htree::ROOT_ARRAY);
    data[32..34].copy_from_slice(&limit.to_le_bytes());
}

/// Name, and what lies behind it.
pub type Behind = (Vec<u8>, Vec<u8>);

/// What lies behind the names of an image, by directory; names without are left out.
pub fn all(image: &[u8]) -> BTreeMap<u32, Vec<Behind>> {
    let g = geometry(image);
    let (size, layout) = (g.block_size as usize, g.dir_layout());
    let mut all: BTreeMap<u32, Vec<Behind>> = BTreeMap::new();
    for dir in directories(image) {
        let names = all.entry(dir.ino).or_default();
        for (logical, &block) in dir.blocks.iter().enumerate() {
            let data = &image[block as usize * size..][..size];
            if logical > 0 && !is_leaf(data, logical, dir.indexed) {
                continue;
            }
            let root = dir.indexed && logical == 0;
            let layout = DirLayout { checksum: layout.checksum && !root, ..layout };
            for entry in dir::entries(data, layout).filter(|entry| entry.ino != 0) {
                names.push((entry.name.to_vec(), dir::behind(data, layout, entry.offset)));
            }
        }
        names.retain(|(_, behind)| !behind.is_empty());
        names.sort();
    }
    all.retain(|_, names| !names.is_empty());
    all
}
