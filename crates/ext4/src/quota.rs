//! Quota: how much space and how many inodes each owner uses and may use.
//!
//! Usage follows from the inodes: what an inode's slot says (blocks, owner, group, project) is
//! charged, and the one function that writes slots ([`Inodes::mark_dirty`]) charges the
//! difference to the slot's last content in the same handle. So usage changes in the transaction
//! that causes it, whatever the change was, and no crash parts the two.
//!
//! Limits are asked before: where space is reserved or taken, where an inode is made, where an
//! owner changes. What is reserved counts against the limit until the slot has the blocks.
//!
//! An id's entry is made in a handle of its own before anything can be charged to it, so that
//! charging changes one block for each kind and never the tree.
//!
//! Locks: [`QuotaFile::tree`] inside a handle (or without one), outside of spin locks; a
//! [`Dquot::state`] after an inode's core and before the content of a buffer.

mod file;

use std::collections::BTreeMap;
use std::sync::Arc;

use base::{Errno, Ino};
use rt::{Cx, Mutex, SpinLock};

use crate::dquot::{Dquot, DquotState, Dquots, GraceCell, InodeQuota, Owners};
use crate::format::features::RoCompat;
use crate::format::quota::{self as format, Form, Info, Kind};
use crate::format::super_block::ROOT_INO;
use crate::format::{At, CorruptKind, Geometry, InodeFlags};
use crate::inode::quota::space_of;
use crate::inode::{Inode, Inodes};
use crate::trans::credits;
use crate::trans::ext4_jbd2::Handle;
pub(crate) use file::QuotaBlocks;

pub use crate::dquot::{Grace, Limits};

/// Ids kept in memory that no inode in memory belongs to.
const IDLE_MAX: usize = 4096;

/// The quota of a mount.
pub(crate) struct Quota {
    files: [Option<QuotaFile>; 3],
}

/// One quota file.
pub(crate) struct QuotaFile {
    pub kind: Kind,
    /// The form of its entries.
    pub form: Form,
    pub inode: Arc<Inode>,
    /// The tree, held while entries are looked for and made.
    pub tree: Mutex<Info>,
    pub grace: Arc<GraceCell>,
    dquots: SpinLock<BTreeMap<u32, Arc<Dquot>>>,
}

impl Geometry {
    /// Is this inode's usage counted? Those of the file system itself are not.
    pub fn is_charged(&self, ino: u32) -> bool {
        let system = ino == self.orphan_file_ino || self.quota_inos.contains(&ino);
        ino == ROOT_INO || ino >= self.first_ino && !system
    }
}

impl Quota {
    /// Opens the quota files, before any inode is changed: those of the feature, or `old` ones that
    /// have names; `None` without any.
    ///
    /// # Errors
    /// `EUCLEAN` a quota file is missing or damaged; `EIO`.
    pub(crate) fn load(fs: &Inodes, cx: &mut Cx, old: [u32; 3]) -> Result<Option<Quota>, Errno> {
        let hidden = fs.sb.geometry.features.ro_compat.contains(RoCompat::QUOTA);
        let inos = if hidden { fs.sb.geometry.quota_inos } else { old };
        if inos == [0; 3] && !hidden {
            return Ok(None);
        }
        let mut files = [None, None, None];
        for kind in Kind::ALL {
            let ino = Ino(u64::from(inos[kind as usize]));
            if ino.0 == 0 {
                continue;
            }
            let inode = match fs.find_or_read(cx, ino, |_, _| Ok(())) {
                Err(Errno::ESTALE) => {
                    let kind = CorruptKind::InodeMode { mode: 0 };
                    return Err(fs.sb.corrupt_kind(cx, kind, At::Inode(ino)));
                }
                other => other?,
            };
            if !inode.is_regular(cx) {
                let mode = inode.with(cx, |core| core.mode);
                return Err(fs.sb.corrupt_kind(
                    cx,
                    CorruptKind::InodeMode { mode },
                    At::Inode(ino),
                ));
            }
            inode.with(cx, |core| {
                // Keeps it in the cache.
                core.opens += 1;
                if !hidden && !fs.sb.options.read_only {
                    // As Linux does while quota is on.
                    core.flags.insert(InodeFlags::IMMUTABLE | InodeFlags::NOATIME);
                }
            });
            let mut blocks = QuotaBlocks::new(fs, cx, &inode, None);
            let header = format::Blocks::load(&mut blocks, 0)?;
            let info = Info::parse(&header, kind)
                .and_then(|info| match hidden && info.form != Form::V1 {
                    true => Err(CorruptKind::QuotaVersion { found: info.form as u32 }),
                    false => Ok(info),
                })
                .map_err(|kind| fs.sb.corrupt_kind(cx, kind, At::Inode(ino)))?;
            let most = inode.size(cx) / format::BLOCK_SIZE as u64;
            if u64::from(info.blocks) > most {
                let kind = CorruptKind::QuotaBlock { block: info.blocks - 1, blocks: most as u32 };
                return Err(fs.sb.corrupt_kind(cx, kind, At::Inode(ino)));
            }
            files[kind as usize] = Some(QuotaFile {
                kind,
                form: info.form,
                inode,
                grace: Arc::new(GraceCell::new(Grace {
                    blocks: info.block_grace,
                    inodes: info.inode_grace,
                    realtime: 0,
                })),
                tree: Mutex::named("ext4 quota tree", info),
                dquots: SpinLock::named("ext4 dquots", BTreeMap::new()),
            });
        }
        Ok(Some(Quota { files }))
    }

    /// Is this inode's usage counted?
    pub(crate) fn charges(&self, fs: &Inodes, ino: Ino) -> bool {
        let own = self.files.iter().flatten().any(|file| file.inode.ino == ino);
        fs.sb.geometry.is_charged(ino.0 as u32) && !own
    }

    /// At the end of a mount: old quota files may be changed by others again.
    ///
    /// # Errors
    /// `EIO`; the journal's.
    pub(crate) fn let_go(&self, fs: &Inodes, cx: &mut Cx) -> Result<(), Errno> {
        let hidden = fs.sb.geometry.features.ro_compat.contains(RoCompat::QUOTA);
        for file in self.files.iter().flatten().filter(|_| !hidden) {
            file.inode.with(cx, |core| {
                core.flags.remove(InodeFlags::IMMUTABLE | InodeFlags::NOATIME);
            });
            let mut handle = fs.sb.journal_start(cx, credits::INODE)?;
            let result = fs.mark_dirty(cx, &mut handle, &file.inode);
            let stopped = handle.stop(cx);
            result.and(stopped)?;
        }
        Ok(())
    }

    /// The file of a kind, where that is counted.
    pub(crate) fn file(&self, kind: Kind) -> Option<&QuotaFile> {
        self.files[kind as usize].as_ref()
    }

    /// Usage and limits of these owners; entries that are missing are made, so no handle is open.
    /// Nothing on a read-only mount or without quota.
    ///
    /// # Errors
    /// `EUCLEAN` a damaged quota file; `ENOSPC`, `EIO`, `EROFS`.
    pub(crate) fn dquots(&self, fs: &Inodes, cx: &mut Cx, owners: Owners) -> Result<Dquots, Errno> {
        let mut dquots = Dquots::default();
        if fs.sb.options.read_only {
            return Ok(dquots);
        }
        for file in self.files.iter().flatten() {
            let id = owners.0[file.kind as usize];
            dquots.0[file.kind as usize] = Some(self.dquot(fs, cx, file, id)?);
        }
        Ok(dquots)
    }

    pub(crate) fn dquot(
        &self,
        fs: &Inodes,
        cx: &mut Cx,
        file: &QuotaFile,
        id: u32,
    ) -> Result<Arc<Dquot>, Errno> {
        if let Some(dquot) = file.dquots.lock(cx).get(&id) {
            return Ok(dquot.clone());
        }
        let info = file.tree.lock(cx);
        if let Some(dquot) = self.load_dquot(fs, cx, file, &info, id)? {
            return Ok(dquot);
        }
        drop(info);
        let credits = credits::quota_entry(fs.sb.geometry.block_size);
        let mut handle = fs.sb.journal_start(cx, credits)?;
        let mut info = file.tree.lock(cx);
        let result = match self.load_dquot(fs, cx, file, &info, id) {
            Ok(None) => self.make_dquot(fs, cx, &mut handle, file, &mut info, id),
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
        fs: &Inodes,
        cx: &mut Cx,
        file: &QuotaFile,
        info: &Info,
        id: u32,
    ) -> Result<Option<Arc<Dquot>>, Errno> {
        if let Some(dquot) = file.dquots.lock(cx).get(&id) {
            return Ok(Some(dquot.clone()));
        }
        let mut blocks = QuotaBlocks::new(fs, cx, &file.inode, None);
        match format::find(&mut blocks, info, id)? {
            Some(slot) => self.keep_dquot(fs, cx, file, id, slot).map(Some),
            None => Ok(None),
        }
    }

    fn make_dquot(
        &self,
        fs: &Inodes,
        cx: &mut Cx,
        handle: &mut Handle,
        file: &QuotaFile,
        info: &mut Info,
        id: u32,
    ) -> Result<Arc<Dquot>, Errno> {
        let before = *info;
        let mut blocks = QuotaBlocks::new(fs, cx, &file.inode, Some(handle));
        let slot = format::insert(&mut blocks, info, id).inspect_err(|_| *info = before)?;
        let mut header = format::Blocks::load(&mut blocks, 0)?;
        info.emit(&mut header, file.kind);
        format::Blocks::store(&mut blocks, 0, &header)?;
        self.keep_dquot(fs, cx, file, id, slot)
    }

    /// Takes the entries of ids that use nothing, have no limits and belong to no inode in memory
    /// out of the quota files, as Linux does when it forgets such an id: at a sync and at the end,
    /// and where too many ids are in memory. No handle is open.
    ///
    /// # Errors
    /// `EUCLEAN` a damaged quota file; `EIO`, `EROFS`.
    pub(crate) fn release_unused_ids(&self, fs: &Inodes, cx: &mut Cx) -> Result<(), Errno> {
        if fs.sb.options.read_only {
            return Ok(());
        }
        for file in self.files.iter().flatten() {
            let list: Vec<u32> = {
                let dquots = file.dquots.lock(cx);
                let unused = |dquot: &&Arc<Dquot>| {
                    Arc::strong_count(dquot) == 1 && dquot.state.lock(cx).unused()
                };
                dquots.values().filter(unused).map(|dquot| dquot.id).collect()
            };
            for id in list {
                let credits = credits::quota_entry(fs.sb.geometry.block_size);
                let mut handle = fs.sb.journal_start(cx, credits)?;
                let result = self.release_id(fs, cx, &mut handle, file, id);
                let stopped = handle.stop(cx);
                result.and(stopped)?;
            }
        }
        Ok(())
    }

    fn release_id(
        &self,
        fs: &Inodes,
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
        let mut blocks = QuotaBlocks::new(fs, cx, &file.inode, Some(handle));
        format::remove(&mut blocks, &mut info, id).inspect_err(|_| *info = before)?;
        let mut header = format::Blocks::load(&mut blocks, 0)?;
        info.emit(&mut header, file.kind);
        format::Blocks::store(&mut blocks, 0, &header)
    }

    /// Brings the entry in `slot` into memory.
    fn keep_dquot(
        &self,
        fs: &Inodes,
        cx: &mut Cx,
        file: &QuotaFile,
        id: u32,
        slot: format::Slot,
    ) -> Result<Arc<Dquot>, Errno> {
        let mut blocks = QuotaBlocks::new(fs, cx, &file.inode, None);
        let (buffer, start) = blocks.place(slot.block)?;
        let offset = start + slot.offset;
        let entry = buffer.with(|data| file.form.read(&data[offset..]));
        let state = DquotState { entry, ..DquotState::default() };
        let state = SpinLock::named("ext4 dquot", state);
        let (block, grace) = (buffer.block(), file.grace.clone());
        let (kind, form) = (file.kind, file.form);
        let dquot = Arc::new(Dquot { kind, id, form, grace, block, offset, state });
        let mut dquots = file.dquots.lock(cx);
        if dquots.len() >= IDLE_MAX {
            // What an entry says is in its block; what is reserved keeps its inode's reference.
            dquots.retain(|_, dquot| Arc::strong_count(dquot) > 1);
        }
        Ok(dquots.entry(id).or_insert(dquot).clone())
    }

    /// Ties an inode that was read to its owners' accounts. No handle is open.
    ///
    /// # Errors
    /// As [`Quota::dquots`].
    pub(crate) fn attach(&self, fs: &Inodes, cx: &mut Cx, inode: &Inode) -> Result<(), Errno> {
        let charged = self.charges(fs, inode.ino);
        let is_value = inode.with(cx, |core| core.is_value());
        if !charged || is_value || fs.sb.check_writable().is_err() {
            return Ok(());
        }
        let large_values = crate::attr::xattr::large_values(fs, cx, inode)?;
        let owners = inode.with(cx, |core| Owners([core.uid, core.gid, core.projid]));
        let dquots = self.dquots(fs, cx, owners)?;
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

    /// Reserves an inode and `space` bytes for a new inode. No handle is open.
    ///
    /// # Errors
    /// `EDQUOT`; those of [`Quota::dquots`].
    pub(crate) fn new_inode(
        &self,
        fs: &Inodes,
        cx: &mut Cx,
        owners: Owners,
        space: u64,
    ) -> Result<Box<InodeQuota>, Errno> {
        let dquots = self.dquots(fs, cx, owners)?;
        dquots.reserve_usage(cx, &fs.sb, space, 1)?;
        let mut quota = Box::<InodeQuota>::default();
        (quota.dquots, quota.reserved_space, quota.reserved_inodes) = (dquots, space, 1);
        Ok(quota)
    }

    /// Asks whether an inode may change its owners; whom [`InodeCore::pay_to`] is to name when it
    /// does. No handle is open; the caller holds `rwsem`.
    ///
    /// # Errors
    /// `EDQUOT` the new owners may not have so much; those of [`Quota::dquots`].
    pub(crate) fn transfer_owners(
        &self,
        fs: &Inodes,
        cx: &mut Cx,
        inode: &Inode,
        owners: Owners,
    ) -> Result<Option<Dquots>, Errno> {
        let old = inode.with(cx, |core| {
            core.quota.as_ref().map(|quota| (quota.dquots.clone(), quota.usage()))
        });
        let Some((old, usage)) = old else { return Ok(None) };
        let next = self.dquots(fs, cx, owners)?;
        let mut others = next.clone();
        for (other, old) in others.0.iter_mut().zip(&old.0) {
            let same = |a: &Arc<Dquot>, b: &Arc<Dquot>| Arc::ptr_eq(a, b);
            if other.as_ref().zip(old.as_ref()).is_some_and(|(a, b)| same(a, b)) {
                *other = None;
            }
        }
        let [space, inodes, reserved, _] = usage;
        others.reserve_usage(cx, &fs.sb, space + reserved, inodes)?;
        // It was a question: the write of the slot charges.
        others.0.iter().flatten().for_each(|dquot| dquot.unreserve(space + reserved, inodes));
        Ok(Some(next))
    }
}
