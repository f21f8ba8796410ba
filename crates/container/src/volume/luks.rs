//! LUKS versions 1 and 2: a volume that AES encrypts, and the slots that give its key for a
//! passphrase.

mod cipher;
mod header;
mod kdf;
mod v1;
mod v2;

use std::sync::Arc;

pub use header::Header;
pub(super) use kdf::Hash;
use zeroize::Zeroizing;

use crate::bytes::be16;
use crate::error::Subject;
use crate::source::{self, Source};
use crate::target::{self, Target};
use crate::{Error, Fact, Image};
use cipher::SectorCipher;

const MAGIC: &[u8] = b"LUKS\xba\xbe";

/// The header of the volume that these bytes are; none where they are none.
///
/// # Errors
/// The source failed, the header is damaged, or of a kind that is not known.
pub(super) fn recognise(source: &dyn Source) -> Result<Option<Header>, Error> {
    let start = source::read_some(source, 0, v1::SIZE)?;
    let subject = |format| Subject { name: source.name().to_owned(), format };
    if start.starts_with(MAGIC) {
        return match start.get(6..8).map_or(0, |bytes| be16(bytes, 0)) {
            2 => v2::read(&subject("LUKS2"), source).map(Some),
            _ => v1::parse(&subject("LUKS1"), &start).map(Some),
        };
    }
    Ok(None)
}

/// Opens a volume with a passphrase or the bytes of a key file. The key is cleared when the image
/// is dropped.
///
/// # Errors
/// No slot fits; the volume is damaged or uses what is not supported.
pub fn unlock(
    lower: Arc<dyn Target>,
    header: &Header,
    secret: &[u8],
) -> Result<Arc<dyn Image>, Error> {
    let subject = Subject { name: lower.name().to_owned(), format: header.format() };
    if let Some(obstacle) = &header.obstacle {
        return Err(subject.unsupported(obstacle.clone(), ""));
    }
    let key = header.master_key(&subject, &*lower, secret)?;
    let Some(key) = key else {
        let tried = format!("{} key slots tried", header.slots.len());
        return Err(Error::WrongKey { name: subject.name, format: subject.format, tried });
    };
    let segment = &header.segment;
    let cipher = SectorCipher::new(&segment.cipher, &key, segment.unit);
    let cipher = cipher.map_err(|what| subject.unsupported(what, ""))?;
    let room = lower.size().checked_sub(segment.offset).filter(|&room| room > 0);
    let room = room.ok_or_else(|| {
        let what = format!("its content begins at byte {}", segment.offset);
        subject.damaged(format!("end, byte {}", lower.size()), what)
    })?;
    let size = segment.size.unwrap_or(room);
    if size > room {
        let what = format!("its content has {size} bytes from byte {}", segment.offset);
        return Err(subject.damaged(format!("end, byte {}", lower.size()), what));
    }
    let size = size / cipher.unit() * cipher.unit();
    Ok(Arc::new(Volume { lower, header: header.clone(), cipher, size }))
}

/// An opened volume.
struct Volume {
    lower: Arc<dyn Target>,
    header: Header,
    cipher: SectorCipher,
    size: u64,
}

impl Volume {
    /// The number of the data unit at a byte of the content, in units of 512 bytes.
    fn number(&self, offset: u64) -> u64 {
        self.header.segment.first.wrapping_add(offset / 512)
    }

    /// Whole data units around a range: the first byte, and how many.
    fn around(&self, offset: u64, len: usize) -> (u64, usize) {
        let unit = self.cipher.unit();
        let start = offset / unit * unit;
        let end = (offset + len as u64).next_multiple_of(unit);
        (start, (end - start) as usize)
    }
}

impl Image for Volume {
    fn format(&self) -> &'static str {
        self.header.format()
    }

    fn size(&self) -> u64 {
        self.size
    }

    fn logical_block(&self) -> u32 {
        self.header.segment.unit
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<(), Error> {
        let (start, len) = self.around(offset, buf.len());
        if len == buf.len() {
            source::read(&*self.lower, self.header.segment.offset + offset, buf)?;
            self.cipher.decrypt(self.number(offset), buf);
            return Ok(());
        }
        let mut whole = Zeroizing::new(vec![0; len]);
        self.read_at(start, &mut whole)?;
        let skip = (offset - start) as usize;
        buf.copy_from_slice(&whole[skip..skip + buf.len()]);
        Ok(())
    }

    fn is_writable(&self) -> bool {
        self.lower.is_writable()
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<(), Error> {
        let (start, len) = self.around(offset, bytes.len());
        let mut whole = Zeroizing::new(vec![0; len]);
        if len != bytes.len() {
            self.read_at(start, &mut whole)?;
        }
        let skip = (offset - start) as usize;
        whole[skip..skip + bytes.len()].copy_from_slice(bytes);
        self.cipher.encrypt(self.number(start), &mut whole);
        target::write(&*self.lower, self.header.segment.offset + start, &whole)
    }

    fn flush(&self) -> Result<(), Error> {
        target::flush(&*self.lower)
    }

    fn facts(&self) -> Result<Vec<(&'static str, Fact)>, Error> {
        Ok(self.header.facts())
    }

    fn threads(&self) -> usize {
        self.lower.threads()
    }
}
