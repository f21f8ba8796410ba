//! `iopath lab` as its user types it, on a small experiment: in parts and merged, killed and gone
//! on with, all seeds, one run traced for the field's tools, the renderings. Needs blktrace and
//! fio.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use serde_json::Value;

const SMALL: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../lab/tests/small.toml");
const PROGRAM: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../lab/tests/small-program.toml");

fn run(dir: &Path, program: &str, args: &[&str]) -> Output {
    let output = Command::new(program).args(args).current_dir(dir).stdin(Stdio::null()).output();
    output.unwrap_or_else(|error| {
        panic!("{program}: {error}; install it with: apt-get install -y blktrace fio")
    })
}

/// A directory in which commands are run.
struct Bed(tempfile::TempDir);

impl Bed {
    fn new() -> Bed {
        Bed(tempfile::tempdir().expect("a directory"))
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn read(&self, name: &str) -> String {
        fs::read_to_string(self.path(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
    }

    fn lab(&self, line: &str) -> Output {
        let args: Vec<&str> = ["lab"].into_iter().chain(line.split_whitespace()).collect();
        run(self.0.path(), env!("CARGO_BIN_EXE_iopath"), &args)
    }

    #[track_caller]
    fn ok(&self, line: &str) -> String {
        let line = line.replace("SMALL", SMALL).replace("PROGRAM", PROGRAM);
        let output = self.lab(&line);
        let error = String::from_utf8_lossy(&output.stderr);
        // Three: something lies outside of its range, as one cell of SMALL is meant to.
        assert!(matches!(output.status.code(), Some(0 | 3)), "iopath lab {line}: {error}");
        String::from_utf8(output.stdout).expect("the output is text")
    }

    #[track_caller]
    fn tool(&self, name: &str, args: &[&str]) -> String {
        let output = run(self.0.path(), name, args);
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(output.status.success(), "{name} {args:?}: {text}");
        text
    }
}

/// What a report says apart from the command that made it.
fn figures(report: &str) -> Value {
    let mut report: Value = serde_json::from_str(report).expect("JSON");
    report["command"] = Value::Null;
    for table in report["tables"].as_array_mut().expect("tables") {
        for row in table["rows"].as_array_mut().expect("rows") {
            row["cells"].as_array_mut().expect("cells").iter_mut().for_each(|cell| {
                cell["command"] = Value::Null;
            });
        }
    }
    report
}

/// Goal: parts that run anywhere and come back in any order are the whole, also where one of them
/// was killed in the middle of a line.
#[test]
fn parts_are_merged_into_the_report_of_the_whole() {
    let bed = Bed::new();
    bed.ok("run SMALL --json whole.json --results whole.jsonl");
    bed.ok("run SMALL --results b.jsonl --shard 2/2");
    bed.ok("run SMALL --results a.jsonl --shard 1/2");
    let lines = bed.read("a.jsonl");
    let (kept, torn) = lines.split_at(lines.find('\n').expect("a line") + 40);
    assert!(!torn.is_empty());
    fs::write(bed.path("a.jsonl"), kept).expect("cut");
    bed.ok("run SMALL --results a.jsonl --shard 1/2");
    assert_eq!(bed.read("a.jsonl").lines().count(), lines.lines().count());
    assert!(bed.ok("merge all.jsonl b.jsonl a.jsonl").contains("8 runs"));
    let sorted = |name: &str| {
        let mut lines: Vec<String> = bed.read(name).lines().map(str::to_owned).collect();
        lines.sort();
        lines
    };
    assert_eq!(sorted("all.jsonl"), sorted("whole.jsonl"));
    bed.ok(&format!("report all.jsonl --experiment {SMALL} --json-file again.json"));
    assert_eq!(figures(&bed.read("again.json")), figures(&bed.read("whole.json")));
}

/// Goal: `--full` takes all seeds, and the JSON has what the field's programs look for.
#[test]
fn full_takes_all_seeds_and_cells_say_what_they_are() {
    let bed = Bed::new();
    let text = bed.ok("run SMALL --full --no-sweeps --json full.json --markdown full.md");
    assert!(text.contains("modelled") && bed.read("full.md").contains("| variant"));
    let report: Value = serde_json::from_str(&bed.read("full.json")).expect("JSON");
    let seeds = report["runs"].as_array().expect("runs").iter().map(|run| &run["key"]["seed"]);
    let seeds: Vec<u64> = seeds.filter_map(Value::as_u64).collect();
    assert!(seeds.contains(&1) && seeds.contains(&2), "{seeds:?}");
    let cells = report["tables"][0]["rows"][0]["cells"].as_array().expect("cells");
    let keys = ["published", "obtained", "ratio", "basis", "role", "band"];
    for cell in cells {
        assert!(keys.iter().all(|key| cell.get(*key).is_some()), "{cell}");
        assert_eq!(cell["basis"], "modelled");
    }
}

/// Goal: the events of a run of the lab are read by blkparse, btt, iowatcher and fio, and each run
/// of the tables has a directory of its own.
#[test]
fn a_traced_run_is_read_by_the_tools() {
    let bed = Bed::new();
    bed.ok("run SMALL --seeds 1 --trace traces --json all.json");
    let report: Value = serde_json::from_str(&bed.read("all.json")).expect("JSON");
    let runs = report["runs"].as_array().expect("runs").iter();
    let of_tables = runs.filter(|run| run["key"].get("point").is_none()).count();
    let traced = fs::read_dir(bed.path("traces")).expect("traces").count();
    assert!(traced == 4 && of_tables == 4, "{traced} directories for {of_tables} runs");
    let dir = bed.path("traces/ext4-mixed-deadline-1");
    let trace = dir.join("trace").display().to_string();
    let parsed = bed.tool("blkparse", &["-i", &trace, "-q"]);
    let lines = parsed.lines().filter(|line| line.starts_with("  8,0 "));
    let ours = fs::read_to_string(dir.join("trace.txt")).expect("text");
    assert_eq!(lines.count(), ours.lines().count());
    assert!(parsed.contains("[jbd2]"), "the journal's task has its name");
    let bin = dir.join("trace.bin").display().to_string();
    let figures = bed.tool("btt", &["-i", &bin]);
    assert!(figures.contains("D2C"), "{figures}");
    let svg = bed.path("trace.svg").display().to_string();
    bed.tool("iowatcher", &["-t", &bin, "-o", &svg]);
    assert!(bed.read("trace.svg").matches("<path").count() > 2, "iowatcher draws it");
    let iolog = dir.join("trace.iolog").display().to_string();
    let file = bed.path("replayed");
    fs::File::create(&file).and_then(|file| file.set_len(256 << 20)).expect("a sparse file");
    let redirect = format!("--replay_redirect={}", file.display());
    let log = format!("--read_iolog={iolog}");
    let args = ["--name=replay", &log, &redirect, "--replay_no_stall=1", "--output-format=json"];
    let replay: Value =
        serde_json::from_str(&bed.tool("fio", &args)).expect("fio's JSON and nothing else");
    let ios = |way: &str| replay["jobs"][0][way]["total_ios"].as_u64().unwrap_or(0);
    assert!(ios("read") > 0 && ios("write") > 0, "{replay}");
    assert_eq!(replay["jobs"][0]["error"], 0);
}

/// Goal: an experiment that a program runs is one of all: in parts and merged, resumed, traced,
/// reported beside others in every rendering, and made again from JSON.
#[test]
fn an_experiment_of_a_program_is_one_of_all() {
    let bed = Bed::new();
    bed.ok("run PROGRAM --results whole.jsonl --json whole.json");
    bed.ok("run PROGRAM --results b.jsonl --shard 2/2");
    bed.ok("run PROGRAM --results a.jsonl --shard 1/2");
    assert!(bed.ok("merge all.jsonl b.jsonl a.jsonl").contains("6 runs"));
    bed.ok("report all.jsonl --experiment PROGRAM --json-file again.json --html a.html");
    assert_eq!(figures(&bed.read("again.json")), figures(&bed.read("whole.json")));
    assert!(bed.read("a.html").contains("<td class=\"left\" rowspan=\"3\">parts of pages</td>"));
    let one = "run PROGRAM --case document --variant ranges --seeds 4 --trace traces";
    let text = bed.ok(one);
    assert!(text.contains("exact and modelled"), "{text}");
    let trace = bed.read("traces/ext3-document-ranges-4/trace.txt");
    assert!(trace.lines().count() > 100, "{trace}");
    bed.ok("report whole.json --experiment PROGRAM --markdown a.md");
    assert!(bed.read("a.md").contains("| whole pages"), "{}", bed.read("a.md"));
}

/// Bug: a run with relations outside of their ranges ended with status 0. Goal: 3 where something
/// lies outside, 0 where all is inside.
#[test]
fn the_status_says_whether_all_lies_inside() {
    let bed = Bed::new();
    let status = |line: &str| bed.lab(&line.replace("SMALL", SMALL)).status.code();
    let one = "run SMALL --seeds 1 --no-sweeps --case alone --results r.jsonl";
    assert_eq!(status(one), Some(3));
    assert_eq!(status(&format!("report r.jsonl --experiment {SMALL}")), Some(3));
    assert_eq!(status(&format!("{one}.2 --variant deadline")), Some(0));
}

/// Bug: all experiments printed 1,548 lines and no summary. Goal: several experiments end with a
/// table of all, in 60 lines, with a page beside it; `--full-text` has the tables.
#[test]
fn several_experiments_end_with_one_table() {
    let bed = Bed::new();
    let other = bed.path("other.toml");
    fs::copy(SMALL, &other).expect("a copy");
    let line = format!("run SMALL {} --seeds 1 --no-sweeps --case alone", other.display());
    let text = bed.ok(&line);
    assert!(text.lines().count() <= 60, "{text}");
    for part in ["small, Nobody 2026", "other, Nobody 2026", "cfq.alone.rate", "published"] {
        assert!(text.contains(part), "no {part}: {text}");
    }
    assert!(bed.read("lab-report.html").contains("id=\"overview\""));
    let long = bed.ok(&format!("{line} --full-text"));
    assert!(long.contains("variant, case") && long.contains("What must hold"), "{long}");
}

/// Bug: an altered record was taken, and records did not say what made them. Goal: they name build,
/// machine and host; what was altered, or comes from another machine, is refused.
#[test]
fn records_name_what_made_them_and_are_refused_when_altered() {
    let bed = Bed::new();
    let line = "run SMALL --seeds 1 --no-sweeps --case alone --variant cfq --results r.jsonl";
    bed.ok(line);
    let record: Value = serde_json::from_str(bed.read("r.jsonl").trim()).expect("a line");
    let made = &record["made"];
    assert!(made["build"]["program"].as_str().is_some_and(|text| text.len() == 16), "{made}");
    assert!(made["machine"].is_string() && made["host"].is_string(), "{made}");
    let refused = |line: &str, part: &str| {
        let output = bed.lab(&line.replace("SMALL", SMALL));
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.code() == Some(1) && error.contains(part), "{line}: {error}");
    };
    refused(&format!("{line} --machine disk-7200"), "another build or machine");
    let rate = record["values"]["rate"].to_string();
    let altered = bed.read("r.jsonl").replacen(&rate, "999.5", 1);
    fs::write(bed.path("r.jsonl"), altered).expect("altered");
    refused("report r.jsonl --experiment SMALL", "was altered after it was written");
    refused(line, "was altered after it was written");
}

#[test]
fn mistakes_are_named() {
    let bed = Bed::new();
    for (line, part) in [
        ("run SMALL --variant lift", "--variant lift"),
        ("run SMALL --shard 3/2 --results r", "3/2"),
        ("run SMALL --shard 1/2", "--results"),
        ("run none-such", "none-such"),
        ("run SMALL --machine none-such", "there is no machine `none-such`"),
        ("run bh-lru --machine disk-7200", "only the one at hand"),
        ("run bh-lru --trace traces", "--trace: bh-lru: its device is memory"),
        ("run bh-lru --shard 1/2 --results r", "--shard: bh-lru, case "),
        ("run xfs-buf-item --shard 1/2 --results r", "--case chooses cases that are not measured"),
        ("run nfs-partial --variant lift", "there are: off, ranges, request, rmw"),
        ("report missing.jsonl", "missing.jsonl"),
    ] {
        let output = bed.lab(&line.replace("SMALL", SMALL));
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success() && error.contains(part), "{line}: {error}");
    }
}
