//! A read-only check of a whole file system: our own `fsck -n`.
//!
//! Every rule has a stable name ([`Rule`]) and every violation is one [`Finding`] with the place
//! and the numbers. Damaged structures are not followed, and their consequences are not reported:
//! if the extents of a file are broken, its blocks are not reported as lost.
//!
//! Passes, as in e2fsck: superblock, groups and system files; inodes and their blocks; names;
//! connectivity and link counts; bitmaps and counts. A dirty journal is replayed into memory first
//! ([`CheckOptions::replay`]), so that the check sees what a mount would see; the device is never
//! written.
//!
//! Several tasks look at a large file system at once ([`CheckOptions::tasks`]).
//!
//! Memory: two bits per block, 6 bytes per inode in use, the names' hashes of one directory at a
//! time, 24 bytes per run of directory blocks, and some 100 per attribute value in an inode. Time
//! is bounded by the size of the device: a block that maps others is followed once, whoever names
//! it.
//!
//! Source: kernel `Documentation/filesystems/ext4/`, and the verdicts of e2fsck on broken images.

use std::collections::BTreeMap;
use std::sync::Arc;

use base::FsBlock;
use block::{DeviceError, Queue};
use rt::{Cx, Meter};
use vfs::check::{Holder, Watch};

use crate::format::{Geometry, GroupDesc, RawSuper};
use crate::journal_device::JournalDevice;
use findings::Findings;

mod block_map;
mod counted;
mod dirs;
mod encryption;
mod findings;
mod groups;
mod index;
mod inodes;
mod io;
mod links;
mod mapping;
mod overlay;
mod quota;
mod rule;
mod share;
mod summary;
mod system;
mod verity;
mod xattrs;

pub use counted::Counted;
pub use encryption::Policies;
pub use findings::{CheckReport, Finding};
pub use groups::fault_of_copy;
pub use links::WrongLinks;
pub use rule::{Rule, Severity};

use block_map::BlockMap;
use dirs::{DirPass, DirRecord};
use inodes::InodeMap;
use io::Io;
use quota::Usage;
use system::SystemFile;
use xattrs::{Attributes, LargeValues, XattrBlocks};

/// Bytes that a check keeps of a directory at the most, but for one that is cut into many pieces.
const OF_DIRECTORY: u64 = 160;

/// How to check.
#[derive(Clone, Debug)]
pub struct CheckOptions {
    /// Replay a dirty journal into memory before the check. Without it a dirty journal is a finding
    /// and ends the check.
    pub replay: bool,
    /// How many findings to keep; the rest is counted.
    pub findings_max: usize,
    /// The device of an external journal, which is not written either. Without it a dirty one ends
    /// the check.
    pub journal: Option<JournalDevice>,
    /// How many tasks look at it at once; None: one for each processor, where it is large.
    pub tasks: Option<usize>,
    /// Counts what is done: inodes, directories, bitmaps.
    pub meter: Meter,
}

impl Default for CheckOptions {
    fn default() -> CheckOptions {
        CheckOptions {
            replay: true,
            findings_max: 10_000,
            journal: None,
            tasks: None,
            meter: Meter::default(),
        }
    }
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
    passes(cx, queue, options, Watch::default()).map(|passed| passed.report)
}

/// As [`check`], and keeps what it counted where it could follow everything.
///
/// # Errors
/// As [`check`].
pub fn check_counting(
    cx: &mut Cx,
    queue: &Arc<Queue>,
    options: &CheckOptions,
) -> Result<(CheckReport, Option<Counted>), DeviceError> {
    let passed = passes(cx, queue, options, Watch::default())?;
    Ok((passed.report, passed.counted))
}

/// About how many bytes a check of this file system takes: three bits for each block, six bytes for
/// each inode that its group has ever used, [`OF_DIRECTORY`] for each directory. Reads the
/// superblock and the descriptors. Parks on reads.
///
/// # Errors
/// The device's first error.
pub fn memory(cx: &mut Cx, queue: &Arc<Queue>) -> Result<u64, DeviceError> {
    let mut io = Io::new(cx, queue);
    let Some((raw, geometry)) = groups::read_super(&mut io, &mut Findings::new(0))? else {
        return Ok(0);
    };
    io.set_block_size(geometry.block_size);
    let mut checker = Checker::new(io, raw, geometry, Findings::new(0));
    if !checker.groups()? {
        return Ok(0);
    }
    let descs = checker.descs.iter().flatten();
    let of_groups = descs.map(|desc| {
        let most = checker.g.inodes_per_group;
        let inodes = u64::from(most.saturating_sub(desc.itable_unused));
        6 * inodes + OF_DIRECTORY * u64::from(desc.used_dirs.min(most))
    });
    Ok(of_groups.sum::<u64>() + 3 * checker.g.blocks_count.div_ceil(8))
}

/// Says who holds each of these blocks; nobody where a block is free or outside. Goes over the
/// whole file system as [`check`] does, and trusts what it trusts. Parks on reads.
///
/// # Errors
/// The device's first error.
pub fn holders(
    cx: &mut Cx,
    queue: &Arc<Queue>,
    blocks: &[FsBlock],
) -> Result<BTreeMap<u64, Vec<Holder>>, DeviceError> {
    let watch = Watch::new(blocks.iter().map(|block| block.0));
    passes(cx, queue, &CheckOptions::default(), watch).map(|passed| passed.watch.into_holders())
}

/// The device as a replay of its journal would leave it; what would be written stays in memory.
/// None if there is nothing to replay, or if it cannot be. Parks.
///
/// # Errors
/// The device's first error.
pub fn replayed(cx: &mut Cx, queue: &Arc<Queue>) -> Result<Option<Arc<Queue>>, DeviceError> {
    match overlay::replay(cx, queue, &CheckOptions::default(), &mut Findings::new(0))? {
        overlay::Journal::Replayed(over) => Ok(Some(over)),
        overlay::Journal::Clean | overlay::Journal::Dirty => Ok(None),
    }
}

/// What the passes leave.
struct Passed {
    report: CheckReport,
    watch: Watch,
    counted: Option<Counted>,
}

fn passes(
    cx: &mut Cx,
    queue: &Arc<Queue>,
    options: &CheckOptions,
    watch: Watch,
) -> Result<Passed, DeviceError> {
    let mut findings = Findings::new(options.findings_max);
    let replayed = overlay::replay(cx, queue, options, &mut findings)?;
    let (queue, dirty) = match &replayed {
        overlay::Journal::Clean => (queue, false),
        overlay::Journal::Replayed(overlay) => (overlay, false),
        overlay::Journal::Dirty => (queue, true),
    };
    let nothing = |report, watch| Ok(Passed { report, watch, counted: None });
    if dirty {
        return nothing(findings.report(), watch);
    }
    let mut io = Io::new(cx, queue);
    let Some((raw, geometry)) = groups::read_super(&mut io, &mut findings)? else {
        return nothing(findings.report(), watch);
    };
    io.set_block_size(geometry.block_size);
    let mut checker = Checker::new(io, raw, geometry, findings);
    checker.watch = watch;
    checker.io.set_tasks(options.tasks);
    checker.io.meter = options.meter.clone();
    let mut counted = None;
    if checker.groups()? {
        checker.begin_with_inodes();
        checker.system_inodes()?;
        checker.inodes()?;
        checker.system_files()?;
        checker.quota()?;
        checker.xattr_references();
        checker.large_values()?;
        checker.go_on_with_directories();
        checker.directories()?;
        checker.links();
        checker.go_on_with_bitmaps();
        checker.summary()?;
        counted = Counted::of(&mut checker);
    }
    let Checker { findings, watch, .. } = checker;
    Ok(Passed { report: findings.report(), watch, counted })
}

/// Everything that the passes share.
struct Checker<'a> {
    io: Io<'a>,
    raw: RawSuper,
    g: Geometry,
    findings: Findings,
    /// None where a descriptor's places are wrong: that group is left out.
    descs: Vec<Option<GroupDesc>>,
    /// Blocks of superblocks, descriptors, bitmaps and tables.
    meta: BlockMap,
    /// All blocks in use, `meta` included.
    used: BlockMap,
    /// Those that hold the content of files and nothing else, where files may share them
    /// (`shared_blocks`).
    shareable: Option<BlockMap>,
    inodes: InodeMap,
    dirs: Vec<DirRecord>,
    xattrs: XattrBlocks,
    values: LargeValues,
    /// What the attributes of the inode that is being looked at add to it.
    attributes: Attributes,
    /// The value of its attribute that holds content.
    inline_value: Option<Vec<u8>>,
    /// The encryption context among them.
    context: Option<Vec<u8>>,
    policies: Policies,
    system: Vec<SystemFile>,
    /// Inodes that await their deletion.
    orphans: Vec<u32>,
    /// Features that are missing, and were reported.
    missing: Vec<&'static str>,
    /// What each owner, group and project uses.
    usage: Usage,
    /// Some blocks in use are unknown: a bitmap's surplus bits prove nothing.
    blocks_unknown: bool,
    /// What the third pass finds.
    pass: DirPass,
    /// Blocks whose holders were asked for.
    watch: Watch,
}

impl<'a> Checker<'a> {
    fn new(io: Io<'a>, raw: RawSuper, g: Geometry, findings: Findings) -> Checker<'a> {
        Checker {
            io,
            raw,
            findings,
            descs: Vec::new(),
            meta: BlockMap::new(&g),
            used: BlockMap::new(&g),
            shareable: BlockMap::shareable(&g),
            inodes: InodeMap::new(&g),
            dirs: Vec::new(),
            xattrs: XattrBlocks::default(),
            values: LargeValues::default(),
            attributes: Attributes::default(),
            inline_value: None,
            context: None,
            policies: Policies::default(),
            system: Vec::new(),
            orphans: Vec::new(),
            missing: Vec::new(),
            usage: Usage::default(),
            blocks_unknown: false,
            pass: DirPass::default(),
            watch: Watch::default(),
            g,
        }
    }

    /// True where the blocks may belong to a file by their numbers.
    fn in_range(&self, block: FsBlock, len: u64) -> bool {
        self.g.data_blocks_valid(block.0, len)
    }
}
