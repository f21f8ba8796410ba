//! Copies a tree out of an image, with progress:
//! `cargo run --example copy_out -- disk.img /etc target`.

use std::ffi::OsString;
use std::io::{Read, Write};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::PathBuf;

use anyhow::{Context, Result};
use image::{FileType, Image};

fn main() -> Result<()> {
    run(std::env::args_os().skip(1), &mut std::io::stderr())
}

/// What `main` does, with its arguments.
pub fn run(mut args: impl Iterator<Item = OsString>, out: &mut impl Write) -> Result<()> {
    let image = args.next().context("give an image, a directory in it and a target")?;
    let top = PathBuf::from(args.next().context("give a directory in the image")?);
    let target = PathBuf::from(args.next().context("give a directory to make")?);
    let fs = Image::open(image)?.fs()?;
    let mut total = 0;
    for entry in fs.walk(&top)? {
        let found = entry?.metadata()?;
        total += if found.is_file() { found.len() } else { 0 };
    }
    std::fs::create_dir(&target)?;
    let (mut done, mut buffer) = (0, vec![0; 1 << 20]);
    for entry in fs.walk(&top)? {
        let entry = entry?;
        let place = target.join(entry.path().strip_prefix(&top)?);
        match entry.file_type()? {
            FileType::Directory => std::fs::create_dir(&place)?,
            FileType::Symlink => symlink(fs.read_link(entry.path())?, &place)?,
            FileType::Regular => {
                let mut from = fs.open(entry.path())?;
                let mut to = std::fs::File::create(&place)?;
                loop {
                    let count = from.read(&mut buffer)?;
                    if count == 0 {
                        break;
                    }
                    to.write_all(&buffer[..count])?;
                    done += count as u64;
                    write!(out, "\r{:3} %", done * 100 / total)?;
                }
                let mode = from.metadata()?.mode().into();
                to.set_permissions(std::fs::Permissions::from_mode(mode))?;
            }
            other => writeln!(out, "{}: left out, a {}", place.display(), other.word())?,
        }
    }
    Ok(writeln!(out, "\r{done} bytes")?)
}
