//! Data behind names (`dirdata`), as names change.

use base::Errno;
use rt::Cx;

use super::{Dir, EntryPlace, Place, Role, Slot};
use crate::format::InodeFlags;
use crate::format::dir::{self, Names};
use crate::trans::ext4_jbd2::Handle;

impl Dir<'_> {
    /// Whether it has an index that is not looked at, as `has_dir_index` says: its names may go,
    /// but a new one must stand where the index leads to.
    pub(super) fn is_closed_index(&self, cx: &Cx) -> bool {
        self.layout.names == Names::Data
            && self.inode.with(cx, |core| core.flags.contains(InodeFlags::INDEX))
    }

    /// What lies behind a name that was found under the same lock (`dirdata`).
    pub(crate) fn behind(&self, place: &EntryPlace) -> Vec<u8> {
        match &place.place {
            Place::Block(buffer) if self.layout.names == Names::Data => {
                buffer.with(|data| dir::behind(data, self.layout, place.found.offset))
            }
            _ => Vec::new(),
        }
    }

    /// Puts that behind a name whose entry has room for it; else it has none, as a new name.
    pub(crate) fn put_behind(
        &self,
        cx: &mut Cx,
        handle: &mut Handle,
        place: &EntryPlace,
        kept: &[u8],
    ) -> Result<(), Errno> {
        match &place.place {
            Place::Block(buffer) if !kept.is_empty() => {
                let put = |data: &mut [u8]| dir::put_behind(data, place.found.offset, kept);
                self.change(cx, handle, buffer, put).map(|_| ())
            }
            _ => Ok(()),
        }
    }

    /// A slot with room for so many bytes behind the name, instead of one that was found for the
    /// name alone.
    pub(crate) fn slot_with(
        &self,
        cx: &mut Cx,
        slot: Slot,
        name: &[u8],
        kept: &[u8],
    ) -> Result<Slot, Errno> {
        if kept.is_empty() {
            return Ok(slot);
        }
        let need = dir::entry_len(name.len() + kept.len() - 1);
        for lblk in 0..self.blocks {
            let buffer = self.block(cx, lblk, Role::Leaf)?;
            let room = buffer.with(|data| dir::room(data, self.layout, need));
            if let Some(offset) = room {
                return Ok(Slot::Room(buffer, offset));
            }
        }
        Ok(Slot::Append)
    }
}
