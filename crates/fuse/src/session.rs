//! A mount from its beginning to its end.

use std::io;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::sync::{Arc, mpsc};

use base::Nanos;
use nix::errno::Errno as HostErrno;
use rt::{Channel, Cx};
use vfs::FileSystem;

use crate::adapter::{Adapter, Gate};
use crate::event::{Event, Events};
use crate::handshake::{BUFFER_BYTES, Handshake, PAYLOAD_BYTES};
use crate::keeper::Keeper;
use crate::options::Options;
use crate::outside::Outside;
use crate::pm_qos::{PmQos, ThisHost};
use crate::rings::Rings;
use crate::seek::Seeks;
use crate::stop::Stop;
use crate::wire::{Device, Pace};
use crate::workers::Workers;

/// How long a mount that is stopped waits for the programs that use it.
const BUSY_NS: Nanos = Nanos::from_millis(500);

/// Why a directory cannot be mounted on.
#[derive(Debug, thiserror::Error)]
pub enum MountError {
    /// A mount whose process has died is still there.
    #[error(
        "{0}: a mount whose process has ended is still there; take it away with: fusermount3 -u {0}"
    )]
    Dead(String),
    /// Not a directory that exists.
    #[error("{dir}: {error}")]
    Directory {
        /// What was given.
        dir: String,
        /// Why not.
        error: io::Error,
    },
    /// The kernel or fusermount3 refused.
    #[error("{dir}: mounting failed: {error}")]
    Refused {
        /// Where.
        dir: String,
        /// Its answer.
        error: io::Error,
    },
    /// The kernel's device cannot be opened.
    #[error("/dev/fuse: {error}; {advice}")]
    Device {
        /// Why not.
        error: io::Error,
        /// What to do.
        advice: &'static str,
    },
    /// The session ended with an error.
    #[error("{dir}: the mount broke: {error}")]
    Broken {
        /// Where.
        dir: String,
        /// How.
        error: io::Error,
    },
}

/// How a mount ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum End {
    /// Somebody unmounted it.
    Unmounted,
    /// A signal of this name came, or another reason, and it was unmounted.
    Stopped(&'static str),
    /// The same came while programs used it: they get errors from now on. What they had written is
    /// in the file system.
    Torn(&'static str),
}

/// Events that nobody has taken yet, at most.
const EVENTS_MAX: usize = 16;
/// Workers that read the device if requests come through rings.
const BESIDE_RINGS: usize = 2;
/// How long they let forgotten nodes wait for more of them.
const LINGER: Nanos = Nanos::from_millis(1);

/// A file system that is mounted in the host's tree.
pub struct Mount {
    outside: Arc<Outside>,
    gate: Arc<Gate>,
    seeks: Seeks,
    pm_qos: Option<Arc<PmQos>>,
    adapter: Arc<Adapter>,
    workers: Arc<Workers>,
    rings: Option<Arc<Rings>>,
    threads: usize,
    session: fuser::Session<Handshake>,
}

impl Mount {
    /// Mounts `fs` on `dir`, through the keeper where there is one. Requests are served by
    /// [`Mount::run`].
    ///
    /// # Errors
    /// `dir` is no directory, or mounting is refused.
    pub fn new(
        cx: &mut Cx,
        fs: Arc<dyn FileSystem>,
        dir: &Path,
        options: &Options,
        keeper: Option<Keeper>,
    ) -> Result<Mount, MountError> {
        let dir = directory(dir)?;
        let outside = Arc::new(Outside::new(&dir, options, keeper.map(Arc::new)));
        let gate = Arc::new(Gate::new());
        let refused = |error| MountError::Refused { dir: shown(&dir), error };
        let host = ThisHost(outside.clone());
        let pm_qos = PmQos::new(options.pm_qos, &host).map_err(refused)?.map(Arc::new);
        let handshake = Handshake::new(options);
        let agreed = handshake.agreed();
        let mounted =
            outside.mount().map_err(|error| no_device().unwrap_or_else(|| refused(error)))?;
        let config = fuser::Config::default();
        let session = fuser::Session::from_fd(handshake, mounted, options.acl(), config);
        let session = session.map_err(|error| {
            outside.detach();
            refused(error)
        })?;
        let device = Arc::new(Device::new(session.as_fd()).map_err(refused)?);
        let adapter = Arc::new(Adapter::new(fs, gate.clone(), pm_qos.clone(), options));
        let seeks = adapter.seeks.clone();
        adapter.start_seeks(cx.runtime(), outside.clone());
        adapter.start_writeback_errors(cx.runtime());
        let serving = adapter.clone();
        let rings = match agreed.load(Ordering::SeqCst) {
            true => Some(Rings::new(adapter.clone(), device.clone(), PAYLOAD_BYTES, &dir)),
            false => None,
        };
        let rings = rings.transpose().map_err(refused)?.map(Arc::new);
        let alone = std::thread::available_parallelism().is_ok_and(|count| count.get() == 1);
        let pace = match rings {
            // Only forgotten nodes and interrupts come through the device.
            Some(_) => Pace { spin: Nanos::ZERO, linger: LINGER },
            None if alone => Pace { spin: Nanos::ZERO, linger: Nanos::ZERO },
            None => Pace { spin: options.spin, linger: Nanos::ZERO },
        };
        let workers = Arc::new(Workers::new(adapter, device, pace, BUFFER_BYTES));
        outside.tune();
        serving.writeback_limits.connect(cx, &*serving.fs, &outside);
        seeks.connect(session.notifier(), outside.device_numbers());
        let threads = options.threads.max(2);
        Ok(Mount {
            outside,
            gate,
            seeks,
            pm_qos,
            adapter: serving,
            workers,
            rings,
            threads,
            session,
        })
    }

    /// Serves requests until the directory is unmounted or there is a reason to stop. Afterwards
    /// nothing uses the file system any more, and the caller unmounts it. May park.
    ///
    /// # Errors
    /// The connection to the kernel broke.
    ///
    /// `settle` is called when everything is set up and open, before requests are answered through
    /// the device: a process that is locked gives up opening files there.
    pub fn run(
        self,
        cx: &mut Cx,
        stop: Option<Stop>,
        settle: impl FnOnce() -> io::Result<()> + Send + 'static,
    ) -> Result<End, MountError> {
        let Mount { outside, gate, seeks, pm_qos, adapter, workers, rings, threads, session } =
            self;
        let broken = outside.clone();
        let work = move |cx: &mut Cx, events: &Events| {
            let beside = if rings.is_some() { BESIDE_RINGS } else { threads };
            let (made, all_made) = mpsc::channel();
            let queues = rings.as_ref().map_or(0, |rings| rings.queues());
            let rings = rings.map(|rings| {
                let events = events.clone();
                cx.spawn("fuse rings", move |cx| rings.run(cx, threads, &events, &made))
            });
            // Where a ring fails, the mount ends by that.
            let _made = all_made.iter().take(queues).count();
            let result = settle().and_then(|()| workers.run(cx, beside));
            rings.into_iter().for_each(|task| task.join(cx));
            drop(session);
            if result.is_err() {
                broken.detach();
            }
            result
        };
        if let Some(pm_qos) = pm_qos.clone() {
            let host = ThisHost(outside.clone());
            cx.spawn("fuse-pm-qos", move |cx| pm_qos.run(cx, &host));
        }
        let freeing = cx.spawn("fuse-free", {
            let adapter = adapter.clone();
            move |cx| adapter.free_forgotten(cx)
        });
        let served = serve(cx, &outside, &gate, work, stop);
        adapter.forget_queue.close();
        adapter.writeback_errors.close();
        freeing.join(cx);
        pm_qos.iter().for_each(|pm_qos| pm_qos.end());
        seeks.close();
        served
    }
}

fn serve(
    cx: &mut Cx,
    outside: &Arc<Outside>,
    gate: &Gate,
    work: impl FnOnce(&mut Cx, &Events) -> io::Result<()> + Send + 'static,
    stop: Option<Stop>,
) -> Result<End, MountError> {
    let events = Arc::new(Channel::named("fuse events", EVENTS_MAX));
    let ended = events.clone();
    let server = cx.spawn("fuse", move |cx| {
        let result = work(cx, &ended);
        let _nobody_listens = ended.send(cx, Event::Ended(result));
    });
    if let Some(stop) = stop {
        let events = events.clone();
        cx.spawn("fuse stop", move |cx| {
            if let Some(name) = stop.wait() {
                let _nobody_listens = events.send(cx, Event::Stop(name));
            }
        });
    }
    let name = match events.recv(cx) {
        Some(Event::Stop(name)) => name,
        Some(Event::Ended(Ok(()))) | None => {
            server.join(cx);
            return Ok(End::Unmounted);
        }
        Some(Event::Ended(Err(error))) => {
            return Err(MountError::Broken { dir: shown(outside.dir()), error });
        }
    };
    // The kernel's pages come to us first; then nobody needs the mount to be whole. Whoever waits
    // for them has no part in our open files, so that the process can be killed meanwhile: a thread
    // of its own kind, or the keeper.
    let whole = Arc::new(Channel::named("fuse end", 1));
    let ending = {
        let (outside, whole) = (outside.clone(), whole.clone());
        move || {
            let _nobody_waits = whole.try_send(outside.end());
        }
    };
    match outside.has_keeper() {
        true => drop(cx.spawn("fuse end", move |_| ending())),
        false => rt::spawn_apart("fuse end", move |_apart| ending()),
    }
    if whole.recv(cx) == Some(true) {
        server.join(cx);
        return Ok(End::Stopped(name));
    }
    let deadline = cx.now() + BUSY_NS;
    while cx.now() < deadline && !server.is_finished() {
        cx.sleep(Nanos::from_millis(10));
    }
    if server.is_finished() {
        return Ok(End::Stopped(name));
    }
    gate.close(cx);
    Ok(End::Torn(name))
}

/// Why mounting failed, where it is the kernel's device.
fn no_device() -> Option<MountError> {
    let error = crate::mounting::open_device().err()?;
    let advice = match error.kind() {
        io::ErrorKind::PermissionDenied => "as root, let users open it: chmod 666 /dev/fuse",
        _ => "as root, load FUSE: modprobe fuse (a container is given it by: --device /dev/fuse)",
    };
    Some(MountError::Device { error, advice })
}

fn shown(dir: &Path) -> String {
    dir.display().to_string()
}

/// The directory to mount on, as the kernel names it.
fn directory(dir: &Path) -> Result<PathBuf, MountError> {
    let error = |error: io::Error| match error.raw_os_error() {
        Some(number) if number == HostErrno::ENOTCONN as i32 => MountError::Dead(shown(dir)),
        _ => MountError::Directory { dir: shown(dir), error },
    };
    let whole = dir.canonicalize().map_err(error)?;
    let meta = std::fs::metadata(&whole).map_err(error)?;
    match meta.is_dir() {
        true => Ok(whole),
        false => Err(error(HostErrno::ENOTDIR.into())),
    }
}
