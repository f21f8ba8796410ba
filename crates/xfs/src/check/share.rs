//! The inodes of a large file system, by several tasks at once.
//!
//! Each task looks at its share of the chunks with a checker of its own, and the shares are joined
//! in their order. What is wrong with an inode follows from that inode alone; all else goes into
//! sums. So what is found does not depend on the number of tasks.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use block::{DeviceError, Queue};
use rt::{JoinHandle, Meter};
use vfs::check::Tasks;

use super::findings::{CheckReport, Findings};
use super::lsn::Newest;
use super::stage::Stage;
use super::sums::Sums;
use super::{Checker, quota, realtime};
use crate::format::record::{InodeChunk, Rmap};
use crate::format::{Geometry, RawSuper};
use crate::mount;

/// Chunks that are worth a task of their own, where nobody says how many tasks there are.
pub(super) const WORTH: u64 = 256;

/// Chunks of a group.
type OfGroup = (u32, Vec<InodeChunk>);

/// What a checker of a share begins with.
struct Seed {
    queue: Arc<Queue>,
    geometry: Geometry,
    cache: u64,
    raw: RawSuper,
    findings_max: usize,
    sums: Sums,
    quota_inos: [Option<u64>; 3],
    meter: Meter,
}

/// What a task found.
pub(super) struct Share {
    report: CheckReport,
    sums: Sums,
    usage: quota::Counted,
    realtime: realtime::Claims,
    section_claims: Vec<Vec<Rmap>>,
    section_trees: BTreeMap<u64, Vec<u8>>,
    owners_unknown: bool,
    names_unknown: bool,
    newest: Newest,
}

impl Checker<'_> {
    /// All chunks in shares, one for each task.
    fn shares(&self) -> Vec<Vec<OfGroup>> {
        let all: usize = self.groups.iter().map(|group| group.chunks.len()).sum();
        let alone = self.stage != Stage::Sums || !self.watch.is_empty();
        let tasks = if alone { Tasks::ONE } else { self.tasks };
        // A group may be larger than a share: pieces of all groups are divided.
        let piece = (all / (16 * tasks.count)).max(1);
        let mut pieces: Vec<(u32, Range<usize>)> = Vec::new();
        for (ag, group) in (0..).zip(&self.groups) {
            let count = group.chunks.len();
            pieces.extend((0..count).step_by(piece).map(|at| (ag, at..(at + piece).min(count))));
        }
        let weights: Vec<u64> = pieces.iter().map(|piece| piece.1.len() as u64).collect();
        let share = |share: Range<usize>| {
            let pieces = pieces[share].iter();
            let chunks = |ag: u32, range: &Range<usize>| {
                self.groups[ag as usize].chunks[range.clone()].to_vec()
            };
            pieces.map(|(ag, range)| (*ag, chunks(*ag, range))).collect()
        };
        tasks.divide(&weights).into_iter().map(share).collect()
    }

    /// Checks all inodes of all chunks.
    pub(super) fn inode_pass(&mut self) -> Result<(), DeviceError> {
        let mut shares = self.shares().into_iter();
        let first = shares.next().expect("there is a share");
        let others: Vec<_> = shares.map(|share| self.start_share(share)).collect();
        let read = self.check_chunks(first);
        for task in others {
            let found = task.join(self.cx)?;
            self.take_share(found);
        }
        read
    }

    /// Starts a task for a share.
    fn start_share(&self, share: Vec<OfGroup>) -> JoinHandle<Result<Share, DeviceError>> {
        let seed = Seed {
            queue: self.reader.bufs.queue().clone(),
            geometry: (*self.reader.geometry).clone(),
            cache: self.shares_cache / self.tasks.count as u64,
            raw: self.raw,
            findings_max: self.findings.max(),
            sums: self.sums.of_part(),
            quota_inos: self.quota_inos,
            meter: self.meter.clone(),
        };
        self.cx.spawn("check", move |cx| {
            // Buffers of their own: they are locked for each block.
            let reader = mount::reader(&seed.queue, seed.geometry, seed.cache);
            let findings = Findings::new(seed.findings_max);
            let mut checker = Checker::new(cx, reader, seed.raw, findings);
            (checker.sums, checker.quota_inos) = (seed.sums, seed.quota_inos);
            checker.meter = seed.meter;
            checker.check_chunks(share)?;
            Ok(Share {
                newest: checker.newest(),
                report: checker.findings.report(),
                sums: checker.sums,
                usage: checker.usage,
                realtime: checker.realtime,
                section_claims: checker.section_claims,
                section_trees: checker.section_trees,
                owners_unknown: checker.owners_unknown,
                names_unknown: checker.names_unknown,
            })
        })
    }

    /// Takes over what a task found.
    fn take_share(&mut self, share: Share) {
        let counts = self.findings.counts();
        counts.inodes_used += share.report.inodes_used;
        counts.directories += share.report.directories;
        self.findings.append(share.report);
        self.sums.add_part(share.sums);
        quota::absorb(&mut self.usage, share.usage);
        self.realtime.extend(share.realtime);
        for (claims, mut more) in self.section_claims.iter_mut().zip(share.section_claims) {
            claims.append(&mut more);
        }
        self.section_trees.extend(share.section_trees);
        self.owners_unknown |= share.owners_unknown;
        self.names_unknown |= share.names_unknown;
        self.newest.join(share.newest);
    }
}
