//! The experiment `xfs-buf-item` with tiny sizes: it runs, its exact parts hold, its report says
//! all.

use lab::xfs_buf_item::{Plan, Role, run};

#[test]
fn the_experiment_runs_and_its_exact_parts_hold() {
    // Goal: every part runs; the variants write the same image, log included; the steps fall as the
    // document says. No time is asserted, nor what the model makes of so few files.
    rt::testing::real(|cx| {
        let report = run(cx, &Plan::tiny(), &mut |_| {}).expect("the experiment runs");
        let exact = report.checks.iter().filter(|check| check.role == Role::Exact);
        assert!(exact.clone().count() >= 5);
        for check in exact {
            assert!(check.holds(), "{check:?}");
        }
        let modelled = report.checks.iter().filter(|check| check.role == Role::Calibrated);
        for check in modelled {
            assert!(check.holds(), "{check:?}");
        }
        let copied = |way: usize| report.worlds.counts[1][way][0].copied;
        assert!(copied(0) == copied(1) && copied(2) < copied(1) && copied(3) < copied(2));
        let text = report.markdown();
        for part in ["230k", "12m33s", "calibrated", "predicted", "one chunk", "share of the limit"]
        {
            assert!(text.contains(part), "{part} is missing in\n{text}");
        }
        assert!(report.json()["checks"].as_array().is_some_and(|checks| checks.len() > 20));
    });
}
