//! `crash record`: runs a command on our file system, and keeps what its device was asked to do.

use std::ffi::OsString;
use std::fs::File;
use std::io::{BufRead, BufReader, BufWriter, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, ExitStatus};
use std::sync::Arc;

use anyhow::{Context, Result, anyhow, bail};
use block::Device;
use clap::Args;
use crash::{Header, Kind, Recorder, mark};
use device::MemoryDevice;
use fuse::{Mount, Signals};
use rt::{Cx, JoinHandle};
use serde_json::json;
use vfs::FileSystem;

use super::directory::Scratch;
use crate::app::App;
use crate::storage::open_options;
use crate::text;

/// Run a command on a recorded disk
#[derive(Args)]
#[command(after_help = "Examples:
  iopath crash record run.log -- ./my-test
  iopath crash record run.log --fs xfs --size 512M -- sh -c 'sqlite3 db < script'
  iopath crash record run.log --image disk.img -- ./my-test    writes to the image
The command runs in the mounted file system. It marks what it has reached by `iopath crash mark
TEXT`, or by a line to the FIFO in $IOPATH_CRASH_MARKS. The exit status is that of the command.")]
pub struct Options {
    /// The log
    #[arg(value_name = "LOG")]
    log: PathBuf,
    /// The file system that is made: ext4 or xfs
    #[arg(long, value_name = "TYPE", default_value = "ext4")]
    fs: Kind,
    /// Its size; 64M for ext4, 320M for xfs
    #[arg(long, value_name = "SIZE", value_parser = text::parse_size)]
    size: Option<u64>,
    /// Use the file system of an image instead; the command's changes stay in it
    #[arg(long, value_name = "IMAGE", conflicts_with_all = ["fs", "size"])]
    image: Option<PathBuf>,
    /// Stop as if the power failed when the command ends, without an unmount
    #[arg(long)]
    no_unmount: bool,
    /// The command with its arguments
    #[arg(required = true, last = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

/// Bytes above which a fresh disk is kept in a file beside the log, not in memory.
const IN_MEMORY_MAX: u64 = 1 << 30;

/// Runs `crash record`.
///
/// # Errors
/// The file system cannot be made, mounted or recorded; the command cannot be started.
pub fn run(app: &mut App, options: &Options) -> Result<ExitCode> {
    // Before there is any other thread.
    let signals = Signals::block();
    let scratch = Scratch::new(None)?;
    let (kind, device) = disk(app, options, &scratch)?;
    let log = File::create(&options.log).with_context(|| options.log.display().to_string())?;
    let words: Vec<_> = options.command.iter().map(|word| word.to_string_lossy()).collect();
    let header =
        Header { file_system: kind.to_string(), command: words.join(" "), ..Header::default() };
    let recorder = Recorder::new(app.cx, device, Box::new(BufWriter::new(log)), header)?;
    let recorder = Arc::new(recorder);
    let fs = kind.mount(app.cx, recorder.device()).map_err(|error| anyhow!("mount: {error}"))?;
    let status = record(app.cx, &fs, &recorder, &scratch, &options.command, signals);
    if options.no_unmount {
        fs.shutdown_hard();
    } else {
        let done = fs.unmount(app.cx);
        done.map_err(|errno| anyhow!("writing out when the command had ended: {errno}"))?;
    }
    let entries = recorder.len();
    recorder.finish().with_context(|| options.log.display().to_string())?;
    let status = status?;
    report(app, options, entries)?;
    Ok(ExitCode::from(status.code().map_or(1, |code| code as u8)))
}

fn report(app: &mut App, options: &Options, entries: u64) -> Result<()> {
    let path = options.log.display().to_string();
    let bytes = std::fs::metadata(&options.log).with_context(|| path.clone())?.len();
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
        let device = crate::storage::open_device(app, image, true)?;
        let storage = crate::storage::Storage::on(app, &target, device.clone())?;
        let kind = match storage.must_be_known(app)? {
            crate::storage::Known::Ext => Kind::Ext4,
            crate::storage::Known::Xfs => Kind::Xfs,
        };
        return Ok((kind, device));
    }
    let size = options.size.unwrap_or(match options.fs {
        Kind::Ext4 => 64 << 20,
        Kind::Xfs => 320 << 20,
    });
    let device: Arc<dyn Device> = match size <= IN_MEMORY_MAX {
        true => Arc::new(MemoryDevice::new(size)),
        false => device::create_with(&scratch.path("disk.img"), size, open_options(app, true))?,
    };
    options.fs.mkfs(app.cx, device.clone()).map_err(|error| anyhow!(error))?;
    Ok((options.fs, device))
}

/// Runs the command in the mounted file system until it ends.
fn record(
    cx: &mut Cx,
    fs: &Arc<dyn FileSystem>,
    recorder: &Arc<Recorder>,
    scratch: &Scratch,
    command: &[OsString],
    signals: Signals,
) -> Result<ExitStatus> {
    let dir = scratch.path("mount");
    std::fs::create_dir(&dir).with_context(|| dir.display().to_string())?;
    let (socket, fifo) = (scratch.path("marks.socket"), scratch.path("marks"));
    let listening = listen(cx, recorder, &socket)?;
    let reading = read_fifo(cx, recorder, &fifo)?;
    let how = fuse::Options { source: "iopath-crash".into(), ..fuse::Options::default() };
    let mount = Mount::new(cx, fs.clone(), &dir, &how)?;
    let mut run = Command::new(&command[0]);
    run.args(&command[1..]).current_dir(&dir).env(mark::SOCKET, &socket).env(mark::FIFO, &fifo);
    let name = command[0].to_string_lossy().into_owned();
    let below = dir.clone();
    let running = cx.spawn("command", move |_cx| {
        let status = run.status().with_context(|| name);
        // Whatever the command left running keeps the directory; it loses it.
        if fuse::unmount(&below, false).is_err() {
            let _gone_already = fuse::unmount(&below, true);
        }
        status
    });
    let served = mount.run(cx, Some(signals));
    let status = running.join(cx);
    mark::mark_at(&socket, END).context("ending the marks")?;
    listening.join(cx)?;
    // The reader may be at its line already; a second opener makes sure that this one is read.
    std::fs::OpenOptions::new()
        .write(true)
        .open(&fifo)
        .and_then(|mut fifo| fifo.write_all(format!("{END}\n").as_bytes()))
        .context("ending the marks")?;
    reading.join(cx)?;
    served?;
    status
}

/// The line that ends the marks.
const END: &str = "\u{1}end of the recording";

/// Takes marks at a socket, and answers each when it is in the log.
fn listen(cx: &mut Cx, recorder: &Arc<Recorder>, path: &Path) -> Result<JoinHandle<Result<()>>> {
    let listener = UnixListener::bind(path).with_context(|| path.display().to_string())?;
    let recorder = recorder.clone();
    Ok(cx.spawn("marks", move |_cx| {
        loop {
            let (stream, _) = listener.accept().context("marks")?;
            if take(&recorder, &stream).unwrap_or(false) {
                return Ok(());
            }
        }
    }))
}

/// Takes the marks of one connection; true at the last one of all.
fn take(recorder: &Recorder, mut stream: &UnixStream) -> std::io::Result<bool> {
    let mut lines = BufReader::new(stream.try_clone()?);
    let mut line = String::new();
    while lines.read_line(&mut line)? > 0 {
        let text = line.trim_end_matches('\n');
        let end = text == END;
        if !end {
            recorder.mark(text);
        }
        stream.write_all(b"ok\n")?;
        if end {
            return Ok(true);
        }
        line.clear();
    }
    Ok(false)
}

/// Takes marks from a FIFO.
fn read_fifo(cx: &mut Cx, recorder: &Arc<Recorder>, path: &Path) -> Result<JoinHandle<Result<()>>> {
    use rustix::fs::{CWD, FileType, Mode, mknodat};
    let shown = || path.display().to_string();
    mknodat(CWD, path, FileType::Fifo, Mode::from_raw_mode(0o622), 0).with_context(shown)?;
    // For reading and writing: it has no end while it is open here.
    let file = std::fs::OpenOptions::new().read(true).write(true).open(path);
    let mut lines = BufReader::new(file.with_context(shown)?);
    let recorder = recorder.clone();
    Ok(cx.spawn("marks of the fifo", move |_cx| {
        let mut line = Vec::new();
        loop {
            line.clear();
            if lines.read_until(b'\n', &mut line).context("marks")? == 0 {
                bail!("the fifo of marks has ended");
            }
            let text = String::from_utf8_lossy(&line);
            match text.trim_end_matches('\n') {
                END => return Ok(()),
                text => recorder.mark(text),
            }
        }
    }))
}
