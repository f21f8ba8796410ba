//! Limits: asking before, and setting them.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use base::{Errno, Ino};
use rt::Cx;

use super::{Dquot, DquotState, Dquots, Owners, QuotaFile};
use crate::Ext4;
use crate::format::features::RoCompat;
use crate::format::inode::EXTRA_SIZE;
use crate::format::quota::{self as format, Dqblk, ENTRY_SIZE, Kind, LIMIT_UNIT};
use crate::format::{At, InodeFlags};
use crate::quota::file::QuotaBlocks;
use crate::trans::credits;

/// How long soft limits may be exceeded, in seconds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Grace {
    /// Of space.
    pub blocks: u32,
    /// Of inodes.
    pub inodes: u32,
}

/// Both words of a [`Grace`], read without a lock.
#[derive(Debug)]
pub(super) struct GraceCell(AtomicU64);

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
        Grace { blocks: (word >> 32) as u32, inodes: word as u32 }
    }
}

/// What an id may use. 0 is no limit.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Limits {
    /// KiB that can be exceeded for the grace period.
    pub block_soft: u64,
    /// KiB that can never be exceeded.
    pub block_hard: u64,
    /// Inodes that can be exceeded for the grace period.
    pub inode_soft: u64,
    /// Inodes that can never be exceeded.
    pub inode_hard: u64,
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

impl Dqblk {
    /// Starts and ends the grace periods as the usage asks for it.
    pub(super) fn set_times(&mut self, now: u64, grace: Grace) {
        let soft = self.block_soft.saturating_mul(LIMIT_UNIT);
        self.block_time = end_of_grace(self.space, soft, self.block_time, now, grace.blocks);
        self.inode_time =
            end_of_grace(self.inodes, self.inode_soft, self.inode_time, now, grace.inodes);
    }
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

impl Ext4 {
    /// Bytes more that all of these ids may have.
    pub(super) fn quota_room(&self, cx: &Cx, dquots: &Dquots) -> u64 {
        let now = self.sb.now(cx).sec.max(0) as u64;
        let rooms = dquots.iter().flatten().map(|dquot| dquot.state.lock(cx).room(now));
        if cx.cred().uid == 0 { u64::MAX } else { rooms.min().unwrap_or(u64::MAX) }
    }

    /// Promises space and inodes to all of these ids, or to none.
    ///
    /// # Errors
    /// `EDQUOT` a limit forbids it, unless the caller is root.
    pub(super) fn reserve_quota(
        &self,
        cx: &Cx,
        dquots: &Dquots,
        space: u64,
        inodes: u64,
    ) -> Result<(), Errno> {
        let now = self.sb.now(cx).sec.max(0) as u64;
        let free = cx.cred().uid == 0;
        let list: Vec<&Arc<Dquot>> = dquots.iter().flatten().collect();
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

    /// The kinds of quota that this mount counts.
    pub fn quota_kinds(&self) -> Vec<Kind> {
        Kind::ALL.into_iter().filter(|&kind| self.quota_file(kind).is_some()).collect()
    }

    fn file_of(&self, kind: Kind) -> Result<&QuotaFile, Errno> {
        self.quota_file(kind).ok_or(Errno::ESRCH)
    }

    /// Usage and limits of every id that has an entry, ids rising. May park.
    ///
    /// # Errors
    /// `ESRCH` this kind is not counted; `EUCLEAN`, `EIO`.
    pub fn quota_report(&self, cx: &mut Cx, kind: Kind) -> Result<Vec<(u32, Dqblk)>, Errno> {
        let file = self.file_of(kind)?;
        let info = file.tree.lock(cx);
        let mut list = Vec::new();
        let mut blocks = QuotaBlocks::new(self, cx, &file.inode, None);
        format::walk(&mut blocks, &info, &mut |id, entry| list.push((id, *entry)))?;
        Ok(list)
    }

    /// Sets the limits of an id. May park.
    ///
    /// # Errors
    /// `ESRCH` this kind is not counted; `EROFS`, `EUCLEAN`, `EIO`.
    pub fn quota_set(
        &self,
        cx: &mut Cx,
        kind: Kind,
        id: u32,
        limits: &Limits,
    ) -> Result<(), Errno> {
        self.sb.check_writable()?;
        let file = self.file_of(kind)?;
        let dquot = self.dquot(cx, file, id)?;
        let mut handle = self.sb.journal_start(cx, 1)?;
        let result = self.change_entry(cx, &mut handle, &dquot, |entry| {
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
        let mut blocks = QuotaBlocks::new(self, cx, &file.inode, Some(&mut handle));
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
        let result = self.mark_inode_dirty(cx, &mut handle, &inode);
        let stopped = handle.stop(cx);
        result?;
        stopped
    }

    /// Whether a name in `dir` may be given to an inode of this project: a directory that hands
    /// its project on takes no others.
    ///
    /// # Errors
    /// `EXDEV` where it may not.
    pub(crate) fn check_project(
        &self,
        cx: &Cx,
        dir: &crate::inode::Inode,
        inode: &crate::inode::Inode,
    ) -> Result<(), Errno> {
        let (project, inherits) =
            dir.with(cx, |core| (core.projid, core.flags.contains(InodeFlags::PROJINHERIT)));
        let foreign = inherits && inode.with(cx, |core| core.projid) != project;
        if foreign { Err(Errno::EXDEV) } else { Ok(()) }
    }

    /// Changes an entry as part of a handle: 1 credit.
    fn change_entry(
        &self,
        cx: &mut Cx,
        handle: &mut crate::trans::ext4_jbd2::Handle,
        dquot: &Dquot,
        change: impl FnOnce(&mut Dqblk),
    ) -> Result<(), Errno> {
        self.update_dquot(cx, handle, dquot, |state| change(&mut state.entry))
    }

    /// Changes the state of an id and writes its entry, as part of a handle: 1 credit.
    pub(super) fn update_dquot(
        &self,
        cx: &mut Cx,
        handle: &mut crate::trans::ext4_jbd2::Handle,
        dquot: &Dquot,
        change: impl FnOnce(&mut DquotState),
    ) -> Result<(), Errno> {
        let buffer = self.sb.read_block(cx, dquot.block)?;
        handle.write_access(cx, &buffer)?;
        let now = self.sb.now(cx).sec.max(0) as u64;
        let Ok(grace) = self.quota_grace(dquot.kind) else {
            return Err(self.sb.corrupt_kind(
                cx,
                crate::format::CorruptKind::QuotaEntry { id: dquot.id, block: 0 },
                At::Device(dquot.block),
            ));
        };
        {
            let mut state = dquot.state.lock(cx);
            change(&mut state);
            state.entry.set_times(now, grace);
            buffer.with_mut(|data| {
                let entry = &mut data[dquot.offset..dquot.offset + ENTRY_SIZE];
                state.entry.emit(entry, dquot.id);
            });
        }
        handle.dirty(cx, &buffer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn soft_limits_hold_after_their_grace_and_hard_ones_always() {
        let grace = Grace { blocks: 100, inodes: 10 };
        let mut entry = Dqblk { block_soft: 8, block_hard: 16, ..Dqblk::default() };
        let allows = |entry: Dqblk, space: u64, now: u64| {
            DquotState { entry, ..DquotState::default() }.allows(space, 0, now)
        };
        entry.space = 8 * 1024;
        entry.set_times(1000, grace);
        assert_eq!(entry.block_time, 0);
        assert!(allows(entry, 8 * 1024, 1000) && !allows(entry, 8 * 1024 + 1, 1000));
        entry.space += 1024;
        entry.set_times(1000, grace);
        assert_eq!(entry.block_time, 1100);
        entry.set_times(1050, grace);
        assert_eq!(entry.block_time, 1100, "a period that has begun goes on");
        assert!(allows(entry, 1, 1099) && !allows(entry, 1, 1100));
        assert!(allows(entry, 0, 1100), "inodes have limits of their own");
        entry.space -= 1024;
        entry.set_times(1200, grace);
        assert!(entry.block_time == 0 && allows(entry, 1024, 1200));
    }
}
