//! `chattr`: flags of inodes.

use std::ffi::OsString;
use std::process::ExitCode;

use anyhow::{Context, Result, anyhow, bail};
use clap::Args;
use vfs::{Attr, ExtentHints, FileType};

use crate::app::{App, at};
use crate::places;
use crate::session::Session;
use crate::text;
use crate::trees;

/// Change flags of files inside an image, as chattr(1)
#[derive(Args)]
#[command(after_help = "\
Flags: a append only, A no access times, d no dump, i immutable, P new files inherit the project,
S synchronous writes; on ext4 also D synchronous changes of a directory, F names ignore case (an
empty directory, with the feature casefold), T top of a tree.

On XFS the first word may say instead how space is given out: extsize=SIZE in such units, to a file
without blocks, or to what is made in a directory; cowextsize=SIZE for copies of shared blocks. 0
takes them back. realtime=1 puts a file without blocks into the realtime section, rtinherit=1 what
is made in a directory; 0 takes it back.

Examples:
  iopath chattr +i disk.img:/etc/passwd
  iopath chattr -R -- -i+a disk.img:/var/log
  iopath chattr +F disk.img:/games
  iopath chattr extsize=1M,cowextsize=128k xfs.img:/vm
  iopath -o rtdev=rt.img chattr rtinherit=1 xfs.img:/video")]
pub struct Options {
    /// Changes like +i, -a, =, or +i-a; extsize=SIZE,cowextsize=SIZE,realtime=0|1,rtinherit=0|1
    #[arg(value_name = "FLAGS", allow_hyphen_values = true)]
    flags: String,
    /// What to change: TARGET:/path
    #[arg(required = true, value_name = "PLACE")]
    places: Vec<OsString>,
    /// Change directories and everything below them; symlinks are not changed
    #[arg(short = 'R', long)]
    recursive: bool,
}

/// The flags by their letters.
const LETTERS: [(char, u32); 9] = [
    ('S', 0x8),
    ('i', 0x10),
    ('a', 0x20),
    ('d', 0x40),
    ('A', 0x80),
    ('D', 0x1_0000),
    ('T', 0x2_0000),
    ('P', 0x2000_0000),
    ('F', 0x4000_0000),
];

/// How space is to be given out; none where that stays.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct Hints {
    extent: Option<u32>,
    cow: Option<u32>,
    /// Whether a file lies in the realtime section.
    realtime: Option<bool>,
    /// The same of what is made in a directory.
    inherit: Option<bool>,
}

impl Hints {
    /// The words `extsize=SIZE` and so on, between commas; none where `text` is something else.
    fn parse(text: &str) -> Result<Option<Hints>> {
        let mut hints = Hints::default();
        for word in text.split(',') {
            match word.split_once('=') {
                Some(("extsize", size)) => hints.extent = Some(bytes(word, size)?),
                Some(("cowextsize", size)) => hints.cow = Some(bytes(word, size)?),
                Some(("realtime", value)) => hints.realtime = Some(truth(word, value)?),
                Some(("rtinherit", value)) => hints.inherit = Some(truth(word, value)?),
                _ if hints == Hints::default() => return Ok(None),
                _ => bail!(
                    "{text}: `{word}` is none of extsize=SIZE, cowextsize=SIZE, realtime=0|1 and \
                     rtinherit=0|1"
                ),
            }
        }
        Ok(Some(hints))
    }

    /// What an inode has afterwards, which is a directory or a file.
    fn of(self, old: ExtentHints, directory: bool) -> ExtentHints {
        let realtime = if directory { self.inherit } else { self.realtime };
        ExtentHints {
            extent: self.extent.unwrap_or(old.extent),
            cow: self.cow.unwrap_or(old.cow),
            realtime: realtime.unwrap_or(old.realtime),
        }
    }

    /// Whether one of them concerns directories, or files.
    fn concerns(self, directory: bool) -> bool {
        let section = if directory { self.inherit } else { self.realtime };
        self.extent.is_some() || self.cow.is_some() || section.is_some()
    }
}

fn bytes(word: &str, size: &str) -> Result<u32> {
    let bytes = text::parse_size(size).ok().and_then(|size| u32::try_from(size).ok());
    bytes.with_context(|| format!("{word}: not a size up to 4 GiB"))
}

fn truth(word: &str, value: &str) -> Result<bool> {
    match value {
        "0" => Ok(false),
        "1" => Ok(true),
        _ => bail!("{word}: neither 0 nor 1"),
    }
}

/// What becomes of flags.
fn changed(text: &str, mut flags: u32) -> Result<u32> {
    let mut sign = None;
    for letter in text.chars() {
        if matches!(letter, '+' | '-' | '=') {
            sign = Some(letter);
            if letter == '=' {
                flags &= !LETTERS.iter().fold(0, |all, row| all | row.1);
            }
            continue;
        }
        let bit = LETTERS.iter().find(|row| row.0 == letter).map(|row| row.1);
        match (sign, bit) {
            (None, _) => return Err(anyhow!("{text}: begins with none of +, - and =")),
            (_, None) => {
                return Err(anyhow!("{text}: `{letter}` is none of S, i, a, d, A, D, T, P and F"));
            }
            (Some('-'), Some(bit)) => flags &= !bit,
            (Some(_), Some(bit)) => flags |= bit,
        }
    }
    match sign {
        Some(_) => Ok(flags),
        None => Err(anyhow!("{text}: begins with none of +, - and =")),
    }
}

/// Runs `chattr`.
///
/// # Errors
/// Bad flags. A place that cannot be changed is reported, and the rest follows.
pub fn run(app: &mut App, options: &Options) -> Result<ExitCode> {
    let hints = Hints::parse(&options.flags)?;
    if hints.is_none() {
        changed(&options.flags, 0)?;
    }
    places::each(app, &options.places, true, |app, session, place| {
        let attr = session.find(app, &place.path, true)?;
        let work = &mut |app: &mut App, path: &[u8], attr: &Attr| match hints {
            Some(hints) => set_hints(app, session, hints, path, attr, options.recursive),
            None => change(app, session, options, path, attr),
        };
        trees::each_if(app, session, &place.path, &attr, options.recursive, work)
    })
}

fn change(
    app: &mut App,
    session: &Session,
    options: &Options,
    path: &[u8],
    attr: &Attr,
) -> Result<()> {
    if attr.kind == FileType::Symlink {
        return Ok(());
    }
    let flags = changed(&options.flags, attr.flags)?;
    vfs::permission::may_set_flags(app.cx.cred(), attr, flags).map_err(at(session.place(path)))?;
    session.fs.set_flags(app.cx, attr.ino, flags).map(drop).map_err(at(session.place(path)))
}

fn set_hints(
    app: &mut App,
    session: &Session,
    hints: Hints,
    path: &[u8],
    attr: &Attr,
    recursive: bool,
) -> Result<()> {
    let directory = attr.kind == FileType::Directory;
    if !directory && attr.kind != FileType::Regular {
        return Ok(());
    }
    if !hints.concerns(directory) {
        let place = session.place(path);
        return match (recursive, directory) {
            (true, _) => Ok(()),
            (false, true) => Err(anyhow!("{place}: a directory: it takes rtinherit=1")),
            (false, false) => Err(anyhow!("{place}: a file: it takes realtime=1")),
        };
    }
    let place = || at(session.place(path));
    vfs::permission::may_set_flags(app.cx.cred(), attr, attr.flags).map_err(place())?;
    let old = session.fs.extent_hints(app.cx, attr.ino).map_err(place())?;
    session.fs.set_extent_hints(app.cx, attr.ino, hints.of(old, directory)).map_err(place())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_are_set_taken_and_replaced() {
        assert_eq!(changed("+ia", 0x8).expect("known"), 0x38);
        assert_eq!(changed("-i+d", 0x18).expect("known"), 0x48);
        assert_eq!(changed("=", 0x18).expect("known"), 0);
        assert_eq!(changed("=A", 0x18).expect("known"), 0x80);
        let both = Hints { extent: Some(1 << 20), cow: Some(0), ..Hints::default() };
        assert_eq!(Hints::parse("extsize=1M,cowextsize=0").expect("known"), Some(both));
        let section = Hints { realtime: Some(false), inherit: Some(true), ..Hints::default() };
        assert_eq!(Hints::parse("rtinherit=1,realtime=0").expect("known"), Some(section));
        assert_eq!(Hints::parse("+i").expect("no hint"), None);
        for text in ["extsize=x", "extsize=1,i", "cowextsize=8G", "rtinherit=yes"] {
            assert!(Hints::parse(text).is_err(), "{text}");
        }
        for (text, word) in [("i", "begins"), ("+z", "`z`"), ("", "begins")] {
            assert!(changed(text, 0).expect_err("refused").to_string().contains(word));
        }
    }
}
