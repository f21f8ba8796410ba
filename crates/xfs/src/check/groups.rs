//! The copies of the superblock, the headers and btrees of each group.

use std::collections::BTreeSet;

use base::FsBlock;
use block::DeviceError;
use zerocopy::IntoBytes;

use super::blocks::RefcountScan;
use super::stage::Stage;
use super::sums::{Key, Sum};
use super::tree::Look;
use super::{Checker, Count, Counter, Rule};
use crate::format::ag::{RawAgf, RawAgi, agfl_blocks, agfl_verify};
use crate::format::btree::Shape;
use crate::format::features::{Features2, Version};
use crate::format::record::{FreeExtent, InodeChunk, Refcount, Rmap, owner};
use crate::format::{AgHeader, At, Geometry, Kind, RawSuper, verifier};

/// What the headers and btrees of a group hold.
#[derive(Default)]
pub(super) struct Group {
    pub agf: Option<RawAgf>,
    pub agi: Option<RawAgi>,
    pub chunks: Vec<InodeChunk>,
    /// The tree of free space by block was read whole.
    pub free_known: bool,
    /// So was the reverse map.
    pub rmaps_known: bool,
    /// So were the reference counts, whose records may still be impossible.
    pub refcounts: Option<RefcountScan>,
}

/// The records of a tree that lie one behind the other.
pub(super) fn records<T>(bytes: &[u8], kind: Kind, read: impl Fn(&[u8]) -> T) -> Vec<T> {
    bytes.chunks_exact(Shape::of(kind).record).map(read).collect()
}

/// The free extents of a group, by block.
#[derive(Default)]
struct FreeByBlock {
    sum: Sum,
    count: u64,
    total: u64,
    longest: u32,
    /// Where the last one ended.
    end: u64,
    /// Those that are empty, leave the group or touch the one before.
    wrong: Vec<FreeExtent>,
}

impl FreeByBlock {
    fn next_extent(&mut self, key: &Key, extent: FreeExtent, length: u64) {
        let (start, len) = (u64::from(extent.start), u64::from(extent.len));
        // Neighbours would have been joined.
        if len == 0 || start + len > length || (start <= self.end && self.end > 0) {
            self.wrong.push(extent);
        }
        self.end = start + len;
        self.sum.add_free(key, extent);
        self.count += 1;
        self.total += len;
        self.longest = self.longest.max(extent.len);
    }
}

/// The free extents of a group, by size.
#[derive(Default)]
struct FreeBySize {
    sum: Sum,
    count: u64,
    last: (u32, u32),
    unordered: bool,
}

impl FreeBySize {
    fn add(&mut self, key: &Key, extent: FreeExtent) {
        self.sum.add_free(key, extent);
        self.count += 1;
        let order = (extent.len, extent.start);
        self.unordered |= order < self.last;
        self.last = order;
    }
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
        for ag in 1..geometry.ag_count() {
            let sector = geometry.header_sector(ag, AgHeader::Super);
            let bytes = self.reader.read_bytes(self.cx, sector, geometry.sector_size as usize)?;
            let at = At::Super(ag);
            let raw = RawSuper::view(&bytes).expect("a sector holds it");
            let expect = geometry.expect(sector, None);
            let verified = verifier::verify(Kind::Super, &bytes, &expect, at);
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
        for ag in 0..geometry.ag_count() {
            let fixed =
                Rmap { start: 0, len: geometry.header_blocks(), owner: owner::FS, offset: 0 };
            self.claim(ag, fixed);
            let mut group = Group::default();
            self.free_space(ag, &mut group)?;
            if self.stage == Stage::Sums {
                let differs = !self.is_sound(&group);
                self.sums.group_is_read(ag, differs);
            }
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
        for ag in 0..geometry.ag_count() {
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

    /// Claims the blocks of a tree and shows its records; whether it is whole, and its blocks.
    fn tree_of(
        &mut self,
        ag: u32,
        kind: Kind,
        root: crate::format::ag::Root,
        owner: u64,
        look: Look<'_>,
    ) -> Result<(bool, u32), DeviceError> {
        let content = self.walk_tree(ag, kind, root, look)?;
        for &block in &content.blocks {
            self.claim(ag, Rmap { start: block as u32, len: 1, owner, offset: 0 });
        }
        let blocks = content.blocks.len() as u32;
        self.owners_unknown |= !content.complete;
        Ok((content.complete, blocks))
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
        self.newest.note(verifier::written_behind(Kind::Agf, &sector), At::Agf(ag));
        group.agf = Some(agf);
        self.free_list(ag, &agf)?;
        let (key, length) = (self.sums.key, geometry.ag_length(ag));
        let mut free = FreeByBlock::default();
        let (whole, block_tree) = self.tree_of(
            ag,
            Kind::FreeByBlock,
            agf.by_block(),
            owner::AG,
            &mut |checker, data| {
                let extent = FreeExtent::read(data);
                free.next_extent(&key, extent, length.into());
                checker.take_free(ag, extent);
            },
        )?;
        group.free_known = whole;
        let mut by_size = FreeBySize::default();
        let (size_whole, size_tree) =
            self.tree_of(ag, Kind::FreeBySize, agf.by_size(), owner::AG, &mut |_, data| {
                by_size.add(&key, FreeExtent::read(data));
            })?;
        let rmap_blocks = self.owner_trees(ag, &agf, group)?;
        let tree_blocks = block_tree + size_tree - 2 + rmap_blocks.saturating_sub(1);
        if geometry.features.features2.contains(Features2::LAZYSBCOUNT) {
            self.equal(ag, Counter::TreeBlocks, agf.agf_btreeblks.get(), tree_blocks);
        }
        if whole {
            self.free_extents(ag, &agf, &free);
            let same = free.sum == by_size.sum && free.count == by_size.count;
            if size_whole && (!same || by_size.unordered) {
                let text = format!(
                    "{} extents by block are not the {} by size",
                    free.count, by_size.count
                );
                self.findings.add(Rule::FreeBySize, At::Agf(ag), text);
            }
        }
        Ok(())
    }

    /// The reverse map and the reference counts, where there are some; how many blocks the former
    /// has.
    fn owner_trees(
        &mut self,
        ag: u32,
        agf: &RawAgf,
        group: &mut Group,
    ) -> Result<u32, DeviceError> {
        let geometry = self.geometry();
        let mut rmap_blocks = 0;
        if geometry.features.rmapbt() {
            let (whole, blocks) =
                self.tree_of(ag, Kind::Rmap, agf.rmap(), owner::AG, &mut |checker, data| {
                    checker.take_mapping(ag, Rmap::read(data));
                })?;
            rmap_blocks = blocks;
            self.equal(ag, Counter::RmapBlocks, agf.agf_rmap_blocks.get(), blocks);
            group.rmaps_known = whole;
        }
        if geometry.features.reflink() {
            let mut scan = RefcountScan::new(geometry.ag_length(ag));
            let mut look = |checker: &mut Checker<'_>, data: &[u8]| {
                let record = Refcount::read(data);
                scan.next_record(&record);
                checker.take_reference(ag, record);
            };
            let (whole, blocks) =
                self.tree_of(ag, Kind::Refcount, agf.refcount(), owner::REFC, &mut look)?;
            self.equal(ag, Counter::RefcountBlocks, agf.agf_refcount_blocks.get(), blocks);
            group.refcounts = whole.then_some(scan);
        }
        Ok(rmap_blocks)
    }

    /// Whether the btrees of a group can be trusted to be what the sums are made of.
    fn is_sound(&self, group: &Group) -> bool {
        let features = &self.reader.geometry.features;
        let counts = group.refcounts.as_ref().is_some_and(RefcountScan::is_sound);
        group.free_known
            && (group.rmaps_known || !features.rmapbt())
            && (counts || !features.reflink())
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
        self.newest.note(verifier::written_behind(Kind::Agfl, &sector), At::Agfl(ag));
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

    fn free_extents(&mut self, ag: u32, agf: &RawAgf, free: &FreeByBlock) {
        for FreeExtent { start, len } in &free.wrong {
            let text =
                format!("{start}+{len} is empty, leaves the group or touches the one before");
            self.findings.add(Rule::FreeExtent, At::Agf(ag), text);
        }
        let total = free.total.min(u64::from(u32::MAX)) as u32;
        self.equal(ag, Counter::FreeBlocks, agf.agf_freeblks.get(), total);
        self.equal(ag, Counter::LongestFree, agf.agf_longest.get(), free.longest);
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
        self.newest.note(verifier::written_behind(Kind::Agi, &sector), At::Agi(ag));
        group.agi = Some(agi);
        let sparse = geometry.features.sparse();
        let mut chunks = Vec::new();
        let (whole, blocks) =
            self.tree_of(ag, Kind::Inobt, agi.inobt(), owner::INOBT, &mut |_, data| {
                chunks.push(InodeChunk::read(data, sparse));
            })?;
        let counted = geometry.features.inobtcount();
        if counted {
            self.equal(ag, Counter::InodeTreeBlocks, agi.agi_iblocks.get(), blocks);
        }
        self.names_unknown |= !whole;
        if whole {
            self.chunk_counts(ag, &agi, &chunks);
        } else {
            chunks.clear();
        }
        for chunk in &chunks {
            self.chunk(ag, chunk);
        }
        if geometry.features.finobt() {
            let with_free = |chunk: &&InodeChunk| chunk.free_count > 0;
            let mut expected = chunks.iter().filter(with_free).peekable();
            let mut same = true;
            let (found, blocks) =
                self.tree_of(ag, Kind::Finobt, agi.finobt(), owner::INOBT, &mut |_, data| {
                    same &= expected.next() == Some(&InodeChunk::read(data, sparse));
                })?;
            same &= expected.peek().is_none();
            if counted {
                self.equal(ag, Counter::FreeInodeTreeBlocks, agi.agi_fblocks.get(), blocks);
            }
            if whole && found && !same {
                let count = chunks.iter().filter(with_free).count();
                let text = format!("does not hold the {count} chunks with free inodes");
                self.findings.add(Rule::FreeInodeBtree, At::Agi(ag), text);
            }
        }
        group.chunks = chunks;
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
