//! sysbench's file I/O test, with the tool's options (those of version 0.4, which the threads of
//! 2009 used, and of 1.0) and the output of the version that the command line is written for.
//!
//! `prepare` makes the files, `run` works on them with a number of threads, `cleanup` removes them.
//! Not supported: asynchronous and mmap modes, validation, warm-up, reports at intervals.

mod options;
mod output;
mod run;

pub use options::{Command, Dialect, Extra, Mode, Options, Usage};
pub use run::{Failure, Report, cleanup, prepare, run};
