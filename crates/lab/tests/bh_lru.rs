//! The experiment `bh-lru` with tiny sizes: it runs, its counts are exact, its report says all.

use lab::experiment::{Experiment, Plan};
use lab::programs::bh_lru::Set;
use lab::programs::bh_lru::instructions::{self, Amount};
use lab::report::Report;
use lab::run::{RunError, RunOptions, RunRecord, Shard, lines, run_all};

fn small() -> Experiment {
    let text = include_str!("small-measured.toml");
    Experiment::parse("small", "small-measured.toml", text).expect("it is valid")
}

fn run(options: &RunOptions) -> Result<Vec<RunRecord>, RunError> {
    run_all(&small(), options, Vec::new(), &())
}

/// Goal: every part runs; hits of arrays are those of a naive list; on the document's lookups
/// sixteen entries miss a third or less of what eight do, and ours no more than sixteen; nothing is
/// pinned by ours; the report says all. No time is asserted.
#[test]
fn the_experiment_runs_and_its_counts_are_exact() {
    let records = run(&RunOptions::default()).expect("the experiment runs");
    assert_eq!(records.len(), 15);
    let value = |case: &str, variant: &str, metric: &str| {
        let of = |record: &&RunRecord| record.key.case == case && record.key.variant == variant;
        let record = records.iter().find(of).expect("a record");
        record.values.get(metric).copied().unwrap_or_else(|| panic!("{metric} in {record:?}"))
    };
    let misses = |case: &str, variant: &str| value(case, variant, "misses");
    assert!(misses("deep", "8") > 3.0 * misses("deep", "16"));
    assert!(misses("deep", "ours") <= misses("deep", "16") * 1.05);
    let change = misses("flat", "8") - misses("flat", "16");
    assert!(change.abs() < 0.2, "one level: {change}");
    for (case, variant) in [("deep", "8"), ("deep", "16"), ("flat", "8"), ("flat", "16")] {
        assert_eq!(value(case, variant, "exact"), 1.0, "{case} {variant}");
    }
    for case in ["a", "d", "curve"] {
        assert_eq!(value(case, "ours", "pinned"), 0.0);
        assert!(value(case, "16", "pinned") > 0.0);
    }
    for (case, variant, metric) in
        [("a", "16", "create_to_8"), ("d", "ours", "at_once"), ("curve", "ours", "to_best")]
    {
        assert!(value(case, variant, metric).is_finite());
    }
    // Kept, they are not measured again; measured twice, they are not merged.
    let known = records.clone();
    assert_eq!(run_all(&small(), &RunOptions::default(), known, &()).unwrap(), records);
    let mut twice = records.clone();
    twice.push(records[0].clone());
    assert_eq!(lines::merge(twice.clone()).unwrap().len(), records.len());
    *twice[0].values.values_mut().next().expect("a value") += 1.0;
    let error = lines::merge(twice).unwrap_err().to_string();
    assert!(error.contains("measured twice"), "{error}");

    let report = Report::build(&small(), records, "iopath lab run small-measured.toml");
    let text = report.markdown();
    for part in ["(a) 600 names, 2 tasks", "| document |", "- ours to 8: 4 figures", "beside it"] {
        assert!(text.contains(part), "{part} is missing in\n{text}");
    }
}

/// Goal: what has no meaning for measured times is refused by name, and nothing is run; cases and
/// variants are chosen as in any experiment.
#[test]
fn a_part_runs_alone_and_what_has_no_meaning_is_refused() {
    let plan = Plan {
        cases: vec!["d".to_owned()],
        variants: vec!["8".to_owned(), "ours".to_owned()],
        ..Plan::default()
    };
    let records = run(&RunOptions { plan, ..RunOptions::default() }).expect("it runs");
    let names: Vec<&str> = records.iter().map(|record| record.key.variant.as_str()).collect();
    assert_eq!(names, ["8", "ours"]);
    let shard = Some(Shard { number: 1, parts: 2 });
    let error = run(&RunOptions { shard, ..RunOptions::default() }).unwrap_err().to_string();
    assert!(error.starts_with("--shard: small, case "), "{error}");
    let error = run(&RunOptions { trace: true, ..RunOptions::default() }).unwrap_err().to_string();
    assert!(error.starts_with("--trace: small"), "{error}");
}

/// What callgrind looks at in the test below.
const COUNTED: Amount = Amount { names: 60, files: 12 };

#[test]
#[ignore = "the work of instructions_are_counted_for_every_size, which runs it"]
fn counted_work() {
    rt::testing::real(|cx| instructions::work(cx, Set::C, COUNTED).expect("the work is done"));
}

#[test]
fn instructions_are_counted_for_every_size() {
    // Goal: each size and ours has a count of its own for each phase, and the table shows them.
    let program = std::env::current_exe().expect("this program");
    let words = ["counted_work", "--exact", "--ignored"];
    let rows = instructions::count(&program, &words, Set::C, COUNTED).expect("valgrind counts");
    assert_eq!(rows.len(), instructions::SIZES.len() + 1);
    assert!(rows.iter().all(|row| row.instructions.iter().all(|&count| count > 100.0)), "{rows:?}");
    let text = instructions::table(&rows).text();
    assert!(text.contains("ours") && text.contains("48"), "{text}");
    println!("{text}");
}
