//! Maps written anew out of the runs that are kept.

use block::DeviceError;
use ext4::format::InodeFlags;

use super::Fs;
use crate::map_build::{self, NodeStore};

/// The blocks of a new map: those of the old one, then free ones.
struct Nodes<'f, 'a> {
    fs: &'f mut Fs<'a>,
    spare: Vec<u64>,
}

impl NodeStore for Nodes<'_, '_> {
    type Error = DeviceError;

    fn take_node(&mut self, goal: u64) -> Result<Option<u64>, DeviceError> {
        match self.spare.pop() {
            Some(block) => Ok(Some(block)),
            None => self.fs.take_block(goal),
        }
    }

    fn put_node(&mut self, block: u64, data: &[u8]) {
        self.fs.view.write(block, data);
    }

    fn block_size(&self) -> u32 {
        self.fs.g.block_size
    }
}

impl Fs<'_> {
    /// Writes the map of an inode anew, and its pointers into the inode.
    ///
    /// # Errors
    /// The device's.
    pub fn store_map(&mut self, ino: u32) -> Result<(), DeviceError> {
        let inode = self.inodes[&ino].clone();
        let mut spare = inode.map.nodes.clone();
        spare.reverse();
        let seed = self.seed(ino, inode.generation);
        let mut store = Nodes { fs: self, spare };
        let (block, nodes) = match inode.flags.contains(InodeFlags::EXTENTS) {
            true => map_build::extents(&mut store, seed, &inode.map.runs)?,
            false => map_build::indirect(&mut store, &inode.map.runs)?,
        };
        let spare = store.spare;
        for node in spare {
            self.free_block(node);
        }
        let kept = self.inodes.get_mut(&ino).expect("it is there");
        kept.map.nodes = nodes;
        kept.map.damage.clear();
        kept.rewrite = false;
        self.edit(ino, |values| values.block = block)
    }
}
