//! A Debian that our builder has put into an image boots under QEMU, to the question for a name.

use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use anyhow::{Context, Result, bail};

use crate::guest::{self, Kernel};
use crate::run;

/// The suite, and what makes of a minimal one a system that begins by itself.
const SUITE: &str = "stable";
const INCLUDE: &str = "--include=sysvinit-core,util-linux";
/// A question for a name on the serial line.
const CONSOLE: &str = "T0:23:respawn:/sbin/getty -L ttyS0 115200 vt100\n";

/// Builds an image of each format from a Debian, and boots it. As root, with network at first.
///
/// # Errors
/// What is missing; the machine's own words, where it did not come to the question.
pub fn boot() -> Result<()> {
    let guest = guest::make(Kernel::Newest)?;
    let debian = debian(&guest)?;
    run::cargo(&["build", "--workspace", "--bin", "iopath"])?;
    let work = tempfile::tempdir_in(&guest)?;
    for format in ["ext4", "xfs"] {
        let disk = work.path().join(format);
        let words = ["mkfs", "-q", "-t", format, "-d", run::text(&debian)?, run::text(&disk)?];
        run::step(&format!("build {format}"), || run::program("target/debug/iopath", &words))?;
        run::step(&format!("boot {format}"), || start(&guest, work.path(), &disk, format))?;
    }
    Ok(())
}

/// The tree of a Debian beside the guest, which is made where it is not there.
fn debian(guest: &Path) -> Result<PathBuf> {
    let (tree, new) = (guest.with_file_name("debian"), guest.with_file_name("debian.new"));
    if tree.exists() {
        return Ok(tree);
    }
    if new.exists() {
        std::fs::remove_dir_all(&new)?;
    }
    run::program("debootstrap", &["--variant=minbase", INCLUDE, SUITE, run::text(&new)?])?;
    let table = new.join("etc/inittab");
    let lines = std::fs::read_to_string(&table).with_context(|| table.display().to_string())?;
    std::fs::write(&table, lines + CONSOLE)?;
    std::fs::rename(&new, &tree)?;
    Ok(tree)
}

/// Starts the machine, and ends it when it asks for a name.
fn start(guest: &Path, work: &Path, disk: &Path, format: &str) -> Result<()> {
    let files = guest::files(guest, "xtask/src/guest/boot".as_ref(), None, work)?;
    let mut command = guest::machine(guest, &files, &format!("rdinit=/init rootfstype={format}"));
    let drive = format!("file={},format=raw,if=virtio,cache=unsafe", run::text(disk)?);
    command.args(["-drive", &drive]).stdin(Stdio::null()).stdout(Stdio::piped());
    let mut machine = command.spawn().context("cannot start QEMU")?;
    let mut screen = machine.stdout.take().context("a pipe")?;
    let (mut shown, mut piece) = (Vec::new(), [0; 4096]);
    let asks = |shown: &[u8]| shown.windows(7).any(|words| words == b"login: ");
    while !asks(&shown) {
        match screen.read(&mut piece)? {
            0 => break,
            count => shown.extend_from_slice(&piece[..count]),
        }
    }
    let _ended_already = machine.kill();
    machine.wait()?;
    if !asks(&shown) {
        bail!("it did not boot: {}", String::from_utf8_lossy(&shown));
    }
    Ok(())
}
