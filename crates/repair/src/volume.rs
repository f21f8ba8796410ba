//! A sound ext2, ext3 or ext4 that is rebuilt in part: what `resize` and `tune` work on.
//!
//! It is strict where `ext` is tolerant: the first thing that is wrong ends the work, and nothing
//! was written then.

use std::sync::Arc;

use base::Ino;
use block::{DeviceError, Queue};
use ext4::format::features::{Access, Incompat, RoCompat};
use ext4::format::mmp::{self, Mmp};
use ext4::format::super_block::{STATE_CLEAN, STATE_ERROR, SUPER_OFFSET, SUPER_SIZE};
use ext4::format::{At, Corrupt, CorruptKind, Geometry, GroupDesc, GroupFlags, RawSuper};
use ext4::shape::ShapeError;
use ext4::{CheckOptions, Finding};
use rt::{Cx, Meter};

use crate::plan::Plan;
use crate::view::View;

pub mod map;
pub mod maps;

/// Why a file system is not changed. Nothing was written.
#[derive(Debug, thiserror::Error)]
pub enum EditError {
    /// The device failed.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// The file system is damaged.
    #[error("{0}; check it, and repair it first")]
    Corrupt(#[from] Corrupt),
    /// It cannot be done with this file system, or not in this state.
    #[error("{0}")]
    Refused(String),
    /// Too few free blocks or inodes.
    #[error("{0}")]
    NoRoom(String),
    /// More memory than is allowed.
    #[error("the plan takes more than {} KiB, which are allowed; nothing was changed", .0 >> 10)]
    Memory(u64),
    /// The check found the result wrong. This is a bug.
    #[error("the result would be wrong, and nothing was changed: {0}")]
    Wrong(String),
}

impl From<ShapeError> for EditError {
    fn from(error: ShapeError) -> EditError {
        match error {
            ShapeError::Corrupt(corrupt) => EditError::Corrupt(corrupt),
            other => EditError::Refused(other.to_string()),
        }
    }
}

/// Refuses with these words.
pub fn refuse<T>(why: impl Into<String>) -> Result<T, EditError> {
    Err(EditError::Refused(why.into()))
}

/// What a plan may take, and where it says how far it is.
#[derive(Clone, Debug, Default)]
pub struct Effort {
    /// The most memory for what changes; None: as much as it takes.
    pub memory: Option<u64>,
    /// Counts the groups whose inodes were read.
    pub meter: Meter,
}

/// The file system, with what will be written to it. What it answers is always what is on the disk,
/// not what will be written.
pub struct Volume<'a> {
    /// The device, and the blocks that change.
    pub view: View<'a>,
    /// Its geometry as it is.
    pub g: Geometry,
    /// Its superblock as it is.
    pub raw: RawSuper,
    /// Its groups as they are.
    pub descs: Vec<GroupDesc>,
    /// The most memory for what changes.
    memory: Option<u64>,
}

impl<'a> Volume<'a> {
    /// Reads superblock and descriptors. Parks.
    ///
    /// # Errors
    /// It is not clean, in use, damaged, or has features that are not written.
    pub fn open(
        cx: &'a mut Cx,
        queue: &'a Arc<Queue>,
        effort: &Effort,
    ) -> Result<Volume<'a>, EditError> {
        let mut view = View::new(cx, queue);
        view.meter = effort.meter.clone();
        let bytes = view.read_bytes(SUPER_OFFSET, SUPER_SIZE)?;
        let g = Geometry::parse(&bytes, 0)?;
        let raw = RawSuper::read(&bytes).expect("1024 bytes");
        view.set_block_size(g.block_size);
        let mut volume = Volume { view, g, raw, descs: Vec::new(), memory: effort.memory };
        volume.refuse_unclean()?;
        for group in 0..volume.g.groups_count {
            let (block, offset) = volume.g.desc_place(group);
            let content = volume.view.read(block.0)?;
            let bytes = &content[offset..offset + volume.g.desc_size as usize];
            volume.descs.push(GroupDesc::parse(bytes, group, &volume.g)?);
        }
        Ok(volume)
    }

    /// Refuses what cannot be written, or not now.
    fn refuse_unclean(&mut self) -> Result<(), EditError> {
        if let Some(pair) = self.g.features.unknown_pair() {
            return refuse(pair);
        }
        let (access, reasons) = self.g.features.access();
        // What files share moves for all of them; read-only is asked of mounts.
        let kept = ["shared_blocks", "read-only"];
        let reasons = reasons.iter().filter(|reason| !kept.contains(&reason.name.as_str()));
        let names: Vec<String> = reasons.map(ToString::to_string).collect();
        if access != Access::ReadWrite && !names.is_empty() {
            return refuse(names.join("; "));
        }
        if self.g.hurd {
            return refuse(ext4::HURD);
        }
        let state = self.raw.s_state.get();
        if state & STATE_ERROR != 0 || state & STATE_CLEAN == 0 {
            return refuse("it is not clean, or errors are noted: check it, and repair it first");
        }
        let recover = self.g.features.incompat.contains(Incompat::RECOVER);
        let orphans = self.g.features.ro_compat.contains(RoCompat::ORPHAN_PRESENT);
        if recover || orphans || self.raw.s_last_orphan.get() != 0 {
            return refuse("its journal must be replayed first (iopath replay)");
        }
        let (blocks, there) = (self.g.blocks_count, self.view.blocks());
        if blocks > there {
            return refuse(format!("it has {blocks} blocks, its device {there}: it was cut short"));
        }
        if self.g.features.incompat.contains(Incompat::MMP) {
            let block = self.raw.s_mmp_block.get();
            let content = self.view.read(block)?;
            let seed = self.g.checksums.metadata.then_some(self.g.checksums.seed);
            let mmp = Mmp::parse(&content, seed).map_err(|kind| kind.at(At::Device(block)))?;
            if mmp.sequence != mmp::CLEAN {
                let Mmp { node, device, .. } = mmp;
                return refuse(format!("in use on {node} as {device}, as its MMP block says"));
            }
        }
        Ok(())
    }

    /// The inodes of another group are looked at: is there memory for what changed so far? A plan
    /// holds it twice, as it was and as it will be.
    ///
    /// # Errors
    /// [`EditError::Memory`].
    pub fn next_group(&self) -> Result<(), EditError> {
        self.view.meter.add(1);
        match self.memory {
            Some(allowed) if 2 * self.view.held() > allowed => Err(EditError::Memory(allowed)),
            _ => Ok(()),
        }
    }

    /// All groups are looked at, one after the other, each with [`Volume::next_group`].
    pub fn all_groups(&self) -> std::ops::Range<u32> {
        self.view.meter.begin("reading inodes", self.g.groups_count.into());
        0..self.g.groups_count
    }

    /// Bytes of a block.
    pub fn size(&self) -> usize {
        self.g.block_size as usize
    }

    /// The block bitmap of a group as it is, whether it lies on the disk or not. Parks.
    ///
    /// # Errors
    /// The device's, or a wrong checksum.
    pub fn block_bitmap(&mut self, group: u32) -> Result<Vec<u8>, EditError> {
        let desc = self.descs[group as usize];
        if desc.flags.contains(GroupFlags::BLOCK_UNINIT) && self.g.features.group_csum() {
            let mut map = vec![0; self.size()];
            self.g.init_block_bitmap(group, &desc, &mut map);
            return Ok(map);
        }
        let map = self.view.original(desc.block_bitmap)?;
        desc.check_block_bitmap(&map, group, &self.g)?;
        Ok(map)
    }

    /// The inode bitmap of a group as it is. Parks.
    ///
    /// # Errors
    /// The device's, or a wrong checksum.
    pub fn inode_bitmap(&mut self, group: u32) -> Result<Vec<u8>, EditError> {
        let desc = self.descs[group as usize];
        if desc.flags.contains(GroupFlags::INODE_UNINIT) && self.g.features.group_csum() {
            let mut map = vec![0; self.size()];
            self.g.init_inode_bitmap(&mut map);
            return Ok(map);
        }
        let map = self.view.original(desc.inode_bitmap)?;
        desc.check_inode_bitmap(&map, group, &self.g)?;
        Ok(map)
    }

    /// The inodes of a group that are in use, by their bitmap. Parks.
    ///
    /// # Errors
    /// The device's, or a wrong checksum.
    pub fn inodes_of(&mut self, group: u32) -> Result<Vec<u32>, EditError> {
        let desc = self.descs[group as usize];
        if desc.flags.contains(GroupFlags::INODE_UNINIT) && self.g.features.group_csum() {
            return Ok(Vec::new());
        }
        let map = self.inode_bitmap(group)?;
        let per = self.g.inodes_per_group;
        let used = (0..per).filter(|&bit| base::bitmap::test(&map, bit as usize));
        Ok(used.map(|bit| group * per + bit + 1).collect())
    }

    /// Reads the slot of an inode, where the old table has it. Parks.
    ///
    /// # Errors
    /// The device's; a number out of range.
    pub fn slot(&mut self, ino: u32) -> Result<Vec<u8>, EditError> {
        let (group, index) = self.g.inode_group(Ino(ino.into()))?;
        let (block, offset) = self.g.inode_offset(index);
        let content = self.view.original(self.descs[group as usize].inode_table + block)?;
        Ok(content[offset..offset + self.g.inode_size as usize].to_vec())
    }

    /// The changes, as a plan that an undo file can store. Parks.
    ///
    /// # Errors
    /// The device's.
    pub fn into_plan(self) -> Result<Plan, EditError> {
        self.next_group()?;
        let size = u64::from(self.g.block_size);
        let superblock = SUPER_OFFSET / size * size;
        Ok(Plan { changes: self.view.into_changes()?, superblock, ..Plan::default() })
    }
}

/// The check of a whole file system.
///
/// # Errors
/// The device's, and [`EditError::Wrong`] with the first findings.
pub fn judge(cx: &mut Cx, queue: &Arc<Queue>, meter: &Meter) -> Result<(), EditError> {
    let meter = meter.clone();
    let options = CheckOptions { replay: false, findings_max: 3, meter, ..CheckOptions::default() };
    let report = ext4::check(cx, queue, &options)?;
    if report.findings.is_empty() {
        return Ok(());
    }
    let text: Vec<String> = report.findings.iter().map(Finding::to_string).collect();
    Err(EditError::Wrong(text.join("; ")))
}

/// The error of a structure that does not fit.
pub fn corrupt(kind: CorruptKind, ino: u32) -> EditError {
    kind.at(At::Inode(Ino(ino.into()))).into()
}
