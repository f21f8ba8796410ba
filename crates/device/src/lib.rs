//! Devices: they store the sectors.
//!
//! Every device has the face [`block::Device`]. Real ones: an image file or a block device of the
//! host ([`open`], [`create`]), and memory ([`MemoryDevice`]). Layers around any other device: a
//! [`Partition`], a [`StripeDevice`] over several, the record of all writes for
//! crash tests ([`RecordDevice`]), faults by rule ([`FaultDevice`]). Devices with modelled times
//! are in crate `model`. `docs/add-a-device.md` shows how to add one.
//!
//! Unsafe code is confined to `host`: locks on files (`claim`), `ioctl`s (`blockdev`) and the ring
//! (`uring`); each begins with its invariant.

#![deny(missing_docs)]
#![deny(unsafe_code)]

mod fault;
mod host;
mod memory;
pub mod nbd;
mod partition;
mod record;
pub mod stripe;

pub use fault::{Fault, FaultDevice, Rule};
pub use host::{
    Engine, FileDevice, OpenError, OpenOptions, UringDevice, create, create_with, open, open_part,
    open_unlocked,
};
pub use memory::MemoryDevice;
pub use partition::{Partition, PartitionEntry, PartitionError, PartitionTable, TableKind};
pub use record::{Content, Cut, Entry, Event, RecordDevice, Recording, WriteLog};
pub use stripe::{StripeDevice, StripeError};
