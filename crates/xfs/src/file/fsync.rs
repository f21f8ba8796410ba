//! Making files durable.
//!
//! A flush of the device's cache is asked for where the log does not do it anyway: before the
//! record that makes a checkpoint valid. What was overwritten in place changes no map and may have
//! no checkpoint of its own.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use base::Errno;
use rt::Cx;

use crate::Xfs;
use crate::inode::Inode;

impl Xfs {
    /// Returns when the inode survives a power cut: its content is on the device, its map and size
    /// are in the log. With `datasync` times may stay behind. May park.
    ///
    /// # Errors
    /// An earlier or present write error; the log could not be written.
    pub(crate) fn fsync_inode(
        &self,
        cx: &mut Cx,
        inode: &Arc<Inode>,
        datasync: bool,
    ) -> Result<(), Errno> {
        self.check_alive()?;
        let Some(writer) = &self.write else { return Ok(()) };
        let mut result = Ok(());
        if let Some(mapping) = inode.mapping_if_any().cloned() {
            inode.waited.fetch_add(1, Ordering::Relaxed);
            let mut mark = inode.io.lock(cx).error_mark;
            result = mapping.fsync(cx, &mut mark);
            inode.io.lock(cx).error_mark = mark;
            inode.waited.fetch_sub(1, Ordering::Relaxed);
            self.finish_io(cx, inode, true)?;
            let times_dirty = inode.io.lock(cx).times_dirty;
            match times_dirty {
                true if datasync => self.hold(cx, inode),
                true => self.log_times(cx, inode)?,
                false => {}
            }
        }
        // A transaction that has changed it is waited for.
        inode.item.lock(cx, u64::MAX);
        let seq = inode.item.last_seq();
        inode.item.unlock();
        let unflushed = std::mem::take(&mut inode.io.lock(cx).unflushed);
        // A checkpoint that is still being gathered comes after the content, and flushes it.
        let covered = seq > 0 && seq == writer.log.gathering(cx);
        writer.log.check().map_err(|error| self.fail(error))?;
        writer.log.force_seq(cx, seq).map_err(|error| self.fail(error))?;
        if unflushed && !covered {
            let flushed = self.queue.flush(cx);
            if let Err(error) = flushed {
                inode.io.lock(cx).unflushed = true;
                return Err(self.fail(error.into()));
            }
        }
        result
    }

    /// Returns when everything done before survives a power cut. May park.
    ///
    /// # Errors
    /// The first write error; the log could not be written.
    pub(crate) fn sync_all(&self, cx: &mut Cx) -> Result<(), Errno> {
        self.check_alive()?;
        let Some(writer) = &self.write else { return Ok(()) };
        let result = self.sync_content(cx);
        let unflushed = self.finisher.unflushed.swap(false, Ordering::AcqRel);
        let covered = writer.log.has_gathered(cx);
        self.force_all(cx)?;
        if unflushed && !covered {
            self.queue.flush(cx).map_err(|error| self.fail(error.into()))?;
        }
        result
    }
}
