//! Reading metadata: whole blocks, checked once while they stay in memory.

use std::ops::Deref;
use std::sync::Arc;

use base::{FsBlock, Ino, Page, Sector};
use block::DeviceError;
use cache::{BufferCache, BufferRef};
use rt::Cx;

use crate::fault::Fault;
use crate::format::inode::{self, InodeCore};
use crate::format::{AgBlock, At, CorruptKind, Geometry, Kind, seal};

/// The content of a few blocks, as it was when they were read.
pub(crate) enum Meta {
    /// One block, without a copy.
    Page(Page),
    /// Several, one behind the other.
    Bytes(Vec<u8>),
}

impl Deref for Meta {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        match self {
            Meta::Page(page) => page,
            Meta::Bytes(bytes) => bytes,
        }
    }
}

/// What a block must be.
#[derive(Clone, Copy)]
pub(crate) struct Want<'a> {
    /// The kinds that it may be of; their magic numbers tell them apart.
    pub kinds: &'a [Kind],
    /// Who must own it.
    pub owner: Option<u64>,
    /// What errors call it.
    pub at: At,
}

/// Reads metadata of one file system through its buffers.
#[derive(Clone)]
pub(crate) struct Reader {
    /// Blocks in memory.
    pub buffers: Arc<BufferCache>,
    /// The file system's shape.
    pub geometry: Arc<Geometry>,
}

impl Reader {
    fn linear(&self, block: FsBlock) -> u64 {
        self.geometry.linear(self.geometry.split(block))
    }

    /// Reads `runs` of blocks as one piece of one of the wanted kinds, and checks it where it was
    /// not checked since it came into memory. May wait for the device.
    ///
    /// # Errors
    /// The device failed; a check of the self-description.
    pub fn read(
        &self,
        cx: &mut Cx,
        runs: &[(FsBlock, u32)],
        want: &Want<'_>,
    ) -> Result<(Kind, Meta), Fault> {
        let mut refs: Vec<BufferRef> = Vec::with_capacity(1);
        for &(start, count) in runs {
            let first = self.linear(start);
            if count > 1 {
                self.buffers.readahead(cx, first, u64::from(count));
            }
            for block in first..first + u64::from(count) {
                refs.push(self.buffers.read(cx, block)?);
            }
        }
        let data = match &refs[..] {
            [one] => Meta::Page(one.page()),
            many => {
                let size = self.geometry.block_size as usize;
                let mut bytes = Vec::with_capacity(many.len() * size);
                many.iter().for_each(|buffer| buffer.with(|data| bytes.extend_from_slice(data)));
                Meta::Bytes(bytes)
            }
        };
        let address = self.geometry.sector(runs[0].0);
        let expect = self.geometry.expect(address, want.owner);
        let kind = choose(&data, want);
        if refs.iter().all(|buffer| buffer.verified()) {
            seal::verify_magic(kind, &data, want.at)?;
            seal::verify_identity(kind, &data, &expect, want.at)?;
        } else {
            seal::verify(kind, &data, &expect, want.at)?;
            refs.iter().for_each(|buffer| buffer.set_verified(true));
        }
        Ok((kind, data))
    }

    /// Reads a block of an allocation group.
    ///
    /// # Errors
    /// As [`Reader::read`].
    pub fn read_ag(&self, cx: &mut Cx, place: AgBlock, kind: Kind) -> Result<Meta, Fault> {
        let want = Want {
            kinds: &[kind],
            owner: Some(u64::from(place.ag)),
            at: At::AgBlock(place.ag, place.block),
        };
        Ok(self.read(cx, &[(self.geometry.join(place), 1)], &want)?.1)
    }

    /// Reads bytes by sector, unchecked: headers of groups.
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
        let (start, end) = (sector.bytes(), sector.bytes() + len as u64);
        let mut bytes = Vec::with_capacity(len);
        for block in start / size..end.div_ceil(size) {
            bytes.extend_from_slice(&self.buffers.read(cx, block)?.page());
        }
        bytes.drain(..(start % size) as usize);
        bytes.truncate(len);
        Ok(bytes)
    }

    /// Reads the slot of an inode and checks its self-description; free inodes pass.
    ///
    /// # Errors
    /// [`CorruptKind::InodeNumber`], a check of the self-description, the device failed.
    pub fn read_slot(&self, cx: &mut Cx, ino: Ino) -> Result<Vec<u8>, Fault> {
        if !self.geometry.ino_valid(ino) {
            return Err(CorruptKind::InodeNumber(ino.0).at(At::Inode(ino)).into());
        }
        let (place, offset) = self.geometry.ino_place(ino);
        let block = self.geometry.linear(place);
        self.readahead_cluster(cx, place);
        let buffer = self.buffers.read(cx, block)?;
        let size = self.geometry.inode_size as usize;
        let slot = buffer.with(|data| data[offset..offset + size].to_vec());
        inode::verify(&slot, ino, &self.geometry)?;
        Ok(slot)
    }

    /// Begins to read the cluster that holds a block of inodes.
    fn readahead_cluster(&self, cx: &mut Cx, place: AgBlock) {
        let count = self.geometry.chunks.cluster_blocks;
        let length = self.geometry.ag_length(place.ag);
        let first = place.block - place.block % count;
        if count > 1
            && first + count <= length
            && self.buffers.find(cx, self.geometry.linear(place)).is_none()
        {
            let start = self.geometry.linear(AgBlock { block: first, ..place });
            self.buffers.readahead(cx, start, u64::from(count));
        }
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

/// The wanted kind whose magic number the block has; the first where it has none of them.
fn choose(data: &[u8], want: &Want<'_>) -> Kind {
    let found = want.kinds.iter().find(|kind| kind.stored_magic(data) == kind.magic());
    *found.unwrap_or(&want.kinds[0])
}
