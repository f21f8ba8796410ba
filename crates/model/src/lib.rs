//! Modelled machines in virtual time: disks, arrays, flash, memory, and processor costs.
//!
//! A machine is a TOML file ([`Profile`]), built in ([`names`]) or the user's. From it come the
//! world ([`Profile::world_config`]: processors and their costs), the device ([`Profile::device`])
//! and the host's queue ([`Profile::queue_config`]):
//!
//! ```
//! use block::Queue;
//! use device::MemoryDevice;
//! use model::Profile;
//! use rt::World;
//! use std::sync::Arc;
//!
//! let machine = Profile::load("array-2010")?;
//! let mut world = World::new(machine.world_config(7));
//! let memory = Arc::new(MemoryDevice::new(1 << 30));
//! let device = machine.device(&world.runtime(), memory)?;
//! let config = machine.queue_config("deadline");
//! let queue = Queue::new(&world.runtime(), device, config).expect("a queue");
//! world.run("main", |cx| queue.read(cx, base::Sector(0), 4096).expect("a read"));
//! # Ok::<(), model::ProfileError>(())
//! ```
//!
//! A model is a state machine in event context: commands and times go in, completions come out. The
//! content lies in a [`device::MemoryDevice`], so the formats on a modelled device are real. Models
//! know nothing of elevators and file systems; they count what they do ([`ModelStats`]).
//!
//! Deterministic: times are whole nanoseconds, events of one time have an order, nothing is drawn
//! at random and nothing is iterated in hash order. What is modelled and what is not stands in each
//! file, and in `docs/machines.md`.

#![deny(missing_docs)]
#![forbid(unsafe_code)]

mod array;
mod disk;
mod flash;
mod fold;
mod link;
mod machine;
mod memory;
mod profile;
mod quantity;
mod runs;
mod stats;
mod stripe;

pub use array::ArrayParams;
pub use disk::DiskParams;
pub use flash::FlashParams;
pub use link::{Link, LinkParams, LinkStats, Way};
pub use machine::ModelDevice;
pub use memory::MemoryParams;
pub use profile::{
    DeviceSpec, LoadSpec, Parameter, Profile, ProfileError, QueueSpec, names, register,
};
pub use quantity::Rate;
pub use stats::ModelStats;
pub use stripe::StripeParams;
