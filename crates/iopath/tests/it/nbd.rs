//! Network block devices: our server judged by libnbd's tools and fio, our client on servers of
//! others and on our own. Needs the tools that `cargo xtask judges` installs.

#![allow(clippy::disallowed_methods, reason = "the host's own programs are tested, in real time")]

use std::ffi::OsStr;
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use testkit::judge;

fn iopath(args: &[&dyn AsRef<OsStr>]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_iopath"));
    command.args(args.iter().map(|arg| arg.as_ref())).stdin(Stdio::null());
    command
}

#[track_caller]
fn ok(command: &mut Command) -> String {
    let output: Output = command.output().unwrap_or_else(|error| {
        panic!("{command:?}: {error}; `cargo xtask judges` installs what is missing")
    });
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {}: {error}", output.status);
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[track_caller]
fn shell(dir: &Path, script: &str) -> String {
    ok(Command::new("sh").args(["-ec", script]).current_dir(dir).env("LC_ALL", "C"))
}

/// A server that ends with the test.
struct Server {
    child: Child,
    url: String,
}

impl Server {
    /// Ours, on a socket beside the image.
    fn ours(image: &Path, options: &[&str]) -> Server {
        Server::at(&image.with_extension("sock"), image, options)
    }

    /// Ours, on this socket.
    fn at(socket: &Path, target: &Path, options: &[&str]) -> Server {
        let mut command = iopath(&[&"serve", &"nbd", &"--listen", &socket]);
        command.args(options).arg(target).stdout(Stdio::piped());
        let mut child = command.spawn().expect("the server starts");
        let mut line = String::new();
        let out = child.stdout.take().expect("a pipe");
        BufReader::new(out).read_line(&mut line).expect("it tells where it serves");
        let url = line.trim().rsplit(' ').next().expect("an address").to_owned();
        assert!(url.starts_with("nbd+unix://"), "{line}");
        Server { child, url }
    }

    /// Somebody else's, once its socket is there.
    fn other(mut command: Command, socket: &Path) -> Server {
        let child = command.spawn().unwrap_or_else(|error| {
            panic!("{command:?}: {error}; `cargo xtask judges` installs what is missing")
        });
        let start = Instant::now();
        while !socket.exists() {
            assert!(start.elapsed() < Duration::from_secs(60), "{command:?} does not serve");
            std::thread::sleep(Duration::from_millis(5));
        }
        Server { child, url: format!("nbd+unix:///?socket={}", socket.display()) }
    }

    /// Ends it with SIGTERM, and waits.
    fn end(mut self) {
        judge::run_ok("kill", &[&self.child.id().to_string()]);
        let status = self.child.wait().expect("it ends");
        assert!(status.success(), "{status}");
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ended = self.child.kill();
        let _ended = self.child.wait();
    }
}

fn sparse_image(dir: &Path) -> PathBuf {
    let image = dir.join("disk.img");
    judge::mke2fs(&image, 32 << 20, &["-t", "ext4"]);
    shell(dir, "seq 1000 >one; debugfs -w -R 'write one one' disk.img 2>/dev/null");
    image
}

#[test]
fn libnbd_sees_size_abilities_and_holes() {
    let dir = tempfile::tempdir().unwrap();
    let image = sparse_image(dir.path());
    let server = Server::ours(&image, &["--name", "disk", "--write"]);
    let url = &server.url;
    let info = shell(dir.path(), &format!("nbdinfo --json '{url}'"));
    for fact in [
        "\"export-size\": 33554432",
        "\"is_read_only\": false",
        "\"can_flush\": true",
        "\"can_fua\": true",
        "\"can_trim\": true",
        "\"can_zero\": true",
        "\"can_multi_conn\": true",
        "\"base:allocation\"",
        "\"structured\": true",
    ] {
        assert!(info.contains(fact), "no {fact} in {info}");
    }
    let list = shell(dir.path(), &format!("nbdinfo --list '{url}'"));
    assert!(list.contains("export=\"disk\""), "{list}");
    let map = shell(dir.path(), &format!("nbdinfo --map '{url}'"));
    assert!(map.contains("hole,zero") && map.contains("data"), "{map}");
    shell(dir.path(), &format!("nbdcopy '{url}' copy.img; cmp copy.img disk.img"));
    server.end();
    let server = Server::ours(&image, &[]);
    let info = shell(dir.path(), &format!("nbdinfo --json '{}'", server.url));
    assert!(info.contains("\"is_read_only\": true"), "{info}");
}

#[test]
fn libnbd_and_fio_write_through_our_server() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("disk.img"), "").unwrap();
    let image = dir.path().join("disk.img");
    fs::File::options().write(true).open(&image).unwrap().set_len(32 << 20).unwrap();
    let server = Server::ours(&image, &["--write"]);
    let url = &server.url;
    shell(
        dir.path(),
        &format!(
            "head -c 32M /dev/urandom >random; nbdcopy random '{url}'; nbdcopy '{url}' back
             cmp random back; cmp random disk.img
             fio --name=n --ioengine=nbd --uri='{url}' --rw=randrw --bs=4k --size=8M --iodepth=16 \
               --verify=crc32c --verify_state_save=0 --output=fio.out"
        ),
    );
    server.end();
}

/// mkfs, copies and check over our own server, and over a qcow2 image that qemu-nbd exports.
#[test]
fn a_file_system_lives_on_network_block_devices() {
    let dir = tempfile::tempdir().unwrap();
    let image = dir.path().join("raw.img");
    fs::File::create(&image).unwrap().set_len(64 << 20).unwrap();
    let (qcow, socket) = (dir.path().join("q.qcow2"), dir.path().join("q.sock"));
    ok(Command::new("qemu-img").args(["create", "-q", "-f", "qcow2"]).arg(&qcow).arg("64M"));
    let mut qemu = Command::new("qemu-nbd");
    qemu.args(["-f", "qcow2", "-t", "--discard=unmap", "-k"]).arg(&socket).arg(&qcow);
    let tree = dir.path().join("tree");
    fs::create_dir(&tree).unwrap();
    shell(&tree, "mkdir a; seq 100000 >a/one; ln -s one a/two; head -c 5M /dev/urandom >big");
    for server in [Server::ours(&image, &["--write"]), Server::other(qemu, &socket)] {
        let url = &server.url;
        ok(&mut iopath(&[&"mkfs", &"-q", &"-t", &"ext4", &"--force", url]));
        ok(&mut iopath(&[&"cp", &"-a", &tree.join("."), &format!("{url}:/")]));
        ok(&mut iopath(&[&"check", url]));
        let out = dir.path().join("out");
        fs::create_dir(&out).unwrap();
        ok(&mut iopath(&[&"cp", &"-r", &format!("{url}:/."), &out]));
        shell(dir.path(), "rmdir out/lost+found; diff -r tree out; rm -r out");
    }
    judge::e2fsck(&image).unwrap();
    shell(dir.path(), "qemu-img convert -f qcow2 -O raw q.qcow2 q.img");
    judge::e2fsck(&dir.path().join("q.img")).unwrap();
}

/// Goal: a modelled disk can be used by anybody, at its own speed. Method: reads far from each
/// other, each of which waits for an arm, take the time of arms; sizes and contents are those of a
/// fresh file system that the outside judge likes.
#[test]
fn a_modelled_disk_is_served_at_its_own_speed() {
    let dir = tempfile::tempdir().unwrap();
    let machine = Path::new("sim:disk-7200?size=64M&elevator=none");
    let socket = dir.path().join("m.sock");
    let server = Server::at(&socket, machine, &["--write"]);
    let url = &server.url;
    let start = Instant::now();
    shell(dir.path(), &format!("nbdcopy --request-size=65536 -C 1 -R 1 '{url}' disk.img"));
    // No upper bound: that is the host's. 64 MiB at the disk's best rate take this long at least.
    assert!(start.elapsed() > Duration::from_millis(200), "{:?}", start.elapsed());
    judge::e2fsck(&dir.path().join("disk.img")).unwrap();
    ok(&mut iopath(&[&"mkdir", &format!("{url}:/made")]));
    shell(dir.path(), &format!("nbdcopy '{url}' disk.img"));
    judge::e2fsck(&dir.path().join("disk.img")).unwrap();
    let listed = ok(&mut iopath(&[&"ls", &format!("{}:/", dir.path().join("disk.img").display())]));
    assert!(listed.contains("made"), "{listed}");
    server.end();
}

/// What cannot be used is refused with what, where and why; a server that goes away fails requests
/// and hangs nobody.
#[test]
fn broken_servers_are_told() {
    let dir = tempfile::tempdir().unwrap();
    let image = sparse_image(dir.path());
    let server = Server::ours(&image, &["--name", "disk"]);
    let refused = |url: &str, words: &str| {
        let output = iopath(&[&"rm", &format!("{url}:/one")]).output().unwrap();
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(1), "{error}");
        assert!(error.contains(words), "{error}");
    };
    refused(&server.url, "the export is read-only");
    refused(&server.url.replace("/disk?", "/other?"), "no such export");
    refused("nbd://127.0.0.1:9/x", "Connection refused");
    refused("nbd+unix:///x", "is no address");
    drop(server);
    let mut broken = Command::new("nbdkit");
    let socket = dir.path().join("k.sock");
    broken.args(["-f", "--filter=error", "-U"]).arg(&socket).args(["file"]).arg(&image);
    broken.args(["error-pread-rate=100%", "error=EIO"]);
    let server = Server::other(broken, &socket);
    refused(&server.url, "input/output error");
}

/// Goal: a disk whose first sectors, or last ones, cannot be read is found by `scan` and read with
/// `--rescue`; nothing but these is lost. Without it the error names the place.
#[test]
fn a_disk_with_bad_sectors_at_either_end_is_rescued() {
    let dir = tempfile::tempdir().unwrap();
    let image = dir.path().join("disk.img");
    let run = |args: &[&dyn AsRef<OsStr>]| {
        let output = iopath(args).output().unwrap();
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        (output.status.code(), String::from_utf8_lossy(&output.stdout).into_owned(), error)
    };
    let made = run(&[&"mkfs", &"-q", &"-t", &"ext4", &"-b", &"4096", &"--size", &"64M", &image]);
    assert_eq!(made.0, Some(0), "{made:?}");
    std::fs::write(dir.path().join("one"), "content").unwrap();
    let inside = format!("{}:/", image.display());
    assert_eq!(run(&[&"cp", &dir.path().join("one"), &inside]).0, Some(0));
    let size = 64 << 20;
    for (number, (start, len)) in [(0, 512), (size - 65536, 65536)].into_iter().enumerate() {
        let map = dir.path().join("map");
        let end: u64 = start + len;
        let mut text = format!("0 +\n{start:#x} {len:#x} -\n");
        if start > 0 {
            text = text.replace("0 +\n", &format!("0 +\n0 {start:#x} +\n"));
        }
        if end < size {
            text += &format!("{end:#x} {:#x} +\n", size - end);
        }
        std::fs::write(&map, text).unwrap();
        let socket = dir.path().join(format!("bad{number}.sock"));
        let mut command = Command::new("nbdkit");
        command.args(["-f", "-r", "--filter=ddrescue", "-U"]).arg(&socket).arg("file").arg(&image);
        command.arg(format!("ddrescue-mapfile={}", map.display()));
        let server = Server::other(command, &socket);
        let (code, _, error) = run(&[&"ls", &format!("{}:/", server.url)]);
        let readable = start > 0;
        assert_eq!(code, Some(i32::from(!readable)), "{error}");
        assert!(readable || error.contains("nput/output error"), "{error}");
        let (_, out, error) = run(&[&"--rescue", &"cat", &format!("{}:/one", server.url)]);
        assert_eq!(out, "content", "{start}: {error}");
        let (_, out, error) = run(&[&"--rescue", &"ls", &format!("{}:/", server.url)]);
        assert_eq!(out, "lost+found\none\n", "{start}: {error}");
        let (_, out, error) = run(&[&"scan", &server.url]);
        assert!(out.contains(" ext ") && out.contains("64.0 MiB"), "{start}: {out}{error}");
        server.end();
    }
}

/// A qcow2 image did not offer TRIM, so that it grew with everything that was ever written.
#[test]
fn what_a_client_discards_leaves_a_qcow2() {
    use std::os::unix::fs::MetadataExt;
    let dir = tempfile::tempdir().unwrap();
    let image = dir.path().join("disk.qcow2");
    shell(dir.path(), "qemu-img create -q -f qcow2 disk.qcow2 64M");
    let server = Server::ours(&image, &["--write"]);
    let io =
        |words: &str| shell(dir.path(), &format!("qemu-io -f raw -c {words} '{}'", server.url));
    let bytes = || fs::metadata(&image).unwrap().blocks() * 512;
    io("'write -P 7 0 16M' -c flush");
    let full = bytes();
    io("'discard 1M 14M' -c flush");
    assert!(bytes() + (13 << 20) <= full, "{full} bytes, then {}", bytes());
    io("'read -P 7 0 1M' -c 'read -P 0 1M 14M'");
    server.end();
    shell(dir.path(), "qemu-img check -q disk.qcow2");
}
