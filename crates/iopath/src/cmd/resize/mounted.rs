//! `resize` of what iopath has mounted: the mount itself grows it.

use std::ffi::{OsStr, OsString};
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result, anyhow, bail};
use base::Errno;
use serde_json::json;

use super::Options;
use crate::app::App;
use crate::confine::{Needs, Work};
use crate::target::Target;
use crate::text;

/// A target that is mounted.
pub struct Mounted {
    target: Target,
    dir: PathBuf,
}

/// The mount of a target, or at a directory.
///
/// # Errors
/// It is no target; the kernel's table cannot be read.
pub fn find(word: &OsStr) -> Result<Option<Mounted>> {
    let mounts = fuse::mounts().context("/proc/self/mountinfo")?;
    let place = PathBuf::from(word).canonicalize().ok();
    let source = Target::parse(word).ok().map(|target| OsString::from(target.source()));
    let found = mounts
        .into_iter()
        .find(|(from, dir)| Some(dir) == place.as_ref() || Some(from) == source.as_ref());
    let mounted =
        |(source, dir): (OsString, PathBuf)| Ok(Mounted { target: Target::parse(&source)?, dir });
    found.map(mounted).transpose()
}

/// What its growth needs of the host, beside what the words of the command line name.
pub fn needs(words: &[OsString], needs: &mut Needs) {
    for mounted in words.iter().filter_map(|word| find(word).ok().flatten()) {
        needs.read(mounted.dir);
        needs.word(mounted.target.to_string().as_ref(), Work::Change);
    }
}

/// Makes it larger. An image file that is too short becomes longer first.
///
/// # Errors
/// It has more than asked for, or its device less; the format cannot.
pub fn resize(app: &mut App, mounted: &Mounted, options: &Options) -> Result<ExitCode> {
    let Mounted { target, dir } = mounted;
    let shown = dir.display();
    let least = options.min || options.print_min;
    if options.of_ext() || least || options.dry_run || options.undo_file.is_some() {
        bail!("{target}: mounted on {shown}, where it grows to a size; unmount it for the rest");
    }
    let size = match (options.size, target.partition) {
        (Some(size), _) => size,
        (None, None) if !in_container(target) => end_of(target)?,
        (None, _) => bail!("{target}: mounted on {shown}: give the size"),
    };
    lengthen(target, size)?;
    let before = rustix::fs::statvfs(dir).with_context(|| shown.to_string())?;
    fuse::grow(dir, size).map_err(|error| {
        let errno = error.raw_os_error().map(Errno);
        let why = match errno {
            Some(Errno::EINVAL) => "it has more, and grows only while it is mounted".to_owned(),
            Some(Errno::ENOSPC) => "its device is shorter".to_owned(),
            Some(Errno::EPERM) => "only root and who mounted it may".to_owned(),
            Some(Errno::EOPNOTSUPP | Errno::ENOTTY) => "not while it is mounted".to_owned(),
            _ => error.to_string(),
        };
        anyhow!("{target}: {} (mounted on {shown}): {why}", text::size(size))
    })?;
    let after = rustix::fs::statvfs(dir).with_context(|| shown.to_string())?;
    let usable = |stat: &rustix::fs::StatVfs| stat.f_blocks * stat.f_frsize;
    let (from, to) = (usable(&before), usable(&after));
    if app.out.json {
        app.out.document(&json!({
            "target": target.to_string(),
            "mounted": shown.to_string(),
            "before": { "usable": from },
            "after": { "usable": to },
            "changed": from != to,
        }))?;
    } else if from == to {
        app.out.line(format!("{target}: keeps its size (mounted on {shown})"))?;
    } else {
        let (from, to) = (text::size(from), text::size(to));
        let line = format!("{target}: {to} for files, {from} before (mounted on {shown})");
        app.out.line(line)?;
    }
    Ok(ExitCode::SUCCESS)
}

/// The bytes of its file or device.
fn end_of(target: &Target) -> Result<u64> {
    let end = || {
        let file = std::fs::File::open(&target.path)?;
        Ok::<u64, std::io::Error>(rustix::fs::seek(&file, rustix::fs::SeekFrom::End(0))?)
    };
    end().with_context(|| target.to_string())
}

/// Is its disk one in a container?
fn in_container(target: &Target) -> bool {
    let look = container::FileSource::look(&target.path, None).ok();
    look.is_some_and(|look| container::recognise(&look).is_ok_and(|format| format.is_some()))
}

fn lengthen(target: &Target, size: u64) -> Result<()> {
    let meta = target.path.metadata().with_context(|| target.to_string())?;
    // The mount itself makes the disk in a container longer.
    if !meta.is_file() || target.partition.is_some() || meta.len() >= size || in_container(target) {
        return Ok(());
    }
    let file = std::fs::OpenOptions::new().write(true).open(&target.path);
    file.and_then(|file| file.set_len(size)).with_context(|| target.to_string())
}
