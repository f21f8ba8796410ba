//! The judges of today: xfsprogs and e2fsprogs of Debian's newest suite, in a folder of their own.
//!
//! `cargo xtask judges --newest` makes the folder, `IOPATH_NEWEST` names another one. The tools run
//! with the folder's own loader and libraries, so that neither root nor a chroot is needed, and
//! every path means what it means outside.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// The folder where nothing else is said.
pub const FOLDER: &str = "/var/cache/iopath/newest";
/// The loader in it.
const LOADER: &str = "lib64/ld-linux-x86-64.so.2";
/// Where its libraries are.
const LIBRARIES: [&str; 2] = ["usr/lib/x86_64-linux-gnu", "lib/x86_64-linux-gnu"];

/// The folder with the newest tools.
pub fn folder() -> PathBuf {
    std::env::var_os("IOPATH_NEWEST").map_or_else(|| FOLDER.into(), PathBuf::from)
}

/// A command that runs one of the newest tools.
///
/// # Panics
/// If the folder does not hold it; the message says how to make the folder.
pub fn command(program: &str) -> Command {
    let folder = folder();
    let tool = folder.join("usr/sbin").join(program);
    let there = tool.exists();
    assert!(
        there,
        "{}: no such tool; install it with: cargo xtask judges --newest",
        tool.display()
    );
    let libraries = LIBRARIES.map(|path| folder.join(path).display().to_string()).join(":");
    let mut command = Command::new(folder.join(LOADER));
    command.arg("--library-path").arg(libraries).arg(tool).env("LC_ALL", "C");
    command
}

/// Runs one of the newest tools, whatever its exit status.
///
/// # Panics
/// As [`command`].
pub fn run(program: &str, args: &[&dyn AsRef<std::ffi::OsStr>]) -> Output {
    let mut command = command(program);
    command.args(args.iter().map(|arg| arg.as_ref()));
    command.output().unwrap_or_else(|error| panic!("{program}: {error}"))
}

/// Runs one of the newest tools, which must succeed; returns its standard output.
///
/// # Panics
/// With all that it printed, if it does not.
pub fn run_ok(program: &str, args: &[&dyn AsRef<std::ffi::OsStr>]) -> String {
    let output = run(program, args);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{program}: {}\n{text}{error}", output.status);
    text
}

/// Asks the newest `xfs_repair -n` about an image file; it changes nothing.
///
/// # Errors
/// All that xfs_repair printed, unless it exits with 0.
pub fn xfs_repair(image: &Path) -> Result<(), String> {
    // Its threads that read ahead cost more than they save on images of tests.
    opinion("xfs_repair", "-nP", image)
}

/// Asks the newest `e2fsck -fn` about an image file; it changes nothing.
///
/// # Errors
/// All that e2fsck printed, unless it exits with 0.
pub fn e2fsck(image: &Path) -> Result<(), String> {
    opinion("e2fsck", "-fn", image)
}

fn opinion(program: &str, flags: &str, image: &Path) -> Result<(), String> {
    let output = run(program, &[&flags, &image]);
    if output.status.success() {
        return Ok(());
    }
    let (out, err) = (&output.stdout, &output.stderr);
    let (out, err) = (String::from_utf8_lossy(out), String::from_utf8_lossy(err));
    let image = image.display();
    Err(format!("newest {program} {flags} {image}: {}\n{out}{err}", output.status))
}

/// Makes a file system with the newest `mkfs.xfs`.
///
/// # Panics
/// If it refuses.
pub fn mkfs_xfs(image: &Path, size: u64, args: &[&str]) {
    let file = std::fs::File::create(image).expect("the image can be created");
    file.set_len(size).expect("the image takes its size");
    let mut all: Vec<&dyn AsRef<std::ffi::OsStr>> = vec![&"-q", &"-f"];
    all.extend(args.iter().map(|arg| arg as &dyn AsRef<std::ffi::OsStr>));
    all.push(&image);
    run_ok("mkfs.xfs", &all);
}
