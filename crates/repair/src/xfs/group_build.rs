//! The headers and btrees of a group, from what owns its blocks.

use base::FsBlock;
use block::DeviceError;
use xfs::Rule;
use xfs::format::ag::{AGFL_HEADER, RawAgf, RawAgi, VERSION, agfl_size, set_agfl_block};
use xfs::format::btree::Shape;
use xfs::format::record::{FreeExtent, InodeChunk, RMAP_ATTR_FORK, RMAP_BMBT, RMAP_UNWRITTEN};
use xfs::format::record::{Refcount, Rmap, owner};
use xfs::format::{AgBlock, AgHeader, At, Kind, NULL32, verifier};

use super::space::complement;
use super::super_block::Sums;
use super::tree_build::{Builder, blocks_for};
use super::{Fs, safe};
use crate::RepairError;

/// A btree that is built.
#[derive(Clone, Copy, Default)]
struct Root {
    block: u32,
    levels: u32,
    blocks: u32,
}

/// The records of a group's btrees, and where they will lie.
struct Layout {
    ag: u32,
    /// Blocks for the btrees in the order of `kinds`, then those of the free list.
    taken: Vec<u32>,
    /// Blocks of each btree.
    counts: Vec<usize>,
    kinds: Vec<Kind>,
    chunks: Vec<InodeChunk>,
    free: Vec<FreeExtent>,
    rmaps: Vec<Rmap>,
    refcounts: Vec<Refcount>,
}

fn is_data(claim: &Rmap) -> bool {
    owner::is_inode(claim.owner) && claim.offset & (RMAP_ATTR_FORK | RMAP_BMBT) == 0
}

/// How often blocks are shared by content, where it is more than once.
pub fn shared(claims: &[Rmap]) -> Vec<Refcount> {
    let mut events: Vec<(u32, i32)> = Vec::new();
    for claim in claims.iter().filter(|claim| is_data(claim)) {
        events.extend([(claim.start, 1), (claim.start + claim.len, -1)]);
    }
    events.sort_unstable();
    let (mut list, mut refs, mut at) = (Vec::new(), 0, 0);
    for (block, change) in events {
        if refs > 1 && block > at {
            let run = Refcount { start: at, cow: false, len: block - at, refs: refs as u32 };
            run.append_to(&mut list);
        }
        (refs, at) = (refs + change, block);
    }
    list
}

/// Joins what one record can hold, in the order of the reverse mapping tree.
pub fn joined(mut list: Vec<Rmap>) -> Vec<Rmap> {
    let flags = |claim: &Rmap| claim.offset & (RMAP_ATTR_FORK | RMAP_BMBT | RMAP_UNWRITTEN);
    list.sort_unstable_by_key(|claim| (claim.owner, flags(claim), claim.offset, claim.start));
    let mut out: Vec<Rmap> = Vec::with_capacity(list.len());
    for claim in list {
        match out.last_mut() {
            Some(last) if last.is_continued_by(&claim) => last.len += claim.len,
            _ => out.push(claim),
        }
    }
    out.sort_unstable_by_key(|claim| (claim.key(), claim.len));
    out
}

pub fn bytes_of<T>(list: &[T], size: usize, write: impl Fn(&T, &mut [u8])) -> Vec<u8> {
    let mut bytes = vec![0; list.len() * size];
    for (record, slot) in list.iter().zip(bytes.chunks_exact_mut(size)) {
        write(record, slot);
    }
    bytes
}

impl Layout {
    /// The records of a kind, and the bytes of one.
    fn records(&self, kind: Kind, sparse: bool) -> Vec<u8> {
        let size = Shape::of(kind).record;
        let chunk = |chunk: &InodeChunk, data: &mut [u8]| chunk.write(data, sparse);
        match kind {
            Kind::FreeByBlock => bytes_of(&self.free, size, FreeExtent::write),
            Kind::FreeBySize => {
                let mut by_size = self.free.clone();
                by_size.sort_by_key(|extent| (extent.len, extent.start));
                bytes_of(&by_size, size, FreeExtent::write)
            }
            Kind::Inobt => bytes_of(&self.chunks, size, chunk),
            Kind::Finobt => {
                let free = self.chunks.iter().filter(|chunk| chunk.free_count > 0);
                bytes_of(&free.copied().collect::<Vec<_>>(), size, chunk)
            }
            Kind::Rmap => bytes_of(&self.rmaps, size, Rmap::write),
            _ => bytes_of(&self.refcounts, size, Refcount::write),
        }
    }

    fn owner(kind: Kind) -> u64 {
        match kind {
            Kind::Inobt | Kind::Finobt => owner::INOBT,
            Kind::Refcount => owner::REFC,
            _ => owner::AG,
        }
    }

    /// The blocks of the free list.
    fn list(&self) -> &[u32] {
        &self.taken[self.counts.iter().sum()..]
    }
}

impl Fs<'_> {
    /// Writes the groups anew in which anything is wrong or has changed since they had the claims
    /// `before`, and the sums.
    pub fn write_groups(&mut self, before: &[Vec<Rmap>]) -> Result<(), RepairError> {
        let claims = self.claims();
        for ((ag, claims), before) in (0..self.g.ag_count()).zip(claims).zip(before) {
            let suspect = self.suspects.groups.contains(&ag);
            let wrong = self.groups[ag as usize].wrong;
            let changed = self.touched.contains(&ag) || claims != *before;
            if !(suspect || wrong || changed) {
                continue;
            }
            self.write_group(ag, claims)?;
            if suspect || wrong {
                let action = "write headers and btrees anew, from the inodes";
                let detail = "headers or btrees do not fit the inodes, or one another";
                self.note(safe(Rule::GroupHeader, At::Agf(ag), detail, action));
            }
        }
        let sums = self.sums()?;
        Ok(self.write_sums(&sums)?)
    }

    /// The sums over the headers of all groups.
    ///
    /// # Errors
    /// The device's.
    pub fn sums(&mut self) -> Result<Sums, DeviceError> {
        let mut sums = Sums::default();
        for ag in 0..self.g.ag_count() {
            let sector = self.g.header_sector(ag, AgHeader::Agf);
            let (bytes, _) = self.header(sector, Kind::Agf, At::Agf(ag))?;
            let agf = RawAgf::view(&bytes).expect("a sector holds it");
            let words = [agf.agf_freeblks, agf.agf_flcount, agf.agf_btreeblks];
            sums.free_blocks += words.iter().map(|word| u64::from(word.get())).sum::<u64>();
            let sector = self.g.header_sector(ag, AgHeader::Agi);
            let (bytes, _) = self.header(sector, Kind::Agi, At::Agi(ag))?;
            let agi = RawAgi::view(&bytes).expect("a sector holds it");
            sums.inodes += u64::from(agi.agi_count.get());
            sums.free_inodes += u64::from(agi.agi_freecount.get());
        }
        Ok(sums)
    }

    fn kinds(&self) -> Vec<Kind> {
        let features = &self.g.features;
        let mut kinds = vec![Kind::FreeByBlock, Kind::FreeBySize, Kind::Inobt];
        kinds.extend(features.finobt().then_some(Kind::Finobt));
        kinds.extend(features.rmapbt().then_some(Kind::Rmap));
        kinds.extend(features.reflink().then_some(Kind::Refcount));
        kinds
    }

    /// Decides where the btrees lie: the more blocks they take the fewer are free.
    fn lay_out(&self, ag: u32, claims: &[Rmap]) -> Option<Layout> {
        let kinds = self.kinds();
        let size = self.g.block_size as usize;
        let length = self.g.ag_length(ag);
        let refcounts = if self.g.features.reflink() { shared(claims) } else { Vec::new() };
        let mut layout = Layout {
            ag,
            taken: Vec::new(),
            counts: vec![1; kinds.len()],
            kinds,
            chunks: self.groups[ag as usize].chunks.clone(),
            free: Vec::new(),
            rmaps: Vec::new(),
            refcounts,
        };
        let empty = complement(claims, length);
        let all = empty.iter().flat_map(|extent| extent.start..extent.start + extent.len);
        let most = agfl_size(&self.g) as usize;
        loop {
            let trees: usize = layout.counts.iter().sum();
            let list = (6 + trees / 4).min(most).min(64);
            layout.taken = all.clone().take(trees + list).collect();
            if layout.taken.len() < trees {
                return None;
            }
            self.fill(&mut layout, claims, length);
            let records = |kind| layout.records(kind, true).len() / Shape::of(kind).record;
            let needed = layout.kinds.iter().map(|&kind| blocks_for(kind, records(kind), size, 1));
            let needed: Vec<usize> = needed.collect();
            let enough = needed.iter().zip(&layout.counts).all(|(want, have)| want <= have);
            if enough && needed == layout.counts {
                return Some(layout);
            }
            let largest = |(want, have): (&usize, &usize)| *want.max(have);
            let counts: Vec<usize> = needed.iter().zip(&layout.counts).map(largest).collect();
            if enough {
                // One block less would be one block more of something else: it is not needed.
                return self.spill(layout, needed);
            }
            layout.counts = counts;
        }
    }

    /// Puts blocks that the trees do not need into the free list.
    fn spill(&self, mut layout: Layout, needed: Vec<usize>) -> Option<Layout> {
        let more = layout.counts.iter().sum::<usize>() - needed.iter().sum::<usize>();
        let fits = layout.list().len() + more <= agfl_size(&self.g) as usize;
        // All of them belong to the group: only the inode and reference count trees do not.
        let kinds = layout.kinds.iter().zip(&layout.counts).zip(&needed);
        let alike = kinds
            .filter(|((_, have), want)| have != want)
            .all(|((kind, _), _)| Layout::owner(*kind) == owner::AG);
        // Each tree keeps its first blocks: whose they are is counted already.
        let (mut trees, mut list, mut at) = (Vec::new(), Vec::new(), 0);
        for (&have, &want) in layout.counts.iter().zip(&needed) {
            trees.extend_from_slice(&layout.taken[at..at + want]);
            list.extend_from_slice(&layout.taken[at + want..at + have]);
            at += have;
        }
        list.extend_from_slice(&layout.taken[at..]);
        trees.append(&mut list);
        (layout.taken, layout.counts) = (trees, needed);
        (fits && alike).then_some(layout)
    }

    /// Records of free space and of owners, once the blocks of the trees are chosen.
    fn fill(&self, layout: &mut Layout, claims: &[Rmap], length: u32) {
        let mut all = claims.to_vec();
        let mut taken = layout.taken.iter();
        for (&kind, &count) in layout.kinds.iter().zip(&layout.counts) {
            let owner = Layout::owner(kind);
            let blocks = taken.by_ref().take(count);
            all.extend(blocks.map(|&start| Rmap { start, len: 1, owner, offset: 0 }));
        }
        all.extend(taken.map(|&start| Rmap { start, len: 1, owner: owner::AG, offset: 0 }));
        layout.free = complement(&all, length);
        layout.rmaps = joined(all);
    }

    fn write_group(&mut self, ag: u32, claims: Vec<Rmap>) -> Result<(), RepairError> {
        let Some(layout) = self.lay_out(ag, &claims) else {
            let text = format!("group {ag} has no room for its own btrees");
            return Err(RepairError::Hopeless(text));
        };
        let size = self.g.block_size as usize;
        let mut numbers = layout.taken.iter().map(|&block| u64::from(block));
        let mut roots = Vec::new();
        let (mut built, g) = (Vec::new(), self.g.clone());
        for (&kind, &count) in layout.kinds.iter().zip(&layout.counts) {
            let records = layout.records(kind, g.features.sparse());
            let expect = |block: u64| g.expect_ag(AgBlock { ag, block: block as u32 });
            let mut builder = Builder {
                kind,
                block_size: size,
                expect: &expect,
                numbers: &mut numbers,
                blocks: Vec::new(),
            };
            let (top, levels) = builder.build(&records, 1);
            let block = top[0].block as u32;
            roots.push(Root { block, levels: levels.into(), blocks: count as u32 });
            built.extend(builder.blocks);
        }
        for block in built {
            let place = AgBlock { ag, block: block.number as u32 };
            let linear: FsBlock = FsBlock(self.g.linear(place));
            self.view.write(linear.0, &block.data);
        }
        self.write_agf(&layout, &roots)?;
        self.write_agi(&layout, &roots)?;
        self.write_agfl(&layout)?;
        Ok(())
    }

    /// The root of a kind; nothing where there is no such tree.
    fn root(layout: &Layout, roots: &[Root], kind: Kind) -> Root {
        let at = layout.kinds.iter().position(|&other| other == kind);
        at.map_or(Root::default(), |at| roots[at])
    }

    fn write_agf(&mut self, layout: &Layout, roots: &[Root]) -> Result<(), RepairError> {
        let ag = layout.ag;
        let address = self.g.header_sector(ag, AgHeader::Agf);
        let mut sector = vec![0; self.g.sector_size as usize];
        verifier::stamp(Kind::Agf, &mut sector, &self.g.expect(address, None));
        let agf = RawAgf::view_mut(&mut sector).expect("a sector");
        agf.agf_versionnum.set(VERSION);
        agf.agf_seqno.set(ag);
        agf.agf_length.set(self.g.ag_length(ag));
        let of = |kind| Self::root(layout, roots, kind);
        let (bno, cnt, rmap) = (of(Kind::FreeByBlock), of(Kind::FreeBySize), of(Kind::Rmap));
        let refcount = of(Kind::Refcount);
        agf.agf_bno_root.set(bno.block);
        agf.agf_bno_level.set(bno.levels);
        agf.agf_cnt_root.set(cnt.block);
        agf.agf_cnt_level.set(cnt.levels);
        agf.agf_rmap_root.set(rmap.block);
        agf.agf_rmap_level.set(rmap.levels);
        agf.agf_rmap_blocks.set(rmap.blocks);
        agf.agf_refcount_root.set(refcount.block);
        agf.agf_refcount_level.set(refcount.levels);
        agf.agf_refcount_blocks.set(refcount.blocks);
        let below = bno.blocks + cnt.blocks - 2 + rmap.blocks.saturating_sub(1);
        agf.agf_btreeblks.set(below);
        let count = layout.list().len() as u32;
        agf.agf_flfirst.set(u32::from(count > 0));
        agf.agf_fllast.set(count);
        agf.agf_flcount.set(count);
        agf.agf_freeblks.set(layout.free.iter().map(|extent| extent.len).sum());
        agf.agf_longest.set(layout.free.iter().map(|extent| extent.len).max().unwrap_or(0));
        verifier::update_crc(Kind::Agf, &mut sector);
        Ok(self.view.write_bytes(address.bytes(), &sector)?)
    }

    fn write_agi(&mut self, layout: &Layout, roots: &[Root]) -> Result<(), RepairError> {
        let ag = layout.ag;
        let address = self.g.header_sector(ag, AgHeader::Agi);
        let mut sector = vec![0; self.g.sector_size as usize];
        verifier::stamp(Kind::Agi, &mut sector, &self.g.expect(address, None));
        let known = |agino: u32| layout.chunks.iter().any(|chunk| chunk.start == agino);
        let newest = self.groups[ag as usize].agi.agi_newino.get();
        let agi = RawAgi::view_mut(&mut sector).expect("a sector");
        agi.agi_versionnum.set(VERSION);
        agi.agi_seqno.set(ag);
        agi.agi_length.set(self.g.ag_length(ag));
        agi.agi_newino.set(if known(newest) { newest } else { NULL32 });
        agi.agi_dirino.set(NULL32);
        agi.agi_unlinked.iter_mut().for_each(|head| head.set(NULL32));
        let of = |kind| Self::root(layout, roots, kind);
        let (inodes, free) = (of(Kind::Inobt), of(Kind::Finobt));
        agi.agi_root.set(inodes.block);
        agi.agi_level.set(inodes.levels);
        agi.agi_free_root.set(free.block);
        agi.agi_free_level.set(free.levels);
        if self.g.features.inobtcount() {
            agi.agi_iblocks.set(inodes.blocks);
            agi.agi_fblocks.set(free.blocks);
        }
        let sum = |count: fn(&InodeChunk) -> u8| {
            layout.chunks.iter().map(|chunk| u32::from(count(chunk))).sum::<u32>()
        };
        agi.agi_count.set(sum(|chunk| chunk.count));
        agi.agi_freecount.set(sum(|chunk| chunk.free_count));
        verifier::update_crc(Kind::Agi, &mut sector);
        Ok(self.view.write_bytes(address.bytes(), &sector)?)
    }

    fn write_agfl(&mut self, layout: &Layout) -> Result<(), RepairError> {
        let ag = layout.ag;
        let address = self.g.header_sector(ag, AgHeader::Agfl);
        let mut sector = vec![0xff; self.g.sector_size as usize];
        sector[..AGFL_HEADER].fill(0);
        verifier::stamp(Kind::Agfl, &mut sector, &self.g.expect(address, None));
        sector[4..8].copy_from_slice(&ag.to_be_bytes());
        for (index, &block) in layout.list().iter().enumerate() {
            set_agfl_block(&mut sector, index as u32 + 1, block);
        }
        verifier::update_crc(Kind::Agfl, &mut sector);
        Ok(self.view.write_bytes(address.bytes(), &sector)?)
    }
}
