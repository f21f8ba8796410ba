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

use super::{Part, Sink};

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
/// Those of version 2: names are obscured; there is an external log.
const OBSCURED_2: u32 = 1;
const LOG_2: u32 = 8;
/// A feature of version 2: there is the superblock of a realtime section.
const REALTIME_2: u32 = 1;
/// Devices of version 2, by their numbers.
const PARTS: [Part; 3] = [Part::Data, Part::Log, Part::Realtime];

/// A version of the format.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Version {
    /// Since 2007.
    One,
    /// Since xfsprogs 6.6.
    Two,
}

/// What a dump says of itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Header {
    /// Its version.
    pub version: Version,
    /// Names are obscured.
    pub obscured: bool,
    /// It holds an external log; only in version 2.
    pub log: bool,
    /// It holds the superblock of a realtime section; only in version 2.
    pub realtime: bool,
}

/// Writes a dump.
pub struct Writer<W: Write> {
    out: W,
    header: Header,
    addresses: Vec<u64>,
    sectors: Vec<u8>,
}

impl<W: Write> Writer<W> {
    /// Begins a dump. May block.
    ///
    /// # Errors
    /// The host's.
    pub fn new(mut out: W, header: Header) -> io::Result<Writer<W>> {
        if header.version == Version::Two {
            let flag = |is: bool, bit| if is { bit } else { 0 };
            let flags = flag(header.obscured, OBSCURED_2) | flag(header.log, LOG_2);
            out.write_all(MAGIC_2)?;
            for word in [2, flags, flag(header.realtime, REALTIME_2), 0, 0] {
                out.write_all(&u32::to_be_bytes(word))?;
            }
        }
        let (addresses, sectors) = (Vec::new(), Vec::new());
        Ok(Writer { out, header, addresses, sectors })
    }

    /// Writes an index of version 1 and its sectors.
    fn flush_index(&mut self) -> io::Result<()> {
        let mut index = vec![0; SECTOR];
        index[..4].copy_from_slice(MAGIC_1);
        index[4..6].copy_from_slice(&(self.addresses.len() as u16).to_be_bytes());
        index[6] = SECTOR.trailing_zeros() as u8;
        index[7] = FLAGS_1 | if self.header.obscured { OBSCURED_1 } else { 0 };
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
        if self.header.version == Version::One {
            // Also an empty one, behind one that is full.
            self.flush_index()?;
        }
        self.out.flush()
    }
}

impl<W: Write> Sink for Writer<W> {
    fn put(&mut self, part: Part, offset: u64, bytes: &[u8]) -> io::Result<()> {
        let first = offset / SECTOR as u64;
        if self.header.version == Version::Two {
            let address = (part as u64) << ADDRESS.count_ones() | first;
            self.out.write_all(&address.to_be_bytes())?;
            self.out.write_all(&((bytes.len() / SECTOR) as u32).to_be_bytes())?;
            return self.out.write_all(bytes);
        }
        if part != Part::Data {
            return Err(io::Error::other("a dump of version 1 holds the device of the data alone"));
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

fn wrong(words: impl Into<String>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, words.into())
}

/// Whether bytes are the beginning of a dump.
pub fn is_dump(start: &[u8]) -> bool {
    start.starts_with(MAGIC_1) || start.starts_with(MAGIC_2)
}

/// Reads a dump, and passes its pieces on, once `begin` has taken what it says of itself. Memory is
/// bounded, whatever it says. May block.
///
/// # Errors
/// The host's; that of `begin`; `InvalidData` if it is no dump, or was cut short.
pub fn read(
    mut input: impl Read,
    begin: impl FnOnce(&Header) -> io::Result<()>,
    sink: &mut dyn Sink,
) -> io::Result<Header> {
    let mut magic = [0; 4];
    input.read_exact(&mut magic)?;
    match &magic {
        MAGIC_1 => read_1(&mut input, begin, sink),
        MAGIC_2 => read_2(&mut input, begin, sink),
        _ => Err(wrong("no dump of xfs_metadump: it begins with neither XFSM nor XMD2")),
    }
}

fn cut(error: io::Error) -> io::Error {
    match error.kind() {
        io::ErrorKind::UnexpectedEof => wrong("the dump was cut short"),
        _ => error,
    }
}

fn read_1(
    input: &mut impl Read,
    begin: impl FnOnce(&Header) -> io::Result<()>,
    sink: &mut dyn Sink,
) -> io::Result<Header> {
    let mut index = vec![0; SECTOR];
    index[..4].copy_from_slice(MAGIC_1);
    input.read_exact(&mut index[4..]).map_err(cut)?;
    let obscured = index[7] & OBSCURED_1 != 0;
    let bits = index[6];
    let unit = 1_usize.checked_shl(bits.into()).filter(|unit| (512..=65536).contains(unit));
    let unit = unit.ok_or_else(|| wrong(format!("the dump has sectors of 2^{bits} bytes")))?;
    let mut content = vec![0; unit];
    let header = Header { version: Version::One, obscured, log: false, realtime: false };
    begin(&header)?;
    loop {
        let count = usize::from(u16::from_be_bytes([index[4], index[5]]));
        if index[..4] != *MAGIC_1 || count > INDEX {
            return Err(wrong(format!("the dump has an index of {count} sectors, or no index")));
        }
        for address in index[8..].chunks_exact(8).take(count) {
            let address = u64::from_be_bytes(address.try_into().expect("eight bytes"));
            input.read_exact(&mut content).map_err(cut)?;
            let offset = address.checked_mul(SECTOR as u64);
            let offset = offset.ok_or_else(|| wrong("the dump has an impossible place"))?;
            sink.put(Part::Data, offset, &content)?;
        }
        if count < INDEX {
            return Ok(header);
        }
        input.read_exact(&mut index).map_err(cut)?;
    }
}

fn read_2(
    input: &mut impl Read,
    begin: impl FnOnce(&Header) -> io::Result<()>,
    sink: &mut dyn Sink,
) -> io::Result<Header> {
    let mut words = [0; 20];
    input.read_exact(&mut words).map_err(cut)?;
    let word = |at: usize| u32::from_be_bytes(words[at..at + 4].try_into().expect("four bytes"));
    let (version, flags, incompatible) = (word(0), word(4), word(8));
    if version != 2 || incompatible & !REALTIME_2 != 0 {
        let words = format!("the dump has version {version}, features {incompatible:#x}");
        return Err(wrong(format!("{words}; version 2 with features 0x1 is known")));
    }
    let header = Header {
        version: Version::Two,
        obscured: flags & OBSCURED_2 != 0,
        log: flags & LOG_2 != 0,
        realtime: incompatible & REALTIME_2 != 0,
    };
    begin(&header)?;
    let mut content = vec![0; STEP];
    let mut head = [0; 12];
    loop {
        if !fill(input, &mut head)? {
            return Ok(header);
        }
        let address = u64::from_be_bytes(head[..8].try_into().expect("eight bytes"));
        let count = u32::from_be_bytes(head[8..].try_into().expect("four bytes")) as usize;
        let (device, first) = (address >> ADDRESS.count_ones(), address & ADDRESS);
        let part = PARTS.get(device as usize).copied().filter(|part| match part {
            Part::Data => true,
            Part::Log => header.log,
            Part::Realtime => header.realtime,
        });
        let Some(part) = part.filter(|_| count <= PIECE_MAX) else {
            let words = format!("a piece of {count} sectors of device {device}");
            return Err(wrong(format!("the dump has {words}, which its header does not name")));
        };
        let (mut offset, mut left) = (first * SECTOR as u64, count * SECTOR);
        while left > 0 {
            let piece = &mut content[..left.min(STEP)];
            input.read_exact(piece).map_err(cut)?;
            sink.put(part, offset, piece)?;
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
        fn put(&mut self, _: Part, offset: u64, bytes: &[u8]) -> io::Result<()> {
            let sectors = bytes.chunks_exact(SECTOR).zip(offset / 512..);
            self.0.extend(sectors.map(|(sector, at)| (at, sector[0])));
            Ok(())
        }
    }

    fn dump(version: Version, pieces: usize) -> Vec<u8> {
        let mut bytes = Vec::new();
        let header = Header { version, obscured: true, log: false, realtime: false };
        let mut writer = Writer::new(&mut bytes, header).expect("memory");
        for piece in 0..pieces {
            let content = [piece as u8; 512];
            writer.put(Part::Data, piece as u64 * 1024, &content).expect("memory");
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
                let header = read(&bytes[..], |_| Ok(()), &mut kept).expect("a dump");
                assert!(header.version == version && header.obscured, "{header:?}");
                let expected = (0..pieces).map(|piece| (piece as u64 * 2, piece as u8)).collect();
                assert_eq!(kept.0, expected);
                let cut = &bytes[..bytes.len() - 1];
                let whole = version == Version::Two && pieces == 0;
                let error = read(cut, |_| Ok(()), &mut Kept(BTreeMap::new()));
                let error = error.expect_err("it is short");
                assert!(whole || error.to_string().contains("cut short"), "{error}");
            }
        }
        assert!(read(&b"QFI\xfb"[..], |_| Ok(()), &mut Kept(BTreeMap::new())).is_err());
    }
}
