//! The realtime section: what files have of it, the bitmap, the summary, the counter.

use std::collections::BTreeMap;
use std::ops::Range;

use base::{Ino, bitmap};
use block::DeviceError;

use super::blocks::{Home, RefcountScan, Region, cow_claim};
use super::groups::records;
use super::quota::Held;
use super::{Checker, Rule};
use crate::alloc::realtime_runs::set_runs;
use crate::bmap::{Forks, Which, runs};
use crate::buf::RAW;
use crate::buf::meta::buf_maps;
use crate::error::Fault;
use crate::format::extent::Extent;
use crate::format::inode::{InodeCore, MetadataType};
use crate::format::record::{RMAP_UNWRITTEN, Refcount, Rmap, owner};
use crate::format::{At, CorruptKind, Kind, verifier};
use crate::metadir::{self, RealtimeInos};

/// Runs of extents of the section with the file that has them, by their starts.
pub(super) type Claims = Vec<(Range<u64>, Ino)>;

impl Checker<'_> {
    /// Notes what a file has of the section. Parts of an extent belong to it whole.
    pub(super) fn claim_realtime(&mut self, ino: Ino, list: &[Extent]) {
        let shape = self.reader.geometry.realtime;
        let unit = u64::from(shape.extent_blocks.max(1));
        if self.reader.geometry.section_trees() {
            for extent in list {
                let (group, start) = shape.place_of(extent.start);
                let unwritten = if extent.unwritten { RMAP_UNWRITTEN } else { 0 };
                let offset = extent.offset | unwritten;
                let claim = Rmap { start, len: extent.count, owner: ino.0, offset };
                if let Some(claims) = self.section_claims.get_mut(group as usize) {
                    claims.push(claim);
                }
            }
        }
        for (index, extent) in list.iter().enumerate() {
            let before = index.checked_sub(1).map(|before| &list[before]);
            let inside = !shape.linear(extent.start).is_multiple_of(unit);
            if inside && !before.is_some_and(|before| before.goes_on(extent)) {
                let start = extent.start;
                let text = format!("block {start} of the section, without the start of its extent");
                self.findings.add(Rule::InodeExtents, At::Inode(ino), text);
            }
        }
        let mut last: Option<Range<u64>> = None;
        for (index, extent) in list.iter().enumerate() {
            let first = shape.linear(extent.start);
            let (start, end) = (first / unit, (first + u64::from(extent.count)).div_ceil(unit));
            // Written and unwritten parts of one extent.
            let goes_on = index > 0 && list[index - 1].goes_on(extent);
            match &mut last {
                Some(run) if start == run.end || goes_on && start + 1 == run.end => run.end = end,
                other => {
                    let done = other.replace(start..end);
                    self.realtime.extend(done.map(|run| (run, ino)));
                }
            }
        }
        self.realtime.extend(last.map(|run| (run, ino)));
    }

    /// The files of a section exist also where there is none: empty ones.
    fn files_without_section(&mut self) -> Result<(), DeviceError> {
        let geometry = self.geometry();
        let rules = [Rule::RealtimeBitmap, Rule::RealtimeSummary];
        if geometry.metadata_root.is_some() {
            return Ok(());
        }
        for (ino, rule) in geometry.realtime_inos.into_iter().zip(rules) {
            let place = geometry.ino_split(ino);
            let core = match geometry.ino_valid(ino) {
                true => self.in_use(place.ag, place.agino)?,
                false => None,
            };
            let text = match core {
                None => "is not in use".to_owned(),
                Some(core) if core.file_type() == 0x8000 && core.size == 0 && core.extents == 0 => {
                    continue;
                }
                Some(InodeCore { mode, size, .. }) => {
                    format!("mode 0o{mode:o}, {size} bytes: no empty file")
                }
            };
            self.findings.add(rule, At::Inode(ino), text);
        }
        Ok(())
    }

    /// Compares what files have with the bitmap, and that with summary and counter.
    pub(super) fn realtime_pass(&mut self) -> Result<(), DeviceError> {
        let shape = self.reader.geometry.realtime;
        if shape.blocks == 0 {
            return self.files_without_section();
        }
        let mut claims = std::mem::take(&mut self.realtime);
        if shape.super_extents() > 0 {
            claims.push((0..shape.super_extents(), Ino(0)));
        }
        claims.sort_unstable_by_key(|claim| (claim.0.start, claim.0.end));
        // Where blocks may be shared the reference counts say more.
        let shared = self.reader.geometry.section_trees();
        let pairs = if shared { [].windows(2) } else { claims.windows(2) };
        for pair in pairs.filter(|pair| pair[0].0.end > pair[1].0.start) {
            let text = format!(
                "realtime extents from {} on belong to inode {} too",
                pair[1].0.start, pair[0].1
            );
            self.findings.add(Rule::DoubleUse, At::Inode(pair[1].1), text);
        }
        let files = metadir::realtime_inos(self.cx, &self.reader);
        let Some(files) = self.keep(files)? else { return Ok(()) };
        let mut free = Vec::new();
        self.compare_section_files(&files)?;
        for (group, inos) in files.iter().enumerate() {
            self.compare_section_trees(group as u32, inos.trees, &mut claims)?;
        }
        if shape.zoned {
            return Ok(());
        }
        for (group, inos) in files.iter().enumerate() {
            match self.realtime_group(group as u32, inos.files)? {
                Some(runs) => free.extend(runs),
                None => return Ok(()),
            }
        }
        self.compare_bitmap(files[0].files[0], &claims, &free);
        let (found, expected) =
            (self.raw.sb_frextents.get(), free.iter().map(|run| run.end - run.start).sum::<u64>());
        if found != expected {
            let text = format!("free realtime extents: {found} should be {expected}");
            self.findings.add(Rule::SuperCount, At::Super(0), text);
        }
        Ok(())
    }

    /// Compares what the files of the groups say of themselves with their names.
    fn compare_section_files(&mut self, files: &[RealtimeInos]) -> Result<(), DeviceError> {
        let (shape, block) = (self.reader.geometry.realtime, self.reader.geometry.block_size);
        let size = |blocks: u32| u64::from(blocks) * u64::from(block);
        let sizes = [size(shape.bitmap_blocks), size(shape.summary_blocks(block)), 0, 0];
        for (project, inos) in (0..).zip(files).filter(|_| shape.groups.is_some()) {
            let files = inos.files.map(|ino| Some(ino).filter(|_| !shape.zoned));
            let inos = files.into_iter().chain(inos.trees);
            for ((ino, size), (what, holds)) in inos.zip(sizes).zip(MetadataType::OF_GROUP) {
                let Some(ino) = ino else { continue };
                let wanted = Held { holds, size, project };
                let name = format!("\"{project}.{what}\"");
                self.compare_held(Rule::MetadataDirectory, ino, &wanted, &name)?;
            }
        }
        Ok(())
    }

    /// Compares what files have of a group with its btrees. What is in a CoW fork is in use too.
    fn compare_section_trees(
        &mut self,
        group: u32,
        [rmap, counts]: [Option<Ino>; 2],
        claims: &mut Claims,
    ) -> Result<(), DeviceError> {
        let shape = self.reader.geometry.realtime;
        let Some(ino) = rmap.or(counts) else { return Ok(()) };
        let mut tree = |ino: Option<Ino>| ino.and_then(|ino| self.section_trees.remove(&ino.0));
        let rmaps = tree(rmap).map(|bytes| records(&bytes, Kind::RealtimeRmap, Rmap::read));
        let counts =
            tree(counts).map(|bytes| records(&bytes, Kind::RealtimeRefcount, Refcount::read));
        let mut list = std::mem::take(&mut self.section_claims[group as usize]);
        let all = shape.extents_of(group);
        let unit = u64::from(shape.extent_blocks.max(1));
        for claim in counts.iter().flatten().copied().flat_map(cow_claim) {
            let (start, len) = (u64::from(claim.start), u64::from(claim.len));
            let run = all.start + start / unit..all.start + (start + len).div_ceil(unit);
            claims.push((run, Ino(0)));
            list.push(claim);
        }
        if group == 0 && shape.super_extents() > 0 {
            let len = unit as u32 * shape.super_extents() as u32;
            list.push(Rmap { start: 0, len, owner: owner::FS, offset: 0 });
        }
        let blocks = 0..((all.end - all.start) * unit) as u32;
        let region = Region { home: Home::Section(ino), blocks };
        let scan = counts.as_ref().map(|counts| {
            let mut scan = RefcountScan::new(region.blocks.end);
            counts.iter().for_each(|count| scan.next_record(count));
            scan
        });
        self.compare_claims(&region, list, None, scan, counts, rmaps)
    }

    /// The free extents of a group by its bitmap, with which its summary is compared; none where
    /// the bitmap cannot be read.
    fn realtime_group(
        &mut self,
        group: u32,
        [ino, summary]: [Ino; 2],
    ) -> Result<Option<Vec<Range<u64>>>, DeviceError> {
        let shape = self.reader.geometry.realtime;
        let words = shape.words(self.reader.geometry.block_size);
        let all = shape.extents_of(group);
        let blocks = self.realtime_file(ino, Kind::RealtimeBitmap, shape.bitmap_blocks);
        let Some(blocks) = self.keep(blocks)? else { return Ok(None) };
        let bits = blocks.iter().flat_map(|block| words.bits_of(block)).collect::<Vec<_>>();
        let count = (all.end - all.start) as usize;
        if bitmap::find_next_set(&bits, count, bits.len() * 8).is_some() {
            let text = format!("bits behind the last of {count} extents are set");
            self.findings.add(Rule::RealtimeBitmap, At::Inode(ino), text);
        }
        let runs = set_runs(&bits, all.end - all.start);
        let free: Vec<_> = runs.map(|run| all.start + run.start..all.start + run.end).collect();
        let count = shape.summary_blocks(self.reader.geometry.block_size);
        let blocks = self.realtime_file(summary, Kind::RealtimeSummary, count);
        if let Some(blocks) = self.keep(blocks)? {
            self.compare_realtime_summary(summary, &blocks, all.start, &free);
        }
        Ok(Some(free))
    }

    /// The blocks of one of the section's files.
    fn realtime_file(&mut self, ino: Ino, kind: Kind, blocks: u32) -> Result<Vec<Vec<u8>>, Fault> {
        let geometry = self.geometry();
        let (slot, core) = self.reader.read_inode(self.cx, ino)?;
        let forks = Forks::new(&slot, &core);
        let fork = forks.get(Which::Data);
        let extents = self.reader.read_extents(self.cx, ino, fork, &mut |_| ())?;
        let list = runs(&extents, 0..u64::from(blocks));
        let wanted = u64::from(blocks) << geometry.block_bits;
        let Some(list) = list.filter(|_| core.size >= wanted) else {
            let what = kind.name().trim_start_matches("realtime ");
            let kind = CorruptKind::RealtimeFile { what, found: core.size, wanted };
            return Err(kind.at(At::Inode(ino)).into());
        };
        let mut content = Vec::with_capacity(blocks as usize);
        for (start, count) in list {
            for block in 0..u64::from(count) {
                let maps = buf_maps(&geometry, &[(start + block, 1)]);
                let data = self.reader.bufs.read(self.cx, &maps, &RAW)?.with(<[u8]>::to_vec);
                if geometry.realtime.groups.is_some() {
                    let expect = geometry.expect(maps[0].daddr, Some(ino.0));
                    let at = At::InodeBlock(ino, content.len() as u64);
                    verifier::verify(kind, &data, &expect, at)?;
                }
                content.push(data);
            }
        }
        Ok(content)
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

    /// Compares the summary of the group that begins at an extent with what is free there.
    fn compare_realtime_summary(
        &mut self,
        ino: Ino,
        blocks: &[Vec<u8>],
        start: u64,
        free: &[Range<u64>],
    ) {
        let geometry = &self.reader.geometry;
        let (shape, row) = (geometry.realtime, u64::from(geometry.realtime.bitmap_blocks));
        let words = shape.words(geometry.block_size);
        let mut expected: BTreeMap<u64, u32> = BTreeMap::new();
        for run in free {
            let level = u64::from((run.end - run.start).ilog2());
            *expected.entry(level * row + (run.start - start) / words.bits()).or_default() += 1;
        }
        for index in 0..blocks.len() as u64 * words.per_block() {
            let (block, word) = (index / words.per_block(), index % words.per_block());
            let found = words.get(&blocks[block as usize], word as usize);
            let wanted = expected.get(&index).copied().unwrap_or(0);
            if found != wanted {
                let (level, block) = (index / row, index % row);
                let text = format!(
                    "{found} runs of 2^{level} free extents in bitmap block {block} should be \
                     {wanted}"
                );
                self.findings.add(Rule::RealtimeSummary, At::Inode(ino), text);
            }
        }
    }
}
