//! A mount from its beginning to its end.

use std::io;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use base::Nanos;
use nix::errno::Errno as HostErrno;
use rt::{Channel, Cx};
use rustix::fs::{Mode, OFlags};
use rustix::mount::UnmountFlags;
use vfs::FileSystem;

use crate::adapter::{Adapter, Gate};
use crate::event::{Event, Events};
use crate::handshake::{BUFFER_BYTES, Handshake, PAYLOAD_BYTES};
use crate::kernel::{self, Bdi};
use crate::options::Options;
use crate::pm_qos::{PmQos, ThisHost};
use crate::rings::Rings;
use crate::seek::Seeks;
use crate::signals::Signals;
use crate::wire::{Device, Pace};
use crate::workers::Workers;

/// How long a mount that is ended by a signal waits for the programs that use it.
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
    /// A signal of this name came, and it was unmounted.
    Signal(&'static str),
    /// A signal came while programs used it: they get errors from now on. What they had written is
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
    dir: PathBuf,
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
    /// Mounts `fs` on `dir`. Requests are served by [`Mount::run`].
    ///
    /// # Errors
    /// `dir` is no directory, or mounting is refused.
    pub fn new(
        cx: &mut Cx,
        fs: Arc<dyn FileSystem>,
        dir: &Path,
        options: &Options,
    ) -> Result<Mount, MountError> {
        let dir = directory(dir)?;
        let gate = Arc::new(Gate::new());
        let refused = |error| MountError::Refused { dir: shown(&dir), error };
        let pm_qos = PmQos::new(options.pm_qos).map_err(refused)?.map(Arc::new);
        let handshake = Handshake::new(options);
        let agreed = handshake.agreed();
        let session = fuser::Session::new(handshake, &dir, &options.config())
            .map_err(|error| no_device().unwrap_or_else(|| refused(error)))?;
        let device = Arc::new(Device::new(session.as_fd()).map_err(refused)?);
        let adapter = Arc::new(Adapter::new(fs, gate.clone(), pm_qos.clone(), options));
        let seeks = adapter.seeks.clone();
        adapter.start_seeks(cx.runtime());
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
        let device = kernel::mounted(&dir).ok().flatten();
        device.as_deref().inspect(|device| kernel::tune(device));
        let limits = device.as_deref().filter(|_| options.collects()).and_then(Bdi::of);
        if let Some(limits) = limits {
            serving.writeback_limits.connect(cx, &*serving.fs, limits);
        }
        seeks.connect(session.notifier(), device.as_deref().and_then(kernel::numbers));
        let threads = options.threads.max(2);
        Ok(Mount { dir, gate, seeks, pm_qos, adapter: serving, workers, rings, threads, session })
    }

    /// Serves requests until the directory is unmounted or one of the signals comes. Afterwards
    /// nothing uses the file system any more, and the caller unmounts it. May park.
    ///
    /// # Errors
    /// The connection to the kernel broke.
    pub fn run(self, cx: &mut Cx, signals: Option<Signals>) -> Result<End, MountError> {
        let Mount { dir, gate, seeks, pm_qos, adapter, workers, rings, threads, session } = self;
        let work = move |cx: &mut Cx, events: &Events| {
            let beside = if rings.is_some() { BESIDE_RINGS } else { threads };
            let rings = rings.map(|rings| {
                let events = events.clone();
                cx.spawn("fuse rings", move |cx| rings.run(cx, threads, &events))
            });
            let result = workers.run(cx, beside);
            rings.into_iter().for_each(|task| task.join(cx));
            drop(session); // Takes the mount away where it broke.
            result
        };
        if let Some(pm_qos) = pm_qos.clone() {
            cx.spawn("fuse-pm-qos", move |cx| pm_qos.run(cx, &ThisHost));
        }
        let freeing = cx.spawn("fuse-free", {
            let adapter = adapter.clone();
            move |cx| adapter.free_forgotten(cx)
        });
        let served = serve(cx, &dir, &gate, work, signals);
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
    dir: &Path,
    gate: &Gate,
    work: impl FnOnce(&mut Cx, &Events) -> io::Result<()> + Send + 'static,
    signals: Option<Signals>,
) -> Result<End, MountError> {
    let events = Arc::new(Channel::named("fuse events", EVENTS_MAX));
    let ended = events.clone();
    let server = cx.spawn("fuse", move |cx| {
        let result = work(cx, &ended);
        let _nobody_listens = ended.send(cx, Event::Ended(result));
    });
    if let Some(signals) = signals {
        let events = events.clone();
        cx.spawn("signals", move |cx| {
            let name = signals.wait();
            let _nobody_listens = events.send(cx, Event::Signal(name));
        });
    }
    let name = match events.recv(cx) {
        Some(Event::Signal(name)) => name,
        Some(Event::Ended(Ok(()))) | None => {
            server.join(cx);
            return Ok(End::Unmounted);
        }
        Some(Event::Ended(Err(error))) => {
            return Err(MountError::Broken { dir: shown(dir), error });
        }
    };
    // The kernel's pages come to us first; then nobody needs the mount to be whole. Whoever waits
    // for them has no part in our open files, so that the process can be killed meanwhile.
    let whole = Arc::new(Channel::named("fuse end", 1));
    rt::spawn_apart("fuse end", {
        let (dir, whole) = (dir.to_owned(), whole.clone());
        move |_apart| {
            sync(&dir);
            let done = unmount(&dir, false).is_ok();
            if !done {
                let _torn_anyway = unmount(&dir, true);
            }
            let _nobody_waits = whole.try_send(done);
        }
    });
    if whole.recv(cx) == Some(true) {
        server.join(cx);
        return Ok(End::Signal(name));
    }
    let deadline = cx.now() + BUSY_NS;
    while cx.now() < deadline && !server.is_finished() {
        cx.sleep(Nanos::from_millis(10));
    }
    if server.is_finished() {
        return Ok(End::Signal(name));
    }
    gate.close(cx);
    Ok(End::Torn(name))
}

/// Asks the kernel to hand over what it still has of this mount.
fn sync(dir: &Path) {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    if let Ok(root) = rustix::fs::open(dir, flags, Mode::empty()) {
        // An error was or will be reported to the writer.
        let _reported_elsewhere = rustix::fs::syncfs(root.as_fd());
    }
}

/// Why mounting failed, where it is the kernel's device.
fn no_device() -> Option<MountError> {
    let opened = std::fs::File::options().read(true).write(true).open("/dev/fuse");
    let error = opened.err()?;
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

/// Takes a mount away: by the system call, or for others than root by fusermount3. With `lazy` at
/// once from the tree of directories, and for programs that use it when they end.
///
/// # Errors
/// It is in use, or not a mount of this user.
pub fn unmount(dir: &Path, lazy: bool) -> io::Result<()> {
    let flags = if lazy { UnmountFlags::DETACH } else { UnmountFlags::empty() };
    match rustix::mount::unmount(dir, flags) {
        Err(rustix::io::Errno::PERM) => {}
        result => return Ok(result?),
    }
    let mut command = Command::new("fusermount3");
    command.args(["-u", "-q"]).args(lazy.then_some("-z")).arg("--").arg(dir);
    let output = command.output()?;
    match output.status.success() {
        true => Ok(()),
        false => Err(io::Error::other(String::from_utf8_lossy(&output.stderr).trim().to_owned())),
    }
}
