//! mdtest 4.1: tasks create, stat, read, rename and remove directories and files in a tree.
//!
//! Options, names and output are those of the real tool, whose tasks are MPI processes; here they
//! are tasks of the runtime (`--tasks N`, also `-np N`). Each phase begins when every task has
//! ended the one before.
//!
//! Refused by name: collective creation, one shared file, stonewalling, checks of the content,
//! files of results, and back ends other than POSIX.

mod options;
mod output;
mod run;
mod task;

pub use options::{Options, Usage};
pub use run::{Failure, Operation, Report, Row, run};
