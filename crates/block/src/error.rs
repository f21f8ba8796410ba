//! The error of a request that a device could not carry out.

use crate::Op;
use base::{Errno, Sector};
use std::fmt;

/// Why a device failed a range of sectors.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Cause {
    /// The medium or the way to it failed.
    Io,
    /// The host has no room left for the image.
    NoSpace,
    /// The device cannot be written to.
    ReadOnly,
    /// The range does not lie on the device.
    OutOfRange,
    /// Address or length is no multiple of the device's logical block.
    Unaligned,
    /// The device has no such operation.
    Unsupported,
    /// The power is gone: nothing works any more.
    PowerLost,
    /// The device let go of the request without an answer.
    Dropped,
    /// The host's own answer.
    Os(Errno),
}

impl Cause {
    /// The cause that an errno of the host stands for.
    pub fn from_errno(errno: Errno) -> Cause {
        match errno {
            Errno::EIO => Cause::Io,
            Errno::ENOSPC | Errno::EDQUOT => Cause::NoSpace,
            Errno::EROFS => Cause::ReadOnly,
            Errno::EOPNOTSUPP | Errno::ENOSYS => Cause::Unsupported,
            other => Cause::Os(other),
        }
    }

    /// The errno that this cause is for whoever issued the bio.
    pub fn to_errno(self) -> Errno {
        match self {
            Cause::Io | Cause::OutOfRange | Cause::PowerLost | Cause::Dropped => Errno::EIO,
            Cause::NoSpace => Errno::ENOSPC,
            Cause::ReadOnly => Errno::EROFS,
            Cause::Unaligned => Errno::EINVAL,
            Cause::Unsupported => Errno::EOPNOTSUPP,
            Cause::Os(errno) => errno,
        }
    }
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = match self {
            Cause::Io => "input/output error",
            Cause::NoSpace => "no space left for the image",
            Cause::ReadOnly => "the device is read-only",
            Cause::OutOfRange => "the range does not lie on the device",
            Cause::Unaligned => "not a multiple of the logical block",
            Cause::Unsupported => "the device has no such operation",
            Cause::PowerLost => "the power is gone",
            Cause::Dropped => "the device never answered",
            Cause::Os(errno) => return errno.fmt(f),
        };
        f.write_str(text)
    }
}

/// A failed range of sectors: operation, place and cause.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{op} of {count} sectors at sector {sector}: {cause}")]
pub struct DeviceError {
    /// What was asked for.
    pub op: Op,
    /// First failed sector.
    pub sector: Sector,
    /// Number of failed sectors of 512 bytes; 0 where the operation has no range (flush).
    pub count: u64,
    /// Why.
    pub cause: Cause,
}

impl DeviceError {
    /// The errno for the caller of a file system.
    pub fn to_errno(&self) -> Errno {
        self.cause.to_errno()
    }

    /// The part of the failed range that lies in `count` sectors from `sector`, or `None` where
    /// none of it does. A failure without a range concerns everybody.
    pub fn within(&self, sector: Sector, count: u64) -> Option<DeviceError> {
        if self.count == 0 || count == 0 {
            return Some(DeviceError { sector, count, ..self.clone() });
        }
        let start = self.sector.max(sector);
        let end = (self.sector.0.saturating_add(self.count)).min(sector.0.saturating_add(count));
        (start.0 < end).then(|| DeviceError { sector: start, count: end - start.0, ..self.clone() })
    }
}

impl From<DeviceError> for Errno {
    fn from(error: DeviceError) -> Errno {
        error.to_errno()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failed_range_concerns_exactly_those_that_it_touches() {
        let error = DeviceError { op: Op::Read, sector: Sector(8), count: 8, cause: Cause::Io };
        let part =
            |sector, count| error.within(Sector(sector), count).map(|e| (e.sector.0, e.count));
        assert_eq!(part(0, 8), None);
        assert_eq!(part(0, 9), Some((8, 1)));
        assert_eq!(part(10, 2), Some((10, 2)));
        assert_eq!(part(15, 8), Some((15, 1)));
        assert_eq!(part(16, 8), None);
        assert_eq!(error.to_string(), "read of 8 sectors at sector 8: input/output error");
        assert_eq!(Errno::from(error), Errno::EIO);
    }
}
