//! The operations on sectors: read, write, flush, discard, writing zeroes.

use std::fmt;

/// What is done to a run of sectors.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, PartialOrd, Ord)]
pub enum Op {
    /// Device to pages.
    Read,
    /// Pages to device.
    Write,
    /// Makes every write that completed before it durable. Has no sectors.
    Flush,
    /// The content is no longer needed; what a later read gives is the device's business.
    Discard,
    /// The range reads as zeros afterwards.
    WriteZeroes,
}

impl Op {
    /// True where pages travel with the operation.
    pub const fn has_data(self) -> bool {
        matches!(self, Op::Read | Op::Write)
    }

    /// True where the medium changes.
    pub const fn is_write(self) -> bool {
        matches!(self, Op::Write | Op::Discard | Op::WriteZeroes)
    }
}

impl fmt::Display for Op {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Op::Read => "read",
            Op::Write => "write",
            Op::Flush => "flush",
            Op::Discard => "discard",
            Op::WriteZeroes => "write of zeroes",
        })
    }
}
