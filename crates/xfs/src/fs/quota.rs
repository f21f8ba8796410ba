//! Quota as the operations of a mount ask for it.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use base::Errno;
use rt::Cx;

use crate::Xfs;
use crate::format::Section;
use crate::format::inode::InodeCore;
use crate::inode::Inode;
use crate::log::dquot_item::{DquotList, Owners, Usage};
use crate::quota::{Quota, QuotaHold};

impl Xfs {
    /// The quota of the mount, where something is counted.
    pub(crate) fn quota(&self) -> Option<&Arc<Quota>> {
        self.write.as_ref()?.quota.as_ref().filter(|quota| quota.table.kinds().next().is_some())
    }

    /// Brings the records of an inode's owners into memory. No transaction is open. May park.
    ///
    /// # Errors
    /// As [`Quota::dquot`].
    pub(crate) fn attach_quota(
        &self,
        cx: &mut Cx,
        core: &InodeCore,
    ) -> std::result::Result<(), Errno> {
        match self.quota() {
            Some(quota) => {
                quota.dquots(cx, &core.owners()).map_err(|error| self.fail(error)).map(drop)
            }
            None => Ok(()),
        }
    }

    /// Who pays for an inode.
    pub(crate) fn owners_of(&self, cx: &Cx, inode: &Inode) -> Owners {
        inode.with(cx, |state| state.core.owners())
    }

    /// Reserves blocks and inodes for these owners. No transaction is open. May park.
    ///
    /// # Errors
    /// `EDQUOT`, `ENOSPC` of a project; `EIO`, `EUCLEAN`.
    pub(crate) fn reserve_quota(
        &self,
        cx: &mut Cx,
        owners: &Owners,
        usage: Usage,
    ) -> std::result::Result<QuotaHold, Errno> {
        match self.quota() {
            Some(quota) => {
                quota.reserve(cx, owners, usage, false).map_err(|error| self.fail(error))
            }
            None => Ok(QuotaHold::default()),
        }
    }

    /// Reserves blocks of its content for the owners of an inode. As [`Xfs::reserve_quota`].
    ///
    /// # Errors
    /// As [`Xfs::reserve_quota`].
    pub(crate) fn reserve_quota_blocks(
        &self,
        cx: &mut Cx,
        inode: &Inode,
        blocks: u64,
    ) -> std::result::Result<QuotaHold, Errno> {
        if self.quota().is_none() || blocks == 0 {
            return Ok(QuotaHold::default());
        }
        let (owners, realtime) =
            inode.with(cx, |state| (state.core.owners(), state.core.is_realtime()));
        self.reserve_quota(cx, &owners, Usage::of_content(Section::of(realtime), blocks))
    }

    /// Asks whether an inode may get other owners, who hold their limits unless root gives it to
    /// them. The caller holds its `rwsem` for writing; no transaction is open. May park.
    ///
    /// # Errors
    /// As [`Xfs::reserve_quota`].
    pub(crate) fn ask_new_owners(
        &self,
        cx: &mut Cx,
        inode: &Inode,
        new: &Owners,
    ) -> std::result::Result<QuotaHold, Errno> {
        let Some(quota) = self.quota() else { return Ok(QuotaHold::default()) };
        let (old, blocks) = inode.with(cx, |state| (state.core.owners(), state.core.blocks));
        let realtime = inode.item.content().load(Ordering::Relaxed);
        let mut usage = Usage { blocks: blocks as i64 - realtime, inodes: 1, realtime };
        usage += reserved_for_content(cx, inode);
        let list = quota.dquots(cx, new).map_err(|error| self.fail(error))?;
        let kept = |kind| old.id(kind) == new.id(kind);
        let list = list.into_iter().filter(|dquot| !kept(dquot.id.kind)).collect();
        let forced = cx.cred().uid == 0;
        quota.reserve_from(cx, &list, usage, forced).map_err(|error| self.fail(error))
    }

    /// What is reserved for content counts for the new owners from now on. The caller holds the
    /// inode for a transaction.
    pub(crate) fn move_reserved(&self, cx: &Cx, inode: &Inode, old: &Owners, new: &Owners) {
        let Some(quota) = self.quota() else { return };
        let usage = reserved_for_content(cx, inode);
        for kind in quota.table.kinds().filter(|&kind| old.id(kind) != new.id(kind)) {
            let find = |owners: &Owners| quota.table.find(owners.id(kind));
            if let (Some(from), Some(to)) = (find(old), find(new)) {
                let _ = to.reserve(usage, None);
                from.unreserve(usage);
            }
        }
    }

    /// Blocks of the CoW fork got into the map, or are given back: they are no longer reserved.
    pub(crate) fn unreserve_cow(&self, cx: &Cx, inode: &Inode, blocks: u64) {
        let (dquots, realtime) =
            inode.with(cx, |state| (self.known_dquots(&state.core), state.core.is_realtime()));
        drop(QuotaHold::of(dquots, Usage::of_content(Section::of(realtime), blocks)));
    }

    /// The records of an inode's owners, which are in memory since the inode is. Nothing waits.
    pub(crate) fn known_dquots(&self, core: &InodeCore) -> DquotList {
        let Some(quota) = self.quota() else { return DquotList::new() };
        let owners = core.owners();
        quota.table.kinds().filter_map(|kind| quota.table.find(owners.id(kind))).collect()
    }
}

/// What is reserved for dirty pages of an inode, and for its CoW fork.
fn reserved_for_content(cx: &Cx, inode: &Inode) -> Usage {
    let delayed = inode.io.lock(cx).delayed.len();
    let cow = inode.cow_fork.lock(cx).blocks();
    let realtime = inode.with(cx, |state| state.core.is_realtime());
    let mut usage = Usage::of_content(Section::of(realtime), cow);
    usage += Usage::of_blocks(delayed);
    usage
}
