//! Control groups and the log of XFS as parts of an experiment, and the search over machines.

use lab::experiment::{Experiment, Plan};
use lab::run::{RunOptions, RunRecord, run_all};
use lab::search::{Effort, search};

fn with(more: &str) -> Result<Experiment, String> {
    let file = "{ path = \"/mnt/reader\", size = \"32 MiB\" }";
    let other = format!("{file}, {}", file.replace("reader", "other"));
    let text = include_str!("small.toml").replace(file, &other);
    let text = text.replace("[[table]]", &format!("{more}\n[[table]]"));
    Experiment::parse("small", "small.toml", &text).map_err(|error| error.to_string())
}

fn run(experiment: &Experiment, plan: Plan) -> Vec<RunRecord> {
    let options = RunOptions { plan, ..RunOptions::default() };
    run_all(experiment, &options, Vec::new(), &()).unwrap_or_else(|error| panic!("{error}"))
}

const GROUPS: &str = r#"
[group.one]
weight = 900

[group.two]
weight = 100

[workload.other]
tool = "fio"
job = """
[other]
rw=read
bs=4k
filename=/mnt/other
size=32m
time_based
runtime=60
"""

[case.both]
title = "two readers"
run = ["reader", "other"]
groups = { reader = "one", other = "two" }
seconds = 2

[metric.other]
title = "the other"
unit = "MB/s"
of = "other"
value = "read_mb_per_s"

[variant.limited]
like = "deadline"
controller = "io.max"
groups = { two = { max = "rbps=5000000" } }

[variant.even]
like = "cfq"
tunables = { slice_idle = 8 }
groups = { two = { weight = 900 } }

[variant.weighted]
like = "cfq"
tunables = { slice_idle = 8 }

[[table]]
title = "Groups"
filesystems = ["ext4"]
variants = ["weighted", "even", "limited"]
columns = ["both.read", "both.other"]
"#;

/// Goal: a workload runs in the group of its case, with what the file or the variant gives the
/// group, under cfq's weights and behind a controller.
#[test]
fn workloads_run_in_groups() {
    let experiment = with(GROUPS).expect("it is valid");
    let plan = Plan { cases: vec!["both".to_owned()], ..Plan::default() };
    let runs = run(&experiment, plan);
    let of = |variant: &str| {
        let run = runs.iter().find(|run| run.key.variant == variant).expect(variant);
        (run.values["read"], run.values["other"])
    };
    let (one, two) = of("weighted");
    assert!(one / two > 3.0, "9 to 1: {one} and {two}");
    let (one, two) = of("even");
    assert!((0.6..1.6).contains(&(one / two)), "1 to 1: {one} and {two}");
    let (one, two) = of("limited");
    assert!(two < 6.5 && one > 30.0, "5 MB/s for the other: {one} and {two}");
}

#[test]
fn what_cannot_be_of_groups_is_named() {
    for (from, to, message) in [
        ("weight = 900", "weight = 0", "group one: a weight is from 1 to 10,000"),
        ("other = \"two\" }", "other = \"three\" }", "there is no group `three`"),
        ("controller = \"io.max\"", "controller = \"io.min\"", "there is no controller `io.min`"),
        ("rbps=5000000", "bps=5", "`io.max` takes rbps="),
        ("groups = { reader", "groups = { fs_mark", "it does not run `fs_mark`"),
    ] {
        assert!(GROUPS.contains(from), "{from}");
        let error = with(&GROUPS.replacen(from, to, 1)).expect_err(message);
        assert!(error.contains(message), "{error}");
    }
}

/// Goal: with `log_yield=1` tasks that wait for the log of XFS yield to its writer, without it none
/// does. Method: four threads of fs_mark under cfq; the elevator's notes are counted.
#[test]
fn the_log_of_xfs_is_a_caller_of_the_yield() {
    let text = r#"
[filesystem.xfs]
type = "xfs"
journal = "16 MiB"

[workload.four]
tool = "fs_mark"
args = "fs_mark -S 1 -D 10 -N 5 -n 20 -d /mnt/fs_mark -s 16384 -t 4 -w 4096 -L 1000"

[case.four]
title = "four threads"
run = ["four"]
seconds = 0.5

[metric.four]
title = "fs_mark"
unit = "files/s"
of = "four"
value = "files_per_second"

[variant.silent]
elevator = "cfq"
noidle = false
mount = "log_yield=0"

[variant.yields]
like = "silent"
mount = "log_yield=1"

[[table]]
title = "XFS"
filesystems = ["xfs"]
variants = ["silent", "yields"]
columns = ["four.four"]
"#;
    let experiment = with(text).expect("it is valid");
    let runs = run(&experiment, Plan { cases: vec!["four".to_owned()], ..Plan::default() });
    let yields = |variant: &str| {
        let run = runs.iter().find(|run| run.key.variant == variant).expect(variant);
        let count = |name: &str| run.counts.get(name).copied().unwrap_or(0.0);
        count("yield_begin") + count("yield_refused")
    };
    assert_eq!(yields("silent"), 0.0);
    assert!(yields("yields") > 10.0, "{}", yields("yields"));
}

/// Goal: a search tries the experiment's own machine first, repeats with its seed, and has the
/// machine of the smallest error first; it needs `[search]`.
#[test]
fn a_search_shows_the_nearest_machines() {
    let text = r#"
[search]
filesystems = ["ext4"]
beside = "cfq.mixed.rate"
seconds = { alone = 0.2 }

[[search.unknown]]
title = "a write takes"
vary = { machine = "device.write_latency" }
unit = "us"
values = [100, 1000, 4000]

[[search.unknown]]
title = "files of"
vary = { option = { workload = "fs_mark", option = "-s" } }
unit = "bytes"
values = [4096]
"#;
    let experiment = with(text).expect("it is valid");
    let effort = Effort { tries: 8, seed: 1, jobs: 2 };
    let found = search(&experiment, effort, &|_, _| ()).expect("found");
    assert!(found.tried.iter().any(|one| one.changes.is_empty()), "its own machine");
    assert!(found.tried.is_sorted_by(|a, b| a.typical <= b.typical));
    assert!(found.frontier().iter().any(|one| std::ptr::eq(*one, &found.tried[0])));
    let again = search(&experiment, Effort { jobs: 1, ..effort }, &|_, _| ()).expect("found");
    let changes = |found: &lab::search::Found| -> Vec<Vec<String>> {
        found.tried.iter().map(|one| one.changes.clone()).collect()
    };
    assert_eq!(changes(&found), changes(&again));
    let error = search(&with("").expect("valid"), effort, &|_, _| ()).expect_err("no [search]");
    assert!(error.to_string().contains("it has no [search]"), "{error}");
}
