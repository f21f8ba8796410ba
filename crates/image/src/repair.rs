//! Repairing the file system of an image.

use std::path::Path;

use base::Errno;
use repair::RepairError;
use repair::undo::{Repaired, State, UndoError, UndoFile};

use crate::error::{Error, Result};
use crate::open::Image;

pub use repair::{Finding as Mistake, Plan};

impl Image {
    /// What is wrong with the file system, and what a repair would do about it. Reads only.
    ///
    /// # Errors
    /// The device failed; `EUCLEAN` where nothing is left to repair from; `EOPNOTSUPP` for features
    /// that cannot be repaired yet, by name.
    pub fn repair_plan(&self) -> Result<Plan> {
        let plan = self.enter("repair", |cx| repair::plan(cx, &self.queue, &mut |_| true));
        plan.map_err(|error| Error::because(&self.place, errno_of(&error), error))
    }

    /// Repairs the file system; the image must be open for writing, and not be mounted. Before the
    /// first write the new file `undo` holds the old content of every block that changes;
    /// [`Image::undo`] puts it back. Where nothing is wrong there is no such file. Returns what was
    /// done.
    ///
    /// A repair that was cut is finished by calling this again with its undo file.
    ///
    /// # Errors
    /// Those of [`Image::repair_plan`]; `EUCLEAN` where something would stay wrong; `EROFS`; those
    /// of making the undo file, `EEXIST` first of all. Nothing was written then. The device failed
    /// while it was written: call it again.
    pub fn repair(&self, undo: impl AsRef<Path>) -> Result<Plan> {
        let undo = undo.as_ref();
        if self.queue.info().read_only {
            return Err(Error::new(&self.place, Errno::EROFS));
        }
        if undo.exists() {
            self.finish(undo)?;
        }
        let plan = self.repair_plan()?;
        if plan.is_clean() {
            return Ok(plan);
        }
        if !plan.is_complete() {
            let (count, first) = (plan.left.len(), plan.left.first().map_or("", String::as_str));
            let words = format!("{count} findings cannot be repaired yet, first: {first}");
            return Err(Error::because(&self.place, Errno::EUCLEAN, words));
        }
        let of =
            Repaired { target: self.place.as_bytes(), device_bytes: self.queue.info().bytes() };
        self.enter("repair", |cx| {
            let mut made = UndoFile::create(undo, cx.random_uuid(), &of, &plan)?;
            repair::apply(cx, &self.queue, &mut made)
        })
        .map_err(|error| self.undoing(error))?;
        Ok(plan)
    }

    /// Puts back what [`Image::repair`] changed, byte for byte; the image must be open for writing,
    /// and not be mounted. One that was cut may be repeated.
    ///
    /// # Errors
    /// `EROFS`; `EINVAL` where the file is no undo file, or the image is not as the repair has left
    /// it: nothing was written then. The device failed while it was written: call it again.
    pub fn undo(&self, undo: impl AsRef<Path>) -> Result<()> {
        if self.queue.info().read_only {
            return Err(Error::new(&self.place, Errno::EROFS));
        }
        let mut undo = UndoFile::open(undo.as_ref()).map_err(|error| self.undoing(error))?;
        self.enter("undo", |cx| undo.undo(cx, &self.queue)).map_err(|error| self.undoing(error))
    }

    /// Finishes what the undo file says was begun; leaves a finished one alone.
    fn finish(&self, undo: &Path) -> Result<()> {
        let mut undo = UndoFile::open(undo).map_err(|error| self.undoing(error))?;
        let done = self.enter("repair", |cx| match undo.state() {
            State::Prepared if undo.is_begun(cx, &self.queue)? => {
                repair::apply(cx, &self.queue, &mut undo)
            }
            _ => Ok(()),
        });
        done.map_err(|error| self.undoing(error))
    }

    fn undoing(&self, error: UndoError) -> Error {
        let errno = match &error {
            UndoError::Io(error) => Errno::from_io(error),
            UndoError::Device(error) => error.to_errno(),
            _ => Errno::EINVAL,
        };
        Error::because(&self.place, errno, error)
    }
}

fn errno_of(error: &RepairError) -> Errno {
    match error {
        RepairError::Device(error) => error.to_errno(),
        RepairError::Feature(_) => Errno::EOPNOTSUPP,
        _ => Errno::EUCLEAN,
    }
}
