//! The caches between the file systems and the block layer.
//!
//! [`BufferCache`] holds single file-system blocks (Linux: buffer heads): metadata, found by block
//! number through a small LRU per CPU and one index behind it. A [`Buffer`]'s memory is a
//! [`base::Page`], copied when somebody writes to a block that is on its way to the device; so what
//! a bio or a journal commit has taken never changes, and nobody waits for stable pages.
//!
//! A typical sequence: `cache.read(cx, block)?` finds or reads a block, `buffer.with(|bytes| ..)`
//! looks into it, `buffer.with_mut(|bytes| ..)` changes it, then either `buffer.mark_dirty()` and
//! later `cache.sync(cx)?`, or the calls of the `jbd2` crate around the change.
//!
//! Not modelled compared with Linux: buffers that share a page of the device's mapping, and
//! interrupts that disturb the LRU.

#![forbid(unsafe_code)]
#![deny(missing_docs)]

pub mod buffer;
pub mod buffer_cache;
pub mod index;
pub mod lru;

pub use buffer::{Buffer, BufferRef, Trigger};
pub use buffer_cache::{BufferCache, BufferConfig, BufferStats};
