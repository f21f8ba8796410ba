//! A smaller XFS: what lies behind the new end moves in front of it.
//!
//! Content of files is copied to blocks that are free in the old size, so a cut of the copies
//! leaves the old size. What names blocks and inodes is then written anew, as a repair does it:
//! maps, directories, attributes, and the btrees of the groups. A chunk of inodes moves inode by
//! inode, each to a new number.

use std::collections::BTreeMap;
use std::sync::Arc;

use base::unit::SECTOR_SIZE;
use base::{FsBlock, Ino};
use block::Queue;
use rt::{Cx, Meter};
use xfs::format::dquot::QuotaFlags;
use xfs::format::record::{FreeExtent, Rmap};
use xfs::format::{AgBlock, Geometry, NULL32};
use xfs::mount::options::BesideDevice;
use xfs::resize::shape;

use super::forks::Which;
use super::space::complement;
use super::super_block::open;
use super::{Fs, Group, Inode};
use crate::RepairError;
use crate::plan::Plan;
use crate::resize::{LayoutPlan, Move, ShrinkPlan};
use crate::view::{MovedRun, View};
use crate::volume::{EditError, refuse};

mod blocks;
mod inodes;

use blocks::Moves;

/// Blocks that a group keeps for its own btrees beyond those that they have.
const SPARE_MIN: u32 = 16;

/// Into how many parts of the old size the search for the smallest one divides.
const LEAST_PARTS: u64 = 512;

/// The accounts of all kinds must be counted again.
const CHECKED: QuotaFlags =
    QuotaFlags::USER_CHECKED.union(QuotaFlags::GROUP_CHECKED).union(QuotaFlags::PROJECT_CHECKED);

impl From<RepairError> for EditError {
    fn from(error: RepairError) -> EditError {
        match error {
            RepairError::Device(error) => EditError::Device(error),
            RepairError::Hopeless(text) => EditError::NoRoom(text),
            other => EditError::Refused(other.to_string()),
        }
    }
}

/// A file system that shrinks.
struct Shrink<'a> {
    /// Its structures: of the old size first, then of the new one.
    fs: Fs<'a>,
    /// The old shape, and the new one.
    old: Geometry,
    new: Geometry,
    /// Content that moves.
    moves: Moves,
    /// Old and new numbers of inodes.
    numbers: BTreeMap<u64, Ino>,
    /// The first inodes of new chunks.
    made: Vec<Ino>,
}

/// Plans to make a file system smaller whose log is clean, also where it lies on the device `log`.
/// Reads only; parks.
///
/// # Errors
/// [`EditError`]: the file system stays as it is.
pub fn plan(
    cx: &mut Cx,
    queue: &Arc<Queue>,
    log: Option<&BesideDevice>,
    bytes: u64,
    meter: &Meter,
) -> Result<ShrinkPlan, EditError> {
    let mut view = View::new(cx, queue);
    view.meter = meter.clone();
    let mut fs = open(view)?;
    if fs.g.features.external_log {
        fs.log = log.cloned();
        fs.ensure_empty()?;
    }
    sound(&fs)?;
    let old = fs.g.clone();
    read(&mut fs)?;
    let mut raw = fs.raw;
    let log = log_place(&fs, bytes)?;
    if let Some(to) = log {
        raw.sb_logstart.set(fs.g.join(to).0);
    }
    let (new, raw) = shape(&raw, &fs.g, bytes).map_err(|e| EditError::Refused(e.to_string()))?;
    if new.blocks_count() >= old.blocks_count() {
        return refuse(format!("it has {} blocks: that is not smaller", old.blocks_count()));
    }
    let (moves, numbers) = (Moves::default(), BTreeMap::new());
    let mut shrink = Shrink { fs, old: old.clone(), new, moves, numbers, made: Vec::new() };
    shrink.carry_over(raw, log)?;
    let Shrink { mut fs, moves, numbers, .. } = shrink;
    // The log is copied, and no part of the plan.
    fs.view.moved = log.map(|to| {
        let sectors = u64::from(old.block_size) / SECTOR_SIZE;
        let place = |at: AgBlock| old.linear(at) * sectors;
        let (from, to) = (place(old.split(old.log_start)), place(to));
        MovedRun { from, to: to..to + u64::from(old.log_blocks) * sectors }
    });
    let (left, _) = fs.judge()?;
    if let Some(text) = left.first() {
        return Err(EditError::Wrong(text.clone()));
    }
    let block_size = old.block_size;
    let (after, changes) = ((fs.g.blocks_count(), fs.g.ag_count()), fs.view.into_changes()?);
    let mut copies: Vec<Move> = moves.copies(&old);
    copies.extend(log.map(|to| Move {
        from: old.linear(old.split(old.log_start)),
        to: old.linear(to),
        len: old.log_blocks.into(),
    }));
    let plan = Plan { changes, superblock: 0, ..Plan::default() };
    Ok(ShrinkPlan {
        block_size,
        before: (old.blocks_count(), old.ag_count()),
        after,
        blocks_moved: copies.iter().map(|part| part.len).sum(),
        inodes_moved: numbers.len() as u64,
        layout: LayoutPlan { block_size, zeroes: Vec::new(), moves: copies, plan },
    })
}

/// The smallest size in bytes, to a 512th of the present one, and the plan for it; none if it
/// cannot be smaller. Sizes between are planned until one fits and the next does not. Reads only;
/// parks.
///
/// # Errors
/// [`EditError`]: the file system stays as it is.
pub fn plan_least(
    cx: &mut Cx,
    queue: &Arc<Queue>,
    log: Option<&BesideDevice>,
    meter: &Meter,
) -> Result<(u64, Option<ShrinkPlan>), EditError> {
    let g = open(View::new(cx, queue))?.g;
    let bytes = |blocks: u64| blocks * u64::from(g.block_size);
    // What no size of this file system can be planned for shows here.
    let mut best = match plan(cx, queue, log, bytes(g.blocks_count() - 1), meter) {
        Ok(plan) => plan,
        Err(EditError::NoRoom(_)) => return Ok((bytes(g.blocks_count()), None)),
        Err(error) => return Err(error),
    };
    let (step, mut low) = ((g.blocks_count() / LEAST_PARTS).max(1), 0);
    while best.after.0.saturating_sub(low) > step {
        let middle = low + (best.after.0 - low) / 2;
        match plan(cx, queue, log, bytes(middle), meter) {
            Ok(plan) => best = plan,
            Err(EditError::NoRoom(_) | EditError::Refused(_)) => low = middle,
            Err(error) => return Err(error),
        }
    }
    Ok((bytes(best.after.0), Some(best)))
}

/// Refuses a file system of which anything was found that a repair would change.
fn sound(fs: &Fs<'_>) -> Result<(), EditError> {
    let wrong = fs.groups.iter().any(|group| group.wrong) || !fs.touched.is_empty();
    match fs.findings.first() {
        Some(finding) => {
            let text = format!("{}: {}", finding.at, finding.detail);
            refuse(format!("it is damaged: check it, and repair it first ({text})"))
        }
        None if wrong => refuse("it is damaged: check it, and repair it first"),
        None => Ok(()),
    }
}

/// Reads everything that names blocks and inodes.
fn read(fs: &mut Fs<'_>) -> Result<(), EditError> {
    fs.read_groups()?;
    fs.find_chunks()?;
    fs.read_inodes()?;
    sound(fs)?;
    for (ino, inode) in &fs.inodes {
        for which in Which::BOTH {
            if let Some(wrong) = inode.fork(which).flaw() {
                return refuse(format!("inode {ino}: {wrong}: check it, and repair it first"));
            }
        }
    }
    let unnamed = |group: &Group| group.agi.agi_unlinked.iter().any(|head| head.get() != NULL32);
    if fs.groups.iter().any(unnamed) {
        return refuse("removed inodes wait to be freed: mount it once for writing");
    }
    fs.read_pointers()?;
    fs.read_names()?;
    sound(fs)
}

/// Where the log goes; none where it stays.
fn log_place(fs: &Fs<'_>, bytes: u64) -> Result<Option<AgBlock>, EditError> {
    if fs.g.features.external_log {
        return Ok(None);
    }
    let (g, blocks) = (&fs.g, bytes / u64::from(fs.g.block_size));
    let at = g.linear(g.split(g.log_start));
    if at + u64::from(g.log_blocks) <= blocks {
        return Ok(None);
    }
    let mut most = 0;
    // With a log in the first group xfs_repair expects the root directory behind it.
    for (ag, group) in (0..g.ag_count()).zip(&fs.groups).skip(1) {
        let before = u64::from(ag) * u64::from(g.ag_blocks);
        let length = blocks.saturating_sub(before).min(g.ag_length(ag).into()) as u32;
        for extent in clipped(group, length) {
            most = most.max(extent.len);
            if extent.len >= g.log_blocks {
                return Ok(Some(AgBlock { ag, block: extent.start + extent.len - g.log_blocks }));
            }
        }
    }
    let needed = g.log_blocks;
    let text = format!(
        "the log lies behind the new end; it needs {needed} free blocks in one piece behind the \
         first group, and there are {most}"
    );
    Err(EditError::NoRoom(text))
}

/// What a group knows as free in front of a block.
fn clipped(group: &Group, end: u32) -> Vec<FreeExtent> {
    let free = group.records.free.iter().flatten();
    let kept = free.filter(|extent| extent.start < end);
    kept.map(|extent| FreeExtent { len: extent.len.min(end - extent.start), ..*extent }).collect()
}

impl Shrink<'_> {
    /// Moves everything, and writes what names it.
    fn carry_over(
        &mut self,
        raw: xfs::format::RawSuper,
        log: Option<AgBlock>,
    ) -> Result<(), EditError> {
        let before = self.fs.claims();
        self.set_spare(&before, log);
        let moving = self.moving_inodes();
        self.number(&moving)?;
        self.moves = self.place_content()?;
        self.carry_records()?;
        let anew = self.read_anew()?;
        self.switch(raw);
        self.renumber()?;
        self.map_anew();
        self.write_anew(anew)?;
        self.fs.store_inodes()?;
        self.fs.write_groups(&before)?;
        self.fs.write_super()?;
        self.fs.write_copies()?;
        self.fs.findings.clear();
        Ok(())
    }

    /// Whether a block lies behind the new end.
    fn goes(&self, block: FsBlock) -> bool {
        let place = self.fs.g.split(block);
        place.block >= self.new.ag_length(place.ag)
    }

    /// Whether one of some blocks does.
    fn any_goes(&self, start: FsBlock, count: u32) -> bool {
        self.goes(FsBlock(start.0 + u64::from(count) - 1))
    }

    /// Whether anything of a fork does.
    fn fork_goes(&self, inode: &Inode, which: Which) -> bool {
        let fork = inode.fork(which);
        let mapped = fork.extents.iter().any(|extent| self.any_goes(extent.start, extent.count));
        mapped || fork.tree.iter().any(|&block| self.goes(block))
    }

    /// Decides which blocks may be taken: those that are free now, but for what the groups need
    /// for their own btrees.
    fn set_spare(&mut self, claims: &[Vec<Rmap>], log: Option<AgBlock>) {
        let mut spare = Vec::new();
        for ag in 0..self.new.ag_count() {
            let (group, length) = (&self.fs.groups[ag as usize], self.new.ag_length(ag));
            let mut free = clipped(group, length);
            let sum = |list: &[FreeExtent]| list.iter().map(|extent| extent.len).sum::<u32>();
            // Btrees and free lists are what nobody claims and is not free.
            let all = sum(group.records.free.as_deref().unwrap_or_default());
            let used = sum(&complement(&claims[ag as usize], self.old.ag_length(ag))) - all;
            let stay = sum(&complement(&claims[ag as usize], length)) - sum(&free);
            let mut keep = (used + used / 8 + SPARE_MIN).saturating_sub(stay);
            if let Some(to) = log.filter(|to| to.ag == ag) {
                for extent in &mut free {
                    if extent.start + extent.len == to.block + self.fs.g.log_blocks {
                        extent.len -= self.fs.g.log_blocks;
                    }
                }
            }
            free.sort_by_key(|extent| extent.len);
            for extent in &mut free {
                let len = keep.min(extent.len);
                extent.len -= len;
                keep -= len;
            }
            spare.push(free);
        }
        self.fs.spare = Some(spare);
    }

    /// From now on the structures are those of the new size.
    fn switch(&mut self, raw: xfs::format::RawSuper) {
        let (fs, count) = (&mut self.fs, self.new.ag_count());
        fs.g = self.new.clone();
        fs.raw = raw;
        for word in [&mut fs.raw.sb_uquotino, &mut fs.raw.sb_gquotino, &mut fs.raw.sb_pquotino] {
            if let Some(to) = self.numbers.get(&word.get()) {
                word.set(to.0);
            }
        }
        // Maps may take other blocks than they had.
        let flags = QuotaFlags::of(&fs.raw).difference(CHECKED);
        fs.raw.sb_qflags.set(flags.bits());
        fs.groups.truncate(count as usize);
        let last = count - 1;
        fs.touched.insert(last);
        let (length, blocks) = (fs.g.ag_length(last), fs.g.chunks.blocks);
        let g = fs.g.clone();
        let chunks = &mut fs.groups[last as usize].chunks;
        chunks.retain(|chunk| g.agino_block(chunk.start) + blocks <= length);
    }
}
