//! A pass of a large file system, by several tasks at once.
//!
//! Each task looks at its share of the groups or of the directories with a checker of its own, and
//! the shares are joined in their order: what is found does not depend on the number of tasks. A
//! share of inodes in which something is wrong is looked at again by the first task, because what
//! follows from that depends on what came before.

use std::ops::Range;
use std::sync::Arc;

use block::{DeviceError, Queue};
use rt::{JoinHandle, Meter};
use vfs::check::Tasks;

use super::dirs::{DirRecord, Subdirectory};
use super::findings::{CheckReport, Findings};
use super::inodes::InodeMap;
use super::io::Io;
use super::{BlockMap, Checker, LargeValues, Policies, Usage, XattrBlocks};
use crate::format::{Geometry, GroupDesc, RawSuper};

/// Inodes that take as long as a block of a directory.
pub const OF_BLOCK: u64 = 64;

impl DirRecord {
    /// How long it takes, in inodes.
    pub fn weight(&self) -> u64 {
        (self.len() + 1) * OF_BLOCK
    }
}

/// What a checker begins with.
struct Seed {
    queue: Arc<Queue>,
    raw: RawSuper,
    g: Geometry,
    descs: Vec<Option<GroupDesc>>,
    findings_max: usize,
    meter: Meter,
}

impl Seed {
    fn checker<'a>(self, cx: &'a mut rt::Cx, queue: &'a Arc<Queue>) -> Checker<'a> {
        let mut io = Io::new(cx, queue);
        io.set_block_size(self.g.block_size);
        io.meter = self.meter;
        let findings = Findings::new(self.findings_max);
        let mut checker = Checker::new(io, self.raw, self.g, findings);
        checker.descs = self.descs;
        checker
    }
}

/// A share of the inodes in which nothing is wrong.
pub struct InodeShare {
    used: BlockMap,
    inodes: InodeMap,
    dirs: Vec<DirRecord>,
    xattrs: XattrBlocks,
    values: LargeValues,
    policies: Policies,
    usage: Usage,
    report: CheckReport,
}

/// A share of the directories.
pub struct DirShare {
    dirs: Vec<DirRecord>,
    below: Vec<Subdirectory>,
    names_unknown: bool,
    report: CheckReport,
}

impl Checker<'_> {
    fn seed(&mut self) -> Seed {
        Seed {
            queue: self.io.queue().clone(),
            raw: self.raw,
            g: self.g.clone(),
            descs: self.descs.clone(),
            findings_max: self.findings.max(),
            meter: self.io.meter.clone(),
        }
    }

    /// Reports that the work begins. How large the directories are is not known yet.
    pub fn begin_with_inodes(&self) {
        let inodes: u64 =
            (0..self.g.groups_count).map(|group| u64::from(self.inodes_to_read(group))).sum();
        let dirs = self.descs.iter().flatten().map(|desc| u64::from(desc.used_dirs).min(inodes));
        let all = inodes + (2 * dirs.sum::<u64>() + u64::from(self.g.groups_count)) * OF_BLOCK;
        self.io.meter.begin("inodes", all);
    }

    /// Reports that the inodes are done; what is left are the directories and the bitmaps.
    pub fn go_on_with_directories(&self) {
        let dirs: u64 = self.dirs.iter().map(DirRecord::weight).sum();
        self.io.meter.go_on("directories", dirs + u64::from(self.g.groups_count) * OF_BLOCK);
    }

    /// Reports that the bitmaps alone are left.
    pub fn go_on_with_bitmaps(&self) {
        self.io.meter.go_on("bitmaps", u64::from(self.g.groups_count) * OF_BLOCK);
    }

    /// The shares of all groups, one for each task.
    pub fn inode_shares(&self) -> Vec<Range<u32>> {
        let weights: Vec<u64> =
            (0..self.g.groups_count).map(|group| self.inodes_to_read(group).into()).collect();
        let alone = !self.watch.is_empty() || self.shareable.is_some();
        let tasks = if alone { Tasks::ONE } else { self.io.tasks };
        let shares = tasks.divide(&weights);
        // What is known already must be in the first share, which this task looks at.
        let first = shares[0].end as u32;
        let known = (first..self.g.groups_count).any(|group| !self.inodes.group(group).is_empty());
        match known {
            true => std::iter::once(0..self.g.groups_count).collect(),
            false => shares.iter().map(|share| share.start as u32..share.end as u32).collect(),
        }
    }

    /// Starts a task for a share of the groups. It answers None where something is wrong in them.
    pub fn start_inodes(&mut self, share: Range<u32>) -> JoinHandle<Option<InodeShare>> {
        let seed = self.seed();
        self.io.cx().spawn("check", move |cx| {
            let queue = seed.queue.clone();
            let mut checker = seed.checker(cx, &queue);
            for group in share {
                let read = checker.inodes_of(group..group + 1);
                let sound =
                    read.is_ok() && checker.findings.is_empty() && checker.system.is_empty();
                if !sound || checker.blocks_unknown {
                    return None;
                }
            }
            Some(InodeShare {
                used: checker.used,
                inodes: checker.inodes,
                dirs: checker.dirs,
                xattrs: checker.xattrs,
                values: checker.values,
                policies: checker.policies,
                usage: checker.usage,
                report: checker.findings.report(),
            })
        })
    }

    /// Takes over a share of the groups; false, and nothing is changed, where it contradicts what
    /// is known.
    pub fn take_inodes(&mut self, share: Range<u32>, mut found: InodeShare) -> bool {
        let ratio = u64::from(self.g.cluster_ratio);
        for block in self.xattrs.shared_with(&found.xattrs) {
            if !found.values.is_empty() {
                return false;
            }
            let first = block & !(ratio - 1);
            found.used.clear_run(first..first + ratio);
        }
        if !self.used.absorb(&found.used) {
            return false;
        }
        self.inodes
            .absorb(share, found.inodes, |number| self.policies.renumber(&found.policies, number));
        self.dirs.append(&mut found.dirs);
        self.xattrs.absorb(found.xattrs);
        self.values.absorb(found.values);
        self.usage.absorb(found.usage);
        let counts = self.findings.counts();
        counts.inodes_used += found.report.inodes_used;
        counts.directories += found.report.directories;
        true
    }

    /// The directories in shares, one for each task.
    pub fn dir_shares(&mut self) -> Vec<Vec<DirRecord>> {
        let weights: Vec<u64> = self.dirs.iter().map(DirRecord::weight).collect();
        let mut shares = Vec::new();
        for share in self.io.tasks.divide(&weights).into_iter().rev() {
            shares.push(self.dirs.split_off(share.start));
        }
        shares.reverse();
        shares
    }

    /// Starts a task for a share of the directories.
    pub fn start_directories(
        &mut self,
        dirs: Vec<DirRecord>,
    ) -> JoinHandle<Result<DirShare, DeviceError>> {
        let (seed, known) = (self.seed(), self.pass.known.clone());
        self.io.cx().spawn("check", move |cx| {
            let queue = seed.queue.clone();
            let mut checker = seed.checker(cx, &queue);
            (checker.pass.known, checker.dirs) = (known, dirs);
            checker.all_directories()?;
            Ok(DirShare {
                dirs: checker.dirs,
                below: checker.pass.below,
                names_unknown: checker.pass.names_unknown,
                report: checker.findings.report(),
            })
        })
    }

    /// Takes over a share of the directories.
    pub fn take_directories(&mut self, mut share: DirShare) {
        self.dirs.append(&mut share.dirs);
        self.pass.below.append(&mut share.below);
        self.pass.names_unknown |= share.names_unknown;
        self.findings.append(share.report);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::extent::FileRun;

    /// Goal: a check of 100 million inodes takes at most 1 GiB. Method: what it keeps of a
    /// hundredth of them, by its capacity: one block for each file, 100 files in each directory.
    #[test]
    fn a_hundred_million_inodes_fit_in_a_gibibyte() {
        const INODES: u32 = 1_000_000;
        let mut inodes = InodeMap::of(INODES.div_ceil(8192), 8192);
        (0..INODES.div_ceil(8192)).for_each(|group| inodes.reserve(group, 8192));
        for ino in 1..=INODES {
            inodes.get_mut(ino).set_used();
        }
        inodes.start_names();
        let directories = INODES as usize / 100;
        // The list may have twice the room that it needs.
        let record = 2 * size_of::<DirRecord>() + size_of::<FileRun>();
        let of_directories = directories * (record + 2 * size_of::<Subdirectory>());
        // Files, directories, tables of inodes; in use, of metadata, and those of another share.
        let blocks = INODES as usize + directories + INODES as usize / 16;
        let all = inodes.bytes() + of_directories + 3 * blocks / 8;
        assert!(all * 100 <= 1 << 30, "{} MiB", (all * 100) >> 20);
    }
}
