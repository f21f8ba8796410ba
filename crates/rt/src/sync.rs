//! Locks and wait queues, the same in both clocks: an uncontended operation is one
//! compare-and-swap, and only where a task must wait is the back end asked to park it.

pub mod channel;
pub mod completion;
#[cfg(all(test, iopath_shuttle))]
mod explore;
pub mod mutex;
pub(crate) mod raw;
pub mod registry;
pub mod rwlock;
pub mod semaphore;
pub(crate) mod shim;
pub mod spin;
pub mod waitqueue;
