//! Goal: no bytes make either side panic, hang or allocate without bound, and nobody gets past the
//! rules of an export. Method: valid records with words changed, cut and added, on a server over a
//! reference file system and on a client behind a server that answers nonsense.

mod common;

use std::net::IpAddr;
use std::sync::{Arc, Weak};

use base::{Errno, Ino, Rng};
use common::{export, key, quick_calls, world};
use nfs::proto::{Call, CreateHow, Handle, Proc, Sattr, Stable};
use nfs::rpc::{self, Auth, CallHead, Refusal, ReplyError};
use nfs::wire::{Receiver, Wire};
use nfs::{Export, HandleKey, NfsClient, NfsOptions, Server, Squash};
use rt::{Cx, SpinLock};
use testkit::memfs::MemFs;
use vfs::{FileSystem, Namespace, OpenFlags};

fn record(call: &Call<'_>, auth: Auth) -> Vec<u8> {
    let procedure = call.procedure() as u32;
    let auth = Some(auth);
    let mut w = rpc::call(&CallHead { xid: 5, program: rpc::NFS, version: 3, procedure, auth });
    call.write(&mut w);
    rpc::seal(w)[4..].to_vec()
}

fn root_user() -> Auth {
    Auth::Sys { uid: 0, gid: 0, groups: vec![1, 2] }
}

fn calls(root: Handle, file: Handle) -> Vec<Call<'static>> {
    let how = CreateHow::Unchecked(Sattr::default());
    vec![
        Call::Getattr { handle: root },
        Call::Lookup { dir: root, name: b"f" },
        Call::Read { handle: file, offset: 0, count: 100 },
        Call::Write { handle: file, offset: 9, stable: Stable::FileSync, data: b"data!" },
        Call::Create { dir: root, name: b"new", how },
        Call::Rename { from: root, old: b"f", to: root, new: b"g" },
        Call::Readdirplus { dir: root, cookie: 0, verf: [0; 8], dircount: 999, maxcount: 9999 },
        Call::Setattr { handle: file, set: Sattr::default(), guard: None },
        Call::Commit { handle: file, offset: 0, count: 0 },
        Call::Fsinfo { handle: root },
    ]
}

fn site(cx: &mut Cx, export: Export) -> (Arc<MemFs>, Server, Vec<Call<'static>>) {
    let fs = Arc::new(MemFs::new());
    let ns = Namespace::new(fs.clone());
    let flags = OpenFlags::WRITE | OpenFlags::CREATE;
    let file = ns.open(cx, b"/f", flags, 0o600).unwrap();
    file.write(cx, b"content").unwrap();
    file.close(cx).unwrap();
    let handle = |attr: vfs::Attr| key().make(attr.ino, attr.generation);
    let root = handle(fs.getattr(cx, fs.root()).unwrap());
    let file = handle(ns.stat(cx, b"/f").unwrap());
    (fs.clone(), Server::new(fs, export, 7, 1), calls(root, file))
}

/// Words changed to the values that break things, bytes cut off and added.
fn spoil(rng: &mut Rng, record: &mut Vec<u8>) {
    for _ in 0..1 + rng.below(3) {
        let words = (record.len() / 4).max(1) as u64;
        let at = rng.below(words) as usize * 4;
        let word = *rng.pick(&[0, 1, 2, 3, 7, 64, 65, 255, 0x7fff_ffff, 0x8000_0000, u32::MAX]);
        match rng.below(4) {
            0 => record.truncate(at),
            1 => record.extend_from_slice(&word.to_be_bytes()),
            _ if record.len() >= at + 4 => {
                record[at..at + 4].copy_from_slice(&word.to_be_bytes());
            }
            _ => {}
        }
    }
}

#[test]
fn a_server_answers_nonsense_with_errors() {
    let peer = IpAddr::from([10, 0, 0, 1]);
    world(1, |cx| {
        let (_, server, calls) = site(cx, export());
        let mut rng = Rng::new(1, 0);
        let mut answered = 0;
        for round in 0..6000 {
            let mut bytes = record(&calls[round % calls.len()], root_user());
            spoil(&mut rng, &mut bytes);
            let Some(reply) = server.answer(cx, peer, &bytes) else { continue };
            answered += 1;
            assert!(reply.len() < 1_100_000, "an answer of {} bytes", reply.len());
        }
        assert!(answered > 1000, "{answered}");
    });
}

#[test]
fn nobody_gets_past_the_rules_of_an_export() {
    world(2, |cx| {
        // A stranger's address.
        let rules = Export { allowed: vec!["10.0.0.0/24".parse().unwrap()], ..export() };
        let (_, server, calls) = site(cx, rules);
        for call in &calls {
            let stranger = IpAddr::from([10, 0, 1, 1]);
            let reply = server.answer(cx, stranger, &record(call, root_user())).unwrap();
            let refused = rpc::read_reply(&reply[4..]).map(drop);
            assert_eq!(refused, Err(ReplyError::Refused(Refusal::Auth(5))));
        }
        // A read-only export, and root squashed to nobody, on spoiled records too.
        for squash in [Squash::None, Squash::Root] {
            let rules = Export { read_only: squash == Squash::None, squash, ..export() };
            let (fs, server, calls) = site(cx, rules);
            let peer = IpAddr::from([10, 0, 0, 1]);
            let mut rng = Rng::new(2, 0);
            for round in 0..3000 {
                let mut bytes = record(&calls[round % calls.len()], root_user());
                if round >= calls.len() {
                    spoil(&mut rng, &mut bytes);
                }
                server.answer(cx, peer, &bytes);
            }
            let names = Namespace::new(fs);
            let mut got = [0; 20];
            let file = names.open(cx, b"/f", OpenFlags::READ, 0).unwrap();
            assert_eq!(file.read(cx, &mut got).unwrap(), 7);
            assert_eq!(&got[..7], b"content", "{squash:?}");
            file.close(cx).unwrap();
            assert_eq!(names.list(cx, b"/").unwrap().len(), 1, "{squash:?}");
        }
        // Handles of another key, and of inodes that nobody was given.
        let (_, server, _) = site(cx, export());
        let forged = HandleKey::new([1; 32]);
        for ino in 1..40 {
            let call = Call::Getattr { handle: forged.make(Ino(ino), 0) };
            let bytes = record(&call, root_user());
            let reply = server.answer(cx, IpAddr::from([10, 0, 0, 1]), &bytes).unwrap();
            let mut reader = rpc::read_reply(&reply[4..]).unwrap();
            assert_eq!(reader.u32(), Ok(nfs::proto::Status::BADHANDLE.0));
        }
    });
}

/// A connection to a server whose answers are spoiled now and then.
struct Liar {
    server: Server,
    receiver: SpinLock<Option<Weak<dyn Receiver>>>,
    rng: SpinLock<Rng>,
    lies: SpinLock<f64>,
}

impl Wire for Liar {
    fn attach(&self, receiver: Weak<dyn Receiver>) {
        *self.receiver.lock_irq() = Some(receiver);
    }

    fn send(&self, cx: &mut Cx, record: &[u8]) -> Result<(), Errno> {
        let reply = self.server.answer(cx, IpAddr::from([10, 0, 0, 1]), &record[4..]);
        let Some(reply) = reply else { return Ok(()) };
        let mut reply = reply[4..].to_vec();
        let lies = *self.lies.lock_irq();
        let mut rng = self.rng.lock_irq();
        if rng.chance(lies) {
            // The xid stays: else nobody would listen.
            let mut body = reply.split_off(8);
            spoil(&mut rng, &mut body);
            reply.extend(body);
        }
        drop(rng);
        if let Some(receiver) = self.receiver.lock_irq().as_ref().and_then(Weak::upgrade) {
            receiver.record(reply);
        }
        Ok(())
    }

    fn close(&self, _cx: &mut Cx) {}
}

#[test]
fn a_client_takes_nonsense_for_errors() {
    for seed in 0..20 {
        world(seed, |cx| {
            let (fs, server, _) = site(cx, export());
            let root = fs.getattr(cx, fs.root()).unwrap();
            let root = key().make(root.ino, root.generation);
            let wire = Arc::new(Liar {
                server,
                receiver: SpinLock::new(None),
                rng: SpinLock::new(Rng::new(seed, 1)),
                lies: SpinLock::new(0.0),
            });
            let mut options = quick_calls();
            options.rpc.attempts = Some(2);
            let client =
                NfsClient::mount(cx, wire.clone(), root, NfsOptions { ..options }).unwrap();
            *wire.lies.lock_irq() = 0.3;
            let ns = Namespace::new(client.clone());
            for n in 0..60 {
                let path = format!("/file {n}");
                let flags = OpenFlags::READ | OpenFlags::WRITE | OpenFlags::CREATE;
                let _whatever = ns.list(cx, b"/");
                let Ok(file) = ns.open(cx, path.as_bytes(), flags, 0o644) else { continue };
                let _whatever = file.write_at(cx, n * 1000, &[1; 5000]);
                let _whatever = file.fsync(cx);
                let _whatever = file.read_at(cx, 0, &mut [0; 3000]);
                let _whatever = file.close(cx);
            }
            *wire.lies.lock_irq() = 0.0;
            let _whatever = client.unmount(cx);
            assert!(client.stats().calls[Proc::Lookup as usize] > 10);
        });
    }
}
