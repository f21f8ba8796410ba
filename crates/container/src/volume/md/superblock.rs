//! What a member of an array says of itself and of the array.

use super::super::uuid_text;
use crate::bytes::{le16, le32, le64, text};
use crate::error::Subject;
use crate::source::{self, Source};
use crate::{Error, Fact};

/// The first word of every superblock.
const MAGIC: u32 = 0xa92b_4efc;
/// Sectors that a superblock of version 0.90 is aligned to, and lies before the end.
const RESERVED: u64 = 64 << 10;
/// Bytes of a superblock of version 0.90.
const OLD_SIZE: usize = 4096;
/// Bytes of a superblock of version 1 without its roles.
const FIXED: usize = 256;
/// The most devices that a superblock of version 1 names.
const DEVICES_MAX: u32 = 1920;
/// The bytes at the end that a superblock may lie in.
const TAIL: u64 = 128 << 10;

/// Bits of the feature map that change how a member is read.
const FEATURES: [(u32, &str); 8] = [
    (1, "a write-intent bitmap"),
    (2, "a recovery under way"),
    (4, "a reshape under way"),
    (16, "a replacement under way"),
    (64, "a new data offset"),
    (128, "a recovery by bitmap"),
    (256, "a clustered bitmap"),
    (512, "a journal"),
];

/// The features beside which a member is still read as it lies.
const READABLE: u32 = 1 | 8 | 4096;

/// One member of an array, by its superblock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    pub(super) version: &'static str,
    /// Of the array.
    pub(super) uuid: [u8; 16],
    pub(super) name: String,
    pub(super) level: i32,
    /// Members of the whole array.
    pub(super) disks: u32,
    /// Its place in the array; none for a spare or one that failed.
    pub(super) role: Option<u32>,
    /// Bytes of a chunk; 0 where there is none.
    pub(super) chunk: u64,
    /// Where the data begins.
    pub(super) data: u64,
    /// Bytes of data on this member.
    pub(super) size: u64,
    /// Bytes of the array on each mirror.
    pub(super) mirrored: u64,
    pub(super) events: u64,
    /// It is in step with the others.
    pub(super) clean: bool,
    pub(super) features: u32,
    /// Where the superblock lies.
    pub(super) at: u64,
}

impl Member {
    /// What `info` shows of it.
    pub fn facts(&self) -> Vec<(&'static str, Fact)> {
        let role = match self.role {
            Some(role) => format!("{role} of {}", self.disks),
            None => "spare or failed".to_owned(),
        };
        let features = self.features_text();
        vec![
            ("metadata", Fact::from(self.version)),
            ("uuid", uuid_text(&self.uuid).into()),
            ("array", self.name.as_str().into()),
            ("level", self.level_name().into()),
            ("member", role.into()),
            ("chunk", self.chunk.into()),
            ("data_offset", self.data.into()),
            ("events", self.events.into()),
            ("clean", Fact::Flag(self.clean)),
            ("md_features", features.into()),
        ]
    }

    /// Whether the bytes of the member are those of the array, so that it looks like a plain disk.
    pub fn is_plain(&self) -> bool {
        self.data == 0
    }

    /// Members that the array has.
    pub fn disks(&self) -> u32 {
        self.disks
    }

    /// `raid1`, or what md calls its level.
    pub fn level_name(&self) -> String {
        match self.level {
            -1 => "linear".to_owned(),
            -4 => "multipath".to_owned(),
            level => format!("raid{level}"),
        }
    }

    pub(super) fn features_text(&self) -> String {
        let known = FEATURES.iter().filter(|(bit, _)| self.features & bit != 0);
        known.map(|(_, name)| *name).collect::<Vec<_>>().join(", ")
    }

    /// Why its data is not read as it lies.
    pub(super) fn obstacle(&self) -> Option<String> {
        if self.features & !READABLE == 0 {
            return None;
        }
        let what = self.features_text();
        Some(match what.is_empty() {
            true => format!("the features {:#x}", self.features & !READABLE),
            false => what,
        })
    }
}

/// The superblock of a member; none where there is no sound one.
///
/// A wrong checksum means that there is none: the bytes may be anything.
///
/// # Errors
/// The source failed, or a sound superblock contradicts itself.
pub(crate) fn recognise(source: &dyn Source) -> Result<Option<Member>, Error> {
    for at in [4096, 0] {
        if let Some(member) = newer(source, at, &source::read_some(source, at, 4096)?)? {
            return Ok(Some(member));
        }
    }
    let size = source.size() / 512 * 512;
    let begin = size.saturating_sub(TAIL) / 4096 * 4096;
    let tail = source::read_some(source, begin, (size - begin) as usize)?;
    let place = size.checked_sub(8192).map(|at| at / 4096 * 4096);
    if let Some(at) = place.filter(|&at| at >= begin)
        && let Some(member) = newer(source, at, &tail[(at - begin) as usize..])?
    {
        return Ok(Some(member));
    }
    let place = (size / RESERVED * RESERVED).checked_sub(RESERVED);
    match place.filter(|&at| at >= begin) {
        Some(at) => older(source, at, &tail[(at - begin) as usize..]),
        None => Ok(None),
    }
}

/// Sums words so that the carries come back.
fn folded(words: impl Iterator<Item = u32>) -> u32 {
    let sum: u64 = words.map(u64::from).sum();
    (sum as u32).wrapping_add((sum >> 32) as u32)
}

fn words(bytes: &[u8]) -> impl Iterator<Item = u32> {
    bytes.chunks_exact(4).map(|word| le32(word, 0))
}

/// A superblock of version 1 at byte `at`, which these bytes begin with.
fn newer(source: &dyn Source, at: u64, bytes: &[u8]) -> Result<Option<Member>, Error> {
    if bytes.len() < 4096 || le32(bytes, 0) != MAGIC || le32(bytes, 4) != 1 {
        return Ok(None);
    }
    let devices = le32(bytes, 220);
    if devices > DEVICES_MAX || le64(bytes, 144) != at / 512 {
        return Ok(None);
    }
    let len = FIXED + 2 * devices as usize;
    let mut summed = bytes[..len].to_vec();
    let sum = le32(&summed, 216);
    summed[216..220].fill(0);
    summed.resize(len.next_multiple_of(4), 0);
    if folded(words(&summed)) != sum {
        return Ok(None);
    }
    let number = le32(bytes, 160);
    let role = (number < devices).then(|| le16(bytes, FIXED + 2 * number as usize));
    let version = match at {
        0 => "1.1",
        4096 => "1.2",
        _ => "1.0",
    };
    let resync = le64(bytes, 208);
    let bytes_of = |at: usize| sectors(source, version, at, le64(bytes, at));
    let member = Member {
        version,
        uuid: bytes[16..32].try_into().unwrap_or_default(),
        name: text(bytes[32..64].split(|&b| b == 0).next().unwrap_or_default()),
        level: le32(bytes, 72) as i32,
        disks: le32(bytes, 92),
        role: role.filter(|&role| role < 0xff00).map(u32::from),
        chunk: u64::from(le32(bytes, 88)) * 512,
        data: bytes_of(128)?,
        size: bytes_of(136)?,
        mirrored: bytes_of(80)?,
        events: le64(bytes, 200),
        clean: resync == u64::MAX,
        features: le32(bytes, 8),
        at,
    };
    checked(source, member)
}

/// Bytes of so many sectors.
fn sectors(source: &dyn Source, format: &'static str, at: usize, count: u64) -> Result<u64, Error> {
    count.checked_mul(512).ok_or_else(|| {
        let subject = Subject { name: source.name().to_owned(), format };
        subject.damaged(format!("md superblock, byte {at}"), format!("{count} sectors"))
    })
}

/// A superblock of version 0.90, in the byte order of x86.
fn older(source: &dyn Source, at: u64, bytes: &[u8]) -> Result<Option<Member>, Error> {
    if bytes.len() < OLD_SIZE {
        return Ok(None);
    }
    let word = |index: usize| le32(bytes, 4 * index);
    if word(0) != MAGIC || word(1) != 0 || word(2) != 90 {
        return Ok(None);
    }
    let all = words(&bytes[..OLD_SIZE]).enumerate();
    if folded(all.map(|(index, word)| if index == 38 { 0 } else { word })) != word(38) {
        return Ok(None);
    }
    let mut uuid = [0; 16];
    for (part, index) in [5, 13, 14, 15].into_iter().enumerate() {
        uuid[4 * part..4 * part + 4].copy_from_slice(&word(index).to_be_bytes());
    }
    let state = word(33);
    let disks = word(10);
    // The record of this device: its place in the array is the fourth word.
    let role = word(992 + 3);
    let member = Member {
        version: "0.90",
        uuid,
        name: format!("md{}", word(11)),
        level: word(7) as i32,
        disks,
        role: (role < disks).then_some(role),
        chunk: word(65).into(),
        data: 0,
        size: at,
        mirrored: u64::from(word(8)) * 1024,
        events: u64::from(word(40)) << 32 | u64::from(word(39)),
        clean: state & 1 != 0,
        features: u32::from(state & 0x100 != 0),
        at,
    };
    checked(source, member)
}

/// The member, whose data lies within its device.
fn checked(source: &dyn Source, member: Member) -> Result<Option<Member>, Error> {
    let subject = Subject { name: source.name().to_owned(), format: "md" };
    let place = || format!("superblock {} at byte {}", member.version, member.at);
    let end = member.data.checked_add(member.size).filter(|&end| end <= source.size());
    if end.is_none() {
        let what = format!("data of {} bytes from byte {} on", member.size, member.data);
        return Err(subject.damaged(place(), format!("{what}, of {}", source.size())));
    }
    if member.disks == 0 || member.disks > DEVICES_MAX {
        return Err(subject.damaged(place(), format!("an array of {} members", member.disks)));
    }
    if !member.chunk.is_multiple_of(512) {
        return Err(subject.damaged(place(), format!("a chunk of {} bytes", member.chunk)));
    }
    Ok(Some(member))
}
