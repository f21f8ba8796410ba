//! The plan for ext2, ext3 and ext4: rounds of passes over a view, until the check finds nothing.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;

use base::{FsBlock, Ino};
use block::{DeviceError, Queue};
use ext4::format::super_block::{SUPER_OFFSET, SUPER_SIZE};
use ext4::format::{Geometry, GroupDesc, InodeValues, RawSuper};
use ext4::{CheckOptions, Counted, Rule};
use rt::Cx;

use crate::plan::{Decisions, Finding, Plan};
use crate::view::View;
use crate::{PlanOptions, RepairError};

mod alloc;
mod attributes;
mod bits;
mod claims;
mod connect;
mod counted;
mod dir_build;
mod dirs;
mod groups;
mod history;
mod indirect;
mod inodes;
mod journal;
pub mod map;
mod map_build;
mod mmp;
mod named;
mod quotas;
mod super_block;
mod system;
mod totals;
pub mod undelete;
mod values;

pub(crate) use bits::Bits;
use connect::Tree;
use counted::Light;
use dirs::Name;
use history::History;
use inodes::Inode;

/// Rounds at the most: what one round moves may show the next one something.
const ROUNDS: usize = 6;
/// Bytes that an inode in use takes while all are kept, its map and names included.
const OF_INODE: u64 = 300;
/// Findings of the check that a round looks at.
const FINDINGS_MAX: usize = 100_000;

/// Where an inode's slot names a fragment.
const OBSOLETE: std::ops::Range<usize> = 0x70..0x74;

/// The places that the check complains about.
#[derive(Default)]
pub struct Suspects {
    /// By inode: the rules.
    pub inodes: BTreeMap<u32, BTreeSet<Rule>>,
    /// The rules alone.
    pub rules: BTreeSet<Rule>,
}

/// One file system that is being repaired.
pub struct Fs<'a> {
    view: View<'a>,
    out: Decisions<'a>,
    g: Geometry,
    raw: RawSuper,
    descs: Vec<GroupDesc>,
    /// Groups whose descriptor came from a copy: their flags say nothing.
    stale: BTreeSet<u32>,
    /// Groups in whose tables an inode was found behind those that count as used.
    whole: BTreeSet<u32>,
    /// Inodes without links that a name holds.
    held: BTreeSet<u32>,
    suspects: Suspects,
    /// What a check has counted, while nothing else is needed.
    counted: Option<Counted>,
    meta: Bits,
    used: Bits,
    twice: Bits,
    inodes: BTreeMap<u32, Inode>,
    /// Attribute blocks and the inodes that name them.
    shared: BTreeMap<u64, u32>,
    /// Inodes that hold values of attributes.
    large: BTreeMap<u32, values::Value>,
    /// Directories that are written anew, with what they hold.
    rebuilt: BTreeMap<u32, Vec<Name>>,
    /// The superblock came from a copy: it does not know whether the journal must be replayed.
    from_copy: bool,
    /// Older copies of blocks, once they were asked for.
    history: Option<History>,
    /// The encryption policies that were seen.
    policies: ext4::Policies,
    /// The encryption context of the inode at hand.
    context: Option<Vec<u8>>,
    /// What is known of the names.
    tree: Tree,
    /// The block of multi-mount protection lies where nothing else does.
    mmp_marked: bool,
    /// The round found an inode that it had not read: the next one reads it.
    again: bool,
    /// Inodes in whose slots others lie, and which.
    overlain: BTreeMap<u32, u32>,
    /// Maps are of removed inodes: nodes that are empty by now are read as they were.
    of_deleted: bool,
}

/// True where a superblock lies in its place that could be one. Parks.
pub fn is_here(cx: &mut Cx, queue: &Arc<Queue>) -> Result<bool, DeviceError> {
    if queue.info().bytes() < SUPER_OFFSET + SUPER_SIZE as u64 {
        return Ok(false);
    }
    let bytes = View::new(cx, queue).read_bytes(SUPER_OFFSET, SUPER_SIZE)?;
    Ok(Geometry::parse(&bytes, 0).is_ok())
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
    let place = match options.format {
        Some(crate::Format::Ext { superblock }) => superblock,
        _ => None,
    };
    let mut fs = Fs::open(view, Decisions::new(decide), place)?;
    let (mut left, light) = fs.judge()?;
    if let Some(light) = light.filter(|_| !left.is_empty())
        && fs.take_counts(light)?
    {
        left.clear();
    }
    if !left.is_empty() {
        crate::afford(fs.memory_of_rounds()?, options.memory)?;
    }
    for _ in 0..ROUNDS {
        if left.is_empty() {
            break;
        }
        let before = fs.out.count();
        fs.round()?;
        let (now, _) = fs.judge()?;
        let stuck = now == left && before == fs.out.count() && !fs.again;
        left = now;
        if stuck {
            break;
        }
    }
    let Fs { view, out, g, .. } = fs;
    let (findings, declined) = out.finish();
    let superblock = SUPER_OFFSET / u64::from(g.block_size) * u64::from(g.block_size);
    let mut changes = view.into_changes()?;
    if !findings.is_empty() && declined.len() == findings.len() {
        // Not even the time of a check is stored.
        changes.clear();
    }
    Ok(Plan { findings, declined, left, changes, superblock })
}

impl<'a> Fs<'a> {
    /// The superblock and the descriptors, restored where they must be, and the journal replayed.
    fn open(view: View<'a>, out: Decisions<'a>, place: Option<u64>) -> Result<Fs<'a>, RepairError> {
        let mut fs = super_block::open(view, out, place)?;
        fs.ensure_unused()?;
        fs.clear_start()?;
        fs.descriptors()?;
        fs.named_inodes()?;
        if fs.replay()? {
            fs.reread()?;
            fs.descriptors()?;
        }
        Ok(fs)
    }

    /// Clears the superblock of an XFS that lies before that of this file system: whoever looks
    /// from the start on takes it for that.
    fn clear_start(&mut self) -> Result<(), DeviceError> {
        let start = self.view.read_bytes(0, SUPER_OFFSET as usize)?;
        if !start.starts_with(&xfs::format::super_block::MAGIC.to_be_bytes()) {
            return Ok(());
        }
        let (at, detail) = ("the bytes before the superblock", "hold the superblock of an XFS");
        let loss = "that XFS, if it is the one that is wanted";
        if self.lossy(Rule::SuperMagic, at, detail, "clear them", loss) {
            self.view.write_bytes(0, &vec![0; start.len()])?;
        }
        Ok(())
    }

    /// Reads the superblock again, after a replay.
    fn reread(&mut self) -> Result<(), RepairError> {
        let bytes = self.view.read_bytes(SUPER_OFFSET, SUPER_SIZE)?;
        if let Ok(geometry) = Geometry::parse(&bytes, 0) {
            self.raw = RawSuper::read(&bytes).expect("1024 bytes");
            self.g = geometry;
        }
        Ok(())
    }

    /// About how many bytes it takes to read and keep all inodes. A superblock that was restored
    /// has the counts of mkfs: the bitmaps know of more.
    fn memory_of_rounds(&mut self) -> Result<u64, DeviceError> {
        let (count, free) = (self.raw.s_inodes_count.get(), self.raw.s_free_inodes_count.get());
        let mut used = u64::from(count.saturating_sub(free));
        if self.from_copy {
            let mut marked = 0;
            for group in 0..self.g.groups_count {
                let (map, all) = (self.inode_bitmap(group)?, self.g.inodes_per_group as usize);
                marked += (all - base::bitmap::count_zeros(&map, all)) as u64;
            }
            used = used.max(marked);
        }
        Ok(used * OF_INODE + 3 * self.g.blocks_count.div_ceil(8))
    }

    /// What the check says about the state that the plan would leave, and whether that is light.
    fn judge(&mut self) -> Result<(Vec<String>, Option<Light>), DeviceError> {
        let (_, queue) = self.view.overlay()?;
        let meter = self.view.meter.clone();
        let options = CheckOptions { findings_max: FINDINGS_MAX, meter, ..CheckOptions::default() };
        let (report, counted) = ext4::check_counting(self.view.cx(), &queue, &options)?;
        self.suspects = Suspects::default();
        for finding in &report.findings {
            self.suspects.rules.insert(finding.rule);
            if let ext4::format::At::Inode(ino) | ext4::format::At::Block(ino, _) = finding.at {
                self.suspects.inodes.entry(ino.0 as u32).or_default().insert(finding.rule);
            }
        }
        let mut left: Vec<String> = report.findings.iter().map(ToString::to_string).collect();
        if report.more > 0 {
            left.push(format!("and {} more", report.more));
        }
        Ok((left, Light::of(&report, counted)))
    }

    /// All passes once.
    fn round(&mut self) -> Result<(), RepairError> {
        self.again = false;
        self.reread()?;
        self.descriptors()?;
        self.start_inodes();
        self.strayed_tables()?;
        self.strayed_slots()?;
        self.system_inodes()?;
        self.scan_inodes()?;
        self.attribute_blocks()?;
        self.claims()?;
        self.attributes()?;
        self.directories()?;
        if self.again {
            return Ok(());
        }
        self.connect()?;
        if self.again {
            return Ok(());
        }
        self.write_directories()?;
        self.write_inodes()?;
        self.system_files()?;
        self.totals()?;
        Ok(())
    }

    /// Adds a finding whose action follows from what is there.
    fn safe(
        &mut self,
        rule: Rule,
        at: impl ToString,
        detail: impl Into<String>,
        act: &str,
    ) -> bool {
        self.out.ask(Finding {
            rule: rule.name(),
            at: at.to_string(),
            detail: detail.into(),
            action: act.into(),
            loss: None,
            safe: true,
        })
    }

    /// Adds a finding whose action loses something, or guesses.
    fn lossy(
        &mut self,
        rule: Rule,
        at: impl ToString,
        detail: impl Into<String>,
        act: &str,
        loss: impl Into<String>,
    ) -> bool {
        self.out.ask(Finding {
            rule: rule.name(),
            at: at.to_string(),
            detail: detail.into(),
            action: act.into(),
            loss: Some(loss.into()),
            safe: false,
        })
    }

    /// Where an inode's slot lies, in bytes. `ino` is in range.
    fn slot_place(&self, ino: u32) -> u64 {
        let (group, index) = self.g.inode_group(Ino(ino.into())).expect("in range");
        let (block, offset) = self.g.inode_offset(index);
        let block = self.descs[group as usize].inode_table + block;
        block * u64::from(self.g.block_size) + offset as u64
    }

    /// Reads an inode's slot.
    fn slot(&mut self, ino: u32) -> Result<Vec<u8>, DeviceError> {
        let (place, size) = (self.slot_place(ino), self.g.inode_size as usize);
        self.view.read_bytes(place, size)
    }

    /// Reads an inode's values.
    fn values(&mut self, ino: u32) -> Result<InodeValues, DeviceError> {
        let slot = self.slot(ino)?;
        Ok(InodeValues::read(&slot, &self.g))
    }

    /// Changes an inode's values, and sets its checksum.
    fn edit(&mut self, ino: u32, change: impl FnOnce(&mut InodeValues)) -> Result<(), DeviceError> {
        let mut slot = self.slot(ino)?;
        let mut values = InodeValues::read(&slot, &self.g);
        change(&mut values);
        // The fragment of old, which means nothing.
        slot[OBSOLETE].fill(0);
        values.emit(&mut slot, Ino(ino.into()), &self.g);
        self.put_slot(ino, &slot)
    }

    /// Writes an inode's slot.
    fn put_slot(&mut self, ino: u32, slot: &[u8]) -> Result<(), DeviceError> {
        let place = self.slot_place(ino);
        self.view.write_bytes(place, slot)
    }

    /// The seed of the checksums of an inode's blocks.
    fn seed(&self, ino: u32, generation: u32) -> ext4::format::checksum::InodeSeed {
        self.g.checksums.inode_seed(Ino(ino.into()), generation)
    }

    /// May these blocks belong to a file, by their numbers?
    fn in_range(&self, run: Range<u64>) -> bool {
        self.g.data_blocks_valid(run.start, run.end - run.start)
    }

    /// The inode in a message.
    fn at(ino: u32) -> ext4::format::At {
        ext4::format::At::Inode(Ino(ino.into()))
    }

    /// The first block of a group.
    fn first_of(&self, group: u32) -> FsBlock {
        FsBlock(self.g.group_first_block(group))
    }
}
