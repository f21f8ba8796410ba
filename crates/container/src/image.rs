//! An opened container: an image that can be read, and its properties.

use std::ops::Range;
use std::sync::Arc;

use crate::Error;
use crate::error::Subject;
use crate::kind::Format;
use crate::source::{self, Source};

/// The disk inside a container.
pub trait Image: Send + Sync {
    /// The name of the format: of a container, or of a kind of volumes.
    fn format(&self) -> &'static str;

    /// Unit of addressing of the disk, in bytes.
    fn logical_block(&self) -> u32 {
        512
    }

    /// Size of the disk in bytes.
    fn size(&self) -> u64;

    /// Fills `buf` from byte `offset` of the disk on; the caller stays within the size. Waits in
    /// the calling thread.
    ///
    /// # Errors
    /// The file below failed, or a table that is needed is damaged.
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<(), Error>;

    /// Whether some byte of a range of the disk may lie in this file, and not in one behind it.
    ///
    /// # Errors
    /// A table that is needed is damaged.
    fn holds(&self, _range: Range<u64>) -> Result<bool, Error> {
        Ok(true)
    }

    /// Whether the disk can be written: the two that follow.
    fn is_writable(&self) -> bool {
        false
    }

    /// Writes bytes from byte `offset` of the disk on; the caller stays within the size. Waits in
    /// the calling thread. Kept over a power cut from the next [`Image::flush`] on.
    ///
    /// # Errors
    /// The image is only read; the file below failed, or there is no space.
    fn write_at(&self, _offset: u64, _bytes: &[u8]) -> Result<(), Error> {
        Err(only_read(self.format()))
    }

    /// Whether [`Image::discard`] gives space back.
    fn discards(&self) -> bool {
        false
    }

    /// The disk's user does not need the content of a range any more: its space is given back, as
    /// far as that goes. What is read there then is zeros, or as before.
    ///
    /// # Errors
    /// As [`Image::write_at`].
    fn discard(&self, _range: Range<u64>) -> Result<(), Error> {
        Ok(())
    }

    /// Makes everything durable that was written.
    ///
    /// # Errors
    /// The file below failed.
    fn flush(&self) -> Result<(), Error> {
        Ok(())
    }

    /// Makes the disk longer: what is new reads as zeros. A power cut leaves one of both sizes.
    /// Waits in the calling thread.
    ///
    /// # Errors
    /// As [`Image::write_at`]; the format has no such size.
    fn grow(&self, _size: u64) -> Result<(), Error> {
        Err(only_read(self.format()))
    }

    /// What people want to know about the container, in the order to show it in.
    ///
    /// # Errors
    /// A table that is counted cannot be read.
    fn facts(&self) -> Result<Vec<(&'static str, Fact)>, Error>;

    /// As [`Source::threads`] of the files below.
    fn threads(&self) -> usize;
}

/// The refusal of a write.
pub(crate) fn only_read(format: &'static str) -> Error {
    let subject = Subject { name: "an image".to_owned(), format };
    subject.unsupported("it is read, not written", "")
}

/// A value of a fact.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fact {
    /// A text.
    Text(String),
    /// A number.
    Number(u64),
    /// Yes or no.
    Flag(bool),
    /// One line each.
    Lines(Vec<String>),
    /// One object each.
    Rows(Vec<Vec<(&'static str, Fact)>>),
}

impl From<u64> for Fact {
    fn from(number: u64) -> Fact {
        Fact::Number(number)
    }
}

impl From<u32> for Fact {
    fn from(number: u32) -> Fact {
        Fact::Number(number.into())
    }
}

impl From<&str> for Fact {
    fn from(text: &str) -> Fact {
        Fact::Text(text.to_owned())
    }
}

impl From<String> for Fact {
    fn from(text: String) -> Fact {
        Fact::Text(text)
    }
}

/// A raw image: the bytes of the file are the disk.
pub(crate) struct Raw(pub Arc<dyn Source>);

impl Image for Raw {
    fn format(&self) -> &'static str {
        Format::Raw.name()
    }

    fn size(&self) -> u64 {
        self.0.size()
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<(), Error> {
        source::read(&*self.0, offset, buf)
    }

    fn facts(&self) -> Result<Vec<(&'static str, Fact)>, Error> {
        Ok(Vec::new())
    }

    fn threads(&self) -> usize {
        self.0.threads()
    }
}
