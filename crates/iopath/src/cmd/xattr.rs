//! `xattr`: extended attributes.

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::process::ExitCode;

use anyhow::{Context, Result};
use base::Ino;
use clap::{Args, Subcommand};
use serde_json::json;
use vfs::XattrFlags;

use crate::app::{App, at};
use crate::session::{self, Session};
use crate::target::TargetPath;
use crate::text;

/// List, read, set and remove extended attributes inside an image
#[derive(Args)]
#[command(after_help = "Examples:
  iopath xattr list disk.img:/bin/ping
  iopath xattr get disk.img:/srv/a user.origin
  iopath xattr set disk.img:/srv/a user.origin here
  iopath xattr set --hex disk.img:/srv/a user.raw 00ff
  iopath xattr rm disk.img:/srv/a user.origin")]
pub struct Options {
    #[command(subcommand)]
    action: Action,
}

#[derive(Subcommand)]
enum Action {
    /// Names and values
    List {
        /// TARGET:/path
        place: OsString,
    },
    /// One value, as it is
    Get {
        /// TARGET:/path
        place: OsString,
        /// Name with its prefix, e.g. user.origin
        name: OsString,
        /// Print values in hexadecimal
        #[arg(long)]
        hex: bool,
    },
    /// Set a value
    Set {
        /// TARGET:/path
        place: OsString,
        /// Name with its prefix
        name: OsString,
        /// The value
        value: OsString,
        /// The value is hexadecimal
        #[arg(long)]
        hex: bool,
        /// Fail if it exists
        #[arg(long)]
        create: bool,
        /// Fail if it does not exist
        #[arg(long, conflicts_with = "create")]
        replace: bool,
    },
    /// Remove one
    Rm {
        /// TARGET:/path
        place: OsString,
        /// Name with its prefix
        name: OsString,
    },
}

/// Runs `xattr`. Symlinks are not followed.
///
/// # Errors
/// A place or attribute that cannot be read or changed.
pub fn run(app: &mut App, options: &Options) -> Result<ExitCode> {
    let (place, write) = match &options.action {
        Action::List { place } | Action::Get { place, .. } => (place, false),
        Action::Set { place, .. } | Action::Rm { place, .. } => (place, true),
    };
    let place = TargetPath::parse(place)?;
    session::with_place(app, &place, write, |app, session| {
        let ino = session.find(app, &place.path, false)?.ino;
        act(app, session, &place, ino, &options.action)
    })?;
    Ok(ExitCode::SUCCESS)
}

fn act(
    app: &mut App,
    session: &Session,
    place: &TargetPath,
    ino: Ino,
    action: &Action,
) -> Result<()> {
    let named = |name: &OsString| format!("{place}: {}", name.display());
    match action {
        Action::List { .. } => {
            let mut names = session.fs.listxattr(app.cx, ino).map_err(at(place))?;
            names.sort();
            for name in names {
                let value = session.fs.getxattr(app.cx, ino, &name).map_err(at(place))?;
                if app.out.json {
                    let name = text::escape(&name);
                    app.out.document(&json!({ "name": name, "value": text::hex(&value) }))?;
                } else {
                    let (name, value) = (text::printable(&name), text::printable(&value));
                    app.out.line(format!("{name}=\"{value}\""))?;
                }
            }
            Ok(())
        }
        Action::Get { name, hex, .. } => {
            let value = session.fs.getxattr(app.cx, ino, name.as_bytes());
            let value = value.map_err(at(named(name)))?;
            if app.out.json {
                let name = text::escape(name.as_bytes());
                app.out.document(&json!({ "name": name, "value": text::hex(&value) }))?;
            } else if *hex {
                app.out.line(text::hex(&value))?;
            } else {
                app.out.bytes(&value)?;
            }
            Ok(())
        }
        Action::Set { name, value, hex, create, replace, .. } => {
            let value = match hex {
                true => from_hex(value.as_bytes())
                    .with_context(|| format!("`{}` is not hexadecimal", value.display()))?,
                false => value.as_bytes().to_vec(),
            };
            let mut flags = XattrFlags::empty();
            flags.set(XattrFlags::CREATE, *create);
            flags.set(XattrFlags::REPLACE, *replace);
            let set = session.fs.setxattr(app.cx, ino, name.as_bytes(), &value, flags);
            set.map_err(at(named(name)))
        }
        Action::Rm { name, .. } => {
            session.fs.removexattr(app.cx, ino, name.as_bytes()).map_err(at(named(name)))
        }
    }
}

fn from_hex(text: &[u8]) -> Option<Vec<u8>> {
    let text = text.strip_prefix(b"0x").unwrap_or(text);
    let digit = |byte: u8| char::from(byte).to_digit(16);
    let pair = |pair: &[u8]| Some((digit(pair[0])? << 4 | digit(*pair.get(1)?)?) as u8);
    text.chunks(2).map(pair).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hexadecimal_values_are_whole_bytes() {
        assert_eq!(from_hex(b"00fF"), Some(vec![0, 255]));
        assert_eq!(from_hex(b"0x1f"), Some(vec![31]));
        assert_eq!(from_hex(b"0"), None);
        assert_eq!(from_hex(b"zz"), None);
    }
}
