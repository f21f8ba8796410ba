//! Images on servers: `http://`, `https://`, `s3://`, `gs://` and `az://`, read by ranges; and
//! objects that are written whole ([`put`]) or in the parts that differ ([`replace()`]).
//!
//! [`open`] returns a [`container::Source`], so that code that reads files reads objects, too.
//! It reads blocks of 64 KiB through a cache in memory of a bounded size and, where a folder is
//! given, on disk, where processes share it. Reads in a row make it read ahead, in requests of up
//! to 4 MiB, several at once.
//!
//! An object is one version of itself: its ETag, size and date are noted when it is opened. Each
//! request asks for that version (If-Match), and each answer is compared with it. A changed object
//! is an error from then on, never a mixture.
//!
//! One thread runs the requests of all objects of a process; callers wait for it in their own.

#![deny(missing_docs)]
#![forbid(unsafe_code)]

mod address;
mod blocks;
mod disk;
mod error;
mod fetch;
mod http;
mod kept;
mod remote;
mod replace;
mod s3;
mod store;
mod streams;
mod upload;
mod version;

pub use address::is_address;
pub use error::Error;
pub use remote::{Options, RemoteFiles, open, open_version};
pub use replace::{Content, Replaced, Replacing, replace};
pub use upload::{is_written, put};
