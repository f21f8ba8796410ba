//! `man`: manual pages.

use std::ffi::OsString;
use std::fs;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::Args;

use crate::app::App;

/// Write manual pages, one for each command, into a directory
#[derive(Args)]
#[command(after_help = "Examples:
  iopath man /usr/local/share/man/man1
  iopath man . && man ./iopath-cp.1")]
pub struct Options {
    /// The directory; it is made if it is missing
    #[arg(value_name = "DIR")]
    dir: OsString,
}

/// Runs `man`.
///
/// # Errors
/// A page that cannot be written.
pub fn run(app: &mut App, options: &Options) -> Result<ExitCode> {
    let dir = PathBuf::from(&options.dir);
    fs::create_dir_all(&dir).with_context(|| dir.display().to_string())?;
    let mut whole = crate::cli::describe();
    // Options for all commands belong to the page of each.
    whole.build();
    let mut pages = vec![("iopath".to_string(), whole.clone())];
    for command in whole.get_subcommands().filter(|command| command.get_name() != "help") {
        let name = format!("iopath-{}", command.get_name());
        let display = format!("iopath {}", command.get_name());
        pages.push((name.clone(), command.clone().display_name(name).bin_name(display)));
    }
    for (name, command) in pages {
        let mut page = Vec::new();
        clap_mangen::Man::new(command).render(&mut page)?;
        let path = dir.join(format!("{name}.1"));
        fs::write(&path, page).with_context(|| path.display().to_string())?;
        app.out.note(path.display().to_string());
    }
    Ok(ExitCode::SUCCESS)
}
