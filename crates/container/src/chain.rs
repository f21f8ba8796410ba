//! What the files of one image share while they are opened: names, memory, the way to open more.

use std::sync::Arc;

use crate::Error;
use crate::error::Subject;
use crate::files::Files;
use crate::image::Image;
use crate::kind::Format;
use crate::source::Source;

/// Bytes of tables that are kept in memory for an image and everything behind it.
pub const TABLES_MAX: u64 = 256 << 20;
/// Bytes of caches for the first file of a chain; those behind it have less.
pub(crate) const CACHE_BYTES: u64 = 16 << 20;
/// Files of a chain of backing files.
pub(crate) const CHAIN_MAX: usize = 64;

/// What the files of one chain share while it is opened.
pub(crate) struct Chain<'a> {
    pub files: &'a dyn Files,
    /// Names of the files that are open, from the first one.
    pub open: Vec<String>,
    /// Bytes left of [`TABLES_MAX`].
    pub tables_left: u64,
    /// Opens a file of any format.
    pub opener: Opener,
}

/// Opens a file of any format as a part of a chain.
pub(crate) type Opener =
    fn(Arc<dyn Source>, Format, &mut Chain<'_>) -> Result<Arc<dyn Image>, Error>;

impl Chain<'_> {
    /// Bytes of caches for the file that was opened last.
    pub fn cache_bytes(&self) -> u64 {
        CACHE_BYTES >> self.open.len().saturating_sub(1).min(4)
    }

    /// Takes memory for a table.
    pub fn take(&mut self, subject: &Subject, place: &str, bytes: u64) -> Result<(), Error> {
        let left = self.tables_left.checked_sub(bytes);
        self.tables_left = left.ok_or_else(|| {
            let left = self.tables_left;
            subject.damaged(place, format!("a table of {bytes} bytes, {left} are allowed here"))
        })?;
        Ok(())
    }

    /// Opens a further file that `of` names.
    pub fn file(&mut self, of: &Subject, name: &str) -> Result<Arc<dyn Source>, Error> {
        let source = self.files.open(&of.name, of.format, name)?;
        let known = source.name().to_owned();
        if self.open.contains(&known) {
            return Err(of.damaged("the chain of files", format!("`{name}` leads back into it")));
        }
        if self.open.len() >= CHAIN_MAX {
            let what = format!("more than {CHAIN_MAX} files, `{name}` is one more");
            return Err(of.damaged("the chain of files", what));
        }
        self.open.push(known);
        Ok(source)
    }

    /// Opens an image of this chain.
    pub fn image(
        &mut self,
        source: Arc<dyn Source>,
        format: Format,
    ) -> Result<Arc<dyn Image>, Error> {
        (self.opener)(source, format, self)
    }
}
