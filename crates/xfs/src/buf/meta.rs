//! Reading metadata: whole blocks, checked once while they stay in memory.

use std::sync::Arc;

use base::{FsBlock, Ino, Page, Sector};
use block::DeviceError;
use rt::Cx;
use smallvec::SmallVec;

use crate::buf::{BufCache, BufMap, BufOps, Check, INODE_CLUSTER};
use crate::error::{Fault, XfsError};
use crate::format::inode::{self, InodeCore};
use crate::format::{AgBlock, At, Corrupt, CorruptKind, Geometry, Kind, da, verifier};

/// The content of a few blocks, one behind the other, as it was when they were read.
pub(crate) type Meta = Page;

/// What a block must be.
#[derive(Clone, Copy)]
pub(crate) struct ReadRequest {
    /// The kinds that it may be of; their magic numbers differ.
    pub kinds: &'static [Kind],
    /// Who must own it.
    pub owner: Option<u64>,
    /// What errors call it.
    pub at: At,
}

/// Extents of a buffer: mostly one.
pub(crate) type Maps = SmallVec<[BufMap; 1]>;

/// Where some runs of blocks lie on the device; neighbours become one.
pub(crate) fn buf_maps(geometry: &Geometry, runs: &[(FsBlock, u32)]) -> Maps {
    let mut maps = Maps::new();
    for &(start, count) in runs {
        let (daddr, len) = (geometry.sector(start), count * geometry.block_sectors() as u32);
        match maps.last_mut() {
            Some(last) if last.daddr + u64::from(last.len) == daddr => last.len += len,
            _ => maps.push(BufMap { daddr, len }),
        }
    }
    maps
}

/// Reads metadata of one file system through its buffers. Not for blocks that a transaction of
/// the caller has locked.
#[derive(Clone)]
pub(crate) struct Reader {
    /// Blocks in memory.
    pub bufs: Arc<BufCache>,
    /// The file system's shape.
    pub geometry: Arc<Geometry>,
}

impl Reader {
    /// Reads `runs` of blocks as one piece of one of the wanted kinds, and checks it where it was
    /// not checked since it came into memory. May wait for the device, and for who has it locked.
    ///
    /// # Errors
    /// The device failed; a check of the self-description.
    pub fn read(
        &self,
        cx: &mut Cx,
        runs: &[(FsBlock, u32)],
        want: &ReadRequest,
    ) -> Result<(Kind, Meta), Fault> {
        let maps = buf_maps(&self.geometry, runs);
        let (name, kinds) = (want.kinds[0].name(), want.kinds);
        let ops = BufOps { name, kinds, check: tree_check(kinds), unmapped: false };
        let data = match self.bufs.read(cx, &maps, &ops) {
            Ok(buf) => buf.page(),
            Err(XfsError::Corrupt(Corrupt { kind, .. })) => return Err(kind.at(want.at).into()),
            Err(error) => return Err(error.into()),
        };
        let address = self.geometry.sector(runs[0].0);
        let expect = self.geometry.expect(address, want.owner);
        let kind = choose(&data, want);
        verifier::verify_identity(kind, &data, &expect, want.at)?;
        Ok((kind, data))
    }

    /// Reads a block of an allocation group.
    ///
    /// # Errors
    /// As [`Reader::read`].
    pub fn read_ag(&self, cx: &mut Cx, place: AgBlock, kind: Kind) -> Result<Meta, Fault> {
        let want = ReadRequest {
            kinds: kind.alone(),
            owner: Some(u64::from(place.ag)),
            at: At::AgBlock(place.ag, place.block),
        };
        Ok(self.read(cx, &[(self.geometry.join(place), 1)], &want)?.1)
    }

    /// Reads bytes by sector as they are on the device, unchecked: headers of groups.
    ///
    /// # Errors
    /// The device failed.
    pub fn read_bytes(
        &self,
        cx: &mut Cx,
        sector: Sector,
        len: usize,
    ) -> Result<Vec<u8>, DeviceError> {
        let size = u64::from(self.geometry.block_size);
        let skip = sector.bytes() % size;
        let bytes = (skip + len as u64).next_multiple_of(size) as usize;
        let page = self.bufs.queue().read(cx, Sector(sector.0 - skip / 512), bytes)?;
        Ok(page[skip as usize..][..len].to_vec())
    }

    /// Reads the slot of an inode and checks its self-description; free inodes pass. That of an
    /// inode of version 4 is answered in the form of version 5.
    ///
    /// # Errors
    /// [`CorruptKind::InodeNumber`], a check of the self-description, the device failed.
    pub fn read_slot(&self, cx: &mut Cx, ino: Ino) -> Result<Vec<u8>, Fault> {
        let geometry = &self.geometry;
        let (first, blocks, offset) = geometry.ino_cluster(ino);
        if !geometry.ino_valid(ino) || first.block + blocks > geometry.ag_length(first.ag) {
            return Err(CorruptKind::InodeNumber(ino.0).at(At::Inode(ino)).into());
        }
        let maps = buf_maps(geometry, &[(geometry.join(first), blocks)]);
        let mut slot = vec![0; geometry.inode_size as usize];
        self.bufs.read(cx, &maps, &INODE_CLUSTER)?.copy_out(offset, &mut slot);
        inode::verify(&slot, ino, geometry)?;
        Ok(if geometry.v4() { inode::from_v4(&slot, geometry) } else { slot })
    }

    /// Reads a used inode: its slot and its core.
    ///
    /// # Errors
    /// As [`Reader::read_slot`]; [`CorruptKind::InodeFree`], a check of the core.
    pub fn read_inode(&self, cx: &mut Cx, ino: Ino) -> Result<(Vec<u8>, InodeCore), Fault> {
        let slot = self.read_slot(cx, ino)?;
        if slot[2..4] == [0, 0] {
            return Err(CorruptKind::InodeFree.at(At::Inode(ino)).into());
        }
        let core = InodeCore::parse(&slot, ino, &self.geometry)?;
        Ok((slot, core))
    }
}

/// What is checked, once, of blocks that may be nodes of a hash tree.
pub(crate) fn tree_check(kinds: &[Kind]) -> Option<Check> {
    kinds.contains(&Kind::DaNode).then_some(da::check_block)
}

/// The wanted kind whose magic number the block has; the first where it has none of them.
fn choose(data: &[u8], want: &ReadRequest) -> Kind {
    let fits = |kind: &&Kind| verifier::verify_magic(**kind, data, want.at).is_ok();
    let found = want.kinds.iter().find(fits);
    *found.unwrap_or(&want.kinds[0])
}
