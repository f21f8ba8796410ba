//! Light damage: where only counters and numbers of links are wrong, what the check has counted is
//! stored. No inode is read again, and no btree is written anew.

use base::Ino;
use block::DeviceError;
use xfs::format::ag::{RawAgf, RawAgi};
use xfs::format::inode::InodeCore;
use xfs::format::{AgHeader, At, Kind, verifier};
use xfs::{Count, Counter, Rule};

use super::{FINDINGS_MAX, Fs, safe};

/// The rules whose violation says nothing about the structures that were counted.
const COUNTED: [Rule; 5] =
    [Rule::LinkCount, Rule::GroupCount, Rule::SuperCount, Rule::LogReplayed, Rule::QuotaUsage];

impl Fs<'_> {
    /// Stores numbers that a check has counted; false where it found something else, too.
    ///
    /// # Errors
    /// The device's.
    pub fn take_counts(&mut self, counts: &[Count]) -> Result<bool, DeviceError> {
        if !self.suspects.rules.iter().all(|rule| COUNTED.contains(rule)) {
            return Ok(false);
        }
        if self.g.realtime.blocks > 0 && self.suspects.rules.contains(&Rule::SuperCount) {
            // The sum over the realtime section is not among the counts.
            return Ok(false);
        }
        for &count in counts {
            match count {
                Count::Links { ino, found, counted } => {
                    let mut slot = self.slot(ino)?;
                    let Ok(mut core) = InodeCore::parse(&slot, ino, &self.g) else {
                        return Ok(false);
                    };
                    core.links = counted;
                    core.emit(&mut slot);
                    self.put_slot(ino, &mut slot)?;
                    self.note_links(ino, found, counted);
                }
                Count::Group { ag, counter, found, counted } => {
                    self.store_counter(ag, counter, counted)?;
                    let at = if counter.is_of_inodes() { At::Agi(ag) } else { At::Agf(ag) };
                    let detail = format!("{}: {found} should be {counted}", counter.name());
                    self.note(safe(Rule::GroupCount, at, detail, "store that"));
                }
            }
        }
        if self.suspects.rules.contains(&Rule::QuotaUsage) {
            self.forget_counts()?;
        }
        let sums = self.sums()?;
        self.write_sums(&sums)?;
        Ok(true)
    }

    /// What is still wrong of the numbers that a check has counted, after they were stored. It
    /// found nothing else.
    ///
    /// # Errors
    /// The device's.
    pub fn counts_left(&mut self, counts: &[Count]) -> Result<Vec<String>, DeviceError> {
        let (_, queue) = self.view.overlay()?;
        let report = xfs::check_counts(self.view.cx(), &queue, counts, FINDINGS_MAX)?;
        Ok(report.findings.iter().map(ToString::to_string).collect())
    }

    /// Says that a number of links is wrong, and is stored.
    pub fn note_links(&mut self, ino: Ino, found: u32, counted: u32) {
        let detail = format!("{found} links should be {counted}");
        self.note(safe(Rule::LinkCount, At::Inode(ino), detail, "store that"));
    }

    fn store_counter(&mut self, ag: u32, counter: Counter, value: u32) -> Result<(), DeviceError> {
        let (header, kind) = match counter.is_of_inodes() {
            true => (AgHeader::Agi, Kind::Agi),
            false => (AgHeader::Agf, Kind::Agf),
        };
        let place = self.g.header_sector(ag, header).bytes();
        let mut sector = self.view.read_bytes(place, self.g.sector_size as usize)?;
        let sized = "a sector holds it";
        let word = match counter {
            Counter::FreeBlocks => &mut RawAgf::view_mut(&mut sector).expect(sized).agf_freeblks,
            Counter::LongestFree => &mut RawAgf::view_mut(&mut sector).expect(sized).agf_longest,
            Counter::TreeBlocks => &mut RawAgf::view_mut(&mut sector).expect(sized).agf_btreeblks,
            Counter::RmapBlocks => &mut RawAgf::view_mut(&mut sector).expect(sized).agf_rmap_blocks,
            Counter::RefcountBlocks => {
                &mut RawAgf::view_mut(&mut sector).expect(sized).agf_refcount_blocks
            }
            Counter::InodeTreeBlocks => {
                &mut RawAgi::view_mut(&mut sector).expect(sized).agi_iblocks
            }
            Counter::FreeInodeTreeBlocks => {
                &mut RawAgi::view_mut(&mut sector).expect(sized).agi_fblocks
            }
            Counter::Inodes => &mut RawAgi::view_mut(&mut sector).expect(sized).agi_count,
            Counter::FreeInodes => &mut RawAgi::view_mut(&mut sector).expect(sized).agi_freecount,
        };
        word.set(value);
        verifier::update_crc(kind, &mut sector);
        self.view.write_bytes(place, &sector)
    }
}
