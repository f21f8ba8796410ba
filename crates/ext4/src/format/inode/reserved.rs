//! What inodes cannot hold that are reserved, or deleted.

use super::{FileKind, InodeFlags, InodeValues};
use crate::format::Geometry;
use crate::format::features::Compat;
use crate::format::super_block::{
    BAD_BLOCKS_INO, BOOT_LOADER_INO, FIRST_SPARE_INO, RESIZE_INO, ROOT_INO, UNDELETE_INO,
};

impl InodeValues {
    /// True unless these are of a reserved inode that cannot hold them: the list of bad blocks is
    /// no file, the boot loader no directory, those that nothing uses have no mode, and none
    /// without links has content.
    pub fn may_be_of(&self, ino: u32, geometry: &Geometry) -> bool {
        let [user, group, project] = geometry.quota_inos;
        let known = [geometry.journal_ino, geometry.orphan_file_ino, user, group, project];
        match ino {
            _ if known.contains(&ino) || ino >= geometry.first_ino => true,
            BAD_BLOCKS_INO => {
                let owner = [self.uid, self.gid, self.dtime];
                let plain = self.mode == 0 && self.links == 0 && owner == [0; 3];
                plain && self.file_acl == 0 && !self.flags.contains(InodeFlags::INLINE_DATA)
            }
            ROOT_INO => true,
            RESIZE_INO if geometry.features.compat.contains(Compat::RESIZE_INODE) => true,
            _ if self.links == 0 && !self.is_blank() => false,
            BOOT_LOADER_INO | RESIZE_INO => self.kind() != Some(FileKind::Directory),
            UNDELETE_INO | FIRST_SPARE_INO.. => self.mode == 0,
            _ => true,
        }
    }

    /// Nothing hangs on an inode, and it is on no list of orphans.
    fn is_blank(&self) -> bool {
        let numbers = [self.blocks, self.file_acl, self.dtime.into()];
        numbers == [0; 3]
            && self.block.iter().all(|&byte| byte == 0)
            && !self.flags.contains(InodeFlags::CASEFOLD)
    }

    /// True where the time of deletion is the number of an inode: the next one of a list of
    /// orphans.
    pub fn names_orphan(&self, geometry: &Geometry) -> bool {
        (1..geometry.inodes_count).contains(&self.dtime)
    }
}
