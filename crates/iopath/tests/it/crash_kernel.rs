//! `iopath crash` below file systems of others: the kernel's on a loop device over a recorded file,
//! recovered by ours and by the kernel, and what clients of an NBD export write. Needs root, FUSE,
//! loop devices and the tools that `cargo xtask judges` installs.

use std::path::Path;
use std::process::{Command, Output, Stdio};

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

/// What a client of an NBD export writes is a log, with its flushes and with marks.
#[test]
#[allow(clippy::disallowed_methods, reason = "the host's own programs are tested, in real time")]
fn an_nbd_export_is_recorded() {
    use std::io::{BufRead, BufReader};
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name).display().to_string();
    let (image, log, socket) = (path("disk.img"), path("run.log"), path("sock"));
    assert!(iopath(&["mkfs", "--size", "64M", &image]).status.success());
    let mut server = Command::new(IOPATH)
        .args(["serve", "nbd", "--write", "--record", &log, "--listen", &socket, &image])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    BufReader::new(server.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let url = line.trim().rsplit(' ').next().unwrap();
    let writes = ["-c", "write -P 7 60M 8k", "-c", "flush", "-c", "write -P 9 61M 4k", url];
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
