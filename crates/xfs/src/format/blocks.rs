//! Blocks one behind the other, on the device and in a group.

use base::FsBlock;

use super::AgBlock;

/// Blocks one behind the other, by their number in the file system.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FsExtent {
    /// The first block.
    pub start: FsBlock,
    /// Blocks.
    pub len: u32,
}

/// Blocks one behind the other, in a group.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AgExtent {
    /// The first block.
    pub start: AgBlock,
    /// Blocks.
    pub len: u32,
}

impl AgExtent {
    /// One block.
    pub fn one(start: AgBlock) -> AgExtent {
        AgExtent { start, len: 1 }
    }

    /// The blocks within the group.
    pub fn blocks(&self) -> std::ops::Range<u32> {
        self.start.block..self.start.block + self.len
    }
}

/// Where the content of a file, or a block number, belongs.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Section {
    /// The device of the file system, in allocation groups.
    #[default]
    Data,
    /// The realtime section.
    Realtime,
}

impl Section {
    /// The realtime section, or not.
    pub fn of(realtime: bool) -> Section {
        if realtime { Section::Realtime } else { Section::Data }
    }
}
