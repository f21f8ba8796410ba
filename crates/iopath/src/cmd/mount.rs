//! `mount`: mounts a target on a directory of the host, through FUSE.

use std::ffi::OsString;
use std::io::{IsTerminal, Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::sync::Arc;

use anyhow::{Context, Result, anyhow, bail};
use clap::Args;
use fuse::{End, Keeper, Mount, Signals};
use vfs::FileSystem;

use crate::app::{App, MountWord};
use crate::confine::{self, Needs, Work};
use crate::keys;
use crate::log::{self, Level};
use crate::metrics::Watch;
use crate::notify::Manager;
use crate::session;
use crate::target::Target;
use crate::watch::{self, Watched};

/// Mount an image in the host's tree of directories (FUSE), without root where fusermount3 is
#[derive(Args)]
#[command(after_help = "Examples:
  iopath mount disk.img /mnt             it serves in the background
  umount /mnt                            or: fusermount3 -u /mnt
  iopath mount -f disk.img@2 /mnt        in the foreground; SIGINT and SIGTERM unmount
  iopath mount -o ro,allow_other disk.img /mnt
  iopath mount -o fakeroot rootfs.img m  edit an image as if you were its root
  iopath mount nfs://server/export m     an export of an NFS server
  iopath mount --metrics 9478 disk.img /mnt ; curl -s localhost:9478/metrics
Options of -o beside those of the file system: ro, rw, allow_other, allow_root,
default_permissions (always, but with fakeroot), fakeroot, suid, dev, noexec, nowriteback,
fsname=NAME, threads=NUMBER, spin=MICROSECONDS, io_uring, awake, noawake (no processor of the
host sleeps while programs use the mount: always, never; by itself, for root, while many requests
come and where wake-ups are dear)")]
pub struct Options {
    /// Image: TARGET
    #[arg(value_name = "TARGET")]
    target: OsString,
    /// Directory to mount on
    #[arg(value_name = "DIR")]
    dir: PathBuf,
    /// Stay in the foreground
    #[arg(short, long)]
    foreground: bool,
    /// The process in the background: reports on standard output when it serves
    #[arg(long, hide = true)]
    background: bool,
    /// The keeper of a mount: does what the locked process cannot
    #[arg(long, hide = true)]
    keeper: bool,
    #[command(flatten)]
    watch: Watch,
    #[command(flatten)]
    log: log::Options,
}

/// What the process in the background says when it serves.
const READY: &[u8] = b"ready\n";

/// Runs `mount`.
///
/// # Errors
/// The target cannot be opened or mounted, the directory not mounted on; later, the image not
/// written.
pub fn run(app: &mut App, options: &Options) -> Result<ExitCode> {
    let target = Target::parse(&options.target)?;
    let serves = options.foreground || options.background || options.keeper;
    if !serves && app.recorder.is_none() {
        return start(app);
    }
    // Before there is any other thread.
    let signals = Signals::block();
    let mut how = fuse::Options { source: target.source(), ..fuse::Options::default() };
    for word in &app.options.mount {
        if let MountWord::Mount(word) = word {
            how.set(word)?;
        }
    }
    how.shared = target.nfs_url().is_some();
    if options.keeper {
        // Nobody hears it: a directory that is not there is reported by the other process.
        let dir = options.dir.canonicalize()?;
        fuse::keep(&dir, &how)?;
        return Ok(ExitCode::SUCCESS);
    }
    log::begin(&options.log, app.out.json, app.options.quiet);
    let listening = options.watch.listen()?;
    let manager = Manager::connect();
    let keeper = lock(app, &target, how.read_only)?;
    let mut session = session::open(app, &target, !how.read_only)?;
    if let Some(replayed) = session.replayed() {
        app.out.note(format!("{target}: was not unmounted cleanly: {replayed}"));
    }
    watch::begin(app.cx, Watched::session(&session));
    if let Some(listening) = listening {
        let metrics = listening.measured(app, "mount", &mut session);
        listening.serve(app, metrics);
    }
    let (fs, kept) = (session.fs.clone(), session.fs.clone());
    let outside = Outside { dir: &options.dir, keeper, background: options.background, manager };
    let served = serve(app, fs, outside, &how, signals);
    let closed = session::close(app, session);
    let lost = kept.lost();
    if lost.first.is_some() {
        log::event(Level::Error, &format!("{target}: {lost}"));
    }
    let end = served?;
    closed?;
    log::event(Level::Info, &format!("{target}: not mounted any more"));
    if let End::Torn(signal) = end {
        app.out
            .note(format!("{target}: {signal} while programs used it: what they wrote is there"));
    }
    Ok(ExitCode::SUCCESS)
}

/// The host's side of a mount.
struct Outside<'a> {
    dir: &'a Path,
    keeper: Option<Keeper>,
    background: bool,
    manager: Manager,
}

/// Starts the keeper, then locks this process. None where the user wants no sandbox.
fn lock(app: &mut App, target: &Target, read_only: bool) -> Result<Option<Keeper>> {
    if app.options.no_sandbox || app.recorder.is_some() {
        return Ok(None);
    }
    let keeper = Keeper::start(keeper_command(app)?).context("starting the keeper")?;
    let mut needs = Needs::default();
    let work = if read_only { Work::Look } else { Work::Change };
    needs.word(target.to_string().as_ref(), work);
    needs.word(target.path.as_os_str(), work);
    // To say why it cannot be opened.
    needs.write("/dev/fuse");
    confine::enter(app, needs)?;
    Ok(Some(keeper))
}

fn serve(
    app: &mut App,
    fs: Arc<dyn FileSystem>,
    outside: Outside<'_>,
    how: &fuse::Options,
    signals: Signals,
) -> Result<End> {
    let mount = Mount::new(app.cx, fs, outside.dir, how, outside.keeper)?;
    if outside.background {
        let mut out = std::io::stdout();
        out.write_all(READY).and_then(|()| out.flush()).context("telling that it serves")?;
        detach().context("leaving the terminal")?;
        log::detach();
    }
    let (locked, manager) = (app.locked.clone(), outside.manager);
    let place = outside.dir.display().to_string();
    let settle = move || {
        manager.ready(&format!("serving {place}"));
        log::event(Level::Info, &format!("{place}: mounted"));
        locked.map_or(Ok(()), |locked| locked.settle().map_err(std::io::Error::other))
    };
    Ok(mount.run(app.cx, Some(signals.into()), settle)?)
}

/// This command once more, with another word.
fn this_command(app: &App, word: &str) -> Result<Command> {
    let program = std::env::current_exe().context("finding this program")?;
    let mut command = Command::new(program);
    // The word is an option of `mount`, whatever follows a `--`.
    let at = app.args.iter().position(|arg| arg == "mount").map_or(0, |at| at + 1);
    command.args(&app.args[..at]).arg(word).args(&app.args[at..]);
    Ok(command)
}

/// The same for the keeper, which needs no keys, and whose standard input is not the user's.
fn keeper_command(app: &App) -> Result<Command> {
    let all = this_command(app, "--keeper")?;
    let mut command = Command::new(all.get_program());
    let mut is_value = false;
    for arg in all.get_args() {
        let of_key = arg == "--key" || arg == "--key-file";
        let bytes = arg.as_bytes();
        let both = bytes.starts_with(b"--key=") || bytes.starts_with(b"--key-file=");
        if !of_key && !both && !is_value {
            command.arg(arg);
        }
        is_value = of_key && !is_value;
    }
    Ok(command)
}

/// Starts this command again in the background, and waits until it serves.
fn start(app: &App) -> Result<ExitCode> {
    // It asks for a passphrase; a key that came by our standard input it gets by its own.
    let typed = keys::from_stdin();
    let stdin = match typed {
        Some(_) => Stdio::piped(),
        None if std::io::stdin().is_terminal() => Stdio::inherit(),
        None => Stdio::null(),
    };
    let mut child = this_command(app, "--background")?
        .stdin(stdin)
        .stdout(Stdio::piped())
        .spawn()
        .context("starting the process that serves")?;
    if let (Some(bytes), Some(mut pipe)) = (typed, child.stdin.take()) {
        pipe.write_all(bytes).context("handing on the key")?;
    }
    let mut said = Vec::new();
    let pipe = child.stdout.take().ok_or_else(|| anyhow!("no pipe to the process that serves"))?;
    // It closes its end when it serves.
    { pipe }.read_to_end(&mut said).context("waiting for the mount")?;
    if said == READY {
        return Ok(ExitCode::SUCCESS);
    }
    let status = child.wait().context("waiting for the process that serves")?;
    match status.code() {
        Some(code @ 1..=255) => Ok(ExitCode::from(code as u8)), // It has said why.
        _ => bail!("the process that serves ended: {status}"),
    }
}

/// Lets go of the terminal, the working directory and the standard streams.
fn detach() -> Result<()> {
    // It fails only where we lead a group already, and then there is no need.
    let _leads_already = rustix::process::setsid();
    std::env::set_current_dir("/")?;
    let null = std::fs::OpenOptions::new().read(true).write(true).open("/dev/null")?;
    rustix::stdio::dup2_stdin(&null)?;
    rustix::stdio::dup2_stdout(&null)?;
    rustix::stdio::dup2_stderr(&null)?;
    Ok(())
}
