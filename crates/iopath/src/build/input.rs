//! What an image is built from: a directory, an archive, the layers of a container image.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, Result, bail};

use super::layers;
use super::oci::{self, Layer};
use super::prototype::{Prototype, PrototypeSource};
use crate::app::App;
use crate::copy::host_source::HostSource;
use crate::copy::tar_source::TarSource;
use crate::copy::{Keep, Source, decompress, tar_index};

/// A file that is opened several times.
#[derive(Clone, Debug)]
pub struct Place {
    /// Opens it.
    pub path: PathBuf,
    /// How people call it.
    pub shown: String,
    /// Kept open: the path leads to it.
    _file: Option<Arc<File>>,
}

impl Place {
    pub(super) fn named(path: &Path) -> Place {
        Place { path: path.to_owned(), shown: path.display().to_string(), _file: None }
    }

    fn unnamed(file: File, shown: String) -> Place {
        let path = PathBuf::from(format!("/proc/self/fd/{}", file.as_raw_fd()));
        Place { path, shown, _file: Some(Arc::new(file)) }
    }

    /// Opens it.
    ///
    /// # Errors
    /// The host refuses.
    pub fn open(&self) -> Result<File> {
        File::open(&self.path).with_context(|| self.shown.clone())
    }
}

/// What is read.
pub enum Input {
    /// Nothing: the file system stays empty.
    Nothing,
    /// A directory of the host: what is in it.
    Directory(PathBuf),
    /// A tar archive.
    Archive(Place),
    /// An archive on standard input, read once.
    Stream,
    /// A prototype file of mkfs.xfs, and whether its slashes are spaces.
    Prototype(Place, bool),
    /// Layers, with what of each is left in the end.
    Layers(Vec<Layer>),
}

/// Prefixes that say what a path is, as in containers-transports(5), and for a prototype.
const PREFIXES: [&str; 6] = ["dir", "tar", "proto", "oci", "oci-archive", "docker-archive"];

impl Input {
    /// Reads `-d SOURCE`. Standard input is stored beside the output, if it must be read `twice`.
    ///
    /// # Errors
    /// There is no such file, or it is none of those that are known.
    pub fn open(
        source: &OsStr,
        platform: Option<&str>,
        beside: &Path,
        twice: bool,
    ) -> Result<Input> {
        let bytes = source.as_bytes();
        if bytes == b"-" {
            if !twice {
                return Ok(Input::Stream);
            }
            let place = spool(io::stdin().lock(), beside, "standard input")?;
            return Input::of_archive(place, None, platform);
        }
        let (kind, path) = match bytes.iter().position(|&b| b == b':') {
            Some(at) if PREFIXES.iter().any(|prefix| prefix.as_bytes() == &bytes[..at]) => {
                (std::str::from_utf8(&bytes[..at]).ok(), OsStr::from_bytes(&bytes[at + 1..]))
            }
            _ => (None, source),
        };
        let path = Path::new(path);
        let meta = path.metadata().with_context(|| path.display().to_string())?;
        let is_layout = meta.is_dir() && path.join("oci-layout").is_file();
        match kind {
            None | Some("dir") if meta.is_dir() && !(is_layout && kind.is_none()) => {
                Ok(Input::Directory(path.to_owned()))
            }
            None | Some("oci") if meta.is_dir() => oci::layout(path, platform).map(Input::Layers),
            Some("proto") if meta.is_file() => Ok(Input::Prototype(Place::named(path), false)),
            _ if meta.is_dir() => bail!("{}: is a directory", path.display()),
            Some("dir" | "oci") => bail!("{}: is no directory", path.display()),
            None | Some("tar") => Input::of_archive(Place::named(path), kind, platform),
            Some(_) => {
                let mut place = Place::named(path);
                if is_compressed(path)? {
                    let plain = decompress::unpacked(Box::new(place.open()?))?;
                    place = spool(plain, beside, &place.shown)?;
                }
                Input::of_archive(place, kind, platform)
            }
        }
    }

    /// An archive of files, or one that holds layers: that is seen by the names of its members, if
    /// it is not compressed.
    fn of_archive(place: Place, kind: Option<&str>, platform: Option<&str>) -> Result<Input> {
        let asked = matches!(kind, Some("oci-archive" | "docker-archive"));
        let file = place.open()?;
        let may_hold = asked || file.metadata()?.is_file() && is_tar(&file)?;
        if kind == Some("tar") || !may_hold {
            return Ok(Input::Archive(place));
        }
        let members = tar_index::members(file).with_context(|| place.shown.clone())?;
        let found = members.map(|members| oci::archive(&place, &members, platform));
        match found.transpose()?.flatten() {
            Some(layers) => Ok(Input::Layers(layers)),
            None if asked => bail!("{}: holds neither manifest.json nor oci-layout", place.shown),
            None => Ok(Input::Archive(place)),
        }
    }

    /// It cannot be read again.
    pub fn is_read_once(&self) -> bool {
        matches!(self, Input::Stream)
    }

    /// Members come as tar(1) has them, later ones in place of earlier ones.
    pub fn is_archive(&self) -> bool {
        !matches!(self, Input::Nothing | Input::Directory(_) | Input::Prototype(..))
    }

    /// Decides what is left of layers. May park.
    ///
    /// # Errors
    /// They cannot be read.
    pub fn settle(&mut self, app: &mut App, keep: &Keep) -> Result<()> {
        match self {
            Input::Layers(layers) => layers::settle(app, layers, keep),
            _ => Ok(()),
        }
    }

    /// What is read, one after the other.
    ///
    /// # Errors
    /// A file cannot be opened.
    pub fn sources(&self, keep: &Keep) -> Result<Vec<Box<dyn Source>>> {
        let keep = keep.clone();
        Ok(match self {
            Input::Nothing => Vec::new(),
            Input::Directory(path) => {
                let root = path.join("");
                vec![Box::new(HostSource::new(root, Vec::new(), keep))]
            }
            Input::Archive(place) => {
                let input = decompress::unpacked(Box::new(place.open()?));
                let input = input.with_context(|| place.shown.clone())?;
                vec![Box::new(TarSource::new(input, Vec::new(), keep))]
            }
            Input::Prototype(place, spaces) => {
                let prototype = Prototype::read(place, *spaces)?;
                vec![Box::new(PrototypeSource::new(prototype, keep))]
            }
            Input::Stream => {
                let input = decompress::unpacked(Box::new(io::stdin()))?;
                vec![Box::new(TarSource::new(input, Vec::new(), keep))]
            }
            Input::Layers(layers) => {
                let source = |layer: &Layer| {
                    let input = decompress::unpacked(layer.open()?);
                    let input = input.with_context(|| layer.shown.clone())?;
                    let source = TarSource::new(input, Vec::new(), keep.clone());
                    Ok(Box::new(source.picking(layer.picks.clone())) as Box<dyn Source>)
                };
                layers.iter().map(source).collect::<Result<_>>()?
            }
        })
    }
}

/// Stores a stream in a file without a name.
fn spool(input: impl Read, beside: &Path, shown: &str) -> Result<Place> {
    let folder = beside.parent().filter(|folder| !folder.as_os_str().is_empty());
    let stored = || -> io::Result<File> {
        let mut file = tempfile::tempfile_in(folder.unwrap_or(Path::new(".")))?;
        let mut input = input;
        io::copy(&mut input, &mut file)?;
        Ok(file)
    };
    let file = stored().with_context(|| format!("{shown}: storing it beside the output"))?;
    Ok(Place::unnamed(file, shown.to_owned()))
}

/// Whether a file begins as a compressed one.
fn is_compressed(path: &Path) -> Result<bool> {
    let mut start = [0; 6];
    let count = File::open(path)?.read(&mut start)?;
    let magics: [&[u8]; 3] = [&[0x1f, 0x8b], &[0x28, 0xb5, 0x2f, 0xfd], b"\xfd7zXZ\0"];
    Ok(magics.iter().any(|magic| start[..count].starts_with(magic)))
}

/// Whether a file begins with a header of tar.
fn is_tar(file: &File) -> Result<bool> {
    use std::os::unix::fs::FileExt;
    let mut word = [0; 5];
    Ok(file.read_at(&mut word, 257)? == word.len() && &word == b"ustar")
}
