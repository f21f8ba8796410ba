//! Shared mappings of files.
//!
//! # Invariant of the unsafe code
//!
//! A [`Mapping`] owns its pages from mmap(2) to munmap(2), and nobody else has their address. They
//! lie within the file, whose last page is whole: who makes a mapping does not let the file become
//! shorter while it stays, so that no access ends in SIGBUS. Other processes may change the bytes:
//! they are only copied, never referred to. `fsx.rs` compares every byte that comes or goes.
#![allow(unsafe_code)]

use std::ffi::c_void;
use std::fs::File;
use std::io;
use std::ptr;

use rustix::mm::{MapFlags, MsyncFlags, ProtFlags, mmap, msync, munmap};

const PAGE: u64 = 4096;

/// Bytes of a file in memory, from the page of one to the page of another.
pub struct Mapping {
    pages: *mut c_void,
    len: usize,
    /// Where in the pages the range begins.
    skip: usize,
}

impl Mapping {
    /// Maps the pages of `len` bytes from `offset` on, inside of the file; `len` is not 0.
    pub fn new(file: &File, offset: u64, len: u64) -> io::Result<Mapping> {
        let end = offset.checked_add(len).filter(|end| len > 0 && *end <= i64::MAX as u64);
        let end = end.ok_or(io::ErrorKind::InvalidInput)?;
        if end > file.metadata()?.len() {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let from = offset / PAGE * PAGE;
        let len = (end.next_multiple_of(PAGE) - from) as usize;
        let access = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: the kernel chooses a place that nobody has.
        let pages = unsafe { mmap(ptr::null_mut(), len, access, MapFlags::SHARED, file, from)? };
        Ok(Mapping { pages, len, skip: (offset - from) as usize })
    }

    /// Copies the bytes of the range into `bytes`.
    pub fn read(&self, bytes: &mut [u8]) {
        assert!(self.skip + bytes.len() <= self.len, "within the pages");
        let from = self.pages.cast::<u8>().wrapping_add(self.skip);
        // SAFETY: `from` and as many bytes as `bytes` has are within the pages, which are ours.
        unsafe { ptr::copy_nonoverlapping(from, bytes.as_mut_ptr(), bytes.len()) };
    }

    /// Copies `bytes` into the range.
    pub fn write(&self, bytes: &[u8]) {
        assert!(self.skip + bytes.len() <= self.len, "within the pages");
        let to = self.pages.cast::<u8>().wrapping_add(self.skip);
        // SAFETY: `to` and as many bytes as `bytes` has are within the pages, which are ours.
        unsafe { ptr::copy_nonoverlapping(bytes.as_ptr(), to, bytes.len()) };
    }

    /// Bytes from the begin of the range to the end of its last page.
    pub fn room(&self) -> usize {
        self.len - self.skip
    }

    /// Waits until the file has what was written (`MS_SYNC`).
    pub fn sync(&self) -> io::Result<()> {
        // SAFETY: the pages are ours.
        unsafe { Ok(msync(self.pages, self.len, MsyncFlags::SYNC)?) }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the pages are ours, and nobody refers to them.
        unsafe { munmap(self.pages, self.len).expect("what was mapped can be taken away") };
    }
}
