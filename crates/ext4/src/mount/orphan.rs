//! What a mount does with orphans: it reads their file, and finishes what a crash interrupted.

use std::collections::BTreeSet;
use std::sync::Arc;

use base::{Errno, Ino};
use rt::Cx;

use crate::Ext4;
use crate::evict;
use crate::format::features::RoCompat;
use crate::format::{At, CorruptKind};
use crate::inode::Inode;
use crate::inode::orphan::OrphanPlace;

/// `ob_magic` at the end of each block of the orphan file, before its checksum.
const MAGIC: u32 = 0x0b10_ca04;

impl Ext4 {
    /// Reads the orphan file's blocks; they stay in memory.
    ///
    /// # Errors
    /// `EIO`, `EUCLEAN`.
    pub(crate) fn load_orphan_file(&self, cx: &mut Cx) -> Result<(), Errno> {
        let ino = Ino(u64::from(self.sb.geometry.orphan_file_ino));
        if ino.0 == 0 {
            return Ok(());
        }
        let inode = match self.iget(cx, ino) {
            Err(Errno::ESTALE) => {
                let kind = CorruptKind::InodeMode { mode: 0 };
                return Err(self.sb.corrupt_kind(cx, kind, At::Inode(ino)));
            }
            other => other?,
        };
        // Keeps it in the cache, where the checksums find its generation.
        inode.with(cx, |core| core.opens += 1);
        let blocks = inode.size(cx) >> self.sb.geometry.block_bits;
        let seed = {
            let generation = inode.with(cx, |core| core.generation);
            self.sb.geometry.checksums.inode_seed(ino, generation)
        };
        let mut file = Vec::new();
        for lblk in 0..blocks.min(512) as u32 {
            let at = At::Inode(ino);
            let Some(buffer) = self.inodes.bmap(&inode).bread(cx, lblk)? else {
                let kind = CorruptKind::DirHole { logical: u64::from(lblk) };
                return Err(self.sb.corrupt_kind(cx, kind, at));
            };
            let (magic, found, expected) = buffer.with(|data| {
                let word = |at: usize| {
                    u32::from_le_bytes(data[at..at + 4].try_into().expect("four bytes"))
                };
                let end = data.len();
                (word(end - 8), word(end - 4), seed.orphan_block(buffer.block(), data))
            });
            if magic != MAGIC {
                return Err(self.sb.corrupt_kind(
                    cx,
                    CorruptKind::OrphanMagic { found: magic },
                    at,
                ));
            }
            if self.sb.geometry.checksums.metadata && found != expected {
                let kind = CorruptKind::OrphanChecksum { found, expected };
                return Err(self.sb.corrupt_kind(cx, kind, at));
            }
            file.push(buffer);
        }
        self.inodes.orphans.lock(cx).file = file;
        Ok(())
    }

    /// The inodes of the orphan list and the orphan file. Nothing is changed.
    ///
    /// # Errors
    /// `EIO`, `EUCLEAN`.
    pub(crate) fn orphan_numbers(&self, cx: &mut Cx) -> Result<BTreeSet<u32>, Errno> {
        self.load_orphan_file(cx)?;
        let mut numbers = BTreeSet::new();
        let mut ino = self.sb.super_field(|raw| raw.s_last_orphan.get());
        while ino != 0 && numbers.insert(ino) {
            let inode = self.iget_orphan(cx, Ino(u64::from(ino)))?;
            ino = inode.with(cx, |core| core.dtime);
        }
        let (files, slots) =
            (self.inodes.orphans.lock(cx).file.clone(), self.inodes.orphan_slots());
        for buffer in files {
            buffer.with(|data| {
                let words = data[..slots * 4].chunks_exact(4);
                let words =
                    words.map(|word| u32::from_le_bytes(word.try_into().expect("four bytes")));
                numbers.extend(words.filter(|&ino| ino != 0));
            });
        }
        Ok(numbers)
    }

    /// Finishes what a crash interrupted: frees orphans without names, truncates the others to
    /// their size. Returns how many there were. Called once, when the journal has been replayed.
    ///
    /// # Errors
    /// `EIO`, `EUCLEAN`.
    pub(crate) fn orphan_cleanup(&self, cx: &mut Cx, head: u32) -> Result<u32, Errno> {
        let mut count = 0;
        let mut ino = head;
        let mut chain = Vec::new();
        while ino != 0 {
            if chain.len() as u32 > self.sb.geometry.inodes_count {
                break;
            }
            let valid = ino >= self.sb.geometry.first_ino && ino <= self.sb.geometry.inodes_count;
            if !valid || chain.iter().any(|inode: &Arc<Inode>| inode.ino.0 == u64::from(ino)) {
                let kind = CorruptKind::InodeNumber { inodes: self.sb.geometry.inodes_count };
                return Err(self.sb.corrupt_kind(cx, kind, At::Inode(Ino(u64::from(ino)))));
            }
            let inode = self.iget_orphan(cx, Ino(u64::from(ino)))?;
            ino = inode.with(cx, |core| {
                core.orphan = OrphanPlace::List;
                core.dtime
            });
            chain.push(inode);
        }
        self.inodes.orphans.lock(cx).list = chain.clone();
        for inode in chain {
            self.finish_orphan(cx, &inode)?;
            count += 1;
        }
        count += self.orphan_file_cleanup(cx)?;
        Ok(count)
    }

    fn orphan_file_cleanup(&self, cx: &mut Cx) -> Result<u32, Errno> {
        let files = self.inodes.orphans.lock(cx).file.clone();
        let slots = self.inodes.orphan_slots();
        let mut count = 0;
        for (block, buffer) in files.iter().enumerate() {
            let found: Vec<(u32, u32)> = buffer.with(|data| {
                let words = data[..slots * 4].chunks_exact(4);
                let words =
                    words.map(|word| u32::from_le_bytes(word.try_into().expect("four bytes")));
                words.enumerate().map(|(slot, ino)| (slot as u32, ino)).collect()
            });
            for (slot, ino) in found.into_iter().filter(|&(_, ino)| ino != 0) {
                let ino = Ino(u64::from(ino));
                if ino.0 < u64::from(self.sb.geometry.first_ino) {
                    let kind = CorruptKind::InodeNumber { inodes: self.sb.geometry.inodes_count };
                    return Err(self.sb.corrupt_kind(cx, kind, At::Inode(ino)));
                }
                let inode = self.iget_orphan(cx, ino)?;
                inode.with(cx, |core| {
                    core.orphan = OrphanPlace::File { block: block as u32, slot };
                });
                self.finish_orphan(cx, &inode)?;
                count += 1;
            }
        }
        Ok(count)
    }

    fn finish_orphan(&self, cx: &mut Cx, inode: &Arc<Inode>) -> Result<(), Errno> {
        if inode.with(cx, |core| core.links == 0) {
            crate::attr::xattr::check_freeing(&self.inodes, cx, inode)?;
            evict::delete_inode(&self.inodes, cx, inode)
        } else {
            let size = inode.size(cx);
            self.inodes.truncate_blocks(cx, inode, size)
        }
    }

    /// Whether the superblock must say that the orphan file may hold entries.
    pub(crate) fn orphan_present_flag(&self) -> RoCompat {
        if self.sb.geometry.orphan_file_ino != 0 {
            RoCompat::ORPHAN_PRESENT
        } else {
            RoCompat::empty()
        }
    }
}
