//! `du`: the space that trees take.

use std::ffi::OsString;
use std::process::ExitCode;

use anyhow::Result;
use base::Ino;
use base::map::HashSet;
use clap::Args;
use serde_json::json;

use crate::app::App;
use crate::session::Session;
use crate::{places, text, trees};

/// Show the space that trees take inside an image
#[derive(Args)]
#[command(
    disable_help_flag = true,
    after_help = "\
In KiB, directories after what they hold. A file with several names counts once.

Examples:
  iopath du -sh disk.img:/usr
  iopath du -h 'disk.img:/var/*'"
)]
pub struct Options {
    /// What to count: TARGET or TARGET:/path
    #[arg(required = true, value_name = "PLACE")]
    places: Vec<OsString>,
    /// Print one line for each place
    #[arg(short, long, conflicts_with = "all")]
    summarize: bool,
    /// Print files, too
    #[arg(short, long)]
    all: bool,
    /// Print sizes in KiB, MiB, ..
    #[arg(short = 'h', long)]
    human_readable: bool,
    /// Print the sizes of files, in bytes, instead of the space they take
    #[arg(short = 'b', long = "bytes")]
    apparent: bool,
    /// Print help
    #[arg(long, action = clap::ArgAction::Help)]
    help: Option<bool>,
}

/// Runs `du`.
///
/// # Errors
/// The output is closed. What cannot be read is reported, and the rest is counted.
pub fn run(app: &mut App, options: &Options) -> Result<ExitCode> {
    places::each(app, &options.places, false, |app, session, place| {
        let attr = session.find(app, &place.path, false)?;
        let (seen, top) = (HashSet::default(), place.path.len());
        let mut count = Count { session, options, top, seen, path: Vec::new(), open: Vec::new() };
        let done = trees::each(app, session, &place.path, &attr, &mut |app, path, attr| {
            count.leave(app, Some(path))?;
            let counted = attr.is_dir() || attr.nlink < 2 || count.seen.insert(attr.ino);
            let bytes = match options.apparent {
                true => attr.size,
                false => attr.blocks * 512,
            };
            let bytes = if counted { bytes } else { 0 };
            if attr.is_dir() {
                let above = count.open.last().map_or(0, |open| open.len);
                count.path.truncate(above);
                count.path.extend_from_slice(&path[above..]);
                count.open.push(Open { len: path.len(), bytes });
                return Ok(());
            }
            if let Some(above) = count.open.last_mut() {
                above.bytes += bytes;
            }
            match options.all && counted || path.len() == count.top {
                true => count.line(app, path, bytes),
                false => Ok(()),
            }
        });
        count.leave(app, None)?;
        done
    })
}

/// A directory that is being counted.
struct Open {
    /// Length of its path.
    len: usize,
    bytes: u64,
}

struct Count<'a> {
    session: &'a Session,
    options: &'a Options,
    /// Length of the path of the place.
    top: usize,
    /// Files with several names.
    seen: HashSet<Ino>,
    /// Path of the last directory of these, each of which holds the next.
    path: Vec<u8>,
    open: Vec<Open>,
}

impl Count<'_> {
    /// Prints the directories that do not hold `path`.
    fn leave(&mut self, app: &mut App, path: Option<&[u8]>) -> Result<()> {
        let next = path.unwrap_or_default();
        while let Some(last) = self.open.last() {
            // The root's path ends with a slash by itself.
            let last = &self.path[..last.len];
            let above = last.strip_suffix(b"/").unwrap_or(last);
            if next.get(above.len()) == Some(&b'/') && next.starts_with(above) {
                break;
            }
            let done = self.open.pop().expect("the last one");
            if let Some(above) = self.open.last_mut() {
                above.bytes += done.bytes;
            }
            if !self.options.summarize || self.open.is_empty() {
                self.line(app, &self.path[..done.len], done.bytes)?;
            }
        }
        Ok(())
    }

    fn line(&self, app: &mut App, path: &[u8], bytes: u64) -> Result<()> {
        if app.out.json {
            let value = json!({ "path": text::escape(path), "bytes": bytes });
            return Ok(app.out.document(&value)?);
        }
        let size = match self.options {
            Options { human_readable: true, .. } => text::size(bytes),
            Options { apparent: true, .. } => bytes.to_string(),
            _ => bytes.div_ceil(1024).to_string(),
        };
        let place = format!("{}:{}", self.session.target, text::printable(path));
        Ok(app.out.line(format!("{size}\t{place}"))?)
    }
}
