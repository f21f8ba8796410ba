//! Listing a directory, with positions that survive changes.
//!
//! The position of a name is its place in the data blocks divided by eight, as in Linux: names do
//! not move while they exist, also when the directory changes its form.

use base::Ino;
use rt::Cx;
use vfs::{DirEntry, FileType as VfsType};

use super::{Dir, Emit, Form, vfs_type};
use crate::bmap::Which;
use crate::error::Fault;
use crate::format::dir::{DATA_HEADER, DataBlock, FileType, Item, check_entry, entry_size};
use crate::format::{At, Kind};

/// One name on its way out.
struct Listed<'a> {
    /// Where it lies in the directory's data space, in units of eight bytes.
    place: u64,
    ino: Ino,
    name: &'a [u8],
    file_type: FileType,
}

impl Listed<'_> {
    fn entry(&self) -> DirEntry<'_> {
        let kind = vfs_type(self.file_type);
        DirEntry { ino: self.ino, kind, name: self.name, cookie: self.place + 1 }
    }
}

impl Dir<'_> {
    /// Lists the names behind `cookie` until `emit` returns false. May wait for the device.
    ///
    /// # Errors
    /// The first damage met; the device failed.
    pub fn list(&self, cx: &mut Cx, cookie: u64, emit: Emit<'_>) -> Result<(), Fault> {
        if self.form == Form::Local {
            return self.list_local(cx, cookie, emit);
        }
        let blocks = self.size(cx) / self.block_size();
        let per_block = self.block_size() / 8;
        let mut index = cookie / per_block;
        while index < blocks {
            let Some((kind, data)) = self.data_block(cx, index)? else {
                index = self.next_data(cx, index)?;
                continue;
            };
            let start = index * u64::from(self.fs.geometry().dir_blocks());
            let at = At::InodeBlock(self.inode.ino, start);
            let block = DataBlock::new(kind, &data, self.ftype(), at)?;
            for item in block.items(block.start(), at) {
                let Item::Entry { offset, ino, name, file_type } = item? else { continue };
                let place = index * per_block + offset as u64 / 8;
                if place < cookie {
                    continue;
                }
                check_entry(name, ino, offset, self.fs.geometry(), at)?;
                if !emit(Listed { place, ino, name, file_type }.entry()) {
                    return Ok(());
                }
            }
            index += 1;
        }
        Ok(())
    }

    /// The first data block behind the hole at `index`.
    fn next_data(&self, cx: &mut Cx, index: u64) -> Result<u64, Fault> {
        let count = u64::from(self.fs.geometry().dir_blocks());
        let next = self.inode.extents(cx, Which::Data, |list| {
            let place = list.partition_point(|extent| extent.end() <= index * count);
            list.get(place).map_or(u64::MAX, |extent| extent.offset)
        })?;
        Ok((next / count).max(index + 1))
    }

    fn list_local(&self, cx: &mut Cx, cookie: u64, emit: Emit<'_>) -> Result<(), Fault> {
        let ino = self.inode.ino;
        let ftype = self.ftype();
        let header = match self.fs.geometry().v4() {
            true => Kind::DirData.header_v4(),
            false => DATA_HEADER,
        };
        let dots = [header, header + entry_size(1, ftype)].map(|at| at as u64 / 8);
        // `emit` runs while the fork is locked for reading; it must not call the file system.
        self.with_local(cx, |local| {
            for (place, ino, name) in
                [(dots[0], ino, &b"."[..]), (dots[1], local.parent, &b".."[..])]
            {
                let kind = Some(VfsType::Directory);
                if place >= cookie && !emit(DirEntry { ino, kind, name, cookie: place + 1 }) {
                    return;
                }
            }
            for entry in local.entries() {
                let (place, ino) = (u64::from(entry.offset) / 8, entry.ino);
                let listed = Listed { place, ino, name: entry.name, file_type: entry.file_type };
                if place >= cookie && !emit(listed.entry()) {
                    return;
                }
            }
        })
    }
}
