//! Blocks that a direct write has taken out of the allocator and not yet put into the file.
//!
//! Two ways to lay them out. *As Linux's ext3*: one run for each table of pointers, the table right
//! in front of the data that it maps, as much as there is at the goal: data, table, data, table.
//! (Files with extents are laid out as ours does it.)
//! *Ours*: one run as long as the group has it, beginning at a chunk of the device, and the tables
//! together in front of it, so that data follow data.

use std::collections::VecDeque;
use std::ops::Range;

use base::Errno;
use rt::Cx;

use crate::alloc::mballoc::Prealloc;
use crate::bmap::map::{Mapped, State};
use crate::inode::{Inode, Inodes};

/// Blocks that ours takes for tables at least, where it takes any, and at most for later calls.
const TABLES_MIN: u32 = 16;
const TABLES_AHEAD_MAX: u32 = 64;

/// One run for data.
#[derive(Clone, Copy, Debug)]
struct Claim {
    lblk: u32,
    len: u32,
    pblk: u64,
}

/// The claims of one call, in the order of the file.
#[derive(Debug, Default)]
pub(super) struct Claims {
    runs: VecDeque<Claim>,
    /// Blocks for tables, in the order of their need.
    tables: VecDeque<u64>,
    /// The tables that they are for.
    named: Vec<(usize, usize, u64)>,
}

impl Claims {
    /// Whether block `lblk` of the file is claimed.
    pub fn covers(&self, lblk: u32) -> bool {
        self.runs.iter().any(|run| run.lblk <= lblk && lblk - run.lblk < run.len)
    }

    /// Nothing is claimed.
    pub fn is_empty(&self) -> bool {
        self.runs.is_empty()
    }

    fn end(&self) -> u64 {
        self.runs.back().map_or(0, |run| run.pblk + u64::from(run.len))
    }
}

impl Inodes {
    /// Claims blocks for the start of `hole`, at most `want`: what was claimed.
    ///
    /// # Errors
    /// `ENOSPC`, `EIO`, `EUCLEAN`: nothing is claimed then.
    pub(super) fn claim_hole(
        &self,
        cx: &mut Cx,
        inode: &Inode,
        claims: &mut Claims,
        hole: &Mapped,
        want: u32,
    ) -> Result<Mapped, Errno> {
        let extents = inode.has_extents(cx);
        let ours = self.sb.options.direct.boundary.is_modern();
        let lblk = hole.lblk;
        let (len, goal, tables) = if extents {
            let guard = inode.map_lock.read(cx);
            let goal = self.bmap(inode).extent_goal(cx, lblk);
            drop(guard);
            (hole.len.min(want), goal?, Vec::new())
        } else {
            let guard = inode.map_lock.read(cx);
            let gap = self.bmap(inode).indirect_gap(cx, lblk, want, ours);
            drop(guard);
            let mut gap = gap?;
            gap.tables.retain(|name| !claims.named.contains(name));
            (gap.len.max(1), gap.goal, gap.tables)
        };
        let goal = if claims.end() > 0 { claims.end() } else { goal };
        let reserved = self.reserve_some(cx, inode, len)?;
        let wanted = Claim { lblk, len: reserved, pblk: goal };
        let claimed = match ours || extents {
            true => self.claim_apart(cx, inode, claims, wanted, &tables),
            false => self.claim_inline(cx, inode, claims, wanted, tables.len()),
        };
        // What was claimed is not at hand any more: the reservation of it ends.
        self.alloc.end_reservation(u64::from(reserved));
        let claim = claimed?;
        claims.runs.push_back(claim);
        // A table that only later parts of the hole need is claimed with them.
        let end = u64::from(lblk) + u64::from(claim.len);
        claims.named.extend(tables.into_iter().filter(|name| name.2 < end));
        let Claim { lblk, len, pblk } = claim;
        Ok(Mapped { lblk, len, pblk, state: State::Written })
    }

    /// Reserves `count` blocks, or what there is of them and what the inode's owners may have.
    fn reserve_some(&self, cx: &mut Cx, inode: &Inode, count: u32) -> Result<u32, Errno> {
        let free = (self.alloc.unreserved_blocks() - self.alloc.kept_blocks(cx)).max(0) as u64;
        let count = u64::from(count).min(free.saturating_sub(8)).max(1) as u32;
        let count = inode.reserve_quota(cx, &self.sb, count, 1)?;
        let reserved = self.reserve_blocks(cx, u64::from(count), self.alloc.kept_blocks(cx));
        if reserved.is_err() {
            inode.settle_quota(cx, &self.sb);
        }
        reserved.map(|()| count)
    }

    /// As Linux's ext3: the tables, then the data, at the goal as far as that goes. Of a `wanted`
    /// claim the block is the goal (0: near the inode).
    fn claim_inline(
        &self,
        cx: &mut Cx,
        inode: &Inode,
        claims: &mut Claims,
        wanted: Claim,
        tables: usize,
    ) -> Result<Claim, Errno> {
        let Claim { lblk, len: want, pblk: mut goal } = wanted;
        let mut missing = tables as u32;
        let before = claims.tables.len();
        loop {
            let (start, len) = match self.claim_near(cx, inode, goal, missing + want) {
                Ok(run) => run,
                Err(errno) => {
                    let taken = claims.tables.split_off(before);
                    taken.into_iter().for_each(|table| self.alloc.unclaim(table, 1));
                    return Err(errno);
                }
            };
            let first = missing.min(len);
            claims.tables.extend(start..start + u64::from(first));
            missing -= first;
            goal = start + u64::from(len);
            if len > first {
                return Ok(Claim { lblk, len: len - first, pblk: start + u64::from(first) });
            }
        }
    }

    /// A run out of the file's window; where it has none, as far as there is one at the goal.
    fn claim_near(
        &self,
        cx: &mut Cx,
        inode: &Inode,
        goal: u64,
        want: u32,
    ) -> Result<(u64, u32), Errno> {
        let goal = self.bmap(inode).goal_or_near(cx, goal);
        if self.bmap(inode).uses_window(cx)
            && let Some(run) = self.alloc.claim_reserved(cx, &inode.window, goal, want)?
        {
            return Ok(run);
        }
        self.alloc.claim_run(cx, goal, want, 1)
    }

    /// Ours: the data as one run, the tables elsewhere.
    fn claim_apart(
        &self,
        cx: &mut Cx,
        inode: &Inode,
        claims: &mut Claims,
        wanted: Claim,
        tables: &[(usize, usize, u64)],
    ) -> Result<Claim, Errno> {
        let Claim { lblk, len: want, pblk: mut goal } = wanted;
        if lblk <= 12 && !tables.is_empty() {
            // At the start of a file its tables lie in front of its data.
            self.fill_pool(cx, inode, lblk, goal, tables.len() as u32)?;
            let pool = inode.map_lock.read(cx).pool;
            goal = pool.0 + u64::from(pool.1);
        }
        let near = self.bmap(inode).goal_or_near(cx, goal);
        let (mut start, mut len) = self.alloc.claim_run(cx, near, want, want)?;
        let chunk = u64::from(self.sb.queue.info().chunk / self.sb.geometry.block_size);
        if chunk > 0 && start != goal && u64::from(len) > 2 * chunk {
            let aligned = start.next_multiple_of(chunk);
            self.alloc.unclaim(start, (aligned - start) as u32);
            len -= (aligned - start) as u32;
            start = aligned;
        }
        let end = u64::from(lblk) + u64::from(len);
        let needed = tables.iter().filter(|name| name.2 < end).count() as u32;
        let data = Claim { lblk, len, pblk: start };
        match self.claim_tables(cx, inode, claims, data, needed) {
            Ok(()) => Ok(data),
            Err(errno) => {
                self.alloc.unclaim(start, len);
                Err(errno)
            }
        }
    }

    /// Blocks for `needed` tables: from what the inode keeps, then from the end of the group with
    /// `data`, so that what follows in the file may follow there.
    fn claim_tables(
        &self,
        cx: &mut Cx,
        inode: &Inode,
        claims: &mut Claims,
        data: Claim,
        needed: u32,
    ) -> Result<(), Errno> {
        let before = claims.tables.len();
        let mut missing = needed;
        while missing > 0 {
            if inode.map_lock.read(cx).pool.1 == 0 {
                let (group, _) = self.sb.geometry.group_of_block(data.pblk).unwrap_or((0, 0));
                let first = self.sb.geometry.group_first_block(group);
                let end = first + u64::from(self.sb.geometry.blocks_in_group(group));
                let goal = end - u64::from(missing.max(TABLES_AHEAD_MAX)).min(end - first);
                if let Err(errno) = self.fill_pool(cx, inode, data.lblk, goal, missing) {
                    let taken = claims.tables.split_off(before);
                    taken.into_iter().for_each(|table| self.alloc.unclaim(table, 1));
                    return Err(errno);
                }
            }
            let mut kept = inode.map_lock.write(cx);
            let (first, count) = kept.pool;
            let now = count.min(missing);
            claims.tables.extend(first..first + u64::from(now));
            kept.pool = (first + u64::from(now), count - now);
            missing -= now;
        }
        Ok(())
    }

    /// Claims blocks for tables near `goal` into the inode's empty pool, the more the further in
    /// the file `lblk` is. A pool that is not empty stays.
    fn fill_pool(
        &self,
        cx: &mut Cx,
        inode: &Inode,
        lblk: u32,
        goal: u64,
        needed: u32,
    ) -> Result<(), Errno> {
        let ahead = TABLES_MIN + lblk / (self.sb.geometry.block_size / 4);
        let want = needed.max(ahead.min(TABLES_AHEAD_MAX));
        let mut kept = inode.map_lock.write(cx);
        if kept.pool.1 == 0 {
            let goal = self.bmap(inode).goal_or_near(cx, goal);
            kept.pool = self.alloc.claim_run(cx, goal, want, needed.min(TABLES_MIN))?;
        }
        Ok(())
    }

    /// Puts the claim at the start of `blocks` into the file, as far as one handle goes and not
    /// behind their end, and with it the size on the disk, up to byte `size`. Returns the block to
    /// go on with.
    ///
    /// # Errors
    /// `ENOSPC` (a block of the tree), `EIO`, `EUCLEAN`: the claim is as before.
    pub(super) fn use_claim(
        &self,
        cx: &mut Cx,
        inode: &Inode,
        claims: &mut Claims,
        blocks: Range<u32>,
        size: u64,
    ) -> Result<u32, Errno> {
        let lblk = blocks.start;
        let Some(claim) = claims.runs.front().copied().filter(|claim| claim.lblk == lblk) else {
            // Somebody took the blocks out of the file that the write went to.
            return Err(Errno::EIO);
        };
        let len = claim.len.min(blocks.end - lblk);
        let mut run = Prealloc { lblk, pblk: claim.pblk, len, ..Prealloc::default() };
        let used = self.use_run(cx, inode, claims, &mut run, size);
        let done = len - run.len;
        let Claim { lblk, len, pblk } = claim;
        let rest = Claim { lblk: lblk + done, len: len - done, pblk: pblk + u64::from(done) };
        match rest.len {
            0 => drop(claims.runs.pop_front()),
            _ => claims.runs[0] = rest,
        }
        used.map(|()| rest.lblk)
    }

    /// Gives back what was claimed and not used.
    pub(super) fn drop_claims(&self, cx: &Cx, inode: &Inode, claims: Claims) {
        claims.runs.iter().for_each(|claim| self.alloc.unclaim(claim.pblk, claim.len));
        claims.tables.iter().for_each(|&table| self.alloc.unclaim(table, 1));
        inode.settle_quota(cx, &self.sb);
    }

    /// One handle: as much of `run` as one table maps.
    fn use_run(
        &self,
        cx: &mut Cx,
        inode: &Inode,
        claims: &mut Claims,
        run: &mut Prealloc,
        size: u64,
    ) -> Result<(), Errno> {
        let need = self.bmap(inode).map_credits(cx);
        let mut handle = self.sb.journal_start_tracked(cx, need)?;
        for slot in &mut run.tables {
            *slot = claims.tables.pop_front().unwrap_or(0);
        }
        let mapped = self.bmap(inode).map_claimed(cx, &mut handle, run, size);
        for table in std::mem::take(&mut run.tables).into_iter().rev().filter(|table| *table != 0) {
            claims.tables.push_front(table);
        }
        self.mark_dirty(cx, &mut handle, inode)?;
        handle.stop(cx)?;
        mapped.map(drop)
    }
}
