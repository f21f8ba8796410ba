//! Directories written anew: one block, several, or a hash tree.

use block::DeviceError;
use ext4::format::dir::{self, DirLayout, Entry, entry_len};
use ext4::format::features::{Compat, Incompat};
use ext4::format::hash::NameHash;
use ext4::format::hash::hash_name;
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
        let layout = self.g.dir_layout();
        let dots = [(ino, &b"."[..]), (parent, b"..")].map(|(ino, name)| Name {
            name: name.to_vec(),
            ino,
            file_type: FileKind::Directory.dir_type(),
        });
        let all: Vec<&Name> = dots.iter().chain(names).collect();
        let linear = chunks(&all, layout.end());
        let index = self.g.features.compat.contains(Compat::DIR_INDEX);
        if linear.len() > 1
            && index
            && let Some(tree) = self.tree_blocks(ino, parent, names)
        {
            return tree;
        }
        linear.into_iter().map(|part| (Form::Leaf, pack(layout, part))).collect()
    }

    /// The blocks of a hash tree. None where it would be too deep.
    fn tree_blocks(&self, ino: u32, parent: u32, names: &[Name]) -> Option<Vec<(Form, Vec<u8>)>> {
        let layout = self.g.dir_layout();
        let version = self.g.hash_version;
        let hash = |name: &Name| hash_name(version, &self.g.hash_seed, &name.name);
        let mut sorted: Vec<(u32, u32, &Name)> = names
            .iter()
            .map(|name| {
                let hash = hash(name);
                (hash.major, hash.minor, name)
            })
            .collect();
        sorted.sort_by(|a, b| (a.0, a.1, &a.2.name).cmp(&(b.0, b.1, &b.2.name)));
        let list: Vec<&Name> = sorted.iter().map(|(.., name)| *name).collect();
        let parts = chunks(&list, layout.end() * FILL / 4);
        let mut blocks = vec![(Form::Root, Vec::new())];
        let (mut pairs, mut at): (Vec<Pair>, usize) = (Vec::new(), 0);
        for part in parts {
            let first = sorted[at].0;
            let continued = at > 0 && sorted[at - 1].0 == first;
            pairs.push((first | u32::from(continued), blocks.len() as u32));
            at += part.len();
            blocks.push((Form::Leaf, pack(layout, part)));
        }
        let mut root = vec![0; self.g.block_size as usize];
        dir::init_dots(&mut root, layout, ino, parent, FileKind::Directory.dir_type());
        htree::init_root(&mut root, layout, version.on_disk(), 1);
        let room = usize::from(htree::limit(layout, htree::ROOT_ARRAY));
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
                htree::take_pairs(&mut node, layout, htree::Node::new(&root, htree::ROOT_ARRAY), 0);
                fill(&mut node, htree::NODE_ARRAY, part);
                blocks.push((Form::Node, node));
            }
            pairs = above;
        }
        fill(&mut root, htree::ROOT_ARRAY, &pairs);
        // The byte of the levels lies behind hash version and length.
        root[30] = levels as u8;
        blocks[0].1 = root;
        Some(blocks)
    }

    /// Gives the blocks their places and checksums; the old ones are used first.
    fn put_dir(&mut self, ino: u32, blocks: Vec<(Form, Vec<u8>)>) -> Result<(), DeviceError> {
        let inode = self.inodes[&ino].clone();
        let old = inode.map.runs.iter().flat_map(|run| run.start..run.start + run.len);
        let mut old: Vec<u64> = old.collect();
        old.reverse();
        let seed = self.seed(ino, inode.generation);
        let layout = self.g.dir_layout();
        let mut map = Map { nodes: inode.map.nodes.clone(), ..Map::default() };
        let indexed = blocks[0].0 == Form::Root;
        let goal = old.last().copied().unwrap_or(0);
        for (logical, (form, mut data)) in blocks.into_iter().enumerate() {
            let start = match old.pop() {
                Some(block) => block,
                None => match self.take_block(goal)? {
                    Some(block) => block,
                    None => break,
                },
            };
            match (layout.checksum, form) {
                (false, _) => {}
                (true, Form::Leaf) => dir::set_checksum(seed, &mut data),
                (true, Form::Root) => htree::set_checksum(seed, &mut data, htree::ROOT_ARRAY),
                (true, Form::Node) => htree::set_checksum(seed, &mut data, htree::NODE_ARRAY),
            }
            self.view.write(start, &data);
            map.push(FileRun { logical: logical as u64, start, len: 1, unwritten: false });
        }
        for block in old {
            self.used.clear(block);
        }
        let inode = self.inodes.get_mut(&ino).expect("it is there");
        inode.map = map;
        inode.rewrite = true;
        inode.flags.set(InodeFlags::INDEX, indexed);
        Ok(())
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
fn chunks<'a, 'b>(names: &'b [&'a Name], room: usize) -> Vec<&'b [&'a Name]> {
    let mut parts = Vec::new();
    let (mut from, mut bytes) = (0, 0);
    for (index, name) in names.iter().enumerate() {
        let len = entry_len(name.name.len());
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
    let entries = names.iter().map(|name| Entry {
        offset: 0,
        rec_len: 0,
        ino: name.ino,
        file_type: name.file_type,
        name: &name.name,
        hash: NameHash::default(),
    });
    dir::pack(&mut data, layout, entries);
    data
}
