//! Where the log of an external journal lies: its blocks have the numbers of the device's.

use block::Overlay;
use jbd2::JournalArea;
use rt::Cx;

use super::{MountError, Mounting};
use crate::format::features::Incompat;
use crate::format::{Geometry, RawSuper};
use crate::journal_device::{JournalDevice, JournalDeviceError};
use crate::sb::options::MountOptions;

impl From<JournalDeviceError> for MountError {
    fn from(error: JournalDeviceError) -> MountError {
        match error {
            JournalDeviceError::Device(error) => MountError::Device(error),
            other => MountError::Journal(other.to_string()),
        }
    }
}

impl JournalDevice {
    /// The same device, with what is written kept in memory.
    pub(crate) fn overlaid(&self) -> JournalDevice {
        JournalDevice(Overlay::queue(&self.0))
    }

    /// Where the log lies on the device. `raw` is the superblock of the file system that it is to
    /// belong to. May park.
    ///
    /// # Errors
    /// The device holds no journal, that of another file system, or one of other blocks; the
    /// device's.
    pub(crate) fn area(&self, cx: &mut Cx, raw: &RawSuper) -> Result<JournalArea, MountError> {
        let refuse = |text: String| Err(MountError::Journal(text));
        let own = self.super_block(cx)?;
        if own.s_uuid != raw.s_journal_uuid {
            let [found, wanted] = [own.s_uuid, raw.s_journal_uuid].map(uuid::Uuid::from_bytes);
            return refuse(format!(
                "the device given holds {found}, the file system's is {wanted}"
            ));
        }
        let [found, wanted] = [&own, raw].map(|raw| raw.s_log_block_size.get());
        if found != wanted {
            let [found, wanted] = [found, wanted].map(|log| 1024u64.wrapping_shl(log));
            return refuse(format!("its blocks have {found} bytes, the file system's {wanted}"));
        }
        let block = JournalDevice::log_block(1024 << wanted);
        Ok(JournalArea::external(self.0.clone(), block, own.s_blocks_count_lo.get()))
    }
}

impl Geometry {
    /// Is there a log inside, or on the device that was given?
    pub(super) fn reaches_log(&self, journal: Option<&JournalDevice>) -> bool {
        self.journal_ino != 0 || self.external_journal() && journal.is_some()
    }
}

impl Mounting {
    /// Is the journal on a device that was not given? A mount that only reads does without, where
    /// the log is empty.
    pub(super) fn lacks_journal(
        &self,
        raw: &RawSuper,
        geometry: &Geometry,
    ) -> Result<bool, MountError> {
        match (geometry.external_journal(), &self.options.journal) {
            (false, None) | (true, Some(_)) => return Ok(false),
            (false, Some(_)) => {
                return Err(MountError::Mode("a journal device of a file system without one"));
            }
            (true, None) => {}
        }
        let dirty = geometry.features.incompat.contains(Incompat::RECOVER);
        let MountOptions { read_only, no_replay, .. } = self.options;
        if read_only && (no_replay || !dirty) {
            return Ok(true);
        }
        let uuid = uuid::Uuid::from_bytes(raw.s_journal_uuid);
        let text = format!("it is {uuid}, on a device of its own: name that device");
        Err(MountError::Journal(text))
    }
}
