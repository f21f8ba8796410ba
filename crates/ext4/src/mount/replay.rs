//! Fast commits at a mount: what they change is found in memory, and takes their place as one
//! transaction.
//!
//! The kernel applies them where they are, each a second time where a crash comes between. Here the
//! log and they are replayed over the device, in memory ([`Overlay`]), by the code that changes any
//! file system without a journal. What differs then is committed as the first transaction of the
//! recovered log: a crash before its commit leaves all as it was, and one behind it finds it done.
//! A mount that only reads looks through the memory.

use std::collections::BTreeSet;
use std::sync::Arc;

use base::Page;
use base::unit::SECTOR_SIZE;
use block::{Overlay, Queue};
use jbd2::{FastCommits, Journal, JournalArea, JournalOptions};
use rt::Cx;

use super::fast_commit::Replay;
use super::{MountError, Mounting};
use crate::Ext4;
use crate::format::features::{Compat, Incompat, RoCompat};
use crate::format::super_block::SUPER_SIZE;
use crate::journal_device::JournalDevice;
use crate::mount::read_super::{check_features, join_super, pages_for, read_super};
use crate::sb::options::MountOptions;

/// Bytes of file pages that a replay may keep: it needs none.
const REPLAY_CACHE: u64 = 1 << 20;

/// A block and its new content.
type Change = (u64, Page);

/// Replays the log and its fast commits on the device behind `queue`, where there are fast commits;
/// the log, on `journal` where that is a device of its own, is empty then. A crash on the way is
/// not provided for: both are over an [`Overlay`]. Returns how many fast commits there were. May
/// park.
///
/// # Errors
/// Why they cannot be replayed; the devices'.
pub fn replay_fast_commits(
    cx: &mut Cx,
    queue: &Arc<Queue>,
    journal: Option<&JournalDevice>,
) -> Result<u32, MountError> {
    Ok(replay(cx, queue, journal)?.map_or(0, |replayed| replayed.count))
}

/// What a replay leaves.
struct Replayed {
    count: u32,
    area: JournalArea,
    block_size: u32,
}

fn replay(
    cx: &mut Cx,
    queue: &Arc<Queue>,
    journal: Option<&JournalDevice>,
) -> Result<Option<Replayed>, MountError> {
    let (raw, geometry) = read_super(cx, queue, journal)?;
    if !geometry.reaches_log(journal) || !geometry.features.incompat.contains(Incompat::RECOVER) {
        return Ok(None);
    }
    let block_size = geometry.block_size;
    check_features(&geometry, false)?;
    let pages = pages_for(cx, &geometry, REPLAY_CACHE);
    let options = MountOptions { journal: journal.cloned(), ..MountOptions::default() };
    let mounting = Mounting::new(queue, &pages, &geometry, options);
    let probe = mounting.assemble(cx, &raw, geometry, false)?;
    let Some(commits) = mounting.fast_commits(cx, &probe)? else { return Ok(None) };
    let area = mounting.journal_area(cx, &probe)?;
    let (log, _) = mounting.open_journal(cx, &probe)?;
    log.kill(cx);
    let (super_block, offset) = (probe.sb.buffer.block(), probe.sb.offset);
    probe.inodes.cache.clear();
    drop(probe);
    mounting.buffers.drop_clean();
    let page = mounting.buffers.read(cx, super_block)?.page();
    let (raw, geometry) = join_super(cx, &page[offset..offset + SUPER_SIZE], queue, journal)?;
    check_features(&geometry, false)?;
    if geometry.features.ro_compat.contains(RoCompat::QUOTA) {
        return Err(MountError::Mode("replaying fast commits on a file system with quota"));
    }
    if geometry.has_clusters() {
        return Err(MountError::Mode("replaying fast commits on a file system with bigalloc"));
    }
    let fs = mounting.assemble(cx, &raw, geometry, true)?;
    mounting.apply_commits(cx, &fs, &commits)?;
    // The log has nothing more to say.
    let empty = JournalOptions { discard_log: true, ..JournalOptions::default() };
    let (journal, _) = Journal::open(cx, mounting.buffers.clone(), area.clone(), empty)?;
    journal.kill(cx);
    Ok(Some(Replayed { count: commits.count, area, block_size }))
}

/// The blocks that a replay of log and fast commits changes, the journal's left out. Writes
/// nothing.
///
/// # Errors
/// Why they cannot be replayed; the device's.
pub(super) fn changed_blocks(
    cx: &mut Cx,
    queue: &Arc<Queue>,
    journal: Option<&JournalDevice>,
) -> Result<Vec<Change>, MountError> {
    let (overlay, over) = Overlay::shared(queue);
    let journal = journal.map(JournalDevice::overlaid);
    let Some(Replayed { area, block_size, .. }) = replay(cx, &over, journal.as_ref())? else {
        return Ok(Vec::new());
    };
    let sectors = u64::from(block_size) / SECTOR_SIZE;
    let written = overlay.written().into_iter().map(|(sector, _)| sector / sectors);
    let mut blocks: BTreeSet<u64> = written.collect();
    // The log of an external journal has numbers of another device.
    let mut at = if area.is_external() { area.len() } else { 0 };
    while at < area.len() {
        let (first, len) = area.map(at);
        blocks.retain(|&block| !(first..first + u64::from(len)).contains(&block));
        at += len;
    }
    let mut changes = Vec::with_capacity(blocks.len());
    for block in blocks {
        let sector = base::Sector(block * sectors);
        changes.push((block, over.read(cx, sector, block_size as usize)?));
    }
    Ok(changes)
}

impl Mounting {
    /// The complete fast commits of the journal of `fs`, where it has some.
    pub(super) fn fast_commits(
        &self,
        cx: &mut Cx,
        fs: &Arc<Ext4>,
    ) -> Result<Option<FastCommits>, MountError> {
        if !fs.sb.geometry.features.compat.contains(Compat::HAS_JOURNAL) {
            return Ok(None);
        }
        let area = self.journal_area(cx, fs)?;
        let options = self.journal_options(fs);
        Ok(Journal::fast_commits(cx, &self.buffers, area, &options)?)
    }

    /// Applies fast commits to a file system whose log is replayed, without a journal.
    fn apply_commits(
        &self,
        cx: &mut Cx,
        fs: &Arc<Ext4>,
        commits: &FastCommits,
    ) -> Result<(), MountError> {
        let done = Replay::of_commits(cx, fs, commits).and_then(|()| {
            fs.sb.put_super(cx, |raw| fs.set_free_counts(raw))?;
            fs.sb.buffers.sync(cx)?;
            Ok(())
        });
        fs.inodes.cache.clear();
        match (done, fs.error()) {
            (Err(MountError::Errno(_)), Some(text)) => Err(MountError::Journal(text)),
            (done, _) => done,
        }
    }

    /// A mount that only reads, through a replay in memory.
    pub(super) fn open_replayed(&self, cx: &mut Cx) -> Result<Arc<Ext4>, MountError> {
        let over = Overlay::queue(&self.queue);
        let journal = self.options.journal.as_ref().map(JournalDevice::overlaid);
        replay(cx, &over, journal.as_ref())?;
        let (raw, geometry) = read_super(cx, &over, journal.as_ref())?;
        let options = MountOptions { journal, ..self.options.clone() };
        let pages = self.backing.cache();
        Mounting::new(&over, pages, &geometry, options).open(cx, raw, geometry)
    }

    /// Commits what a replay changes, and brings it to its place.
    ///
    /// # Errors
    /// It does not fit into the log, or could not be written: the fast commits are still there.
    pub(super) fn commit_replay(
        &self,
        cx: &mut Cx,
        journal: &Journal,
        changes: &[Change],
    ) -> Result<(), MountError> {
        let mut buffers = Vec::with_capacity(changes.len());
        for (block, page) in changes {
            let buffer = self.buffers.read(cx, *block)?;
            if buffer.page()[..] != page[..] {
                buffers.push((buffer, page.clone()));
            }
        }
        let done = journal.commit_replay(cx, &buffers).map_err(MountError::from);
        let done = done.and_then(|()| Ok(journal.flush(cx)?));
        if done.is_err() {
            journal.kill(cx);
        }
        done
    }
}
