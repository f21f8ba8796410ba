//! Quota as an administrator sees it: usage, limits, grace periods, projects.

use std::collections::{BTreeMap, BTreeSet};

use base::{Errno, Ino};
use rt::Cx;
use vfs::FileSystem;
use vfs::quota::{Account, Project};

use crate::Ext4;
use crate::attr::xattr;
use crate::dir::namei;
use crate::dquot::{Grace, Limits, Owners};
use crate::format::InodeFlags;
use crate::format::features::RoCompat;
use crate::format::inode::EXTRA_SIZE;
use crate::format::quota::{self as format, Dqblk, Form, Kind};
use crate::mount::MountError;
use crate::quota::{Quota, QuotaBlocks, QuotaFile};
use crate::trans::credits;

impl Quota {
    /// Do the old quota files have this form?
    ///
    /// # Errors
    /// [`MountError::QuotaFile`].
    pub(super) fn check_form(&self, form: Option<Form>) -> Result<(), MountError> {
        let wrong = |file: &&QuotaFile| form.is_some_and(|form| file.form != form);
        match Kind::ALL.iter().filter_map(|&kind| self.file(kind)).find(wrong) {
            None => Ok(()),
            Some(file) => {
                let (kind, number) = (file.kind.name(), file.form as u32);
                Err(MountError::QuotaFile(format!("of {kind}s: it is of the form vfsv{number}")))
            }
        }
    }
}

impl Ext4 {
    /// The inodes of the old quota files that the options name.
    ///
    /// # Errors
    /// [`MountError::QuotaFile`]; the device's.
    pub(super) fn old_quota_files(&self, cx: &mut Cx) -> Result<[u32; 3], MountError> {
        let mut inos = [0; 3];
        if self.sb.geometry.features.ro_compat.contains(RoCompat::QUOTA) {
            return Ok(inos);
        }
        for (ino, name) in inos.iter_mut().zip(self.sb.options.quota_files) {
            let Some(name) = name else { continue };
            let found = namei::lookup(self, cx, self.root(), name.as_bytes());
            *ino = found.map(|attr| attr.ino.0 as u32).map_err(|errno| match errno {
                Errno::ENOENT => {
                    let how = "is not in the root directory; quotacheck(8) makes it";
                    MountError::QuotaFile(format!("{name:?} {how}"))
                }
                errno => errno.into(),
            })?;
        }
        Ok(inos)
    }

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

    /// What every id uses, counted over all inodes: bytes and inodes. May park.
    ///
    /// # Errors
    /// `ESRCH` this kind is not counted; `EUCLEAN`, `EIO`.
    pub fn quota_count(&self, cx: &mut Cx, kind: Kind) -> Result<BTreeMap<u32, (u64, u64)>, Errno> {
        self.file_of(kind)?;
        let quota = self.quota.get().ok_or(Errno::ESRCH)?;
        let mut usage: BTreeMap<u32, (u64, u64)> = BTreeMap::new();
        for ino in (1..=self.sb.geometry.inodes_count).map(|ino| Ino(ino.into())) {
            let group = self.sb.geometry.group_of_inode(ino);
            let index = ((ino.0 - 1) % u64::from(self.sb.geometry.inodes_per_group)) as u32;
            let unused = self.inodes.ialloc.inode_never_used(cx, group, index);
            let charged = !unused && quota.charges(&self.inodes, ino);
            if !charged || !self.inodes.ialloc.inode_in_use(cx, ino)? {
                continue;
            }
            let inode = self.iget_orphan(cx, ino)?;
            if inode.with(cx, |core| core.is_value()) {
                continue;
            }
            let large = xattr::large_values(&self.inodes, cx, &inode)?;
            let (id, space) = inode.with(cx, |core| {
                let id = [core.uid, core.gid, core.projid][kind as usize];
                (id, core.values.blocks.saturating_mul(512))
            });
            let sum = usage.entry(id).or_default();
            *sum = (sum.0 + space, sum.1 + 1 + u64::from(large));
        }
        Ok(usage)
    }

    /// Puts what was counted into the accounts. Nobody else uses the mount meanwhile. May park.
    ///
    /// # Errors
    /// As [`Ext4::quota_count`]; `EROFS`, `ENOSPC`.
    pub fn quota_recount(&self, cx: &mut Cx, kind: Kind) -> Result<(), Errno> {
        self.sb.check_writable()?;
        let counted = self.quota_count(cx, kind)?;
        let known = self.quota_report(cx, kind)?.into_iter().map(|(id, _)| id);
        let ids: BTreeSet<u32> = known.chain(counted.keys().copied()).collect();
        let file = self.file_of(kind)?;
        let quota = self.quota.get().ok_or(Errno::ESRCH)?;
        for id in ids {
            let dquot = quota.dquot(&self.inodes, cx, file, id)?;
            let mut handle = self.sb.journal_start(cx, 1)?;
            let (space, inodes) = counted.get(&id).copied().unwrap_or_default();
            let result = dquot.update_entry(cx, &mut handle, &self.sb, |state| {
                (state.entry.space, state.entry.inodes) = (space, inodes);
            });
            let stopped = handle.stop(cx);
            result.and(stopped)?;
        }
        Ok(())
    }

    /// Sets the limits of an id. May park.
    ///
    /// # Errors
    /// `ESRCH` this kind is not counted; `EOPNOTSUPP` limits of a realtime section; `EOVERFLOW` an
    /// entry has no room for so much; `EROFS`, `EUCLEAN`, `EIO`.
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
        let Limits { block_hard, block_soft, inode_hard, inode_soft, .. } = *limits;
        let most = [block_hard, block_soft, inode_hard, inode_soft].into_iter().max();
        if most > Some(file.form.limit_max()) {
            return Err(Errno::EOVERFLOW);
        }
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
