//! The plan for XFS of version 5: rounds of passes over a view, until the check finds nothing.
//!
//! The inodes and their forks decide who owns the blocks. The headers and btrees of a group follow
//! from them, and are rewritten if anything in the group is wrong.
//!
//! The actions depend on each other: if one is declined, nothing is written.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use base::{Ino, Sector};
use block::{DeviceError, Queue};
use rt::Cx;
use xfs::format::ag::RawAgi;
use xfs::format::log::Lsn;
use xfs::format::record::FreeExtent;
use xfs::format::{AgHeader, AgInode, At, Geometry, Kind, RawSuper};
use xfs::mount::options::BesideDevice;
use xfs::{CheckOptions, Count, Rule};

use crate::plan::{Change, Decisions, Finding, Plan};
use crate::view::View;
use crate::{PlanOptions, RepairError};

mod attr_build;
mod attributes;
mod chunks;
mod claims;
mod connect;
mod contents;
mod counted;
mod dir_build;
mod forks;
mod group_build;
mod groups;
mod inodes;
mod log;
mod lsn;
mod meta;
mod metadata;
mod names;
mod quota;
mod room;
mod sane;
mod section;
mod section_files;
mod section_trees;
mod shrink;
mod space;
mod store;
mod strays;
mod super_block;
mod targets;
mod tree_build;
mod tree_hash;
mod tree_read;
mod undelete;
mod witness;

pub use shrink::{plan as plan_shrink, plan_least as plan_least_shrink};
pub use undelete::deleted;

use groups::Group;
use inodes::Inode;
use lsn::Ahead;
use names::Directory;
use section::SectionGroup;
use tree_read::Walked;

/// Rounds at the most: what one round moves may show the next one something.
const ROUNDS: usize = 6;
/// Bytes that an inode in use takes while all are kept, its forks and names included.
const OF_INODE: u64 = 700;
/// Findings of the check that a round looks at.
const FINDINGS_MAX: usize = 100_000;

/// The places that the check complains about.
#[derive(Default)]
struct Suspects {
    /// Inodes, and the rules.
    inodes: BTreeMap<u64, BTreeSet<Rule>>,
    /// Groups whose headers or btrees are wrong.
    groups: BTreeSet<u32>,
    /// Groups with wrong lists of unlinked inodes, and what is wrong with the first.
    lists: BTreeMap<u32, String>,
    /// The rules alone.
    rules: BTreeSet<Rule>,
}

/// One file system that is being repaired.
struct Fs<'a> {
    view: View<'a>,
    findings: Vec<Finding>,
    g: Geometry,
    raw: RawSuper,
    suspects: Suspects,
    groups: Vec<Group>,
    /// Those of the realtime section: one where it is not divided, none where there is no section.
    section: Vec<SectionGroup>,
    /// The records of btrees of the section as far as they could be read, by the inodes that hold
    /// their roots.
    tree_records: BTreeMap<u64, Walked>,
    /// Inodes in use.
    inodes: BTreeMap<u64, Inode>,
    /// Directories, by their inodes.
    dirs: BTreeMap<u64, Directory>,
    /// Free blocks of each group, once they were counted.
    spare: Option<Vec<Vec<FreeExtent>>>,
    /// Groups whose owners changed: their btrees are written anew.
    touched: BTreeSet<u32>,
    /// Contents that lie where others belong, by the block that they belong into.
    strays: BTreeMap<u64, Vec<u8>>,
    /// Inodes that lie in the place of others, by their numbers.
    stray_inodes: BTreeMap<u64, Vec<u8>>,
    /// Blocks that hold inodes of another place.
    elsewhere: BTreeSet<u64>,
    /// Blocks are put right where they say how; nothing is cleared or written anew yet.
    healing: bool,
    /// A stray block was found: its place may have been read before.
    again: bool,
    /// A part of a directory could not be read.
    names_damaged: bool,
    /// The inodes with records of quota, by kind.
    quota_inos: [Option<u64>; 3],
    /// The device of an external log.
    log: Option<BesideDevice>,
    /// The log is made empty.
    log_emptied: bool,
    /// The newest cycle of the log that metadata name.
    newest_cycle: u32,
    /// Where the log ends; where that is not known, the record that the superblock names.
    log_end: Lsn,
    /// Metadata that is ahead of it, by its place in bytes.
    ahead: BTreeMap<u64, Ahead>,
    /// The most memory.
    memory: Option<u64>,
}

/// True where the first sector is a superblock of XFS by its magic number. Parks.
pub fn is_here(cx: &mut Cx, queue: &Arc<Queue>) -> Result<bool, DeviceError> {
    let unit = queue.info().logical_block.max(1024) as usize;
    if queue.info().bytes() < unit as u64 {
        return Ok(false);
    }
    let page = queue.read(cx, Sector(0), unit)?;
    let raw = RawSuper::view(&page).expect("a sector holds it");
    Ok(raw.sb_magicnum.get() == xfs::format::super_block::MAGIC)
}

/// Plans a repair.
///
/// # Errors
/// See [`RepairError`].
pub fn plan(
    cx: &mut Cx,
    queue: &Arc<Queue>,
    options: &PlanOptions,
    decide: &mut dyn FnMut(&Finding) -> bool,
) -> Result<Plan, RepairError> {
    let mut view = View::new(cx, queue);
    view.meter = options.meter.clone();
    let mut fs = Fs::open(view, options)?;
    fs.memory = options.memory;
    if fs.log_emptied {
        fs.heal()?;
        fs.renew_log();
    }
    let (mut left, counts) = fs.judge()?;
    if !left.is_empty() && fs.take_counts(&counts)? {
        left = fs.counts_left(&counts)?;
    }
    if !left.is_empty() {
        crate::afford(fs.memory_of_rounds()?, options.memory)?;
        let before = fs.findings.len();
        fs.heal()?;
        if before != fs.findings.len() {
            (left, _) = fs.judge()?;
        }
    }
    for _ in 0..ROUNDS {
        if left.is_empty() {
            break;
        }
        let before = fs.findings.len();
        fs.round()?;
        let (now, _) = fs.judge()?;
        let stuck = now == left && before == fs.findings.len() && !fs.again;
        left = now;
        if stuck {
            break;
        }
    }
    fs.renew_log();
    let Fs { view, findings, g, .. } = fs;
    let mut out = Decisions::new(decide);
    for finding in findings {
        out.ask(finding);
    }
    let (findings, declined) = out.finish();
    let mut changes = view.into_changes()?;
    if !declined.is_empty() {
        changes.clear();
    }
    let size = g.block_size as usize;
    if changes.first().is_some_and(|first| first.offset > 0) {
        // The mark lies in the superblock, changed or not.
        let old = queue.read(cx, Sector(0), size)?.to_vec().into_boxed_slice();
        changes.insert(0, Change { offset: 0, new: old.clone(), old });
    }
    Ok(Plan { findings, declined, left, changes, superblock: 0 })
}

/// A finding whose action follows from what is there.
fn safe(rule: Rule, at: impl ToString, detail: impl Into<String>, action: &str) -> Finding {
    Finding {
        rule: rule.name(),
        at: at.to_string(),
        detail: detail.into(),
        action: action.into(),
        loss: None,
        safe: true,
    }
}

/// A finding whose action loses something, or guesses.
fn lossy(
    rule: Rule,
    at: impl ToString,
    detail: impl Into<String>,
    action: &str,
    loss: &str,
) -> Finding {
    Finding { loss: Some(loss.into()), safe: false, ..safe(rule, at, detail, action) }
}

impl<'a> Fs<'a> {
    /// The superblock, restored where it must be, and the log recovered.
    fn open(view: View<'a>, options: &PlanOptions) -> Result<Fs<'a>, RepairError> {
        let mut fs = super_block::open(view)?;
        fs.log.clone_from(&options.log);
        fs.recover_log(options.zero_log)?;
        fs.reread()?;
        Ok(fs)
    }

    /// Reads the superblock again.
    fn reread(&mut self) -> Result<(), RepairError> {
        let bytes = self.view.read_bytes(0, self.g.sector_size as usize)?;
        self.g = Geometry::parse(&bytes, At::Super(0))
            .map_err(|corrupt| RepairError::Hopeless(corrupt.to_string()))?;
        self.raw = *RawSuper::view(&bytes).expect("a sector holds it");
        Ok(())
    }

    /// About how many bytes it takes to read and keep all inodes. A superblock that was restored
    /// has the counts of mkfs: the groups know of more.
    fn memory_of_rounds(&mut self) -> Result<u64, DeviceError> {
        let raw = &self.raw;
        let most = self.g.blocks_count().saturating_mul(self.g.inodes_per_block().into());
        let used = raw.sb_icount.get().saturating_sub(raw.sb_ifree.get());
        let mut of_groups = 0;
        for ag in 0..self.g.ag_count() {
            let place = self.g.header_sector(ag, AgHeader::Agi).bytes();
            let sector = self.view.read_bytes(place, self.g.sector_size as usize)?;
            let is_one = Kind::recognise(&sector) == Some(Kind::Agi);
            let agi = RawAgi::view(&sector).filter(|_| is_one);
            let used = |agi: &RawAgi| agi.agi_count.get().saturating_sub(agi.agi_freecount.get());
            of_groups += agi.map_or(0, |agi| u64::from(used(agi)));
        }
        Ok(used.max(of_groups).min(most) * OF_INODE + self.g.blocks_count().div_ceil(8))
    }

    /// What the check says about the state that the plan would leave, and the numbers that it has
    /// counted otherwise.
    fn judge(&mut self) -> Result<(Vec<String>, Vec<Count>), DeviceError> {
        let (_, queue) = self.view.overlay()?;
        let meter = self.view.meter.clone();
        let mut options =
            CheckOptions { findings_max: FINDINGS_MAX, meter, ..CheckOptions::default() };
        options.memory = self.memory.map_or(options.memory, |most| most.min(options.memory));
        let log = self.log.as_ref();
        let (report, counts) = xfs::check_counting(self.view.cx(), &queue, log, &options)?;
        self.suspects = Suspects::default();
        for finding in &report.findings {
            self.suspects.rules.insert(finding.rule);
            if finding.rule == Rule::UnlinkedList {
                let ag = match finding.at {
                    At::Inode(ino) => self.g.ino_split(ino).ag,
                    At::Agi(ag) => ag,
                    _ => continue,
                };
                self.suspects.lists.entry(ag).or_insert_with(|| finding.detail.clone());
                continue;
            }
            match finding.at {
                At::Inode(ino) | At::InodeBlock(ino, _) => {
                    self.suspects.inodes.entry(ino.0).or_default().insert(finding.rule);
                }
                At::Agf(ag) | At::Agfl(ag) | At::Agi(ag) | At::AgBlock(ag, _) => {
                    self.suspects.groups.insert(ag);
                }
                _ => {}
            }
        }
        let left = report.findings.iter().filter(|finding| finding.rule != Rule::LogReplayed);
        let mut left: Vec<String> = left.map(ToString::to_string).collect();
        if report.more > 0 {
            left.push(format!("and {} more", report.more));
        }
        Ok((left, counts))
    }

    /// Reads everything, so that blocks are put right that say themselves what they should be.
    fn heal(&mut self) -> Result<(), RepairError> {
        self.healing = true;
        for _ in 0..ROUNDS {
            self.again = false;
            self.read_groups()?;
            self.find_chunks()?;
            self.read_inodes()?;
            self.read_contents()?;
            if !self.again {
                break;
            }
        }
        self.healing = false;
        Ok(self.settle_lsns()?)
    }

    /// All passes once.
    fn round(&mut self) -> Result<(), RepairError> {
        self.again = false;
        self.touched.clear();
        self.reread()?;
        self.read_groups()?;
        self.find_chunks()?;
        self.root_chunk()?;
        self.whole_blocks()?;
        self.read_inodes()?;
        self.spare = None;
        let before = self.claims();
        self.settle_claims()?;
        self.read_targets()?;
        self.read_pointers()?;
        self.read_names()?;
        self.spare = None;
        self.connect()?;
        self.write_section()?;
        self.store_inodes()?;
        self.write_groups(&before)?;
        self.write_copies()?;
        Ok(self.settle_lsns()?)
    }

    /// Adds a finding.
    fn note(&mut self, finding: Finding) {
        if !self.findings.contains(&finding) {
            self.findings.push(finding);
        }
    }

    /// The inode of a number in a group.
    fn ino(&self, ag: u32, agino: u32) -> Ino {
        self.g.ino_join(AgInode { ag, agino })
    }
}
