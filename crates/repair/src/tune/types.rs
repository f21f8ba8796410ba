//! Directories, where a feature changes what they are: types of inodes in their entries come and go
//! with `filetype`, indexes go with `dir_index`, and folded names keep `casefold`.
//!
//! tune2fs 1.47.4 does the same, but for `filetype`: there it changes the bit alone and asks for a
//! run of e2fsck, which does the rest.

use std::collections::BTreeMap;

use base::Ino;
use ext4::format::dir::{self, DirLayout};
use ext4::format::features::{Compat, Incompat};
use ext4::format::inode::{BASE_SIZE, BLOCK_AREA};
use ext4::format::{FileKind, InodeFlags, InodeValues, htree, xattr};

use crate::resize::place::Relayout;
use crate::volume::map::FileMap;
use crate::volume::{EditError, corrupt, refuse};

impl Relayout<'_> {
    /// Changes directories as changing features ask for; `beside` a change of checksums or of
    /// the size of inodes.
    ///
    /// # Errors
    /// It cannot be done; damage.
    pub fn directories(&mut self, beside: bool) -> Result<(), EditError> {
        let (old, new) = (self.v.g.features, self.g.features);
        if (old.incompat - new.incompat).contains(Incompat::CASEFOLD) {
            self.refuse_folded()?;
        }
        let indexes = (old.compat - new.compat).contains(Compat::DIR_INDEX);
        let types = (old.incompat ^ new.incompat).contains(Incompat::FILETYPE);
        if types && new.incompat.contains(Incompat::DIRDATA) {
            return refuse("filetype stays beside dirdata, whose bits stand with the types");
        }
        if (indexes || types) && beside {
            return refuse(
                "filetype and ^dir_index change directories: not beside a change of checksums or \
                 of the size of inodes; change one after the other",
            );
        }
        if types {
            self.types()?;
        }
        if indexes {
            self.drop_indexes()?;
        }
        Ok(())
    }

    /// Refuses to leave `casefold` out where inodes ask for it, as tune2fs.
    ///
    /// # Errors
    /// Such an inode; damage.
    fn refuse_folded(&mut self) -> Result<(), EditError> {
        let folded = |values: &InodeValues| values.flags.contains(InodeFlags::CASEFOLD);
        for (ino, values) in self.inodes()? {
            if folded(&values) {
                return refuse(format!(
                    "casefold cannot be cleared: inode {ino} has its flag (chattr +F)"
                ));
            }
        }
        Ok(())
    }

    /// Gives every entry the type of its inode, or none.
    ///
    /// # Errors
    /// Damage.
    fn types(&mut self) -> Result<(), EditError> {
        let inodes: BTreeMap<u32, InodeValues> = self.inodes()?.into_iter().collect();
        let kind = |ino: u32| inodes.get(&ino).and_then(InodeValues::kind);
        let stored = self.g.features.incompat.contains(Incompat::FILETYPE);
        let code = |ino| if stored { kind(ino).map_or(0, FileKind::dir_type) } else { 0 };
        for (&ino, values) in &inodes {
            if values.kind() != Some(FileKind::Directory) {
                continue;
            }
            if values.flags.contains(InodeFlags::INLINE_DATA) {
                self.type_inline(ino, values, code)?;
            } else {
                let map = self.v.file_map(ino, values)?;
                self.type_blocks(ino, values, &map, code)?;
            }
        }
        Ok(())
    }

    /// Makes directories with an index such without: its blocks become blocks of entries.
    ///
    /// # Errors
    /// Damage.
    fn drop_indexes(&mut self) -> Result<(), EditError> {
        for (ino, mut values) in self.inodes()? {
            if !values.flags.contains(InodeFlags::INDEX) {
                continue;
            }
            let layout = self.g.dir_layout();
            let seed = self.seed(ino, values.generation);
            for (logical, block) in self.v.file_map(ino, &values)?.blocks() {
                let mut content = self.v.view.read(block)?;
                match htree::array_of(&content, logical, true, layout) {
                    None => continue,
                    Some(_) if logical > 0 => dir::init_empty(&mut content, layout),
                    Some(_) => {
                        let root = content.clone();
                        dir::pack(&mut content, layout, dir::entries(&root, layout).take(2));
                    }
                }
                if layout.checksum {
                    dir::set_checksum(seed, &mut content);
                }
                self.v.view.write(block, &content);
            }
            let mut slot = self.v.slot(ino)?;
            values.flags -= InodeFlags::INDEX;
            values.emit(&mut slot, Ino(ino.into()), &self.g);
            self.put_slot(ino, &slot)?;
        }
        Ok(())
    }

    fn type_blocks(
        &mut self,
        ino: u32,
        values: &InodeValues,
        map: &FileMap,
        code: impl Fn(u32) -> u8,
    ) -> Result<(), EditError> {
        let layout = self.g.dir_layout();
        let seed = self.seed(ino, values.generation);
        let indexed = values.flags.contains(InodeFlags::INDEX);
        for (logical, block) in map.blocks() {
            let mut content = self.v.view.read(block)?;
            set_types(&mut content, layout, &code);
            if layout.checksum {
                match htree::array_of(&content, logical, indexed, layout) {
                    Some(array) => htree::set_checksum(seed, &mut content, array),
                    None => dir::set_checksum(seed, &mut content),
                }
            }
            self.v.view.write(block, &content);
        }
        Ok(())
    }

    /// The same for a directory that lies in its inode.
    fn type_inline(
        &mut self,
        ino: u32,
        values: &InodeValues,
        code: impl Fn(u32) -> u8,
    ) -> Result<(), EditError> {
        let mut values = *values;
        let mut slot = self.v.slot(ino)?;
        let area = BASE_SIZE + usize::from(values.extra_isize);
        let area = slot.get_mut(area..).unwrap_or_default();
        let rest = xattr::inline_value(area).map_err(|kind| corrupt(kind, ino))?;
        let mut bytes = [&values.block[..], &area[rest.clone()]].concat();
        for index in 0..dir::INLINE_RUNS {
            let layout = dir::inline_run(&bytes, index, self.g.dir_layout().filetype).1;
            let range = dir::inline_range(index, bytes.len());
            set_types(&mut bytes[range], layout, &code);
        }
        values.block.copy_from_slice(&bytes[..BLOCK_AREA]);
        area[rest].copy_from_slice(&bytes[BLOCK_AREA..]);
        values.emit(&mut slot, Ino(ino.into()), &self.g);
        self.put_slot(ino, &slot)
    }

    /// All inodes in use.
    fn inodes(&mut self) -> Result<Vec<(u32, InodeValues)>, EditError> {
        let mut list = Vec::new();
        for group in self.v.all_groups() {
            self.v.next_group()?;
            for ino in self.v.inodes_of(group)? {
                let slot = self.v.slot(ino)?;
                list.push((ino, InodeValues::parse(&slot, Ino(ino.into()), &self.v.g)?));
            }
        }
        Ok(list)
    }
}

/// Gives each entry in use a type.
fn set_types(content: &mut [u8], layout: DirLayout, code: impl Fn(u32) -> u8) {
    let used = dir::entries(content, layout).filter(|entry| entry.ino != 0);
    let found: Vec<(u32, u32)> = used.map(|entry| (entry.offset, entry.ino)).collect();
    for (at, ino) in found {
        dir::set_target(content, layout, at, ino, code(ino));
    }
}
