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
        if inode.kind(cx) != FileType::Regular {
            return result.and(self.commit_all(cx));
        }
        let tid = inode.with(cx, |core| if datasync { core.datasync_tid } else { core.tid });
        let reporter = self.fast_tracker().map(|tracker| Reporter { fs: self, tracker });
        let changes = reporter.as_ref().map(|reporter| reporter as &dyn FastChanges);
        result = result.and(self.sb.make_durable_by(cx, tid, changes));
        if let Some(tracker) = self.fast_tracker() {
            result = result.and_then(|()| tracker.settle_early(cx, &self.sb));
        }
        result
    }

    /// Of what is no file there are no fast commits: everything is committed that has been done.
    fn commit_all(&self, cx: &mut Cx) -> Result<(), Errno> {
        let tid = self.sb.journal().map(|journal| journal.last_tid(cx));
        self.sb.make_durable(cx, tid)?;
        match self.fast_tracker() {
            Some(tracker) => tracker.settle_early(cx, &self.sb),
            None => Ok(()),
        }
    }
}
