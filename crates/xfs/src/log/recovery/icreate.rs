//! New inode chunks: what the log says in a few words instead of logging the clusters.

use std::sync::Arc;

use base::Sector;
use rt::Cx;

use super::RecoveryContext;
use super::transaction::LoggedItem;
use crate::buf::{BufCache, BufMap, LockedBuf, RAW};
use crate::error::Result;
use crate::format::log_item::RawIcreate;
use crate::format::{Kind, verifier};
use crate::log::LogError;

/// Inodes of a chunk at the most.
const INODES_MAX: u32 = 64;

/// The creation of a chunk of inodes.
pub(super) struct Icreate {
    ag: u32,
    block: u32,
    blocks: u32,
    generation: u32,
}

/// Checks an icreate item.
pub(super) fn parse(tid: u32, item: &LoggedItem, context: &RecoveryContext) -> Result<Icreate> {
    let first = &item.regions[0];
    let Some(raw) = RawIcreate::view(first).filter(|_| item.regions.len() == 1) else {
        let (what, found) = ("an icreate item", first.len() as u64);
        return Err(LogError::ItemLength { tid, what, found, expected: 28 }.into());
    };
    let wrong =
        |what, found: u32| Err(LogError::ItemValue { tid, what, found: u64::from(found) }.into());
    let (ag, block) = (raw.icl_ag.get(), raw.icl_agbno.get());
    let (count, blocks) = (raw.icl_count.get(), raw.icl_length.get());
    if ag >= context.ag_count {
        return wrong("group of an inode chunk", ag);
    }
    if raw.icl_isize.get() != context.inode_size {
        return wrong("inode size of an inode chunk", raw.icl_isize.get());
    }
    let per_block = context.block_size / context.inode_size;
    if count == 0 || count > INODES_MAX.max(per_block) {
        return wrong("inodes of an inode chunk", count);
    }
    if blocks == 0 || u64::from(blocks) * u64::from(per_block) != u64::from(count) {
        return wrong("blocks of an inode chunk", blocks);
    }
    if block == 0 || block.checked_add(blocks).is_none_or(|end| end > context.ag_blocks.0) {
        return wrong("first block of an inode chunk", block);
    }
    Ok(Icreate { ag, block, blocks, generation: raw.icl_gen.get() })
}

impl Icreate {
    /// The clusters of the chunk.
    pub fn clusters(&self, context: &RecoveryContext) -> Vec<BufMap> {
        let sectors = u64::from(context.block_size / 512);
        let step = context.cluster_blocks.clamp(1, self.blocks);
        let start = u64::from(self.ag) * u64::from(context.ag_blocks.0) + u64::from(self.block);
        let clusters = (0..self.blocks / step).map(|index| BufMap {
            daddr: Sector((start + u64::from(index * step)) * sectors),
            len: step * sectors as u32,
        });
        clusters.filter(|map| map.daddr.0 + u64::from(map.len) <= context.sectors).collect()
    }

    fn first_ino(&self, context: &RecoveryContext, map: BufMap) -> u64 {
        let per_block = u64::from(context.block_size / context.inode_size);
        let sectors = u64::from(context.block_size / 512);
        let block = map.daddr.0 / sectors - u64::from(self.ag) * u64::from(context.ag_blocks.0);
        let (bits, block_bits) = (context.ag_blocks.1, per_block.trailing_zeros());
        (u64::from(self.ag) << bits | block) << block_bits
    }
}

/// Makes a cluster of fresh inodes. May park.
pub(super) fn recover(
    cx: &mut Cx,
    bufs: &Arc<BufCache>,
    icreate: &Icreate,
    map: BufMap,
    context: &RecoveryContext,
) -> Result<LockedBuf> {
    let buf = bufs.get(cx, &[map], &RAW)?;
    buf.zero();
    let size = context.inode_size as usize;
    let first = icreate.first_ino(context, map);
    for index in 0..buf.len() / size {
        buf.with_range_mut(index * size, size, |inode| {
            inode[0..2].copy_from_slice(b"IN");
            inode[4] = 3;
            inode[92..96].copy_from_slice(&icreate.generation.to_be_bytes());
            inode[96..100].fill(0xff);
            inode[152..160].copy_from_slice(&(first + index as u64).to_be_bytes());
            inode[160..176].copy_from_slice(&context.meta_uuid);
            verifier::update_crc(Kind::Inode, inode);
        });
    }
    Ok(buf)
}
