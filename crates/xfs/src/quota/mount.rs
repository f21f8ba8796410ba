//! Quota at the mount: what was counted goes on at once, so that recovery is charged too; what is
//! to be counted from now on is counted first.

use std::sync::Arc;

use base::Ino;
use rt::{Cx, Mutex};
use vfs::quota::Kind;

use super::Quota;
use super::file::QuotaFile;
use crate::alloc::Space;
use crate::buf::meta::Reader;
use crate::error::Result;
use crate::format::RawSuper;
use crate::format::dquot::{self, DquotId, QuotaFlags};
use crate::format::features::Version;
use crate::ialloc::Inodes;
use crate::log::dquot_item::{DefaultLimits, DquotItem, DquotTable, grace_of};
use crate::trans::{Trans, reservations};
use crate::{metadir, sb};

/// Whose usage is counted from the mount on.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum QuotaMode {
    /// Whose the superblock says was counted.
    #[default]
    AsBefore,
    /// Nobody's.
    Off,
    /// That of these kinds, users, groups and projects: true where limits hold.
    Count([Option<bool>; 3]),
}

/// What recovery and the mount have of quota.
pub(crate) struct Begun {
    quota: Arc<Quota>,
    /// What is to be counted and enforced.
    wanted: QuotaFlags,
    /// What the superblock says.
    stored: QuotaFlags,
    /// What the log says is no longer counted.
    off: QuotaFlags,
}

/// What is to be counted and enforced.
fn wanted(mode: &QuotaMode, stored: QuotaFlags) -> QuotaFlags {
    let mut flags = QuotaFlags::empty();
    for kind in Kind::ALL {
        let [counted, enforced] = [QuotaFlags::counted(kind), QuotaFlags::enforced(kind)];
        match mode {
            QuotaMode::AsBefore if stored.contains(counted) => {
                flags |= stored & (counted | enforced);
            }
            QuotaMode::Count(kinds) => match kinds[kind as usize] {
                Some(true) => flags |= counted | enforced,
                Some(false) => flags |= counted,
                None => {}
            },
            QuotaMode::AsBefore | QuotaMode::Off => {}
        }
    }
    flags
}

/// Begins to charge to the accounts that are right, before anything changes; `off` are kinds that
/// the log says are no longer counted. None where nothing is counted, nor to be. With `all`, every
/// record is brought into memory. May park.
///
/// # Errors
/// A quota inode or a record that fails a check; the device failed.
pub(crate) fn begin(
    cx: &mut Cx,
    space: &Arc<Space>,
    mode: &QuotaMode,
    off: QuotaFlags,
    all: bool,
) -> Result<Option<Begun>> {
    let raw = sb::read(cx, space)?;
    let stored = QuotaFlags::of(&raw);
    let wanted = wanted(mode, stored);
    if stored.is_empty() && wanted.is_empty() {
        return Ok(None);
    }
    let table = Arc::new(DquotTable::new(u64::from(space.geometry.block_size)));
    let quota = Arc::new(Quota::new(space, table));
    let mut on = QuotaFlags::empty();
    let reader = Reader { bufs: space.log.bufs().clone(), geometry: space.geometry.clone() };
    let inos = metadir::quota_inos(cx, &reader, &raw)?;
    for kind in Kind::ALL {
        let right = QuotaFlags::counted(kind) | QuotaFlags::checked(kind);
        let Some(ino) = inos[kind as usize] else { continue };
        quota.table.set_ino(kind, ino);
        if wanted.contains(QuotaFlags::counted(kind)) {
            let file = QuotaFile::open(cx, space, kind, Ino(ino))?;
            let _ = quota.files[kind as usize].set(Mutex::named("xfs quota inode", file));
            if stored.contains(right) && !off.contains(QuotaFlags::counted(kind)) {
                on |= wanted & QuotaFlags::all_of(kind) | right;
            }
        }
    }
    quota.table.set_flags(on);
    quota.read_grace(cx)?;
    if all {
        quota.read_all(cx)?;
    }
    space.log.set_dquots(quota.table.clone());
    Ok(Some(Begun { quota, wanted, stored, off }))
}

impl Begun {
    /// Counts what was not counted before, and says in the superblock what is counted now. May
    /// park.
    ///
    /// # Errors
    /// A structure that fails a check; no space for the records; the device failed.
    pub fn settle(self, cx: &mut Cx, inodes: &Inodes) -> Result<Arc<Quota>> {
        let Begun { quota, wanted, stored, .. } = self;
        let on = quota.table.flags();
        let new = |kind: &Kind| {
            let counted = QuotaFlags::counted(*kind);
            wanted.contains(counted) && !on.contains(counted)
        };
        let new: Vec<Kind> = Kind::ALL.into_iter().filter(new).collect();
        for &kind in &new {
            if quota.file(kind).is_none() {
                quota.make_file(cx, inodes, kind)?;
            }
        }
        if !new.is_empty() {
            // Whoever counts reads inodes from their clusters.
            quota.space.log.empty(cx)?;
            let counted = quota.count(cx, inodes, &new)?;
            for &kind in &new {
                quota.correct(cx, kind, &counted)?;
            }
        }
        let checked =
            Kind::ALL.into_iter().filter(|&kind| wanted.contains(QuotaFlags::counted(kind)));
        let flags = checked.fold(wanted, |flags, kind| flags | QuotaFlags::checked(kind));
        if flags != stored {
            quota.space.log.force(cx)?;
            sb::edit(cx, &quota.space, |raw| {
                raw.sb_qflags.set(flags.bits());
                let version = raw.sb_versionnum.get() | Version::QUOTA.bits();
                raw.sb_versionnum.set(version);
            })?;
        }
        quota.table.set_flags(flags);
        quota.read_grace(cx)?;
        Ok(quota)
    }

    /// What goes on without a mount: the records of kinds that the log says are no longer counted
    /// are right no more. May park.
    ///
    /// # Errors
    /// A check of the superblock; the device failed.
    pub fn go_on(self, cx: &mut Cx) -> Result<Arc<Quota>> {
        let Begun { quota, stored, off, .. } = self;
        let stale = Kind::ALL.into_iter().filter(|&kind| off.contains(QuotaFlags::counted(kind)));
        let flags = stale.fold(stored, |flags, kind| flags - QuotaFlags::checked(kind));
        if flags != stored {
            sb::edit(cx, &quota.space, |raw| raw.sb_qflags.set(flags.bits()))?;
        }
        Ok(quota)
    }
}

impl Quota {
    /// The grace periods of the kinds that have records.
    fn read_grace(&self, cx: &mut Cx) -> Result<()> {
        for kind in Kind::ALL {
            let Some(file) = self.file(kind) else { continue };
            let file = file.lock(cx);
            if let Some(found) = file.read(cx, &self.space, DquotId { kind, id: 0 })? {
                self.table.set_grace(kind, grace_of(&found.raw));
                self.table.set_default_limits(kind, DefaultLimits::of(&found.raw));
            }
        }
        Ok(())
    }

    /// Brings all records that somebody uses into memory: recovery charges whom it meets.
    fn read_all(&self, cx: &mut Cx) -> Result<()> {
        let per_block = u64::from(dquot::per_block(self.space.geometry.block_size));
        for kind in self.table.kinds().collect::<Vec<_>>() {
            let Some(file) = self.file(kind) else { continue };
            let file = file.lock(cx);
            for block in file.blocks() {
                let ids = block * per_block..(block + 1) * per_block;
                for id in ids.map_while(|id| u32::try_from(id).ok()) {
                    let id = DquotId { kind, id };
                    let Some(found) = file.read(cx, &self.space, id)? else { continue };
                    if found.raw.is_used() {
                        self.table.keep(DquotItem::new(id, found.place, found.raw));
                    }
                }
            }
        }
        Ok(())
    }

    /// Makes the inode for the records of a kind.
    fn make_file(&self, cx: &mut Cx, inodes: &Inodes, kind: Kind) -> Result<()> {
        let space = &self.space;
        let log = &space.log;
        if let Some(root) = space.geometry.metadata_root {
            let inode = metadir::make_quota(cx, inodes, root, kind)?;
            self.table.set_ino(kind, inode.ino.0);
            let file = QuotaFile::new(cx, space, kind, inode)?;
            let _ = self.files[kind as usize].set(Mutex::named("xfs quota inode", file));
            return Ok(());
        }
        let mut trans = Trans::alloc(cx, log, reservations::create(&space.geometry))?;
        let made = QuotaFile::create(cx, &mut trans, inodes, kind, &self.table);
        let file = match made {
            Ok(file) => file,
            Err(error) => {
                match trans.is_dirty() && !trans.has_substance() {
                    true => drop(trans.commit(cx)?),
                    false => trans.cancel(),
                }
                return Err(error);
            }
        };
        let ino = file.ino().0;
        sb::log(cx, &mut trans, space, |raw: &mut RawSuper| {
            raw.set_quota_ino(kind, ino);
            let version = raw.sb_versionnum.get() | Version::QUOTA.bits();
            raw.sb_versionnum.set(version);
            for kind in Kind::ALL {
                // A superblock without this bit has no numbers there.
                if raw.quota_ino(kind).is_none() {
                    raw.set_quota_ino(kind, crate::format::NULL64);
                }
            }
        })?;
        trans.commit(cx)?;
        let _ = self.files[kind as usize].set(Mutex::named("xfs quota inode", file));
        Ok(())
    }
}
