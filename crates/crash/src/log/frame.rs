//! Frames: the compressed parts of a log, and numbers of variable length in them.

use super::LogError;

/// Last bytes of a log.
pub(super) const END_MAGIC: &[u8; 8] = b"hsarcpoi";
/// Bytes before the first frame: magic, version, zero.
pub(super) const HEAD: usize = 16;
/// Bytes behind the index: its place, its length, its checksum, magic.
pub(super) const TAIL: usize = 32;
/// Bytes in front of each frame.
pub(super) const FRAME_HEAD: usize = 24;
/// How hard zstd tries: recording must not wait for it.
const LEVEL: i32 = 1;
/// Bytes of a frame's content at the most, as a bound for a damaged length.
const RAW_MAX: usize = 1 << 30;

/// What a frame holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Kind {
    /// Pieces of content.
    Content = 1,
    /// What happened.
    Entries = 2,
    /// The medium before.
    Base = 3,
    /// Where everything is.
    Index = 4,
    /// What the log says about itself.
    Header = 5,
    /// Length and hash of each piece of the frame of content before.
    Pieces = 6,
}

impl Kind {
    pub(super) fn from_number(number: u32) -> Option<Kind> {
        [Kind::Content, Kind::Entries, Kind::Base, Kind::Index, Kind::Header, Kind::Pieces]
            .into_iter()
            .find(|kind| *kind as u32 == number)
    }
}

/// A frame with its head.
pub(super) fn pack(kind: Kind, raw: &[u8]) -> Result<Vec<u8>, LogError> {
    let packed = zstd::bulk::compress(raw, LEVEL).map_err(LogError::io("compress"))?;
    let mut frame = Vec::with_capacity(FRAME_HEAD + packed.len());
    frame.extend_from_slice(&(kind as u32).to_le_bytes());
    frame.extend_from_slice(&(packed.len() as u32).to_le_bytes());
    frame.extend_from_slice(&(raw.len() as u64).to_le_bytes());
    frame.extend_from_slice(&xxhash_rust::xxh3::xxh3_64(&packed).to_le_bytes());
    frame.extend_from_slice(&packed);
    Ok(frame)
}

/// What stands in front of a frame.
pub(super) struct Head {
    pub(super) kind: Kind,
    /// Bytes that follow.
    pub(super) packed: usize,
    /// Bytes of the content.
    raw: usize,
    sum: u64,
}

/// Reads the head of a frame.
pub(super) fn head(bytes: &[u8], at: u64) -> Result<Head, LogError> {
    let mut input = Input::new(bytes, at);
    let number = input.fixed::<4>().map(u32::from_le_bytes)?;
    let packed = input.fixed::<4>().map(u32::from_le_bytes)? as usize;
    let raw = input.fixed::<8>().map(u64::from_le_bytes)?;
    let sum = input.fixed::<8>().map(u64::from_le_bytes)?;
    let kind = Kind::from_number(number)
        .ok_or_else(|| LogError::damaged(at, format!("a frame of kind {number}")))?;
    match usize::try_from(raw) {
        Ok(raw) if raw <= RAW_MAX => Ok(Head { kind, packed, raw, sum }),
        _ => Err(LogError::damaged(at, format!("a frame of {raw} bytes"))),
    }
}

/// The content of a frame.
pub(super) fn unpack(packed: &[u8], head: &Head, at: u64) -> Result<Vec<u8>, LogError> {
    let Head { raw, sum, .. } = *head;
    let found = xxhash_rust::xxh3::xxh3_64(packed);
    if found != sum {
        let what = format!("the frame's checksum is {found:#x} and not {sum:#x}");
        return Err(LogError::damaged(at, what));
    }
    let bytes = zstd::bulk::decompress(packed, raw)
        .map_err(|error| LogError::damaged(at, error.to_string()))?;
    match bytes.len() == raw {
        true => Ok(bytes),
        false => Err(LogError::damaged(at, format!("{} bytes, not {raw}", bytes.len()))),
    }
}

/// Appends a number: seven bits a byte, the lowest first.
pub(super) fn put(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// Reads what [`put`] wrote, and bytes.
pub(super) struct Input<'a> {
    rest: &'a [u8],
    frame: u64,
}

impl<'a> Input<'a> {
    /// From the content of the frame at byte `frame` of the file.
    pub(super) fn new(rest: &'a [u8], frame: u64) -> Input<'a> {
        Input { rest, frame }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    pub(super) fn damaged(&self, what: impl Into<String>) -> LogError {
        LogError::damaged(self.frame, what)
    }

    pub(super) fn bytes(&mut self, len: usize) -> Result<&'a [u8], LogError> {
        let Some((bytes, rest)) = self.rest.split_at_checked(len) else {
            return Err(self.damaged(format!("{len} bytes of {} that are left", self.rest.len())));
        };
        self.rest = rest;
        Ok(bytes)
    }

    pub(super) fn fixed<const N: usize>(&mut self) -> Result<[u8; N], LogError> {
        Ok(self.bytes(N)?.try_into().expect("bytes() gives that many"))
    }

    pub(super) fn number(&mut self) -> Result<u64, LogError> {
        let (mut value, mut shift) = (0u64, 0);
        loop {
            let [byte] = self.fixed::<1>()?;
            if shift >= 63 && byte > 1 {
                return Err(self.damaged("a number of more than 64 bits"));
            }
            value |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Ok(value);
            }
            shift += 7;
        }
    }

    /// A number that counts or indexes something in memory.
    pub(super) fn index(&mut self) -> Result<u32, LogError> {
        let value = self.number()?;
        u32::try_from(value).map_err(|_| self.damaged(format!("{value} is more than 32 bits")))
    }
}
