//! Inodes written back: core, both forks, and the blocks of their maps.

use base::{FsBlock, Ino};
use xfs::format::btree::{emit_root, root_max};
use xfs::format::extent::EXTENT_SIZE;
use xfs::format::inode::{CORE_SIZE, ForkFormat, InodeCore, fork_ranges};
use xfs::format::{Extent, Kind};

use super::Fs;
use super::forks::Which;
use super::tree_build::{Builder, blocks_for};
use crate::RepairError;

/// The smallest and the usual room of a fork in its inode, bytes.
pub const ROOM_MIN: usize = 24;
pub const ROOM_USUAL: usize = 192;

/// What a fork of an inode is to hold.
enum Content {
    /// Bytes that lie in the inode: the content itself, a device number.
    Bytes(Vec<u8>),
    /// These extents.
    Map(Vec<Extent>),
}

impl Content {
    /// Bytes that it needs in the inode at least, and those that it would take gladly.
    fn room(&self) -> (usize, usize) {
        match self {
            Content::Bytes(bytes) => (bytes.len(), bytes.len()),
            Content::Map(list) if list.is_empty() => (0, 0),
            Content::Map(list) => {
                let all = list.len() * EXTENT_SIZE;
                (all.min(ROOM_MIN), all.min(ROOM_USUAL))
            }
        }
    }
}

/// Where the attribute fork begins, in units of eight bytes: as it is where both fit, else behind
/// the content; 0 where there are no attributes. None where they do not fit.
fn border(old: u8, data: &Content, attr: &Content, inode_size: usize) -> Option<u8> {
    let room = inode_size - CORE_SIZE;
    let (data_least, data_gladly) = data.room();
    let (attr_least, _) = attr.room();
    if attr_least == 0 && old == 0 {
        return (data_least <= room).then_some(0);
    }
    let at = 8 * usize::from(old);
    if old > 0 && data_least <= at && attr_least + at <= room {
        return Some(old);
    }
    let wanted = |bytes: usize| bytes.max(ROOM_MIN).next_multiple_of(8);
    let attr_room = attr_least.max(ROOM_MIN);
    let at = [ROOM_USUAL.max(wanted(data_gladly)), wanted(data_gladly), wanted(data_least)]
        .into_iter()
        .find(|at| at + attr_room <= room)?;
    Some((at / 8) as u8)
}

impl Fs<'_> {
    /// Writes all inodes whose core or forks changed.
    ///
    /// # Errors
    /// There is no room for the blocks of a map, or for the forks in their inode.
    pub fn store_inodes(&mut self) -> Result<(), RepairError> {
        let dirty = self.inodes.iter().filter(|(_, inode)| inode.dirty);
        for ino in dirty.map(|(&ino, _)| ino).collect::<Vec<_>>() {
            self.store(Ino(ino))?;
        }
        Ok(())
    }

    fn store(&mut self, ino: Ino) -> Result<(), RepairError> {
        let mut slot = self.slot(ino)?;
        let size = slot.len();
        let old = InodeCore::parse(&slot, ino, &self.g).ok();
        let contents = [Which::Data, Which::Attr].map(|which| self.content(ino, &slot, which));
        let [data, attr] = contents;
        let inode = self.inodes.get_mut(&ino.0).expect("it is stored");
        let forkoff = border(inode.core.forkoff, &data, &attr, size)
            .ok_or_else(|| RepairError::Hopeless(format!("inode {ino}: its forks do not fit")))?;
        let moved = old.is_none_or(|old| old.forkoff != forkoff);
        inode.core.forkoff = forkoff;
        let (data_range, attr_range) = fork_ranges(forkoff, size);
        for (which, content, range) in
            [(Which::Data, data, data_range), (Which::Attr, attr, attr_range)]
        {
            let again = self.inodes[&ino.0].is_new(which);
            match content {
                Content::Bytes(bytes) => {
                    slot[range.clone()].fill(0);
                    slot[range.start..][..bytes.len()].copy_from_slice(&bytes);
                }
                Content::Map(list) if again || moved => {
                    let mut fork = vec![0; range.len()];
                    self.store_map(ino, which, &list, &mut fork)?;
                    slot[range].copy_from_slice(&fork);
                }
                Content::Map(_) => {}
            }
        }
        let inode = self.inodes.get_mut(&ino.0).expect("it is stored");
        inode.core.blocks = inode.data.blocks() + inode.attr.blocks();
        (inode.dirty, inode.map_data, inode.map_attr) = (false, false, false);
        inode.core.emit(&mut slot);
        Ok(self.put_slot(ino, &mut slot)?)
    }

    /// What a fork is to hold: what the repair made, or what the slot holds.
    fn content(&self, ino: Ino, slot: &[u8], which: Which) -> Content {
        let inode = &self.inodes[&ino.0];
        let (data, attr) = fork_ranges(inode.core.forkoff, slot.len());
        let (range, format, new) = match which {
            Which::Data => (data, inode.core.format, &inode.small_data),
            Which::Attr => (attr, inode.core.attr_format, &inode.small_attr),
        };
        if let Some(bytes) = new {
            return Content::Bytes(bytes.clone());
        }
        match format {
            ForkFormat::MetaBtree => Content::Bytes(slot[range].to_vec()),
            ForkFormat::Device => Content::Bytes(slot[range][..8].to_vec()),
            ForkFormat::Local if which == Which::Data => {
                let bytes = &slot[range];
                Content::Bytes(bytes[..(inode.core.size as usize).min(bytes.len())].to_vec())
            }
            ForkFormat::Local => {
                let bytes = &slot[range];
                let total = usize::from(u16::from_be_bytes([bytes[0], bytes[1]]));
                Content::Bytes(bytes[..total.clamp(4, bytes.len())].to_vec())
            }
            _ => Content::Map(inode.fork(which).mapped().clone()),
        }
    }

    /// Writes a map into the room of its fork: as a list, or with blocks of its own.
    fn store_map(
        &mut self,
        ino: Ino,
        which: Which,
        list: &[Extent],
        fork: &mut [u8],
    ) -> Result<(), RepairError> {
        let mut tree = Vec::new();
        let format = if list.len() * EXTENT_SIZE <= fork.len() {
            for (extent, slot) in list.iter().zip(fork.chunks_exact_mut(EXTENT_SIZE)) {
                extent.write(slot);
            }
            ForkFormat::Extents
        } else {
            tree = self.store_tree(ino, list, fork)?;
            ForkFormat::Btree
        };
        let inode = self.inodes.get_mut(&ino.0).expect("it is stored");
        match which {
            Which::Data => {
                (inode.core.format, inode.core.extents) = (format, list.len() as u64);
                inode.data.tree = tree;
                (inode.data.wrong, inode.data.wrong_key) = (None, None);
            }
            Which::Attr => {
                (inode.core.attr_format, inode.core.attr_extents) = (format, list.len() as u32);
                inode.attr.tree = tree;
                (inode.attr.wrong, inode.attr.wrong_key) = (None, None);
            }
        }
        Ok(())
    }

    fn store_tree(
        &mut self,
        ino: Ino,
        list: &[Extent],
        fork: &mut [u8],
    ) -> Result<Vec<FsBlock>, RepairError> {
        let (size, top) = (self.g.block_size as usize, root_max(fork.len()));
        let count = blocks_for(Kind::Bmap, list.len(), size, top);
        let runs = self.take_blocks(count as u32)?;
        let each = runs.iter().flat_map(|&(start, count)| (0..count).map(move |n| (start, n)));
        let tree: Vec<FsBlock> = each.map(|(start, n)| FsBlock(start.0 + u64::from(n))).collect();
        let g = self.g.clone();
        let expect = |block: u64| g.expect(g.sector(FsBlock(block)), Some(ino.0));
        let mut numbers = tree.iter().map(|block| block.0);
        let mut builder = Builder {
            kind: Kind::Bmap,
            block_size: size,
            expect: &expect,
            numbers: &mut numbers,
            blocks: Vec::new(),
        };
        let records: Vec<u8> = list.iter().flat_map(Extent::record).collect();
        let (children, levels) = builder.build(&records, top);
        let children: Vec<(u64, u64)> =
            children.iter().map(|child| (child.low_offset(), child.block)).collect();
        emit_root(fork, levels, &children);
        for block in builder.blocks {
            let linear = self.linear(FsBlock(block.number));
            self.view.write(linear, &block.data);
        }
        Ok(tree)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(count: u64) -> Content {
        let extent =
            |n: u64| Extent { offset: 2 * n, start: FsBlock(n), count: 1, unwritten: false };
        Content::Map((0..count).map(extent).collect())
    }

    #[test]
    fn forks_stay_where_they_fit() {
        let bytes = |len: usize| Content::Bytes(vec![1; len]);
        assert_eq!(border(0, &bytes(300), &map(0), 512), Some(0));
        assert_eq!(border(24, &bytes(100), &bytes(100), 512), Some(24));
        // Content that grew moves the border, attributes that grew move it back.
        assert_eq!(border(24, &bytes(240), &bytes(60), 512), Some(30));
        assert_eq!(border(35, &bytes(100), &bytes(200), 512), Some(13));
        assert_eq!(border(24, &bytes(240), &bytes(160), 512), None);
        assert_eq!(border(0, &map(900), &bytes(60), 512), Some(24));
    }
}
