//! A program of another crate, in one file with its experiment, is run and reported as ours are.

#[path = "../examples/own_program.rs"]
mod own_program;

#[test]
fn a_program_of_another_crate_is_run_by_name() {
    own_program::main();
    let again = own_program::report().unwrap_err();
    assert_eq!(again, "the name `one-by-one` is taken");
    let experiment = lab::Experiment::load("one-by-one").unwrap();
    let report = own_program::report_of(&experiment).unwrap();
    assert_eq!(report, own_program::report_of(&experiment).unwrap(), "the same seed, another run");
    assert!(
        report.contains("next to each other") && report.contains("relations: 1 hold, 0 do not"),
        "{report}"
    );
    let wrong = own_program::EXPERIMENT.replace("stride = \"4 MiB\"", "strid = \"4 MiB\"");
    let wrong = lab::Experiment::parse("wrong", "wrong.toml", &wrong)
        .map(|one| lab::programs::of(&one).map(drop));
    assert!(format!("{wrong:?}").contains("strid"), "{wrong:?}");
}
