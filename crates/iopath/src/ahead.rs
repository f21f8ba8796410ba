//! What is read first of a disk on a server: asked for at once, and not in turn.
//!
//! A disk is recognised by its start and its end, and a mount goes from the superblock to the
//! inodes of the first group and to the journal. Each is a round trip, unless all are sent for
//! together. These are hints: nothing here is checked, and a wrong one costs a request.

use std::ops::Range;

use anyhow::Result;
use container::Source;

use ext4::format::{GroupDesc, RawSuper, extent, super_block};

/// Bytes at the start in which formats, tables and copies of headers are looked for.
const HEAD: u64 = 256 << 10;
/// Bytes at the end, for the same.
const TAIL: u64 = 128 << 10;
/// Bytes of a table of inodes, and of a journal.
const TABLE: u64 = 64 << 10;
/// What a source has after it was opened.
const OPENED: u64 = 64 << 10;
/// Where the superblock of ext2, ext3 and ext4 lies.
const SUPER: usize = 1024;

/// The ranges of a disk that will be read.
///
/// # Errors
/// The start cannot be read.
pub fn of_disk(source: &dyn Source) -> Result<Vec<Range<u64>>> {
    let size = source.size();
    let mut head = vec![0; OPENED.min(size) as usize];
    source.read_at(0, &mut head)?;
    let ends = [0..HEAD, size.saturating_sub(TAIL)..size];
    Ok(ends.into_iter().chain(of_ext(&head)).collect())
}

/// The inodes of the first group, and the journal's first block.
fn of_ext(head: &[u8]) -> Vec<Range<u64>> {
    let raw = head.get(SUPER..).and_then(RawSuper::view);
    let Some(raw) = raw.filter(|raw| raw.s_magic.get() == super_block::MAGIC) else {
        return Vec::new();
    };
    let block = 1024u64 << raw.s_log_block_size.get().min(6);
    let at = (u64::from(raw.s_first_data_block.get()) + 1) * block;
    let desc = usize::try_from(at).ok().and_then(|at| head.get(at..)?.get(..64));
    let table = desc.map(|desc| GroupDesc::read(&desc[..desc_size(raw)]).inode_table);
    [table, journal(raw)]
        .into_iter()
        .flatten()
        .filter_map(|first| {
            let start = first.checked_mul(block)?;
            Some(start..start.checked_add(TABLE)?)
        })
        .collect()
}

fn desc_size(raw: &RawSuper) -> usize {
    match raw.s_desc_size.get() {
        64.. => 64,
        _ => 32,
    }
}

/// The first block of the journal, by the copy of its inode's extents or blocks.
fn journal(raw: &RawSuper) -> Option<u64> {
    let words = &raw.s_jnl_blocks;
    match (raw.s_jnl_backup_type, words[0].get() as u16) {
        (1, extent::MAGIC) => {
            Some(u64::from(words[5].get()) | u64::from(words[4].get() >> 16) << 32)
        }
        (1, _) => Some(words[0].get().into()),
        _ => None,
    }
}
