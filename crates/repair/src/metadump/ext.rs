//! The walk over the metadata of ext2, ext3 and ext4: superblocks, descriptors, bitmaps, tables,
//! and what inodes own.

use std::sync::Arc;

use base::Ino;
use block::Queue;
use ext4::format::checksum::{self, InodeSeed, stored_inode};
use ext4::format::features::{Access, Incompat};
use ext4::format::inode::BASE_SIZE;
use ext4::format::super_block::{SUPER_OFFSET, SUPER_SIZE};
use ext4::format::{Geometry, GroupDesc, GroupFlags, InodeValues, RawSuper};
use rt::Cx;

use super::{DumpError, DumpOptions, Out, Report, Sink, permute};
use crate::view::View;

mod attributes;
mod dirs;
mod files;
mod journal;
mod maps;

/// One dump.
struct Dump<'a> {
    view: View<'a>,
    out: Out<'a>,
    g: Geometry,
    raw: RawSuper,
    /// The log is left out: nothing is left to replay.
    replayed: bool,
}

/// Dumps an ext2, ext3 or ext4.
///
/// # Errors
/// See [`DumpError`].
pub fn dump(
    cx: &mut Cx,
    queue: &Arc<Queue>,
    options: &DumpOptions,
    sink: &mut dyn Sink,
) -> Result<Report, DumpError> {
    let mut view = View::new(cx, queue);
    let bytes = view.read_bytes(SUPER_OFFSET, SUPER_SIZE)?;
    let hint = "--rescue dumps the state that a repair would leave";
    let g = Geometry::parse(&bytes, 0)
        .map_err(|corrupt| DumpError::Refused(format!("{corrupt}; {hint}")))?;
    let raw = RawSuper::read(&bytes).expect("1024 bytes");
    if let Some(pair) = g.features.unknown_pair() {
        return Err(DumpError::Refused(pair.to_string()));
    }
    let (access, reasons) = g.features.access();
    if access == Access::Refused {
        let names: Vec<String> = reasons.iter().map(ToString::to_string).collect();
        return Err(DumpError::Refused(names.join("; ")));
    }
    let (blocks, there) = (g.blocks_count, queue.info().bytes() / u64::from(g.block_size));
    if blocks > there {
        let why = format!("it has {blocks} blocks, its device {there}; try --rescue");
        return Err(DumpError::Refused(why));
    }
    let size = blocks * u64::from(g.block_size);
    let mut out = Out::new(sink, options, size);
    let mut over = None;
    let dirty = g.features.incompat.contains(Incompat::RECOVER);
    if dirty && !options.keep_names {
        over = ext4::check::replayed(view.cx(), queue)?;
        if over.is_none() {
            out.leave_out("the journal, which cannot be replayed");
        }
    }
    out.report.dirty_log = dirty;
    let replayed = dirty && !options.keep_names;
    let queue = over.as_ref().unwrap_or(queue);
    let mut dump = Dump { view: View::new(cx, queue), out, g, raw, replayed };
    dump.view.set_block_size(dump.g.block_size);
    dump.run()?;
    Ok(dump.out.report)
}

impl Dump<'_> {
    fn run(&mut self) -> Result<(), DumpError> {
        // A log may have replaced it.
        let bytes = self.view.read_bytes(SUPER_OFFSET, SUPER_SIZE)?;
        if let Ok(g) = Geometry::parse(&bytes, 0) {
            (self.g, self.raw) = (g, RawSuper::read(&bytes).expect("1024 bytes"));
        }
        for group in 0..self.g.groups_count {
            self.copies(group)?;
        }
        if self.g.features.incompat.contains(Incompat::MMP) {
            self.mmp()?;
        }
        for group in 0..self.g.groups_count {
            self.group(group)?;
        }
        Ok(())
    }

    fn size(&self) -> usize {
        self.g.block_size as usize
    }

    /// Passes a block on.
    fn put(&mut self, block: u64, bytes: &[u8]) -> Result<(), DumpError> {
        self.out.put(block * u64::from(self.g.block_size), bytes)?;
        Ok(())
    }

    /// A superblock or a copy of it, and the descriptors behind it.
    fn copies(&mut self, group: u32) -> Result<(), DumpError> {
        let first = self.g.group_first_block(group);
        let has_super = self.g.has_super(group);
        let size = u64::from(self.g.block_size);
        if has_super {
            let offset = if group == 0 { SUPER_OFFSET } else { first * size };
            let mut bytes = self.view.read_bytes(offset, SUPER_SIZE)?;
            self.obscure_super(&mut bytes, group);
            self.out.put(offset, &bytes)?;
        }
        // With meta_bg the descriptors of a part lie in its first, second and last group.
        let (place, _) = self.g.desc_place(group);
        let boot = u64::from(group == 0 && self.g.first_data_block == 0 && size == 1024);
        let own = first + u64::from(has_super) + boot;
        let descs = u64::from(self.g.desc_blocks);
        let meta = self.g.features.incompat.contains(Incompat::META_BG);
        let blocks = match meta {
            true => vec![place.0, own],
            false if has_super => (own..own + descs).collect(),
            false => Vec::new(),
        };
        let of_part =
            [0, 1, self.g.descs_per_block - 1].contains(&(group % self.g.descs_per_block));
        for block in blocks {
            // Of a group without a copy the block is something else.
            if block == place.0 || !meta || (of_part && self.are_descriptors(block, group)?) {
                let data = self.view.read(block)?;
                self.put(block, &data)?;
            }
        }
        Ok(())
    }

    /// Whether a block holds the same descriptors as their first place.
    fn are_descriptors(&mut self, block: u64, group: u32) -> Result<bool, DumpError> {
        let (first, _) = self.g.desc_place(group);
        let copy = self.view.read(block)?;
        let own = self.view.read(first.0)?;
        let size = self.g.desc_size as usize;
        let places = |bytes: &[u8]| -> Vec<[u8; 12]> {
            bytes.chunks_exact(size).map(|desc| desc[..12].try_into().expect("12 bytes")).collect()
        };
        Ok(places(&copy) == places(&own))
    }

    fn obscure_super(&mut self, bytes: &mut [u8], group: u32) {
        let stored = |bytes: &[u8]| u32::from_le_bytes(bytes[1020..].try_into().expect("4 bytes"));
        let sound = stored(bytes) == checksum::super_block(bytes);
        let raw = RawSuper::view_mut(bytes).expect("1024 bytes");
        if !self.out.keeps_names() {
            raw.s_volume_name.iter_mut().filter(|byte| **byte != 0).for_each(|byte| *byte = b'L');
            for field in [&mut raw.s_last_mounted[..], &mut raw.s_mount_opts[..]] {
                let end = field.iter().position(|&byte| byte == 0).unwrap_or(field.len());
                permute::text(&self.out.options.key, b"superblock", &mut field[..end]);
                field[end..].fill(0);
            }
        }
        if group == 0 && self.replayed {
            let mut features = raw.features();
            features.incompat -= Incompat::RECOVER;
            raw.set_features(&features);
        }
        if sound && self.g.checksums.metadata {
            raw.set_checksum();
        }
    }

    /// The block of multi-mount protection, without the names of machine and device.
    fn mmp(&mut self) -> Result<(), DumpError> {
        let block = self.raw.s_mmp_block.get();
        if !self.g.data_blocks_valid(block, 1) {
            return Ok(());
        }
        let mut data = self.view.read(block)?;
        let seed = self.g.checksums.metadata.then_some(self.g.checksums.seed);
        match ext4::format::mmp::Mmp::parse(&data, seed) {
            Ok(mut mmp) if !self.out.keeps_names() => {
                (mmp.node, mmp.device) = ("node".into(), "device".into());
                let used = 1024.min(data.len());
                data[used..].fill(0);
                mmp.emit(&mut data, seed);
            }
            Err(_) if !self.out.keeps_names() => {
                self.out.leave_out(format!("the MMP block {block}"));
                return Ok(());
            }
            _ => {}
        }
        self.put(block, &data)
    }

    /// Bitmaps and table of a group, and what its inodes own.
    fn group(&mut self, group: u32) -> Result<(), DumpError> {
        let (block, offset) = self.g.desc_place(group);
        let content = self.view.read(block.0)?;
        let bytes = &content[offset..offset + self.g.desc_size as usize];
        let desc = GroupDesc::read(bytes);
        if desc.check_places(group, &self.g).is_err() {
            self.out.leave_out(format!("group {group}: its descriptor is damaged"));
            return Ok(());
        }
        let csum = self.g.features.group_csum();
        if !(csum && desc.flags.contains(GroupFlags::BLOCK_UNINIT)) {
            let data = self.view.read(desc.block_bitmap)?;
            self.put(desc.block_bitmap, &data)?;
        }
        if csum && desc.flags.contains(GroupFlags::INODE_UNINIT) {
            return Ok(());
        }
        let map = self.view.read(desc.inode_bitmap)?;
        self.put(desc.inode_bitmap, &map)?;
        let unused = if csum { desc.itable_unused.min(self.g.inodes_per_group) } else { 0 };
        let used = (self.g.inodes_per_group - unused).div_ceil(self.g.inodes_per_block);
        for block in 0..used {
            self.table_block(group, &desc, block, &map)?;
        }
        Ok(())
    }

    fn table_block(
        &mut self,
        group: u32,
        desc: &GroupDesc,
        block: u32,
        map: &[u8],
    ) -> Result<(), DumpError> {
        let place = desc.inode_table + u64::from(block);
        let mut data = self.view.read(place)?;
        let first = block * self.g.inodes_per_block;
        let size = self.g.inode_size as usize;
        for (index, slot) in data.chunks_exact_mut(size).enumerate() {
            let bit = first + index as u32;
            let ino = group * self.g.inodes_per_group + bit + 1;
            let raw = InodeValues::read(slot, &self.g);
            let used = bit < self.g.inodes_per_group
                && (base::bitmap::test(map, bit as usize) || raw.links > 0)
                && slot.iter().any(|&byte| byte != 0);
            match used {
                true => self.inode(ino, slot, &raw)?,
                false => slot.fill(0),
            }
        }
        self.put(place, &data)
    }

    /// What seeds the checksums of an inode and its blocks.
    fn seed(&self, ino: u32, values: &InodeValues) -> InodeSeed {
        self.g.checksums.inode_seed(Ino(ino.into()), values.generation)
    }

    /// The slot of an inode as the dump has it; passes on what it owns.
    fn inode(&mut self, ino: u32, slot: &mut [u8], values: &InodeValues) -> Result<(), DumpError> {
        self.out.report.inodes += 1;
        let seed = self.seed(ino, values);
        let sound = stored_inode(slot) == seed.inode(slot);
        self.owned(ino, slot, values)?;
        let extra = BASE_SIZE + usize::from(values.extra_isize);
        if slot.len() > BASE_SIZE && extra <= slot.len() {
            let fits = self.inode_attributes(&mut slot[extra..]);
            if !fits {
                slot[extra..].fill(0);
                self.out.leave_out(format!("the attributes in inode {ino}"));
            }
        }
        if self.g.data_blocks_valid(values.file_acl, 1) {
            self.attribute_block(values.file_acl)?;
        }
        if sound && self.g.checksums.metadata {
            seed.set_inode(slot);
        }
        Ok(())
    }
}
