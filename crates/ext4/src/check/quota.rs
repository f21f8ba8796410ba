//! Quota files against what the inodes use.

use std::collections::BTreeMap;
use std::fmt;

use base::Ino;
use block::DeviceError;

use super::Checker;
use super::rule::Rule;
use crate::format::extent::FileRun;
use crate::format::features::RoCompat;
use crate::format::quota::{self, BLOCK_SIZE, Block, Blocks, Info, Kind};
use crate::format::{At, Corrupt, CorruptKind, FileKind, InodeFlags, InodeValues};

/// What one id has.
#[derive(Clone, Copy, Default)]
struct Sum {
    /// Bytes.
    space: u64,
    inodes: u64,
    /// Of those, symbolic links whose target lies in the inode by the feature `inline_data`.
    inline_links: u64,
}

impl Sum {
    /// Of one inode.
    fn of(values: &InodeValues, large_values: u32) -> Sum {
        let inline = values.flags.contains(InodeFlags::INLINE_DATA);
        let link = values.kind() == Some(FileKind::Symlink) && inline;
        let space = values.blocks.saturating_mul(512);
        Sum { space, inodes: 1 + u64::from(large_values), inline_links: u64::from(link) }
    }

    /// Whether a quota file may say this: e2fsck does not count links in inodes, Linux does.
    fn allows(&self, found: &Sum) -> bool {
        let counts = [self.inodes, self.inodes - self.inline_links];
        found.space == self.space && counts.contains(&found.inodes)
    }
}

impl fmt::Display for Sum {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes and {} inodes", self.space, self.inodes)
    }
}

impl std::ops::AddAssign for Sum {
    fn add_assign(&mut self, other: Sum) {
        self.space += other.space;
        self.inodes += other.inodes;
        self.inline_links += other.inline_links;
    }
}

/// What is used, by kind and id.
#[derive(Default)]
pub struct Usage(BTreeMap<(Kind, u32), Sum>);

impl Usage {
    /// Adds that of another share of the inodes.
    pub fn absorb(&mut self, other: Usage) {
        for (key, theirs) in other.0 {
            *self.0.entry(key).or_default() += theirs;
        }
    }
}

/// The blocks of a quota file.
struct FileBlocks<'a, 'b> {
    checker: &'a mut Checker<'b>,
    runs: Vec<FileRun>,
    ino: u32,
}

/// Why a quota file could not be read.
enum Failure {
    Device(DeviceError),
    Damaged(Corrupt),
}

impl FileBlocks<'_, '_> {
    /// Device block of a block of the file system in the file.
    fn device_block(&self, mut lblk: u64) -> Option<u64> {
        for run in &self.runs {
            if lblk < run.len {
                return Some(run.start + lblk);
            }
            lblk -= run.len;
        }
        None
    }
}

impl Blocks for FileBlocks<'_, '_> {
    type Error = Failure;

    fn load(&mut self, block: u32) -> Result<Block, Failure> {
        let at = u64::from(block) * BLOCK_SIZE as u64;
        let bits = self.checker.g.block_bits;
        let Some(device) = self.device_block(at >> bits) else {
            let blocks = self.runs.iter().map(|run| run.len << bits).sum::<u64>();
            let blocks = (blocks / BLOCK_SIZE as u64) as u32;
            return Err(self.damaged(CorruptKind::QuotaBlock { block, blocks }));
        };
        let page = self.checker.io.read(device, 1).map_err(Failure::Device)?;
        let offset = (at & ((1 << bits) - 1)) as usize;
        Ok(page[offset..offset + BLOCK_SIZE].try_into().expect("a whole block"))
    }

    fn store(&mut self, _block: u32, _data: &Block) -> Result<(), Failure> {
        unreachable!("a check writes nothing")
    }

    fn damaged(&mut self, kind: CorruptKind) -> Failure {
        Failure::Damaged(kind.at(At::Inode(Ino(self.ino.into()))))
    }
}

impl Checker<'_> {
    /// Counts an inode in use.
    pub fn count_usage(&mut self, ino: u32, values: &InodeValues) {
        let uncharged = values.flags.contains(InodeFlags::EA_INODE) || !self.g.is_charged(ino);
        if !self.g.features.ro_compat.contains(RoCompat::QUOTA) || uncharged {
            return;
        }
        for (kind, id) in Kind::ALL.into_iter().zip([values.uid, values.gid, values.projid]) {
            if self.g.quota_inos[kind as usize] != 0 {
                let sum = Sum::of(values, self.attributes.large.count);
                *self.usage.0.entry((kind, id)).or_default() += sum;
            }
        }
    }

    /// Compares the quota files with what was counted.
    ///
    /// # Errors
    /// The device's.
    pub fn quota(&mut self) -> Result<(), DeviceError> {
        let usage = std::mem::take(&mut self.usage.0);
        for kind in Kind::ALL {
            let ino = self.g.quota_inos[kind as usize];
            if ino == 0 {
                continue;
            }
            let of_kind = usage.range((kind, 0)..=(kind, u32::MAX));
            let mut counted: BTreeMap<u32, _> = of_kind.map(|(key, &sum)| (key.1, sum)).collect();
            let mut wrong = Vec::new();
            let result = self.quota_file(kind, ino, &mut |id, space, inodes| {
                let expected = counted.remove(&id).unwrap_or_default();
                let found = Sum { space, inodes, inline_links: 0 };
                if !expected.allows(&found) {
                    wrong.push((id, found, expected));
                }
            });
            let sound = match result {
                Ok(sound) => sound,
                Err(Failure::Device(error)) => return Err(error),
                Err(Failure::Damaged(corrupt)) => {
                    self.findings.corrupt(&corrupt);
                    false
                }
            };
            if !sound {
                continue;
            }
            wrong.extend(counted.into_iter().map(|(id, expected)| (id, Sum::default(), expected)));
            for (id, found, expected) in wrong {
                let kind = kind.name();
                let detail = format!("{kind} {id} has {found}, counted {expected}");
                self.findings.add(Rule::QuotaUsage, At::Inode(Ino(ino.into())), detail);
            }
        }
        Ok(())
    }

    /// Shows the usage of all entries of a file; false where it cannot be read as one.
    fn quota_file(
        &mut self,
        kind: Kind,
        ino: u32,
        look: &mut dyn FnMut(u32, u64, u64),
    ) -> Result<bool, Failure> {
        let at = At::Inode(Ino(ino.into()));
        let Some(file) = self.system_file(ino) else {
            self.findings.add(Rule::QuotaFile, at, "the quota file is not in use");
            return Ok(false);
        };
        let Some(runs) = file.whole().map(<[FileRun]>::to_vec) else {
            self.findings.add(Rule::QuotaFile, at, "the quota file is no whole file");
            return Ok(false);
        };
        let mut blocks = FileBlocks { checker: self, runs, ino };
        let header = blocks.load(0)?;
        let info = Info::parse(&header, kind).map_err(|kind| blocks.damaged(kind))?;
        quota::walk(&mut blocks, &info, &mut |id, entry| look(id, entry.space, entry.inodes))?;
        Ok(true)
    }
}
