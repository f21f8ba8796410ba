//! Where logs and results are: a path of the host, or an object on a server.

use std::fs::File;
use std::io::Read;
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, Result, bail};
use block::Device;
use crash::Log;
use device::{Cut, Partition};

use crate::app::App;
use crate::target;

/// The address, where it is one.
pub fn address(path: &Path) -> Option<&str> {
    path.to_str().filter(|text| text.contains("://") && !text.starts_with(['.', '/']))
}

/// Splits `LOG@NUMBER`, the log of a partition, where no file of that name exists.
pub fn split_partition(path: &Path) -> (&Path, Option<u32>) {
    let (log, partition) = target::split_partition(path.as_os_str());
    match path.exists() {
        true => (path, None),
        false => (Path::new(log), partition),
    }
}

/// What the log of a disk says of one of its partitions, by the table that is there when the log
/// ends.
///
/// # Errors
/// There is no such partition, or it does not begin at a multiple of 4 KiB; the log cannot be read.
pub fn partition(app: &mut App, log: &Log, number: u32) -> Result<Log> {
    let disk: Arc<dyn Device> = Arc::new(crash::explore::medium(log, &Cut::clean(log.len()))?);
    let found = Partition::find(app.cx, &disk, number)?;
    Ok(log.part(found.start, found.count)?)
}

/// Opens a log; of an object what is needed is fetched.
///
/// # Errors
/// It cannot be read, or is no whole log.
pub fn open_log(app: &App, path: &Path) -> Result<Log> {
    match address(path) {
        None => Log::open(path).with_context(|| path.display().to_string()),
        Some(url) => {
            let log = Log::from_source(remote::open(app, url)?);
            log.with_context(|| path.display().to_string())
        }
    }
}

/// Writes an object with the content of a file.
///
/// # Errors
/// The file cannot be read, or the server refuses.
pub fn put_file(app: &App, url: &str, path: &Path) -> Result<()> {
    let mut file = File::open(path).with_context(|| path.display().to_string())?;
    put(app, url, &mut file)
}

/// Whether a log may be written to an address: to an older log, or where nothing is.
///
/// # Errors
/// It may not: something else is there, or the server refuses.
pub fn takes_log(app: &App, url: &str) -> Result<()> {
    is_written(url)?;
    match begin(app, url, crash::log::MAGIC.len())? {
        Some(begin) if !begin.is_empty() && begin != crash::log::MAGIC => {
            bail!("{url}: it exists and is something else, not overwritten; name another object")
        }
        _ => Ok(()),
    }
}

pub use remote::{begin, is_written, put, read};

#[cfg(feature = "network")]
mod remote {
    use std::sync::Arc;

    use super::{App, Read, Result};

    fn options(app: &App) -> network::Options {
        network::Options {
            memory: (app.options.cache_size / 4).min(64 << 20),
            cache_dir: app.options.cache_dir.clone(),
            anonymous: app.options.anonymous,
        }
    }

    pub fn open(app: &App, url: &str) -> Result<Arc<dyn container::Source>> {
        Ok(network::open(url, &options(app))?)
    }

    /// The whole of an object; None where there is none.
    ///
    /// # Errors
    /// The server refuses.
    pub fn read(app: &App, url: &str) -> Result<Option<Vec<u8>>> {
        begin(app, url, usize::MAX)
    }

    /// The first bytes of an object; None where there is none.
    ///
    /// # Errors
    /// The server refuses.
    pub fn begin(app: &App, url: &str, len: usize) -> Result<Option<Vec<u8>>> {
        let source = match network::open(url, &options(app)) {
            Err(error) if error.is_missing() => return Ok(None),
            source => source?,
        };
        let mut bytes = vec![0; source.size().min(len as u64) as usize];
        source.read_at(0, &mut bytes)?;
        Ok(Some(bytes))
    }

    /// Whether an address is one that objects are written to.
    ///
    /// # Errors
    /// It is not.
    pub fn is_written(url: &str) -> Result<()> {
        Ok(network::is_written(url)?)
    }

    /// Writes an object.
    ///
    /// # Errors
    /// The server refuses.
    pub fn put(app: &App, url: &str, from: &mut dyn Read) -> Result<()> {
        Ok(network::put(url, from, &options(app))?)
    }
}

/// As with the feature, refused by name.
#[cfg(not(feature = "network"))]
mod remote {
    use std::sync::Arc;

    use super::{App, Read, Result};

    fn none<T>(url: &str) -> Result<T> {
        anyhow::bail!("{url}: this iopath was built without the cargo feature `network`")
    }

    pub fn open(_: &App, url: &str) -> Result<Arc<dyn container::Source>> {
        none(url)
    }

    pub fn read(_: &App, url: &str) -> Result<Option<Vec<u8>>> {
        none(url)
    }

    pub fn begin(_: &App, url: &str, _: usize) -> Result<Option<Vec<u8>>> {
        none(url)
    }

    pub fn is_written(url: &str) -> Result<()> {
        none(url)
    }

    pub fn put(_: &App, url: &str, _: &mut dyn Read) -> Result<()> {
        none(url)
    }
}
