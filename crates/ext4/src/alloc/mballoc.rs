//! The multi-block allocator: where new blocks lie.
//!
//! A request names a goal and a wanted length. The goal's own place is tried first, then its group
//! for a run that is long enough, then the other groups in order; if nowhere the whole length is to
//! be had, a quarter of it, then anything. A group that cannot have a run that long is passed over
//! by its cached limit.
//!
//! Small files go one behind the other (a stream for each flexible group), so that the bios of
//! files written one after the other merge. A file that grows takes more than it needs
//! ([`Prealloc`]), in memory only, so that two growing files do not
//! interleave.

use std::sync::atomic::Ordering;

use base::{Errno, Ino, bitmap};
use rt::{Cx, SpinLock};

use crate::alloc::BlockAllocator;
use crate::alloc::balloc::{GroupState, Run};
use crate::alloc::reservation::Window;
use crate::format::GroupFlags;

/// Blocks of a file before it counts as growing and gets a preallocation.
const STREAM_BLOCKS: u32 = 16;
/// The largest preallocation, in blocks.
const PREALLOC_MAX: u32 = 2048;

/// Blocks taken out of the allocator for an inode's next blocks; not yet on the disk.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Prealloc {
    /// The logical block that the first of them is for.
    pub lblk: u32,
    pub pblk: u64,
    pub len: u32,
    /// Tables of pointers for the next blocks, in the order of their need; 0 is none.
    pub tables: [u64; 3],
    /// Blocks kept for tables of pointers, so that data stay in one run: first, count.
    pub pool: (u64, u32),
}

/// What a request is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Purpose {
    /// A file's data whose space was reserved when they were written: clusters of the request.
    Delayed,
    /// A file's data in blocks that were claimed before.
    Claimed,
    /// A file's data without a reservation.
    Data,
    /// A directory block or an attribute block: always one block.
    Metadata,
    /// A node of a tree, a table of pointers: always one block.
    Node,
}

/// A request for blocks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Request {
    /// The block that would be best; 0 where there is none.
    pub goal: u64,
    /// Clusters wanted (blocks without bigalloc), at least 1.
    pub want: u32,
    /// The logical block that the first of them is for.
    pub lblk: u32,
    pub purpose: Purpose,
}

/// Which blocks a search takes: at least `min` in one run, best `want`.
#[derive(Clone, Copy)]
struct Search {
    goal: u32,
    want: u32,
    min: u32,
}

impl GroupState {
    /// Takes a run out of the map: (start, length).
    fn claim(&mut self, search: Search, valid: u32) -> Option<(u32, u32)> {
        if self.run_limit < search.min || self.available < search.min {
            return None;
        }
        let map = self.map.as_deref_mut()?;
        let end = valid as usize;
        let goal = (search.goal as usize).min(end);
        let want = search.want as usize;
        let at_goal = bitmap::run_of_zeros(map, goal, end.min(goal + want));
        let found = if at_goal >= search.min as usize {
            Some((goal, at_goal))
        } else {
            let (best, longest) = longest_run(map, goal, end, want);
            if let Some(longest) = longest {
                self.run_limit = longest as u32;
            }
            best.filter(|&(_, len)| len >= search.min as usize)
        };
        let (start, len) = found?;
        let len = len.min(want);
        bitmap::set_range(map, start, start + len);
        self.available -= len as u32;
        Some((start as u32, len as u32))
    }
}

/// The first run of at least `want` from `goal` on and then from the start; else the longest. The
/// second answer is the length of the longest run where all of the map was seen.
fn longest_run(
    map: &[u8],
    goal: usize,
    end: usize,
    want: usize,
) -> (Option<(usize, usize)>, Option<usize>) {
    let mut best: Option<(usize, usize)> = None;
    for (from, to) in [(goal, end), (0, end)] {
        let mut at = from;
        while let Some(start) = bitmap::find_next_zero(map, at, to) {
            let len = bitmap::run_of_zeros(map, start, end.min(start + want));
            if len >= want {
                return (Some((start, want)), None);
            }
            if best.is_none_or(|(_, longest)| len > longest) {
                best = Some((start, len));
            }
            at = start + len;
        }
    }
    (best, Some(best.map_or(0, |(_, len)| len)))
}

impl BlockAllocator {
    /// The first block of the neighbourhood of inode `ino`: its flexible group, files behind
    /// directories.
    pub(crate) fn inode_goal(&self, ino: Ino, regular: bool) -> u64 {
        let group = self.sb.geometry.group_of_inode(ino);
        let flex = self.sb.geometry.flex_size;
        if flex < 4 {
            return self.sb.geometry.group_first_block(group);
        }
        let first = group - group % flex;
        let group = if regular { first + 1 } else { first };
        self.sb.geometry.group_first_block(group.min(self.sb.geometry.groups_count - 1))
    }

    /// Claims blocks for a request of inode `ino` in memory: out of the file's preallocation or its
    /// window, or others.
    ///
    /// # Errors
    /// `ENOSPC`, `EIO`, `EUCLEAN`.
    pub(crate) fn claim_for(
        &self,
        cx: &mut Cx,
        ino: Ino,
        prealloc: &mut Prealloc,
        window: Option<&SpinLock<Window>>,
        request: Request,
    ) -> Result<(u64, u32), Errno> {
        let found = match (self.take_prealloc(prealloc, request), window) {
            (None, Some(window)) => self.claim_reserved(cx, window, request.goal, request.want)?,
            (found, _) => found,
        };
        match found {
            Some(found) => Ok(found),
            None => self.claim_blocks(cx, ino, prealloc, request),
        }
    }

    fn take_prealloc(&self, prealloc: &mut Prealloc, request: Request) -> Option<(u64, u32)> {
        if matches!(request.purpose, Purpose::Metadata | Purpose::Node) {
            let table = prealloc.tables.iter_mut().find(|table| **table != 0)?;
            return Some((std::mem::take(table), 1));
        }
        if prealloc.len == 0 {
            return None;
        }
        if prealloc.lblk != request.lblk {
            self.release_prealloc(prealloc);
            return None;
        }
        let (start, len) = (prealloc.pblk, prealloc.len.min(request.want));
        prealloc.pblk += u64::from(len);
        prealloc.lblk += len;
        prealloc.len -= len;
        Some((start, len))
    }

    /// Gives the blocks of a preallocation back to the allocator.
    pub(crate) fn release_prealloc(&self, prealloc: &mut Prealloc) {
        let (pool, count) = std::mem::take(&mut prealloc.pool);
        let tables = std::mem::take(&mut prealloc.tables).map(|table| (table, 1));
        self.unclaim(prealloc.pblk, std::mem::take(&mut prealloc.len));
        self.unclaim(pool, count);
        tables.into_iter().filter(|table| table.0 != 0).for_each(|one| self.unclaim(one.0, one.1));
    }

    /// Gives `len` claimed clusters of one group back to the allocator.
    pub(crate) fn unclaim(&self, start: u64, len: u32) {
        if len > 0 {
            self.make_available(self.run_at(start, len).expect("a claimed block is valid"));
        }
    }

    /// Claims a run in the maps, in memory only.
    fn claim_blocks(
        &self,
        cx: &mut Cx,
        ino: Ino,
        prealloc: &mut Prealloc,
        request: Request,
    ) -> Result<(u64, u32), Errno> {
        let regular = !matches!(request.purpose, Purpose::Metadata | Purpose::Node);
        let growing = regular && (request.lblk >= STREAM_BLOCKS || request.want > STREAM_BLOCKS);
        let small = regular && !growing && request.lblk == 0;
        let flex = self.sb.geometry.group_of_inode(ino) / self.sb.geometry.flex_size;
        let stream = &self.stream_goals[flex as usize];
        let mut goal = request.goal;
        if small && stream.load(Ordering::Relaxed) != 0 {
            goal = stream.load(Ordering::Relaxed);
        }
        // A cluster is room to grow into by itself.
        let window = if growing && request.lblk > 0 && !self.sb.geometry.has_clusters() {
            request.want.max(request.lblk / 2).next_power_of_two().min(PREALLOC_MAX)
        } else {
            request.want
        };
        // More than it needs only where there is more than enough.
        let ample = self.unreserved_blocks() > self.kept_blocks(cx) + i64::from(2 * window);
        let window = if ample { window.max(request.want) } else { request.want };
        let (start, len) = self.claim_run(cx, goal, window, request.want)?;
        let used = len.min(request.want);
        if len > used {
            *prealloc = Prealloc {
                lblk: request.lblk + used,
                pblk: start + u64::from(used),
                len: len - used,
                ..*prealloc
            };
        }
        if small {
            let end = start + (u64::from(used) << self.sb.geometry.cluster_bits());
            stream.store(end, Ordering::Relaxed);
        }
        Ok((start, used))
    }

    /// Claims a run of clusters near block `goal`, in memory only: at the goal itself as far as
    /// that goes where it is free for at least `min` of them, else elsewhere: the first block, and
    /// how many clusters. The caller uses them or gives them back.
    ///
    /// # Errors
    /// `ENOSPC`, `EIO`, `EUCLEAN`.
    pub(crate) fn claim_run(
        &self,
        cx: &mut Cx,
        goal: u64,
        window: u32,
        want: u32,
    ) -> Result<(u64, u32), Errno> {
        let groups = self.sb.geometry.groups_count;
        let (goal_group, goal_bit) =
            self.run_at(goal, 1).map_or((0, 0), |run| (run.group, run.start));
        let most = self.sb.geometry.clusters_per_group;
        let (window, want) = (window.min(most), want.min(most));
        let mut seen = self.counters.returned.load(Ordering::Relaxed);
        let mut mins = [want, (want / 4).max(1), 1].to_vec();
        mins.dedup();
        loop {
            for &min in &mins {
                for step in 0..groups {
                    let group = (goal_group + step) % groups;
                    let search =
                        Search { goal: if step == 0 { goal_bit } else { 0 }, want: window, min };
                    if let Some((start, len)) = self.claim_in_group(cx, group, search)? {
                        return Ok((self.first_block(Run { group, start, len }), len));
                    }
                }
            }
            // Where blocks came back behind the search while others took those in front of it,
            // another look finds them: some other search has got on.
            let before =
                std::mem::replace(&mut seen, self.counters.returned.load(Ordering::Relaxed));
            if seen == before {
                return Err(Errno::ENOSPC);
            }
        }
    }

    fn claim_in_group(
        &self,
        cx: &mut Cx,
        group: u32,
        search: Search,
    ) -> Result<Option<(u32, u32)>, Errno> {
        let loaded = {
            let state = self.groups[group as usize].state.lock(cx);
            let loaded = state.map.is_some();
            let hopeless = if loaded {
                state.run_limit < search.min || state.available < search.min
            } else {
                state.desc.free_blocks < search.min
            };
            if hopeless {
                return Ok(None);
            }
            loaded
        };
        if !loaded {
            self.load_group(cx, group)?;
        }
        let valid = self.sb.geometry.clusters_in_group(group);
        let claimed = self.groups[group as usize].state.lock(cx).claim(search, valid);
        if let Some((_, len)) = claimed {
            self.counters.at_hand.fetch_sub(i64::from(len), Ordering::Relaxed);
        }
        Ok(claimed)
    }

    /// True for a group whose block bitmap was never written.
    pub(crate) fn block_uninit(&self, cx: &Cx, group: u32) -> bool {
        let state = self.groups[group as usize].state.lock(cx);
        self.sb.geometry.features.group_csum()
            && state.desc.flags.contains(GroupFlags::BLOCK_UNINIT)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::Rng;

    fn state(map: Vec<u8>, valid: u32) -> GroupState {
        let available = bitmap::count_zeros(&map, valid as usize) as u32;
        GroupState {
            map: Some(map.into_boxed_slice()),
            available,
            run_limit: available,
            ..GroupState::default()
        }
    }

    /// Random claims and releases against a bitmap that is searched bit by bit: what is claimed was
    /// free, is long enough, is the goal where that is free, and nothing is refused that is there.
    #[test]
    fn claims_agree_with_a_slow_search() {
        let mut rng = Rng::new(7, 1);
        for _ in 0..200 {
            let valid = 64 + rng.below(200) as u32;
            let mut map = vec![0u8; 40];
            rng.fill(&mut map);
            let mut group = state(map, valid);
            for _ in 0..40 {
                let before = group.map.clone().expect("has a map");
                let want = 1 + rng.below(12) as u32;
                let min = 1 + rng.below(u64::from(want)) as u32;
                let goal = rng.below(u64::from(valid)) as u32;
                let longest = (0..valid as usize)
                    .map(|at| bitmap::run_of_zeros(&before, at, valid as usize))
                    .max()
                    .unwrap_or(0);
                match group.claim(Search { goal, want, min }, valid) {
                    None => assert!(longest < min as usize, "refused {min} of {longest}"),
                    Some((start, len)) => {
                        assert!((min..=want).contains(&len));
                        let (from, to) = (start as usize, (start + len) as usize);
                        assert_eq!(bitmap::run_of_zeros(&before, from, to), len as usize);
                        let map = group.map.as_deref().expect("has a map");
                        assert_eq!(
                            group.available as usize,
                            bitmap::count_zeros(map, valid as usize)
                        );
                    }
                }
            }
        }
    }
}
