//! The further files that an image refers to: opened in allowed folders, else refused by name.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::Error;
use crate::error::Subject;
use crate::source::{FileSource, Source};

/// Opens the files that images name. A name in an image is not to be trusted: whoever wrote the
/// image wrote it.
pub trait Files: Send + Sync {
    /// Opens what the image `of` (its [`Source::name`]) of the format `format` calls `name`.
    ///
    /// # Errors
    /// The name leads where nothing may be opened, or the file cannot be opened.
    fn open(&self, of: &str, format: &'static str, name: &str) -> Result<Arc<dyn Source>, Error>;
}

/// Opens nothing.
pub struct NoFiles;

impl Files for NoFiles {
    fn open(&self, of: &str, format: &'static str, name: &str) -> Result<Arc<dyn Source>, Error> {
        let subject = Subject { name: of.to_owned(), format };
        Err(subject.unsupported(
            format!("it needs the file `{name}`, and there is no folder to look for it"),
            "give the image as a file of this machine",
        ))
    }
}

/// Opens files of the host that lie in certain folders, or below.
#[derive(Clone, Debug, Default)]
pub struct HostFiles {
    folders: Vec<PathBuf>,
}

impl HostFiles {
    /// Files in the folder of `image`, or below.
    pub fn beside(image: &Path) -> HostFiles {
        HostFiles::default().and(folder_of(image))
    }

    /// Files in another folder, too.
    pub fn and(mut self, folder: &Path) -> HostFiles {
        self.folders.push(folder.to_owned());
        self
    }
}

fn folder_of(path: &Path) -> &Path {
    path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

impl Files for HostFiles {
    fn open(&self, of: &str, format: &'static str, name: &str) -> Result<Arc<dyn Source>, Error> {
        let subject = Subject { name: of.to_owned(), format };
        let plain = name.strip_prefix("file:").unwrap_or(name);
        if plain.starts_with("json:") || plain.contains("://") || plain.contains('\0') {
            return Err(subject.unsupported(
                format!("it names `{name}`, which is no file of this machine"),
                "flatten it: qemu-img convert -O qcow2 IMAGE flat.qcow2",
            ));
        }
        let path = folder_of(Path::new(of)).join(plain);
        let host = |path: &Path, error| Error::Read {
            name: format!("{of} needs {}", path.display()),
            offset: 0,
            len: 0,
            error,
        };
        let real = path.canonicalize().map_err(|error| host(&path, error))?;
        let allowed = self
            .folders
            .iter()
            .any(|folder| folder.canonicalize().is_ok_and(|folder| real.starts_with(folder)));
        if !allowed {
            let folder = folder_of(&real).display().to_string();
            return Err(subject.unsupported(
                format!("it names `{name}`, which lies outside of the image's folder"),
                format!("if you trust the image, allow it: --image-dir {folder}"),
            ));
        }
        if !real.metadata().map_err(|error| host(&real, error))?.is_file() {
            return Err(subject.unsupported(format!("it names `{name}`, which is no file"), ""));
        }
        Ok(Arc::new(FileSource::open(&real)?))
    }
}
