//! The log: recovered into the plan, as a mount would.

use block::DeviceError;
use xfs::Rule;
use xfs::XfsError;
use xfs::format::At;
use xfs::log::{LogError, LogGeometry, recovery};

use super::{Fs, safe};
use crate::RepairError;

/// Device errors stay what they are; anything else is the log's.
fn hopeless(error: XfsError) -> RepairError {
    match error {
        XfsError::Device(error) | XfsError::Log(LogError::Device(error)) => device(error),
        other => RepairError::Hopeless(format!("the log cannot be recovered: {other}")),
    }
}

fn device(error: DeviceError) -> RepairError {
    RepairError::Device(error)
}

impl Fs<'_> {
    /// Recovers the log.
    ///
    /// # Errors
    /// It cannot be: nothing is planned then.
    pub fn recover_log(&mut self) -> Result<(), RepairError> {
        let (overlay, queue) = self.view.overlay()?;
        let found = recovery::find(self.view.cx(), &queue, LogGeometry::of(&self.g));
        if found.map_err(hopeless)?.clean {
            return Ok(());
        }
        let report = xfs::recover(self.view.cx(), &queue).map_err(hopeless)?;
        self.view.absorb(&overlay)?;
        self.note(safe(
            Rule::LogDirty,
            At::Log(0),
            "was not unmounted",
            &format!("replay: {report}"),
        ));
        Ok(())
    }
}
