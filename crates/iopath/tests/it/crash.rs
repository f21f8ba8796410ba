//! `iopath crash` as users see it: shell programs that save a file are recorded on a real mount,
//! the careful one passes, the careless one is found with its story; shards, results and merging;
//! bad logs and bad checks. Needs FUSE.

use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;

/// Saves a file three times; `$1` syncs the new file or does not.
const SAVE: &str = r#"
for i in 1 2 3; do
  echo "save $i" > new
  $1 new
  mv new file
  sync .
  "$IOPATH" crash mark "saved $i"
done
echo "all saved" > "$IOPATH_CRASH_MARKS"
"#;

/// The last save that was marked, or a later one, is there.
const CHECK: &str = r#"
n=$(grep -c "^saved" "$IOPATH_CRASH_MARKS")
test "$n" -eq 0 && exit 0
got=$(cut -d' ' -f2 file) || exit 1
test "${got:-0}" -ge "$n" || { echo "saved $n, found '$got'"; exit 1; }
"#;

pub(crate) const IOPATH: &str = env!("CARGO_BIN_EXE_iopath");

pub(crate) fn iopath(args: &[&str]) -> Output {
    let mut command = Command::new(IOPATH);
    command.args(args).env("IOPATH", IOPATH);
    command.output().expect("the command starts")
}

pub(crate) fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

pub(crate) fn shown(output: &Output) -> String {
    format!("{}: {}{}", output.status, text(&output.stdout), text(&output.stderr))
}

/// Records the program that syncs with `sync` into a log in `dir`.
fn record(dir: &Path, fs: &str, sync: &str) -> String {
    let log = dir.join(format!("{fs}-{sync}.log")).display().to_string();
    let output = iopath(&["crash", "record", &log, "--fs", fs, "--", "sh", "-c", SAVE, "sh", sync]);
    assert!(output.status.success(), "{}", shown(&output));
    log
}

pub(crate) fn explore(log: &str, more: &[&str]) -> (Option<i32>, Value) {
    let mut args = vec!["--json", "crash", "explore", log];
    args.extend(more);
    let output = iopath(&args);
    let document = serde_json::from_slice(&output.stdout);
    (output.status.code(), document.unwrap_or_else(|e| panic!("{e}: {}", shown(&output))))
}

#[test]
fn a_careful_program_passes_and_a_careless_one_is_found() {
    let dir = tempfile::tempdir().unwrap();
    for fs in ["ext4", "xfs"] {
        let good = record(dir.path(), fs, "sync");
        let (code, found) = explore(&good, &["--outside", "20", "--", "sh", "-c", CHECK]);
        assert_eq!((code, &found["wrong"]), (Some(0), &0.into()), "{fs}: {found}");
        assert!(found["judged"].as_u64() > Some(20) && found["complete"] == true, "{found}");
        let bad = record(dir.path(), fs, "true");
        let page = dir.path().join("report.html");
        let page_name = page.display().to_string();
        let (code, found) = explore(&bad, &["--html", &page_name, "--", "sh", "-c", CHECK]);
        assert_eq!(code, Some(1), "{fs}: {found}");
        let finding = &found["findings"][0];
        let message = finding["message"].as_str().unwrap();
        assert!(message.contains("found ''"), "{fs}: {finding}");
        assert!(finding["before"].to_string().contains("saved"), "{fs}: {finding}");
        let page = std::fs::read_to_string(&page).unwrap();
        assert!(page.contains("<svg") && page.contains("saved 1"), "{page}");
        // The command that it names judges that state again; its disk can be looked at.
        let again = finding["repeat"].as_str().unwrap();
        assert!(page.contains("--cut ") && finding["picture"].as_str().unwrap().contains('|'));
        let path = format!("{}:{}", folder_of(IOPATH), std::env::var("PATH").unwrap());
        let again = Command::new("sh").args(["-c", again]).env("PATH", path).output().unwrap();
        assert_eq!(again.status.code(), Some(1), "{fs}: {}", shown(&again));
        assert!(text(&again.stdout).contains(message), "{message}: {}", shown(&again));
        let image = dir.path().join(format!("{fs}.img")).display().to_string();
        let (code, found) =
            explore(&bad, &["--cut", finding["cut"].as_str().unwrap(), "--image", &image]);
        assert_eq!((code, &found["judged"]), (Some(0), &1.into()), "{found}");
        assert!(text(&iopath(&["ls", &format!("{image}:/")]).stdout).contains("file"), "{fs}");
        let wrong = iopath(&["crash", "explore", &bad, "--cut", "5,lost:99999"]);
        assert_eq!(wrong.status.code(), Some(2), "{}", shown(&wrong));
    }
}

fn folder_of(program: &str) -> String {
    Path::new(program).parent().unwrap().display().to_string()
}

/// Programs are named from where the user is, as the examples of `--help` do; what is no program is
/// refused before anything is done.
#[test]
fn programs_are_found_from_where_the_user_is() {
    use std::os::unix::fs::PermissionsExt;
    let dir = tempfile::tempdir().unwrap();
    let mode = |name: &str, mode| {
        let path = dir.path().join(name);
        std::fs::write(&path, "#!/bin/sh\necho a > b; sync b .\n").unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
    };
    mode("my-test", 0o755);
    mode("no-program", 0o644);
    let run = |words: &str| {
        let mut command = Command::new(IOPATH);
        command.args(words.split(' ')).current_dir(dir.path()).output().unwrap()
    };
    let output = run("crash record run.log -- ./my-test");
    assert!(output.status.success(), "{}", shown(&output));
    let output = run("crash explore run.log --max-states 2 -- ./my-test");
    assert_eq!(output.status.code(), Some(75), "{}", shown(&output));
    let log = std::fs::read(dir.path().join("run.log")).unwrap();
    for (words, why) in [
        ("record run.log -- ./gone", "there is no such program"),
        (
            "record run.log -- my-test",
            "no such program in $PATH (one in this directory is ./my-test)",
        ),
        ("explore run.log -- ./no-program", "chmod +x"),
    ] {
        let output = run(&format!("crash {words}"));
        let status = if words.starts_with("explore") { 2 } else { 125 };
        assert_eq!(output.status.code(), Some(status), "{words}: {}", shown(&output));
        assert!(shown(&output).contains(why), "{words}: {}", shown(&output));
    }
    assert_eq!(std::fs::read(dir.path().join("run.log")).unwrap(), log, "it is as it was");
}

/// Two shards, one of them in three runs, find together what one run finds.
#[test]
fn shards_and_interrupted_runs_come_to_the_same() {
    let dir = tempfile::tempdir().unwrap();
    let log = record(dir.path(), "ext4", "true");
    let name = |number: u32| dir.path().join(format!("{number}.jsonl")).display().to_string();
    let (_, whole) = explore(&log, &["--", "sh", "-c", CHECK]);
    let (one, two) = (name(1), name(2));
    explore(&log, &["--shard", "1/2", "--results", &one, "--", "sh", "-c", CHECK]);
    let part = ["--shard", "2/2", "--results", &two, "--max-states", "6", "--", "sh", "-c", CHECK];
    explore(&log, &part);
    // A killed run leaves half a line.
    let mut half = std::fs::read(&two).unwrap();
    half.extend_from_slice(b"{\"plan\":");
    std::fs::write(&two, half).unwrap();
    explore(&log, &part);
    explore(&log, &["--shard", "2/2", "--results", &two, "--", "sh", "-c", CHECK]);
    let part = iopath(&["crash", "merge", &two]);
    assert!(text(&part.stdout).contains("\"complete\":false"), "{}", shown(&part));
    assert!(text(&part.stderr).contains("no results of 1/2"), "{}", shown(&part));
    let merged = iopath(&["crash", "merge", &one, &two]);
    assert_eq!(merged.status.code(), Some(1), "{}", shown(&merged));
    let merged: Value = serde_json::from_slice(&merged.stdout).unwrap();
    let outcome = &merged["outcome"];
    for key in ["judged", "wrong", "distinct"] {
        assert_eq!(outcome[key], whole[key], "{key}");
    }
    assert_eq!(outcome["complete"], true);
    let messages = |findings: &Value| -> Vec<Value> {
        let findings = findings.as_array().unwrap().iter();
        findings.map(|finding| finding["message"].clone()).collect()
    };
    assert_eq!(messages(&outcome["findings"]), messages(&whole["findings"]));
    let twice = iopath(&["crash", "merge", &one, &one]);
    assert!(shown(&twice).contains("comes twice"), "{}", shown(&twice));
    let other = iopath(&["crash", "explore", &log, "--shard", "1/2", "--results", &one]);
    assert!(shown(&other).contains("check: \"sh -c "), "another check: {}", shown(&other));
    // Another log of the same command, of as many entries.
    let other = dir.path().join("other");
    std::fs::create_dir(&other).unwrap();
    let other = record(&other, "ext4", "true");
    let other = iopath(&[
        "crash",
        "explore",
        &other,
        "--shard",
        "1/2",
        "--results",
        &one,
        "--",
        "sh",
        "-c",
        CHECK,
    ]);
    assert_eq!(other.status.code(), Some(2), "{}", shown(&other));
    assert!(shown(&other).contains("log: "), "{}", shown(&other));
}

/// A check that hangs, or kills itself and leaves a process, is named, and ends nothing.
#[test]
fn checks_that_hang_or_die_are_named() {
    let dir = tempfile::tempdir().unwrap();
    let log = record(dir.path(), "ext4", "sync");
    let few = ["--max-states", "3", "--all-subsets", "0", "--timeout", "1", "--", "sh", "-c"];
    for (check, wanted) in [
        ("sleep 60", "still running after 1s"),
        ("sleep 60 & kill -9 $$", "killed by signal 9"),
        ("echo too bad; exit 7", "exit status 7: too bad"),
    ] {
        let (code, found) = explore(&log, &[&few[..], &[check]].concat());
        assert_eq!(code, Some(1), "{found}");
        assert!(found["findings"][0].to_string().contains(wanted), "{check}: {found}");
    }
}

#[test]
fn what_is_no_log_is_refused_by_name() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.log");
    let refused = |bytes: &[u8]| {
        std::fs::write(&path, bytes).unwrap();
        let output = iopath(&["crash", "explore", &path.display().to_string()]);
        assert_eq!(output.status.code(), Some(2));
        text(&output.stderr)
    };
    assert!(refused(b"#!/bin/sh\necho a\n").contains("not a crash log"));
    let log = record(dir.path(), "ext4", "sync");
    let mut bytes = std::fs::read(log).unwrap();
    // How far the half of it reaches depends on when it was written.
    assert!(refused(&bytes[..100]).contains("cut short"));
    // All entries are there, and the end of the log is not.
    std::fs::write(&path, &bytes[..bytes.len() - 9]).unwrap();
    let output = iopath(&["crash", "explore", &path.display().to_string()]);
    assert_eq!(output.status.code(), Some(0), "{}", shown(&output));
    assert!(text(&output.stderr).contains("its recording did not end"), "{}", shown(&output));
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    let said = refused(&bytes);
    assert!(said.contains("damaged") && said.contains("a.log"), "{said}");
    let output = iopath(&["crash", "mark", "a"]);
    assert!(text(&output.stderr).contains("IOPATH_CRASH_SOCKET is not set"));
    let output = iopath(&["crash", "explore", "a.log", "--disk", "ssd"]);
    assert!(text(&output.stderr).contains("known: volatile-cache"), "{}", shown(&output));
}

/// The status of a recorded command is that of the recording; a log is written all the same.
#[test]
fn a_command_that_fails_is_recorded() {
    let dir = tempfile::tempdir().unwrap();
    let log = dir.path().join("a.log").display().to_string();
    let output = iopath(&["crash", "record", &log, "--", "sh", "-c", "echo a > b; exit 3"]);
    assert_eq!(output.status.code(), Some(3), "{}", shown(&output));
    let (code, _) = explore(&log, &[]);
    assert_eq!(code, Some(0));
}

/// Records a program with faults, on a fresh file system or on an image; answers what it printed.
fn with_fault(log: &str, how: &[&str], fault: &str, program: &str) -> String {
    let faults: &[&str] = if fault.is_empty() { &[] } else { &["--fault", fault] };
    let args =
        [&["-q", "crash", "record", log], how, faults, &["--", "sh", "-c", program]].concat();
    let output = iopath(&args);
    assert!(output.status.success(), "{fault}: {}", shown(&output));
    text(&output.stdout).trim().replace('\n', " ")
}

/// What a program meets when the disk fails: once or from then on, on a write, on a flush; and that
/// a failed fsync has promised nothing, to the oracle.
#[test]
fn a_disk_that_fails_is_met_by_fsync() {
    let dir = tempfile::tempdir().unwrap();
    let log = dir.path().join("a.log").display().to_string();
    let program = r#"
        try() { if "$@" 2> "$TMP"; then echo ok; else sed 's/.*: //' "$TMP"; fi; }
        TMP=$(mktemp); trap 'rm "$TMP"' EXIT
        echo aaaa > f; try sync f; try sync f
        { echo bbbb > g; } 2> "$TMP" || echo "no g"
    "#;
    let (io, ro) = ("Input/output error", "Read-only file system");
    for (fs, fault, met) in [
        ("ext4", "", "ok ok".to_owned()),
        // The error is told once: the next fsync finds nothing to write.
        ("ext4", "eio-write=1", format!("{io} ok")),
        ("ext4", "eio-write=1..", format!("{io} {ro} no g")),
        ("ext4", "eio-fsync=1", format!("{io} {ro} no g")),
        ("xfs", "eio-write=1", format!("{io} ok")),
        ("xfs", "eio-write=1..", format!("{io} {io} no g")),
        ("xfs", "eio-fsync=1", format!("{io} {io} no g")),
    ] {
        assert_eq!(with_fault(&log, &["--fs", fs], fault, program), met, "{fs} {fault}");
        let (code, found) = explore(&log, &["--oracle", fs]);
        assert_eq!((code, &found["wrong"]), (Some(0), &0.into()), "{fs} {fault}: {found}");
    }
}

/// A program that calls fsync until it succeeds has lost what the first one did not write; one that
/// writes it again has not. (PostgreSQL did the former until 2018.)
#[test]
fn an_fsync_that_is_repeated_is_no_second_chance() {
    let dir = tempfile::tempdir().unwrap();
    let log = dir.path().join("a.log").display().to_string();
    let check = r#"grep -q saved "$IOPATH_CRASH_MARKS" || exit 0; grep -q aaaa f"#;
    for fs in ["ext4", "xfs"] {
        for (write, again, wanted) in [("echo aaaa > f", ":", 1), (":", "echo aaaa > f", 0)] {
            let program = format!(
                "{write}; until {again}; sync f 2>/dev/null; do :; done; sync .; \
                 \"$IOPATH\" crash mark saved"
            );
            with_fault(&log, &["--fs", fs], "eio-write=1", &program);
            let (code, found) = explore(&log, &["--", "sh", "-c", check]);
            assert_eq!(code, Some(wanted), "{fs} {again}: {found}");
        }
    }
}

/// A disk that is full at the second write call, once or for ever; a read that fails, once (nobody
/// notices) or for ever; a bit that flips, in content and in metadata.
#[test]
fn full_disks_and_bad_reads_are_met() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name).display().to_string();
    let (log, image, source) = (path("a.log"), path("disk.img"), path("f"));
    let program = r#"
        for text in a b c; do { echo $text >> f; } 2>/dev/null || echo "no $text"; done; cat f
    "#;
    for fs in ["ext4", "xfs"] {
        let met = |fault| with_fault(&log, &["--fs", fs], fault, program);
        assert_eq!(met("enospc=2"), "no b a c", "{fs}");
        assert_eq!(met("enospc=2.."), "no b no c a", "{fs}");
    }
    // Whole blocks: a bit of any read of it is a bit of its content.
    std::fs::write(&source, [b'x'; 20_480]).unwrap();
    assert!(iopath(&["mkfs", "--size", "64M", &image]).status.success());
    assert!(iopath(&["-q", "cp", &source, &format!("{image}:/f")]).status.success());
    let program = r#"tr -d x < f | wc -c; { cat f > /dev/null; } 2>/dev/null || echo failed"#;
    for (fault, met) in
        [("eio-read=2", "0"), ("eio-read=2..", "0 failed"), ("flip=2", "1"), ("flip=1", "failed")]
    {
        let found = with_fault(&log, &["--image", &image], fault, program);
        assert!(found.ends_with(met), "{fault}: {found}");
    }
}

/// What a check writes into its state is gone in the next one.
#[test]
fn a_check_that_writes_into_its_state_spoils_no_other() {
    let dir = tempfile::tempdir().unwrap();
    let log = record(dir.path(), "ext4", "sync");
    let check = "test ! -e spoiled || exit 1; echo a > spoiled; echo b > file; rm -rf new";
    let (code, found) = explore(&log, &["--", "sh", "-c", check]);
    assert_eq!((code, &found["wrong"]), (Some(0), &0.into()), "{found}");
    assert!(found["trees"].as_u64() > Some(2), "{found}");
}

/// Ctrl-C ends the checks that run and starts no more, and leaves nothing on the host.
#[test]
fn ctrl_c_leaves_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let log = record(dir.path(), "ext4", "sync");
    let scratch = dir.path().join("scratch");
    let check = format!("echo {} >/dev/null; sleep 1000 & sleep 2000", scratch.display());
    std::fs::create_dir(&scratch).unwrap();
    let mut command = Command::new(IOPATH);
    command
        .args(["crash", "explore", log.as_str(), "--", "sh", "-c", &check])
        .env("TMPDIR", &scratch);
    let explore = command.stderr(std::process::Stdio::piped()).spawn().unwrap();
    let empty = || scratch.read_dir().unwrap().next().is_none();
    while empty() {
        std::thread::yield_now();
    }
    testkit::judge::run_ok("kill", &[&"-INT", &explore.id().to_string()]);
    let output = explore.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(75), "{}", shown(&output));
    assert!(text(&output.stderr).contains("SIGINT: not complete"), "{}", shown(&output));
    assert!(empty());
    let running = Command::new("pgrep").args(["-af", &scratch.display().to_string()]).output();
    let running = running.expect("pgrep(1), of procps");
    assert!(running.stdout.is_empty(), "{}", shown(&running));
}

/// A log, or a report, is never written over something else.
#[test]
fn what_the_user_has_is_not_written_over() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name).display().to_string();
    let (image, log) = (path("a.img"), record(dir.path(), "ext4", "sync"));
    let made = iopath(&["-q", "mkfs", "--size", "16M", &image]);
    assert!(made.status.success(), "{}", shown(&made));
    let before = [&image, &log].map(|path| std::fs::read(path).unwrap());
    std::os::unix::fs::symlink(&image, path("link")).unwrap();
    for (args, status) in [
        (&["crash", "record", &image, "--image", &image, "--", "true"][..], 125),
        (&["crash", "record", &path("link"), "--image", &image, "--", "true"], 125),
        (&["serve", "nbd", "--listen", &path("s"), "--write", "--record", &image, &image], 1),
        (&["crash", "explore", &log, "--html", &log], 2),
    ] {
        let output = iopath(args);
        assert_eq!(output.status.code(), Some(status), "{args:?}: {}", shown(&output));
        assert!(text(&output.stderr).contains("not overwritten"), "{}", shown(&output));
    }
    assert!(before == [&image, &log].map(|path| std::fs::read(path).unwrap()));
    // An older log and an older report are.
    for _ in 0..2 {
        assert_eq!(iopath(&["crash", "record", &log, "--", "true"]).status.code(), Some(0));
        let (code, _) = explore(&log, &["--html", &path("a.html")]);
        assert_eq!(code, Some(0));
    }
    assert!(text(&std::fs::read(path("a.html")).unwrap()).contains("</html>"));
}

/// Begins a recording of a shell program that says on `a` in its file system that it runs.
fn recording(log: &str, program: &str) -> std::process::Child {
    let mut command = Command::new(IOPATH);
    command.args(["-q", "crash", "record", log, "--", "sh", "-c", program]).env("IOPATH", IOPATH);
    command.stdin(std::process::Stdio::null()).stdout(std::process::Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut line = [0; 3];
    std::io::Read::read_exact(child.stdout.as_mut().unwrap(), &mut line).unwrap();
    child
}

/// SIGTERM is for the command; what was done until then is in the log. A command that a signal ends
/// by itself has the status that a shell gives it.
#[test]
fn a_signal_ends_the_command_and_not_the_log() {
    let dir = tempfile::tempdir().unwrap();
    let log = dir.path().join("a.log").display().to_string();
    let program = "echo a > b; sync b; $IOPATH crash mark saved; echo on; sleep 1000 & sleep 2000";
    let child = recording(&log, program);
    testkit::judge::run_ok("kill", &[&"-TERM", &child.id().to_string()]);
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(143), "{}", shown(&output));
    let (code, found) = explore(&log, &["--", "sh", "-c", "test -s b"]);
    assert_eq!(code, Some(1), "before it was saved: {found}");
    let saved = "test -z \"$IOPATH_CRASH_LAST_MARK\" || test -s b";
    assert_eq!(explore(&log, &["--", "sh", "-c", saved]).0, Some(0));
    let ended = iopath(&["crash", "record", &log, "--", "sh", "-c", "kill -USR1 $$"]);
    assert_eq!(ended.status.code(), Some(138), "{}", shown(&ended));
}

/// Of a recording that is killed there is what was synced a moment before.
#[test]
fn a_killed_recording_is_there_as_far_as_it_went() {
    let dir = tempfile::tempdir().unwrap();
    let log = dir.path().join("a.log").display().to_string();
    let program = "echo a > b; sync b; $IOPATH crash mark saved; echo on; exec sleep 1000";
    let mut child = recording(&log, program);
    let whole = |log: &str| {
        crash::Log::open(Path::new(log)).is_ok_and(|log| !log.marks(log.len()).is_empty())
    };
    while !whole(&log) {
        std::thread::yield_now();
    }
    child.kill().unwrap();
    child.wait().unwrap();
    let left = || {
        let own = format!("iopath-crash-{}-", child.id());
        let entries = std::fs::read_dir("/dev/shm").unwrap().map(|entry| entry.unwrap());
        entries.filter(|entry| entry.file_name().to_string_lossy().starts_with(&own)).count()
    };
    assert_eq!(left(), 1);
    let saved = "test -z \"$IOPATH_CRASH_LAST_MARK\" || test -s b";
    let (code, found) = explore(&log, &["--", "sh", "-c", saved]);
    assert_eq!(code, Some(0), "{found}");
    assert_eq!(left(), 0, "with its mount, by the next one");
}

/// What a rename without fsync leaves, with the option of the mount that is for it and without.
#[test]
fn mount_options_are_those_of_the_recording() {
    let dir = tempfile::tempdir().unwrap();
    let log = dir.path().join("a.log").display().to_string();
    let program = "echo old > file; sync file .; $IOPATH crash mark saved; echo newer > new; \
                   mv new file; sync .; sync .";
    let check = "test -z \"$IOPATH_CRASH_LAST_MARK\" || grep -q '^[on]' file";
    for (options, found) in [
        ("dioread_nolock", Some(1)),
        ("dioread_lock,auto_da_alloc", Some(0)),
        ("dioread_lock,noauto_da_alloc", Some(1)),
    ] {
        let args = ["-o", options, "crash", "record", &log, "--", "sh", "-c", program];
        let output = iopath(&args);
        assert!(output.status.success(), "{}", shown(&output));
        let (code, story) = explore(&log, &["--", "sh", "-c", check]);
        assert_eq!(code, found, "{options}: {story}");
    }
    let refused = |more: &[&str], wanted: &str| {
        let args = [&["crash", "record", log.as_str()], more, &["--", "true"]].concat();
        let output = iopath(&args);
        assert_eq!(output.status.code(), Some(125), "{}", shown(&output));
        assert!(text(&output.stderr).contains(wanted), "{}", shown(&output));
    };
    refused(&["--fs", "xfs", "-o", "noauto_da_alloc"], "for ext2, ext3 and ext4");
    refused(&["--kernel", "-o", "noauto_da_alloc"], "--kernel-options");
    refused(&["--fs", "btrfs"], "add --kernel");
}

/// Signals are not held back in a check: timeout(1) ends what hangs in it.
#[test]
fn a_check_may_use_signals() {
    let dir = tempfile::tempdir().unwrap();
    let log = record(dir.path(), "ext4", "sync");
    let check = "timeout 0.05 sleep 1000; test $? = 124";
    let (code, found) = explore(&log, &["--max-states", "4", "--", "sh", "-c", check]);
    assert_eq!(code, Some(75), "not complete, and nothing wrong: {found}");
}

/// What the host cannot do was reported as wrong states: no room for the directory of the check, no
/// such directory, a check that cannot be started. It ends the exploration with one error.
#[test]
fn what_the_host_cannot_do_is_no_finding() {
    use std::os::unix::fs::PermissionsExt;
    let dir = tempfile::tempdir().unwrap();
    let log = record(dir.path(), "ext4", "sync");
    let path = |name: &str| dir.path().join(name).display().to_string();
    let refused = |more: &[&str], why: &str| {
        let output = iopath(&[&["crash", "explore", &log], more].concat());
        assert_eq!(output.status.code(), Some(2), "{more:?}: {}", shown(&output));
        let said = text(&output.stderr);
        assert!(said.contains(why) && output.stdout.is_empty(), "{more:?}: {}", shown(&output));
        said
    };
    let full = path("full");
    std::fs::create_dir(&full).unwrap();
    // Room for the root of the tmpfs and one directory.
    let options = "nr_inodes=2";
    testkit::judge::run_ok("mount", &[&"-t", &"tmpfs", &"-o", &options, &"tmpfs", &full]);
    let output = iopath(&["crash", "explore", &log, "--dir", &full, "--", "true"]);
    testkit::judge::run_ok("umount", &[&full]);
    assert_eq!(output.status.code(), Some(2), "{}", shown(&output));
    let said = text(&output.stderr);
    assert!(said.contains("No space left") && said.contains("--dir DIR"), "{said}");
    assert_eq!(said.lines().count(), 1, "{said}");
    let said = refused(&["--dir", &path("gone"), "--", "true"], "--dir DIR");
    assert!(said.contains(&path("gone")), "{said}");
    let script = |name: &str, text: &str| {
        std::fs::write(path(name), text).unwrap();
        std::fs::set_permissions(path(name), std::fs::Permissions::from_mode(0o755)).unwrap();
        path(name)
    };
    let gone = script("no-interpreter", "#!/gone/sh\nexit 0\n");
    refused(&["--", &gone], "/gone/sh: there is no such program");
    // As from a shell, a script without such a line is one of sh.
    let (code, found) = explore(&log, &["--", &script("of-sh", "test -d . && exit 0\n")]);
    assert_eq!((code, &found["wrong"]), (Some(0), &0.into()), "{found}");
}

/// A check's processes that had left its session, and those whose parents had ended, stayed; a
/// relative `--dir` gave the check a path of the marks that was none.
#[test]
fn what_a_check_leaves_running_is_killed() {
    let dir = tempfile::tempdir().unwrap();
    let log = record(dir.path(), "ext4", "sync");
    let name = format!("left-by-{}", std::process::id());
    // One in a session of its own, with a child; one whose environment says nothing; one that has
    // ended before the check.
    let check = format!(
        "test -e \"$IOPATH_CRASH_MARKS\" || exit 1
         exec >/dev/null 2>&1
         setsid sh -c 'sleep 7777 & sleep 7778; : {name}' &
         test $IOPATH_CRASH_STATE -gt 0 || setsid env -i sh -c 'sleep 7777; : {name}' &
         (true &); exit 0"
    );
    std::fs::create_dir(dir.path().join("scratch")).unwrap();
    // In a PID namespace too whose session began outside: it has the number 0 there.
    let namespace: &[&str] = &["unshare", "--pid", "--fork", "--mount-proc"];
    for prefix in [&[], namespace] {
        let args = ["crash", "explore", &log, "--dir", "scratch", "--", "sh", "-c", &check];
        let line = [prefix, &[IOPATH], &args].concat();
        let output = Command::new(line[0]).args(&line[1..]).current_dir(dir.path()).output();
        let output = output.expect("unshare(1), of util-linux");
        assert_eq!(output.status.code(), Some(0), "{}", shown(&output));
        let running = Command::new("pgrep").args(["-af", &name]).output();
        let running = running.expect("pgrep(1), of procps");
        assert!(running.stdout.is_empty(), "{}", shown(&running));
    }
    let left = std::fs::read_dir(dir.path().join("scratch")).unwrap().count();
    assert_eq!(left, 0);
}

/// Results of an exploration with other options were taken for those of this one, and nothing was
/// judged: without fsck, with the host's checker, by another's recovery, with another script below
/// the same name.
#[test]
fn results_of_other_options_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let log = record(dir.path(), "ext4", "sync");
    let path = |name: &str| dir.path().join(name).display().to_string();
    let (results, script) = (path("r.jsonl"), path("check"));
    std::fs::write(&script, "exit 0").unwrap();
    let run = |more: &[&str], script: &str| {
        let few = ["crash", "explore", &log, "--max-states", "2", "--results", &results];
        iopath(&[&few, more, &["--", "sh", script]].concat())
    };
    let output = run(&[], &script);
    assert_eq!(output.status.code(), Some(75), "{}", shown(&output));
    for (more, why) in [
        (&["--no-fsck"][..], "fsck: yes, not no"),
        (&["--outside", "1"], "outside: 0, not 1"),
        (&["--recover", "kernel"], "recover: ours, not kernel"),
        (&["--timeout", "3"], "timeout: 30, not 3"),
        (&["--seed", "2", "--samples", "3"], "samples: 12, not 3; seed: 1, not 2"),
    ] {
        let output = run(more, &script);
        assert_eq!(output.status.code(), Some(2), "{more:?}: {}", shown(&output));
        assert!(shown(&output).contains(why), "{more:?}: {}", shown(&output));
    }
    std::fs::write(&script, "exit 1").unwrap();
    let output = run(&[], &script);
    assert_eq!(output.status.code(), Some(2), "{}", shown(&output));
    assert!(shown(&output).contains("content of the check: "), "{}", shown(&output));
    std::fs::write(&script, "exit 0").unwrap();
    assert_eq!(run(&[], &script).status.code(), Some(75));
}

/// What a process that was killed had left stayed for ever. What a living one has made, or one that
/// is of another namespace and holds it locked, stays.
#[test]
fn what_a_killed_exploration_left_is_removed_by_the_next() {
    let dir = tempfile::tempdir().unwrap();
    let log = record(dir.path(), "ext4", "sync");
    let scratch = dir.path().join("scratch");
    let mut ended = Command::new("true").spawn().unwrap();
    ended.wait().unwrap();
    let (gone, own) = (ended.id(), std::process::id());
    let names = [format!("iopath-crash-{gone}-77-1"), format!("iopath-crash-{gone}-77-2")];
    let others = [format!("iopath-crash-{own}-77-1"), "iopath-crash-x-77-1".to_owned()];
    for name in names.iter().chain(&others) {
        std::fs::create_dir_all(scratch.join(name).join("tree")).unwrap();
    }
    let held = std::fs::File::open(scratch.join(&names[1])).unwrap();
    held.try_lock().unwrap();
    let place = scratch.display().to_string();
    let output = iopath(&["crash", "explore", &log, "--max-states", "1", "--dir", &place]);
    assert_eq!(output.status.code(), Some(75), "{}", shown(&output));
    let there = |name: &String| scratch.join(name).exists();
    assert!(!there(&names[0]) && there(&names[1]) && others.iter().all(there));
}
