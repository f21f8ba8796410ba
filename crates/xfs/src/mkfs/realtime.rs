//! The files of a realtime section: the bitmap, in which everything is free, and its summary.

use super::MkfsError;
use super::group::Group;
use super::shape::Shape;
use crate::format::extent::Extent;
use crate::format::inode::{ForkFormat, InodeCore};
use crate::format::{AgBlock, Geometry, RawSuper};

/// Where the files lie in the first group.
pub(super) struct RealtimeContent {
    /// First blocks of bitmap and summary.
    starts: [u32; 2],
    blocks: [u32; 2],
}

impl RealtimeContent {
    /// Blocks of bitmap and summary.
    pub fn blocks(raw: &RawSuper) -> [u32; 2] {
        if raw.sb_rblocks.get() == 0 || raw.sb_rgcount.get() > 0 {
            return [0, 0];
        }
        let bitmap = raw.sb_rbmblocks.get();
        let words = u64::from(raw.sb_rextslog + 1) * u64::from(bitmap);
        [bitmap, (words * 4).div_ceil(u64::from(raw.sb_blocksize.get())) as u32]
    }

    /// Takes blocks for the files; none where there is no section.
    ///
    /// # Errors
    /// [`MkfsError::RealtimeFiles`].
    pub fn place(
        shape: &Shape,
        geometry: &Geometry,
        group: &mut Group,
    ) -> Result<Option<RealtimeContent>, MkfsError> {
        let blocks = RealtimeContent::blocks(&shape.raw);
        if blocks == [0, 0] {
            return Ok(None);
        }
        // The first that are free, or since xfsprogs 6.13 those nearest to the root.
        let near = group.first_chunk().filter(|_| shape.options.newest).unwrap_or(0);
        let mut take = |index: usize| {
            let all = blocks[0] + blocks[1];
            let ino = geometry.root_ino.0 + 1 + index as u64;
            group.take_file(near, blocks[index], ino).ok_or(MkfsError::RealtimeFiles(all))
        };
        let starts = [take(0)?, take(1)?];
        Ok(Some(RealtimeContent { starts, blocks }))
    }

    /// What the files hold, by their places.
    pub fn writes(&self, geometry: &Geometry) -> [(u64, Vec<u8>); 2] {
        let (shape, size) = (geometry.realtime, geometry.block_size as usize);
        let bytes = self.blocks.map(|blocks| vec![0; blocks as usize * size]);
        let [mut bitmap, mut summary] = bytes;
        base::bitmap::set_range(&mut bitmap, 0, shape.extents as usize);
        let row = shape.levels() as usize - 1;
        let at = row * shape.bitmap_blocks as usize * 4;
        summary[at..at + 4].copy_from_slice(&1u32.to_le_bytes());
        let place = |block| geometry.ag_sector(AgBlock { ag: 0, block }).bytes();
        [(place(self.starts[0]), bitmap), (place(self.starts[1]), summary)]
    }

    /// Gives inode 1, the bitmap's, or 2, the summary's, its blocks.
    pub fn fill_inode(
        &self,
        index: usize,
        geometry: &Geometry,
        core: &mut InodeCore,
        fork: &mut [u8],
    ) {
        let (block, count) = (self.starts[index - 1], self.blocks[index - 1]);
        let start = geometry.join(AgBlock { ag: 0, block });
        Extent { offset: 0, start, count, unwritten: false }.write(fork);
        core.format = ForkFormat::Extents;
        (core.extents, core.blocks) = (1, u64::from(count));
        core.size = u64::from(count) << geometry.block_bits;
        core.change_count = if index == 1 { 4 } else { 3 };
    }
}
