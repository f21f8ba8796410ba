//! What a check has counted, for a repair that needs nothing else.
//!
//! Where only counts, bitmaps and names of nothing are wrong, one check knows all that is right. A
//! repair takes it from here, and [`Counted::check_again`] judges the result without a second walk
//! over all inodes and names.

use std::borrow::Cow;
use std::sync::Arc;

use base::Ino;
use block::{DeviceError, Queue};
use rt::Cx;

use super::block_map::BlockMap;
use super::dirs::DirRecord;
use super::findings::{CheckReport, Findings};
use super::inodes::{InodeInfo, InodeMap};
use super::io::Io;
use super::links::{Names, WrongLinks};
use super::{Checker, groups};
use crate::format::{FileKind, Geometry};

/// What a check has counted. Memory: that of the check.
pub struct Counted {
    g: Geometry,
    used: BlockMap,
    inodes: InodeMap,
    dirs: Vec<DirRecord>,
    inodes_used: u64,
    directories: u64,
}

impl Counted {
    /// What these passes have counted; None where they could not follow everything. A name of an
    /// inode that is not in use hides nothing.
    pub(super) fn of(checker: &mut Checker<'_>) -> Option<Counted> {
        let known = !checker.blocks_unknown && checker.descs.iter().all(Option::is_some);
        let counts = checker.findings.counts();
        let (inodes_used, directories) = (counts.inodes_used, counts.directories);
        known.then(|| Counted {
            g: checker.g.clone(),
            used: std::mem::replace(&mut checker.used, BlockMap::new(&checker.g)),
            inodes: std::mem::replace(&mut checker.inodes, InodeMap::new(&checker.g)),
            dirs: std::mem::take(&mut checker.dirs),
            inodes_used,
            directories,
        })
    }

    /// True where the inode is in use, and directories may name it. `ino` is in range.
    pub fn has_names(&self, ino: Ino) -> bool {
        let info = self.inodes.get(ino.0 as u32);
        info.has_names()
    }

    /// The inodes in use of a group: index, and whether it is a directory.
    pub fn inodes(&self, group: u32) -> impl Iterator<Item = (u32, bool)> {
        let all = (0..).zip(self.inodes.group(group)).filter(|(_, info)| info.is_used());
        let directory = |info: &InodeInfo| info.kind == Some(FileKind::Directory);
        all.map(move |(index, info)| (index, directory(info)))
    }

    /// A bit for each cluster in use of a group; it may be shorter than the group, where no others
    /// are in use.
    pub fn clusters(&self, group: u32) -> Cow<'_, [u8]> {
        self.used.in_clusters(group, self.g.cluster_bits())
    }

    /// The inodes that claim another number of links than they have. None where something has no
    /// name, or a wrong `..`, or is not reached from the root.
    pub fn wrong_links(&mut self) -> Option<Vec<WrongLinks>> {
        let mut findings = Findings::new(1);
        let (g, inodes, dirs) = (&self.g, &self.inodes, &mut self.dirs[..]);
        let mut names = Names { g, inodes, dirs, findings: &mut findings };
        names.parents();
        names.connections();
        let wrong = names.wrong_links();
        findings.report().findings.is_empty().then_some(wrong)
    }

    /// An inode claims this number of links from now on.
    pub fn set_links(&mut self, ino: Ino, links: u16) {
        self.inodes.get_mut(ino.0 as u32).links = links;
    }

    /// Checks what follows from the counts: superblock, descriptors, bitmaps, sums, links. Inodes
    /// and directories are not read. Parks on reads.
    ///
    /// # Errors
    /// The device's first error.
    pub fn check_again(
        self,
        cx: &mut Cx,
        queue: &Arc<Queue>,
        findings_max: usize,
    ) -> Result<CheckReport, DeviceError> {
        let mut findings = Findings::new(findings_max);
        let mut io = Io::new(cx, queue);
        let Some((raw, geometry)) = groups::read_super(&mut io, &mut findings)? else {
            return Ok(findings.report());
        };
        io.set_block_size(geometry.block_size);
        let mut checker = Checker::new(io, raw, geometry, findings);
        if checker.groups()? {
            (checker.used, checker.inodes, checker.dirs) = (self.used, self.inodes, self.dirs);
            checker.findings.counts().inodes_used = self.inodes_used;
            checker.findings.counts().directories = self.directories;
            checker.links();
            checker.summary()?;
        }
        Ok(checker.findings.report())
    }
}
