//! Who owns which blocks, and which are free.

use base::FsBlock;
use xfs::format::AgBlock;
use xfs::format::record::{FreeExtent, RMAP_ATTR_FORK, RMAP_BMBT, RMAP_UNWRITTEN, Rmap, owner};

use super::Fs;
use super::forks::{Device, Fork, Which};
use super::groups::Records;

/// A block of a group of one of the devices.
#[derive(Clone, Copy, Debug)]
pub struct Place {
    /// The device.
    pub device: Device,
    /// The group on it; 0 where it has none.
    pub group: u32,
    /// The block in the group.
    pub block: u32,
}

impl Place {
    /// What findings call the group.
    pub fn group_name(&self) -> String {
        match self.device {
            Device::Data => format!("group {}", self.group),
            Device::Realtime => format!("realtime group {}", self.group),
        }
    }
}

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

/// What an inode's fork claims on a device, by group.
pub fn fork_claims(
    fs: &Fs<'_>,
    ino: u64,
    fork: &Fork,
    which: Which,
    device: Device,
    add: &mut dyn FnMut(u32, Rmap),
) {
    let flag = if which == Which::Attr { RMAP_ATTR_FORK } else { 0 };
    for extent in fork.mapped().iter().filter(|_| fork.device() == device) {
        let place = fs.place(device, extent.start);
        let unwritten = if extent.unwritten { RMAP_UNWRITTEN } else { 0 };
        let offset = extent.offset | flag | unwritten;
        add(place.group, Rmap { start: place.block, len: extent.count, owner: ino, offset });
    }
    for &block in fork.tree.iter().filter(|_| device == Device::Data) {
        let place = fs.place(device, block);
        let offset = flag | RMAP_BMBT;
        add(place.group, Rmap { start: place.block, len: 1, owner: ino, offset });
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
                fork_claims(self, ino, inode.fork(which), which, Device::Data, &mut add);
            }
        }
        claims
    }

    /// Where a block of a device lies.
    pub fn place(&self, device: Device, block: FsBlock) -> Place {
        let (group, block) = match device {
            Device::Data => {
                let place = self.g.split(block);
                (place.ag, place.block)
            }
            Device::Realtime => self.g.realtime.place_of(block),
        };
        Place { device, group, block }
    }

    /// The block that lies there.
    pub fn block_of(&self, Place { device, group, block }: Place) -> FsBlock {
        match device {
            Device::Data => self.g.join(AgBlock { ag: group, block }),
            Device::Realtime => self.g.realtime.block_at(group, block),
        }
    }

    /// What each group of a device says of its blocks.
    pub fn all_records(&self, device: Device) -> impl Iterator<Item = &Records> {
        let (data, section) = match device {
            Device::Data => (&self.groups[..], &[][..]),
            Device::Realtime => (&[][..], &self.section[..]),
        };
        let data = data.iter().map(|group| &group.records);
        data.chain(section.iter().map(|group| &group.records))
    }

    /// What the group of a place says of its blocks.
    pub fn records_of(&self, place: Place) -> &Records {
        let group = place.group as usize;
        match place.device {
            Device::Data => &self.groups[group].records,
            Device::Realtime => &self.section[group].records,
        }
    }

    /// What no inode has of the group of a place, and nobody else can have.
    pub fn fixed_on(&self, place: Place) -> Vec<Rmap> {
        match place.device {
            Device::Data => self.fixed_claims(place.group),
            Device::Realtime => self.section_fixed(place.group),
        }
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
