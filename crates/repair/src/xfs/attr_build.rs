//! Attributes written anew: in the inode, or as a tree in blocks of their own.

use base::Ino;
use xfs::format::attr::{AttrFlags, SfAttr, attr_hash, emit_sf, sf_size};
use xfs::format::attr_leaf::{self, LEAF_HEADER, LeafAttr, Value, is_local, used_size};
use xfs::format::hash::Case;
use xfs::format::inode::{CORE_SIZE, ForkFormat};
use xfs::format::{Kind, remote, verifier};

use super::Fs;
use super::attributes::Attribute;
use super::forks::Fork;
use super::room::first_blocks;
use super::tree_hash::{Leaf, attr_kind, levels};
use crate::RepairError;

/// Bytes of the inode that attributes leave to the content at least.
const DATA_ROOM: usize = 64;

impl Fs<'_> {
    /// Gives an inode these attributes, and no others.
    ///
    /// # Errors
    /// There is no room for them.
    pub fn build_attributes(&mut self, ino: Ino, list: &[Attribute]) -> Result<(), RepairError> {
        let small: Vec<SfAttr<'_>> = list.iter().map(as_small).collect();
        let inode_size = self.g.inode_size as usize;
        let inode = self.inodes.get_mut(&ino.0).expect("an inode in use");
        (inode.dirty, inode.map_attr) = (true, true);
        inode.attr = Fork::default();
        inode.small_attr = None;
        inode.core.attr_format = ForkFormat::Extents;
        if list.is_empty() {
            return Ok(());
        }
        let short = list.iter().all(|attr| attr.value.len() <= 255) && list.len() <= 255;
        let room = match inode.core.forkoff {
            0 => inode_size - CORE_SIZE - DATA_ROOM.max(self.data_bytes(ino)),
            forkoff => inode_size - CORE_SIZE - 8 * usize::from(forkoff),
        };
        let size = sf_size(small.iter());
        if short && size <= room {
            let mut bytes = vec![0; size];
            emit_sf(&mut bytes, &small);
            let inode = self.inodes.get_mut(&ino.0).expect("an inode in use");
            inode.core.attr_format = ForkFormat::Local;
            inode.core.attr_extents = 0;
            inode.small_attr = Some(bytes);
            return Ok(());
        }
        self.attribute_tree(ino, list)
    }

    /// Bytes of the inode that its content takes.
    fn data_bytes(&self, ino: Ino) -> usize {
        let inode = &self.inodes[&ino.0];
        match (&inode.small_data, inode.core.format) {
            (Some(bytes), _) => bytes.len().next_multiple_of(8),
            (None, ForkFormat::Local) => (inode.core.size as usize).next_multiple_of(8),
            (None, ForkFormat::Device) => 8,
            _ => (16 * inode.data.mapped().len()).min(192),
        }
    }

    /// Writes attributes as leaves with the nodes over them, and the large values behind.
    fn attribute_tree(&mut self, ino: Ino, list: &[Attribute]) -> Result<(), RepairError> {
        let size = self.g.block_size as usize;
        let case = self.g.features.case();
        let mut sorted: Vec<(u32, &Attribute)> =
            list.iter().map(|attr| (hash_of(case, attr), attr)).collect();
        sorted.sort_by_key(|(hash, _)| *hash);
        let leaves = groups(&sorted, size);
        // Nodes are counted by building them without the places of values.
        let place = |number: u64| number as u32;
        let blank = leaves.iter().map(|_| Leaf { hash: 0, data: vec![0; size] }).collect();
        let mut next = levels(blank, size, &place).len() as u64;
        let tree_blocks = next;
        let mut values = Vec::new();
        let mut built = Vec::new();
        for leaf in &leaves {
            let mut entries = Vec::new();
            for (hash, attr) in leaf {
                let (flags, name) = (attr.flags - AttrFlags::LOCAL, &attr.name[..]);
                let value = if is_local(name.len(), attr.value.len(), size) {
                    Value::Local(&attr.value)
                } else {
                    let (block, len) = (next as u32, attr.value.len() as u32);
                    values.push((next, &attr.value[..]));
                    next += remote::blocks(len.into(), size);
                    Value::Remote { block, len }
                };
                entries.push(LeafAttr { hash: *hash, flags, name, value });
            }
            let mut data = vec![0; size];
            attr_leaf::emit(&mut data, &entries);
            built.push(Leaf { hash: leaf[leaf.len() - 1].0, data });
        }
        let mut room = self.take_blocks(next as u32)?;
        self.inodes.get_mut(&ino.0).expect("in use").attr.append_runs(0, &room);
        room.reverse();
        let mut blocks = levels(built, size, &place);
        blocks.sort_by_key(|block| block.place);
        debug_assert_eq!(blocks.len() as u64, tree_blocks);
        for mut block in blocks {
            let runs = first_blocks(&mut room, 1);
            let kind = attr_kind(block.level);
            let expect = self.g.expect(self.g.sector(runs[0].0), Some(ino.0));
            verifier::stamp(kind, &mut block.data, &expect);
            verifier::update_crc(kind, &mut block.data);
            self.write_runs(&runs, &block.data);
        }
        for (_, value) in values {
            for (number, piece) in value.chunks(remote::room(size)).enumerate() {
                let runs = first_blocks(&mut room, 1);
                let expect = self.g.expect(self.g.sector(runs[0].0), Some(ino.0));
                let (kind, mut data) = (Kind::AttrRemote, vec![0; size]);
                let offset = (number * remote::room(size)) as u64;
                remote::emit(kind, &mut data, offset, piece, &expect);
                verifier::update_crc(kind, &mut data);
                self.write_runs(&runs, &data);
            }
        }
        Ok(())
    }
}

fn as_small(attr: &Attribute) -> SfAttr<'_> {
    SfAttr { flags: attr.flags - AttrFlags::LOCAL, name: &attr.name, value: &attr.value }
}

fn hash_of(case: Case, attr: &Attribute) -> u32 {
    attr_hash(case, attr.flags, &attr.name, Some(&attr.value))
}

/// Divides attributes into leaves of blocks of `size` bytes.
fn groups<'a>(sorted: &[(u32, &'a Attribute)], size: usize) -> Vec<Vec<(u32, &'a Attribute)>> {
    let (mut out, mut used): (Vec<Vec<(u32, &Attribute)>>, usize) = (Vec::new(), usize::MAX);
    for &(hash, attr) in sorted {
        let local = is_local(attr.name.len(), attr.value.len(), size);
        let len = attr.value.len() as u32;
        let value = match local {
            true => Value::Local(&attr.value),
            false => Value::Remote { block: 1, len },
        };
        let entry = LeafAttr { hash, flags: attr.flags, name: &attr.name, value };
        let bytes = used_size(std::iter::once(&entry));
        if used.saturating_add(bytes) > size - LEAF_HEADER {
            out.push(Vec::new());
            used = 0;
        }
        used += bytes;
        out.last_mut().expect("just added").push((hash, attr));
    }
    out
}
