//! Devices: where the sectors really are.
//!
//! Every device has the face [`block::Device`]. Real ones: an image file or a block device of the
//! host ([`open`], [`create`]), and memory ([`MemoryDevice`]).
//!
//! Unsafe code is confined to locks on files (`claim`), `ioctl`s (`blockdev`) and the ring (`uring`);
//! each begins with its invariant.

#![deny(missing_docs)]
#![deny(unsafe_code)]

mod blockdev;
mod claim;
mod file;
mod memory;
mod open;
mod record;
mod uring;

pub use file::FileDevice;
pub use memory::MemoryDevice;
pub use open::{Engine, OpenError, OpenOptions, create, create_with, open};
pub use record::{Cut, Entry, Event, RecordDevice, WriteLog};
pub use uring::UringDevice;
