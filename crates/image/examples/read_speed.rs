//! Times reads of a file in an image, one after the other and around again:
//! `cargo run --release --example read_speed -- disk.img /file 65536 1000000`.

use std::ffi::OsString;
use std::io::Write;

use anyhow::{Context, Result, ensure};
use image::Image;

fn main() -> Result<()> {
    run(std::env::args_os().skip(1), &mut std::io::stdout())
}

/// What `main` does, with its arguments.
#[expect(clippy::disallowed_methods, reason = "a stopwatch outside of every run time")]
pub fn run(mut args: impl Iterator<Item = OsString>, out: &mut impl Write) -> Result<()> {
    let image = args.next().context("give an image, a path in it, a size and a count")?;
    let path = args.next().context("give a path in the image")?;
    let mut number = |what: &'static str| -> Result<u64> {
        let text = args.next().with_context(|| format!("give {what}"))?;
        Ok(text.to_string_lossy().parse()?)
    };
    let (size, count) = (number("the bytes of a read")?, number("how many reads")?);
    let fs = Image::open(image)?.fs()?;
    let file = fs.open(path)?;
    let blocks = file.metadata()?.len() / size;
    ensure!(blocks > 0, "the file is shorter than a read");
    let mut buffer = vec![0; size as usize];
    // The first round fills the cache.
    (0..blocks).try_for_each(|block| file.read_at(&mut buffer, block * size).map(drop))?;
    let start = std::time::Instant::now();
    for read in 0..count {
        let count = file.read_at(&mut buffer, read % blocks * size)?;
        ensure!(count as u64 == size, "a short read");
    }
    let seconds = start.elapsed().as_secs_f64();
    writeln!(out, "{count} reads of {size} bytes in {seconds:.3} s: {:.3} us each", {
        seconds * 1e6 / count as f64
    })?;
    Ok(())
}
