//! Metadata that says it was written behind records that the log has not come to.
//!
//! Recovery would take it for newer than the changes to it. Where a few pieces say so, they are
//! made old; where many do, the log was lost, and is made empty behind all of them.

use base::{FsBlock, Ino, Sector};
use block::DeviceError;
use xfs::Rule;
use xfs::format::inode::RawInode;
use xfs::format::log::Lsn;
use xfs::format::{At, Kind, verifier};

use super::{Fs, safe};

/// So many pieces are put right one by one.
const FEW: usize = 16;
/// A log does not go round so often: whatever is as far ahead is damaged by itself. The smallest
/// log has written 8 TiB then.
const CYCLES_MAX: u32 = 1 << 24;
/// The number of what is older than all records.
const OLD: u64 = 1;

/// Where a piece of metadata lies.
#[derive(Clone)]
pub enum Place {
    /// In blocks.
    Blocks(Vec<(FsBlock, u32)>),
    /// In a sector.
    Header(Sector),
    /// In the slot of an inode.
    Slot(Ino),
}

/// A piece of metadata that is ahead of the log.
pub struct Ahead {
    lsn: Lsn,
    kind: Kind,
    place: Place,
    at: At,
}

impl Fs<'_> {
    /// Takes note of the record that a sound piece of metadata was written behind.
    pub fn note_lsn(&mut self, kind: Kind, bytes: &[u8], at: At, place: impl FnOnce() -> Place) {
        let Some(lsn) = verifier::written_behind(kind, bytes).map(Lsn::from_bits) else { return };
        let far = self.is_far(lsn);
        if !far {
            self.newest_cycle = self.newest_cycle.max(lsn.cycle);
        }
        // A log that is made empty anyway is made so behind all that is not far.
        if lsn >= self.log_end && (far || !self.log_emptied) {
            let piece = Ahead { lsn, kind, place: place(), at };
            self.ahead.insert(self.first_byte(&piece.place), piece);
        }
    }

    fn is_far(&self, lsn: Lsn) -> bool {
        lsn.cycle.saturating_sub(self.log_end.cycle) > CYCLES_MAX
    }

    fn first_byte(&self, place: &Place) -> u64 {
        match place {
            Place::Blocks(runs) => self.g.sector(runs[0].0).bytes(),
            Place::Header(sector) => sector.bytes(),
            Place::Slot(ino) => self.slot_place(*ino),
        }
    }

    /// Puts right what is ahead of the log, of all that was read.
    pub fn settle_lsns(&mut self) -> Result<(), DeviceError> {
        let ahead = std::mem::take(&mut self.ahead).into_values();
        let (far, near): (Vec<_>, Vec<_>) = ahead.partition(|piece| self.is_far(piece.lsn));
        let renewed = self.log_emptied || (near.len() > FEW && !self.g.features.external_log);
        far.into_iter().try_for_each(|piece| self.make_old(piece))?;
        if !renewed {
            return near.into_iter().try_for_each(|piece| self.make_old(piece));
        }
        if let Some(newest) = near.iter().map(|piece| piece.lsn).max()
            && !self.log_emptied
        {
            let (count, end) = (near.len(), self.log_end);
            let detail = format!(
                "ends at {end}: {count} pieces of metadata were written behind later records, the \
                 last behind {newest}"
            );
            let action = "make the log empty, behind all of them";
            self.note(safe(Rule::LogBehind, At::Log(end.block), detail, action));
            self.log_emptied = true;
            self.renew_log();
        }
        Ok(())
    }

    /// A superblock that is far ahead of the log is put right: the log is what it is. Whether it
    /// was.
    pub fn settle_super_lsn(&mut self, newest: Lsn, head: Lsn) -> Result<bool, DeviceError> {
        self.log_end = head;
        if !self.is_far(newest) {
            return Ok(false);
        }
        self.newest_cycle = head.cycle;
        self.raw.sb_lsn.set(OLD);
        self.g.lsn = OLD;
        self.write_super()?;
        self.note_old(At::Super(0), newest);
        Ok(true)
    }

    fn make_old(&mut self, piece: Ahead) -> Result<(), DeviceError> {
        let Ahead { lsn, kind, place, at } = piece;
        match &place {
            Place::Blocks(runs) => {
                let mut bytes = self.read_runs(runs)?;
                verifier::update_lsn_crc(kind, &mut bytes, OLD);
                self.write_runs(runs, &bytes);
            }
            Place::Header(sector) => {
                let len = self.g.sector_size as usize;
                let mut bytes = self.view.read_bytes(sector.bytes(), len)?;
                verifier::update_lsn_crc(kind, &mut bytes, OLD);
                self.view.write_bytes(sector.bytes(), &bytes)?;
            }
            &Place::Slot(ino) => {
                let mut slot = self.slot(ino)?;
                let raw = RawInode::view_mut(&mut slot).expect("a slot holds a core");
                raw.di_lsn.set(OLD);
                self.put_slot(ino, &mut slot)?;
            }
        }
        self.note_old(at, lsn);
        Ok(())
    }

    fn note_old(&mut self, at: At, lsn: Lsn) {
        let end = self.log_end;
        let detail = format!("was written behind record {lsn} of the log, which ends at {end}");
        self.note(safe(Rule::LogBehind, at, detail, "say that it is older"));
    }
}
