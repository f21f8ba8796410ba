//! Growth of a mount.

use base::Errno;
use rt::Cx;

use super::{ResizeError, grow};
use crate::Xfs;
use crate::error::Fault;
use crate::mount::MountError;

impl Xfs {
    /// Grows to so many blocks: see [`vfs::FileSystem::grow`]. What lies in the realtime section or
    /// on a log's device keeps its size.
    pub(crate) fn grow_mounted(&self, cx: &mut Cx, blocks: u64) -> Result<(), Errno> {
        let _alone = self.growing.lock(cx);
        let writer = self.writer()?;
        let geometry = self.geometry();
        if blocks < geometry.blocks_count() {
            return Err(Errno::EINVAL);
        }
        let size = u64::from(geometry.block_size);
        let wanted = blocks.checked_mul(size).ok_or(Errno::EINVAL)?;
        if wanted > self.queue.grow(wanted) {
            return Err(Errno::ENOSPC);
        }
        grow::grow_open(cx, &self.queue, writer, wanted).map_err(|error| match error {
            ResizeError::Size { .. } => Errno::EFBIG,
            ResizeError::Mount(MountError::Device(error)) => self.fault(Fault::Device(error)),
            ResizeError::Mount(MountError::Corrupt(corrupt)) => self.fault(Fault::Corrupt(corrupt)),
            other => {
                self.note_error(other.to_string());
                match other {
                    ResizeError::Mount(error) => error.to_errno(),
                    _ => Errno::EIO,
                }
            }
        })
    }
}
