//! Devices: where the sectors really are.

#![deny(missing_docs)]
#![deny(unsafe_code)]

mod memory;

pub use memory::MemoryDevice;
