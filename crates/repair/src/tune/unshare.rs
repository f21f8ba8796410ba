//! The feature `shared_blocks` goes: every file gets blocks of its own.
//!
//! Whoever has the lowest inode number keeps what several files share. The copies go into blocks
//! that are free, so that a cut leaves the shared ones.
//!
//! Source: e2fsck(8), `-E unshare_blocks`; what e2fsck 1.47 leaves, observed.

use ext4::format::extent::FileRun;
use ext4::format::super_block::RESIZE_INO;
use ext4::format::{FileKind, InodeValues};

use crate::ext::Bits;
use crate::resize::Move;
use crate::resize::place::Relayout;
use crate::resize::walk::Walk;
use crate::volume::map::{FileMap, has_map};
use crate::volume::{EditError, refuse};
use base::Ino;

/// What was seen so far.
struct Seen {
    blocks: Bits,
    /// Blocks for which no room was left.
    missing: u64,
}

impl Relayout<'_> {
    /// Copies what other files have as well.
    ///
    /// # Errors
    /// Damage; no room for the copies; something else than the content of files is shared.
    pub fn unshare(&mut self) -> Result<(), EditError> {
        if self.g.has_clusters() {
            return refuse("shared_blocks beside bigalloc: files cannot be parted by clusters");
        }
        let mut seen = Seen { blocks: Bits::new(self.g.blocks_count), missing: 0 };
        let mut walk = Walk::default();
        for group in 0..self.v.g.groups_count {
            for ino in self.v.inodes_of(group)? {
                if ino != RESIZE_INO {
                    self.unshare_file(ino, &mut seen, &mut walk)?;
                }
            }
        }
        if seen.missing > 0 {
            let text = format!(
                "copies need {} more free blocks: first make it larger (iopath resize)",
                seen.missing
            );
            return Err(EditError::NoRoom(text));
        }
        self.charge_all(walk)
    }

    fn unshare_file(
        &mut self,
        ino: u32,
        seen: &mut Seen,
        walk: &mut Walk,
    ) -> Result<(), EditError> {
        let mut slot = self.v.slot(ino)?;
        let mut values = InodeValues::parse(&slot, Ino(ino.into()), &self.v.g)?;
        if !has_map(&values) {
            return Ok(());
        }
        let map = self.v.file_map(ino, &values)?;
        if let Some(kind) = self.v.g.quota_inos.iter().position(|&quota| quota == ino) {
            self.quota_file(kind, &map)?;
        }
        let shares = map.nodes.iter().any(|&node| seen.blocks.set(node));
        let mut runs = Vec::new();
        for run in &map.runs {
            self.unshare_run(run, seen, &mut runs)?;
        }
        if runs == map.runs && !shares {
            return Ok(());
        }
        if shares || ino < self.v.g.first_ino || values.kind() != Some(FileKind::Regular) {
            return refuse(format!("inode {ino} shares blocks that are not a file's content"));
        }
        if seen.missing > 0 {
            return Ok(());
        }
        self.write_map([ino, ino], &mut values, FileMap { runs, nodes: map.nodes }, walk)?;
        values.emit(&mut slot, Ino(ino.into()), &self.g);
        self.put_slot(ino, &slot)
    }

    /// Copies the parts of a run that were seen before.
    fn unshare_run(
        &mut self,
        run: &FileRun,
        seen: &mut Seen,
        runs: &mut Vec<FileRun>,
    ) -> Result<(), EditError> {
        let mut done = 0;
        while done < run.len {
            let start = run.start + done;
            let shared = seen.blocks.get(start);
            let same = (start..run.start + run.len).take_while(|&b| seen.blocks.get(b) == shared);
            let mut piece = FileRun { logical: run.logical + done, start, len: 0, ..*run };
            piece.len = same.count() as u64;
            if shared {
                match self.maps.take_some(&mut self.v, piece.len)? {
                    Some((to, len)) => {
                        if !run.unwritten {
                            self.copies.push(Move { from: start, to, len });
                        }
                        (piece.start, piece.len) = (to, len);
                    }
                    None => seen.missing += piece.len,
                }
            }
            seen.blocks.set_run(piece.start..piece.start + piece.len);
            piece.join(runs);
            done += piece.len;
        }
        Ok(())
    }
}
