//! Allocates and frees chunks of inodes.

use std::ops::Range;

use rt::Cx;

use super::{Agi, Inodes};
use crate::alloc::AllocRequest;
use crate::btree::Tree;
use crate::buf::{BufMap, INODE_CLUSTER};
use crate::error::{Result, XfsError};
use crate::format::log_item::{ItemKind, RawIcreate};
use crate::format::record::{InodeChunk, owner};
use crate::format::{AgBlock, AgInode, Kind, Owner, inode, verifier};
use crate::trans::Trans;
use crate::trans::intent::Work;
use zerocopy::IntoBytes;

impl Inodes {
    /// Makes more inodes in a group: a whole chunk, or a part of one where space is in pieces.
    /// Then the transaction rolls, which gives the group's free space back to others. False if
    /// the group has no space for it. May park.
    pub(super) fn grow(&self, cx: &mut Cx, trans: &mut Trans, agi: &Agi) -> Result<bool> {
        let Some((place, blocks)) = self.find_space(cx, trans, agi)? else { return Ok(false) };
        let first = self.space.geometry.block_agino(place.block);
        let inodes = blocks << self.space.geometry.inodes_per_block_bits;
        self.initialise(cx, trans, place, blocks)?;
        for start in (first..first + inodes).step_by(64) {
            self.add_chunk(cx, trans, agi, start..start + inodes.min(64))?;
        }
        agi.edit(trans, |raw| {
            raw.agi_count.set(raw.agi_count.get() + inodes);
            raw.agi_freecount.set(raw.agi_freecount.get() + inodes);
            raw.agi_newino.set(first);
        });
        self.count(0, i64::from(inodes));
        self.count(1, i64::from(inodes));
        trans.hold(agi.buf());
        trans.roll(cx)?;
        trans.unhold(agi.buf());
        Ok(true)
    }

    /// Blocks for a chunk near the newest one.
    fn find_space(
        &self,
        cx: &mut Cx,
        trans: &mut Trans,
        agi: &Agi,
    ) -> Result<Option<(AgBlock, u32)>> {
        let geometry = &self.space.geometry;
        let chunks = geometry.chunks;
        let newest = agi.with(|raw| raw.agi_newino.get());
        let goal = match newest {
            crate::format::NULL32 => 0,
            newest => geometry.agino_block(newest) + chunks.blocks,
        };
        let sparse = geometry.features.sparse() && chunks.sparse_align > 0;
        let mut tries = vec![(chunks.blocks, chunks.align)];
        if sparse && chunks.sparse_align < chunks.blocks {
            tries.push((chunks.sparse_align, chunks.sparse_align));
        }
        for (blocks, align) in tries {
            let want = AllocRequest {
                goal: AgBlock { ag: agi.ag, block: goal },
                min_len: blocks,
                max_len: blocks,
                align,
                this_group: true,
                owner: Some(Owner::special(owner::INODES)),
                // Recovery would not make inodes where the same checkpoint frees blocks.
                metadata: false,
            };
            match self.space.allocate_metadata(cx, trans, &want) {
                Ok(found) => return Ok(Some((found.start, blocks))),
                Err(XfsError::NoSpace) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(None)
    }

    /// Fills new blocks with free inodes. The log gets a few bytes; the blocks are written
    /// before it forgets.
    fn initialise(
        &self,
        cx: &mut Cx,
        trans: &mut Trans,
        place: AgBlock,
        blocks: u32,
    ) -> Result<()> {
        let geometry = &self.space.geometry;
        let generation = cx.random() as u32;
        let mut item = RawIcreate::zeroed();
        item.icl_type.set(ItemKind::Icreate as u16);
        item.icl_size.set(1);
        item.icl_ag.set(place.ag);
        item.icl_agbno.set(place.block);
        item.icl_count.set(blocks << geometry.inodes_per_block_bits);
        item.icl_isize.set(geometry.inode_size);
        item.icl_length.set(blocks);
        item.icl_gen.set(generation);
        trans.log_region(item.as_bytes().to_vec());
        for map in self.clusters(place, blocks) {
            let buf = trans.get_buf(cx, &[map], &INODE_CLUSTER)?;
            buf.zero();
            let size = geometry.inode_size as usize;
            let sector = map.daddr.0 - geometry.ag_sector(AgBlock { block: 0, ..place }).0;
            let first = geometry.block_agino((sector / geometry.block_sectors()) as u32);
            for index in 0..buf.len() / size {
                let ino = geometry.ino_join(AgInode { ag: place.ag, agino: first + index as u32 });
                buf.with_range_mut(index * size, size, |slot| {
                    inode::emit_free(slot, ino, generation, geometry);
                    verifier::update_crc(Kind::Inode, slot);
                });
            }
            trans.ordered(&buf);
        }
        Ok(())
    }

    /// The clusters of some blocks of inodes.
    fn clusters(&self, place: AgBlock, blocks: u32) -> Vec<BufMap> {
        let geometry = &self.space.geometry;
        let step = geometry.chunks.cluster_blocks.clamp(1, blocks);
        let sectors = geometry.block_sectors() as u32;
        let starts = (place.block..place.block + blocks).step_by(step as usize);
        starts
            .map(|block| BufMap {
                daddr: geometry.ag_sector(AgBlock { block, ..place }),
                len: step * sectors,
            })
            .collect()
    }

    /// Notes new inodes: a chunk of 64, or a part of one that may be there already.
    fn add_chunk(
        &self,
        cx: &mut Cx,
        trans: &mut Trans,
        agi: &Agi,
        inodes: Range<u32>,
    ) -> Result<()> {
        let (first, count) = (inodes.start, inodes.end - inodes.start);
        let geometry = &self.space.geometry;
        if count == 64 {
            let chunk = InodeChunk { start: first, holes: 0, count: 64, free_count: 64, free: !0 };
            return self.store(cx, trans, agi, &chunk);
        }
        // Whole chunks are aligned to their own size where sparse ones are allowed.
        let per_chunk = geometry.block_agino(geometry.chunks.blocks).max(64);
        let start = first - first % per_chunk;
        let bits = (0..count / 4).fold(0u16, |bits, bit| bits | 1 << ((first - start) / 4 + bit));
        let mut store = self.tree(agi, Kind::Inobt);
        let mut tree = Tree::new(&mut store);
        let known = tree.find(cx, trans, [u64::from(start), 0, 0])?;
        let known = known.map(|cursor| InodeChunk::read(&tree.record(&cursor), true));
        let none = InodeChunk { start, holes: !0, count: 0, free_count: 0, free: !0 };
        let mut chunk = known.unwrap_or(none);
        if chunk.holes & bits != bits {
            return Err(tree.broken("new inodes are in a chunk already"));
        }
        chunk.holes &= !bits;
        chunk.count += count as u8;
        chunk.free_count += count as u8;
        self.store(cx, trans, agi, &chunk)
    }

    /// Gives a chunk back that has no used inode.
    pub(super) fn shrink(
        &self,
        cx: &mut Cx,
        trans: &mut Trans,
        agi: &Agi,
        chunk: &InodeChunk,
    ) -> Result<()> {
        let geometry = &self.space.geometry;
        let features = geometry.features;
        for kind in [Kind::Inobt, Kind::Finobt] {
            if kind == Kind::Finobt && !features.finobt() {
                continue;
            }
            let mut store = self.tree(agi, kind);
            let mut tree = Tree::new(&mut store);
            if let Some(cursor) = tree.find(cx, trans, [u64::from(chunk.start), 0, 0])? {
                tree.delete(cx, trans, cursor)?;
            }
        }
        let count = u32::from(chunk.count);
        agi.edit(trans, |raw| {
            raw.agi_count.set(raw.agi_count.get() - count);
            raw.agi_freecount.set(raw.agi_freecount.get() - count);
        });
        self.count(0, -i64::from(count));
        self.count(1, -i64::from(count));
        for (first, inodes) in pieces(chunk) {
            let place = AgBlock { ag: agi.ag, block: geometry.agino_block(first) };
            let blocks = (inodes >> geometry.inodes_per_block_bits).max(1);
            for map in self.clusters(place, blocks) {
                let buf = trans.get_buf(cx, &[map], &INODE_CLUSTER)?;
                trans.invalidate(&buf);
            }
            let start = geometry.join(place).0;
            trans.defer(Work::free(start, blocks, Some(Owner::special(owner::INODES))));
        }
        Ok(())
    }
}

/// The runs of inodes of a chunk that have a place: first inode, inodes.
fn pieces(chunk: &InodeChunk) -> Vec<(u32, u32)> {
    let mut pieces: Vec<(u32, u32)> = Vec::new();
    for bit in (0..16).filter(|bit| chunk.holes & 1 << bit == 0) {
        let first = chunk.start + 4 * bit;
        match pieces.last_mut() {
            Some((start, count)) if *start + *count == first => *count += 4,
            _ => pieces.push((first, 4)),
        }
    }
    pieces
}
