//! Making a file durable.

use base::Errno;
use rt::Cx;
use vfs::FileType;

use crate::inode::{Inode, Inodes};

impl Inodes {
    /// Returns when the inode survives a power cut: its data are written, then its transaction
    /// commits, shared with all who wait for the same. Where that has happened already only the
    /// device's cache is flushed.
    ///
    /// # Errors
    /// An earlier or present write error, the journal's errno once it has aborted.
    pub(crate) fn fsync_inode(
        &self,
        cx: &mut Cx,
        inode: &Inode,
        datasync: bool,
    ) -> Result<(), Errno> {
        self.sb.check_alive()?;
        if self.sb.options.read_only {
            return Ok(());
        }
        let mut result = Ok(());
        if let Some(mapping) = inode.mapping_if_any() {
            let mapping = mapping.clone();
            let mut mark = *inode.error_mark.lock(cx);
            result = mapping.fsync(cx, &mut mark);
            *inode.error_mark.lock(cx) = mark;
        }
        if !datasync && inode.with(cx, |core| core.times_dirty && !core.dead) {
            self.write_inode(cx, inode)?;
        }
        // The names of a directory are its data.
        let datasync = datasync && inode.kind(cx) != FileType::Directory;
        let tid = inode.with(cx, |core| if datasync { core.datasync_tid } else { core.tid });
        result.and(self.sb.make_durable(cx, tid))
    }
}
