//! A mounted file system, and what its clones and open files share.

use std::fmt;
use std::path::Path;
use std::sync::Arc;

use base::Errno;
use rt::Cx;
use vfs::{FileSystem, Namespace};

use crate::bytes;
use crate::error::{Error, Result};
use crate::open::Image;

impl Image {
    /// Mounts the file system.
    ///
    /// # Errors
    /// The format is not known, the file system is damaged, or it needs a feature that is refused
    /// by name.
    pub fn fs(self) -> Result<Fs> {
        let fs = self.mount()?;
        let names = Namespace::new(fs.clone());
        Ok(Fs(Arc::new(Mounted { image: Some(self), names, fs })))
    }
}

/// A mounted file system. Clones are cheap and the same mount.
///
/// Paths begin at the root of the file system, with or without `/`. Symbolic links are followed
/// inside of the image and never lead out of it.
#[derive(Clone)]
pub struct Fs(Arc<Mounted>);

/// What all clones and open files share. Unmounts when the last of them is dropped.
pub(crate) struct Mounted {
    /// None once it was given back.
    image: Option<Image>,
    pub fs: Arc<dyn FileSystem>,
    pub names: Namespace,
}

impl Mounted {
    pub fn enter<T>(&self, name: &str, work: impl FnOnce(&mut Cx) -> T) -> T {
        self.image.as_ref().expect("it is given back at the end only").enter(name, work)
    }

    /// The place of a path, for messages.
    pub fn place(&self, path: &Path) -> String {
        let image = self.image.as_ref().map_or("", |image| &image.place);
        format!("{image}:{}", path.display())
    }

    /// Runs a call on a path.
    pub fn call<T>(
        &self,
        path: &Path,
        work: impl FnOnce(&mut Cx, &Namespace, &[u8]) -> std::result::Result<T, Errno>,
    ) -> Result<T> {
        let done = self.enter("image", |cx| work(cx, &self.names, &bytes::of(path.as_os_str())));
        done.map_err(|errno| Error::new(self.place(path), errno))
    }

    fn unmount(&mut self) -> Result<Image> {
        let image = self.image.take().expect("unmounted once");
        let done = image.enter("unmount", |cx| self.fs.unmount(cx));
        let lost = self.fs.lost();
        match done {
            Ok(()) => Ok(image),
            Err(errno) if lost.first.is_some() => {
                Err(Error::because(&image.place, errno, lost.to_string()))
            }
            Err(errno) => Err(Error::new(&image.place, errno)),
        }
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        if self.image.is_some() {
            // Who wants to know calls `Fs::unmount`.
            let _unheard = self.unmount();
        }
    }
}

impl fmt::Debug for Fs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Fs").field(&self.0.image).finish()
    }
}

impl Fs {
    pub(crate) fn mounted(&self) -> &Arc<Mounted> {
        &self.0
    }

    /// Writes everything out, leaves the file system clean, and gives the image back.
    ///
    /// Without it the last clone or open file that is dropped unmounts, and errors are not seen.
    ///
    /// # Errors
    /// `EBUSY` where a clone or an open file is left; `EIO`, `ENOSPC` where not all could be
    /// written: the error says what was lost.
    pub fn unmount(self) -> Result<Image> {
        match Arc::try_unwrap(self.0) {
            Ok(mut mounted) => mounted.unmount(),
            Err(shared) => Err(Error::new(shared.place(Path::new("/")), Errno::EBUSY)),
        }
    }
}
