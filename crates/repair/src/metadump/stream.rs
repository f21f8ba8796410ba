//! The formats of `xfs_metadump`: a stream of metadata, written and read.
//!
//! ```text
//!   version 1:  (index of 512 bytes | up to 63 sectors) ..
//!   version 2:  header of 24 bytes | (address, length | sectors) ..
//! ```
//!
//! Both are big-endian. An index of version 1 holds the magic number, the number of sectors, the
//! size of a sector as a power of two, flags, and an address in sectors for each; one that is not
//! full is the last. A piece of version 2 has an address whose upper bits name the device, and a
//! length in sectors.
//!
//! Source: the man pages of xfs_metadump and xfs_mdrestore, and the dumps that they write and take.

use std::io::{self, Read, Write};

use super::Sink;

/// Bytes of a sector.
const SECTOR: usize = 512;
const MAGIC_1: &[u8; 4] = b"XFSM";
const MAGIC_2: &[u8; 4] = b"XMD2";
/// Sectors of an index of version 1.
const INDEX: usize = (SECTOR - 8) / 8;
/// Sectors of a piece of version 2 at the most, when read.
const PIECE_MAX: usize = 1 << 20;
/// Bytes that a restore holds at once.
const STEP: usize = 1 << 20;
/// Bits of an address of version 2 that are the sector.
const ADDRESS: u64 = (1 << 54) - 1;
/// The flags of version 1: there are flags; names are obscured.
const FLAGS_1: u8 = 1;
const OBSCURED_1: u8 = 2;
/// Those of version 2.
const OBSCURED_2: u32 = 1;
/// Devices of version 2.
const DATA_DEVICE: u64 = 0;

/// A version of the format.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Version {
    /// Since 2007.
    One,
    /// Since xfsprogs 6.6.
    Two,
}

/// Writes a dump.
pub struct Writer<W: Write> {
    out: W,
    version: Version,
    obscured: bool,
    addresses: Vec<u64>,
    sectors: Vec<u8>,
}

impl<W: Write> Writer<W> {
    /// Begins a dump, whose names are `obscured`. May block.
    ///
    /// # Errors
    /// The host's.
    pub fn new(mut out: W, version: Version, obscured: bool) -> io::Result<Writer<W>> {
        if version == Version::Two {
            let flags = if obscured { OBSCURED_2 } else { 0 };
            out.write_all(MAGIC_2)?;
            for word in [2, flags, 0, 0, 0] {
                out.write_all(&u32::to_be_bytes(word))?;
            }
        }
        let (addresses, sectors) = (Vec::new(), Vec::new());
        Ok(Writer { out, version, obscured, addresses, sectors })
    }

    /// Writes an index of version 1 and its sectors.
    fn flush_index(&mut self) -> io::Result<()> {
        let mut index = vec![0; SECTOR];
        index[..4].copy_from_slice(MAGIC_1);
        index[4..6].copy_from_slice(&(self.addresses.len() as u16).to_be_bytes());
        index[6] = SECTOR.trailing_zeros() as u8;
        index[7] = FLAGS_1 | if self.obscured { OBSCURED_1 } else { 0 };
        for (place, address) in index[8..].chunks_exact_mut(8).zip(&self.addresses) {
            place.copy_from_slice(&address.to_be_bytes());
        }
        self.out.write_all(&index)?;
        self.out.write_all(&self.sectors)?;
        self.addresses.clear();
        self.sectors.clear();
        Ok(())
    }

    /// Ends the dump. May block.
    ///
    /// # Errors
    /// The host's.
    pub fn finish(mut self) -> io::Result<()> {
        if self.version == Version::One {
            // Also an empty one, behind one that is full.
            self.flush_index()?;
        }
        self.out.flush()
    }
}

impl<W: Write> Sink for Writer<W> {
    fn put(&mut self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        let first = offset / SECTOR as u64;
        if self.version == Version::Two {
            self.out.write_all(&first.to_be_bytes())?;
            self.out.write_all(&((bytes.len() / SECTOR) as u32).to_be_bytes())?;
            return self.out.write_all(bytes);
        }
        for (address, sector) in (first..).zip(bytes.chunks_exact(SECTOR)) {
            self.addresses.push(address);
            self.sectors.extend_from_slice(sector);
            if self.addresses.len() == INDEX {
                self.flush_index()?;
            }
        }
        Ok(())
    }
}

/// What a dump says of itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Header {
    /// Its version.
    pub version: Version,
    /// Names are obscured.
    pub obscured: bool,
}

fn wrong(words: impl Into<String>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, words.into())
}

/// Whether bytes are the beginning of a dump.
pub fn is_dump(start: &[u8]) -> bool {
    start.starts_with(MAGIC_1) || start.starts_with(MAGIC_2)
}

/// Reads a dump, and passes its pieces on. Memory is bounded, whatever it says. May block.
///
/// # Errors
/// The host's; `InvalidData` if it is no dump, was cut short, or holds the blocks of a device
/// other than that of the data.
pub fn read(mut input: impl Read, sink: &mut dyn Sink) -> io::Result<Header> {
    let mut magic = [0; 4];
    input.read_exact(&mut magic)?;
    match &magic {
        MAGIC_1 => read_1(&mut input, sink),
        MAGIC_2 => read_2(&mut input, sink),
        _ => Err(wrong("no dump of xfs_metadump: it begins with neither XFSM nor XMD2")),
    }
}

fn cut(error: io::Error) -> io::Error {
    match error.kind() {
        io::ErrorKind::UnexpectedEof => wrong("the dump was cut short"),
        _ => error,
    }
}

fn read_1(input: &mut impl Read, sink: &mut dyn Sink) -> io::Result<Header> {
    let mut index = vec![0; SECTOR];
    index[..4].copy_from_slice(MAGIC_1);
    input.read_exact(&mut index[4..]).map_err(cut)?;
    let obscured = index[7] & OBSCURED_1 != 0;
    let bits = index[6];
    let unit = 1_usize.checked_shl(bits.into()).filter(|unit| (512..=65536).contains(unit));
    let unit = unit.ok_or_else(|| wrong(format!("the dump has sectors of 2^{bits} bytes")))?;
    let mut content = vec![0; unit];
    loop {
        let count = usize::from(u16::from_be_bytes([index[4], index[5]]));
        if index[..4] != *MAGIC_1 || count > INDEX {
            return Err(wrong(format!("the dump has an index of {count} sectors, or no index")));
        }
        for address in index[8..].chunks_exact(8).take(count) {
            let address = u64::from_be_bytes(address.try_into().expect("eight bytes"));
            input.read_exact(&mut content).map_err(cut)?;
            let offset = address.checked_mul(SECTOR as u64);
            sink.put(offset.ok_or_else(|| wrong("the dump has an impossible place"))?, &content)?;
        }
        if count < INDEX {
            return Ok(Header { version: Version::One, obscured });
        }
        input.read_exact(&mut index).map_err(cut)?;
    }
}

fn read_2(input: &mut impl Read, sink: &mut dyn Sink) -> io::Result<Header> {
    let mut header = [0; 20];
    input.read_exact(&mut header).map_err(cut)?;
    let word = |at: usize| u32::from_be_bytes(header[at..at + 4].try_into().expect("four bytes"));
    let (version, flags, incompatible) = (word(0), word(4), word(8));
    if version != 2 || incompatible != 0 {
        let words = format!("the dump has version {version}, features {incompatible:#x}");
        return Err(wrong(format!("{words}; version 2 without features is known")));
    }
    let mut content = vec![0; STEP];
    let mut head = [0; 12];
    loop {
        if !fill(input, &mut head)? {
            let obscured = flags & OBSCURED_2 != 0;
            return Ok(Header { version: Version::Two, obscured });
        }
        let address = u64::from_be_bytes(head[..8].try_into().expect("eight bytes"));
        let count = u32::from_be_bytes(head[8..].try_into().expect("four bytes")) as usize;
        let (device, first) = (address >> 54 & 3, address & ADDRESS);
        if device != DATA_DEVICE || count > PIECE_MAX {
            let words = format!("a piece of {count} sectors of device {device}");
            return Err(wrong(format!("the dump has {words}; only device 0 is restored")));
        }
        let (mut offset, mut left) = (first * SECTOR as u64, count * SECTOR);
        while left > 0 {
            let piece = &mut content[..left.min(STEP)];
            input.read_exact(piece).map_err(cut)?;
            sink.put(offset, piece)?;
            offset += piece.len() as u64;
            left -= piece.len();
        }
    }
}

/// Fills the buffer; false at the end of the input.
fn fill(input: &mut impl Read, buffer: &mut [u8]) -> io::Result<bool> {
    let mut done = 0;
    while done < buffer.len() {
        match input.read(&mut buffer[done..]) {
            Ok(0) if done == 0 => return Ok(false),
            Ok(0) => return Err(wrong("the dump was cut short")),
            Ok(count) => done += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(true)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    struct Kept(BTreeMap<u64, u8>);

    impl Sink for Kept {
        fn put(&mut self, offset: u64, bytes: &[u8]) -> io::Result<()> {
            let sectors = bytes.chunks_exact(SECTOR).zip(offset / 512..);
            self.0.extend(sectors.map(|(sector, at)| (at, sector[0])));
            Ok(())
        }
    }

    fn dump(version: Version, pieces: usize) -> Vec<u8> {
        let mut bytes = Vec::new();
        let mut writer = Writer::new(&mut bytes, version, true).expect("memory");
        for piece in 0..pieces {
            writer.put(piece as u64 * 1024, &[piece as u8; 512]).expect("memory");
        }
        writer.finish().expect("memory");
        bytes
    }

    #[test]
    fn dumps_come_back_whatever_their_length_and_cuts_are_named() {
        for version in [Version::One, Version::Two] {
            for pieces in [0, 1, 62, 63, 64, 126, 200] {
                let bytes = dump(version, pieces);
                let mut kept = Kept(BTreeMap::new());
                let header = read(&bytes[..], &mut kept).expect("a dump");
                assert_eq!(header, Header { version, obscured: true });
                let expected = (0..pieces).map(|piece| (piece as u64 * 2, piece as u8)).collect();
                assert_eq!(kept.0, expected);
                let cut = &bytes[..bytes.len() - 1];
                let whole = version == Version::Two && pieces == 0;
                let error = read(cut, &mut Kept(BTreeMap::new())).expect_err("it is short");
                assert!(whole || error.to_string().contains("cut short"), "{error}");
            }
        }
        assert!(read(&b"QFI\xfb"[..], &mut Kept(BTreeMap::new())).is_err());
    }
}
