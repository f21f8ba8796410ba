//! The log: recovered into the plan, as a mount would.

use std::sync::Arc;

use block::{DeviceError, Queue};
use xfs::Rule;
use xfs::XfsError;
use xfs::format::At;
use xfs::format::log::Lsn;
use xfs::log::recovery::{self, Change, FoundHead, Recovered, RecoveryContext};
use xfs::log::{LogError, LogGeometry};
use xfs::mkfs::EmptyLog;

use super::{Fs, lossy, safe};
use crate::{RepairError, restore};

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
    /// Recovers the log, or makes it empty where it cannot be and that is wanted.
    ///
    /// # Errors
    /// It cannot be: nothing is planned then.
    pub fn recover_log(&mut self, zero_log: bool) -> Result<(), RepairError> {
        if self.g.features.external_log {
            return self.ensure_empty();
        }
        match self.replay(zero_log) {
            Err(RepairError::Hopeless(why)) if zero_log => {
                let done = self.replay_what_can()?;
                self.log_emptied = true;
                self.empty_log(1);
                let (action, loss) = match done {
                    Some(done) => (
                        format!(
                            "replay what can be ({} items of {}), make it empty",
                            done.items - done.left_out.min(done.items),
                            done.items
                        ),
                        "the changes in the rest of it",
                    ),
                    None => (
                        "make it empty".to_string(),
                        "the changes that it holds and that are not on the disk yet",
                    ),
                };
                self.note(lossy(Rule::LogDirty, At::Log(0), why, &action, loss));
                Ok(())
            }
            Err(RepairError::Hopeless(why)) => {
                let hint = "--zero-log gives up what it holds";
                Err(RepairError::Hopeless(format!("{why}; {hint}")))
            }
            other => other,
        }
    }

    /// The undo file of a repair holds blocks of one device: an external log must be empty.
    pub fn ensure_empty(&mut self) -> Result<(), RepairError> {
        let log = &self.log.as_ref().ok_or(RepairError::LogDevice)?.0;
        let found = recovery::find(self.view.cx(), log, LogGeometry::of(&self.g));
        let found = found.map_err(hopeless)?;
        self.log_end = found.head.head;
        match found.is_clean() {
            true => Ok(()),
            false => Err(RepairError::ExternalLog),
        }
    }

    /// Replays the log up to its end. A damaged record ends it, unless what lies behind is wanted.
    fn replay(&mut self, all: bool) -> Result<(), RepairError> {
        let (overlay, queue) = self.view.overlay()?;
        let geometry = LogGeometry::of(&self.g);
        let mut found = recovery::find(self.view.cx(), &queue, geometry);
        if let Err(XfsError::Log(LogError::Ahead { newest, head })) = found
            && self.settle_super_lsn(newest, head)?
        {
            return self.replay(all);
        }
        if self.is_nothing(&found, &queue)? {
            let loss = "changes that it held, if any";
            self.note(lossy(Rule::LogStart, At::Log(0), "is zeroed", "make the log empty", loss));
            self.log_emptied = true;
            self.empty_log(1);
            return Ok(());
        }
        let restored = self.restore_records(&queue)?;
        if !restored.is_empty() {
            found = recovery::find(self.view.cx(), &queue, geometry);
        }
        let found = found.map_err(hopeless)?;
        if let Some(damaged) = found.damaged.filter(|_| all) {
            return Err(RepairError::Hopeless(damaged.to_string()));
        }
        let whole = recovery::starts_whole(self.view.cx(), &queue, geometry).map_err(hopeless)?;
        self.log_end = found.head.head;
        if !found.clean {
            let report = xfs::recover(self.view.cx(), &queue).map_err(hopeless)?;
            // What the log announced was carried out, with records of its own.
            let now = recovery::find(self.view.cx(), &queue, geometry).map_err(hopeless)?;
            self.log_end = now.head.head;
            let action = format!("replay: {report}");
            self.note(safe(Rule::LogDirty, At::Log(0), "was not unmounted", &action));
        }
        if !found.clean || !restored.is_empty() {
            self.view.absorb(&overlay)?;
            self.note_restored(&restored);
        }
        self.renew_if_damaged(&found, whole);
        Ok(())
    }

    /// All of a log is zeroed: there is no more to be had of it, whatever the superblock says.
    fn is_nothing(
        &mut self,
        found: &Result<FoundHead, XfsError>,
        queue: &Arc<Queue>,
    ) -> Result<bool, RepairError> {
        let none = match found {
            Ok(found) => found.head.head.block == 0,
            Err(error) => matches!(error, XfsError::Log(LogError::Ahead { .. })),
        };
        let geometry = LogGeometry::of(&self.g);
        Ok(none && recovery::is_zeroed(self.view.cx(), queue, geometry).map_err(hopeless)?)
    }

    /// A log with a damaged part is made empty, once what could be was replayed.
    fn renew_if_damaged(&mut self, found: &FoundHead, whole: bool) {
        let empty = "make the log empty";
        if let Some(damaged) = found.damaged {
            let action = format!("{empty}; --zero-log replays what can be behind it, too");
            let loss = "the changes in it, and in those behind it";
            let at = At::Log(damaged.at.block);
            self.note(lossy(Rule::LogRecord, at, damaged.to_string(), &action, loss));
        }
        if let Some(hole) = found.hole {
            self.note(safe(Rule::LogRecord, At::Log(hole.block), recovery::HOLE, empty));
        }
        if !whole {
            let (rule, at) = (Rule::LogStart, At::Log(0));
            self.note(safe(rule, at, "is damaged; the log holds nothing", empty));
        }
        if !whole || found.damaged.is_some() || found.hole.is_some() {
            self.log_emptied = true;
            self.empty_log(1);
        }
    }

    /// Puts records right whose checksum names what is wrong.
    fn restore_records(&mut self, queue: &Arc<Queue>) -> Result<Vec<Lsn>, RepairError> {
        let geometry = LogGeometry::of(&self.g);
        let correct = |len, gap| {
            let (at, bits) = restore::change_of(len, gap)?;
            Some(Change { at, bits })
        };
        recovery::restore_records(self.view.cx(), queue, geometry, &correct).map_err(hopeless)
    }

    fn note_restored(&mut self, records: &[Lsn]) {
        let (rule, detail) = (Rule::LogRecord, "does not fit its checksum in one place");
        for record in records {
            self.note(safe(rule, At::Log(record.block), detail, "put it right by the checksum"));
        }
    }

    /// Recovers what can be recovered of a damaged log; None where nothing of it can be read.
    fn replay_what_can(&mut self) -> Result<Option<Recovered>, RepairError> {
        let (overlay, queue) = self.view.overlay()?;
        let none = Lsn::from_bits(0);
        let geometry = LogGeometry { newest: none, ..LogGeometry::of(&self.g) };
        let mut context = RecoveryContext::of(&self.g);
        context.leave_out = true;
        if let Ok(restored) = self.restore_records(&queue) {
            self.note_restored(&restored);
        }
        match recovery::recover(self.view.cx(), &queue, geometry, &context).map_err(hopeless) {
            Ok(done) if done.items > done.left_out => {
                self.view.absorb(&overlay)?;
                Ok(Some(done))
            }
            Ok(_) | Err(RepairError::Hopeless(_)) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Makes the log empty, of a cycle above that of all metadata that was read.
    pub fn renew_log(&mut self) {
        if self.log_emptied {
            self.log_end = Lsn { cycle: self.newest_cycle.saturating_add(1), block: 0 };
            self.empty_log(self.log_end.cycle);
        }
    }

    fn empty_log(&mut self, cycle: u32) {
        let log = EmptyLog::new(self.g.uuid, self.g.log_sunit, cycle);
        let (size, first) = (self.g.block_size as usize, self.linear(self.g.log_start));
        for number in 0..u64::from(self.g.log_blocks) {
            self.view.write(first + number, &log.piece(number as usize * size, size));
        }
    }
}
