//! The header of version 1: one sector and a bit, big-endian, with eight slots.

use super::header::{Check, Header, KEY_MAX, STRIPES_MAX, Segment, Slot};
use super::kdf::{Hash, Kdf};
use crate::Error;
use crate::bytes::{be16, be32, text};
use crate::error::Subject;

/// Bytes of the header.
pub(super) const SIZE: usize = 592;
/// The word of a slot that holds a key.
const ENABLED: u32 = 0x00ac_71f3;
/// The word of a slot that holds none.
const DISABLED: u32 = 0x0000_dead;
const SLOTS: u32 = 8;

/// A text that ends at a zero.
pub(super) fn word(bytes: &[u8]) -> String {
    text(bytes.split(|&b| b == 0).next().unwrap_or_default())
}

/// Reads the header from the first bytes of a volume.
///
/// # Errors
/// A field that contradicts the format, or uses what is not supported.
pub(super) fn parse(subject: &Subject, start: &[u8]) -> Result<Header, Error> {
    if start.len() < SIZE {
        let what = format!("{} bytes, and its header has {SIZE}", start.len());
        return Err(subject.damaged("byte 0", what));
    }
    let version = be16(start, 6);
    if version != 1 {
        return Err(subject.unsupported(format!("version {version}"), ""));
    }
    let cipher = format!("{}-{}", word(&start[8..40]), word(&start[40..72]));
    let hash = word(&start[72..104]).parse::<Hash>();
    let hash = hash.map_err(|what| subject.unsupported(what, ""))?;
    let key_size = be32(start, 108) as usize;
    if !(1..=KEY_MAX).contains(&key_size) {
        return Err(subject.damaged("byte 108", format!("a key of {key_size} bytes")));
    }
    let mut slots = Vec::new();
    for number in 0..SLOTS {
        let at = 208 + 48 * number as usize;
        let state = be32(start, at);
        if state == DISABLED {
            continue;
        }
        let place = || format!("key slot {number}, byte {at}");
        if state != ENABLED {
            return Err(subject.damaged(place(), format!("the state {state:#x}")));
        }
        let stripes = be32(start, at + 44) as usize;
        if !(1..=STRIPES_MAX).contains(&stripes) {
            return Err(subject.damaged(place(), format!("{stripes} stripes")));
        }
        let salt = start[at + 8..at + 40].to_vec();
        slots.push(Slot {
            number,
            key_size,
            offset: u64::from(be32(start, at + 40)) * 512,
            cipher: cipher.clone(),
            area_key_size: key_size,
            stripes,
            merge: hash,
            kdf: Kdf::Pbkdf2 { hash, rounds: be32(start, at + 4), salt },
        });
    }
    let salt = start[132..164].to_vec();
    let check = Check {
        slots: (0..SLOTS).collect(),
        kdf: Kdf::Pbkdf2 { hash, rounds: be32(start, 164), salt },
        digest: start[112..132].to_vec(),
    };
    let offset = u64::from(be32(start, 104)) * 512;
    Ok(Header {
        version,
        uuid: word(&start[168..208]),
        label: String::new(),
        slots,
        digests: vec![check],
        segment: Segment { offset, size: None, first: 0, cipher, unit: 512 },
        obstacle: (offset == 0).then(|| "its content lies on another device".to_owned()),
    })
}
