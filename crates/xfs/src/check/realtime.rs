//! The realtime section: what files have of it, the bitmap, the summary, the counter.

use std::collections::BTreeMap;
use std::ops::Range;

use base::Ino;
use block::DeviceError;

use super::{Checker, Rule};
use crate::alloc::realtime_runs::set_runs;
use crate::bmap::{Forks, Which, runs};
use crate::buf::RAW;
use crate::buf::meta::buf_maps;
use crate::error::Fault;
use crate::format::extent::Extent;
use crate::format::{At, CorruptKind};

/// Runs of extents of the section with the file that has them, by their starts.
pub(super) type Claims = Vec<(Range<u64>, Ino)>;

impl Checker<'_> {
    /// Notes what a file has of the section. Parts of an extent belong to it whole.
    pub(super) fn claim_realtime(&mut self, ino: Ino, list: &[Extent]) {
        let unit = u64::from(self.reader.geometry.realtime.extent_blocks.max(1));
        let mut last: Option<Range<u64>> = None;
        for extent in list {
            let start = extent.start.0 / unit;
            let end = (extent.start.0 + u64::from(extent.count)).div_ceil(unit);
            match &mut last {
                // Written and unwritten parts of one extent, or the next one.
                Some(run) if (run.end - 1..=run.end).contains(&start) && run.end <= end => {
                    run.end = end;
                }
                other => {
                    let done = other.replace(start..end);
                    self.realtime.extend(done.map(|run| (run, ino)));
                }
            }
        }
        self.realtime.extend(last.map(|run| (run, ino)));
    }

    /// Compares what files have with the bitmap, and that with summary and counter.
    pub(super) fn realtime_pass(&mut self) -> Result<(), DeviceError> {
        let shape = self.reader.geometry.realtime;
        if shape.blocks == 0 {
            return Ok(());
        }
        let mut claims = std::mem::take(&mut self.realtime);
        claims.sort_unstable_by_key(|claim| (claim.0.start, claim.0.end));
        for pair in claims.windows(2).filter(|pair| pair[0].0.end > pair[1].0.start) {
            let text = format!(
                "realtime extents from {} on belong to inode {} too",
                pair[1].0.start, pair[0].1
            );
            self.findings.add(Rule::DoubleUse, At::Inode(pair[1].1), text);
        }
        let [bitmap, summary] = self.reader.geometry.realtime_inos;
        let bytes = u64::from(shape.bitmap_blocks) << self.reader.geometry.block_bits;
        let bits = self.realtime_file(bitmap, "bitmap", bytes);
        let Some(bits) = self.keep(bits)? else { return Ok(()) };
        let free: Vec<_> = set_runs(&bits, shape.extents).collect();
        self.compare_bitmap(bitmap, &claims, &free);
        let bytes = u64::from(shape.summary_blocks(self.reader.geometry.block_size))
            << self.reader.geometry.block_bits;
        let words = self.realtime_file(summary, "summary", bytes);
        if let Some(words) = self.keep(words)? {
            self.compare_realtime_summary(summary, &words, &free);
        }
        let (found, expected) =
            (self.raw.sb_frextents.get(), free.iter().map(|run| run.end - run.start).sum::<u64>());
        if found != expected {
            let text = format!("free realtime extents: {found} should be {expected}");
            self.findings.add(Rule::SuperCount, At::Super(0), text);
        }
        Ok(())
    }

    /// The content of one of the section's files.
    fn realtime_file(
        &mut self,
        ino: Ino,
        what: &'static str,
        wanted: u64,
    ) -> Result<Vec<u8>, Fault> {
        let geometry = self.geometry();
        let (slot, core) = self.reader.read_inode(self.cx, ino)?;
        let forks = Forks::new(&slot, &core);
        let fork = forks.get(Which::Data);
        let extents = self.reader.read_extents(self.cx, ino, fork, &mut |_| ())?;
        let list = runs(&extents, 0..wanted >> geometry.block_bits);
        let Some(list) = list.filter(|_| core.size >= wanted) else {
            let kind = CorruptKind::RealtimeFile { what, found: core.size, wanted };
            return Err(kind.at(At::Inode(ino)).into());
        };
        let mut bytes = Vec::with_capacity(wanted as usize);
        for (start, count) in list {
            for block in 0..u64::from(count) {
                let maps = buf_maps(&geometry, &[(start + block, 1)]);
                let buf = self.reader.bufs.read(self.cx, &maps, &RAW)?;
                buf.with(|data| bytes.extend_from_slice(data));
            }
        }
        Ok(bytes)
    }

    fn compare_bitmap(&mut self, ino: Ino, claims: &Claims, free: &[Range<u64>]) {
        let overlap = |run: &Range<u64>| {
            let at = free.partition_point(|free| free.end <= run.start);
            free.get(at).filter(|free| free.start < run.end).cloned()
        };
        for (run, owner) in claims {
            if let Some(hit) = overlap(run) {
                let (start, end) = (hit.start.max(run.start), hit.end.min(run.end));
                let text = format!("extents {start} to {end} are free, and of inode {owner}");
                self.findings.add(Rule::RealtimeBitmap, At::Inode(ino), text);
            }
        }
        if self.owners_unknown {
            return;
        }
        let mut at = 0;
        let end = self.reader.geometry.realtime.extents;
        let mut held: Vec<&Range<u64>> = claims.iter().map(|claim| &claim.0).chain(free).collect();
        held.sort_unstable_by_key(|run| run.start);
        let last = end..end;
        for run in held.into_iter().chain([&last]) {
            if run.start > at {
                let text = format!("extents {at} to {} are neither free nor in use", run.start);
                self.findings.add(Rule::RealtimeBitmap, At::Inode(ino), text);
            }
            at = at.max(run.end);
        }
    }

    fn compare_realtime_summary(&mut self, ino: Ino, bytes: &[u8], free: &[Range<u64>]) {
        let shape = self.reader.geometry.realtime;
        let (row, bits) = (shape.bitmap_blocks, u64::from(self.reader.geometry.block_size) * 8);
        let mut expected: BTreeMap<u64, u32> = BTreeMap::new();
        for run in free {
            let level = u64::from((run.end - run.start).ilog2());
            *expected.entry(level * u64::from(row) + run.start / bits).or_default() += 1;
        }
        let count = u64::from(shape.levels()) * u64::from(row);
        for (index, word) in (0..count).zip(bytes.chunks_exact(4)) {
            let found = u32::from_le_bytes(word.try_into().expect("four bytes"));
            let wanted = expected.get(&index).copied().unwrap_or(0);
            if found != wanted {
                let (level, block) = (index / u64::from(row), index % u64::from(row));
                let text = format!(
                    "{found} runs of 2^{level} free extents in bitmap block {block} should be \
                     {wanted}"
                );
                self.findings.add(Rule::RealtimeSummary, At::Inode(ino), text);
            }
        }
    }
}
