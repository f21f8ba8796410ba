//! An image in memory: reading its structures, and damaging exactly one of them.

use std::path::Path;
use std::sync::Arc;

use base::Ino;
use device::MemoryDevice;
use ext4::check::{CheckOptions, CheckReport, check};
use ext4::format::dir::{self, DirLayout, Names};
use ext4::format::extent::Node;
use ext4::format::features::Incompat;
use ext4::format::{At, Geometry, GroupDesc, InodeFlags, InodeValues, RawSuper, htree};
use rt::Runtime;

/// A whole image.
#[derive(Clone)]
pub struct Image {
    /// Its bytes.
    pub bytes: Vec<u8>,
    /// Its geometry, as it was before any damage.
    pub g: Geometry,
}

impl Image {
    /// Reads a file.
    pub fn open(path: &Path) -> Image {
        Image::new(testkit::image::read(path))
    }

    /// Takes bytes that begin with a sound superblock.
    pub fn new(bytes: Vec<u8>) -> Image {
        let g = Geometry::parse(&bytes[1024..], 0).expect("a sound superblock");
        Image { bytes, g }
    }

    /// Writes it to a file with holes where it is zero.
    pub fn write(&self, path: &Path) {
        use std::os::unix::fs::FileExt;
        // A new file: closing one that was truncated makes the host write it out.
        let _ = std::fs::remove_file(path);
        let file = std::fs::File::create(path).expect("a file");
        file.set_len(self.bytes.len() as u64).expect("a sparse file");
        for (index, chunk) in self.bytes.chunks(4096).enumerate() {
            if !base::page::is_zero(chunk) {
                file.write_all_at(chunk, index as u64 * 4096).expect("a write");
            }
        }
    }

    /// Checks it with our own check.
    pub fn check(&self) -> CheckReport {
        self.check_with(&CheckOptions::default())
    }

    /// The same with options.
    pub fn check_with(&self, options: &CheckOptions) -> CheckReport {
        let runtime = Runtime::real(1);
        let device = Arc::new(MemoryDevice::from_image(&self.bytes));
        let queue = block::Queue::new(&runtime, device, block::QueueConfig::default());
        let queue = queue.expect("a queue");
        let report = runtime.enter("check", |cx| check(cx, &queue, options));
        report.expect("memory does not fail")
    }

    /// A block.
    pub fn block(&mut self, block: u64) -> &mut [u8] {
        let size = self.g.block_size as usize;
        &mut self.bytes[block as usize * size..][..size]
    }

    /// Changes the primary superblock and sets its checksum.
    pub fn edit_super(&mut self, edit: impl FnOnce(&mut RawSuper)) {
        let raw = RawSuper::view_mut(&mut self.bytes[1024..]).expect("long enough");
        edit(raw);
        raw.set_checksum();
    }

    /// A group's descriptor.
    pub fn desc(&mut self, group: u32) -> GroupDesc {
        let (block, offset) = self.g.desc_place(group);
        let size = self.g.desc_size as usize;
        GroupDesc::read(&self.block(block.0)[offset..offset + size])
    }

    /// Changes a descriptor and sets its checksum.
    pub fn edit_desc(&mut self, group: u32, edit: impl FnOnce(&mut GroupDesc)) {
        let mut desc = self.desc(group);
        edit(&mut desc);
        let (block, offset) = self.g.desc_place(group);
        let g = self.g.clone();
        let bytes = &mut self.block(block.0)[offset..offset + g.desc_size as usize];
        desc.emit(bytes, group, &g);
    }

    /// Changes a block bitmap and sets its checksum in the descriptor.
    pub fn edit_block_bitmap(&mut self, group: u32, edit: impl FnOnce(&mut [u8])) {
        let block = self.desc(group).block_bitmap;
        edit(self.block(block));
        let csum = self.g.clone().block_bitmap_csum(self.block(block));
        if self.g.checksums.metadata {
            self.edit_desc(group, |desc| desc.block_bitmap_csum = csum);
        }
    }

    /// Changes an inode bitmap and sets its checksum in the descriptor.
    pub fn edit_inode_bitmap(&mut self, group: u32, edit: impl FnOnce(&mut [u8])) {
        let block = self.desc(group).inode_bitmap;
        edit(self.block(block));
        let csum = self.g.clone().inode_bitmap_csum(self.block(block));
        if self.g.checksums.metadata {
            self.edit_desc(group, |desc| desc.inode_bitmap_csum = csum);
        }
    }

    /// An inode's slot.
    pub fn slot(&mut self, ino: u32) -> &mut [u8] {
        let (group, index) = self.g.inode_group(Ino(ino.into())).expect("in range");
        let (block, offset) = self.g.inode_offset(index);
        let size = self.g.inode_size as usize;
        let table = self.desc(group).inode_table;
        &mut self.block(table + block)[offset..offset + size]
    }

    /// An inode's values.
    pub fn inode(&mut self, ino: u32) -> InodeValues {
        let g = self.g.clone();
        InodeValues::read(self.slot(ino), &g)
    }

    /// Changes an inode's bytes and sets its checksum.
    pub fn edit_slot(&mut self, ino: u32, edit: impl FnOnce(&mut [u8])) {
        let g = self.g.clone();
        let slot = self.slot(ino);
        edit(slot);
        if g.checksums.metadata {
            let generation = InodeValues::generation_of(slot);
            g.checksums.inode_seed(Ino(ino.into()), generation).set_inode(slot);
        }
    }

    /// Changes an inode's values and sets its checksum.
    pub fn edit_inode(&mut self, ino: u32, edit: impl FnOnce(&mut InodeValues)) {
        let mut values = self.inode(ino);
        edit(&mut values);
        let g = self.g.clone();
        values.emit(self.slot(ino), Ino(ino.into()), &g);
    }

    /// Device blocks of a file in order.
    pub fn blocks(&mut self, ino: u32) -> Vec<u64> {
        let values = self.inode(ino);
        let mut found = Vec::new();
        if values.flags.contains(InodeFlags::EXTENTS) {
            self.extent_blocks(&values.block, &mut found);
        } else {
            let word = |slot: usize| {
                u32::from_le_bytes(values.block[slot * 4..][..4].try_into().expect("four bytes"))
            };
            found.extend((0..12).map(word).filter(|&block| block != 0).map(u64::from));
            for (slot, levels) in [(12, 1), (13, 2), (14, 3)] {
                self.indirect_blocks(word(slot).into(), levels, &mut found);
            }
        }
        found
    }

    fn extent_blocks(&mut self, data: &[u8], found: &mut Vec<u64>) {
        let node = Node::parse(data, None, At::Super(0)).expect("a sound node");
        if node.depth() == 0 {
            let runs = node.extents().flat_map(|run| run.start..run.start + u64::from(run.len));
            return found.extend(runs);
        }
        let below: Vec<u64> = node.indexes().map(|pointer| pointer.leaf).collect();
        for block in below {
            let data = self.block(block).to_vec();
            self.extent_blocks(&data, found);
        }
    }

    fn indirect_blocks(&mut self, block: u64, levels: u32, found: &mut Vec<u64>) {
        if block == 0 {
            return;
        }
        if levels == 0 {
            return found.push(block);
        }
        let data = self.block(block).to_vec();
        for entry in data.chunks_exact(4) {
            let child = u32::from_le_bytes(entry.try_into().expect("four bytes"));
            self.indirect_blocks(child.into(), levels - 1, found);
        }
    }

    /// The first extent block of a file with a tree.
    pub fn extent_block(&mut self, ino: u32) -> u64 {
        let values = self.inode(ino);
        let node = Node::parse(&values.block, None, At::Super(0)).expect("a sound root");
        assert!(node.depth() > 0, "inode {ino} has a tree");
        node.index(0).leaf
    }

    /// Changes an extent block of a file and sets its checksum.
    pub fn edit_extent_block(&mut self, ino: u32, block: u64, edit: impl FnOnce(&mut [u8])) {
        let generation = self.inode(ino).generation;
        let seed = self.g.checksums.inode_seed(Ino(ino.into()), generation);
        let metadata = self.g.checksums.metadata;
        let data = self.block(block);
        edit(data);
        if metadata {
            seed.set_extent_block(data);
        }
    }

    /// How directory blocks look here.
    pub fn layout(&self) -> DirLayout {
        DirLayout {
            block_size: self.g.block_size,
            checksum: self.g.checksums.metadata,
            filetype: self.g.features.incompat.contains(Incompat::FILETYPE),
            names: Names::Plain,
        }
    }

    /// Changes a directory's leaf block (by its logical number) and sets its checksum.
    pub fn edit_dir(&mut self, ino: u32, logical: usize, edit: impl FnOnce(&mut [u8])) {
        let block = self.blocks(ino)[logical];
        let generation = self.inode(ino).generation;
        let seed = self.g.checksums.inode_seed(Ino(ino.into()), generation);
        let metadata = self.g.checksums.metadata;
        let data = self.block(block);
        edit(data);
        if metadata {
            dir::set_checksum(seed, data);
        }
    }

    /// Changes a root or node of a hash tree and sets its checksum.
    pub fn edit_htree(&mut self, ino: u32, logical: usize, edit: impl FnOnce(&mut [u8])) {
        let block = self.blocks(ino)[logical];
        let generation = self.inode(ino).generation;
        let seed = self.g.checksums.inode_seed(Ino(ino.into()), generation);
        let metadata = self.g.checksums.metadata;
        let array = if logical == 0 { htree::ROOT_ARRAY } else { htree::NODE_ARRAY };
        let data = self.block(block);
        edit(data);
        if metadata {
            htree::set_checksum(seed, data, array);
        }
    }

    /// Finds a name in a directory: inode, logical block, offset of the entry.
    pub fn find(&mut self, dir: u32, name: &str) -> (u32, usize, usize) {
        let layout = DirLayout { checksum: false, ..self.layout() };
        for (logical, block) in self.blocks(dir).into_iter().enumerate() {
            let data = self.block(block).to_vec();
            for entry in dir::entries(&data, layout) {
                if entry.ino != 0 && entry.name == name.as_bytes() {
                    return (entry.ino, logical, entry.offset as usize);
                }
            }
        }
        panic!("no {name} in inode {dir}");
    }

    /// The inode of a path.
    pub fn ino(&mut self, path: &str) -> u32 {
        let parts = path.split('/').filter(|part| !part.is_empty());
        parts.fold(2, |dir, part| self.find(dir, part).0)
    }
}
