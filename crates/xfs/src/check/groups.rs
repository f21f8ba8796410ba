//! The copies of the superblock, the headers and btrees of each group.

use std::collections::BTreeSet;

use base::FsBlock;
use block::DeviceError;
use zerocopy::IntoBytes;

use super::tree::Content;
use super::{Checker, Count, Counter, Rule};
use crate::format::ag::{RawAgf, RawAgi, agfl_blocks, agfl_verify};
use crate::format::btree::Shape;
use crate::format::features::{Features2, Version};
use crate::format::record::{FreeExtent, InodeChunk, Refcount, Rmap, owner};
use crate::format::{AgHeader, At, Geometry, Kind, RawSuper};

/// What the headers and btrees of a group hold.
#[derive(Default)]
pub(super) struct Group {
    pub agf: Option<RawAgf>,
    pub agi: Option<RawAgi>,
    /// Free extents by block; None if the tree could not be read whole.
    pub free: Option<Vec<FreeExtent>>,
    pub chunks: Vec<InodeChunk>,
    pub rmaps: Option<Vec<Rmap>>,
    pub refcounts: Option<Vec<Refcount>>,
}

/// The records of a tree.
pub(super) fn records<T>(content: &Content, kind: Kind, read: impl Fn(&[u8]) -> T) -> Vec<T> {
    content.records.chunks_exact(Shape::of(kind).record).map(read).collect()
}

/// What no mount changes: the shape and the identity of the file system.
fn shape(raw: &RawSuper) -> Vec<u8> {
    let mut copy = *raw;
    let zero = RawSuper::zeroed();
    copy.sb_rootino = zero.sb_rootino;
    copy.sb_metadirino = zero.sb_metadirino;
    copy.sb_rbmino = zero.sb_rbmino;
    copy.sb_rsumino = zero.sb_rsumino;
    (copy.sb_icount, copy.sb_ifree) = (zero.sb_icount, zero.sb_ifree);
    (copy.sb_fdblocks, copy.sb_frextents) = (zero.sb_fdblocks, zero.sb_frextents);
    (copy.sb_uquotino, copy.sb_gquotino) = (zero.sb_uquotino, zero.sb_gquotino);
    (copy.sb_pquotino, copy.sb_qflags) = (zero.sb_pquotino, zero.sb_qflags);
    (copy.sb_flags, copy.sb_inprogress) = (0, 0);
    copy.sb_fname = zero.sb_fname;
    // Bits that a mount sets in the first copy alone.
    let version = Version::ATTR | Version::MOREBITS | Version::QUOTA;
    copy.sb_versionnum.set(copy.sb_versionnum.get() & !version.bits());
    copy.sb_features2.set(copy.sb_features2.get() & !Features2::ATTR2.bits());
    copy.sb_bad_features2 = zero.sb_bad_features2;
    copy.sb_features_log_incompat = zero.sb_features_log_incompat;
    (copy.sb_crc, copy.sb_lsn) = (zero.sb_crc, zero.sb_lsn);
    copy.as_bytes().to_vec()
}

impl Checker<'_> {
    /// Compares the copies of the superblock with the first one.
    pub(super) fn backups(&mut self) -> Result<(), DeviceError> {
        let geometry = self.geometry();
        for ag in 1..geometry.ag_count {
            let sector = geometry.header_sector(ag, AgHeader::Super);
            let bytes = self.reader.read_bytes(self.cx, sector, geometry.sector_size as usize)?;
            let at = At::Super(ag);
            let raw = RawSuper::view(&bytes).expect("a sector holds it");
            let expect = geometry.expect(sector, None);
            let verified = crate::format::verifier::verify(Kind::Super, &bytes, &expect, at);
            if self.keep(verified.map_err(Into::into))?.is_some() && shape(raw) != shape(&self.raw)
            {
                let text = "describes another file system than the first copy";
                self.findings.add(Rule::SuperBackup, at, text);
            }
        }
        Ok(())
    }

    /// Reads headers and btrees of all groups.
    pub(super) fn headers(&mut self) -> Result<(), DeviceError> {
        let geometry = self.geometry();
        for ag in 0..geometry.ag_count {
            let fixed =
                Rmap { start: 0, len: geometry.header_blocks(), owner: owner::FS, offset: 0 };
            self.claim(ag, fixed);
            let mut group = Group::default();
            self.free_space(ag, &mut group)?;
            self.inode_trees(ag, &mut group)?;
            self.groups.push(group);
            self.group_is_read();
        }
        self.claim_log(&geometry);
        Ok(())
    }

    /// Reads the headers of all groups, and nothing else of them.
    pub(super) fn group_headers(&mut self) -> Result<(), DeviceError> {
        let geometry = self.geometry();
        for ag in 0..geometry.ag_count {
            let sector = self.sector(ag, AgHeader::Agf)?;
            let agf = RawAgf::parse_places(&sector, ag, &geometry).copied();
            let agf = self.keep(agf.map_err(Into::into))?;
            let sector = self.sector(ag, AgHeader::Agi)?;
            let agi = RawAgi::parse(&sector, ag, &geometry).copied();
            let agi = self.keep(agi.map_err(Into::into))?;
            self.groups.push(Group { agf, agi, ..Group::default() });
        }
        Ok(())
    }

    fn claim_log(&mut self, geometry: &Geometry) {
        if geometry.log_start != FsBlock(0) {
            let place = geometry.split(geometry.log_start);
            let (start, len) = (place.block, geometry.log_blocks);
            self.claim(place.ag, Rmap { start, len, owner: owner::LOG, offset: 0 });
        }
    }

    fn sector(&mut self, ag: u32, header: AgHeader) -> Result<Vec<u8>, DeviceError> {
        let geometry = self.geometry();
        let sector = geometry.header_sector(ag, header);
        self.reader.read_bytes(self.cx, sector, geometry.sector_size as usize)
    }

    /// Claims the blocks of a tree and returns its content; None if it is not whole.
    fn tree_of(
        &mut self,
        ag: u32,
        kind: Kind,
        root: crate::format::ag::Root,
        owner: u64,
    ) -> Result<(Option<Content>, u32), DeviceError> {
        let content = self.walk_tree(ag, kind, root)?;
        for &block in &content.blocks {
            self.claim(ag, Rmap { start: block as u32, len: 1, owner, offset: 0 });
        }
        let blocks = content.blocks.len() as u32;
        self.owners_unknown |= !content.complete;
        Ok((content.complete.then_some(content), blocks))
    }

    fn free_space(&mut self, ag: u32, group: &mut Group) -> Result<(), DeviceError> {
        let geometry = self.geometry();
        let sector = self.sector(ag, AgHeader::Agf)?;
        // What its counters should be follows from its trees.
        let agf = RawAgf::parse_places(&sector, ag, &geometry).copied();
        let Some(agf) = self.keep(agf.map_err(Into::into))? else {
            self.owners_unknown = true;
            return Ok(());
        };
        group.agf = Some(agf);
        self.free_list(ag, &agf)?;
        let (by_block, block_tree) =
            self.tree_of(ag, Kind::FreeByBlock, agf.by_block(), owner::AG)?;
        let (by_size, size_tree) = self.tree_of(ag, Kind::FreeBySize, agf.by_size(), owner::AG)?;
        let mut tree_blocks = block_tree + size_tree - 2;
        if geometry.features.rmapbt() {
            let (content, blocks) = self.tree_of(ag, Kind::Rmap, agf.rmap(), owner::AG)?;
            tree_blocks += blocks - 1;
            self.equal(ag, Counter::RmapBlocks, agf.agf_rmap_blocks.get(), blocks);
            group.rmaps = content.map(|content| records(&content, Kind::Rmap, Rmap::read));
        }
        if geometry.features.reflink() {
            let (content, blocks) =
                self.tree_of(ag, Kind::Refcount, agf.refcount(), owner::REFC)?;
            self.equal(ag, Counter::RefcountBlocks, agf.agf_refcount_blocks.get(), blocks);
            group.refcounts =
                content.map(|content| records(&content, Kind::Refcount, Refcount::read));
        }
        if geometry.features.features2.contains(Features2::LAZYSBCOUNT) {
            self.equal(ag, Counter::TreeBlocks, agf.agf_btreeblks.get(), tree_blocks);
        }
        let read = |content: Content, kind| records(&content, kind, FreeExtent::read);
        let free = by_block.map(|content| read(content, Kind::FreeByBlock));
        if let Some(free) = &free {
            self.free_extents(ag, &agf, free);
            if let Some(by_size) = by_size.map(|content| read(content, Kind::FreeBySize)) {
                let mut sorted = free.clone();
                sorted.sort_by_key(|extent| (extent.len, extent.start));
                if sorted != by_size {
                    let (one, two) = (free.len(), by_size.len());
                    let text = format!("{one} extents by block are not the {two} by size");
                    self.findings.add(Rule::FreeBySize, At::Agf(ag), text);
                }
            }
        }
        group.free = free;
        Ok(())
    }

    fn equal(&mut self, ag: u32, counter: Counter, found: u32, counted: u32) {
        if found != counted {
            let text = format!("{}: {found} should be {counted}", counter.name());
            let at = if counter.is_of_inodes() { At::Agi(ag) } else { At::Agf(ag) };
            self.findings.add(Rule::GroupCount, at, text);
            self.counts.push(Count::Group { ag, counter, found, counted });
        }
    }

    fn free_list(&mut self, ag: u32, agf: &RawAgf) -> Result<(), DeviceError> {
        let geometry = self.geometry();
        let sector = self.sector(ag, AgHeader::Agfl)?;
        let verified = agfl_verify(&sector, ag, &geometry);
        if self.keep(verified.map_err(Into::into))?.is_none() {
            self.owners_unknown = true;
            return Ok(());
        }
        let (first, last, count) =
            (agf.agf_flfirst.get(), agf.agf_fllast.get(), agf.agf_flcount.get());
        let size = crate::format::ag::agfl_size(&geometry);
        let span = (last + size - first) % size + 1;
        if count != span && !(count == 0 && (span == size || last + 1 == first || span == 1)) {
            let text = format!("{count} blocks from slot {first} to {last}");
            self.findings.add(Rule::FreeList, At::Agfl(ag), text);
        }
        let mut seen = BTreeSet::new();
        for start in agfl_blocks(agf, &sector, &geometry) {
            let inside = start >= geometry.header_blocks() && start < geometry.ag_length(ag);
            if !inside || !seen.insert(start) {
                let text = format!("block {start} is outside the group or listed twice");
                self.findings.add(Rule::FreeList, At::Agfl(ag), text);
                continue;
            }
            self.claim(ag, Rmap { start, len: 1, owner: owner::AG, offset: 0 });
        }
        Ok(())
    }

    fn free_extents(&mut self, ag: u32, agf: &RawAgf, free: &[FreeExtent]) {
        let length = u64::from(self.reader.geometry.ag_length(ag));
        let mut end = 0;
        for extent in free {
            let (start, len) = (u64::from(extent.start), u64::from(extent.len));
            // Neighbours would have been joined.
            if len == 0 || start + len > length || (start <= end && end > 0) {
                let text =
                    format!("{start}+{len} is empty, leaves the group or touches the one before");
                self.findings.add(Rule::FreeExtent, At::Agf(ag), text);
            }
            end = start + len;
        }
        let total: u64 = free.iter().map(|extent| u64::from(extent.len)).sum();
        let longest = free.iter().map(|extent| extent.len).max().unwrap_or(0);
        self.equal(
            ag,
            Counter::FreeBlocks,
            agf.agf_freeblks.get(),
            total.min(u64::from(u32::MAX)) as u32,
        );
        self.equal(ag, Counter::LongestFree, agf.agf_longest.get(), longest);
    }

    fn inode_trees(&mut self, ag: u32, group: &mut Group) -> Result<(), DeviceError> {
        let geometry = self.geometry();
        let sector = self.sector(ag, AgHeader::Agi)?;
        let agi = RawAgi::parse(&sector, ag, &geometry).copied();
        let Some(agi) = self.keep(agi.map_err(Into::into))? else {
            self.owners_unknown = true;
            self.names_unknown = true;
            return Ok(());
        };
        group.agi = Some(agi);
        let sparse = geometry.features.sparse();
        let read =
            |content: &Content, kind| records(content, kind, |data| InodeChunk::read(data, sparse));
        let (content, blocks) = self.tree_of(ag, Kind::Inobt, agi.inobt(), owner::INOBT)?;
        let counted = geometry.features.inobtcount();
        if counted {
            self.equal(ag, Counter::InodeTreeBlocks, agi.agi_iblocks.get(), blocks);
        }
        self.names_unknown |= content.is_none();
        let whole = content.is_some();
        group.chunks = content.map(|content| read(&content, Kind::Inobt)).unwrap_or_default();
        let chunks = group.chunks.clone();
        if whole {
            self.chunk_counts(ag, &agi, &chunks);
        }
        for chunk in &chunks {
            self.chunk(ag, chunk);
        }
        if geometry.features.finobt() {
            let (content, blocks) = self.tree_of(ag, Kind::Finobt, agi.finobt(), owner::INOBT)?;
            if counted {
                self.equal(ag, Counter::FreeInodeTreeBlocks, agi.agi_fblocks.get(), blocks);
            }
            let found = content.map(|content| read(&content, Kind::Finobt));
            let expected: Vec<_> =
                chunks.iter().filter(|chunk| chunk.free_count > 0).copied().collect();
            if whole && found.is_some_and(|found| found != expected) {
                let text = format!("does not hold the {} chunks with free inodes", expected.len());
                self.findings.add(Rule::FreeInodeBtree, At::Agi(ag), text);
            }
        }
        Ok(())
    }

    fn chunk_counts(&mut self, ag: u32, agi: &RawAgi, chunks: &[InodeChunk]) {
        let sum = |count: fn(&InodeChunk) -> u8| {
            chunks.iter().map(|chunk| u32::from(count(chunk))).sum::<u32>()
        };
        self.equal(ag, Counter::Inodes, agi.agi_count.get(), sum(|chunk| chunk.count));
        let free = sum(|chunk| chunk.free_count);
        self.equal(ag, Counter::FreeInodes, agi.agi_freecount.get(), free);
    }

    /// Checks one chunk and claims its blocks.
    fn chunk(&mut self, ag: u32, chunk: &InodeChunk) {
        let geometry = self.geometry();
        let InodeChunk { start, holes, count, free_count, .. } = *chunk;
        let per_block = geometry.inodes_per_block();
        let aligned = start.is_multiple_of(per_block.min(64));
        if !chunk.consistent() || !aligned || count == 0 {
            let text =
                format!("chunk {start}: holes {holes:#06x}, {count} inodes, {free_count} free");
            self.findings.add(Rule::InodeChunk, At::Agi(ag), text);
        }
        let mask = chunk.hole_mask();
        let first = geometry.agino_block(start);
        // In large blocks lie several chunks, the first of which has the block.
        let own = start.is_multiple_of(geometry.inodes_per_block());
        for block in (0..geometry.chunks.blocks).filter(|_| own) {
            let bit = (block * per_block).min(63);
            if mask >> bit & 1 == 0 && first + block < geometry.ag_length(ag) {
                let start = first + block;
                self.claim(ag, Rmap { start, len: 1, owner: owner::INODES, offset: 0 });
            }
        }
    }
}
