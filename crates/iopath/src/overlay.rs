//! Changes of an image on a server, kept in a qcow2 file of this machine: `--overlay FILE`.
//!
//! The file records the address and the ETag of the object that it was begun on, as the name of its
//! backing file. It is opened with that object alone, which the user names, too: so no content of a
//! file makes this program ask a server.

use std::io;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, Result, bail};
use container::{FileSource, FileTarget, Files, Format, How, Image, Source};

use crate::app::App;
use crate::interrupt;
use crate::out::Progress;
use crate::target::Target;

/// An object of a known version.
pub struct Pinned {
    source: Arc<dyn Source>,
    etag: String,
}

impl Pinned {
    /// Opens what `url` names.
    ///
    /// # Errors
    /// The server refuses, or the object has no version that can be asked for.
    pub fn open(url: &str, options: &network::Options) -> Result<Pinned> {
        let (source, etag) = network::open_version(url, options)?;
        let name = source.name();
        let etag = etag.with_context(|| {
            format!(
                "{name}: the server gives no strong ETag, so that an overlay would not notice \
                     when the object changes; fetch it, and write to the file"
            )
        })?;
        if let Some(format) = container::recognise(&*source)? {
            bail!("{name}: an overlay is for a raw disk, and this is {format}");
        }
        if !source.size().is_multiple_of(512) || source.size() == 0 {
            bail!("{name}: {} bytes are no disk", source.size());
        }
        Ok(Pinned { source, etag })
    }

    /// What an overlay says that it is over.
    fn backing(&self) -> String {
        format!("{}#{}", self.source.name(), self.etag)
    }

    /// The disk as an overlay shows it. Where there is no file, it is made to be written to; who
    /// reads has the object.
    ///
    /// # Errors
    /// The file is in use, or the overlay of another object or version.
    pub fn under(&self, file: &Path, write: bool) -> Result<Arc<dyn Image>> {
        let how = How { format: Some(Format::Qcow2), snapshot: None };
        if !file.exists() {
            if !write {
                let raw = How { format: Some(Format::Raw), snapshot: None };
                return Ok(container::open(self.source.clone(), &raw, &container::NoFiles)?);
            }
            self.make(file).with_context(|| file.display().to_string())?;
        }
        Ok(match write {
            true => container::open_to_change(Arc::new(FileTarget::open(file)?), &how, self)?,
            false => container::open(Arc::new(FileSource::open(file)?), &how, self)?,
        })
    }

    fn make(&self, file: &Path) -> io::Result<()> {
        let mut out = std::fs::File::create_new(file)?;
        let done = container::write::overlay(self.source.size(), &self.backing(), &mut out);
        done.inspect_err(|_| drop(std::fs::remove_file(file)))
    }
}

impl Files for Pinned {
    fn open(
        &self,
        of: &str,
        format: &'static str,
        name: &str,
    ) -> Result<Arc<dyn Source>, container::Error> {
        if name == self.backing() {
            return Ok(self.source.clone());
        }
        let object = self.source.name();
        let what = match name.split_once('#') {
            Some((address, etag)) if address == object => format!(
                "it was begun on {object} with the ETag {etag}, and that object has the ETag {} \
                 now",
                self.etag
            ),
            _ => format!("it is no overlay of {object}, but of `{name}`"),
        };
        let hint = String::new();
        Err(container::Error::Unsupported { name: of.to_owned(), format, what, hint })
    }
}

/// The new content of an object: the overlay over it.
struct Changed {
    image: Arc<dyn Image>,
    progress: Progress,
}

impl network::Content for Changed {
    fn size(&self) -> u64 {
        self.image.size()
    }

    fn differs(&self, range: Range<u64>) -> io::Result<bool> {
        self.image.holds(range).map_err(io::Error::other)
    }

    fn read(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        self.image.read_at(offset, buf).map_err(io::Error::other)
    }

    fn done(&mut self, bytes: u64) -> io::Result<()> {
        self.progress.add(0, bytes);
        match interrupt::asked() {
            true => Err(io::Error::other("interrupted; the object is as it was")),
            false => Ok(()),
        }
    }
}

/// Replaces the object that `target` names by what the overlay shows, and removes the overlay.
///
/// # Errors
/// There is no overlay, the object is another version by now, or the store refuses.
pub fn push(
    app: &App,
    target: &Target,
    url: &str,
    options: &network::Options,
    how: network::Replacing,
) -> Result<network::Replaced> {
    let Some(file) = &app.options.overlay else {
        bail!("{target}: give the overlay with its changes: --overlay FILE");
    };
    if !file.exists() {
        bail!("{}: there is no overlay, so nothing was changed", file.display());
    }
    let disk = Pinned::open(url, options)?;
    let image = disk.under(file, false)?;
    let progress = app.out.progress_of("pushing", image.size());
    let mut changed = Changed { image, progress };
    let replaced = network::replace(url, &disk.etag, &mut changed, how)?;
    changed.progress.finish();
    std::fs::remove_file(file).with_context(|| file.display().to_string())?;
    Ok(replaced)
}
