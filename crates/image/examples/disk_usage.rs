//! Says how full an image is, and which directories take the most:
//! `cargo run --example disk_usage -- disk.img`.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::io::Write;
use std::path::{Component, PathBuf};

use anyhow::{Context, Result};
use image::Image;

fn main() -> Result<()> {
    run(std::env::args_os().skip(1), &mut std::io::stdout())
}

/// What `main` does, with its arguments.
pub fn run(mut args: impl Iterator<Item = OsString>, out: &mut impl Write) -> Result<()> {
    let fs = Image::open(args.next().context("give an image")?)?.fs()?;
    let space = fs.space()?;
    let used = space.bytes - space.bytes_free;
    writeln!(out, "{used} of {} bytes used, {} free inodes", space.bytes, space.inodes_free)?;
    let mut sizes: BTreeMap<PathBuf, u64> = BTreeMap::new();
    let mut counted = BTreeSet::new();
    for entry in fs.walk("/")? {
        let entry = entry?;
        let found = entry.metadata()?;
        // A file with several names counts once.
        if !counted.insert(found.ino()) {
            continue;
        }
        let path = entry.path();
        let mut parts = path.components().filter(|part| matches!(part, Component::Normal(_)));
        let top = parts.next().map(|part| PathBuf::from(part.as_os_str())).unwrap_or_default();
        *sizes.entry(top).or_default() += found.blocks() * 512;
    }
    let mut sizes: Vec<(PathBuf, u64)> = sizes.into_iter().collect();
    sizes.sort_by_key(|(_, bytes)| std::cmp::Reverse(*bytes));
    for (name, bytes) in sizes.iter().take(20) {
        writeln!(out, "{bytes:12} /{}", name.display())?;
    }
    Ok(())
}
