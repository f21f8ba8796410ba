//! Images on servers through the command: a web server with latency, S3 by moto. Needs the tools
//! that `cargo xtask judges` installs.

#![allow(clippy::disallowed_methods, reason = "servers of the host are tested, in real time")]

#[path = "../../../network/tests/common/mod.rs"]
mod web;

use std::fs;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::command::{Running, iopath, iopath_in, ok, ok_in};
use testkit::judge::run_ok;
use web::{Fault, Server};

/// A tree with /etc of many files, and 50 MiB of content.
fn tree(dir: &Path) -> PathBuf {
    let tree = dir.join("tree");
    fs::create_dir_all(tree.join("etc")).unwrap();
    fs::write(tree.join("etc/hostname"), "box\n").unwrap();
    for number in 0..250 {
        fs::write(tree.join(format!("etc/file{number}.conf")), format!("{number}\n")).unwrap();
    }
    let mut noise = vec![0; 50 << 20];
    base::rng::Rng::new(1, 0).fill(&mut noise);
    fs::write(tree.join("large"), noise).unwrap();
    tree
}

#[test]
fn a_large_image_behind_a_latency_takes_few_requests_and_few_bytes() {
    let dir = tempfile::tempdir().unwrap();
    tree(dir.path());
    ok_in(dir.path(), "mkfs -q -t ext4 --size 10G disk.img");
    ok_in(dir.path(), "cp -q -a tree/. disk.img:/");
    let latency = Duration::from_millis(20);
    let server = Server::slow(&dir.path().join("disk.img"), Fault::None, latency, 100_000_000);
    let start = Instant::now();
    let listed = ok(&["ls", &format!("{}:/etc", server.url)]);
    let (took, requests, bytes) = (start.elapsed(), server.requests(), server.bytes());
    println!("ls /etc: {took:?}, {requests} requests, {bytes} bytes");
    assert_eq!(listed.lines().count(), 251);
    assert!(bytes <= 2 << 20, "{bytes} bytes for ls /etc");
    assert!(requests <= 30, "{requests} requests for ls /etc");
    let start = Instant::now();
    let null = Path::new("/dev/null");
    run_ok("curl", &[&"-sf", &"-r", &"0-52428799", &"-o", &null, &server.url]);
    println!("a fetch of 50 MiB: {:?}", start.elapsed());
    server.reset();
    let start = Instant::now();
    let from = format!("{}:/large", server.url);
    ok(&["cp", "-q", &from, &dir.path().join("large").display().to_string()]);
    let (took, requests, bytes) = (start.elapsed(), server.requests(), server.bytes());
    println!("cp of 50 MiB: {took:?}, {requests} requests, {bytes} bytes");
    run_ok("cmp", &[&dir.path().join("large"), &dir.path().join("tree/large")]);
    // What is read ahead of the last byte is not used.
    assert!(bytes <= 68 << 20, "{bytes} bytes for 50 MiB");
    assert!(requests <= 80, "{requests} requests for 50 MiB");
}

#[test]
fn containers_and_partitions_on_a_server_are_read_and_cached() {
    let dir = tempfile::tempdir().unwrap();
    tree(dir.path());
    ok_in(dir.path(), "mkfs -q -t xfs --size 300M disk.img");
    ok_in(dir.path(), "cp -q -a tree/. disk.img:/");
    let script = "qemu-img convert -c -O qcow2 disk.img base.qcow2; \
                  qemu-img create -q -f qcow2 -b base.qcow2 -F qcow2 top.qcow2";
    run_ok("sh", &[&"-ec", &format!("cd {}; {script}", dir.path().display())]);
    let server = Server::new(&dir.path().join("base.qcow2"), Fault::None);
    let target = format!("{}:/etc/hostname", server.url);
    let cache = dir.path().join("cache").display().to_string();
    // What is read ahead when a command ends is not kept: a later one fetches it. In the end only
    // the state of the object is asked for.
    let requests = (0..20).map(|_| {
        server.reset();
        assert_eq!(ok(&["--cache-dir", &cache, "cat", &target]), "box\n");
        server.requests()
    });
    assert!(requests.skip(1).any(|requests| requests == 1));
    let info = ok(&["info", &server.url]);
    assert!(info.contains("container: qcow2") && info.contains("format: xfs"), "{info}");
    let output = iopath(&["mkdir", &format!("{}:/new", server.url)]);
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success() && error.contains("are read, not written"), "{error}");
    // What changes while it is read ends with one error that says so.
    server.set_fault(Fault::Changes(server.requests() + 3));
    let output = iopath(&["cp", "-r", &format!("{}:/", server.url), &cache]);
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success() && error.contains("the object changed while it was read"));
    let output = iopath(&["ls", "http://127.0.0.1:1/x.img:/"]);
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success() && error.contains("http://127.0.0.1:1/x.img: "), "{error}");
}

#[test]
fn objects_of_s3_are_read() {
    let dir = tempfile::tempdir().unwrap();
    fs::create_dir_all(dir.path().join("tree")).unwrap();
    fs::write(dir.path().join("tree/hostname"), "box\n").unwrap();
    ok_in(dir.path(), "mkfs -q -t ext4 --size 16M disk.img");
    ok_in(dir.path(), "cp -q -a tree/. disk.img:/");
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let mut moto = Command::new("moto_server");
    moto.args(["-H", "127.0.0.1", "-p", &port.to_string()]).stdout(Stdio::null());
    let moto = moto.stderr(Stdio::null()).spawn();
    let _moto = Running(moto.expect("moto_server starts; `cargo xtask judges` installs it"));
    let until = Instant::now() + Duration::from_secs(60);
    while TcpStream::connect(("127.0.0.1", port)).is_err() {
        assert!(Instant::now() < until, "moto_server does not listen");
        std::thread::sleep(Duration::from_millis(100));
    }
    let at = format!("http://127.0.0.1:{port}");
    let put = format!(
        "cd {}; curl -sf -X PUT {at}/images; curl -sf -T disk.img {at}/images/a/disk.img; \
         curl -sf -H 'x-amz-acl: public-read' -T disk.img {at}/images/public.img",
        dir.path().display()
    );
    run_ok("sh", &[&"-ec", &put]);
    let run = |words: &[&str], key: &str| on_s3(&at, words, key);
    let output = run(&["cat", "s3://images/a/disk.img:/hostname"], "key");
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(String::from_utf8_lossy(&output.stdout), "box\n", "{error}");
    let output = run(&["--anonymous", "cat", "s3://images/public.img:/hostname"], "key");
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(String::from_utf8_lossy(&output.stdout), "box\n", "{error}");
    let output = run(&["--anonymous", "ls", "s3://images/a/disk.img:/"], "key");
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(error.contains("403 Forbidden: it wants credentials"), "{error}");
    let output = run(&["ls", "s3://images/a/none.img:/"], "key");
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(
        error.contains("s3://images/a/none.img: ") && error.contains("no such object"),
        "{error}"
    );
    crash_logs_are_objects(&run);
    an_overlay_becomes_the_object(dir.path(), &at, &run);
    a_push_keeps_what_an_object_has_beside_its_bytes(dir.path(), &at, &run);
    a_push_whose_last_answer_is_lost_is_done(dir.path(), port);
    let output = iopath_in(dir.path(), "ls s3://images:/");
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(error.contains("s3://BUCKET/KEY"), "{error}");
}

/// The command with a store at `at`.
fn on_s3(at: &str, words: &[&str], key: &str) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_iopath"));
    command.args(words).env("AWS_ENDPOINT_URL", at).env("AWS_REGION", "us-east-1");
    command.env("AWS_ACCESS_KEY_ID", key).env("AWS_SECRET_ACCESS_KEY", "secret");
    command.env("AWS_ALLOW_HTTP", "true").env_remove("AWS_PROFILE").output().unwrap()
}

/// A push made a public image private, and lost its metadata and tags.
fn a_push_keeps_what_an_object_has_beside_its_bytes(
    dir: &Path,
    at: &str,
    run: &dyn Fn(&[&str], &str) -> Output,
) {
    let script = |text: &str| run_ok("sh", &[&"-ec", &format!("cd {}; {text}", dir.display())]);
    let headers = "-H 'x-amz-acl: public-read' -H 'x-amz-meta-build: 7' \
                   -H 'content-type: application/x-disk' -H 'x-amz-tagging: of=a%20b'";
    script(&format!("curl -sf {headers} -T large.img {at}/images/kept.img"));
    let (overlay, object) = (dir.join("kept.qcow2").display().to_string(), "s3://images/kept.img");
    let shown = || {
        let head = format!("curl -sf -I {at}/images/kept.img | tr -d '\\r' | sort");
        let (acl, tags) = ("curl -sf {}?acl", "curl -sf {}?tagging");
        let of = |text: &str| script(&text.replace("{}", &format!("{at}/images/kept.img")));
        (script(&format!("{head} | grep -iE '^(x-amz-meta|content-type)'")), of(acl), of(tags))
    };
    let push = |words: &[&str]| {
        let made = ["--overlay", &overlay, "mkdir", "-p", "s3://images/kept.img:/more"];
        let output = run(&made, "key");
        assert!(output.status.success(), "{output:?}");
        let output = run(&[&["--overlay", &overlay, "push", object], words].concat(), "key");
        assert!(output.status.success(), "{output:?}");
    };
    let before = shown();
    assert!(before.0.contains("x-amz-meta-build: 7"), "{before:?}");
    assert!(before.1.contains("AllUsers") && before.2.contains("a b"), "{before:?}");
    push(&[]);
    let listed = run(&["ls", "s3://images/kept.img:/"], "key").stdout;
    assert!(String::from_utf8_lossy(&listed).contains("more"));
    assert_eq!(shown(), before);
    script(&format!("curl -sf {headers} -T large.img {at}/images/kept.img"));
    push(&["--new-properties"]);
    let head = script(&format!("curl -sf -I {at}/images/kept.img"));
    assert!(!head.contains("x-amz-meta-build"), "{head}");
}

/// The store makes the upload the object, and the connection ends before it says so: the next try
/// met an unknown upload, and the command said that the object is another one.
fn a_push_whose_last_answer_is_lost_is_done(dir: &Path, store: u16) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let at = format!("http://{}", listener.local_addr().unwrap());
    let lost = Arc::new(AtomicU64::new(0));
    let count = lost.clone();
    std::thread::spawn(move || {
        for client in listener.incoming().flatten() {
            let count = count.clone();
            std::thread::spawn(move || forward_but_the_last(client, store, &count));
        }
    });
    let overlay = dir.join("lost.qcow2").display().to_string();
    let with = |words: &[&str]| on_s3(&at, &[&["--overlay", &overlay], words].concat(), "key");
    let output = with(&["mkdir", "s3://images/o.img:/lost"]);
    assert!(output.status.success(), "{output:?}");
    let output = with(&["push", "s3://images/o.img"]);
    assert_eq!(lost.load(Ordering::Relaxed), 2, "it asked once more");
    assert!(output.status.success(), "{output:?}");
    let output = on_s3(&at, &["ls", "s3://images/o.img:/"], "key");
    assert!(String::from_utf8_lossy(&output.stdout).contains("lost"), "{output:?}");
}

/// Hands one request on to the store and its answer back; that of the first request that makes an
/// upload the object is dropped.
fn forward_but_the_last(mut client: TcpStream, store: u16, lost: &AtomicU64) {
    let (mut head, mut byte) = (Vec::new(), [0]);
    while !head.ends_with(b"\r\n\r\n") && client.read_exact(&mut byte).is_ok() {
        head.push(byte[0]);
    }
    let text = String::from_utf8_lossy(&head).to_lowercase();
    let length = text.split("content-length: ").nth(1).and_then(|rest| rest.lines().next());
    let mut body = vec![0; length.map_or(0, |text| text.trim().parse().unwrap())];
    client.read_exact(&mut body).unwrap();
    let mut server = TcpStream::connect(("127.0.0.1", store)).unwrap();
    let (first, rest) = head.split_at(head.len() - 2);
    let all = [first, b"Connection: close\r\n", rest, &body].concat();
    server.write_all(&all).unwrap();
    let mut answer = Vec::new();
    server.read_to_end(&mut answer).unwrap();
    let makes = text.starts_with("post ") && text.contains("?uploadid=");
    if !makes || lost.fetch_add(1, Ordering::Relaxed) > 0 {
        let _gone = client.write_all(&answer);
    }
}

/// Writes go to the overlay; `push` sends the parts that differ. Nothing is replaced that is
/// another version by then.
fn an_overlay_becomes_the_object(dir: &Path, at: &str, run: &dyn Fn(&[&str], &str) -> Output) {
    let said = |output: &Output| String::from_utf8_lossy(&output.stderr).into_owned();
    let path = |name: &str| dir.join(name).display().to_string();
    let script = |text: &str| run_ok("sh", &[&"-ec", &format!("cd {}; {text}", dir.display())]);
    ok_in(dir, "mkfs -q -t ext4 --size 64M -d tree large.img");
    script(&format!("curl -sf -T large.img {at}/images/o.img"));
    let (overlay, object) = (path("work.qcow2"), "s3://images/o.img");
    let place = format!("{object}:/new");
    let with = |words: &[&str]| run(&[&["--overlay", overlay.as_str()], words].concat(), "key");
    let output = run(&["cp", &path("tree/hostname"), &place], "key");
    assert!(said(&output).contains("--overlay FILE"), "{}", said(&output));
    let output = with(&["push", object]);
    assert!(said(&output).contains("there is no overlay"), "{}", said(&output));
    let output = with(&["cp", "-q", &path("tree/hostname"), &place]);
    assert!(output.status.success(), "{}", said(&output));
    let alone =
        r#"json:{"driver":"qcow2","backing":null,"file":{"driver":"file","filename":"FILE"}}"#;
    run_ok("qemu-img", &[&"check", &"-q", &alone.replace("FILE", &overlay)]);
    assert_eq!(with(&["cat", &place]).stdout, b"box\n");
    assert!(said(&run(&["cat", &place], "key")).contains("ENOENT"));
    let output = with(&["--json", "push", object]);
    assert!(output.status.success(), "{}", said(&output));
    let done: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let (sent, copied) = (done["sent"].as_u64().unwrap(), done["copied"].as_u64().unwrap());
    assert!(sent > 0 && copied > 0 && sent + copied == 64 << 20, "{done}");
    assert!(!dir.join("work.qcow2").exists());
    assert_eq!(run(&["cat", &place], "key").stdout, b"box\n");
    script(&format!("curl -sf -o back.img {at}/images/o.img; e2fsck -fn back.img"));
    // Somebody else replaces the object in between.
    let output = with(&["rm", &place]);
    assert!(output.status.success(), "{}", said(&output));
    script(&format!("curl -sf -H 'x-amz-acl: public-read' -T large.img {at}/images/o.img"));
    for words in [&["push", object][..], &["ls", object]] {
        let output = with(words);
        assert!(said(&output).contains("has the ETag"), "{}", said(&output));
        assert!(!output.status.success());
    }
    script(&format!("curl -sf {at}/images/o.img | cmp - large.img"));
    let output = with(&["ls", "s3://images/public.img"]);
    assert!(said(&output).contains("it is no overlay of s3://images/public.img"));
}

/// A recording goes to the server, its states are explored from there, and the results are objects
/// that another run goes on with, and that are merged.
fn crash_logs_are_objects(run: &dyn Fn(&[&str], &str) -> Output) {
    let log = "s3://images/run.log";
    let said = |output: &Output| String::from_utf8_lossy(&output.stderr).into_owned();
    let output = run(&["crash", "record", log, "--", "sh", "-c", "echo a > b; sync b ."], "key");
    assert!(output.status.success(), "{}", said(&output));
    for (shard, results, first) in
        [("1/2", "s3://images/1.jsonl", 75), ("2/2", "s3://images/2.jsonl", 0)]
    {
        let part =
            ["crash", "explore", log, "--oracle", "ext4", "--shard", shard, "--results", results];
        let most = if first == 75 { "2" } else { "1000000" };
        let output = run(&[&part[..], &["--max-states", most]].concat(), "key");
        assert_eq!(output.status.code(), Some(first), "{}", said(&output));
        let output = run(&part, "key");
        assert_eq!(output.status.code(), Some(0), "{}", said(&output));
    }
    let output = run(&["crash", "merge", "s3://images/1.jsonl", "s3://images/2.jsonl"], "key");
    assert_eq!(output.status.code(), Some(0), "{}", said(&output));
    let merged: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(merged["outcome"]["judged"], merged["outcome"]["distinct"], "{merged}");
    let output = run(&["crash", "record", "s3://images/1.jsonl", "--", "true"], "key");
    assert_eq!(output.status.code(), Some(125), "results are no log: {}", said(&output));
    assert!(said(&output).contains("it exists and is something else"), "{}", said(&output));
    let output = run(&["crash", "record", log, "--", "true"], "key");
    assert!(output.status.success(), "over an older log: {}", said(&output));
    let output = run(&["crash", "explore", "s3://images/none.log"], "key");
    assert_eq!(output.status.code(), Some(2));
    assert!(said(&output).contains("there is no such object"), "{}", said(&output));
    let output = run(&["crash", "record", "http://127.0.0.1:1/a.log", "--", "true"], "key");
    assert!(said(&output).contains("web servers are read, not written"), "{}", said(&output));
}
