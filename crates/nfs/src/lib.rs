//! NFS version 3: a client that is a [`vfs::FileSystem`] like any other, with a page cache that
//! knows its parts, and a server that exports any of them.
//!
//! ```text
//!   vfs::Namespace, commands, workloads
//!            |
//!   client::NfsClient         names, attributes, close-to-open
//!   client::pages             folios: valid, dirty, unstable ranges; write-back, readahead
//!   client::rpc               calls in slots, xids, retransmission
//!            |
//!   wire                      TCP, or a modelled link with faults
//!            |
//!   wire::Nfsd                tasks that answer
//!   server::Server            permissions, handles, duplicate requests, COMMIT
//!            |
//!   any vfs::FileSystem
//! ```
//!
//! Both sides are sans-I/O: messages are bytes ([`xdr`], [`rpc`], [`proto`]), and who brings them
//! is a [`wire::Wire`]. So the same client and server run on sockets in real time, and on a
//! modelled network with drops, delays, duplicates and restarts in virtual time.
//!
//! Not supported: NFS version 4, locking (NLM), ACLs, UDP, Kerberos.

#![forbid(unsafe_code)]
#![deny(missing_docs)]

pub mod client;
pub mod proto;
pub mod rpc;
pub mod server;
pub mod wire;
pub mod xdr;

pub use client::{Mode, MountError, NfsClient, NfsOptions, NfsStats, Url};
pub use server::{Allowed, Export, HandleKey, Server, ServerStats, Squash};
