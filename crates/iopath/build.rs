//! The commit that the program is built from: the lab's records name it.

use std::process::Command;

fn git(args: &[&str]) -> Option<String> {
    let output = Command::new("git").args(args).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    output.status.success().then(|| text.trim().to_owned())
}

fn main() {
    // `git describe` in a checkout; nothing in a source archive.
    let commit = git(&["describe", "--always", "--dirty", "--abbrev=12", "--exclude", "*"]);
    println!("cargo:rustc-env=IOPATH_COMMIT={}", commit.unwrap_or_default());
    for path in ["HEAD", "index"] {
        if let Some(path) = git(&["rev-parse", "--git-path", path]) {
            println!("cargo:rerun-if-changed={path}");
        }
    }
    println!("cargo:rerun-if-changed=../../crates");
}
