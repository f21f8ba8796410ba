//! Cuts the power while a file is replaced: `cargo run --example crash_test`.
//!
//! The image is in memory, below a device that records every write. For each flush of the record
//! the disk is made as a power cut there could have left it, at best and at worst; its journal is
//! replayed, and the file must have its old or its new content. (The crate `iopath-crash` tries
//! many more losses, and reports them.)

use std::io::Write;
use std::sync::Arc;

use anyhow::{Result, ensure};
use device::{MemoryDevice, RecordDevice};
use image::{Fs, Image};

const PATH: &str = "/settings";

fn main() -> Result<()> {
    run(&mut std::io::stdout())
}

/// The program under test: replaces a file as programs should.
fn replace(fs: &Fs, content: &str) -> Result<()> {
    let file = fs.create("/settings.new")?;
    file.write_all_at(content.as_bytes(), 0)?;
    file.sync_all()?;
    fs.rename("/settings.new", PATH)?;
    Ok(())
}

/// What `main` does.
pub fn run(out: &mut impl Write) -> Result<()> {
    let folder = std::env::temp_dir().join(format!("crash_test.{}.img", std::process::id()));
    let fs = Image::create(&folder, 16 << 20).make()?.fs()?;
    fs.write(PATH, "old")?;
    fs.unmount()?;
    let disk = Arc::new(MemoryDevice::from_image(&std::fs::read(&folder)?));
    std::fs::remove_file(&folder)?;

    let before = disk.fork();
    let recorder = Arc::new(RecordDevice::new(disk));
    let fs = Image::options().write(true).open_device("recorded", recorder.clone())?.fs()?;
    replace(&fs, "new")?;
    fs.unmount()?;

    let log = recorder.take_log();
    let (mut old, mut new) = (0, 0);
    for cut in log.cuts_at_flushes() {
        let after = Arc::new(log.device_after(&before, &cut));
        let image = Image::options().write(true).open_device("after a cut", after)?;
        ensure!(image.check()?.clean, "damaged by {cut:?}");
        match image.fs()?.read_to_string(PATH)?.as_str() {
            "old" => old += 1,
            "new" => new += 1,
            other => anyhow::bail!("{other:?} after {cut:?}"),
        }
    }
    Ok(writeln!(out, "{} cuts: {old} times the old content, {new} times the new", old + new)?)
}
