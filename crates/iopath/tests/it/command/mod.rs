//! Runs the built command.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

/// A process that ends with the test.
pub struct Running(pub Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _gone_already = self.0.kill();
        let _status = self.0.wait();
    }
}

/// A target that a process in the foreground has mounted, until the end of the test. Then the
/// process is waited for: umount(8) returns before it has written all.
pub struct Mounted {
    /// Where it is mounted.
    pub dir: PathBuf,
    child: Child,
}

impl Mounted {
    /// Mounts `target` at `dir`, which is there, with these options.
    #[track_caller]
    #[allow(clippy::disallowed_methods, reason = "the process runs in real time")]
    pub fn new(options: &[&str], target: impl AsRef<OsStr>, dir: PathBuf) -> Mounted {
        let mut mount = Command::new(env!("CARGO_BIN_EXE_iopath"));
        mount.args(["mount", "-f"]).args(options).arg(target).arg(&dir).stdin(Stdio::null());
        let child = mount.spawn().expect("the command starts");
        let mut mounted = Mounted { dir, child };
        while !is_mounted(&mounted.dir) {
            let ended = mounted.child.try_wait().expect("a process");
            assert_eq!(ended, None, "{mount:?} ended");
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
        mounted
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        // Who still uses it for a moment is waited for, too.
        let _down_already = Command::new("umount").arg("-l").arg(&self.dir).status();
        let _status = self.child.wait();
    }
}

/// Whether something is mounted on `dir`, by the kernel's table.
pub fn is_mounted(dir: &Path) -> bool {
    let table = fs::read_to_string("/proc/self/mounts").expect("the kernel has a mount table");
    let dir = dir.display().to_string();
    table.lines().any(|line| line.split(' ').nth(1) == Some(&dir))
}

/// Runs a script of bash in a directory, where `iopath` is the command.
pub fn bash_in(directory: &Path, script: &str) -> Output {
    let script = format!("iopath() {{ {} \"$@\"; }}\n{script}", env!("CARGO_BIN_EXE_iopath"));
    let mut bash = Command::new("bash");
    bash.args(["-c", &script]).current_dir(directory).output().expect("bash starts")
}

/// Runs the command with these arguments.
pub fn iopath(args: &[&str]) -> Output {
    run(Path::new("."), args)
}

/// Runs the command in a directory, with the words of `line`.
pub fn iopath_in(directory: &Path, line: &str) -> Output {
    run(directory, &line.split_whitespace().collect::<Vec<_>>())
}

fn run(directory: &Path, args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_iopath"))
        .args(args)
        .current_dir(directory)
        .stdin(Stdio::null())
        .output()
        .expect("the command starts")
}

/// Runs the command, which must succeed; answers its standard output.
#[track_caller]
pub fn ok(args: &[&str]) -> String {
    succeeded(iopath(args), &args.join(" "))
}

/// As [`ok`], in a directory, with the words of `line`.
#[track_caller]
pub fn ok_in(directory: &Path, line: &str) -> String {
    succeeded(iopath_in(directory, line), line)
}

#[track_caller]
fn succeeded(output: Output, what: &str) -> String {
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "iopath {what}: {}: {error}", output.status);
    String::from_utf8(output.stdout).expect("the output is text")
}
