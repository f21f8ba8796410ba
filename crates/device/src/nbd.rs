//! Network block devices: the protocol without I/O ([`wire`], [`Handshake`] of a server), a client
//! that is a [`block::Device`] ([`connect`]), and a server for any queue ([`serve`]).
//!
//! Fixed newstyle with `LIST`, `INFO`, `GO`, `EXPORT_NAME`, structured replies and
//! `base:allocation`; `FLUSH`, `FUA`, `TRIM`, `WRITE_ZEROES`, several connections of one client. No
//! TLS, no extended headers.
//!
//! Source: "The NBD protocol", doc/proto.md of the project NetworkBlockDevice/nbd.

mod client;
mod dial;
mod handshake;
mod map;
mod server;
mod stream;
mod transmission;
pub mod wire;

pub use client::{Patience, connect, connect_patiently};
pub use dial::NbdError;
pub use handshake::{Export, Handshake, Settled};
pub use map::{Allocation, FileMap};
pub use server::{Limits, Observer, Served, serve};
pub use stream::{Address, Listener, ServerPlace, Stream, bind};
