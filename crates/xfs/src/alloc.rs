//! Free space: extents are taken out of a group and given back.
//!
//! Each group keeps its free extents in two btrees, by place and by size, whose own blocks come
//! from the AGFL, a small list that [`Space::fill_list`] keeps long enough for the worst case, so
//! that changing the trees never needs the trees. Whoever works on a group holds its AGF.
//! Groups are locked in the order of their numbers: a transaction that has changed one takes no
//! more space from those before it.
//!
//! An extent that is freed is *busy* until the checkpoint that frees it is on the device: before,
//! a crash would give it back to its old owner, so that nobody may write there.
//!
//! Source: "XFS Algorithms and Data Structures", chapters on AG free space and the AGFL.

mod agf;
mod free_space;
mod pick;
pub(crate) mod realtime;
pub(crate) mod realtime_runs;
pub(crate) mod realtime_trees;
mod refcount;
mod reservation;
mod resize;
pub(crate) mod rmap;
mod share;
#[cfg(test)]
mod share_tests;
mod store;
pub(crate) mod super_block;
#[cfg(test)]
mod tests;

use std::sync::atomic::{AtomicI64, AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};

use base::FsBlock;
use base::grown::Parts;
use rt::Cx;

use crate::error::{Result, XfsError};
use crate::format::record::owner;
use crate::format::{
    AgBlock, AgExtent, AgHeader, At, CorruptKind, FsExtent, Geometry, Owner, Section,
};
use crate::log::Log;
use crate::trans::intent::Work;
use crate::trans::{Finished, IntentFinisher, Trans};
pub(crate) use agf::{Agf, all_free};
use realtime::Realtime;
pub(crate) use reservation::BlockReservation;

/// What is known of a group without looking into its AGF. May be a little old.
#[derive(Default)]
struct Summary {
    free: AtomicU32,
    longest: AtomicU32,
    /// Blocks that files never get, those of the AGFL and of the trees included.
    kept: AtomicU32,
}

/// The free space of a mounted file system.
pub(crate) struct Space {
    pub geometry: Arc<Geometry>,
    pub log: Arc<Log>,
    groups: Parts<Summary>,
    /// Blocks that nobody has reserved, those of the AGFL and of the free-space trees included.
    available: AtomicI64,
    /// That of the realtime section, where there is one.
    realtime: OnceLock<Realtime>,
    /// Blocks that the section's btrees may still grow by, which files never get.
    section_kept: AtomicI64,
}

/// What an allocation asks for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AllocRequest {
    /// Where it should lie, or near which place.
    pub goal: AgBlock,
    /// Blocks at least, from 1.
    pub min_len: u32,
    /// Blocks at the most.
    pub max_len: u32,
    /// The place is a multiple of this, from 1.
    pub align: u32,
    /// No other group will do.
    pub this_group: bool,
    /// For the reverse map; none if the caller does it.
    pub owner: Option<Owner>,
    /// For metadata, all of which goes through the log: a busy block may be taken, and several only
    /// where there are no others. Where the buffer of freed blocks gave way to one of another size
    /// within a checkpoint, recovery takes the end of the former for the end of a third that has
    /// its size.
    pub metadata: bool,
}

impl AllocRequest {
    /// One block of metadata in this group.
    pub fn block(goal: AgBlock, owner: Owner) -> AllocRequest {
        AllocRequest {
            goal,
            min_len: 1,
            max_len: 1,
            align: 1,
            this_group: true,
            owner: Some(owner),
            metadata: true,
        }
    }
}

/// A search in one group.
#[derive(Clone, Copy, Debug)]
struct Attempt<'a> {
    want: &'a AllocRequest,
    /// Blocks at least.
    min_len: u32,
    /// Unless for metadata, the group keeps what its trees may need.
    keep_reserve: bool,
}

/// A record that takes the place of another one.
#[derive(Clone, Copy)]
struct Change<T> {
    old: T,
    new: T,
}

impl Space {
    /// Reads the headers of all groups. May park.
    ///
    /// # Errors
    /// A header that fails a check; the device failed.
    pub fn open(cx: &mut Cx, geometry: Arc<Geometry>, log: Arc<Log>) -> Result<Space> {
        let groups = (0..geometry.ag_count()).map(|_| Summary::default()).collect();
        let (groups, available, section_kept) =
            (Parts::new(groups), AtomicI64::new(0), AtomicI64::new(0));
        let realtime = OnceLock::new();
        let space = Space { geometry, log, groups, available, realtime, section_kept };
        let total = space.each_agf(cx, |space, agf| space.note(agf))?;
        space.available.store(total as i64, Ordering::Relaxed);
        Ok(space)
    }

    /// The space of the realtime section; none where there is no section.
    pub fn realtime(&self) -> Option<&Realtime> {
        self.realtime.get()
    }

    /// From now on files may get space of the realtime section.
    pub fn set_realtime(&self, realtime: Realtime) {
        let wanted = realtime_trees::blocks_wanted(self, &self.geometry.realtime);
        let left = wanted as i64 - realtime.tree_blocks() as i64;
        self.section_kept.store(left, Ordering::Relaxed);
        let _ = self.realtime.set(realtime);
    }

    /// Blocks that can be reserved.
    pub fn available(&self) -> u64 {
        self.available.load(Ordering::Relaxed).max(0) as u64
    }

    /// Sets blocks aside, so that allocating them will not fail for want of space in sum.
    ///
    /// # Errors
    /// [`XfsError::NoSpace`].
    pub fn reserve(&self, blocks: u64) -> Result<()> {
        if blocks == 0 {
            return Ok(());
        }
        let blocks = blocks as i64;
        let kept = self.kept_back() as i64;
        let take = |free: i64| (free - blocks >= kept).then_some(free - blocks);
        match self.available.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take) {
            Ok(_) => Ok(()),
            Err(_) => Err(XfsError::NoSpace),
        }
    }

    /// Gives reserved blocks back that were not allocated, or says that blocks were freed.
    pub fn give_back(&self, blocks: u64) {
        self.available.fetch_add(blocks as i64, Ordering::Relaxed);
    }

    /// Blocks that count as available and that files never get: what the trees of the groups have
    /// and may still grow by.
    pub fn kept_back(&self) -> u64 {
        let groups = self.groups.iter().map(|group| u64::from(group.kept.load(Ordering::Relaxed)));
        groups.sum::<u64>() + self.section_kept.load(Ordering::Relaxed).max(0) as u64
    }

    /// Free blocks of a group that files never get, so that its trees can grow: room for a reverse
    /// map of a hundredth of the group, for reference counts of one extent in every few blocks, for
    /// the free inode tree, and for the AGFL; without what these have already.
    fn reserve_of(&self, agf: &Agf) -> u32 {
        let features = self.geometry.features;
        let length = self.geometry.ag_length(agf.ag);
        let mut kept = 0;
        agf.with(|raw| {
            if features.rmapbt() {
                kept += (length / 100).saturating_sub(raw.agf_rmap_blocks.get());
            }
            if features.reflink() {
                kept += (length / 300).saturating_sub(raw.agf_refcount_blocks.get());
            }
        });
        if features.finobt() {
            kept += length / 2000;
        }
        kept + (2 * agf.list_need(features)).saturating_sub(agf.list_len())
    }

    fn note(&self, agf: &Agf) {
        let (free, longest) = agf.with(|raw| (raw.agf_freeblks.get(), raw.agf_longest.get()));
        let in_use = agf.with(|raw| raw.agf_flcount.get() + raw.agf_btreeblks.get());
        let group = &self.groups[agf.ag as usize];
        group.free.store(free, Ordering::Relaxed);
        group.longest.store(longest, Ordering::Relaxed);
        group.kept.store(self.reserve_of(agf) + in_use, Ordering::Relaxed);
    }

    pub(crate) fn header_map(&self, ag: u32, header: AgHeader) -> crate::buf::BufMap {
        let len = self.geometry.sector_size / 512;
        crate::buf::BufMap { daddr: self.geometry.header_sector(ag, header), len }
    }

    /// The groups to look into, in order.
    fn order(&self, want: &AllocRequest, lowest: u32) -> Vec<u32> {
        let count = self.geometry.ag_count();
        if want.this_group {
            return vec![want.goal.ag];
        }
        let first = want.goal.ag % count;
        let all = (first..count).chain(0..first);
        let fits = |&ag: &u32| {
            ag >= lowest && self.groups[ag as usize].longest.load(Ordering::Relaxed) > 0
        };
        all.filter(fits).collect()
    }

    /// Takes an extent: as much as is wanted where some group has it in one piece, else the longest
    /// piece. The blocks were reserved by the caller. May park.
    ///
    /// # Errors
    /// [`XfsError::NoSpace`] where no group has the least that is wanted; the device failed. The
    /// transaction may have filled the AGFL of a group then: it is to be committed, and another one
    /// can look into the groups before that.
    pub fn allocate(
        &self,
        cx: &mut Cx,
        trans: &mut Trans,
        want: &AllocRequest,
    ) -> Result<AgExtent> {
        let lowest = trans.highest_group().unwrap_or(0);
        let groups = self.order(want, lowest);
        // First where it fits whole, then any piece, then after the busy ones have come free, and
        // at last from what groups keep for their trees: the blocks are the caller's, in sum.
        let AllocRequest { min_len, max_len, .. } = *want;
        for (round, min_len) in [max_len, min_len, min_len, min_len].into_iter().enumerate() {
            let attempt = Attempt { want, min_len, keep_reserve: round < 3 };
            let mut busy = false;
            for &ag in &groups {
                let longest = self.groups[ag as usize].longest.load(Ordering::Relaxed);
                if longest < min_len && round == 0 && !want.this_group {
                    continue;
                }
                if !want.this_group && is_below(trans, ag) {
                    continue;
                }
                match self.allocate_in(cx, trans, ag, &attempt)? {
                    pick::FoundExtent::At(found) => return Ok(found),
                    pick::FoundExtent::OnlyBusy => busy = true,
                    pick::FoundExtent::Nothing => {}
                }
            }
            if round == 1 && busy {
                self.log.force(cx)?;
            }
        }
        self.allocate_below(cx, trans, want)
    }

    /// Takes an extent from a group before those that the transaction has, whose headers it may not
    /// wait for: those that nobody holds.
    fn allocate_below(
        &self,
        cx: &mut Cx,
        trans: &mut Trans,
        want: &AllocRequest,
    ) -> Result<AgExtent> {
        let highest = trans.highest_group().filter(|_| !want.this_group).unwrap_or(0);
        let groups = 0..highest;
        for ag in groups {
            if self.groups[ag as usize].longest.load(Ordering::Relaxed) < want.min_len {
                continue;
            }
            let map = self.header_map(ag, AgHeader::Agf);
            if !trans.has_buf(&[map]) {
                let Some(buf) = self.log.bufs().try_read(cx, &[map], &agf::AGF)? else { continue };
                trans.join(buf);
            }
            let attempt = Attempt { want, min_len: want.min_len, keep_reserve: false };
            let found = self.allocate_in(cx, trans, ag, &attempt)?;
            if let pick::FoundExtent::At(found) = found {
                return Ok(found);
            }
        }
        Err(XfsError::NoSpace)
    }

    /// Takes blocks for metadata, which nobody has reserved: the group keeps a reserve for them.
    /// May park.
    ///
    /// # Errors
    /// As [`Space::allocate`].
    pub fn allocate_metadata(
        &self,
        cx: &mut Cx,
        trans: &mut Trans,
        want: &AllocRequest,
    ) -> Result<AgExtent> {
        let found = self.allocate(cx, trans, want)?;
        self.available.fetch_sub(i64::from(found.len), Ordering::Relaxed);
        Ok(found)
    }

    /// Carries out deferred work on free space, reverse map and reference counts. May park.
    ///
    /// # Errors
    /// As [`Space::free`]; work of another kind.
    pub fn finish(&self, cx: &mut Cx, trans: &mut Trans, work: &Work) -> Result<Finished> {
        use Section::{Data, Realtime};
        match *work {
            Work::Free { section: Data, start, .. }
            | Work::Rmap { section: Data, start, .. }
            | Work::Refcount { section: Data, start, .. }
                if is_below(trans, self.split(FsBlock(start)).ag) =>
            {
                return Ok(Finished::Again(work.clone()));
            }
            Work::Free { section: Data, start, len, owner } => {
                let extent = self.checked(FsExtent { start: FsBlock(start), len })?;
                self.free(cx, trans, extent, owner)?;
            }
            Work::Free { section: Realtime, start, len, .. } => {
                return self.finish_free_realtime(cx, trans, start, len);
            }
            Work::Rmap { section, flags, owner, start, offset, len } => {
                let (owner, extent) =
                    (Owner { owner, offset }, FsExtent { start: FsBlock(start), len });
                if section == Realtime {
                    return self.finish_realtime_rmap(cx, trans, flags, owner, extent);
                }
                let extent = self.checked(extent)?;
                let agf = self.lock(cx, trans, extent.start.ag)?;
                self.fill_list(cx, trans, &agf)?;
                self.finish_rmap(cx, trans, &agf, flags, owner.record(extent))?;
                self.note(&agf);
            }
            Work::Refcount { section, flags, start, len } => {
                let extent = FsExtent { start: FsBlock(start), len };
                return match section {
                    Data => self.finish_refcount(cx, trans, flags, extent),
                    Realtime => self.finish_realtime_refcount(cx, trans, flags, extent),
                };
            }
            Work::Bmap { .. } | Work::Parent(_) | Work::Attribute(_) | Work::Exchange(_) => {
                return Err(XfsError::Answer(base::Errno::EOPNOTSUPP));
            }
        }
        Ok(Finished::Done)
    }

    fn checked(&self, extent: FsExtent) -> Result<AgExtent> {
        let FsExtent { start, len } = extent;
        if !self.geometry.extent_valid(start, u64::from(len)) || len == 0 {
            let kind = CorruptKind::ExtentPlace { offset: 0, start: start.0, count: len };
            return Err(kind.at(At::Super(0)).into());
        }
        Ok(AgExtent { start: self.geometry.split(start), len })
    }

    fn allocate_in(
        &self,
        cx: &mut Cx,
        trans: &mut Trans,
        ag: u32,
        attempt: &Attempt<'_>,
    ) -> Result<pick::FoundExtent> {
        let mark = trans.mark();
        let agf = self.lock(cx, trans, ag)?;
        if !trans.upkeep(|trans| self.fill_list(cx, trans, &agf))? {
            trans.release_since(mark);
            return Ok(pick::FoundExtent::Nothing);
        }
        let found = self.pick(cx, trans, &agf, attempt)?;
        let pick::FoundExtent::At(taken) = found else {
            trans.release_since(mark);
            return Ok(found);
        };
        self.carve(cx, trans, &agf, taken)?;
        if let Some(owner) = attempt.want.owner {
            self.map(cx, trans, &agf, owner.record(taken))?;
        }
        self.note(&agf);
        Ok(found)
    }

    /// Gives an extent back to its group. `owner` is who had it, for the reverse map; none if
    /// that has been done. The blocks count as available from now on. May park.
    ///
    /// # Errors
    /// A tree that says something else; the device failed.
    pub fn free(
        &self,
        cx: &mut Cx,
        trans: &mut Trans,
        extent: AgExtent,
        owner: Option<Owner>,
    ) -> Result<()> {
        let agf = self.lock(cx, trans, extent.start.ag)?;
        self.fill_list(cx, trans, &agf)?;
        if let Some(owner) = owner {
            self.unmap(cx, trans, &agf, owner.record(extent))?;
        }
        self.put_free(cx, trans, &agf, extent)?;
        trans.free_busy(extent);
        self.note(&agf);
        self.give_back(u64::from(extent.len));
        Ok(())
    }

    /// The AGF of a group, locked for the transaction. May park.
    ///
    /// # Errors
    /// A header that fails a check; the device failed.
    pub fn lock(&self, cx: &mut Cx, trans: &mut Trans, ag: u32) -> Result<Agf> {
        let buf = trans.read_buf(cx, &[self.header_map(ag, AgHeader::Agf)], &agf::AGF)?;
        trans.note_group(ag);
        Agf::new(ag, buf, &self.geometry)
    }

    /// Sees to it that the AGFL holds what the trees may need at the most, and not more. False
    /// where the group has not enough for that. May park.
    fn fill_list(&self, cx: &mut Cx, trans: &mut Trans, agf: &Agf) -> Result<bool> {
        let features = self.geometry.features;
        while agf.list_len() > agf.list_need(features) {
            let block = self.list_take(cx, trans, agf)?;
            let extent = AgExtent::one(AgBlock { ag: agf.ag, block });
            if features.rmapbt() {
                self.unmap(cx, trans, agf, Owner::special(owner::AG).record(extent))?;
            }
            self.put_free(cx, trans, agf, extent)?;
            trans.free_busy(extent);
        }
        while agf.list_len() < agf.list_need(features) {
            let missing = agf.list_need(features) - agf.list_len();
            let goal = AgBlock { ag: agf.ag, block: 0 };
            let want = AllocRequest {
                max_len: missing,
                ..AllocRequest::block(goal, Owner::special(owner::AG))
            };
            let attempt = Attempt { want: &want, min_len: 1, keep_reserve: false };
            let pick::FoundExtent::At(found) = self.pick(cx, trans, agf, &attempt)? else {
                return Ok(false);
            };
            self.carve(cx, trans, agf, found)?;
            if features.rmapbt() {
                self.map(cx, trans, agf, Owner::special(owner::AG).record(found))?;
            }
            for block in found.blocks() {
                self.list_put(cx, trans, agf, block)?;
            }
        }
        Ok(true)
    }

    /// What the superblock's counter of free blocks should say. May park.
    ///
    /// # Errors
    /// A header that fails a check; the device failed.
    pub fn count_free(&self, cx: &mut Cx) -> Result<u64> {
        self.each_agf(cx, |_, _| ())
    }

    /// Shows the AGF of each group; returns the blocks that are free, in an AGFL, or in free-space
    /// trees.
    fn each_agf(&self, cx: &mut Cx, look: impl Fn(&Space, &Agf)) -> Result<u64> {
        let mut total = 0;
        for ag in 0..self.geometry.ag_count() {
            let buf = self.log.bufs().read(cx, &[self.header_map(ag, AgHeader::Agf)], &agf::AGF)?;
            total += u64::from(buf.with(|data| agf::all_free(data, ag, &self.geometry))?);
            look(self, &Agf::unlocked(ag, &buf));
        }
        Ok(total)
    }

    /// Group and block.
    pub fn split(&self, block: FsBlock) -> AgBlock {
        self.geometry.split(block)
    }
}

/// True if a transaction may no longer wait for the header of a group: it has a higher one.
fn is_below(trans: &Trans, ag: u32) -> bool {
    trans.highest_group().is_some_and(|highest| ag < highest)
}

/// All but the maps of files.
impl IntentFinisher for Space {
    fn finish(&self, cx: &mut Cx, trans: &mut Trans, work: &Work) -> Result<Finished> {
        Space::finish(self, cx, trans, work)
    }
}
