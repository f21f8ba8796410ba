//! `iopath crash` below file systems of others: the kernel's on a loop device over a recorded file,
//! recovered by ours and by the kernel, and what clients of an NBD export write. Needs root, FUSE,
//! loop devices and the tools that `cargo xtask judges` installs.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};

use device::Event;
use serde_json::Value;

const IOPATH: &str = env!("CARGO_BIN_EXE_iopath");

/// Saves a file twice by a rename; `$1` syncs the new file or does not.
const SAVE: &str = r#"
for i in 1 2; do
  head -c 6000 /dev/zero | tr '\0' "$i" > new
  $1 new
  mv new file
  sync .
  "$IOPATH" crash mark "saved $i"
done
"#;

const CHECK: &str = r#"
n=$(grep -c "^saved" "$IOPATH_CRASH_MARKS")
test "$n" -eq 0 && exit 0
size=$(stat -c %s file) || exit 1
test "$size" -eq 6000 || { echo "file of $size bytes"; exit 1; }
got=$(head -c 1 file)
test "${got:-0}" -ge "$n" || { echo "saved $n, found '$got'"; exit 1; }
"#;

fn iopath(args: &[&str]) -> Output {
    Command::new(IOPATH).args(args).env("IOPATH", IOPATH).output().expect("the command starts")
}

fn shown(output: &Output) -> String {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    format!("{}: {}{}", output.status, text(&output.stdout), text(&output.stderr))
}

fn record(dir: &Path, fs: &str, sync: &str) -> String {
    let log = dir.join(format!("{fs}-{sync}.log")).display().to_string();
    let how = ["crash", "record", &log, "--kernel", "--fs", fs, "--"];
    let output = iopath(&[&how[..], &["sh", "-c", SAVE, "sh", sync]].concat());
    assert!(output.status.success(), "{}", shown(&output));
    log
}

fn explore(log: &str, how: &[&str]) -> Value {
    let few = ["--all-subsets", "2", "--samples", "2", "--singles", "6"];
    let check = ["--", "sh", "-c", CHECK];
    let explore = ["--json", "crash", "explore", log];
    let output = iopath(&[&explore[..], &few, how, &check].concat());
    let document = serde_json::from_slice(&output.stdout);
    let document: Value = document.unwrap_or_else(|error| panic!("{error}: {}", shown(&output)));
    println!("{log} {how:?}: {} states, {} wrong", document["judged"], document["wrong"]);
    document
}

/// What the kernel had mounted for an exploration that was killed stayed mounted, and its disk took
/// memory, for ever.
#[test]
fn what_a_killed_exploration_had_mounted_is_removed_by_the_next() {
    let dir = tempfile::tempdir().unwrap();
    let log = record(dir.path(), "ext4", "sync");
    let place = dir.path().join("place");
    std::fs::create_dir(&place).unwrap();
    let explore = |check: &str| {
        let mut command = Command::new(IOPATH);
        command.args(["crash", "explore", &log, "--recover", "kernel", "--max-states", "1"]);
        command.args(["--", "sh", "-c", check]).env("TMPDIR", &place);
        command
    };
    let names = || -> Vec<String> {
        let entries = std::fs::read_dir(&place).unwrap();
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
    };
    let on = dir.path().join("on");
    let check = format!("echo on > '{}'; exec sleep 1000", on.display());
    let mut child = explore(&check).spawn().unwrap();
    while !on.exists() {
        std::thread::yield_now();
    }
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(names().iter().any(|name| name.ends_with(".mount")), "{:?}", names());
    let output = explore("exit 0").output().unwrap();
    assert_eq!(output.status.code(), Some(75), "{}", shown(&output));
    assert!(names().is_empty(), "{:?}", names());
}

/// A child of a recording that was killed while it entered the mount waited for ever: it held the
/// connection to FUSE itself. strace makes it enter late.
#[test]
fn a_child_that_enters_the_mount_ends_with_the_recording() {
    let dir = tempfile::tempdir().unwrap();
    let late = ["-f", "-o", "/dev/null", "-e", "trace=chdir", "-e"];
    let mut recording = Command::new("strace");
    recording.args(late).arg("inject=chdir:delay_enter=1000000").arg(IOPATH);
    recording.args(["crash", "record", "run.log", "--", "sleep", "1000"]).current_dir(dir.path());
    let mut recording = recording.stderr(Stdio::piped()).spawn().expect("strace starts");
    let log = dir.path().join("run.log");
    let ours = loop {
        let there = processes_in(dir.path());
        let child = |above: u32| there.iter().copied().find(|pid| parent(*pid) == Some(above));
        match child(recording.id()).filter(|ours| child(*ours).is_some()) {
            Some(ours) => break ours,
            None => assert!(recording.try_wait().unwrap().is_none(), "the recording ended"),
        }
    };
    let pid = rustix::process::Pid::from_raw(ours as i32).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
    // strace ends when all that it follows have ended.
    let ended = recording.wait_with_output().unwrap();
    assert!(processes_in(dir.path()).is_empty(), "{}", shown(&ended));
    let next = iopath(&["crash", "explore", &log.display().to_string(), "--max-states", "1"]);
    println!("{}", shown(&next));
    let left = std::fs::read_to_string("/proc/mounts").unwrap();
    assert!(!left.contains(&format!("iopath-crash-{ours}-")), "{left}");
}

/// The parent of a process that is there.
fn parent(pid: u32) -> Option<u32> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    status.lines().find_map(|line| line.strip_prefix("PPid:"))?.trim().parse().ok()
}

/// Processes whose working directory is `dir`.
fn processes_in(dir: &Path) -> Vec<u32> {
    let all = std::fs::read_dir("/proc").unwrap().flatten();
    let numbers = all.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    numbers
        .filter(|pid: &u32| {
            std::fs::read_link(format!("/proc/{pid}/cwd")).is_ok_and(|cwd| cwd == dir)
        })
        .collect()
}

/// A recording below the kernel's file system never ended where somebody still used it when the
/// command ended: what the command left running, or another.
#[test]
fn a_recording_ends_with_its_command() {
    let dir = tempfile::tempdir().unwrap();
    let log = dir.path().join("run.log").display().to_string();
    let place = dir.path().join("place");
    std::fs::create_dir(&place).unwrap();
    let record = |program: &str| {
        let mut command = Command::new(IOPATH);
        command.args(["crash", "record", &log, "--kernel", "--", "sh", "-c", program]);
        command.env("TMPDIR", &place).stderr(Stdio::piped());
        command
    };
    let output = record("echo a > a; sync a; setsid sleep 1000 & exit 3").output().unwrap();
    assert_eq!(output.status.code(), Some(3), "{}", shown(&output));
    let empty = || std::fs::read_dir(&place).unwrap().count() == 0;
    assert!(empty());
    // Somebody who is not of the command.
    let here = dir.path().join("here").display().to_string();
    let program = format!(
        "echo a > a; sync a; pwd > '{here}.new'; mv '{here}.new' '{here}'; exec sleep 1000"
    );
    let child = record(&program).spawn().unwrap();
    while !Path::new(&here).exists() {
        std::thread::yield_now();
    }
    let mounted = std::fs::read_to_string(&here).unwrap();
    let held = std::fs::File::open(mounted.trim()).unwrap();
    testkit::judge::run_ok("kill", &[&"-TERM", &child.id().to_string()]);
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(143), "{}", shown(&output));
    assert!(shown(&output).contains("the log ends before the unmount"), "{}", shown(&output));
    drop(held);
    assert!(empty());
    assert!(crash::Log::open(Path::new(&log)).unwrap().len() > 4);
}

/// A daemon whose environment is another one, or a mount, that a check leaves in the tree that the
/// kernel has mounted ended the exploration.
#[test]
fn what_a_check_leaves_in_the_kernels_mount_is_ended() {
    let dir = tempfile::tempdir().unwrap();
    let log = record(dir.path(), "ext4", "sync");
    for left in ["env -i setsid sleep 1000 &", "mkdir m; mount -t tmpfs none m"] {
        let mut explore = Command::new(IOPATH);
        explore.args(["crash", "explore", &log, "--recover", "kernel", "--max-states", "3"]);
        explore.args(["--disk", "nvme-awun=4K", "--"]);
        let explore = explore.args(["sh", "-c", &format!("{left}\nexit 0")]);
        let output = explore.env("TMPDIR", dir.path()).output().unwrap();
        assert_eq!(output.status.code(), Some(75), "{}", shown(&output));
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1, "the log: {left}");
    }
}

/// A signal while the kernel recovered a state was reported as an error of the host.
#[test]
fn ctrl_c_is_not_complete_where_the_kernel_recovers() {
    let dir = tempfile::tempdir().unwrap();
    let log = record(dir.path(), "ext4", "sync");
    let on = dir.path().join("on");
    let check = format!("echo on >> '{}'; sleep 0.02", on.display());
    for signal in ["-INT", "-TERM"] {
        let mut explore = Command::new(IOPATH);
        explore.args(["crash", "explore", &log, "--recover", "kernel", "--", "sh", "-c", &check]);
        let child = explore.env("TMPDIR", dir.path()).stderr(Stdio::piped()).spawn().unwrap();
        while !std::fs::metadata(&on).is_ok_and(|on| on.len() > 9) {
            std::thread::yield_now();
        }
        testkit::judge::run_ok("kill", &[&signal, &child.id().to_string()]);
        let output = child.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(75), "{}", shown(&output));
        std::fs::remove_file(&on).unwrap();
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1, "the log");
    }
}

/// What the kernel's ext4 and XFS leave is recovered by our code and by the kernel, and both say
/// the same: the careful program loses nothing, and XFS shows the careless one's empty file.
#[test]
fn the_kernels_ext4_and_xfs_are_recorded_and_recovered_by_both() {
    let dir = tempfile::tempdir().unwrap();
    for fs in ["ext4", "xfs"] {
        let careful = record(dir.path(), fs, "sync");
        let ours = explore(&careful, &[]);
        assert_eq!((&ours["wrong"], &ours["complete"]), (&0.into(), &true.into()), "{ours}");
        assert!(ours["judged"].as_u64() > Some(40), "{ours}");
        // Linux refuses an ext4 whose superblock was torn (docs/fault-model.md).
        let how = ["--recover", "kernel", "--disk", "nvme-awun=4K", "--max-states", "30"];
        let theirs = explore(&careful, &[&how[..], &["--outside", "8"]].concat());
        assert_eq!(theirs["wrong"], 0, "{theirs}");
        if fs == "ext4" {
            // On a disk that tears sectors it says so: it was called damaged, without a reason.
            let torn = explore(&careful, &["--recover", "kernel", "--max-states", "12"]);
            let findings = torn["findings"].as_array().unwrap();
            assert!(!findings.is_empty(), "{torn}");
            for finding in findings {
                let message = finding["message"].as_str().unwrap();
                assert!(message.contains("torn between its sectors"), "{finding}");
            }
        }
    }
    let careless = record(dir.path(), "xfs", "true");
    let found = explore(&careless, &[]);
    assert!(found["findings"].to_string().contains("file of 0 bytes"), "{found}");
}

/// Btrfs is recorded and recovered by the kernel alone; our code says that it is not for it.
#[test]
fn btrfs_is_recovered_by_the_kernel() {
    let dir = tempfile::tempdir().unwrap();
    let log = record(dir.path(), "btrfs", "sync");
    let found = explore(&log, &["--max-states", "24", "--outside", "12"]);
    assert_eq!(found["wrong"], 0, "{found}");
    assert_eq!(found["judged"], 24, "{found}");
    let refused = iopath(&["crash", "explore", &log, "--recover", "ours", "--max-states", "1"]);
    assert!(shown(&refused).contains("recovered by the kernel only"), "{}", shown(&refused));
    let refused = iopath(&["crash", "explore", &log, "--recover", "kernel", "--oracle", "posix"]);
    assert!(!refused.status.success(), "{}", shown(&refused));
}

/// Any type will do that mkfs.TYPE makes and mount(8) mounts, here one by FUSE; what is not there
/// is named.
#[test]
fn any_file_system_of_mount_is_recorded() {
    let dir = tempfile::tempdir().unwrap();
    let log = record(dir.path(), "ntfs", "sync");
    let found = explore(&log, &["--max-states", "8", "--outside", "4"]);
    assert_eq!(found["judged"], 8, "{found}");
    let log = record(dir.path(), "ntfs", "true");
    let found = explore(&log, &["--max-states", "60"]);
    let lost = ["saved", "found", "damaged"];
    assert!(lost.iter().any(|word| found["findings"].to_string().contains(word)), "{found}");
    // Its program runs until the unmount, and flushes there.
    let idle = dir.path().join("idle.log");
    let output = iopath(&[
        "crash",
        "record",
        idle.to_str().unwrap(),
        "--kernel",
        "--fs",
        "ntfs",
        "--",
        "true",
    ]);
    assert!(output.status.success(), "{}", shown(&output));
    let idle = crash::Log::open(&idle).unwrap();
    let last = idle.writes().entries.last().map(|entry| &entry.event);
    assert!(matches!(last, Some(Event::Flush)), "{last:?}");
    for (fs, kernel, word) in [
        ("nosuchfs", true, "mkfs.nosuchfs: No such file"),
        ("ntfs", false, "--fs ntfs: a file system of the kernel: add --kernel"),
        ("../ntfs", true, "../ntfs: not the name of a file system"),
    ] {
        let log = dir.path().join("refused").display().to_string();
        let mut args = vec!["crash", "record", &log, "--fs", fs, "--", "true"];
        if kernel {
            args.insert(3, "--kernel");
        }
        let refused = iopath(&args);
        assert!(!refused.status.success() && shown(&refused).contains(word), "{}", shown(&refused));
    }
}

/// `--fs ext3` makes an ext3 and `--fs ext2` an ext2, by ours and by the host's mkfs.
#[test]
fn ext2_and_ext3_are_made_as_they_are_named() {
    let dir = tempfile::tempdir().unwrap();
    for (fs, kernel) in [("ext2", false), ("ext3", false), ("ext2", true), ("ext3", true)] {
        let path = |name: &str| dir.path().join(format!("{fs}-{kernel}.{name}"));
        let (log, image) = (path("log").display().to_string(), path("img").display().to_string());
        let mut args = vec!["crash", "record", &log, "--fs", fs, "--", "touch", "new"];
        if kernel {
            args.insert(3, "--kernel");
        }
        let output = iopath(&args);
        assert!(output.status.success(), "{}", shown(&output));
        let output = iopath(&["crash", "explore", &log, "--cut", "0", "--image", &image]);
        assert!(output.status.success(), "{}", shown(&output));
        let info = iopath(&["info", &image]);
        assert!(shown(&info).contains(fs), "{}", shown(&info));
    }
}

/// A disk that fails below the kernel's file systems: the first fsync says so, and what comes later
/// is refused. Calls that find no space are not the disk's.
#[test]
fn a_disk_that_fails_is_met_on_the_kernels_file_systems() {
    let dir = tempfile::tempdir().unwrap();
    let log = dir.path().join("a.log").display().to_string();
    let program = r#"
        echo aaaa > f; sync f 2> /dev/null || echo failed
        { echo bbbb > g; sync g; } 2> /dev/null || echo "no g"
    "#;
    let record = |fs: &str, fault: &str| {
        let args = ["-q", "crash", "record", &log, "--kernel", "--fs", fs, "--fault", fault, "--"];
        iopath(&[&args[..], &["sh", "-c", program]].concat())
    };
    for fs in ["ext4", "xfs", "btrfs"] {
        for fault in ["eio-write=1..", "eio-fsync=1.."] {
            let output = record(fs, fault);
            let said = String::from_utf8_lossy(&output.stdout);
            assert!(said.starts_with("failed\nno g"), "{fs} {fault}: {}", shown(&output));
        }
        assert!(explore(&log, &["--max-states", "2", "--no-fsck"])["judged"].as_u64() > Some(0));
    }
    let output = record("ext4", "enospc=1");
    assert!(shown(&output).contains("only what the disk does"), "{}", shown(&output));
}

/// A server of a recorded export, and its address.
fn serve_recorded(log: &str, socket: &str, image: &str) -> (Child, String) {
    let mut server = Command::new(IOPATH)
        .args(["serve", "nbd", "--write", "--record", log, "--listen", socket, image])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    BufReader::new(server.stdout.take().unwrap()).read_line(&mut line).unwrap();
    (server, line.trim().rsplit(' ').next().unwrap().to_owned())
}

/// What a client of an NBD export writes is a log, with its flushes and with marks.
#[test]
#[allow(clippy::disallowed_methods, reason = "the host's own programs are tested, in real time")]
fn an_nbd_export_is_recorded() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name).display().to_string();
    let (image, log, socket) = (path("disk.img"), path("run.log"), path("sock"));
    assert!(iopath(&["mkfs", "--size", "64M", &image]).status.success());
    let (mut server, url) = serve_recorded(&log, &socket, &image);
    let writes = ["-c", "write -P 7 60M 8k", "-c", "flush", "-c", "write -P 9 61M 4k", &url];
    let wrote = Command::new("qemu-io").args(["-f", "raw"]).args(writes).output().unwrap();
    assert!(wrote.status.success(), "{}", shown(&wrote));
    let marked = Command::new(IOPATH)
        .args(["crash", "mark", "written"])
        .env("IOPATH_CRASH_SOCKET", format!("{log}.socket"))
        .output()
        .unwrap();
    assert!(marked.status.success(), "{}", shown(&marked));
    let pid = server.id().to_string();
    assert!(Command::new("kill").arg(&pid).status().unwrap().success());
    assert!(server.wait().unwrap().success());
    let found = iopath(&["--json", "crash", "explore", &log]);
    assert_eq!(found.status.code(), Some(0), "{}", shown(&found));
    let found: Value = serde_json::from_slice(&found.stdout).unwrap();
    assert!(found["distinct"].as_u64() >= Some(4), "{found}");
    assert!(!Path::new(&format!("{log}.socket")).exists(), "the places of the marks are gone");
}

/// Of a disk with partitions one is explored, by its number.
#[test]
#[allow(clippy::disallowed_methods, reason = "the host's own programs are tested, in real time")]
fn a_partition_of_a_recorded_disk_is_explored() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name).display().to_string();
    let (image, log, socket) = (path("disk.img"), path("run.log"), path("sock"));
    let part = |name: &str| {
        format!("[[partition]]\nname = \"{name}\"\nformat = \"ext4\"\nsize = \"16M\"\n")
    };
    std::fs::write(path("plan.toml"), format!("{}{}", part("one"), part("two"))).unwrap();
    std::fs::write(path("content"), [7; 100_000]).unwrap();
    let made = iopath(&["disk", "create", &image, &path("plan.toml")]);
    assert!(made.status.success(), "{}", shown(&made));
    let (mut server, url) = serve_recorded(&log, &socket, &image);
    let copied = iopath(&["cp", &path("content"), &format!("{url}@2:/file")]);
    assert!(copied.status.success(), "{}", shown(&copied));
    let marked = Command::new(IOPATH)
        .args(["crash", "mark", "copied"])
        .env("IOPATH_CRASH_SOCKET", format!("{log}.socket"))
        .status();
    assert!(marked.unwrap().success());
    let more = iopath(&["cp", &path("content"), &format!("{url}@2:/more")]);
    assert!(more.status.success(), "{}", shown(&more));
    assert!(Command::new("kill").arg(server.id().to_string()).status().unwrap().success());
    assert!(server.wait().unwrap().success());
    let explore = |log: &str, from: &[&str], check: &str| {
        let check = ["--", "sh", "-c", check, "sh", &path("content")];
        iopath(&[&["--json", "crash", "explore", log], from, &check].concat())
    };
    let second = format!("{log}@2");
    let states = |output: &Output| -> Value { serde_json::from_slice(&output.stdout).unwrap() };
    let found = explore(&second, &["--from", "copied"], "cmp \"$1\" file");
    assert_eq!(found.status.code(), Some(0), "{}", shown(&found));
    assert!(states(&found)["judged"].as_u64() > Some(20), "{}", shown(&found));
    let found = explore(&second, &["--outside", "9"], "cmp \"$1\" more");
    assert_eq!(found.status.code(), Some(1), "{}", shown(&found));
    let again = &states(&found)["findings"][0]["repeat"];
    assert!(again.as_str().unwrap().contains("run.log@2"), "{again}");
    // Nothing was written to the first one: a state before the mark, one behind it.
    let found = explore(&format!("{log}@1"), &[], "true");
    assert_eq!(states(&found)["distinct"], 2, "{}", shown(&found));
    for (of, word) in [(log.clone(), "`LOG@2` is the second"), (format!("{log}@3"), "partition 3")]
    {
        let refused = explore(&of, &[], "true");
        assert_eq!(refused.status.code(), Some(2), "{}", shown(&refused));
        assert!(shown(&refused).contains(word), "{}", shown(&refused));
    }
}

/// A log of a disk on which its client made the file system could never be explored. What a server
/// that was killed had left kept the next one from its place, and that one had emptied the log.
#[test]
fn a_blank_disk_gets_its_file_system_from_a_client() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name).display().to_string();
    let (image, made, log, socket) = (path("a.img"), path("b.img"), path("run.log"), path("sock"));
    for (image, size) in [(&image, 128 << 20), (&made, 128 << 20)] {
        std::fs::File::create(image).unwrap().set_len(size).unwrap();
    }
    testkit::judge::run_ok("mkfs.btrfs", &[&"-q", &made]);
    let serve = || serve_recorded(&log, &socket, &image);
    let mark = |text: &str| {
        let mut mark = Command::new(IOPATH);
        mark.args(["crash", "mark", text]).env("IOPATH_CRASH_SOCKET", format!("{log}.socket"));
        assert!(mark.status().unwrap().success());
    };
    let (mut server, url) = serve();
    testkit::judge::run_ok("nbdcopy", &[&"--flush", &made, &url]);
    mark("made");
    let write = ["-f", "raw", "-c", "write -P 7 100M 8k", "-c", "flush", &url];
    assert!(Command::new("qemu-io").args(write).output().unwrap().status.success());
    mark("written");
    // It is in the file a moment later.
    let marks = || crash::Log::open(Path::new(&log)).map_or(0, |log| log.marks(log.len()).len());
    while marks() < 2 {
        std::thread::yield_now();
    }
    server.kill().unwrap();
    server.wait().unwrap();
    let found = iopath(&["--json", "crash", "explore", &log, "--from", "made"]);
    assert_eq!(found.status.code(), Some(0), "{}", shown(&found));
    let found: Value = serde_json::from_slice(&found.stdout).unwrap();
    assert!(found["distinct"].as_u64() >= Some(2), "{found}");
    let found = iopath(&["crash", "explore", &log, "--from", "installed"]);
    assert_eq!(found.status.code(), Some(2), "{}", shown(&found));
    assert!(shown(&found).contains(r#"there are 2 marks: "made", "written""#), "{}", shown(&found));
    let found = iopath(&["crash", "explore", &log, "--fs", "xfs", "--max-states", "2"]);
    assert_eq!(found.status.code(), Some(1), "it is none: {}", shown(&found));
    // Where the server cannot begin, the log stays.
    let whole = std::fs::read(&log).unwrap();
    std::fs::remove_file(format!("{log}.marks")).unwrap();
    std::fs::create_dir(format!("{log}.marks")).unwrap();
    let serve_again = ["serve", "nbd", "--write", "--record", &log, "--listen", &socket, &image];
    let refused = iopath(&serve_again);
    let says = shown(&refused);
    assert!(!refused.status.success() && says.contains("run.log.marks"), "{says}");
    assert_eq!(std::fs::read(&log).unwrap(), whole);
    std::fs::remove_dir(format!("{log}.marks")).unwrap();
    let (mut server, _) = serve();
    mark("again");
    testkit::judge::run_ok("kill", &[&server.id().to_string()]);
    assert!(server.wait().unwrap().success());
    let log = crash::Log::open(Path::new(&log)).unwrap();
    assert_eq!(log.marks(log.len()), ["again"]);
}

/// The ways of `crates/crash/tests/saving.rs`, as commands.
const WAYS: [(&str, &str); 8] = [
    ("truncate, write", "put f"),
    ("truncate, write, fsync", "put f; sync f"),
    ("temp, rename", "put t; mv t f"),
    ("temp, rename, fsync of the directory", "put t; mv t f; sync ."),
    ("temp, fsync, rename", "put t; sync t; mv t f"),
    ("temp, fsync, rename, fsync of the directory", "put t; sync t; mv t f; sync ."),
    ("rename to backup, write, fsync", "mv f f~; put f; sync f"),
    ("temp, fsync, link to backup, rename", "put t; sync t; ln f f~; mv t f"),
];

/// Saves in the way `$1`, and waits `$2` seconds for what is written out by itself.
const SAVE_SO: &str = r#"
put() { head -c 9000 /dev/zero | tr '\0' n > "$1"; }
head -c 9000 /dev/zero | tr '\0' o > f
sync f .
"$IOPATH" crash mark ready
eval "$1"
"$IOPATH" crash mark saved
sleep "$2"
"#;

/// Notes in `$SEEN` what the file is.
const LOOK: &str = r#"
grep -q ready "$IOPATH_CRASH_MARKS" || exit 0
when=during; ! grep -q saved "$IOPATH_CRASH_MARKS" || when=afterwards
is() { test "$(stat -c %s f)" -eq 9000 && test -z "$(tr -d "$1" < f)"; }
if ! test -e f; then kind=missing
elif ! test -s f; then kind=empty
elif is o; then kind=old
elif is n; then kind=new
elif is '\0'; then kind=zeros
else kind=part; fi
echo "$when $kind" >> "$SEEN"
"#;

/// A row of the table: what a cut leaves during a way of saving, and afterwards.
fn saved_so(
    dir: &Path,
    fs: &str,
    (name, how): (&str, &str),
    seconds: &str,
    limits: [&str; 6],
) -> String {
    let path = |end: &str| dir.join(format!("{fs}-{}.{end}", name.replace([',', ' '], "-")));
    let (log, seen) = (path("log"), path("seen"));
    let log = log.display().to_string();
    let record = ["-q", "crash", "record", &log, "--kernel", "--fs", fs, "--no-unmount", "--"];
    let output = iopath(&[&record[..], &["sh", "-c", SAVE_SO, "sh", how, seconds]].concat());
    assert!(output.status.success(), "{}", shown(&output));
    // Linux refuses an ext4 whose superblock was torn.
    let disk = ["--recover", "kernel", "--disk", "nvme-awun=4K"];
    let explore = ["-q", "crash", "explore", &log];
    let explored = Command::new(IOPATH)
        .args([&explore[..], &disk, &limits, &["--", "sh", "-c", LOOK]].concat())
        .env("SEEN", &seen)
        .output()
        .unwrap();
    assert!(explored.status.success(), "{}", shown(&explored));
    let seen = std::fs::read_to_string(seen).unwrap();
    let kinds = |when: &str| {
        let kinds = ["missing", "empty", "zeros", "part", "new", "old"].into_iter();
        let kinds = kinds.filter(|kind| seen.lines().any(|line| line == format!("{when} {kind}")));
        kinds.collect::<Vec<_>>().join(", ")
    };
    format!("| {name} | {fs} | {} | {} |", kinds("during"), kinds("afterwards"))
}

/// What the kernel's file systems leave of a saved file stands in `docs/crash.md` beside what ours
/// leave. `IOPATH_CRASH_SAVING=1` makes that table again, in some minutes; otherwise a few states
/// of the one way are tried that leaves the new content everywhere.
#[test]
fn what_the_kernels_file_systems_leave_of_a_saved_file() {
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/crash.md");
    let text = std::fs::read_to_string(page).unwrap();
    let dir = tempfile::tempdir().unwrap();
    if std::env::var_os("IOPATH_CRASH_SAVING").is_none() {
        let few = ["--all-subsets", "0", "--samples", "0", "--singles", "2"];
        let way = WAYS
            .into_iter()
            .find(|(name, _)| name.ends_with("fsync, rename, fsync of the directory"));
        let row = saved_so(dir.path(), "ext4", way.unwrap(), "0", few);
        assert!(row.ends_with("| new |"), "{row}");
        return;
    }
    let cells: Vec<_> =
        WAYS.into_iter().flat_map(|way| ["ext4", "xfs", "btrfs"].map(|fs| (way, fs))).collect();
    let limits = ["--all-subsets", "3", "--samples", "6", "--singles", "16"];
    let rows: Vec<String> = std::thread::scope(|scope| {
        let row = |&(way, fs)| saved_so(dir.path(), fs, way, "75", limits);
        let tasks: Vec<_> = cells.iter().map(|cell| scope.spawn(move || row(cell))).collect();
        tasks.into_iter().map(|task| task.join().unwrap()).collect()
    });
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
    let (begin, end) = ("<!-- saved on the kernel's -->", "<!-- end of the kernel's -->");
    let (before, rest) = text.split_once(begin).unwrap();
    let (_, after) = rest.split_once(end).unwrap();
    let table = format!(
        "The same on file systems of Linux {}:\n\n| way | file system | during | afterwards |\n\
         | --- | --- | --- | --- |\n{}\n",
        release.trim(),
        rows.join("\n")
    );
    std::fs::write(page, format!("{before}{begin}\n\n{table}\n{end}{after}")).unwrap();
}

/// Tasks that sync new files at the same time; each is marked when it is durable.
const SYNC_AT_ONCE: &str = r#"
import os, threading
marks = open(os.environ["IOPATH_CRASH_MARKS"], "wb", 0)
def work(task):
    for number in range(15):
        name = f"d/{task}-{number}"
        file = os.open(name, os.O_CREAT | os.O_WRONLY)
        os.write(file, b"x" * 100)
        os.fsync(file)
        os.close(file)
        marks.write(f"have {name}\n".encode())
os.mkdir("d")
tasks = [threading.Thread(target=work, args=(task,)) for task in range(8)]
[task.start() for task in tasks]
[task.join() for task in tasks]
"#;

/// Linux writes several checkpoints of XFS into one record of the log. Of what two of them change
/// recovery brought in the first only: files that were synced were gone, and inodes damaged.
#[test]
fn what_tasks_sync_at_once_is_recovered() {
    let dir = tempfile::tempdir().unwrap();
    let check = "while read _ name; do test -s $name || { echo lost: $name; exit 1; }; done < \
                 $IOPATH_CRASH_MARKS";
    for fs in ["xfs", "ext4"] {
        let log = dir.path().join(fs).display().to_string();
        let record = ["crash", "record", &log, "--kernel", "--fs", fs];
        let output = iopath(&[&record[..], &["--", "python3", "-c", SYNC_AT_ONCE]].concat());
        assert!(output.status.success(), "{}", shown(&output));
        let few = ["--disk", "nvme-awun=4K", "--all-subsets", "0", "--samples", "0"];
        let few = [&few[..], &["--singles", "1", "--outside", "50"]].concat();
        let check = ["--", "sh", "-c", check];
        let output = iopath(&[&["--json", "crash", "explore", &log], &few[..], &check].concat());
        let found: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(output.status.code(), Some(0), "{fs}: {found:#}");
        assert!(found["judged"].as_u64() > Some(200), "{found:#}");
    }
}
