//! Goal: a node is never taken for another one that has its number, and no silly name is left.
//! Method: a server that uses inode numbers again at once, as ext4 does, and answers that come so
//! late that others overtake them; in virtual time.

mod common;
#[path = "common/spy.rs"]
mod spy;

use std::net::IpAddr;
use std::sync::Arc;

use base::Nanos;
use common::{Site, key, quick_calls, world};
use nfs::proto::Proc;
use nfs::wire::LinkWire;
use nfs::{NfsClient, NfsOptions};
use rt::Cx;
use spy::Spy;
use testkit::memfs::MemFs;
use vfs::{File, FileSystem, Namespace, OpenFlags};

const RW: OpenFlags = OpenFlags::READ.union(OpenFlags::WRITE).union(OpenFlags::CREATE);
const LATE: Nanos = Nanos::from_millis(20);
const WHILE: Nanos = Nanos::from_millis(5);

fn spied(cx: &mut Cx, options: NfsOptions) -> (Site, Arc<NfsClient>, Arc<Spy>) {
    let site = Site::new(cx, Arc::new(MemFs::reusing()));
    let spy = Spy::new(LinkWire::new(&site.net, IpAddr::from([10, 0, 0, 1])));
    let root = site.fs.getattr(cx, site.fs.root()).unwrap();
    let root = key().make(root.ino, root.generation);
    let client = NfsClient::mount(cx, spy.clone(), root, options).unwrap();
    (site, client, spy)
}

fn open(cx: &mut Cx, client: &Arc<NfsClient>, name: &[u8]) -> File {
    Namespace::new(client.clone()).open(cx, name, RW, 0o644).unwrap()
}

fn close(cx: &Cx, file: File) -> rt::JoinHandle<()> {
    cx.spawn("close", move |cx| file.close(cx).unwrap())
}

/// What is in the root on the server.
fn names(cx: &mut Cx, site: &Site) -> usize {
    Namespace::new(site.fs.clone()).list(cx, b"/").unwrap().len()
}

/// As SQLite's journals do it: the file is removed while its close is under way, and its number is
/// that of the next file before the answer to the removal is here.
#[test]
fn a_new_file_is_not_forgotten_with_the_old_one_of_its_number() {
    world(1, |cx| {
        let (site, client, spy) = spied(cx, quick_calls());
        let ns = Namespace::new(client.clone());
        let old = open(cx, &client, b"/journal");
        old.write(cx, &[1; 5000]).unwrap();
        old.fsync(cx).unwrap();
        ns.unlink(cx, b"/journal").unwrap();
        spy.delay(cx, Proc::Remove, LATE);
        let number = old.ino();
        let closing = close(cx, old);
        cx.sleep(WHILE);
        let new = open(cx, &client, b"/journal");
        assert!(new.ino() == number && !closing.is_finished());
        new.write(cx, &[2; 3000]).unwrap();
        cx.sleep(LATE);
        closing.join(cx);
        new.write(cx, &[3; 3000]).unwrap();
        new.fsync(cx).unwrap();
        assert_eq!(new.attr(cx).unwrap().size, 6000);
        new.close(cx).unwrap();
        assert_eq!(ns.stat(cx, b"/journal").unwrap().size, 6000);
        client.unmount(cx).unwrap();
        assert_eq!(names(cx, &site), 1);
    });
}

/// The same without a silly name: REMOVE itself is answered late.
#[test]
fn a_new_file_is_not_forgotten_with_one_that_was_removed_before() {
    world(1, |cx| {
        let (_site, client, spy) = spied(cx, quick_calls());
        let file = open(cx, &client, b"/old");
        file.close(cx).unwrap();
        spy.delay(cx, Proc::Remove, LATE);
        let theirs = client.clone();
        let removing =
            cx.spawn("rm", move |cx| Namespace::new(theirs).unlink(cx, b"/old").unwrap());
        cx.sleep(WHILE);
        let new = open(cx, &client, b"/new");
        new.write(cx, &[1; 100]).unwrap();
        removing.join(cx);
        // Nothing of it is lost, and nobody but the list of what is dirty knows of it.
        client.sync(cx).unwrap();
        new.write(cx, &[2; 100]).unwrap();
        new.close(cx).unwrap();
        client.unmount(cx).unwrap();
    });
}

/// A file that is closed while its name is being taken away leaves no silly name behind.
#[test]
fn a_close_during_the_removal_takes_the_silly_name_too() {
    world(1, |cx| {
        let (site, client, spy) = spied(cx, quick_calls());
        let file = open(cx, &client, b"/f");
        file.write(cx, b"content").unwrap();
        spy.delay(cx, Proc::Rename, LATE);
        let theirs = client.clone();
        let removing = cx.spawn("rm", move |cx| Namespace::new(theirs).unlink(cx, b"/f").unwrap());
        cx.sleep(WHILE);
        assert_eq!((names(cx, &site), removing.is_finished()), (1, false));
        file.close(cx).unwrap();
        removing.join(cx);
        assert_eq!(names(cx, &site), 0);
        client.unmount(cx).unwrap();
    });
}

/// What a LOOKUP that was overtaken tells of an older file does not take the place of the new one.
#[test]
fn an_answer_that_was_overtaken_is_asked_for_again() {
    world(1, |cx| {
        let (site, client, spy) = spied(cx, quick_calls());
        let ns = Namespace::new(client.clone());
        open(cx, &client, b"/f").close(cx).unwrap();
        spy.delay(cx, Proc::Lookup, LATE);
        let theirs = client.clone();
        let looking = cx.spawn("stat", move |cx| theirs.lookup(cx, theirs.root(), b"f"));
        cx.sleep(WHILE);
        spy.delay(cx, Proc::Null, LATE);
        ns.unlink(cx, b"/f").unwrap();
        cx.sleep(WHILE);
        let new = open(cx, &client, b"/f");
        new.write(cx, b"new").unwrap();
        assert_eq!(looking.join(cx).unwrap().ino, new.ino());
        new.write(cx, b"er").unwrap();
        new.fsync(cx).unwrap();
        assert_eq!(site.fs.getattr(cx, new.ino()).unwrap().size, 5);
        new.close(cx).unwrap();
        client.unmount(cx).unwrap();
    });
}
