//! Inodes are allocated from chunks of 64, and chunks from free space.
//!
//! Each group keeps its chunks in a btree, and those with free inodes in a second one (`finobt`).
//! Whoever works on them holds the group's AGI, which is locked before its AGF. A directory goes
//! to another group than the one before it, a file to its directory's.
//!
//! Source: "XFS Algorithms and Data Structures", chapters on AG inode management and sparse inodes.

mod agi;
mod chunk;
#[cfg(test)]
mod sparse_tests;
#[cfg(test)]
mod tests;
mod tree_blocks;
mod unlinked;

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use base::Ino;
use base::grown::Parts;
use rt::{Cx, SpinLock};

use crate::alloc::Space;
use crate::btree::{Cursor, Tree};
use crate::error::{Result, XfsError};
use crate::format::record::InodeChunk;
use crate::format::{AgInode, At, CorruptKind, Kind};
use crate::trans::Trans;
pub(crate) use agi::{Agi, log_length};
use agi::{AgiTree, Recent};
pub(crate) use tree_blocks::tree_blocks;
use unlinked::Links;
pub(crate) use unlinked::cluster_of;

/// The inodes of a mounted file system.
pub(crate) struct Inodes {
    pub space: Arc<Space>,
    /// Where the next directory goes.
    rotor: AtomicU32,
    /// Inodes that have a place, and those of them that are free.
    counts: [AtomicU64; 2],
    links: SpinLock<Links>,
    /// Of each group.
    recent: Parts<Recent>,
}

/// Inodes that have a place and those of them that are free, by the AGIs.
fn count_all(cx: &mut Cx, space: &Space) -> Result<[u64; 2]> {
    let mut counts = [0, 0];
    for ag in 0..space.geometry.ag_count() {
        let [count, free] = agi::counts(cx, space, ag)?;
        counts = [counts[0] + u64::from(count), counts[1] + u64::from(free)];
    }
    Ok(counts)
}

/// What freeing an inode did.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum FreedInode {
    /// Its chunk stays.
    Alone,
    /// The whole chunk is gone: 64 inodes from this one on, of which those that are in memory must
    /// never be written.
    Chunk(Ino),
}

impl Inodes {
    /// Reads the headers of all groups. May park.
    ///
    /// # Errors
    /// A header that fails a check; the device failed.
    pub fn open(cx: &mut Cx, space: Arc<Space>) -> Result<Inodes> {
        let counts = count_all(cx, &space)?;
        let links = SpinLock::named("xfs unlinked lists", Links::default());
        let counts = counts.map(AtomicU64::new);
        let recent =
            Parts::new((0..space.geometry.ag_count()).map(|_| Recent::default()).collect());
        Ok(Inodes { space, rotor: AtomicU32::new(0), counts, links, recent })
    }

    /// Makes room for what is known of so many groups more, before anybody sees them.
    pub fn expect_groups(&self, count: u32) {
        self.recent.push((0..count).map(|_| Recent::default()).collect());
    }

    /// Inodes that have a place, and those of them that are free.
    pub fn counts(&self) -> [u64; 2] {
        [&self.counts[0], &self.counts[1]].map(|count| count.load(Ordering::Relaxed))
    }

    fn count(&self, which: usize, change: i64) {
        self.counts[which].fetch_add(change as u64, Ordering::Relaxed);
    }

    /// The superblock's counters of inodes as the headers of the groups have them. May park.
    ///
    /// # Errors
    /// As [`Inodes::open`].
    pub fn count_all(&self, cx: &mut Cx) -> Result<[u64; 2]> {
        count_all(cx, &self.space)
    }

    /// Whether an inode is in use, as the tree of its group says. May park.
    ///
    /// # Errors
    /// A tree that is wrong; the device failed.
    pub fn is_used(&self, cx: &mut Cx, ino: Ino) -> Result<bool> {
        let sparse = self.space.geometry.features.sparse();
        let AgInode { ag, agino } = self.space.geometry.ino_split(ino);
        let mut trans = Trans::empty(&self.space.log);
        let agi = self.lock(cx, &mut trans, ag)?;
        let mut store = self.tree(&agi, Kind::Inobt);
        let mut tree = Tree::new(&mut store);
        let found = tree.find_le(cx, &mut trans, [u64::from(agino), 0, 0])?;
        let chunk = found.map(|cursor| InodeChunk::read(&tree.record(&cursor), sparse));
        trans.cancel();
        let bit = |chunk: InodeChunk| agino.checked_sub(chunk.start).filter(|&bit| bit < 64);
        Ok(chunk.is_some_and(|chunk| bit(chunk).is_some_and(|bit| chunk.used() >> bit & 1 == 1)))
    }

    /// The inodes of a group that are in use, as its tree says. May park.
    ///
    /// # Errors
    /// As [`Inodes::is_used`].
    pub fn all_used_in(&self, cx: &mut Cx, ag: u32) -> Result<Vec<Ino>> {
        let geometry = &self.space.geometry;
        let mut trans = Trans::empty(&self.space.log);
        let agi = self.lock(cx, &mut trans, ag)?;
        let mut store = self.tree(&agi, Kind::Inobt);
        let mut tree = Tree::new(&mut store);
        let mut list = Vec::new();
        let mut cursor = tree.find_ge(cx, &mut trans, [0, 0, 0])?;
        while let Some(at) = &mut cursor {
            let chunk = InodeChunk::read(&tree.record(at), geometry.features.sparse());
            let used = (0..64).filter(|bit| chunk.used() >> bit & 1 == 1);
            list.extend(
                used.map(|bit| geometry.ino_join(AgInode { ag, agino: chunk.start + bit })),
            );
            if !tree.next(cx, &mut trans, at)? {
                break;
            }
        }
        trans.cancel();
        Ok(list)
    }

    /// Takes a free inode, for a directory or for anything else, in `parent`. It is marked as used;
    /// its content is as it was when it was freed. The transaction may roll, before anything but
    /// a chunk of inodes was allocated. May park.
    ///
    /// # Errors
    /// [`XfsError::NoSpace`]; a tree that is wrong; the device failed.
    pub fn allocate(
        &self,
        cx: &mut Cx,
        trans: &mut Trans,
        parent: Ino,
        directory: bool,
    ) -> Result<Ino> {
        let count = self.space.geometry.ag_count();
        let AgInode { ag: own, agino: near } = self.space.geometry.ino_split(parent);
        let first = match directory {
            true => self.rotor.fetch_add(1, Ordering::Relaxed) % count,
            false => own,
        };
        let near = if first == own { near } else { 0 };
        // Second round: where space is short, free inodes anywhere will do.
        for may_grow in [true, false] {
            for ag in (first..count).chain(0..first) {
                let lowest = trans.highest_group().unwrap_or(0);
                let agi = self.lock(cx, trans, ag)?;
                let free = agi.with(|raw| raw.agi_freecount.get()) > 0;
                let grown = !free
                    && may_grow
                    && ag >= lowest
                    && self.may_have_more()
                    && self.grow(cx, trans, &agi)?;
                if free || grown {
                    return self.take(cx, trans, &agi, near);
                }
                trans.release(agi.buf());
            }
        }
        Err(XfsError::NoSpace)
    }

    /// Whether the limit on the share of inodes leaves room for one more chunk.
    fn may_have_more(&self) -> bool {
        self.space.geometry.inodes_limit().is_none_or(|limit| self.counts()[0] + 64 <= limit)
    }

    /// Takes the free inode of a group that is the nearest one to `near`.
    fn take(&self, cx: &mut Cx, trans: &mut Trans, agi: &Agi, near: u32) -> Result<Ino> {
        let geometry = &self.space.geometry;
        let (mut chunk, place) = match geometry.features.finobt() {
            true => self.nearest(cx, trans, agi, near)?,
            false => (self.any_free(cx, trans, agi, near)?, None),
        };
        let bit = chunk.available().trailing_zeros();
        if bit >= 64 {
            let kind = CorruptKind::InodeCounts { start: chunk.start };
            return Err(kind.at(At::Agi(agi.ag)).into());
        }
        chunk.free &= !(1 << bit);
        chunk.free_count -= 1;
        let known = self.place_of(cx, trans, agi, &chunk)?;
        self.store_in(cx, trans, self.tree(agi, Kind::Inobt), &chunk, true, known)?;
        if geometry.features.finobt() {
            let wanted = chunk.free_count > 0;
            self.store_in(cx, trans, self.tree(agi, Kind::Finobt), &chunk, wanted, place)?;
        }
        agi.edit_freecount(trans, -1);
        self.count(1, -1);
        Ok(geometry.ino_join(AgInode { ag: agi.ag, agino: chunk.start + bit }))
    }

    /// The chunk with free inodes that holds `near`, else the nearest one, and its place in the
    /// tree of those.
    fn nearest(
        &self,
        cx: &mut Cx,
        trans: &mut Trans,
        agi: &Agi,
        near: u32,
    ) -> Result<(InodeChunk, Option<Cursor>)> {
        let sparse = self.space.geometry.features.sparse();
        let mut store = self.tree(agi, Kind::Finobt);
        let mut tree = Tree::new(&mut store);
        let order = [u64::from(near), 0, 0];
        let Some(cursor) = tree.find_le_or_first(cx, trans, order)? else {
            return Err(tree.broken("no chunk has the free inodes that the AGI counts"));
        };
        let chunk = InodeChunk::read(&tree.record(&cursor), sparse);
        if near.checked_sub(chunk.start).is_some_and(|after| after >= 64) {
            let mut above = cursor.clone();
            if tree.next(cx, trans, &mut above)? {
                let next = InodeChunk::read(&tree.record(&above), sparse);
                if next.start.abs_diff(near) < chunk.start.abs_diff(near) {
                    return Ok((next, Some(above)));
                }
            }
        }
        Ok((chunk, Some(cursor)))
    }

    /// A chunk with free inodes, where no tree lists them: from `near` on, then from the beginning.
    fn any_free(&self, cx: &mut Cx, trans: &mut Trans, agi: &Agi, near: u32) -> Result<InodeChunk> {
        let sparse = self.space.geometry.features.sparse();
        let mut store = self.tree(agi, Kind::Inobt);
        let mut tree = Tree::new(&mut store);
        for from in [near & !63, 0] {
            let mut cursor = tree.find_ge(cx, trans, [u64::from(from), 0, 0])?;
            while let Some(at) = &mut cursor {
                let chunk = InodeChunk::read(&tree.record(at), sparse);
                if chunk.free_count > 0 {
                    return Ok(chunk);
                }
                if !tree.next(cx, trans, at)? {
                    break;
                }
            }
        }
        Err(tree.broken("no chunk has the free inodes that the AGI counts"))
    }

    fn tree<'a>(&'a self, agi: &'a Agi, kind: Kind) -> AgiTree<'a> {
        AgiTree { space: &self.space, agi, kind, recent: &self.recent[agi.ag as usize] }
    }

    /// The place of a chunk in the tree of chunks: the one that was changed last is found without a
    /// way from the root.
    fn place_of(
        &self,
        cx: &mut Cx,
        trans: &mut Trans,
        agi: &Agi,
        chunk: &InodeChunk,
    ) -> Result<Option<Cursor>> {
        let order = [u64::from(chunk.start), 0, 0];
        let recent = &self.recent[agi.ag as usize];
        let mut store = self.tree(agi, Kind::Inobt);
        let mut tree = Tree::new(&mut store);
        if let Some(place) = recent.get()
            && let Some(cursor) = tree.in_leaf(cx, trans, place, order)?
        {
            return Ok(Some(cursor));
        }
        let found = tree.find(cx, trans, order)?;
        if let Some(place) = found.as_ref().map(Cursor::leaf) {
            recent.set(place);
        }
        Ok(found)
    }

    /// Writes a chunk's record into both trees, where it belongs.
    fn store(&self, cx: &mut Cx, trans: &mut Trans, agi: &Agi, chunk: &InodeChunk) -> Result<()> {
        self.store_in(cx, trans, self.tree(agi, Kind::Inobt), chunk, true, None)?;
        if self.space.geometry.features.finobt() {
            let wanted = chunk.free_count > 0;
            self.store_in(cx, trans, self.tree(agi, Kind::Finobt), chunk, wanted, None)?;
        }
        Ok(())
    }

    /// Writes a chunk's record into one tree, or takes it out of it; its place may be known.
    fn store_in(
        &self,
        cx: &mut Cx,
        trans: &mut Trans,
        mut store: AgiTree<'_>,
        chunk: &InodeChunk,
        wanted: bool,
        place: Option<Cursor>,
    ) -> Result<()> {
        let mut record = [0; 16];
        chunk.write(&mut record, self.space.geometry.features.sparse());
        let mut tree = Tree::new(&mut store);
        let place = match place {
            None => tree.find(cx, trans, [u64::from(chunk.start), 0, 0])?,
            known => known,
        };
        match place {
            Some(cursor) if wanted => tree.update(trans, &cursor, &record),
            Some(cursor) => tree.delete(cx, trans, cursor)?,
            None if wanted => tree.insert(cx, trans, &record)?,
            None => {}
        }
        Ok(())
    }

    /// The record of the chunk that holds an inode, its place in the tree of chunks, and the bit of
    /// the inode, which is in use.
    fn used_in(
        &self,
        cx: &mut Cx,
        trans: &mut Trans,
        agi: &Agi,
        ino: Ino,
    ) -> Result<(InodeChunk, Cursor, u64)> {
        let AgInode { agino, .. } = self.space.geometry.ino_split(ino);
        let sparse = self.space.geometry.features.sparse();
        let mut store = self.tree(agi, Kind::Inobt);
        let mut tree = Tree::new(&mut store);
        let found = tree.find_le(cx, trans, [u64::from(agino), 0, 0])?;
        let found = found.map(|place| (InodeChunk::read(&tree.record(&place), sparse), place));
        let Some((chunk, place)) = found.filter(|(chunk, _)| agino - chunk.start < 64) else {
            return Err(tree.broken("an inode is in no chunk"));
        };
        let bit = 1 << (agino - chunk.start);
        match chunk.used() & bit {
            0 => Err(CorruptKind::InodeFreedTwice.at(At::Inode(ino)).into()),
            _ => Ok((chunk, place, bit)),
        }
    }

    /// Marks an inode as free where that changes records alone: no block of a tree comes or goes,
    /// nor does the inode's chunk. False if it would; nothing is changed then. The caller has
    /// written the inode as a free one, or does. Locks no free space. May park.
    ///
    /// # Errors
    /// As [`Inodes::free`].
    pub fn free_in_place(&self, cx: &mut Cx, trans: &mut Trans, ino: Ino) -> Result<bool> {
        let finobt = self.space.geometry.features.finobt();
        let agi = self.lock(cx, trans, self.space.geometry.ino_split(ino).ag)?;
        let (mut chunk, place, bit) = self.used_in(cx, trans, &agi, ino)?;
        if chunk.used() == bit {
            return Ok(false);
        }
        let mut free_place = None;
        if finobt {
            let order = [u64::from(chunk.start), 0, 0];
            let mut store = self.tree(&agi, Kind::Finobt);
            let mut tree = Tree::new(&mut store);
            free_place = tree.find(cx, trans, order)?;
            if free_place.is_none() && !tree.takes_in(cx, trans, order)? {
                return Ok(false);
            }
        }
        chunk.free |= bit;
        chunk.free_count += 1;
        self.store_in(cx, trans, self.tree(&agi, Kind::Inobt), &chunk, true, Some(place))?;
        if finobt {
            self.store_in(cx, trans, self.tree(&agi, Kind::Finobt), &chunk, true, free_place)?;
        }
        agi.edit_freecount(trans, 1);
        self.count(1, 1);
        Ok(true)
    }

    /// Marks an inode as free, and gives its chunk back where no other inode of it is used; the
    /// chunk's blocks are freed by deferred work. The caller has written the inode as a free one.
    /// May park.
    ///
    /// # Errors
    /// An inode that is free already; a tree that is wrong; the device failed.
    pub fn free(&self, cx: &mut Cx, trans: &mut Trans, ino: Ino) -> Result<FreedInode> {
        let geometry = &self.space.geometry;
        let AgInode { ag, .. } = geometry.ino_split(ino);
        let agi = self.lock(cx, trans, ag)?;
        let (mut chunk, _, bit) = self.used_in(cx, trans, &agi, ino)?;
        chunk.free |= bit;
        chunk.free_count += 1;
        agi.edit_freecount(trans, 1);
        self.count(1, 1);
        if chunk.used() == 0 && geometry.inodes_per_block() <= 64 {
            self.shrink(cx, trans, &agi, &chunk)?;
            return Ok(FreedInode::Chunk(geometry.ino_join(AgInode { ag, agino: chunk.start })));
        }
        self.store(cx, trans, &agi, &chunk)?;
        Ok(FreedInode::Alone)
    }
}
