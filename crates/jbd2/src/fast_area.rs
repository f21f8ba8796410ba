//! The area where fast commits are written, and which task may write to it.

use crate::area::LogDevice;
use crate::log::Log;
use crate::options::JournalOptions;
use crate::transaction::Tid;

/// Where fast commits are written.
pub(crate) struct FastArea {
    pub device: LogDevice,
    /// First block, and how many.
    pub first: u32,
    pub len: u32,
}

impl FastArea {
    pub fn of_log(log: &Log, options: &JournalOptions) -> Option<FastArea> {
        let wanted = options.fast_commit && !options.read_only && log.sb.fast_commit_blocks > 1;
        wanted.then(|| FastArea {
            device: log.device.clone(),
            // The block at the border stays unused, as in Linux.
            first: log.sb.log_end() + 1,
            len: log.sb.fast_commit_blocks - 1,
        })
    }

    pub fn bytes(&self) -> usize {
        self.len as usize * self.device.block_size as usize
    }
}

/// Who may write fast commits, and where.
#[derive(Default)]
pub(crate) struct FastState {
    /// The number on disk that they carry; `None` while they would mean nothing.
    pub sequence: Option<u32>,
    /// Blocks of the area that are used.
    pub next: u32,
    /// One is under way.
    pub busy: bool,
    /// Transactions up to this one commit whole.
    pub ineligible: Tid,
    /// How many looks were taken, and the last one whose outcome is on the medium.
    pub taken: u64,
    pub done: u64,
}
