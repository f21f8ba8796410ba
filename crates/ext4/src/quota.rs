//! Quota: whose space and inodes are in use, and how much each may have.
//!
//! Usage follows from the inodes: what an inode's slot says (blocks, owner, group, project) is
//! charged, and the one function that writes slots ([`Ext4::mark_inode_dirty`]) charges the
//! difference to the slot's last content in the same handle. So usage changes in the transaction
//! that causes it, whatever the change was, and no crash parts the two.
//!
//! Limits are asked before: where space is promised or taken, where an inode is made, where an
//! owner changes. Reservations count against the limit until the slot counts their blocks.
//!
//! An id's entry is made in a handle of its own before anything can be charged to it, so that
//! charging changes one block for each kind and never the tree.
//!
//! Locks: [`QuotaFile::tree`] inside a handle (or without one), outside of spin locks; a
//! [`Dquot::state`] after an inode's core and before the content of a buffer.

mod file;
mod inode;
mod limits;

use std::collections::BTreeMap;
use std::sync::Arc;

use base::{Errno, Ino};
use rt::{Cx, Mutex, SpinLock};

use crate::Ext4;
use crate::format::features::RoCompat;
use crate::format::quota::{self as format, Dqblk, ENTRY_SIZE, Info, Kind};
use crate::format::super_block::ROOT_INO;
use crate::format::{At, CorruptKind, Geometry};
use crate::inode::Inode;
use crate::trans::credits;
use crate::trans::ext4_jbd2::Handle;
use file::QuotaBlocks;
use limits::GraceCell;

pub(crate) use inode::{Change, InodeQuota};
pub use limits::{Grace, Limits};

/// Ids kept in memory that no inode in memory belongs to.
const IDLE_MAX: usize = 4096;

/// The quota of a mount.
pub(crate) struct Quota {
    files: [Option<QuotaFile>; 3],
}

/// One quota file.
struct QuotaFile {
    kind: Kind,
    inode: Arc<Inode>,
    /// The tree, held while entries are looked for and made.
    tree: Mutex<Info>,
    grace: GraceCell,
    dquots: SpinLock<BTreeMap<u32, Arc<Dquot>>>,
}

/// Usage and limits of one id, as in its entry.
pub(crate) struct Dquot {
    kind: Kind,
    id: u32,
    /// Device block of the entry, and bytes from its start. It never moves.
    block: u64,
    offset: usize,
    state: SpinLock<DquotState>,
}

#[derive(Debug, Default)]
struct DquotState {
    entry: Dqblk,
    /// Bytes promised and not yet charged.
    reserved_space: u64,
    /// Inodes promised and not yet charged.
    reserved_inodes: u64,
}

impl std::fmt::Debug for Dquot {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Dquot({} {})", self.kind.name(), self.id)
    }
}

/// Whom an inode is charged to, by kind.
pub(crate) type Dquots = [Option<Arc<Dquot>>; 3];

/// Owner, group and project.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Owners(pub [u32; 3]);

impl Geometry {
    /// Is this inode's usage counted? Those of the file system itself are not.
    pub(crate) fn is_charged(&self, ino: u32) -> bool {
        let system = ino == self.orphan_file_ino || self.quota_inos.contains(&ino);
        ino == ROOT_INO || ino >= self.first_ino && !system
    }
}

impl Ext4 {
    pub(crate) fn quota(&self) -> Option<&Quota> {
        self.quota.get()
    }

    fn quota_file(&self, kind: Kind) -> Option<&QuotaFile> {
        self.quota.get().and_then(|quota| quota.files[kind as usize].as_ref())
    }

    /// Opens the quota files: once, before any inode is changed.
    ///
    /// # Errors
    /// `EUCLEAN` a quota file is missing or damaged; `EIO`.
    pub(crate) fn load_quota(&self, cx: &mut Cx) -> Result<(), Errno> {
        if !self.sb.geometry.features.ro_compat.contains(RoCompat::QUOTA) {
            return Ok(());
        }
        let mut files = [None, None, None];
        for kind in Kind::ALL {
            let ino = Ino(u64::from(self.sb.geometry.quota_inos[kind as usize]));
            if ino.0 == 0 {
                continue;
            }
            let inode = match self.iget(cx, ino) {
                Err(Errno::ESTALE) => {
                    let kind = CorruptKind::InodeMode { mode: 0 };
                    return Err(self.sb.corrupt_kind(cx, kind, At::Inode(ino)));
                }
                other => other?,
            };
            if !inode.is_regular(cx) {
                let mode = inode.with(cx, |core| core.mode);
                return Err(self.sb.corrupt_kind(
                    cx,
                    CorruptKind::InodeMode { mode },
                    At::Inode(ino),
                ));
            }
            // Keeps it in the cache.
            inode.with(cx, |core| core.opens += 1);
            let mut blocks = QuotaBlocks::new(self, cx, &inode, None);
            let header = format::Blocks::load(&mut blocks, 0)?;
            let info = Info::parse(&header, kind)
                .map_err(|kind| self.sb.corrupt_kind(cx, kind, At::Inode(ino)))?;
            let most = inode.size(cx) / format::BLOCK_SIZE as u64;
            if u64::from(info.blocks) > most {
                let kind = CorruptKind::QuotaBlock { block: info.blocks - 1, blocks: most as u32 };
                return Err(self.sb.corrupt_kind(cx, kind, At::Inode(ino)));
            }
            files[kind as usize] = Some(QuotaFile {
                kind,
                inode,
                grace: GraceCell::new(Grace { blocks: info.block_grace, inodes: info.inode_grace }),
                tree: Mutex::named("ext4 quota tree", info),
                dquots: SpinLock::named("ext4 dquots", BTreeMap::new()),
            });
        }
        let first = self.quota.set(Quota { files }).is_ok();
        assert!(first, "a mount opens its quota files once");
        Ok(())
    }

    /// Usage and limits of these owners; entries that are missing are made, so no handle is open.
    /// Nothing on a read-only mount or without quota.
    ///
    /// # Errors
    /// `EUCLEAN` a damaged quota file; `ENOSPC`, `EIO`, `EROFS`.
    pub(crate) fn dquots(&self, cx: &mut Cx, owners: Owners) -> Result<Dquots, Errno> {
        let mut dquots = Dquots::default();
        if self.sb.options.read_only {
            return Ok(dquots);
        }
        for file in self.quota().iter().flat_map(|quota| quota.files.iter().flatten()) {
            let id = owners.0[file.kind as usize];
            dquots[file.kind as usize] = Some(self.dquot(cx, file, id)?);
        }
        Ok(dquots)
    }

    fn dquot(&self, cx: &mut Cx, file: &QuotaFile, id: u32) -> Result<Arc<Dquot>, Errno> {
        if let Some(dquot) = file.dquots.lock(cx).get(&id) {
            return Ok(dquot.clone());
        }
        let info = file.tree.lock(cx);
        if let Some(dquot) = self.load_dquot(cx, file, &info, id)? {
            return Ok(dquot);
        }
        drop(info);
        let credits = credits::quota_entry(self.sb.geometry.block_size);
        let mut handle = self.sb.journal_start(cx, credits)?;
        let mut info = file.tree.lock(cx);
        let result = match self.load_dquot(cx, file, &info, id) {
            Ok(None) => self.make_dquot(cx, &mut handle, file, &mut info, id),
            Ok(Some(dquot)) => Ok(dquot),
            Err(errno) => Err(errno),
        };
        drop(info);
        let stopped = handle.stop(cx);
        let dquot = result?;
        stopped?;
        Ok(dquot)
    }

    /// The id's entry, where there is one. The caller holds the tree.
    fn load_dquot(
        &self,
        cx: &mut Cx,
        file: &QuotaFile,
        info: &Info,
        id: u32,
    ) -> Result<Option<Arc<Dquot>>, Errno> {
        if let Some(dquot) = file.dquots.lock(cx).get(&id) {
            return Ok(Some(dquot.clone()));
        }
        let mut blocks = QuotaBlocks::new(self, cx, &file.inode, None);
        match format::find(&mut blocks, info, id)? {
            Some(slot) => self.keep_dquot(cx, file, id, slot).map(Some),
            None => Ok(None),
        }
    }

    fn make_dquot(
        &self,
        cx: &mut Cx,
        handle: &mut Handle,
        file: &QuotaFile,
        info: &mut Info,
        id: u32,
    ) -> Result<Arc<Dquot>, Errno> {
        let before = *info;
        let mut blocks = QuotaBlocks::new(self, cx, &file.inode, Some(handle));
        let slot = format::insert(&mut blocks, info, id).inspect_err(|_| *info = before)?;
        let mut header = format::Blocks::load(&mut blocks, 0)?;
        info.emit(&mut header, file.kind);
        format::Blocks::store(&mut blocks, 0, &header)?;
        self.keep_dquot(cx, file, id, slot)
    }

    /// Takes the entries of ids that use nothing, have no limits and belong to no inode in memory
    /// out of the quota files, as Linux does when it forgets such an id: at a sync and at the end,
    /// and where too many ids are in memory. No handle is open.
    ///
    /// # Errors
    /// `EUCLEAN` a damaged quota file; `EIO`, `EROFS`.
    pub(crate) fn release_unused_ids(&self, cx: &mut Cx) -> Result<(), Errno> {
        let Some(quota) = self.quota().filter(|_| !self.sb.options.read_only) else {
            return Ok(());
        };
        for file in quota.files.iter().flatten() {
            let list: Vec<u32> = {
                let dquots = file.dquots.lock(cx);
                let unused = |dquot: &&Arc<Dquot>| {
                    Arc::strong_count(dquot) == 1 && dquot.state.lock(cx).unused()
                };
                dquots.values().filter(unused).map(|dquot| dquot.id).collect()
            };
            for id in list {
                let credits = credits::quota_entry(self.sb.geometry.block_size);
                let mut handle = self.sb.journal_start(cx, credits)?;
                let result = self.release_id(cx, &mut handle, file, id);
                let stopped = handle.stop(cx);
                result.and(stopped)?;
            }
        }
        Ok(())
    }

    fn release_id(
        &self,
        cx: &mut Cx,
        handle: &mut Handle,
        file: &QuotaFile,
        id: u32,
    ) -> Result<(), Errno> {
        // Whoever asks for the id from now on waits here, and makes its entry anew.
        let mut info = file.tree.lock(cx);
        {
            let mut dquots = file.dquots.lock(cx);
            let unused = dquots.get(&id).is_some_and(|dquot| {
                Arc::strong_count(dquot) == 1 && dquot.state.lock(cx).unused()
            });
            if !unused {
                return Ok(());
            }
            dquots.remove(&id);
        }
        let before = *info;
        let mut blocks = QuotaBlocks::new(self, cx, &file.inode, Some(handle));
        format::remove(&mut blocks, &mut info, id).inspect_err(|_| *info = before)?;
        let mut header = format::Blocks::load(&mut blocks, 0)?;
        info.emit(&mut header, file.kind);
        format::Blocks::store(&mut blocks, 0, &header)
    }

    /// Brings the entry in `slot` into memory.
    fn keep_dquot(
        &self,
        cx: &mut Cx,
        file: &QuotaFile,
        id: u32,
        slot: format::Slot,
    ) -> Result<Arc<Dquot>, Errno> {
        let mut blocks = QuotaBlocks::new(self, cx, &file.inode, None);
        let (buffer, start) = blocks.place(slot.block)?;
        let offset = start + slot.offset;
        let entry = buffer.with(|data| Dqblk::read(&data[offset..offset + ENTRY_SIZE]));
        let state = DquotState { entry, ..DquotState::default() };
        let state = SpinLock::named("ext4 dquot", state);
        let block = buffer.block();
        let dquot = Arc::new(Dquot { kind: file.kind, id, block, offset, state });
        let mut dquots = file.dquots.lock(cx);
        if dquots.len() >= IDLE_MAX {
            // What an entry says is in its block; promises keep their inode's reference.
            dquots.retain(|_, dquot| Arc::strong_count(dquot) > 1);
        }
        Ok(dquots.entry(id).or_insert(dquot).clone())
    }

    /// Charges what an inode's slot says now, as part of the handle that writes it.
    ///
    /// # Errors
    /// `EIO`; the journal's errno once it has aborted.
    pub(crate) fn charge(
        &self,
        cx: &mut Cx,
        handle: &mut Handle,
        change: &Change,
    ) -> Result<(), Errno> {
        let dquot = &change.dquot;
        if change.space == 0 && change.inodes == 0 {
            dquot.state.lock(cx).unreserve(change);
            return Ok(());
        }
        self.update_dquot(cx, handle, dquot, |state| {
            state.unreserve(change);
            let entry = &mut state.entry;
            entry.space = entry.space.saturating_add_signed(change.space);
            entry.inodes = entry.inodes.saturating_add_signed(change.inodes);
        })
    }
}

impl DquotState {
    /// Nothing is used, promised or limited.
    fn unused(&self) -> bool {
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
