//! Opens the disk inside a file.

use std::sync::Arc;

use crate::chain::{Chain, TABLES_MAX};
use crate::error::Subject;
use crate::files::Files;
use crate::image::{Image, Raw};
use crate::kind::Format;
use crate::recognise::recognise;
use crate::source::Source;
use crate::target::Target;
use crate::{Error, android, foreign, qcow2, seekable, vdi, vmdk};

/// How to open an image.
#[derive(Clone, Debug, Default)]
pub struct How {
    /// The format; none: recognised by content.
    pub format: Option<Format>,
    /// A snapshot by its name or number, where the format has them.
    pub snapshot: Option<String>,
}

/// Opens an image. Reads its tables; waits in the calling thread.
///
/// # Errors
/// It has another format than was said, is damaged, uses what is not supported, or names a file
/// that may not be opened.
pub fn open(
    source: Arc<dyn Source>,
    how: &How,
    files: &dyn Files,
) -> Result<Arc<dyn Image>, Error> {
    let format = match how.format {
        Some(format) => format,
        None => recognise(&*source)?.unwrap_or(Format::Raw),
    };
    let open = vec![source.name().to_owned()];
    let mut chain = Chain { files, open, tables_left: TABLES_MAX, opener: any };
    let Some(snapshot) = &how.snapshot else { return any(source, format, &mut chain) };
    if format != Format::Qcow2 {
        let subject = Subject { name: source.name().to_owned(), format: format.name() };
        let what = format!("it has no snapshots, so there is no `{snapshot}`");
        return Err(subject.unsupported(what, ""));
    }
    qcow2::open(source, Some(snapshot), &mut chain)
}

/// Opens a qcow2 image to write to it in place; the files behind it are read. What a power cut
/// leaves is a sound image with all that was flushed.
///
/// # Errors
/// As [`open`]; it uses what is read and not written.
pub fn open_to_change(
    target: Arc<dyn Target>,
    how: &How,
    files: &dyn Files,
) -> Result<Arc<dyn Image>, Error> {
    let open = vec![target.name().to_owned()];
    let mut chain = Chain { files, open, tables_left: TABLES_MAX, opener: any };
    qcow2::open_to_change(target, how.snapshot.as_deref(), &mut chain)
}

/// Opens a file of any format.
fn any(
    source: Arc<dyn Source>,
    format: Format,
    chain: &mut Chain<'_>,
) -> Result<Arc<dyn Image>, Error> {
    Ok(match format {
        Format::Raw => Arc::new(Raw(source)),
        Format::Qcow2 => qcow2::open(source, None, chain)?,
        Format::Vmdk => vmdk::open(source, chain)?,
        Format::Vhd | Format::Vhdx => foreign::open(source, format, chain)?,
        Format::Vdi => vdi::open(source, chain)?,
        Format::AndroidSparse => android::open(source, chain)?,
        Format::SeekableZstd => seekable::open(source, chain)?,
    })
}
