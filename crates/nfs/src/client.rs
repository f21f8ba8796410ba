//! The client: an export as a [`vfs::FileSystem`].
//!
//! - `rpc`, `slots`: calls over a [`crate::wire::Wire`].
//! - `inode`: attributes with their times, what changed and by whom.
//! - `folio`, `read`, `write`, `flush`, `commit`, `ahead`, `cache`: the page cache; its rules: see
//!   `folio`.
//! - `fs`, `names`, `readdir`: the operations.
//!
//! **Close-to-open.** [`vfs::FileSystem::open`] asks the server for attributes and drops what is
//! cached where they show a change by somebody else; `release` sends and commits what was
//! written. In between, attributes are trusted for 3 to 60 seconds (directories 30 to 60), as
//! Linux does. Dirty bytes are never dropped for another's change: they stay on top of what is
//! read anew.
//!
//! **Durability.** `fsync` returns when the server has committed everything without a restart in
//! between: its write verifier is compared, and after a restart the data is sent again. A WRITE or
//! COMMIT that fails is an error of the next `fsync` or `release`.

mod ahead;
mod cache;
mod commit;
mod flush;
mod folio;
mod fs;
mod inode;
mod mount;
mod names;
mod read;
mod readdir;
pub mod rpc;
mod slots;
mod url;
mod write;

pub use mount::MountError;
pub use url::Url;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use base::{Errno, Ino, Nanos, Page};
use rt::{Cred, Cx};

use crate::proto::{Body, Call, FsInfo, Handle, Proc, Reply, Status};
use crate::rpc::{self as wire_rpc, Auth};
use crate::wire::Wire;
use cache::Cache;
use inode::Inodes;
use rpc::{RpcClient, RpcOptions};

/// What the page cache does with pages that are partly up to date.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Mode {
    /// Linux 2.6.29: one written range per page; nothing is read from a page that is not up to date
    /// as a whole, and it is sent to the server before it is read.
    Off,
    /// With Hisashi Hifumi's patch of 2009: what lies in the written range is read from it.
    Request,
    /// Linux since 2.6.31: a page is read before a part of it is written.
    Rmw,
    /// Ours: valid and dirty ranges are independent, any number per page, and survive the flush;
    /// nothing is sent in order to read; holes that the client made are known.
    #[default]
    Ranges,
}

impl Mode {
    /// All of them with their names.
    pub const ALL: [(&'static str, Mode); 4] = [
        ("off", Mode::Off),
        ("request", Mode::Request),
        ("rmw", Mode::Rmw),
        ("ranges", Mode::Ranges),
    ];
}

/// Settings of a client.
#[derive(Clone, Debug)]
pub struct NfsOptions {
    /// Refuse every change.
    pub read_only: bool,
    /// What is done with pages that are partly up to date.
    pub mode: Mode,
    /// Bytes of a folio: 4096, 16384 or 65536.
    pub folio_size: u32,
    /// Bytes of folio memory.
    pub cache_bytes: u64,
    /// Bytes of folios with dirty or uncommitted data above which they are written.
    pub dirty_background_bytes: u64,
    /// Bytes of them above which writers wait.
    pub dirty_limit_bytes: u64,
    /// Age at which dirty data is written.
    pub dirty_expire: Nanos,
    /// How often the flusher looks for it.
    pub dirty_interval: Nanos,
    /// Bound of a readahead window, bytes; 0 switches it off.
    pub readahead_bytes: u64,
    /// Largest READ; `None`: what the server prefers.
    pub rsize: Option<u32>,
    /// Largest WRITE; `None`: what the server prefers.
    pub wsize: Option<u32>,
    /// Shortest and longest time for which attributes of files are believed.
    pub attr_file: (Nanos, Nanos),
    /// The same for directories.
    pub attr_dir: (Nanos, Nanos),
    /// Calls.
    pub rpc: RpcOptions,
}

impl Default for NfsOptions {
    fn default() -> NfsOptions {
        NfsOptions::with_cache(256 << 20)
    }
}

impl NfsOptions {
    /// The default settings with this much memory for folios.
    pub fn with_cache(cache_bytes: u64) -> NfsOptions {
        NfsOptions {
            read_only: false,
            mode: Mode::Ranges,
            folio_size: 4096,
            cache_bytes,
            dirty_background_bytes: cache_bytes / 8,
            dirty_limit_bytes: cache_bytes / 2,
            dirty_expire: Nanos::from_secs(30),
            dirty_interval: Nanos::from_secs(5),
            readahead_bytes: 4 << 20,
            rsize: None,
            wsize: None,
            attr_file: (Nanos::from_secs(3), Nanos::from_secs(60)),
            attr_dir: (Nanos::from_secs(30), Nanos::from_secs(60)),
            rpc: RpcOptions { slots: 64, timeout: Nanos::from_secs(60), attempts: None },
        }
    }
}

macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// Counters of a client since it was mounted.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
        pub struct NfsStats {
            /// Calls by number of the procedure.
            pub calls: [u64; Proc::COUNT],
            /// Calls that were sent again.
            pub retransmissions: u64,
            $($(#[$doc])* pub $name: u64,)*
        }

        #[derive(Default)]
        struct Counters {
            calls: [AtomicU64; Proc::COUNT],
            $($name: AtomicU64,)*
        }

        impl Counters {
            fn snapshot(&self) -> NfsStats {
                NfsStats {
                    calls: std::array::from_fn(|at| self.calls[at].load(Ordering::Relaxed)),
                    retransmissions: 0,
                    $($name: self.$name.load(Ordering::Relaxed),)*
                }
            }
        }
    };
}

counters! {
    /// Calls of `read` that were served from memory.
    read_hits,
    /// Those among them that were served from a folio that is not valid as a whole.
    partial_hits,
    /// Calls of `read` that waited for a READ of a folio of which nothing was in memory.
    cold_reads,
    /// Calls of `read` that waited for a READ of the rest of a folio.
    rest_reads,
    /// Times that a folio was sent to the server in order to be read.
    flush_reads,
    /// Times that a folio was sent to the server in order to be written elsewhere.
    flush_writes,
    /// Times that a folio was read in order to be written.
    write_reads,
    /// Bytes that are known as zeros without a READ.
    hole_bytes,
    /// Bytes that READs brought.
    read_bytes,
    /// Bytes that WRITEs sent.
    write_bytes,
    /// WRITEs that were to be durable.
    stable_writes,
    /// Times that a server's write verifier changed and data was sent again.
    verifier_changes,
    /// Times that another's change was noticed.
    foreign_changes,
    /// Folios given up for their memory.
    evicted,
}

fn count(counter: &AtomicU64, n: u64) {
    counter.fetch_add(n, Ordering::Relaxed);
}

/// A mounted export.
pub struct NfsClient {
    rpc: Arc<RpcClient>,
    options: NfsOptions,
    root: Ino,
    fsid: u64,
    limits: Limits,
    inodes: Inodes,
    cache: Cache,
    counters: Counters,
    /// What folios hold before they hold anything.
    zeros: Page,
    /// READDIRPLUS is not there.
    no_plus: AtomicBool,
    dead: AtomicBool,
    own: Weak<NfsClient>,
}

/// Sizes agreed with the server.
#[derive(Clone, Copy, Debug)]
struct Limits {
    rsize: u32,
    wsize: u32,
    dtpref: u32,
    max_file: u64,
}

impl NfsClient {
    /// Mounts the file system whose root has this handle, with the server behind `wire`. May park.
    ///
    /// # Errors
    /// Those of FSINFO and GETATTR of the root; `EINVAL` a folio size that there is not.
    pub fn mount(
        cx: &mut Cx,
        wire: Arc<dyn Wire>,
        root: Handle,
        options: NfsOptions,
    ) -> Result<Arc<NfsClient>, Errno> {
        if !matches!(options.folio_size, 4096 | 16384 | 65536) {
            return Err(Errno::EINVAL);
        }
        let rpc = RpcClient::start(cx, wire, options.rpc);
        let counters = Counters::default();
        let asked = ask_root(cx, &rpc, root, &counters, &options);
        let (attr, limits) = match asked {
            Ok(asked) => asked,
            Err(errno) => {
                rpc.stop(cx);
                return Err(errno);
            }
        };
        let client = Arc::new_cyclic(|own| NfsClient {
            cache: Cache::new(&options),
            rpc,
            root: Ino(attr.fileid),
            fsid: attr.fsid,
            limits,
            inodes: Inodes::default(),
            counters,
            zeros: Page::zeroed(options.folio_size as usize),
            no_plus: AtomicBool::new(false),
            dead: AtomicBool::new(false),
            own: own.clone(),
            options,
        });
        client.note(cx, root, attr);
        Ok(client)
    }

    /// Counters.
    pub fn stats(&self) -> NfsStats {
        let mut stats = self.counters.snapshot();
        stats.retransmissions = self.rpc.retransmissions();
        stats
    }

    /// The settings in use.
    pub fn options(&self) -> &NfsOptions {
        &self.options
    }

    /// Gives up every folio that has neither dirty nor uncommitted bytes (Linux: `drop_caches`).
    pub fn drop_clean(&self, cx: &mut Cx) {
        self.evict_clean(cx, u64::MAX);
    }

    /// Calls a procedure as the task, and hands over the answer. Where the server asks to come
    /// again later, it does. May park.
    ///
    /// # Errors
    /// Those of the connection; `EIO` for an answer that cannot be read. The status of the answer
    /// is the caller's to look at.
    fn call<R>(
        &self,
        cx: &mut Cx,
        call: &Call<'_>,
        take: impl FnOnce(&Reply<'_>) -> R,
    ) -> Result<R, Errno> {
        let auth = Auth::of(cx.cred());
        self.call_as(cx, auth, call, take)
    }

    fn call_as<R>(
        &self,
        cx: &mut Cx,
        auth: Auth,
        call: &Call<'_>,
        take: impl FnOnce(&Reply<'_>) -> R,
    ) -> Result<R, Errno> {
        if self.dead.load(Ordering::Acquire) {
            return Err(Errno::EIO);
        }
        call_on(cx, &self.rpc, &self.counters, auth, call, take)
    }

    fn must_write(&self) -> Result<(), Errno> {
        if self.options.read_only { Err(Errno::EROFS) } else { Ok(()) }
    }
}

/// Waits between two attempts of a call that a server wants later.
const LATER: (Nanos, Nanos) = (Nanos::from_millis(100), Nanos::from_secs(15));

fn call_on<R>(
    cx: &mut Cx,
    rpc: &RpcClient,
    counters: &Counters,
    auth: Auth,
    call: &Call<'_>,
    take: impl FnOnce(&Reply<'_>) -> R,
) -> Result<R, Errno> {
    let procedure = call.procedure();
    let mut later = LATER.0;
    loop {
        count(&counters.calls[procedure as usize], 1);
        let numbers = (wire_rpc::NFS, 3, procedure as u32);
        let record = rpc.call(cx, numbers, auth.clone(), |w| call.write(w))?;
        let reply = read_answer(procedure, &record)?;
        if reply.status != Status::JUKEBOX {
            return Ok(take(&reply));
        }
        cx.sleep(later);
        later = Nanos((later.0 * 2).min(LATER.1.0));
    }
}

/// The answer in a record.
///
/// # Errors
/// `EACCES` the server refuses the credentials; `EIO` it cannot be read.
fn read_answer(procedure: Proc, record: &[u8]) -> Result<Reply<'_>, Errno> {
    let mut reader = match wire_rpc::read_reply(record) {
        Ok(reader) => reader,
        Err(wire_rpc::ReplyError::Refused(wire_rpc::Refusal::Auth(_))) => {
            return Err(Errno::EACCES);
        }
        Err(wire_rpc::ReplyError::Refused(wire_rpc::Refusal::Procedure)) => {
            return Err(Errno::EOPNOTSUPP);
        }
        Err(_) => return Err(Errno::EIO),
    };
    Reply::read(procedure, &mut reader).map_err(|_| Errno::EIO)
}

fn ask_root(
    cx: &mut Cx,
    rpc: &RpcClient,
    root: Handle,
    counters: &Counters,
    options: &NfsOptions,
) -> Result<(crate::proto::Fattr, Limits), Errno> {
    let auth = Auth::of(cx.cred());
    let call = Call::Fsinfo { handle: root };
    let info = call_on(cx, rpc, counters, auth.clone(), &call, |reply| {
        reply.status.check().map(|()| match reply.body {
            Body::Fsinfo(info) => Some(info),
            _ => None,
        })
    })??;
    let call = Call::Getattr { handle: root };
    let attr = call_on(cx, rpc, counters, auth, &call, |reply| {
        reply.status.check().map(|()| reply.attr.clone())
    })??;
    let (info, attr) = info.zip(attr).ok_or(Errno::EIO)?;
    Ok((attr, limits(&info, options)))
}

fn limits(info: &FsInfo, options: &NfsOptions) -> Limits {
    let max = crate::proto::DATA_MAX as u32;
    let size = |own: Option<u32>, preferred: u32, most: u32| {
        own.unwrap_or(preferred.max(1)).min(most.max(512)).clamp(512, max)
    };
    Limits {
        rsize: size(options.rsize, info.rtpref, info.rtmax),
        wsize: size(options.wsize, info.wtpref, info.wtmax),
        dtpref: info.dtpref.clamp(4096, 256 << 10),
        max_file: info.maxfilesize.min(i64::MAX as u64),
    }
}

/// The user for whom a folio is written.
fn auth_of(cred: &Cred) -> Auth {
    Auth::of(cred)
}
