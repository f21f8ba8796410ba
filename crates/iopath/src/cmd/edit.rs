//! `edit`: an editor on a copy of a file.
//!
//! This process opens no image: two copies of the command read and write it, each in its sandbox.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::{Command, ExitCode};

use anyhow::{Context, Result, bail};
use clap::Args;

use crate::app::App;
use crate::target::{Side, TargetPath};

/// Edit a file inside an image
#[derive(Args)]
#[command(after_help = "\
The editor is $VISUAL or $EDITOR, else vi. Nothing is written where the content stays the same or
the editor fails. The file keeps its inode, owner, mode and attributes. A file that is missing is
made. Should the file not go back, its new content is kept, and the message says where.

Examples:
  iopath edit disk.img:/etc/fstab
  EDITOR='sed -i s/quiet//' iopath edit disk.img@1:/boot/grub/grub.cfg")]
pub struct Options {
    /// TARGET:/path
    #[arg(value_name = "PLACE")]
    place: OsString,
}

/// Runs `edit`.
///
/// # Errors
/// The file cannot be read or written back; the editor fails.
pub fn run(app: &mut App, options: &Options) -> Result<ExitCode> {
    let Side::Image(target) = Side::parse(&options.place, false, true)? else {
        bail!("{}: is no place in an image: TARGET:/path", options.place.display());
    };
    let name = name_of(&target)?;
    let folder = tempfile::Builder::new().prefix("iopath-edit-").tempdir();
    let folder = folder.context("a folder for the copy")?;
    // With the name of the file, by which editors know its kind.
    let copy = folder.path().join(name);
    let place = &options.place;
    let ours = |words: &[&str], arguments: &[&OsStr]| ours(place, words, arguments);
    let exists = ours(&["stat"], &[place]).output().context("iopath stat")?;
    let missing = String::from_utf8_lossy(&exists.stderr).contains("ENOENT");
    match (exists.status.success(), missing) {
        (true, _) => succeed(ours(&["cp"], &[place, copy.as_os_str()]))?,
        (false, true) => {}
        (false, false) => bail!("{}", without_name(&exists.stderr)),
    }
    let before = content(&copy)?;
    edit(&copy)?;
    let after = content(&copy)?;
    if after == before {
        app.out.note(format!("iopath: {}: nothing has changed", place.display()));
        return Ok(ExitCode::SUCCESS);
    }
    if after.is_none() {
        bail!("{}: the editor removed its copy; the file stays", place.display());
    }
    if let Err(error) = succeed(ours(&["cp"], &[copy.as_os_str(), place])) {
        let kept = folder.keep().join(copy.file_name().unwrap_or_default());
        bail!("{error}; the new content is kept in {}", kept.display());
    }
    Ok(ExitCode::SUCCESS)
}

fn name_of(place: &TargetPath) -> Result<OsString> {
    match place.path.rsplit(|&byte| byte == b'/').next() {
        None | Some(b"" | b"." | b"..") => bail!("{place}: is no file"),
        Some(name) => Ok(OsStr::from_bytes(name).to_owned()),
    }
}

/// The content of the copy, where there is one.
fn content(copy: &Path) -> Result<Option<Vec<u8>>> {
    match fs::read(copy) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        read => read.map(Some).with_context(|| copy.display().to_string()),
    }
}

/// This command again: with its options, which are all but the word `edit` and the place, for these
/// words and arguments.
fn ours(place: &OsStr, words: &[&str], arguments: &[&OsStr]) -> Command {
    let program = std::env::current_exe().unwrap_or_else(|_| "iopath".into());
    let mut command = Command::new(program);
    let mut options: Vec<OsString> = std::env::args_os().skip(1).collect();
    if let Some(at) = options.iter().rposition(|word| word == place) {
        options.remove(at);
    }
    if let Some(at) = options.iter().position(|word| word == "edit") {
        options.remove(at);
    }
    command.args(options).args(["--quiet", "--no-glob"]).args(words).args(arguments);
    command
}

fn succeed(mut command: Command) -> Result<()> {
    let output = command.output().context("cannot start iopath")?;
    if !output.status.success() {
        bail!("{}", without_name(&output.stderr));
    }
    Ok(())
}

/// A message of ours, without the name in front.
fn without_name(message: &[u8]) -> String {
    let text = String::from_utf8_lossy(message);
    text.trim().strip_prefix("iopath: ").unwrap_or(text.trim()).to_owned()
}

fn edit(copy: &Path) -> Result<()> {
    let named = ["VISUAL", "EDITOR"].iter().filter_map(std::env::var_os);
    let editor = named.into_iter().find(|words| !words.is_empty()).unwrap_or("vi".into());
    // As other programs do: the variable may hold options.
    let mut script = editor.clone();
    script.push(" \"$1\"");
    let status = Command::new("sh").arg("-c").arg(script).arg("sh").arg(copy).status();
    let status = status.with_context(|| editor.display().to_string())?;
    if !status.success() {
        bail!("{}: {status}; nothing was written", editor.display());
    }
    Ok(())
}
