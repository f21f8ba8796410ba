//! `serve`: serves a target to other programs.

use std::process::ExitCode;

use anyhow::Result;
use clap::{Args, Subcommand};

use super::{serve_nbd, serve_nfs};
use crate::app::App;

/// Serve a target over the network, by NBD or NFS
#[derive(Args)]
#[command(after_help = "Examples:
  iopath serve nbd disk.img
  iopath serve nfs disk.img
  iopath serve nbd --write --listen /tmp/disk.sock disk.img@2")]
pub struct Options {
    #[command(subcommand)]
    how: How,
}

#[derive(Subcommand)]
enum How {
    Nbd(serve_nbd::Options),
    Nfs(serve_nfs::Options),
}

/// Runs `serve`.
///
/// # Errors
/// Those of what is served.
pub fn run(app: &mut App, options: &Options) -> Result<ExitCode> {
    match &options.how {
        How::Nbd(options) => serve_nbd::run(app, options),
        How::Nfs(options) => serve_nfs::run(app, options),
    }
}
