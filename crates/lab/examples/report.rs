//! The lab as a library: `cargo run -p iopath-lab --example report -- cfq-yield DIR` runs an
//! experiment with its first seed, without sweeps, and writes the three renderings into a
//! directory.

use lab::experiment::{Experiment, Plan};
use lab::{Report, RunOptions, run_all};

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [name, folder] = args.as_slice() else { panic!("usage: report EXPERIMENT DIRECTORY") };
    let experiment = Experiment::load(name).unwrap_or_else(|error| panic!("{error}"));
    let seeds = Some(experiment.file.seeds.quick);
    let plan = Plan { no_sweeps: true, seeds, ..Plan::default() };
    let records =
        run_all(&experiment, &RunOptions { plan, ..RunOptions::default() }, Vec::new(), &());
    let records = records.unwrap_or_else(|error| panic!("{error}"));
    let command = format!("iopath lab run {name} --no-sweeps");
    let report = Report::build(&experiment, records, &command);
    print!("{}", report.text());
    let page = Report::html(std::slice::from_ref(&report), None).expect("our template is valid");
    for (end, text) in
        [("md", report.markdown()), ("json", report.json().to_string()), ("html", page)]
    {
        let path = format!("{folder}/{name}.{end}");
        std::fs::write(&path, text).unwrap_or_else(|error| panic!("{path}: {error}"));
    }
}
