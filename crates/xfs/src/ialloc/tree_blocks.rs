//! How many blocks a group's trees of inodes have, for the feature that counts them.

use rt::Cx;

use super::agi::AGI;
use crate::alloc::Space;
use crate::buf::meta::{ReadRequest, Reader};
use crate::error::{Fault, Result};
use crate::format::ag::{RawAgi, Root};
use crate::format::btree::Node;
use crate::format::{AgBlock, AgHeader, At, CorruptKind, Kind};

/// Blocks of a group's tree of chunks, and of that of chunks with free inodes. Nobody changes them
/// meanwhile. May park.
///
/// # Errors
/// A block that fails a check; the device failed.
pub(crate) fn tree_blocks(
    cx: &mut Cx,
    reader: &Reader,
    space: &Space,
    ag: u32,
) -> Result<[u32; 2]> {
    let geometry = &reader.geometry;
    let buf = reader.bufs.read(cx, &[space.header_map(ag, AgHeader::Agi)], &AGI)?;
    let agi = buf.with(|data| RawAgi::parse_trusted(data, ag, geometry).copied())?;
    let kinds = [(Kind::Inobt, agi.inobt()), (Kind::Finobt, agi.finobt())];
    let mut counts = [0; 2];
    for ((kind, root), count) in kinds.into_iter().zip(&mut counts) {
        if kind == Kind::Inobt || geometry.features.finobt() {
            *count = tree_of(cx, reader, ag, kind, root)?;
        }
    }
    Ok(counts)
}

/// Blocks of one tree: each level from its left end on.
fn tree_of(cx: &mut Cx, reader: &Reader, ag: u32, kind: Kind, root: Root) -> Result<u32, Fault> {
    let most = reader.geometry.ag_length(ag);
    let (mut first, mut count) = (root.block, 0);
    for level in (0..root.levels as u16).rev() {
        let (mut next, mut below) = (Some(first), None);
        while let Some(block) = next {
            let (place, at) = (AgBlock { ag, block }, At::AgBlock(ag, block));
            count += 1;
            if block >= most || count > most {
                return Err(CorruptKind::DaLoop { block }.at(at).into());
            }
            let want = ReadRequest { kinds: kind.alone(), owner: Some(ag.into()), at };
            let run = [(reader.geometry.join(place), 1)];
            let (_, data) = reader.read(cx, &run, &want)?;
            let node = Node::parse_trusted(kind, &data, Some(level), at)?;
            if below.is_none() && level > 0 && !node.is_empty() {
                below = Some(node.pointer(0) as u32);
            }
            next = node.siblings().1.map(|block| block as u32);
        }
        first = below.unwrap_or(first);
    }
    Ok(count)
}
