//! Volumes of block devices: LUKS, LVM2, MD RAID 0 and 1, dm-verity. Each is an [`Image`] over the
//! devices below it, so that they can lie inside of each other and of any container.

pub mod luks;
pub mod lvm;
pub mod md;
pub mod verity;

use std::ops::Range;
use std::sync::Arc;

use crate::source::{self, Source};
use crate::target::{self, Target};
use crate::{Error, Fact};

/// What a device is a part of.
#[derive(Clone, Debug)]
pub enum Found {
    /// A LUKS volume.
    Luks(Box<luks::Header>),
    /// A physical volume of LVM2.
    Lvm(Box<lvm::Physical>),
    /// A member of an MD array.
    Md(Box<md::Member>),
}

impl Found {
    /// The name of the format.
    pub fn format(&self) -> String {
        match self {
            Found::Luks(header) => header.format().to_owned(),
            Found::Lvm(_) => "LVM2 physical volume".to_owned(),
            Found::Md(member) => format!("md {} member", member.level_name()),
        }
    }

    /// What `info` shows of it.
    pub fn facts(&self) -> Vec<(&'static str, Fact)> {
        match self {
            Found::Luks(header) => header.facts(),
            Found::Lvm(physical) => physical.facts(),
            Found::Md(member) => member.facts(),
        }
    }
}

/// Recognises a volume by its magic numbers and checksums. A superblock of MD at the end, of a
/// member that looks like a plain disk, counts before all that the start says.
///
/// # Errors
/// The source failed, or what was recognised is damaged.
pub fn recognise(source: &dyn Source) -> Result<Option<Found>, Error> {
    if let Some(member) = md::recognise(source)? {
        return Ok(Some(Found::Md(Box::new(member))));
    }
    if let Some(header) = luks::recognise(source)? {
        return Ok(Some(Found::Luks(Box::new(header))));
    }
    let physical = lvm::recognise(source)?;
    Ok(physical.map(|physical| Found::Lvm(Box::new(physical))))
}

/// A UUID as text.
fn uuid_text(uuid: &[u8; 16]) -> String {
    let hex = data_encoding::HEXLOWER.encode(uuid);
    let parts = [&hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..]];
    parts.join("-")
}

/// Chunks in turn on areas of `size` bytes each: a stripe, or with one area a plain range.
struct Striped {
    /// Bytes of a chunk.
    chunk: u64,
    /// Devices, and where the area begins on each.
    areas: Vec<(Arc<dyn Target>, u64)>,
    size: u64,
}

impl Striped {
    /// The pieces of a range: which area, the byte on its device, and the place in the range.
    fn pieces(&self, offset: u64, len: usize) -> impl Iterator<Item = (usize, u64, Range<usize>)> {
        let (chunk, width) = (self.chunk, self.areas.len() as u64);
        let mut done = 0;
        std::iter::from_fn(move || {
            if done >= len {
                return None;
            }
            let at = offset + done as u64;
            let (number, within) = (at / chunk, at % chunk);
            let area = (number % width) as usize;
            let piece = (chunk - within).min((len - done) as u64) as usize;
            let place = self.areas[area].1 + number / width * chunk + within;
            done += piece;
            Some((area, place, done - piece..done))
        })
    }

    fn read(&self, offset: u64, buf: &mut [u8]) -> Result<(), Error> {
        let pieces = self.pieces(offset, buf.len());
        for (area, place, piece) in pieces {
            source::read(&*self.areas[area].0, place, &mut buf[piece])?;
        }
        Ok(())
    }

    fn write(&self, offset: u64, bytes: &[u8]) -> Result<(), Error> {
        for (area, place, piece) in self.pieces(offset, bytes.len()) {
            target::write(&*self.areas[area].0, place, &bytes[piece])?;
        }
        Ok(())
    }
}
