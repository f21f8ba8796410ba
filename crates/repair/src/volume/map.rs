//! The blocks of a file whose map is sound.

use ext4::format::extent::{FileRun, Node};
use ext4::format::{At, CorruptKind, FileKind, InodeFlags, InodeValues};

use super::{EditError, Volume, corrupt};
use base::Ino;

/// Slots of `i_block`, of which the first 12 name data.
const SLOTS: usize = 15;
const DIRECT: usize = 12;

/// A file's runs and the blocks that map them.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct FileMap {
    /// In the order of the file.
    pub runs: Vec<FileRun>,
    /// Blocks of the extent tree, or of pointers.
    pub nodes: Vec<u64>,
}

impl FileMap {
    /// Every block of data with its place in the file.
    pub fn blocks(&self) -> impl Iterator<Item = (u64, u64)> {
        self.runs.iter().flat_map(|run| (0..run.len).map(|i| (run.logical + i, run.start + i)))
    }
}

/// True where the inode has blocks of data.
pub fn has_map(values: &InodeValues) -> bool {
    if values.flags.contains(InodeFlags::INLINE_DATA) {
        return false;
    }
    match values.kind() {
        Some(FileKind::Regular | FileKind::Directory) => true,
        Some(FileKind::Symlink) => !values.is_fast_symlink(),
        Some(_) => false,
        // Of the reserved inodes that of the bad blocks has a map without a mode.
        None => values.block.iter().any(|&byte| byte != 0),
    }
}

/// A pointer in `i_block` or in a block of pointers.
pub fn word(data: &[u8], index: usize) -> u64 {
    u32::from_le_bytes(data[index * 4..index * 4 + 4].try_into().expect("four bytes")).into()
}

/// The slots of `i_block`, the last one first: block, levels below it, place in the file. A block
/// holds `per` pointers.
pub fn slots(values: &InodeValues, per: u64) -> Vec<(u64, u32, u64)> {
    let mut logical = 0;
    let mut list = Vec::new();
    for slot in 0..SLOTS {
        let levels = (slot + 1).saturating_sub(DIRECT) as u32;
        list.push((word(&values.block, slot), levels, logical));
        logical += per.pow(levels);
    }
    list.reverse();
    list
}

impl Volume<'_> {
    /// Follows the map of an inode that has one. Parks.
    ///
    /// # Errors
    /// The device's; what is wrong with it.
    pub fn file_map(&mut self, ino: u32, values: &InodeValues) -> Result<FileMap, EditError> {
        let mut map = FileMap::default();
        match values.flags.contains(InodeFlags::EXTENTS) {
            true => self.extents(ino, values, &mut map)?,
            false => self.pointers(ino, values, &mut map)?,
        }
        Ok(map)
    }

    fn extents(&mut self, ino: u32, v: &InodeValues, map: &mut FileMap) -> Result<(), EditError> {
        let at = At::Inode(Ino(ino.into()));
        let seed = self.g.checksums.inode_seed(Ino(ino.into()), v.generation);
        let root = Node::parse(&v.block, None, at)?;
        root.check_entries(&self.g, at)?;
        let mut todo = Vec::new();
        let mut take = |node: &Node<'_>, todo: &mut Vec<(u64, u16)>| {
            if node.depth() == 0 {
                for e in node.extents() {
                    let (logical, len) = (u64::from(e.block), u64::from(e.len));
                    let (start, unwritten) = (e.start, e.unwritten);
                    FileRun { logical, start, len, unwritten }.join(&mut map.runs);
                }
            }
            let below = node.depth().saturating_sub(1);
            if node.depth() > 0 {
                todo.extend(node.indexes().rev().map(|index| (index.leaf, below)));
            }
        };
        take(&root, &mut todo);
        let most = self.g.blocks_count;
        while let Some((block, depth)) = todo.pop() {
            let data = self.view.original(block)?;
            let node = Node::parse_block(&data, depth, seed, &self.g, at)?;
            take(&node, &mut todo);
            map.nodes.push(block);
            if map.nodes.len() as u64 > most {
                return Err(CorruptKind::ExtentTooDeep { found: depth }.at(at).into());
            }
        }
        Ok(())
    }

    fn pointers(&mut self, ino: u32, v: &InodeValues, map: &mut FileMap) -> Result<(), EditError> {
        let per = u64::from(self.g.block_size / 4);
        let mut todo = slots(v, per);
        while let Some((block, levels, logical)) = todo.pop() {
            if block == 0 {
                continue;
            }
            if !self.g.data_blocks_valid(block, 1) {
                let (first, end) = (u64::from(self.g.first_data_block), self.g.blocks_count);
                let kind = CorruptKind::ExtentPlace { index: 0, start: block, len: 1, first, end };
                return Err(corrupt(kind, ino));
            }
            if levels == 0 {
                let run = FileRun { logical, start: block, len: 1, unwritten: false };
                run.join(&mut map.runs);
                continue;
            }
            map.nodes.push(block);
            if map.nodes.len() as u64 > self.g.blocks_count {
                return Err(corrupt(CorruptKind::ExtentTooDeep { found: 3 }, ino));
            }
            let data = self.view.original(block)?;
            let span = per.pow(levels - 1);
            for index in (0..per).rev() {
                todo.push((word(&data, index as usize), levels - 1, logical + index * span));
            }
        }
        Ok(())
    }
}
