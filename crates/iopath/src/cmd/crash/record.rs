//! `crash record`: runs a command on our file system, and keeps what its device was asked to do.

use std::ffi::OsString;
use std::io::BufWriter;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, ExitStatus};
use std::str::FromStr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};

use anyhow::{Context, Result, anyhow, bail};
use base::Nanos;
use block::Device;
use clap::Args;
use crash::host::own_name;
use crash::output::WhenReady;
use crash::watch::Watched;
use crash::{Format, Header, Kind, MountOptions, Recorder};
use device::{FaultDevice, MemoryDevice};
use fuse::{Access, Mount, Stop};
use rt::{Cx, SpinLock};
use rustix::process::{getegid, geteuid};
use serde_json::json;
use vfs::SetAttr;

use super::directory::{Scratch, remove_left};
use super::fault::{self, Fault};
use super::kernel;
use super::marks::Marks;
use super::orphans::Adopting;
use super::place;
use super::running::Passing;
use super::words;
use crate::app::{App, MountWord};
use crate::confine::folder_of;
use crate::mount_arg::{apply_ext, apply_xfs};
use crate::storage::open_options;
use crate::text;

/// Run a command on a recorded disk
#[derive(Args)]
#[command(after_help = "Examples:
  iopath crash record run.log -- ./my-test
  iopath crash record run.log --fs xfs --size 512M -- sh -c 'sqlite3 db < script'
  iopath crash record run.log --kernel --fs btrfs -- ./my-test
  iopath crash record run.log -o noauto_da_alloc -- ./my-test
  iopath crash record run.log --fault eio-fsync=3 -- ./my-test
  iopath crash record run.log --image disk.img -- ./my-test    writes to the image
The command runs in the mounted file system; its program is found from here, its arguments are
passed as they are. It marks what it has reached by `iopath crash mark
TEXT`, or by a line to the FIFO in $IOPATH_CRASH_MARKS. SIGINT, SIGTERM and SIGHUP are passed on to
it, the second time as SIGKILL; the log ends with it.
Exit status: that of the command; 128 + N where signal N ended it; 125 where the recording failed.
FAULT: eio-write=N the disk's Nth write fails, eio-write=N.. that one and all behind it; likewise
eio-read and eio-fsync (flushes of the disk); enospc=N the Nth write call of the command finds no
space; flip=N one bit of the Nth read is wrong.")]
pub struct Options {
    /// The log
    #[arg(value_name = "LOG")]
    log: PathBuf,
    /// The file system that is made: ext2, ext3, ext4 or xfs; with --kernel any that mkfs.TYPE
    /// makes and mount(8) mounts
    #[arg(long, value_name = "TYPE", default_value = "ext4")]
    fs: Made,
    /// Its size; 128M for btrfs, 256M for nilfs2, 320M for xfs, 64M for others
    #[arg(long, value_name = "SIZE", value_parser = text::parse_size)]
    size: Option<u64>,
    /// Use the file system of an image instead; the command's changes stay in it
    #[arg(long, value_name = "IMAGE", conflicts_with_all = ["fs", "size"])]
    image: Option<PathBuf>,
    /// The kernel's file system, made by its own mkfs, on a loop device; needs root
    #[arg(long, conflicts_with = "image")]
    kernel: bool,
    /// With --kernel: options for mount(8)
    #[arg(long, value_name = "OPTIONS", requires = "kernel")]
    pub(super) kernel_options: Option<String>,
    /// Inject a fault; may be repeated
    #[arg(long, value_name = "FAULT")]
    pub(super) fault: Vec<Fault>,
    /// Stop as if the power failed when the command ends, without an unmount
    #[arg(long)]
    no_unmount: bool,
    /// The command with its arguments
    #[arg(required = true, last = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

/// A file system that is made.
#[derive(Clone, Debug)]
pub(super) struct Made {
    pub(super) kind: Kind,
    /// As it was named: ext2 and ext3 are of one kind with ext4.
    pub(super) name: String,
}

impl FromStr for Made {
    type Err = String;

    /// # Errors
    /// A sentence: it cannot be the name of a file system.
    fn from_str(text: &str) -> Result<Made, String> {
        Ok(Made { kind: text.parse()?, name: text.to_owned() })
    }
}

impl Made {
    /// How ours makes it; none where it is not ours.
    fn format(&self) -> Option<Format> {
        match self.kind {
            Kind::Ext4 => {
                let fstype = self.name.parse().expect("they have the same names");
                Some(Format::Ext4(ext4::MkfsOptions { fstype, ..Default::default() }))
            }
            Kind::Xfs => Some(Format::Xfs(Default::default())),
            Kind::Foreign(_) => None,
        }
    }
}

/// Bytes above which a fresh disk is kept in a file beside the log (in /var/tmp where that is an
/// object), not in memory.
const IN_MEMORY_MAX: u64 = 1 << 30;

/// Exit status where the recording itself fails, as with timeout(1) and env(1).
const FAILED: u8 = 125;

/// How often what happened is written to the log at least: that much is lost where we are killed.
const SETTLE: Nanos = Nanos::from_millis(200);

/// Runs `crash record`.
///
/// # Errors
/// None: they are printed, and the status is another than the command's.
pub fn run(app: &mut App, options: &Options) -> Result<ExitCode> {
    record(app, options).or_else(|error| {
        app.out.problem(format!("{error:#}"));
        Ok(ExitCode::from(FAILED))
    })
}

/// # Errors
/// The file system cannot be made, mounted or recorded; the command cannot be started.
fn record(app: &mut App, options: &Options) -> Result<ExitCode> {
    // Before there is any other thread.
    let passing = Passing::begin(app.cx);
    let words = words::resolved(&options.command)?;
    // An object is written whole, in the end.
    let remote = place::address(&options.log);
    remote.map_or(Ok(()), |url| place::takes_log(app, url))?;
    let beside = if remote.is_some() { Path::new("/var/tmp") } else { folder_of(&options.log) };
    remove_left(Some(beside));
    let size = options.size.unwrap_or(options.fs.kind.usual_bytes());
    let scratch = Scratch::new(None)?;
    let large = (size > IN_MEMORY_MAX).then(|| Scratch::new(Some(beside))).transpose()?;
    let (kind, device) = disk(app, options, large.as_ref().unwrap_or(&scratch))?;
    let mounting = mounting(app, kind, options.kernel)?;
    let path = match remote {
        Some(_) => std::env::temp_dir().join(format!("{}.log", own_name())),
        None => options.log.clone(),
    };
    let log = crash::log::open(&path).with_context(|| path.display().to_string())?;
    // An older log is there until the command begins.
    let begins = Arc::new(AtomicBool::new(false));
    let log = WhenReady::new(log, begins.clone());
    let shown: Vec<_> = options.command.iter().map(|word| word.to_string_lossy()).collect();
    let header = Header {
        file_system: kind.to_string(),
        command: shown.join(" "),
        faults: options.fault.iter().map(ToString::to_string).collect(),
        mount_options: mounting.promising_less(),
        ..Header::default()
    };
    let recorder = Recorder::new(app.cx, device, Box::new(BufWriter::new(log)), header)?;
    let recorder = Arc::new(recorder);
    settle(app.cx, &recorder);
    let run = Run {
        options,
        words,
        passing: passing.clone(),
        begins,
        left: Arc::new(SpinLock::named("what is left mounted", None)),
    };
    let status = match options.kernel {
        true => kernel::record(app.cx, &recorder, kind, &scratch, &run)?,
        false => ours(app.cx, &recorder, kind, &mounting, &scratch, &run)?,
    };
    let entries = recorder.len();
    recorder.finish().with_context(|| path.display().to_string())?;
    report(app, options, entries, &path)?;
    if let Some(why) = run.left.lock_irq().as_ref() {
        app.out.note(format!("the log ends before the unmount: {why}"));
    }
    if let Some(url) = remote {
        place::put_file(app, url, &path)
            .with_context(|| format!("the log is kept as {}", path.display()))?;
        std::fs::remove_file(&path).with_context(|| path.display().to_string())?;
    }
    if let Some(signal) = passing.caught() {
        app.out.note(format!("{signal}: the log holds what was done until then"));
    }
    Ok(ExitCode::from(passing.status(status)))
}

/// Writes the log now and then while it is recorded.
pub(in crate::cmd) fn settle(cx: &mut Cx, recorder: &Arc<Recorder>) {
    let recorder = recorder.clone();
    cx.spawn("crash log", move |cx| {
        while recorder.settle() {
            cx.sleep(SETTLE);
        }
    });
}

/// How our file systems are mounted, as `-o` says.
///
/// # Errors
/// A word for another file system, or for none of ours.
fn mounting(app: &App, kind: Kind, kernel: bool) -> Result<MountOptions> {
    let (words, mut mounting) = (&app.options, MountOptions::default());
    match kind {
        _ if words.mount.iter().any(|word| matches!(word, MountWord::Beside(..))) => {
            bail!("-o: only one device is recorded: no log, journal or realtime section beside it")
        }
        _ if kernel && !words.mount.is_empty() => {
            bail!("-o: for our file systems; --kernel-options has words for mount(8)")
        }
        Kind::Ext4 => apply_ext(words.of_file_system(), &mut mounting.ext4)?,
        Kind::Xfs => apply_xfs(words.of_file_system(), &mut mounting.xfs)?,
        Kind::Foreign(_) => {}
    }
    Ok(mounting)
}

/// Runs the command on our file system.
fn ours(
    cx: &mut Cx,
    recorder: &Arc<Recorder>,
    kind: Kind,
    mounting: &MountOptions,
    scratch: &Scratch,
    run: &Run,
) -> Result<ExitStatus> {
    let options = run.options;
    // Above the recorder: what fails there has not reached the disk.
    let faults = Arc::new(FaultDevice::new(cx.runtime(), recorder.device()));
    let fs =
        kind.mount_with(cx, faults.clone(), mounting).map_err(|error| anyhow!("mount: {error}"))?;
    let fs = fault::begin(Watched::new(fs, recorder.clone()), &faults, &options.fault);
    let dir = scratch.path("mount");
    std::fs::create_dir(&dir).with_context(|| dir.display().to_string())?;
    let marks = Marks::begin(cx, recorder, scratch.path("marks.socket"), scratch.path("marks"))?;
    // Each call reaches the file system when it is made: the log has the order of the program, and
    // with faults a call fails itself. At its last close a file is written out that was cut. A
    // command of root may become somebody else.
    let access = if geteuid().is_root() { Access::Other } else { Access::Owner };
    let source = "iopath-crash".into();
    let how = fuse::Options { source, access, writeback: false, opens: true, ..Default::default() };
    let mount = Mount::new(cx, fs.clone(), &dir, &how, None)?;
    let mut command = run.command(&marks);
    let passing = run.passing.clone();
    let begins = run.begins.clone();
    let (stop, asked) = mpsc::channel();
    let running = cx.spawn("command", move |_cx| {
        begins.store(true, Ordering::SeqCst);
        let status = Adopting::around(|| passing.run(&mut command, &dir));
        if super::directory::unmount_below(&dir).is_err() || fuse::unmount(&dir, false).is_err() {
            // Somebody else uses it, who loses it.
            let _ended_already = stop.send(());
        }
        status
    });
    let stop = Stop::when_asked(asked, "the command ended");
    let served = mount.run(cx, Some(stop), || Ok(()));
    let status = running.join(cx);
    marks.end(cx)?;
    if options.no_unmount {
        fs.shutdown_hard();
    } else {
        // By itself it commits sooner or later: what nobody synced may be lost then.
        let done = fs.commit(cx).and(fs.unmount(cx));
        // With faults it may be what fails; the log is good all the same.
        let done = if options.fault.is_empty() { done } else { Ok(()) };
        done.map_err(|errno| anyhow!("writing out when the command had ended: {errno}"))?;
    }
    served?;
    status
}

/// A command that is going to run.
pub(super) struct Run<'a> {
    pub(super) options: &'a Options,
    /// The command; its program is found.
    words: Vec<OsString>,
    /// Runs it.
    pub(super) passing: Arc<Passing>,
    /// The command begins: the log takes the place of an older one.
    pub(super) begins: Arc<AtomicBool>,
    /// Why the kernel's file system is still mounted.
    pub(super) left: Arc<SpinLock<Option<String>>>,
}

impl Run<'_> {
    /// The command, in a directory, with its marks.
    pub(super) fn command(&self, marks: &Marks) -> Command {
        let mut command = Command::new(&self.words[0]);
        command.args(&self.words[1..]);
        marks.name_to(&mut command);
        command
    }

    /// The log ends with the command.
    pub(super) fn ends_at_once(&self) -> bool {
        self.options.no_unmount
    }
}

fn report(app: &mut App, options: &Options, entries: u64, file: &Path) -> Result<()> {
    let bytes = std::fs::metadata(file).with_context(|| file.display().to_string())?.len();
    let path = options.log.display().to_string();
    if app.out.json {
        let document = json!({ "log": path, "entries": entries, "bytes": bytes });
        return Ok(app.out.document(&document)?);
    }
    app.out.note(format!("{path}: {entries} entries, {}", text::size(bytes)));
    Ok(())
}

/// The disk that is recorded, with a file system on it.
fn disk(app: &mut App, options: &Options, scratch: &Scratch) -> Result<(Kind, Arc<dyn Device>)> {
    if let Some(image) = &options.image {
        let target = crate::target::Target::parse(image.as_os_str())?;
        crate::rescue::refuse_write(app, &target)?;
        // Of an image in a container, or of a partition, what the file system sees is recorded.
        let storage = crate::storage::Storage::open(app, &target, true)?;
        let kind = match storage.must_be_known(app)? {
            crate::storage::Known::Ext => Kind::Ext4,
            crate::storage::Known::Xfs => Kind::Xfs,
        };
        return Ok((kind, storage.queue.device().clone()));
    }
    let Made { kind, name } = &options.fs;
    let format = options.fs.format();
    if !options.kernel && format.is_none() {
        bail!("--fs {name}: a file system of the kernel: add --kernel");
    }
    if let Some(fault) = options.fault.iter().find(|fault| options.kernel && fault.is_of_calls()) {
        bail!("--fault {fault}: with --kernel only what the disk does: a smaller --size fills up");
    }
    let size = options.size.unwrap_or(options.fs.kind.usual_bytes());
    if options.kernel {
        let path = scratch.path("disk.img");
        kernel::mkfs(&options.fs, &path, size)?;
        return Ok((*kind, device::open(&path, open_options(app, true))?));
    }
    let device: Arc<dyn Device> = match size <= IN_MEMORY_MAX {
        true => Arc::new(MemoryDevice::new(size)),
        false => device::create_with(&scratch.path("disk.img"), size, open_options(app, true))?,
    };
    let format = format.expect("it was asked above");
    format.make(app.cx, device.clone()).map_err(|error| anyhow!(error))?;
    give_root(app.cx, *kind, &device).context("giving away the root directory")?;
    Ok((*kind, device))
}

/// The root directory of a fresh file system is the user's.
fn give_root(cx: &mut Cx, kind: Kind, device: &Arc<dyn Device>) -> Result<()> {
    let (user, group) = (geteuid(), getegid());
    if user.is_root() {
        return Ok(());
    }
    let fs = kind.mount(cx, device.clone()).map_err(|error| anyhow!(error))?;
    let (uid, gid) = (Some(user.as_raw()), Some(group.as_raw()));
    let set = SetAttr { uid, gid, ..SetAttr::default() };
    let given = fs.setattr(cx, fs.root(), &set);
    fs.unmount(cx)?;
    given?;
    Ok(())
}
