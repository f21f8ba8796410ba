//! What a file system can hold.

use base::Timespec;

/// The limits in which formats differ.
#[derive(Clone, Debug)]
pub struct Limits {
    /// Largest file, bytes.
    pub size_max: u64,
    /// Most names of an inode; directories are not limited.
    pub links_max: u32,
    /// Longest symlink target, bytes.
    pub target_max: usize,
    /// What files share is whole blocks of so many bytes.
    pub block_size: u64,
    /// The last second that is stored; later times become that one.
    pub seconds_max: i64,
}

impl Limits {
    /// The time that is stored for one that was asked for.
    pub fn stored(&self, time: Timespec) -> Timespec {
        if time.sec < self.seconds_max { time } else { Timespec::from_secs(self.seconds_max) }
    }
}

impl Default for Limits {
    /// Those of ext4 with blocks of 4 KiB.
    fn default() -> Limits {
        let (size_max, target_max) = ((u32::MAX as u64) << 12, 4095);
        Limits { size_max, links_max: 65_000, target_max, block_size: 4096, seconds_max: i64::MAX }
    }
}
