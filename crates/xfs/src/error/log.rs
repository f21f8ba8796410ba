//! What can be wrong with a log.

use base::Errno;
use block::DeviceError;
use thiserror::Error;

use crate::format::log::Lsn;

/// One variant per failed check, with the numbers that failed.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[expect(missing_docs, reason = "each variant's message is its documentation")]
pub enum LogError {
    #[error("log device: {0}")]
    Device(#[from] DeviceError),
    #[error("a transaction asks for {bytes} bytes of a log of {log}")]
    LogReservation { bytes: u64, log: u64 },
    #[error("a checkpoint needs {needed} bytes, the log has {free} free")]
    Overrun { needed: u64, free: u64 },
    #[error("log of {blocks} blocks is too small or too large")]
    Size { blocks: u32 },
    #[error("log block {block}: no record header where one must be")]
    NoRecord { block: u32 },
    #[error("no record header before block {block} of the log")]
    NoHead { block: u32 },
    /// Records that were written are not there.
    #[error("the superblock was written with record {newest}, and the log ends at {head}")]
    Ahead { newest: Lsn, head: Lsn },
    #[error("record {lsn}: tail {tail} does not lie before it within the log")]
    Tail { lsn: Lsn, tail: Lsn },
    #[error("record {lsn}: checksum {found:#010x} should be {expected:#010x}")]
    Checksum { lsn: Lsn, found: u32, expected: u32 },
    #[error("record {lsn}: UUID is not the file system's")]
    Uuid { lsn: Lsn },
    #[error("record {lsn}: items in byte order {format} cannot be read")]
    Format { lsn: Lsn, format: u32 },
    #[error("record {lsn}: operation {index} of {len} bytes leaves the record")]
    Operation { lsn: Lsn, index: u32, len: u32 },
    #[error("record {lsn}: operation {index} of client {client:#x}")]
    Client { lsn: Lsn, index: u32, client: u8 },
    #[error("record {lsn}: operation {index} with flags {flags:#x}")]
    OperationFlags { lsn: Lsn, index: u32, flags: u8 },
    #[error("transaction {tid:#x}: begins with {found:#x}, not with its header")]
    TransactionHeader { tid: u32, found: u32 },
    #[error("transaction {tid:#x}: a region goes on that never began")]
    Continuation { tid: u32 },
    #[error("transaction {tid:#x}: item of type {kind:#x} claims {regions} regions")]
    ItemRegions { tid: u32, kind: u16, regions: u16 },
    #[error("transaction {tid:#x}: {what} has {found} bytes or regions, {expected} expected")]
    ItemLength { tid: u32, what: &'static str, found: u64, expected: u64 },
    #[error("transaction {tid:#x}: {what} reaches sector {sector}, the device has {end}")]
    ItemPlace { tid: u32, what: &'static str, sector: u64, end: u64 },
    #[error("transaction {tid:#x}: {what}: {found} is not possible")]
    ItemValue { tid: u32, what: &'static str, found: u64 },
    #[error("transaction {tid:#x}: items of type {kind:#x} are unknown")]
    UnknownItem { tid: u32, kind: u16 },
    #[error("transaction {tid:#x}: {name} items are not supported")]
    UnsupportedItem { tid: u32, name: &'static str },
    #[error("transactions of the log take more than {limit} bytes")]
    TooLarge { limit: u64 },
    #[error("the log must be replayed, and this device or mount is read-only")]
    ReadOnly,
    #[error("the log holds unfinished {what}, which this build cannot finish")]
    Unfinished { what: &'static str },
}

impl LogError {
    /// The answer that a system call would give.
    pub fn to_errno(&self) -> Errno {
        match self {
            LogError::Device(error) => error.to_errno(),
            LogError::Checksum { .. } => Errno::EBADMSG,
            LogError::UnsupportedItem { .. } | LogError::Unfinished { .. } => Errno::EOPNOTSUPP,
            LogError::ReadOnly => Errno::EROFS,
            LogError::LogReservation { .. } => Errno::E2BIG,
            _ => Errno::EUCLEAN,
        }
    }
}
