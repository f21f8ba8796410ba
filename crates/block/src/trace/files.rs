//! The files of a trace.

use super::iolog::{self, Version};
use super::{ProcessNames, TraceEvent, blktrace, perfetto, text};
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::str::FromStr;

/// A format that traces are written in.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Format {
    /// `trace.blktrace.N`, one file for each processor (blkparse), and `trace.bin`, all in one
    /// (btt, iowatcher, fio).
    Blktrace,
    /// `trace.iolog2` and `trace.iolog`, versions 2 and 3 (fio).
    Iolog,
    /// `trace.pftrace` (ui.perfetto.dev).
    Perfetto,
    /// `trace.txt`, the lines that blkparse prints.
    Text,
}

impl Format {
    /// All of them with their names.
    pub const ALL: [(&'static str, Format); 4] = [
        ("blktrace", Format::Blktrace),
        ("iolog", Format::Iolog),
        ("perfetto", Format::Perfetto),
        ("text", Format::Text),
    ];
}

impl FromStr for Format {
    type Err = String;

    /// # Errors
    /// A sentence with the names that are known.
    fn from_str(name: &str) -> Result<Format, String> {
        let known = Format::ALL.map(|(name, _)| name).join(", ");
        let found = Format::ALL.iter().find(|(known, _)| *known == name);
        let format = found.map(|&(_, format)| format);
        format.ok_or_else(|| format!("there is no trace format `{name}`; there are {known}"))
    }
}

/// The path that an iolog names: fio's `replay_redirect` puts another one in its place.
const IOLOG_FILE: &str = "/dev/iopath";

/// Writes `events` into `dir`, which is made where it is missing, in each of `formats`. Returns the
/// paths of the files.
///
/// # Errors
/// Those of the files, with the path in their words.
pub fn write_all(
    dir: &Path,
    formats: &[Format],
    events: &[TraceEvent],
    names: &ProcessNames,
) -> io::Result<Vec<PathBuf>> {
    let mut events = events.to_vec();
    // Tasks of real time note the time before they take the queue's lock.
    events.sort_by_key(|event| event.time);
    std::fs::create_dir_all(dir).map_err(|error| at(dir, &error))?;
    let mut files = Files { dir, paths: Vec::new() };
    for format in formats {
        files.format(*format, &events, names)?;
    }
    Ok(files.paths)
}

fn at(path: &Path, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{}: {error}", path.display()))
}

struct Files<'a> {
    dir: &'a Path,
    paths: Vec<PathBuf>,
}

impl Files<'_> {
    fn write(
        &mut self,
        name: &str,
        put: impl FnOnce(&mut dyn Write) -> io::Result<()>,
    ) -> io::Result<()> {
        let path = self.dir.join(name);
        let written = File::create(&path).and_then(|file| {
            let mut out = BufWriter::new(file);
            put(&mut out)?;
            out.flush()
        });
        written.map_err(|error| at(&path, &error))?;
        self.paths.push(path);
        Ok(())
    }

    fn format(
        &mut self,
        format: Format,
        events: &[TraceEvent],
        names: &ProcessNames,
    ) -> io::Result<()> {
        match format {
            Format::Blktrace => {
                let last = events.iter().map(|event| event.cpu).max().unwrap_or(0);
                for cpu in 0..=last {
                    self.write(&format!("trace.blktrace.{cpu}"), |out| {
                        if cpu == 0 {
                            blktrace::write_head(out, names)?;
                        }
                        blktrace::write(out, events.iter().filter(|event| event.cpu == cpu))
                    })?;
                }
                self.write("trace.bin", |out| {
                    blktrace::write_head(out, names)?;
                    blktrace::write(out, events.iter())
                })
            }
            Format::Iolog => {
                self.write("trace.iolog2", |out| {
                    iolog::write(out, Version::V2, IOLOG_FILE, events)
                })?;
                self.write("trace.iolog", |out| iolog::write(out, Version::V3, IOLOG_FILE, events))
            }
            Format::Perfetto => {
                self.write("trace.pftrace", |out| perfetto::write(out, events, names))
            }
            Format::Text => self.write("trace.txt", |out| text::write(out, events, names)),
        }
    }
}
