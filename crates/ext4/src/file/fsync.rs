//! Making a file durable.

use base::Errno;
use jbd2::FastChanges;
use rt::Cx;
use vfs::FileType;

use crate::file::fast_commit::Reporter;
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
            result = mapping.fsync(cx, &mut mark).and(self.mark_arrived(cx, inode));
            *inode.error_mark.lock(cx) = mark;
        }
        if !datasync && inode.with(cx, |core| core.times_dirty && !core.dead) {
            self.write_inode(cx, inode)?;
        }
        // Of what is no file there are no fast commits: everything is committed that has been done.
        let regular = inode.kind(cx) == FileType::Regular;
        let tid = match (regular, datasync) {
            (true, true) => inode.with(cx, |core| core.datasync_tid),
            (true, false) => inode.with(cx, |core| core.tid),
            (false, _) => self.sb.journal().map(|journal| journal.last_tid(cx)),
        };
        let tracker = self.fast_tracker().filter(|_| regular);
        let reporter = tracker.map(|tracker| Reporter { fs: self, tracker });
        let changes = reporter.as_ref().map(|reporter| reporter as &dyn FastChanges);
        result = result.and(self.sb.make_durable_by(cx, tid, changes));
        if let Some(tracker) = self.fast_tracker() {
            result = result.and_then(|()| tracker.settle_early(cx, &self.sb));
        }
        result
    }
}
