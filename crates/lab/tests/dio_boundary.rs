//! The thread on boundaries in direct I/O, counted: what one call of 512 MiB sends to the stripe
//! and to its disks under each rule, exactly; and what must hold between the rules.

use lab::experiment::{Experiment, Plan};
use lab::run::{RunOptions, RunRecord, run_all};

const TEXT: &str = include_str!("../experiments/dio-boundary.toml");

/// One call instead of four.
fn one_call() -> Experiment {
    let text = TEXT.replace("size=2g", "size=512m");
    Experiment::parse("dio-boundary", "dio-boundary.toml", &text).expect("it is valid")
}

fn run(variants: &[&str], filesystem: &str, case: &str) -> Vec<RunRecord> {
    run_with(variants, filesystem, case, true)
}

fn run_with(variants: &[&str], filesystem: &str, case: &str, no_sweeps: bool) -> Vec<RunRecord> {
    let names = |names: &[&str]| names.iter().map(|name| name.to_string()).collect();
    let plan = Plan {
        variants: names(variants),
        filesystems: names(&[filesystem]),
        cases: names(&[case]),
        no_sweeps,
        ..Plan::default()
    };
    let options = RunOptions { plan, jobs: 1, ..RunOptions::default() };
    run_all(&one_call(), &options, Vec::new(), &()).unwrap_or_else(|error| panic!("{error}"))
}

/// Bios and commands of the disks of a run.
fn counts(record: &RunRecord) -> (u64, u64) {
    let count = |name: &str| record.counts[name] as u64;
    (count("bios"), count("model_member_commands"))
}

/// Goal: the structure behind the document's I/O sizes. Method: exact counts of one call on an
/// empty ext3 with pages of 16 KiB and chunks of 128 KiB; each includes 7 bios of metadata.
#[test]
fn a_call_of_512_mib_is_counted() {
    let records = run(&["pl", "pl-bd", "shipped", "none", "ours"], "ext3", "extend");
    let find = |name: &str| {
        let found = records.iter().find(|record| record.key.variant == name);
        counts(found.unwrap_or_else(|| panic!("no run of {name}")))
    };
    let found = ["pl", "pl-bd", "shipped", "none", "ours"].map(|name| (name, find(name)));
    assert_eq!(
        found,
        [
            ("pl", (32_018, 35_232)),
            ("pl-bd", (1_162, 11_193)),
            ("shipped", (1_036, 11_099)),
            ("none", (1_036, 11_099)),
            ("ours", (4_104, 4_104)),
        ]
    );
}

/// Goal: no rule changes what goes to XFS: whole chunks. With 32 tags one in ten is joined to its
/// neighbour, which is why an I/O is larger than the document's; with 64 tags, as many as a call
/// has chunks for a disk, none is. Method: exact counts; the bios besides the 1,024 of the data are
/// the log's.
#[test]
fn xfs_is_sent_whole_chunks() {
    let records = run_with(&["x-pl", "x-pl-bd"], "xfs", "extend", false);
    let of = |variant: &str, tags: Option<u64>| {
        let found = records.iter().find(|record| {
            let point = record.key.point.as_ref().map(|point| point.value);
            record.key.variant == variant && point == tags
        });
        counts(found.expect("it has run"))
    };
    assert_eq!(of("x-pl", None), of("x-pl-bd", None));
    let (joined, apart) = (of("x-pl-bd", None), of("x-pl-bd", Some(64)));
    assert_eq!((joined, apart), ((1_028, 3_652), (1_028, 4_100)));
}

/// Goal: filling a hole sends what extending sends. Method: the same counts, but for the journal.
#[test]
fn filling_a_hole_sends_the_same() {
    let variants = ["pl-bd"];
    let extend = counts(&run(&variants, "ext3", "extend")[0]);
    let fill = counts(&run(&variants, "ext3", "fill")[0]);
    let near = |a: u64, b: u64| a.abs_diff(b) * 100 <= a;
    assert!(near(extend.0, fill.0) && near(extend.1, fill.1), "{extend:?} and {fill:?}");
}
