//! Quota as an administrator sees it: usage, limits, grace periods, projects.

use base::{Errno, Ino};
use rt::Cx;
use vfs::quota::{Account, Project};

use crate::Ext4;
use crate::dquot::{Grace, Limits, Owners};
use crate::format::InodeFlags;
use crate::format::features::RoCompat;
use crate::format::inode::EXTRA_SIZE;
use crate::format::quota::{self as format, Dqblk, Kind};
use crate::quota::{QuotaBlocks, QuotaFile};
use crate::trans::credits;

impl Ext4 {
    fn file_of(&self, kind: Kind) -> Result<&QuotaFile, Errno> {
        self.quota.get().and_then(|quota| quota.file(kind)).ok_or(Errno::ESRCH)
    }

    /// The kinds of quota that this mount counts.
    pub fn quota_kinds(&self) -> Vec<Kind> {
        Kind::ALL.into_iter().filter(|&kind| self.file_of(kind).is_ok()).collect()
    }

    /// Usage and limits of every id that has an entry, ids rising. May park.
    ///
    /// # Errors
    /// `ESRCH` this kind is not counted; `EUCLEAN`, `EIO`.
    pub fn quota_report(&self, cx: &mut Cx, kind: Kind) -> Result<Vec<(u32, Dqblk)>, Errno> {
        let file = self.file_of(kind)?;
        let info = file.tree.lock(cx);
        let mut list = Vec::new();
        let mut blocks = QuotaBlocks::new(&self.inodes, cx, &file.inode, None);
        format::walk(&mut blocks, &info, &mut |id, entry| list.push((id, *entry)))?;
        Ok(list)
    }

    /// Sets the limits of an id. May park.
    ///
    /// # Errors
    /// `ESRCH` this kind is not counted; `EOPNOTSUPP` limits of a realtime section; `EROFS`,
    /// `EUCLEAN`, `EIO`.
    pub fn quota_set(
        &self,
        cx: &mut Cx,
        kind: Kind,
        id: u32,
        limits: &Limits,
    ) -> Result<(), Errno> {
        self.sb.check_writable()?;
        let file = self.file_of(kind)?;
        if (limits.realtime_hard, limits.realtime_soft) != (0, 0) {
            return Err(Errno::EOPNOTSUPP);
        }
        let quota = self.quota.get().ok_or(Errno::ESRCH)?;
        let dquot = quota.dquot(&self.inodes, cx, file, id)?;
        let mut handle = self.sb.journal_start(cx, 1)?;
        let result = dquot.update_entry(cx, &mut handle, &self.sb, |state| {
            let entry = &mut state.entry;
            entry.block_soft = limits.block_soft;
            entry.block_hard = limits.block_hard;
            entry.inode_soft = limits.inode_soft;
            entry.inode_hard = limits.inode_hard;
        });
        let stopped = handle.stop(cx);
        result?;
        stopped
    }

    /// How long soft limits of this kind may be exceeded.
    ///
    /// # Errors
    /// `ESRCH` this kind is not counted.
    pub fn quota_grace(&self, kind: Kind) -> Result<Grace, Errno> {
        Ok(self.file_of(kind)?.grace.get())
    }

    /// Sets how long soft limits of this kind may be exceeded; periods under way stay. May park.
    ///
    /// # Errors
    /// As [`Ext4::quota_set`].
    pub fn quota_set_grace(&self, cx: &mut Cx, kind: Kind, grace: Grace) -> Result<(), Errno> {
        self.sb.check_writable()?;
        let file = self.file_of(kind)?;
        let mut handle = self.sb.journal_start(cx, 1)?;
        let mut info = file.tree.lock(cx);
        (info.block_grace, info.inode_grace) = (grace.blocks, grace.inodes);
        let mut blocks = QuotaBlocks::new(&self.inodes, cx, &file.inode, Some(&mut handle));
        let result = format::Blocks::load(&mut blocks, 0).and_then(|mut header| {
            info.emit(&mut header, file.kind);
            format::Blocks::store(&mut blocks, 0, &header)
        });
        drop(info);
        file.grace.set(grace);
        let stopped = handle.stop(cx);
        result?;
        stopped
    }

    /// The project of an inode, and whether new entries inherit it.
    ///
    /// # Errors
    /// `ESTALE`, `EUCLEAN`, `EIO`.
    pub fn project(&self, cx: &mut Cx, ino: Ino) -> Result<(u32, bool), Errno> {
        let inode = self.iget(cx, ino)?;
        Ok(inode.with(cx, |core| (core.projid, core.flags.contains(InodeFlags::PROJINHERIT))))
    }

    /// Gives an inode to a project; with `inherit`, which only directories have, new entries
    /// belong to it too. May park.
    ///
    /// # Errors
    /// `EOPNOTSUPP` without the feature; `EOVERFLOW` the inode has no room for it; `EDQUOT`,
    /// `EROFS`, `ESTALE`, `EUCLEAN`, `EIO`.
    pub fn set_project(
        &self,
        cx: &mut Cx,
        ino: Ino,
        project: u32,
        inherit: bool,
    ) -> Result<(), Errno> {
        self.sb.check_writable()?;
        if !self.sb.geometry.features.ro_compat.contains(RoCompat::PROJECT) {
            return Err(Errno::EOPNOTSUPP);
        }
        let inode = self.iget(cx, ino)?;
        let _guard = inode.rwsem.write(cx);
        let owners = inode.with(cx, |core| {
            let fits = core.extra_isize >= EXTRA_SIZE;
            if core.dead {
                Err(Errno::ESTALE)
            } else if !fits {
                Err(Errno::EOVERFLOW)
            } else {
                Ok(Owners([core.uid, core.gid, project]))
            }
        })?;
        let payers = self.transfer_quota(cx, &inode, owners)?;
        let mut handle = self.sb.journal_start(cx, credits::INODE + credits::SUPER)?;
        let now = self.sb.now(cx);
        inode.with(cx, |core| {
            core.projid = project;
            core.pay_to(payers);
            let is_dir = core.mode & 0xf000 == 0x4000;
            core.flags.set(InodeFlags::PROJINHERIT, inherit && is_dir);
            core.ctime = now;
        });
        let result = self.inodes.mark_dirty(cx, &mut handle, &inode);
        let stopped = handle.stop(cx);
        result?;
        stopped
    }
}

impl vfs::quota::Quota for Ext4 {
    fn kinds(&self) -> Vec<Kind> {
        self.quota_kinds()
    }

    fn report(&self, cx: &mut Cx, kind: Kind) -> Result<Vec<Account>, Errno> {
        let list = self.quota_report(cx, kind)?;
        Ok(list.into_iter().map(|(id, entry)| Account { id, entry }).collect())
    }

    fn set_limits(&self, cx: &mut Cx, kind: Kind, id: u32, limits: &Limits) -> Result<(), Errno> {
        self.quota_set(cx, kind, id, limits)
    }

    fn grace(&self, _: &mut Cx, kind: Kind) -> Result<Grace, Errno> {
        self.quota_grace(kind)
    }

    fn set_grace(&self, cx: &mut Cx, kind: Kind, grace: Grace) -> Result<(), Errno> {
        self.quota_set_grace(cx, kind, grace)
    }

    fn project(&self, cx: &mut Cx, ino: Ino) -> Result<Project, Errno> {
        let (id, inherit) = Ext4::project(self, cx, ino)?;
        Ok(Project { id, inherit })
    }

    fn set_project(&self, cx: &mut Cx, ino: Ino, project: Project) -> Result<(), Errno> {
        Ext4::set_project(self, cx, ino, project.id, project.inherit)
    }
}
