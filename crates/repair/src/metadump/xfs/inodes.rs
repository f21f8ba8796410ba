//! Inodes: both forks in the slot, and the blocks behind them.

use std::ops::Range;

use base::Ino;
use xfs::format::attr::{SF_ENTRY, SF_HEADER, parse_sf};
use xfs::format::btree::{MapRoot, ROOT_HEADER, root_max};
use xfs::format::dir_sf::Shortform;
use xfs::format::extent::EXTENT_SIZE;
use xfs::format::inode::{CORE_SIZE, Flags2, ForkFormat, InodeCore, fork_ranges};
use xfs::format::{At, Kind};

use super::Dump;
use super::blocks::Owner;
use crate::metadump::DumpError;

const DIRECTORY: u16 = 0x4000;
const SYMLINK: u16 = 0xa000;

/// What the blocks of a fork are.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Content {
    /// Of a file: not in the dump.
    Private,
    /// Blocks of a directory.
    Directory,
    /// Blocks of attributes.
    Attributes,
    /// Pieces of the target of a symbolic link.
    Target,
    /// Records of quota, the map of the realtime section.
    System,
}

impl Dump<'_> {
    /// The slot of an inode as the dump has it; passes on what it owns.
    pub fn inode(&mut self, ino: Ino, slot: &mut [u8]) -> Result<(), DumpError> {
        let at = At::Inode(ino);
        let sound = self.is_sound(Kind::Inode, slot);
        if slot[2..4] == [0, 0] {
            slot[CORE_SIZE..].fill(0);
            self.seal(Kind::Inode, slot, sound);
            return Ok(());
        }
        self.out.report.inodes += 1;
        let Ok(core) = InodeCore::parse(slot, ino, &self.g) else {
            if !self.out.keeps_names() {
                slot[CORE_SIZE..].fill(0);
                self.out.leave_out(format!("{at}: its forks, for its core is damaged"));
            }
            self.seal(Kind::Inode, slot, sound);
            return Ok(());
        };
        let (data, attr) = fork_ranges(core.forkoff, slot.len());
        let content = match core.file_type() {
            DIRECTORY => Content::Directory,
            SYMLINK => Content::Target,
            _ if self.is_system(ino) || core.flags2.contains(Flags2::METADATA) => Content::System,
            _ => Content::Private,
        };
        let owned = slot.to_vec();
        if core.format == ForkFormat::MetaBtree {
            self.section_tree(ino, &owned, &owned[data.clone()])?;
        } else {
            self.fork(ino, &core, &owned[data.clone()], content)?;
        }
        if core.forkoff != 0 {
            self.fork(ino, &core, &owned[attr.clone()], Content::Attributes)?;
        }
        let options = self.out.options;
        let metadata = core.flags2.contains(Flags2::METADATA);
        let owner = Owner { options: &options, ino, metadata, ftype: self.g.features.ftype() };
        let fits = self.clean_data(&core, &mut slot[data.clone()], &owner)
            & (core.forkoff == 0 || clean_attributes(&core, &mut slot[attr.clone()], &owner));
        if !fits && !self.out.keeps_names() {
            slot[CORE_SIZE..].fill(0);
            self.out.leave_out(format!("{at}: its forks are damaged"));
        }
        self.seal(Kind::Inode, slot, sound);
        Ok(())
    }

    /// The data fork inside the slot. False if it cannot be parsed.
    fn clean_data(&self, core: &InodeCore, fork: &mut [u8], owner: &Owner<'_>) -> bool {
        let used = match core.format {
            ForkFormat::Device => 4.min(fork.len()),
            ForkFormat::MetaBtree => fork.len(),
            ForkFormat::Extents => core.extents as usize * EXTENT_SIZE,
            ForkFormat::Btree => return clean_root(fork),
            ForkFormat::Local => core.size as usize,
        };
        if used > fork.len() {
            return false;
        }
        fork[used..].fill(0);
        match (core.format, core.file_type()) {
            (ForkFormat::Local, DIRECTORY) => {
                let Some(names) = places(&fork[..used], &self.g.features, owner) else {
                    return false;
                };
                names.into_iter().for_each(|name| owner.name(&mut fork[name]));
            }
            (ForkFormat::Local, _) => owner.target(&mut fork[..used]),
            _ => {}
        }
        true
    }
}

/// Where the names of a directory in its inode lie.
fn places(
    fork: &[u8],
    features: &xfs::format::Features,
    owner: &Owner<'_>,
) -> Option<Vec<Range<usize>>> {
    let directory = Shortform::parse(fork, features, At::Inode(owner.ino)).ok()?;
    let number = if directory.wide { 8 } else { 4 };
    let mut place = 2 + number;
    let each = directory.entries().map(|entry| {
        let name = place + 3..place + 3 + entry.name.len();
        place = name.end + usize::from(owner.ftype) + number;
        name
    });
    Some(each.collect())
}

/// The attribute fork inside the slot. False if it cannot be parsed.
fn clean_attributes(core: &InodeCore, fork: &mut [u8], owner: &Owner<'_>) -> bool {
    match core.attr_format {
        ForkFormat::Extents => {
            let used = core.attr_extents as usize * EXTENT_SIZE;
            if used <= fork.len() {
                fork[used..].fill(0);
            }
            used <= fork.len()
        }
        ForkFormat::Btree => clean_root(fork),
        ForkFormat::Local => {
            let Ok(list) = parse_sf(fork, At::Inode(owner.ino)) else { return false };
            let each = list.iter().map(|attr| (attr.flags, attr.name.len(), attr.value.len()));
            let list: Vec<_> = each.collect();
            let mut place = SF_HEADER;
            for (flags, name, value) in list {
                let body = &mut fork[place + SF_ENTRY..][..name + value];
                let (name, value) = body.split_at_mut(name);
                owner.attribute(flags, name, value);
                place += SF_ENTRY + name.len() + value.len();
            }
            fork[place..].fill(0);
            true
        }
        _ => false,
    }
}

/// The root of a block map inside the slot.
fn clean_root(fork: &mut [u8]) -> bool {
    let Ok(root) = MapRoot::parse(fork, At::Block(0)) else { return false };
    let (len, max) = (root.len(), root_max(fork.len()));
    let pointers = ROOT_HEADER + 8 * max;
    fork[ROOT_HEADER + 8 * len..pointers].fill(0);
    fork[pointers + 8 * len..].fill(0);
    true
}
