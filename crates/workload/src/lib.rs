//! Workloads: the command lines and job files of `fs_mark`, `fio`, `mdtest` and `mds-survey` in,
//! their own output out.
//!
//! ```text
//!   iopath bench, lab
//!        |  options, Stop, Sink             |  reports, histograms, timelines
//!   fs_mark   fio   mdtest   mds_survey
//!        |  paths, offsets                  |
//!   Target: our path (vfs::Namespace) | a directory of the host
//! ```
//!
//! A workload is a set of tasks of the calling runtime, each with an I/O context of its own, so
//! that the same command line runs in real time and in virtual time. It asks the task for the time
//! and for random numbers, and prints nothing: text goes to a [`Sink`], figures into a report.
//!
//! ```text
//! let target = Target::ours(namespace, b"/");
//! let options = fs_mark::Options::parse(&["-d", "/mnt", "-n", "100"])?;
//! let stop = Stop::at(cx.now() + Nanos::from_secs(30));
//! let report = fs_mark::run(cx, &target, &options, &stop, &mut sink)?;
//! ```
//!
//! Not modelled: the tools' processes are tasks here, so that a task's exit costs nothing; a task
//! has no signals, and ends early through its [`Stop`].
#![forbid(unsafe_code)]
#![deny(missing_docs)]

mod buffer;
mod calendar;
pub mod fio;
pub mod fs_mark;
mod histogram;
pub mod mds_survey;
pub mod mdtest;
mod sink;
mod stats;
mod stop;
pub mod sysbench;
mod target;
mod timeline;

pub use buffer::AlignedBuffer;
pub use histogram::Histogram;
pub use sink::{NullSink, Sink, TextSink};
pub use stats::Stats;
pub use stop::Stop;
pub use target::{Space, Target, TargetFile};
pub use timeline::Timeline;
