//! A small experiment is run whole: the same twice and with any number of jobs, in parts and
//! merged, resumed, and its report has everything in it.

use lab::experiment::{Experiment, Plan};
use lab::report::{Band, Report};
use lab::run::{Progress, RunError, RunOptions, RunRecord, Shard, lines, run_all};

fn small() -> Experiment {
    Experiment::parse("small", "small.toml", include_str!("small.toml")).expect("it is valid")
}

fn run(options: &RunOptions, known: Vec<RunRecord>) -> Vec<RunRecord> {
    run_all(&small(), options, known, &()).unwrap_or_else(|error| panic!("{error}"))
}

#[test]
fn a_run_is_a_function_of_its_seed_and_parts_make_the_whole() {
    let whole = run(&RunOptions { jobs: 1, ..RunOptions::default() }, Vec::new());
    assert_eq!(whole.len(), 8);
    // Twice, with two jobs: every event hash and every figure is the same.
    assert_eq!(run(&RunOptions { jobs: 2, ..RunOptions::default() }, Vec::new()), whole);
    // In three parts, merged in the wrong order.
    let part = |number| {
        let shard = Some(Shard { number, parts: 3 });
        run(&RunOptions { shard, ..RunOptions::default() }, Vec::new())
    };
    let parts = [3, 1, 2].into_iter().flat_map(part).collect();
    assert_eq!(lines::merge(parts).unwrap(), whole);
    // Another seed is another run.
    let plan = Plan { seeds: "2".parse().ok(), no_sweeps: true, ..Plan::default() };
    let other = run(&RunOptions { plan, ..RunOptions::default() }, Vec::new());
    assert!(other.iter().all(|one| whole.iter().all(|two| one.event_hash != two.event_hash)));
}

/// Refuses to be told of a run.
struct Nothing;

impl Progress for Nothing {
    fn done(&self, record: &RunRecord) -> Result<(), RunError> {
        Err(RunError::Lines(format!("{} was run again", record.key)))
    }
}

#[test]
fn what_is_known_is_not_run_again_and_the_report_tells_all() {
    let plan = Plan { seeds: "3".parse().ok(), ..Plan::default() };
    let options = RunOptions { plan, ..RunOptions::default() };
    let records = run(&options, Vec::new());
    let text: String = records.iter().map(lines::to_line).collect();
    let known = lines::parse(&text).unwrap();
    assert_eq!(run_all(&small(), &options, known, &Nothing).unwrap(), records);

    let report = Report::build(&small(), records, "iopath lab run small.toml");
    let cells: Vec<_> = report.tables[0].rows.iter().flat_map(|row| &row.cells).collect();
    assert_eq!(cells.len(), 6);
    assert!(cells.iter().all(|cell| cell.obtained.is_some_and(|value| value > 0.0)), "{cells:?}");
    let band = |name: &str| cells.iter().find(|cell| cell.cell == name).unwrap().band;
    assert_eq!(band("deadline.alone.rate"), Band::Inside);
    assert_eq!(band("cfq.alone.rate"), Band::Outside);
    assert_eq!(band("cfq.mixed.rate"), Band::None);
    let json = report.json();
    let cell = &json["tables"][0]["rows"][0]["cells"][0];
    for key in ["published", "obtained", "ratio", "basis", "role", "band"] {
        assert!(!cell[key].is_null(), "{key} in {cell}");
    }
    assert_eq!((&cell["basis"], &cell["band"]), (&"modelled".into(), &"inside".into()));
    assert_eq!(json["runs"].as_array().map(Vec::len), Some(8));

    let text = report.text();
    assert!(text.lines().all(|line| line.chars().count() <= 100), "{text}");
    assert!(text.contains("cfq.alone.rate is") && text.contains("Events: "), "{text}");
    assert!(
        report.markdown().contains("| cfq, short idles | just fs_mark"),
        "{}",
        report.markdown()
    );
    let page = Report::html(&[report], None).unwrap();
    for part in ["<svg", "cfq, short idles", "iopath lab run small.toml", "✗ outside"] {
        assert!(page.contains(part), "no {part} in the page");
    }
    assert!(!page.contains("http://") && !page.contains("https://"), "the page fetches something");
}

#[test]
fn an_idle_is_counted_and_the_device_has_no_time_that_is_not_told() {
    let plan = Plan { no_sweeps: true, cases: vec!["alone".to_owned()], ..Plan::default() };
    let records = run(&RunOptions { plan, ..RunOptions::default() }, Vec::new());
    for record in &records {
        let count = |name: &str| record.counts.get(name).copied().unwrap_or(0.0);
        assert!(count("files") > 10.0, "{:?}", record.counts);
        assert_eq!(record.key.variant == "cfq", count("idle_armed") > 0.0, "{}", record.key);
        let idle: u64 = record.idle_ns.values().sum();
        assert!(idle > 0 && idle as f64 <= record.seconds * 1e9, "{:?}", record.idle_ns);
    }
}
