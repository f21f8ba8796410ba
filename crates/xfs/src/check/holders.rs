//! Finds which owner holds a block.

use base::Ino;
use vfs::check::Holder;

use super::Checker;
use crate::format::AgInode;
use crate::format::record::{
    RMAP_ATTR_FORK, RMAP_BMBT, RMAP_OFFSET_MASK, RMAP_UNWRITTEN, Rmap, owner,
};

impl Checker<'_> {
    /// Notes who claims blocks that are watched.
    pub(super) fn note_holder(&mut self, ag: u32, claim: &Rmap) {
        if self.watch.is_empty() {
            return;
        }
        let first = u64::from(ag) * u64::from(self.reader.geometry.ag_blocks);
        let first = first + u64::from(claim.start);
        let run = first..first + u64::from(claim.len);
        let mut watch = std::mem::take(&mut self.watch);
        watch.note(run, |block| self.holder(ag, claim, (block - first) as u32));
        self.watch = watch;
    }

    /// The holder of the block `index` of a claim.
    fn holder(&self, ag: u32, claim: &Rmap, index: u32) -> Holder {
        let geometry = self.geometry();
        if owner::is_inode(claim.owner) {
            return of_inode(claim, index, geometry.block_size);
        }
        let what = match claim.owner {
            owner::FS => "the superblock and the headers".to_owned(),
            owner::LOG => "the log".to_owned(),
            owner::AG => "a tree of free space or reverse mappings, or its spare block".to_owned(),
            owner::INOBT => "a tree of inodes".to_owned(),
            owner::REFC => "the tree of reference counts".to_owned(),
            owner::COW => "blocks of a copy on write that was not finished".to_owned(),
            owner::INODES => {
                let per = geometry.inodes_per_block();
                let agino = (claim.start + index) * per;
                let ino = geometry.ino_join(AgInode { ag, agino });
                format!("inodes {} to {}", ino.0, ino.0 + u64::from(per) - 1)
            }
            other => format!("owner {other:#x}"),
        };
        Holder::of(format!("{what}, in group {ag}"))
    }
}

fn of_inode(claim: &Rmap, index: u32, block_size: u32) -> Holder {
    let ino = Ino(claim.owner);
    let what = match claim.offset & (RMAP_ATTR_FORK | RMAP_BMBT | RMAP_UNWRITTEN) {
        0 => {
            let offset = (claim.offset & RMAP_OFFSET_MASK) + u64::from(index);
            let offset = offset.saturating_mul(block_size.into());
            return Holder::of_inode("content", ino, Some(offset));
        }
        RMAP_UNWRITTEN => "reserved, not written",
        RMAP_ATTR_FORK => "a block of attributes",
        bits if bits & RMAP_ATTR_FORK != 0 => "a node of the map of its attributes",
        _ => "a node of its map",
    };
    Holder::of_inode(what, ino, None)
}
