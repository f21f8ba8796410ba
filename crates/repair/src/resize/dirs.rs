//! Directories: numbers of inodes in their entries, and the checksums of their blocks.

use ext4::format::dir::{self, DirLayout};
use ext4::format::features::Incompat;
use ext4::format::{InodeFlags, InodeValues, htree};

use super::place::Relayout;
use crate::volume::EditError;
use crate::volume::map::FileMap;

impl Relayout<'_> {
    /// Writes the blocks of a directory where they go, with the new numbers.
    ///
    /// # Errors
    /// The device's.
    pub fn directory(
        &mut self,
        number: u32,
        values: &InodeValues,
        map: &FileMap,
    ) -> Result<(), EditError> {
        let layout = self.g.dir_layout();
        let seed = self.seed(number, values.generation);
        let indexed = values.flags.contains(InodeFlags::INDEX);
        for (logical, block) in map.blocks() {
            let to = self.moved.of(block).unwrap_or(block);
            let mut content = self.v.view.original(block)?;
            self.patch_entries(&mut content, layout);
            if layout.checksum {
                match htree::array_of(&content, logical, indexed, layout) {
                    Some(array) => htree::set_checksum(seed, &mut content, array),
                    None => dir::set_checksum(seed, &mut content),
                }
            }
            self.v.view.write(to, &content);
        }
        Ok(())
    }

    /// New numbers in a run of entries. True where one changed.
    fn patch_entries(&self, block: &mut [u8], layout: DirLayout) -> bool {
        let mut found = Vec::new();
        for entry in dir::entries(block, layout) {
            let number = self.numbers.of(entry.ino);
            if number != entry.ino {
                found.push((entry.offset as usize, number));
            }
        }
        for &(at, number) in &found {
            block[at..at + 4].copy_from_slice(&number.to_le_bytes());
        }
        !found.is_empty()
    }

    /// New numbers in a directory whose entries lie in its inode. True where one changed.
    pub fn patch_inline(&self, bytes: &mut [u8]) -> bool {
        let parent = dir::inline_parent(bytes);
        let moved = self.numbers.of(parent);
        dir::set_inline_parent(bytes, moved);
        let filetype = self.g.features.incompat.contains(Incompat::FILETYPE);
        let mut changed = moved != parent;
        for index in 0..dir::INLINE_RUNS {
            let (_, layout) = dir::inline_run(bytes, index, filetype);
            let range = dir::inline_range(index, bytes.len());
            changed |= self.patch_entries(&mut bytes[range], layout);
        }
        changed
    }
}
