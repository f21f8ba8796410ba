//! Which blocks of a file are shared with other files, for reports.

use std::ops::Range;

use base::Errno;
use rt::Cx;

use super::DataFile;
use super::cow::shared_runs;
use crate::bmap::Mapped;
use crate::buf::meta::Reader;
use crate::error::Fault;
use crate::format::ag::RawAgf;
use crate::format::btree::Node;
use crate::format::extent::COUNT_MAX;
use crate::format::record::Refcount;
use crate::format::{AgBlock, AgHeader, At, CorruptKind, FsExtent, Kind, u32_at};

impl DataFile<'_> {
    /// Whether others share the first blocks of `mapped`, which is cut to those that have the same
    /// answer. May park.
    ///
    /// # Errors
    /// `EIO`, `EUCLEAN`.
    pub(super) fn cut_at_sharing(&self, cx: &mut Cx, mapped: &mut Mapped) -> Result<bool, Errno> {
        let Some(start) = mapped.start.filter(|_| self.inode.is_reflink(cx)) else {
            return Ok(false);
        };
        let extent = FsExtent { start, len: mapped.count.min(COUNT_MAX) as u32 };
        let run = match self.fs.write {
            Some(_) => shared_runs(self.fs, cx, extent)?.into_iter().next(),
            None => self.fs.reader.shared_run(cx, extent).map_err(|fault| self.fs.fault(fault))?,
        };
        let (shared, count) = match run {
            Some(run) if run.start == 0 => (true, run.end),
            Some(run) => (false, run.start),
            None => (false, extent.len),
        };
        mapped.count = u64::from(count);
        Ok(shared)
    }
}

impl Reader {
    /// The first run of an extent's blocks that one record says others share, counted from the
    /// start of the extent. For a mount that changes nothing. May wait for the device.
    ///
    /// # Errors
    /// The device failed; a tree that is wrong.
    fn shared_run(&self, cx: &mut Cx, extent: FsExtent) -> Result<Option<Range<u32>>, Fault> {
        let AgBlock { ag, block: first } = self.geometry.split(extent.start);
        let end = first + extent.len;
        let mut from = first;
        while from < end {
            let (records, behind) = self.refcounts_at(cx, ag, from)?;
            let shared = |record: &&Refcount| !record.cow && record.start < end;
            for record in records.iter().filter(shared) {
                let upto = record.start.saturating_add(record.len).min(end);
                if upto > first {
                    return Ok(Some(record.start.max(first) - first..upto - first));
                }
            }
            from = behind.max(from + 1);
        }
        Ok(None)
    }

    /// The records of the leaf that has the counts of a block, and where the next leaf begins.
    fn refcounts_at(
        &self,
        cx: &mut Cx,
        ag: u32,
        block: u32,
    ) -> Result<(Vec<Refcount>, u32), Fault> {
        let place = self.geometry.header_sector(ag, AgHeader::Agf);
        let sector = self.read_bytes(cx, place, self.geometry.sector_size as usize)?;
        let root = RawAgf::parse(&sector, ag, &self.geometry)?.refcount();
        let (mut at, mut level, mut behind) = (u64::from(root.block), root.levels, u32::MAX);
        loop {
            level -= 1;
            let here = At::AgBlock(ag, at as u32);
            if at == 0 || at >= u64::from(self.geometry.ag_length(ag)) {
                let what = Kind::Refcount.name();
                return Err(CorruptKind::BtreePointer { what, index: 0, block: at }
                    .at(here)
                    .into());
            }
            let data = self.read_ag(cx, AgBlock { ag, block: at as u32 }, Kind::Refcount)?;
            let node = Node::parse_trusted(Kind::Refcount, &data, Some(level as u16), here)?;
            if level == 0 {
                let records = (0..node.len()).map(|index| Refcount::read(node.record(index)));
                return Ok((records.collect(), behind));
            }
            let key = |index: usize| u32_at(node.key(index), 0);
            let next = (1..node.len()).find(|&index| key(index) > block).unwrap_or(node.len());
            if next < node.len() {
                behind = key(next);
            }
            at = node.pointer(next - 1);
        }
    }
}
