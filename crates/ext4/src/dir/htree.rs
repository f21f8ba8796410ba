//! Hash trees of directories: searching. Growing is in [`insert`](self), the format in
//! [`crate::format::htree`].
//!
//! A name's hash leads through the nodes to one leaf. Where several names have the same hash and
//! the leaf was split between them, the following leaf is marked as a *continuation*, and a search
//! goes on there.

use cache::BufferRef;
use rt::Cx;
use smallvec::SmallVec;

use base::Errno;

use crate::dir::{Dir, EntryPlace, Place, Role, Slot};
use crate::format::CorruptKind;
use crate::format::dir::{self, Key};
use crate::format::features::Incompat;
use crate::format::hash::HashVersion;
use crate::format::htree::{self, NODE_ARRAY, Node};

mod insert;

/// A node on the way from the root to a leaf.
#[derive(Clone)]
pub(crate) struct Frame {
    pub buffer: BufferRef,
    /// Where its array of pairs begins.
    pub array: usize,
    /// The pair that was followed.
    pub at: u16,
}

impl Frame {
    /// Looks at the node.
    fn with<R>(&self, look: impl FnOnce(Node) -> R) -> R {
        self.buffer.with(|data| look(Node::new(data, self.array)))
    }
}

/// The way from the root to a leaf.
pub(crate) struct Path {
    /// Root first, never empty.
    pub frames: SmallVec<[Frame; 3]>,
    /// Logical block of the leaf.
    pub leaf: u32,
    /// How this tree hashes.
    pub version: Version,
}

/// How a tree hashes names; `None`: the hashes stand beside the names.
pub(crate) type Version = Option<HashVersion>;

impl Dir<'_> {
    /// The most levels of nodes below a root.
    pub(crate) fn levels_max(&self) -> u8 {
        let large = self.fs.sb.geometry.features.incompat.contains(Incompat::LARGEDIR);
        if large { 2 } else { 1 }
    }

    /// The node in logical block `lblk`, and the pair in it that `hash` leads to.
    ///
    /// Its shape is looked at each time, whatever was verified before: a damaged tree may lead here
    /// to a block that was read as a leaf.
    fn frame(&self, cx: &mut Cx, lblk: u32, hash: u32) -> Result<(Frame, u32), Errno> {
        let buffer = self.block(cx, lblk, Role::Node)?;
        self.frame_of(cx, buffer, NODE_ARRAY, hash)
    }

    /// As [`Dir::frame`], for a root or node whose block is at hand.
    fn frame_of(
        &self,
        cx: &Cx,
        buffer: BufferRef,
        array: usize,
        hash: u32,
    ) -> Result<(Frame, u32), Errno> {
        let (limit, blocks) = (htree::limit(self.layout, array), self.blocks);
        let step = buffer.with(|data| {
            if array == NODE_ARRAY && !htree::is_node(data) {
                return Err(CorruptKind::HtreeNode);
            }
            let node = Node::new(data, array);
            let (found, count) = (node.limit(), node.count());
            if found != limit {
                return Err(CorruptKind::HtreeLimit { found, expected: limit });
            }
            if count == 0 || count > limit {
                return Err(CorruptKind::HtreeCount { found: count, limit });
            }
            let at = node.search(hash);
            let child = node.block(at);
            if child == 0 || child >= blocks {
                let blocks = blocks.into();
                return Err(CorruptKind::HtreeBlock { index: at, block: child, blocks });
            }
            Ok((at, child))
        });
        match step {
            Ok((at, child)) => Ok((Frame { buffer, array, at }, child)),
            Err(kind) => Err(self.corrupt(cx, &buffer, kind)),
        }
    }

    /// Goes from the root to the leaf for the hash that `hash` gives for the tree's version.
    ///
    /// # Errors
    /// `EUCLEAN` for a damaged tree, `EIO`.
    pub(crate) fn probe(
        &self,
        cx: &mut Cx,
        hash: impl FnOnce(Version) -> u32,
    ) -> Result<(Path, u32), Errno> {
        let root = self.block(cx, 0, Role::Root)?;
        let info = root.with(|data| htree::parse_root(data, self.layout.names, self.levels_max()));
        let info = info.map_err(|kind| self.corrupt(cx, &root, kind))?;
        let unsigned = self.fs.sb.geometry.hash_unsigned;
        let version = HashVersion::from_disk(info.hash_version, unsigned);
        let hash = hash(version);
        let (frame, mut child) = self.frame_of(cx, root, info.array, hash)?;
        let mut frames = SmallVec::new();
        frames.push(frame);
        for _ in 0..info.levels {
            let (frame, next) = self.frame(cx, child, hash)?;
            frames.push(frame);
            child = next;
        }
        Ok((Path { frames, leaf: child, version }, hash))
    }

    /// Moves a path to the next leaf and answers the lowest hash there; with `only`, just where
    /// that leaf continues the names of this hash. `None`: there is no such leaf, and the path
    /// stays.
    ///
    /// # Errors
    /// As [`Dir::probe`].
    pub(crate) fn next_leaf(
        &self,
        cx: &mut Cx,
        path: &mut Path,
        only: Option<u32>,
    ) -> Result<Option<u32>, Errno> {
        let next = path.frames.iter().enumerate().rev().find_map(|(level, frame)| {
            let at = frame.at + 1;
            frame.with(|node| (at < node.count()).then(|| (level, node.hash(at), node.block(at))))
        });
        let Some((level, hash, mut child)) = next else { return Ok(None) };
        if only.is_some_and(|only| hash & !1 != only) {
            return Ok(None);
        }
        let depth = path.frames.len();
        let mut below: SmallVec<[Frame; 3]> = SmallVec::new();
        for _ in level + 1..depth {
            // Hash 0 leads to the first pair.
            let (frame, next) = self.frame(cx, child, 0)?;
            below.push(frame);
            child = next;
        }
        if child == 0 || child >= self.blocks {
            let blocks = self.blocks.into();
            let index = path.frames[level].at + 1;
            let kind = CorruptKind::HtreeBlock { index, block: child, blocks };
            return Err(self.corrupt(cx, &path.frames[level].buffer, kind));
        }
        path.frames[level].at += 1;
        path.frames.truncate(level + 1);
        path.frames.extend(below);
        path.leaf = child;
        Ok(Some(hash))
    }

    /// Searches the tree for a name.
    pub(crate) fn find_indexed(&self, cx: &mut Cx, key: &Key) -> Result<Option<EntryPlace>, Errno> {
        let (mut path, hash) = self.probe(cx, |version| self.hash(version, key).major)?;
        loop {
            let buffer = self.block(cx, path.leaf, Role::Leaf)?;
            let found = buffer.with(|data| dir::find(data, self.layout, key));
            if let Some(found) = found {
                return Ok(Some(EntryPlace { place: Place::Block(buffer), found }));
            }
            if self.next_leaf(cx, &mut path, Some(hash))?.is_none() {
                return Ok(None);
            }
        }
    }

    /// Searches the tree for a name, and on the way for a place for it.
    pub(crate) fn find_or_slot_indexed(
        &self,
        cx: &mut Cx,
        key: &Key,
    ) -> Result<Result<EntryPlace, Slot>, Errno> {
        let need = key.need(self.layout);
        let (mut path, hash) = self.probe(cx, |version| self.hash(version, key).major)?;
        let mut room = None;
        loop {
            let buffer = self.block(cx, path.leaf, Role::Leaf)?;
            let scan = buffer.with(|data| dir::scan(data, self.layout, key, need));
            if let Some(found) = scan.found {
                return Ok(Ok(EntryPlace { place: Place::Block(buffer), found }));
            }
            if let (None, Some(offset)) = (&room, scan.room) {
                room = Some(Slot::Room(buffer, offset));
            }
            if self.next_leaf(cx, &mut path, Some(hash))?.is_none() {
                return Ok(Err(room.unwrap_or(Slot::Split(path))));
            }
        }
    }
}
