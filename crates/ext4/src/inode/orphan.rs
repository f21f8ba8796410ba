//! Orphans: inodes that a crash must not leave behind half done. An inode is one from the moment
//! its last name goes until it is freed, and while it is being truncated.
//!
//! Two forms on the disk: a list that begins in the superblock and goes on through the inodes' time
//! of deletion, or (feature `orphan_file`) a file with slots for inode numbers. The file keeps many
//! tasks from meeting in the superblock; when it is full the list takes the rest.
//!
//! Source: kernel `Documentation/filesystems/ext4/orphan.rst`.

use std::sync::Arc;

use base::{Errno, Ino};
use cache::BufferRef;
use rt::Cx;

use crate::inode::{Inode, Inodes};
use crate::trans::ext4_jbd2::Handle;

/// Where an inode stands among the orphans.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) enum OrphanPlace {
    /// It is none.
    #[default]
    None,
    /// In the list.
    List,
    /// In the orphan file: block and slot.
    File { block: u32, slot: u32 },
}

impl OrphanPlace {
    /// Whether it is an orphan.
    pub(crate) fn linked(self) -> bool {
        self != OrphanPlace::None
    }
}

/// The orphans in memory, under one lock.
#[derive(Debug, Default)]
pub(crate) struct Orphans {
    /// The list, first one first.
    pub list: Vec<Arc<Inode>>,
    /// Blocks of the orphan file, and where the search for a free slot begins.
    pub file: Vec<BufferRef>,
    next_slot: usize,
}

impl Inodes {
    pub(crate) fn orphan_slots(&self) -> usize {
        (self.sb.geometry.block_size as usize - 8) / 4
    }

    /// Makes `inode` an orphan, unless it is one: `credits::ORPHAN`.
    ///
    /// # Errors
    /// `EIO`; the journal's errno once it has aborted.
    pub(crate) fn orphan_add(
        &self,
        cx: &mut Cx,
        handle: &mut Handle,
        inode: &Arc<Inode>,
    ) -> Result<(), Errno> {
        if matches!(handle, Handle::Direct(_)) {
            return Ok(());
        }
        let mut orphans = self.orphans.lock(cx);
        if inode.with(cx, |core| core.orphan.linked()) {
            return Ok(());
        }
        if let Some(place) = self.orphan_file_add(cx, handle, &mut orphans, inode.ino)? {
            inode.with(cx, |core| core.orphan = place);
            return Ok(());
        }
        let next = self.sb.set_orphan_head(cx, handle, inode.ino.0 as u32)?;
        inode.with(cx, |core| {
            core.orphan = OrphanPlace::List;
            core.values.dtime = next;
        });
        orphans.list.insert(0, inode.clone());
        self.mark_dirty(cx, handle, inode)
    }

    /// `inode` is no orphan any more: `credits::ORPHAN`. The caller writes the inode afterwards
    /// where it was in the list (its time of deletion changes).
    ///
    /// # Errors
    /// `EIO`; the journal's errno once it has aborted.
    pub(crate) fn orphan_del(
        &self,
        cx: &mut Cx,
        handle: &mut Handle,
        inode: &Inode,
    ) -> Result<(), Errno> {
        self.orphan_remove(cx, handle, inode, true)
    }

    /// As [`Inodes::orphan_del`] after a truncate, for an inode that may have lost its last name
    /// meanwhile (somebody has it open): then it stays an orphan.
    ///
    /// # Errors
    /// As [`Inodes::orphan_del`].
    pub(crate) fn orphan_del_named(
        &self,
        cx: &mut Cx,
        handle: &mut Handle,
        inode: &Inode,
    ) -> Result<(), Errno> {
        self.orphan_remove(cx, handle, inode, false)
    }

    fn orphan_remove(
        &self,
        cx: &mut Cx,
        handle: &mut Handle,
        inode: &Inode,
        unnamed: bool,
    ) -> Result<(), Errno> {
        if !inode.with(cx, |core| core.orphan.linked()) {
            return Ok(());
        }
        let mut orphans = self.orphans.lock(cx);
        // Who takes the last name does so before he asks for this lock to make it an orphan.
        if !unnamed && inode.with(cx, |core| core.links == 0) {
            return Ok(());
        }
        match inode.with(cx, |core| core.orphan) {
            OrphanPlace::None => return Ok(()),
            OrphanPlace::File { block, slot } => {
                let buffer = orphans.file[block as usize].clone();
                handle.write_access(cx, &buffer)?;
                let at = slot as usize * 4;
                buffer.with_mut(|data| data[at..at + 4].fill(0));
                self.orphan_checksum(cx, &buffer);
                handle.dirty(cx, &buffer)?;
                orphans.next_slot = block as usize * self.orphan_slots() + slot as usize;
            }
            OrphanPlace::List => self.unlink_from_list(cx, handle, &mut orphans, inode)?,
        }
        inode.with(cx, |core| core.orphan = OrphanPlace::None);
        Ok(())
    }

    fn unlink_from_list(
        &self,
        cx: &mut Cx,
        handle: &mut Handle,
        orphans: &mut Orphans,
        inode: &Inode,
    ) -> Result<(), Errno> {
        let found = orphans.list.iter().position(|other| other.ino == inode.ino);
        let at = found.expect("an inode of the list is in the list");
        let next = inode.with(cx, |core| std::mem::take(&mut core.values.dtime));
        match at.checked_sub(1) {
            None => {
                self.sb.set_orphan_head(cx, handle, next)?;
            }
            Some(before) => {
                let before = orphans.list[before].clone();
                before.with(cx, |core| core.values.dtime = next);
                self.mark_dirty(cx, handle, &before)?;
            }
        }
        orphans.list.remove(at);
        Ok(())
    }

    /// Puts `ino` into a free slot of the orphan file, where there is one.
    fn orphan_file_add(
        &self,
        cx: &mut Cx,
        handle: &mut Handle,
        orphans: &mut Orphans,
        ino: Ino,
    ) -> Result<Option<OrphanPlace>, Errno> {
        let slots = self.orphan_slots();
        let total = slots * orphans.file.len();
        let mut at = orphans.next_slot;
        let mut seen = 0;
        while seen < total {
            let (block, slot) = (at / slots % orphans.file.len(), at % slots);
            let buffer = &orphans.file[block];
            let free = buffer
                .with(|data| (slot..slots).find(|slot| data[slot * 4..slot * 4 + 4] == [0; 4]));
            let Some(slot) = free else {
                seen += slots - slot;
                at = (block + 1) % orphans.file.len() * slots;
                continue;
            };
            let buffer = buffer.clone();
            handle.write_access(cx, &buffer)?;
            buffer.with_mut(|data| {
                data[slot * 4..slot * 4 + 4].copy_from_slice(&(ino.0 as u32).to_le_bytes());
            });
            self.orphan_checksum(cx, &buffer);
            handle.dirty(cx, &buffer)?;
            orphans.next_slot = block * slots + slot + 1;
            return Ok(Some(OrphanPlace::File { block: block as u32, slot: slot as u32 }));
        }
        Ok(None)
    }

    fn orphan_checksum(&self, cx: &Cx, buffer: &BufferRef) {
        if !self.sb.geometry.checksums.metadata {
            return;
        }
        let ino = Ino(u64::from(self.sb.geometry.orphan_file_ino));
        let generation =
            self.cache.find(ino).map_or(0, |inode| inode.with(cx, |core| core.generation));
        let seed = self.sb.geometry.checksums.inode_seed(ino, generation);
        buffer.with_mut(|data| {
            let csum = seed.orphan_block(buffer.block(), data);
            let at = data.len() - 4;
            data[at..].copy_from_slice(&csum.to_le_bytes());
        });
    }
}
