//! Goal: the rules of a page cache that knows its parts, each by itself, and what a client promises
//! of its calls. Method: clients, a modelled network and a server in virtual time, with every call
//! noted on its way.

mod common;
#[path = "common/spy.rs"]
mod spy;

use std::net::IpAddr;
use std::sync::Arc;

use base::{Errno, Nanos};
use common::{Site, key, quick_calls, world};
use nfs::proto::Proc;
use nfs::wire::{Faults, LinkWire};
use nfs::{Mode, NfsClient, NfsOptions};
use rt::{Cred, Cx};
use spy::Spy;
use testkit::memfs::MemFs;
use vfs::{File, FileSystem, FileType, Namespace, NewNode, OpenFlags};

const RW: OpenFlags = OpenFlags::READ.union(OpenFlags::WRITE).union(OpenFlags::CREATE);

/// A client behind a spy.
fn spied(cx: &mut Cx, site: &Site, options: NfsOptions) -> (Arc<NfsClient>, Arc<Spy>) {
    let spy = Spy::new(LinkWire::new(&site.net, IpAddr::from([10, 0, 0, 1])));
    let root = site.fs.getattr(cx, site.fs.root()).unwrap();
    let root = key().make(root.ino, root.generation);
    let client = NfsClient::mount(cx, spy.clone(), root, options).unwrap();
    (client, spy)
}

fn open(cx: &mut Cx, fs: &Arc<dyn FileSystem>, flags: OpenFlags) -> File {
    Namespace::new(fs.clone()).open(cx, b"/f", flags, 0o666).unwrap()
}

/// A site whose server has a file of so many nines.
fn site_with(cx: &mut Cx, len: usize) -> Site {
    let site = Site::new(cx, Arc::new(MemFs::new()));
    let file = open(cx, &site.fs, RW);
    file.write(cx, &vec![9; len]).unwrap();
    file.close(cx).unwrap();
    site
}

fn small_parts() -> NfsOptions {
    NfsOptions { readahead_bytes: 0, folio_size: 16384, ..quick_calls() }
}

fn ranges(calls: &[spy::Sent]) -> Vec<(u64, u32)> {
    calls.iter().map(|call| call.range).collect()
}

fn content(cx: &mut Cx, file: &File, at: u64, len: usize) -> Vec<u8> {
    let mut got = vec![0xee; len];
    let count = file.read_at(cx, at, &mut got).unwrap();
    got.truncate(count);
    got
}

#[test]
fn several_ranges_of_a_folio_are_kept_read_and_sent_and_survive_the_flush() {
    world(1, |cx| {
        let site = site_with(cx, 1 << 20);
        let (client, spy) = spied(cx, &site, small_parts());
        let fs: Arc<dyn FileSystem> = client.clone();
        let file = open(cx, &fs, RW);
        for (at, len) in [(1000, 100), (5000, 500), (9000, 3)] {
            file.write_at(cx, at, &vec![1; len]).unwrap();
        }
        assert_eq!(content(cx, &file, 5100, 300), [1; 300]);
        assert!(spy.take(Proc::Read).is_empty() && client.stats().flush_writes == 0);
        file.fsync(cx).unwrap();
        // No byte that was not written is sent, and the three go in one flight.
        assert_eq!(ranges(&spy.take(Proc::Write)), [(1000, 100), (5000, 500), (9000, 3)]);
        assert!(spy.most_at_once() >= 3);
        assert_eq!(content(cx, &file, 1050, 50), [1; 50]);
        assert!(spy.take(Proc::Read).is_empty(), "valid after the flush");
        // A read of what is missing fetches it alone, and nothing is sent for it.
        file.write_at(cx, 2000, &[2; 10]).unwrap();
        assert_eq!(content(cx, &file, 1990, 30), [&[9; 10][..], &[2; 10], &[9; 10]].concat());
        assert!(spy.take(Proc::Write).is_empty() && client.stats().flush_reads == 0);
        file.close(cx).unwrap();
        client.unmount(cx).unwrap();
    });
}

#[test]
fn holes_that_the_client_made_are_never_read() {
    world(2, |cx| {
        let site = site_with(cx, 1000);
        let (client, spy) = spied(cx, &site, small_parts());
        let fs: Arc<dyn FileSystem> = client.clone();
        let file = open(cx, &fs, RW);
        // Beyond the end by a write, and by a truncate; both also after a flush.
        file.write_at(cx, 200_000, &[1; 10]).unwrap();
        file.truncate(cx, 400_000).unwrap();
        file.fsync(cx).unwrap();
        client.drop_clean(cx);
        assert_eq!(content(cx, &file, 20_000, 100_000), vec![0; 100_000]);
        assert_eq!(content(cx, &file, 300_000, 100_000), vec![0; 100_000]);
        assert!(spy.take(Proc::Read).is_empty());
        assert!(client.stats().hole_bytes > 0);
        // What the server had is read, up to where it ended.
        assert_eq!(content(cx, &file, 0, 1100), [&[9; 1000][..], &[0; 100]].concat());
        assert_eq!(spy.take(Proc::Read).len(), 1);
        // Somebody else's change, and holes are not known any more.
        cx.sleep(Nanos::from_secs(1));
        let theirs = open(cx, &site.fs, RW);
        theirs.write_at(cx, 30_000, b"data").unwrap();
        theirs.close(cx).unwrap();
        let again = open(cx, &fs, RW);
        assert_eq!(content(cx, &again, 30_000, 5), b"data\0");
        again.close(cx).unwrap();
        file.close(cx).unwrap();
        client.unmount(cx).unwrap();
    });
}

#[test]
fn a_stale_handle_drops_what_is_valid_and_keeps_what_is_ours() {
    world(3, |cx| {
        let site = site_with(cx, 8000);
        let (client, _spy) = spied(cx, &site, small_parts());
        let fs: Arc<dyn FileSystem> = client.clone();
        let file = open(cx, &fs, RW);
        assert_eq!(content(cx, &file, 0, 8000), [9; 8000]);
        file.write_at(cx, 100, &[1; 50]).unwrap();
        site.fs.unlink(cx, site.fs.root(), b"f").unwrap();
        // The attributes are believed for a while; then the server is asked.
        cx.sleep(Nanos::from_secs(120));
        assert_eq!(file.read_at(cx, 0, &mut [0; 10]), Err(Errno::ESTALE));
        assert_eq!(client.forget_cached(cx, file.ino()), Err(Errno::ESTALE));
        assert_eq!(file.fsync(cx), Err(Errno::ESTALE), "the dirty bytes were not forgotten");
        let _told = file.close(cx);
        client.unmount(cx).unwrap();
    });
}

/// For who has got a lock by other means: what is valid is forgotten, what is dirty is not.
#[test]
fn what_is_cached_can_be_forgotten_and_what_is_dirty_stays() {
    world(4, |cx| {
        let site = site_with(cx, 8000);
        let (client, spy) = spied(cx, &site, small_parts());
        let fs: Arc<dyn FileSystem> = client.clone();
        let file = open(cx, &fs, RW);
        assert_eq!(content(cx, &file, 0, 8000), [9; 8000]);
        file.write_at(cx, 100, &[1; 50]).unwrap();
        spy.take(Proc::Read);
        client.forget_cached(cx, file.ino()).unwrap();
        assert_eq!(content(cx, &file, 110, 20), [1; 20]);
        assert!(spy.take(Proc::Read).is_empty());
        assert_eq!(content(cx, &file, 90, 70), [&[9; 10][..], &[1; 50], &[9; 10]].concat());
        assert_eq!(spy.take(Proc::Read).len(), 1);
        file.close(cx).unwrap();
        client.unmount(cx).unwrap();
    });
}

#[test]
fn truncating_clears_what_is_beyond_and_the_tail_reads_as_zeros() {
    for (_, mode) in Mode::ALL {
        world(5, |cx| {
            let site = site_with(cx, 40_000);
            let (client, spy) = spied(cx, &site, NfsOptions { mode, ..small_parts() });
            let fs: Arc<dyn FileSystem> = client.clone();
            let file = open(cx, &fs, RW);
            file.write_at(cx, 0, &[1; 40_000]).unwrap();
            file.truncate(cx, 17_000).unwrap();
            spy.take(Proc::Write);
            file.truncate(cx, 40_000).unwrap();
            assert_eq!(content(cx, &file, 16_990, 30), [&[1; 10][..], &[0; 20]].concat());
            assert_eq!(content(cx, &file, 33_000, 7000), [0; 7000]);
            file.fsync(cx).unwrap();
            assert!(spy.take(Proc::Write).is_empty(), "nothing beyond the size is sent, {mode:?}");
            client.drop_clean(cx);
            assert_eq!(content(cx, &file, 16_990, 30), [&[1; 10][..], &[0; 20]].concat());
            file.close(cx).unwrap();
            client.unmount(cx).unwrap();
        });
    }
}

#[test]
fn direct_reads_and_writes_send_what_is_dirty_and_drop_their_range() {
    world(6, |cx| {
        let site = site_with(cx, 64 << 10);
        let (client, spy) = spied(cx, &site, small_parts());
        let fs: Arc<dyn FileSystem> = client.clone();
        let file = open(cx, &fs, RW);
        assert_eq!(content(cx, &file, 0, 32768), vec![9; 32768]);
        file.write_at(cx, 0, &[1; 4096]).unwrap();
        // Another's change, which the attributes have not told yet.
        let theirs = open(cx, &site.fs, RW);
        theirs.write_at(cx, 8192, &[3; 4096]).unwrap();
        theirs.close(cx).unwrap();
        let direct = open(cx, &fs, RW | OpenFlags::DIRECT);
        spy.take(Proc::Write);
        file.write_at(cx, 4096, &[2; 4096]).unwrap();
        let mut got = vec![0; 12288];
        assert_eq!(direct.read_at(cx, 0, &mut got), Ok(12288));
        assert_eq!(ranges(&spy.take(Proc::Write)), [(0, 8192)], "sent before it is read");
        assert!(got[..4096] == [1; 4096] && got[4096..8192] == [2; 4096]);
        assert!(got[8192..] == [3; 4096], "past the cache");
        // The range is forgotten: a buffered read asks again.
        assert_eq!(content(cx, &file, 8192, 4096), [3; 4096]);
        assert!(!spy.take(Proc::Read).is_empty());
        direct.write_at(cx, 8192, &[4; 4096]).unwrap();
        let theirs = open(cx, &site.fs, OpenFlags::READ);
        assert_eq!(content(cx, &theirs, 8192, 4096), [4; 4096], "at the server at once");
        theirs.close(cx).unwrap();
        spy.take(Proc::Read);
        assert_eq!(content(cx, &file, 8192, 4096), [4; 4096]);
        assert_eq!(spy.take(Proc::Read).len(), 1);
        direct.close(cx).unwrap();
        file.close(cx).unwrap();
        client.unmount(cx).unwrap();
    });
}

#[test]
fn what_two_users_write_into_one_folio_goes_under_their_own_names() {
    world(7, |cx| {
        let site = site_with(cx, 16384);
        let all = vfs::SetAttr { mode: Some(0o666), ..vfs::SetAttr::default() };
        Namespace::new(site.fs.clone()).setattr(cx, b"/f", &all, true).unwrap();
        let (client, spy) = spied(cx, &site, small_parts());
        let fs: Arc<dyn FileSystem> = client.clone();
        let file = open(cx, &fs, RW);
        for (n, uid) in [1001, 1002, 1002, 1001].into_iter().enumerate() {
            let own = cx.set_cred(Cred::user(uid, uid));
            file.write_at(cx, n as u64 * 1000, &[uid as u8; 1000]).unwrap();
            cx.set_cred(own);
        }
        file.fsync(cx).unwrap();
        let sent = spy.take(Proc::Write);
        let told: Vec<(u32, (u64, u32))> = sent.iter().map(|call| (call.uid, call.range)).collect();
        assert_eq!(told, [(1001, (0, 1000)), (1002, (1000, 2000)), (1001, (3000, 1000))]);
        file.close(cx).unwrap();
        client.unmount(cx).unwrap();
    });
}

#[test]
fn attributes_are_believed_for_their_time() {
    world(8, |cx| {
        let site = site_with(cx, 100);
        let (client, spy) = spied(cx, &site, quick_calls());
        let ino = client.lookup(cx, client.root(), b"f").unwrap().ino;
        // From 3 s on, doubled as long as nothing changes, up to 60 s.
        let mut waits = Vec::new();
        spy.take(Proc::Getattr);
        let mut since = 0;
        for _ in 0..400 {
            cx.sleep(Nanos::from_secs(1));
            since += 1;
            client.getattr(cx, ino).unwrap();
            if !spy.take(Proc::Getattr).is_empty() {
                waits.push(since);
                since = 0;
            }
        }
        assert_eq!(waits[..6], [3, 6, 12, 24, 48, 60], "{waits:?}");
        let theirs = open(cx, &site.fs, RW);
        theirs.write_at(cx, 0, &[1; 200]).unwrap();
        theirs.close(cx).unwrap();
        cx.sleep(Nanos::from_secs(60));
        assert_eq!(client.getattr(cx, ino).unwrap().size, 200);
        spy.take(Proc::Getattr);
        cx.sleep(Nanos::from_secs(3));
        client.getattr(cx, ino).unwrap();
        assert_eq!(spy.take(Proc::Getattr).len(), 1, "after a change the time is short again");
        client.unmount(cx).unwrap();
    });
}

#[test]
fn a_reader_in_sequence_is_read_ahead_of() {
    let span = |readahead_bytes| {
        world(9, |cx| {
            let site = site_with(cx, 8 << 20);
            let options = NfsOptions { readahead_bytes, rsize: Some(65536), ..quick_calls() };
            let (client, spy) = spied(cx, &site, options);
            let fs: Arc<dyn FileSystem> = client.clone();
            let file = open(cx, &fs, OpenFlags::READ);
            let began = cx.now();
            for at in (0..8 << 20).step_by(16384) {
                assert_eq!(content(cx, &file, at, 16384), [9; 16384]);
            }
            let span = cx.now().since(began);
            let bytes: u64 = spy.take(Proc::Read).iter().map(|call| u64::from(call.range.1)).sum();
            assert_eq!(bytes, 8 << 20, "each byte once");
            file.close(cx).unwrap();
            client.unmount(cx).unwrap();
            (span, spy.most_at_once())
        })
    };
    let ((without, one), (with, many)) = (span(0), span(1 << 20));
    assert!(one == 1 && many > 4, "{one} and {many} calls at once");
    assert!(with.0 * 3 < without.0 * 2, "{with:?} {without:?}");
}

#[test]
fn write_back_uses_the_slots_and_no_more() {
    world(10, |cx| {
        let site = site_with(cx, 10);
        let options = NfsOptions { wsize: Some(8192), ..quick_calls() };
        let (client, spy) = spied(cx, &site, options);
        let fs: Arc<dyn FileSystem> = client.clone();
        let file = open(cx, &fs, RW);
        file.write_at(cx, 0, &vec![1; 1 << 20]).unwrap();
        file.fsync(cx).unwrap();
        assert_eq!(spy.most_at_once(), 16);
        file.close(cx).unwrap();
        client.unmount(cx).unwrap();
    });
}

#[test]
fn a_call_that_is_sent_again_is_the_same_call() {
    world(11, |cx| {
        let site = site_with(cx, 10);
        let (client, spy) = spied(cx, &site, quick_calls());
        site.net.set_faults(Faults { drop: 0.3, cut: 0.02, ..Faults::default() });
        let names = Namespace::new(client.clone());
        for n in 0..40 {
            names.mkdir(cx, format!("/d{n}").as_bytes(), 0o755).unwrap();
        }
        site.net.set_faults(Faults::default());
        let sent = spy.take(Proc::Mkdir);
        let mut first: std::collections::BTreeMap<u32, &[u8]> = Default::default();
        for call in &sent {
            assert_eq!(*first.entry(call.xid).or_insert(&call.record), call.record);
        }
        assert!(first.len() == 40 && sent.len() > 50, "{} {}", first.len(), sent.len());
        // Carried out once each: the server's cache of answers.
        assert_eq!(names.list(cx, b"/").unwrap().len(), 41);
        client.unmount(cx).unwrap();
    });
}

/// Files that are synced one after the other: while one is committed, the next are sent.
#[test]
fn what_will_be_synced_next_is_sent_ahead() {
    world(12, |cx| {
        let site = Site::new(cx, Arc::new(MemFs::new()));
        let (client, spy) = spied(cx, &site, quick_calls());
        let names = Namespace::new(client.clone());
        let dirty = |cx: &mut Cx| -> Vec<File> {
            (0..12)
                .map(|n| {
                    let file = names.open(cx, format!("/{n}").as_bytes(), RW, 0o644).unwrap();
                    // Two ranges: one durable WRITE will not do.
                    file.write_at(cx, 0, &[n; 5000]).unwrap();
                    file.write_at(cx, 9000, &[n; 5000]).unwrap();
                    file
                })
                .collect()
        };
        let files = dirty(cx);
        let mut sent = Vec::new();
        for file in &files {
            file.fsync(cx).unwrap();
            sent.push(spy.take(Proc::Write).len() / 2);
        }
        // The window begins with the second file and doubles; in the end all were sent once.
        assert_eq!(sent[..5], [1, 2, 2, 3, 4], "{sent:?}");
        assert_eq!(sent.iter().sum::<usize>(), 12);
        for (n, file) in files.into_iter().enumerate() {
            let theirs = site.fs.lookup(cx, site.fs.root(), n.to_string().as_bytes()).unwrap();
            assert_eq!(theirs.size, 14_000);
            file.close(cx).unwrap();
        }
        // A write in between ends it.
        let files = dirty(cx);
        spy.take(Proc::Write);
        for file in &files {
            file.write_at(cx, 100, &[1; 10]).unwrap();
            file.fsync(cx).unwrap();
            assert_eq!(spy.take(Proc::Write).len(), 2);
        }
        for file in files {
            file.close(cx).unwrap();
        }
        client.unmount(cx).unwrap();
    });
}

/// Small files, each of which is one durable WRITE: `sync` has many of them under way.
#[test]
fn small_files_are_made_durable_together() {
    world(13, |cx| {
        let site = Site::new(cx, Arc::new(MemFs::new()));
        let (client, spy) = spied(cx, &site, quick_calls());
        let names = Namespace::new(client.clone());
        for n in 0..200u64 {
            let made = NewNode::new(FileType::Regular, 0o644);
            let ino =
                client.create(cx, client.root(), n.to_string().as_bytes(), &made).unwrap().ino;
            client.write(cx, ino, 0, &vec![n as u8; 100 + n as usize]).unwrap();
        }
        client.sync(cx).unwrap();
        assert_eq!(spy.most_at_once(), 16, "as many as there are slots");
        assert_eq!(client.stats().calls[Proc::Commit as usize], 0);
        assert_eq!((spy.take(Proc::Write).len(), client.stats().stable_writes), (200, 200));
        for n in 0..200u64 {
            let attr = names.stat(cx, format!("/{n}").as_bytes()).unwrap();
            assert_eq!(attr.size, 100 + n);
        }
        client.unmount(cx).unwrap();
    });
}
