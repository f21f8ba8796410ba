//! Extent trees: finding, inserting, converting and removing runs of blocks, at any depth.
//!
//! Every function here needs the inode's map lock, for writing where it changes something. Each
//! change of the tree that is visible on the disk is complete in itself, so a handle may be
//! restarted between any two of them.
//!
//! - this file: the way from the root to a leaf, and lookups;
//! - [`insert`]: entries go in, nodes are split, the tree grows;
//! - [`convert`]: unwritten becomes written, and back;
//! - [`remove`]: entries go out, empty nodes with them.

use std::sync::Arc;

use base::Errno;
use cache::BufferRef;
use rt::Cx;
use smallvec::SmallVec;

use crate::bmap::Bmap;
use crate::format::extent::{self, ENTRY_SIZE, Extent, Node};
use crate::format::{At, CorruptKind};
use crate::trans::ext4_jbd2::Handle;

mod convert;
mod insert;
mod remove;

pub(crate) use remove::Removed;

/// Kind of the checksum trigger of extent blocks, see [`Inode::trigger`].
const TRIGGER_EXTENT: usize = 0;

/// One node on the way from the root to a leaf.
#[derive(Clone, Debug)]
struct Level {
    /// The node's block; `None` for the root in the inode.
    buffer: Option<BufferRef>,
    /// The entry through which the way goes on; in the leaf the last entry that does not begin
    /// behind the block that was looked for. `None` where all begin behind it (leaf only).
    at: Option<usize>,
    entries: usize,
    max: usize,
}

/// The way from the root (first) to a leaf (last).
#[derive(Debug)]
struct Path(SmallVec<[Level; 4]>);

impl Path {
    fn depth(&self) -> usize {
        self.0.len() - 1
    }

    fn leaf(&self) -> &Level {
        self.0.last().expect("a path has a root")
    }
}

/// What a lookup finds at a logical block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum FoundExtent {
    /// The whole extent that holds the block.
    Extent(Extent),
    /// A hole; the next extent begins at this block (`u32::MAX`: nothing follows).
    Hole { next: u32 },
}

impl Bmap<'_> {
    /// Looks at a node's bytes.
    fn with_node<R>(self, cx: &Cx, buffer: Option<&BufferRef>, look: impl FnOnce(&[u8]) -> R) -> R {
        match buffer {
            Some(buffer) => buffer.with(look),
            None => self.inode.with(cx, |core| look(&core.block)),
        }
    }

    /// Changes a node's bytes. The root is not written here: whoever changes a tree marks the inode
    /// dirty at the end.
    fn change_node<R>(
        self,
        cx: &mut Cx,
        handle: &mut Handle,
        buffer: Option<&BufferRef>,
        change: impl FnOnce(&mut [u8]) -> R,
    ) -> Result<R, Errno> {
        match buffer {
            None => Ok(self.inode.with(cx, |core| change(&mut core.values.block))),
            Some(buffer) => {
                handle.write_access(cx, buffer)?;
                let result = buffer.with_mut(change);
                handle.dirty(cx, buffer)?;
                Ok(result)
            }
        }
    }

    /// Reads a node's block and checks it once.
    fn extent_block(
        self,
        cx: &mut Cx,
        block: u64,
        depth: u16,
        key: u32,
    ) -> Result<BufferRef, Errno> {
        let buffer = self.fs.sb.read_block(cx, block)?;
        let at = At::Block(self.inode.ino, block);
        let checked = if buffer.verified() {
            buffer.with(|data| Node::parse(data, Some(depth), at).map(|_| ()))
        } else {
            let generation = self.inode.with(cx, |core| core.generation);
            let seed = self.fs.sb.geometry.checksums.inode_seed(self.inode.ino, generation);
            buffer.with(|data| {
                let node = Node::parse_block(data, depth, seed, &self.fs.sb.geometry, at)?;
                let room = extent::block_max(self.fs.sb.geometry.block_size);
                if !(8..=usize::from(room)).contains(&node.max()) {
                    let kind = CorruptKind::ExtentMax { found: node.max() as u16, limit: room };
                    return Err(kind.at(at));
                }
                match (!node.is_empty()).then(|| node.key(0)) {
                    Some(found) if found < key => {
                        Err(CorruptKind::ExtentParent { found, expected: key }.at(at))
                    }
                    _ => Ok(()),
                }
            })
        };
        checked.map_err(|corrupt| self.fs.sb.corrupt(cx, &corrupt))?;
        if !buffer.verified() {
            buffer.set_verified(true);
        }
        if !buffer.has_trigger() {
            self.set_extent_trigger(cx, &buffer);
        }
        Ok(buffer)
    }

    fn set_extent_trigger(self, cx: &Cx, buffer: &BufferRef) {
        if !self.fs.sb.geometry.checksums.metadata {
            return;
        }
        let generation = self.inode.with(cx, |core| core.generation);
        let seed = self.fs.sb.geometry.checksums.inode_seed(self.inode.ino, generation);
        let trigger = self.inode.trigger(TRIGGER_EXTENT, || {
            Arc::new(move |_block, data: &mut [u8]| seed.set_extent_block(data))
        });
        buffer.set_trigger(Some(trigger));
    }

    /// The way to the leaf that holds `lblk`, or would hold it.
    fn find_path(self, cx: &mut Cx, lblk: u32) -> Result<Path, Errno> {
        let mut path = Path(SmallVec::new());
        let mut buffer: Option<BufferRef> = None;
        let mut expected = None;
        loop {
            let at = At::Inode(self.inode.ino);
            let parsed = self.with_node(cx, buffer.as_ref(), |data| {
                let node = Node::parse(data, expected, at)?;
                let found = node.find(lblk);
                let down = (node.depth() > 0).then(|| node.index(found.unwrap_or(0)));
                Ok((found, node.len(), node.max(), node.depth(), down))
            });
            let (found, entries, max, depth, down) =
                parsed.map_err(|corrupt| self.fs.sb.corrupt(cx, &corrupt))?;
            let at = if down.is_some() { Some(found.unwrap_or(0)) } else { found };
            path.0.push(Level { buffer: buffer.take(), at, entries, max });
            let Some(pointer) = down else { return Ok(path) };
            expected = Some(depth - 1);
            buffer = Some(self.extent_block(cx, pointer.leaf, depth - 1, pointer.block)?);
        }
    }

    /// The leaf entry with this index.
    fn leaf_extent(self, cx: &Cx, path: &Path, index: usize) -> Option<Extent> {
        self.with_node(cx, path.leaf().buffer.as_ref(), |data| {
            (index < entry_count(data)).then(|| entry(data, index))
        })
    }

    /// First block of what follows the leaf's entry `index` in the tree; `u32::MAX` for nothing.
    fn next_key(self, cx: &Cx, path: &Path, index: usize) -> u32 {
        let mut at = index;
        for (depth, level) in path.0.iter().enumerate().rev() {
            if depth != path.depth() {
                at = level.at.unwrap_or(0) + 1;
            }
            let key = self.with_node(cx, level.buffer.as_ref(), |data| {
                (at < entry_count(data)).then(|| key(data, at))
            });
            if let Some(key) = key {
                return key;
            }
        }
        u32::MAX
    }

    /// What lies at `lblk`. Needs the map lock.
    ///
    /// # Errors
    /// `EUCLEAN`, `EIO`.
    pub(crate) fn extent_lookup(self, cx: &mut Cx, lblk: u32) -> Result<FoundExtent, Errno> {
        let path = self.find_path(cx, lblk)?;
        let at = path.leaf().at;
        if let Some(at) = at
            && let Some(extent) = self.leaf_extent(cx, &path, at)
            && u64::from(lblk) < extent.end()
        {
            return Ok(FoundExtent::Extent(extent));
        }
        let next = self.next_key(cx, &path, at.map_or(0, |at| at + 1));
        Ok(FoundExtent::Hole { next })
    }

    /// The block that would be best for new data at `lblk`: beside the neighbour before it.
    pub(crate) fn extent_goal(self, cx: &mut Cx, lblk: u32) -> Result<u64, Errno> {
        let path = self.find_path(cx, lblk)?;
        if let Some(at) = path.leaf().at
            && let Some(extent) = self.leaf_extent(cx, &path, at)
        {
            let goal = extent.start + u64::from(lblk - extent.block);
            return Ok(if goal < self.fs.sb.geometry.blocks_count { goal } else { extent.start });
        }
        if path.leaf().entries > 0
            && let Some(extent) = self.leaf_extent(cx, &path, 0)
        {
            let before = u64::from(extent.block.saturating_sub(lblk));
            return Ok(extent.start.saturating_sub(before));
        }
        Ok(path.leaf().buffer.as_ref().map_or(0, |buffer| buffer.block()))
    }

    /// Levels of the tree: 0 where all extents are in the self.inode.
    pub(crate) fn extent_depth(self, cx: &Cx) -> u32 {
        self.inode.with(cx, |core| u32::from(u16::from_le_bytes([core.block[6], core.block[7]])))
    }

    /// The parents' keys follow when the first entry of the node at `level` begins elsewhere.
    fn fix_keys(
        self,
        cx: &mut Cx,
        handle: &mut Handle,
        path: &Path,
        level: usize,
        first: u32,
    ) -> Result<(), Errno> {
        for parent in path.0[..level].iter().rev() {
            let at = parent.at.unwrap_or(0);
            self.change_node(cx, handle, parent.buffer.as_ref(), |data| {
                data[ENTRY_SIZE * (at + 1)..][..4].copy_from_slice(&first.to_le_bytes());
            })?;
            if at != 0 {
                break;
            }
        }
        Ok(())
    }
}

/// Number of entries by the node's header.
fn entry_count(data: &[u8]) -> usize {
    usize::from(u16::from_le_bytes([data[2], data[3]]))
}

/// First logical block of an entry of either kind.
fn key(data: &[u8], index: usize) -> u32 {
    let at = ENTRY_SIZE * (index + 1);
    u32::from_le_bytes(data[at..at + 4].try_into().expect("four bytes"))
}

/// Leaf entry `index`.
fn entry(data: &[u8], index: usize) -> Extent {
    let at = ENTRY_SIZE * (index + 1);
    let word = |at: usize| u16::from_le_bytes([data[at], data[at + 1]]);
    let len = u32::from(word(at + 4));
    let unwritten = len > extent::LEN_MAX;
    let low = u32::from_le_bytes(data[at + 8..at + 12].try_into().expect("four bytes"));
    Extent {
        block: key(data, index),
        len: if unwritten { len - extent::LEN_MAX } else { len },
        start: u64::from(low) | u64::from(word(at + 6)) << 32,
        unwritten,
    }
}

fn set_count(data: &mut [u8], entries: usize) {
    data[2..4].copy_from_slice(&(entries as u16).to_le_bytes());
}

/// Makes room for one entry at `index` and fills it.
fn insert_raw(data: &mut [u8], index: usize, raw: &[u8]) {
    let entries = entry_count(data);
    let at = ENTRY_SIZE * (index + 1);
    data.copy_within(at..ENTRY_SIZE * (entries + 1), at + ENTRY_SIZE);
    data[at..at + ENTRY_SIZE].copy_from_slice(raw);
    set_count(data, entries + 1);
}

/// Takes entry `index` out.
fn remove_raw(data: &mut [u8], index: usize) {
    let entries = entry_count(data);
    let at = ENTRY_SIZE * (index + 1);
    data.copy_within(at + ENTRY_SIZE..ENTRY_SIZE * (entries + 1), at);
    data[ENTRY_SIZE * entries..ENTRY_SIZE * (entries + 1)].fill(0);
    set_count(data, entries - 1);
}
