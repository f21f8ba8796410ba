//! Where a file has data and where holes: `SEEK_DATA`, `SEEK_HOLE`, fiemap.

use std::sync::Arc;

use base::Errno;
use cache::{Iomap, IomapKind};
use rt::Cx;
use vfs::{FileType, SeekWhence};

use crate::Ext4;
use crate::inode::Inode;
use crate::map::State;

impl Ext4 {
    /// The next data or hole at or behind `offset`.
    ///
    /// Dirty pages get their blocks first, so that the tree tells the whole truth.
    ///
    /// # Errors
    /// `ENXIO`, `EINVAL` not a regular file, those of writing dirty pages.
    pub(crate) fn seek_file(
        &self,
        cx: &mut Cx,
        inode: &Arc<Inode>,
        offset: u64,
        whence: SeekWhence,
    ) -> Result<u64, Errno> {
        if inode.kind(cx) != FileType::Regular {
            return Err(Errno::EINVAL);
        }
        let size = inode.size(cx);
        if offset >= size {
            return Err(Errno::ENXIO);
        }
        if let Some(mapping) = inode.mapping_if_any()
            && mapping.is_dirty()
        {
            mapping.clone().flush(cx, 0..u64::MAX)?;
        }
        let _shared = inode.rwsem.read(cx);
        let bits = self.geometry.block_bits;
        whence.find(offset, size, |at| {
            let lblk = (at >> bits) as u32;
            let mapped = self.map_lookup(cx, inode, lblk, self.blocks_of(size) - lblk)?;
            Ok((mapped.state == State::Written, u64::from(lblk + mapped.len) << bits))
        })
    }

    /// Where `offset..offset + len` lies on the device.
    ///
    /// # Errors
    /// `EIO`, `EUCLEAN`.
    pub(crate) fn fiemap_file(
        &self,
        cx: &mut Cx,
        inode: &Arc<Inode>,
        offset: u64,
        len: u64,
    ) -> Result<Vec<Iomap>, Errno> {
        let mut extents: Vec<Iomap> = Vec::new();
        let maps = inode.with(cx, |core| match FileType::from_mode(u32::from(core.mode)) {
            Some(FileType::Regular | FileType::Directory) => true,
            Some(FileType::Symlink) => !core.is_fast_symlink(),
            _ => false,
        });
        if !maps {
            return Ok(extents);
        }
        let guard = inode.rwsem.read(cx);
        let bits = self.geometry.block_bits;
        let limit = inode.with(cx, |core| core.size_limit(&self.geometry)) >> bits;
        let end = offset.saturating_add(len).div_ceil(1 << bits).min(limit) as u32;
        let mut lblk = (offset >> bits).min(u64::from(u32::MAX)) as u32;
        while lblk < end {
            let mapped = self.map_lookup(cx, inode, lblk, end - lblk)?;
            if mapped.state == State::Hole {
                let delayed = inode.delayed.lock(cx);
                for part in delayed.holes().within(lblk..lblk + mapped.len) {
                    let offset = u64::from(part.start) << bits;
                    let len = u64::from(part.end - part.start) << bits;
                    push(&mut extents, Iomap { offset, len, kind: IomapKind::Delalloc });
                }
            } else {
                push(&mut extents, self.iomap(&mapped));
            }
            lblk += mapped.len;
        }
        drop(guard);
        Ok(extents)
    }
}

/// Adds a part, to the last one where it goes on.
fn push(extents: &mut Vec<Iomap>, part: Iomap) {
    if let Some(last) = extents.last_mut()
        && last.end() == part.offset
        && (Iomap { len: last.len + part.len, ..*last }).part(part.offset, part.end()) == part
    {
        last.len += part.len;
        return;
    }
    extents.push(part);
}
