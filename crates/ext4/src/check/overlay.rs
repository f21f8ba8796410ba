//! A dirty journal, replayed into memory over the device, which is never written.

use std::sync::Arc;

use block::{DeviceError, Overlay, Queue};
use cache::{BufferCache, BufferConfig};
use jbd2::{JournalArea, JournalError, JournalOptions, RecoveryReport};
use rt::Cx;

use super::findings::Findings;
use super::io::{Io, read_super};
use super::rule::Rule;
use super::{CheckOptions, Checker};
use crate::MountError;
use crate::format::features::Incompat;
use crate::format::{At, Geometry, InodeValues, RawSuper};
use crate::journal_device::JournalDevice;
use crate::mount::replay_fast_commits;

/// Bytes of buffers that the replay may keep.
const REPLAY_CACHE: u64 = 8 << 20;

/// What became of the journal.
pub enum Journal {
    /// Nothing to replay, or nothing that can be.
    Clean,
    /// Replayed: this queue shows the device as a mount would leave it.
    Replayed(Arc<Queue>),
    /// Dirty, and not to be replayed: the check would report what the log puts right.
    Dirty,
}

/// Replays the journal where the superblock asks for it.
///
/// # Errors
/// The device's.
pub fn replay(
    cx: &mut Cx,
    queue: &Arc<Queue>,
    options: &CheckOptions,
    findings: &mut Findings,
) -> Result<Journal, DeviceError> {
    let Some(page) = read_super(cx, queue)? else { return Ok(Journal::Clean) };
    // A superblock that is broken is reported by the check itself.
    let Ok(geometry) = Geometry::parse(&page, 0) else { return Ok(Journal::Clean) };
    let raw = RawSuper::read(&page).expect("1024 bytes");
    let fits = geometry.blocks_count <= queue.bytes() / u64::from(geometry.block_size);
    if !geometry.features.incompat.contains(Incompat::RECOVER) || !fits {
        return Ok(Journal::Clean);
    }
    let at = At::Super(0);
    if !options.replay {
        findings.add(Rule::JournalNeedsRecovery, at, "not replayed");
        return Ok(Journal::Dirty);
    }
    let block_size = geometry.block_size;
    let fs_uuid = geometry.uuid;
    let external = geometry.external_journal();
    let beside = options.journal.as_ref().filter(|_| external);
    let area = match external {
        true => external_area(cx, beside, &raw, findings)?,
        false => journal_area(cx, queue, raw, geometry)?,
    };
    let Some(area) = area else {
        if !external {
            let detail = "needs_recovery is set, no journal can be read";
            findings.add(Rule::JournalInode, at, detail);
        }
        return Ok(Journal::Dirty);
    };
    let Some(replayed) = with_fast_commits(cx, queue, beside, findings)? else {
        return Ok(Journal::Dirty);
    };
    let WithFastCommits { over, beside, fast_commits } = replayed;
    let area = match &beside {
        // Its log is emptied in memory.
        Some(device) => device.area(cx, &raw).unwrap_or(area),
        None => area,
    };
    let config = BufferConfig { block_size, limit_bytes: REPLAY_CACHE, ..Default::default() };
    let cache = BufferCache::new(over.clone(), config);
    let options = JournalOptions { fs_uuid: Some(fs_uuid), ..Default::default() };
    match jbd2::Journal::open(cx, cache.clone(), area, options) {
        Ok((journal, report)) => {
            // Writes nothing but the overlay.
            let ended = journal.shutdown(cx);
            let written = cache.sync(cx);
            let detail = detail(&report.unwrap_or_default(), fast_commits);
            findings.add(Rule::JournalNeedsRecovery, at, detail);
            written?;
            if let Err(errno) = ended {
                findings.add(Rule::JournalError, at, errno.to_string());
            }
            Ok(Journal::Replayed(over))
        }
        Err(JournalError::Device(error)) => Err(error),
        Err(error) => {
            findings.add(Rule::JournalSuper, at, error.to_string());
            Ok(Journal::Dirty)
        }
    }
}

/// Where the log of an external journal lies. None, with a finding, where it cannot be read.
fn external_area(
    cx: &mut Cx,
    beside: Option<&JournalDevice>,
    raw: &RawSuper,
    findings: &mut Findings,
) -> Result<Option<JournalArea>, DeviceError> {
    let at = At::Super(0);
    let Some(device) = beside else {
        findings.add(Rule::JournalNeedsRecovery, at, "its device is not given");
        return Ok(None);
    };
    match device.area(cx, raw) {
        Ok(area) => Ok(Some(area)),
        Err(MountError::Device(error)) => Err(error),
        Err(error) => {
            findings.add(Rule::JournalSuper, at, error.to_string());
            Ok(None)
        }
    }
}

/// A device in memory, with its fast commits and the log before them where it has some.
struct WithFastCommits {
    over: Arc<Queue>,
    /// The device of an external journal, in memory too.
    beside: Option<JournalDevice>,
    /// How many there were.
    fast_commits: u32,
}

impl WithFastCommits {
    fn none_yet(queue: &Arc<Queue>, beside: Option<&JournalDevice>) -> WithFastCommits {
        let beside = beside.map(JournalDevice::overlaid);
        WithFastCommits { over: Overlay::queue(queue), beside, fast_commits: 0 }
    }
}

/// The device after its fast commits. None where they cannot be replayed.
fn with_fast_commits(
    cx: &mut Cx,
    queue: &Arc<Queue>,
    beside: Option<&JournalDevice>,
    findings: &mut Findings,
) -> Result<Option<WithFastCommits>, DeviceError> {
    let tried = WithFastCommits::none_yet(queue, beside);
    match replay_fast_commits(cx, &tried.over, tried.beside.as_ref()) {
        Ok(fast_commits) => Ok(Some(WithFastCommits { fast_commits, ..tried })),
        Err(MountError::Device(error)) => Err(error),
        Err(MountError::FastCommit(bad)) => {
            findings.add(Rule::JournalSuper, At::Super(0), bad.to_string());
            Ok(None)
        }
        // What is wrong is found by the check itself, or by opening the journal.
        Err(_) => Ok(Some(WithFastCommits::none_yet(queue, beside))),
    }
}

fn detail(report: &RecoveryReport, fast_commits: u32) -> String {
    let RecoveryReport { transactions, written, .. } = report;
    match fast_commits {
        0 => format!("replayed into memory: {transactions} transactions, {written} blocks"),
        count => format!("replayed into memory, with {count} fast commits"),
    }
}

/// Where the journal lies, before the replay. None where its inode cannot be followed.
fn journal_area(
    cx: &mut Cx,
    queue: &Arc<Queue>,
    raw: RawSuper,
    geometry: Geometry,
) -> Result<Option<JournalArea>, DeviceError> {
    let mut io = Io::new(cx, queue);
    io.set_block_size(geometry.block_size);
    let ino = geometry.journal_ino;
    // What is wrong before the replay may be put right by it: these findings are dropped.
    let mut checker = Checker::new(io, raw, geometry, Findings::new(0));
    if !checker.groups()? {
        return Ok(None);
    }
    let Some(slot) = checker.read_slot(ino)? else { return Ok(None) };
    let values = InodeValues::read(&slot, &checker.g);
    let mapped = checker.walk(ino, &values, true)?;
    let sum: u64 = mapped.runs.iter().map(|run| run.len).sum();
    if !mapped.complete || sum != mapped.end || sum == 0 {
        return Ok(None);
    }
    let runs = mapped.runs.iter().map(|run| (run.start, run.len as u32));
    Ok(Some(JournalArea::internal(runs)))
}
