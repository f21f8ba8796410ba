//! The tests of this crate as one program: it is compiled and linked once.

mod barrier;
mod bfq;
mod cfq;
mod cfq_order;
mod cfq_yield;
mod common;
mod conservation;
mod control;
mod deadline;
mod flush;
mod fsync_mix;
mod groups;
mod hw_queues;
mod kernel_elevators;
mod kyber;
mod merge;
mod notes;
mod queue;
mod relay;
mod then;
