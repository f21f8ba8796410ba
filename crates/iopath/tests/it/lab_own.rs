//! The lab for a change of one's own: a machine that was printed and changed, an experiment that
//! starts from another one, two files of results side by side, an elevator of another crate.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Output, Stdio};

use serde_json::Value;

#[path = "../../examples/nearest.rs"]
mod nearest;

const SMALL: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../lab/tests/small.toml");

struct Bed(tempfile::TempDir);

impl Bed {
    fn new() -> Bed {
        Bed(tempfile::tempdir().expect("a directory"))
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn iopath(&self, line: &str) -> Output {
        let args: Vec<String> =
            line.split_whitespace().map(|word| word.replace("SMALL", SMALL)).collect();
        let mut command = Command::new(env!("CARGO_BIN_EXE_iopath"));
        command.args(args).current_dir(self.0.path()).stdin(Stdio::null());
        command.output().expect("the command starts")
    }

    /// The output of a command that ends with this status.
    #[track_caller]
    fn ends(&self, status: i32, line: &str) -> String {
        let output = self.iopath(line);
        let error = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(status), "iopath {line}: {error}");
        String::from_utf8(output.stdout).expect("the output is text")
    }
}

fn values(path: &Path) -> Vec<(String, f64)> {
    let text = fs::read_to_string(path).expect("results");
    let one = |line: &str| {
        let record: Value = serde_json::from_str(line).expect("a record");
        let variant = record["key"]["variant"].as_str().expect("a variant").to_owned();
        (variant, record["values"]["rate"].as_f64().expect("a figure"))
    };
    text.lines().map(one).collect()
}

/// Bug: `machines NAME` printed what could not be loaded, and no experiment ran on another machine.
/// Goal: what `--toml` prints is the machine; with one number changed the figures are others, and
/// `lab compare` says by how much, and of what machine and build.
#[test]
fn a_machine_is_printed_changed_and_compared() {
    let bed = Bed::new();
    let text = bed.ends(0, "machines array-2010 --toml");
    fs::write(bed.path("same.toml"), &text).expect("written");
    let line = text.lines().find(|line| line.starts_with("write_latency")).expect("the number");
    fs::write(bed.path("slow.toml"), text.replace(line, "write_latency = \"9 ms\""))
        .expect("written");
    let run = "lab run SMALL --seeds 1..5 --no-sweeps --case alone --variant deadline --results";
    bed.ends(0, &format!("{run} own.jsonl"));
    bed.ends(0, &format!("{run} same.jsonl --machine ./same.toml"));
    bed.ends(0, &format!("{run} slow.jsonl --machine ./slow.toml"));
    let compare = "lab compare --experiment SMALL own.jsonl";
    let same = bed.ends(0, &format!("{compare} same.jsonl"));
    assert!(
        same.contains("1 figures: 0 better, 0 worse, 1 the same within 2 %, 0 unclear; 1 equal"),
        "{same}"
    );
    let slow = bed.ends(3, &format!("{compare} slow.jsonl"));
    assert!(slow.contains("0 better, 1 worse") && slow.contains("ext4 alone deadline"), "{slow}");
    assert!(slow.contains("before: iopath ") && slow.contains("; machine "), "{slow}");
    let merge = bed.iopath("lab merge all.jsonl own.jsonl slow.jsonl");
    let error = String::from_utf8_lossy(&merge.stderr).into_owned();
    assert!(!merge.status.success() && error.contains("two machines"), "{error}");
}

/// Bug: a built-in experiment could be had from the source only, and every file had to say all.
#[test]
fn an_experiment_is_printed_and_inherited() {
    let bed = Bed::new();
    for name in ["cfq-yield", "nfs-partial"] {
        fs::write(bed.path("whole.toml"), bed.ends(0, &format!("lab init {name}")))
            .expect("written");
        let short = bed.ends(0, &format!("lab init {name} --like"));
        assert!(short.lines().count() < 15 && short.contains("like = "), "{short}");
        fs::write(bed.path("short.toml"), short).expect("written");
        // Read and checked as a whole, and refused for the option alone.
        for file in ["./whole.toml", "./short.toml"] {
            let output = bed.iopath(&format!("lab run {file} --variant none-such"));
            let error = String::from_utf8_lossy(&output.stderr).into_owned();
            assert!(error.contains("has nothing for `--variant none-such`"), "{file}: {error}");
        }
    }
    let output = bed.iopath("lab init cfq-yeld");
    assert!(String::from_utf8_lossy(&output.stderr).contains("there are: bh-lru, cfq-yield"));
}

/// Goal: a trace of the lab, as blktrace and blkparse have it, is the same trace, and is replayed
/// by its processes under two elevators side by side. Needs blktrace.
#[test]
fn a_trace_is_replayed_under_other_elevators() {
    let bed = Bed::new();
    bed.iopath(
        "lab run SMALL --seeds 1 --no-sweeps --case mixed --variant deadline --trace traces",
    );
    let trace = "traces/ext4-mixed-deadline-1/trace";
    let parsed =
        Command::new("blkparse").args(["-q", "-i", trace]).current_dir(bed.0.path()).output();
    let parsed = parsed.expect("apt-get install -y blktrace");
    fs::write(bed.path("trace.txt"), parsed.stdout).expect("written");
    let line =
        "--json lab replay --machine array-2010 --elevator cfq --elevator none --pace closed";
    let binary: Value =
        serde_json::from_str(&bed.ends(0, &format!("{line} {trace}"))).expect("JSON");
    let text: Value =
        serde_json::from_str(&bed.ends(0, &format!("{line} trace.txt"))).expect("JSON");
    let outcomes = |value: &Value| value["outcomes"].as_array().expect("outcomes").clone();
    let hashes = |value: &Value| {
        outcomes(value).iter().map(|one| one["event_hash"].to_string()).collect::<Vec<_>>()
    };
    assert_eq!(hashes(&binary), hashes(&text));
    let both = outcomes(&binary);
    assert_eq!(both.len(), 2);
    let processes = both[0]["processes"].as_array().expect("processes");
    assert!(processes.len() >= 3, "fs_mark, the reader and the journal: {processes:?}");
    assert!(processes.iter().any(|one| one["name"] == "jbd2"), "{processes:?}");
    let table = bed.ends(0, &format!("lab replay {trace} --machine array-2010 --elevator relay"));
    assert!(table.contains("array-2010, relay") && table.contains("p99"), "{table}");
}

/// Goal: a program of one's own has the whole lab with one elevator more, found by name; the
/// command without it does not know the name.
#[test]
fn an_elevator_of_another_crate_is_run_by_name() {
    let bed = Bed::new();
    let text = fs::read_to_string(SMALL).expect("the experiment");
    let text =
        text.replace("elevator = \"cfq\"\ntunables = { slice_idle = 4 }", "elevator = \"nearest\"");
    fs::write(bed.path("mine.toml"), text).expect("written");
    let output = bed.iopath("lab run ./mine.toml");
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(error.contains("there is no elevator `nearest`; there are: none"), "{error}");
    let results = bed.path("r.jsonl");
    let mine = bed.path("mine.toml");
    let words = ["iopath", "lab", "run"].map(OsString::from).into_iter();
    let rest = ["--seeds", "1", "--no-sweeps", "--case", "alone", "--results"].map(OsString::from);
    let args: Vec<OsString> =
        words.chain([mine.into()]).chain(rest).chain([results.clone().into()]).collect();
    // One cell of the file is meant to lie outside of its range: status 3.
    let code = nearest::run(args);
    assert_eq!(format!("{code:?}"), format!("{:?}", ExitCode::from(3)));
    let values = values(&results);
    assert!(values.iter().any(|(name, rate)| name == "cfq" && *rate > 0.0), "{values:?}");
    // A name is taken once.
    assert_eq!(format!("{:?}", nearest::main()), format!("{:?}", ExitCode::FAILURE));
}

/// Goal: `lab bisect` names the commit from which on a command fails, does not touch the user's
/// working tree, skips what cannot be judged, and refuses ends that are none. Method: a history of
/// eleven commits with a file that becomes 7 in the eighth; the command looks at it.
#[test]
fn the_commit_from_which_on_a_command_fails_is_found() {
    let bed = Bed::new();
    let git = |line: &str| {
        let mut command = Command::new("git");
        let own = ["-c", "user.name=a", "-c", "user.email=a@b", "-c", "init.defaultBranch=main"];
        command.args(own).args(line.split_whitespace()).current_dir(bed.0.path());
        assert!(command.status().expect("git").success(), "git {line}");
    };
    git("init -q");
    for n in 0..11 {
        fs::write(bed.path("value"), if n < 7 { "1" } else { "7" }).expect("written");
        fs::write(bed.path("n"), n.to_string()).expect("written");
        git("add .");
        git(&format!("commit -q -m change-{n}"));
        git(&format!("tag v{n}"));
    }
    fs::write(bed.path("value"), "mine").expect("written");
    let text = bed.ends(0, "lab bisect --good v0 -- grep -q 1 value");
    assert!(text.contains("bad since") && text.contains("change-7"), "{text}");
    assert!(text.lines().filter(|line| line.starts_with("good ")).count() >= 2, "{text}");
    assert_eq!(fs::read_to_string(bed.path("value")).expect("it is there"), "mine");
    let listed = Command::new("git").args(["worktree", "list"]).current_dir(bed.0.path()).output();
    let listed = String::from_utf8(listed.expect("git").stdout).expect("text");
    assert_eq!(listed.lines().count(), 1, "{listed}");

    let script = "#!/bin/sh\ngrep -q 6 n && exit 125\ngrep -q 1 value\n";
    fs::write(bed.path("judge"), script).expect("written");
    let judge = bed.path("judge");
    let text =
        bed.ends(0, &format!("lab bisect --json --good v0 --bad v9 -- sh {}", judge.display()));
    let found: Value = serde_json::from_str(&text).expect("JSON");
    assert_eq!(found["first_bad"].as_array().expect("a list").len(), 2, "{text}");

    for (line, part) in [
        ("lab bisect --good v0 -- true", "--bad: the command does not say so"),
        ("lab bisect --good v9 --bad v2 -- true", "`v9` is not older than `v2`"),
        ("lab bisect --good v3 --bad v3 -- true", "no commit between"),
        ("lab bisect --good nothing -- true", "nothing"),
        ("lab bisect --good v0 -- no-such-program", "no-such-program"),
    ] {
        let output = bed.iopath(line);
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success() && error.contains(part), "{line}: {error}");
    }
}
