//! Goal: others understand our server, and we understand others' servers. Method: libnfs's tools
//! (package libnfs-utils) on our server, and our client on nfs-ganesha, over TCP on this machine.

mod common;

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::path::Path;
use std::sync::Arc;

use common::export;
use nfs::proto::Proc;
use nfs::rpc;
use nfs::wire::{Listener, Nfsd};
use nfs::{Mode, NfsClient, NfsOptions, Server, Url};
use rt::{Cx, Runtime};
use testkit::ganesha::Ganesha;
use testkit::judge;
use testkit::memfs::MemFs;
use vfs::{FileSystem, Namespace, OpenFlags};

const RW: OpenFlags = OpenFlags::READ.union(OpenFlags::WRITE).union(OpenFlags::CREATE);

fn pattern(len: usize) -> Vec<u8> {
    (0..len as u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 13) as u8).collect()
}

#[test]
fn libnfs_lists_copies_and_reads_on_our_server() {
    Runtime::real(2).enter("test", |cx| {
        let fs = Arc::new(MemFs::new());
        let server = Arc::new(Server::new(fs.clone(), export(), 7, 1));
        let nfsd = Nfsd::start(cx, server, 4);
        let any: SocketAddr = "127.0.0.1:0".parse().unwrap();
        let listener = Listener::start(cx, any, nfsd.clone()).unwrap();
        let port = listener.address().port();
        let url =
            |path: &str| format!("nfs://127.0.0.1/export{path}?nfsport={port}&mountport={port}");
        let names = Namespace::new(fs.clone());
        names.mkdir(cx, b"/dir", 0o755).unwrap();
        let place = tempfile::tempdir().unwrap();
        let (there, back) = (place.path().join("there"), place.path().join("back"));
        // Above one WRITE, and no whole number of pages.
        let content = pattern(3_500_001);
        std::fs::write(&there, &content).unwrap();
        judge::run_ok("nfs-cp", &[&there, &url("/dir/file")]);
        let attr = names.stat(cx, b"/dir/file").unwrap();
        assert_eq!(attr.size, content.len() as u64);
        judge::run_ok("nfs-cp", &[&url("/dir/file"), &back]);
        assert!(std::fs::read(&back).unwrap() == content);
        let printed = judge::run("nfs-cat", &[&url("/dir/file")]);
        assert!(printed.status.success() && printed.stdout == content);
        let listed = judge::run_ok("nfs-ls", &[&url("/dir")]);
        assert!(listed.contains("3500001 file"), "{listed}");
        // Our own client over TCP sees the same.
        let address = format!("nfs://127.0.0.1:{port}/export?mountport={port}");
        let address: Url = address.parse().unwrap();
        let client = NfsClient::mount_url(cx, &address, NfsOptions::default()).unwrap();
        let ours = Namespace::new(client.clone());
        let file = ours.open(cx, b"/dir/file", OpenFlags::READ, 0).unwrap();
        let mut got = vec![0; content.len()];
        assert_eq!(file.read_at(cx, 0, &mut got).unwrap(), got.len());
        assert!(got == content);
        file.close(cx).unwrap();
        client.unmount(cx).unwrap();
        listener.stop(cx);
        nfsd.stop(cx);
    });
}

/// A portmapper for one server: a record in, the port of every program out; `None`: of none.
fn portmapper(cx: &mut Cx, port: Option<u16>) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let own = listener.local_addr().unwrap().port();
    cx.spawn("portmapper", move |_| {
        // One connection for each question: MOUNT, then NFS.
        for _ in 0..if port.is_some() { 2 } else { 1 } {
            let Ok((mut stream, _)) = listener.accept() else { return };
            let mut mark = [0; 4];
            if stream.read_exact(&mut mark).is_err() {
                return;
            }
            let mut record = vec![0; (u32::from_be_bytes(mark) & 0x7fff_ffff) as usize];
            stream.read_exact(&mut record).unwrap();
            let (head, mut args) = rpc::read_call(&record).unwrap();
            assert_eq!((head.program, head.version, head.procedure), (rpc::PORTMAP, 2, 3));
            let asked: Vec<u32> = (0..4).map(|_| args.u32().unwrap()).collect();
            assert!(asked == [rpc::MOUNT, 3, 6, 0] || asked == [rpc::NFS, 3, 6, 0], "{asked:?}");
            let mut w = rpc::reply(head.xid);
            w.u32(port.unwrap_or(0).into());
            stream.write_all(&rpc::seal(w)).unwrap();
        }
    });
    own
}

#[test]
fn ports_that_are_not_named_are_asked_of_the_portmapper() {
    Runtime::real(2).enter("test", |cx| {
        let fs = Arc::new(MemFs::new());
        Namespace::new(fs.clone()).mkdir(cx, b"/here", 0o755).unwrap();
        let nfsd = Nfsd::start(cx, Arc::new(Server::new(fs, export(), 7, 1)), 2);
        let any: SocketAddr = "127.0.0.1:0".parse().unwrap();
        let listener = Listener::start(cx, any, nfsd.clone()).unwrap();
        let mapper = portmapper(cx, Some(listener.address().port()));
        let url: Url = format!("nfs://127.0.0.1/export?portmapport={mapper}").parse().unwrap();
        let client = NfsClient::mount_url(cx, &url, NfsOptions::default()).unwrap();
        assert_eq!(Namespace::new(client.clone()).list(cx, b"/").unwrap()[0].0, b"here");
        client.unmount(cx).unwrap();
        let mapper = portmapper(cx, None);
        let url: Url = format!("nfs://127.0.0.1/export?portmapport={mapper}").parse().unwrap();
        let error = NfsClient::mount_url(cx, &url, NfsOptions::default()).map(drop).unwrap_err();
        assert!(error.to_string().contains("knows no MOUNT"), "{error}");
        listener.stop(cx);
        nfsd.stop(cx);
    });
}

#[test]
fn our_client_works_on_ganesha() {
    Runtime::real(2).enter("test", |cx| {
        let ganesha = Ganesha::start(cx, true);
        tree_on(cx, &ganesha);
        for (_, mode) in Mode::ALL {
            counts_on(cx, &ganesha, mode);
        }
    });
}

fn url(ganesha: &Ganesha) -> Url {
    ganesha.url().parse().unwrap()
}

fn tree_on(cx: &mut Cx, ganesha: &Ganesha) {
    let client = NfsClient::mount_url(cx, &url(ganesha), NfsOptions::default()).unwrap();
    let ns = Namespace::new(client.clone());
    ns.mkdir(cx, b"/d", 0o750).unwrap();
    for n in 0..300 {
        let path = format!("/d/file {n}");
        let file = ns.open(cx, path.as_bytes(), RW, 0o640).unwrap();
        file.write(cx, &pattern(n * 37)).unwrap();
        file.close(cx).unwrap();
    }
    ns.symlink(cx, b"d/file 7", b"/link").unwrap();
    ns.link(cx, b"/d/file 8", b"/hard").unwrap();
    ns.rename(cx, b"/d/file 9", b"/moved", vfs::RenameFlags::empty()).unwrap();
    assert_eq!(ns.list(cx, b"/d").unwrap().len(), 299);
    let large = pattern(5_000_003);
    let file = ns.open(cx, b"/large", RW, 0o600).unwrap();
    file.write(cx, &large).unwrap();
    file.close(cx).unwrap();
    client.drop_clean(cx);
    let file = ns.open(cx, b"/large", OpenFlags::READ, 0).unwrap();
    let mut got = vec![0; large.len()];
    file.read_at(cx, 0, &mut got).unwrap();
    assert!(got == large);
    file.close(cx).unwrap();
    client.unmount(cx).unwrap();
    // What the server's host has is what we wrote.
    let host = |name: &str| std::fs::read(ganesha.export().join(name)).unwrap();
    assert!(host("large") == large && host("link") == pattern(7 * 37));
    assert!(host("hard") == pattern(8 * 37) && host("moved") == pattern(9 * 37));
    for n in (0..300).filter(|n| *n != 9) {
        assert!(host(&format!("d/file {n}")) == pattern(n * 37), "file {n}");
    }
    let mode = |path: &Path| {
        std::os::unix::fs::PermissionsExt::mode(&path.metadata().unwrap().permissions()) & 0o7777
    };
    assert_eq!(mode(&ganesha.export().join("d")), 0o750);
    assert_eq!(mode(&ganesha.export().join("hard")), 0o640);
}

/// The thread's pattern on a real server: writing halves of pages and reading them back.
fn counts_on(cx: &mut Cx, ganesha: &Ganesha, mode: Mode) {
    let name = format!("counts-{mode:?}");
    std::fs::write(ganesha.export().join(&name), vec![9; 1 << 20]).unwrap();
    let options = NfsOptions { mode, readahead_bytes: 0, ..NfsOptions::default() };
    let procedures = [("READ", Proc::Read), ("WRITE", Proc::Write), ("COMMIT", Proc::Commit)];
    let earlier = procedures.map(|(name, _)| ganesha.calls(name));
    let client = NfsClient::mount_url(cx, &url(ganesha), options).unwrap();
    let ns = Namespace::new(client.clone());
    let file = ns.open(cx, format!("/{name}").as_bytes(), RW, 0).unwrap();
    let mut buf = [0; 2048];
    for page in 0..64 {
        file.write_at(cx, page * 4096, &[page as u8; 2048]).unwrap();
        file.read_at(cx, page * 4096, &mut buf).unwrap();
        assert_eq!(buf, [page as u8; 2048]);
    }
    let stats = client.stats();
    let calls = |proc: Proc| stats.calls[proc as usize];
    // (READs, WRITEs so far, pages sent in order to be read)
    let want = match mode {
        Mode::Off => (64, 64, 64),
        Mode::Request | Mode::Ranges => (0, 0, 0),
        Mode::Rmw => (64, 0, 0),
    };
    assert_eq!((calls(Proc::Read), calls(Proc::Write), stats.flush_reads), want, "{mode:?}");
    // The other half of each page, which nobody has.
    for page in 0..64 {
        file.read_at(cx, page * 4096 + 2048, &mut buf).unwrap();
        assert_eq!(buf, [9; 2048]);
    }
    let sent = client.stats().flush_reads;
    assert_eq!(sent, if matches!(mode, Mode::Off | Mode::Request) { 64 } else { 0 }, "{mode:?}");
    // After a flush the older modes have forgotten what they wrote.
    for page in 128..192 {
        file.write_at(cx, page * 4096, &[page as u8; 2048]).unwrap();
    }
    file.fsync(cx).unwrap();
    let before = client.stats().calls[Proc::Read as usize];
    for page in 128..192 {
        file.read_at(cx, page * 4096, &mut buf).unwrap();
        assert_eq!(buf, [page as u8; 2048]);
    }
    let again = client.stats().calls[Proc::Read as usize] - before;
    let want = if matches!(mode, Mode::Off | Mode::Request) { 64 } else { 0 };
    assert_eq!(again, want, "{mode:?}");
    file.close(cx).unwrap();
    // The server has counted the same.
    let ours = procedures.map(|(_, proc)| client.stats().calls[proc as usize]);
    let after = procedures.map(|(name, _)| ganesha.calls(name));
    let theirs: [u64; 3] = std::array::from_fn(|n| after[n] - earlier[n]);
    assert_eq!(theirs, ours, "READ, WRITE, COMMIT, {mode:?}");
    client.unmount(cx).unwrap();
}
