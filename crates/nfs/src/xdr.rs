//! XDR (RFC 4506): big-endian words, opaque data padded to four bytes.
//!
//! A [`Reader`] never allocates and never looks beyond its bytes: a length word larger than what is
//! there, or than the bound of its field, is an error that names both numbers.

use thiserror::Error;

/// Why bytes are not what they should be.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum XdrError {
    /// The message ends inside of a field.
    #[error("{want} bytes are wanted at byte {at}, {left} are left")]
    Short {
        /// Where the field begins.
        at: usize,
        /// Its length.
        want: usize,
        /// What is left.
        left: usize,
    },
    /// A length is above the bound of its field.
    #[error("a length of {len} at byte {at} is above {max}")]
    Long {
        /// Where the length word is.
        at: usize,
        /// What it says.
        len: u32,
        /// The bound.
        max: usize,
    },
    /// An enumeration has no such value.
    #[error("{value} at byte {at} is no value of its type")]
    Value {
        /// Where the word is.
        at: usize,
        /// What it says.
        value: u32,
    },
}

/// Takes fields off a message.
#[derive(Clone, Copy, Debug)]
pub struct Reader<'a> {
    all: &'a [u8],
    at: usize,
}

impl<'a> Reader<'a> {
    /// Reads `bytes` from the start.
    pub fn new(bytes: &'a [u8]) -> Reader<'a> {
        Reader { all: bytes, at: 0 }
    }

    /// Bytes that are left.
    pub fn rest(&self) -> &'a [u8] {
        &self.all[self.at..]
    }

    fn take(&mut self, len: usize) -> Result<&'a [u8], XdrError> {
        let left = self.all.len() - self.at;
        if len > left {
            return Err(XdrError::Short { at: self.at, want: len, left });
        }
        self.at += len;
        Ok(&self.all[self.at - len..self.at])
    }

    /// A word.
    pub fn u32(&mut self) -> Result<u32, XdrError> {
        let bytes = self.take(4)?;
        Ok(u32::from_be_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]))
    }

    /// Two words as one number.
    pub fn u64(&mut self) -> Result<u64, XdrError> {
        Ok(u64::from(self.u32()?) << 32 | u64::from(self.u32()?))
    }

    /// A boolean: 0 or 1.
    pub fn bool(&mut self) -> Result<bool, XdrError> {
        match self.u32()? {
            0 => Ok(false),
            1 => Ok(true),
            value => Err(self.wrong(value)),
        }
    }

    /// The error for the word just read, which is no value of its type.
    pub fn wrong(&self, value: u32) -> XdrError {
        XdrError::Value { at: self.at - 4, value }
    }

    /// Opaque data of fixed length.
    pub fn fixed<const N: usize>(&mut self) -> Result<[u8; N], XdrError> {
        let mut out = [0; N];
        out.copy_from_slice(self.take(N)?);
        self.take(N.next_multiple_of(4) - N)?;
        Ok(out)
    }

    /// Opaque data of at most `max` bytes.
    pub fn opaque(&mut self, max: usize) -> Result<&'a [u8], XdrError> {
        let at = self.at;
        let len = self.u32()?;
        if len as usize > max {
            return Err(XdrError::Long { at, len, max });
        }
        let bytes = self.take(len as usize)?;
        self.take((len as usize).next_multiple_of(4) - len as usize)?;
        Ok(bytes)
    }

    /// An optional field: a boolean, then the field where it is true.
    pub fn option<T>(
        &mut self,
        read: impl FnOnce(&mut Self) -> Result<T, XdrError>,
    ) -> Result<Option<T>, XdrError> {
        match self.bool()? {
            true => read(self).map(Some),
            false => Ok(None),
        }
    }
}

/// Builds a message.
#[derive(Clone, Debug, Default)]
pub struct Writer {
    /// The bytes so far.
    pub out: Vec<u8>,
}

impl Writer {
    /// A word.
    pub fn u32(&mut self, value: u32) {
        self.out.extend_from_slice(&value.to_be_bytes());
    }

    /// Several words.
    pub fn words(&mut self, values: &[u32]) {
        values.iter().for_each(|&value| self.u32(value));
    }

    /// A number of two words.
    pub fn u64(&mut self, value: u64) {
        self.out.extend_from_slice(&value.to_be_bytes());
    }

    /// A boolean.
    pub fn bool(&mut self, value: bool) {
        self.u32(value.into());
    }

    /// Opaque data of fixed length.
    pub fn fixed(&mut self, bytes: &[u8]) {
        self.out.extend_from_slice(bytes);
        self.pad(bytes.len());
    }

    /// Opaque data with its length.
    ///
    /// # Panics
    /// Above 4 GiB.
    pub fn opaque(&mut self, bytes: &[u8]) {
        self.u32(u32::try_from(bytes.len()).expect("no field of ours is that long"));
        self.fixed(bytes);
    }

    /// Fills up after a field of `len` bytes.
    pub fn pad(&mut self, len: usize) {
        self.out.resize(self.out.len() + len.next_multiple_of(4) - len, 0);
    }

    /// An optional field.
    pub fn option<T>(&mut self, value: Option<T>, write: impl FnOnce(&mut Self, T)) {
        self.bool(value.is_some());
        if let Some(value) = value {
            write(self, value);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_come_back() {
        let mut w = Writer::default();
        w.u64(1 << 40 | 7);
        w.opaque(b"abcde");
        w.fixed(b"xyz");
        w.option(Some(5), |w, v| w.u32(v));
        w.option(None::<u32>, |w, v| w.u32(v));
        assert_eq!(w.out.len() % 4, 0);
        let mut r = Reader::new(&w.out);
        assert_eq!(r.u64(), Ok(1 << 40 | 7));
        assert_eq!(r.opaque(5), Ok(&b"abcde"[..]));
        assert_eq!(r.fixed::<3>(), Ok(*b"xyz"));
        assert_eq!(r.option(|r| r.u32()), Ok(Some(5)));
        assert_eq!(r.option(|r| r.u32()), Ok(None));
        assert!(r.rest().is_empty());
    }

    #[test]
    fn lengths_are_bounded_by_the_field_and_by_what_is_there() {
        let bytes = [0xff, 0xff, 0xff, 0xff, 1, 2];
        let long = XdrError::Long { at: 0, len: u32::MAX, max: 64 };
        assert_eq!(Reader::new(&bytes).opaque(64), Err(long));
        let short = XdrError::Short { at: 4, want: u32::MAX as usize, left: 2 };
        assert_eq!(Reader::new(&bytes).opaque(usize::MAX), Err(short));
        let value = XdrError::Value { at: 0, value: 2 };
        assert_eq!(Reader::new(&[0, 0, 0, 2]).bool(), Err(value));
    }
}
