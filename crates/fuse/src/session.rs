//! A mount from its beginning to its end.

use std::io;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use base::Nanos;
use nix::errno::Errno as HostErrno;
use rt::{Channel, Cx};
use rustix::fs::{Mode, OFlags};
use rustix::mount::UnmountFlags;
use vfs::FileSystem;

use crate::adapter::{Adapter, Gate};
use crate::crew::Crew;
use crate::handshake::{BUFFER_BYTES, Handshake};
use crate::kernel;
use crate::options::Options;
use crate::seek::Seeks;
use crate::signals::Signals;
use crate::wire::Device;

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

enum Event {
    Signal(&'static str),
    Ended(io::Result<()>),
}

/// A file system that is mounted in the host's tree.
pub struct Mount {
    dir: PathBuf,
    gate: Arc<Gate>,
    seeks: Seeks,
    crew: Arc<Crew>,
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
        let handshake = Handshake::new(options);
        let session = fuser::Session::new(handshake, &dir, &options.config()).map_err(refused)?;
        let device = Arc::new(Device::new(session.as_fd()).map_err(refused)?);
        let adapter = Adapter::new(fs, gate.clone(), options);
        let seeks = adapter.seeks.clone();
        adapter.start_seeks(cx.runtime());
        seeks.connect(session.notifier());
        let alone = std::thread::available_parallelism().is_ok_and(|count| count.get() == 1);
        let spin = if alone { Nanos::ZERO } else { options.spin };
        let crew = Arc::new(Crew::new(adapter, device, spin, BUFFER_BYTES));
        if let Ok(Some(device)) = kernel::mounted(&dir) {
            kernel::tune(&device);
        }
        let threads = options.threads.max(2);
        Ok(Mount { dir, gate, seeks, crew, threads, session })
    }

    /// Serves requests until the directory is unmounted or one of the signals comes. Afterwards
    /// nothing uses the file system any more, and the caller unmounts it. May park.
    ///
    /// # Errors
    /// The connection to the kernel broke.
    pub fn run(self, cx: &mut Cx, signals: Option<Signals>) -> Result<End, MountError> {
        let Mount { dir, gate, seeks, crew, threads, session } = self;
        let work = move |cx: &mut Cx| {
            let result = crew.run(cx, threads);
            drop(session); // Takes the mount away where it broke.
            result
        };
        let served = serve(cx, &dir, &gate, work, signals);
        seeks.close();
        served
    }
}

fn serve(
    cx: &mut Cx,
    dir: &Path,
    gate: &Gate,
    work: impl FnOnce(&mut Cx) -> io::Result<()> + Send + 'static,
    signals: Option<Signals>,
) -> Result<End, MountError> {
    let events = Arc::new(Channel::named("fuse events", 2));
    let ended = events.clone();
    let server = cx.spawn("fuse", move |cx| {
        let result = work(cx);
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
    // The kernel's pages come to us first; then nobody needs the mount to be whole.
    sync(dir);
    match unmount(dir, false) {
        Ok(()) => {
            server.join(cx);
            return Ok(End::Signal(name));
        }
        Err(_busy) => {
            let _torn_anyway = unmount(dir, true);
        }
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
        // An error was or will be told to whoever wrote.
        let _told_elsewhere = rustix::fs::syncfs(root.as_fd());
    }
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
