//! The whole lab, and every other command, with one elevator more: nearest request first.
//!
//! `cargo run -p iopath --example nearest -- lab run mine.toml`, where a variant of `mine.toml` has
//! `elevator = "nearest"`. Machines, experiments and their programs are added likewise, by
//! `model::register`, `lab::experiment::register` and `lab::programs::register`.

use std::ffi::OsString;
use std::process::ExitCode;

use iopath::base::{Nanos, Sector};
use iopath::block::elevator::{self, Dispatch, Elevator};
use iopath::block::{Request, RequestId};
use iopath::cli;

/// The waiting request that is nearest to where the last one ended. It starves what is far away.
#[derive(Default)]
struct Nearest {
    waiting: Vec<RequestId>,
    head: u64,
}

impl Elevator for Nearest {
    fn name(&self) -> &'static str {
        "nearest"
    }

    fn insert(&mut self, id: RequestId, _request: &Request, _now: Nanos) {
        self.waiting.push(id);
    }

    fn absorbed(&mut self, gone: RequestId, _absorbed: &Request, _into: RequestId) {
        self.waiting.retain(|&id| id != gone);
    }

    fn dispatch(&mut self, view: &Dispatch<'_>) -> Option<RequestId> {
        let distance = |id: &RequestId| view.requests.get(*id).sector.0.abs_diff(self.head);
        let nearest = self.waiting.iter().copied().min_by_key(distance)?;
        self.waiting.retain(|&id| id != nearest);
        let Sector(end) = view.requests.get(nearest).end_sector();
        self.head = end;
        Some(nearest)
    }
}

/// Runs a command line with the elevator; the first argument is the program's name.
pub fn run(args: Vec<OsString>) -> ExitCode {
    match elevator::register("nearest", || Box::new(Nearest::default())) {
        Ok(()) => cli::main(args),
        Err(why) => {
            eprintln!("nearest: {why}");
            ExitCode::FAILURE
        }
    }
}

pub fn main() -> ExitCode {
    run(std::env::args_os().collect())
}
