//! What the sandbox costs: commands with it and without, one after the other.
//!
//! Other work on the machine adds to processor time and never takes from it, so the least of many
//! runs is compared.

use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result, bail};

use crate::marked::Marked;
use crate::run;

const TABLE: Marked =
    Marked { page: "docs/sandbox.md", marks: ["<!-- sandbox -->", "<!-- end of sandbox -->"] };
/// Pairs of runs.
const PAIRS: usize = 15;
/// Files of the tree, and bytes of each on average.
const FILES: usize = 20_000;
const BYTES: usize = 16 << 10;
/// Where the tree and the images are: in memory.
const SCRATCH: &str = "/dev/shm";

/// Commands in a folder with `tree`, `a.img` that holds it, and room for `out`.
const WORK: &[(&str, &str)] = &[
    ("start and end: `info`", "info a.img"),
    ("`manifest`", "manifest a.img:/"),
    ("`cp -a` to the host", "cp -a a.img:/tree out"),
    ("`cp -a` into an image", "cp -a tree b.img:/out"),
];

/// Measures, and writes the table. `IOPATH_BIN` names a program that is built already.
///
/// # Errors
/// A command fails.
pub fn write() -> Result<()> {
    let program = match std::env::var_os("IOPATH_BIN") {
        Some(binary) => PathBuf::from(binary).canonicalize()?,
        None => {
            run::cargo(&["build", "--release", "--quiet"])?;
            run::root().join("target/release/iopath")
        }
    };
    let folder = Path::new(SCRATCH).join(format!("iopath-sandbox-{}", std::process::id()));
    std::fs::create_dir_all(folder.join("tree"))?;
    let table = prepare(&program, &folder).and_then(|()| measure(&program, &folder));
    std::fs::remove_dir_all(&folder)?;
    TABLE.replace(&table?)
}

fn prepare(program: &Path, folder: &Path) -> Result<()> {
    for file in 0..FILES {
        let parent = folder.join(format!("tree/{}", file / 100));
        std::fs::create_dir_all(&parent)?;
        std::fs::write(parent.join(file.to_string()), vec![file as u8; file % (2 * BYTES)])?;
    }
    for image in ["a.img", "empty.img"] {
        iopath(program, folder, &format!("mkfs -q -t ext4 --size 1G {image}"))?;
    }
    iopath(program, folder, "cp -a tree a.img:/")?;
    std::fs::create_dir_all(folder.join("mnt")).context("a directory to mount on")
}

fn iopath(program: &Path, folder: &Path, line: &str) -> Result<()> {
    match Command::new(program).args(line.split(' ')).current_dir(folder).status()?.success() {
        true => Ok(()),
        false => bail!("iopath {line} failed"),
    }
}

/// Starts the program; bash reports its processor time.
fn start(program: &Path, folder: &Path, line: &str) -> Result<Child> {
    let script = "TIMEFORMAT='%3U %3S'; time \"$0\" \"$@\" >/dev/null";
    let mut command = Command::new("bash");
    command.args(["-c", script]).arg(program).args(line.split(' ')).current_dir(folder);
    Ok(command.stderr(Stdio::piped()).spawn()?)
}

/// Seconds of processors that the program has used.
fn used(child: Child) -> Result<f64> {
    let output = child.wait_with_output()?;
    let said = String::from_utf8_lossy(&output.stderr);
    if !output.status.success() {
        bail!("it failed: {said}");
    }
    let times = said.lines().last().context("bash reports the time")?;
    Ok(times.split(' ').map(str::parse::<f64>).sum::<Result<f64, _>>()?)
}

fn measure(program: &Path, folder: &Path) -> Result<String> {
    let mut table =
        "| command | with it | without | ratio |\n| --- | --- | --- | --- |\n".to_owned();
    let mut row = |name: &str, work: &dyn Fn(&str) -> Result<f64>| -> Result<()> {
        let mut seconds = [Vec::new(), Vec::new()];
        for pair in 0..PAIRS {
            // In turns first and second.
            for turn in [pair % 2, 1 - pair % 2] {
                seconds[turn].push(work(["", "--no-sandbox "][turn])?);
            }
        }
        let least = |seconds: Vec<f64>| seconds.into_iter().fold(f64::MAX, f64::min);
        let [with, without] = seconds.map(least);
        let ratio = with / without;
        Ok(writeln!(table, "| {name} | {with:.3} s | {without:.3} s | {ratio:.3} |")?)
    };
    for (name, line) in WORK {
        row(name, &|option| {
            afresh(folder)?;
            used(start(program, folder, &format!("{option}{line}"))?)
        })?;
    }
    row("`mount`, and `tar` of all", &|option| {
        let mut mount = start(program, folder, &format!("{option}mount -f -o ro a.img mnt"))?;
        wait_for(&mut mount, &folder.join("mnt"))?;
        let mut read = Command::new("sh");
        read.args(["-c", "tar -c . | cat >/dev/null"]).current_dir(folder.join("mnt"));
        let read = read.status()?;
        run::program("umount", &[run::text(&folder.join("mnt"))?])?;
        match read.success() {
            true => used(mount),
            false => bail!("tar failed"),
        }
    })?;
    Ok(table)
}

/// What a command left is gone.
fn afresh(folder: &Path) -> Result<()> {
    let out = folder.join("out");
    if out.exists() {
        std::fs::remove_dir_all(out)?;
    }
    std::fs::copy(folder.join("empty.img"), folder.join("b.img"))?;
    Ok(())
}

/// Waits until something is mounted there.
#[allow(clippy::disallowed_methods, reason = "the program runs in real time")]
fn wait_for(mount: &mut Child, place: &Path) -> Result<()> {
    let place = place.display().to_string();
    while !std::fs::read_to_string("/proc/mounts")?.contains(&format!(" {place} ")) {
        if let Some(status) = mount.try_wait()? {
            bail!("the mount ended: {status}");
        }
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    Ok(())
}
