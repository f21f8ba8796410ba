//! What our own elevator does on the document's machine, through the whole path: file system,
//! journal, page cache, queue and array, with the workloads of the experiment.

use lab::experiment::{Experiment, Plan};
use lab::run::{RunOptions, RunRecord, run_all};

fn runs(case: &str) -> Vec<RunRecord> {
    let experiment = Experiment::load("cfq-yield").expect("built in");
    let list = |name: &str| vec![name.to_owned()];
    let plan = Plan {
        variants: list("relay"),
        cases: list(case),
        filesystems: list("ext4"),
        no_sweeps: true,
        ..Plan::default()
    };
    let options = RunOptions { plan, ..RunOptions::default() };
    run_all(&experiment, &options, Vec::new(), &()).expect("runs")
}

/// Goal: both streams are interleaved as the thread wished: at least 430 files/s and 80 MB/s at
/// once, where CFQ with the series has 249 and 81, and nobody waits over 50 ms; alone at least
/// 530 files/s.
#[test]
fn relay_keeps_the_storage_busy_with_both_streams() {
    for record in runs("alone") {
        assert!(record.values["files"] >= 530.0, "{:?}", record.values);
    }
    for record in runs("mixed") {
        assert!(record.values["files"] >= 430.0, "{:?}", record.values);
        assert!(record.values["read"] >= 80.0, "{:?}", record.values);
        assert!(record.values["wait"] <= 50.0, "{:?}", record.values);
    }
}
