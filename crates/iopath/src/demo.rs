//! What `iopath demo` shows; the command itself is in [`crate::cmd::demo`].

pub mod crash;
pub mod elevators;
