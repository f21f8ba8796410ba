//! fio: job files in, its text, JSON and terse output out.
//!
//! The grammar, the defaults, the bucket rule of the percentiles and the shapes of the output are
//! those of fio 3.33. A job is a task with an I/O context of its own; an asynchronous engine with a
//! depth is as many tasks of that one I/O context. Every key is carried out or refused by its name.
//!
//! What differs:
//!
//! - random places follow from the runtime's seed (in real time with `randrepeat=1` from a fixed
//!   one); they have fio's distributions and not its very numbers;
//! - processes, threads and engines of one kind are the same thing here;
//! - processor time, context switches and page faults are not measured and print as zero; there are
//!   no lines on the host's disks;
//! - `invalidate` asks the host to forget a file's pages; on our own path nothing is forgotten.

mod error;
mod file;
mod job;
mod jobfile;
mod json;
mod key_names;
mod keys;
mod layout;
mod log;
mod measure;
mod number;
mod output;
mod place;
mod random;
mod replay;
mod report;
mod run;
mod state;
mod terse;
mod text;
mod value;
mod verify;
mod visited;
mod worker;

pub use error::{JobError, JobErrors, Span};
pub use job::{
    Direction, Distribution, Engine, FileService, Generator, Job, PERCENTILES, Pattern,
    Preallocate, Verify,
};
pub use jobfile::JobFile;
pub use measure::{Latency, LatencyBands};
pub use place::Extent;
pub use replay::{Action, Operation, Replay as OperationList};
pub use report::{DirectionReport, FioReport, JobReport};
pub use run::{lay_out, run};
pub use text::Surroundings;
pub use value::Amount;
