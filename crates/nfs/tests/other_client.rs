//! Goal: a client that shares no code with ours finds on our server what the protocol promises.
//! Method: every procedure of the crate `nfs3_client` over TCP on this machine, beside the file
//! system behind the server.

mod common;

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use common::export;
use nfs::wire::{Listener, Nfsd};
use nfs::{Export, Server};
use nfs3_client::io::{AsyncRead, AsyncWrite};
use nfs3_client::net::Connector;
use nfs3_client::nfs3_types::nfs3::*;
use nfs3_client::nfs3_types::rpc::{auth_unix, opaque_auth};
use nfs3_client::nfs3_types::xdr_codec::Opaque;
use nfs3_client::{Nfs3Connection, Nfs3ConnectionBuilder};
use rt::{Cx, Runtime};
use testkit::memfs::MemFs;
use vfs::{FileSystem, Namespace};

/// A socket that blocks: its futures are ready when they are asked.
#[derive(Debug)]
struct Blocking(TcpStream);

impl AsyncRead for Blocking {
    async fn async_read(&mut self, buf: &mut [u8]) -> std::io::Result<usize> {
        self.0.read(buf)
    }
}

impl AsyncWrite for Blocking {
    async fn async_write(&mut self, buf: &[u8]) -> std::io::Result<usize> {
        self.0.write(buf)
    }
}

struct Plain;

impl Connector for Plain {
    type Connection = Blocking;

    async fn connect(&self, addr: SocketAddr) -> std::io::Result<Blocking> {
        TcpStream::connect(addr).map(Blocking)
    }

    async fn connect_with_port(&self, addr: SocketAddr, _port: u16) -> std::io::Result<Blocking> {
        self.connect(addr).await
    }
}

/// The result of a future that never waits.
fn now<F: Future>(future: F) -> F::Output {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(result) => result,
        Poll::Pending => unreachable!("the sockets block"),
    }
}

fn connect(port: u16, uid: u32) -> Nfs3Connection<Blocking> {
    let auth = auth_unix { uid, gid: uid, ..auth_unix::default() };
    let builder = Nfs3ConnectionBuilder::new(Plain, "127.0.0.1", "/export")
        .connect_from_privileged_port(false)
        .mount_port(port)
        .nfs3_port(port)
        .credential(opaque_auth::auth_unix(&auth));
    now(builder.mount()).expect("mounted")
}

/// A server on a free port for the time of `work`.
fn served<T>(cx: &mut Cx, fs: Arc<MemFs>, export: Export, work: impl FnOnce(&mut Cx, u16) -> T) {
    let nfsd = Nfsd::start(cx, Arc::new(Server::new(fs, export, 7, 1)), 2);
    let any: SocketAddr = "127.0.0.1:0".parse().unwrap();
    let listener = Listener::start(cx, any, nfsd.clone()).unwrap();
    let port = listener.address().port();
    work(cx, port);
    listener.stop(cx);
    nfsd.stop(cx);
}

fn at<'n>(dir: &nfs_fh3, name: &'n str) -> diropargs3<'n> {
    diropargs3 { dir: dir.clone(), name: name.as_bytes().into() }
}

fn mode(mode: u32) -> sattr3 {
    sattr3 { mode: Nfs3Option::Some(mode), ..sattr3::default() }
}

#[track_caller]
fn refused<T: std::fmt::Debug, E>(result: Nfs3Result<T, E>) -> nfsstat3 {
    match result {
        Nfs3Result::Ok(ok) => panic!("not refused: {ok:?}"),
        Nfs3Result::Err((status, _)) => status,
    }
}

#[test]
fn every_procedure_does_what_the_protocol_says() {
    Runtime::real(2).enter("test", |cx| {
        let fs = Arc::new(MemFs::new());
        let names = Namespace::new(fs.clone());
        served(cx, fs.clone(), export(), |cx, port| {
            let mut client = connect(port, 0);
            let root = client.root_nfs_fh3();
            now(client.null()).unwrap();
            let dir = directories(cx, &mut client, &root, &names);
            let file = content(cx, &mut client, &dir, &names);
            links(cx, &mut client, &dir, &file, &names);
            listings(&mut client, &dir);
            file_system(&mut client, &root);
            removals(cx, &mut client, &root, &dir, &names);
            now(client.unmount()).unwrap();
        });
    });
}

fn directories(
    cx: &mut Cx,
    client: &mut Nfs3Connection<Blocking>,
    root: &nfs_fh3,
    names: &Namespace,
) -> nfs_fh3 {
    let made = now(client.mkdir(&MKDIR3args { where_: at(root, "dir"), attributes: mode(0o750) }));
    let made = made.unwrap().unwrap();
    let dir = made.obj.unwrap();
    let attr = names.stat(cx, b"/dir").unwrap();
    let told = made.obj_attributes.unwrap();
    assert_eq!((told.type_, told.mode, told.fileid), (ftype3::NF3DIR, 0o750, attr.ino.0));
    let again = MKDIR3args { where_: at(root, "dir"), attributes: mode(0o750) };
    assert_eq!(refused(now(client.mkdir(&again)).unwrap()), nfsstat3::NFS3ERR_EXIST);
    let found = now(client.lookup(&LOOKUP3args { what: at(root, "dir") })).unwrap().unwrap();
    assert_eq!(found.object, dir);
    let missing = now(client.lookup(&LOOKUP3args { what: at(root, "missing") })).unwrap();
    assert_eq!(refused(missing), nfsstat3::NFS3ERR_NOENT);
    let access = ACCESS3args { object: dir.clone(), access: 0x3f };
    let granted = now(client.access(&access)).unwrap().unwrap().access;
    assert_eq!(granted, 0x1f, "root may all but execute a directory");
    dir
}

fn content(
    cx: &mut Cx,
    client: &mut Nfs3Connection<Blocking>,
    dir: &nfs_fh3,
    names: &Namespace,
) -> nfs_fh3 {
    let how = createhow3::GUARDED(mode(0o640));
    let made = now(client.create(&CREATE3args { where_: at(dir, "file"), how })).unwrap().unwrap();
    let file = made.obj.unwrap();
    let how = createhow3::GUARDED(mode(0o640));
    let again = now(client.create(&CREATE3args { where_: at(dir, "file"), how })).unwrap();
    assert_eq!(refused(again), nfsstat3::NFS3ERR_EXIST);
    // An exclusive create that is repeated, as after a lost answer, finds its own file.
    let exclusive = |verf| CREATE3args {
        where_: at(dir, "own"),
        how: createhow3::EXCLUSIVE(createverf3([verf; 8])),
    };
    let first = now(client.create(&exclusive(1))).unwrap().unwrap().obj.unwrap();
    assert_eq!(now(client.create(&exclusive(1))).unwrap().unwrap().obj.unwrap(), first);
    let other = now(client.create(&exclusive(2))).unwrap();
    assert_eq!(refused(other), nfsstat3::NFS3ERR_EXIST);

    let data: Vec<u8> = (0..200_000u32).map(|n| (n % 251) as u8).collect();
    let (first, second) = data.split_at(123_457);
    let mut verfs = Vec::new();
    for (offset, bytes, stable) in
        [(0, first, stable_how::UNSTABLE), (first.len(), second, stable_how::FILE_SYNC)]
    {
        let args = WRITE3args {
            file: file.clone(),
            offset: offset as u64,
            count: bytes.len() as u32,
            stable,
            data: Opaque::borrowed(bytes),
        };
        let done = now(client.write(&args)).unwrap().unwrap();
        assert_eq!(done.count as usize, bytes.len());
        assert!(stable != stable_how::FILE_SYNC || done.committed == stable_how::FILE_SYNC);
        verfs.push(done.verf);
    }
    let commit = COMMIT3args { file: file.clone(), offset: 0, count: 0 };
    let committed = now(client.commit(&commit)).unwrap().unwrap();
    assert_eq!((committed.verf, committed.verf), (verfs[0], verfs[1]), "one life of the server");
    let after = committed.file_wcc.after.unwrap();
    assert_eq!(after.size, 200_000);
    let read = |client: &mut Nfs3Connection<Blocking>, offset, count| {
        let args = READ3args { file: file.clone(), offset, count };
        let got = now(client.read(&args)).unwrap().unwrap();
        assert_eq!(got.count as usize, got.data.len());
        (got.data.to_vec(), got.eof)
    };
    assert!(read(client, 0, 200_000) == (data.clone(), true));
    assert!(read(client, 100_000, 50_000) == (data[100_000..150_000].to_vec(), false));
    assert_eq!(read(client, 200_000, 10), (vec![], true));
    assert_eq!(names.stat(cx, b"/dir/file").unwrap().size, 200_000);
    guarded(client, &file, after.ctime);
    file
}

fn guarded(client: &mut Nfs3Connection<Blocking>, file: &nfs_fh3, ctime: nfstime3) {
    // A guard that is not the time of change is refused, the right one is not.
    let set = |guard| SETATTR3args {
        object: file.clone(),
        new_attributes: sattr3 {
            size: Nfs3Option::Some(1000),
            mtime: set_mtime::SET_TO_CLIENT_TIME(nfstime3 { seconds: 77, nseconds: 5000 }),
            ..mode(0o600)
        },
        guard: Nfs3Option::Some(guard),
    };
    let wrong = nfstime3 { seconds: 1, nseconds: 1 };
    assert_eq!(refused(now(client.setattr(&set(wrong))).unwrap()), nfsstat3::NFS3ERR_NOT_SYNC);
    now(client.setattr(&set(ctime))).unwrap().unwrap();
    let attr = now(client.getattr(&GETATTR3args { object: file.clone() })).unwrap().unwrap();
    let attr = attr.obj_attributes;
    assert_eq!((attr.size, attr.mode, attr.mtime.seconds), (1000, 0o600, 77));
}

fn links(
    cx: &mut Cx,
    client: &mut Nfs3Connection<Blocking>,
    dir: &nfs_fh3,
    file: &nfs_fh3,
    names: &Namespace,
) {
    let target = b"../else where";
    let symlink = symlinkdata3 {
        symlink_attributes: sattr3::default(),
        symlink_data: nfspath3(Opaque::borrowed(target)),
    };
    let made = now(client.symlink(&SYMLINK3args { where_: at(dir, "symlink"), symlink }));
    let link = made.unwrap().unwrap().obj.unwrap();
    let read = now(client.readlink(&READLINK3args { symlink: link })).unwrap().unwrap();
    assert_eq!(read.data.as_ref(), target);
    assert_eq!(names.readlink(cx, b"/dir/symlink").unwrap(), target);
    let hard = LINK3args { file: file.clone(), link: at(dir, "hard") };
    let linked = now(client.link(&hard)).unwrap().unwrap();
    assert_eq!(linked.file_attributes.unwrap().nlink, 2);
    let fifo = MKNOD3args { where_: at(dir, "fifo"), what: mknoddata3::NF3FIFO(mode(0o600)) };
    let fifo = now(client.mknod(&fifo)).unwrap().unwrap();
    assert_eq!(fifo.obj_attributes.unwrap().type_, ftype3::NF3FIFO);
    let dev_attributes = mode(0o600);
    let spec = specdata3 { specdata1: 4, specdata2: 64 };
    let what = mknoddata3::NF3CHR(devicedata3 { dev_attributes, spec });
    let device = now(client.mknod(&MKNOD3args { where_: at(dir, "device"), what }));
    let told = device.unwrap().unwrap().obj_attributes.unwrap();
    assert_eq!((told.type_, told.rdev.specdata1, told.rdev.specdata2), (ftype3::NF3CHR, 4, 64));
    let rename = RENAME3args { from: at(dir, "hard"), to: at(dir, "own") };
    now(client.rename(&rename)).unwrap().unwrap();
    assert_eq!(names.stat(cx, b"/dir/own").unwrap().nlink, 2, "the new name's file is replaced");
}

fn listings(client: &mut Nfs3Connection<Blocking>, dir: &nfs_fh3) {
    for n in 0..200 {
        let how = createhow3::UNCHECKED(mode(0o600));
        let name = format!("entry number {n}");
        now(client.create(&CREATE3args { where_: at(dir, &name), how })).unwrap().unwrap();
    }
    let mut want: Vec<String> = (0..200).map(|n| format!("entry number {n}")).collect();
    want.extend([".", "..", "file", "own", "symlink", "fifo", "device"].map(str::to_owned));
    want.sort();
    let text = |name: &[u8]| String::from_utf8(name.to_vec()).unwrap();
    // In small pieces, so that cookies are needed.
    let (mut plain, mut plus) = (Vec::new(), Vec::new());
    let (mut cookie, mut cookieverf) = (0, cookieverf3::default());
    loop {
        let args = READDIR3args { dir: dir.clone(), cookie, cookieverf, count: 1024 };
        let got = now(client.readdir(&args)).unwrap().unwrap();
        cookieverf = got.cookieverf;
        assert!(got.reply.eof || !got.reply.entries.0.is_empty(), "it gets on");
        for entry in &got.reply.entries.0 {
            plain.push(text(entry.name.as_ref()));
            cookie = entry.cookie;
        }
        if got.reply.eof {
            break;
        }
    }
    (cookie, cookieverf) = (0, cookieverf3::default());
    loop {
        let (dircount, maxcount) = (512, 4096);
        let args = READDIRPLUS3args { dir: dir.clone(), cookie, cookieverf, dircount, maxcount };
        let got = now(client.readdirplus(&args)).unwrap().unwrap();
        cookieverf = got.cookieverf;
        for entry in &got.reply.entries.0 {
            let name = text(entry.name.as_ref());
            if let Nfs3Option::Some(attr) = &entry.name_attributes {
                assert_eq!(attr.fileid, entry.fileid, "{name}");
            }
            plus.push(name);
            cookie = entry.cookie;
        }
        if got.reply.eof {
            break;
        }
    }
    for mut names in [plain, plus] {
        names.sort();
        assert_eq!(names, want);
    }
}

fn file_system(client: &mut Nfs3Connection<Blocking>, root: &nfs_fh3) {
    let info = now(client.fsinfo(&FSINFO3args { fsroot: root.clone() })).unwrap().unwrap();
    assert!(info.rtmax >= 65536 && info.wtmax >= 65536 && info.rtpref <= info.rtmax);
    assert_eq!(info.properties & FSF3_LINK, FSF3_LINK);
    let stat = now(client.fsstat(&FSSTAT3args { fsroot: root.clone() })).unwrap().unwrap();
    assert!(stat.abytes <= stat.fbytes && stat.fbytes <= stat.tbytes);
    let conf = now(client.pathconf(&PATHCONF3args { object: root.clone() })).unwrap().unwrap();
    assert!(conf.name_max >= 255 && !conf.case_insensitive && conf.case_preserving);
}

fn removals(
    cx: &mut Cx,
    client: &mut Nfs3Connection<Blocking>,
    root: &nfs_fh3,
    dir: &nfs_fh3,
    names: &Namespace,
) {
    let full = now(client.rmdir(&RMDIR3args { object: at(root, "dir") })).unwrap();
    assert_eq!(refused(full), nfsstat3::NFS3ERR_NOTEMPTY);
    let kept = now(client.lookup(&LOOKUP3args { what: at(dir, "file") })).unwrap().unwrap().object;
    for (name, _) in names.list(cx, b"/dir").unwrap() {
        let name = String::from_utf8(name).unwrap();
        now(client.remove(&REMOVE3args { object: at(dir, &name) })).unwrap().unwrap();
    }
    now(client.rmdir(&RMDIR3args { object: at(root, "dir") })).unwrap().unwrap();
    assert!(names.list(cx, b"/").unwrap().is_empty());
    let stale = now(client.getattr(&GETATTR3args { object: kept })).unwrap();
    assert_eq!(refused(stale), nfsstat3::NFS3ERR_STALE);
}

/// The rules of an export hold for it as for our own client.
#[test]
fn the_rules_of_an_export_hold_for_others() {
    Runtime::real(2).enter("test", |cx| {
        let fs = Arc::new(MemFs::new());
        let names = Namespace::new(fs.clone());
        let flags = vfs::OpenFlags::WRITE | vfs::OpenFlags::CREATE;
        let file = names.open(cx, b"/secret", flags, 0o600).unwrap();
        file.write(cx, b"content").unwrap();
        file.close(cx).unwrap();
        let file = fs.lookup(cx, fs.root(), b"secret").unwrap();
        served(cx, fs.clone(), Export { read_only: true, ..export() }, |_, port| {
            let mut client = connect(port, 0);
            let root = client.root_nfs_fh3();
            let how = createhow3::UNCHECKED(mode(0o600));
            let made = now(client.create(&CREATE3args { where_: at(&root, "new"), how })).unwrap();
            assert_eq!(refused(made), nfsstat3::NFS3ERR_ROFS);
            let removed = now(client.remove(&REMOVE3args { object: at(&root, "secret") })).unwrap();
            assert_eq!(refused(removed), nfsstat3::NFS3ERR_ROFS);
        });
        served(cx, fs.clone(), Export { squash: nfs::Squash::Root, ..export() }, |_, port| {
            let mut client = connect(port, 0);
            let root = client.root_nfs_fh3();
            let found = now(client.lookup(&LOOKUP3args { what: at(&root, "secret") }));
            let found = found.unwrap().unwrap();
            let told = found.obj_attributes.unwrap();
            assert_eq!((told.fileid, told.size), (file.ino.0, 7));
            let args = READ3args { file: found.object, offset: 0, count: 100 };
            assert_eq!(refused(now(client.read(&args)).unwrap()), nfsstat3::NFS3ERR_ACCES);
        });
        served(cx, fs, Export { allowed: vec![], ..export() }, |_, port| {
            let builder = Nfs3ConnectionBuilder::new(Plain, "127.0.0.1", "/export")
                .connect_from_privileged_port(false)
                .mount_port(port)
                .nfs3_port(port);
            assert!(now(builder.mount()).is_err(), "no address is allowed");
        });
    });
}
