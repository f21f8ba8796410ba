//! What both versions of LUKS say of a volume, in one form.

use zeroize::Zeroizing;

use super::cipher::SectorCipher;
use super::kdf::{Hash, Kdf, merge};
use crate::error::Subject;
use crate::source::{self, Source};
use crate::{Error, Fact};

/// The longest master key, in bytes.
pub(super) const KEY_MAX: usize = 128;
/// The most stripes of a key on the disk; cryptsetup writes 4,000.
pub(super) const STRIPES_MAX: usize = 16_000;

/// The header of a LUKS volume.
#[derive(Clone, Debug)]
pub struct Header {
    pub(super) version: u16,
    pub(super) uuid: String,
    pub(super) label: String,
    pub(super) slots: Vec<Slot>,
    pub(super) digests: Vec<Check>,
    pub(super) segment: Segment,
    /// Why the volume is not opened, with what to do.
    pub(super) obstacle: Option<String>,
}

/// A slot that gives the master key for a passphrase.
#[derive(Clone, Debug)]
pub(super) struct Slot {
    pub number: u32,
    /// Bytes of the master key.
    pub key_size: usize,
    /// Where the key lies, in bytes.
    pub offset: u64,
    pub cipher: String,
    /// Bytes of the key of that cipher.
    pub area_key_size: usize,
    pub stripes: usize,
    pub merge: Hash,
    pub kdf: Kdf,
}

/// How a master key is checked.
#[derive(Clone, Debug)]
pub(super) struct Check {
    pub slots: Vec<u32>,
    pub kdf: Kdf,
    pub digest: Vec<u8>,
}

/// Where the content lies.
#[derive(Clone, Debug, Default)]
pub(super) struct Segment {
    pub offset: u64,
    /// None: to the end of the device.
    pub size: Option<u64>,
    /// Number of the first sector.
    pub first: u64,
    pub cipher: String,
    pub unit: u32,
}

impl Header {
    /// Its version: 1 or 2.
    pub fn version(&self) -> u16 {
        self.version
    }

    /// The name of the format.
    pub fn format(&self) -> &'static str {
        if self.version == 1 { "LUKS1" } else { "LUKS2" }
    }

    /// What `info` shows of it, without a key.
    pub fn facts(&self) -> Vec<(&'static str, Fact)> {
        let slots = self
            .slots
            .iter()
            .map(|slot| format!("{}: {} key, {}", slot.number, slot.cipher, slot.kdf.describe()));
        vec![
            ("uuid", Fact::from(self.uuid.as_str())),
            ("label", self.label.as_str().into()),
            ("cipher", self.segment.cipher.as_str().into()),
            ("sector_size", self.segment.unit.into()),
            ("data_offset", self.segment.offset.into()),
            ("key_slots", Fact::Lines(slots.collect())),
            ("obstacle", self.obstacle.as_deref().unwrap_or_default().into()),
        ]
    }

    /// The master key that a passphrase or the bytes of a key file give; none where they fit no
    /// slot. May take seconds, and up to 4 GiB of memory, as the slots say.
    ///
    /// # Errors
    /// The source failed, or a slot uses what is not supported and no other one fits.
    pub(super) fn master_key(
        &self,
        subject: &Subject,
        source: &dyn Source,
        secret: &[u8],
    ) -> Result<Option<Zeroizing<Vec<u8>>>, Error> {
        let mut refused = None;
        for slot in &self.slots {
            match self.try_slot(subject, source, slot, secret) {
                Ok(Some(key)) => return Ok(Some(key)),
                Ok(None) => (),
                Err(error @ Error::Read { .. }) => return Err(error),
                Err(error) => refused = Some(error),
            }
        }
        refused.map_or(Ok(None), Err)
    }

    fn try_slot(
        &self,
        subject: &Subject,
        source: &dyn Source,
        slot: &Slot,
        secret: &[u8],
    ) -> Result<Option<Zeroizing<Vec<u8>>>, Error> {
        let named =
            |what: String| subject.unsupported(format!("key slot {}: {what}", slot.number), "");
        let len = (slot.key_size * slot.stripes).next_multiple_of(512);
        let end = slot.offset.checked_add(len as u64).filter(|&end| end <= source.size());
        if end.is_none() {
            let what = format!("its key of {len} bytes at byte {} is behind the end", slot.offset);
            return Err(subject.damaged(format!("key slot {}", slot.number), what));
        }
        let key = slot.kdf.derive(secret, slot.area_key_size).map_err(named)?;
        let cipher = SectorCipher::new(&slot.cipher, &key, 512).map_err(named)?;
        let mut area = Zeroizing::new(vec![0; len]);
        source::read(source, slot.offset, &mut area)?;
        cipher.decrypt(0, &mut area);
        let stripes = &area[..slot.key_size * slot.stripes];
        let master = merge(stripes, slot.key_size, slot.merge);
        for check in self.digests.iter().filter(|check| check.slots.contains(&slot.number)) {
            let digest = check.kdf.derive(&master, check.digest.len()).map_err(named)?;
            if *digest == check.digest {
                return Ok(Some(master));
            }
        }
        Ok(None)
    }
}
