//! How much the kernel may collect before it writes back: what finds room, or little.
//!
//! The kernel collects up to a fifth of the memory, whatever the file system has left; what finds
//! no room is lost when it is written back. So where less is free it is held to a part of that, by
//! the limits that it has for each mount (`/sys/class/bdi`, root's alone to set; a mount of others
//! is held to a hundredth by the kernel itself).

use std::sync::OnceLock;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

use rt::Cx;
use vfs::FileSystem;

use crate::kernel::Bdi;

/// The kernel may collect a quarter of what is free ..
const PART: u64 = 4;
/// .. and this however little is: with less, each write waits for the one before.
const BYTES_MIN: u64 = 8 << 20;

/// What a mount may take until the next look.
pub(crate) struct Room {
    bdi: OnceLock<Bdi>,
    /// Bytes that may be taken until then.
    credit: AtomicI64,
    /// Bytes that the kernel is held to, [`u64::MAX`] for none but what holds for all mounts.
    limit: AtomicU64,
}

impl Room {
    pub fn new() -> Room {
        let limit = AtomicU64::new(u64::MAX);
        Room { bdi: OnceLock::new(), credit: AtomicI64::new(0), limit }
    }

    /// The kernel's limits of the mount, where there are such. May park.
    pub fn connect(&self, cx: &mut Cx, fs: &dyn FileSystem, bdi: Bdi) {
        self.look(cx, fs, self.bdi.get_or_init(|| bdi));
    }

    /// So many bytes were taken. May park.
    pub fn took(&self, cx: &mut Cx, fs: &dyn FileSystem, bytes: u64) {
        let Some(bdi) = self.bdi.get() else { return };
        let bytes = i64::try_from(bytes).unwrap_or(i64::MAX);
        let before = self.credit.fetch_sub(bytes, Ordering::Relaxed);
        // Whoever spends the last of the credit looks.
        if before >= 0 && before < bytes {
            self.look(cx, fs, bdi);
        }
    }

    fn look(&self, cx: &mut Cx, fs: &dyn FileSystem, bdi: &Bdi) {
        let stat = fs.statfs(cx).ok();
        let free =
            stat.map_or(0, |stat| stat.blocks_available.saturating_mul(stat.block_size.into()));
        let (limit, credit) = limit_and_credit(free, bdi.whole());
        let old = self.limit.load(Ordering::Relaxed);
        if limit.abs_diff(old) > old / 8 {
            self.limit.store(limit, Ordering::Relaxed);
            bdi.limit_dirty(limit);
        }
        self.credit.store(credit, Ordering::Relaxed);
    }
}

/// What the kernel may collect where `free` bytes are free and `whole` bytes are the limit of all
/// mounts; and how many bytes may be taken until this is to be asked again.
fn limit_and_credit(free: u64, whole: u64) -> (u64, i64) {
    let part = (free / PART).max(BYTES_MIN);
    (if part < whole { part } else { u64::MAX }, i64::try_from(part / 2).unwrap_or(i64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_collected_always_finds_room_but_for_the_last_of_it() {
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
