//! Packages for Debian and for RPM, and a try of the first in a fresh Debian.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::run;

/// What goes into the packages beside the program.
const FILES: &str = "target/package-files";
const OUT: &str = "target/packages";
const PROGRAM: &str = "target/release/iopath";
/// The program, stripped, has at most so many bytes.
const PROGRAM_MAX: u64 = 15 << 20;

/// Builds both packages.
///
/// # Errors
/// What failed, or what is missing with the command that installs it.
pub fn build() -> Result<()> {
    for tool in ["cargo-deb", "cargo-generate-rpm"] {
        if Command::new(tool).arg("--version").output().is_err() {
            bail!("{tool} is missing; install it with: cargo install {tool}");
        }
    }
    run::cargo(&["build", "--release", "-p", "iopath", "--bin", "iopath"])?;
    files()?;
    std::fs::create_dir_all(OUT)?;
    let deb = ["deb", "-p", "iopath", "--no-build", "--output", OUT];
    run::cargo(&deb)?;
    run::cargo(&["generate-rpm", "-p", "crates/iopath", "-o", OUT])
}

/// Makes what is made from the program: manual pages, completions, links, the stripped program.
fn files() -> Result<()> {
    let _none_yet = std::fs::remove_dir_all(FILES);
    let (man, completions) = (format!("{FILES}/man"), format!("{FILES}/completions"));
    for folder in [&man, &completions, &format!("{FILES}/sbin")] {
        std::fs::create_dir_all(folder)?;
    }
    let stripped = format!("{FILES}/iopath");
    run::program("strip", &["-o", &stripped, PROGRAM]).context("apt-get install -y binutils")?;
    let bytes = std::fs::metadata(&stripped)?.len();
    eprintln!("    the program has {bytes} bytes");
    if bytes > PROGRAM_MAX {
        bail!("{stripped}: {bytes} bytes, more than {PROGRAM_MAX}");
    }
    run::program(&stripped, &["man", &man])?;
    for shell in ["bash", "zsh", "fish"] {
        let output = Command::new(&stripped).args(["completions", shell]).output()?;
        std::fs::write(format!("{completions}/iopath.{shell}"), output.stdout)?;
    }
    for name in ["mount.iopath", "mount.fuse.iopath"] {
        std::os::unix::fs::symlink("../bin/iopath", format!("{FILES}/sbin/{name}"))?;
    }
    Ok(())
}

/// Installs the Debian package in a fresh Debian, uses it there, and removes it.
///
/// # Errors
/// It cannot be installed or used, or leaves something behind.
pub fn try_it() -> Result<()> {
    let deb = std::fs::read_dir(OUT)
        .context("first: cargo xtask package")?
        .filter_map(|entry| Some(entry.ok()?.path()))
        .find(|path| path.extension().is_some_and(|extension| extension == "deb"));
    let deb = deb.context("first: cargo xtask package")?;
    let root = std::env::var("IOPATH_DEBIAN").unwrap_or_else(|_| "target/debian".into());
    if !Path::new(&root).join("usr/bin/dpkg").exists() {
        let made = ["--variant=minbase", "bookworm", &root];
        run::program("debootstrap", &made).context("apt-get install -y debootstrap")?;
    }
    std::fs::copy(&deb, Path::new(&root).join("iopath.deb"))?;
    std::fs::copy("packaging/try.sh", Path::new(&root).join("try.sh"))?;
    let inside = "mount -t proc proc \"$0/proc\"; mount --rbind /dev \"$0/dev\"; \
                  chroot \"$0\" sh -eu /try.sh";
    run::program("unshare", &["--mount", "--", "sh", "-ec", inside, &root])
}
