//! The ground that every other crate stands on: units, errno values, checksums, bitmaps, byte
//! ranges, seeded random streams, hash maps with a fixed hasher, values and lists that grow under
//! those who look at them, page memory, and memory for keys.
//!
//! Nothing here waits, reads a clock or draws a random number that the caller did not seed. Unsafe
//! code is confined to [`page`] and [`locked`], which own aligned memory.
//!
//! The one idea worth knowing before reading the layers above is [`Page`]: memory that is shared by
//! counting references and copied when somebody writes to a shared one. A bio that is on its way to
//! the device holds a clone, so its content cannot change; whoever modifies the block meanwhile
//! gets a copy of his own. Linux needs frozen copies, shadow buffers and waits for stable pages for
//! the same guarantee.

#![deny(missing_docs)]

pub mod bitmap;
pub mod calendar;
pub mod crc;
pub mod errno;
pub mod grown;
pub mod hash;
pub mod locked;
pub mod map;
pub mod page;
pub mod range;
pub mod rng;
pub mod unit;

pub use errno::Errno;
pub use hash::EventHash;
pub use locked::{Locked, LockedBytes};
pub use page::Page;
pub use range::{RangeSet, RangeSet64};
pub use rng::Rng;
pub use unit::{FsBlock, Ino, Nanos, Sector, Timespec};
