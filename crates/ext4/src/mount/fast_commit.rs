//! Applying fast commits to a file system in the state of its last full commit.
//!
//! Records say what is, not what was done: each is applied as it stands where that is not the case
//! yet, so that the order in which an inode's records and a name's come does not matter. Who owns a
//! block and who has a name at all is known at the end; until then nothing is freed.
//!
//! Directories have no records of their blocks: names find places as ever. Of the inode of a
//! directory its owner, mode and times are taken.

mod inline;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use base::range::Ranges;
use base::{Errno, Ino};
use jbd2::{FastCommits, Record};
use rt::Cx;
use vfs::FileType;

use super::MountError;
use crate::Ext4;
use crate::bmap::map::State;
use crate::dir::{Dir, Target};
use crate::evict;
use crate::format::extent::{self, Extent};
use crate::format::fast_commit::{BadRecord, BadRecordKind, Change, Entry, ino_of};
use crate::format::super_block::ROOT_INO;
use crate::format::{FileKind, InodeFlags, InodeValues};
use crate::inode::Inode;
use crate::trans::ext4_jbd2::Handle;

/// Links from which on a directory does not count its subdirectories.
const LINK_MAX: u32 = 65000;
/// Flags that say how an inode is laid out: they stay as they are.
const LAYOUT: InodeFlags =
    InodeFlags::EXTENTS.union(InodeFlags::INDEX).union(InodeFlags::INLINE_DATA);

/// A replay under way.
pub(super) struct Replay<'a> {
    fs: &'a Arc<Ext4>,
    handle: Handle,
    changes: Vec<(&'a Record, Change<'a>)>,
    /// Where the fields of an inode come, in the order of the records.
    fields: BTreeMap<u32, Vec<usize>>,
    /// Inodes that were orphans before: the mount frees them.
    orphans: BTreeSet<u32>,
    touched: BTreeSet<u32>,
    /// Directories that got or lost subdirectories.
    parents: BTreeSet<u32>,
}

impl<'a> Replay<'a> {
    /// Applies `commits` to `fs`, which is mounted without a journal by nobody else.
    ///
    /// # Errors
    /// A record that makes no sense; `ENOSPC`, `EIO`, `EUCLEAN`.
    pub fn of_commits(
        cx: &mut Cx,
        fs: &'a Arc<Ext4>,
        commits: &'a FastCommits,
    ) -> Result<(), MountError> {
        let mut changes = Vec::with_capacity(commits.records.len());
        let mut fields: BTreeMap<u32, Vec<usize>> = BTreeMap::new();
        for (index, record) in commits.records.iter().enumerate() {
            let change = Change::of_record(record, &fs.sb.geometry)?;
            if let Change::Inode { ino, .. } = change {
                fields.entry(ino).or_default().push(index);
            }
            changes.push((record, change));
        }
        let handle = fs.sb.journal_start(cx, 0)?;
        // Space that is kept from users is there for this.
        fs.alloc.counters.pool.store(0, std::sync::atomic::Ordering::Relaxed);
        fs.alloc.counters.root_blocks.store(0, std::sync::atomic::Ordering::Relaxed);
        let (touched, parents) = (BTreeSet::new(), BTreeSet::new());
        let orphans = fs.orphan_numbers(cx)?;
        let mut replay = Replay { fs, handle, changes, fields, orphans, touched, parents };
        replay.take_ranges(cx)?;
        for index in 0..replay.changes.len() {
            replay.apply_record(cx, index)?;
        }
        replay.count_subdirectories(cx)?;
        replay.delete_nameless(cx)?;
        replay.free_rest(cx)
    }

    /// Takes all blocks that belong to files in the end, before anything else is allocated.
    fn take_ranges(&mut self, cx: &mut Cx) -> Result<(), MountError> {
        let mut held = Ranges::default();
        for (record, change) in &self.changes {
            let Change::AddRange { extent, .. } = change else { continue };
            let Extent { start, len, .. } = *extent;
            let blocks = start..start + u64::from(len);
            if self.fs.in_metadata(cx, &blocks) {
                let end = self.fs.sb.geometry.blocks_count;
                return Err(bad(record, BadRecordKind::Blocks { start, len, end }));
            }
            let taken = self.fs.alloc.take_free(cx, &mut self.handle, blocks)?;
            taken.into_iter().for_each(|run| held.insert(run));
        }
        *self.fs.alloc.held_back.lock(cx) = Some(held);
        Ok(())
    }

    fn apply_record(&mut self, cx: &mut Cx, index: usize) -> Result<(), MountError> {
        let (record, change) = &self.changes[index];
        let record = *record;
        match change.clone() {
            Change::Inode { ino, raw } => self.set_inode(cx, record, ino, raw),
            Change::Create(entry) => self.add_name(cx, record, entry, false),
            Change::Link(entry) => self.add_name(cx, record, entry, true),
            Change::Unlink(entry) => self.remove_name(cx, entry),
            Change::AddRange { ino, extent } => {
                self.bring_up(cx, index, ino)?;
                let Some(inode) = self.mapped_inode(cx, record, ino)? else { return Ok(()) };
                let bmap = self.fs.inodes.bmap(&inode);
                bmap.map_exactly(cx, &mut self.handle, &extent)?;
                Ok(self.fs.inodes.mark_dirty(cx, &mut self.handle, &inode)?)
            }
            Change::DelRange { ino, first, len } => {
                self.bring_up(cx, index, ino)?;
                let Some(inode) = self.mapped_inode(cx, record, ino)? else { return Ok(()) };
                let blocks = first..first.saturating_add(len);
                self.fs.inodes.bmap(&inode).map_remove(cx, &mut self.handle, blocks)?;
                Ok(self.fs.inodes.mark_dirty(cx, &mut self.handle, &inode)?)
            }
        }
    }

    /// The inode, where it is in use.
    fn used_inode(&self, cx: &mut Cx, ino: u32) -> Result<Option<Arc<Inode>>, MountError> {
        if !self.fs.inodes.ialloc.inode_in_use(cx, ino_of(ino))? {
            return Ok(None);
        }
        match self.fs.iget_orphan(cx, ino_of(ino)) {
            Ok(inode) => Ok(Some(inode)),
            Err(Errno::ESTALE) => Ok(None),
            Err(errno) => Err(errno.into()),
        }
    }

    /// Ranges come before the fields of their inode: where it is a new one, these come first.
    fn bring_up(&mut self, cx: &mut Cx, index: usize, ino: u32) -> Result<(), MountError> {
        let later = self.fields.get(&ino).and_then(|list| list.iter().find(|&&at| at > index));
        let Some(&later) = later else { return Ok(()) };
        let (record, change) = &self.changes[later];
        let Change::Inode { raw, .. } = change else { return Ok(()) };
        let (record, raw) = (*record, *raw);
        let generation = InodeValues::generation_of(raw);
        match self.used_inode(cx, ino)? {
            Some(inode) if inode.with(cx, |core| core.generation) == generation => {
                let flags = InodeValues::read(raw, &self.fs.sb.geometry).flags;
                self.leave_inode(cx, &inode, flags)
            }
            _ => self.set_inode(cx, record, ino, raw),
        }
    }

    /// The regular file whose blocks a record maps; `None` where it is not in use.
    fn mapped_inode(
        &self,
        cx: &mut Cx,
        record: &Record,
        ino: u32,
    ) -> Result<Option<Arc<Inode>>, MountError> {
        let Some(inode) = self.used_inode(cx, ino)? else { return Ok(None) };
        match inode.kind(cx) {
            // Their blocks are not in the fast commit, and so not needed where they were.
            FileType::Directory => Ok(None),
            _ if inode.has_extents(cx) => Ok(Some(inode)),
            _ => Err(bad(record, BadRecordKind::NoExtents { ino })),
        }
    }

    /// The fields of an inode: of the one that is there, or of a new one in its place.
    fn set_inode(
        &mut self,
        cx: &mut Cx,
        record: &Record,
        ino: u32,
        raw: &[u8],
    ) -> Result<(), MountError> {
        let mut slot = vec![0; self.fs.sb.geometry.inode_size as usize];
        slot[..raw.len()].copy_from_slice(raw);
        let new = InodeValues::read(&slot, &self.fs.sb.geometry);
        let kind = new.kind();
        let Some(kind) = kind else {
            return Err(bad(record, BadRecordKind::Mode { ino, mode: new.mode }));
        };
        self.touched.insert(ino);
        let content = self.inline_content(record, ino, raw, &new)?;
        let mut dtime = 0;
        if let Some(inode) = self.used_inode(cx, ino)? {
            let old = inode.with(cx, |core| core.values);
            // An orphan of the list leads to the next one.
            dtime = if self.orphans.contains(&ino) { old.dtime } else { 0 };
            if old.generation == new.generation && old.kind() == Some(kind) {
                self.leave_inode(cx, &inode, new.flags)?;
                if kind != FileKind::Directory
                    && let Some(content) = &content
                {
                    self.put_known_content(cx, record, &inode, content)?;
                }
                return self.set_known(cx, record, &inode, InodeValues { dtime, ..new });
            }
            if ino == ROOT_INO {
                return Err(bad(record, BadRecordKind::Mode { ino, mode: new.mode }));
            }
            evict::delete_inode(&self.fs.inodes, cx, &inode)?;
        }
        let is_dir = kind == FileKind::Directory;
        if !self.fs.inodes.ialloc.inode_in_use(cx, ino_of(ino))? {
            self.fs.inodes.ialloc.take_this(cx, &mut self.handle, ino_of(ino), is_dir)?;
        }
        let mut values = InodeValues { dtime, blocks: 0, file_acl: 0, ..new };
        values.flags.remove(InodeFlags::INDEX | InodeFlags::INLINE_DATA);
        if values.flags.contains(InodeFlags::EXTENTS) {
            values.block = [0; 60];
            extent::init_node(&mut values.block, extent::ROOT_MAX, 0);
        }
        if is_dir {
            values.size = 0;
        }
        let inode = self.fs.inodes.fresh_inode(ino_of(ino), values, None);
        self.fs.inodes.mark_dirty(cx, &mut self.handle, &inode)?;
        match content {
            Some(content) => self.put_content(cx, record, &inode, &content),
            None => Ok(()),
        }
    }

    /// New fields for an inode that is there: its blocks and its attributes stay.
    fn set_known(
        &mut self,
        cx: &mut Cx,
        record: &Record,
        inode: &Arc<Inode>,
        new: InodeValues,
    ) -> Result<(), MountError> {
        let old = inode.with(cx, |core| core.values);
        // The names of a directory find places of their own, in the inode or not.
        let inline = (old.flags | new.flags).contains(InodeFlags::INLINE_DATA);
        let maps = match old.kind() {
            Some(FileKind::Directory) => !inline,
            kind => kind == Some(FileKind::Regular),
        };
        if maps && (old.flags ^ new.flags).contains(InodeFlags::EXTENTS) {
            return Err(bad(record, BadRecordKind::NoExtents { ino: inode.ino.0 as u32 }));
        }
        let is_dir = old.kind() == Some(FileKind::Directory);
        inode.with(cx, |core| {
            core.values = InodeValues {
                flags: (new.flags - LAYOUT) | (old.flags & LAYOUT),
                block: old.block,
                blocks: old.blocks,
                file_acl: old.file_acl,
                extra_isize: old.extra_isize,
                size: if is_dir { old.size } else { new.size },
                ..new
            };
            core.size = core.values.size;
        });
        Ok(self.fs.inodes.mark_dirty(cx, &mut self.handle, inode)?)
    }

    /// The directory of a name; `None` where it is gone.
    fn live_dir(&self, cx: &mut Cx, ino: u32) -> Result<Option<Arc<Inode>>, MountError> {
        let Some(dir) = self.used_inode(cx, ino)? else { return Ok(None) };
        Ok(Some(dir).filter(|dir| dir.with(cx, |core| core.links > 0)))
    }

    fn add_name(
        &mut self,
        cx: &mut Cx,
        record: &Record,
        entry: Entry,
        counts: bool,
    ) -> Result<(), MountError> {
        let Entry { parent, ino, name } = entry;
        let Some(dir) = self.live_dir(cx, parent)? else { return Ok(()) };
        // A name that came and went with its inode between two fast commits.
        let Some(inode) = self.used_inode(cx, ino)? else { return Ok(()) };
        if dir.kind(cx) != FileType::Directory {
            return Err(bad(record, BadRecordKind::NotDirectory { ino: parent }));
        }
        if inode.kind(cx) == FileType::Directory {
            self.parents.insert(parent);
            if inode.size(cx) == 0 {
                inode.with(cx, |core| core.links = core.links.max(2));
                Dir::open(self.fs, cx, &inode)?.init(cx, &mut self.handle, Ino(parent.into()))?;
            }
        }
        let mut view = Dir::open(self.fs, cx, &dir)?;
        let target = Target::of(cx, &inode);
        match view.find_or_slot(cx, name)? {
            Ok(place) if place.found.ino == ino => return Ok(()),
            Ok(place) => {
                view.replace(cx, &mut self.handle, &place, target)?;
                self.drop_link(cx, place.found.ino)?;
            }
            Err(slot) => view.add(cx, &mut self.handle, slot, name, target)?,
        }
        self.touched.insert(ino);
        if counts && inode.kind(cx) != FileType::Directory {
            inode.with(cx, |core| core.links = core.links.saturating_add(1));
            self.fs.inodes.mark_dirty(cx, &mut self.handle, &inode)?;
        }
        self.stamp_dir(cx, &dir)
    }

    fn remove_name(&mut self, cx: &mut Cx, entry: Entry) -> Result<(), MountError> {
        let Some(dir) = self.live_dir(cx, entry.parent)? else { return Ok(()) };
        if dir.kind(cx) != FileType::Directory || dir.size(cx) == 0 {
            return Ok(());
        }
        let view = Dir::open(self.fs, cx, &dir)?;
        let place = view.find(cx, entry.name)?.filter(|place| place.found.ino == entry.ino);
        let Some(place) = place else { return Ok(()) };
        view.remove(cx, &mut self.handle, &place)?;
        self.drop_link(cx, entry.ino)?;
        self.parents.insert(entry.parent);
        self.stamp_dir(cx, &dir)
    }

    /// An inode has a name less.
    fn drop_link(&mut self, cx: &mut Cx, ino: u32) -> Result<(), MountError> {
        let Some(inode) = self.used_inode(cx, ino)? else { return Ok(()) };
        self.touched.insert(ino);
        let is_dir = inode.kind(cx) == FileType::Directory;
        inode.with(cx, |core| {
            core.links = if is_dir { 0 } else { core.links.saturating_sub(1) };
        });
        Ok(self.fs.inodes.mark_dirty(cx, &mut self.handle, &inode)?)
    }

    /// A directory's names have changed.
    fn stamp_dir(&mut self, cx: &mut Cx, dir: &Arc<Inode>) -> Result<(), MountError> {
        let now = self.fs.sb.now(cx);
        dir.with(cx, |core| (core.mtime, core.ctime) = (now, now));
        Ok(self.fs.inodes.mark_dirty(cx, &mut self.handle, dir)?)
    }

    /// Links of directories: nothing in a fast commit says how many their subdirectories make.
    fn count_subdirectories(&mut self, cx: &mut Cx) -> Result<(), MountError> {
        for ino in std::mem::take(&mut self.parents) {
            let Some(dir) = self.live_dir(cx, ino)? else { continue };
            let mut children = Vec::new();
            Dir::open(self.fs, cx, &dir)?.list(cx, 0, &mut |entry| {
                if entry.name != b"." && entry.name != b".." {
                    children.push((entry.ino, entry.kind));
                }
                true
            })?;
            let mut links = 2;
            for (child, kind) in children {
                let kind = match kind {
                    Some(kind) => kind,
                    None => self.fs.iget_orphan(cx, child)?.kind(cx),
                };
                links += u32::from(kind == FileType::Directory);
            }
            dir.with(cx, |core| {
                let uncounted = core.links == 1 || links >= LINK_MAX;
                core.links = if uncounted { 1 } else { links as u16 };
            });
            self.fs.inodes.mark_dirty(cx, &mut self.handle, &dir)?;
        }
        Ok(())
    }

    /// Frees inodes that have lost their last name, or never had one.
    fn delete_nameless(&mut self, cx: &mut Cx) -> Result<(), MountError> {
        for ino in self.touched.clone() {
            let Some(inode) = self.used_inode(cx, ino)? else { continue };
            if inode.with(cx, |core| core.links) == 0 && !self.orphans.contains(&ino) {
                evict::delete_inode(&self.fs.inodes, cx, &inode)?;
            }
        }
        Ok(())
    }

    /// Frees what was held back and belongs to nobody.
    fn free_rest(&mut self, cx: &mut Cx) -> Result<(), MountError> {
        let held = self.fs.alloc.held_back.lock(cx).take();
        let mut held = held.expect("set before the first record was applied");
        for ino in self.touched.clone() {
            let Some(inode) = self.used_inode(cx, ino)? else { continue };
            if !inode.has_extents(cx) || held.is_empty() {
                continue;
            }
            let mut at = 0;
            while at < u32::MAX {
                let found = self.fs.inodes.bmap(&inode).map_lookup(cx, at, u32::MAX - at)?;
                if found.state != State::Hole {
                    held.remove(found.pblk..found.pblk + u64::from(found.len));
                }
                at = found.lblk + found.len;
            }
        }
        for run in held.iter() {
            let mut start = run.start;
            while start < run.end {
                let len = (run.end - start).min(u64::from(u32::MAX)) as u32;
                self.fs.alloc.free_blocks(cx, &mut self.handle, start, len)?;
                start += u64::from(len);
            }
        }
        Ok(())
    }
}

fn bad(record: &Record, kind: BadRecordKind) -> MountError {
    BadRecord { block: record.block, offset: record.offset, kind }.into()
}

impl Ext4 {
    /// Whether some of these blocks hold bitmaps, tables, or copies of the superblock.
    fn in_metadata(&self, cx: &Cx, blocks: &std::ops::Range<u64>) -> bool {
        let g = &*self.sb.geometry;
        (0..g.groups_count).any(|group| {
            let desc = self.alloc.groups[group as usize].state.lock(cx).desc;
            let first = g.group_first_block(group);
            let base = (first, u64::from(g.base_meta_blocks(group)));
            let table = (desc.inode_table, u64::from(g.itable_blocks));
            let own = [base, (desc.block_bitmap, 1), (desc.inode_bitmap, 1), table];
            own.iter().any(|&(start, len)| start < blocks.end && blocks.start < start + len)
        })
    }
}
