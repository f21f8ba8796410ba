//! Attributes and times as Python has them.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use image::Metadata;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

/// `st_mode`, `st_ino`, `st_nlink`, `st_uid`, `st_gid`, `st_size`, the times of access, of change
/// of content and of change of the inode in nanoseconds, `st_blksize`, `st_blocks`, `st_rdev`.
pub type Stat = (u32, u64, u32, u32, u32, u64, (i128, i128, i128), u32, u64, u64);

/// The numbers of `os.stat_result`.
pub fn stat_of(metadata: &Metadata) -> Stat {
    let mode = u32::from(metadata.file_type().mode_bits() | metadata.mode());
    let times = (
        nanoseconds(metadata.accessed()),
        nanoseconds(metadata.modified()),
        nanoseconds(metadata.changed()),
    );
    (
        mode,
        metadata.ino(),
        metadata.nlink(),
        metadata.uid(),
        metadata.gid(),
        metadata.len(),
        times,
        metadata.blksize(),
        metadata.blocks(),
        metadata.rdev(),
    )
}

/// Nanoseconds since 1970.
pub fn nanoseconds(time: SystemTime) -> i128 {
    match time.duration_since(UNIX_EPOCH) {
        Ok(since) => since.as_nanos() as i128,
        Err(before) => -(before.duration().as_nanos() as i128),
    }
}

/// The time that is so many nanoseconds after 1970.
///
/// # Errors
/// `ValueError` the host knows no such time.
pub fn time_of(nanoseconds: i128) -> PyResult<SystemTime> {
    let whole = u64::try_from(nanoseconds.unsigned_abs() / 1_000_000_000);
    let rest = (nanoseconds.unsigned_abs() % 1_000_000_000) as u32;
    let apart = whole.ok().map(|whole| Duration::new(whole, rest));
    let time = apart.and_then(|apart| match nanoseconds < 0 {
        true => UNIX_EPOCH.checked_sub(apart),
        false => UNIX_EPOCH.checked_add(apart),
    });
    time.ok_or_else(|| PyValueError::new_err(format!("no time: {nanoseconds} ns")))
}
