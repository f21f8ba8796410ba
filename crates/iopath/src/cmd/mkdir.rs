//! `mkdir`: makes directories.

use std::ffi::OsString;
use std::process::ExitCode;

use anyhow::{Result, bail};
use base::Errno;
use clap::Args;

use crate::app::{App, at};
use crate::session;
use crate::target::TargetPath;

/// Make directories inside an image
#[derive(Args)]
#[command(after_help = "Examples:
  iopath mkdir disk.img:/srv
  iopath mkdir -p -m 750 disk.img:/srv/www/static")]
pub struct Options {
    /// Directories: TARGET:/path
    #[arg(required = true, value_name = "PLACE")]
    places: Vec<OsString>,
    /// Make missing parents, and accept existing directories
    #[arg(short, long)]
    parents: bool,
    /// Mode, octal
    #[arg(short, long, value_name = "MODE", default_value = "755", value_parser = octal)]
    mode: u16,
}

/// An octal mode.
fn octal(text: &str) -> Result<u16, String> {
    let mode = u16::from_str_radix(text, 8).ok().filter(|&mode| mode <= 0o7777);
    mode.ok_or(format!("`{text}` is not an octal mode such as 755"))
}

/// Runs `mkdir`.
///
/// # Errors
/// A directory that cannot be made.
pub fn run(app: &mut App, options: &Options) -> Result<ExitCode> {
    for place in &options.places {
        let place = TargetPath::parse(place)?;
        session::with_place(app, &place, true, |app, session| {
            let mut paths = vec![place.path.clone()];
            if options.parents {
                let slashes = place.path.iter().enumerate().skip(1);
                let above = slashes.filter(|(_, b)| **b == b'/');
                paths = above.map(|(at, _)| place.path[..at].to_vec()).collect();
                paths.push(place.path.clone());
            }
            let last = paths.len() - 1;
            for (index, path) in paths.iter().enumerate() {
                match session.names.mkdir(app.cx, path, 0o755) {
                    Ok(attr) if index == last => {
                        let mode = Some(options.mode);
                        let set = vfs::SetAttr { mode, ..Default::default() };
                        session.fs.setattr(app.cx, attr.ino, &set).map_err(at(&place))?;
                    }
                    Ok(_) => {}
                    Err(Errno::EEXIST) if options.parents => {
                        if !session.find(app, path, true)?.is_dir() {
                            bail!("{}: exists and is no directory", session.place(path));
                        }
                    }
                    Err(Errno::ENOENT) if !options.parents => {
                        bail!("{place}: the directory above is missing; give -p to make it");
                    }
                    Err(errno) => return Err(at(session.place(path))(errno)),
                }
            }
            Ok(())
        })?;
    }
    Ok(ExitCode::SUCCESS)
}
