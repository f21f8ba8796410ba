//! Second pass: every inode in use, and its blocks.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::atomic::AtomicU16;
use std::sync::atomic::Ordering::Relaxed;

use base::Ino;
use block::DeviceError;
use zerocopy::FromBytes;

use super::Checker;
use super::dirs::DirRecord;
use super::mapping::FileBlocks;
use super::rule::Rule;
use crate::attr::xattr::Totals;
use crate::format::checksum::stored_inode;
use crate::format::features::{Compat, Incompat, RoCompat};
use crate::format::inode::{BASE_SIZE, BLOCK_AREA};
use crate::format::super_block::{BAD_BLOCKS_INO, RESIZE_INO, ROOT_INO};
use crate::format::{At, CorruptKind, FileKind, Geometry, InodeFlags, InodeValues, RawInode};

/// What the later passes need to know of an inode.
#[derive(Clone, Copy, Default, Debug)]
pub struct InodeInfo {
    /// Links that the inode claims.
    pub links: u16,
    /// What it is; None where it is not in use, or its mode says nothing.
    pub kind: Option<FileKind>,
    /// [`USED`] and [`NAMELESS`].
    state: u8,
}

/// The inode has links, or is an orphan.
const USED: u8 = 1;
/// It needs no name: reserved, system file or orphan.
const NAMELESS: u8 = 2;
/// More names are not counted: no inode may have so many.
const NAMES_MAX: u16 = 65_500;

// A hundred million of them, with their names, are 600 MB.
const _: () = assert!(size_of::<InodeInfo>() + size_of::<AtomicU16>() == 6);

impl InodeInfo {
    /// It has links, or is an orphan.
    pub fn is_used(self) -> bool {
        self.state & USED != 0
    }

    /// It is in use, and directories name it: it is no system file and no orphan.
    pub fn has_names(self) -> bool {
        self.state == USED
    }

    /// It is in use, with so many links.
    fn take(&mut self, links: u16, kind: Option<FileKind>, nameless: bool) {
        (self.links, self.kind) = (links, kind);
        self.state |= USED | if nameless { NAMELESS } else { 0 };
    }

    /// It is in use.
    pub fn set_used(&mut self) {
        self.state |= USED;
    }

    /// Whether it needs no name.
    pub fn set_nameless(&mut self, nameless: bool) {
        self.state = self.state & !NAMELESS | if nameless { NAMELESS } else { 0 };
    }
}

/// The inodes in use, by group; a group holds them up to its last one.
#[derive(Default)]
pub struct InodeMap {
    groups: Vec<Vec<InodeInfo>>,
    /// Names that were found, once directories are read.
    names: Vec<Vec<AtomicU16>>,
    /// How they are encrypted, where they are: see [`super::encryption`].
    policies: BTreeMap<u32, u16>,
    per_group: u32,
}

impl InodeMap {
    /// No inode.
    pub fn new(g: &Geometry) -> InodeMap {
        InodeMap::of(g.groups_count, g.inodes_per_group)
    }

    /// No inode in so many groups.
    pub fn of(groups: u32, per_group: u32) -> InodeMap {
        InodeMap { groups: vec![Vec::new(); groups as usize], per_group, ..InodeMap::default() }
    }

    /// What it takes, in bytes.
    #[cfg(test)]
    pub fn bytes(&self) -> usize {
        let of_groups = self.groups.iter().map(|group| group.capacity() * size_of::<InodeInfo>());
        let of_names = self.names.iter().map(|group| group.capacity() * size_of::<AtomicU16>());
        of_groups.sum::<usize>() + of_names.sum::<usize>()
    }

    /// The inode; the default where it is not in use. `ino` is in range.
    pub fn get(&self, ino: u32) -> InodeInfo {
        let index = ino - 1;
        let group = &self.groups[(index / self.per_group) as usize];
        group.get((index % self.per_group) as usize).copied().unwrap_or_default()
    }

    /// The inode, to be changed.
    pub fn get_mut(&mut self, ino: u32) -> &mut InodeInfo {
        let index = ino - 1;
        let group = &mut self.groups[(index / self.per_group) as usize];
        let index = (index % self.per_group) as usize;
        if group.len() <= index {
            group.resize(index + 1, InodeInfo::default());
        }
        &mut group[index]
    }

    /// Makes room for the first inodes of a group.
    pub fn reserve(&mut self, group: u32, count: u32) {
        let inodes = &mut self.groups[group as usize];
        inodes.reserve_exact((count as usize).saturating_sub(inodes.len()));
    }

    /// Makes room for the names of all inodes; none was found.
    pub fn start_names(&mut self) {
        let none = |group: &Vec<InodeInfo>| group.iter().map(|_| AtomicU16::new(0)).collect();
        self.names = self.groups.iter().map(none).collect();
    }

    /// Counts a name of an inode in use.
    pub fn add_name(&self, ino: u32) {
        let index = ino - 1;
        let group = &self.names[(index / self.per_group) as usize];
        let names = &group[(index % self.per_group) as usize];
        if names.load(Relaxed) < NAMES_MAX {
            names.fetch_add(1, Relaxed);
        }
    }

    /// The names that were found of an inode.
    pub fn names(&self, ino: u32) -> u32 {
        let index = ino - 1;
        let group = self.names.get((index / self.per_group) as usize);
        let names = group.and_then(|group| group.get((index % self.per_group) as usize));
        names.map_or(0, |names| names.load(Relaxed).into())
    }

    /// How an inode is encrypted.
    pub fn policy(&self, ino: u32) -> u16 {
        match self.policies.is_empty() {
            true => 0,
            false => self.policies.get(&ino).copied().unwrap_or_default(),
        }
    }

    /// An inode is encrypted.
    pub fn set_policy(&mut self, ino: u32, policy: u16) {
        self.policies.insert(ino, policy);
    }

    /// Takes over a share of the groups, of which nothing is known yet. `number` says which number
    /// a policy has here.
    pub fn absorb(
        &mut self,
        share: Range<u32>,
        mut other: InodeMap,
        mut number: impl FnMut(u16) -> u16,
    ) {
        for group in share {
            self.groups[group as usize] = std::mem::take(&mut other.groups[group as usize]);
        }
        let policies = other.policies.into_iter();
        self.policies.extend(policies.map(|(ino, policy)| (ino, number(policy))));
    }

    /// The inodes of a group from its first one on; those behind are not in use.
    pub fn group(&self, group: u32) -> &[InodeInfo] {
        &self.groups[group as usize]
    }
}

impl Checker<'_> {
    /// Goes over all inode tables.
    ///
    /// # Errors
    /// The device's.
    pub fn inodes(&mut self) -> Result<(), DeviceError> {
        let mut shares = self.inode_shares().into_iter();
        let first = shares.next().expect("there is a share");
        let others: Vec<_> =
            shares.map(|share| (share.clone(), self.start_inodes(share))).collect();
        self.inodes_of(first)?;
        for (share, task) in others {
            let found = task.join(self.io.cx());
            if !found.is_some_and(|found| self.take_inodes(share.clone(), found)) {
                self.inodes_of(share)?;
            }
        }
        Ok(())
    }

    /// Goes over the inode tables of these groups.
    ///
    /// # Errors
    /// The device's.
    pub fn inodes_of(&mut self, groups: Range<u32>) -> Result<(), DeviceError> {
        let batch = self.io.batch();
        let size = self.g.inode_size as usize;
        for group in groups {
            let count = self.last_inode(group)?;
            let Some(desc) = self.descs[group as usize] else { continue };
            self.inodes.reserve(group, count);
            let blocks = u64::from(count.div_ceil(self.g.inodes_per_block));
            let mut done = 0;
            while done < blocks {
                let part = batch.min(blocks - done);
                let page = self.io.read(desc.inode_table + done, part)?;
                let first = done as u32 * self.g.inodes_per_block;
                for (index, slot) in page.chunks_exact(size).enumerate() {
                    let index = first + index as u32;
                    let ino = group * self.g.inodes_per_group + index + 1;
                    // The orphan file was read before.
                    if index < count && ino != self.g.orphan_file_ino {
                        self.slot(ino, slot)?;
                    }
                }
                done += part;
                self.io.meter.add(part * u64::from(self.g.inodes_per_block));
            }
        }
        Ok(())
    }

    /// One slot of a table.
    ///
    /// # Errors
    /// The device's.
    pub fn slot(&mut self, ino: u32, slot: &[u8]) -> Result<(), DeviceError> {
        let values = InodeValues::read(slot, &self.g);
        let at = At::Inode(Ino(ino.into()));
        let orphan = self.inodes.get(ino).is_used();
        let reserved = ino < self.g.first_ino && ino != ROOT_INO;
        if !values.may_be_of(ino, &self.g) {
            let InodeValues { mode, links, uid, gid, .. } = values;
            let detail = format!("reserved: mode {mode:#o}, {links} links, owner {uid}:{gid}");
            self.findings.add(Rule::InodeMode, at, detail);
            self.blocks_unknown = true;
            self.checksum(ino, slot, &values);
            self.reserved_in_use(ino);
            return Ok(());
        }
        if values.links == 0 && !orphan {
            return self.without_links(ino, slot, &values, reserved);
        }
        self.checksum(ino, slot, &values);
        let info = self.inodes.get_mut(ino);
        info.take(values.links, values.kind(), reserved);
        self.findings.counts().inodes_used += 1;
        if !orphan && values.dtime != 0 {
            let detail = format!("{} links and time of deletion {}", values.links, values.dtime);
            self.findings.add(Rule::InodeDtime, at, detail);
        }
        self.inline_value = None;
        let mut inside = Totals::default();
        let limit = (slot.len() - BASE_SIZE) as u16;
        let found = values.extra_isize;
        if slot.len() > BASE_SIZE && (found > limit || !found.is_multiple_of(4)) {
            self.findings.corrupt(&CorruptKind::ExtraIsize { found, limit }.at(at));
        } else if slot.len() > BASE_SIZE {
            inside = self.inode_xattrs(ino, slot, found);
        }
        self.unused_fields(ino, slot);
        self.unused_system_file(ino, values.size);
        self.needed_features(ino, &values);
        if ino == RESIZE_INO {
            if self.g.features.compat.contains(Compat::RESIZE_INODE) {
                return self.resize_inode(&values);
            }
            // Else the superblock was reported.
            if self.g.reserved_gdt_blocks == 0 {
                let detail = "in use without the feature resize_inode";
                self.findings.add(Rule::SuperReserve, at, detail);
            }
            self.blocks_unknown = true;
            return Ok(());
        }
        self.attributes = self.xattr_block(ino, &values)?;
        self.attributes.large.count += inside.count;
        self.attributes.large.sectors += inside.sectors;
        self.encryption(ino, &values);
        self.count_usage(ino, &values);
        match values.kind() {
            Some(kind) => self.file(ino, &values, kind),
            None if reserved => self.blocks(ino, &values, FileKind::Regular),
            None => {
                self.findings.corrupt(&CorruptKind::InodeMode { mode: values.mode }.at(at));
                self.blocks_unknown = true;
                Ok(())
            }
        }
    }

    /// An inode that is deleted, or was never used. Reserved ones may have blocks (bad blocks).
    fn without_links(
        &mut self,
        ino: u32,
        slot: &[u8],
        values: &InodeValues,
        reserved: bool,
    ) -> Result<(), DeviceError> {
        let at = At::Inode(Ino(ino.into()));
        if values.mode != 0 && values.dtime == 0 && !reserved {
            let detail = format!("mode {:#o} without links or time of deletion", values.mode);
            self.findings.add(Rule::InodeDtime, at, detail);
        }
        if values.names_orphan(&self.g) {
            let detail = format!("time of deletion {}: on no list of orphans", values.dtime);
            self.findings.add(Rule::InodeDtime, at, detail);
        }
        match reserved {
            true => self.reserved(ino, slot, values),
            false => {
                self.checksum(ino, slot, values);
                Ok(())
            }
        }
    }

    /// A reserved inode without links: the list of bad blocks has some all the same.
    fn reserved(&mut self, ino: u32, slot: &[u8], values: &InodeValues) -> Result<(), DeviceError> {
        self.checksum(ino, slot, values);
        self.reserved_in_use(ino);
        if ino == BAD_BLOCKS_INO && values.block.iter().any(|&byte| byte != 0) {
            self.walk(ino, values, false)?;
        }
        Ok(())
    }

    /// A reserved inode is in use, and has no name.
    fn reserved_in_use(&mut self, ino: u32) {
        let info = self.inodes.get_mut(ino);
        info.set_used();
        info.set_nameless(true);
        self.findings.counts().inodes_used += 1;
    }

    /// The block of a file's translator is the file's.
    fn translator(&mut self, ino: u32, slot: &[u8]) {
        let block = InodeValues::translator_of(slot);
        if block == 0 {
            return;
        }
        if self.in_range(base::FsBlock(block), 1) {
            self.claim(ino, block, 1);
        } else {
            let detail = format!("translator in block {block}");
            self.findings.add(Rule::IndirectPlace, At::Inode(Ino(ino.into())), detail);
        }
    }

    /// What no feature of this file system gives a meaning: the fragment of old, and high halves;
    /// and what the Hurd gives one.
    fn unused_fields(&mut self, ino: u32, slot: &[u8]) {
        let Ok((raw, _)) = RawInode::ref_from_prefix(slot) else { return };
        if self.g.hurd {
            self.translator(ino, slot);
        }
        let features = &self.g.features;
        let wide = features.incompat.contains(Incompat::SIXTY_FOUR_BIT);
        let huge = features.ro_compat.contains(RoCompat::HUGE_FILE);
        let regular = FileKind::from_mode(raw.i_mode.get()) == Some(FileKind::Regular);
        let large = regular || features.incompat.contains(Incompat::LARGEDIR);
        let fields = [
            ("i_faddr", raw.i_obso_faddr.get(), false),
            ("i_size_high", raw.i_size_high.get(), large),
            ("i_file_acl_high", raw.l_i_file_acl_high.get().into(), wide || self.g.hurd),
            ("i_blocks_high", raw.l_i_blocks_high.get().into(), huge),
        ];
        for (name, value, used) in fields {
            if value != 0 && !used {
                let detail = format!("{name} is {value:#x}");
                self.findings.add(Rule::InodeUnusedFields, At::Inode(Ino(ino.into())), detail);
            }
        }
    }

    fn checksum(&mut self, ino: u32, slot: &[u8], values: &InodeValues) {
        if !self.g.checksums.metadata {
            return;
        }
        let seed = self.g.checksums.inode_seed(Ino(ino.into()), values.generation);
        let (found, expected) = (stored_inode(slot), seed.inode(slot));
        if found != expected && slot.iter().any(|&byte| byte != 0) {
            let kind = CorruptKind::InodeChecksum { found, expected };
            self.findings.corrupt(&kind.at(At::Inode(Ino(ino.into()))));
        }
    }

    /// Flags, blocks and size of an inode in use.
    fn file(&mut self, ino: u32, values: &InodeValues, kind: FileKind) -> Result<(), DeviceError> {
        let at = At::Inode(Ino(ino.into()));
        let flags = values.flags;
        let (compat, incompat) = (self.g.features.compat, self.g.features.incompat);
        let extents = flags.contains(InodeFlags::EXTENTS);
        let inline = flags.contains(InodeFlags::INLINE_DATA);
        let index = flags.contains(InodeFlags::INDEX);
        let holds_value = flags.contains(InodeFlags::EA_INODE);
        let mapped = matches!(kind, FileKind::Regular | FileKind::Directory);
        let casefold = kind == FileKind::Directory && incompat.contains(Incompat::CASEFOLD);
        if extents && !incompat.contains(Incompat::EXTENTS)
            || index && (kind != FileKind::Directory || !compat.contains(Compat::DIR_INDEX))
            || inline && !(self.g.inline_data() && values.may_be_inline())
            || holds_value && (kind != FileKind::Regular || !self.g.large_values())
            || flags.contains(InodeFlags::IMAGIC) && !compat.contains(Compat::IMAGIC_INODES)
            || flags.contains(InodeFlags::CASEFOLD) && !casefold
            || !mapped && flags.intersects(InodeFlags::IMMUTABLE | InodeFlags::APPEND)
        {
            let detail = format!("flags {:#x} of a {kind:?}", flags.bits());
            self.findings.add(Rule::InodeFlags, at, detail);
            if inline {
                return Ok(());
            }
        }
        if inline {
            self.inline(ino, values, kind);
            return Ok(());
        }
        match kind {
            FileKind::Regular | FileKind::Directory => self.blocks(ino, values, kind),
            FileKind::Symlink if values.is_fast_symlink() => self.fast_symlink(ino, values),
            FileKind::Symlink => self.blocks(ino, values, kind),
            _ => {
                let rest = values.block[12..].iter().any(|&byte| byte != 0);
                if values.size != 0 || extents || rest {
                    let detail = format!("a {kind:?} of {} bytes", values.size);
                    self.findings.add(Rule::InodeSpecial, at, detail);
                }
                self.count_blocks(ino, values, 0);
                Ok(())
            }
        }
    }

    /// Content in the inode: the attribute with its end exists, both together have the size, and
    /// there are no blocks.
    fn inline(&mut self, ino: u32, values: &InodeValues, kind: FileKind) {
        let at = At::Inode(Ino(ino.into()));
        self.count_blocks(ino, values, 0);
        let Some(tail) = self.inline_value.take() else {
            self.findings.add(Rule::InodeInline, at, "the attribute system.data is missing");
            self.pass.names_unknown |= kind == FileKind::Directory;
            return;
        };
        let mut content = values.block.to_vec();
        content.extend(tail);
        let (size, has) = (values.size, content.len() as u64);
        // What a file has too little of reads as zeros.
        let wrong = match kind {
            FileKind::Regular => false,
            FileKind::Directory => size != has,
            _ => size > has || has > BLOCK_AREA as u64 && size != has,
        };
        if size > values.size_limit(&self.g) {
            let limit = values.size_limit(&self.g);
            self.findings.corrupt(&CorruptKind::InodeSizeLimit { size, limit }.at(at));
        } else if wrong {
            let detail = format!("size {size}, the inode has {has} bytes of content");
            self.findings.add(Rule::InodeInline, at, detail);
        }
        match kind {
            FileKind::Directory => {
                self.findings.counts().directories += 1;
                self.dirs.push(DirRecord::inline(ino, self.g.ignores_case(values.flags), content));
            }
            FileKind::Symlink => {
                let len = content.iter().position(|&byte| byte == 0).unwrap_or(content.len());
                self.symlink_length(ino, values, len as u64);
            }
            _ => {}
        }
    }

    /// Compares the length of a symbolic link's target with its size.
    fn symlink_length(&mut self, ino: u32, values: &InodeValues, len: u64) {
        if len != values.size || len == 0 {
            let detail = format!("a target of {len} bytes, size {}", values.size);
            self.findings.add(Rule::InodeSymlink, At::Inode(Ino(ino.into())), detail);
        }
    }

    fn fast_symlink(&mut self, ino: u32, values: &InodeValues) -> Result<(), DeviceError> {
        self.symlink_length(ino, values, values.target_len(&values.block));
        self.count_blocks(ino, values, 0);
        Ok(())
    }

    /// Walks over the blocks of a file and compares size and count.
    fn blocks(
        &mut self,
        ino: u32,
        values: &InodeValues,
        kind: FileKind,
    ) -> Result<(), DeviceError> {
        let directory = kind == FileKind::Directory;
        let holds_value = self.g.large_values() && values.flags.contains(InodeFlags::EA_INODE);
        let verity = kind == FileKind::Regular && values.flags.contains(InodeFlags::VERITY);
        let keep =
            directory || verity || kind == FileKind::Symlink || self.is_system(ino) || holds_value;
        let mut mapped = self.walk(ino, values, keep)?;
        mapped.runs.shrink_to_fit();
        if mapped.complete {
            self.size(ino, values, kind, &mapped);
            self.count_blocks(ino, values, mapped.blocks);
        }
        if verity && mapped.complete {
            self.verity(ino, values, &mapped)?;
        }
        if holds_value && kind == FileKind::Regular {
            self.inodes.get_mut(ino).set_nameless(true);
            self.keep_value(ino, values, &mapped);
        }
        if self.is_system(ino) {
            self.keep_system(ino, values, &mapped);
        } else if kind == FileKind::Symlink && mapped.complete {
            self.slow_symlink(ino, values, &mapped)?;
        }
        if directory {
            self.findings.counts().directories += 1;
            let folds = self.g.ignores_case(values.flags);
            self.dirs.push(DirRecord::new(ino, values, folds, mapped));
        }
        Ok(())
    }

    fn size(&mut self, ino: u32, values: &InodeValues, kind: FileKind, mapped: &FileBlocks) {
        let at = At::Inode(Ino(ino.into()));
        let block_size = u64::from(self.g.block_size);
        let (size, end) = (values.size, mapped.end * block_size);
        let wrong = match kind {
            FileKind::Directory => size != end || size == 0,
            // The file must reach the last written block.
            // Behind the end of one with verity lies its tree.
            FileKind::Regular if values.flags.contains(InodeFlags::VERITY) => false,
            FileKind::Regular => size + block_size < mapped.written_end * block_size,
            _ => false,
        };
        if size > values.size_limit(&self.g) {
            let limit = values.size_limit(&self.g);
            self.findings.corrupt(&CorruptKind::InodeSizeLimit { size, limit }.at(at));
        } else if wrong {
            let detail = format!("size {size}, blocks up to {end}");
            self.findings.add(Rule::InodeSize, at, detail);
        }
    }

    /// Compares `i_blocks` with what was counted and the attributes.
    fn count_blocks(&mut self, ino: u32, values: &InodeValues, counted: u64) {
        let own = self.attributes.sectors(&self.g);
        let sectors = counted * u64::from(self.g.block_size / 512) + own;
        // As e2fsck: what a translator adds there is not judged.
        if values.blocks != sectors && !self.g.hurd {
            let detail = format!("{} sectors of 512 bytes, counted {sectors}", values.blocks);
            self.findings.add(Rule::InodeBlocks, At::Inode(Ino(ino.into())), detail);
        }
    }

    fn slow_symlink(
        &mut self,
        ino: u32,
        values: &InodeValues,
        mapped: &FileBlocks,
    ) -> Result<(), DeviceError> {
        let limit = u64::from(self.g.block_size);
        let at = At::Inode(Ino(ino.into()));
        let size = values.size;
        let Some(run) = mapped.runs.first().filter(|_| size < limit && mapped.end == 1) else {
            self.findings.corrupt(&CorruptKind::SymlinkSize { size, limit }.at(at));
            return Ok(());
        };
        if size < BLOCK_AREA as u64 {
            let detail = format!("a target of {size} bytes in a block: its place is the inode");
            self.findings.add(Rule::InodeSymlink, at, detail);
            return Ok(());
        }
        let page = self.io.read(run.start, 1)?;
        self.symlink_length(ino, values, values.target_len(&page));
        Ok(())
    }
}
