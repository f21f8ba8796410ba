//! A guest whose kernel has what that of this machine lacks.
//!
//! `IOPATH_GUEST` holds a command that runs a script as root in a guest: it is called with the
//! script and the images of the disks, which are `/dev/vda`, `/dev/vdb` and so on there, and prints
//! what the script prints. Without it nothing is judged.

use std::path::PathBuf;
use std::process::Command;

/// Runs `script` in a guest with these disks, and returns what it printed; `None` where there is no
/// guest.
///
/// # Panics
/// The command does not run.
pub fn run(script: &str, disks: &[PathBuf]) -> Option<String> {
    run_with(&[], script, disks)
}

/// The same in a guest with the kernel of this machine's Debian: the command is called with the
/// word `--stable` before the others.
///
/// # Panics
/// The command does not run.
pub fn run_stable(script: &str, disks: &[PathBuf]) -> Option<String> {
    run_with(&["--stable"], script, disks)
}

fn run_with(before: &[&str], script: &str, disks: &[PathBuf]) -> Option<String> {
    let guest = std::env::var("IOPATH_GUEST").ok()?;
    let job = tempfile::NamedTempFile::new().expect("a temporary file");
    std::fs::write(job.path(), script).expect("written");
    let mut words = guest.split_whitespace();
    let mut command = Command::new(words.next().expect("a program"));
    let output = command.args(words).args(before).arg(job.path()).args(disks).output();
    Some(String::from_utf8_lossy(&output.expect("the guest runs").stdout).into_owned())
}

/// Is there a guest?
pub fn is_there() -> bool {
    std::env::var_os("IOPATH_GUEST").is_some()
}
