//! sysbench's file I/O test, with the tool's options (those of version 0.4, which the threads of
//! 2009 used, and of 1.0) and the output of the version that the command line is written for.
//!
//! `prepare` makes the files, `run` works on them with a number of threads, `cleanup` removes them.
//!
//! Where it is not the tool: `async` keeps requests under way by tasks instead of a queue of the
//! kernel's; `mmap` reads the pages of what it writes before, as a fault does, and writes them
//! through the same calls; validation has a format of its own; options that name the generator of
//! random numbers, stacks and forced shutdown are taken and change nothing (nor does the first of
//! them in the tool: its file test draws uniformly, whatever it is asked for).

mod latency;
mod options;
mod output;
mod run;
mod validate;

pub use latency::Latency;
pub use options::{Command, Dialect, Extra, IoMode, Mode, Options, Usage};
pub use output::{Spread, prepared};
pub use run::{Failure, Prepared, Report, ThreadReport, cleanup, prepare, run};
