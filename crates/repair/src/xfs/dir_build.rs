//! A directory written anew from its names: in its inode, as one block, or with an index.

use base::Ino;
use xfs::format::dir::{
    BLOCK_TAIL, BestFree, DATA_HEADER, FileType, LEAF_ENTRY, LeafEntry, SPACES, entry_size,
    set_best_free, set_block_tail, set_entry, set_unused,
};
use xfs::format::dir_index::{LEAF_HEADER, emit_free, emit_leaf, free_max};
use xfs::format::dir_sf::{self, SfEntry};
use xfs::format::inode::{ForkFormat, fork_ranges};
use xfs::format::{Features, Kind, verifier};

use super::Fs;
use super::forks::Fork;
use super::names::Name;
use super::room::first_blocks;
use super::store::ROOM_MIN;
use super::tree_hash::{Leaf, levels};
use crate::RepairError;

/// A block that is to be written: where in the fork, in blocks of the file system, and what.
struct Piece {
    offset: u64,
    kind: Kind,
    data: Vec<u8>,
}

/// Data blocks with their names, and what indexes them.
struct Packed {
    blocks: Vec<Vec<(Name, usize)>>,
    /// Where the names of each end.
    ends: Vec<usize>,
    index: Vec<LeafEntry>,
}

impl Packed {
    /// Puts names into blocks of `size` bytes, in their order.
    fn new(names: Vec<Name>, size: usize, features: &Features) -> Packed {
        let mut packed = Packed { blocks: Vec::new(), ends: Vec::new(), index: Vec::new() };
        for name in names {
            let bytes = entry_size(name.name.len(), features.ftype());
            if packed.ends.last().is_none_or(|end| end + bytes > size) {
                packed.blocks.push(Vec::new());
                packed.ends.push(DATA_HEADER);
            }
            let block = packed.blocks.len() - 1;
            let offset = packed.ends[block];
            let address = ((block * size + offset) / 8) as u32;
            packed.index.push(LeafEntry { hash: features.case().hash(&name.name), address });
            packed.blocks[block].push((name, offset));
            packed.ends[block] += bytes;
        }
        packed.index.sort_unstable();
        packed
    }

    /// Whether one block holds all names and their index.
    fn is_one_block(&self, size: usize) -> bool {
        let index = BLOCK_TAIL + LEAF_ENTRY * self.index.len();
        self.ends.len() == 1 && self.ends[0] + index <= size
    }

    /// Bytes that are unused behind the names of each block.
    fn bests(&self, size: usize) -> Vec<u16> {
        self.ends.iter().map(|end| (size - end) as u16).collect()
    }
}

impl Fs<'_> {
    /// Writes a directory anew; `names` are without `.` and `..`.
    ///
    /// # Errors
    /// There is no room for it.
    pub fn build_directory(
        &mut self,
        ino: Ino,
        parent: Ino,
        names: Vec<Name>,
    ) -> Result<(), RepairError> {
        let inode = self.inodes.get_mut(&ino.0).expect("a directory");
        let (data, _) = fork_ranges(inode.core.forkoff, self.g.inode_size as usize);
        // Where the attributes begin is decided behind the content; they take some room.
        let attributes = match (&inode.small_attr, inode.attr.extents.is_empty()) {
            _ if inode.core.forkoff != 0 => 0,
            (Some(bytes), _) => bytes.len().max(ROOM_MIN).next_multiple_of(8),
            (None, true) => 0,
            (None, false) => ROOM_MIN,
        };
        let room = data.len() - attributes;
        inode.dirty = true;
        inode.data = Fork::default();
        if let Some(bytes) = small(&names, parent, room, self.g.features.ftype()) {
            inode.core.size = bytes.len() as u64;
            inode.core.format = ForkFormat::Local;
            inode.core.extents = 0;
            inode.small_data = Some(bytes);
            return Ok(());
        }
        inode.core.format = ForkFormat::Extents;
        inode.small_data = None;
        inode.map_data = true;
        let dots = [(&b"."[..], ino), (b"..", parent)];
        let dot = |(name, ino): (&[u8], Ino)| Name {
            name: name.to_vec(),
            ino,
            kind: FileType::Directory,
        };
        let all = dots.map(dot).into_iter().chain(names).collect();
        let size = self.g.dir_block_size as usize;
        let packed = Packed::new(all, size, &self.g.features);
        let data_blocks = packed.blocks.len() as u64;
        self.inodes.get_mut(&ino.0).expect("there").core.size = data_blocks * size as u64;
        let mut pieces = Vec::new();
        self.data_pieces(&packed, &mut pieces);
        if !packed.is_one_block(size) {
            self.index_pieces(&packed, &mut pieces);
        }
        self.put_pieces(ino, pieces)
    }

    fn data_pieces(&self, packed: &Packed, pieces: &mut Vec<Piece>) {
        let size = self.g.dir_block_size as usize;
        let one = packed.is_one_block(size);
        let kind = if one { Kind::DirBlock } else { Kind::DirData };
        let ftype = self.g.features.ftype();
        for (number, (names, &end)) in packed.blocks.iter().zip(&packed.ends).enumerate() {
            let mut data = vec![0; size];
            for (name, offset) in names {
                set_entry(&mut data, *offset, name.ino, &name.name, ftype.then_some(name.kind));
            }
            let index = BLOCK_TAIL + LEAF_ENTRY * packed.index.len();
            let limit = if one { size - index } else { size };
            let mut best = [BestFree::default(); 3];
            if limit > end {
                set_unused(&mut data, end, limit - end);
                best[0] = BestFree { offset: end as u16, len: (limit - end) as u16 };
            }
            set_best_free(&mut data, &best);
            if one {
                for (at, entry) in (limit..).step_by(LEAF_ENTRY).zip(&packed.index) {
                    data[at..at + 4].copy_from_slice(&entry.hash.to_be_bytes());
                    data[at + 4..at + 8].copy_from_slice(&entry.address.to_be_bytes());
                }
                set_block_tail(&mut data, packed.index.len() as u32, 0);
            }
            let offset = number as u64 * u64::from(self.g.dir_blocks());
            pieces.push(Piece { offset, kind, data });
        }
    }

    fn index_pieces(&self, packed: &Packed, pieces: &mut Vec<Piece>) {
        let size = self.g.dir_block_size as usize;
        let [_, index, free] = SPACES.map(|space| space >> self.g.block_bits);
        let bests = packed.bests(size);
        let tail = 4 + 2 * bests.len();
        if LEAF_HEADER + LEAF_ENTRY * packed.index.len() + tail <= size {
            let mut data = vec![0; size];
            emit_leaf(&mut data, &packed.index, Some(&bests));
            pieces.push(Piece { offset: index, kind: Kind::DirLeaf1, data });
            return;
        }
        let per_leaf = (size - LEAF_HEADER) / LEAF_ENTRY;
        let place = |number: u64| (index + number * u64::from(self.g.dir_blocks())) as u32;
        let leaves = packed.index.chunks(per_leaf).map(|entries| {
            let mut data = vec![0; size];
            emit_leaf(&mut data, entries, None);
            Leaf { hash: entries[entries.len() - 1].hash, data }
        });
        for block in levels(leaves.collect(), size, &place) {
            let kind = if block.level == 0 { Kind::DirLeafN } else { Kind::DaNode };
            pieces.push(Piece { offset: block.place.into(), kind, data: block.data });
        }
        let per_block = free_max(size);
        for (number, bests) in bests.chunks(per_block).enumerate() {
            let mut data = vec![0; size];
            emit_free(&mut data, (number * per_block) as u32, bests);
            let offset = free + number as u64 * u64::from(self.g.dir_blocks());
            pieces.push(Piece { offset, kind: Kind::DirFree, data });
        }
    }

    /// Finds room for the blocks of a directory, and writes them.
    fn put_pieces(&mut self, ino: Ino, mut pieces: Vec<Piece>) -> Result<(), RepairError> {
        pieces.sort_by_key(|piece| piece.offset);
        let count = self.g.dir_blocks();
        let mut room = self.take_blocks(pieces.len() as u32 * count)?;
        room.reverse();
        for Piece { offset, kind, mut data } in pieces {
            let runs = first_blocks(&mut room, count);
            let expect = self.g.expect(self.g.sector(runs[0].0), Some(ino.0));
            verifier::stamp(kind, &mut data, &expect);
            verifier::update_crc(kind, &mut data);
            self.write_runs(&runs, &data);
            let fork = &mut self.inodes.get_mut(&ino.0).expect("a directory").data;
            fork.append_runs(offset, &runs);
        }
        Ok(())
    }
}

/// The directory inside its inode, if it fits.
fn small(names: &[Name], parent: Ino, room: usize, ftype: bool) -> Option<Vec<u8>> {
    if names.len() > usize::from(u8::MAX) {
        return None;
    }
    let mut offset = DATA_HEADER + entry_size(1, ftype) + entry_size(2, ftype);
    let mut entries = Vec::with_capacity(names.len());
    for name in names {
        let place = u16::try_from(offset).ok()?;
        let file_type = name.kind;
        entries.push(SfEntry { name: &name.name, offset: place, file_type, ino: name.ino });
        offset += entry_size(name.name.len(), ftype);
    }
    let wide = entries.iter().any(|entry| entry.ino.0 > u64::from(u32::MAX));
    let wide = wide || parent.0 > u64::from(u32::MAX);
    if dir_sf::size(entries.iter().cloned(), wide, ftype) > room {
        return None;
    }
    let mut bytes = vec![0; room];
    let size = dir_sf::emit(&mut bytes, parent, &entries, ftype);
    bytes.truncate(size);
    Some(bytes)
}
