//! Why a journal could not be opened or recovered.

use base::Errno;
use block::DeviceError;
use thiserror::Error;

use crate::format::SuperblockError;
use crate::format::fast_commit::UnknownFeatures;

/// One variant per failed check, with the numbers that failed.
#[derive(Clone, Debug, Error)]
#[allow(missing_docs)]
pub enum JournalError {
    #[error("{0}")]
    Superblock(#[from] SuperblockError),
    #[error("journal device: {0}")]
    Device(#[from] DeviceError),
    #[error("journal has blocks of {journal} bytes, the file system of {fs}")]
    BlockSize { journal: u32, fs: u32 },
    #[error("journal says it has {maxlen} blocks, its area has {mapped}")]
    Area { maxlen: u32, mapped: u64 },
    #[error("journal area reaches block {block}, the device ends at {end}")]
    Outside { block: u64, end: u64 },
    #[error("external journal does not list file system {0} among its users")]
    NotUser(uuid::Uuid),
    #[error("journal holds {count} fast commits of transaction {tid}, which only a mount replays")]
    FastCommit { tid: u32, count: u32 },
    #[error("{0}")]
    FastCommitFeatures(#[from] UnknownFeatures),
    #[error("a replay changes {blocks} blocks, the log has room for {room}")]
    ReplaySize { blocks: usize, room: u32 },
    #[error("the replay of fast commits could not be committed: {errno}")]
    Replay { errno: Errno },
    #[error("log block {log}, transaction {sequence}: revoke block claims {bytes} bytes")]
    RevokeSize { log: u32, sequence: u32, bytes: u32 },
    #[error(
        "log block {log}, transaction {sequence}: checksum of the copy of block {block} is wrong"
    )]
    BlockChecksum { log: u32, sequence: u32, block: u64 },
    #[error("log block {log}, transaction {sequence}: block {block} is beyond the device's {end}")]
    BlockRange { log: u32, sequence: u32, block: u64, end: u64 },
    #[error(
        "log block {log}, transaction {sequence}: {what} checksum {found:#x}, not {computed:#x}"
    )]
    Checksum { log: u32, sequence: u32, what: &'static str, found: u32, computed: u32 },
}

impl JournalError {
    /// The answer that a system call would give.
    pub fn to_errno(&self) -> Errno {
        match self {
            JournalError::Device(error) => error.to_errno(),
            JournalError::FastCommit { .. } | JournalError::FastCommitFeatures(_) => Errno::ENOTSUP,
            JournalError::Replay { errno } => *errno,
            JournalError::ReplaySize { .. } => Errno::ENOSPC,
            JournalError::Superblock(SuperblockError::Unsupported { .. }) => Errno::ENOTSUP,
            JournalError::BlockChecksum { .. } | JournalError::Checksum { .. } => Errno::EBADMSG,
            _ => Errno::EINVAL,
        }
    }
}
