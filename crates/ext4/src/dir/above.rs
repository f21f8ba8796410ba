//! `..`: the directory above.

use base::{Errno, Ino};
use rt::Cx;

use super::{Dir, EntryPlace, Place, Target};
use crate::format::dir::{self, FoundEntry};
use crate::format::{CorruptKind, FileKind, htree};
use crate::trans::ext4_jbd2::Handle;

impl Dir<'_> {
    /// The entry `..`, which is the second one.
    fn dot_dot(&self, cx: &mut Cx) -> Result<EntryPlace, Errno> {
        let buffer = self.any_block(cx, 0)?;
        let found = buffer.with(|data| {
            let entry = dir::entries(data, self.layout).nth(1)?;
            let (offset, ino, file_type) = (entry.offset, entry.ino, entry.file_type);
            let good = entry.name == b".." && ino != 0;
            good.then_some(FoundEntry { offset, before: 0, ino, file_type })
        });
        match found {
            Some(found) => Ok(EntryPlace { place: Place::Block(buffer), found }),
            None => Err(self.corrupt(cx, &buffer, CorruptKind::DirNoParent)),
        }
    }

    /// The directory above.
    ///
    /// # Errors
    /// `EUCLEAN` where the second entry is not `..`; `EIO`.
    pub(crate) fn parent(&self, cx: &mut Cx) -> Result<Ino, Errno> {
        let ino = match self.inline {
            false => self.dot_dot(cx)?.found.ino,
            true => self.inline_entries(cx)?.parent(),
        };
        Ok(Ino(ino.into()))
    }

    /// Makes `..` point at another directory: 1 credit.
    ///
    /// # Errors
    /// As [`Dir::parent`].
    pub(crate) fn set_parent(
        &self,
        cx: &mut Cx,
        handle: &mut Handle,
        parent: Ino,
    ) -> Result<(), Errno> {
        if self.inline {
            return self.set_inline_parent(cx, handle, parent.0 as u32);
        }
        let place = self.dot_dot(cx)?;
        let (ino, dir_type) = (parent.0 as u32, FileKind::Directory.dir_type());
        match &place.place {
            Place::Block(buffer) if self.indexed => self.change(cx, handle, buffer, |data| {
                htree::set_root_parent(data, self.layout, ino, dir_type);
            }),
            _ => self.replace(cx, handle, &place, Target { ino, dir_type }),
        }
    }
}
