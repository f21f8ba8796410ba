//! The first pass: which transactions are in the log.

use base::Page;
use base::crc::crc32_be;
use rt::Cx;

use super::RecoveryReport;
use crate::error::JournalError;
use crate::format::{BlockType, Checksums, CommitBlock, Header, Layout, Tag, descriptor, revoke};
use crate::log::Log;

/// Blocks that are read ahead at a time, at most, ...
const READ_AHEAD: u32 = 256;
/// ... and the first time: most logs end soon.
const READ_FIRST: u32 = 16;

/// A transaction with a valid commit block.
pub(super) struct FoundTransaction {
    pub sequence: u32,
    /// Log block and tag of each copy, in the order of the log.
    pub blocks: Vec<(u32, Tag)>,
    pub revoked: Vec<u64>,
}

/// All of them, oldest first.
pub(super) struct Scan {
    pub transactions: Vec<FoundTransaction>,
    pub report: RecoveryReport,
}

impl Scan {
    /// Forgets the last transaction, where the error is about it.
    pub fn drop_last(&mut self, error: &JournalError) -> bool {
        let JournalError::BlockChecksum { sequence, .. } = *error else { return false };
        if self.transactions.last().is_none_or(|last| last.sequence != sequence) {
            return false;
        }
        self.transactions.pop();
        self.report.transactions -= 1;
        self.report.end_sequence = sequence;
        self.report.failed_commit = Some(sequence);
        true
    }
}

/// Follows the log from its tail.
pub(super) fn scan(cx: &mut Cx, log: &Log) -> Result<Scan, JournalError> {
    let mut scanner = Scanner::new(log);
    while scanner.step(cx)? {}
    let mut report = scanner.report;
    report.transactions = scanner.transactions.len() as u32;
    report.end_sequence = scanner.sequence;
    Ok(Scan { transactions: scanner.transactions, report })
}

struct Scanner<'a> {
    log: &'a Log,
    layout: Layout,
    next: u32,
    sequence: u32,
    /// Log blocks passed so far: more than there are cannot be.
    passed: u32,
    /// The transaction that is being collected.
    current: FoundTransaction,
    /// Checksum version 1 over the current transaction.
    crc: u32,
    /// A descriptor or revoke block of the current transaction had a wrong checksum.
    damage: Option<JournalError>,
    last_commit: Option<base::Timespec>,
    transactions: Vec<FoundTransaction>,
    report: RecoveryReport,
    window: (u32, Vec<Page>),
}

impl<'a> Scanner<'a> {
    fn new(log: &'a Log) -> Scanner<'a> {
        let sequence = log.sb.sequence;
        Scanner {
            log,
            layout: log.layout,
            next: log.sb.start,
            sequence,
            passed: 0,
            current: FoundTransaction { sequence, blocks: Vec::new(), revoked: Vec::new() },
            crc: !0,
            damage: None,
            last_commit: None,
            transactions: Vec::new(),
            report: RecoveryReport { first_sequence: sequence, ..RecoveryReport::default() },
            window: (0, Vec::new()),
        }
    }

    fn read(&mut self, cx: &mut Cx, at: u32) -> Result<Page, JournalError> {
        let (start, pages) = &self.window;
        if let Some(page) = at.checked_sub(*start).and_then(|index| pages.get(index as usize)) {
            return Ok(page.clone());
        }
        let ahead = (self.window.1.len() as u32 * 2).clamp(READ_FIRST, READ_AHEAD);
        let count = ahead.min(self.log.sb.log_end() - at);
        self.window = (at, self.log.device.read_run(cx, at, count)?);
        Ok(self.window.1[0].clone())
    }

    fn pass(&mut self, blocks: u32) {
        self.next = self.log.advance(self.next, blocks);
        self.passed += blocks;
    }

    /// Looks at the next block that the journal owns; false at the end of the log.
    fn step(&mut self, cx: &mut Cx) -> Result<bool, JournalError> {
        if self.passed >= self.log.capacity() {
            return Ok(false);
        }
        let page = self.read(cx, self.next)?;
        // Anything else is what an earlier turn around the log, or another use of the disk, left.
        let Some(header) = Header::parse(&page) else { return Ok(false) };
        if header.sequence != self.sequence {
            return Ok(false);
        }
        match header.kind {
            Ok(BlockType::Descriptor) => self.descriptor(cx, &page),
            Ok(BlockType::Revoke) => self.revoke(&page),
            Ok(BlockType::Commit) => self.commit(&page),
            _ => Ok(false),
        }
    }

    fn check_tail(&mut self, what: &'static str, page: &[u8]) -> bool {
        let Err((found, computed)) = self.layout.verify_tail(page) else { return true };
        let (log, sequence) = (self.next, self.sequence);
        let error = JournalError::Checksum { log, sequence, what, found, computed };
        self.damage.get_or_insert(error);
        false
    }

    fn descriptor(&mut self, cx: &mut Cx, page: &Page) -> Result<bool, JournalError> {
        self.check_tail("descriptor", page);
        let tags = descriptor::parse(&self.layout, page);
        let count = tags.len() as u32;
        if self.passed + 1 + count > self.log.capacity() {
            return Ok(false);
        }
        if self.layout.checksums == Checksums::V1 {
            self.crc = crc32_be(self.crc, page);
            for index in 0..count {
                let data = self.read(cx, self.log.advance(self.next, 1 + index))?;
                self.crc = crc32_be(self.crc, &data);
            }
        }
        for (index, tag) in tags.into_iter().enumerate() {
            let log = self.log.advance(self.next, 1 + index as u32);
            self.current.blocks.push((log, tag));
        }
        self.pass(1 + count);
        Ok(true)
    }

    fn revoke(&mut self, page: &Page) -> Result<bool, JournalError> {
        if self.check_tail("revoke block", page) {
            match revoke::parse(&self.layout, page) {
                Ok(blocks) => self.current.revoked.extend(blocks),
                Err(bytes) => {
                    let (log, sequence) = (self.next, self.sequence);
                    self.damage.get_or_insert(JournalError::RevokeSize { log, sequence, bytes });
                }
            }
        }
        self.pass(1);
        Ok(true)
    }

    fn commit(&mut self, page: &Page) -> Result<bool, JournalError> {
        let Some(commit) = CommitBlock::parse(&self.layout, page) else { return Ok(false) };
        if !self.commit_is_valid(&commit, page) {
            self.report.failed_commit = Some(self.sequence);
            return Ok(false);
        }
        if let Some(damage) = self.damage.take() {
            // A block that fails its checksum may be a leftover of an earlier journal; but if its
            // transaction has a commit block that continues ours in time, the log is damaged.
            let stale = self
                .last_commit
                .is_some_and(|last| (commit.time.sec, commit.time.nsec) < (last.sec, last.nsec));
            return if stale { Ok(false) } else { Err(damage) };
        }
        self.last_commit = Some(commit.time);
        self.pass(1);
        self.sequence = self.sequence.wrapping_add(1);
        let next =
            FoundTransaction { sequence: self.sequence, blocks: Vec::new(), revoked: Vec::new() };
        self.transactions.push(std::mem::replace(&mut self.current, next));
        self.crc = !0;
        self.report.log_blocks = self.passed;
        Ok(true)
    }

    fn commit_is_valid(&self, commit: &CommitBlock, page: &Page) -> bool {
        match self.layout.checksums {
            Checksums::None => true,
            // A transaction from before the feature was set has no checksum at all.
            Checksums::V1 => match commit.transaction_crc {
                Some(crc) => crc == self.crc,
                None => CommitBlock::unsummed(page),
            },
            Checksums::V2 | Checksums::V3 => CommitBlock::verify(&self.layout, page).is_ok(),
        }
    }
}
