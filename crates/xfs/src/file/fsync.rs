//! Making files durable.
//!
//! A flush of the device's cache is asked for where the log does not do it anyway: before the
//! record that makes a checkpoint valid. What was overwritten in place changes no map and may have
//! no checkpoint of its own.

use std::sync::atomic::Ordering;

use base::Errno;
use rt::Cx;

use super::DataFile;
use super::ioend::sync_content;
use crate::Xfs;

impl DataFile<'_> {
    /// Returns when the inode survives a power cut: its content is on the device, its map and size
    /// are in the log. With `datasync` times may stay behind. May park.
    ///
    /// # Errors
    /// An earlier or present write error; the log could not be written.
    pub(crate) fn fsync_inode(&self, cx: &mut Cx, datasync: bool) -> Result<(), Errno> {
        self.fs.check_alive()?;
        let Some(writer) = &self.fs.write else { return Ok(()) };
        let mut result = Ok(());
        if let Some(mapping) = self.inode.mapping_if_any().cloned() {
            self.inode.waited.fetch_add(1, Ordering::Relaxed);
            let mut mark = self.inode.io.lock(cx).error_mark;
            result = mapping.fsync(cx, &mut mark);
            self.inode.io.lock(cx).error_mark = mark;
            self.inode.waited.fetch_sub(1, Ordering::Relaxed);
            self.finish_io(cx, true)?;
            let times_dirty = self.inode.io.lock(cx).times_dirty;
            match times_dirty {
                true if datasync => self.hold(cx),
                true => self.log_times(cx)?,
                false => {}
            }
        }
        // A transaction that has changed it is waited for.
        self.inode.item.lock(cx, u64::MAX);
        let seq = self.inode.item.last_seq();
        self.inode.item.unlock();
        let unflushed = std::mem::take(&mut self.inode.io.lock(cx).unflushed);
        // A checkpoint that is still being gathered comes after the content, and flushes it.
        let covered = seq > 0 && seq == writer.log.gathering(cx);
        writer.log.check().map_err(|error| self.fs.fail(error))?;
        writer.log.force_seq(cx, seq).map_err(|error| self.fs.fail(error))?;
        if unflushed && !covered {
            let backing = self.fs.backing_of(self.in_realtime(cx));
            let flushed = backing.queue().flush(cx);
            if let Err(error) = flushed {
                self.inode.io.lock(cx).unflushed = true;
                return Err(self.fs.fail(error.into()));
            }
        }
        result
    }
}

/// Returns when everything done before survives a power cut. May park.
///
/// # Errors
/// The first write error; the log could not be written.
pub(crate) fn sync_all(fs: &Xfs, cx: &mut Cx) -> Result<(), Errno> {
    fs.check_alive()?;
    let Some(writer) = &fs.write else { return Ok(()) };
    let result = sync_content(fs, cx);
    let unflushed = fs.finisher.unflushed.swap(false, Ordering::AcqRel);
    let covered = writer.log.has_gathered(cx);
    fs.force_all(cx)?;
    if unflushed && !covered {
        for backing in fs.backings() {
            backing.queue().flush(cx).map_err(|error| fs.fail(error.into()))?;
        }
    }
    result
}
