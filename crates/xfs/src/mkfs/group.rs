//! One allocation group of a new file system: what is taken out of its free space, its headers and
//! the roots of its trees.

use std::cmp::{Ordering, Reverse};

use super::rmap_tree::{FreeList, RmapTree};
use super::shape::Shape;
use crate::format::ag::{RawAgf, RawAgi, VERSION, agfl_size, set_agfl_block};
use crate::format::extent::Extent;
use crate::format::inode::{ForkFormat, InodeCore};
use crate::format::record::{FreeExtent, InodeChunk, Rmap, owner};
use crate::format::{
    AgBlock, AgExtent, AgHeader, Geometry, Kind, NULL32, Owner, btree, put_u32, verifier,
};

/// One allocation group as it will be.
pub(super) struct Group {
    pub ag: u32,
    length: u32,
    /// Free extents, by block.
    free: Vec<FreeExtent>,
    /// Records that were taken out of the trees by block and by size, which the blocks hold behind
    /// those that count.
    stale: [Vec<FreeExtent>; 2],
    /// Blocks that the free list has had.
    list: Vec<u32>,
    /// Those that it has.
    listed: FreeList,
    /// Inode chunks.
    pub chunks: Vec<Chunk>,
    /// Blocks of files.
    files: u64,
    /// The reverse map.
    tree: Option<RmapTree>,
    /// What it does not know yet: blocks of files, until their transaction ends.
    pending: Vec<Rmap>,
    /// Blocks of the free list while each tree has one level.
    free_list: u32,
}

/// Inodes that were allocated together: 64, or a block of them that holds more.
#[derive(Clone, Copy)]
pub(super) struct Chunk {
    /// First block.
    pub start: u32,
    /// Those in use, the first ones.
    pub used: u32,
}

/// Where the content of a file lies, all together.
#[derive(Clone, Copy)]
pub(super) struct Run {
    pub start: AgBlock,
    pub count: u32,
}

impl Run {
    /// Gives them to an inode that has no others; it is as long as they are.
    pub(super) fn map(self, geometry: &Geometry, core: &mut InodeCore, fork: &mut [u8]) {
        let (start, count) = (geometry.join(self.start), self.count);
        Extent { offset: 0, start, count, unwritten: false }.write(fork);
        core.format = ForkFormat::Extents;
        (core.extents, core.blocks) = (1, u64::from(count));
        core.size = u64::from(count) << geometry.block_bits;
    }
}

/// Takes `count` blocks from `place` on out of the free extent that holds them.
fn take(free: &mut Vec<FreeExtent>, index: usize, place: u32, count: u32) {
    let whole = free[index];
    let before = FreeExtent { start: whole.start, len: place - whole.start };
    let end = place + count;
    let after = FreeExtent { start: end, len: whole.start + whole.len - end };
    free.splice(index..=index, [before, after].into_iter().filter(|extent| extent.len > 0));
}

impl Group {
    pub(super) fn unused(shape: &Shape, geometry: &Geometry, ag: u32) -> Group {
        let length = geometry.ag_length(ag);
        let mut free = vec![FreeExtent { start: shape.roots_end, len: length - shape.roots_end }];
        if ag == shape.log_place.0 {
            take(&mut free, 0, shape.log_place.1, geometry.log_blocks);
        }
        // The free list takes its blocks from the smallest extent that has enough.
        let fits = free.iter().enumerate().filter(|(_, extent)| extent.len >= shape.free_list);
        let best = fits.min_by_key(|(_, extent)| (extent.len, extent.start));
        let index = best.map_or(0, |(index, _)| index);
        let first = free.get(index).map_or(0, |extent| extent.start);
        let count = free.get(index).map_or(0, |extent| extent.len.min(shape.free_list));
        let list: Vec<u32> = (first..first + count).collect();
        let mut group = Group {
            ag,
            length,
            free,
            stale: [Vec::new(), Vec::new()],
            listed: list.iter().copied().collect(),
            list,
            chunks: Vec::new(),
            files: 0,
            tree: None,
            pending: Vec::new(),
            free_list: shape.free_list,
        };
        if count > 0 {
            group.take(index, first, count);
        }
        if shape.options.rmapbt {
            let place = AgBlock { ag, block: shape.rmap_root() };
            group.tree = Some(RmapTree::with_records(geometry, place, &group.first_rmaps(shape)));
        }
        group
    }

    /// First block of the first inode chunk.
    pub(super) fn first_chunk(&self) -> Option<u32> {
        self.chunks.first().map(|chunk| chunk.start)
    }

    /// Takes the next inode, with a new chunk if need be: its number in the group. None if the
    /// group is full.
    pub(super) fn take_inode(&mut self, shape: &Shape) -> Option<u32> {
        if self.chunks.last().is_none_or(|chunk| chunk.used == shape.chunk_inodes()) {
            self.take_chunk(shape)?;
        }
        let chunk = self.chunks.last_mut()?;
        chunk.used += 1;
        Some((chunk.start << shape.raw.sb_inopblog) + chunk.used - 1)
    }

    /// Blocks of inodes and files.
    pub(super) fn taken(&self, shape: &Shape) -> u64 {
        self.files + u64::from(shape.chunk_blocks) * self.chunks.len() as u64
    }

    /// Blocks that are free or in the free list, or that trees have taken out of that.
    pub(super) fn spare_blocks(&self) -> u64 {
        self.free_blocks() + self.list.len() as u64
    }

    /// Records of the inode btree.
    pub(super) fn chunk_records(&self, shape: &Shape) -> usize {
        self.chunks.len() * shape.chunk_inodes().div_ceil(64) as usize
    }

    /// Takes blocks for a file, all together and near `target`. None if nowhere so many lie
    /// together. The reverse map learns of it when the transaction ends.
    pub(super) fn take_file(&mut self, target: u32, count: u32, owner: Owner) -> Option<Run> {
        let run = self.take_near(target, count)?;
        self.pending.push(owner.record(AgExtent { start: run.start, len: count }));
        Some(run)
    }

    /// Takes a block of a file's block map.
    pub(super) fn take_map_block(&mut self, target: u32, ino: u64) -> Option<Run> {
        let run = self.take_near(target, 1)?;
        self.learn(Owner::block_map(ino, false).record(AgExtent { start: run.start, len: 1 }));
        Some(run)
    }

    /// The transaction ends: the reverse map learns of blocks of files. None without space.
    pub(super) fn end_transaction(&mut self) -> Option<()> {
        for record in std::mem::take(&mut self.pending) {
            self.fill_list()?;
            self.learn(record);
        }
        Some(())
    }

    fn learn(&mut self, record: Rmap) {
        if let Some(tree) = &mut self.tree {
            tree.note_owner(record, &mut self.listed);
        }
    }

    /// Sees to it that the free list has what a reverse map of several levels may take.
    fn fill_list(&mut self) -> Option<()> {
        let levels = self.tree.as_ref().map_or(1, |tree| tree.levels);
        let need = if levels > 1 { self.free_list + 2 * (levels - 1) } else { 0 };
        while (self.listed.len() as u32) < need {
            let count = need - self.listed.len() as u32;
            let enough = self.free.iter().enumerate().filter(|(_, extent)| extent.len >= count);
            let best = enough.min_by_key(|(_, extent)| (extent.len, extent.start));
            let longest = || self.free.iter().enumerate().max_by_key(|(_, extent)| extent.len);
            let (index, extent) = best.or_else(longest)?;
            let (start, count) = (extent.start, extent.len.min(count));
            self.take(index, start, count);
            self.learn(Rmap { start, len: count, owner: owner::AG, offset: 0 });
            self.list.extend(start..start + count);
            self.listed.extend(start..start + count);
        }
        Some(())
    }

    fn take_near(&mut self, target: u32, count: u32) -> Option<Run> {
        self.fill_list()?;
        let fits = self.free.iter().enumerate().filter(|(_, extent)| extent.len >= count);
        let placed = fits.map(|(index, extent)| {
            let last = extent.start + extent.len - count;
            (index, target.saturating_sub(count).clamp(extent.start, last))
        });
        // Of two that are as near the longer one.
        let (index, start) = placed.min_by_key(|&(index, start)| {
            (start.abs_diff(target), Reverse(self.free[index].len))
        })?;
        self.take(index, start, count);
        self.files += u64::from(count);
        Some(Run { start: AgBlock { ag: self.ag, block: start }, count })
    }

    /// Takes blocks out of a free extent. A record that goes leaves the last one twice.
    fn take(&mut self, index: usize, place: u32, count: u32) {
        let last = [self.free.last().copied(), self.by_size().last().copied()];
        let before = self.free.len();
        take(&mut self.free, index, place, count);
        for (stale, last) in self.stale.iter_mut().zip(last) {
            match self.free.len().cmp(&before) {
                Ordering::Less => stale.splice(0..0, last).for_each(drop),
                Ordering::Greater => drop(stale.drain(..stale.len().min(1))),
                Ordering::Equal => {}
            }
        }
    }

    /// Free extents, by size.
    fn by_size(&self) -> Vec<FreeExtent> {
        let mut list = self.free.clone();
        list.sort_by_key(|extent| (extent.len, extent.start));
        list
    }

    /// Takes the blocks of an inode chunk, the first that are free.
    pub(super) fn take_chunk(&mut self, shape: &Shape) -> Option<u32> {
        self.fill_list()?;
        let place = self.free.iter().enumerate().find_map(|(index, extent)| {
            let start = extent.start.next_multiple_of(shape.root_align);
            (start + shape.chunk_blocks <= extent.start + extent.len).then_some((index, start))
        });
        let (index, start) = place?;
        self.take(index, start, shape.chunk_blocks);
        let len = shape.chunk_blocks;
        self.learn(Rmap { start, len, owner: owner::INODES, offset: 0 });
        self.chunks.push(Chunk { start, used: 0 });
        Some(start)
    }

    pub(super) fn free_blocks(&self) -> u64 {
        self.free.iter().map(|extent| u64::from(extent.len)).sum()
    }

    /// Headers and roots, from the group's first block on; the superblock's sector is left out.
    pub(super) fn headers(&self, shape: &Shape, geometry: &Geometry) -> Vec<u8> {
        let (block, sector) = (geometry.block_size as usize, geometry.sector_size as usize);
        let mut bytes = vec![0; shape.roots_end as usize * block];
        let (headers, roots) = bytes.split_at_mut(shape.first_root as usize * block);
        let mut sectors = headers.chunks_exact_mut(sector).skip(1);
        let mut next = || sectors.next().expect("room for four sectors");
        self.agf(shape, geometry, next());
        self.agi(shape, geometry, next());
        self.agfl(geometry, next());
        for (root, data) in self.roots(shape).into_iter().zip(roots.chunks_exact_mut(block)) {
            let place = AgBlock { ag: self.ag, block: root.block };
            if let (Kind::Rmap, Some(tree)) = (root.kind, &self.tree) {
                tree.write_block(root.block, data);
                continue;
            }
            btree::init(root.kind, data, 0, &geometry.expect_ag(place));
            let size = btree::Shape::of(root.kind).record;
            let at = btree::Shape::of(root.kind).header;
            let count = root.records.len() / size;
            let end = at + root.records.len();
            data[at..end].copy_from_slice(&root.records);
            data[end..end + root.stale.len()].copy_from_slice(&root.stale);
            btree::set_len(data, count);
            verifier::update_lsn_crc(root.kind, data, 0);
        }
        bytes
    }

    /// Blocks of the reverse map that lie elsewhere, by their places.
    pub(super) fn tree_writes(&self, shape: &Shape, geometry: &Geometry) -> Vec<(u64, Vec<u8>)> {
        let blocks = self.tree.iter().flat_map(RmapTree::block_numbers);
        let further = blocks.filter(|&block| block != shape.rmap_root());
        let write = |block| {
            let mut data = vec![0; geometry.block_size as usize];
            self.tree.iter().for_each(|tree| tree.write_block(block, &mut data));
            (geometry.ag_sector(AgBlock { ag: self.ag, block }).bytes(), data)
        };
        further.map(write).collect()
    }

    fn agf(&self, shape: &Shape, geometry: &Geometry, sector: &mut [u8]) {
        let options = &shape.options;
        let address = geometry.header_sector(self.ag, AgHeader::Agf);
        verifier::stamp(Kind::Agf, sector, &geometry.expect(address, None));
        let mut block = shape.first_root + 3 + u32::from(options.finobt);
        let agf = RawAgf::view_mut(sector).expect("a sector");
        agf.agf_versionnum.set(VERSION);
        agf.agf_seqno.set(self.ag);
        agf.agf_length.set(self.length);
        agf.agf_bno_root.set(shape.first_root);
        agf.agf_cnt_root.set(shape.first_root + 1);
        agf.agf_bno_level.set(1);
        agf.agf_cnt_level.set(1);
        if let Some(tree) = &self.tree {
            agf.agf_rmap_root.set(tree.top_block());
            agf.agf_rmap_level.set(tree.levels);
            agf.agf_rmap_blocks.set(tree.tree_len());
            agf.agf_btreeblks.set(tree.tree_len() - 1);
            block += 1;
        }
        if options.reflink {
            agf.agf_refcount_root.set(block);
            agf.agf_refcount_level.set(1);
            agf.agf_refcount_blocks.set(1);
        }
        let (size, count) = (agfl_size(geometry), self.listed.len() as u32);
        let last = self.list.len() as u32;
        agf.agf_flfirst.set((last - count + 1) % size);
        agf.agf_fllast.set(last % size);
        agf.agf_flcount.set(count);
        agf.agf_freeblks.set(self.free_blocks() as u32);
        agf.agf_longest.set(self.free.iter().map(|extent| extent.len).max().unwrap_or(0));
        verifier::update_lsn_crc(Kind::Agf, sector, 0);
    }

    fn agi(&self, shape: &Shape, geometry: &Geometry, sector: &mut [u8]) {
        let address = geometry.header_sector(self.ag, AgHeader::Agi);
        verifier::stamp(Kind::Agi, sector, &geometry.expect(address, None));
        let agi = RawAgi::view_mut(sector).expect("a sector");
        agi.agi_versionnum.set(VERSION);
        agi.agi_seqno.set(self.ag);
        agi.agi_length.set(self.length);
        agi.agi_root.set(shape.first_root + 2);
        agi.agi_level.set(1);
        agi.agi_newino.set(NULL32);
        agi.agi_dirino.set(NULL32);
        agi.agi_unlinked.iter_mut().for_each(|head| head.set(NULL32));
        if shape.options.finobt {
            agi.agi_free_root.set(shape.first_root + 3);
            agi.agi_free_level.set(1);
        }
        if shape.options.inobtcount {
            agi.agi_iblocks.set(1);
            agi.agi_fblocks.set(1);
        }
        if let Some(chunk) = self.chunks.last() {
            let count = shape.chunk_inodes() * self.chunks.len() as u32;
            agi.agi_count.set(count);
            agi.agi_freecount.set(count - self.chunks.iter().map(|chunk| chunk.used).sum::<u32>());
            agi.agi_newino.set(geometry.block_agino(chunk.start));
        }
        verifier::update_lsn_crc(Kind::Agi, sector, 0);
    }

    fn agfl(&self, geometry: &Geometry, sector: &mut [u8]) {
        let address = geometry.header_sector(self.ag, AgHeader::Agfl);
        sector.fill(0xff);
        sector[..crate::format::ag::AGFL_HEADER].fill(0);
        verifier::stamp(Kind::Agfl, sector, &geometry.expect(address, None));
        put_u32(sector, 4, self.ag);
        for (slot, &block) in (1..).zip(&self.list) {
            set_agfl_block(sector, slot % agfl_size(geometry), block);
        }
        verifier::update_lsn_crc(Kind::Agfl, sector, 0);
    }

    /// The roots in the order of their blocks.
    fn roots(&self, shape: &Shape) -> Vec<RootBlock> {
        let options = &shape.options;
        let mut chunks = self.chunks.clone();
        chunks.sort_by_key(|chunk| chunk.start);
        let records: Vec<_> = chunks.iter().flat_map(|chunk| chunk.records(shape)).collect();
        let bytes = |record: &InodeChunk| {
            let mut bytes = [0; 16];
            record.write(&mut bytes, shape.options.sparse);
            bytes
        };
        let all = records.iter().flat_map(bytes).collect();
        let free = records.iter().filter(|record| record.free_count > 0).flat_map(bytes).collect();
        // A chunk leaves the tree with its last free inode, as it was before.
        let last = chunks
            .last()
            .and_then(|chunk| Chunk { used: chunk.used - 1, ..*chunk }.records(shape).last());
        let all_used: Vec<u8> = last.iter().flat_map(bytes).collect();
        let mut kinds = vec![
            (Kind::FreeByBlock, bytes_of(&self.free, 8, FreeExtent::write)),
            (Kind::FreeBySize, bytes_of(&self.by_size(), 8, FreeExtent::write)),
            (Kind::Inobt, all),
        ];
        if options.finobt {
            kinds.push((Kind::Finobt, free));
        }
        if options.rmapbt {
            kinds.push((Kind::Rmap, Vec::new()));
        }
        if options.reflink {
            kinds.push((Kind::Refcount, Vec::new()));
        }
        let blocks = shape.first_root..;
        let root = |((kind, records), block): ((Kind, Vec<u8>), u32)| {
            let stale = match kind {
                Kind::FreeByBlock => bytes_of(&self.stale[0], 8, FreeExtent::write),
                Kind::FreeBySize => bytes_of(&self.stale[1], 8, FreeExtent::write),
                Kind::Finobt if records.is_empty() => all_used.clone(),
                _ => Vec::new(),
            };
            RootBlock { kind, block, records, stale }
        };
        kinds.into_iter().zip(blocks).map(root).collect()
    }

    /// The owners of the blocks in use before there are inodes, neighbours of one owner joined.
    fn first_rmaps(&self, shape: &Shape) -> Vec<Rmap> {
        let options = &shape.options;
        let first = shape.first_root;
        let inode_trees = 1 + u32::from(options.finobt);
        let mut list = vec![
            (0, first, owner::FS),
            (first, 2, owner::AG),
            (first + 2, inode_trees, owner::INOBT),
            (first + 2 + inode_trees, 1, owner::AG),
        ];
        if options.reflink {
            list.push((first + 3 + inode_trees, 1, owner::REFC));
        }
        if self.ag == shape.log_place.0 {
            list.push((shape.log_place.1, shape.raw.sb_logblocks.get(), owner::LOG));
        }
        list.extend(self.list.iter().map(|&block| (block, 1, owner::AG)));
        list.sort_unstable();
        let mut out: Vec<Rmap> = Vec::new();
        for (start, len, owner) in list {
            match out.last_mut() {
                Some(last) if last.owner == owner && last.start + last.len == start => {
                    last.len += len;
                }
                _ => out.push(Rmap { start, len, owner, offset: 0 }),
            }
        }
        out
    }
}

impl Chunk {
    /// One record for each 64.
    fn records(self, shape: &Shape) -> impl Iterator<Item = InodeChunk> {
        let first = self.start << shape.raw.sb_inopblog;
        (0..shape.chunk_inodes()).step_by(64).map(move |at| {
            let used = self.used.saturating_sub(at).min(64);
            let free = u64::MAX.checked_shl(used).unwrap_or(0);
            let free_count = 64 - used as u8;
            InodeChunk { start: first + at, holes: 0, count: 64, free_count, free }
        })
    }
}

/// A btree that is one leaf.
struct RootBlock {
    kind: Kind,
    block: u32,
    records: Vec<u8>,
    /// What follows the records that count.
    stale: Vec<u8>,
}

fn bytes_of<T>(list: &[T], size: usize, write: impl Fn(&T, &mut [u8])) -> Vec<u8> {
    let mut bytes = vec![0; list.len() * size];
    for (record, slot) in list.iter().zip(bytes.chunks_exact_mut(size)) {
        write(record, slot);
    }
    bytes
}
