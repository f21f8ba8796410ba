//! Recovery of a dirty journal, in three passes.
//!
//! *Scan* finds the transactions that are complete: it follows the sequence numbers from the tail
//! to the first block that does not continue them. *Revoke* collects which blocks must not be
//! replayed from which transactions. *Replay* writes the last valid copy of every block to its
//! place. Nothing is written before the first two are done and, where the journal has checksums,
//! every block that will be replayed has been verified.

use std::collections::BTreeMap;
use std::fmt;

use base::Page;
use block::BioFlags;
use cache::{BufferCache, BufferRef};
use rt::Cx;

use crate::error::JournalError;
use crate::format::fast_commit::{self, FastCommits};
use crate::format::{Header, Incompat, Tag};
use crate::log::Log;
use crate::recovery::scan::Scan;

mod scan;

/// Log blocks that are read and written at a time.
const BATCH_BLOCKS: usize = 1024;

/// Blocks of fast commits that are read at a time.
const AREA_BATCH: u32 = 64;

/// What a recovery found and did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RecoveryReport {
    /// Transactions replayed.
    pub transactions: u32,
    /// Sequence number of the first one.
    pub first_sequence: u32,
    /// Sequence number of the first one that was not there.
    pub end_sequence: u32,
    /// Copies of blocks in these transactions.
    pub blocks: u64,
    /// Blocks written to their places: each once, with its last copy.
    pub written: u64,
    /// Revoke records.
    pub revokes: u64,
    /// Copies that were not replayed because they were revoked.
    pub revoke_hits: u64,
    /// Log blocks that the transactions take.
    pub log_blocks: u32,
    /// Complete fast commits behind the transactions. They are the file system's to replay.
    pub fast_commits: u32,
    /// A transaction that had a commit block with a wrong checksum: the log ends before it.
    pub failed_commit: Option<u32>,
    /// Nothing was written: the replayed blocks are in the buffer cache only.
    pub in_memory: bool,
}

impl fmt::Display for RecoveryReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (transactions, blocks) = (self.transactions, self.blocks);
        write!(f, "{transactions} transactions with {blocks} blocks replayed")?;
        if self.fast_commits > 0 {
            write!(f, ", {} fast commits", self.fast_commits)?;
        }
        if self.revokes > 0 {
            write!(f, ", {} revoked copies left out", self.revoke_hits)?;
        }
        if let Some(sequence) = self.failed_commit {
            write!(f, "; the log ends before transaction {sequence}, whose checksum is wrong")?;
        }
        Ok(())
    }
}

/// A copy of a block in the log.
#[derive(Clone, Copy, Debug)]
struct LogCopy {
    log: u32,
    sequence: u32,
    tag: Tag,
}

/// Replays the log and leaves it empty, on disk and in `log`. May park.
pub(crate) fn recover(
    cx: &mut Cx,
    cache: &BufferCache,
    log: &mut Log,
    keep: bool,
) -> Result<RecoveryReport, JournalError> {
    let (mut report, copies) = find(cx, cache, log, keep)?;
    load(cx, cache, log, &copies, |cx, mut loaded| {
        loaded.sort_by_key(|(buffer, _)| buffer.block());
        Ok(cache.write_snapshots(cx, loaded.into_iter())?)
    })?;
    report.written = copies.len() as u64;
    if report.fast_commits > 0 {
        leave_continued(cx, cache, log, report.end_sequence)?;
    } else {
        leave_empty(cx, cache, log, report.end_sequence)?;
    }
    Ok(report)
}

/// The complete fast commits of a dirty journal, where it has some. Writes nothing. May park.
pub(crate) fn fast_commits(cx: &mut Cx, log: &Log) -> Result<Option<FastCommits>, JournalError> {
    if log.sb.start == 0 || !log.sb.incompat.contains(Incompat::FAST_COMMIT) {
        return Ok(None);
    }
    let scan = scan::scan(cx, log)?;
    scan_fast_commits(cx, log, scan.report.end_sequence)
}

/// Reads the area of the fast commits: it lies behind the log, without the first block there.
fn scan_fast_commits(
    cx: &mut Cx,
    log: &Log,
    tid: u32,
) -> Result<Option<FastCommits>, JournalError> {
    let mut scan = fast_commit::Scan::new(tid);
    let (mut at, end) = (log.sb.log_end() + 1, log.sb.maxlen);
    'area: while at < end {
        let count = AREA_BATCH.min(end - at);
        for (index, page) in log.device.read_run(cx, at, count)?.iter().enumerate() {
            if !scan.block(at + index as u32, page)? {
                break 'area;
            }
        }
        at += count;
    }
    Ok((scan.found.count > 0).then_some(scan.found))
}

/// Empties the log without replaying it: it belongs to a past that the file system no longer wants.
/// May park.
pub(crate) fn discard(cx: &mut Cx, cache: &BufferCache, log: &mut Log) -> Result<(), JournalError> {
    let end = scan::scan(cx, log)?.report.end_sequence;
    leave_empty(cx, cache, log, end)
}

/// Empties the log, and leaves the fast commits behind it valid: its next transaction has their
/// number. What an interrupted commit of that number left in the log's first block is wiped; the
/// rest of the log is needed until the superblock says otherwise.
fn leave_continued(
    cx: &mut Cx,
    cache: &BufferCache,
    log: &mut Log,
    end_sequence: u32,
) -> Result<(), JournalError> {
    log.sequence = end_sequence;
    log.head = log.sb.first;
    // All copies are in their places before the log stops to protect them.
    cache.queue().flush(cx)?;
    if (log.sb.start, log.sb.sequence) != (log.sb.first, end_sequence) {
        let first = log.device.read(cx, log.sb.first)?;
        if Header::parse(&first).is_some_and(|header| header.sequence == end_sequence) {
            let blank = Page::zeroed(log.sb.block_size as usize);
            log.device.write(cx, log.sb.first, blank, BioFlags::META)?;
        }
        log.sb.start = log.sb.first;
        log.sb.sequence = end_sequence;
        log.write_superblock(cx, BioFlags::META | BioFlags::PREFLUSH | BioFlags::FUA)?;
    }
    log.used = 0;
    Ok(())
}

fn leave_empty(
    cx: &mut Cx,
    cache: &BufferCache,
    log: &mut Log,
    end_sequence: u32,
) -> Result<(), JournalError> {
    // One number is left out, so that nothing of an interrupted commit is ever taken for the
    // beginning of a new one.
    log.sequence = end_sequence.wrapping_add(1);
    log.head = log.sb.first;
    if log.device.area.is_external() {
        cache.queue().flush(cx)?;
    }
    log.sb.start = 0;
    log.sb.sequence = log.sequence;
    log.write_superblock(cx, BioFlags::META | BioFlags::PREFLUSH | BioFlags::FUA)?;
    log.used = 0;
    Ok(())
}

/// Replays the log into the buffer cache only, for a file system that must not be written to. The
/// buffers must be held for as long as it is in use. May park.
pub(crate) fn recover_in_memory(
    cx: &mut Cx,
    cache: &BufferCache,
    log: &Log,
    keep: bool,
) -> Result<(RecoveryReport, Vec<BufferRef>), JournalError> {
    let (mut report, copies) = find(cx, cache, log, keep)?;
    let mut held = Vec::with_capacity(copies.len());
    load(cx, cache, log, &copies, |_, loaded| {
        held.extend(loaded.into_iter().map(|(buffer, _)| buffer));
        Ok(())
    })?;
    report.in_memory = true;
    Ok((report, held))
}

/// Scans, and chooses and verifies the copies to replay.
fn find(
    cx: &mut Cx,
    cache: &BufferCache,
    log: &Log,
    keep: bool,
) -> Result<(RecoveryReport, BTreeMap<u64, LogCopy>), JournalError> {
    let mut scan = scan::scan(cx, log)?;
    if log.sb.incompat.contains(Incompat::FAST_COMMIT)
        && let Some(found) = scan_fast_commits(cx, log, scan.report.end_sequence)?
    {
        let FastCommits { tid, count, .. } = found;
        if !keep {
            return Err(JournalError::FastCommit { tid, count });
        }
        scan.report.fast_commits = count;
    }
    let mut copies = select(&mut scan, cache)?;
    if let Err(error) = verify(cx, log, &copies) {
        // With asynchronous commits the commit block may be there before the blocks are; then the
        // last transaction simply has not happened.
        if !log.sb.incompat.contains(Incompat::ASYNC_COMMIT) || !scan.drop_last(&error) {
            return Err(error);
        }
        copies = select(&mut scan, cache)?;
        verify(cx, log, &copies)?;
    }
    Ok((scan.report, copies))
}

/// The revoke pass, and the choice of the copies to replay: per block the last one that is not
/// revoked, in the order of the blocks.
fn select(scan: &mut Scan, cache: &BufferCache) -> Result<BTreeMap<u64, LogCopy>, JournalError> {
    let first = scan.report.first_sequence;
    let age = |sequence: u32| sequence.wrapping_sub(first);
    let mut revoked: BTreeMap<u64, u32> = BTreeMap::new();
    let mut report = RecoveryReport { blocks: 0, revokes: 0, revoke_hits: 0, ..scan.report };
    for transaction in &scan.transactions {
        for &block in &transaction.revoked {
            report.revokes += 1;
            revoked.insert(block, age(transaction.sequence));
        }
    }
    let mut copies = BTreeMap::new();
    let end = cache.blocks();
    for transaction in &scan.transactions {
        let sequence = transaction.sequence;
        for &(log, tag) in &transaction.blocks {
            report.blocks += 1;
            let block = tag.block;
            if revoked.get(&block).is_some_and(|&last| last >= age(sequence)) {
                report.revoke_hits += 1;
                continue;
            }
            if block >= end {
                return Err(JournalError::BlockRange { log, sequence, block, end });
            }
            copies.insert(block, LogCopy { log, sequence, tag });
        }
    }
    scan.report = report;
    Ok(copies)
}

/// The copies in the order in which they lie in the log.
fn in_log_order(copies: &BTreeMap<u64, LogCopy>) -> Vec<LogCopy> {
    let mut sorted: Vec<LogCopy> = copies.values().copied().collect();
    sorted.sort_by_key(|copy| copy.log);
    sorted
}

/// Reads the log blocks of `copies`, which are in log order: neighbours together.
fn read_copies(cx: &mut Cx, log: &Log, copies: &[LogCopy]) -> Result<Vec<Page>, JournalError> {
    let mut pages = Vec::with_capacity(copies.len());
    for run in copies.chunk_by(|a, b| a.log + 1 == b.log) {
        pages.extend(log.device.read_run(cx, run[0].log, run.len() as u32)?);
    }
    Ok(pages)
}

fn verify(cx: &mut Cx, log: &Log, copies: &BTreeMap<u64, LogCopy>) -> Result<(), JournalError> {
    if !log.layout.has_tail() {
        return Ok(());
    }
    for batch in in_log_order(copies).chunks(BATCH_BLOCKS) {
        let pages = read_copies(cx, log, batch)?;
        for (copy, page) in batch.iter().zip(&pages) {
            if !copy.tag.verify(&log.layout, copy.sequence, page) {
                let LogCopy { log, sequence, tag } = *copy;
                return Err(JournalError::BlockChecksum { log, sequence, block: tag.block });
            }
        }
    }
    Ok(())
}

/// Puts the copies into their buffers, some at a time, and gives these to `then`.
fn load(
    cx: &mut Cx,
    cache: &BufferCache,
    log: &Log,
    copies: &BTreeMap<u64, LogCopy>,
    mut then: impl FnMut(&mut Cx, Vec<(BufferRef, Page)>) -> Result<(), JournalError>,
) -> Result<(), JournalError> {
    for batch in in_log_order(copies).chunks(BATCH_BLOCKS) {
        let pages = read_copies(cx, log, batch)?;
        let mut loaded = Vec::with_capacity(batch.len());
        for (copy, mut page) in batch.iter().zip(pages) {
            if copy.tag.escaped {
                page.make_mut()[..4].copy_from_slice(&crate::format::MAGIC.to_be_bytes());
            }
            // What is in memory already must not hide what is being replayed.
            let buffer = cache.get(cx, copy.tag.block);
            buffer.replace(page.clone());
            loaded.push((buffer, page));
        }
        then(cx, loaded)?;
    }
    Ok(())
}
