//! Making an image with a new file system.

use std::path::{Path, PathBuf};

use base::Errno;

use crate::error::{Error, Result};
use crate::format::Format;
use crate::open::{Image, ImageOptions};

impl Image {
    /// A new image file of `size` bytes with a file system in it; [`Make::make`] makes it.
    pub fn create(path: impl AsRef<Path>, size: u64) -> Make {
        Make::new(path.as_ref(), size)
    }
}

/// An image that is to be made: [`Image::create`].
#[derive(Clone, Debug)]
pub struct Make {
    path: PathBuf,
    size: u64,
    overwrite: bool,
    how: How,
    label: String,
    uuid: Option<[u8; 16]>,
}

/// The file system, and how it is made.
#[derive(Clone, Debug)]
enum How {
    #[cfg(feature = "ext4")]
    Ext(ext4::MkfsOptions),
    #[cfg(feature = "xfs")]
    Xfs(xfs::MkfsOptions),
}

impl How {
    fn of(format: Format) -> How {
        match format {
            #[cfg(feature = "ext4")]
            Format::Ext => How::Ext(ext4::MkfsOptions::default()),
            #[cfg(feature = "xfs")]
            Format::Xfs => How::Xfs(xfs::MkfsOptions::default()),
        }
    }
}

impl Make {
    pub(crate) fn new(path: &Path, size: u64) -> Make {
        Make {
            path: path.to_owned(),
            size,
            overwrite: false,
            how: How::of(Format::DEFAULT),
            label: String::new(),
            uuid: None,
        }
    }

    /// The file may exist; it is emptied. Otherwise an existing file is `EEXIST`.
    pub fn overwrite(mut self, overwrite: bool) -> Make {
        self.overwrite = overwrite;
        self
    }

    /// The family: ext4 with the defaults of mke2fs unless set (where this build has it), or XFS
    /// with those of mkfs.xfs.
    pub fn format(mut self, format: Format) -> Make {
        self.how = How::of(format);
        self
    }

    /// ext2, ext3 or ext4 with these options; size, label and UUID are those of this builder.
    #[cfg(feature = "ext4")]
    pub fn ext(mut self, options: ext4::MkfsOptions) -> Make {
        self.how = How::Ext(options);
        self
    }

    /// XFS with these options; size, label and UUID are those of this builder.
    #[cfg(feature = "xfs")]
    pub fn xfs(mut self, options: xfs::MkfsOptions) -> Make {
        self.how = How::Xfs(options);
        self
    }

    /// Name of the volume: at most 16 bytes, 12 for XFS.
    pub fn label(mut self, label: impl Into<String>) -> Make {
        self.label = label.into();
        self
    }

    /// UUID; a random one unless set.
    pub fn uuid(mut self, uuid: [u8; 16]) -> Make {
        self.uuid = Some(uuid);
        self
    }

    /// Makes the image, and leaves it open for writing.
    ///
    /// # Errors
    /// `EEXIST`; the host refuses the file; the options or the size make no file system. A file
    /// that was made for it is removed then.
    pub fn make(self) -> Result<Image> {
        let place = self.path.display().to_string();
        let existed = self.path.exists();
        if existed && !self.overwrite {
            return Err(Error::new(place, Errno::EEXIST));
        }
        let made = self.make_at(&place);
        if made.is_err() && !existed {
            let _may_not_exist = std::fs::remove_file(&self.path);
        }
        made
    }

    fn make_at(&self, place: &str) -> Result<Image> {
        let device = device::create(&self.path, self.size)
            .map_err(|error| Error::because(place, Errno::EIO, error))?;
        let image = Image::on(place.to_owned(), device, &ImageOptions::new().write(true))?;
        let (label, uuid) = (self.label.clone(), self.uuid);
        let refused = |words: String| Error::because(place, Errno::EINVAL, words);
        image.enter("mkfs", |cx| match &self.how {
            #[cfg(feature = "xfs")]
            How::Xfs(options) => {
                let options = options.clone();
                let options = xfs::MkfsOptions { label, uuid, assume_zeroes: true, ..options };
                let made = xfs::mkfs(cx, &image.queue, &options);
                made.map(drop).map_err(|error| refused(error.to_string()))
            }
            #[cfg(feature = "ext4")]
            How::Ext(options) => {
                let options = options.clone();
                let options = ext4::MkfsOptions { label, uuid, assume_zeroes: true, ..options };
                let made = ext4::mkfs(cx, &image.queue, &options);
                made.map(drop).map_err(|error| refused(error.to_string()))
            }
        })?;
        Ok(image)
    }
}
