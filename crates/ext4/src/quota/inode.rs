//! What an inode is charged for.

use std::sync::Arc;

use base::Errno;
use rt::Cx;
use smallvec::SmallVec;

use super::{Dquot, Dquots, Owners};
use crate::Ext4;
use crate::format::InodeValues;
use crate::inode::{Inode, InodeCore};

/// What the slot of an inode has put on its owners' accounts, and what it was promised.
#[derive(Debug, Default)]
pub(crate) struct InodeQuota {
    /// Whom the usage is charged to.
    dquots: Dquots,
    /// Whom it is charged to from the next write of the slot on: new owners.
    next: Option<Dquots>,
    /// Bytes charged.
    space: u64,
    /// Inodes charged: 0 before the first write of the slot.
    inodes: u64,
    /// Bytes promised.
    reserved_space: u64,
    /// Inodes promised.
    reserved_inodes: u64,
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
    /// Takes a promise back.
    pub(super) fn unreserve(&self, space: u64, inodes: u64) {
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
    fn usage(&self) -> [u64; 4] {
        [self.space, self.inodes, self.reserved_space, self.reserved_inodes]
    }

    /// The inode's slot says from now on that it has so many bytes; `inodes` is 0 where it was
    /// freed. Of its promises so many bytes are left.
    fn follow(&mut self, space: u64, inodes: u64, reserved_space: u64) -> Changes {
        let old = self.usage();
        (self.space, self.inodes) = (space, inodes);
        (self.reserved_space, self.reserved_inodes) = (reserved_space, 0);
        let new = self.usage();
        let before = std::mem::take(&mut self.dquots);
        self.dquots = self.next.take().unwrap_or_else(|| before.clone());
        let mut changes = Changes::new();
        for (from, to) in before.iter().zip(&self.dquots) {
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
            self.dquots.iter().flatten().for_each(|dquot| dquot.unreserve(space, inodes));
        }
    }
}

impl InodeCore {
    /// From the next write of the slot on the new owners pay; `None` leaves the old ones.
    pub(crate) fn pay_to(&mut self, owners: Option<Dquots>) {
        if let (Some(quota), Some(next)) = (&mut self.quota, owners) {
            quota.next = Some(next);
        }
    }

    /// Takes note that the slot now says what `values` do; what that changes. `promised` bytes are
    /// still to come.
    pub(crate) fn quota_changes(&mut self, promised: u64) -> Changes {
        let (gone, space) = (self.gone, space_of(&self.values));
        let inodes = 1 + u64::from(self.large_values);
        match &mut self.quota {
            None => Changes::new(),
            Some(quota) if gone => quota.follow(0, 0, 0),
            Some(quota) => quota.follow(space, inodes, promised),
        }
    }
}

fn space_of(values: &InodeValues) -> u64 {
    values.blocks.saturating_mul(512)
}

impl Ext4 {
    /// Ties an inode that was read to its owners' accounts. No handle is open.
    ///
    /// # Errors
    /// As [`Ext4::dquots`].
    pub(crate) fn attach_quota(&self, cx: &mut Cx, inode: &Inode) -> Result<(), Errno> {
        let charged = self.quota().is_some() && self.sb.geometry.is_charged(inode.ino.0 as u32);
        let is_value = inode.with(cx, |core| core.is_value());
        if !charged || is_value || self.sb.check_writable().is_err() {
            return Ok(());
        }
        let large_values = crate::attr::xattr::large_values(self, cx, inode)?;
        let owners = inode.with(cx, |core| Owners([core.uid, core.gid, core.projid]));
        let dquots = self.dquots(cx, owners)?;
        inode.with(cx, |core| {
            let space = space_of(&core.values);
            let mut quota = Box::<InodeQuota>::default();
            let inodes = 1 + u64::from(large_values);
            (quota.dquots, quota.space, quota.inodes) = (dquots, space, inodes);
            core.large_values = large_values;
            core.quota = Some(quota);
        });
        Ok(())
    }

    /// Promises an inode and `space` bytes for a new inode. No handle is open.
    ///
    /// # Errors
    /// `EDQUOT`; those of [`Ext4::dquots`].
    pub(crate) fn new_inode_quota(
        &self,
        cx: &mut Cx,
        owners: Owners,
        space: u64,
    ) -> Result<Option<Box<InodeQuota>>, Errno> {
        if self.quota().is_none() {
            return Ok(None);
        }
        let dquots = self.dquots(cx, owners)?;
        self.reserve_quota(cx, &dquots, space, 1)?;
        let mut quota = Box::<InodeQuota>::default();
        (quota.dquots, quota.reserved_space, quota.reserved_inodes) = (dquots, space, 1);
        Ok(Some(quota))
    }

    /// Promises up to `blocks` blocks for an inode, at least `least`; how many.
    ///
    /// # Errors
    /// `EDQUOT` the limits allow no more than fewer.
    pub(crate) fn promise_quota(
        &self,
        cx: &Cx,
        inode: &Inode,
        blocks: u32,
        least: u32,
    ) -> Result<u32, Errno> {
        if self.quota().is_none() {
            return Ok(blocks);
        }
        let dquots = inode.with(cx, |core| {
            core.quota.as_ref().map(|quota| quota.next.as_ref().unwrap_or(&quota.dquots).clone())
        });
        let Some(dquots) = dquots else { return Ok(blocks) };
        let size = u64::from(self.sb.geometry.block_size);
        let room = self.quota_room(cx, &dquots) / size;
        let count = u64::from(blocks).min(room) as u32;
        if count < least {
            return Err(Errno::EDQUOT);
        }
        let bytes = u64::from(count) * size;
        self.reserve_quota(cx, &dquots, bytes, 0)?;
        inode.with(cx, |core| {
            if let Some(quota) = &mut core.quota {
                quota.reserved_space += bytes;
            }
        });
        Ok(count)
    }

    /// Promises `bytes` and an inode for an attribute's value, until the slot is written.
    ///
    /// # Errors
    /// `EDQUOT` the limits do not allow it.
    pub(crate) fn promise_value(&self, cx: &Cx, inode: &Inode, bytes: u64) -> Result<(), Errno> {
        let dquots = inode.with(cx, |core| {
            core.quota.as_ref().map(|quota| quota.next.as_ref().unwrap_or(&quota.dquots).clone())
        });
        let Some(dquots) = dquots else { return Ok(()) };
        self.reserve_quota(cx, &dquots, bytes, 1)?;
        inode.with(cx, |core| {
            if let Some(quota) = &mut core.quota {
                quota.reserved_space += bytes;
                quota.reserved_inodes += 1;
            }
        });
        Ok(())
    }

    /// Takes the promise of [`Ext4::promise_value`] back where the value did not come.
    pub(crate) fn unpromise_value(&self, cx: &Cx, inode: &Inode, bytes: u64) {
        inode.with(cx, |core| {
            if let Some(quota) = &mut core.quota {
                let space = quota.reserved_space.min(bytes);
                let inodes = quota.reserved_inodes.min(1);
                quota.reserved_space -= space;
                quota.reserved_inodes -= inodes;
                quota.dquots.iter().flatten().for_each(|dquot| dquot.unreserve(space, inodes));
            }
        });
    }

    /// Brings an inode's promises down to those of its delayed blocks.
    pub(crate) fn settle_promises(&self, cx: &Cx, inode: &Inode) {
        if self.quota().is_none() {
            return;
        }
        let promised = self.promised_bytes(cx, inode);
        inode.with(cx, |core| {
            if let Some(quota) = &mut core.quota {
                let over = quota.reserved_space.saturating_sub(promised);
                quota.reserved_space -= over;
                quota.dquots.iter().flatten().for_each(|dquot| dquot.unreserve(over, 0));
            }
        });
    }

    /// Bytes of blocks that dirty pages were promised.
    pub(crate) fn promised_bytes(&self, cx: &Cx, inode: &Inode) -> u64 {
        inode.delayed.lock(cx).blocks() * u64::from(self.sb.geometry.block_size)
    }

    /// Asks whether an inode may change its owners; whom [`InodeCore::pay_to`] is to name when it
    /// does. No handle is open; the caller holds `rwsem`.
    ///
    /// # Errors
    /// `EDQUOT` the new owners may not have so much; those of [`Ext4::dquots`].
    pub(crate) fn transfer_quota(
        &self,
        cx: &mut Cx,
        inode: &Inode,
        owners: Owners,
    ) -> Result<Option<Dquots>, Errno> {
        let old = inode.with(cx, |core| {
            core.quota.as_ref().map(|quota| (quota.dquots.clone(), quota.usage()))
        });
        let Some((old, usage)) = old else { return Ok(None) };
        let next = self.dquots(cx, owners)?;
        let mut others = next.clone();
        for (other, old) in others.iter_mut().zip(&old) {
            let same = |a: &Arc<Dquot>, b: &Arc<Dquot>| Arc::ptr_eq(a, b);
            if other.as_ref().zip(old.as_ref()).is_some_and(|(a, b)| same(a, b)) {
                *other = None;
            }
        }
        let [space, inodes, reserved, _] = usage;
        self.reserve_quota(cx, &others, space + reserved, inodes)?;
        // It was a question: the write of the slot charges.
        others.iter().flatten().for_each(|dquot| dquot.unreserve(space + reserved, inodes));
        Ok(Some(next))
    }
}
