//! What a case says, and what tasks do in its phases.

use serde::Deserialize;

use crate::experiment::ByteSize;

/// The phases of every case but bitmaps.
pub(super) const PHASES: [&str; 2] = ["create", "unlink"];
/// Names of the warm-up begin here.
const WARM: u64 = 1 << 20;

/// The sort of a case.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Part {
    /// Both passes on a bitmap alone.
    Bitmap,
    /// Creates and unlinks in virtual time.
    World,
    /// The same in real time.
    Measured,
}

/// What a case says.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Parameters {
    pub part: Part,
    /// Bytes of a directory block.
    #[serde(default = "small")]
    pub dir_block: ByteSize,
    /// Tasks that create and unlink.
    pub tasks: u64,
    /// Directories, which tasks share where there are fewer.
    pub dirs: u64,
    /// Names in each directory before: more than one leaf of 64 KiB has.
    pub names: u64,
    /// Files of all tasks together in one round.
    pub files: u64,
    /// Rounds of a measured case.
    pub rounds: usize,
    /// Leaves are checked as the document's kernel did.
    #[serde(default)]
    pub debug: bool,
    /// What formatting takes of a create is measured as well.
    #[serde(default)]
    pub profile: bool,
    /// Repetitions in the timing of a bitmap.
    pub repeats: u64,
    /// Bytes of the bitmap's buffer.
    #[serde(default)]
    pub bytes: ByteSize,
    /// Its pages are scattered, as those of an inode cluster.
    #[serde(default)]
    pub unmapped: bool,
    /// First and last byte of what is dirty.
    #[serde(default)]
    pub ranges: Vec<[usize; 2]>,
    /// So many times.
    #[serde(default = "once")]
    pub times: usize,
    /// So many bytes apart.
    #[serde(default)]
    pub step: usize,
}

fn small() -> ByteSize {
    ByteSize(4096)
}

fn once() -> usize {
    1
}

impl Parameters {
    /// What of the parameters an image is made of.
    pub fn image(&self) -> [u64; 4] {
        [self.dir_block.0, self.dirs, self.names, self.files]
    }

    /// A phase of so many tasks.
    pub fn work(&self, tasks: u64, phase: usize) -> Work {
        Work { tasks, files: operations(self.files, tasks), from: 0, unlink: phase == 1 }
    }

    /// Creates before the phases that count.
    pub fn warm_up(&self, tasks: u64) -> Work {
        Work { tasks, files: operations(self.files / 4, tasks), from: WARM, unlink: false }
    }
}

/// What all tasks do in a phase.
#[derive(Clone, Copy)]
pub(super) struct Work {
    /// Tasks.
    pub tasks: u64,
    /// Files of all of them.
    pub files: u64,
    /// The number that each begins with.
    pub from: u64,
    /// Unlink, else create.
    pub unlink: bool,
}

/// Operations of one phase: a multiple of the tasks.
pub(super) fn operations(files: u64, tasks: u64) -> u64 {
    (files / tasks).max(1) * tasks
}
