//! The quota accounts: what an id uses, what is reserved for it, and what it may use.
//!
//! Locks: a [`Dquot::state`] after an inode's core and before the content of a buffer.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use base::Errno;
use rt::{Cx, SpinLock};
use smallvec::SmallVec;
pub use vfs::quota::{Grace, Limits};

use crate::format::quota::{Dqblk, Form, Kind, LIMIT_UNIT};
use crate::sb::SuperBlock;
use crate::trans::ext4_jbd2::Handle;

/// Usage and limits of one id, as in its entry.
pub(crate) struct Dquot {
    pub kind: Kind,
    pub id: u32,
    /// The form of its entry.
    pub form: Form,
    /// How long its soft limits may be exceeded: that of its kind.
    pub grace: Arc<GraceCell>,
    /// Device block of the entry, and bytes from its start. It never moves.
    pub block: u64,
    pub offset: usize,
    pub state: SpinLock<DquotState>,
}

#[derive(Debug, Default)]
pub(crate) struct DquotState {
    pub entry: Dqblk,
    /// Bytes reserved and not yet charged.
    pub reserved_space: u64,
    /// Inodes reserved and not yet charged.
    pub reserved_inodes: u64,
}

impl std::fmt::Debug for Dquot {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Dquot({} {})", self.kind.name(), self.id)
    }
}

/// Whom an inode is charged to, by kind.
#[derive(Clone, Debug, Default)]
pub(crate) struct Dquots(pub [Option<Arc<Dquot>>; 3]);

/// Owner, group and project.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Owners(pub [u32; 3]);

/// What the slot of an inode has put on its owners' accounts, and what is reserved for it.
#[derive(Debug, Default)]
pub(crate) struct InodeQuota {
    /// Whom the usage is charged to.
    pub dquots: Dquots,
    /// Whom it is charged to from the next write of the slot on: new owners.
    pub next: Option<Dquots>,
    /// Bytes charged.
    pub space: u64,
    /// Inodes charged: 0 before the first write of the slot.
    pub inodes: u64,
    /// Bytes reserved.
    pub reserved_space: u64,
    /// Inodes reserved.
    pub reserved_inodes: u64,
}

/// A change of one id's usage.
#[derive(Debug)]
pub(crate) struct Change {
    pub dquot: Arc<Dquot>,
    pub space: i64,
    pub inodes: i64,
    pub reserved_space: i64,
    pub reserved_inodes: i64,
}

/// The changes of up to two ids of each kind.
pub(crate) type Changes = SmallVec<[Change; 3]>;

impl Dquot {
    /// Changes the state of an id and writes its entry, as part of a handle: 1 credit.
    pub(crate) fn update_entry(
        &self,
        cx: &mut Cx,
        handle: &mut Handle,
        sb: &SuperBlock,
        change: impl FnOnce(&mut DquotState),
    ) -> Result<(), Errno> {
        let buffer = sb.read_block(cx, self.block)?;
        handle.write_access(cx, &buffer)?;
        let now = sb.now(cx).sec.max(0) as u64;
        {
            let mut state = self.state.lock(cx);
            change(&mut state);
            set_times(&mut state.entry, now, self.grace.get());
            buffer.with_mut(|data| {
                self.form.emit(&state.entry, &mut data[self.offset..], self.id);
            });
        }
        handle.dirty(cx, &buffer)
    }

    /// Gives back what was reserved.
    pub(crate) fn unreserve(&self, space: u64, inodes: u64) {
        let mut state = self.state.lock_irq();
        state.reserved_space = state.reserved_space.saturating_sub(space);
        state.reserved_inodes = state.reserved_inodes.saturating_sub(inodes);
    }
}

/// A whole usage that comes (1) or goes (-1).
fn whole(dquot: &Arc<Dquot>, sign: i64, usage: [u64; 4]) -> Change {
    let [space, inodes, reserved_space, reserved_inodes] = usage.map(|part| sign * part as i64);
    Change { dquot: dquot.clone(), space, inodes, reserved_space, reserved_inodes }
}

impl InodeQuota {
    /// Those who pay from the next write of the slot on.
    pub(crate) fn payers(&self) -> Dquots {
        self.next.as_ref().unwrap_or(&self.dquots).clone()
    }

    pub(crate) fn usage(&self) -> [u64; 4] {
        [self.space, self.inodes, self.reserved_space, self.reserved_inodes]
    }

    /// The inode's slot says from now on that it has so many bytes; `inodes` is 0 where it was
    /// freed. So many bytes stay reserved.
    pub(crate) fn follow(&mut self, space: u64, inodes: u64, reserved_space: u64) -> Changes {
        let old = self.usage();
        (self.space, self.inodes) = (space, inodes);
        (self.reserved_space, self.reserved_inodes) = (reserved_space, 0);
        let new = self.usage();
        let before = std::mem::take(&mut self.dquots);
        self.dquots = self.next.take().unwrap_or_else(|| before.clone());
        let mut changes = Changes::new();
        for (from, to) in before.0.iter().zip(&self.dquots.0) {
            match (from, to) {
                (Some(from), Some(to)) if Arc::ptr_eq(from, to) => {
                    if old != new {
                        let [space, inodes, reserved_space, reserved_inodes] =
                            [0, 1, 2, 3].map(|part| new[part] as i64 - old[part] as i64);
                        let dquot = to.clone();
                        let change =
                            Change { dquot, space, inodes, reserved_space, reserved_inodes };
                        changes.push(change);
                    }
                }
                (from, to) => {
                    changes.extend(from.iter().map(|from| whole(from, -1, old)));
                    changes.extend(to.iter().map(|to| whole(to, 1, new)));
                }
            }
        }
        changes
    }
}

impl Drop for InodeQuota {
    fn drop(&mut self) {
        let (space, inodes) = (self.reserved_space, self.reserved_inodes);
        if space + inodes > 0 {
            self.dquots.0.iter().flatten().for_each(|dquot| dquot.unreserve(space, inodes));
        }
    }
}

impl Change {
    /// Charges what an inode's slot says now, as part of the handle that writes it.
    ///
    /// # Errors
    /// `EIO`; the journal's errno once it has aborted.
    pub(crate) fn charge(
        &self,
        cx: &mut Cx,
        handle: &mut Handle,
        sb: &SuperBlock,
    ) -> Result<(), Errno> {
        if self.space == 0 && self.inodes == 0 {
            self.dquot.state.lock(cx).unreserve(self);
            return Ok(());
        }
        self.dquot.update_entry(cx, handle, sb, |state| {
            state.unreserve(self);
            let entry = &mut state.entry;
            entry.space = entry.space.saturating_add_signed(self.space);
            entry.inodes = entry.inodes.saturating_add_signed(self.inodes);
        })
    }
}

impl Dquots {
    /// Bytes more that all of them may have.
    pub(crate) fn room(&self, cx: &Cx, sb: &SuperBlock) -> u64 {
        let now = sb.now(cx).sec.max(0) as u64;
        let rooms = self.0.iter().flatten().map(|dquot| dquot.state.lock(cx).room(now));
        if cx.cred().uid == 0 { u64::MAX } else { rooms.min().unwrap_or(u64::MAX) }
    }

    /// Reserves space and inodes for all of them, or for none.
    ///
    /// # Errors
    /// `EDQUOT` a limit forbids it, unless the caller is root.
    pub(crate) fn reserve_usage(
        &self,
        cx: &Cx,
        sb: &SuperBlock,
        space: u64,
        inodes: u64,
    ) -> Result<(), Errno> {
        let now = sb.now(cx).sec.max(0) as u64;
        let free = cx.cred().uid == 0;
        let list: Vec<&Arc<Dquot>> = self.0.iter().flatten().collect();
        for (index, dquot) in list.iter().enumerate() {
            let allowed = {
                let mut state = dquot.state.lock(cx);
                let allowed = free || state.allows(space, inodes, now);
                if allowed {
                    state.reserved_space += space;
                    state.reserved_inodes += inodes;
                }
                allowed
            };
            if !allowed {
                list[..index].iter().for_each(|dquot| dquot.unreserve(space, inodes));
                return Err(Errno::EDQUOT);
            }
        }
        Ok(())
    }
}

/// Both words of a [`Grace`], read without a lock.
#[derive(Debug)]
pub(crate) struct GraceCell(AtomicU64);

impl GraceCell {
    pub fn new(grace: Grace) -> GraceCell {
        let cell = GraceCell(AtomicU64::new(0));
        cell.set(grace);
        cell
    }

    pub fn set(&self, grace: Grace) {
        let word = u64::from(grace.blocks) << 32 | u64::from(grace.inodes);
        self.0.store(word, Ordering::Relaxed);
    }

    pub fn get(&self) -> Grace {
        let word = self.0.load(Ordering::Relaxed);
        Grace { blocks: (word >> 32) as u32, inodes: word as u32, realtime: 0 }
    }
}

/// Whether `used` is allowed with these limits, the soft one until `time`.
fn within(used: u64, hard: u64, soft: u64, time: u64, now: u64) -> bool {
    (hard == 0 || used <= hard) && (soft == 0 || used <= soft || time == 0 || now < time)
}

/// The end of the grace for `used`: it begins when the soft limit is passed.
fn end_of_grace(used: u64, soft: u64, time: u64, now: u64, grace: u32) -> u64 {
    match soft != 0 && used > soft {
        false => 0,
        true if time == 0 => now + u64::from(grace),
        true => time,
    }
}

/// Starts and ends the grace periods of an entry as the usage asks for it.
fn set_times(entry: &mut Dqblk, now: u64, grace: Grace) {
    let soft = entry.block_soft.saturating_mul(LIMIT_UNIT);
    entry.block_time = end_of_grace(entry.space, soft, entry.block_time, now, grace.blocks);
    entry.inode_time =
        end_of_grace(entry.inodes, entry.inode_soft, entry.inode_time, now, grace.inodes);
}

impl DquotState {
    /// Whether `space` bytes and `inodes` more are allowed.
    fn allows(&self, space: u64, inodes: u64, now: u64) -> bool {
        let entry = &self.entry;
        let bytes = |limit: u64| limit.saturating_mul(LIMIT_UNIT);
        let used = entry.space.saturating_add(self.reserved_space).saturating_add(space);
        let count = entry.inodes.saturating_add(self.reserved_inodes).saturating_add(inodes);
        let (hard, soft) = (bytes(entry.block_hard), bytes(entry.block_soft));
        (space == 0 || within(used, hard, soft, entry.block_time, now))
            && (inodes == 0
                || within(count, entry.inode_hard, entry.inode_soft, entry.inode_time, now))
    }
}

impl DquotState {
    /// Bytes more that are allowed.
    fn room(&self, now: u64) -> u64 {
        let entry = &self.entry;
        let used = entry.space.saturating_add(self.reserved_space);
        let left = |limit: u64| limit.saturating_mul(LIMIT_UNIT).saturating_sub(used);
        let hard = if entry.block_hard == 0 { u64::MAX } else { left(entry.block_hard) };
        let expired = entry.block_time != 0 && now >= entry.block_time;
        let soft =
            if entry.block_soft == 0 || !expired { u64::MAX } else { left(entry.block_soft) };
        hard.min(soft)
    }
}

impl DquotState {
    /// Nothing is used, reserved or limited.
    pub(crate) fn unused(&self) -> bool {
        let Dqblk { space, inodes, block_hard, block_soft, inode_hard, inode_soft, .. } =
            self.entry;
        let limits = block_hard | block_soft | inode_hard | inode_soft;
        space | inodes | limits | self.reserved_space | self.reserved_inodes == 0
    }

    fn unreserve(&mut self, change: &Change) {
        self.reserved_space = self.reserved_space.saturating_add_signed(change.reserved_space);
        self.reserved_inodes = self.reserved_inodes.saturating_add_signed(change.reserved_inodes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn soft_limits_hold_after_their_grace_and_hard_ones_always() {
        let grace = Grace { blocks: 100, inodes: 10, realtime: 0 };
        let mut entry = Dqblk { block_soft: 8, block_hard: 16, ..Dqblk::default() };
        let allows = |entry: Dqblk, space: u64, now: u64| {
            DquotState { entry, ..DquotState::default() }.allows(space, 0, now)
        };
        entry.space = 8 * 1024;
        set_times(&mut entry, 1000, grace);
        assert_eq!(entry.block_time, 0);
        assert!(allows(entry, 8 * 1024, 1000) && !allows(entry, 8 * 1024 + 1, 1000));
        entry.space += 1024;
        set_times(&mut entry, 1000, grace);
        assert_eq!(entry.block_time, 1100);
        set_times(&mut entry, 1050, grace);
        assert_eq!(entry.block_time, 1100, "a period that has begun goes on");
        assert!(allows(entry, 1, 1099) && !allows(entry, 1, 1100));
        assert!(allows(entry, 0, 1100), "inodes have limits of their own");
        entry.space -= 1024;
        set_times(&mut entry, 1200, grace);
        assert!(entry.block_time == 0 && allows(entry, 1024, 1200));
    }
}
