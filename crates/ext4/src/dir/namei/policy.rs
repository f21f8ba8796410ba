//! Policies of encrypted directories: see the crate `fscrypt`.

use base::{Errno, Ino};
use fscrypt::{KeyName, Policy};
use rt::Cx;

use super::finish;
use crate::Ext4;
use crate::attr::{context, inline};
use crate::dir::{Dir, GROW_CREDITS};
use crate::format::features::Incompat;
use crate::format::super_block::ROOT_INO;

impl Ext4 {
    /// The policy of encryption of an inode; `None` where it is not encrypted. May park.
    ///
    /// # Errors
    /// `ESTALE`; `EUCLEAN` its context is damaged; `EIO`.
    pub fn encryption_policy(&self, cx: &mut Cx, ino: Ino) -> Result<Option<Policy>, Errno> {
        let inode = self.iget(cx, ino)?;
        let Some(crypt) = inode.crypt() else { return Ok(None) };
        crypt.policy().copied().map(Some).ok_or(Errno::EFSCORRUPTED)
    }

    /// Gives an empty directory a policy of encryption: everything that is made in it from now on
    /// is encrypted by it. Its key is among [`MountOptions::keys`](crate::MountOptions::keys). May
    /// park.
    ///
    /// # Errors
    /// `EOPNOTSUPP` the file system has not the feature `encrypt`; `EINVAL` the root, a policy
    /// whose parts do not go together, or one of version 1 where case is ignored;
    /// `ENOKEY`; `ENOTDIR`, `ENOTEMPTY`; `EEXIST` it has another policy; `ENOSPC`, `EDQUOT`,
    /// `EROFS`, `EUCLEAN`, `EIO`.
    pub fn encrypt_directory(&self, cx: &mut Cx, ino: Ino, policy: Policy) -> Result<(), Errno> {
        self.sb.check_writable()?;
        if !self.sb.geometry.features.incompat.contains(Incompat::ENCRYPT) {
            return Err(Errno::EOPNOTSUPP);
        }
        let inode = self.iget(cx, ino)?;
        let _guard = inode.rwsem.write(cx);
        let mut view = Dir::open(self, cx, &inode)?;
        let units = policy.data_unit_bits.map_or(self.sb.geometry.block_bits, u32::from);
        let fits = (9..=self.sb.geometry.block_bits).contains(&units);
        let hashable = view.encoding.is_none() || matches!(policy.key, KeyName::Identifier(_));
        if ino.0 == u64::from(ROOT_INO) || policy.check().is_err() || !fits || !hashable {
            return Err(Errno::EINVAL);
        }
        if self.sb.options.keys.find(&policy).is_none() {
            return Err(Errno::ENOKEY);
        }
        if inode.crypt().is_none() && !view.is_empty(cx)? {
            return Err(Errno::ENOTEMPTY);
        }
        if view.inline {
            // What is encrypted does not lie in the inode.
            let credits = GROW_CREDITS + inline::CREDITS;
            let mut handle = self.sb.journal_start(cx, credits)?;
            let moved = view.leave_inode(cx, &mut handle);
            let moved = moved.and_then(|()| self.inodes.mark_dirty(cx, &mut handle, &inode));
            finish(self, cx, handle, &inode, moved)?;
        }
        context::set_policy(&self.inodes, cx, &inode, policy)
    }
}
