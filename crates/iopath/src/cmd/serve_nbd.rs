//! `serve nbd`: serves a target as a network block device.

use std::ffi::OsString;
use std::io::BufWriter;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::{Context, Result, bail};
use base::Nanos;
use clap::Args;
use crash::{Header, Recorder};
use device::nbd::{FileMap, Limits, Listener, Served, serve};
use fuse::Signals;
use listenfd::ListenFd;
use serde_json::json;

use super::crash::marks::{Marks, Places};
use crate::app::{App, at};
use crate::confine::{self, Needs, Work, folder_of};
use crate::log::{self, Level};
use crate::metrics::{Listening, Metrics, Watch};
use crate::notify::Manager;
use crate::recognise::Content;
use crate::sim::{SimTarget, is_sim};
use crate::storage::Storage;
use crate::target::Target;
use crate::watch::{self, Watched};

/// Serve a device as a network block device (NBD)
#[derive(Args)]
#[command(after_help = "Examples:
  iopath serve nbd disk.img
  nbdinfo nbd://127.0.0.1:10809/
  iopath serve nbd --write --listen /tmp/disk.sock disk.img
  iopath ls 'nbd+unix:///?socket=/tmp/disk.sock:/'
  iopath serve nbd --write --record run.log disk.img   a virtual machine's disk, for power cuts
  iopath serve nbd --write 'sim:disk-7200?size=1G'   a modelled disk, as slow as the real one")]
pub struct Options {
    /// Image or device: TARGET, or a modelled machine with a fresh file system: sim:MACHINE
    #[arg(value_name = "TARGET")]
    target: OsString,
    /// Address and port to listen at (port 0 is any free one), or the path of a socket; a socket of
    /// systemd comes before it
    #[arg(long, value_name = "PLACE", default_value = "127.0.0.1:10809")]
    listen: String,
    /// Name of the export; the empty name selects it, too
    #[arg(long, value_name = "NAME", default_value = "")]
    name: String,
    /// Allow changes
    #[arg(long)]
    write: bool,
    /// Record what clients write, for `iopath crash explore`; marks are taken at LOG.socket and at
    /// the FIFO LOG.marks
    #[arg(long, value_name = "LOG", requires = "write")]
    record: Option<PathBuf>,
    /// Connections at a time; one more is refused
    #[arg(long, value_name = "NUMBER", default_value_t = 64,
        value_parser = clap::value_parser!(u16).range(1..))]
    connections: u16,
    /// Time in which a client must ask for the export, else it is disconnected
    #[arg(long, value_name = "SECONDS", default_value_t = 60,
        value_parser = clap::value_parser!(u32).range(1..))]
    handshake: u32,
    #[command(flatten)]
    watch: Watch,
    #[command(flatten)]
    log: log::Options,
}

/// Runs `serve nbd` until SIGINT or SIGTERM; then everything is flushed.
///
/// # Errors
/// The target cannot be opened, the place not listened at; the last flush failed.
pub fn run(app: &mut App, options: &Options) -> Result<ExitCode> {
    // Before there is any other thread.
    let signals = Signals::block();
    log::begin(&options.log, app.out.json, app.options.quiet);
    let target = options.target.display().to_string();
    let manager = Manager::connect();
    let passed = ListenFd::from_env().take_tcp_listener(0).context("the socket of LISTEN_FDS")?;
    let listener = match passed {
        Some(socket) => Listener::Tcp(socket),
        None => Listener::bind(&options.listen).with_context(|| options.listen.clone())?,
    };
    let socket = listener.socket();
    let watched = options.watch.listen()?;
    let outer = Outer { signals, manager, watched };
    let result = listen(app, options, &target, listener, outer);
    if let Some(socket) = socket {
        let _gone_already = std::fs::remove_file(socket);
    }
    result
}

/// What the server hears from, and reports to.
struct Outer {
    signals: Signals,
    manager: Manager,
    watched: Option<Listening>,
}

fn listen(
    app: &mut App,
    options: &Options,
    target: &str,
    listener: Listener,
    outer: Outer,
) -> Result<ExitCode> {
    let work = if options.write { Work::Change } else { Work::Look };
    let mut needs = Needs::of_words(std::slice::from_ref(&options.target), work);
    if let Some(socket) = listener.socket() {
        // To remove it at the end.
        needs.make(folder_of(&socket));
    }
    // A recorder makes its log and listens for marks.
    if !is_sim(&options.target) && options.record.is_none() {
        confine::enter(app, needs)?;
    }
    let mut recording = None;
    let mut served = match is_sim(&options.target) {
        true if options.record.is_some() => {
            bail!("{target}: a modelled disk is not recorded; give an image")
        }
        true => {
            let machine = SimTarget::parse(&options.target)?.in_real_time(app.cx.runtime())?;
            Served::new(machine, &options.name, options.write)
        }
        false => served(app, options, &mut recording)?,
    };
    served.limits = Limits {
        connections: options.connections.into(),
        handshake: Nanos::from_secs(options.handshake.into()),
    };
    served.clients = Some(log::client);
    let queue = served.queue.clone();
    if let Some(listening) = outer.watched {
        let metrics = Metrics::of_device(app, &queue);
        served.observer = Some(metrics.requests.clone());
        listening.serve(app, metrics);
    }
    let url = listener.url(&options.name)?;
    match app.out.json {
        true => app.out.document(&json!({ "target": target, "url": url }))?,
        false => app.out.line(format!("{target}: serving at {url}"))?,
    }
    app.out.flush()?;
    let served = Arc::new(served);
    confine::settle(app)?;
    app.cx.spawn("nbd server", move |cx| serve(cx, &served, &listener));
    outer.manager.ready(&url);
    watch::begin(app.cx, Watched::device(target, &queue));
    log::event(Level::Info, &format!("{target}: serving at {url}"));
    outer.signals.wait();
    outer.manager.stopping();
    log::event(Level::Info, &format!("{target}: stopping"));
    queue.drain(app.cx);
    queue.flush(app.cx).map_err(|error| at(target)(error.to_errno()))?;
    if let Some(Recording { recorder, marks, log }) = recording {
        marks.end(app.cx)?;
        recorder.finish().with_context(|| log.display().to_string())?;
    }
    Ok(ExitCode::SUCCESS)
}

/// A log that is being written.
struct Recording {
    recorder: Arc<Recorder>,
    marks: Marks,
    log: PathBuf,
}

/// A device as it is served, with the holes of a whole image file; begins its recording.
fn served(app: &mut App, options: &Options, recording: &mut Option<Recording>) -> Result<Served> {
    let target = Target::parse(&options.target)?;
    let mut storage = Storage::open(app, &target, options.write)?;
    if let Some(log) = &options.record {
        let begun = record(app, &storage, log)?;
        storage = Storage::on(app, &target, begun.recorder.device(), options.write)?;
        *recording = Some(begun);
    }
    let plain = !storage.is_layered() && target.partition.is_none();
    let mut served = Served::new(storage.queue, &options.name, options.write);
    if plain && target.path.is_file() {
        served.allocation = Some(Box::new(FileMap::new(&target.path, 0)?));
    }
    Ok(served)
}

/// Records the device below a storage, and takes marks beside the log.
fn record(app: &mut App, storage: &Storage, log: &Path) -> Result<Recording> {
    let shown = || log.display().to_string();
    if storage.is_layered() || storage.target.partition.is_some() {
        bail!("{}: only a whole raw image or device is recorded", storage.target);
    }
    let file_system = match storage.format(app)? {
        Content::Ext(_) => "ext4",
        Content::Xfs => "xfs",
        // Its clients may make a file system later: what is there in the end is known then.
        _ => Header::UNKNOWN,
    };
    let command = format!("clients of an NBD export of {}", storage.target);
    let header = Header { file_system: file_system.into(), command, ..Header::default() };
    let beside = |end: &str| {
        let mut path = log.as_os_str().to_owned();
        path.push(end);
        PathBuf::from(path)
    };
    // An older log is there until all else works.
    let file = crash::log::open(log).with_context(shown)?;
    let places = Places::make(beside(".socket"), beside(".marks"))?;
    crash::output::empty(&file).with_context(shown)?;
    let out = Box::new(BufWriter::new(file));
    let recorder = Recorder::new(app.cx, storage.queue.device().clone(), out, header);
    let recorder = Arc::new(recorder.with_context(shown)?);
    super::crash::record::settle(app.cx, &recorder);
    let marks = places.begin(app.cx, &recorder);
    Ok(Recording { recorder, marks, log: log.to_owned() })
}
