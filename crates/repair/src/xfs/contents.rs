//! What the blocks of directories, attributes and symbolic links hold: each block is read, and put
//! right where its checksum or a stray block allows it.

use base::Ino;
use block::DeviceError;
use xfs::format::dir::SPACES;
use xfs::format::{At, Kind};

use super::Fs;
use super::forks::Fork;

/// What a block of an attribute fork may be.
const ATTRIBUTES: [Kind; 3] = [Kind::AttrLeaf, Kind::DaNode, Kind::AttrRemote];
/// What a block of a directory's index may be.
const INDEX: [Kind; 3] = [Kind::DirLeaf1, Kind::DirLeafN, Kind::DaNode];

impl Fs<'_> {
    /// Reads all blocks of metadata that inodes own.
    pub fn read_contents(&mut self) -> Result<(), DeviceError> {
        let list: Vec<u64> = self.inodes.keys().copied().collect();
        self.view.meter.begin("reading contents", list.len() as u64);
        for ino in list {
            self.view.meter.add(1);
            let inode = &self.inodes[&ino];
            let (data, attr) = (inode.data.clone(), inode.attr.clone());
            match inode.core.file_type() {
                0x4000 => self.read_directory(Ino(ino), &data)?,
                0xa000 => self.read_target(Ino(ino), &data)?,
                _ => {}
            }
            for extent in &attr.extents {
                for offset in extent.offset..extent.end() {
                    self.heal_block(Ino(ino), &attr, offset, 1, &ATTRIBUTES)?;
                }
            }
        }
        Ok(())
    }

    fn heal_block(
        &mut self,
        ino: Ino,
        fork: &Fork,
        offset: u64,
        count: u32,
        kinds: &[Kind],
    ) -> Result<(), DeviceError> {
        let Some(runs) = fork.runs(offset, count) else { return Ok(()) };
        self.meta(&runs, kinds, ino.0, At::InodeBlock(ino, offset))?;
        Ok(())
    }

    fn read_directory(&mut self, ino: Ino, fork: &Fork) -> Result<(), DeviceError> {
        let count = self.g.dir_blocks();
        let [_, index, free] = SPACES.map(|space| space >> self.g.block_bits);
        let alone = fork.extents.last().is_some_and(|last| last.end() == u64::from(count));
        let data = if alone { Kind::DirBlock } else { Kind::DirData };
        let mut next = 0;
        for extent in &fork.extents {
            let mut offset = extent.offset.max(next);
            while offset < extent.end() {
                let kinds = match offset {
                    _ if offset >= free => &[Kind::DirFree][..],
                    _ if offset >= index => &INDEX,
                    _ => &[data],
                };
                self.heal_block(ino, fork, offset, count, kinds)?;
                offset += u64::from(count);
            }
            next = offset;
        }
        Ok(())
    }

    fn read_target(&mut self, ino: Ino, fork: &Fork) -> Result<(), DeviceError> {
        for extent in fork.extents.iter().filter(|extent| extent.count <= 64) {
            self.heal_block(ino, fork, extent.offset, extent.count, &[Kind::Symlink])?;
        }
        Ok(())
    }
}
