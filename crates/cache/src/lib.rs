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
//! [`PageCache`] holds file data in folios of 4, 16 or 64 KiB with independent valid and dirty byte
//! ranges: a [`Mapping`] per file, readahead, write-back with dirty limits, reclaim under a memory
//! limit. A file system implements [`IomapOps`] and calls `mapping.read(cx, ..)`,
//! `mapping.write(cx, ..)` and `mapping.fsync(cx, ..)`; the head of [`mapping`] states the rules.
//!
//! One circle of modules stays: the page cache cleans the pages of its mappings, which take their
//! pages from it; write-back stands between them.
//!
//! Not modelled compared with Linux: buffers that share a page of the device's mapping, and
//! interrupts that disturb the LRU.

#![forbid(unsafe_code)]
#![deny(missing_docs)]

pub mod buffer;
#[cfg(all(test, iopath_shuttle))]
mod explore;
mod folio;
pub mod iomap;
pub mod mapping;
pub mod page_cache;
pub mod readahead;
mod reclaim;
mod ring;
pub mod writeback;

pub use buffer::cache::{BufferCache, BufferConfig, BufferStats, SpareLrus};
pub use buffer::lru::LruKind;
pub use buffer::{Buffer, BufferRef, Trigger};
pub use iomap::{Intent, Iomap, IomapKind, Iomaps};
pub use mapping::{ErrorMark, InMemory, IomapIter, IomapOps, Mapping, TakenBlocks};
pub use page_cache::{PageCache, PageCacheConfig, PageCacheStats};
pub use writeback::{Backing, Lost, WritePlug, WritebackControl};
