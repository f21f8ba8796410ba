//! The blocks of a quota file of a mount.

use std::collections::BTreeMap;

use base::Errno;
use cache::BufferRef;
use rt::Cx;

use crate::format::quota::{BLOCK_SIZE, Block, Blocks};
use crate::format::{At, CorruptKind};
use crate::inode::{Inode, Inodes};
use crate::trans::ext4_jbd2::Handle;

/// A quota file, to be read, and with a handle to be written. The caller holds its tree.
pub(crate) struct QuotaBlocks<'a> {
    pub fs: &'a Inodes,
    pub cx: &'a mut Cx,
    pub inode: &'a Inode,
    pub handle: Option<&'a mut Handle>,
    /// The blocks that were read with the handle, as they were.
    loaded: BTreeMap<u32, Block>,
}

impl<'a> QuotaBlocks<'a> {
    /// The blocks of this file.
    pub fn new(
        fs: &'a Inodes,
        cx: &'a mut Cx,
        inode: &'a Inode,
        handle: Option<&'a mut Handle>,
    ) -> QuotaBlocks<'a> {
        QuotaBlocks { fs, cx, inode, handle, loaded: BTreeMap::new() }
    }

    /// The buffer that holds a block of the file, and where in it.
    ///
    /// # Errors
    /// `EUCLEAN` a hole; `EIO`.
    pub fn place(&mut self, block: u32) -> Result<(BufferRef, usize), Errno> {
        let (lblk, offset) = self.split(block);
        match self.fs.bmap(self.inode).bread(self.cx, lblk)? {
            Some(buffer) => Ok((buffer, offset)),
            None => {
                let blocks = (self.inode.size(self.cx) / BLOCK_SIZE as u64) as u32;
                Err(self.damaged(CorruptKind::QuotaBlock { block, blocks }))
            }
        }
    }

    /// Block of the file system in the file, and bytes from its start.
    fn split(&self, block: u32) -> (u32, usize) {
        let at = u64::from(block) * BLOCK_SIZE as u64;
        let bits = self.fs.sb.geometry.block_bits;
        ((at >> bits) as u32, (at & ((1 << bits) - 1)) as usize)
    }
}

impl Blocks for QuotaBlocks<'_> {
    type Error = Errno;

    fn load(&mut self, block: u32) -> Result<Block, Errno> {
        let (buffer, offset) = self.place(block)?;
        let mut copy = [0; BLOCK_SIZE];
        buffer.with(|data| copy.copy_from_slice(&data[offset..offset + BLOCK_SIZE]));
        if self.handle.is_some() {
            self.loaded.insert(block, copy);
        }
        Ok(copy)
    }

    fn store(&mut self, block: u32, data: &Block) -> Result<(), Errno> {
        let size = self.inode.size(self.cx);
        let end = (u64::from(block) + 1) * BLOCK_SIZE as u64;
        let (lblk, offset) = self.split(block);
        let have = size.div_ceil(u64::from(self.fs.sb.geometry.block_size));
        let buffer = if u64::from(lblk) < have {
            let (buffer, _) = self.place(block)?;
            let handle = self.handle.as_deref_mut().expect("blocks are stored within a handle");
            handle.write_access(self.cx, &buffer)?;
            buffer
        } else {
            let handle = self.handle.as_deref_mut().expect("blocks are stored within a handle");
            self.fs.bmap(self.inode).append_block(self.cx, handle)?.1
        };
        // Charges change other entries of the block meanwhile, without the tree: only what is
        // different from what was read goes in.
        let before = self.loaded.insert(block, *data);
        buffer.with_mut(|bytes| {
            let bytes = &mut bytes[offset..offset + BLOCK_SIZE];
            match before {
                None => bytes.copy_from_slice(data),
                Some(before) => {
                    let changes = bytes.iter_mut().zip(before.iter().zip(data));
                    changes.filter(|(_, (old, new))| old != new).for_each(|(at, (_, new))| {
                        *at = *new;
                    });
                }
            }
        });
        let handle = self.handle.as_deref_mut().expect("blocks are stored within a handle");
        handle.dirty(self.cx, &buffer)?;
        if end > size {
            // The file ends with its last block, not with the file system's.
            self.inode.with(self.cx, |core| {
                core.size = end;
                core.values.size = end;
            });
            self.fs.mark_dirty(self.cx, handle, self.inode)?;
        }
        Ok(())
    }

    fn damaged(&mut self, kind: CorruptKind) -> Errno {
        self.fs.sb.corrupt_kind(self.cx, kind, At::Inode(self.inode.ino))
    }
}
