//! Intents and their completions: changes that take several transactions.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::{L16, L32, L64, assert_layout, views};

/// The first region of EFI and EFD items; `nextents` [`RawExtent`] follow in the same region.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned, Debug)]
#[repr(C)]
pub struct RawFreeIntent {
    /// EFI or EFD.
    pub kind: L16,
    /// Regions: 1.
    pub size: L16,
    /// Extents that follow.
    pub nextents: L32,
    /// What ties a completion to its intent.
    pub id: L64,
}

assert_layout!(RawFreeIntent, 16, id @ 8);
views!(RawFreeIntent);

/// An extent of EFI and EFD, as 64-bit hosts write it. 32-bit hosts leave the padding out, which
/// the region's length shows.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned, Debug)]
#[repr(C)]
pub struct RawExtent {
    /// File system block, its group in the high bits.
    pub start: L64,
    /// Blocks.
    pub len: L32,
    /// Padding.
    pub pad: L32,
}

assert_layout!(RawExtent, 16, len @ 8);
views!(RawExtent);

/// The first region of RUI, CUI and BUI items; their extents follow in the same region.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned, Debug)]
#[repr(C)]
pub struct RawIntent {
    /// RUI, CUI or BUI.
    pub kind: L16,
    /// Regions: 1.
    pub size: L16,
    /// Extents that follow.
    pub nextents: L32,
    /// What ties the completion to its intent.
    pub id: L64,
}

assert_layout!(RawIntent, 16, id @ 8);
views!(RawIntent);

/// The only region of RUD, CUD and BUD items.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned, Debug)]
#[repr(C)]
pub struct RawIntentDone {
    /// RUD, CUD or BUD.
    pub kind: L16,
    /// Regions: 1.
    pub size: L16,
    /// Padding.
    pub pad: L32,
    /// The intent.
    pub id: L64,
}

assert_layout!(RawIntentDone, 16, id @ 8);
views!(RawIntentDone);

/// An extent of RUI and BUI.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned, Debug)]
#[repr(C)]
pub struct RawMapExtent {
    /// The inode, or one of [`crate::format::record::owner`].
    pub owner: L64,
    /// File system block.
    pub start: L64,
    /// File block.
    pub offset: L64,
    /// Blocks.
    pub len: L32,
    /// The operation in the low byte, flags in the high bits.
    pub flags: L32,
}

assert_layout!(RawMapExtent, 32, flags @ 28);
views!(RawMapExtent);

/// An extent of CUI.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned, Debug)]
#[repr(C)]
pub struct RawPhysExtent {
    /// File system block.
    pub start: L64,
    /// Blocks.
    pub len: L32,
    /// A [`RefcountOp`].
    pub flags: L32,
}

assert_layout!(RawPhysExtent, 16, flags @ 12);
views!(RawPhysExtent);

/// The bits of the operation in [`RawMapExtent::flags`].
pub const RMAP_TYPE_MASK: u32 = 0xff;
/// RUI: the attribute fork.
pub const RMAP_ATTR_FORK: u32 = 1 << 31;
/// RUI: a block of a block map.
pub const RMAP_BMBT_BLOCK: u32 = 1 << 30;
/// RUI: unwritten.
pub const RMAP_UNWRITTEN: u32 = 1 << 29;
/// BUI: the attribute fork.
pub const BMAP_ATTR_FORK: u32 = 1 << 31;
/// BUI: unwritten.
pub const BMAP_UNWRITTEN: u32 = 1 << 30;

/// What a RUI asks for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
#[expect(missing_docs, reason = "the kernel's names")]
pub enum RmapOp {
    Map = 1,
    MapShared = 2,
    Unmap = 3,
    UnmapShared = 4,
    Convert = 5,
    ConvertShared = 6,
    Alloc = 7,
    Free = 8,
}

impl RmapOp {
    /// The operation in these flags.
    pub fn from_flags(flags: u32) -> Option<RmapOp> {
        use RmapOp::*;
        const ALL: [RmapOp; 8] =
            [Map, MapShared, Unmap, UnmapShared, Convert, ConvertShared, Alloc, Free];
        ALL.get(((flags & RMAP_TYPE_MASK) as usize).wrapping_sub(1)).copied()
    }
}

/// What a CUI asks for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
pub enum RefcountOp {
    /// One reference more.
    Increase = 1,
    /// One reference less.
    Decrease = 2,
    /// In a CoW fork.
    AllocCow = 3,
    /// Out of the CoW fork.
    FreeCow = 4,
}

impl RefcountOp {
    /// The operation in these flags.
    pub fn from_flags(flags: u32) -> Option<RefcountOp> {
        use RefcountOp::*;
        const ALL: [RefcountOp; 4] = [Increase, Decrease, AllocCow, FreeCow];
        ALL.get(((flags & 0xff) as usize).wrapping_sub(1)).copied()
    }
}
