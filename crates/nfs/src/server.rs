//! The server: exports a file system of ours over NFS version 3.
//!
//! Sans-I/O: [`Server::answer`] takes the record of a call and gives the record of its answer;
//! [`crate::wire`] brings records over TCP or over a modelled link. The server keeps no state of
//! its clients but the cache of answers to calls that must not be carried out twice.
//!
//! **Handles** contain export, inode and generation under a keyed checksum. With the same key they
//! survive a restart, and nobody can forge one. **COMMIT** and stable WRITEs are answered when
//! [`FileSystem::fsync`] has returned. After an error of it the write verifier changes, and each
//! client sends again what it has not seen committed. **Permissions** are checked for each call
//! with the ids of AUTH_SYS after squashing; as with every NFS server, the owner of a file may
//! always read and write it, because the client has checked at open.
//!
//! Not supported: locking (NLM), ACLs (NFSACL), quota reports, UDP, Kerberos.

mod drc;
mod export;
mod handle;
mod mount;
mod name;
mod object;
mod readdir;

pub use export::{Allowed, Export, Squash};
pub use handle::HandleKey;

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use base::Errno;
use rt::{Cred, Cx, Mutex};
use vfs::{Attr, FileSystem};

use crate::proto::{Call, DATA_MAX, Fattr, Handle, Proc, Reply, Status, Wcc, WriteVerf};
use crate::rpc::{self, Auth, CallHead, NoCall, Refusal};
use crate::xdr::{Reader, Writer};
use drc::{Drc, Seen};

/// Largest record that a server takes: a WRITE with everything around it.
pub const RECORD_MAX: usize = DATA_MAX + 4096;

/// Calls carried out, by procedure, and bytes.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct ServerStats {
    /// Calls by number of the procedure.
    pub calls: [u64; Proc::COUNT],
    /// Bytes read.
    pub read_bytes: u64,
    /// Bytes written.
    pub write_bytes: u64,
    /// WRITEs that were to be durable.
    pub stable_writes: u64,
    /// Calls that were answered from the cache of answers, or dropped because they run.
    pub replays: u64,
}

#[derive(Default)]
struct Counters {
    calls: [AtomicU64; Proc::COUNT],
    read_bytes: AtomicU64,
    write_bytes: AtomicU64,
    stable_writes: AtomicU64,
    replays: AtomicU64,
}

/// An exported file system.
pub struct Server {
    fs: Arc<dyn FileSystem>,
    export: Export,
    fsid: u64,
    /// Changes with every life of the server, and after an error of fsync.
    verf: AtomicU64,
    drc: Drc,
    /// Held over a change of a file's content and the attributes before and after it, so that
    /// those belong together: a client sees by them whether somebody else was there in between.
    changing: [Mutex<()>; STRIPES],
    counters: Counters,
}

/// Files share locks: as many changes go on at once at most.
const STRIPES: usize = 64;

impl Server {
    /// Exports `fs`. `life` differs between any two lives of servers that share a handle key: a
    /// random number.
    pub fn new(fs: Arc<dyn FileSystem>, export: Export, fsid: u64, life: u64) -> Server {
        let (verf, drc) = (AtomicU64::new(life), Drc::new());
        let changing = std::array::from_fn(|_| Mutex::named("nfs change", ()));
        Server { fs, export, fsid, verf, drc, changing, counters: Counters::default() }
    }

    /// What is exported and to whom.
    pub fn export(&self) -> &Export {
        &self.export
    }

    /// Counters since it began.
    pub fn stats(&self) -> ServerStats {
        let counters = &self.counters;
        let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        ServerStats {
            calls: std::array::from_fn(|at| load(&counters.calls[at])),
            read_bytes: load(&counters.read_bytes),
            write_bytes: load(&counters.write_bytes),
            stable_writes: load(&counters.stable_writes),
            replays: load(&counters.replays),
        }
    }

    fn verf(&self) -> WriteVerf {
        self.verf.load(Ordering::Relaxed).to_be_bytes()
    }

    /// Carries out the call in `record` (without its record mark) that came from `peer`, and gives
    /// the answer with its record mark. `None` where there is nothing to answer: the record is no
    /// call, or the same call is being carried out. May park as the file system does.
    pub fn answer(&self, cx: &mut Cx, peer: IpAddr, record: &[u8]) -> Option<Vec<u8>> {
        let (head, args) = match rpc::read_call(record) {
            Ok(call) => call,
            Err(NoCall::Drop) => return None,
            Err(NoCall::Version(xid)) => {
                return Some(rpc::seal(rpc::refuse(xid, Refusal::Rpc(2, 2))));
            }
            // AUTH_BADCRED.
            Err(NoCall::Credentials(xid)) => {
                return Some(rpc::seal(rpc::refuse(xid, Refusal::Auth(1))));
            }
        };
        let xid = head.xid;
        let done = self.dispatch(cx, peer, &head, args, record);
        match done {
            Ok(reply) => reply,
            Err(refusal) => Some(rpc::seal(rpc::refuse(xid, refusal))),
        }
    }

    fn dispatch(
        &self,
        cx: &mut Cx,
        peer: IpAddr,
        head: &CallHead,
        args: Reader<'_>,
        record: &[u8],
    ) -> Result<Option<Vec<u8>>, Refusal> {
        // AUTH_TOOWEAK, for whom the export is not.
        if !self.export.allows(peer) {
            return Err(Refusal::Auth(5));
        }
        let procedure = head.procedure;
        match (head.program, head.version) {
            (rpc::NFS, 3) => self.nfs(cx, peer, head, args, record),
            (rpc::MOUNT, 3) => {
                let mut w = rpc::reply(head.xid);
                self.mount(cx, procedure, args, &mut w)?;
                Ok(Some(rpc::seal(w)))
            }
            (rpc::NFS | rpc::MOUNT, _) => Err(Refusal::Version(3, 3)),
            _ => Err(Refusal::Program),
        }
    }

    fn nfs(
        &self,
        cx: &mut Cx,
        peer: IpAddr,
        head: &CallHead,
        mut args: Reader<'_>,
        record: &[u8],
    ) -> Result<Option<Vec<u8>>, Refusal> {
        let procedure = Proc::of(head.procedure).ok_or(Refusal::Procedure)?;
        // AUTH_REJECTEDCRED: a flavour that is not known.
        let auth = head.auth.as_ref().ok_or(Refusal::Auth(2))?;
        let call = Call::read(procedure, &mut args).map_err(|_| Refusal::Garbage)?;
        let key = (!procedure.is_idempotent()).then(|| drc::key(peer, head.xid, record));
        if let Some(key) = key {
            match self.drc.begin(key) {
                Seen::Never => {}
                Seen::Running => {
                    self.counters.replays.fetch_add(1, Ordering::Relaxed);
                    return Ok(None);
                }
                Seen::Done(reply) => {
                    self.counters.replays.fetch_add(1, Ordering::Relaxed);
                    return Ok(Some(reply.to_vec()));
                }
            }
        }
        self.counters.calls[procedure as usize].fetch_add(1, Ordering::Relaxed);
        let own = cx.set_cred(self.cred(auth));
        let mut w = rpc::reply(head.xid);
        self.carry_out(cx, &call, &mut w);
        cx.set_cred(own);
        let reply = rpc::seal(w);
        if let Some(key) = key {
            self.drc.end(key, &reply);
        }
        Ok(Some(reply))
    }

    /// The credentials that a call is carried out with.
    fn cred(&self, auth: &Auth) -> Cred {
        let export = &self.export;
        let anonymous = || Cred { umask: 0, ..Cred::user(export.anon_uid, export.anon_gid) };
        let Auth::Sys { uid, gid, groups } = auth else { return anonymous() };
        match export.squash {
            Squash::All => anonymous(),
            Squash::Root if *uid == 0 => anonymous(),
            squash => {
                let keep = |gid: u32| match squash {
                    Squash::Root if gid == 0 => export.anon_gid,
                    _ => gid,
                };
                let groups = groups.iter().map(|&gid| keep(gid)).collect();
                Cred { uid: *uid, gid: keep(*gid), groups, umask: 0 }
            }
        }
    }

    fn carry_out(&self, cx: &mut Cx, call: &Call<'_>, w: &mut Writer) {
        let procedure = call.procedure();
        if let Call::Read { handle, offset, count } = call {
            return self.read(cx, handle, *offset, *count, w);
        }
        if let Call::Readlink { handle } = call {
            return self.readlink(cx, handle, w);
        }
        if let Call::Readdir { dir, cookie, count, .. } = call {
            return self.readdir(cx, procedure, dir, *cookie, *count, w);
        }
        if let Call::Readdirplus { dir, cookie, maxcount, .. } = call {
            return self.readdir(cx, procedure, dir, *cookie, *maxcount, w);
        }
        let mut reply = Reply::of(Status::OK);
        if let Err(status) = self.object_call(cx, call, &mut reply) {
            reply.status = status;
            reply.body = crate::proto::Body::None;
        }
        reply.write(procedure, w);
    }

    /// The object that a handle names.
    fn object(&self, cx: &mut Cx, handle: &Handle) -> Result<Attr, Status> {
        let (ino, generation) = self.export.key.open(handle).ok_or(Status::BADHANDLE)?;
        let attr = self.fs.getattr(cx, ino).map_err(Status::of)?;
        if attr.generation != generation {
            return Err(Status::of(Errno::ESTALE));
        }
        Ok(attr)
    }

    /// The lock of changes of the object that a handle names.
    fn changing(&self, handle: &Handle) -> &Mutex<()> {
        let hash = |hash: usize, &byte: &u8| hash.wrapping_mul(31).wrapping_add(byte.into());
        &self.changing[handle.bytes().iter().fold(0, hash) % STRIPES]
    }

    fn handle(&self, attr: &Attr) -> Handle {
        self.export.key.make(attr.ino, attr.generation)
    }

    fn fattr(&self, attr: &Attr) -> Fattr {
        Fattr::of(attr, self.fsid)
    }

    /// Attributes before and now.
    fn wcc(&self, cx: &mut Cx, before: &Attr) -> Wcc {
        let after = self.fs.getattr(cx, before.ino).ok();
        let after = after.map(|attr| self.fattr(&attr));
        Wcc { before: Some(self.fattr(before).stamp()), after }
    }

    fn must_write(&self) -> Result<(), Status> {
        if self.export.read_only { Err(Status::of(Errno::EROFS)) } else { Ok(()) }
    }
}
