//! What fast commits report: files and names that the running transaction has changed.
//!
//! Tracked are the fields and blocks of regular files, and their names. Whatever else a handle may
//! do makes its transaction ineligible: so does every handle by itself
//! ([`journal_start`](crate::sb::SuperBlock::journal_start)), except the ones of operations that
//! see to their tracking ([`journal_start_tracked`](crate::sb::SuperBlock::journal_start_tracked)).
//! Making and removing directories commits whole although Linux has records for it: its replay
//! leaves the links of the parent and the count of the group wrong. So does a name for which a
//! directory grows: its replay miscounts the blocks.
//!
//! e2fsck 1.47 reads the inodes in the block of the journal's before it replays the log, and goes
//! on with what it had: files there lose what the log has of them, directories are not found. So
//! these files (six at most in a file system of 4 KiB blocks) commit whole, and so do names in
//! directories there that the log has made or made longer: the first fsync that meets one empties
//! the log ([`FastTracker::settle_early`]). The same goes for a log that has the superblock, with
//! the head of the orphan list: e2fsck leaves it with a wrong checksum.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use base::range::Ranges;
use base::{Errno, Ino};
use jbd2::Tid;
use rt::{Cx, SpinLock};

use crate::format::Geometry;
use crate::format::super_block::JOURNAL_INO;
use crate::inode::Inode;
use crate::sb::SuperBlock;
use crate::trans::ext4_jbd2::Handle;

/// What a tracked file is taken to cost in memory, besides its ranges.
const FILE_BYTES: usize = 512;

/// What changed since the last fast commit.
#[derive(Default)]
pub(crate) struct Changed {
    pub files: BTreeMap<u32, File>,
    pub names: Vec<Name>,
    /// Files that are new.
    pub created: BTreeSet<u32>,
    /// What all that takes in memory, roughly.
    bytes: usize,
}

pub(crate) struct File {
    pub inode: Arc<Inode>,
    /// Blocks that were mapped or unmapped.
    pub blocks: Ranges<u32>,
}

/// A name that came or went.
pub(crate) struct Name {
    pub removed: bool,
    pub parent: u32,
    pub ino: u32,
    pub name: Box<[u8]>,
}

#[derive(Default)]
struct Tracked {
    tid: Tid,
    changed: Changed,
    /// Files that the transaction freed: their numbers are not reported apart from new ones.
    freed: BTreeSet<u32>,
}

/// Directories beside the journal's inode that this mount has made, or made longer.
#[derive(Default)]
struct Early {
    made: BTreeMap<u32, Tid>,
    /// Names in one of them could not be reported.
    met: bool,
}

/// The changes of the running transaction.
pub(crate) struct FastTracker {
    tracked: SpinLock<Tracked>,
    early: SpinLock<Early>,
    /// The last inode in the block of the journal's.
    early_end: u32,
    /// Bytes of changes that are kept: what is more commits whole.
    most: usize,
}

impl FastTracker {
    /// Keeps at most `most` bytes of changes.
    pub(crate) fn new(most: usize, geometry: &Geometry) -> FastTracker {
        let per_block = geometry.block_size / geometry.inode_size;
        FastTracker {
            tracked: SpinLock::new(Tracked::default()),
            early: SpinLock::new(Early::default()),
            early_end: JOURNAL_INO.next_multiple_of(per_block),
            most,
        }
    }

    /// Where names could not be reported because e2fsck would not find their directory: writes what
    /// is committed to its place, so that it does.
    ///
    /// # Errors
    /// The journal's.
    pub(crate) fn settle_early(&self, cx: &mut Cx, sb: &SuperBlock) -> Result<(), Errno> {
        let met = std::mem::take(&mut self.early.lock(cx).met);
        let Some(journal) = sb.journal().cloned() else { return Ok(()) };
        if !sb.super_logged.swap(false, Ordering::Relaxed) && !met {
            return Ok(());
        }
        let committed = journal.committed_tid();
        journal.flush(cx)?;
        self.early.lock(cx).made.retain(|_, tid| *tid > committed);
        Ok(())
    }

    fn is_early(&self, cx: &Cx, dir: u32) -> bool {
        if dir > self.early_end {
            return false;
        }
        let mut early = self.early.lock(cx);
        let found = early.made.contains_key(&dir);
        early.met |= found;
        found
    }

    /// Whether e2fsck would lose what is reported of this inode.
    fn is_beside_journal(&self, ino: Ino) -> bool {
        ino.0 <= u64::from(self.early_end)
    }

    /// A directory gets a block.
    pub(crate) fn track_growth(&self, cx: &Cx, handle: &Handle, dir: &Inode) {
        handle.mark_ineligible();
        self.note_early(cx, handle, dir.ino);
    }

    fn note_early(&self, cx: &Cx, handle: &Handle, ino: Ino) {
        if let (true, Some(tid)) = (self.is_beside_journal(ino), handle.tid()) {
            self.early.lock(cx).made.insert(ino.0 as u32, tid);
        }
    }

    fn track(&self, cx: &Cx, handle: &Handle, change: impl FnOnce(&mut Tracked) -> bool) {
        let Some(tid) = handle.tid() else { return };
        let mut dropped = Changed::default();
        let mut tracked = self.tracked.lock(cx);
        if tracked.tid != tid {
            dropped = std::mem::take(&mut *tracked).changed;
            tracked.tid = tid;
        }
        let reported = change(&mut tracked);
        let freed = tracked.freed.len() * size_of::<u32>();
        if !reported || tracked.changed.bytes + freed > self.most {
            handle.mark_ineligible();
            dropped = std::mem::take(&mut tracked.changed);
            tracked.freed.clear();
        }
        drop(tracked);
        // Inodes that nobody else has: not under the lock.
        drop(dropped);
    }

    /// The fields of an inode change.
    pub(crate) fn track_inode(&self, cx: &Cx, handle: &Handle, inode: &Inode) {
        if inode.is_regular(cx) {
            let reported = !self.is_beside_journal(inode.ino);
            self.track(cx, handle, |tracked| {
                tracked.changed.tracked_file(inode);
                reported
            });
        }
    }

    /// Blocks of an inode are mapped or unmapped.
    pub(crate) fn track_blocks(&self, cx: &Cx, handle: &Handle, inode: &Inode, blocks: Range<u32>) {
        if !inode.is_regular(cx) {
            return;
        }
        let extents = inode.has_extents(cx);
        self.track(cx, handle, |tracked| {
            let file = tracked.changed.tracked_file(inode);
            file.blocks.insert(blocks);
            tracked.changed.bytes += size_of::<Range<u32>>();
            extents
        });
    }

    /// A new inode.
    pub(crate) fn track_created(&self, cx: &Cx, handle: &Handle, ino: Ino, regular: bool) {
        if !regular {
            self.note_early(cx, handle, ino);
        }
        let ino = ino.0 as u32;
        self.track(cx, handle, |tracked| {
            tracked.changed.created.insert(ino);
            tracked.changed.bytes += size_of::<u32>();
            regular && !tracked.freed.contains(&ino)
        });
    }

    /// An inode is freed.
    pub(crate) fn track_freed(&self, cx: &Cx, handle: &Handle, ino: Ino) {
        self.track(cx, handle, |tracked| {
            tracked.freed.insert(ino.0 as u32);
            true
        });
    }

    /// A name of `inode` in `dir` changes.
    pub(crate) fn track_name(
        &self,
        cx: &Cx,
        handle: &Handle,
        dir: &Inode,
        inode: &Inode,
        change: Change,
    ) {
        let (removed, name) = match change {
            Change::Come(name) => (false, name),
            Change::Go(name) => (true, name),
        };
        let reported = inode.with(cx, |core| core.mode & 0xf000 == 0x8000 || core.links == 0);
        let (parent, ino) = (dir.ino.0 as u32, inode.ino.0 as u32);
        let lost = self.is_beside_journal(inode.ino) || self.is_early(cx, parent);
        let plain = dir.crypt().is_none() && reported && !lost;
        self.track(cx, handle, |tracked| {
            tracked.changed.bytes += size_of::<Name>() + name.len();
            tracked.changed.names.push(Name { removed, parent, ino, name: name.into() });
            plain
        });
    }

    /// Takes out what transaction `tid` has changed.
    pub(crate) fn take_changed(&self, cx: &Cx, tid: Tid) -> Changed {
        let mut tracked = self.tracked.lock(cx);
        if tracked.tid == tid { std::mem::take(&mut tracked.changed) } else { Changed::default() }
    }
}

/// A name that comes, or goes.
pub(crate) enum Change<'a> {
    Come(&'a [u8]),
    Go(&'a [u8]),
}

impl Changed {
    fn tracked_file(&mut self, inode: &Inode) -> &mut File {
        let bytes = &mut self.bytes;
        self.files.entry(inode.ino.0 as u32).or_insert_with(|| {
            *bytes += FILE_BYTES;
            File { inode: inode.arc(), blocks: Ranges::default() }
        })
    }

    /// Takes out what ends without a trace: files that have no name (any more), and what happened
    /// to the names of those that are new.
    pub(crate) fn drop_nameless(&mut self, cx: &Cx) {
        let named = |inode: &Inode| inode.with(cx, |core| core.links > 0 && !core.freed);
        self.files.retain(|_, file| named(&file.inode));
        let (files, created) = (&self.files, &self.created);
        self.names.retain(|name| !created.contains(&name.ino) || files.contains_key(&name.ino));
        self.created.retain(|ino| files.contains_key(ino));
    }
}
