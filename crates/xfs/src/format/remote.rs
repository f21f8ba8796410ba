//! Blocks that hold a piece of a symbolic link or of an attribute's value.

use std::ops::Range;

use super::{At, Corrupt, CorruptKind, Expect, Geometry, Kind, put_u32, put_u64, u32_at, verifier};

/// Bytes of the header in front of each piece.
pub const HEADER: usize = 56;
/// Bytes of a symbolic link at the most.
pub const SYMLINK_MAX: u64 = 1024;

/// Bytes of content in a block of `block_size` bytes.
pub fn room(block_size: usize) -> usize {
    block_size - HEADER
}

/// Blocks of `block_size` bytes that hold `bytes` bytes of content.
pub fn blocks(bytes: u64, block_size: usize) -> u64 {
    bytes.div_ceil(room(block_size) as u64)
}

/// The piece in `data`, which must begin `offset` bytes into the whole. The expectation's owner is
/// the inode.
///
/// # Errors
/// The first check that fails.
pub fn parse<'a>(
    kind: Kind,
    data: &'a [u8],
    offset: u64,
    expect: &Expect,
    at: At,
) -> Result<&'a [u8], Corrupt> {
    verifier::verify(kind, data, expect, at)?;
    content(data, offset, at)
}

/// The piece in a block of a whole of which `left` is still to be read, in bytes; the piece begins
/// there. The block's self-description was checked when it was read. In version 4 there is none,
/// and a block is full unless the whole ends in it.
///
/// # Errors
/// [`CorruptKind::RemoteOffset`], [`CorruptKind::RemoteBytes`].
pub fn piece<'a>(
    data: &'a [u8],
    left: Range<u64>,
    geometry: &Geometry,
    at: At,
) -> Result<&'a [u8], Corrupt> {
    if !geometry.v4() {
        return content(data, left.start, at);
    }
    let bytes = left.end.saturating_sub(left.start).min(data.len() as u64);
    Ok(&data[..bytes as usize])
}

fn content(data: &[u8], offset: u64, at: At) -> Result<&[u8], Corrupt> {
    let (found, bytes) = (u64::from(u32_at(data, 4)), u32_at(data, 8) as usize);
    if found != offset {
        return Err(CorruptKind::RemoteOffset { found, expected: offset }.at(at));
    }
    data.get(HEADER..HEADER + bytes)
        .ok_or_else(|| CorruptKind::RemoteBytes { found: bytes as u64 }.at(at))
}

/// Writes the piece `content`, which begins `offset` bytes into the whole; the checksum is left to
/// [`verifier::verifier`].
///
/// # Panics
/// If it does not fit.
pub fn emit(kind: Kind, data: &mut [u8], offset: u64, content: &[u8], expect: &Expect) {
    data.fill(0);
    verifier::stamp(kind, data, expect);
    put_u32(data, 4, offset as u32);
    put_u32(data, 8, content.len() as u32);
    if kind == Kind::AttrRemote {
        put_u64(data, kind.lsn_offset(), u64::MAX);
    }
    data[HEADER..][..content.len()].copy_from_slice(content);
}

#[cfg(test)]
mod tests {
    use base::Sector;

    use super::*;

    #[test]
    fn pieces_come_back_and_the_wrong_one_is_told() {
        let expect = Expect { uuid: [3; 16], address: Sector(64), owner: Some(131), v4: false };
        let mut data = vec![0; 512];
        emit(Kind::Symlink, &mut data, 456, b"target", &expect);
        verifier::update_lsn_crc(Kind::Symlink, &mut data, 0);
        let at = At::Block(64);
        assert_eq!(parse(Kind::Symlink, &data, 456, &expect, at), Ok(&b"target"[..]));
        assert!(parse(Kind::Symlink, &data, 0, &expect, at).is_err());
        assert!(parse(Kind::AttrRemote, &data, 456, &expect, at).is_err());
        assert_eq!(blocks(1024, 1024), 2);
    }
}
