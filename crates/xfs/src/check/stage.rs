//! The two stages of a check: first every fact goes into sums, then the records behind the sums
//! that differ are collected and compared.

use base::Ino;
use block::DeviceError;

use super::Checker;
use super::findings::Findings;
use super::records::{Blocks, Links, NameOf, Room};
use crate::format::dir::FileType;
use crate::format::record::{FreeExtent, Refcount, Rmap};

/// What becomes of facts.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Stage {
    /// They go into sums.
    Sums,
    /// They are collected.
    Records,
}

impl Checker<'_> {
    /// Somebody owns blocks of a group.
    pub(super) fn claim(&mut self, ag: u32, claim: Rmap) {
        if let Some(blocks) = &mut self.blocks {
            return blocks.claim(ag, &claim);
        }
        if self.stage == Stage::Sums {
            self.note_holder(ag, &claim);
            let marked = self.current.as_ref().is_some_and(|known| known.reflink);
            self.sums.add_claim(ag, &claim, marked);
        }
    }

    /// Blocks of a group are free.
    pub(super) fn take_free(&mut self, ag: u32, extent: FreeExtent) {
        match self.stage {
            Stage::Sums => self.sums.add_free_extent(ag, extent),
            Stage::Records => self.blocks.iter_mut().for_each(|blocks| blocks.free(ag, extent)),
        }
    }

    /// The reverse map of a group has a record.
    pub(super) fn take_mapping(&mut self, ag: u32, record: Rmap) {
        match self.stage {
            Stage::Sums => {
                let length = self.reader.geometry.ag_length(ag);
                self.sums.add_mapping(ag, &record, length);
            }
            Stage::Records => self.blocks.iter_mut().for_each(|blocks| blocks.mapping(ag, &record)),
        }
    }

    /// The reference counts of a group have a record.
    pub(super) fn take_reference(&mut self, ag: u32, record: Refcount) {
        match self.stage {
            Stage::Sums => self.sums.add_reference(ag, &record),
            Stage::Records => {
                self.blocks.iter_mut().for_each(|blocks| blocks.reference(ag, &record));
            }
        }
    }

    /// The directory that is being read has a name.
    pub(super) fn take_name(&mut self, dir: Ino, target: Ino, file_type: FileType) {
        let metadata = self.current.as_ref().is_some_and(|known| known.metadata);
        let of_directory = self.stage == Stage::Records && self.sums.is_directory(target);
        let name = NameOf { dir, metadata, target, file_type, of_directory };
        match self.stage {
            Stage::Sums => self.sums.add_name(&name),
            Stage::Records => self.links.iter_mut().for_each(|links| links.name(name)),
        }
    }

    /// All of an inode was read.
    pub(super) fn inode_is_read(&mut self, ino: Ino) {
        let Some(known) = self.current.take() else { return };
        match self.stage {
            Stage::Sums => {
                let is_root = self.roots.contains(&ino);
                let wanted = is_root.then(|| Some(ino) == self.reader.geometry.metadata_root);
                self.sums.add_inode(ino, &known, wanted, self.system.contains(&ino));
            }
            Stage::Records => {
                if let Some(links) = &mut self.links {
                    links.inode(ino, known);
                }
            }
        }
    }

    /// What only the whole shows: where the sums differ, or always with `every`, the records are
    /// compared, as many at a time as fit `memory`.
    pub(super) fn whole_pass(&mut self, memory: u64, every: bool) -> Result<(), DeviceError> {
        self.sums.inodes_are_read();
        let mut wanted = self.sums.differing_groups();
        wanted.iter_mut().for_each(|wanted| *wanted |= every);
        let links_differ = self.links_differ()? || every;
        self.stage = Stage::Records;
        let more = wanted.contains(&true);
        let share = if more && links_differ { memory / 2 } else { memory };
        self.blocks = more.then(|| Blocks::new(0, Room(share), wanted));
        self.links = links_differ.then(|| Links::new(0, Room(share)));
        if more || links_differ {
            self.read_again()?;
        }
        self.go_on_with_owners();
        // The first window of links waits while further ones of blocks are read.
        let links = self.links.take();
        while let Some(mut blocks) = self.blocks.take() {
            self.block_pass(&mut blocks)?;
            if let Some(start) = blocks.next() {
                self.blocks = Some(Blocks::new(start, Room(share), blocks.into_wanted()));
                self.read_again()?;
            }
        }
        self.realtime_pass()?;
        let mut next = links;
        let mut is_first = true;
        while let Some(mut links) = next.take() {
            self.link_pass(&mut links, is_first)?;
            if let Some(start) = links.next() {
                self.links = Some(Links::new(start, Room(share)));
                self.read_again()?;
                next = self.links.take();
            }
            is_first = false;
        }
        Ok(())
    }

    /// Goes over all groups and inodes again, to collect records. What is wrong with each by itself
    /// was reported the first time.
    fn read_again(&mut self) -> Result<(), DeviceError> {
        let findings = std::mem::replace(&mut self.findings, Findings::new(0));
        let counts = std::mem::take(&mut self.counts);
        let section_groups = self.section_claims.len();
        // Their number is what the progress is measured by.
        self.begin_again();
        self.groups.clear();
        self.usage.clear();
        self.realtime.clear();
        self.section_claims = vec![Vec::new(); section_groups];
        self.section_trees.clear();
        let read = self.headers().and_then(|()| self.inode_pass());
        (self.findings, self.counts) = (findings, counts);
        read
    }
}
