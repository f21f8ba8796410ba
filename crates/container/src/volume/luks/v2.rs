//! The header of version 2: two copies, each of 4 KiB in binary and a text in JSON.

use argon2::Algorithm;
use data_encoding::BASE64;
use serde_json::Value;
use sha2::{Digest, Sha256, Sha512};

use super::header::{Check, Header, KEY_MAX, STRIPES_MAX, Segment, Slot};
use super::kdf::{Hash, Kdf};
use super::v1::word;
use crate::Error;
use crate::bytes::{be16, be64};
use crate::error::Subject;
use crate::source::{self, Source};

/// Bytes of the binary part.
const BINARY: usize = 4096;
/// Sizes that a copy may have: so many places the second one may begin at.
const SIZES: [u64; 9] =
    [0x4000, 0x8000, 0x1_0000, 0x2_0000, 0x4_0000, 0x8_0000, 0x10_0000, 0x20_0000, 0x40_0000];
/// The first bytes of the second copy.
pub(super) const SECOND: &[u8] = b"SKUL\xba\xbe";

/// Reads the newer of the copies that are sound.
///
/// # Errors
/// Neither is, or it uses what is not supported.
pub(super) fn read(subject: &Subject, source: &dyn Source) -> Result<Header, Error> {
    let first = copy(subject, source, 0);
    // The first copy says where the second one lies; where it is damaged, each place is tried.
    let places: Vec<u64> = match &first {
        Ok(found) => vec![found.size],
        Err(_) => SIZES.to_vec(),
    };
    let mut second = None;
    for place in places {
        if second.is_none() && source::read_some(source, place, SECOND.len())? == SECOND {
            second = copy(subject, source, place).ok();
        }
    }
    let newest = match (first, second) {
        (Ok(first), Some(second)) if second.sequence > first.sequence => second,
        (Ok(first), _) => first,
        (Err(_), Some(second)) => second,
        (Err(error), None) => return Err(error),
    };
    header(subject, &newest)
}

/// One copy whose checksum is right.
struct Copy {
    size: u64,
    sequence: u64,
    uuid: String,
    label: String,
    json: Value,
}

fn copy(subject: &Subject, source: &dyn Source, at: u64) -> Result<Copy, Error> {
    let damaged =
        |offset: u64, what: String| subject.damaged(format!("byte {}", at + offset), what);
    let binary = source::read_some(source, at, BINARY)?;
    if binary.len() < BINARY {
        return Err(damaged(0, format!("a header of {} bytes", binary.len())));
    }
    let version = be16(&binary, 6);
    if version != 2 {
        return Err(damaged(6, format!("version {version}")));
    }
    let size = be64(&binary, 8);
    if !SIZES.contains(&size) {
        return Err(damaged(8, format!("a header of {size} bytes")));
    }
    if be64(&binary, 256) != at {
        return Err(damaged(256, format!("the copy of byte {}", be64(&binary, 256))));
    }
    let mut whole = source::read_some(source, at, size as usize)?;
    if whole.len() < size as usize {
        return Err(damaged(8, format!("a header of {size} bytes, and {} are there", whole.len())));
    }
    let sum = whole[448..512].to_vec();
    whole[448..512].fill(0);
    let kind = word(&binary[72..104]);
    let right = match kind.as_str() {
        "sha256" => Sha256::digest(&whole).to_vec(),
        "sha512" => Sha512::digest(&whole).to_vec(),
        _ => return Err(damaged(72, format!("the checksum `{kind}`"))),
    };
    if sum[..right.len()] != right {
        return Err(damaged(448, "a wrong checksum of the header".to_owned()));
    }
    let json = whole[BINARY..].split(|&b| b == 0).next().unwrap_or_default();
    let json = serde_json::from_slice(json)
        .map_err(|error| damaged(BINARY as u64, format!("its JSON: {error}")))?;
    let sequence = be64(&binary, 16);
    let (uuid, label) = (word(&binary[168..208]), word(&binary[24..72]));
    Ok(Copy { size, sequence, uuid, label, json })
}

/// Looks fields up in the JSON, with errors that name them.
struct Fields<'a> {
    subject: &'a Subject,
    path: String,
    json: &'a Value,
}

impl<'a> Fields<'a> {
    fn wrong(&self, key: &str) -> Error {
        let shown = match self.json.get(key) {
            None => "is not there".to_owned(),
            Some(value) => format!("is {value}").chars().take(80).collect(),
        };
        self.subject.damaged(format!("JSON {}", self.path), format!("`{key}` {shown}"))
    }

    fn below(&self, key: &str) -> Result<Fields<'a>, Error> {
        let json = self.json.get(key).filter(|value| value.is_object());
        let json = json.ok_or_else(|| self.wrong(key))?;
        Ok(Fields { subject: self.subject, path: format!("{}/{key}", self.path), json })
    }

    /// The fields of an object one by one, with their names as numbers.
    fn numbered(&self) -> Result<Vec<(u32, Fields<'a>)>, Error> {
        let mut all = Vec::new();
        for key in self.json.as_object().into_iter().flat_map(|object| object.keys()) {
            let number = key.parse().map_err(|_| self.wrong(key))?;
            all.push((number, self.below(key)?));
        }
        all.sort_by_key(|(number, _)| *number);
        Ok(all)
    }

    fn text(&self, key: &str) -> Result<&'a str, Error> {
        self.json.get(key).and_then(Value::as_str).ok_or_else(|| self.wrong(key))
    }

    /// A number, also where it stands in quotes.
    fn number(&self, key: &str) -> Result<u64, Error> {
        let value = self.json.get(key);
        let number = value.and_then(|value| match value {
            Value::String(text) => text.parse().ok(),
            other => other.as_u64(),
        });
        number.ok_or_else(|| self.wrong(key))
    }

    fn within(&self, key: &str, most: usize) -> Result<usize, Error> {
        let number = self.number(key)?;
        if number == 0 || number > most as u64 {
            return Err(self.wrong(key));
        }
        Ok(number as usize)
    }

    fn word(&self, key: &str) -> Result<u32, Error> {
        self.number(key)?.try_into().map_err(|_| self.wrong(key))
    }

    fn hash(&self, key: &str) -> Result<Hash, Error> {
        self.text(key)?.parse().map_err(|what: String| self.subject.unsupported(what, ""))
    }

    fn bytes(&self, key: &str) -> Result<Vec<u8>, Error> {
        BASE64.decode(self.text(key)?.as_bytes()).map_err(|_| self.wrong(key))
    }

    fn kdf(&self) -> Result<Kdf, Error> {
        let (kind, salt) = (self.text("type")?, self.bytes("salt")?);
        let argon = match kind {
            "pbkdf2" => {
                let (hash, rounds) = (self.hash("hash")?, self.word("iterations")?);
                return Ok(Kdf::Pbkdf2 { hash, rounds, salt });
            }
            "argon2i" => Algorithm::Argon2i,
            "argon2id" => Algorithm::Argon2id,
            _ => return Err(self.subject.unsupported(format!("the key derivation `{kind}`"), "")),
        };
        let (passes, memory) = (self.word("time")?, self.word("memory")?);
        Ok(Kdf::Argon2 { kind: argon, passes, memory, lanes: self.word("cpus")?, salt })
    }
}

fn header(subject: &Subject, copy: &Copy) -> Result<Header, Error> {
    let root = Fields { subject, path: String::new(), json: &copy.json };
    let mut slots = Vec::new();
    for (number, slot) in root.below("keyslots")?.numbered()? {
        // Slots of a reencryption and of tokens to come give no key.
        if slot.text("type")? == "luks2" {
            slots.push(keyslot(number, &slot)?);
        }
    }
    let mut digests = Vec::new();
    for (_, digest) in root.below("digests")?.numbered()? {
        let names = digest.json.get("keyslots").and_then(Value::as_array);
        let names = names.ok_or_else(|| digest.wrong("keyslots"))?;
        let slots = names.iter().filter_map(|name| name.as_str()?.parse().ok()).collect();
        digests.push(Check { slots, kdf: digest.kdf()?, digest: digest.bytes("digest")? });
    }
    if let Some(empty) = digests.iter().find(|check| check.digest.len() < 16) {
        let what = format!("a digest of {} bytes", empty.digest.len());
        return Err(subject.damaged("JSON /digests", what));
    }
    let (segment, obstacle) = segment(&root)?;
    let (uuid, label) = (copy.uuid.clone(), copy.label.clone());
    Ok(Header { version: 2, uuid, label, slots, digests, segment, obstacle })
}

fn keyslot(number: u32, slot: &Fields<'_>) -> Result<Slot, Error> {
    let (area, af) = (slot.below("area")?, slot.below("af")?);
    Ok(Slot {
        number,
        key_size: slot.within("key_size", KEY_MAX)?,
        offset: area.number("offset")?,
        cipher: area.text("encryption")?.to_owned(),
        area_key_size: area.within("key_size", KEY_MAX)?,
        stripes: af.within("stripes", STRIPES_MAX)?,
        merge: af.hash("hash")?,
        kdf: slot.below("kdf")?.kdf()?,
    })
}

/// The only segment, and why it is not opened.
fn segment(root: &Fields<'_>) -> Result<(Segment, Option<String>), Error> {
    let required = root.json.pointer("/config/requirements/mandatory").and_then(Value::as_array);
    let required: Vec<&str> = required.into_iter().flatten().filter_map(Value::as_str).collect();
    let all = root.below("segments")?.numbered()?;
    let mut obstacle = (!required.is_empty())
        .then(|| format!("it requires {}: finish that with cryptsetup", required.join(", ")));
    let [(_, one)] = &all[..] else {
        let what = format!("it has {} segments: finish its reencryption", all.len());
        return Ok((Segment::default(), Some(obstacle.unwrap_or(what))));
    };
    if one.text("type")? != "crypt" {
        let what = format!("a segment of the kind `{}`", one.text("type")?);
        return Ok((Segment::default(), Some(obstacle.unwrap_or(what))));
    }
    if one.json.get("integrity").is_some() {
        obstacle.get_or_insert("it has integrity tags (dm-integrity)".to_owned());
    }
    let size = match one.text("size")? {
        "dynamic" => None,
        _ => Some(one.number("size")?),
    };
    let unit = one.within("sector_size", 4096)? as u32;
    if !unit.is_power_of_two() || unit < 512 {
        return Err(one.wrong("sector_size"));
    }
    let segment = Segment {
        offset: one.number("offset")?,
        size,
        first: one.number("iv_tweak")?,
        cipher: one.text("encryption")?.to_owned(),
        unit,
    };
    Ok((segment, obstacle))
}
