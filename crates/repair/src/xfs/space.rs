//! Who owns which blocks, and which are free.

use xfs::format::record::{FreeExtent, RMAP_ATTR_FORK, RMAP_BMBT, RMAP_UNWRITTEN, Rmap, owner};

use super::Fs;
use super::forks::{Fork, Which};

/// What nobody of these owns, of a group of `length` blocks.
pub fn complement(claims: &[Rmap], length: u32) -> Vec<FreeExtent> {
    let mut list: Vec<(u32, u32)> =
        claims.iter().map(|claim| (claim.start, claim.start.saturating_add(claim.len))).collect();
    list.sort_unstable();
    let (mut at, mut free) = (0, Vec::new());
    for (start, end) in list.into_iter().chain([(length, length)]) {
        if start > at {
            free.push(FreeExtent { start: at, len: start.min(length) - at });
        }
        at = at.max(end);
        if at >= length {
            break;
        }
    }
    free
}

/// What an inode's fork claims, by group.
fn fork_claims(fs: &Fs<'_>, ino: u64, fork: &Fork, which: Which, add: &mut dyn FnMut(u32, Rmap)) {
    let flag = if which == Which::Attr { RMAP_ATTR_FORK } else { 0 };
    for extent in &fork.extents {
        let place = fs.g.split(extent.start);
        let unwritten = if extent.unwritten { RMAP_UNWRITTEN } else { 0 };
        let offset = extent.offset | flag | unwritten;
        add(place.ag, Rmap { start: place.block, len: extent.count, owner: ino, offset });
    }
    for &block in &fork.tree {
        let place = fs.g.split(block);
        add(place.ag, Rmap { start: place.block, len: 1, owner: ino, offset: flag | RMAP_BMBT });
    }
}

impl Fs<'_> {
    /// Who owns what, by group, without the btrees and free lists of the groups.
    pub fn claims(&self) -> Vec<Vec<Rmap>> {
        let mut claims: Vec<Vec<Rmap>> =
            (0..self.g.ag_count()).map(|ag| self.fixed_claims(ag)).collect();
        for (&ino, inode) in &self.inodes {
            for which in Which::BOTH {
                let mut add = |ag: u32, claim| claims[ag as usize].push(claim);
                fork_claims(self, ino, inode.fork(which), which, &mut add);
            }
        }
        claims
    }

    /// Headers, log and inode chunks of a group.
    pub fn fixed_claims(&self, ag: u32) -> Vec<Rmap> {
        let special = |start, len, owner| Rmap { start, len, owner, offset: 0 };
        let mut list = vec![special(0, self.g.header_blocks(), owner::FS)];
        let log = self.g.split(self.g.log_start);
        if ag == log.ag && !self.g.features.external_log {
            list.push(special(log.block, self.g.log_blocks, owner::LOG));
        }
        let per_block = self.g.inodes_per_block();
        let mut last = None;
        for chunk in &self.groups[ag as usize].chunks {
            let (holes, first) = (chunk.hole_mask(), self.g.agino_block(chunk.start));
            // A large block holds several chunks.
            if last.replace(first) == Some(first) {
                continue;
            }
            for index in 0..self.g.chunks.blocks {
                if holes >> (index * per_block).min(63) & 1 == 0 {
                    list.push(special(first + index, 1, owner::INODES));
                }
            }
        }
        list
    }
}
