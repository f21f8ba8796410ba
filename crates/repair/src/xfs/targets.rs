//! Symbolic links: targets that cannot be read are gone.

use base::Ino;
use block::DeviceError;
use xfs::Rule;
use xfs::format::inode::{ForkFormat, fork_ranges};
use xfs::format::{At, Kind, remote};

use super::{Fs, lossy};

impl Fs<'_> {
    /// Frees symbolic links whose target cannot be read, and sizes those whose size is wrong.
    pub fn read_targets(&mut self) -> Result<(), DeviceError> {
        let is_link = |(_, inode): &(&u64, &super::inodes::Inode)| {
            inode.core.file_type() == 0xa000 && inode.core.links > 0
        };
        let list: Vec<u64> = self.inodes.iter().filter(is_link).map(|(&ino, _)| ino).collect();
        for ino in list {
            let inode = &self.inodes[&ino];
            let size = inode.core.size;
            let found = match inode.core.format {
                ForkFormat::Local => self.small_target(Ino(ino))?,
                _ => self.remote_target(Ino(ino))?,
            };
            let at = At::Inode(Ino(ino));
            match found {
                Some(target) if target.len() as u64 == size => {}
                Some(target) => {
                    let detail = format!("target of {} bytes, size {size}", target.len());
                    let inode = self.inodes.get_mut(&ino).expect("just read");
                    inode.core.size = target.len() as u64;
                    inode.dirty = true;
                    let loss = "the target may be another one";
                    self.note(lossy(Rule::Symlink, at, detail, "store that", loss));
                }
                None => {
                    let slot = self.slot(Ino(ino))?;
                    self.inodes.remove(&ino);
                    self.clear(Ino(ino), &slot, false, "its target cannot be read")?;
                    self.mark_slot(Ino(ino), true);
                }
            }
        }
        Ok(())
    }

    fn small_target(&mut self, ino: Ino) -> Result<Option<Vec<u8>>, DeviceError> {
        let slot = self.slot(ino)?;
        let core = &self.inodes[&ino.0].core;
        let (range, _) = fork_ranges(core.forkoff, slot.len());
        let bytes = &slot[range];
        let used = &bytes[..(core.size as usize).min(bytes.len())];
        let end = used.iter().position(|&byte| byte == 0).unwrap_or(used.len());
        Ok((end > 0).then(|| used[..end].to_vec()))
    }

    /// The target that lies in blocks of its own: all of what its blocks hold. None if they cannot
    /// be read.
    ///
    /// # Errors
    /// The device's.
    pub fn remote_target(&mut self, ino: Ino) -> Result<Option<Vec<u8>>, DeviceError> {
        let fork = self.inodes[&ino.0].data.clone();
        let mut target = Vec::new();
        for extent in &fork.extents {
            if extent.count > 64 || target.len() as u64 > remote::SYMLINK_MAX {
                return Ok(None);
            }
            let at = At::InodeBlock(ino, extent.offset);
            let runs = [(extent.start, extent.count)];
            let Some((_, data)) = self.meta(&runs, &[Kind::Symlink], ino.0, at)? else {
                return Ok(None);
            };
            let range = target.len() as u64..remote::SYMLINK_MAX;
            let Ok(piece) = remote::piece(&data, range, &self.g, at) else { return Ok(None) };
            target.extend_from_slice(piece);
        }
        let possible = (1..=remote::SYMLINK_MAX).contains(&(target.len() as u64));
        Ok(possible.then_some(target))
    }
}
