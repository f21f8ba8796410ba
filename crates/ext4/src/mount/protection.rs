//! Multi-mount protection around a mount: the block is taken before anything is written, and given
//! back when everything is.

use std::sync::Arc;

use base::Errno;
use rt::Cx;

use super::{MountError, Mounting};
use crate::Ext4;
use crate::format::{Geometry, RawSuper};
use crate::sb::mmp::{MmpError, Protection};

impl From<MmpError> for MountError {
    fn from(error: MmpError) -> MountError {
        match error {
            MmpError::Busy(busy) => busy.into(),
            MmpError::Corrupt(corrupt) => corrupt.into(),
            MmpError::Device(error) => error.into(),
        }
    }
}

impl Mounting {
    /// As [`Mounting::open`], with the block of a file system that has one.
    pub(super) fn open_protected(
        &self,
        cx: &mut Cx,
        raw: RawSuper,
        geometry: Geometry,
    ) -> Result<Arc<Ext4>, MountError> {
        if self.options.read_only {
            return self.open(cx, raw, geometry);
        }
        let node = &self.options.node;
        let held = Protection::acquire(cx, &self.queue, &raw, &geometry, node)?;
        let opened = self.open(cx, raw, geometry);
        match (held, &opened) {
            (None, _) => {}
            (Some(held), Ok(fs)) => {
                held.keep(cx, &fs.sb);
                let first = fs.mmp.set(held).is_ok();
                assert!(first, "a mount takes the block once");
            }
            (Some(held), Err(_)) => held.give_back(cx)?,
        }
        opened
    }
}

impl Ext4 {
    /// Lets others mount.
    pub(super) fn end_protection(&self, cx: &mut Cx) -> Result<(), Errno> {
        let given = self.mmp.get().map_or(Ok(()), |held| held.give_back(cx));
        given.map_err(|error| self.sb.device_error(cx, &error))
    }
}
