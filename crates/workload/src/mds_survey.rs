//! Lustre's mds-survey: threads create, look up, stat, label and destroy files in directories,
//! below the names of files: on the face of the file system itself.
//!
//! Settings are variables, as of the real script (`thrlo=1 thrhi=8 file_count=100000`), and its
//! lines of output are the script's. `layer=mdd` goes through [`vfs::Namespace`], with permissions;
//! `layer=osd` calls [`vfs::FileSystem`].
//!
//! What differs: there is one server (`mdt 1`), so `targets` and `stripe_count` other than the
//! default are refused; the host has no such face.

mod options;
mod run;

pub use options::{Layer, Options, Test, Usage, VARIABLES};
pub use run::{Failure, Line, Point, Report, run};
