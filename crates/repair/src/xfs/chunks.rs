//! Inode chunks: as their btree says, and where that cannot be believed, found by their content.

use std::collections::{BTreeMap, BTreeSet};

use block::DeviceError;
use xfs::Rule;
use xfs::format::inode::{self, MAGIC, RawInode};
use xfs::format::record::InodeChunk;
use xfs::format::{AgBlock, At};

use super::groups::Group;
use super::{Fs, lossy, safe};

/// What is known of a block that may hold inodes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Holds {
    Inodes,
    /// Free, or of another owner.
    Other,
    /// Nobody knows.
    Unknown,
}

impl Fs<'_> {
    /// Decides where inodes lie.
    pub fn find_chunks(&mut self) -> Result<(), DeviceError> {
        for ag in 0..self.g.ag_count() {
            let group = &self.groups[ag as usize];
            let sound = |chunk: &InodeChunk| self.chunk_possible(ag, chunk);
            let mut chunks: BTreeMap<u32, InodeChunk> = BTreeMap::new();
            let mut whole = group.chunks_whole;
            let all = group.chunks.clone();
            let possible: Vec<bool> = all.iter().map(sound).collect();
            for (chunk, possible) in all.into_iter().zip(possible) {
                let alone = chunks.range(..=chunk.start).next_back();
                let apart = alone.is_none_or(|(&start, _)| chunk.start - start >= 64);
                if possible && apart && self.shows_inodes(ag, &chunk)? {
                    chunks.insert(chunk.start, chunk);
                } else {
                    whole = false;
                }
            }
            let wrong = self.groups[ag as usize].wrong;
            if !whole || self.suspects.groups.contains(&ag) || wrong {
                self.scan_chunks(ag, &mut chunks)?;
            }
            let group = &mut self.groups[ag as usize];
            group.chunks = chunks.into_values().collect();
            if !whole && !self.healing {
                group.wrong = true;
                let detail = format!("cannot be followed: {} chunks", group.chunks.len());
                let action = "take the chunks that their content shows";
                self.note(safe(Rule::InodeChunk, At::Agi(ag), detail, action));
            }
        }
        Ok(())
    }

    /// Whether any block of a chunk that the btree names looks like inodes, and is not free: that
    /// the reverse mappings alone say something else counts less.
    fn shows_inodes(&mut self, ag: u32, chunk: &InodeChunk) -> Result<bool, DeviceError> {
        let first = self.g.agino_block(chunk.start);
        let end = (first + self.g.chunks.blocks).min(self.g.ag_length(ag));
        for block in first..end {
            let group = &self.groups[ag as usize];
            let other = group.records.says_free(block) || self.in_log(ag, block);
            if !other && self.holds_by_content(ag, block)? == Holds::Inodes {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Makes the chunk of the root directory anew where nothing is left of it.
    ///
    /// # Errors
    /// The device's.
    pub fn root_chunk(&mut self) -> Result<(), DeviceError> {
        let root = self.g.root_ino;
        if self.healing || self.has_slot(root) {
            return Ok(());
        }
        let place = self.g.ino_split(root);
        if self.make_chunk(place.ag, place.agino - place.agino % 64)? {
            let (detail, action) = ("the inodes of the root directory are gone", "make free ones");
            let loss = "inodes of the file system's first chunk";
            self.note(lossy(Rule::InodeChunk, At::Agi(place.ag), detail, action, loss));
        }
        Ok(())
    }

    /// Makes chunks anew that share a block with a known one: such a block is full of inodes.
    ///
    /// # Errors
    /// The device's.
    pub fn whole_blocks(&mut self) -> Result<(), DeviceError> {
        let per_block = self.g.inodes_per_block();
        if self.healing || per_block <= 64 {
            return Ok(());
        }
        for ag in 0..self.groups.len() as u32 {
            let known = self.groups[ag as usize].chunks.iter();
            let firsts = known.map(|chunk| chunk.start - chunk.start % per_block);
            for first in firsts.collect::<BTreeSet<_>>() {
                for start in (first..first + per_block).step_by(64) {
                    if self.make_chunk(ag, start)? {
                        let detail = format!("inodes {start} to {} are gone", start + 63);
                        let loss = "inodes of this block";
                        let found =
                            lossy(Rule::InodeChunk, At::Agi(ag), detail, "make free ones", loss);
                        self.note(found);
                    }
                }
            }
        }
        Ok(())
    }

    /// Makes a chunk of free inodes where there is none, around what is left of them. False where
    /// it cannot be.
    fn make_chunk(&mut self, ag: u32, start: u32) -> Result<bool, DeviceError> {
        let chunk = InodeChunk { start, holes: 0, count: 64, free_count: 64, free: u64::MAX };
        let chunks = &self.groups[ag as usize].chunks;
        let at = chunks.partition_point(|other| other.start < start);
        let apart = chunks.get(at).is_none_or(|next| next.start - start >= 64)
            && at.checked_sub(1).is_none_or(|before| start - chunks[before].start >= 64);
        if !apart || !self.chunk_possible(ag, &chunk) {
            return Ok(false);
        }
        for index in 0..64 {
            let ino = self.ino(ag, start + index);
            let old = self.slot(ino)?;
            if inode::verify(&old, ino, &self.g).is_err() {
                let mut slot = vec![0; old.len()];
                inode::emit_free(&mut slot, ino, 1, &self.g);
                self.put_slot(ino, &mut slot)?;
            }
        }
        let group = &mut self.groups[ag as usize];
        group.chunks.insert(at, chunk);
        group.wrong = true;
        Ok(true)
    }

    /// Whether a record of the inode btree can be.
    fn chunk_possible(&self, ag: u32, chunk: &InodeChunk) -> bool {
        let per_block = self.g.inodes_per_block();
        let first = self.g.agino_block(chunk.start);
        let inside = first >= self.g.header_blocks()
            && u64::from(first) + u64::from(self.g.chunks.blocks)
                <= u64::from(self.g.ag_length(ag));
        let sparse = chunk.holes != 0 && self.g.features.sparse();
        chunk.start.is_multiple_of(per_block.min(64))
            && (inside || sparse && first < self.g.ag_length(ag))
            && chunk.count > 0
            && u32::from(chunk.count) == 64 - chunk.hole_mask().count_ones()
            && (chunk.holes == 0 || sparse)
    }

    /// Looks for chunks that the btree does not know.
    fn scan_chunks(
        &mut self,
        ag: u32,
        chunks: &mut BTreeMap<u32, InodeChunk>,
    ) -> Result<(), DeviceError> {
        let per_chunk = self.g.chunks.blocks;
        let align = self.g.chunks.align.max(1);
        let mut block = self.g.header_blocks();
        let end = self.g.ag_length(ag);
        // A large block holds several chunks.
        let several = (self.g.inodes_per_block() / 64).max(1);
        while block < end {
            let start = self.g.block_agino(block);
            let before = chunks.range(..=start).next_back();
            if let Some((&first, _)) = before.filter(|(first, _)| start - **first < 64)
                && (1..several).all(|index| chunks.contains_key(&(start + 64 * index)))
            {
                block = self.g.agino_block(first) + per_chunk;
                continue;
            }
            if self.holds(ag, block)? != Holds::Inodes {
                block += 1;
                continue;
            }
            let first = (block - block % align).max(self.g.header_blocks());
            let first = if align > per_chunk { block - block % per_chunk } else { first };
            let chunk = self.chunk_at(ag, first, end)?;
            if let Some(chunk) = chunk.filter(|chunk| self.chunk_possible(ag, chunk)) {
                for index in 0..several {
                    let start = chunk.start + 64 * index;
                    chunks.entry(start).or_insert(InodeChunk { start, ..chunk });
                }
            }
            block = (first + per_chunk).max(block + 1);
        }
        Ok(())
    }

    /// The chunk whose first block would be this one; none where less than half of it is there.
    fn chunk_at(
        &mut self,
        ag: u32,
        first: u32,
        end: u32,
    ) -> Result<Option<InodeChunk>, DeviceError> {
        let per_block = self.g.inodes_per_block();
        let sparse = self.g.features.sparse();
        let mut all = Vec::new();
        for block in first..first + self.g.chunks.blocks {
            all.push(if block < end { self.holds(ag, block)? } else { Holds::Other });
        }
        let group = &self.groups[ag as usize];
        let blind = group.records.free.is_none() && group.inode_runs.is_none();
        let sure = all.iter().filter(|&&holds| holds == Holds::Inodes).count() as u32;
        // Holes have whole units.
        let unit = self.g.chunks.sparse_align.max(1) as usize;
        let mut present = 0u64;
        for (index, holds) in (0..).zip(&all) {
            let start = index as usize / unit * unit;
            let beside = &all[start..all.len().min(start + unit)];
            let there = match holds {
                Holds::Inodes => true,
                Holds::Other => false,
                Holds::Unknown => !sparse || !blind || beside.contains(&Holds::Inodes),
            };
            if there {
                let bits = u64::MAX >> (64 - per_block.min(64));
                present |= bits << (index * per_block).min(63);
            }
        }
        if sure == 0 || !sparse && (present != u64::MAX || sure * 2 < self.g.chunks.blocks) {
            return Ok(None);
        }
        let mut holes = 0u16;
        for bit in 0..16 {
            holes |= u16::from(present >> (4 * bit) & 0xf != 0xf) << bit;
        }
        let start = self.g.block_agino(first);
        let mut chunk = InodeChunk { start, holes, count: 0, free_count: 0, free: 0 };
        chunk.count = 64 - chunk.hole_mask().count_ones() as u8;
        Ok((chunk.count > 0).then_some(chunk))
    }

    fn in_log(&self, ag: u32, block: u32) -> bool {
        let log = self.g.split(self.g.log_start);
        !self.g.features.external_log
            && ag == log.ag
            && block >= log.block
            && block - log.block < self.g.log_blocks
    }

    /// What a block holds, by what the group says and by its content.
    fn holds(&mut self, ag: u32, block: u32) -> Result<Holds, DeviceError> {
        let group: &Group = &self.groups[ag as usize];
        let foreign = group.records.says_free(block) || group.says_inodes(block) == Some(false);
        if foreign || self.in_log(ag, block) {
            return Ok(Holds::Other);
        }
        self.holds_by_content(ag, block)
    }

    /// What a block holds by its content.
    fn holds_by_content(&mut self, ag: u32, block: u32) -> Result<Holds, DeviceError> {
        let here = self.g.linear(AgBlock { ag, block });
        let data = match self.strays.get(&here) {
            Some(stray) => stray.clone(),
            None => self.view.read(here)?,
        };
        let first = self.g.block_agino(block);
        let slots = data.chunks_exact(self.g.inode_size as usize).enumerate();
        let fits = slots.filter(|(index, slot)| {
            let raw = RawInode::view(slot).expect("a slot holds a core");
            raw.di_magic.get() == MAGIC
                && raw.di_ino.get() == self.ino(ag, first + *index as u32).0
                && raw.di_uuid == self.g.meta_uuid
        });
        let count = fits.count() as u32;
        Ok(if 2 * count >= self.g.inodes_per_block() { Holds::Inodes } else { Holds::Unknown })
    }
}
