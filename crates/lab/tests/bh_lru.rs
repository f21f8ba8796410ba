//! The experiment `bh-lru` with tiny sizes: it runs, its counts are exact, its report says all.

use lab::bh_lru::instructions::{self, Amount};
use lab::bh_lru::{Plan, Set, Variant, run};

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
        let text = report.markdown();
        for part in ["(a) mdtest", "(d) mds-survey", "ext3", "as a naive list"] {
            assert!(text.contains(part), "{part} is missing in\n{text}");
        }
        assert!(report.json()["cells"].as_array().is_some_and(|cells| cells.len() >= 10));
    });
}

#[test]
fn a_part_runs_alone() {
    // Goal: of the parts only the named ones are run and told; a name that is none is refused.
    let plan = Plan::tiny().only(&["d".into(), "traces".into()]).expect("two parts");
    let report = rt::testing::real(|cx| run(cx, &plan, &mut |_| {}).expect("they run"));
    assert!(report.outcomes.iter().all(|outcome| outcome.cell.set == Set::D));
    assert!(!report.outcomes.is_empty() && !report.traces.is_empty() && report.curves.is_empty());
    let curves = Plan { curve_sizes: Vec::new(), ..Plan::tiny().only(&["curves".into()]).unwrap() };
    let report = rt::testing::real(|cx| run(cx, &curves, &mut |_| {}).expect("nothing to do"));
    assert!(report.outcomes.is_empty() && !report.markdown().contains("16 entries to 8"));
    let wrong = Plan::tiny().only(&["lookup".into()]).unwrap_err();
    assert!(wrong.contains("`lookup`") && wrong.contains("curves"), "{wrong}");
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
