//! Descriptor blocks: which blocks follow, and where they belong.

use super::raw;
use super::{BlockType, Checksums, Header, Layout};

/// The block began with the magic; the log has zeros there.
const ESCAPE: u32 = 1;
/// No UUID follows the tag.
const SAME_UUID: u32 = 2;
/// The block was deleted by this transaction (never written by Linux today).
const DELETED: u32 = 4;
/// The last tag of the block.
const LAST: u32 = 8;

/// Bytes of a tag, without the UUID that may follow it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TagLayout {
    bytes: usize,
}

impl TagLayout {
    /// Checksum version 3 has tags of 16 bytes; the older form has 8, with 64-bit numbers 12, and
    /// with checksum version 2 two bytes more than it needs.
    pub fn new(layout: &Layout) -> TagLayout {
        let bytes = match (layout.checksums, layout.bit64) {
            (Checksums::V3, _) => 16,
            (Checksums::V2, bit64) => 10 + 4 * usize::from(bit64),
            (_, bit64) => 8 + 4 * usize::from(bit64),
        };
        TagLayout { bytes }
    }

    /// Bytes of a tag.
    pub fn len(self) -> usize {
        self.bytes
    }

    /// Never true; a tag has bytes.
    pub fn is_empty(self) -> bool {
        false
    }

    /// Tags that fit into one descriptor block.
    pub fn per_block(self, layout: &Layout) -> usize {
        (layout.block_size as usize - 12 - 16 - layout.tail_len()) / self.bytes
    }
}

/// One described block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tag {
    /// Where it belongs on the file system's device.
    pub block: u64,
    /// The log holds zeros instead of the magic that the block begins with.
    pub escaped: bool,
    /// Checksum of the logged bytes: 32 bits with version 3, the low 16 with version 2, else 0.
    pub checksum: u32,
}

impl Tag {
    /// True where the logged bytes fit the checksum, as far as the journal has one.
    pub fn verify(&self, layout: &Layout, sequence: u32, logged: &[u8]) -> bool {
        match layout.checksums {
            Checksums::V3 => self.checksum == layout.block_checksum(sequence, logged),
            Checksums::V2 => self.checksum == layout.block_checksum(sequence, logged) & 0xffff,
            Checksums::None | Checksums::V1 => true,
        }
    }
}

/// Writes a descriptor block for `tags` and its checksum.
///
/// # Panics
/// Where the tags are none or more than fit ([`TagLayout::per_block`]).
pub fn emit(layout: &Layout, sequence: u32, tags: &[Tag], block: &mut [u8]) {
    let tag_layout = TagLayout::new(layout);
    assert!(!tags.is_empty() && tags.len() <= tag_layout.per_block(layout), "tags fit");
    block.fill(0);
    Header::emit(BlockType::Descriptor, sequence, block);
    let mut at = 12;
    for (index, tag) in tags.iter().enumerate() {
        let mut flags = if tag.escaped { ESCAPE } else { 0 };
        if index > 0 {
            flags |= SAME_UUID;
        }
        if index + 1 == tags.len() {
            flags |= LAST;
        }
        emit_tag(layout, tag, flags, &mut block[at..]);
        at += tag_layout.len();
        if index == 0 {
            block[at..at + 16].copy_from_slice(&layout.uuid);
            at += 16;
        }
    }
    layout.set_tail(block);
}

fn emit_tag(layout: &Layout, tag: &Tag, flags: u32, place: &mut [u8]) {
    if layout.checksums == Checksums::V3 {
        let raw = raw::view_mut::<raw::Tag3>(place).expect("a tag fits");
        raw.t_blocknr.set(tag.block as u32);
        raw.t_flags.set(flags);
        raw.t_blocknr_high.set((tag.block >> 32) as u32);
        raw.t_checksum.set(tag.checksum);
        return;
    }
    place[0..4].copy_from_slice(&(tag.block as u32).to_be_bytes());
    place[4..6].copy_from_slice(&(tag.checksum as u16).to_be_bytes());
    place[6..8].copy_from_slice(&(flags as u16).to_be_bytes());
    if layout.bit64 {
        place[8..12].copy_from_slice(&((tag.block >> 32) as u32).to_be_bytes());
    }
}

/// Reads the tags of a descriptor block, in order. Ends at the one marked as the last, or where no
/// further one fits: a damaged block yields fewer or wrong tags, never a panic.
pub fn parse(layout: &Layout, block: &[u8]) -> Vec<Tag> {
    let tag_layout = TagLayout::new(layout);
    let end = block.len().saturating_sub(layout.tail_len());
    let mut tags = Vec::new();
    let mut at = 12;
    while at + tag_layout.len() <= end {
        let (tag, flags) = parse_tag(layout, &block[at..at + tag_layout.len()]);
        at += tag_layout.len();
        if flags & SAME_UUID == 0 {
            at += 16;
        }
        // Linux never writes it and does not look at it: the block is there all the same.
        let _ = DELETED;
        tags.push(tag);
        if flags & LAST != 0 {
            break;
        }
    }
    tags
}

fn parse_tag(layout: &Layout, raw: &[u8]) -> (Tag, u32) {
    let be32 = |at: usize| u32::from_be_bytes(raw[at..at + 4].try_into().expect("four bytes"));
    let be16 = |at: usize| u16::from_be_bytes(raw[at..at + 2].try_into().expect("two bytes"));
    let (flags, high, checksum) = match layout.checksums {
        Checksums::V3 => (be32(4), be32(8), be32(12)),
        Checksums::V2 => (be16(6).into(), if layout.bit64 { be32(8) } else { 0 }, be16(4).into()),
        _ => (be16(6).into(), if layout.bit64 { be32(8) } else { 0 }, 0),
    };
    let high = if layout.bit64 { u64::from(high) << 32 } else { 0 };
    let block = high | u64::from(be32(0));
    (Tag { block, escaped: flags & ESCAPE != 0, checksum }, flags)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn layouts() -> Vec<Layout> {
        let mut all = Vec::new();
        for checksums in [Checksums::None, Checksums::V1, Checksums::V2, Checksums::V3] {
            for bit64 in [false, true] {
                let uuid = *b"0123456789abcdef";
                all.push(Layout { block_size: 1024, checksums, bit64, seed: 77, uuid });
            }
        }
        all
    }

    #[test]
    fn tags_have_the_sizes_of_linux() {
        let sizes: Vec<usize> =
            layouts().iter().map(|layout| TagLayout::new(layout).len()).collect();
        assert_eq!(sizes, [8, 12, 8, 12, 10, 14, 16, 16]);
    }

    proptest! {
        #[test]
        fn emit_then_parse(
            which in 0usize..8,
            seeds in proptest::collection::vec(any::<(u64, bool, u32)>(), 1..200),
        ) {
            let layout = layouts()[which];
            let tags: Vec<Tag> = seeds
                .into_iter()
                .take(TagLayout::new(&layout).per_block(&layout))
                .map(|(block, escaped, checksum)| Tag {
                    block: if layout.bit64 { block } else { block & 0xffff_ffff },
                    escaped,
                    checksum: match layout.checksums {
                        Checksums::V3 => checksum,
                        Checksums::V2 => checksum & 0xffff,
                        _ => 0,
                    },
                })
                .collect();
            let mut block = [0xee; 1024];
            emit(&layout, 9, &tags, &mut block);
            prop_assert_eq!(parse(&layout, &block), tags);
            prop_assert_eq!(layout.verify_tail(&block), Ok(()));
        }

        #[test]
        fn parse_anything(
            which in 0usize..8,
            bytes in proptest::collection::vec(any::<u8>(), 0..1100),
        ) {
            let _ = parse(&layouts()[which], &bytes);
            let _ = super::super::revoke::parse(&layouts()[which], &bytes);
            let _ = super::super::CommitBlock::parse(&layouts()[which], &bytes);
            let _ = super::super::fast_commit::Scan::new(0).block(0, &bytes);
        }

        #[test]
        fn revokes_emit_then_parse(
            which in 0usize..8,
            blocks in proptest::collection::vec(any::<u32>(), 0..300),
        ) {
            let layout = layouts()[which];
            let room = super::super::revoke::per_block(&layout);
            let blocks: Vec<u64> = blocks.into_iter().map(u64::from).take(room).collect();
            let mut block = [0xee; 1024];
            super::super::revoke::emit(&layout, 9, &blocks, &mut block);
            prop_assert_eq!(super::super::revoke::parse(&layout, &block), Ok(blocks));
            prop_assert_eq!(layout.verify_tail(&block), Ok(()));
        }
    }
}
