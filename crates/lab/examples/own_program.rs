//! An experiment whose runs a program of another crate does, in one file: the program, and what is
//! run, shown and expected. `cargo run -p iopath-lab --example own_program` prints its report.
//!
//! The program reads a device of the machine, one request after another. The whole lab with it
//! (`--results`, `--trace`, `compare` and the rest) is `iopath::cli::main` behind the same two
//! calls of `register`.

use std::sync::Arc;

use base::Sector;
use block::Queue;
use device::MemoryDevice;
use lab::experiment::{self, ByteSize, Experiment, Plan, RunSpec};
use lab::program::{Figures, Output, Played, Program, check_cases, parameters};
use lab::record::RunError;
use lab::{Report, RunOptions, programs, run_all};
use model::Profile;
use rt::World;
use serde::Deserialize;

/// What is run, shown and expected.
pub const EXPERIMENT: &str = r#"
schema = 1
program = "one-by-one"
question = "How fast is a disk that gets its next request when the last one is done?"

[document]
title = "an example"
author = "the lab"
date = "2026-11-25"

[machine]
profile = "disk-7200"
device = "1 GiB"
memory = "64 MiB"

[seeds]
quick = "1"
full = "1..3"

[with]
request = "64 KiB"
requests = 200

# Tables are by file system; this program reads the device, whatever is named here.
[filesystem.ext2]
type = "ext2"

[case.near]
title = "next to each other"
with = { stride = "64 KiB" }

[case.far]
title = "4 MiB apart"
with = { stride = "4 MiB" }

[variant.read]
title = "reads"

[metric]
rate = { title = "requests", unit = "/s", value = "rate", decimals = 0 }

[[table]]
title = "Requests"
filesystems = ["ext2"]
variants = ["read"]
cases = ["near", "far"]
metrics = ["rate"]

[[relation]]
title = "near by far"
value = "read.near.rate / read.far.rate"
within = [2.0, inf]
"#;

/// What a case says.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Parameters {
    request: ByteSize,
    stride: ByteSize,
    requests: u64,
}

struct OneByOne<'a> {
    experiment: &'a Experiment,
    profile: Profile,
}

fn new(experiment: &Experiment) -> Result<Box<dyn Program + '_>, String> {
    check_cases::<Parameters>(experiment)?;
    let profile = experiment.profile().map_err(|error| error.to_string())?;
    let profile = profile.ok_or("machine: it needs one that is modelled")?;
    Ok(Box::new(OneByOne { experiment, profile }))
}

impl Program for OneByOne<'_> {
    fn figures(&self) -> Vec<String> {
        vec!["rate".into()]
    }

    fn traces(&self) -> bool {
        false
    }

    fn run(&self, spec: &RunSpec, _keep_trace: bool) -> Result<Vec<Output>, RunError> {
        let failed = |what: String| RunError::of(spec.key.to_string(), what);
        let case = parameters::<Parameters>(&spec.key.case, &spec.with).map_err(failed)?;
        let bytes = self.experiment.file.machine.device.0;
        let mut world = World::new(self.profile.world_config(spec.key.seed));
        let seconds = world.run("reader", |cx| {
            let memory = Arc::new(MemoryDevice::new(bytes));
            let device = self.profile.device(cx.runtime(), memory).map_err(|e| e.to_string())?;
            let queue = Queue::new(cx.runtime(), device, self.profile.queue_config("none"));
            let queue = queue.map_err(|error| error.to_string())?;
            for index in 0..case.requests {
                let sector = Sector::from_bytes(index * case.stride.0);
                queue.read(cx, sector, case.request.0 as usize).map_err(|e| e.to_string())?;
            }
            Ok(cx.now().as_secs_f64())
        });
        let seconds = seconds.map_err(failed)?;
        let mut figures = Figures::default();
        figures.set("rate", case.requests as f64 / seconds);
        let played = Played { seconds, event_hash: format!("{:016x}", world.hash()) };
        let record = figures.record(self.experiment, spec, &spec.key.variant, played);
        Ok(vec![Output::of(record)])
    }
}

/// Runs the first seed of the experiment.
pub fn report_of(experiment: &Experiment) -> Result<String, String> {
    let plan = Plan { seeds: Some(experiment.file.seeds.quick), ..Plan::default() };
    let options = RunOptions { plan, ..RunOptions::default() };
    let records = run_all(experiment, &options, Vec::new(), &());
    let records = records.map_err(|error| error.to_string())?;
    Ok(Report::build(experiment, records, "own_program").text())
}

/// Adds the program and its experiment, and runs it.
pub fn report() -> Result<String, String> {
    programs::register("one-by-one", new)?;
    experiment::register("one-by-one", EXPERIMENT)?;
    report_of(&Experiment::load("one-by-one").map_err(|error| error.to_string())?)
}

pub fn main() {
    match report() {
        Ok(text) => print!("{text}"),
        Err(why) => eprintln!("own_program: {why}"),
    }
}
