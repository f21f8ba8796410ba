//! The blocks of a quota file of a mount.

use base::Errno;
use cache::BufferRef;
use rt::Cx;

use crate::Ext4;
use crate::ext4_jbd2::Handle;
use crate::format::quota::{BLOCK_SIZE, Block, Blocks};
use crate::format::{At, CorruptKind};
use crate::inode::Inode;

/// A quota file, to be read, and with a handle to be written. The caller holds its tree.
pub(super) struct QuotaBlocks<'a> {
    pub fs: &'a Ext4,
    pub cx: &'a mut Cx,
    pub inode: &'a Inode,
    pub handle: Option<&'a mut Handle>,
}

impl QuotaBlocks<'_> {
    /// The buffer that holds a block of the file, and where in it.
    ///
    /// # Errors
    /// `EUCLEAN` a hole; `EIO`.
    pub fn place(&mut self, block: u32) -> Result<(BufferRef, usize), Errno> {
        let (lblk, offset) = self.split(block);
        match self.fs.bread(self.cx, self.inode, lblk)? {
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
        let bits = self.fs.geometry.block_bits;
        ((at >> bits) as u32, (at & ((1 << bits) - 1)) as usize)
    }
}

impl Blocks for QuotaBlocks<'_> {
    type Error = Errno;

    fn load(&mut self, block: u32) -> Result<Block, Errno> {
        let (buffer, offset) = self.place(block)?;
        let mut copy = [0; BLOCK_SIZE];
        buffer.with(|data| copy.copy_from_slice(&data[offset..offset + BLOCK_SIZE]));
        Ok(copy)
    }

    fn store(&mut self, block: u32, data: &Block) -> Result<(), Errno> {
        let size = self.inode.size(self.cx);
        let end = (u64::from(block) + 1) * BLOCK_SIZE as u64;
        let (lblk, offset) = self.split(block);
        let have = size.div_ceil(u64::from(self.fs.geometry.block_size));
        let buffer = if u64::from(lblk) < have {
            let (buffer, _) = self.place(block)?;
            let handle = self.handle.as_deref_mut().expect("blocks are stored within a handle");
            handle.write_access(self.cx, &buffer)?;
            buffer
        } else {
            let handle = self.handle.as_deref_mut().expect("blocks are stored within a handle");
            self.fs.append_block(self.cx, handle, self.inode)?.1
        };
        buffer.with_mut(|bytes| bytes[offset..offset + BLOCK_SIZE].copy_from_slice(data));
        let handle = self.handle.as_deref_mut().expect("blocks are stored within a handle");
        handle.dirty(self.cx, &buffer)?;
        if end > size {
            // The file ends with its last block, not with the file system's.
            self.inode.with(self.cx, |core| {
                core.size = end;
                core.values.size = end;
            });
            self.fs.mark_inode_dirty(self.cx, handle, self.inode)?;
        }
        Ok(())
    }

    fn damaged(&mut self, kind: CorruptKind) -> Errno {
        self.fs.corrupt_kind(self.cx, kind, At::Inode(self.inode.ino))
    }
}
