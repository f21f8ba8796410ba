//! Data behind names (`dirdata`), as names change.

use std::sync::Arc;

use base::Errno;
use rt::Cx;

use super::{Dir, EntryPlace, Place};
use crate::Ext4;
use crate::format::InodeFlags;
use crate::format::dir::{self, Behind, DirLayout, Names};
use crate::format::htree;
use crate::inode::Inode;
use crate::trans::ext4_jbd2::Handle;

/// Is the root of an index where it is looked for? One that cannot be read is damage, which is
/// found where it is used.
#[cold]
pub(super) fn knows_root(fs: &Ext4, cx: &mut Cx, inode: &Arc<Inode>, layout: DirLayout) -> bool {
    match fs.inodes.bmap(inode).bread(cx, 0) {
        Ok(Some(root)) => root.with(|data| htree::is_known_root(data, layout)),
        _ => true,
    }
}

impl Dir<'_> {
    /// Whether it has an index whose root is not known: its names may go, but a new one must stand
    /// where the index leads to.
    pub(super) fn is_closed_index(&self, cx: &Cx) -> bool {
        self.layout.names == Names::Data
            && !self.indexed
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
                let put = |data: &mut [u8]| Behind::of(kept).set_behind(data, place.found.offset);
                self.change(cx, handle, buffer, put).map(|_| ())
            }
            _ => Ok(()),
        }
    }
}
