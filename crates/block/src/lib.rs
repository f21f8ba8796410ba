//! The block layer: bios become requests, requests merge, wait in an elevator and go to a device.
//!
//! Above are the caches and file systems, which submit a [`Bio`]: one operation on one run of
//! sectors, the pages it moves, and a closure that is called at its end. Below is a [`Device`],
//! which takes a [`DeviceIo`]: one request of one or several bios. Between them stands the
//! [`Queue`] with its elevator.
//!
//! The path of a bio: [`Queue::submit`] checks it, cuts it where it exceeds the device's limits,
//! lets it join a waiting neighbour or makes a [`Request`] of it; the elevator ([`elevator`])
//! chooses what goes to the device next while that has room; completion answers every bio of the
//! request its own part of the result. A [`Plug`] collects the bios of one task first, so that
//! neighbours meet. FLUSH, PREFLUSH and FUA are carried out in steps where the device needs that
//! (`queue/flush.rs`).
//!
//! One circle of modules stays: a queue sends requests to its device, and the device completes them
//! to their queue.
//!
//! As in Linux, the order of bios that are in the queue together is not defined. A caller that
//! needs an order waits for the first bio to end.
//!
//! Compared with Linux, there is one queue per device, none per CPU; control
//! groups do not nest ([`control`]); no integrity data, no zones, no polling; limits on segment
//! boundaries do not exist, because pages are copied or gathered by the host.

#![deny(missing_docs)]
#![forbid(unsafe_code)]

mod bio;
pub mod control;
mod device;
pub mod elevator;
mod error;
mod info;
mod op;
mod overlay;
mod queue;
mod request;
mod share;
mod split;
mod stats;
pub mod trace;

pub use bio::{Bio, BioFlags, BioResult, EndIo, Issuer, Segment, Segments, bytes_of};
pub use device::{Device, DeviceIo, HostRange};
pub use error::{Cause, DeviceError};
pub use info::DeviceInfo;
pub use op::Op;
pub use overlay::Overlay;
pub use queue::plug::{PLUG_REQUESTS, Plug};
pub use queue::{IoGroup, Queue, QueueConfig, QueueError, SyncWrites};
pub use request::{Request, RequestId, Requests};
pub use stats::{LatencyHistogram, QueueStats};
pub use trace::{TraceEvent, TraceKind};
