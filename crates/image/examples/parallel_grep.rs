//! Finds the lines with a word in all files of an image, with a thread for each processor:
//! `cargo run --example parallel_grep -- disk.img word`.

use std::ffi::OsString;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;

use anyhow::{Context, Result};
use image::{FileType, Fs, Image};

fn main() -> Result<()> {
    run(std::env::args_os().skip(1), &mut std::io::stdout())
}

/// The lines of a file that hold the word, each with its number.
fn search(fs: &Fs, path: &Path, word: &str) -> image::Result<Vec<String>> {
    let content = fs.read(path)?;
    let text = String::from_utf8_lossy(&content);
    let lines = text.lines().enumerate().filter(|(_, line)| line.contains(word));
    let show = |(number, line)| format!("{}:{}: {line}", path.display(), number + 1);
    Ok(lines.map(show).collect())
}

/// What `main` does, with its arguments.
pub fn run(mut args: impl Iterator<Item = OsString>, out: &mut impl Write) -> Result<()> {
    let fs = Image::open(args.next().context("give an image and a word")?)?.fs()?;
    let word = args.next().context("give a word")?.to_string_lossy().into_owned();
    let mut files: Vec<PathBuf> = Vec::new();
    for entry in fs.walk("/")? {
        let entry = entry?;
        if entry.file_type()? == FileType::Regular {
            files.push(entry.path());
        }
    }
    let (send, found) = mpsc::channel();
    let next = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(1, |count| count.get()) {
            let (fs, files, next, word, send) = (&fs, &files, &next, &word, send.clone());
            scope.spawn(move || {
                while let Some(path) = files.get(next.fetch_add(1, Ordering::Relaxed)) {
                    // Whoever does not listen any more needs no more lines.
                    let _gone = send.send(search(fs, path, word));
                }
            });
        }
        drop(send);
        for lines in found {
            for line in lines? {
                writeln!(out, "{line}")?;
            }
        }
        Ok(())
    })
}
