//! What every block of metadata carries to describe itself, and where each kind keeps it.
//!
//! A misdirected write is found by the block's own address, a stale one by its UUID, a torn one by
//! its checksum, a block of another file by its owner. The sequence number shows log recovery
//! whether the block already holds a change.
//!
//! Source: kernel `Documentation/filesystems/xfs/xfs-self-describing-metadata.rst`.

use base::Sector;
use base::crc::crc32c;

use super::{At, Corrupt, CorruptKind, put_u16, put_u32, put_u64, u16_at, u32_at, u64_at};

/// A kind of self-describing block.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
#[expect(missing_docs, reason = "the names are the kinds'")]
pub enum Kind {
    Super,
    Agf,
    Agfl,
    Agi,
    FreeByBlock,
    FreeBySize,
    Inobt,
    Finobt,
    Rmap,
    Refcount,
    Bmap,
    Inode,
    DirBlock,
    DirData,
    DirLeaf1,
    DirLeafN,
    DirFree,
    DaNode,
    AttrLeaf,
    AttrRemote,
    Symlink,
    RealtimeBitmap,
    RealtimeSummary,
    RealtimeRmap,
    RealtimeRefcount,
}

/// Where one kind keeps its fields. Offsets are bytes from the block's start.
struct Layout {
    name: &'static str,
    magic: u32,
    /// Offset and bytes of the magic number.
    magic_at: (usize, usize),
    crc: usize,
    lsn: usize,
    uuid: usize,
    /// The block's own address in sectors; inodes have none.
    address: Option<usize>,
    /// Offset and bytes of the owner.
    owner: Option<(usize, usize)>,
    /// The form of version 4.
    v4: V4,
}

/// The form of version 4, whose blocks describe themselves by a magic number alone.
#[derive(Clone, Copy)]
struct V4 {
    /// The magic number. None where a block has none at all, or where there is no such kind.
    magic: Option<u32>,
    /// Bytes in front of the content.
    header: usize,
}

const fn v4(magic: u32, header: usize) -> V4 {
    V4 { magic: Some(magic), header }
}

const fn header(name: &'static str, magic: u32, crc: usize, lsn: usize, uuid: usize) -> Layout {
    let magic_at = (0, 4);
    Layout { name, magic, magic_at, crc, lsn, uuid, address: None, owner: None, v4: v4(magic, 0) }
}

const fn short(name: &'static str, magic: u32, v4: V4) -> Layout {
    let (address, owner) = (Some(16), Some((48, 4)));
    Layout { name, magic, magic_at: (0, 4), crc: 52, lsn: 24, uuid: 32, address, owner, v4 }
}

const fn long(name: &'static str, magic: u32, v4: V4) -> Layout {
    let (address, owner) = (Some(24), Some((56, 8)));
    Layout { name, magic, magic_at: (0, 4), crc: 64, lsn: 32, uuid: 40, address, owner, v4 }
}

const fn dir(name: &'static str, magic: u32, v4: V4) -> Layout {
    let (address, owner) = (Some(8), Some((40, 8)));
    Layout { name, magic, magic_at: (0, 4), crc: 4, lsn: 16, uuid: 24, address, owner, v4 }
}

const fn da(name: &'static str, magic: u32, v4: V4) -> Layout {
    let (address, owner) = (Some(16), Some((48, 8)));
    Layout { name, magic, magic_at: (8, 2), crc: 12, lsn: 24, uuid: 32, address, owner, v4 }
}

const fn remote(name: &'static str, magic: u32) -> Layout {
    let (address, owner, v4) = (Some(40), Some((32, 8)), NONE);
    Layout { name, magic, magic_at: (0, 4), crc: 12, lsn: 48, uuid: 16, address, owner, v4 }
}

/// A file of a group of the realtime section.
const fn section(name: &'static str, magic: u32) -> Layout {
    let (address, owner, v4) = (Some(16), Some((8, 8)), NONE);
    Layout { name, magic, magic_at: (0, 4), crc: 4, lsn: 24, uuid: 32, address, owner, v4 }
}

/// No magic number, no header.
const NONE: V4 = V4 { magic: None, header: 0 };

/// In the order of [`Kind`].
const LAYOUTS: [Layout; 25] = [
    header("superblock", 0x5846_5342, 224, 240, 32),
    header("AGF", 0x5841_4746, 216, 208, 64),
    Layout { v4: NONE, ..header("AGFL", 0x5841_464c, 32, 24, 8) },
    header("AGI", 0x5841_4749, 312, 320, 296),
    short("free space by block btree", 0x4142_3342, v4(0x4142_5442, 16)),
    short("free space by size btree", 0x4142_3343, v4(0x4142_5443, 16)),
    short("inode btree", 0x4941_4233, v4(0x4941_4254, 16)),
    short("free inode btree", 0x4649_4233, NONE),
    short("reverse mapping btree", 0x524d_4233, NONE),
    short("reference count btree", 0x5233_4643, NONE),
    long("block map btree", 0x424d_4133, v4(0x424d_4150, 24)),
    Layout {
        name: "inode",
        magic: 0x494e,
        magic_at: (0, 2),
        crc: 100,
        lsn: 112,
        uuid: 160,
        address: None,
        owner: Some((152, 8)),
        v4: v4(0x494e, 0),
    },
    dir("directory block", 0x5844_4233, v4(0x5844_3242, 16)),
    dir("directory data block", 0x5844_4433, v4(0x5844_3244, 16)),
    da("directory leaf1 block", 0x3df1, v4(0xd2f1, 16)),
    da("directory leaf block", 0x3dff, v4(0xd2ff, 16)),
    dir("directory free block", 0x5844_4633, v4(0x5844_3246, 16)),
    da("hash tree node", 0x3ebe, v4(0xfebe, 16)),
    da("attribute leaf", 0x3bee, v4(0xfbee, 32)),
    remote("remote attribute", 0x5841_524d),
    remote("remote symbolic link", 0x5853_4c4d),
    section("realtime bitmap", 0x424d_505a),
    section("realtime summary", 0x5355_4d59),
    long("realtime reverse mapping btree", 0x4d41_5052, NONE),
    long("realtime reference count btree", 0x5243_4e54, NONE),
];

/// What a block must say of itself.
#[derive(Clone, Copy, Debug)]
pub struct Expect {
    /// The UUID of the file system's metadata.
    pub uuid: [u8; 16],
    /// Where the block lies. Ignored for kinds that do not say it.
    pub address: Sector,
    /// Who owns it: an inode, or an allocation group. None if the caller cannot know.
    pub owner: Option<u64>,
    /// The file system is of version 4: there is a magic number at most.
    pub v4: bool,
}

impl Kind {
    const ALL_REF: &'static [Kind] = &Kind::ALL;

    /// Every kind.
    pub const ALL: [Kind; 25] = [
        Kind::Super,
        Kind::Agf,
        Kind::Agfl,
        Kind::Agi,
        Kind::FreeByBlock,
        Kind::FreeBySize,
        Kind::Inobt,
        Kind::Finobt,
        Kind::Rmap,
        Kind::Refcount,
        Kind::Bmap,
        Kind::Inode,
        Kind::DirBlock,
        Kind::DirData,
        Kind::DirLeaf1,
        Kind::DirLeafN,
        Kind::DirFree,
        Kind::DaNode,
        Kind::AttrLeaf,
        Kind::AttrRemote,
        Kind::Symlink,
        Kind::RealtimeBitmap,
        Kind::RealtimeSummary,
        Kind::RealtimeRmap,
        Kind::RealtimeRefcount,
    ];

    /// A list of this kind alone.
    pub fn alone(self) -> &'static [Kind] {
        let at = self as usize;
        &Kind::ALL_REF[at..at + 1]
    }

    fn layout(self) -> &'static Layout {
        &LAYOUTS[self as usize]
    }

    /// What errors call it.
    pub fn name(self) -> &'static str {
        self.layout().name
    }

    /// Its magic number, of two or four bytes.
    pub fn magic(self) -> u32 {
        self.layout().magic
    }

    /// The magic number that a block holds at this kind's place.
    pub fn stored_magic(self, data: &[u8]) -> u32 {
        match self.layout().magic_at {
            (at, 2) => u32::from(u16_at(data, at)),
            (at, _) => u32_at(data, at),
        }
    }

    /// Whether a block has the form of version 4, by its magic number. Headers of groups and
    /// inodes have the same number in both.
    pub fn is_v4(self, data: &[u8]) -> bool {
        self.layout().v4.magic == Some(self.stored_magic(data))
    }

    /// Bytes in front of the content of a block, `v5` in the form of version 5.
    pub fn header(self, data: &[u8], v5: usize) -> usize {
        if self.is_v4(data) { self.layout().v4.header } else { v5 }
    }

    /// Bytes in front of the content of blocks in the form of version 4.
    pub const fn header_v4(self) -> usize {
        LAYOUTS[self as usize].v4.header
    }

    /// The kind of a block by its magic number alone, as log recovery must guess it.
    pub fn recognise(data: &[u8]) -> Option<Kind> {
        Kind::ALL.into_iter().find(|kind| {
            data.len() >= kind.layout().crc + 4 && kind.stored_magic(data) == kind.magic()
        })
    }

    /// Where its sequence number lies.
    pub fn lsn_offset(self) -> usize {
        self.layout().lsn
    }
}

/// The checksum of a whole block (a sector for headers, the slot for inodes).
pub fn checksum(kind: Kind, data: &[u8]) -> u32 {
    checksum_at(data, kind.layout().crc)
}

/// The checksum of bytes that hold it at `at`, where zeros are summed in its place.
pub(crate) fn checksum_at(data: &[u8], at: usize) -> u32 {
    let crc = crc32c(crc32c(!0, &data[..at]), &[0; 4]);
    !crc32c(crc, &data[at + 4..])
}

/// The checksum that a block holds; checksums are little-endian.
pub fn stored_checksum(kind: Kind, data: &[u8]) -> u32 {
    u32_at(data, kind.layout().crc).swap_bytes()
}

/// The sequence number of the log record that holds the block's last change.
pub fn lsn(kind: Kind, data: &[u8]) -> u64 {
    u64_at(data, kind.layout().lsn)
}

/// The number of the log record that a block of version 5 was written behind. None where it says
/// nothing of the log: superblocks may be written past it, values of attributes are.
pub fn written_behind(kind: Kind, data: &[u8]) -> Option<u64> {
    let exempt = matches!(kind, Kind::Super | Kind::AttrRemote);
    Some(lsn(kind, data)).filter(|&lsn| !exempt && lsn != u64::MAX)
}

/// Stores the sequence number, computes the checksum and stores it. Values of attributes have no
/// number: Linux writes them past its log, and refuses to write one that has.
pub fn update_lsn_crc(kind: Kind, data: &mut [u8], lsn: u64) {
    let lsn = if kind == Kind::AttrRemote { u64::MAX } else { lsn };
    put_u64(data, kind.layout().lsn, lsn);
    update_crc(kind, data);
}

/// Computes the checksum and stores it; the sequence number stays.
pub fn update_crc(kind: Kind, data: &mut [u8]) {
    let crc = checksum(kind, data);
    put_u32(data, kind.layout().crc, crc.swap_bytes());
}

/// Writes magic number, UUID, address and owner into a new block.
///
/// # Panics
/// If the kind keeps an owner and `expect` names none.
pub fn stamp(kind: Kind, data: &mut [u8], expect: &Expect) {
    let layout = kind.layout();
    match layout.magic_at {
        (at, 2) => put_u16(data, at, layout.magic as u16),
        (at, _) => put_u32(data, at, layout.magic),
    }
    data[layout.uuid..][..16].copy_from_slice(&expect.uuid);
    if let Some(at) = layout.address {
        put_u64(data, at, expect.address.0);
    }
    if let Some((at, bytes)) = layout.owner {
        let owner = expect.owner.expect("a new block has an owner");
        match bytes {
            4 => put_u32(data, at, owner as u32),
            _ => put_u64(data, at, owner),
        }
    }
}

/// Checks magic number, checksum, UUID, address and owner, in that order.
///
/// # Errors
/// The first that fails, with the numbers.
pub fn verify(kind: Kind, data: &[u8], expect: &Expect, at: At) -> Result<(), Corrupt> {
    verify_form(kind, data, expect, at)?;
    if expect.v4 {
        return Ok(());
    }
    let (found, expected) = (stored_checksum(kind, data), checksum(kind, data));
    if found != expected {
        return Err(CorruptKind::Checksum { what: kind.name(), found, expected }.at(at));
    }
    verify_owner(kind, data, expect, at)
}

/// Checks the magic number alone, of either version.
///
/// # Errors
/// [`CorruptKind::Magic`], [`CorruptKind::Short`].
pub fn verify_magic(kind: Kind, data: &[u8], at: At) -> Result<(), Corrupt> {
    let what = kind.name();
    if data.len() < kind.layout().crc.max(kind.layout().uuid + 12) + 4 {
        return Err(CorruptKind::Short { what, bytes: data.len() }.at(at));
    }
    let (found, expected) = (kind.stored_magic(data), kind.magic());
    if found != expected && !kind.is_v4(data) {
        return Err(CorruptKind::Magic { what, found, expected }.at(at));
    }
    Ok(())
}

/// Checks that the magic number is that of the file system's version.
fn verify_form(kind: Kind, data: &[u8], expect: &Expect, at: At) -> Result<(), Corrupt> {
    let layout = kind.layout();
    let magic = if expect.v4 { layout.v4.magic } else { Some(layout.magic) };
    let Some(expected) = magic else { return Ok(()) };
    verify_magic(kind, data, at)?;
    let (what, found) = (kind.name(), kind.stored_magic(data));
    if found != expected {
        return Err(CorruptKind::Magic { what, found, expected }.at(at));
    }
    Ok(())
}

/// True if the block says that it is of the file system of that UUID; superblocks always do.
pub fn has_uuid(kind: Kind, data: &[u8], uuid: &[u8; 16]) -> bool {
    kind == Kind::Super || data[kind.layout().uuid..][..16] == *uuid
}

/// Checks magic number, UUID, address and owner.
///
/// # Errors
/// The first that fails, with the numbers.
pub fn verify_identity(kind: Kind, data: &[u8], expect: &Expect, at: At) -> Result<(), Corrupt> {
    verify_form(kind, data, expect, at)?;
    if expect.v4 { Ok(()) } else { verify_owner(kind, data, expect, at) }
}

/// Checks UUID, address and owner.
fn verify_owner(kind: Kind, data: &[u8], expect: &Expect, at: At) -> Result<(), Corrupt> {
    let (layout, what) = (kind.layout(), kind.name());
    if kind != Kind::Super && data[layout.uuid..][..16] != expect.uuid {
        return Err(CorruptKind::Uuid { what }.at(at));
    }
    if let Some(place) = layout.address {
        let (found, expected) = (u64_at(data, place), expect.address.0);
        if found != expected {
            return Err(CorruptKind::Address { what, found, expected }.at(at));
        }
    }
    if let (Some((place, bytes)), Some(expected)) = (layout.owner, expect.owner) {
        let found = if bytes == 4 { u64::from(u32_at(data, place)) } else { u64_at(data, place) };
        if found != expected {
            return Err(CorruptKind::Owner { what, found, expected }.at(at));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_stamped_and_sealed_verifies_and_any_flipped_bit_does_not() {
        let expect = Expect { uuid: [7; 16], address: Sector(4096), owner: Some(3), v4: false };
        for kind in Kind::ALL {
            let mut data = vec![0x5a; 512];
            stamp(kind, &mut data, &expect);
            update_lsn_crc(kind, &mut data, 0x1_0000_0002);
            verify(kind, &data, &expect, At::Block(8)).expect("verified");
            let number = if kind == Kind::AttrRemote { u64::MAX } else { 0x1_0000_0002 };
            assert_eq!(lsn(kind, &data), number);
            for bit in 0..512 * 8 {
                data[bit / 8] ^= 1 << (bit % 8);
                verify(kind, &data, &expect, At::Block(8)).expect_err("a bit is wrong");
                data[bit / 8] ^= 1 << (bit % 8);
            }
        }
    }

    #[test]
    fn a_block_of_another_place_owner_or_file_system_is_told() {
        let expect = Expect { uuid: [7; 16], address: Sector(4096), owner: Some(3), v4: false };
        let mut data = vec![0; 512];
        stamp(Kind::Bmap, &mut data, &expect);
        update_lsn_crc(Kind::Bmap, &mut data, 0);
        let fails = |expect: Expect| verify(Kind::Bmap, &data, &expect, At::Block(8)).unwrap_err();
        let kind = fails(Expect { address: Sector(8), ..expect }).kind;
        assert!(matches!(kind, CorruptKind::Address { found: 4096, expected: 8, .. }));
        let kind = fails(Expect { owner: Some(4), ..expect }).kind;
        assert!(matches!(kind, CorruptKind::Owner { found: 3, expected: 4, .. }));
        assert!(matches!(fails(Expect { uuid: [8; 16], ..expect }).kind, CorruptKind::Uuid { .. }));
    }
}
