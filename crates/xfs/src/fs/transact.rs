//! The one way to run a transaction.

use base::Errno;
use rt::Cx;

use super::WriteSide;
use crate::Xfs;
use crate::error::{Fault, Result, XfsError};
use crate::log::dquot_item;
use crate::trans::{LogReservation, Trans};

impl Xfs {
    /// The parts that change the file system.
    ///
    /// # Errors
    /// `EROFS` on a read-only mount; `EIO` after unmount or shutdown.
    pub(crate) fn writer(&self) -> std::result::Result<&WriteSide, Errno> {
        self.check_alive()?;
        let writer = self.write.as_ref().ok_or(Errno::EROFS)?;
        match writer.log.shut_down() {
            Some(_) => Err(Errno::EIO),
            None => Ok(writer),
        }
    }

    /// Runs a transaction: space in the log, `body`, commit. Where `body` fails and has changed
    /// something the file system is shut down, because the change is in the buffers; so a body
    /// finds out first what can go wrong. May park. The caller holds the locks of the inodes that
    /// `body` logs, over the end of this call.
    ///
    /// # Errors
    /// The answer of `body`; `EROFS`, `EIO`.
    pub(crate) fn transact<R>(
        &self,
        cx: &mut Cx,
        reservation: LogReservation,
        body: impl FnOnce(&mut Cx, &mut Trans) -> Result<R>,
    ) -> std::result::Result<R, Errno> {
        let writer = self.writer()?;
        let reservation = match self.quota() {
            Some(_) => reservation.with(dquot_item::LOG_BYTES),
            None => reservation,
        };
        let run = |cx: &mut Cx| {
            let mut trans = Trans::alloc(cx, &writer.log, reservation)?;
            match body(cx, &mut trans) {
                Ok(value) => {
                    let seq = trans.commit(cx)?;
                    if self.synchronous {
                        writer.log.force_seq(cx, seq)?;
                    }
                    Ok(value)
                }
                Err(error) => {
                    // What allocation put in order on the way stands for itself.
                    match trans.is_dirty() && !trans.has_substance() {
                        true => drop(trans.commit(cx)?),
                        false => trans.cancel(),
                    }
                    Err(error)
                }
            }
        };
        run(cx).map_err(|error| self.fail(error))
    }

    /// Takes note of an error and gives the errno for the caller.
    pub(crate) fn fail(&self, error: XfsError) -> Errno {
        match error {
            XfsError::Device(error) => self.fault(Fault::Device(error)),
            XfsError::Corrupt(corrupt) => self.fault(Fault::Corrupt(corrupt)),
            XfsError::NoSpace | XfsError::Answer(_) => error.to_errno(),
            other => {
                self.note_error(other.to_string());
                other.to_errno()
            }
        }
    }

    /// Makes durable everything that was done. May park.
    ///
    /// # Errors
    /// The log could not be written.
    pub(crate) fn force_all(&self, cx: &mut Cx) -> std::result::Result<(), Errno> {
        let Some(writer) = &self.write else { return Ok(()) };
        writer.log.check().map_err(|error| self.fail(error))?;
        writer.log.force(cx).map_err(|error| self.fail(error))
    }
}
