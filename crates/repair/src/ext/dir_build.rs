//! Directories written anew: one block, several, or a hash tree.

use block::DeviceError;
use ext4::format::dir::{self, Behind, DirLayout, Entry, Names};
use ext4::format::features::{Compat, Incompat};
use ext4::format::hash::{HashVersion, NameHash};
use ext4::format::super_block::ROOT_INO;
use ext4::format::{FileKind, InodeFlags, htree};

use super::Fs;
use super::dirs::Name;
use super::map::Map;
use ext4::format::extent::FileRun;

/// Parts of a leaf that a new tree fills, of four: so that names can come.
const FILL: usize = 3;

/// What a new block is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Form {
    Leaf,
    Root,
    Node,
}

/// A pair of a hash tree's node: lowest hash, logical block.
type Pair = (u32, u32);

impl Fs<'_> {
    /// Writes the directories that have to be written anew.
    ///
    /// # Errors
    /// The device's.
    pub fn write_directories(&mut self) -> Result<(), DeviceError> {
        for (ino, names) in std::mem::take(&mut self.rebuilt) {
            let Some(inode) = self.inodes.get(&ino) else { continue };
            let up = self.tree.parent.get(&ino).or(self.tree.dotdot.get(&ino));
            let parent = up.copied().filter(|&up| up != 0).unwrap_or(ROOT_INO);
            let old: u64 = inode.map.runs.iter().map(|run| run.len).sum();
            let names = self.typed(names);
            if inode.flags.contains(InodeFlags::INLINE_DATA) {
                self.outline(ino)?;
            }
            let mut blocks = self.dir_blocks(ino, parent, &names);
            if ino == self.tree.lost_found && blocks.iter().all(|(form, _)| *form == Form::Leaf) {
                let mut empty = vec![0; self.g.block_size as usize];
                dir::init_empty(&mut empty, self.g.dir_layout());
                while (blocks.len() as u64) < old.min(16) {
                    blocks.push((Form::Leaf, empty.clone()));
                }
            }
            self.put_dir(ino, blocks)?;
        }
        Ok(())
    }

    /// The names whose inodes exist, with their types.
    fn typed(&self, names: Vec<Name>) -> Vec<Name> {
        let names = names.into_iter().filter_map(|mut name| {
            let kind = self.inodes.get(&name.ino)?.kind;
            name.file_type = kind.dir_type();
            Some(name)
        });
        names.collect()
    }

    /// The blocks of a directory with these names.
    fn dir_blocks(&self, ino: u32, parent: u32, names: &[Name]) -> Vec<(Form, Vec<u8>)> {
        let layout = self.layout_of(self.inodes[&ino].flags);
        let dots = self.dots_of(ino, parent);
        let all: Vec<&Name> = dots.iter().chain(names).collect();
        let linear = chunks(&all, layout, layout.end());
        let index = self.g.features.compat.contains(Compat::DIR_INDEX);
        if linear.len() > 1
            && index
            && let Some(tree) = self.tree_blocks(ino, &dots, names)
        {
            return tree;
        }
        linear.into_iter().map(|part| (Form::Leaf, pack(layout, part))).collect()
    }

    /// `.` and `..`, with what lies behind them; behind a `..` that names another parent nothing.
    fn dots_of(&self, ino: u32, parent: u32) -> [Name; 2] {
        let [own, above] = self.tree.behind_dots.get(&ino).cloned().unwrap_or_default();
        let stays = self.tree.dotdot.get(&ino) == Some(&parent);
        let above = if stays { above } else { Vec::new() };
        let dots = [(ino, &b"."[..], own), (parent, b"..", above)];
        dots.map(|(ino, name, behind)| Name {
            name: name.to_vec(),
            ino,
            file_type: FileKind::Directory.dir_type(),
            hash: NameHash::default(),
            behind,
        })
    }

    /// The blocks of a hash tree. None where it would be too deep.
    fn tree_blocks(
        &self,
        ino: u32,
        dots: &[Name; 2],
        names: &[Name],
    ) -> Option<Vec<(Form, Vec<u8>)>> {
        let flags = self.inodes[&ino].flags;
        let layout = self.layout_of(flags);
        let beside = layout.names == Names::Hashed;
        let version = (!beside).then_some(self.g.hash_version);
        let folds = self.g.ignores_case(flags);
        let hash = |name: &Name| entry_of(name).tree_hash(version, &self.g.hash_seed, folds);
        let mut sorted: Vec<(u32, u32, &Name)> = names
            .iter()
            .map(|name| {
                let hash = hash(name);
                (hash.major, hash.minor, name)
            })
            .collect();
        sorted.sort_by(|a, b| (a.0, a.1, &a.2.name).cmp(&(b.0, b.1, &b.2.name)));
        let list: Vec<&Name> = sorted.iter().map(|(.., name)| *name).collect();
        let parts = chunks(&list, layout, layout.end() * FILL / 4);
        let mut blocks = vec![(Form::Root, Vec::new())];
        let (mut pairs, mut at): (Vec<Pair>, usize) = (Vec::new(), 0);
        for part in parts {
            let first = sorted[at].0;
            let continued = at > 0 && sorted[at - 1].0 == first;
            pairs.push((first | u32::from(continued), blocks.len() as u32));
            at += part.len();
            blocks.push((Form::Leaf, pack(layout, part)));
        }
        let mut root = pack(layout, &dots.iter().collect::<Vec<_>>());
        if !htree::can_be_root(&root, layout) {
            return None;
        }
        let version = version.map_or(htree::SIPHASH, HashVersion::on_disk);
        htree::init_root(&mut root, layout, version, 1);
        let array = htree::root_array(&root, layout.names);
        let room = usize::from(htree::limit(layout, array));
        let levels_max = 1 + usize::from(self.g.features.incompat.contains(Incompat::LARGEDIR));
        let mut levels = 0;
        while pairs.len() > room {
            if levels == levels_max {
                return None;
            }
            levels += 1;
            let per = usize::from(htree::limit(layout, htree::NODE_ARRAY));
            let mut above = Vec::new();
            for part in pairs.chunks(per) {
                above.push((part[0].0, blocks.len() as u32));
                let mut node = vec![0; root.len()];
                htree::take_pairs(&mut node, layout, htree::Node::new(&root, array), 0);
                fill(&mut node, htree::NODE_ARRAY, part);
                blocks.push((Form::Node, node));
            }
            pairs = above;
        }
        fill(&mut root, array, &pairs);
        htree::set_levels(&mut root, array, levels as u8);
        blocks[0].1 = root;
        Some(blocks)
    }

    /// Gives the blocks their places and checksums; the old ones are used first.
    fn put_dir(&mut self, ino: u32, blocks: Vec<(Form, Vec<u8>)>) -> Result<(), DeviceError> {
        let inode = self.inodes[&ino].clone();
        let seed = self.seed(ino, inode.generation);
        let layout = self.layout_of(inode.flags);
        let indexed = blocks[0].0 == Form::Root;
        let summed = blocks.into_iter().map(|(form, mut data)| {
            match (layout.checksum, form) {
                (false, _) => {}
                (true, Form::Leaf) => dir::set_checksum(seed, &mut data),
                (true, Form::Root) => {
                    let array = htree::root_array(&data, layout.names);
                    htree::set_checksum(seed, &mut data, array);
                }
                (true, Form::Node) => htree::set_checksum(seed, &mut data, htree::NODE_ARRAY),
            }
            data
        });
        let map = self.place(&inode.map, summed.collect())?;
        let inode = self.inodes.get_mut(&ino).expect("it is there");
        inode.map = map;
        inode.rewrite = true;
        inode.flags.set(InodeFlags::INDEX, indexed);
        Ok(())
    }

    /// Writes the blocks of a file, into those of its old map first. The new map keeps the blocks
    /// that map; it is shorter than the file where the file system is full.
    ///
    /// # Errors
    /// The device's.
    pub fn place(&mut self, was: &Map, blocks: Vec<Vec<u8>>) -> Result<Map, DeviceError> {
        let ratio = u64::from(self.g.cluster_ratio);
        let mut old: Vec<u64> = self.data_clusters(was).collect();
        old.reverse();
        let mut map = Map { nodes: was.nodes.clone(), ..Map::default() };
        let goal = old.last().copied().unwrap_or(0);
        let mut cluster = 0;
        for (logical, data) in (0u64..).zip(blocks) {
            if logical.is_multiple_of(ratio) {
                let next = match old.pop() {
                    Some(block) => Some(block),
                    None => self.take_block(goal)?,
                };
                let Some(next) = next else { break };
                cluster = next;
            }
            let start = cluster + logical % ratio;
            self.view.write(start, &data);
            map.push(FileRun { logical, start, len: 1, unwritten: false });
        }
        for cluster in old {
            self.free_block(cluster);
        }
        Ok(map)
    }
}

/// Puts all pairs into a root or node that holds one.
fn fill(node: &mut [u8], array: usize, pairs: &[Pair]) {
    node[array + 4..array + 8].copy_from_slice(&pairs[0].1.to_le_bytes());
    for (index, &(hash, child)) in pairs.iter().enumerate().skip(1) {
        htree::insert_pair(node, array, index as u16, hash, child);
    }
}

/// Cuts a list of names into parts that fit `room` bytes; at least one part.
fn chunks<'a, 'b>(names: &'b [&'a Name], layout: DirLayout, room: usize) -> Vec<&'b [&'a Name]> {
    let mut parts = Vec::new();
    let (mut from, mut bytes) = (0, 0);
    for (index, name) in names.iter().enumerate() {
        let len = entry_of(name).need(layout);
        if bytes + len > room {
            parts.push(&names[from..index]);
            (from, bytes) = (index, 0);
        }
        bytes += len;
    }
    parts.push(&names[from..]);
    parts
}

/// A block with these names.
fn pack(layout: DirLayout, names: &[&Name]) -> Vec<u8> {
    let mut data = vec![0; layout.block_size as usize];
    dir::pack(&mut data, layout, names.iter().map(|name| entry_of(name)));
    data
}

/// A name as an entry, whose place is not known yet.
fn entry_of(name: &Name) -> Entry<'_> {
    let Name { ino, file_type, hash, .. } = *name;
    let behind = Behind::of(&name.behind);
    Entry { offset: 0, rec_len: 0, ino, file_type, name: &name.name, hash, behind }
}
