//! What was removed from an XFS: freed inodes whose maps still lie in their slots.
//!
//! Freeing an inode sets its mode, size and counts to zero, and leaves the extents where they were.
//! The log may hold the inode as it was. A chunk whose inodes are all free is given back as it last
//! lay on the disk, with its inodes in use. A directory keeps the bytes of names that were removed;
//! the blocks of a removed directory keep all of them, until they are used again.

use std::collections::BTreeMap;
use std::sync::Arc;

use base::range::RangeSet64;
use base::{Ino, Timespec};
use block::{DeviceError, Queue};
use ext4::format::FileKind;
use ext4::format::extent::FileRun;
use rt::Cx;
use xfs::format::dir::FileType;
use xfs::format::extent::EXTENT_SIZE;
use xfs::format::inode::{
    CORE_SIZE, Flags2, ForkFormat, InodeCore, MAGIC, RawInode, fork_ranges, verify,
};
use xfs::format::{AgBlock, At, Extent, Kind, time, verifier};

use super::Fs;
use super::forks::Which;
use crate::undelete::{Deleted, Deletions, path_of};
use crate::view::View;
use crate::{PlanOptions, RepairError};

mod history;
mod stale;

use history::Older;
use stale::Names;

/// What a block with entries of a directory may be.
const DIRECTORY: [Kind; 2] = [Kind::DirBlock, Kind::DirData];
/// Bytes of the target of a symbolic link at the most.
const TARGET_MAX: usize = 1024;

/// A freed inode that had content, or that the log knows.
struct Freed {
    older: Option<Older>,
    extents: Vec<Extent>,
    uid: u32,
    gid: u32,
    mtime: Timespec,
    /// When it was freed.
    ctime: Timespec,
    /// The bytes of its fork, for targets of symbolic links.
    fork: Vec<u8>,
    /// Its first block says that it was a directory.
    directory: bool,
}

/// Looks for what was removed from an XFS.
///
/// # Errors
/// See [`RepairError`].
pub fn deleted(cx: &mut Cx, queue: &Arc<Queue>) -> Result<Deletions, RepairError> {
    let options = PlanOptions { zero_log: true, ..PlanOptions::default() };
    let mut fs = Fs::open(View::new(cx, queue), &options)?;
    fs.read_groups()?;
    fs.find_chunks()?;
    fs.read_inodes()?;
    let mut history = fs.history()?;
    let mut freed = fs.freed(&mut history.inodes)?;
    let dirs = fs.free_space(&mut history.inodes, &mut freed)?;
    let block_size = fs.g.block_size;
    let names = fs.stale_names(&freed, dirs, &history.dirs)?;
    Ok(Deletions { files: fs.judge_freed(freed, names), block_size })
}

impl Fs<'_> {
    /// The inodes that are free, and had content.
    fn freed(
        &mut self,
        history: &mut BTreeMap<u64, Older>,
    ) -> Result<BTreeMap<u64, Freed>, DeviceError> {
        let mut found = BTreeMap::new();
        for ag in 0..self.g.ag_count() {
            for index in 0..self.groups[ag as usize].chunks.len() {
                let chunk = self.groups[ag as usize].chunks[index];
                let free = chunk.free & !chunk.hole_mask();
                for bit in (0..64).filter(|bit| free >> bit & 1 == 1) {
                    let ino = self.ino(ag, chunk.start + bit);
                    let slot = self.slot(ino)?;
                    let older = history.remove(&ino.0);
                    if verify(&slot, ino, &self.g).is_ok()
                        && let Some(freed) = self.freed_inode(ino, &slot, older)?
                    {
                        found.insert(ino.0, freed);
                    }
                }
            }
        }
        Ok(found)
    }

    /// Looks for chunks of inodes in free space; the blocks there that are of directories.
    fn free_space(
        &mut self,
        history: &mut BTreeMap<u64, Older>,
        found: &mut BTreeMap<u64, Freed>,
    ) -> Result<Vec<AgBlock>, DeviceError> {
        let mut dirs = Vec::new();
        for ag in 0..self.g.ag_count() {
            let free = self.groups[ag as usize].records.free.clone().unwrap_or_default();
            for block in free.iter().flat_map(|extent| extent.start..extent.start + extent.len) {
                let place = AgBlock { ag, block };
                let data = self.view.read(self.g.linear(place))?;
                if DIRECTORY.map(Kind::magic).contains(&word(&data)) {
                    dirs.push(place);
                }
                if word(&data) >> 16 != MAGIC.into() {
                    continue;
                }
                let first = self.g.block_agino(block);
                for (slot, agino) in data.chunks_exact(self.g.inode_size as usize).zip(first..) {
                    let ino = self.ino(ag, agino);
                    if verify(slot, ino, &self.g).is_err() {
                        continue;
                    }
                    let freed = match self.whole_inode(ino, slot)? {
                        Some(whole) => Some(whole),
                        None => self.freed_inode(ino, slot, history.remove(&ino.0))?,
                    };
                    found.extend(freed.map(|freed| (ino.0, freed)));
                }
            }
        }
        Ok(dirs)
    }

    /// An inode that was never written as a free one.
    fn whole_inode(&mut self, ino: Ino, slot: &[u8]) -> Result<Option<Freed>, DeviceError> {
        let Ok(core) = InodeCore::parse(slot, ino, &self.g) else { return Ok(None) };
        let (range, _) = fork_ranges(core.forkoff, slot.len());
        let local = core.format == ForkFormat::Local;
        let fork = self.read_fork(ino, slot, &core, Which::Data)?;
        if fork.section.is_some() {
            // Its content lies on another device.
            return Ok(None);
        }
        let older = Older {
            mode: core.mode,
            size: core.size,
            extent_count: core.extents,
            local: if local { slot[range].to_vec() } else { Vec::new() },
            ..Older::default()
        };
        Ok(Some(Freed {
            older: Some(older),
            extents: fork.extents,
            uid: core.uid,
            gid: core.gid,
            mtime: core.mtime,
            ctime: core.ctime,
            fork: Vec::new(),
            directory: false,
        }))
    }

    fn freed_inode(
        &mut self,
        ino: Ino,
        slot: &[u8],
        older: Option<Older>,
    ) -> Result<Option<Freed>, DeviceError> {
        let raw = RawInode::view(slot).expect("verified");
        if raw.di_mode.get() != 0 {
            return Ok(None);
        }
        let fork = slot[CORE_SIZE..].to_vec();
        let mut extents = self.extents_of(ino, &fork);
        let logged = older.as_ref().map(|older| self.extents_of(ino, &older.extents));
        if let Some(logged) = logged.filter(|logged| logged.len() > extents.len()) {
            extents = logged;
        }
        if extents.is_empty() && older.is_none() && fork.iter().all(|&byte| byte == 0) {
            return Ok(None);
        }
        let directory = match extents.first().filter(|extent| extent.offset == 0) {
            Some(extent) => {
                let data = self.view.read(self.linear(extent.start))?;
                let kind = directory_kind(&data, At::Inode(ino));
                let expect = self.g.expect(self.g.sector(extent.start), Some(ino.0));
                kind.is_some_and(|kind| {
                    verifier::verify_identity(kind, &data, &expect, At::Inode(ino)).is_ok()
                })
            }
            None => false,
        };
        let bigtime = Flags2::of(slot).contains(Flags2::BIGTIME);
        Ok(Some(Freed {
            older,
            extents,
            uid: raw.di_uid.get(),
            gid: raw.di_gid.get(),
            mtime: time::decode(raw.di_mtime.get(), bigtime),
            ctime: time::decode(raw.di_ctime.get(), bigtime),
            fork,
            directory,
        }))
    }

    /// The extents at the start of a fork, up to the first that cannot be one.
    fn extents_of(&self, ino: Ino, fork: &[u8]) -> Vec<Extent> {
        let mut list: Vec<Extent> = Vec::new();
        for record in fork.chunks_exact(EXTENT_SIZE) {
            let extent = Extent::read(record);
            let next = list.last().map_or(0, Extent::end);
            let valid = extent.count > 0
                && extent.offset >= next
                && extent.check(&self.g, false, At::Inode(ino)).is_ok();
            if !valid {
                break;
            }
            list.push(extent);
        }
        list
    }

    /// Those that were freed last first, so that a block belongs to who had it last.
    fn judge_freed(&self, freed: BTreeMap<u64, Freed>, names: Names) -> Vec<Deleted> {
        let (mut paths, mut kinds) = (BTreeMap::new(), BTreeMap::new());
        for (ino, (known, kind)) in names {
            paths.insert(ino, known);
            kinds.insert(ino, kind);
        }
        let root = Ino(self.raw.sb_rootino.get());
        let mut all: Vec<(u64, Freed)> = freed.into_iter().collect();
        all.sort_by_key(|(ino, one)| (std::cmp::Reverse((one.ctime.sec, one.ctime.nsec)), *ino));
        let mut taken = RangeSet64::new();
        let mut files = Vec::new();
        for (ino, one) in all {
            let Some(kind) = kind_of(&one, kinds.get(&ino).copied()) else { continue };
            let mut file = self.removed(ino, kind, &one, &mut taken);
            file.path = path_of(Ino(ino), root, &paths);
            files.push(file);
        }
        files.sort_by(|a, b| (&a.path, a.ino).cmp(&(&b.path, b.ino)));
        files
    }

    fn removed(&self, ino: u64, kind: FileKind, one: &Freed, taken: &mut RangeSet64) -> Deleted {
        let size = u64::from(self.g.block_size);
        let (mut runs, mut blocks, mut lost) = (Vec::new(), 0, 0);
        for extent in &one.extents {
            let (start, len) = (self.linear(extent.start), u64::from(extent.count));
            let place = self.g.split(extent.start);
            let group = &self.groups[place.ag as usize];
            for index in 0..len {
                let free = group.records.says_free(place.block + index as u32);
                lost += u64::from(!free || taken.contains(start + index));
            }
            taken.insert(start..start + len);
            blocks += len;
            let (logical, unwritten) = (extent.offset, extent.unwritten);
            FileRun { logical, start, len, unwritten }.join(&mut runs);
        }
        let older = one.older.as_ref();
        let all = one.extents.last().map_or(0, |last| last.end() * size);
        if let Some(older) = older {
            // Extents that nothing knows any more.
            let known = one.extents.len() as u64;
            lost += older.extent_count.saturating_sub(known);
        }
        let mode = older.map_or(kind.mode_bits() | 0o600, |older| older.mode);
        let short = kind == FileKind::Symlink && one.extents.is_empty();
        Deleted {
            ino,
            kind,
            path: Vec::new(),
            mode,
            uid: one.uid,
            gid: one.gid,
            size: older.map_or(all, |older| older.size),
            exact: older.is_some(),
            mtime: one.mtime,
            runs,
            blocks,
            lost,
            target: short.then(|| target_of(one)),
        }
    }
}

/// Which kind of a directory's blocks with entries this is, by its magic number.
fn directory_kind(data: &[u8], at: At) -> Option<Kind> {
    DIRECTORY.into_iter().find(|&kind| verifier::verify_magic(kind, data, at).is_ok())
}

/// The first four bytes of a block.
fn word(data: &[u8]) -> u32 {
    u32::from_be_bytes(data[..4].try_into().expect("four bytes"))
}

/// What a freed inode was; None if nothing says it, and there is no content.
fn kind_of(one: &Freed, named: Option<FileType>) -> Option<FileKind> {
    if let Some(older) = &one.older {
        return FileKind::from_mode(older.mode);
    }
    let named = named.map_or(0, |kind| match kind {
        FileType::Regular => 0x8000,
        FileType::Directory => 0x4000,
        FileType::Symlink => 0xa000,
        _ => 0,
    });
    match FileKind::from_mode(named) {
        Some(kind) => Some(kind),
        None if one.directory => Some(FileKind::Directory),
        None => (!one.extents.is_empty()).then_some(FileKind::Regular),
    }
}

/// The target of a symbolic link that lay in its inode.
fn target_of(one: &Freed) -> Vec<u8> {
    let (bytes, size) = match &one.older {
        Some(older) if !older.local.is_empty() => (&older.local, older.size as usize),
        Some(older) => (&one.fork, older.size as usize),
        None => (&one.fork, one.fork.iter().position(|&byte| byte == 0).unwrap_or(TARGET_MAX)),
    };
    bytes[..size.min(bytes.len()).min(TARGET_MAX)].to_vec()
}

/// Whether a fork's extents lie in the inode, as an older copy says.
fn has_extents(format: u8) -> bool {
    ForkFormat::from_number(format) == Some(ForkFormat::Extents)
}
