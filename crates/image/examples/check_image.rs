//! Checks an image as fsck does, without changing it:
//! `cargo run --example check_image -- disk.img`.
//!
//! The exit status is 0 if it is clean, 4 if it is not, 8 if it cannot be checked.

use std::ffi::OsString;
use std::io::Write;
use std::process::ExitCode;

use anyhow::{Context, Result};
use image::Image;

fn main() -> ExitCode {
    match run(std::env::args_os().skip(1), &mut std::io::stdout()) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(4),
        Err(error) => {
            eprintln!("{error:#}");
            ExitCode::from(8)
        }
    }
}

/// What `main` does, with its arguments; answers whether the image is clean.
pub fn run(mut args: impl Iterator<Item = OsString>, out: &mut impl Write) -> Result<bool> {
    let image = Image::open(args.next().context("give an image")?)?;
    let report = image.check()?;
    for finding in &report.findings {
        writeln!(out, "{finding}")?;
    }
    if report.more > 0 {
        writeln!(out, "and {} more", report.more)?;
    }
    writeln!(
        out,
        "{}: {}",
        image.format()?.name(),
        if report.clean { "clean" } else { "damaged" }
    )?;
    Ok(report.clean)
}
