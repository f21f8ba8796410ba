//! Reservation windows: how ext3 keeps a file's blocks together while other files grow beside it.
//!
//! A *window* is a range of blocks of one group, in memory only, out of which one file allocates.
//! Windows do not overlap, so who allocates out of his own leaves the others' alone; what has none
//! (directories, attributes, files with extents) takes free blocks wherever they are. A new window
//! begins at the first free block from the goal on that no other window covers. It is 8 blocks
//! long, or as long as the request; it grows in place while the request's goal lies in it; the next
//! one is twice as long where more than half of its blocks were taken, up to a table's worth of
//! data with its tables. A window goes with the last close, with a truncation, and with the inode.
//! Where no window is to be had blocks are taken as if there were none.
//!
//! Source: Mingming Cao's description in the thread "Reducing average ext2 fsck time through
//! fs-wide dirty bit" (2006-03-22), and "State of the Art: Where we are with the Ext3 filesystem"
//! (Cao, Ts'o and others, Ottawa Linux Symposium 2005).

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;

use base::{Errno, bitmap};
use rt::{Cx, SpinLock};

use crate::alloc::BlockAllocator;
use crate::alloc::balloc::GroupState;

/// Blocks of a file's first window.
const WINDOW_MIN: u32 = 8;
/// The longest window: a table's worth of data, and the three tables in front of it.
const WINDOW_MAX: u32 = 1024 + 3;
/// Windows that are tried where others take the blocks out of them.
const TRIES: u32 = 4;

/// A file's window.
#[derive(Debug, Default)]
pub(crate) struct Window {
    start: u64,
    /// Blocks; 0 is no window.
    len: u32,
    /// Blocks that the window was made for, and the next one is, before it is doubled.
    size: u32,
    /// Blocks that were taken out of it.
    hits: u32,
}

impl Window {
    fn end(&self) -> u64 {
        self.start + u64::from(self.len)
    }

    fn contains(&self, block: u64) -> bool {
        (self.start..self.end()).contains(&block)
    }

    /// How long the next window is, for a request of `want` blocks.
    fn next_size(&self, want: u32) -> u32 {
        let doubles = self.len > 0 && self.hits > self.len / 2;
        let size = if doubles { self.size * 2 } else { self.size };
        size.max(want).clamp(WINDOW_MIN, WINDOW_MAX)
    }
}

/// The windows of all files: where each begins, and the block behind it.
#[derive(Debug, Default)]
pub(crate) struct Windows {
    ends: SpinLock<BTreeMap<u64, u64>>,
}

impl Windows {
    /// Makes a window, or returns the end of the last one that is in the way.
    fn reserve(&self, start: u64, len: u32) -> Result<(), u64> {
        let end = start + u64::from(len);
        let mut ends = self.ends.lock_irq();
        match ends.range(..end).next_back() {
            Some((_, &other)) if other > start => Err(other),
            _ => {
                ends.insert(start, end);
                Ok(())
            }
        }
    }

    /// Lets the window at `start` reach to `end`, or to the next one: how far.
    fn extend(&self, start: u64, end: u64) -> u64 {
        let mut ends = self.ends.lock_irq();
        let next = ends.range(start + 1..).next().map_or(u64::MAX, |(&next, _)| next);
        let reached = end.min(next);
        ends.insert(start, reached);
        reached
    }

    /// Gives a window up.
    fn discard(&self, window: &Window) {
        if window.len > 0 {
            self.ends.lock_irq().remove(&window.start);
        }
    }

    /// How many there are.
    #[cfg(test)]
    fn count(&self) -> usize {
        self.ends.lock_irq().len()
    }
}

impl GroupState {
    /// Takes the first free blocks of `from..to` out of the map, at most `want`: start and count.
    fn claim_first(&mut self, from: u32, to: u32, want: u32) -> Option<(u32, u32)> {
        let map = self.map.as_deref_mut()?;
        let start = bitmap::find_next_zero(map, from as usize, to as usize)?;
        let len = bitmap::run_of_zeros(map, start, (to as usize).min(start + want as usize));
        bitmap::set_range(map, start, start + len);
        self.available -= len as u32;
        Some((start as u32, len as u32))
    }
}

impl BlockAllocator {
    /// Claims blocks out of the file's window, in memory only: the first free run from `goal` on,
    /// at most `want`. None where no window is to be had. The caller uses the
    /// blocks or gives them back. May wait for the device.
    ///
    /// # Errors
    /// `EIO`, `EUCLEAN`.
    pub(crate) fn claim_reserved(
        &self,
        cx: &mut Cx,
        own: &SpinLock<Window>,
        goal: u64,
        want: u32,
    ) -> Result<Option<(u64, u32)>, Errno> {
        let mut window = std::mem::take(&mut *own.lock(cx));
        let claimed = self.claim_from(cx, &mut window, goal, want);
        let other = std::mem::replace(&mut *own.lock(cx), window);
        self.windows.discard(&other);
        claimed
    }

    /// Gives the file's window up; its next one begins small.
    pub(crate) fn discard_window(&self, own: &SpinLock<Window>) {
        let window = std::mem::take(&mut *own.lock_irq());
        self.windows.discard(&window);
    }

    fn claim_from(
        &self,
        cx: &mut Cx,
        window: &mut Window,
        goal: u64,
        want: u32,
    ) -> Result<Option<(u64, u32)>, Errno> {
        let mut at = goal;
        for _ in 0..TRIES {
            if window.contains(at) {
                self.extend_window(window, at + u64::from(want));
            } else if self.new_window(cx, window, at, want)? {
                at = window.start;
            } else {
                return Ok(None);
            }
            let (group, from) = self.sb.geometry.group_of_block(at).expect("windows are inside");
            let to = from + (window.end() - at) as u32;
            let claimed = self.groups[group as usize].state.lock(cx).claim_first(from, to, want);
            if let Some((start, len)) = claimed {
                self.counters.at_hand.fetch_sub(i64::from(len), Ordering::Relaxed);
                window.hits += len;
                let first = self.sb.geometry.group_first_block(group);
                return Ok(Some((first + u64::from(start), len)));
            }
            at = window.end();
        }
        Ok(None)
    }

    fn extend_window(&self, window: &mut Window, end: u64) {
        let place = self.sb.geometry.group_of_block(window.start);
        let (group, _) = place.expect("windows are inside");
        let blocks = u64::from(self.sb.geometry.blocks_in_group(group));
        let end = end.min(self.sb.geometry.group_first_block(group) + blocks);
        if end > window.end() {
            window.len = (self.windows.extend(window.start, end) - window.start) as u32;
        }
    }

    /// Makes another window, in place of `window`, from `goal` on or else anywhere. False where
    /// there is no place for one; then there is none.
    fn new_window(
        &self,
        cx: &mut Cx,
        window: &mut Window,
        goal: u64,
        want: u32,
    ) -> Result<bool, Errno> {
        let size = window.next_size(want);
        self.windows.discard(window);
        *window = Window { size, ..Window::default() };
        let groups = self.sb.geometry.groups_count;
        let (goal_group, goal_bit) = self.sb.geometry.group_of_block(goal).unwrap_or((0, 0));
        for step in 0..=groups {
            let group = (goal_group + step) % groups;
            let first = self.sb.geometry.group_first_block(group);
            let blocks = self.sb.geometry.blocks_in_group(group);
            let mut from = if step == 0 { goal_bit } else { 0 };
            while let Some(free) = self.first_free(cx, group, from)? {
                let (start, len) = (first + u64::from(free), size.min(blocks - free));
                match self.windows.reserve(start, len) {
                    Ok(()) => {
                        *window = Window { start, len, size, hits: 0 };
                        return Ok(true);
                    }
                    Err(end) => from = (end - first) as u32,
                }
            }
        }
        Ok(false)
    }

    /// The first block of a group from bit `from` on that the allocator may take. May wait for the
    /// device.
    fn first_free(&self, cx: &mut Cx, group: u32, from: u32) -> Result<Option<u32>, Errno> {
        let some = {
            let state = self.groups[group as usize].state.lock(cx);
            if state.map.is_some() { state.available > 0 } else { state.desc.free_blocks > 0 }
        };
        let blocks = self.sb.geometry.clusters_in_group(group);
        if !some || from >= blocks {
            return Ok(None);
        }
        self.load_group(cx, group)?;
        let state = self.groups[group as usize].state.lock(cx);
        let map = state.map.as_deref().expect("the group is loaded");
        let free = bitmap::find_next_zero(map, from as usize, blocks as usize);
        Ok(free.map(|free| free as u32))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows_do_not_overlap() {
        let windows = Windows::default();
        assert_eq!(windows.reserve(100, 8), Ok(()));
        assert_eq!(windows.reserve(120, 8), Ok(()));
        assert_eq!(windows.reserve(104, 4), Err(108), "inside");
        assert_eq!(windows.reserve(90, 11), Err(108), "over its begin");
        assert_eq!(windows.reserve(108, 13), Err(128), "over the begin of the next");
        assert_eq!(windows.reserve(90, 60), Err(128), "over both: the last one's end");
        assert_eq!(windows.reserve(108, 4), Ok(()), "between");
        assert_eq!(windows.extend(108, 200), 120, "up to the next");
        assert_eq!(windows.extend(120, 200), 200, "nothing is behind");
        assert_eq!(windows.count(), 3);
        windows.discard(&Window { start: 108, len: 12, ..Window::default() });
        windows.discard(&Window { start: 120, ..Window::default() });
        assert_eq!(windows.count(), 2, "a window of no blocks is none");
        assert_eq!(windows.reserve(110, 8), Ok(()));
    }

    #[test]
    fn a_window_doubles_where_it_was_of_use() {
        let window = |len, size, hits| Window { start: 1, len, size, hits };
        assert_eq!(Window::default().next_size(1), 8, "the first one");
        assert_eq!(Window::default().next_size(1025), 1025, "as long as the request");
        assert_eq!(window(8, 8, 4).next_size(1), 8, "half is not more than half");
        assert_eq!(window(8, 8, 5).next_size(1), 16);
        assert_eq!(window(3, 16, 2).next_size(1), 32, "one cut short by its group's end");
        assert_eq!(window(800, 800, 800).next_size(1), 1027, "the longest");
        assert_eq!(Window::default().next_size(4000), 1027);
    }
}
