//! The label of a physical volume, and the ring that holds the text of its group.

use crate::Error;
use crate::bytes::{le32, le64};
use crate::error::Subject;
use crate::source::{self, Source};

const MAGIC: &[u8] = b"LABELONE";
const KIND: &[u8] = b"LVM2 001";
/// The first bytes of a metadata area, behind its checksum.
const RING: &[u8] = b"\x20LVM2\x20x[5A%r0N*>";
/// Bytes of the header of a metadata area.
const HEADER: u64 = 512;
/// Longest text that is read.
const TEXT_MAX: u64 = 32 << 20;
const SECTORS: u64 = 4;
/// Bytes of an identifier.
const ID: usize = 32;

/// Where a metadata area lies, in bytes.
#[derive(Clone, Copy)]
struct Place {
    offset: u64,
    size: u64,
}

/// What a label says.
pub(super) struct Found {
    pub id: String,
    /// The text of the group; none for a volume without a group.
    pub text: Option<Vec<u8>>,
}

/// The checksum of LVM2: the usual polynomial, from a start of its own, not inverted.
pub(super) fn checksum(bytes: &[u8]) -> u32 {
    const START: u32 = 0xf597_a6cf;
    let mut hasher = crc32fast::Hasher::new_with_initial(!START);
    hasher.update(bytes);
    !hasher.finalize()
}

/// Reads the label; none where there is none in the first four sectors.
///
/// # Errors
/// The source failed, or the label or each copy of the text is damaged.
pub(super) fn read(subject: &Subject, source: &dyn Source) -> Result<Option<Found>, Error> {
    let start = source::read_some(source, 0, (SECTORS * 512) as usize)?;
    let sector = start.chunks_exact(512).enumerate().find(|(number, sector)| {
        sector.starts_with(MAGIC) && &sector[24..32] == KIND && le64(sector, 8) == *number as u64
    });
    let Some((number, sector)) = sector else { return Ok(None) };
    let place = |at: usize| format!("label, byte {}", number * 512 + at);
    if checksum(&sector[20..]) != le32(sector, 16) {
        return Err(subject.damaged(place(16), "a wrong checksum"));
    }
    let header = le32(sector, 20) as usize;
    if !(32..=512 - 56).contains(&header) {
        return Err(subject.damaged(place(20), format!("a header at byte {header} of it")));
    }
    let id = String::from_utf8_lossy(&sector[header..header + ID]).into_owned();
    // Two lists of places, each with a place of nothing at its end: data, then texts.
    let mut places = sector[header + ID + 8..].chunks_exact(16);
    let data = places.by_ref().take_while(|place| le64(place, 0) != 0).count();
    if data > 1 {
        return Err(subject.unsupported(format!("{data} areas of data"), ""));
    }
    let areas: Vec<Place> = places
        .map(|place| Place { offset: le64(place, 0), size: le64(place, 8) })
        .take_while(|place| place.offset != 0)
        .collect();
    let mut wrong = None;
    for place in areas {
        match text(subject, source, place) {
            Ok(text) => return Ok(Some(Found { id, text })),
            Err(error) => wrong = wrong.or(Some(error)),
        }
    }
    wrong.map_or(Ok(Some(Found { id, text: None })), Err)
}

/// The text in a metadata area; none where it holds none.
fn text(subject: &Subject, source: &dyn Source, place: Place) -> Result<Option<Vec<u8>>, Error> {
    let Place { offset: area, size } = place;
    let damaged = |at: u64, what: String| subject.damaged(format!("byte {}", area + at), what);
    let within = area.checked_add(size).is_some_and(|end| end <= source.size());
    if size <= HEADER || !within {
        let what = format!("a metadata area of {size} bytes at byte {area}");
        return Err(subject.damaged("label", what));
    }
    let header = source::read_some(source, area, HEADER as usize)?;
    if &header[4..20] != RING {
        return Err(damaged(4, "no metadata area".to_owned()));
    }
    if checksum(&header[4..]) != le32(&header, 0) {
        return Err(damaged(0, "a wrong checksum".to_owned()));
    }
    let (offset, len) = (le64(&header, 40), le64(&header, 48));
    if offset == 0 || len == 0 {
        return Ok(None);
    }
    if !(HEADER..size).contains(&offset) || len > size - HEADER || len > TEXT_MAX {
        return Err(damaged(40, format!("a text of {len} bytes at byte {offset} of {size}")));
    }
    // What passes the end of the ring goes on behind the header.
    let first = len.min(size - offset);
    let mut text = source::read_some(source, area + offset, first as usize)?;
    text.extend(source::read_some(source, area + HEADER, (len - first) as usize)?);
    if checksum(&text) != le32(&header, 56) {
        return Err(damaged(56, "a wrong checksum of the text".to_owned()));
    }
    Ok(Some(text))
}
