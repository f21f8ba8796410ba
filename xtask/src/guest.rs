//! A guest with the kernel of Debian's newest suite, or of the one that this machine has, under
//! QEMU without KVM: it judges what the kernel of this machine lacks.
//!
//! The guest is a kernel and one file system in memory, with busybox and the newest tools. It is
//! made once, beside the folder of the newest tools; a run takes some 15 seconds.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

use crate::{judges, newest, run};

const MAKE: &str = "xtask/src/guest/make.sh";
const INIT: &str = "xtask/src/guest/init";
/// Program, Debian package.
const NEEDED: &[(&str, &str)] = &[("qemu-system-x86_64", "qemu-system-x86"), ("cpio", "cpio")];
/// Seconds after which a guest is ended.
const LIMIT: &str = "900";
const MEMORY_MIB: &str = "1024";

/// Whose kernel a guest has. The tools are the newest ones always.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Kernel {
    Newest,
    /// Of the suite of this machine: 6.1 in Debian 12.
    Stable,
}

/// Runs a script as root in the guest; the disks are `/dev/vda`, `/dev/vdb` and so on there. Paths
/// are from the folder in which cargo was called.
///
/// # Errors
/// The guest cannot be made or started, or the script ended with another status than 0.
pub fn run(from: &Path, kernel: Kernel, script: &str, disks: &[&str]) -> Result<()> {
    let guest = make(kernel)?;
    let work = tempfile::tempdir_in(&guest)?;
    let files = files(&guest, INIT.as_ref(), Some(&from.join(script)), work.path())?;
    let mut command = machine(&guest, &files, "rdinit=/init");
    for disk in disks {
        let disk = from.join(disk);
        let path = run::text(&disk)?.replace(',', ",,");
        command.args(["-drive", &format!("file={path},format=raw,if=virtio,cache=unsafe")]);
    }
    let output = command.stdin(Stdio::null()).stderr(Stdio::inherit()).output()?;
    let text = String::from_utf8_lossy(&output.stdout).replace('\r', "");
    // What the firmware says comes before.
    let said = text.find("GUEST ").map_or("", |start| &text[start..]);
    print!("{said}");
    match said.lines().find_map(|line| line.strip_prefix("GUEST ENDED ")) {
        Some("0") => Ok(()),
        Some(status) => bail!("the script ended with status {status}"),
        None => bail!("the guest did not end ({}): {text}", output.status),
    }
}

/// A machine with the guest's kernel, a first file system, and further words for the kernel.
pub fn machine(guest: &Path, files: &Path, words: &str) -> Command {
    let mut command = Command::new("timeout");
    command.args([LIMIT, "qemu-system-x86_64", "-M", "q35", "-accel", "tcg", "-cpu", "max"]);
    command.args(["-m", MEMORY_MIB, "-nographic", "-no-reboot"]);
    command.arg("-kernel").arg(guest.join("vmlinuz")).arg("-initrd").arg(files);
    command.args(["-append", &format!("console=ttyS0 quiet loglevel=3 panic=1 {words}")]);
    command
}

/// The folder of the guest, which is made where it is not there.
///
/// # Errors
/// What is missing, with the command that installs it.
pub fn make(kernel: Kernel) -> Result<PathBuf> {
    newest::require()?;
    let (name, kernels) = match kernel {
        Kernel::Newest => ("guest", newest::folder()),
        Kernel::Stable => ("guest-stable", PathBuf::from("/")),
    };
    let guest = newest::folder().with_file_name(name);
    judges::require_these(NEEDED)?;
    if guest.join("root/bin/busybox").exists() {
        return Ok(guest);
    }
    if !judges::is_root() {
        bail!("{}: no guest there; as root: cargo xtask guest", guest.display());
    }
    // Under another name first, so that a run that was cut leaves none.
    let new = guest.with_extension("new");
    if new.exists() {
        std::fs::remove_dir_all(&new)?;
    }
    std::fs::create_dir_all(&new)?;
    eprintln!("    making a guest in {}", guest.display());
    let newest = newest::folder();
    run::program("sh", &[MAKE, run::text(&newest)?, run::text(&new)?, run::text(&kernels)?])?;
    std::fs::rename(&new, &guest)?;
    Ok(guest)
}

/// The guest's first file system, its first program and a script for that: an archive in `work`.
///
/// # Errors
/// The host's.
pub fn files(guest: &Path, init: &Path, script: Option<&Path>, work: &Path) -> Result<PathBuf> {
    let root = work.join("root");
    if root.exists() {
        std::fs::remove_dir_all(&root)?;
    }
    run::program("cp", &["-al", run::text(&guest.join("root"))?, run::text(&root)?])?;
    if let Some(script) = script {
        std::fs::copy(script, root.join("job")).with_context(|| script.display().to_string())?;
    }
    std::fs::copy(init, root.join("init"))?;
    let archive = work.join("files");
    let words = "chmod +x init && find . | cpio -o -H newc --quiet > \"$0\"";
    let status = Command::new("sh").args(["-c", words]).arg(&archive).current_dir(&root).status();
    if !status.context("cannot start `sh`")?.success() {
        bail!("the files of the guest cannot be packed");
    }
    Ok(archive)
}
