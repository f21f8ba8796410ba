//! Numbers that a check has counted, and that the device has otherwise.

use std::sync::Arc;

use base::Ino;
use block::{DeviceError, Queue};
use rt::Cx;

use super::findings::Findings;
use super::{CACHE, CheckReport, Checker, Rule, read_super};
use crate::format::At;
use crate::format::inode::InodeCore;
use crate::mount;

/// A counter in the headers of a group.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Counter {
    /// `agf_freeblks`.
    FreeBlocks,
    /// `agf_longest`.
    LongestFree,
    /// `agf_btreeblks`.
    TreeBlocks,
    /// `agf_rmap_blocks`.
    RmapBlocks,
    /// `agf_refcount_blocks`.
    RefcountBlocks,
    /// `agi_iblocks`.
    InodeTreeBlocks,
    /// `agi_fblocks`.
    FreeInodeTreeBlocks,
    /// `agi_count`.
    Inodes,
    /// `agi_freecount`.
    FreeInodes,
}

impl Counter {
    /// In words.
    pub fn name(self) -> &'static str {
        match self {
            Counter::FreeBlocks => "free blocks",
            Counter::LongestFree => "longest free extent",
            Counter::TreeBlocks => "blocks of free space trees",
            Counter::RmapBlocks => "blocks of reverse mappings",
            Counter::RefcountBlocks => "blocks of reference counts",
            Counter::InodeTreeBlocks => "blocks of the inode tree",
            Counter::FreeInodeTreeBlocks => "blocks of the free inode tree",
            Counter::Inodes => "inodes",
            Counter::FreeInodes => "free inodes",
        }
    }

    /// True where it lies in the header of inodes.
    pub fn is_of_inodes(self) -> bool {
        use Counter as C;
        matches!(self, C::InodeTreeBlocks | C::FreeInodeTreeBlocks | C::Inodes | C::FreeInodes)
    }
}

/// A number that is wrong, with what was counted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Count {
    /// Links of an inode.
    Links {
        /// The inode.
        ino: Ino,
        /// What it has.
        found: u32,
        /// What it should have.
        counted: u32,
    },
    /// A counter of a group.
    Group {
        /// The group.
        ag: u32,
        /// Which one.
        counter: Counter,
        /// What it is.
        found: u32,
        /// What it should be.
        counted: u32,
    },
}

impl Count {
    /// What was counted, and what is stored now.
    fn stored(&self, checker: &mut Checker<'_>) -> Result<Option<(u32, u32)>, DeviceError> {
        match *self {
            Count::Links { ino, counted, .. } => {
                let geometry = checker.geometry();
                let slot = checker.reader.read_slot(checker.cx, ino);
                let core = slot.and_then(|slot| Ok(InodeCore::parse(&slot, ino, &geometry)?));
                Ok(checker.keep(core)?.map(|core| (counted, core.links)))
            }
            Count::Group { ag, counter, counted, .. } => {
                let group = &checker.groups[ag as usize];
                let Some((agf, agi)) = group.agf.as_ref().zip(group.agi.as_ref()) else {
                    return Ok(None);
                };
                let stored = match counter {
                    Counter::FreeBlocks => agf.agf_freeblks,
                    Counter::LongestFree => agf.agf_longest,
                    Counter::TreeBlocks => agf.agf_btreeblks,
                    Counter::RmapBlocks => agf.agf_rmap_blocks,
                    Counter::RefcountBlocks => agf.agf_refcount_blocks,
                    Counter::InodeTreeBlocks => agi.agi_iblocks,
                    Counter::FreeInodeTreeBlocks => agi.agi_fblocks,
                    Counter::Inodes => agi.agi_count,
                    Counter::FreeInodes => agi.agi_freecount,
                };
                Ok(Some((counted, stored.get())))
            }
        }
    }

    /// What is wrong with it, and where.
    fn wrong(&self, stored: u32) -> (Rule, At, String) {
        match *self {
            Count::Links { ino, counted, .. } => {
                (Rule::LinkCount, At::Inode(ino), format!("{stored} links should be {counted}"))
            }
            Count::Group { ag, counter, counted, .. } => {
                let at = if counter.is_of_inodes() { At::Agi(ag) } else { At::Agf(ag) };
                let text = format!("{}: {stored} should be {counted}", counter.name());
                (Rule::GroupCount, at, text)
            }
        }
    }
}

/// Checks that what a check has counted is stored by now: the counters of all groups, the links of
/// these inodes, and the sums in the superblock. Where that check found nothing else, nothing is
/// wrong then. Inodes and directories are not read again. Parks on reads.
///
/// # Errors
/// The device's first error.
pub fn check_counts(
    cx: &mut Cx,
    queue: &Arc<Queue>,
    counts: &[Count],
    findings_max: usize,
) -> Result<CheckReport, DeviceError> {
    let mut findings = Findings::new(findings_max);
    let Some((raw, geometry)) = read_super(cx, queue, &mut findings)? else {
        return Ok(findings.report());
    };
    let reader = mount::reader(queue, geometry, CACHE);
    let mut checker = Checker::new(cx, reader, raw, findings);
    checker.backups()?;
    checker.group_headers()?;
    for count in counts {
        if let Some((counted, stored)) = count.stored(&mut checker)?
            && counted != stored
        {
            let (rule, at, text) = count.wrong(stored);
            checker.findings.add(rule, at, text);
        }
    }
    checker.summary();
    Ok(checker.findings.report())
}
