//! `completions`: completion scripts for shells.

use std::io;
use std::process::ExitCode;

use anyhow::Result;
use clap::Args;
use clap_complete::Shell;

use crate::app::App;

/// Print a completion script for a shell
#[derive(Args)]
#[command(after_help = "Examples:
  iopath completions bash > /usr/share/bash-completion/completions/iopath
  source <(iopath completions zsh)")]
pub struct Options {
    /// The shell
    #[arg(value_enum)]
    shell: Shell,
}

/// Runs `completions`.
///
/// # Errors
/// Writing failed.
pub fn run(_app: &mut App, options: &Options) -> Result<ExitCode> {
    let mut script = Vec::new();
    clap_complete::generate(options.shell, &mut crate::cli::describe(), "iopath", &mut script);
    io::Write::write_all(&mut io::stdout(), &script)?;
    Ok(ExitCode::SUCCESS)
}
