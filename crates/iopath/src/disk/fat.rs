//! FAT file systems: for EFI system partitions and boot loaders.
//!
//! Names are taken in the order of their bytes, and times are those of the source, so equal trees
//! make equal file systems. Only directories and files are copied: FAT has neither owners nor
//! links.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicI64, Ordering};

use anyhow::{Context, Result, bail};
use base::Timespec;
use fatfs::{Date, DateTime, Dir, FormatVolumeOptions, FsOptions, Time, TimeProvider};

use super::fat_dots;
use super::layout::Part;
use super::plan::Partition;
use crate::build::Moment;
use crate::text;

/// The smallest that is made where nobody names a size: firmware wants FAT32.
const SIZE_MIN: u64 = 40 << 20;
/// Bytes of a cluster that sizes are counted in.
const CLUSTER: u64 = 4096;
/// Bytes that are read ahead and written together.
const BUFFER: usize = 256 << 10;
/// Levels of directories.
const DEPTH_MAX: usize = 64;

/// Bytes that the tree below `source` needs, with a share of them free.
///
/// # Errors
/// It cannot be read.
pub fn size(source: Option<&Path>, free_percent: f64) -> Result<u64> {
    let Some(source) = source else { return Ok(0) };
    let mut bytes = 0;
    each(source, &PathBuf::new(), 0, &mut |_, path| {
        let meta = path.metadata()?;
        // A long name takes an entry of 32 bytes for each 13 characters.
        let name = path.file_name().map_or(0, |name| name.len() as u64);
        let content = if meta.is_dir() { CLUSTER } else { meta.len() };
        bytes += content.next_multiple_of(CLUSTER) + (name / 13 + 2) * 32;
        Ok(())
    })?;
    let bytes = (bytes as f64 * 1.01 / (1.0 - free_percent / 100.0)) as u64;
    Ok((bytes + (1 << 20)).max(SIZE_MIN))
}

/// Calls `work` with each name below a folder: the path in the file system, and that on the host.
/// Directories come before what they hold.
fn each(
    folder: &Path,
    above: &Path,
    depth: usize,
    work: &mut dyn FnMut(&Path, &Path) -> Result<()>,
) -> Result<()> {
    let shown = || folder.display().to_string();
    if depth == DEPTH_MAX {
        bail!("{}: more than {DEPTH_MAX} levels", shown());
    }
    let names: io::Result<Vec<_>> = folder.read_dir().with_context(shown)?.collect();
    let mut names: Vec<_> = names.with_context(shown)?.iter().map(|e| e.file_name()).collect();
    names.sort();
    for name in names {
        let (path, host) = (above.join(&name), folder.join(&name));
        let meta = host.symlink_metadata().with_context(|| host.display().to_string())?;
        if !meta.is_dir() && !meta.is_file() {
            bail!("{}: FAT holds files and directories only", host.display());
        }
        work(&path, &host).with_context(|| host.display().to_string())?;
        if meta.is_dir() {
            each(&host, &path, depth + 1, work)?;
        }
    }
    Ok(())
}

/// The clock that a file system asks: what was last set.
#[derive(Debug)]
struct Clock {
    seconds: AtomicI64,
}

impl Clock {
    fn set(&self, seconds: i64) {
        self.seconds.store(seconds, Ordering::Relaxed);
    }
}

impl TimeProvider for Clock {
    fn get_current_date(&self) -> Date {
        self.get_current_date_time().date
    }

    fn get_current_date_time(&self) -> DateTime {
        let time = Timespec::from_secs(self.seconds.load(Ordering::Relaxed));
        let (year, month, day, hour, min, sec) = text::civil(time);
        let year = year.clamp(1980, 2107) as u16;
        let date = Date { year, month: month as u16, day: day as u16 };
        let (hour, min, sec) = (hour as u16, min as u16, sec as u16);
        DateTime { date, time: Time { hour, min, sec, millis: 0 } }
    }
}

/// Makes a FAT file system in a partition, and fills it.
///
/// # Errors
/// It does not fit; a name or a file that FAT cannot hold.
pub fn make(
    file: &File,
    part: &Part,
    wanted: &Partition,
    source: Option<&Path>,
    moment: Moment,
) -> Result<()> {
    let mut label = [b' '; 11];
    let name = wanted.label.to_ascii_uppercase();
    if name.len() > label.len() || !name.is_ascii() {
        bail!("label `{}` has more than 11 letters, or others than ASCII", wanted.label);
    }
    let given = if name.is_empty() { "NO NAME" } else { &name };
    label[..given.len()].copy_from_slice(given.as_bytes());
    let id = u32::from_le_bytes(part.fs_uuid[..4].try_into().expect("four of 16 bytes"));
    let mut region = Region::new(file, part);
    let options = FormatVolumeOptions::new().volume_id(id).volume_label(label);
    fatfs::format_volume(&mut region, options).context("making a FAT file system")?;
    // The library asks a clock that lives as long as the process.
    let clock: &'static Clock = Box::leak(Box::new(Clock { seconds: AtomicI64::new(0) }));
    clock.set(moment.now.sec);
    let fs = fatfs::FileSystem::new(&mut region, FsOptions::new().time_provider(clock))?;
    let root = fs.root_dir();
    if let Some(source) = source {
        each(source, &PathBuf::new(), 0, &mut |path, host| {
            let meta = host.metadata()?;
            let latest = if moment.pinned { moment.now.sec } else { i64::MAX };
            clock.set(meta.mtime().min(latest));
            let path = path.to_str().context("the name is no UTF-8")?;
            match meta.is_dir() {
                true => drop(root.create_dir(path)?),
                false => copy(&root, path, host)?,
            }
            Ok(())
        })?;
    }
    drop(root);
    fs.unmount()?;
    Ok(fat_dots::move_to_start(&mut region)?)
}

fn copy<T: fatfs::ReadWriteSeek>(root: &Dir<T>, path: &str, host: &Path) -> Result<()> {
    let mut from = File::open(host)?;
    let mut to = root.create_file(path)?;
    let mut piece = vec![0; BUFFER];
    loop {
        match from.read(&mut piece)? {
            0 => return Ok(to.flush()?),
            count => to.write_all(&piece[..count])?,
        }
    }
}

/// A partition as a file of its own.
struct Region<'f> {
    file: &'f File,
    start: u64,
    bytes: u64,
    at: u64,
}

impl<'f> Region<'f> {
    fn new(file: &'f File, part: &Part) -> Region<'f> {
        Region { file, start: part.offset, bytes: part.bytes, at: 0 }
    }

    fn room(&self, len: usize) -> usize {
        (self.bytes - self.at.min(self.bytes)).min(len as u64) as usize
    }
}

impl Read for Region<'_> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let len = self.room(buf.len());
        let count = self.file.read_at(&mut buf[..len], self.start + self.at)?;
        self.at += count as u64;
        Ok(count)
    }
}

impl Write for Region<'_> {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        let len = self.room(buf.len());
        let count = self.file.write_at(&buf[..len], self.start + self.at)?;
        self.at += count as u64;
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Seek for Region<'_> {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        let at = match to {
            SeekFrom::Start(at) => Some(at),
            SeekFrom::End(by) => self.bytes.checked_add_signed(by),
            SeekFrom::Current(by) => self.at.checked_add_signed(by),
        };
        self.at = at.ok_or(io::ErrorKind::InvalidInput)?;
        Ok(self.at)
    }
}
