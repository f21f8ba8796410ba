//! Metrics of mounts and servers: what is scraped is what was done. Needs root, and /dev/fuse.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{ChildStdin, Command, Stdio};
use std::sync::Arc;

use base::{Errno, Nanos};
use iopath::metrics::{ATTRIBUTE, Measured, OPERATIONS, Requests};
use rt::{World, WorldConfig};
use rustix::process::{Pid, Signal, kill_process};
use rustix::termios::{LocalModes, tcgetattr};
use serde_json::Value;
use testkit::memfs::MemFs;
use vfs::{FileSystem, FileType, NewNode};

use crate::command::{Mounted, Running, iopath, ok};

/// The answer to a request of HTTP.
fn ask(mut stream: impl Read + Write, request: &str) -> String {
    stream.write_all(request.as_bytes()).expect("it takes the request");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("it answers");
    answer
}

fn scrape(stream: impl Read + Write) -> String {
    let answer = ask(stream, "GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n");
    let (head, body) = answer.split_once("\r\n\r\n").expect("a head");
    assert!(head.starts_with("HTTP/1.1 200 OK\r\n"), "{head}");
    assert!(head.contains(&format!("Content-Length: {}\r\n", body.len())), "{head}");
    body.to_owned()
}

/// The value of a sample, by its name with labels.
#[track_caller]
fn value(text: &str, name: &str) -> f64 {
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    let value = line.unwrap_or_else(|| panic!("no {name} in\n{text}"));
    value.parse().expect("a number")
}

fn count(text: &str, op: &str) -> f64 {
    value(text, &format!("iopath_request_duration_seconds_count{{op=\"{op}\"}}"))
}

/// Every call is counted once, with its time and its error, and answered as without.
#[test]
fn calls_are_counted_exactly() {
    let mut world = World::new(WorldConfig::default());
    world.run("test", |cx| {
        let requests = Arc::new(Requests::new("mount", OPERATIONS));
        let memory: Arc<dyn FileSystem> = Arc::new(MemFs::new());
        let fs = Measured::new(memory, requests.clone(), b"/m.sock".to_vec());
        let root = fs.root();
        for name in [b"a", b"b", b"c"] {
            fs.create(cx, root, name, &NewNode::new(FileType::Regular, 0o644)).expect("created");
        }
        let ino = fs.lookup(cx, root, b"a").expect("found").ino;
        assert_eq!(fs.write(cx, ino, 0, &[1; 5000]), Ok(5000));
        assert_eq!(fs.append(cx, ino, &[2; 100]), Ok((5000, 100)));
        assert_eq!(fs.read(cx, ino, 5000, &mut [0; 4096]), Ok(100));
        assert_eq!(fs.lookup(cx, root, b"x").err(), Some(Errno::ENOENT));
        assert_eq!(fs.unlink(cx, root, b"x").err(), Some(Errno::ENOENT));
        assert_eq!(fs.rmdir(cx, root, b"a").err(), Some(Errno::ENOTDIR));
        assert_eq!(fs.getxattr(cx, root, ATTRIBUTE), Ok(b"/m.sock".to_vec()));
        assert_ne!(fs.getxattr(cx, ino, ATTRIBUTE), Ok(b"/m.sock".to_vec()));
        assert_eq!(fs.listxattr(cx, root), Ok(Vec::new()));
        let counts: Vec<_> = requests.latencies().map(|(name, of)| (name, of.count())).collect();
        let wanted = [
            ("lookup", 2),
            ("create", 3),
            ("unlink", 1),
            ("rmdir", 1),
            ("read", 1),
            ("write", 2),
            ("getxattr", 1),
            ("listxattr", 1),
        ];
        assert_eq!(counts, wanted);
        assert_eq!((requests.bytes(), requests.in_flight()), ([100, 5100], 0));
        let errors: Vec<_> = requests.errors().collect();
        assert_eq!(&errors[..2], [(Errno::ENOENT, 2), (Errno::ENOTDIR, 1)]);
        requests.note(0, Nanos(2000), None);
        let (_, lookups) = requests.latencies().next().expect("one");
        assert!(lookups.buckets[1] >= 1 && lookups.seconds >= 2e-6, "{lookups:?}");
    });
}

/// A mount that is locked serves what it counts at a socket, which the mount itself names.
#[test]
fn a_mount_counts_what_was_done_in_it() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = |name: &str| folder.path().join(name).display().to_string();
    for (format, commits) in [("ext4", true), ("xfs", false)] {
        let (image, dir, socket) = (path(format), path("mnt"), path("socket"));
        ok(&["mkfs", "-q", "-t", format, "--size", "300M", &image]);
        let _there_already = fs::create_dir(&dir);
        let mounted = Mounted::new(&["--metrics", &socket], &image, dir.clone().into());
        (0..7).for_each(|n| fs::create_dir(format!("{dir}/d{n}")).expect("a directory"));
        (0..3).for_each(|n| fs::remove_dir(format!("{dir}/d{n}")).expect("it goes"));
        fs::write(format!("{dir}/file"), vec![7; 300_000]).expect("a file");
        let file = fs::File::open(format!("{dir}/file")).expect("it opens");
        (0..2).for_each(|_| file.sync_all().expect("it is on the image"));
        drop(file);
        assert!(fs::File::open(format!("{dir}/none")).is_err());
        // The kernel does not wait for the answer to the last close.
        let text = loop {
            let text = scrape(UnixStream::connect(&socket).expect("it listens"));
            if value(&text, "iopath_requests_in_flight") == 0.0 {
                break text;
            }
        };
        assert_eq!(count(&text, "create"), 8.0, "{text}");
        assert_eq!(count(&text, "rmdir"), 3.0);
        assert_eq!(count(&text, "fsync"), 2.0);
        assert_eq!(value(&text, "iopath_request_bytes_total{op=\"write\"}"), 300_000.0);
        assert!(value(&text, "iopath_errors_total{errno=\"ENOENT\"}") >= 1.0);
        assert!(value(&text, "iopath_device_bytes_total{op=\"write\"}") >= 300_000.0);
        assert!(value(&text, "iopath_device_request_duration_seconds_count{op=\"flush\"}") > 0.0);
        assert!(value(&text, "iopath_journal_commits_total") >= 1.0);
        let free = value(&text, "iopath_journal_free_bytes");
        assert!(free > 0.0 && free <= value(&text, "iopath_journal_size_bytes"), "{free}");
        assert_eq!(text.contains("iopath_journal_handles_total"), commits);
        well_formed(&text);
        let named = Command::new("getfattr")
            .args(["--only-values", "-n", "iopath.metrics", &dir])
            .output()
            .expect("apt-get install attr");
        assert_eq!(String::from_utf8_lossy(&named.stdout), socket, "{named:?}");
        let get = |request| ask(UnixStream::connect(&socket).expect("it listens"), request);
        assert!(get("GET / HTTP/1.0\r\n\r\n").starts_with("HTTP/1.1 404 "));
        assert!(get("POST /metrics HTTP/1.0\r\n\r\n").starts_with("HTTP/1.1 405 "));
        assert!(get("HEAD /metrics HTTP/1.0\r\n\r\n").ends_with("\r\n\r\n"));
        drop(mounted);
        assert!(Path::new(&socket).exists(), "the next mount replaces it");
    }
}

/// Each family has its help and its type before its samples, and no sample comes twice. The parser
/// of Prometheus' own client library finds as many samples, each of a family with help and type.
fn well_formed(text: &str) {
    let mut seen = std::collections::BTreeSet::new();
    let (mut family, mut samples) = (String::new(), 0);
    for line in text.lines() {
        if let Some(rest) = line.strip_prefix("# TYPE ") {
            family = rest.split(' ').next().expect("a name").to_owned();
            assert!(seen.insert(line.to_owned()), "{family} comes twice");
        } else if !line.starts_with("# HELP ") {
            let (name, number) = line.rsplit_once(' ').expect("a value");
            assert!(name.starts_with(&family), "{line} is not of {family}");
            assert!(number.parse::<f64>().is_ok() && seen.insert(name.to_owned()), "{line}");
            samples += 1;
        }
    }
    let parser = "import sys\nfrom prometheus_client.parser import text_string_to_metric_families\n\
                  for family in text_string_to_metric_families(sys.stdin.read()):\n \
                  assert family.documentation and family.type != 'unknown', family\n \
                  for sample in family.samples: print(sample.name)";
    // Debian's, whichever comes first on the path.
    let mut python = Command::new("/usr/bin/python3");
    python.args(["-c", parser]).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut python = python.spawn().expect("apt-get install python3-prometheus-client");
    python.stdin.take().expect("a pipe").write_all(text.as_bytes()).expect("it reads");
    let output = python.wait_with_output().expect("it ends");
    assert!(output.status.success(), "{text}");
    assert_eq!(String::from_utf8_lossy(&output.stdout).lines().count(), samples, "{text}");
}

/// A server of NBD, locked, counts at a port the requests of a client.
#[test]
fn a_server_counts_its_clients_requests() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = |name: &str| folder.path().join(name).display().to_string();
    let (image, socket, metrics) = (path("a.img"), path("nbd"), path("metrics"));
    ok(&["mkfs", "-q", "-t", "ext4", "--size", "16M", &image]);
    let server = Command::new(env!("CARGO_BIN_EXE_iopath"))
        .args(["serve", "nbd", "--listen", &socket, "--metrics", &metrics, &image])
        .stdout(Stdio::piped())
        .spawn();
    let mut server = Running(server.expect("it starts"));
    let mut first = [0; 16];
    server.0.stdout.as_mut().expect("a pipe").read_exact(&mut first).expect("it serves");
    ok(&["ls", &format!("nbd+unix:///?socket={socket}:/")]);
    let text = scrape(UnixStream::connect(&metrics).expect("it listens"));
    let reads = count(&text, "read");
    assert!(reads > 0.0);
    let device = value(&text, "iopath_device_request_duration_seconds_count{op=\"read\"}");
    assert!(device >= 1.0 && text.contains("file_system=\"none\""), "{text}");
    assert_eq!(
        value(&text, "iopath_request_bytes_total{op=\"read\"}") % 512.0,
        0.0,
        "whole sectors"
    );
    well_formed(&text);
}

/// NFS: calls by procedure, beside those of the file system, on a port of this machine.
#[test]
fn an_nfs_server_counts_procedures() {
    let folder = tempfile::tempdir().expect("a folder");
    let image = folder.path().join("a.img").display().to_string();
    ok(&["mkfs", "-q", "-t", "ext4", "--size", "16M", &image]);
    let server = Command::new(env!("CARGO_BIN_EXE_iopath"))
        .args(["serve", "nfs", "--listen", "127.0.0.1:0", "--metrics", "0", &image])
        .stderr(Stdio::piped())
        .stdout(Stdio::null())
        .spawn();
    let mut server = Running(server.expect("it starts"));
    let mut said = Vec::new();
    let stderr = server.0.stderr.as_mut().expect("a pipe");
    while !said.ends_with(b"/metrics\n") {
        let mut byte = [0];
        stderr.read_exact(&mut byte).expect("it tells where");
        said.push(byte[0]);
    }
    let said = String::from_utf8(said).expect("text");
    let place = said.rsplit("http://").next().and_then(|rest| rest.strip_suffix("/metrics\n"));
    let place = place.expect("an address");
    assert!(place.starts_with("127.0.0.1:"), "{place}");
    let text = scrape(TcpStream::connect(place).expect("it listens"));
    assert_eq!(value(&text, "iopath_nfs_calls_total{procedure=\"read\"}"), 0.0);
    assert!(text.contains("iopath_info{face=\"nfs\",file_system=\"ext4\""), "{text}");
    well_formed(&text);
}

/// What is no place is wrong usage; what cannot be listened at fails before the image is opened.
#[test]
fn a_bad_place_is_refused_by_name() {
    let folder = tempfile::tempdir().expect("a folder");
    for (place, status, wanted) in [
        ("nonsense", 2, "`nonsense` is no place: give PORT"),
        ("99999", 2, "`99999` is no place"),
        ("/nowhere/m.sock", 1, "--metrics /nowhere/m.sock: No such file"),
    ] {
        let dir = folder.path().display().to_string();
        let output = iopath(&["mount", "-f", "--metrics", place, "/none.img", &dir]);
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(status), "{said}");
        assert!(said.contains(wanted), "{said}");
    }
}

/// `top` finds the metrics by the mount, and shows what was done; another directory has none.
#[test]
fn top_shows_a_mount_once() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = |name: &str| folder.path().join(name).display().to_string();
    let (image, dir, socket) = (path("a.img"), path("mnt"), path("socket"));
    ok(&["mkfs", "-q", "-t", "ext4", "--size", "16M", &image]);
    fs::create_dir(&dir).expect("a directory");
    let mounted = Mounted::new(&["--metrics", &socket], &image, dir.clone().into());
    (0..5).for_each(|n| fs::create_dir(format!("{dir}/d{n}")).expect("a directory"));
    let view: Value = serde_json::from_str(&ok(&["top", "--once", "--json", &dir])).expect("JSON");
    let created = view["operations"].as_array().expect("a list");
    let created = created.iter().find(|one| one["op"] == "create").expect("directories");
    assert_eq!((&created["total"], &created["count"]), (&5.0.into(), &5.0.into()), "{view}");
    let mean = created["mean_seconds"].as_f64().expect("a time");
    let p99 = created["p99_seconds"].as_f64().expect("a time");
    assert!(mean > 0.0 && p99 > 0.0 && p99 <= 2.0 * mean * 5.0, "{view}");
    assert_eq!((&view["face"], &view["file_system"]), (&"mount".into(), &"ext4".into()));
    assert!(view["journal_free_bytes"].as_f64().is_some_and(|free| free > 0.0), "{view}");
    // No terminal: text, once.
    let text = ok(&["top", &socket]);
    assert!(text.lines().any(|line| line.starts_with("create ")), "{text}");
    assert!(text.contains("\njournal  ") && text.contains("\ndevice   elevator "), "{text}");
    drop(mounted);
    for (place, wanted) in [(&dir, "not a mount with metrics"), (&socket, "refused")] {
        let output = iopath(&["top", place]);
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.code() == Some(1) && said.contains(wanted), "{said}");
    }
}

/// On a terminal, `top` ends where the server does, by a signal, and by Ctrl-C; the terminal has
/// its modes back.
#[test]
fn top_gives_the_terminal_back() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = |name: &str| folder.path().join(name).display().to_string();
    let (image, socket, metrics) = (path("a.img"), path("nbd"), path("metrics"));
    ok(&["mkfs", "-q", "-t", "ext4", "--size", "16M", &image]);
    let server = Command::new(env!("CARGO_BIN_EXE_iopath"))
        .args(["serve", "nbd", "--listen", &socket, "--metrics", &metrics, &image])
        .stdout(Stdio::piped())
        .spawn();
    let mut server = Running(server.expect("it starts"));
    let mut first = [0; 16];
    server.0.stdout.as_mut().expect("a pipe").read_exact(&mut first).expect("it serves");
    for signal in [Signal::TERM, Signal::HUP] {
        let status = top_on_a_terminal(&metrics, |top, _keyboard| {
            kill_process(top, signal).expect("a signal");
        });
        assert_eq!(status, 128 + signal.as_raw());
    }
    let press = |key: &'static [u8]| {
        move |_top, keyboard: &mut ChildStdin| keyboard.write_all(key).expect("a key")
    };
    assert_eq!(top_on_a_terminal(&metrics, press(b"\x03")), 130);
    assert_eq!(top_on_a_terminal(&metrics, press(b"q")), 0);
    assert_eq!(top_on_a_terminal(&metrics, |_top, _keyboard| drop(server)), 1);
}

/// The status of a `top` that is ended on a terminal that it reads keys from. The terminal has the
/// same modes before and after.
fn top_on_a_terminal(metrics: &str, end: impl FnOnce(Pid, &mut ChildStdin)) -> i32 {
    let program = env!("CARGO_BIN_EXE_iopath");
    let line = format!(
        "stty -a; tty; sh -c 'echo $$; exec \"{program}\" top \"{metrics}\"'; \
         status=$?; echo; echo status $status; stty -a"
    );
    let script = Command::new("script")
        .args(["-q", "-c", &line, "/dev/null"])
        .env("TERM", "xterm")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn();
    let mut script = Running(script.expect("apt-get install bsdutils"));
    let mut keyboard = script.0.stdin.take().expect("a pipe");
    let mut said = Vec::new();
    let mut stdout = script.0.stdout.take().expect("a pipe");
    let is_shown = |said: &[u8]| said.windows(9).any(|bytes| bytes == b"operation");
    while !is_shown(&said) {
        let mut byte = [0];
        stdout.read_exact(&mut byte).expect("it shows the view");
        said.push(byte[0]);
    }
    let shown = String::from_utf8_lossy(&said).replace('\r', "");
    let mut lines = shown.lines().skip_while(|line| !line.starts_with("/dev/"));
    let terminal = File::open(lines.next().expect("a terminal")).expect("it opens");
    let top = lines.next().and_then(|line| line.parse().ok()).and_then(Pid::from_raw);
    // It may still be on its way to the keys.
    while tcgetattr(&terminal).expect("modes").local_modes.contains(LocalModes::ICANON) {
        std::thread::yield_now();
    }
    end(top.expect("its process"), &mut keyboard);
    stdout.read_to_end(&mut said).expect("it ends");
    let said = String::from_utf8_lossy(&said).replace('\r', "");
    let modes = |text: &str| {
        let lines = text.lines().filter(|line| line.contains("icanon") || line.contains("isig"));
        lines.map(str::to_owned).collect::<Vec<_>>()
    };
    let (before, after) = said.split_once("status ").expect("it ended");
    assert!(!modes(before).is_empty(), "{said}");
    assert_eq!(modes(before), modes(after), "{said}");
    after.lines().next().and_then(|line| line.parse().ok()).expect("a status")
}
