//! Power cuts for tests: what a program has left on a disk when the power fails.
//!
//! A run is recorded below a real file system, ext4 or XFS: every write, flush, FUA, discard, and
//! what the program said that it had reached. From that record the crate makes the states that a
//! power cut can leave, recovers each with the file system's own code, checks the file system, and
//! asks the test whether what it was promised is there.
//!
//! ```text
//!   check            a workload and an invariant: crash::check(|fs| .., |fs| ..)
//!   record           a Recorder below any file system, into a file or into memory
//!   watch, calls     what the file system was asked to do, into the same log
//!      |  log        writes, flushes, marks: compressed, each content once, seekable
//!   disk, plan       which writes a disk may lose or tear, and in which order that is tried
//!      |  medium     the disk after a cut: copy on write over what is durable
//!   disk_file, host  the kernel's file systems: recorded below a loop device, and mounted again
//!   recover, explore mount, replay, check, ask; equal states once
//!   finding          states that fail alike, so that shards and runs that go on agree
//!   fold             states that are the same to recovery: one is recovered for all
//!   oracle           what the calls promised, compared with what is there
//!   story            the smallest set of lost writes, and what each of them is
//! ```
//!
//! A typical test:
//!
//! ```
//! crash::check(
//!     |fs| {
//!         fs.write("/new", b"content")?;
//!         fs.fsync("/new")?;
//!         fs.rename("/new", "/file")?;
//!         fs.fsync("/")?;
//!         fs.mark("saved");
//!         Ok(())
//!     },
//!     |fs| {
//!         if fs.held("saved") && fs.read("/file")? != b"content" {
//!             return Err("what was saved is lost".into());
//!         }
//!         Ok(())
//!     },
//! );
//! ```
//!
//! What a disk is assumed to do, and what is out of scope, is in `docs/fault-model.md`; how to use
//! the command `iopath crash` is in `docs/crash.md`.
#![forbid(unsafe_code)]
#![deny(missing_docs)]

pub mod calls;
pub mod check;
pub mod cut;
pub mod disk;
pub mod disk_file;
pub mod explore;
pub mod extract;
pub mod finding;
pub mod fold;
pub mod foreign;
pub mod host;
pub mod log;
pub mod mark;
pub mod medium;
pub mod oracle;
pub mod output;
pub mod plan;
pub mod record;
pub mod recover;
pub mod report;
pub mod story;
pub mod tree;
pub mod verdict;
pub mod watch;

pub use check::{Crash, Error, Fs, Result, check};
pub use disk::Disk;
pub use explore::{Exploration, Finding, Judge, Outcome, Verdict, explore};
pub use log::{Header, Log, LogError, LogWriter, Note};
pub use oracle::{Oracle, Rules};
pub use plan::{Limits, Plan};
pub use record::Recorder;
pub use recover::{Format, Kind, MountOptions};
pub use verdict::Refusal;
