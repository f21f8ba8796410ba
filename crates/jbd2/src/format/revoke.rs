//! Revoke blocks: blocks whose older copies in the log must not be replayed.

use super::raw;
use super::{BlockType, Header, Layout};

/// Bytes in front of the first record.
const HEADER_LEN: usize = 16;

fn record_len(layout: &Layout) -> usize {
    if layout.bit64 { 8 } else { 4 }
}

/// Records that fit into one block.
pub fn per_block(layout: &Layout) -> usize {
    (layout.block_size as usize - HEADER_LEN - layout.tail_len()) / record_len(layout)
}

/// Writes a revoke block and its checksum.
///
/// # Panics
/// Where more blocks are named than fit ([`per_block`]).
pub fn emit(layout: &Layout, sequence: u32, blocks: &[u64], block: &mut [u8]) {
    assert!(blocks.len() <= per_block(layout), "revoke records fit");
    block.fill(0);
    Header::emit(BlockType::Revoke, sequence, block);
    let len = record_len(layout);
    let used = HEADER_LEN + blocks.len() * len;
    raw::view_mut::<raw::Revoke>(block).expect("a block holds it").r_count.set(used as u32);
    for (place, &revoked) in block[HEADER_LEN..].chunks_exact_mut(len).zip(blocks) {
        match layout.bit64 {
            true => place.copy_from_slice(&revoked.to_be_bytes()),
            false => place.copy_from_slice(&(revoked as u32).to_be_bytes()),
        }
    }
    layout.set_tail(block);
}

/// Reads the blocks that a revoke block names; `Err` with the count of bytes it claims where that
/// cannot be.
pub fn parse(layout: &Layout, block: &[u8]) -> Result<Vec<u64>, u32> {
    let raw = raw::view::<raw::Revoke>(block).ok_or(0u32)?;
    let count = raw.r_count.get();
    let room = block.len() - layout.tail_len();
    let used = count as usize;
    if used < HEADER_LEN || used > room {
        return Err(count);
    }
    let records = block[HEADER_LEN..used].chunks_exact(record_len(layout));
    Ok(records
        .map(|record| match record.try_into() {
            Ok(eight) => u64::from_be_bytes(eight),
            Err(_) => u32::from_be_bytes(record.try_into().expect("four bytes")).into(),
        })
        .collect())
}
