//! Prints a file out of an image: `cargo run --example read_file -- disk.img /etc/hostname`.

use std::ffi::OsString;
use std::io::Write;

use anyhow::{Context, Result};
use image::Image;

fn main() -> Result<()> {
    run(std::env::args_os().skip(1), &mut std::io::stdout())
}

/// What `main` does, with its arguments.
pub fn run(mut args: impl Iterator<Item = OsString>, out: &mut impl Write) -> Result<()> {
    let image = args.next().context("give an image and a path in it")?;
    let path = args.next().context("give a path in the image")?;
    let fs = Image::open(image)?.fs()?;
    let mut file = fs.open(path)?;
    std::io::copy(&mut file, out)?;
    Ok(())
}
