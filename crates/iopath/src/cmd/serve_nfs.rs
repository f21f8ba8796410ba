//! `serve nfs`: serves a target over NFS version 3.

use std::ffi::OsString;
use std::fs::OpenOptions;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::{Context, Result, anyhow, bail};
use clap::{Args, ValueEnum};
use fuse::Signals;
use listenfd::ListenFd;
use nfs::wire::{Listener, Nfsd};
use nfs::{Allowed, Export, HandleKey, Server, Squash};
use serde_json::json;

use crate::app::{App, at};
use crate::confine::{self, Needs, Work};
use crate::log::{self, Level};
use crate::metrics::{Listening, Metrics, Watch};
use crate::notify::Manager;
use crate::session;
use crate::target::Target;
use crate::watch::{self, Watched};

/// Serve over NFS version 3 on TCP: NFS and MOUNT on one port, without a portmapper
#[derive(Args)]
#[command(after_help = "Examples:
  iopath serve nfs disk.img &
  nfs-ls 'nfs://127.0.0.1/export?nfsport=2049&mountport=2049'
  iopath ls -l 'nfs://127.0.0.1:2049/export?mountport=2049'")]
pub struct Options {
    /// Image: TARGET
    #[arg(value_name = "TARGET")]
    target: OsString,
    /// Address and port to listen at; port 0 is any free one; a socket of systemd comes before it
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:2049")]
    listen: SocketAddr,
    /// Path of the export
    #[arg(long, value_name = "PATH", default_value = "/export")]
    export: String,
    /// Allow changes
    #[arg(long)]
    write: bool,
    /// Addresses or networks that may use it; default: this machine alone
    #[arg(long, value_name = "NETWORK")]
    allow: Vec<Allowed>,
    /// Users to squash
    #[arg(long, value_enum, default_value_t = SquashArg::Root)]
    squash: SquashArg,
    /// User and group of squashed users
    #[arg(long, value_name = "UID:GID", default_value = "65534:65534", value_parser = ids)]
    anon: (u32, u32),
    /// File with the secret that handles are made with; made where there is none. With the same
    /// file, handles stay valid when the server is started again
    #[arg(long, value_name = "FILE")]
    handle_key: Option<PathBuf>,
    /// Server tasks
    #[arg(long, value_name = "N", default_value_t = 8)]
    tasks: usize,
    #[command(flatten)]
    watch: Watch,
    #[command(flatten)]
    log: log::Options,
}

#[derive(ValueEnum, Clone, Copy)]
enum SquashArg {
    /// Everybody is believed
    None,
    /// Root is not
    Root,
    /// Nobody is
    All,
}

fn ids(text: &str) -> Result<(u32, u32), String> {
    let pair = text.split_once(':').and_then(|(u, g)| Some((u.parse().ok()?, g.parse().ok()?)));
    pair.ok_or_else(|| format!("`{text}` is not UID:GID"))
}

/// Runs `serve nfs`.
///
/// # Errors
/// The target cannot be opened, the address not listened at; at the end, the image not written.
pub fn run(app: &mut App, args: &Options) -> Result<ExitCode> {
    // Before there is any other thread: they inherit it.
    let signals = Signals::block();
    log::begin(&args.log, app.out.json, app.options.quiet);
    let export = export(app, args)?;
    let target = Target::parse(&args.target)?;
    let manager = Manager::connect();
    let passed = ListenFd::from_env().take_tcp_listener(0).context("the socket of LISTEN_FDS")?;
    let listening = args.watch.listen()?;
    let socket = passed.map_or_else(|| TcpListener::bind(args.listen), Ok);
    let socket = socket.with_context(|| format!("listening at {}", args.listen))?;
    let work = if args.write { Work::Change } else { Work::Look };
    confine::enter(app, Needs::of_words(std::slice::from_ref(&args.target), work))?;
    let mut session = session::open(app, &target, args.write)?;
    watch::begin(app.cx, Watched::session(&session));
    let watched = listening.map(|listening| {
        let metrics = listening.measured(app, "nfs", &mut session);
        (listening, metrics)
    });
    let waits = Waits { socket, signals, manager, watched };
    let served = serve(app, args, export, &session, waits);
    let closed = session::close(app, session);
    served?;
    closed?;
    Ok(ExitCode::SUCCESS)
}

fn export(app: &mut App, args: &Options) -> Result<Export> {
    let path = args.export.as_str();
    if !path.starts_with('/') || (path.len() > 1 && path.ends_with('/')) {
        bail!("--export {path}: an absolute path without a slash at its end");
    }
    let key = key(app, args.handle_key.as_deref())?;
    let mut export = Export {
        read_only: !args.write,
        squash: match args.squash {
            SquashArg::None => Squash::None,
            SquashArg::Root => Squash::Root,
            SquashArg::All => Squash::All,
        },
        anon_uid: args.anon.0,
        anon_gid: args.anon.1,
        ..Export::new(path.as_bytes(), key)
    };
    if !args.allow.is_empty() {
        export.allowed = args.allow.clone();
    }
    Ok(export)
}

/// What the server waits for: clients, and its end.
struct Waits {
    socket: TcpListener,
    signals: Signals,
    manager: Manager,
    watched: Option<(Listening, Metrics)>,
}

fn serve(
    app: &mut App,
    args: &Options,
    export: Export,
    session: &session::Session,
    waits: Waits,
) -> Result<()> {
    let fsid = session.fs.statfs(app.cx).map_err(at(&session.target))?.fsid;
    let life = app.cx.random();
    let server = Arc::new(Server::new(session.fs.clone(), export, fsid, life));
    if let Some((listening, mut metrics)) = waits.watched {
        metrics.nfs = Some(server.clone());
        listening.serve(app, metrics);
    }
    let nfsd = Nfsd::start(app.cx, server, args.tasks.clamp(1, 256));
    let listener = Listener::heard(app.cx, waits.socket, nfsd.clone(), log::client);
    let result =
        listener.with_context(|| format!("listening at {}", args.listen)).and_then(|listener| {
            confine::settle(app)?;
            let (address, port) = (listener.address(), listener.address().port());
            let url = format!("nfs://{address}{}?nfsport={port}&mountport={port}", args.export);
            match app.out.json {
                true => app.out.document(&json!({ "url": url, "port": port }))?,
                false => app.out.line(format!("{}: {url}", session.target))?,
            }
            app.out.flush()?;
            waits.manager.ready(&url);
            log::event(Level::Info, &format!("{}: serving at {url}", session.target));
            waits.signals.wait();
            waits.manager.stopping();
            log::event(Level::Info, &format!("{}: stopping", session.target));
            listener.stop(app.cx);
            Ok(())
        });
    nfsd.stop(app.cx);
    result
}

/// The secret in a file, which is made where there is none.
fn key(app: &mut App, path: Option<&Path>) -> Result<HandleKey> {
    let own = std::env::var_os("XDG_STATE_HOME")
        .map(PathBuf::from)
        .or_else(|| std::env::home_dir().map(|home| home.join(".local/state")));
    let own = own.map(|state| state.join("iopath/nfs-handle-key"));
    match (path, own) {
        (Some(path), _) => stored_key(path),
        (None, Some(path)) => {
            let made = path.parent().map_or(Ok(()), std::fs::create_dir_all);
            made.map_err(anyhow::Error::from).and_then(|()| stored_key(&path)).or_else(|error| {
                app.out.note(format!("{error:#}: handles end with this process"));
                Ok(HandleKey::new(fresh()?))
            })
        }
        (None, None) => Ok(HandleKey::new(fresh()?)),
    }
}

fn stored_key(path: &Path) -> Result<HandleKey> {
    let place = || format!("the key of handles in {}", path.display());
    let made = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path);
    match made {
        Ok(mut file) => {
            let secret = fresh()?;
            file.write_all(&secret).and_then(|()| file.sync_all()).with_context(place)?;
            Ok(HandleKey::new(secret))
        }
        Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {
            let bytes = std::fs::read(path).with_context(place)?;
            let len = bytes.len();
            let secret = <[u8; 32]>::try_from(bytes);
            secret
                .map(HandleKey::new)
                .map_err(|_| anyhow!("{}: {len} bytes instead of 32", place()))
        }
        Err(error) => Err(error).with_context(place),
    }
}

fn fresh() -> Result<[u8; 32]> {
    let mut secret = [0; 32];
    let mut source = std::fs::File::open("/dev/urandom").context("/dev/urandom")?;
    source.read_exact(&mut secret).context("/dev/urandom")?;
    Ok(secret)
}
