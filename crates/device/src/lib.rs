//! Devices: they store the sectors.
//!
//! Every device has the face [`block::Device`]. Real ones: an image file or a block device of the
//! host ([`open`], [`create`]), and memory ([`MemoryDevice`]). Layers around any other device: a
//! [`Partition`], a [`StripeDevice`] over several, the record of all writes for
//! crash tests ([`RecordDevice`]), faults by rule ([`FaultDevice`]). Devices with modelled times
//! are in crate `model`. `docs/add-a-device.md` shows how to add one.
//!
//! On other systems than Linux, image files are opened by the standard library alone: no block
//! devices, no direct I/O; network block devices on Unix. The feature `io-uring` (on by default)
//! brings [`Engine::Uring`] on Linux.
//!
//! Unsafe code is confined to `host`: locks on files (`claim`), `ioctl`s (`blockdev`) and the ring
//! (`uring`); each begins with its invariant.

#![deny(missing_docs)]
#![deny(unsafe_code)]

mod fault;
mod host;
mod memory;
#[cfg(unix)]
pub mod nbd;
mod partition;
mod record;
pub mod stripe;

pub use fault::{Fault, FaultDevice, Rule};
#[cfg(all(target_os = "linux", feature = "io-uring"))]
pub use host::UringDevice;
#[cfg(target_os = "linux")]
pub use host::wait_for_loop;
pub use host::{
    Engine, FileDevice, OpenError, OpenOptions, create, create_with, open, open_part, open_unlocked,
};
pub use memory::MemoryDevice;
pub use partition::{Partition, PartitionEntry, PartitionError, PartitionTable, TableKind};
pub use record::{Content, Cut, Entry, Event, RecordDevice, Recording, WriteLog};
pub use stripe::{StripeDevice, StripeError};
