//! Prints the SHA-256 of every file in an image, as sha256sum does:
//! `cargo run --example walk_and_hash -- disk.img`.

use std::ffi::OsString;
use std::io::{Read, Write};

use anyhow::{Context, Result};
use image::{FileType, Image};
use sha2::{Digest, Sha256};

fn main() -> Result<()> {
    run(std::env::args_os().skip(1), &mut std::io::stdout())
}

/// What `main` does, with its arguments.
pub fn run(mut args: impl Iterator<Item = OsString>, out: &mut impl Write) -> Result<()> {
    let image = args.next().context("give an image")?;
    let fs = Image::open(image)?.fs()?;
    let mut buffer = vec![0; 1 << 20];
    for entry in fs.walk("/")? {
        let path = entry?.path();
        if fs.symlink_metadata(&path)?.file_type() != FileType::Regular {
            continue;
        }
        let mut file = fs.open(&path)?;
        let mut hash = Sha256::new();
        loop {
            match file.read(&mut buffer)? {
                0 => break,
                count => hash.update(&buffer[..count]),
            }
        }
        let hex: String = hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect();
        writeln!(out, "{hex}  {}", path.display())?;
    }
    Ok(())
}
