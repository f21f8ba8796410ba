//! `mknod`: devices and pipes.

use std::ffi::OsString;
use std::process::ExitCode;

use anyhow::{Result, anyhow, bail};
use clap::Args;
use vfs::{FileType, SetAttr};

use crate::app::{App, at};
use crate::session;
use crate::target::TargetPath;
use crate::text;

/// Make a device or a pipe inside an image
#[derive(Args)]
#[command(after_help = "Examples:
  iopath mknod -m 666 disk.img:/dev/null c 1 3
  iopath mknod disk.img:/run/pipe p")]
pub struct Options {
    /// What to make: TARGET:/path
    #[arg(value_name = "PLACE")]
    place: OsString,
    /// b (blocks), c or u (characters), p (a pipe)
    #[arg(value_name = "TYPE", value_parser = ["b", "c", "u", "p"])]
    kind: String,
    /// Number of the driver
    #[arg(value_name = "MAJOR")]
    major: Option<u32>,
    /// Number of the device
    #[arg(value_name = "MINOR")]
    minor: Option<u32>,
    /// Mode, as chmod(1) takes it; 666 less the umask without
    #[arg(short, long, value_name = "MODE")]
    mode: Option<String>,
}

/// Runs `mknod`.
///
/// # Errors
/// Numbers that are missing or too many; the name cannot be made.
pub fn run(app: &mut App, options: &Options) -> Result<ExitCode> {
    let kind = match options.kind.as_str() {
        "b" => FileType::BlockDevice,
        "p" => FileType::Fifo,
        _ => FileType::CharDevice,
    };
    let rdev = match (kind, options.major, options.minor) {
        (FileType::Fifo, None, None) => 0,
        (FileType::Fifo, ..) => bail!("a pipe has no numbers"),
        (_, Some(major), Some(minor)) => vfs::makedev(major, minor),
        _ => bail!("a device needs its two numbers: MAJOR MINOR"),
    };
    let umask = app.cx.cred().umask as u16;
    let mode = options.mode.as_deref().map(|mode| text::parse_mode(mode, 0o666, false, umask));
    let mode = mode.transpose().map_err(|text| anyhow!(text))?;
    let place = TargetPath::parse(&options.place)?;
    session::with_place(app, &place, true, |app, session| {
        let made = session.names.mknod(app.cx, &place.path, kind, 0o666, rdev);
        let ino = made.map_err(at(&place))?.ino;
        if let Some(mode) = mode {
            let set = SetAttr { mode: Some(mode), ..SetAttr::default() };
            session.fs.setattr(app.cx, ino, &set).map_err(at(&place))?;
        }
        Ok(ExitCode::SUCCESS)
    })
}
