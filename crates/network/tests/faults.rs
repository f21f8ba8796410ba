//! Objects on a server with faults: what is read is the object, or there is one clear error.

#![allow(clippy::disallowed_methods, reason = "a server for tests, in real time")]

mod common;

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use base::rng::Rng;
use common::{Fault, Server};
use container::{Files, Source};
use network::{Options, RemoteFiles, open};

const SIZE: usize = 5_000_000;

fn object(dir: &Path, name: &str, seed: u64) -> PathBuf {
    let mut bytes = vec![0; SIZE];
    Rng::new(seed, 0).fill(&mut bytes);
    let path = dir.join(name);
    fs::write(&path, bytes).unwrap();
    path
}

/// Reads all of it in pieces.
fn content(source: &dyn Source, piece: usize) -> std::io::Result<Vec<u8>> {
    let mut all = vec![0; source.size() as usize];
    for (index, part) in all.chunks_mut(piece).enumerate() {
        source.read_at((index * piece) as u64, part)?;
    }
    Ok(all)
}

fn read(server: &Server) -> Result<Vec<u8>, String> {
    let source = open(&server.url, &Options::default()).map_err(|error| error.to_string())?;
    content(&*source, 100_000).map_err(|error| error.to_string())
}

#[track_caller]
fn assert_fails(fault: Fault, words: &[&str]) {
    let dir = tempfile::tempdir().unwrap();
    let path = object(dir.path(), "a.img", 1);
    let server = Server::new(&path, fault);
    let error = read(&server).expect_err("it is not read");
    assert!(error.starts_with(&server.url), "{error}");
    for word in words {
        assert!(error.contains(word), "`{word}` is not in: {error}");
    }
}

#[test]
fn objects_are_read_whole_in_any_order_by_many() {
    let dir = tempfile::tempdir().unwrap();
    let path = object(dir.path(), "a.img", 1);
    let wanted = fs::read(&path).unwrap();
    let server = Server::new(&path, Fault::None);
    let source = open(&server.url, &Options::default()).unwrap();
    assert_eq!(source.size(), SIZE as u64);
    std::thread::scope(|scope| {
        for seed in 0..6 {
            let (source, wanted) = (&source, &wanted);
            scope.spawn(move || {
                let mut rng = Rng::new(seed, 0);
                for _ in 0..100 {
                    let at = rng.below(SIZE as u64 - 1) as usize;
                    let len = rng.range(1..300_000).min((SIZE - at) as u64) as usize;
                    let mut bytes = vec![0; len];
                    source.read_at(at as u64, &mut bytes).unwrap();
                    assert!(bytes == wanted[at..at + len], "{at} {len}");
                }
            });
        }
    });
    // Every block came once: nobody fetches what another has asked for.
    assert_eq!(server.bytes(), SIZE as u64);
    assert_eq!(server.conditional(), server.requests() - 1);
    assert!(source.read_at(SIZE as u64 - 1, &mut [0; 2]).is_err());
}

#[test]
fn memory_is_bounded_and_what_was_driven_out_comes_again() {
    let dir = tempfile::tempdir().unwrap();
    let path = object(dir.path(), "a.img", 2);
    let server = Server::new(&path, Fault::None);
    let options = Options { memory: 0, ..Options::default() };
    let source = open(&server.url, &options).unwrap();
    for _ in 0..2 {
        assert!(content(&*source, 1 << 20).unwrap() == fs::read(&path).unwrap());
    }
    assert!(server.bytes() > SIZE as u64);
}

/// Goal: a reader of several blocks notices each that comes, also while it copies another one.
/// Method: two blocks come at the same time, on both sides of one that is there, many times.
/// Nothing else comes that would wake the reader; one that sleeps on leaves its thread behind.
#[test]
fn no_block_that_comes_is_slept_through() {
    const BLOCK: u64 = 64 << 10;
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.img");
    fs::File::create(&path).unwrap().set_len(900 * BLOCK).unwrap();
    let server = Server::new(&path, Fault::None);
    let source = open(&server.url, &Options::default()).unwrap();
    let (sender, receiver) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let mut bytes = vec![0; 3 * BLOCK as usize];
        for first in (0..300).rev().map(|number| number * 3) {
            source.read_at((first + 1) * BLOCK, &mut bytes[..1]).unwrap();
            source.read_at(first * BLOCK, &mut bytes).unwrap();
        }
        sender.send(()).unwrap();
    });
    receiver.recv_timeout(Duration::from_secs(60)).expect("the reader ends");
}

#[test]
fn connections_that_are_cut_and_servers_that_are_busy_are_tried_again() {
    let dir = tempfile::tempdir().unwrap();
    let path = object(dir.path(), "a.img", 3);
    for fault in [Fault::Cut(1000, 3), Fault::Cut(0, 2), Fault::Overloaded(3)] {
        let server = Server::new(&path, fault);
        assert!(read(&server).unwrap() == fs::read(&path).unwrap(), "{fault:?}");
    }
}

#[test]
fn a_connection_that_is_always_cut_is_given_up() {
    assert_fails(Fault::Cut(1000, u64::MAX), &["6 times; given up"]);
    assert_fails(Fault::Down, &["the server answers 500 Internal Server Error, 6 times; given up"]);
}

#[test]
fn a_server_without_ranges_is_named() {
    assert_fails(
        Fault::NoRanges,
        &["does not send parts of an object", "200 OK", "fetch the whole"],
    );
}

#[test]
fn wrong_answers_are_never_content() {
    assert_fails(Fault::WrongRange, &["a wrong answer: asked for ", "the server sent `bytes "]);
    assert_fails(Fault::ShortRange, &["a wrong answer: asked for ", "the server sent `bytes "]);
    assert_fails(Fault::Missing, &["404 Not Found: there is no such object"]);
    assert_fails(Fault::Forbidden, &["403 Forbidden: it wants credentials"]);
}

#[test]
fn an_object_that_changes_is_an_error_and_never_a_mixture() {
    assert_fails(Fault::Changes(2), &["the object changed while it was read", "\"one\""]);
    let silent = ["changed", "its ETag was \"one\", now \"two\""];
    assert_fails(Fault::ChangesSilently(2), &silent);
    assert_fails(Fault::Grows, &["changed", "it had 5000000 bytes, now 5000001"]);
    // From then on nothing is read, what is in memory included.
    let dir = tempfile::tempdir().unwrap();
    let path = object(dir.path(), "a.img", 4);
    let server = Server::new(&path, Fault::None);
    let source = open(&server.url, &Options::default()).unwrap();
    source.read_at(0, &mut [0; 512]).unwrap();
    server.set_etag(Some("\"two\""));
    let error = source.read_at(3_000_000, &mut [0; 512]).unwrap_err().to_string();
    assert!(error.contains("changed"), "{error}");
    let error = source.read_at(4_000_000, &mut [0; 512]).unwrap_err().to_string();
    assert!(error.contains("changed"), "{error}");
    let requests = server.requests();
    assert!(source.read_at(2_000_000, &mut [0; 512]).is_err());
    assert!(source.read_at(0, &mut [0; 512]).is_err());
    assert_eq!(server.requests(), requests);
}

#[test]
fn a_weak_etag_is_compared_and_not_asked_for() {
    let dir = tempfile::tempdir().unwrap();
    let path = object(dir.path(), "a.img", 5);
    let server = Server::new(&path, Fault::None);
    server.set_etag(Some("W/\"one\""));
    let source = open(&server.url, &Options::default()).unwrap();
    assert!(content(&*source, 100_000).unwrap() == fs::read(&path).unwrap());
    assert_eq!(server.conditional(), 0);
    let source = open(&server.url, &Options::default()).unwrap();
    server.set_etag(Some("W/\"two\""));
    let error = source.read_at(3_000_000, &mut [0; 512]).unwrap_err().to_string();
    assert!(error.contains("its ETag was W/\"one\", now W/\"two\""), "{error}");
}

#[test]
fn the_cache_on_disk_is_shared_and_holds_one_version() {
    let dir = tempfile::tempdir().unwrap();
    let (one, two) = (object(dir.path(), "a.img", 6), object(dir.path(), "b.img", 7));
    let cache = dir.path().join("cache");
    let options = Options { cache_dir: Some(cache.clone()), ..Options::default() };
    let server = Server::new(&one, Fault::None);
    let whole = |server: &Server| {
        server.reset();
        let source = open(&server.url, &options).unwrap();
        content(&*source, 100_000).unwrap()
    };
    assert!(whole(&server) == fs::read(&one).unwrap());
    assert_eq!(server.bytes(), SIZE as u64);
    // Again: the version is asked for, with the first block.
    assert!(whole(&server) == fs::read(&one).unwrap());
    assert_eq!((server.bytes(), server.requests()), (65536, 1));
    // Another version under the same address has blocks of its own.
    server.set_file(&two);
    server.set_etag(Some("\"two\""));
    assert!(whole(&server) == fs::read(&two).unwrap());
    assert_eq!(server.bytes(), SIZE as u64);
    // A block that is damaged on disk is fetched again.
    for folder in fs::read_dir(&cache).unwrap() {
        let blocks = folder.unwrap().path().join("blocks");
        if blocks.exists() {
            let mut bytes = fs::read(&blocks).unwrap();
            bytes[1_000_000] ^= 1;
            fs::write(&blocks, bytes).unwrap();
        }
    }
    assert!(whole(&server) == fs::read(&two).unwrap());
    assert_eq!(server.bytes(), 2 * 65536);
    // Without a strong ETag nothing is kept.
    server.set_etag(None);
    for _ in 0..2 {
        assert!(whole(&server) == fs::read(&two).unwrap());
        assert_eq!(server.bytes(), SIZE as u64);
    }
    let mode =
        std::os::unix::fs::PermissionsExt::mode(&fs::metadata(&cache).unwrap().permissions());
    assert_eq!(mode & 0o777, 0o700);
    assert!(cache.join("CACHEDIR.TAG").exists());
}

#[test]
fn reads_in_a_row_take_few_requests_and_others_take_little() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("large.img");
    fs::File::create(&path).unwrap().set_len(256 << 20).unwrap();
    let server = Server::slow(&path, Fault::None, Duration::from_millis(2), 0);
    let source: Arc<dyn Source> = open(&server.url, &Options::default()).unwrap();
    for number in 1..50u64 {
        source.read_at(number * 5 * (1 << 20) + 77, &mut [0; 4096]).unwrap();
    }
    assert_eq!(server.bytes(), 50 * 65536);
    server.reset();
    let mut part = vec![0; 128 << 10];
    for number in 0..400u64 {
        source.read_at((8 << 20) + number * part.len() as u64, &mut part).unwrap();
    }
    assert!(server.requests() < 60, "{} requests for 50 MiB", server.requests());
    assert!(server.bytes() < 68 << 20, "{} bytes for 50 MiB", server.bytes());
}

#[test]
fn files_that_an_image_names_lie_beside_it() {
    let dir = tempfile::tempdir().unwrap();
    let path = object(dir.path(), "a.img", 8);
    let server = Server::new(&path, Fault::None);
    let files = RemoteFiles::beside(&server.url, &Options::default());
    let beside = files.open("a", "qcow2", "base.img").unwrap();
    assert!(beside.name().ends_with("/base.img"));
    for name in ["/etc/passwd", "../x", "http://other/x", "a?b", "file:x"] {
        let error = files.open("a", "qcow2", name).err().unwrap().to_string();
        assert!(error.contains(name) && error.contains("does not lie beside it"), "{error}");
    }
}

#[test]
fn a_container_on_a_server_is_a_device_with_requests_at_once() {
    let dir = tempfile::tempdir().unwrap();
    let path = object(dir.path(), "disk.raw", 9);
    fs::File::options().write(true).open(&path).unwrap().set_len(SIZE as u64 / 512 * 512).unwrap();
    let wanted = fs::read(&path).unwrap();
    let script = "qemu-img convert -c -f raw -O qcow2 disk.raw base.qcow2; \
                  qemu-img create -q -f qcow2 -b base.qcow2 -F qcow2 top.qcow2";
    let mut shell = std::process::Command::new("sh");
    let done = shell.args(["-ec", script]).current_dir(dir.path());
    assert!(done.status().unwrap().success(), "`cargo xtask judges` installs qemu-img");
    let server = Server::new(&dir.path().join("base.qcow2"), Fault::None);
    let options = Options::default();
    let source = open(&server.url, &options).unwrap();
    let files = RemoteFiles::beside(&server.url, &options);
    let image = container::open(source, &container::How::default(), &files).unwrap();
    assert!(image.threads() > 0);
    let device = Arc::new(container::ImageDevice::new(image, "disk"));
    let source = container::DeviceSource::new(device);
    assert!(content(&source, 300_000).unwrap() == wanted);
    std::thread::scope(|scope| {
        for seed in 0..4 {
            let (source, wanted) = (&source, &wanted);
            scope.spawn(move || {
                let mut rng = Rng::new(seed, 0);
                for _ in 0..50 {
                    let at = rng.below(wanted.len() as u64 - 1) as usize;
                    let len = rng.range(1..200_000).min((wanted.len() - at) as u64) as usize;
                    let mut bytes = vec![0; len];
                    source.read_at(at as u64, &mut bytes).unwrap();
                    assert!(bytes == wanted[at..at + len], "{at} {len}");
                }
            });
        }
    });
}
