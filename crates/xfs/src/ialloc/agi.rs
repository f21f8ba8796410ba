//! The AGI of one group, in a transaction, and the two trees whose roots it keeps.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use rt::{Cx, SpinLock};

use super::Inodes;
use crate::alloc::{AllocRequest, Space};
use crate::btree::{LeafPlace, Store};
use crate::buf::{Buf, BufMap, BufOps, RecentBlocks};
use crate::error::Result;
use crate::format::ag::RawAgi;
use crate::format::record::owner;
use crate::format::{AgBlock, AgHeader, At, Expect, Kind, Owner};
use crate::trans::Trans;
use crate::trans::intent::Work;

pub(super) static AGI: BufOps =
    BufOps { name: "AGI", kinds: &[Kind::Agi], check: None, unmapped: false };

/// Inodes of a group that have a place, and those of them that are free.
pub(super) fn counts(cx: &mut Cx, space: &Space, ag: u32) -> Result<[u32; 2]> {
    let buf = space.log.bufs().read(cx, &[space.header_map(ag, AgHeader::Agi)], &AGI)?;
    buf.with(|data| {
        let raw = RawAgi::parse_trusted(data, ag, &space.geometry)?;
        Ok([raw.agi_count.get(), raw.agi_freecount.get()])
    })
}

/// Writes the length that the shape of the file system says into the AGI of a group. May park.
///
/// # Errors
/// A header that fails a check; the device failed.
pub(crate) fn log_length(cx: &mut Cx, trans: &mut Trans, space: &Space, ag: u32) -> Result<()> {
    let buf = trans.read_buf(cx, &[space.header_map(ag, AgHeader::Agi)], &AGI)?;
    let length = space.geometry.ag_length(ag);
    Agi { ag, buf }.edit(trans, |raw| raw.agi_length.set(length));
    Ok(())
}

/// The AGI of a group, locked.
#[derive(Clone)]
pub(crate) struct Agi {
    pub ag: u32,
    buf: Arc<Buf>,
}

impl Agi {
    pub fn buf(&self) -> &Arc<Buf> {
        &self.buf
    }

    pub fn with<T>(&self, f: impl FnOnce(&RawAgi) -> T) -> T {
        self.buf.with(|data| f(RawAgi::view(data).expect("a sector holds an AGI")))
    }

    pub fn edit(&self, trans: &mut Trans, f: impl FnOnce(&mut RawAgi)) {
        self.buf.with_mut(|data| f(RawAgi::view_mut(data).expect("a sector holds an AGI")));
        // The counters in front, and the free inode tree behind the lists; lists log themselves.
        trans.log_buf(&self.buf, 0, 39);
        trans.log_buf(&self.buf, 328, size_of::<RawAgi>() - 1);
    }

    /// Changes the number of free inodes.
    pub fn edit_freecount(&self, trans: &mut Trans, change: i32) {
        self.buf.with_mut(|data| {
            let raw = RawAgi::view_mut(data).expect("a sector holds an AGI");
            raw.agi_freecount.set(raw.agi_freecount.get().wrapping_add_signed(change));
        });
        trans.log_buf(&self.buf, 0, 39);
    }

    /// Stores the head of a list of unlinked inodes.
    pub fn set_bucket(&self, trans: &mut Trans, bucket: usize, head: u32) {
        self.buf.with_mut(|data| {
            let raw = RawAgi::view_mut(data).expect("a sector holds an AGI");
            raw.agi_unlinked[bucket].set(head);
        });
        let at = 40 + 4 * bucket;
        trans.log_buf(&self.buf, at, at + 3);
    }
}

impl Inodes {
    /// The AGI of a group, locked for the transaction. May park.
    ///
    /// # Errors
    /// A header that fails a check; the device failed.
    pub fn lock(&self, cx: &mut Cx, trans: &mut Trans, ag: u32) -> Result<Agi> {
        let known = self.recent[ag as usize].block(cx, HEADER);
        if let Some(buf) = known.and_then(|buf| trans.read_again(cx, buf)) {
            return Ok(Agi { ag, buf });
        }
        let buf = trans.read_buf(cx, &[self.space.header_map(ag, AgHeader::Agi)], &AGI)?;
        buf.with(|data| RawAgi::parse_trusted(data, ag, &self.space.geometry).map(|_| ()))?;
        self.recent[ag as usize].blocks.lock(cx).put(HEADER, &buf);
        Ok(Agi { ag, buf })
    }
}

/// The tree of chunks, or that of chunks with free inodes.
pub(crate) struct AgiTree<'a> {
    pub space: &'a Space,
    pub agi: &'a Agi,
    pub kind: Kind,
    pub recent: &'a Recent,
}

/// The place of the AGI among the blocks that were used lately; those of the trees have their
/// numbers in the group.
const HEADER: u64 = u64::MAX;

/// What was used lately of a group's inodes.
pub(crate) struct Recent {
    /// Where the chunk was found that was changed last: a leaf of the tree of chunks, and the
    /// record's number in it. Whoever reads or stores it has locked the group's AGI.
    place: AtomicU64,
    /// The AGI, checked, and blocks of the trees.
    blocks: SpinLock<RecentBlocks>,
}

impl Default for Recent {
    fn default() -> Recent {
        let blocks = SpinLock::named("xfs inode tree blocks", RecentBlocks::default());
        Recent { place: AtomicU64::new(0), blocks }
    }
}

impl Recent {
    fn block(&self, cx: &Cx, place: u64) -> Option<Arc<Buf>> {
        self.blocks.lock(cx).get(place)
    }

    /// The leaf and the number, where they are known. The leaf is one still: until a block of the
    /// group's trees is freed each leaf stays one.
    pub fn get(&self) -> Option<LeafPlace> {
        let place = self.place.load(Ordering::Relaxed);
        (place != 0).then_some(LeafPlace { block: place >> 16, index: place as usize & 0xffff })
    }

    pub fn set(&self, place: LeafPlace) {
        let LeafPlace { block, index } = place;
        let place = if index <= 0xffff { block << 16 | index as u64 } else { 0 };
        self.place.store(place, Ordering::Relaxed);
    }

    fn forget(&self) {
        self.place.store(0, Ordering::Relaxed);
    }
}

impl AgiTree<'_> {
    fn place(&self, block: u64) -> AgBlock {
        AgBlock { ag: self.agi.ag, block: block as u32 }
    }

    /// Counts a block of the tree in the AGI, where the file system does that.
    fn count(&self, trans: &mut Trans, change: i32) {
        if !self.space.geometry.features.inobtcount() {
            return;
        }
        let free_tree = self.kind == Kind::Finobt;
        self.agi.edit(trans, |raw| {
            let count = if free_tree { &mut raw.agi_fblocks } else { &mut raw.agi_iblocks };
            count.set(count.get().wrapping_add_signed(change));
        });
    }
}

impl Store for AgiTree<'_> {
    fn kind(&self) -> Kind {
        self.kind
    }

    fn block_size(&self) -> usize {
        self.space.geometry.block_size as usize
    }

    fn root(&self) -> (u64, u32) {
        let root = self.agi.with(|raw| match self.kind {
            Kind::Inobt => raw.inobt(),
            _ => raw.finobt(),
        });
        (u64::from(root.block), root.levels)
    }

    fn set_root(&mut self, trans: &mut Trans, block: u64, levels: u32) {
        let free_tree = self.kind == Kind::Finobt;
        self.agi.edit(trans, |raw| {
            let (root, level) = match free_tree {
                true => (&mut raw.agi_free_root, &mut raw.agi_free_level),
                false => (&mut raw.agi_root, &mut raw.agi_level),
            };
            root.set(block as u32);
            level.set(levels);
        });
    }

    fn map(&self, block: u64) -> BufMap {
        self.space.block_map(self.place(block))
    }

    fn expect(&self, block: u64) -> Expect {
        self.space.geometry.expect_ag(self.place(block))
    }

    fn at(&self, block: u64) -> At {
        At::AgBlock(self.agi.ag, block as u32)
    }

    fn allocate(&mut self, cx: &mut Cx, trans: &mut Trans, near: u64) -> Result<u64> {
        let want = AllocRequest::block(self.place(near), Owner::special(owner::INOBT));
        let found = self.space.allocate_metadata(cx, trans, &want)?;
        self.count(trans, 1);
        Ok(u64::from(found.start.block))
    }

    fn recent(&self, cx: &Cx, block: u64) -> Option<Arc<Buf>> {
        self.recent.block(cx, block)
    }

    fn note_read(&self, cx: &Cx, block: u64, buf: &Arc<Buf>) {
        self.recent.blocks.lock(cx).put(block, buf);
    }

    fn free(&mut self, _cx: &mut Cx, trans: &mut Trans, block: u64) -> Result<()> {
        self.count(trans, -1);
        self.recent.forget();
        let start = self.space.geometry.join(self.place(block)).0;
        trans.defer(Work::free(start, 1, Some(Owner::special(owner::INOBT))));
        Ok(())
    }
}
