//! The programs: what does the runs of an experiment that no workloads do.
//!
//! One of another crate is added by [`register`], with its experiment in the same file: see
//! `examples/own_program.rs`. A built-in one is a module here, its line in `PROGRAMS`, and a file
//! in `experiments/` that says `program = ..`.

pub mod bh_lru;
pub mod nfs_partial;
pub mod xfs_buf_item;

use crate::experiment::Experiment;
use crate::program::Program;
use crate::workloads::Workloads;
use rt::Registry;

/// Makes the program for an experiment, or says what of the experiment is not for it.
pub type Make = for<'a> fn(&'a Experiment) -> Result<Box<dyn Program + 'a>, String>;

const PROGRAMS: &[(&str, Make)] = &[
    ("bh-lru", bh_lru::new),
    ("nfs-partial", nfs_partial::new),
    ("xfs-buf-item", xfs_buf_item::new),
];

/// Programs that a crate has added.
static ADDED: Registry<Make> = Registry::new();

/// Adds a program to those that experiments may name, for as long as the process runs.
///
/// # Errors
/// The name is taken, or is none.
pub fn register(name: &'static str, make: Make) -> Result<(), String> {
    ADDED.add(PROGRAMS.iter().map(|&(name, _)| name), name, make)
}

/// The program of that name, built in or added.
fn find(name: &str) -> Option<Make> {
    let built_in = PROGRAMS.iter().find(|&&(known, _)| known == name);
    built_in.map(|&(_, make)| make).or_else(|| ADDED.get(name))
}

/// What does the runs of an experiment: the program that its file names, else the workloads.
///
/// # Errors
/// No such program; a case, a variant or a metric that is none for it.
pub fn of(experiment: &Experiment) -> Result<Box<dyn Program + '_>, String> {
    let Some(name) = &experiment.file.program else {
        return Ok(Box::new(Workloads::new(experiment)?));
    };
    let name = name.get_ref();
    let Some(make) = find(name) else {
        let names = PROGRAMS.iter().map(|&(name, _)| name).chain(ADDED.names());
        let names = names.collect::<Vec<_>>().join(", ");
        return Err(format!("no program `{name}`; there are: {names}"));
    };
    let program = make(experiment)?;
    let figures = program.figures();
    for (metric, one) in &experiment.file.metric {
        let value = one.value.get_ref();
        if !figures.contains(value) {
            let known = figures.join(", ");
            return Err(format!("metric {metric}: `{value}` is no figure; there are: {known}"));
        }
    }
    Ok(program)
}
