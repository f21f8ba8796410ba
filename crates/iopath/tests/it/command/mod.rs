//! Runs the built command.

use std::path::Path;
use std::process::{Child, Command, Output, Stdio};

/// A process that ends with the test.
pub struct Running(pub Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _gone_already = self.0.kill();
        let _status = self.0.wait();
    }
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
