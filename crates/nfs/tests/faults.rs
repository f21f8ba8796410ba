//! Goal: fsync never says yes to lost data, whatever network and server do. Method: a server whose
//! data is lost in a crash unless it was made durable, a modelled network that drops, delays,
//! duplicates, reorders and cuts, and errors at WRITE and COMMIT; in virtual time, from seeds.

mod common;
#[path = "common/volatile.rs"]
mod volatile;

use std::sync::Arc;

use base::{Errno, Nanos};
use common::{Site, quick_calls, world};
use nfs::wire::Faults;
use nfs::{Mode, NfsClient, NfsOptions};
use rt::Cx;
use vfs::{File, FileSystem, Namespace, OpenFlags, SetAttr};
use volatile::Volatile;

const RW: OpenFlags = OpenFlags::READ.union(OpenFlags::WRITE).union(OpenFlags::CREATE);

/// Dirty data goes to the server early, so that much is uncommitted.
fn early() -> NfsOptions {
    NfsOptions {
        dirty_background_bytes: 32 << 10,
        dirty_limit_bytes: 512 << 10,
        dirty_interval: Nanos::from_millis(50),
        wsize: Some(8192),
        ..quick_calls()
    }
}

fn open(cx: &mut Cx, client: &Arc<NfsClient>, name: &[u8]) -> File {
    Namespace::new(client.clone()).open(cx, name, RW, 0o644).unwrap()
}

/// `IOPATH_SEED` begins there.
fn first_seed() -> u64 {
    std::env::var("IOPATH_SEED").ok().and_then(|text| text.parse().ok()).unwrap_or(0)
}

fn seeds() -> u64 {
    std::env::var("IOPATH_SEEDS").ok().and_then(|text| text.parse().ok()).unwrap_or(12)
}

#[test]
fn a_server_that_restarts_between_write_and_commit_gets_everything_again() {
    for mode in [Mode::Off, Mode::Ranges] {
        world(1, |cx| {
            let fs = Volatile::new();
            let mut site = Site::new(cx, fs.clone());
            let client = site.client(cx, 1, NfsOptions { mode, ..early() });
            let file = open(cx, &client, b"/f");
            // Two runs, so that no single durable WRITE will do.
            file.write_at(cx, 0, &[1; 100_000]).unwrap();
            file.write_at(cx, 200_000, &[2; 50_000]).unwrap();
            // COMMIT fails to arrive: the server is gone before it.
            fs.wrongs.lock(cx).fsync = vec![Some(Errno::EAGAIN); 3];
            let committer = {
                let client = client.clone();
                let ino = file.ino();
                cx.spawn("fsync", move |cx| client.fsync(cx, ino, false))
            };
            cx.sleep(Nanos::from_millis(60));
            let before = client.stats();
            assert!(before.calls[7] > 3 && !committer.is_finished(), "{before:?}");
            fs.crash(cx);
            site.restart(cx, fs.clone(), Nanos::from_secs(2));
            assert_eq!(committer.join(cx), Ok(()));
            let mut want = vec![1; 100_000];
            want.resize(200_000, 0);
            want.resize(250_000, 2);
            assert!(fs.durable(cx, b"f") == want, "{mode:?}");
            assert!(client.stats().verifier_changes > 0);
            file.close(cx).unwrap();
            client.unmount(cx).unwrap();
        });
    }
}

#[test]
fn errors_of_write_and_commit_are_errors_of_fsync() {
    for errno in [Errno::ENOSPC, Errno::EIO, Errno::EDQUOT] {
        world(2, |cx| {
            let fs = Volatile::new();
            let site = Site::new(cx, fs.clone());
            let client = site.client(cx, 1, early());
            let file = open(cx, &client, b"/f");
            file.write_at(cx, 0, &[1; 20_000]).unwrap();
            fs.wrongs.lock(cx).write = vec![None, Some(errno)];
            fs.wrongs.lock(cx).fsync = vec![];
            assert_eq!(file.fsync(cx), Err(errno));
            // Once told, and the next attempt succeeds.
            assert_eq!(file.fsync(cx), Ok(()));
            assert!(fs.durable(cx, b"f") == [1; 20_000]);
            file.write_at(cx, 0, &[2; 9000]).unwrap();
            file.write_at(cx, 15_000, &[3; 10]).unwrap();
            fs.wrongs.lock(cx).fsync = vec![Some(errno)];
            assert_eq!(file.fsync(cx), Err(errno), "at COMMIT");
            assert_eq!(file.fsync(cx), Ok(()));
            assert_eq!(&fs.durable(cx, b"f")[..9000], [2; 9000]);
            // And of close, where nobody asks for fsync; nothing is left behind.
            file.write_at(cx, 0, &[4; 9000]).unwrap();
            fs.wrongs.lock(cx).write = vec![Some(errno)];
            assert_eq!(file.close(cx), Err(errno));
            client.unmount(cx).unwrap();
        });
    }
}

#[test]
fn a_stale_handle_is_told_and_later_is_later() {
    world(3, |cx| {
        let fs = Volatile::new();
        let site = Site::new(cx, fs.clone());
        let client = site.client(cx, 1, quick_calls());
        let file = open(cx, &client, b"/f");
        file.write_at(cx, 0, &[1; 5000]).unwrap();
        fs.wrongs.lock(cx).write = vec![Some(Errno::EAGAIN), Some(Errno::EAGAIN)];
        assert_eq!(file.fsync(cx), Ok(()), "EJUKEBOX is waited out");
        client.drop_clean(cx);
        fs.wrongs.lock(cx).read = vec![Some(Errno::EAGAIN), Some(Errno::EAGAIN), Some(Errno::EIO)];
        let (began, mut byte) = (cx.now(), [0]);
        assert_eq!(file.read_at(cx, 4999, &mut byte), Err(Errno::EIO));
        assert!(cx.now().since(began) >= Nanos::from_secs(2), "EJUKEBOX is waited out twice");
        assert_eq!((file.read_at(cx, 4999, &mut byte), byte), (Ok(1), [1]));
        file.write_at(cx, 0, &[2; 5000]).unwrap();
        fs.unlink(cx, fs.root(), b"f").unwrap();
        assert_eq!(file.fsync(cx), Err(Errno::ESTALE));
        assert!(file.close(cx).is_err());
        client.unmount(cx).unwrap();
    });
}

/// Random writes and fsyncs on a bad network with a server that crashes: whenever fsync says yes,
/// the durable content is what was written.
#[test]
fn fsync_is_true_on_a_bad_network_with_a_server_that_crashes() {
    for seed in first_seed()..seeds() {
        let mode = Mode::ALL[seed as usize % 4].1;
        world(seed, |cx| torture(cx, seed, mode));
    }
}

fn torture(cx: &mut Cx, seed: u64, mode: Mode) {
    // What hangs fails, and the world tells who waits for what.
    let done = Arc::new(std::sync::atomic::AtomicBool::new(false));
    let seen = done.clone();
    cx.spawn("watchdog", move |cx| {
        cx.sleep(Nanos::from_secs(20_000));
        assert!(seen.load(std::sync::atomic::Ordering::Relaxed), "seed {seed} hangs");
    });
    let fs = Volatile::new();
    let mut site = Site::new(cx, fs.clone());
    let (client, wire) = site.client_and_wire(cx, 1, NfsOptions { mode, ..early() });
    let file = open(cx, &client, b"/f");
    site.net.set_faults(Faults {
        drop: 0.02,
        duplicate: 0.02,
        delay: 0.05,
        cut: 0.005,
        delay_max: Nanos::from_millis(30),
    });
    let mut model: Vec<u8> = Vec::new();
    for step in 0..120u32 {
        match cx.rng().below(12) {
            0..8 => {
                let (at, len) =
                    (cx.rng().below(200_000) as usize, 1 + cx.rng().below(9000) as usize);
                if model.len() < at + len {
                    model.resize(at + len, 0);
                }
                model[at..at + len].fill(step as u8 | 1);
                assert_eq!(file.write_at(cx, at as u64, &vec![step as u8 | 1; len]), Ok(len));
            }
            8 => {
                let at = cx.rng().below(200_000);
                let mut got = vec![0; 5000];
                let count = file.read_at(cx, at, &mut got).unwrap();
                let at = (at as usize).min(model.len());
                let wrong = (0..count).find(|n| got[*n] != model[at + n]);
                assert_eq!(wrong.map(|n| (at + n, got[n], model[at + n])), None, "step {step}");
            }
            9 => wire.cut(),
            10 => {
                fs.crash(cx);
                site.restart(cx, fs.clone(), Nanos::from_millis(200));
            }
            _ => {
                file.fsync(cx).unwrap_or_else(|e| panic!("seed {seed}, step {step}: {e}"));
                let durable = fs.durable(cx, b"f");
                let wrong = (0..model.len()).find(|n| durable.get(*n) != model.get(*n));
                let wrong = wrong.map(|n| (n, durable.get(n), model[n]));
                assert_eq!(wrong, None, "seed {seed}, {mode:?}, step {step}");
                assert_eq!(durable.len(), model.len());
            }
        }
    }
    file.fsync(cx).unwrap();
    assert!(fs.durable(cx, b"f") == model, "seed {seed}, {mode:?}");
    site.net.set_faults(Faults::default());
    file.close(cx).unwrap();
    client.unmount(cx).unwrap();
    done.store(true, std::sync::atomic::Ordering::Relaxed);
}

/// Calls that must not be carried out twice are not, on a network that loses their answers.
#[test]
fn names_are_made_and_removed_once() {
    for seed in 0..seeds() {
        world(seed, |cx| {
            let site = Site::new(cx, Volatile::new());
            let client = site.client(cx, 1, quick_calls());
            site.net.set_faults(Faults {
                drop: 0.1,
                duplicate: 0.1,
                delay: 0.1,
                delay_max: Nanos::from_secs(2),
                ..Faults::default()
            });
            let ns = Namespace::new(client.clone());
            for n in 0..40 {
                let (a, b) = (format!("/a{n}"), format!("/b{n}"));
                ns.mkdir(cx, a.as_bytes(), 0o755).unwrap();
                ns.rename(cx, a.as_bytes(), b.as_bytes(), vfs::RenameFlags::empty()).unwrap();
                if n % 2 == 0 {
                    ns.rmdir(cx, b.as_bytes()).unwrap();
                }
            }
            assert_eq!(ns.list(cx, b"/").unwrap().len(), 20);
            assert!(client.stats().retransmissions > 0);
            client.unmount(cx).unwrap();
        });
    }
}

/// Close-to-open: what one client has closed, another that opens afterwards sees; and dirty bytes
/// stay on top of what is read anew.
#[test]
fn two_clients_see_each_other_from_close_to_open() {
    for seed in 0..seeds() {
        world(seed, |cx| {
            let site = Site::new(cx, Volatile::new());
            let clients = [1, 2].map(|number| site.client(cx, number, quick_calls()));
            let mut model: Vec<u8> = vec![0; 40_000];
            open(cx, &clients[0], b"/f").close(cx).unwrap();
            let set = SetAttr { size: Some(40_000), ..SetAttr::default() };
            let first = Namespace::new(clients[0].clone());
            first.setattr(cx, b"/f", &set, true).unwrap();
            for step in 0..80u32 {
                // Times of files have steps: two changes in one would look like one.
                cx.sleep(Nanos::from_millis(10));
                let client = &clients[cx.rng().below(2) as usize];
                let file = open(cx, client, b"/f");
                let mut got = vec![0; 40_000];
                assert_eq!(file.read_at(cx, 0, &mut got).unwrap(), 40_000);
                assert!(got == model, "seed {seed}, step {step}");
                for _ in 0..cx.rng().below(4) {
                    let at = cx.rng().below(39_000) as usize;
                    let len = 1 + cx.rng().below(1000) as usize;
                    model[at..at + len].fill(step as u8 | 1);
                    file.write_at(cx, at as u64, &vec![step as u8 | 1; len]).unwrap();
                }
                file.close(cx).unwrap();
            }
            clients.iter().for_each(|client| client.unmount(cx).unwrap());
        });
    }
}

/// Another's change drops what is valid and nothing that is dirty.
#[test]
fn dirty_bytes_stay_on_top_of_anothers_change() {
    world(7, |cx| {
        let site = Site::new(cx, Volatile::new());
        let [one, two] = [1, 2].map(|number| site.client(cx, number, quick_calls()));
        let file = open(cx, &one, b"/f");
        file.write_at(cx, 0, &[1; 8000]).unwrap();
        file.fsync(cx).unwrap();
        cx.sleep(Nanos::from_millis(20));
        file.write_at(cx, 100, &[2; 50]).unwrap();
        let theirs = open(cx, &two, b"/f");
        theirs.write_at(cx, 0, &[3; 8000]).unwrap();
        theirs.close(cx).unwrap();
        // An open asks for attributes, which tell of the change.
        let again = open(cx, &one, b"/f");
        let mut got = vec![0; 8000];
        again.read_at(cx, 0, &mut got).unwrap();
        assert_eq!(got[..100], [3; 100]);
        assert_eq!(got[100..150], [2; 50]);
        assert_eq!(got[150..], [3; 7850]);
        again.close(cx).unwrap();
        file.close(cx).unwrap();
        for client in [one, two] {
            client.unmount(cx).unwrap();
        }
    });
}
