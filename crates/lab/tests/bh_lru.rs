//! The experiment `bh-lru` with tiny sizes: it runs, its counts are exact, its report says all.

use lab::bh_lru::{Plan, Variant, run};

#[test]
fn the_experiment_runs_and_its_counts_are_exact() {
    // Goal: every part runs; hits of arrays are those of a naive list; on the document's lookups
    // sixteen entries miss a third or less of what eight do, and ours no more than sixteen; nothing
    // is pinned by ours. No time is asserted.
    rt::testing::real(|cx| {
        let report = run(cx, &Plan::tiny(), &mut |_| {}).expect("the experiment runs");
        assert!(report.traces.iter().all(|row| row.exact != Some(false)), "{:?}", report.traces);
        let misses = |title: &str, variant: Variant| {
            let row =
                report.traces.iter().find(|row| row.trace.title == title && row.variant == variant);
            row.expect("a row").misses
        };
        let deep = "quota, two levels";
        assert!(misses(deep, Variant::Eight) > 3.0 * misses(deep, Variant::Sixteen));
        assert!(misses(deep, Variant::Ours) <= misses(deep, Variant::Sixteen) * 1.05);
        let flat = "quota, one level";
        let change = misses(flat, Variant::Eight) - misses(flat, Variant::Sixteen);
        assert!(change.abs() < 0.2, "one level: {change}");
        assert!(report.outcomes.iter().all(|outcome| outcome.pinned[2] == 0));
        assert!(report.outcomes.iter().all(|outcome| outcome.pinned[1] > 0));
        let text = report.text();
        for part in ["(a) mdtest", "(d) mds-survey", "ext3", "as a naive list"] {
            assert!(text.contains(part), "{part} is missing in\n{text}");
        }
        assert!(report.json()["cells"].as_array().is_some_and(|cells| cells.len() >= 10));
    });
}
