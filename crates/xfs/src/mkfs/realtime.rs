//! Bitmap and summary of a realtime section in which everything is free: what the blocks hold, and
//! the two files of a section without groups.

use base::Ino;

use super::MkfsError;
use super::group::{Group, Run};
use super::shape::Shape;
use crate::format::inode::InodeCore;
use crate::format::{AgBlock, Geometry, Kind, Owner, verifier};

/// Where the files of a section without groups lie in the first group: bitmap and summary.
pub(super) struct RealtimeContent([Run; 2]);

impl RealtimeContent {
    /// Takes blocks for the files; none where there is no section, or one in groups.
    ///
    /// # Errors
    /// [`MkfsError::RealtimeFiles`].
    pub fn place(
        shape: &Shape,
        geometry: &Geometry,
        group: &mut Group,
    ) -> Result<Option<RealtimeContent>, MkfsError> {
        let realtime = geometry.realtime;
        if realtime.blocks == 0 || realtime.groups.is_some() {
            return Ok(None);
        }
        let (bitmap, summary) =
            (realtime.bitmap_blocks, realtime.summary_blocks(geometry.block_size));
        // The first that are free, or since xfsprogs 6.13 those nearest to the root.
        let near = group.first_chunk().filter(|_| shape.options.newest).unwrap_or(0);
        let mut take = |index: u64, count| {
            let ino = geometry.root_ino.0 + 1 + index;
            let owner = Owner::fork(ino, false, 0, false);
            let run = group.take_file(near, count, owner);
            group.end_transaction().and(run).ok_or(MkfsError::RealtimeFiles(bitmap + summary))
        };
        Ok(Some(RealtimeContent([take(0, bitmap)?, take(1, summary)?])))
    }

    /// What the files hold, by their places.
    pub fn writes(&self, geometry: &Geometry) -> [(u64, Vec<u8>); 2] {
        let kinds = [Kind::RealtimeBitmap, Kind::RealtimeSummary];
        std::array::from_fn(|index| {
            let ino = Ino(geometry.root_ino.0 + 1 + index as u64);
            free_space(geometry, self.0[index], &SpaceFile { kind: kinds[index], group: 0, ino })
        })
    }

    /// Gives inode 1, the bitmap's, or 2, the summary's, its blocks.
    pub fn fill_inode(
        &self,
        index: usize,
        geometry: &Geometry,
        core: &mut InodeCore,
        fork: &mut [u8],
    ) {
        self.0[index - 1].map(geometry, core, fork);
        core.change_count = if index == 1 { 4 } else { 3 };
    }
}

/// A bitmap or a summary.
pub(super) struct SpaceFile {
    pub kind: Kind,
    /// Of which group of the section.
    pub group: u32,
    pub ino: Ino,
}

/// What the blocks of a bitmap or a summary hold, and where they lie.
pub(super) fn free_space(geometry: &Geometry, run: Run, file: &SpaceFile) -> (u64, Vec<u8>) {
    let size = geometry.block_size as usize;
    let mut bytes = vec![0; run.count as usize * size];
    for (index, block) in (0..run.count).zip(bytes.chunks_exact_mut(size)) {
        set_words(geometry, file, index, block);
        if geometry.realtime.groups.is_some() {
            let place = AgBlock { block: run.start.block + index, ..run.start };
            let address = geometry.ag_sector(place);
            verifier::stamp(file.kind, block, &geometry.expect(address, Some(file.ino.0)));
            verifier::update_lsn_crc(file.kind, block, 0);
        }
    }
    (geometry.ag_sector(run.start).bytes(), bytes)
}

/// Writes the words of a block of a bitmap or a summary in which everything is free but the
/// section's first extent.
fn set_words(geometry: &Geometry, file: &SpaceFile, index: u32, data: &mut [u8]) {
    let shape = geometry.realtime;
    let words = shape.words(geometry.block_size);
    let extents = shape.extents_of(file.group);
    let first = if file.group == 0 { shape.super_extents() } else { 0 };
    let free = first..extents.end - extents.start;
    if free.is_empty() {
        return;
    }
    if file.kind == Kind::RealtimeBitmap {
        let before = u64::from(index) * words.bits();
        let from = free.start.clamp(before, before + words.bits()) - before;
        let to = free.end.clamp(before, before + words.bits()) - before;
        let range = words.place(0..words.per_block() as usize);
        base::bitmap::set_range(&mut data[range.clone()], from as usize, to as usize);
        words.turn(&mut data[range]);
        return;
    }
    let level = u64::from((free.end - free.start).ilog2());
    let word = level * u64::from(shape.bitmap_blocks) + free.start / words.bits();
    if word / words.per_block() == u64::from(index) {
        let at = (word % words.per_block()) as usize;
        words.set(&mut data[words.place(at..at + 1)], 1);
    }
}
