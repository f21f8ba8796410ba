//! The experiment `xfs-buf-item` with tiny sizes: it runs, its exact parts hold, its report says
//! all.

use lab::experiment::{Experiment, Plan};
use lab::report::{Band, Report};
use lab::run::{RunOptions, RunRecord, run_all};

const TEXT: &str = include_str!("../experiments/xfs-buf-item.toml");

/// The built-in one with few files and one round.
fn small() -> Experiment {
    let (_, rest) = TEXT.split_once("[with]\n").expect("its sizes");
    let (_, rest) = rest.split_once("\n\n").expect("the end of them");
    let head = TEXT.split("[with]\n").next().unwrap_or_default();
    let with = "tasks = 4\ndirs = 1\nnames = 8300\nfiles = 240\nrounds = 1\nrepeats = 20";
    let text = format!("{head}[with]\n{with}\n\n{rest}");
    Experiment::parse("small", "small.toml", &text).expect("it is valid")
}

/// Goal: every part runs; the variants write the same image, log included; the steps fall as the
/// document says; the calibrated cells are met. No time is asserted, nor what the model makes of so
/// few files.
#[test]
fn the_experiment_runs_and_its_exact_parts_hold() {
    let experiment = small();
    let records = run_all(&experiment, &RunOptions::default(), Vec::new(), &());
    let records = records.unwrap_or_else(|error| panic!("{error}"));
    let copied = |variant: &str| {
        let of = |record: &&RunRecord| record.key.case == "64k" && record.key.variant == variant;
        records.iter().find(of).expect("a record").values["create_copied_bytes"]
    };
    assert!(copied("bitwise") == copied("contiguous"));
    assert!(copied("dense") < copied("contiguous") && copied("ours") < copied("dense"));
    let worlds = records.iter().filter(|record| ["4k", "64k"].contains(&record.key.case.as_str()));
    assert!(worlds.clone().count() == 8 && worlds.clone().all(|one| !one.event_hash.is_empty()));
    // In virtual time a run is a function of its seed.
    let again = Plan {
        cases: vec!["64k".to_owned()],
        variants: vec!["ours".to_owned()],
        ..Plan::default()
    };
    let options = RunOptions { plan: again, ..RunOptions::default() };
    let again = run_all(&experiment, &options, Vec::new(), &()).expect("it runs");
    assert!(records.contains(&again[0]), "{again:?}");

    let report = Report::build(&experiment, records, "iopath lab run xfs-buf-item");
    let exact = ["image", "map_alike", "create_steps"];
    let exact = report.relations.iter().filter(|one| exact.iter().any(|e| one.value.contains(e)));
    assert_eq!(exact.clone().count(), 15);
    for relation in exact {
        assert_eq!(relation.band, Band::Inside, "{relation:?}");
    }
    let cells = report.tables[0].rows.iter().flat_map(|row| &row.cells);
    let fixed: Vec<_> = cells.filter(|cell| cell.fixes.is_some()).collect();
    assert_eq!(fixed.len(), 4);
    assert!(fixed.iter().all(|cell| cell.band != Band::Outside), "{fixed:?}");
    let text = report.markdown();
    for part in ["230000", "753", "one chunk", "share of the limit", "The profile"] {
        assert!(text.contains(part), "{part} is missing in\n{text}");
    }
}
