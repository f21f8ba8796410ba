//! Writes new content so that its head, which makes it valid, comes last, between two flushes.

use std::sync::Arc;

use base::{Page, Sector};
use rt::Cx;

use super::{IoGroup, Queue};
use crate::{Bio, BioFlags, DeviceError, Op, Plug};

/// The largest single write, in bytes.
const WRITE_MAX: usize = 1 << 20;

impl Queue {
    /// Submits a new content as a whole: ranges that must read as zeroes (offset and length in
    /// bytes), then `writes` (offset in bytes, content) in few large requests, and last of all
    /// `head` at the start of the device, between two flushes: what is cut short has no head.
    /// Offsets and lengths are multiples of the device's logical block. Parks until all of it is
    /// durable.
    ///
    /// # Errors
    /// The device's first error.
    pub fn submit_all(
        self: &Arc<Self>,
        cx: &mut Cx,
        zeroes: &[(u64, u64)],
        writes: &[(u64, Vec<u8>)],
        head: &[u8],
    ) -> Result<(), DeviceError> {
        if !zeroes.is_empty() {
            let group = IoGroup::new();
            for &(offset, len) in zeroes {
                let sectors = Sector::from_bytes(len).0;
                let start = Sector::from_bytes(offset);
                self.submit(cx, Bio::ranged(Op::WriteZeroes, start, sectors, group.end()));
            }
            group.wait(cx)?;
        }
        let group = IoGroup::new();
        let mut plug = Plug::new();
        for (offset, bytes) in writes {
            for (index, piece) in bytes.chunks(WRITE_MAX).enumerate() {
                let start = Sector::from_bytes(offset + (index * WRITE_MAX) as u64);
                let pages = [Page::from_slice(piece)];
                let bio = Bio::write(start, pages, BioFlags::META, group.end());
                self.submit_plugged(cx, &mut plug, bio);
            }
        }
        plug.finish(cx);
        group.wait(cx)?;
        self.flush(cx)?;
        self.write(cx, Sector(0), Page::from_slice(head), BioFlags::META)?;
        self.flush(cx)
    }
}
