//! How much dirty data of a mount the kernel may collect before it writes back.
//!
//! The kernel collects up to a fifth of the memory, however little space the file system has left.
//! Data that finds no space when it is written back is lost. So if little space is free, the kernel
//! is limited to a part of it, by its limits for each mount (`/sys/class/bdi`, which only root may
//! set; for mounts of other users the kernel's own limit is a hundredth).

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use rt::Cx;
use vfs::FileSystem;

use crate::outside::Outside;

/// The kernel may collect a quarter of the free space ..
const FREE_DIVISOR: u64 = 4;
/// .. and at least so many bytes: with less, each write waits for the one before.
const BYTES_MIN: u64 = 8 << 20;

/// A mount whose limit can be set, and the limit of all mounts together, in bytes.
struct Limited {
    outside: Arc<Outside>,
    whole: u64,
}

/// The limits of one mount.
pub(crate) struct WritebackLimits {
    outside: OnceLock<Limited>,
    /// Bytes that may be written until the limit is computed again.
    credit: AtomicI64,
    /// Bytes of dirty data that the kernel may collect; [`u64::MAX`]: only the limit of all mounts
    /// holds.
    limit: AtomicU64,
}

impl WritebackLimits {
    pub fn new() -> WritebackLimits {
        let limit = AtomicU64::new(u64::MAX);
        WritebackLimits { outside: OnceLock::new(), credit: AtomicI64::new(0), limit }
    }

    /// Sets the kernel's limits of the mount from now on, where they can be set. May park.
    pub fn connect(&self, cx: &mut Cx, fs: &dyn FileSystem, outside: &Arc<Outside>) {
        if let Some(whole) = outside.whole_limit() {
            let limited = || Limited { outside: outside.clone(), whole };
            self.update(cx, fs, self.outside.get_or_init(limited));
        }
    }

    /// Accounts for so many bytes written. May park.
    pub fn account(&self, cx: &mut Cx, fs: &dyn FileSystem, bytes: u64) {
        let Some(limited) = self.outside.get() else { return };
        let bytes = i64::try_from(bytes).unwrap_or(i64::MAX);
        let before = self.credit.fetch_sub(bytes, Ordering::Relaxed);
        // Exactly one writer uses up the credit, and that one updates the limit.
        if before >= 0 && before < bytes {
            self.update(cx, fs, limited);
        }
    }

    fn update(&self, cx: &mut Cx, fs: &dyn FileSystem, limited: &Limited) {
        let stat = fs.statfs(cx).ok();
        let free =
            stat.map_or(0, |stat| stat.blocks_available.saturating_mul(stat.block_size.into()));
        let (limit, credit) = limit_and_credit(free, limited.whole);
        let old = self.limit.load(Ordering::Relaxed);
        if limit.abs_diff(old) > old / 8 {
            self.limit.store(limit, Ordering::Relaxed);
            limited.outside.limit_dirty(limit);
        }
        self.credit.store(credit, Ordering::Relaxed);
    }
}

/// The limit for `free` bytes of free space, if `whole` bytes are the limit of all mounts; and how
/// many bytes may be written until it is computed again.
fn limit_and_credit(free: u64, whole: u64) -> (u64, i64) {
    let part = (free / FREE_DIVISOR).max(BYTES_MIN);
    (if part < whole { part } else { u64::MAX }, i64::try_from(part / 2).unwrap_or(i64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn collected_data_fits_into_the_free_space_except_for_the_last_megabytes() {
        let whole = 4 << 30;
        assert_eq!(limit_and_credit(100 << 30, whole).0, u64::MAX);
        let mut free = 100u64 << 30;
        while free > 0 {
            let (limit, credit) = limit_and_credit(free, whole);
            let collected = limit.min(whole);
            assert!(collected <= free || collected == BYTES_MIN, "{collected} of {free}");
            free = free.saturating_sub(credit as u64);
        }
    }
}
