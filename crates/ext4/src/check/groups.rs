//! First pass: superblock, its copies, group descriptors, and the blocks that metadata take.

use std::ops::Range;

use base::Ino;
use block::DeviceError;
use vfs::check::Holder;

use super::findings::Findings;
use super::io::Io;
use super::rule::Rule;
use super::{Checker, FsBlock};
use crate::format::features::{Compat, Incompat};
use crate::format::group_desc;
use crate::format::super_block::{STATE_CLEAN, STATE_ERROR};
use crate::format::{At, CorruptKind, Features, Geometry, GroupDesc, GroupFlags, RawSuper};

/// Features that mounts may only read, or whose directories are not made anew, and whose file
/// systems are checked.
const READABLE: &[&str] = &["read-only", "shared_blocks"];

/// What is wrong with a group's copy of the superblock, 1,024 bytes; None where it describes the
/// same file system. The kernel keeps neither counts nor states up to date there.
pub fn fault_of_copy(g: &Geometry, group: u32, bytes: &[u8]) -> Option<String> {
    if bytes.iter().all(|&byte| byte == 0) {
        return Some("zeros".into());
    }
    let copy = match Geometry::parse(bytes, g.group_first_block(group)) {
        Ok(copy) => copy,
        // Counts of copies are kept by nobody: tune2fs leaves nonsense with bigalloc.
        Err(corrupt) if matches!(corrupt.kind, CorruptKind::FreeBlocks { .. }) => return None,
        Err(corrupt) => return Some(corrupt.kind.to_string()),
    };
    let number = RawSuper::view(bytes).map_or(0, |raw| raw.s_block_group_nr.get());
    let shape = |g: &Geometry| {
        let incompat = g.features.incompat - Incompat::RECOVER;
        let sizes = (g.block_size, g.inode_size, g.desc_size, g.first_data_block);
        (sizes, g.blocks_count, g.inodes_count, g.blocks_per_group, incompat, g.uuid)
    };
    if shape(&copy) != shape(g) {
        return Some("describes another file system".into());
    }
    // Larger numbers are cut off, or stored as the largest one.
    let right = [group as u16, u16::try_from(group).unwrap_or(u16::MAX)].contains(&number);
    (!right).then(|| format!("says that it is of group {number}"))
}

/// Reads and checks the superblock. None where it is so wrong that nothing can follow.
///
/// # Errors
/// The device's.
pub fn read_super(
    io: &mut Io<'_>,
    findings: &mut Findings,
) -> Result<Option<(RawSuper, Geometry)>, DeviceError> {
    let at = At::Super(0);
    let Some(page) = io.read_super()? else {
        findings.add(Rule::SuperMagic, at, "the device is too short for a superblock");
        return Ok(None);
    };
    let geometry = match Geometry::parse(&page, 0) {
        Ok(geometry) => geometry,
        Err(corrupt) => {
            findings.corrupt(&corrupt);
            let CorruptKind::SuperChecksum { .. } = corrupt.kind else { return Ok(None) };
            // A wrong checksum alone: the rest is read as it is.
            let mut copy = page.to_vec();
            let raw = RawSuper::view_mut(&mut copy).expect("1024 bytes");
            raw.set_checksum();
            match Geometry::parse(&copy, 0) {
                Ok(geometry) => geometry,
                Err(corrupt) => {
                    findings.corrupt(&corrupt);
                    return Ok(None);
                }
            }
        }
    };
    let raw = RawSuper::read(&page).expect("1024 bytes");
    if !understood(&geometry.features, findings) {
        return Ok(None);
    }
    let device_blocks = io.device_bytes() / u64::from(geometry.block_size);
    if geometry.blocks_count > device_blocks {
        let kind = CorruptKind::DeviceSize { blocks: geometry.blocks_count, device_blocks };
        findings.corrupt(&kind.at(at));
        return Ok(None);
    }
    let tables = u64::from(geometry.itable_blocks) * u64::from(geometry.groups_count);
    if tables >= geometry.blocks_count {
        let detail = format!("inode tables of {tables} blocks leave no room");
        findings.add(Rule::SuperGeometry, at, detail);
        return Ok(None);
    }
    if let Some(fault) = geometry.reserve_fault() {
        findings.add(Rule::SuperReserve, at, fault);
    }
    let state = raw.s_state.get();
    if state & STATE_ERROR != 0 {
        let count = raw.s_error_count.get();
        findings.add(Rule::SuperErrorState, at, format!("state {state:#x}, {count} errors"));
    }
    let journal = geometry.features.compat.contains(Compat::HAS_JOURNAL);
    if state & STATE_CLEAN == 0 && !journal {
        findings.add(Rule::SuperNotClean, at, format!("state {state:#x}"));
    }
    idle_fields(&raw, findings);
    if let Some(features) = raw.lost_features() {
        let detail = format!("the checksum is that of other features: {features}");
        findings.add(Rule::SuperChecksum, at, detail);
    }
    Ok(Some((raw, geometry)))
}

fn idle_fields(raw: &RawSuper, findings: &mut Findings) {
    let idle = raw.idle_fields().join(", ");
    if !idle.is_empty() {
        let detail = format!("{idle} without the feature that uses it");
        findings.add(Rule::SuperUnusedFields, At::Super(0), detail);
    }
}

fn understood(features: &Features, findings: &mut Findings) -> bool {
    let (_, reasons) = features.access();
    let mut sound = true;
    if let Some(pair) = features.unknown_pair() {
        findings.add(Rule::SuperFeature, At::Super(0), pair);
        sound = false;
    }
    for reason in reasons.iter().filter(|reason| !READABLE.contains(&reason.name.as_str())) {
        findings.add(Rule::SuperFeature, At::Super(0), reason.to_string());
        sound = false;
    }
    sound
}

impl Checker<'_> {
    /// Reads all descriptors and marks the blocks of metadata. False where a descriptor block lies
    /// outside, so that nothing can follow.
    pub fn groups(&mut self) -> Result<bool, DeviceError> {
        let size = self.g.desc_size as usize;
        self.mark_copies();
        let mut block = None;
        for group in 0..self.g.groups_count {
            let (place, offset) = self.g.desc_place(group);
            if place.0 >= self.g.blocks_count {
                let detail = format!("descriptor block {place} is outside");
                self.findings.add(Rule::GroupPlace, At::Group(group), detail);
                return Ok(false);
            }
            let page = match block.take() {
                Some((number, page)) if number == place => page,
                _ => self.io.read(place.0, 1)?,
            };
            let desc = self.descriptor(group, &page[offset..offset + size]);
            block = Some((place, page));
            self.descs.push(desc);
        }
        self.copies()?;
        Ok(true)
    }

    fn mark_copies(&mut self) {
        let first = u64::from(self.g.first_data_block);
        self.watch.note(0..first, |_| Holder::of("room for a boot loader"));
        self.meta.set(0, first + 1);
        for group in 0..self.g.groups_count {
            let len = u64::from(self.g.base_meta_blocks(group));
            if len > 0 {
                let first = self.g.group_first_block(group);
                self.meta.set(first, len);
                self.used.set(first, len);
                self.note_base(group, first..first + len);
            }
        }
    }

    /// Superblock, descriptors and the room for more of them.
    fn note_base(&mut self, group: u32, run: Range<u64>) {
        let (first, descs) = (run.start, u64::from(self.g.desc_blocks));
        let copy = if group == 0 { "" } else { "a copy of " };
        self.watch.note(run, |block| match block - first {
            0 => Holder::of(format!("{copy}the superblock, in group {group}")),
            at if at <= descs => {
                Holder::of(format!("{copy}the group descriptors, in group {group}"))
            }
            _ => Holder::of(format!("room for more group descriptors, in group {group}")),
        });
    }

    /// Bitmaps and inode table.
    fn note_group(&mut self, group: u32, desc: &GroupDesc) {
        let bitmap = |what: &'static str| move |_| Holder::of(format!("{what} of group {group}"));
        self.watch.note(desc.block_bitmap..desc.block_bitmap + 1, bitmap("the block bitmap"));
        self.watch.note(desc.inode_bitmap..desc.inode_bitmap + 1, bitmap("the inode bitmap"));
        let (table, per) = (desc.inode_table, u64::from(self.g.block_size / self.g.inode_size));
        let first = u64::from(group) * u64::from(self.g.inodes_per_group) + 1;
        self.watch.note(table..table + u64::from(self.g.itable_blocks), |block| {
            let ino = first + (block - table) * per;
            Holder::of(format!("the inode table of group {group}: {ino} to {}", ino + per - 1))
        });
    }

    fn descriptor(&mut self, group: u32, bytes: &[u8]) -> Option<GroupDesc> {
        let at = At::Group(group);
        let g = &self.g;
        let (found, expected) =
            (group_desc::stored_checksum(bytes), g.checksums.group_desc(group, bytes));
        if g.features.group_csum() && found != expected {
            self.findings.corrupt(&CorruptKind::GroupChecksum { found, expected }.at(at));
        }
        let desc = GroupDesc::read(bytes);
        if let Err(corrupt) = desc.check_places(group, g) {
            self.findings.corrupt(&corrupt);
            // Whose blocks and inodes these are, and which names they had, cannot be known.
            self.blocks_unknown = true;
            self.pass.names_unknown = true;
            return None;
        }
        let unused = g.features.group_csum() && desc.itable_unused > g.inodes_per_group;
        if desc.free_blocks > g.clusters_in_group(group)
            || desc.free_inodes > g.inodes_per_group
            || desc.used_dirs > g.inodes_per_group
            || unused
        {
            let detail = format!(
                "{} free blocks, {} free and {} unused inodes, {} directories",
                desc.free_blocks, desc.free_inodes, desc.itable_unused, desc.used_dirs
            );
            self.findings.add(Rule::GroupCounts, at, detail);
        }
        if !g.features.group_csum() && desc.says_unused() {
            let detail = format!("flags {:#x}, {} unused inodes", desc.flags, desc.itable_unused);
            self.findings.add(Rule::GroupUnusedFields, at, detail);
        }
        let table = (desc.inode_table, u64::from(g.itable_blocks));
        self.note_group(group, &desc);
        for (start, len) in [(desc.block_bitmap, 1), (desc.inode_bitmap, 1), table] {
            self.used.set(start, len);
            if let Some(block) = self.meta.set(start, len) {
                let detail = format!("metadata at {start}+{len}: block {block} is taken");
                self.findings.add(Rule::MetadataOverlap, at, detail);
            }
        }
        Some(desc)
    }

    /// Copies of the superblock: each must describe the same file system.
    fn copies(&mut self) -> Result<(), DeviceError> {
        for group in 1..self.g.groups_count {
            if !self.g.has_super(group) {
                continue;
            }
            let block = self.g.group_first_block(group);
            let page = self.io.read(block, 1)?;
            if let Some(fault) = fault_of_copy(&self.g, group, &page[..1024]) {
                self.findings.add(Rule::SuperBackup, At::Super(block), fault);
            }
        }
        Ok(())
    }

    /// How many inodes of the group's table may be in use: with group checksums, those behind were
    /// never written.
    pub fn inodes_to_read(&self, group: u32) -> u32 {
        let Some(desc) = &self.descs[group as usize] else { return 0 };
        let limit = self.g.inodes_per_group;
        if !self.g.features.group_csum() || desc.itable_unused > limit {
            return limit;
        }
        if desc.flags.contains(GroupFlags::INODE_UNINIT) {
            return 0;
        }
        limit - desc.itable_unused
    }

    /// Reads the slot of an inode. None where its group is left out or it does not exist.
    ///
    /// # Errors
    /// The device's.
    pub fn read_slot(&mut self, ino: u32) -> Result<Option<Vec<u8>>, DeviceError> {
        let Ok((group, index)) = self.g.inode_group(Ino(ino.into())) else { return Ok(None) };
        let Some(desc) = &self.descs[group as usize] else { return Ok(None) };
        let (block, offset) = self.g.inode_offset(index);
        let block = FsBlock(desc.inode_table + block);
        let page = self.io.read(block.0, 1)?;
        Ok(Some(page[offset..offset + self.g.inode_size as usize].to_vec()))
    }
}
