//! The blocks of an attribute fork that is being changed, and the border between the forks.

use std::ops::Range;
use std::sync::Arc;

use base::{FsBlock, Ino};
use rt::Cx;

use super::Name;
use super::attribute::{Attribute, RemoteValue};
use crate::alloc::{AllocRequest, Space};
use crate::bmap::edit::MapEdit;
use crate::bmap::{self, Extents, Fork, Forks, Which};
use crate::buf::{Buf, BufOps};
use crate::da_btree::DaFork;
use crate::error::Result;
use crate::format::btree::{MapRoot, emit_root};
use crate::format::extent::{EXTENT_SIZE, Extent};
use crate::format::inode::{CORE_SIZE, ForkFormat, InodeCore};
use crate::format::{At, CorruptKind, Expect, Kind, Owner, da, remote};
use crate::trans::Trans;
use crate::trans::intent::Work;

/// Bytes of the smallest root of a block map that a data fork, and an attribute fork, must have
/// room for.
pub(super) const ROOT_MIN: (usize, usize) = (56, 40);
/// Bytes of a data fork in the inode that leave room for attributes.
pub(crate) fn local_max(inode_size: u32) -> usize {
    inode_size as usize - CORE_SIZE - ROOT_MIN.1
}

/// Where the border lies if nothing else is wanted, in bytes of the data fork.
const BORDER: usize = 192;

static TREE: BufOps = BufOps {
    name: "attribute block",
    kinds: &[Kind::AttrLeaf, Kind::DaNode],
    check: Some(da::check_block),
    unmapped: false,
};
static REMOTE: BufOps =
    BufOps { name: "attribute value", kinds: &[Kind::AttrRemote], check: None, unmapped: false };

/// An inode whose attributes are changed in a transaction. The caller holds its locks, has read the
/// extents of both forks, and logs the inode afterwards: core and both forks.
pub(crate) struct AttrEdit<'a> {
    pub space: &'a Space,
    pub trans: &'a mut Trans,
    pub ino: Ino,
    pub core: &'a mut InodeCore,
    pub forks: &'a mut Forks,
}

/// Gives a fork so many bytes of the inode; what it holds must fit.
fn resize(fork: &mut Fork, room: usize, at: At) -> Result<()> {
    match fork.format {
        ForkFormat::Btree => {
            let root = MapRoot::parse(&fork.bytes, at)?;
            let children: Vec<_> =
                (0..root.len()).map(|index| (root.key(index), root.pointer(index))).collect();
            let mut bytes = vec![0; room];
            emit_root(&mut bytes, root.level, &children);
            fork.bytes = bytes;
        }
        // Local data are as long as they are.
        ForkFormat::Local if fork.bytes.len() < room => {}
        _ => {
            fork.make_bytes();
            fork.bytes.resize(room, 0);
        }
    }
    Ok(())
}

impl AttrEdit<'_> {
    pub(super) fn block_size(&self) -> usize {
        self.space.geometry.block_size as usize
    }

    /// Bytes that both forks have together.
    fn literal(&self) -> usize {
        self.space.geometry.inode_size as usize - CORE_SIZE
    }

    /// Bytes that the attribute fork has.
    pub(super) fn room(&self) -> usize {
        match self.core.forkoff {
            0 => 0,
            forkoff => self.literal() - 8 * usize::from(forkoff),
        }
    }

    /// Bytes that the data fork needs in the form that it has.
    fn data_need(&self) -> usize {
        let data = &self.forks.data;
        let need = match data.format {
            ForkFormat::Device => return 8,
            ForkFormat::Local => data.bytes.len(),
            ForkFormat::Extents => data.count as usize * EXTENT_SIZE,
            ForkFormat::Btree | ForkFormat::MetaBtree => 0,
        };
        need.max(ROOT_MIN.0).next_multiple_of(8)
    }

    /// The border that leaves so many bytes for attributes and the data fork as it is.
    pub(super) fn border_for(&self, bytes: usize) -> Option<u8> {
        let need = self.data_need();
        if self.forks.data.format == ForkFormat::Device {
            return (need + bytes <= self.literal()).then_some(1);
        }
        let bytes = bytes.max(ROOT_MIN.1).next_multiple_of(8);
        let border = self.literal().checked_sub(bytes)?;
        (border >= need).then_some((border / 8) as u8)
    }

    /// The border for attributes that lie in blocks, where there was none.
    pub(super) fn border_for_blocks(&self) -> Option<u8> {
        if let Some(border) = self.border_for(self.literal() - BORDER) {
            return Some(border);
        }
        self.border_for(ROOT_MIN.1)
    }

    /// The map of a fork, with the transaction that changes it.
    fn map_edit(&mut self, which: Which) -> (MapEdit<'_>, &mut Trans) {
        let near = self.space.geometry.ino_place(self.ino).0;
        let (space, ino) = (self.space, self.ino);
        let fork = self.forks.get_mut(which);
        fork.make_bytes();
        let blocks = &mut self.core.blocks;
        (MapEdit { space, ino, which, fork, blocks, near, content: None }, &mut *self.trans)
    }

    /// Puts the border between the forks at another place.
    ///
    /// # Errors
    /// [`XfsError::NoSpace`](crate::XfsError::NoSpace) for a block of the data fork's map.
    pub(super) fn set_border(&mut self, cx: &mut Cx, forkoff: u8) -> Result<()> {
        let at = At::Inode(self.ino);
        let data = match forkoff {
            0 => self.literal(),
            forkoff => 8 * usize::from(forkoff),
        };
        if self.forks.data.format == ForkFormat::Btree {
            let (mut map, trans) = self.map_edit(Which::Data);
            map.fit_root(cx, trans, data)?;
        }
        let attr = self.literal() - data;
        resize(&mut self.forks.data, data, at)?;
        resize(&mut self.forks.attr, attr, at)?;
        if self.forks.attr.format == ForkFormat::Local {
            self.forks.attr.bytes.resize(attr, 0);
        }
        self.core.forkoff = forkoff;
        Ok(())
    }

    /// Makes the data fork's list of extents a btree, so that attributes find room beside it.
    pub(super) fn shrink_data(&mut self, cx: &mut Cx) -> Result<()> {
        if self.forks.data.format != ForkFormat::Extents {
            return Ok(());
        }
        let (mut map, trans) = self.map_edit(Which::Data);
        map.force_tree(cx, trans)
    }

    /// An empty attribute fork of extents.
    pub(super) fn reset_fork(&mut self) {
        let bytes = vec![0; self.room()];
        self.forks.attr = Fork::new(ForkFormat::Extents, bytes, 0);
        self.forks.attr.extents = Some(Extents::new());
    }

    fn extents(&self) -> &[Extent] {
        self.forks.attr.extents.as_deref().unwrap_or_default()
    }

    /// The first `count` blocks of the fork that have no place yet.
    fn unused(&self, count: u64) -> u64 {
        let mut at = 0;
        for extent in self.extents() {
            if extent.offset >= at + count {
                break;
            }
            at = at.max(extent.end());
        }
        at
    }

    /// Gives places to `count` blocks of the fork; returns the first one. May park.
    ///
    /// # Errors
    /// [`XfsError::NoSpace`](crate::XfsError::NoSpace).
    pub(super) fn add_blocks(&mut self, cx: &mut Cx, count: u32) -> Result<u64> {
        let first = self.unused(u64::from(count));
        let mut done = 0;
        while done < count {
            let offset = first + u64::from(done);
            let last = self.extents().iter().rev().find(|extent| extent.end() <= offset);
            let goal = match last {
                Some(last) => self.space.split(last.start + u64::from(last.count)),
                None => self.space.geometry.ino_place(self.ino).0,
            };
            let owner = Some(Owner::fork(self.ino.0, true, offset, false));
            let want = AllocRequest {
                goal,
                min_len: 1,
                max_len: count - done,
                align: 1,
                this_group: false,
                owner,
                metadata: true,
            };
            let found = self.space.allocate_metadata(cx, self.trans, &want)?;
            let start = self.space.geometry.join(found.start);
            let extent = Extent { offset, start, count: found.len, unwritten: false };
            self.core.blocks += u64::from(found.len);
            let (mut map, trans) = self.map_edit(Which::Attr);
            map.add(cx, trans, extent)?;
            done += found.len;
        }
        Ok(first)
    }

    /// Where a block of the fork lies.
    fn place(&self, block: u64) -> Result<FsBlock> {
        let mapped = bmap::lookup(self.extents(), block..block + 1);
        let hole = CorruptKind::AttrHole { block };
        mapped.start.ok_or_else(|| hole.at(At::Inode(self.ino)).into())
    }

    pub(super) fn expect(&self, block: u64) -> Result<Expect> {
        let address = self.space.geometry.sector(self.place(block)?);
        Ok(self.space.geometry.expect(address, Some(self.ino.0)))
    }

    /// A leaf or a node of the fork. May park.
    ///
    /// # Errors
    /// A check of the block; the device failed.
    pub(super) fn read_block(&mut self, cx: &mut Cx, block: u64) -> Result<Arc<Buf>> {
        let map = self.space.block_map(self.space.split(self.place(block)?));
        let buf = self.trans.read_buf(cx, &[map], &TREE)?;
        let kind = buf.kind().unwrap_or(Kind::AttrLeaf);
        let (expect, at) = (self.expect(block)?, self.at(block));
        buf.with(|data| crate::format::verifier::verify_identity(kind, data, &expect, at))?;
        Ok(buf)
    }

    /// A block of the fork for a new content. May park.
    ///
    /// # Errors
    /// The device failed.
    pub(super) fn fresh(&mut self, cx: &mut Cx, block: u64, kind: Kind) -> Result<Arc<Buf>> {
        let map = self.space.block_map(self.space.split(self.place(block)?));
        let ops = if kind == Kind::AttrRemote { &REMOTE } else { &TREE };
        let buf = self.trans.get_buf(cx, &[map], ops)?;
        buf.zero();
        buf.set_kind(kind);
        Ok(buf)
    }

    /// Gives blocks of the fork back; nobody may look into them any more. May park.
    ///
    /// # Errors
    /// The device failed.
    pub(super) fn free_blocks(
        &mut self,
        cx: &mut Cx,
        blocks: Range<u64>,
        kind: Kind,
    ) -> Result<()> {
        for block in blocks.clone() {
            let map = self.space.block_map(self.space.split(self.place(block)?));
            let ops = if kind == Kind::AttrRemote { &REMOTE } else { &TREE };
            let buf = self.trans.get_buf(cx, &[map], ops)?;
            self.trans.invalidate(&buf);
        }
        let (mut map, trans) = self.map_edit(Which::Attr);
        let gone = map.remove(cx, trans, blocks)?;
        for extent in gone {
            self.core.blocks -= u64::from(extent.count);
            let owner = Owner::fork(self.ino.0, true, extent.offset, false);
            self.trans.defer(Work::free(extent.start.0, extent.count, Some(owner)));
        }
        Ok(())
    }

    /// Writes a value into blocks of its own. May park.
    ///
    /// # Errors
    /// [`XfsError::NoSpace`](crate::XfsError::NoSpace).
    pub(super) fn write_remote(&mut self, cx: &mut Cx, value: &[u8]) -> Result<RemoteValue> {
        let size = self.block_size();
        let first = self.add_blocks(cx, remote::blocks(value.len() as u64, size) as u32)?;
        for (index, piece) in value.chunks(remote::room(size)).enumerate() {
            let block = first + index as u64;
            let buf = self.fresh(cx, block, Kind::AttrRemote)?;
            let offset = (index * remote::room(size)) as u64;
            let expect = self.expect(block)?;
            buf.with_mut(|data| {
                remote::emit(Kind::AttrRemote, data, offset, piece, &expect);
            });
            self.trans.log_buf(&buf, 0, remote::HEADER + piece.len() - 1);
        }
        Ok(RemoteValue { block: first as u32, len: value.len() as u32 })
    }

    /// Gives the blocks of a value back. May park.
    ///
    /// # Errors
    /// As [`AttrEdit::free_blocks`].
    pub(super) fn free_remote(&mut self, cx: &mut Cx, value: RemoteValue) -> Result<()> {
        let first = u64::from(value.block);
        let count = remote::blocks(u64::from(value.len), self.block_size());
        self.free_blocks(cx, first..first + count, Kind::AttrRemote)
    }

    /// Gives back the blocks of a value that are still there. May park.
    ///
    /// # Errors
    /// As [`AttrEdit::free_blocks`].
    pub(super) fn free_what_is_left(&mut self, cx: &mut Cx, value: RemoteValue) -> Result<()> {
        let first = u64::from(value.block);
        let end = first + remote::blocks(u64::from(value.len), self.block_size());
        let inside = |extent: &Extent| extent.offset.max(first)..extent.end().min(end);
        let left: Vec<_> = self.extents().iter().map(inside).collect();
        for blocks in left.into_iter().filter(|blocks| !blocks.is_empty()) {
            self.free_blocks(cx, blocks, Kind::AttrRemote)?;
        }
        Ok(())
    }
}

impl Name {
    /// Whether an attribute in the fork has this name.
    pub(super) fn is(&self, attr: &Attribute) -> bool {
        use crate::format::attr::{AttrFlags, NAMESPACE};
        attr.name == self.rest
            && attr.flags & NAMESPACE == self.space
            && !attr.flags.contains(AttrFlags::INCOMPLETE)
            && self.parent.is_none_or(|value| attr.local_value() == Some(&value))
    }
}
