//! Runs the examples, as their first lines say.

use std::ffi::OsString;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;

#[expect(dead_code, reason = "`main` belongs to the example as a program")]
#[path = "../examples/build_image.rs"]
mod build_image;
#[expect(dead_code, reason = "as above")]
#[path = "../examples/check_image.rs"]
mod check_image;
#[expect(dead_code, reason = "as above")]
#[path = "../examples/copy_out.rs"]
mod copy_out;
#[expect(dead_code, reason = "as above")]
#[path = "../examples/crash_test.rs"]
mod crash_test;
#[expect(dead_code, reason = "as above")]
#[path = "../examples/disk_usage.rs"]
mod disk_usage;
#[expect(dead_code, reason = "as above")]
#[path = "../examples/parallel_grep.rs"]
mod parallel_grep;
#[expect(dead_code, reason = "as above")]
#[path = "../examples/read_file.rs"]
mod read_file;
#[expect(dead_code, reason = "as above")]
#[path = "../examples/read_speed.rs"]
mod read_speed;
#[expect(dead_code, reason = "as above")]
#[path = "../examples/walk_and_hash.rs"]
mod walk_and_hash;
#[expect(dead_code, reason = "as above")]
#[path = "../examples/web_server.rs"]
mod web_server;

/// Serves an image in a thread of its own; answers the address.
#[expect(clippy::disallowed_methods, reason = "a server outside of every run time")]
fn serve(image: &Path) -> SocketAddr {
    let mut args = [OsString::from(image), OsString::from("0")].into_iter();
    let (listener, fs) = web_server::open(&mut args).unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            web_server::answer(&fs, stream.unwrap()).unwrap();
        }
    });
    address
}

/// What an example prints.
fn output(run: impl FnOnce(&mut Vec<u8>) -> anyhow::Result<()>) -> String {
    let mut out = Vec::new();
    run(&mut out).unwrap();
    String::from_utf8(out).unwrap()
}

#[test]
fn the_examples_do_what_they_say() {
    let folder = tempfile::tempdir().unwrap();
    let image = folder.path().join("disk.img");
    let args = |words: &[&str]| {
        let words: Vec<OsString> = words.iter().map(OsString::from).collect();
        [OsString::from(&image)].into_iter().chain(words)
    };
    build_image::run(args(&[])).unwrap();
    testkit::judge::e2fsck(&image).unwrap();
    let name = output(|out| read_file::run(args(&["/etc/hostname"]), out));
    assert_eq!(name, "box\n");
    let sums = output(|out| walk_and_hash::run(args(&[]), out));
    // Of sha256sum(1).
    for line in [
        "d32df3bccac7b83e88dc1c90c343109e302bc832d1eef842282084fa7ffb63ee  /etc/conf.d/net",
        "9d8f48dbb150f0403fe850ddeace30e2844a311d05e9bd232c7a0e99388773d1  /etc/hostname",
    ] {
        assert!(sums.lines().any(|found| found == line), "{line} in {sums}");
    }
    assert_eq!(sums.lines().count(), 2, "{sums}");
    let speed = output(|out| read_speed::run(args(&["/etc/hostname", "2", "5"]), out));
    assert!(speed.starts_with("5 reads of 2 bytes in "), "{speed}");
    let found = output(|out| parallel_grep::run(args(&["box"]), out));
    assert_eq!(found, "/etc/hostname:1: box\n");
    let used = output(|out| disk_usage::run(args(&[]), out));
    assert!(used.contains("bytes used") && used.contains(" /etc\n"), "{used}");
    let target = folder.path().join("copy");
    let copied = output(|out| copy_out::run(args(&["/etc", target.to_str().unwrap()]), out));
    assert!(copied.ends_with("\r100 %\r9 bytes\n"), "{copied:?}");
    assert_eq!(std::fs::read_to_string(target.join("net")).unwrap(), "dhcp\n");
    let address = serve(&image);
    for (path, expected) in [
        ("/etc/net", "HTTP/1.0 200 OK\r\nContent-Length: 5\r\n\r\ndhcp\n"),
        ("/no", "HTTP/1.0 404"),
    ] {
        let mut stream = TcpStream::connect(address).unwrap();
        write!(stream, "GET {path} HTTP/1.0\r\n\r\n").unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        assert!(answer.starts_with(expected), "{path}: {answer}");
    }
}

#[test]
fn the_check_of_the_example_tells_damage() {
    let folder = tempfile::tempdir().unwrap();
    let image = folder.path().join("disk.img");
    let args = || [OsString::from(&image)].into_iter();
    build_image::run(args()).unwrap();
    let mut out = Vec::new();
    assert!(check_image::run(args(), &mut out).unwrap());
    assert_eq!(out, b"ext: clean\n");
    // A name stays whose inode is gone.
    let damage = ["-w", "-R", "clri /etc/hostname"];
    let done = std::process::Command::new("debugfs").args(damage).arg(&image).output().unwrap();
    assert!(done.status.success());
    let mut out = Vec::new();
    assert!(!check_image::run(args(), &mut out).unwrap());
    let out = String::from_utf8(out).unwrap();
    assert!(out.contains("hostname") && out.ends_with("ext: damaged\n"), "{out}");
}

#[test]
fn the_crash_test_of_the_example_sees_both_contents() {
    let out = output(crash_test::run);
    let numbers: Vec<u32> = out.split(' ').filter_map(|word| word.parse().ok()).collect();
    assert!(numbers.len() == 3 && numbers[0] == numbers[1] + numbers[2], "{out}");
    assert!(numbers[1] > 0 && numbers[2] > 0, "{out}");
}
