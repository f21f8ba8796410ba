//! Commands that users name: they run in a directory of ours, and are found from the user's.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use rustix::fs::{Access, access};
use xxhash_rust::xxh3::Xxh3;

/// The words of a command with its program as an absolute path: a relative one is looked for where
/// the user is, a bare name in `$PATH`.
///
/// # Errors
/// There is no such program, or it may not be executed; the interpreter that a script names is
/// missing.
pub fn resolved(words: &[OsString]) -> Result<Vec<OsString>> {
    let Some(first) = words.first() else { return Ok(Vec::new()) };
    let name = first.display();
    let usable = |path: &Path| path.is_file() && access(path, Access::EXEC_OK).is_ok();
    let program: PathBuf = if first.as_encoded_bytes().contains(&b'/') {
        let path = std::path::absolute(first)?;
        match (path.exists(), usable(&path)) {
            (_, true) => path,
            (false, _) => bail!("{name}: there is no such program"),
            (true, _) => bail!("{name}: it is no program that may be executed (chmod +x)"),
        }
    } else {
        let folders = std::env::var_os("PATH").unwrap_or_default();
        let found =
            std::env::split_paths(&folders).map(|folder| folder.join(first)).find(|p| usable(p));
        match found {
            Some(path) => std::path::absolute(path)?,
            None => bail!("{name}: no such program in $PATH (one in this directory is ./{name})"),
        }
    };
    if let Some(missing) = missing_interpreter(&program) {
        bail!("{name}: its first line names {}: there is no such program", missing.display());
    }
    Ok(std::iter::once(program.into()).chain(words[1..].iter().cloned()).collect())
}

/// A hash of what a command runs that may change below its name: its program, unless that is one of
/// `$PATH`, and the script that is its first argument with an absolute path; `none` without either.
///
/// # Errors
/// It cannot be read.
pub fn content(command: &[OsString]) -> Result<String> {
    let Some((program, arguments)) = command.split_first() else { return Ok("none".to_owned()) };
    let folder = Path::new(program).parent();
    let folders = std::env::var_os("PATH").unwrap_or_default();
    let of_the_host = std::env::split_paths(&folders).any(|path| Some(&*path) == folder);
    let is_script = |word: &&OsString| Path::new(word).is_absolute() && Path::new(word).is_file();
    let own = (!of_the_host).then_some(program);
    let files: Vec<_> = own.into_iter().chain(arguments.iter().find(is_script)).collect();
    if files.is_empty() {
        return Ok("none".to_owned());
    }
    let mut hash = Xxh3::new();
    for path in files {
        let mut file = File::open(path).with_context(|| path.display().to_string())?;
        let mut part = vec![0; 64 << 10];
        loop {
            match file.read(&mut part).with_context(|| path.display().to_string())? {
                0 => break,
                len => hash.update(&part[..len]),
            }
        }
    }
    Ok(format!("{:016x}", hash.digest()))
}

/// Bytes of a script in which Linux looks for its interpreter.
const HEAD: u64 = 256;

/// The interpreter that the first line of a script names, where there is none at that path.
fn missing_interpreter(program: &Path) -> Option<PathBuf> {
    let mut head = Vec::new();
    // Who may execute a program need not be able to read it.
    File::open(program).ok()?.take(HEAD).read_to_end(&mut head).ok()?;
    let line = head.strip_prefix(b"#!")?.split(|byte| *byte == b'\n').next()?;
    let mut words = line.split(|byte| matches!(byte, b' ' | b'\t')).filter(|word| !word.is_empty());
    let interpreter = PathBuf::from(OsStr::from_bytes(words.next()?));
    // A name that the head does not hold whole is not judged.
    (line.len() + 2 < head.len() && interpreter.is_absolute() && !interpreter.exists())
        .then_some(interpreter)
}
