//! A read-only fsck: every rule by name, nothing is changed.
//!
//! The passes: superblock and its copies; headers and btrees of each group; inodes with both forks,
//! directories and attributes; then what only the whole shows: who owns each block, reverse
//! mappings and reference counts, names and links, unlinked lists, counters.
//!
//! What only the whole shows is first known by [`sums`], which take no memory for each inode or
//! block. Only where they differ the records themselves are collected, by going over the file
//! system again, and compared one by one ([`stage`]).
//!
//! Several tasks look at the inodes of a large file system at once ([`CheckOptions::tasks`]).
//!
//! A pass that cannot read something says so and marks what follows from it as unknown, so that
//! one damage is not reported many times.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use base::Ino;
use block::{DeviceError, Queue};
use rt::Cx;
use vfs::check::{Holder, Tasks, Watch};

use crate::buf::meta::Reader;
use crate::error::{Fault, XfsError};
use crate::format::features::Beside;
use crate::format::log::Lsn;
use crate::format::record::Rmap;
use crate::format::{Access, At, Geometry, RawSuper};
use crate::log::{BesideDevice, LogError, LogGeometry, recovery};
use crate::mount::recovery::recover_in_memory;
use crate::mount::{self, MountError};

mod attrs;
mod blocks;
mod counts;
mod da_tree;
mod dirs;
mod findings;
mod groups;
mod holders;
mod inodes;
mod links;
mod lsn;
mod parents;
mod progress;
mod quota;
mod realtime;
mod records;
mod rule;
mod share;
mod stage;
mod summary;
mod sums;
mod tree;

pub use counts::{Count, Counter, check_counts};
pub use findings::{CheckReport, Finding};
pub use rule::Rule;

use findings::Findings;
use groups::Group;
use lsn::Newest;
use records::{Blocks, Known, Links};
use stage::Stage;
use sums::{Key, Sums};

/// Most bytes of metadata that a check keeps in memory.
const CACHE: u64 = 64 << 20;
/// The least that it keeps.
const CACHE_MIN: u64 = 1 << 20;
/// The least memory for records that are compared one by one.
const RECORDS_MIN: u64 = 64 << 10;

/// How to check.
#[derive(Clone, Debug)]
pub struct CheckOptions {
    /// Replay a dirty log into memory first; otherwise such a file system is not looked at.
    pub recover: bool,
    /// How many findings to keep; the rest is counted.
    pub findings_max: usize,
    /// Counts what is done: groups, inodes, then owners and names.
    pub meter: rt::Meter,
    /// Bytes for metadata that is kept, and for records that are compared; some MiB at least. With
    /// less, what is wrong is looked at in more passes. Beside it a check takes 16 bytes for each
    /// directory and each inode without a name, 24 for 64 inodes, 8 for each shared run of blocks,
    /// and what the realtime section and quota need.
    pub memory: u64,
    /// Compares record by record also where the sums agree.
    pub every_record: bool,
    /// How many tasks look at the inodes at once; None: one for each processor, where there are
    /// many. In virtual time it is one.
    pub tasks: Option<usize>,
}

impl Default for CheckOptions {
    fn default() -> CheckOptions {
        CheckOptions {
            recover: true,
            findings_max: 10_000,
            meter: rt::Meter::default(),
            memory: 512 << 20,
            every_record: false,
            tasks: None,
        }
    }
}

/// Everything that the passes share.
struct Checker<'a> {
    cx: &'a mut Cx,
    reader: Reader,
    raw: RawSuper,
    findings: Findings,
    groups: Vec<Group>,
    /// The root, and that of the metadata directory.
    roots: Vec<Ino>,
    /// Inodes that need no name.
    system: Vec<Ino>,
    /// The inode that is being read.
    current: Option<Known>,
    /// What the unlinked lists hold.
    lists: links::Lists,
    /// Blocks whose holders are noted.
    watch: Watch,
    /// What shows whether anything differs.
    sums: Sums,
    /// Whether sums are made, or records collected.
    stage: Stage,
    tasks: Tasks,
    /// Bytes of metadata that all tasks beside the first keep.
    shares_cache: u64,
    /// The records of blocks, if they are compared one by one.
    blocks: Option<Blocks>,
    /// The same for inodes and names.
    links: Option<Links>,
    /// Some owners could not be read: unowned blocks prove nothing.
    owners_unknown: bool,
    /// Some directories could not be read: missing names prove nothing.
    names_unknown: bool,
    /// What was written last, of what is not in the buffers.
    newest: Newest,
    /// Blocks of forks' trees seen in one inode.
    seen: BTreeSet<u64>,
    /// Counters and numbers of links that are wrong.
    counts: Vec<Count>,
    /// What the owners of inodes have.
    usage: quota::Counted,
    /// The inodes that hold the records of quota, by kind.
    quota_inos: [Option<u64>; 3],
    /// Extents of the realtime section that files have.
    realtime: realtime::Claims,
    /// What files have of each group of the section, where it has btrees.
    section_claims: Vec<Vec<Rmap>>,
    /// The records of these btrees, by the inodes that hold their roots, of those that are whole.
    section_trees: BTreeMap<u64, Vec<u8>>,
    /// Counts inodes, and what else there is in proportion to them.
    meter: rt::Meter,
}

/// Checks a file system without changing it. Parks on reads.
///
/// # Errors
/// The device's first error. A broken file system is no error but findings.
pub fn check(
    cx: &mut Cx,
    queue: &Arc<Queue>,
    options: &CheckOptions,
) -> Result<CheckReport, DeviceError> {
    check_beside(cx, queue, None, options)
}

/// As [`check`], where an external log lies on `log`; without one such a file system is looked at
/// as it lies on its disk. Parks on reads.
///
/// # Errors
/// A device's first error.
pub fn check_beside(
    cx: &mut Cx,
    queue: &Arc<Queue>,
    log: Option<&BesideDevice>,
    options: &CheckOptions,
) -> Result<CheckReport, DeviceError> {
    run(cx, queue, log, options, &mut Watch::default()).map(|(report, _)| report)
}

/// As [`check_beside`], with the counters and numbers of links that are wrong.
///
/// # Errors
/// A device's first error.
pub fn check_counting(
    cx: &mut Cx,
    queue: &Arc<Queue>,
    log: Option<&BesideDevice>,
    options: &CheckOptions,
) -> Result<(CheckReport, Vec<Count>), DeviceError> {
    run(cx, queue, log, options, &mut Watch::default())
}

/// Says who holds each of these blocks, which count from the start of the device; nobody where a
/// block is free or outside. Goes over the whole file system as [`check`] does. Parks on reads.
///
/// # Errors
/// The device's first error.
pub fn holders(
    cx: &mut Cx,
    queue: &Arc<Queue>,
    blocks: &[u64],
) -> Result<BTreeMap<u64, Vec<Holder>>, DeviceError> {
    let mut watch = Watch::new(blocks.iter().copied());
    run(cx, queue, None, &CheckOptions::default(), &mut watch)?;
    Ok(watch.into_holders())
}

fn run(
    cx: &mut Cx,
    queue: &Arc<Queue>,
    log: Option<&BesideDevice>,
    options: &CheckOptions,
    watch: &mut Watch,
) -> Result<(CheckReport, Vec<Count>), DeviceError> {
    let mut findings = Findings::new(options.findings_max);
    let Some(Begun { device, raw, geometry, log_end }) =
        begin(cx, queue, log, options, &mut findings)?
    else {
        return Ok((findings.report(), Vec::new()));
    };
    // Recovery leaves the sums of a file system that may not be written to its next mount.
    let beside = Beside { realtime: true, log: log.is_some() };
    let writable = geometry.features.access_beside(beside).0 == Access::ReadWrite;
    let summed = writable || Arc::ptr_eq(queue, &device);
    let cache = (options.memory / 2).clamp(CACHE_MIN, CACHE);
    let records = options.memory.saturating_sub(cache).max(RECORDS_MIN);
    let reader = mount::reader(&device, geometry, cache);
    let mut checker = Checker::new(cx, reader, raw, findings);
    checker.meter = options.meter.clone();
    checker.tasks = Tasks::new(checker.cx.runtime(), options.tasks, share::WORTH);
    checker.shares_cache = cache;
    checker.watch = std::mem::take(watch);
    checker.begin_with_groups();
    checker.backups()?;
    checker.headers()?;
    checker.find_quota()?;
    checker.go_on_with_inodes();
    checker.inode_pass()?;
    checker.log_pass(log_end);
    *watch = std::mem::take(&mut checker.watch);
    checker.whole_pass(records, options.every_record)?;
    if summed {
        checker.quota_pass()?;
    }
    if summed {
        checker.summary();
    }
    checker.meter.add(u64::MAX);
    Ok((checker.findings.report(), checker.counts))
}

/// What there is to check.
struct Begun {
    /// The device, with its log recovered.
    device: Arc<Queue>,
    raw: RawSuper,
    geometry: Geometry,
    /// Where the log ends; None where there is none, or metadata says nothing of it.
    log_end: Option<Lsn>,
}

/// The superblock, and the device with its log recovered; none if they say that nothing else can
/// be looked at.
fn begin(
    cx: &mut Cx,
    queue: &Arc<Queue>,
    log: Option<&BesideDevice>,
    options: &CheckOptions,
    findings: &mut Findings,
) -> Result<Option<Begun>, DeviceError> {
    let Some((raw, geometry)) = read_super(cx, queue, findings)? else { return Ok(None) };
    let internal = (geometry.log_start.0 != 0).then_some(queue);
    let records = log.map(|device| &device.0).or(internal);
    if !options.recover {
        let clean = match records {
            Some(records) => recovery::is_clean(cx, records, &geometry)?,
            None => true,
        };
        if clean {
            let log_end = start_of_log(cx, records, &geometry, findings)?;
            return Ok(Some(Begun { device: queue.clone(), raw, geometry, log_end }));
        }
        let text = "the log holds changes that are not on the disk: replay it first";
        findings.add(Rule::LogDirty, At::Log(0), text);
        return Ok(None);
    }
    match recover_in_memory(cx, queue, &geometry, log) {
        Ok(None) => {
            let log_end = start_of_log(cx, records, &geometry, findings)?;
            Ok(Some(Begun { device: queue.clone(), raw, geometry, log_end }))
        }
        Ok(Some((over, replayed))) => {
            findings.add(Rule::LogReplayed, At::Log(0), format!("into memory: {replayed}"));
            start_of_log(cx, records, &geometry, findings)?;
            // What the log announced was carried out, with records of its own.
            let inside = internal.map(|_| recovery::find(cx, &over, LogGeometry::of(&geometry)));
            let log_end = inside.and_then(|found| end_of(&found.ok()?, &geometry));
            let again = read_super(cx, &over, findings)?;
            Ok(again.map(|(raw, geometry)| Begun { device: over, raw, geometry, log_end }))
        }
        Err(XfsError::Device(error)) => Err(error),
        Err(XfsError::Log(LogError::Device(error))) => Err(error),
        Err(error) => {
            findings.add(Rule::LogDirty, At::Log(0), format!("cannot be replayed: {error}"));
            Ok(None)
        }
    }
}

/// A record of the log that recovery, or that of Linux, does not take.
fn damaged_record(found: &recovery::FoundHead, findings: &mut Findings) {
    if let Some(damaged) = found.damaged {
        findings.add(Rule::LogRecord, At::Log(damaged.at.block), damaged.to_string());
    }
    if let Some(hole) = found.hole {
        let text = format!("{}: the log ends at {}", recovery::HOLE, found.head.head);
        findings.add(Rule::LogRecord, At::Log(hole.block), text);
    }
}

/// The first block of the log, if there is one, and what lies behind its end; where that is.
fn start_of_log(
    cx: &mut Cx,
    records: Option<&Arc<Queue>>,
    geometry: &Geometry,
    findings: &mut Findings,
) -> Result<Option<Lsn>, DeviceError> {
    let Some(records) = records else { return Ok(None) };
    let log = LogGeometry::of(geometry);
    let found = recovery::find(cx, records, log).ok();
    found.iter().for_each(|found| damaged_record(found, findings));
    match recovery::starts_whole(cx, records, log) {
        Ok(true) => (),
        Err(XfsError::Device(error) | XfsError::Log(LogError::Device(error))) => return Err(error),
        _ => findings.add(
            Rule::LogStart,
            At::Log(0),
            "is of no cycle that follows on the last, or zeroed",
        ),
    }
    Ok(found.and_then(|found| end_of(&found, geometry)))
}

/// Where a log ends, if metadata says how far it had come.
fn end_of(found: &recovery::FoundHead, geometry: &Geometry) -> Option<Lsn> {
    (!geometry.v4()).then_some(found.head.head)
}

/// The roots, and the other inodes that need no name.
fn nameless(raw: &RawSuper, geometry: &Geometry) -> [Vec<Ino>; 2] {
    let roots = [geometry.root_ino].into_iter().chain(geometry.metadata_root).collect();
    let quota = [&raw.sb_uquotino, &raw.sb_gquotino, &raw.sb_pquotino];
    let system = quota.map(|ino| Ino(ino.get())).into_iter().chain(geometry.realtime_inos);
    [roots, system.filter(|&ino| ino != Ino(0)).collect()]
}

/// The superblock, where it allows to read on.
fn read_super(
    cx: &mut Cx,
    queue: &Arc<Queue>,
    findings: &mut Findings,
) -> Result<Option<(RawSuper, Geometry)>, DeviceError> {
    let read = mount::read_super(cx, queue);
    match read
        .and_then(|both| mount::check_features(&both.1, true, Beside::default()).map(|()| both))
    {
        Ok(both) => return Ok(Some(both)),
        Err(MountError::Device(error)) => return Err(error),
        Err(MountError::Corrupt(corrupt)) => findings.corrupt(&corrupt),
        Err(other) => findings.add(Rule::Feature, At::Super(0), other.to_string()),
    }
    Ok(None)
}

impl<'a> Checker<'a> {
    fn new(cx: &'a mut Cx, reader: Reader, raw: RawSuper, findings: Findings) -> Checker<'a> {
        let sums = Sums::new(Key::new(cx), &reader.geometry);
        let [roots, system] = nameless(&raw, &reader.geometry);
        Checker {
            section_claims: vec![Vec::new(); reader.geometry.realtime.group_count() as usize],
            cx,
            reader,
            raw,
            findings,
            groups: Vec::new(),
            roots,
            system,
            current: None,
            lists: links::Lists::default(),
            watch: Watch::default(),
            sums,
            stage: Stage::Sums,
            tasks: Tasks::ONE,
            shares_cache: 0,
            blocks: None,
            links: None,
            owners_unknown: false,
            names_unknown: false,
            newest: Newest::none(),
            seen: BTreeSet::new(),
            counts: Vec::new(),
            usage: quota::Counted::new(),
            quota_inos: [None; 3],
            realtime: realtime::Claims::new(),
            section_trees: BTreeMap::new(),
            meter: rt::Meter::default(),
        }
    }

    fn geometry(&self) -> Arc<Geometry> {
        self.reader.geometry.clone()
    }

    /// The value, or a finding in its place.
    fn keep<T>(&mut self, result: Result<T, Fault>) -> Result<Option<T>, DeviceError> {
        match result {
            Ok(value) => Ok(Some(value)),
            Err(Fault::Device(error)) => Err(error),
            Err(Fault::Corrupt(corrupt)) => {
                self.findings.corrupt(&corrupt);
                Ok(None)
            }
            Err(Fault::Unsupported(what)) => {
                self.findings.add(Rule::Feature, At::Super(0), what);
                Ok(None)
            }
            Err(fault @ Fault::Answer(_)) => {
                self.findings.add(Rule::Feature, At::Super(0), fault.to_string());
                Ok(None)
            }
        }
    }
}
