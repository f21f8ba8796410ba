//! What programs that are recorded may do, and what checks see, say and leave behind: other users,
//! names that are no UTF-8, permissions, large sparse files, files that stay open, mounts; results
//! of runs that were killed. Needs FUSE and root.

use std::fs::Permissions;
use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use rustix::process::Signal;

use super::crash::{IOPATH, explore, iopath, shown, text};

/// Not root.
const NOBODY: &[&str] = &["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"];

/// Records a shell program, or python's where it begins with `import`.
fn record(dir: &Path, fs: &str, program: &str) -> String {
    let log = dir.join("run.log").display().to_string();
    let interpreter = if program.starts_with("import") { "python3" } else { "sh" };
    let output = iopath(&["crash", "record", &log, "--fs", fs, "--", interpreter, "-c", program]);
    assert!(output.status.success(), "{}", shown(&output));
    log
}

fn run(words: &[&str], dir: &Path, tmpdir: Option<&Path>) -> Output {
    let mut command = Command::new(words[0]);
    command.args(&words[1..]).current_dir(dir).env("IOPATH", IOPATH);
    if let Some(tmpdir) = tmpdir {
        command.env("TMPDIR", tmpdir);
    }
    command.output().expect("setpriv(1), of util-linux")
}

fn names(dir: &Path) -> Vec<PathBuf> {
    std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path()).collect()
}

/// Directories had the permissions of the umask. Of names that are no UTF-8 only what
/// they look like counted: the check saw the first of two trees only. A file of 60 GiB without data
/// was read through.
#[test]
fn a_check_sees_the_tree_as_it_was() {
    let dir = tempfile::tempdir().unwrap();
    let program = r#"import os, subprocess
def synced(fd):
    os.fsync(fd)
    os.close(fd)
here = os.open(b".", os.O_RDONLY)
os.fchmod(here, 0o711)
os.mkdir(b"private"); os.chmod(b"private", 0o700)
os.mkdir(b"all"); os.chmod(b"all", 0o1777)
os.mkdir(b"closed"); os.mkdir(b"closed/below"); os.chmod(b"closed", 0o555)
f = os.open(b"large", os.O_CREAT | os.O_WRONLY, 0o640)
os.ftruncate(f, 60 << 30)
os.pwrite(f, b"end", (60 << 30) - 3)
synced(f)
f = os.open(b"\xff", os.O_CREAT | os.O_WRONLY)
os.write(f, b"same")
synced(f)
for name in b"private", b"all", b"closed":
    synced(os.open(name, os.O_RDONLY))
os.fsync(here)
subprocess.check_call([os.environ["IOPATH"], "crash", "mark", "one"])
os.rename(b"\xff", b"\xfe")
os.fsync(here)
subprocess.check_call([os.environ["IOPATH"], "crash", "mark", "two"])
"#;
    let check = r#"
modes=$(stat -c '%a %n' . private all closed large | tr '\n' ' ')
test "$IOPATH_CRASH_LAST_MARK" = "" || {
  test "$modes" = "711 . 700 private 1777 all 555 closed 640 large " || { echo "$modes"; exit 1; }
  test "$(tail -c 3 large)" = end || { echo "the large file"; exit 1; }
}
name=$(ls -b | grep '\\')
case "$IOPATH_CRASH_LAST_MARK,$name" in
",") ;; ",\\377") ;; "one,\\377"|"one,\\376") ;; "two,\\376") ;;
*) echo "mark $IOPATH_CRASH_LAST_MARK, name $name"; exit 1
esac
# What is wrong on purpose: the first state behind the rename.
test "$name" != '\376' || { echo "renamed"; exit 1; }
"#;
    for fs in ["ext4", "xfs"] {
        let log = record(dir.path(), fs, program);
        let (code, found) = explore(&log, &["--", "sh", "-c", check]);
        assert_eq!(code, Some(1), "{fs}: {found}");
        let findings = found["findings"].as_array().unwrap();
        assert_eq!(findings.len(), 1, "{fs}: {found}");
        let message = findings[0]["message"].as_str().unwrap();
        assert!(message.ends_with(": renamed"), "{fs}: {found}");
        let (code, _) = explore(
            &log,
            &["--cut", findings[0]["cut"].as_str().unwrap(), "--", "sh", "-c", check],
        );
        assert_eq!(code, Some(1), "{fs}: the state that is named is one of these");
    }
}

/// What a check mounted in its tree was emptied with the tree, also by the next exploration where
/// the first was killed.
#[test]
fn what_a_check_mounts_is_left_alone() {
    let dir = tempfile::tempdir().unwrap();
    let log = record(dir.path(), "ext4", "echo a > a; sync a");
    let (precious, place) = (dir.path().join("precious"), dir.path().join("place"));
    for dir in [&precious, &place] {
        std::fs::create_dir(dir).unwrap();
    }
    std::fs::write(precious.join("file"), "data").unwrap();
    let bind = format!("mkdir -p 'a b'; mount --bind '{}' 'a b'", precious.display());
    for then in ["exit 0", "kill -KILL $PPID; sleep 1000"] {
        let check = format!("test -e killed && exit 0; {bind}; {then}");
        let args =
            [IOPATH, "crash", "explore", &log, "--max-states", "1", "--", "sh", "-c", &check];
        let output = run(&args, dir.path(), Some(&place));
        assert_eq!(output.status.code().is_some(), then == "exit 0", "{}", shown(&output));
        let again = [&args[..9], &["exit 0"]].concat();
        assert!(run(&again, dir.path(), Some(&place)).status.code().is_some());
        assert_eq!(std::fs::read(precious.join("file")).unwrap(), b"data", "{then}");
        assert!(names(&place).is_empty(), "{then}: {:?}", names(&place));
    }
}

/// Somebody who is not root could change nothing in the recorded file system, whose root directory
/// was root's; what its check had locked stayed for ever.
#[test]
fn an_ordinary_user_records_and_explores() {
    let dir = tempfile::tempdir().unwrap();
    let home = dir.path().join("home");
    std::fs::create_dir(&home).unwrap();
    for (path, owner) in [(dir.path(), 0), (&home, 65534)] {
        std::os::unix::fs::chown(path, Some(owner), Some(owner)).unwrap();
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        std::fs::set_permissions(path, mode).unwrap();
    }
    // The program may lie where only root may look.
    let program = home.join("iopath");
    std::fs::copy(IOPATH, &program).unwrap();
    let program = program.display().to_string();
    let place = home.join("place");
    std::fs::create_dir(&place).unwrap();
    std::os::unix::fs::chown(&place, Some(65534), Some(65534)).unwrap();
    for fs in ["ext4", "xfs"] {
        let words = "echo a > a && sync a . && $IOPATH crash mark saved";
        let words = words.replace("$IOPATH", &program);
        let record = [&program, "crash", "record", "run.log", "--fs", fs, "--", "sh", "-c", &words];
        let output = run(&[NOBODY, &record].concat(), &home, Some(&place));
        assert_eq!(output.status.code(), Some(0), "{fs}: {}", shown(&output));
        let check = "mkdir -p z/y; chmod 000 z; test -s a || test -z \"$IOPATH_CRASH_LAST_MARK\"";
        let explore = [&program, "crash", "explore", "run.log", "--", "sh", "-c", check];
        let output = run(&[NOBODY, &explore].concat(), &home, Some(&place));
        assert_eq!(output.status.code(), Some(0), "{fs}: {}", shown(&output));
        assert!(names(&place).is_empty(), "{fs}: {:?}", names(&place));
    }
}

/// A server that is started by root and becomes another user could not enter the mount, nor mark.
#[test]
fn a_recorded_command_may_become_another_user() {
    let dir = tempfile::tempdir().unwrap();
    let become_nobody = NOBODY.join(" ");
    let program = format!(
        "umask 077; mkdir -m 700 data; chown 65534 data; cd data; cp \"$IOPATH\" /dev/shm/iopath-$$
         chmod 755 /dev/shm/iopath-$$
         {become_nobody} sh -c 'echo a > a && sync a . && '/dev/shm/iopath-$$' crash mark one &&
           echo two > \"$IOPATH_CRASH_MARKS\" && test $(stat -c %u a) = 65534'
         status=$?; rm /dev/shm/iopath-$$; sync . ..; exit $status"
    );
    let log = record(dir.path(), "ext4", &program);
    let log = crash::Log::open(Path::new(&log)).unwrap();
    assert_eq!(log.marks(log.len()), ["one", "two"]);
}

/// A file that a program keeps open was recorded as it left the kernel's cache: behind the rename
/// that followed. That was a finding on ext4 where there was none, and none on XFS where there was
/// one.
#[test]
fn calls_are_recorded_in_their_order() {
    let dir = tempfile::tempdir().unwrap();
    let program = r#"import os, subprocess
here = os.open(".", os.O_RDONLY)
f = os.open("f", os.O_CREAT | os.O_WRONLY)
os.write(f, b"a" * 100)
os.fsync(f)
os.fsync(here)
n = os.open("n", os.O_CREAT | os.O_WRONLY)
os.write(n, b"b" * 100)
os.rename("n", "f")
os.fsync(here)
subprocess.check_call([os.environ["IOPATH"], "crash", "mark", "renamed"])
os.pwrite(n, b"c" * 100, 100)
subprocess.check_call([os.environ["IOPATH"], "crash", "mark", "longer"])
os.link("f", "g")
os.chmod("f", 0o600)
subprocess.check_call([os.environ["IOPATH"], "crash", "mark", "private"])
"#;
    let check = "test -z \"$IOPATH_CRASH_LAST_MARK\" || test -s f || { echo empty; exit 1; }";
    let log = record(dir.path(), "ext4", program);
    let (code, found) = explore(&log, &["--", "sh", "-c", check]);
    assert_eq!(code, Some(0), "auto_da_alloc: {found}");
    let story = |check: &str| {
        let (code, found) = explore(&log, &["--", "sh", "-c", check]);
        assert_eq!(code, Some(1), "{found}");
        found["findings"][0]["missing"].to_string()
    };
    let missing = story("grep -q longer $IOPATH_CRASH_MARKS || exit 0; test $(stat -c %s f) = 200");
    assert!(missing.contains("write(/f, 100 bytes at 100) at entry"), "{missing}");
    assert!(missing.contains("is not there: no fsync(/f) followed it"), "{missing}");
    let missing = story("grep -q private $IOPATH_CRASH_MARKS || exit 0; test -e g");
    assert!(missing.contains("link(/f, /g) at entry"), "{missing}");
    assert!(missing.contains("chmod or chown(/g, mode 600, 0:0) at entry"), "{missing}");
    let log = record(dir.path(), "xfs", program);
    let (code, found) = explore(&log, &["--oracle", "xfs"]);
    assert_eq!(code, Some(1), "{found}");
    assert_eq!(found["findings"][0]["verdict"], "unsynced", "{found}");
}

/// The last line of what was kept of the output was shown, which was its beginning.
#[test]
fn the_last_line_of_a_check_is_shown() {
    let dir = tempfile::tempdir().unwrap();
    let log = record(dir.path(), "ext4", "echo a > a; sync a");
    let check = r"seq 1 100000; printf 'REAL: \033[2J table\n\n' >&2; exit 1";
    let (code, found) = explore(&log, &["--max-states", "1", "--", "sh", "-c", check]);
    assert_eq!(code, Some(1), "{found}");
    let message = found["findings"][0]["message"].as_str().unwrap();
    assert_eq!(message, r"check: exit status 1: REAL: \x1b[2J table");
}

/// $TMPDIR was taken as it is: from the directory of the command and of the check it is elsewhere.
#[test]
fn a_relative_tmpdir_is_one_place() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::create_dir(dir.path().join("rel")).unwrap();
    let rel = Some(Path::new("rel"));
    let words = [IOPATH, "crash", "record", "a.log", "--", IOPATH, "crash", "mark", "x"];
    let output = run(&words, dir.path(), rel);
    assert_eq!(output.status.code(), Some(0), "{}", shown(&output));
    let words =
        [IOPATH, "crash", "explore", "a.log", "--", "sh", "-c", "test -e $IOPATH_CRASH_MARKS"];
    let output = run(&words, dir.path(), rel);
    assert_eq!(output.status.code(), Some(0), "{}", shown(&output));
    assert!(names(&dir.path().join("rel")).is_empty());
}

/// Each line of a shard said that it was complete: of one that was killed `merge` said that nothing
/// was found.
#[test]
fn a_killed_shard_is_not_complete() {
    let dir = tempfile::tempdir().unwrap();
    let program =
        "for i in $(seq 150); do echo $i > f$i; sync f$i; $IOPATH crash mark \"m $i\"; done";
    let log = record(dir.path(), "ext4", program);
    let go_on = dir.path().join("go on").display().to_string();
    let check = format!(
        "n=$(grep -c m $IOPATH_CRASH_MARKS)
         test $n -lt 120 || test -e '{go_on}' || kill -KILL $PPID
         test $n -lt 140"
    );
    let results = dir.path().join("k.jsonl").display().to_string();
    let args = ["crash", "explore", &log, "--results", &results, "--", "sh", "-c", &check];
    let output = iopath(&args);
    assert_eq!(output.status.code(), None, "killed: {}", shown(&output));
    let merged = iopath(&["crash", "merge", &results]);
    assert_eq!(merged.status.code(), Some(75), "{}", shown(&merged));
    std::fs::write(&go_on, "").unwrap();
    let output = iopath(&args);
    assert_eq!(output.status.code(), Some(1), "{}", shown(&output));
    let merged = iopath(&["crash", "merge", &results]);
    assert_eq!(merged.status.code(), Some(1), "{}", shown(&merged));
    assert!(text(&merged.stdout).contains("\"complete\":true"), "{}", shown(&merged));
}

/// Two runs with one file of results overwrote each other's lines; half a first line could not be
/// gone on from; what is no file of results was read to its end, in one piece.
#[test]
fn results_are_written_by_one_run_at_a_time() {
    let dir = tempfile::tempdir().unwrap();
    let log = record(dir.path(), "ext4", "echo a > a; sync a");
    let results = dir.path().join("r.jsonl");
    let explore = |results: &Path| {
        let results = results.display().to_string();
        iopath(&["crash", "explore", &log, "--max-states", "2", "--results", &results])
    };
    assert_eq!(explore(&results).status.code(), Some(75));
    let held = std::fs::File::open(&results).unwrap();
    held.try_lock().unwrap();
    let output = explore(&results);
    assert_eq!(output.status.code(), Some(2), "{}", shown(&output));
    assert!(text(&output.stderr).contains("another run is writing to it"), "{}", shown(&output));
    drop(held);
    let line = std::fs::read(&results).unwrap();
    std::fs::write(&results, &line[..line.len() / 2]).unwrap();
    for _ in 0..2 {
        let output = explore(&results);
        assert_eq!(output.status.code(), Some(75), "{}", shown(&output));
    }
    let other = dir.path().join("other");
    std::fs::write(&other, "words\n").unwrap();
    for (path, says) in [(Path::new("/dev/zero"), "begins with"), (&other, "begins with 'w'")] {
        let output = explore(path);
        assert_eq!(output.status.code(), Some(2), "{}", shown(&output));
        assert!(text(&output.stderr).contains(says), "{}", shown(&output));
    }
    assert_eq!(std::fs::read(&other).unwrap(), b"words\n");
}

/// `echo > /dev/stderr` failed in a check, whose output was a socket.
#[test]
fn a_check_opens_its_output_by_name() {
    let dir = tempfile::tempdir().unwrap();
    let log = record(dir.path(), "ext4", "echo a > a; sync a");
    let check = "echo one > /dev/stderr; echo two > /dev/stdout; test -d .";
    let (code, found) = explore(&log, &["--", "sh", "-ec", check]);
    assert_eq!(code, Some(0), "{found}");
}

/// Two recordings into one log destroyed it.
#[test]
fn a_log_is_written_by_one_recording_at_a_time() {
    let dir = tempfile::tempdir().unwrap();
    let log = record(dir.path(), "ext4", "echo a > a; sync a");
    let whole = std::fs::read(&log).unwrap();
    let held = std::fs::File::open(&log).unwrap();
    held.try_lock().unwrap();
    let output = iopath(&["crash", "record", &log, "--", "true"]);
    assert_eq!(output.status.code(), Some(125), "{}", shown(&output));
    assert!(text(&output.stderr).contains("another recording"), "{}", shown(&output));
    assert_eq!(std::fs::read(&log).unwrap(), whole);
}

/// Marks and names reached the terminal as they were.
#[test]
fn a_report_has_no_control_characters() {
    let dir = tempfile::tempdir().unwrap();
    let program = "printf '\\033[2Jcleared\\n' > \"$IOPATH_CRASH_MARKS\"; echo a > a; sync a .
                   $IOPATH crash mark \"$(printf '\\033[2Jagain')\"";
    let log = record(dir.path(), "ext4", program);
    let output = iopath(&["crash", "explore", &log, "--", "sh", "-c", "test ! -e a"]);
    assert_eq!(output.status.code(), Some(1), "{}", shown(&output));
    let report = text(&output.stdout);
    assert!(report.contains(r"\x1b[2Jcleared") && !report.contains('\x1b'), "{report}");
}

/// A torn file was reported as a missing one: taking back losses went over to another failure.
#[test]
fn two_kinds_of_failure_are_two_findings() {
    let dir = tempfile::tempdir().unwrap();
    let program = r#"import mmap, os, subprocess
here = os.open(".", os.O_RDONLY)
f = os.open("f", os.O_CREAT | os.O_RDWR | os.O_DIRECT)
page = mmap.mmap(-1, 16384)
page.write(b"1" * 16384)
os.pwritev(f, [page], 0)
os.fsync(f)
os.fsync(here)
g = os.open("g", os.O_CREAT | os.O_WRONLY)
os.write(g, b"g")
subprocess.check_call([os.environ["IOPATH"], "crash", "mark", "saved"])
page.seek(0)
page.write(b"2" * 16384)
os.pwritev(f, [page], 0)
"#;
    let check = r#"
kinds=$(test ! -s f || fold -w 1 f | sort -u | tr -d '\n')
case $kinds in 12) echo "integrity: $kinds"; exit 1;; esac
test -z "$IOPATH_CRASH_LAST_MARK" || test -s g || { echo "durability: g"; exit 1; }
"#;
    let log = record(dir.path(), "ext4", program);
    let (code, found) = explore(&log, &["--", "sh", "-c", check]);
    assert_eq!(code, Some(1), "{found}");
    let said = found["findings"].to_string();
    assert!(said.contains("integrity: 12") && said.contains("durability: g"), "{found}");
}

/// Results were kept after 256 states only: a slow check was begun again and again.
#[test]
fn results_are_kept_from_the_beginning() {
    let dir = tempfile::tempdir().unwrap();
    let program = "for i in $(seq 20); do echo $i > f$i; sync f$i; done";
    let log = record(dir.path(), "ext4", program);
    let results = dir.path().join("r.jsonl");
    let processors = std::thread::available_parallelism().unwrap().get();
    let check = format!("test $IOPATH_CRASH_STATE -lt {} || kill -KILL $PPID", 8 * processors);
    let output = Command::new(IOPATH)
        .args(["crash", "explore", &log, "--results"])
        .arg(&results)
        .args(["--", "sh", "-c", &check])
        .output()
        .unwrap();
    assert_eq!(output.status.code(), None, "killed: {}", shown(&output));
    let kept = std::fs::read_to_string(&results).unwrap();
    assert!(kept.lines().next().is_some_and(|line| line.contains("\"complete\":false")), "{kept}");
}

/// A disk of more than a gigabyte was in memory all the same.
#[test]
fn a_large_disk_lies_beside_the_log() {
    let dir = tempfile::tempdir().unwrap();
    let log = dir.path().join("run.log").display().to_string();
    let look = format!("ls {}/iopath-crash-*/disk.img", dir.path().display());
    let record = ["crash", "record", &log, "--size", "1100M", "--", "sh", "-c", &look];
    let output = iopath(&record);
    assert_eq!(output.status.code(), Some(0), "{}", shown(&output));
    assert_eq!(names(dir.path()), [Path::new(&log)]);
}

/// A mark without the end of its line kept the recording waiting for ever; one with a NUL, or a
/// long one, could not be given to a check; a client of the socket that said nothing kept all
/// others waiting.
#[test]
fn any_mark_is_taken() {
    let dir = tempfile::tempdir().unwrap();
    let program = r#"import os, socket, subprocess
mark = lambda text: subprocess.check_call([os.environ["IOPATH"], "crash", "mark", text])
s = socket.socket(socket.AF_UNIX)
s.connect(os.environ["IOPATH_CRASH_SOCKET"])
mark("m" * 100000)
fifo = open(os.environ["IOPATH_CRASH_MARKS"], "wb", buffering=0)
fifo.write(b"a\0b\n")
fifo.write(b"half")
"#;
    let program = program.replace("IOPATH_CRASH_SOCKET", crash::mark::SOCKET);
    let log = record(dir.path(), "ext4", &program);
    let (code, found) =
        explore(&log, &["--", "sh", "-c", "test ${#IOPATH_CRASH_LAST_MARK} -lt 40000"]);
    assert_eq!(code, Some(0), "{found}");
    let log = crash::Log::open(Path::new(&log)).unwrap();
    let marks = log.marks(log.len());
    assert_eq!((marks.len(), marks[0].len()), (3, 100_000));
    assert_eq!(marks[1..], ["a\0b", "half"]);
}

/// Two containers with one place for temporary directories had the same names.
#[test]
fn two_namespaces_have_one_place() {
    let dir = tempfile::tempdir().unwrap();
    let log = record(dir.path(), "ext4", "echo a > a; sync a");
    let place = dir.path().join("place");
    std::fs::create_dir(&place).unwrap();
    let other = dir.path().join("other").display().to_string();
    let mut first = Command::new("unshare");
    first.args(["--pid", "--fork", "--mount-proc", IOPATH, "crash", "explore", &log, "--"]);
    let wait = format!("echo on >> '{other}.on'; while test ! -e '{other}'; do sleep 0.01; done");
    let mut first = first.args(["sh", "-c", &wait]).env("TMPDIR", &place).spawn().unwrap();
    while !Path::new(&format!("{other}.on")).exists() {
        std::thread::yield_now();
    }
    let second = ["unshare", "--pid", "--fork", "--mount-proc", IOPATH, "crash", "explore", &log];
    let output = run(&[&second[..], &["--", "true"]].concat(), dir.path(), Some(&place));
    assert_eq!(output.status.code(), Some(0), "{}", shown(&output));
    std::fs::write(&other, "").unwrap();
    assert_eq!(first.wait().unwrap().code(), Some(0));
    assert!(names(&place).is_empty(), "{:?}", names(&place));
}

/// What `-o noauto_da_alloc` gives up was called a broken promise of the file system; and a program
/// that ends before any timer of the file system was said to lose nothing.
#[test]
fn an_oracle_knows_how_the_file_system_was_mounted() {
    let dir = tempfile::tempdir().unwrap();
    let log = dir.path().join("run.log").display().to_string();
    let program = "echo old > f; sync f .; echo new > g; mv g f";
    for (fs, options, code) in [
        ("ext4", &["-o", "dioread_lock,noauto_da_alloc"][..], Some(1)),
        ("ext4", &["-o", "dioread_lock"], Some(0)),
        ("ext4", &[], Some(1)),
        ("xfs", &[], Some(1)),
    ] {
        let record = ["crash", "record", &log, "--fs", fs, "--", "sh", "-c", program];
        let output = iopath(&[options, &record].concat());
        assert!(output.status.success(), "{}", shown(&output));
        let (found, findings) = explore(&log, &["--oracle", fs]);
        assert_eq!(found, code, "{fs} {options:?}: {findings}");
        if code == Some(1) {
            assert_eq!(findings["findings"][0]["verdict"], "unsynced", "{findings}");
        }
    }
}

/// A shell that becomes iopath by `exec` leaves it its own children; they were ended as if a check
/// had left them, and with them who wrote down what iopath printed.
#[test]
fn children_of_the_shell_before_are_left_alone() {
    let dir = tempfile::tempdir().unwrap();
    let log = record(dir.path(), "ext4", "echo a > a; sync a");
    for command in ["crash explore LOG -- true", "-q crash record LOG -- true"] {
        let command = command.replace("LOG", &log);
        let program = format!(
            "exec > >(sleep 0.2; cat > tee)
             sleep 1000 & echo $! > first; setsid sleep 1001 & echo $! > last
             exec $IOPATH {command}"
        );
        let mut shell = Command::new("bash");
        shell.args(["-c", &program]).current_dir(dir.path()).env("IOPATH", IOPATH);
        let status = shell.stdout(Stdio::null()).stderr(Stdio::null()).status().unwrap();
        assert_eq!(status.code(), Some(0), "{command}");
        for (file, name) in [("first", "sleep 1000"), ("last", "sleep 1001")] {
            let pid = std::fs::read_to_string(dir.path().join(file)).unwrap();
            let pid: u32 = pid.trim().parse().unwrap();
            let line = std::fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            assert_eq!(line.replace('\0', " ").trim(), name, "{command}");
            testkit::judge::run_ok("kill", &[&pid.to_string()]);
        }
        while !std::fs::read_to_string(dir.path().join("tee"))
            .is_ok_and(|text| command.contains("record") || text.contains("0 wrong"))
        {
            std::thread::yield_now();
        }
        std::fs::remove_file(dir.path().join("tee")).unwrap();
    }
}

/// What lies below a bind mount was unmounted where it is at home, too: mounts are shared on most
/// machines.
#[test]
fn what_a_shared_mount_holds_stays_mounted() {
    let dir = tempfile::tempdir().unwrap();
    record(dir.path(), "ext4", "echo a > a; sync a");
    let here = dir.path().display();
    let explore = "crash explore run.log --disk nvme-awun=4K --max-states 1";
    let check = format!("-- sh -c 'mkdir -p m; mount --rbind {here}/host m'");
    for command in [
        format!("{explore} {check}"),
        format!("{explore} --recover kernel {check}"),
        format!("-q crash record other.log {check}"),
    ] {
        // Machines as systemd sets them up.
        let script = format!(
            "mkdir -p host; mount -t tmpfs none host; mount --make-shared host; mkdir host/sub
             mount -t tmpfs none host/sub; echo kept > host/sub/file
             $IOPATH {command}; status=$?
             test \"$(cat host/sub/file)\" = kept && exit $status"
        );
        let words = ["unshare", "-m", "bash", "-c", &script];
        let output = run(&words, dir.path(), Some(dir.path()));
        let done = if command.contains("explore") { 75 } else { 0 };
        assert_eq!(output.status.code(), Some(done), "{command}: {}", shown(&output));
    }
}

/// Whoever gave root a log had a set-user-ID program of root; a FIFO of two names ended the
/// exploration; a message with the directory of the check was another kind in each run.
#[test]
fn a_tree_holds_nothing_that_harms() {
    let dir = tempfile::tempdir().unwrap();
    let program = "cp /usr/bin/id x; chown 65534 x; chmod 4755 x; mkfifo p; ln p q; sync x .";
    let log = record(dir.path(), "ext4", program);
    let check = "test ! -e x || { test ! -u x || exit 1; echo \"$PWD/x\"; exit 2; }";
    let looks = || {
        let (code, found) = explore(&log, &["--", "sh", "-c", check]);
        assert_eq!(code, Some(1), "{found}");
        let findings = found["findings"].as_array().unwrap();
        assert_eq!(findings.len(), 1, "{found}");
        let message = findings[0]["message"].as_str().unwrap();
        assert!(message.starts_with("check: exit status 2: "), "{found}");
        message.chars().filter(|c| !c.is_ascii_digit()).collect::<String>()
    };
    assert_eq!(looks(), looks());
}

/// An older log was emptied by a recording that could not begin.
#[test]
fn a_recording_that_cannot_begin_leaves_the_log() {
    let dir = tempfile::tempdir().unwrap();
    let log = record(dir.path(), "ext4", "echo a > a; sync a");
    let whole = std::fs::read(&log).unwrap();
    let record =
        ["crash", "record", &log, "--kernel", "--kernel-options", "nonsense", "--", "true"];
    let output = iopath(&record);
    assert_eq!(output.status.code(), Some(125), "{}", shown(&output));
    assert_eq!(std::fs::read(&log).unwrap(), whole);
}

/// A recording went on as long as somebody else looked into the mount.
#[test]
fn a_recording_ends_where_others_look_into_it() {
    for user in [&[], NOBODY] {
        let dir = tempfile::tempdir().unwrap();
        std::fs::set_permissions(dir.path(), Permissions::from_mode(0o777)).unwrap();
        let path = |name: &str| dir.path().join(name).display().to_string();
        let [log, at, go] = ["run.log", "at", "go"].map(path);
        let program = format!(
            "echo a > a; sync a; pwd > '{at}.new'; mv '{at}.new' '{at}'; while test ! -e '{go}'; do
             sleep 0.01; done"
        );
        let start = |words: &[&str]| {
            let words = [user, words].concat();
            let mut command = Command::new(words[0]);
            command.args(&words[1..]).stdin(Stdio::piped()).stdout(Stdio::piped());
            command.env("TMPDIR", dir.path()).spawn().unwrap()
        };
        let mut record =
            start(&[IOPATH, "-q", "crash", "record", &log, "--", "sh", "-c", &program]);
        while !Path::new(&at).exists() {
            std::thread::yield_now();
        }
        let mount = std::fs::read_to_string(&at).unwrap();
        let mut looks = start(&["sh", "-c", "cd \"$0\" && echo in && read _", mount.trim()]);
        let mut said = [0; 3];
        looks.stdout.take().unwrap().read_exact(&mut said).unwrap();
        std::fs::write(&go, "").unwrap();
        assert_eq!(record.wait().unwrap().code(), Some(0), "as {user:?}");
        assert!(looks.try_wait().unwrap().is_none(), "it is still in the directory");
        drop(looks.stdin.take());
        looks.wait().unwrap();
        let log = crash::Log::open(Path::new(&log)).unwrap();
        assert!(!log.is_empty());
    }
}

/// With the umask of a hardened machine a command that becomes another user could not mark.
#[test]
fn marks_do_not_depend_on_the_umask() {
    let dir = tempfile::tempdir().unwrap();
    let log = dir.path().join("run.log").display().to_string();
    let become_nobody = NOBODY.join(" ");
    let script = format!(
        "umask 077; nobody='{become_nobody}'
         \"$IOPATH\" crash record '{log}' -- $nobody sh -c 'echo x > $IOPATH_CRASH_MARKS' &&
         \"$IOPATH\" crash explore '{log}' -- $nobody sh -c 'cat $IOPATH_CRASH_MARKS'"
    );
    let output = run(&["sh", "-c", &script], Path::new("/"), Some(Path::new("/dev/shm")));
    assert_eq!(output.status.code(), Some(0), "{}", shown(&output));
    let log = crash::Log::open(Path::new(&log)).unwrap();
    assert_eq!(log.marks(log.len()), ["x"]);
}

/// The oracle read large holes byte by byte, and did not come to an end.
#[test]
fn the_oracle_passes_over_holes() {
    let dir = tempfile::tempdir().unwrap();
    let program = "truncate -s 60G a; sync a
                   printf end | dd of=a bs=1 seek=64424509437 conv=notrunc status=none; sync a
                   echo over | dd of=a bs=4096 seek=1000 conv=notrunc status=none";
    for (fs, rules) in [("ext4", "ext4"), ("xfs", "xfs")] {
        let log = record(dir.path(), fs, program);
        let (code, found) = explore(&log, &["--oracle", rules]);
        assert_eq!(code, Some(0), "{fs}: {found}");
    }
}

/// Where the parent ignores SIGCHLD, as some daemons do, no program's end was known.
#[test]
fn a_parent_may_ignore_its_children() {
    let dir = tempfile::tempdir().unwrap();
    let start = r#"import os, signal, sys
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
os.execvp(sys.argv[1], sys.argv[1:])
"#;
    let log = dir.path().join("run.log").display().to_string();
    let words = ["python3", "-c", start, IOPATH, "crash"];
    let record = ["record", &log, "--", "sh", "-c", "echo a > a; sync a"];
    let output = run(&[&words[..], &record].concat(), dir.path(), None);
    assert_eq!(output.status.code(), Some(0), "{}", shown(&output));
    for more in [&[][..], &["--recover", "kernel", "--disk", "nvme-awun=4K", "--max-states", "2"]] {
        let explore = [&words[..], &["explore", &log], more, &["--", "true"]].concat();
        let output = run(&explore, dir.path(), Some(dir.path()));
        let done = if more.is_empty() { 0 } else { 75 };
        assert_eq!(output.status.code(), Some(done), "{}", shown(&output));
    }
}

/// The keys of an object, and of all objects in it but the options of a plan.
fn keys(value: &serde_json::Value, into: &mut std::collections::BTreeSet<String>) {
    match value {
        serde_json::Value::Object(object) => {
            for (key, value) in object {
                into.insert(key.clone());
                if key != "plan" {
                    keys(value, into);
                }
            }
        }
        serde_json::Value::Array(values) => values.iter().for_each(|value| keys(value, into)),
        _ => {}
    }
}

/// Goal: each key that the commands print is in the documentation.
#[test]
fn the_keys_of_the_json_are_documented() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name).display().to_string();
    let (log, results) = (path("run.log"), path("r.jsonl"));
    let program = "head -c 6000 /dev/urandom > a; sync a .; $IOPATH crash mark x; \
                   head -c 6000 /dev/urandom | dd of=a conv=notrunc status=none; sync a";
    let check = "test ! -e a -o ! -s \"$IOPATH_CRASH_MARKS\"";
    let parse = |output: Output| -> serde_json::Value {
        serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{}", shown(&output)))
    };
    let mut found = std::collections::BTreeSet::new();
    let record = ["--json", "crash", "record", &log, "--", "sh", "-c", program];
    keys(&parse(iopath(&record)), &mut found);
    let explore = ["--json", "crash", "explore", &log, "--results", &results];
    let explored = parse(iopath(&[&explore[..], &["--", "sh", "-c", check]].concat()));
    assert!(explored["findings"].as_array().is_some_and(|all| !all.is_empty()), "{explored}");
    keys(&explored, &mut found);
    keys(&parse(iopath(&["crash", "merge", &results])), &mut found);
    // A write that a state lost.
    let writes = ["crash", "explore", &log, "--cut", "3,lost:1", "--json", "--", "false"];
    keys(&parse(iopath(&writes)), &mut found);
    assert!(found.contains("kept_bytes") && found.contains("kinds"), "{found:?}");
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/crash.md");
    let page = std::fs::read_to_string(page).unwrap();
    let section = page.split("\n## JSON\n").nth(1).unwrap().split("\n## ").next().unwrap();
    found.retain(|key| !section.contains(&format!("`{key}`")));
    assert!(found.is_empty(), "not in docs/crash.md: {found:?}");
}

/// Starts an exploration whose checks report their numbers in files of a directory, and waits for
/// the first.
fn explore_until_a_check_runs(dir: &Path, log: &str, more: &[&str], check: &str) -> (Child, u32) {
    let check = format!("echo $$ > {0}/pid.new; mv {0}/pid.new {0}/pid; {check}", dir.display());
    let mut command = Command::new(IOPATH);
    command.args(["-q", "crash", "explore", log, "-j", "1"]).args(more);
    command.args(["--", "sh", "-c", &check]).stdout(Stdio::piped());
    let child = command.spawn().unwrap();
    let number = loop {
        let told = std::fs::read_to_string(dir.join("pid")).unwrap_or_default();
        match told.trim().parse() {
            Ok(number) => break number,
            Err(_) => std::thread::yield_now(),
        }
    };
    (child, number)
}

fn signal(pid: u32, signal: Signal) {
    let pid = rustix::process::Pid::from_raw(pid as i32).unwrap();
    rustix::process::kill_process(pid, signal).unwrap();
}

/// The checks that a signal ended, and those that had it too, were findings: for ever, in results.
#[test]
fn a_signal_makes_no_findings() {
    for to_the_check in [false, true] {
        let dir = tempfile::tempdir().unwrap();
        let log = record(dir.path(), "ext4", "echo a > a; sync a");
        let results = dir.path().join("r.jsonl").display().to_string();
        let more = ["--results", &results];
        let (mut child, check) = explore_until_a_check_runs(dir.path(), &log, &more, "sleep 1000");
        if to_the_check {
            signal(check, Signal::TERM);
        }
        signal(child.id(), Signal::TERM);
        assert_eq!(child.wait().unwrap().code(), Some(75));
        let lines = std::fs::read_to_string(&results).unwrap();
        assert!(!lines.contains("killed"), "{lines}");
        let wrong = lines.lines().last().map_or(0, |line| {
            let line: serde_json::Value = serde_json::from_str(line).unwrap();
            line["outcome"]["wrong"].as_u64().unwrap()
        });
        assert_eq!(wrong, 0, "{lines}");
    }
}

/// Time in which a scheduler had suspended the job was the check's.
#[test]
fn time_in_which_a_job_is_stopped_does_not_count() {
    let dir = tempfile::tempdir().unwrap();
    let log = record(dir.path(), "ext4", "echo a > a; sync a");
    let more = ["--timeout", "1", "--max-states", "1"];
    let (mut child, check) = explore_until_a_check_runs(dir.path(), &log, &more, "sleep 0.5");
    [child.id(), check].into_iter().for_each(|pid| signal(pid, Signal::STOP));
    testkit::judge::run_ok("sleep", &[&"1.5"]);
    [child.id(), check].into_iter().for_each(|pid| signal(pid, Signal::CONT));
    let mut said = String::new();
    child.stdout.take().unwrap().read_to_string(&mut said).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(75), "{said}");
}

/// Checks that cannot run beside each other failed, and nothing said why.
#[test]
fn one_check_runs_at_a_time_where_that_is_asked_for() {
    let dir = tempfile::tempdir().unwrap();
    let log = record(dir.path(), "ext4", "for i in 1 2 3 4; do echo $i > a; sync a; done");
    let lock = dir.path().join("lock").display().to_string();
    let check = format!("mkdir {lock} || exit 1; sleep 0.005; rmdir {lock}");
    let (code, found) = explore(&log, &["--jobs", "1", "--", "sh", "-c", &check]);
    assert_eq!(code, Some(0), "{found}");
    assert!(found["trees"].as_u64() > Some(3), "{found}");
}

/// A page of the user was written over; a file system that the log does not have was damage.
#[test]
fn what_cannot_be_is_refused_by_name() {
    let dir = tempfile::tempdir().unwrap();
    let log = record(dir.path(), "ext4", "echo a > a; sync a");
    let page = dir.path().join("mine.html").display().to_string();
    std::fs::write(&page, "<!doctype html>\n<title>mine</title>").unwrap();
    for (more, words) in [
        (["--html", &page], "mine.html"),
        (["--fs", "xfs"], "the log says that it is ext4"),
        (["--results", &log], "this is the log"),
    ] {
        let output = iopath(&[&["crash", "explore", &log], &more[..]].concat());
        assert_eq!(output.status.code(), Some(2), "{}", shown(&output));
        assert!(text(&output.stderr).contains(words), "{}", shown(&output));
    }
    assert!(std::fs::read_to_string(&page).unwrap().contains("mine"));
    let report = dir.path().join("report.html").display().to_string();
    for _ in 0..2 {
        let (code, found) = explore(&log, &["--html", &report]);
        assert_eq!(code, Some(0), "{found}");
    }
}

/// Runs an exploration with a program in front of those of `$PATH`.
fn explore_with(dir: &Path, name: &str, script: &str, args: &[&str]) -> Output {
    let path = dir.join(name);
    std::fs::write(&path, format!("#!/bin/sh\n{script}\n")).unwrap();
    std::fs::set_permissions(&path, Permissions::from_mode(0o755)).unwrap();
    let folders = format!("{}:{}", dir.display(), std::env::var("PATH").unwrap());
    Command::new(IOPATH).args(args).env("PATH", folders).output().unwrap()
}

/// An e2fsck that fails itself was said to have found damage.
#[test]
fn a_judge_that_fails_is_no_finding() {
    let dir = tempfile::tempdir().unwrap();
    let log = record(dir.path(), "ext4", "echo a > a; sync a");
    for script in ["exit 8", "kill -9 $$"] {
        let args = ["crash", "explore", &log, "--outside", "1"];
        let output = explore_with(dir.path(), "e2fsck", script, &args);
        assert_eq!(output.status.code(), Some(2), "{script}: {}", shown(&output));
        assert!(text(&output.stderr).contains("e2fsck"), "{}", shown(&output));
    }
}

/// A script was not known by its content where its interpreter is in no folder of `$PATH`.
#[test]
fn results_are_those_of_one_script() {
    let dir = tempfile::tempdir().unwrap();
    let log = record(dir.path(), "ext4", "echo a > a; sync a");
    let place = |name: &str| dir.path().join(name).display().to_string();
    let [shell, script, results] = ["shell", "script", "r.jsonl"].map(place);
    std::os::unix::fs::symlink("/bin/sh", &shell).unwrap();
    let args = ["crash", "explore", &log, "--results", &results, "--", &shell, &script];
    for (content, code) in [("exit 0", 0), ("exit 1", 2)] {
        std::fs::write(&script, content).unwrap();
        let output = iopath(&args);
        assert_eq!(output.status.code(), Some(code), "{}", shown(&output));
    }
}

/// Closes did not come through FUSE: a file that was cut, written and closed was empty after the
/// next commit.
#[test]
fn what_was_cut_is_written_out_when_it_is_closed() {
    let dir = tempfile::tempdir().unwrap();
    let log = dir.path().join("run.log").display().to_string();
    let program = "echo old > f; sync f .; exec 3< f; echo new > f; sleep 0.2; echo g > g; sync g; \
                   $IOPATH crash mark saved";
    let check = "test -z \"$IOPATH_CRASH_LAST_MARK\" || grep -q new f || { cat f; exit 1; }";
    for (fs, options) in [("ext4", &["-o", "dioread_lock"][..]), ("xfs", &[])] {
        let record = ["crash", "record", &log, "--fs", fs, "--", "sh", "-c", program];
        let output = iopath(&[options, &record].concat());
        assert!(output.status.success(), "{}", shown(&output));
        let more = ["--disk", "protected", "--", "sh", "-c", check];
        let (code, found) = explore(&log, &more);
        assert_eq!(code, Some(0), "{fs}: {found}");
    }
}
