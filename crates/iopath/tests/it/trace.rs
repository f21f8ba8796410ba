//! `iopath trace` around other commands, read by blkparse, btt and fio. Needs those.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use serde_json::Value;

fn run(program: &str, args: &[&str]) -> Output {
    let output = Command::new(program).args(args).stdin(Stdio::null()).output();
    output.unwrap_or_else(|error| {
        panic!("{program}: {error}; install it with: apt-get install -y blktrace fio")
    })
}

fn iopath(args: &[&str]) -> Output {
    run(env!("CARGO_BIN_EXE_iopath"), args)
}

#[track_caller]
fn ok(args: &[&str]) -> String {
    let output = iopath(args);
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "iopath {}: {error}", args.join(" "));
    String::from_utf8(output.stdout).expect("the output is text")
}

/// A directory with an image and a file of 3 MB on the host.
struct Bed(tempfile::TempDir);

impl Bed {
    fn new() -> Bed {
        let bed = Bed(tempfile::tempdir().expect("a directory"));
        let content: Vec<u8> = (0..3_000_000u32).map(|i| (i * 7 + i / 251) as u8).collect();
        fs::write(bed.path("large"), content).expect("a file");
        ok(&["mkfs", "-q", "-t", "ext4", "--size", "64M", &bed.text("disk.img")]);
        bed
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn text(&self, name: &str) -> String {
        self.path(name).display().to_string()
    }
}

fn summary(dir: &Path) -> Value {
    let text = fs::read_to_string(dir.join("summary.json")).expect("a summary");
    serde_json::from_str(&text).expect("JSON")
}

/// Goal: what a copy wrote is in the trace, byte for byte, and the tools read it.
#[test]
fn a_copy_is_traced_for_the_tools() {
    let bed = Bed::new();
    let (out, large) = (bed.text("out"), bed.text("large"));
    let place = format!("{}:/", bed.text("disk.img"));
    let formats = "blktrace,iolog,perfetto,text";
    let json =
        ok(&["trace", "-d", &out, "--format", formats, "--json", "--", "cp", &large, &place]);
    let told: Value = serde_json::from_str(&json).expect("JSON");
    assert_eq!(told, summary(&bed.path("out")));
    let queue = &told["queues"][0];
    assert_eq!((queue["events_lost"].as_u64(), queue["unfinished"].as_u64()), (Some(0), Some(0)));
    let writes = &queue["operations"]["write"];
    assert!(writes["bytes"].as_u64() >= Some(3_000_000), "{queue}");
    assert!(writes["q2c"]["mean_ns"].as_u64() >= writes["q2d"]["mean_ns"].as_u64());
    for file in queue["files"].as_array().expect("a list") {
        assert!(fs::metadata(file.as_str().expect("a path")).expect("written").len() > 0);
    }
    let parsed = run("blkparse", &["-i", &format!("{out}/trace"), "-q"]);
    let parsed = String::from_utf8_lossy(&parsed.stdout).into_owned();
    let lines = parsed.lines().filter(|line| line.starts_with("  8,0 ")).count() as u64;
    assert_eq!(Some(lines), queue["events"].as_u64(), "blkparse prints every event");
    for name in ["iopath", "jbd2"] {
        assert!(parsed.contains(&format!("[{name}]")), "the task {name} is named: {parsed}");
    }
    // It leaves files where it stands.
    let mut btt = Command::new("btt");
    let btt = btt.args(["-i", "trace.bin"]).current_dir(&out).output().expect("btt of blktrace");
    assert!(String::from_utf8_lossy(&btt.stdout).contains("Q2C"));
    ok(&["check", &bed.text("disk.img")]);
}

/// Goal: a workload on a modelled machine is traced in its own time, the same each time, with what
/// the elevator says.
#[test]
fn a_modelled_machine_is_traced_in_virtual_time() {
    let bed = Bed::new();
    let log = bed.text("fs_log.txt");
    let run = |out: &str| {
        let bench = "bench --target sim:array-2010 --elevator cfq --size 1G fs_mark -d /a";
        let mut args = vec!["trace", "-d", out, "--format", "blktrace,text", "--json", "--"];
        args.extend(bench.split(' '));
        args.extend(["-l", &log, "-s", "65536", "-n", "20", "-S", "1", "-t", "1", "-w", "4096"]);
        ok(&args);
        (summary(Path::new(out)), fs::read(Path::new(out).join("trace.txt")).expect("the text"))
    };
    let (first, second) = (run(&bed.text("one")), run(&bed.text("two")));
    assert_eq!(first.1, second.1, "two runs tell the same to the nanosecond");
    let queue = &first.0["queues"][0];
    assert_eq!(
        (queue["target"].as_str(), queue["elevator"].as_str()),
        (Some("array-2010"), Some("cfq"))
    );
    assert!(queue["elevator_notes"]["idle_armed"].as_u64() >= Some(1), "{queue}");
    // Twenty files of 64 KiB, each with a commit.
    assert!(queue["operations"]["write"]["bytes"].as_u64() >= Some(20 * 65536), "{queue}");
    let parsed = run_blkparse(&bed.path("one"));
    assert!(parsed.contains(" m   N ioc "), "the elevator's words are messages");
}

fn run_blkparse(dir: &Path) -> String {
    let parsed = run("blkparse", &["-i", &dir.join("trace").display().to_string(), "-q"]);
    String::from_utf8_lossy(&parsed.stdout).into_owned()
}

/// Goal: the inner command's exit status, output and errors are its own; a trace of two images has
/// two directories; a trace of nothing says so.
#[test]
fn the_command_inside_keeps_its_manners() {
    let bed = Bed::new();
    let (out, disk) = (bed.text("out"), bed.text("disk.img"));
    let trace = |rest: &[&str]| iopath(&[&["trace", "-d", &out, "--"], rest].concat());
    let missing = trace(&["cat", &format!("{disk}:/nothing")]);
    assert_eq!(missing.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&missing.stderr).contains("nothing"));
    assert!(bed.path("out/trace.bin").exists(), "the files are written all the same");
    let wrong = trace(&["cat"]);
    assert_eq!(wrong.status.code(), Some(2));
    fs::write(bed.path("broken.img"), vec![0; 1 << 20]).expect("an image");
    assert_eq!(trace(&["check", &bed.text("broken.img")]).status.code(), Some(8));
    let nested = trace(&["trace", "-d", &out, "ls", &disk]);
    assert_eq!(nested.status.code(), Some(1));
    ok(&["cp", &bed.text("large"), &format!("{disk}:/large")]);
    let content = trace(&["cat", &format!("{disk}:/large")]);
    assert_eq!(content.stdout, fs::read(bed.path("large")).expect("the file"));
    ok(&["mkfs", "-q", "-t", "ext3", "--size", "64M", &bed.text("other.img")]);
    let both = trace(&["cp", &format!("{disk}:/large"), &format!("{}:/", bed.text("other.img"))]);
    assert!(both.status.success(), "{}", String::from_utf8_lossy(&both.stderr));
    assert_eq!(summary(&bed.path("out"))["queues"].as_array().map(Vec::len), Some(2));
    assert!(bed.path("out/0-other.img/trace.txt").exists(), "the destination is opened first");
    assert!(bed.path("out/1-disk.img/trace.txt").exists());
    let nothing = trace(&["completions", "bash"]);
    assert!(String::from_utf8_lossy(&nothing.stderr).contains("nothing to trace"));
    let format = iopath(&["trace", "-d", &out, "--format", "svg", "--", "ls", &disk]);
    assert_eq!(format.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&format.stderr).contains("blktrace, iolog, perfetto, text"));
}
