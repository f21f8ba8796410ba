//! Lookups of Linux's ext4 that ours does without: see [`crate::sb::legacy`].

use base::{Errno, Ino};
use rt::Cx;

use crate::inode::{Inode, Inodes};
use crate::trans::ext4_jbd2::Handle;

impl Inodes {
    /// Looks up the slot of an inode `times` times, as Linux would.
    ///
    /// # Errors
    /// `EIO`.
    #[inline]
    pub(crate) fn legacy_slot(&self, cx: &mut Cx, ino: Ino, times: u32) -> Result<(), Errno> {
        if !self.sb.legacy() {
            return Ok(());
        }
        (0..times).try_for_each(|_| self.inode_slot(cx, ino).map(drop))
    }

    /// Charges an inode's owners before its slot is looked up, inodes and space each for itself, as
    /// Linux did; else they are charged with the slot.
    ///
    /// # Errors
    /// `EIO`; the journal's errno once it has aborted.
    pub(crate) fn legacy_charge(
        &self,
        cx: &mut Cx,
        handle: &mut Handle,
        inode: &Inode,
    ) -> Result<(), Errno> {
        if !self.sb.legacy() || !self.sb.counts_quota() {
            return Ok(());
        }
        let delayed = inode.delayed_bytes(cx, &self.sb);
        let changes = inode.with(cx, |core| match core.freed {
            true => Default::default(),
            false => core.quota_changes(delayed),
        });
        for change in &changes {
            if change.space != 0 && change.inodes != 0 {
                self.sb.legacy_lookup(cx, change.dquot.block)?;
            }
            change.charge(cx, handle, &self.sb)?;
        }
        Ok(())
    }
}
