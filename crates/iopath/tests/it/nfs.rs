//! The command on exports of NFS servers, and as a server: trees copied both ways, handles over a
//! restart, the rules of an export, and what is said of targets that cannot be.

#![allow(clippy::disallowed_methods, reason = "servers are processes of the host, in real time")]

use std::ffi::OsStr;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use base::{Errno, Ino};
use nfs::proto::Handle;
use nfs::wire::TcpWire;
use nfs::{HandleKey, NfsClient, NfsOptions};
use rt::{Cx, Runtime};
use testkit::{judge, manifest};
use vfs::{Namespace, OpenFlags};

fn iopath(args: &[&dyn AsRef<OsStr>]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_iopath"));
    command.args(args.iter().map(|arg| arg.as_ref())).stdin(Stdio::null());
    command
}

#[track_caller]
fn run(args: &[&dyn AsRef<OsStr>]) -> Output {
    iopath(args).output().expect("the command starts")
}

#[track_caller]
fn ok(args: &[&dyn AsRef<OsStr>]) -> String {
    let output = run(args);
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{:?}: {}: {error}", iopath(args), output.status);
    String::from_utf8(output.stdout).expect("the output is text")
}

/// The command must fail, and say one thing.
#[track_caller]
fn complaint(args: &[&dyn AsRef<OsStr>]) -> String {
    let output = run(args);
    let error = String::from_utf8(output.stderr).expect("text");
    assert!(output.status.code().is_some_and(|code| code > 0), "{:?}: {error}", iopath(args));
    assert_eq!(error.lines().count(), 1, "{:?}: {error}", iopath(args));
    assert!(!error.contains("panicked"), "{error}");
    error
}

/// A server that ends with the test.
struct Server {
    child: Child,
    port: u16,
}

impl Server {
    fn start(image: &Path, key: &Path, options: &[&str]) -> Server {
        let any = "127.0.0.1:0";
        let mut command = iopath(&[&"serve", &"nfs", &"--listen", &any, &"--handle-key", &key]);
        command.args(options).arg(image).stdout(Stdio::piped());
        let mut child = command.spawn().expect("the server starts");
        let mut line = String::new();
        let out = child.stdout.take().expect("a pipe");
        BufReader::new(out).read_line(&mut line).expect("it tells where it serves");
        let port = line.trim().rsplit('=').next().and_then(|port| port.parse().ok());
        Server { child, port: port.unwrap_or_else(|| panic!("no port in `{line}`")) }
    }

    /// A place of the export as a target.
    fn at(&self, path: &str) -> String {
        format!("nfs://127.0.0.1:{0}/export?mountport={0}:{path}", self.port)
    }

    /// Ends it with SIGTERM, and waits.
    #[track_caller]
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

struct Lab {
    dir: tempfile::TempDir,
    image: PathBuf,
    key: PathBuf,
}

impl Lab {
    fn new() -> Lab {
        Lab::on("ext4")
    }

    /// An image with a file system of this kind, made by its own tool.
    fn on(kind: &str) -> Lab {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let image = dir.path().join("disk.img");
        match kind {
            "xfs" => {
                fs::File::create(&image).unwrap().set_len(320 << 20).expect("made");
                judge::run_ok("mkfs.xfs", &[&"-q", &image]);
            }
            kind => judge::mke2fs(&image, 64 << 20, &["-t", kind]),
        }
        Lab { image, key: dir.path().join("key"), dir }
    }

    /// The judge of what is on the image.
    #[track_caller]
    fn check(&self) {
        let info: serde_json::Value =
            serde_json::from_str(&ok(&[&"--json", &"info", &self.image])).expect("JSON");
        match info.to_string().contains("xfs") {
            true => judge::xfs_repair(&self.image).unwrap(),
            false => judge::e2fsck(&self.image).unwrap(),
        }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn serve(&self, options: &[&str]) -> Server {
        Server::start(&self.image, &self.key, options)
    }

    /// A tree of a few hundred files with everything that version 3 can carry.
    fn tree(&self) -> PathBuf {
        let root = self.path("tree");
        for number in 0..240 {
            let dir = root.join(format!("directory {}", number % 12));
            fs::create_dir_all(&dir).expect("made");
            let content: Vec<u8> = (0..number * 97).map(|n| (n * number) as u8).collect();
            let file = dir.join(format!("file {number}"));
            fs::write(&file, content).expect("written");
            let mode = 0o600 | (number as u32 % 0o100);
            fs::set_permissions(&file, fs::Permissions::from_mode(mode)).expect("set");
        }
        // Above several WRITEs, and no whole number of pages.
        let large: Vec<u8> = (0..5_000_001u32).map(|n| (n.wrapping_mul(n) >> 7) as u8).collect();
        fs::write(root.join("large"), large).expect("written");
        fs::write(root.join("empty"), "").expect("written");
        symlink("directory 1/file 1", root.join("symlink")).expect("made");
        symlink("nowhere at all", root.join("dangling")).expect("made");
        fs::hard_link(root.join("large"), root.join("hard link")).expect("made");
        judge::run_ok("mkfifo", &[&root.join("fifo")]);
        let old = fs::File::open(root.join("large")).expect("opened");
        let then = std::time::UNIX_EPOCH + std::time::Duration::new(1_000_000_001, 123_456_000);
        old.set_modified(then).expect("set");
        judge::run_ok("chown", &[&"5:6", &root.join("empty")]);
        root
    }
}

#[test]
fn trees_are_copied_both_ways_through_our_server() {
    for kind in ["ext4", "xfs"] {
        copy_trees(&Lab::on(kind));
    }
}

fn copy_trees(lab: &Lab) {
    let (tree, back) = (lab.tree(), lab.path("back"));
    let server = lab.serve(&["--write", "--squash", "none"]);
    ok(&[&"cp", &"-a", &tree, &server.at("/")]);
    ok(&[&"cp", &"-a", &server.at("/tree"), &back]);
    let manifest = |dir: &Path| manifest::of_dir(dir).unwrap();
    assert_eq!(manifest::diff(&manifest(&tree), &manifest(&back)), "");
    let large = fs::metadata(back.join("large")).unwrap();
    assert_eq!((large.mtime(), large.nlink()), (1_000_000_001, 2));
    let listed = ok(&[&"ls", &server.at("/tree/directory 3")]);
    assert_eq!(listed.lines().count(), 20, "{listed}");
    let printed = run(&[&"cat", &server.at("/tree/large")]);
    assert!(printed.status.success() && printed.stdout == fs::read(tree.join("large")).unwrap());
    // One change by each command that makes one.
    ok(&[&"mkdir", &server.at("/new")]);
    ok(&[&"mv", &server.at("/tree/empty"), &":/new/moved"]);
    ok(&[&"ln", &"-s", &"moved", &server.at("/new/link")]);
    ok(&[&"rm", &"-r", &server.at("/tree/directory 5")]);
    assert_eq!(ok(&[&"ls", &server.at("/new")]), "link\nmoved\n");
    let df = ok(&[&"df", &server.at("")]);
    assert!(df.contains("nfs://"), "{df}");
    server.end();
    lab.check();
    let direct = format!("{}:/new", lab.image.display());
    assert_eq!(ok(&[&"ls", &direct]), "link\nmoved\n");
}

/// What a client's fsync has told is on the image, though the server is killed at once.
#[test]
fn what_is_committed_outlives_the_server() {
    for kind in ["ext4", "xfs"] {
        let lab = Lab::on(kind);
        let mut server = lab.serve(&["--write", "--squash", "none"]);
        let url: nfs::Url = server.at("").trim_end_matches(':').parse().expect("an address");
        let content: Vec<u8> = (0..3_000_001u32).map(|n| (n.wrapping_mul(n) >> 5) as u8).collect();
        Runtime::real(2).enter("test", |cx| {
            let mut options = NfsOptions::default();
            // Nobody answers in the end.
            options.rpc.attempts = Some(1);
            let client = NfsClient::mount_url(cx, &url, options).expect("mounted");
            let names = Namespace::new(client.clone());
            let flags = OpenFlags::WRITE | OpenFlags::CREATE;
            let file = names.open(cx, b"/committed", flags, 0o644).unwrap();
            file.write(cx, &content).unwrap();
            file.fsync(cx).unwrap();
            assert!(client.stats().calls[nfs::proto::Proc::Commit as usize] > 0);
            file.write_at(cx, 0, b"never sent").unwrap();
            server.child.kill().expect("killed");
            server.child.wait().expect("it ends");
            vfs::FileSystem::shutdown_hard(&*client);
        });
        let server = lab.serve(&[]);
        let printed = run(&[&"cat", &server.at("/committed")]);
        assert!(printed.status.success() && printed.stdout == content, "{kind}");
        server.end();
        // With the log replayed, which a read-only server does in memory alone.
        ok(&[&"touch", &format!("{}:/committed", lab.image.display())]);
        lab.check();
    }
}

/// Every command works on an export, or says in one sentence what it cannot do there.
#[test]
fn every_command_knows_exports() {
    let lab = Lab::new();
    let server = lab.serve(&["--write", "--squash", "none"]);
    let at = |path: &str| server.at(path);
    let root = server.at("").trim_end_matches(':').to_owned();
    fs::write(lab.path("file"), "content").unwrap();
    let (file, tar) = (lab.path("file"), lab.path("tree.tar"));
    ok(&[&"mkdir", &"-p", &at("/a/b")]);
    ok(&[&"cp", &file, &at("/a/file")]);
    assert_eq!(ok(&[&"cat", &at("/a/file")]), "content");
    ok(&[&"ln", &at("/a/file"), &":/a/hard"]);
    ok(&[&"ln", &"-s", &"file", &at("/a/soft")]);
    ok(&[&"chmod", &"640", &at("/a/file")]);
    ok(&[&"chown", &"5:6", &at("/a/file")]);
    ok(&[&"touch", &"-d", &"981173106", &at("/a/file")]);
    ok(&[&"truncate", &"-s", &"4", &at("/a/file")]);
    let stat: serde_json::Value =
        serde_json::from_str(&ok(&[&"--json", &"stat", &at("/a/file")])).expect("JSON");
    let told = ["uid", "gid", "size", "nlink"].map(|name| stat[name].as_u64());
    assert_eq!(told, [Some(5), Some(6), Some(4), Some(2)], "{stat}");
    ok(&[&"mv", &at("/a/hard"), &":/a/b/moved"]);
    assert_eq!(ok(&[&"ls", &at("/a")]), "b\nfile\nsoft\n");
    let tree = ok(&[&"tree", &at("/a")]);
    assert!(tree.contains("moved") && tree.contains("soft"), "{tree}");
    let told = ok(&[&"manifest", &at("/a")]);
    assert!(told.contains("b/moved"), "{told}");
    assert!(ok(&[&"info", &root]).contains("NFS version 3"));
    assert!(ok(&[&"df", &root]).contains("nfs://"));
    // From one export to another place of it, into an archive and back, and to an image.
    ok(&[&"cp", &"-a", &at("/a"), &at("/copy")]);
    ok(&[&"cp", &"-a", &at("/a"), &format!("{}:", tar.display())]);
    ok(&[&"cp", &"-a", &format!("{}:", tar.display()), &at("/unpacked")]);
    let image = lab.path("other.img");
    judge::mke2fs(&image, 16 << 20, &["-t", "ext4"]);
    ok(&[&"cp", &"-a", &at("/a"), &format!("{}:/", image.display())]);
    ok(&[&"cp", &"-a", &format!("{}:/a", image.display()), &at("/from image")]);
    assert_eq!(ok(&[&"cat", &at("/from image/b/moved")]), "cont");
    ok(&[&"rm", &"-r", &at("/copy")]);
    assert_eq!(ok(&[&"xattr", &"list", &at("/a/file")]), "");
    let sysbench = ok(&[
        &"bench",
        &"--target",
        &at("/a/b"),
        &"sysbench",
        &"fileio",
        &"--file-num=2",
        &"--file-total-size=64K",
        &"prepare",
    ]);
    assert!(sysbench.contains("65536 bytes written"), "{sysbench}");
    for (words, word) in [
        (&["xattr", "set", &at("/a/file"), "user.a", "b"][..], "not supported"),
        (&["check", &root], "NFS"),
        (&["mkfs", &root], "NFS"),
        (&["replay", &root], "NFS"),
        (&["quota", "report", &root], "NFS"),
        (&["serve", "nbd", "--listen", "127.0.0.1:0", &root], "NFS"),
    ] {
        let words: Vec<&dyn AsRef<OsStr>> = words.iter().map(|w| w as &dyn AsRef<OsStr>).collect();
        let error = complaint(&words);
        assert!(error.contains(word), "{error}");
    }
    assert!(!Path::new("nfs:").exists(), "nothing is made on the host");
    server.end();
    judge::e2fsck(&lab.image).unwrap();
}

/// libnfs's tools copy the tree file by file, and ours finds the same behind the server.
#[test]
fn libnfs_copies_a_tree_both_ways_through_our_server() {
    let lab = Lab::new();
    let (tree, back) = (lab.path("tree"), lab.path("back"));
    let server = lab.serve(&["--write", "--squash", "none"]);
    let url =
        |path: &str| format!("nfs://127.0.0.1/export{path}?nfsport={0}&mountport={0}", server.port);
    fs::create_dir_all(&back).unwrap();
    fs::create_dir_all(&tree).unwrap();
    ok(&[&"mkdir", &server.at("/tree")]);
    for number in 0..24usize {
        let name = format!("file{number}");
        let content: Vec<u8> = (0..number * number * 977).map(|n| (n * number) as u8).collect();
        fs::write(tree.join(&name), content).unwrap();
        judge::run_ok("nfs-cp", &[&tree.join(&name), &url(&format!("/tree/{name}"))]);
        judge::run_ok("nfs-cp", &[&url(&format!("/tree/{name}")), &back.join(&name)]);
    }
    judge::run_ok("diff", &[&"-r", &tree, &back]);
    let listed = judge::run_ok("nfs-ls", &[&url("/tree")]);
    assert_eq!(listed.lines().filter(|line| line.contains(" file")).count(), 24, "{listed}");
    let ours = lab.path("ours");
    ok(&[&"cp", &"-r", &server.at("/tree"), &ours]);
    judge::run_ok("diff", &[&"-r", &tree, &ours]);
    server.end();
    judge::e2fsck(&lab.image).unwrap();
}

/// A client that goes on with the handles that it had before.
fn with_handle<T>(
    port: u16,
    root: Handle,
    work: impl FnOnce(&mut Cx, Result<&Namespace, Errno>) -> T,
) -> T {
    Runtime::real(2).enter("test", |cx| {
        let mut options = NfsOptions::default();
        options.rpc.attempts = Some(4);
        let wire = TcpWire::new(([127, 0, 0, 1], port).into());
        match NfsClient::mount(cx, wire, root, options) {
            Ok(client) => {
                let result = work(cx, Ok(&Namespace::new(client.clone())));
                vfs::FileSystem::unmount(&*client, cx).expect("unmounted");
                result
            }
            Err(errno) => work(cx, Err(errno)),
        }
    })
}

#[test]
fn handles_survive_a_restart_with_their_key_and_nobody_makes_them_up() {
    let lab = Lab::new();
    let server = lab.serve(&["--write", "--squash", "none"]);
    let mode = fs::metadata(&lab.key).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600, "the key is its owner's alone");
    let secret: [u8; 32] = fs::read(&lab.key).unwrap().try_into().expect("32 bytes");
    // The root of ext4 is inode 2 of generation 0; whoever has the key has the handle.
    let root = HandleKey::new(secret).make(Ino(2), 0);
    with_handle(server.port, root, |cx, names| {
        let flags = OpenFlags::WRITE | OpenFlags::CREATE;
        let file = names.unwrap().open(cx, b"/kept", flags, 0o644).unwrap();
        file.write(cx, b"before the restart").unwrap();
        file.close(cx).unwrap();
    });
    server.end();
    let server = lab.serve(&["--write", "--squash", "none"]);
    with_handle(server.port, root, |cx, names| {
        let names = names.unwrap();
        let file = names.open(cx, b"/kept", OpenFlags::READ | OpenFlags::WRITE, 0).unwrap();
        let mut got = [0; 18];
        assert_eq!(file.read(cx, &mut got), Ok(18));
        assert_eq!(&got, b"before the restart");
        file.write_at(cx, 0, b"behind").unwrap();
        file.close(cx).unwrap();
    });
    assert_eq!(ok(&[&"cat", &server.at("/kept")]), "behind the restart");
    // Another key, another inode, one bit.
    let mut forged = vec![HandleKey::new([7; 32]).make(Ino(2), 0)];
    forged.extend((0..256).step_by(37).map(|bit| {
        let mut bytes = root.bytes().to_vec();
        bytes[bit / 8] ^= 1 << (bit % 8);
        Handle::new(&bytes).expect("no longer than it was")
    }));
    for handle in forged {
        let refused = with_handle(server.port, handle, |_, names| names.err());
        assert!(matches!(refused, Some(Errno::ESTALE | Errno::EBADF)), "{refused:?}");
    }
    server.end();
    let other = lab.path("other key");
    let server = Server::start(&lab.image, &other, &[]);
    let refused = with_handle(server.port, root, |_, names| names.err());
    assert!(matches!(refused, Some(Errno::ESTALE | Errno::EBADF)), "{refused:?}");
    server.end();
    fs::File::create(&other).unwrap().write_all(b"too short").unwrap();
    let error = complaint(&[&"serve", &"nfs", &"--handle-key", &other, &lab.image]);
    assert!(error.contains("9 bytes instead of 32"), "{error}");
}

#[test]
fn an_export_is_read_only_and_for_this_machine_unless_asked() {
    let lab = Lab::new();
    fs::write(lab.path("file"), "content").unwrap();
    ok(&[&"cp", &lab.path("file"), &format!("{}:/file", lab.image.display())]);
    let before = fs::read(&lab.image).unwrap();
    let server = lab.serve(&[]);
    assert_eq!(ok(&[&"cat", &server.at("/file")]), "content");
    let new = server.at("/new");
    let (file, old) = (lab.path("file"), server.at("/file"));
    for change in [
        &[&"cp" as &dyn AsRef<OsStr>, &file, &new][..],
        &[&"rm", &old],
        &[&"mkdir", &new],
        &[&"mv", &old, &":/other"],
    ] {
        let error = complaint(change);
        assert!(error.contains("Read-only file system"), "{error}");
    }
    server.end();
    assert!(fs::read(&lab.image).unwrap() == before, "nothing in the image has changed");

    let server = lab.serve(&["--allow", "10.0.0.0/8", "--allow", "192.0.2.7"]);
    let error = complaint(&[&"ls", &server.at("/")]);
    assert!(error.contains("127.0.0.1"), "{error}");
    server.end();
}

#[test]
fn ids_are_squashed_as_asked() {
    let lab = Lab::new();
    let file = lab.path("file");
    fs::write(&file, "content").unwrap();
    let owner = |server: &Server, path: &str| {
        let stat = ok(&[&"--json", &"stat", &server.at(path)]);
        let stat: serde_json::Value = serde_json::from_str(&stat).expect("JSON");
        (stat["uid"].as_u64(), stat["gid"].as_u64())
    };
    let server = lab.serve(&["--write", "--squash", "none"]);
    ok(&[&"mkdir", &server.at("/open")]);
    ok(&[&"mkdir", &server.at("/closed")]);
    ok(&[&"chmod", &"777", &server.at("/open")]);
    ok(&[&"chmod", &"700", &server.at("/closed")]);
    server.end();
    let squashes: [(&[&str], u64); 2] =
        [(&[], 65534), (&["--squash", "all", "--anon", "1234:1234"], 1234)];
    for (options, anon) in squashes {
        let server = lab.serve(&[&["--write"], options].concat());
        let path = format!("/open/by {anon}");
        ok(&[&"cp", &file, &server.at(&path)]);
        assert_eq!(owner(&server, &path), (Some(anon), Some(anon)));
        let error = complaint(&[&"cp", &file, &server.at("/closed/file")]);
        assert!(error.contains("Permission denied"), "{error}");
        server.end();
    }
    judge::e2fsck(&lab.image).unwrap();
}

#[test]
fn targets_that_cannot_be_get_one_clear_error() {
    let lab = Lab::new();
    let server = lab.serve(&[]);
    let port = server.port;
    let nowhere = format!("nfs://127.0.0.1:{port}/other?mountport={port}");
    for (target, word) in [
        (nowhere.clone(), "/other"),
        // Nobody listens at port 1.
        ("nfs://127.0.0.1:1/export?mountport=1".to_owned(), "Connection refused"),
        ("nfs:///export".to_owned(), "names no host"),
        ("nfs://".to_owned(), "names no server"),
        ("nfs://127.0.0.1:70000/export".to_owned(), "70000"),
        ("nfs://127.0.0.1/export?version=4".to_owned(), "only NFS version 3"),
        (format!("nfs://127.0.0.1:{port}/export?mountport={port}&mode=fast"), "mode=fast"),
        (format!("nfs://127.0.0.1:{port}/export?mountport={port}&folio=5000"), "folio"),
        (format!("nfs://127.0.0.1:{port}/export?mountport={port}&colour=red"), "colour"),
    ] {
        let error = complaint(&[&"ls", &target]);
        assert!(error.contains(word), "{target}: {error}");
    }
    let error = complaint(&[&"ls", &server.at("/missing")]);
    assert!(error.contains("/missing") && error.contains("No such file"), "{error}");
    for (options, word) in [
        (["--listen", "127.0.0.1"], "127.0.0.1"),
        (["--allow", "10.0.0.0/40"], "10.0.0.0/40"),
        (["--export", "relative"], "relative"),
        (["--anon", "nobody"], "nobody"),
    ] {
        let output = run(&[&"serve", &"nfs", &options[0], &options[1], &lab.image]);
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success() && error.contains(word), "{options:?}: {error}");
    }
    let taken = format!("127.0.0.1:{port}");
    let args: [&dyn AsRef<OsStr>; 7] =
        [&"serve", &"nfs", &"--handle-key", &lab.key, &"--listen", &taken, &lab.image];
    let error = complaint(&args);
    assert!(error.contains(&taken), "{error}");
    server.end();
}
