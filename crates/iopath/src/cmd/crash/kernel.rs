//! Recording below the kernel's file systems: a loop device on a file that is a recorded disk.

use std::fs::File;
use std::path::Path;
use std::process::{Command, ExitStatus};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use anyhow::{Context, Result, anyhow};
use block::{Queue, QueueConfig};
use crash::disk_file::{DiskFile, NAME};
use crash::host;
use crash::{Kind, Recorder};
use device::FaultDevice;
use fuse::Mount;
use rt::Cx;

use super::directory::{Scratch, unmount_below};
use super::fault;
use super::marks::Marks;
use super::orphans::Adopting;
use super::record::{Made, Run};

/// Makes a file system with the host's mkfs in a new file.
///
/// # Errors
/// What mkfs says.
pub fn mkfs(made: &Made, path: &Path, size: u64) -> Result<()> {
    let shown = || path.display().to_string();
    File::create_new(path).and_then(|file| file.set_len(size)).with_context(shown)?;
    let program = format!("mkfs.{}", made.name);
    let flags: &[&str] = match made.kind {
        Kind::Ext4 => &["-q", "-F"],
        Kind::Xfs => &["-q", "-f"],
        Kind::Foreign(foreign) => foreign.mkfs_flags(),
    };
    host::run(Command::new(program).args(flags).arg(path)).map_err(|error| anyhow!(error))
}

/// Runs the command on the kernel's file system on the recorded disk.
///
/// # Errors
/// It cannot be mounted; the command cannot be started.
pub fn record(
    cx: &mut Cx,
    recorder: &Arc<Recorder>,
    kind: Kind,
    scratch: &Scratch,
    run: &Run<'_>,
) -> Result<ExitStatus> {
    let (below, dir) = (scratch.path("disk"), scratch.path("mount"));
    let control = scratch.path("control");
    for dir in [&below, &dir, &control] {
        std::fs::create_dir(dir).with_context(|| dir.display().to_string())?;
    }
    // Above the recorder: what fails there has not reached the disk.
    let faults = Arc::new(FaultDevice::new(cx.runtime(), recorder.device()));
    let queue = Queue::new(cx.runtime(), faults.clone(), QueueConfig::default())?;
    let fs = Arc::new(DiskFile::new(queue));
    // Without a cache of the kernel's: a write is in the log when the loop device has done it.
    let how = fuse::Options {
        source: "iopath-crash".into(),
        writeback: false,
        ..fuse::Options::default()
    };
    let mount = Mount::new(cx, fs, &below, &how, None)?;
    let marks = Marks::begin(cx, recorder, scratch.path("marks.socket"), scratch.path("marks"))?;
    let mut command = run.command(&marks);
    let (at_once, recorder, passing) = (run.ends_at_once(), recorder.clone(), run.passing.clone());
    let words = run.options.kernel_options.iter().map(|words| format!(",{words}"));
    let words = format!("loop{}", words.collect::<String>());
    let wanted = run.options.fault.clone();
    let (begins, left) = (run.begins.clone(), run.left.clone());
    let running = cx.spawn("command", move |_cx| {
        let disk = below.join(std::str::from_utf8(NAME).expect("it is ASCII"));
        let mut mount = Command::new("mount");
        mount.args(["-t", &kind.to_string(), "-o", &words]).arg(disk).arg(&dir);
        let mounted = host::run(&mut mount).map_err(|error| anyhow!(error));
        let status = mounted.and_then(|()| {
            fault::begin_on(&faults, &wanted);
            begins.store(true, Ordering::SeqCst);
            // Not around the mount: a file system in user space stays until the unmount.
            let status = Adopting::around(|| passing.run(&mut command, &dir));
            if at_once {
                recorder.finish()?;
            }
            let _none_is_mounted = unmount_below(&dir);
            let unmounted = host::unmount(&dir);
            if unmounted.is_err() {
                // The log ends here: what the others still do is nobody's.
                recorder.finish()?;
                let _gone_already = fuse::unmount(&dir, true);
                fuse::abort(&below, &control)?;
            }
            // It may be what a fault fails; the log is good all the same.
            *left.lock_irq() = unmounted.err().map(|error| error.to_string());
            status
        });
        unmount_fuse(&below);
        status
    });
    let served = mount.run(cx, None, || Ok(()));
    let status = running.join(cx);
    marks.end(cx)?;
    served?;
    status
}

/// Ends a FUSE mount; whatever still uses its directory loses it.
fn unmount_fuse(dir: &Path) {
    if fuse::unmount(dir, false).is_err() {
        let _gone_already = fuse::unmount(dir, true);
    }
}
