//! fs_mark 3.3: files are created, written, made durable by one of seven methods, and removed.
//!
//! Options, output and the order of the system calls are those of the real tool, as its manual, its
//! README and a trace of its calls show them. A thread of the tool is a task with an I/O context of
//! its own, and as in the tool each iteration starts new ones.
//!
//! What differs:
//!
//! - the first subdirectory, which the tool takes from the clock, and the random part of the names
//!   come from the runtime's random streams, so that a seed gives one run;
//! - numbers are read strictly (`4k` is an error, where the tool reads 4), zero files and a zero
//!   `-w` are refused (the tool fails, or hangs);
//! - several threads remove all their files (the tool leaves some behind).

mod options;
mod output;
mod run;
mod thread;

pub use options::{Options, SyncMethod, Usage};
pub use output::usage;
pub use run::{CallStats, Calls, Failure, Iteration, Report, run};
