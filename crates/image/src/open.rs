//! Opening an image, and checking it.

use std::fmt;
use std::path::Path;
use std::sync::Arc;

use base::Errno;
use block::{Device, Queue, QueueConfig};
use device::{OpenOptions as DeviceOptions, Partition};
use rt::{Cx, Runtime};
use vfs::FileSystem;

use crate::error::{Error, Result};
use crate::format::{Format, Mounting};
use crate::recognise::{self, PROBE};

/// Bytes of memory for cached content, unless [`ImageOptions::cache_size`] says otherwise.
const CACHE_SIZE: u64 = 256 << 20;
/// Findings of a check that are kept.
const FINDINGS_MAX: usize = 10_000;

/// How an image is opened.
#[derive(Clone, Debug)]
pub struct ImageOptions {
    write: bool,
    direct: bool,
    partition: Option<u32>,
    cache_size: u64,
}

impl ImageOptions {
    pub(crate) fn new() -> ImageOptions {
        ImageOptions { write: false, direct: false, partition: None, cache_size: CACHE_SIZE }
    }

    /// Also for writing.
    pub fn write(mut self, write: bool) -> ImageOptions {
        self.write = write;
        self
    }

    /// Bypasses the host's page cache.
    pub fn direct(mut self, direct: bool) -> ImageOptions {
        self.direct = direct;
        self
    }

    /// The file system is on this partition, counted from 1 (GPT or MBR).
    pub fn partition(mut self, number: u32) -> ImageOptions {
        self.partition = Some(number);
        self
    }

    /// Bytes of memory for cached content; at least 1 MiB is granted. 256 MiB unless set.
    pub fn cache_size(mut self, bytes: u64) -> ImageOptions {
        self.cache_size = bytes;
        self
    }

    /// Opens an image file, a block device or `nbd://host/export`.
    ///
    /// # Errors
    /// The host refuses it, somebody else uses it (`EBUSY`), or there is no such partition.
    pub fn open(self, path: impl AsRef<Path>) -> Result<Image> {
        let path = path.as_ref();
        let place = path.display().to_string();
        let options =
            DeviceOptions { write: self.write, direct: self.direct, ..DeviceOptions::default() };
        let device = device::open(path, options).map_err(|error| opening(&place, error))?;
        Image::on(place, device, &self)
    }

    /// Opens the image that a device of the caller's own holds; `name` is what messages call it.
    /// Nobody locks it.
    ///
    /// # Errors
    /// The device describes itself wrongly (`EINVAL`), or there is no such partition.
    pub fn open_device(self, name: &str, device: Arc<dyn Device>) -> Result<Image> {
        Image::on(name.to_owned(), device, &self)
    }
}

fn opening(place: &str, error: device::OpenError) -> Error {
    use device::OpenError::*;
    let errno = match &error {
        Host { error, .. } => Errno::from_io(error),
        Locked { .. } | Busy { .. } => Errno::EBUSY,
        _ => Errno::EINVAL,
    };
    // Its words begin with the place.
    let words = error.to_string();
    let words = words.strip_prefix(&format!("{place}: ")).unwrap_or(&words).to_owned();
    Error::because(place, errno, words)
}

/// An open image, which nobody else can open for writing meanwhile.
pub struct Image {
    pub(crate) place: String,
    pub(crate) runtime: Runtime,
    pub(crate) queue: Arc<Queue>,
    write: bool,
    cache_size: u64,
}

impl fmt::Debug for Image {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Image").field("place", &self.place).field("write", &self.write).finish()
    }
}

impl Image {
    /// Opens an image for reading. It is not changed, not even by the recovery of its journal,
    /// which happens in memory.
    ///
    /// # Errors
    /// Those of [`ImageOptions::open`].
    pub fn open(path: impl AsRef<Path>) -> Result<Image> {
        Image::options().open(path)
    }

    /// How to open: for reading, the whole image, through the host's page cache.
    pub fn options() -> ImageOptions {
        ImageOptions::new()
    }

    pub(crate) fn on(
        place: String,
        device: Arc<dyn Device>,
        options: &ImageOptions,
    ) -> Result<Image> {
        let cpus = std::thread::available_parallelism().map_or(1, |count| count.get());
        let runtime = Runtime::real(cpus);
        let (place, device) = match options.partition {
            None => (place, device),
            Some(number) => {
                let part = runtime.enter("open", |cx| Partition::open(cx, &device, number));
                let part = part.map_err(|error| Error::because(&place, Errno::ENXIO, error))?;
                (format!("{place}@{number}"), Arc::new(part) as Arc<dyn Device>)
            }
        };
        let queue = Queue::new(&runtime, device, QueueConfig::default());
        let queue = queue.map_err(|error| Error::because(&place, Errno::EINVAL, error))?;
        let ImageOptions { write, cache_size, .. } = *options;
        Ok(Image { place, runtime, queue, write, cache_size })
    }

    /// The family of the file system.
    ///
    /// # Errors
    /// `EINVAL` if it is none of those that are known; the device failed.
    pub fn format(&self) -> Result<Format> {
        let start = self.enter("format", |cx| recognise::read_start(cx, &self.queue, PROBE));
        let start = start.map_err(|error| Error::because(&self.place, error.to_errno(), error))?;
        Format::of(recognise::recognise(&start))
            .map_err(|words| Error::because(&self.place, Errno::EINVAL, words))
    }

    pub(crate) fn mount(&self) -> Result<Arc<dyn FileSystem>> {
        let (format, queue) = (self.format()?, &self.queue);
        let (write, cache_size) = (self.write, self.cache_size);
        let how = Mounting { write, cache_size, inode_cache: None, is_far: false };
        self.enter("mount", |cx| match format {
            #[cfg(feature = "ext4")]
            Format::Ext => match how.ext(cx, queue, Default::default()) {
                Ok(fs) => Ok(fs as Arc<dyn FileSystem>),
                Err(error) => Err(Error::because(&self.place, error.to_errno(), error)),
            },
            #[cfg(feature = "xfs")]
            Format::Xfs => match how.xfs(cx, queue, Default::default()) {
                Ok(fs) => Ok(fs as Arc<dyn FileSystem>),
                Err(error) => Err(Error::because(&self.place, error.to_errno(), error)),
            },
        })
    }

    /// Checks the file system without changing it; a dirty journal is replayed in memory first.
    ///
    /// # Errors
    /// The format is not known, or the device failed. What is wrong with the file system is no
    /// error: it is in the report.
    pub fn check(&self) -> Result<Report> {
        let format = self.format()?;
        let check = |cx: &mut Cx| format.check(cx, &self.queue, true, FINDINGS_MAX);
        let report = self.enter("check", check);
        report.map_err(|error| Error::because(&self.place, error.to_errno(), error))
    }

    pub(crate) fn enter<T>(&self, name: &str, work: impl FnOnce(&mut Cx) -> T) -> T {
        self.runtime.enter(name, work)
    }
}

/// What a check found: at most 10,000 findings are listed.
pub type Report = vfs::check::Summary;

/// One violation of one rule: its words name the rule, the place and the numbers.
pub type Finding = vfs::check::NamedFinding;
