//! Charges quota for inodes.

use base::Errno;
use rt::Cx;

use crate::dquot::{Changes, Dquots};
use crate::format::{InodeFlags, InodeValues};
use crate::inode::{Inode, InodeCore};
use crate::sb::SuperBlock;

impl InodeCore {
    /// From the next write of the slot on the new owners pay; `None` leaves the old ones.
    pub(crate) fn pay_to(&mut self, owners: Option<Dquots>) {
        if let (Some(quota), Some(next)) = (&mut self.quota, owners) {
            quota.next = Some(next);
        }
    }

    /// Takes note that the slot now says what `values` do; what that changes. `delayed` bytes are
    /// still to come.
    pub(crate) fn quota_changes(&mut self, delayed: u64) -> Changes {
        let (gone, space) = (self.gone, space_of(&self.values));
        let inodes = 1 + u64::from(self.large_values);
        match &mut self.quota {
            None => Changes::new(),
            Some(quota) if gone => quota.follow(0, 0, 0),
            Some(quota) => quota.follow(space, inodes, delayed),
        }
    }
}

pub(crate) fn space_of(values: &InodeValues) -> u64 {
    values.blocks.saturating_mul(512)
}

impl Inode {
    /// Reserves up to `blocks` blocks (clusters with bigalloc) for the inode, at least `least`; how
    /// many.
    ///
    /// # Errors
    /// `EDQUOT` the limits allow no more than fewer.
    pub(crate) fn reserve_quota(
        &self,
        cx: &Cx,
        sb: &SuperBlock,
        blocks: u32,
        least: u32,
    ) -> Result<u32, Errno> {
        if !sb.counts_quota() {
            return Ok(blocks);
        }
        let dquots = self.with(cx, |core| core.quota.as_ref().map(|quota| quota.payers()));
        let Some(dquots) = dquots else { return Ok(blocks) };
        let size = sb.geometry.cluster_sectors() * 512;
        let room = dquots.room(cx, sb) / size;
        let count = u64::from(blocks).min(room) as u32;
        if count < least {
            return Err(Errno::EDQUOT);
        }
        let bytes = u64::from(count) * size;
        dquots.reserve_usage(cx, sb, bytes, 0)?;
        self.with(cx, |core| {
            if let Some(quota) = &mut core.quota {
                quota.reserved_space += bytes;
            }
        });
        Ok(count)
    }

    /// Reserves `bytes` and an inode for an attribute's value, until the slot is written.
    ///
    /// # Errors
    /// `EDQUOT` the limits do not allow it.
    pub(crate) fn reserve_value(&self, cx: &Cx, sb: &SuperBlock, bytes: u64) -> Result<(), Errno> {
        let dquots = self.with(cx, |core| core.quota.as_ref().map(|quota| quota.payers()));
        let Some(dquots) = dquots else { return Ok(()) };
        dquots.reserve_usage(cx, sb, bytes, 1)?;
        self.with(cx, |core| {
            if let Some(quota) = &mut core.quota {
                quota.reserved_space += bytes;
                quota.reserved_inodes += 1;
            }
        });
        Ok(())
    }

    /// Undoes [`Inode::reserve_value`] where the value did not come.
    pub(crate) fn unreserve_value(&self, cx: &Cx, bytes: u64) {
        self.with(cx, |core| {
            if let Some(quota) = &mut core.quota {
                let space = quota.reserved_space.min(bytes);
                let inodes = quota.reserved_inodes.min(1);
                quota.reserved_space -= space;
                quota.reserved_inodes -= inodes;
                quota.dquots.0.iter().flatten().for_each(|dquot| dquot.unreserve(space, inodes));
            }
        });
    }

    /// Brings what is reserved down to the inode's delayed blocks.
    pub(crate) fn settle_quota(&self, cx: &Cx, sb: &SuperBlock) {
        if !sb.counts_quota() {
            return;
        }
        let delayed = self.delayed_bytes(cx, sb);
        self.with(cx, |core| {
            if let Some(quota) = &mut core.quota {
                let over = quota.reserved_space.saturating_sub(delayed);
                quota.reserved_space -= over;
                quota.dquots.0.iter().flatten().for_each(|dquot| dquot.unreserve(over, 0));
            }
        });
    }

    /// Bytes of blocks that are reserved for dirty pages.
    pub(crate) fn delayed_bytes(&self, cx: &Cx, sb: &SuperBlock) -> u64 {
        self.delayed.lock(cx).blocks() * u64::from(sb.geometry.block_size)
    }

    /// Whether a name in this directory may be given to an inode of this project: a directory that
    /// hands its project on takes no others.
    ///
    /// # Errors
    /// `EXDEV` where it may not.
    pub(crate) fn check_project(&self, cx: &Cx, inode: &Inode) -> Result<(), Errno> {
        let (project, inherits) =
            self.with(cx, |core| (core.projid, core.flags.contains(InodeFlags::PROJINHERIT)));
        let foreign = inherits && inode.with(cx, |core| core.projid) != project;
        if foreign { Err(Errno::EXDEV) } else { Ok(()) }
    }
}
