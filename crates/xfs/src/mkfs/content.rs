//! From the superblock's numbers to bytes.

use base::{Ino, Timespec};
use zerocopy::IntoBytes;

use super::group::Group;
use super::log_record::unmount_record;
use super::metadata::MetadataTree;
use super::realtime::RealtimeContent;
use super::shape::Shape;
use super::{LogPlan, MkfsError, MkfsReport, Plan, Surroundings};
use crate::format::attr::{AttrFlags, SfAttr, emit_sf};
use crate::format::features::Version;
use crate::format::inode::{self, Flags, Flags2, ForkFormat, InodeCore};
use crate::format::super_block::section;
use crate::format::{AgBlock, AgInode, At, Geometry, Kind, NULL64, RawSuper, dir_sf, verifier};

/// Bytes of the smallest attribute fork.
const ATTR_MIN: usize = 40;

/// Builds everything.
///
/// # Errors
/// The first group has no room for what it must hold.
pub(super) fn build(shape: &Shape, around: &Surroundings) -> Result<Plan, MkfsError> {
    let bits = u32::from(shape.raw.sb_inopblog);
    let geometry = numbers(shape);
    let mut groups: Vec<Group> =
        (0..geometry.ag_count()).map(|ag| Group::unused(shape, &geometry, ag)).collect();
    let chunk = groups[0].take_chunk(shape).expect("the first group holds the root");
    groups[0].chunks[0].used = if shape.options.metadir { 2 } else { 3 };
    let root = u64::from(chunk) << bits;
    let generation = if shape.options.newest { around.generation } else { 0 };
    let section = RealtimeContent::place(shape, &geometry, &mut groups[0])?;
    let birth = Birth { now: around.now, generation };
    let tree = MetadataTree::lay_out(shape, &geometry, &mut groups, Ino(root + 1), birth)?;
    let raw = numbers_with(shape, root, &groups);
    let taken = groups.iter().map(|group| group.taken(shape)).sum();
    let mut sector = vec![0; shape.options.sector_size as usize];
    seal_super(&mut sector, &raw);
    let geometry = Geometry::parse(&sector, At::Super(0)).expect("what mkfs chooses is valid");
    let (mut writes, mut head) = (Vec::new(), Vec::new());
    let inodes = FirstInodes { shape, geometry: &geometry, birth, section, tree };
    for group in &groups {
        let mut bytes = group.headers(shape, &geometry);
        let offset = geometry.ag_sector(AgBlock { ag: group.ag, block: 0 }).bytes();
        if group.ag == 0 {
            bytes[..sector.len()].copy_from_slice(&sector);
            let rest = bytes.split_off((shape.first_root * geometry.block_size) as usize);
            head = bytes;
            writes.push((u64::from(shape.first_root * geometry.block_size), rest));
        } else {
            let backup = backup_super(shape, group.ag, &raw, taken);
            seal_super(&mut bytes[..sector.len()], &backup);
            writes.push((offset, bytes));
        }
        writes.extend(inodes.chunks(group));
        writes.extend(group.tree_writes(shape, &geometry));
    }
    let inside = shape.options.log_device.is_none();
    let log = if inside { geometry.sector(geometry.log_start).bytes() } else { 0 };
    let zeroes = (log, u64::from(geometry.log_blocks) * u64::from(geometry.block_size));
    let record = log_start(shape, &geometry);
    let log = match inside {
        true => {
            writes.push((log, record));
            None
        }
        false => Some(LogPlan { bytes: zeroes.1, record }),
    };
    writes.extend(inodes.section.iter().flat_map(|section| section.writes(&geometry)));
    writes.extend(inodes.tree.iter().flat_map(|tree| tree.block_writes(&geometry)));
    writes.sort_by_key(|write| write.0);
    let zeroes = Vec::from_iter(inside.then_some(zeroes));
    let realtime = geometry.realtime.groups.map(|_| section::block(&raw));
    let report = MkfsReport { features: geometry.features, geometry };
    Ok(Plan { zeroes, writes, head, log, realtime, report })
}

/// Time and generation of the first inodes.
#[derive(Clone, Copy)]
pub(super) struct Birth {
    pub now: Timespec,
    pub generation: u32,
}

/// The superblock with the places of the first inodes and the counts of what is free.
fn numbers_with(shape: &Shape, root: u64, groups: &[Group]) -> RawSuper {
    let mut raw = shape.raw;
    raw.sb_rootino.set(root);
    if shape.options.metadir {
        raw.sb_rbmino.set(0);
        raw.sb_rsumino.set(0);
        raw.sb_metadirino.set(root + 1);
    } else {
        raw.sb_rbmino.set(root + 1);
        raw.sb_rsumino.set(root + 2);
    }
    let chunks = groups.iter().flat_map(|group| &group.chunks);
    let count = shape.chunk_inodes();
    raw.sb_icount.set(u64::from(count) * chunks.clone().count() as u64);
    raw.sb_ifree.set(chunks.map(|chunk| u64::from(count - chunk.used)).sum());
    let free = groups.iter().map(Group::spare_blocks);
    raw.sb_fdblocks.set(free.sum());
    raw
}

/// Headers and empty trees of a group that a file system of this shape gets; the superblock's
/// sector is left out.
pub(crate) fn group_headers(raw: &RawSuper, geometry: &Geometry, ag: u32) -> Vec<u8> {
    let shape = Shape::of_super(raw, geometry);
    Group::unused(&shape, geometry, ag).headers(&shape, geometry)
}

/// The geometry before the root is known: a number that can be one stands in for it.
fn numbers(shape: &Shape) -> Geometry {
    let mut raw = shape.raw;
    let root = u64::from(shape.roots_end) << raw.sb_inopblog;
    raw.sb_rootino.set(root);
    raw.sb_metadirino.set(root + 1);
    let mut sector = vec![0; shape.options.sector_size as usize];
    seal_super(&mut sector, &raw);
    Geometry::parse(&sector, At::Super(0)).expect("what mkfs chooses is valid")
}

fn seal_super(sector: &mut [u8], raw: &RawSuper) {
    sector.fill(0);
    sector[..raw.as_bytes().len()].copy_from_slice(raw.as_bytes());
    verifier::update_crc(Kind::Super, sector);
}

/// A backup as mkfs.xfs leaves it: written before there were inodes; two of them learn the root.
fn backup_super(shape: &Shape, ag: u32, raw: &RawSuper, taken: u64) -> RawSuper {
    let mut backup = *raw;
    let count = raw.sb_agcount.get();
    backup.sb_inprogress = 1;
    if !shape.options.parent {
        // Before the root had attributes.
        let version = Version::from_bits_retain(raw.sb_versionnum.get()) - Version::ATTR;
        backup.sb_versionnum.set(version.bits());
    }
    if ag != count - 1 && (count <= 2 || ag != (count - 1) / 2) {
        backup.sb_rootino.set(NULL64);
        if shape.options.metadir {
            backup.sb_metadirino.set(NULL64);
        }
    }
    if !shape.options.metadir {
        backup.sb_rbmino.set(NULL64);
        backup.sb_rsumino.set(NULL64);
    }
    backup.sb_icount.set(0);
    backup.sb_ifree.set(0);
    backup.sb_fdblocks.set(raw.sb_fdblocks.get() + taken);
    backup.sb_frextents.set(0);
    backup
}

fn log_start(shape: &Shape, geometry: &Geometry) -> Vec<u8> {
    let mut record = unmount_record(geometry.uuid, shape.raw.sb_logsunit.get(), 1);
    record.resize(record.len().next_multiple_of(geometry.block_size as usize), 0);
    record
}

/// What the first inodes are made of.
struct FirstInodes<'a> {
    shape: &'a Shape,
    geometry: &'a Geometry,
    birth: Birth,
    section: Option<RealtimeContent>,
    tree: Option<MetadataTree>,
}

impl FirstInodes<'_> {
    /// The chunks of a group, by their places.
    fn chunks(&self, group: &Group) -> Vec<(u64, Vec<u8>)> {
        let geometry = self.geometry;
        let chunk = |start: u32| {
            let agino = geometry.block_agino(start);
            let first = geometry.ino_join(AgInode { ag: group.ag, agino });
            let place = AgBlock { ag: group.ag, block: start };
            (geometry.ag_sector(place).bytes(), self.chunk(first))
        };
        group.chunks.iter().map(|it| chunk(it.start)).collect()
    }

    fn chunk(&self, first: Ino) -> Vec<u8> {
        let geometry = self.geometry;
        let size = geometry.inode_size as usize;
        let mut bytes = vec![0; self.shape.chunk_inodes() as usize * size];
        for (index, slot) in bytes.chunks_exact_mut(size).enumerate() {
            let ino = Ino(first.0 + index as u64);
            inode::emit_free(slot, ino, self.birth.generation, geometry);
            let of_tree = self.tree.as_ref().and_then(|tree| tree.emit_inode(geometry, ino, slot));
            if let Some(core) = of_tree.or_else(|| self.beside_root(ino, slot)) {
                core.emit(slot);
            }
            verifier::update_lsn_crc(Kind::Inode, slot, 0);
        }
        bytes
    }

    /// Writes the root directory, the root of the metadata directory, or an inode of a realtime
    /// section of the old form; none where it is none of them.
    fn beside_root(&self, ino: Ino, slot: &mut [u8]) -> Option<InodeCore> {
        let FirstInodes { shape, geometry, .. } = *self;
        let Birth { now, generation } = self.birth;
        let index = ino.0.checked_sub(geometry.root_ino.0)?;
        let mut core = match (index, &self.tree) {
            (0, _) => new_core(shape, now, 0o040_755, Flags::empty()),
            (1, Some(tree)) => return Some(tree.emit_top(geometry, slot)),
            (1, None) => new_core(shape, now, 0o100_000, Flags::NEWRTBM),
            (2, None) => new_core(shape, now, 0o100_000, Flags::empty()),
            _ => return None,
        };
        if shape.options.newest && index != 1 {
            core.atime = now;
        }
        let fork = &mut slot[inode::CORE_SIZE..];
        if index > 0 {
            core.generation = generation;
        } else {
            core.size = dir_sf::emit(fork, geometry.root_ino, &[], true) as u64;
            core.format = ForkFormat::Local;
            core.links = 2;
            root_attributes(shape, &mut core, fork);
            hand_down(shape, &mut core);
        }
        if let (Some(section), 1 | 2) = (&self.section, index) {
            section.fill_inode(index as usize, geometry, &mut core, fork);
        }
        Some(core)
    }
}

/// What the root hands down.
fn hand_down(shape: &Shape, core: &mut InodeCore) {
    let root = &shape.options.root;
    core.flags.set(Flags::RTINHERIT, root.realtime);
    core.flags.set(Flags::PROJINHERIT, root.project.is_some());
    core.project = root.project.unwrap_or(0);
    core.flags.set(Flags::EXTSZINHERIT, root.extent_blocks.is_some());
    core.extsize = root.extent_blocks.unwrap_or(0);
    core.flags2.set(Flags2::DAX, root.dax);
    core.flags2.set(Flags2::COWEXTSIZE, root.cow_blocks.is_some());
    core.cowextsize = root.cow_blocks.unwrap_or(0);
}

/// The attributes of the root.
fn root_attributes(shape: &Shape, core: &mut InodeCore, fork: &mut [u8]) {
    let Some(value) = shape.options.autofsck_value() else { return };
    // As few bytes as an attribute fork may have.
    let border = fork.len() - ATTR_MIN;
    core.forkoff = (border / 8) as u8;
    core.attr_format = ForkFormat::Local;
    core.change_count += 2;
    let (flags, name) = (AttrFlags::ROOT, &b"xfs:autofsck"[..]);
    emit_sf(&mut fork[border..], &[SfAttr { flags, name, value: value.as_bytes() }]);
}

fn new_core(shape: &Shape, now: Timespec, mode: u16, flags: Flags) -> InodeCore {
    let mut flags2 = Flags2::empty();
    flags2.set(Flags2::BIGTIME, shape.options.bigtime);
    flags2.set(Flags2::NREXT64, shape.options.nrext64);
    InodeCore {
        atime: Timespec::from_secs(0),
        flags,
        flags2,
        change_count: 2,
        ..InodeCore::fresh(mode, now)
    }
}
