//! The headers of an allocation group: AGF (free space), AGFL (blocks kept for the btrees of free
//! space) and AGI (inodes), one sector each behind the group's superblock.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::{
    At, Corrupt, CorruptKind, Geometry, Kind, L32, NULL32, U32, U64, assert_layout, put_u32,
    u32_at, verifier, views,
};
use crate::format::AgHeader;

/// Version of AGF and AGI.
pub const VERSION: u32 = 1;
/// Bytes of the AGFL's header; block numbers follow to the end of the sector.
pub const AGFL_HEADER: usize = 36;
/// Levels that a btree of a group may have at the most.
pub const LEVELS_MAX: u32 = 9;
/// Lists of unlinked inodes per group.
pub const UNLINKED_BUCKETS: usize = 64;

/// The header of free space as it lies on the disk.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned, Debug)]
#[repr(C)]
#[expect(missing_docs, reason = "the kernel's names")]
pub struct RawAgf {
    pub agf_magicnum: U32,
    pub agf_versionnum: U32,
    pub agf_seqno: U32,
    pub agf_length: U32,
    pub agf_bno_root: U32,
    pub agf_cnt_root: U32,
    pub agf_rmap_root: U32,
    pub agf_bno_level: U32,
    pub agf_cnt_level: U32,
    pub agf_rmap_level: U32,
    pub agf_flfirst: U32,
    pub agf_fllast: U32,
    pub agf_flcount: U32,
    pub agf_freeblks: U32,
    pub agf_longest: U32,
    pub agf_btreeblks: U32,
    pub agf_uuid: [u8; 16],
    pub agf_rmap_blocks: U32,
    pub agf_refcount_blocks: U32,
    pub agf_refcount_root: U32,
    pub agf_refcount_level: U32,
    pub agf_spare64: [U64; 14],
    pub agf_lsn: U64,
    pub agf_crc: L32,
    pub agf_spare2: U32,
}

assert_layout!(RawAgf, 224, agf_flfirst @ 40, agf_uuid @ 64, agf_rmap_blocks @ 80, agf_lsn @ 208,
    agf_crc @ 216);
views!(RawAgf);

/// The header of inodes as it lies on the disk.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned, Debug)]
#[repr(C)]
#[expect(missing_docs, reason = "the kernel's names")]
pub struct RawAgi {
    pub agi_magicnum: U32,
    pub agi_versionnum: U32,
    pub agi_seqno: U32,
    pub agi_length: U32,
    pub agi_count: U32,
    pub agi_root: U32,
    pub agi_level: U32,
    pub agi_freecount: U32,
    pub agi_newino: U32,
    pub agi_dirino: U32,
    pub agi_unlinked: [U32; UNLINKED_BUCKETS],
    pub agi_uuid: [u8; 16],
    pub agi_crc: L32,
    pub agi_pad32: U32,
    pub agi_lsn: U64,
    pub agi_free_root: U32,
    pub agi_free_level: U32,
    pub agi_iblocks: U32,
    pub agi_fblocks: U32,
}

assert_layout!(RawAgi, 344, agi_unlinked @ 40, agi_uuid @ 296, agi_crc @ 312, agi_lsn @ 320,
    agi_free_root @ 328, agi_fblocks @ 340);
views!(RawAgi);

/// A btree of a group: where its root lies and how high it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Root {
    /// The root's block in the group.
    pub block: u32,
    /// Levels: 1 where the root is a leaf.
    pub levels: u32,
}

fn ensure(holds: bool, kind: CorruptKind, at: At) -> Result<(), Corrupt> {
    if holds { Ok(()) } else { Err(kind.at(at)) }
}

fn check_root(root: Root, what: &'static str, length: u32, at: At) -> Result<(), Corrupt> {
    let Root { block, levels } = root;
    let fits = (1..=LEVELS_MAX).contains(&levels) && block > 0 && block < length;
    ensure(fits, CorruptKind::BtreeRoot { what, block, levels }, at)
}

/// Checks the group number, the length and the version that AGF and AGI have in common.
fn check_group(words: [u32; 3], ag: u32, geometry: &Geometry, at: At) -> Result<(), Corrupt> {
    let [version, number, length] = words;
    ensure(version == VERSION, CorruptKind::AgVersion(version), at)?;
    ensure(number == ag, CorruptKind::AgNumber { found: number, expected: ag }, at)?;
    let expected = geometry.ag_length(ag);
    ensure(length == expected, CorruptKind::AgLength { found: length, expected }, at)
}

impl RawAgf {
    /// The root of the free-space tree by block number.
    pub fn by_block(&self) -> Root {
        Root { block: self.agf_bno_root.get(), levels: self.agf_bno_level.get() }
    }

    /// The root of the free-space tree by size.
    pub fn by_size(&self) -> Root {
        Root { block: self.agf_cnt_root.get(), levels: self.agf_cnt_level.get() }
    }

    /// The root of the reverse mapping tree; meaningful with `rmapbt`.
    pub fn rmap(&self) -> Root {
        Root { block: self.agf_rmap_root.get(), levels: self.agf_rmap_level.get() }
    }

    /// The root of the reference count tree; meaningful with `reflink`.
    pub fn refcount(&self) -> Root {
        Root { block: self.agf_refcount_root.get(), levels: self.agf_refcount_level.get() }
    }

    /// The AGF of this group in its sector, checked.
    ///
    /// # Errors
    /// The first check that fails.
    pub fn parse<'a>(
        sector: &'a [u8],
        ag: u32,
        geometry: &Geometry,
    ) -> Result<&'a RawAgf, Corrupt> {
        let raw = RawAgf::parse_places(sector, ag, geometry)?;
        raw.check_counts(ag, geometry)?;
        Ok(raw)
    }

    /// As [`RawAgf::parse`], whatever the counters of free blocks say.
    ///
    /// # Errors
    /// The first check that fails.
    pub fn parse_places<'a>(
        sector: &'a [u8],
        ag: u32,
        geometry: &Geometry,
    ) -> Result<&'a RawAgf, Corrupt> {
        let address = geometry.header_sector(ag, AgHeader::Agf);
        verifier::verify(Kind::Agf, sector, &geometry.expect(address, None), At::Agf(ag))?;
        RawAgf::places(sector, ag, geometry)
    }

    /// The AGF of this group in its sector, whose self-description was checked when it was read.
    ///
    /// # Errors
    /// The first check that fails.
    pub fn parse_trusted<'a>(
        sector: &'a [u8],
        ag: u32,
        geometry: &Geometry,
    ) -> Result<&'a RawAgf, Corrupt> {
        let raw = RawAgf::places(sector, ag, geometry)?;
        raw.check_counts(ag, geometry)?;
        Ok(raw)
    }

    fn check_counts(&self, ag: u32, geometry: &Geometry) -> Result<(), Corrupt> {
        let (at, length) = (At::Agf(ag), geometry.ag_length(ag));
        let (free, longest) = (self.agf_freeblks.get(), self.agf_longest.get());
        ensure(free <= length, CorruptKind::FreeBlocks { found: free, limit: length }, at)?;
        ensure(longest <= free, CorruptKind::LongestFree { found: longest, free }, at)
    }

    /// Everything but the counters of free blocks.
    fn places<'a>(sector: &'a [u8], ag: u32, geometry: &Geometry) -> Result<&'a RawAgf, Corrupt> {
        let at = At::Agf(ag);
        let short = CorruptKind::Short { what: "AGF", bytes: sector.len() };
        let raw = RawAgf::view(sector).ok_or_else(|| short.at(at))?;
        let words = [&raw.agf_versionnum, &raw.agf_seqno, &raw.agf_length].map(|word| word.get());
        check_group(words, ag, geometry, at)?;
        let length = geometry.ag_length(ag);
        check_root(raw.by_block(), Kind::FreeByBlock.name(), length, at)?;
        check_root(raw.by_size(), Kind::FreeBySize.name(), length, at)?;
        if geometry.features.rmapbt() {
            check_root(raw.rmap(), Kind::Rmap.name(), length, at)?;
        }
        if geometry.features.reflink() {
            check_root(raw.refcount(), Kind::Refcount.name(), length, at)?;
        }
        let size = agfl_size(geometry);
        let (first, last, count) =
            (raw.agf_flfirst.get(), raw.agf_fllast.get(), raw.agf_flcount.get());
        let fits = first < size && last < size && count <= size;
        ensure(fits, CorruptKind::FreeList { first, last, count, size }, at)?;
        Ok(raw)
    }
}

impl RawAgi {
    /// The root of the inode tree.
    pub fn inobt(&self) -> Root {
        Root { block: self.agi_root.get(), levels: self.agi_level.get() }
    }

    /// The root of the free inode tree; meaningful with `finobt`.
    pub fn finobt(&self) -> Root {
        Root { block: self.agi_free_root.get(), levels: self.agi_free_level.get() }
    }

    /// The AGI of this group in its sector, checked.
    ///
    /// # Errors
    /// The first check that fails.
    pub fn parse<'a>(
        sector: &'a [u8],
        ag: u32,
        geometry: &Geometry,
    ) -> Result<&'a RawAgi, Corrupt> {
        let at = At::Agi(ag);
        let address = geometry.header_sector(ag, AgHeader::Agi);
        verifier::verify(Kind::Agi, sector, &geometry.expect(address, None), at)?;
        RawAgi::parse_trusted(sector, ag, geometry)
    }

    /// The AGI of this group in its sector, whose self-description was checked when it was read.
    ///
    /// # Errors
    /// The first check that fails.
    pub fn parse_trusted<'a>(
        sector: &'a [u8],
        ag: u32,
        geometry: &Geometry,
    ) -> Result<&'a RawAgi, Corrupt> {
        let at = At::Agi(ag);
        let short = CorruptKind::Short { what: "AGI", bytes: sector.len() };
        let raw = RawAgi::view(sector).ok_or_else(|| short.at(at))?;
        let words = [&raw.agi_versionnum, &raw.agi_seqno, &raw.agi_length].map(|word| word.get());
        check_group(words, ag, geometry, at)?;
        let length = geometry.ag_length(ag);
        check_root(raw.inobt(), Kind::Inobt.name(), length, at)?;
        if geometry.features.finobt() {
            check_root(raw.finobt(), Kind::Finobt.name(), length, at)?;
        }
        let (count, free) = (raw.agi_count.get(), raw.agi_freecount.get());
        let limit = u64::from(length) << geometry.inodes_per_block_bits;
        let fits = free <= count && u64::from(count) <= limit;
        ensure(fits, CorruptKind::AgInodes { count, free }, at)?;
        for (bucket, head) in raw.agi_unlinked.iter().enumerate() {
            let agino = head.get();
            let fits = agino == NULL32 || agino as usize % UNLINKED_BUCKETS == bucket;
            let kind = CorruptKind::UnlinkedBucket { bucket: bucket as u32, agino };
            ensure(fits, kind, at)?;
        }
        Ok(raw)
    }
}

/// Bytes in front of the AGFL's blocks: none in version 4.
fn agfl_header(geometry: &Geometry) -> usize {
    if geometry.v4() { 0 } else { AGFL_HEADER }
}

/// Room for blocks in the AGFL.
pub fn agfl_size(geometry: &Geometry) -> u32 {
    (geometry.sector_size - agfl_header(geometry) as u32) / 4
}

/// Checks the AGFL of this group in its sector.
///
/// # Errors
/// The first check that fails.
pub fn agfl_verify(sector: &[u8], ag: u32, geometry: &Geometry) -> Result<(), Corrupt> {
    let at = At::Agfl(ag);
    let address = geometry.header_sector(ag, AgHeader::Agfl);
    verifier::verify(Kind::Agfl, sector, &geometry.expect(address, None), at)?;
    let found = if geometry.v4() { ag } else { u32_at(sector, 4) };
    ensure(found == ag, CorruptKind::AgNumber { found, expected: ag }, at)
}

/// The block in this slot of the AGFL of version 5.
pub fn agfl_block(sector: &[u8], slot: u32) -> u32 {
    u32_at(sector, AGFL_HEADER + 4 * slot as usize)
}

/// Stores the block in this slot of the AGFL.
pub fn set_agfl_block(sector: &mut [u8], slot: u32, block: u32) {
    put_u32(sector, AGFL_HEADER + 4 * slot as usize, block);
}

/// The blocks on a group's free list, oldest first. `agf` was parsed, `agfl` verified.
pub fn agfl_blocks<'a>(
    agf: &RawAgf,
    agfl: &'a [u8],
    geometry: &Geometry,
) -> impl Iterator<Item = u32> + use<'a> {
    let (first, size) = (agf.agf_flfirst.get(), agfl_size(geometry));
    let blocks = &agfl[agfl_header(geometry)..];
    let place = move |index| 4 * ((first + index) % size) as usize;
    (0..agf.agf_flcount.get()).map(move |index| u32_at(blocks, place(index)))
}
