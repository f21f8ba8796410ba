//! `/rtgroups` of the metadata directory: names of the files of all groups of a realtime section,
//! in the form that holds them.

use base::Ino;

use super::group::{Group, Run};
use crate::dir::edit::Name;
use crate::dir::edit::fresh::FreshDir;
use crate::format::dir::{
    BLOCK_TAIL, DATA_HEADER, FileType, LEAF_ENTRY, entry_size, fill_block, init_data,
};
use crate::format::dir_sf::{self, SfEntry};
use crate::format::extent::{EXTENT_SIZE, Extent};
use crate::format::inode::{ForkFormat, InodeCore};
use crate::format::{At, Geometry, Kind, Owner, btree, verifier};

/// A name of a file.
struct Entry {
    name: String,
    ino: Ino,
}

/// The directory while names come.
pub(super) struct GroupsDir {
    pub ino: Ino,
    above: Ino,
    count: u64,
    /// Names of a directory that is in its inode, or one block.
    names: Vec<Entry>,
    /// The data fork as it lies in the inode: what it held before stays behind what it holds.
    fork: Vec<u8>,
    space: Space,
    large: Option<FreshDir>,
}

/// Where its blocks lie.
struct Space {
    ino: Ino,
    /// Extents that the inode has room for.
    max: usize,
    extents: Vec<Extent>,
    /// The one block of a block map that the inode has no room for.
    map: Option<Run>,
}

impl Space {
    /// Gives the directory a block at an offset of the fork; false if there is none.
    fn grow_fork(&mut self, geometry: &Geometry, group: &mut Group, offset: u64) -> bool {
        let (near, count) = (geometry.ino_place(self.ino).0.block, geometry.dir_blocks());
        let owner = Owner::fork(self.ino.0, false, offset, false);
        let Some(run) = group.take_file(near, count, owner) else { return false };
        let new = Extent { offset, start: geometry.join(run.start), count, unwritten: false };
        let index = self.extents.partition_point(|extent| extent.offset < offset);
        self.extents.insert(index, new);
        for index in [index + 1, index] {
            if index > 0 && index < self.extents.len() {
                let next = self.extents[index];
                if self.extents[index - 1].joins(&next) {
                    self.extents[index - 1].count += next.count;
                    self.extents.remove(index);
                }
            }
        }
        if self.extents.len() > self.max && self.map.is_none() {
            self.map = group.take_map_block(near, self.ino.0);
        }
        let block = geometry.block_size as usize;
        let room = match self.map {
            Some(_) => btree::Shape::of(Kind::Bmap).max(block, 0),
            None => self.max,
        };
        self.extents.len() <= room
    }
}

impl GroupsDir {
    /// An empty one, whose inode has `fork` bytes for it.
    pub fn new(ino: Ino, above: Ino, fork: usize) -> GroupsDir {
        let space = Space { ino, max: fork / EXTENT_SIZE, extents: Vec::new(), map: None };
        let (names, fork) = (Vec::new(), vec![0; fork]);
        GroupsDir { ino, above, count: 0, names, fork, space, large: None }
    }

    /// Adds a name, in a transaction that ends with it. None without space, and if the directory
    /// would need more than a node with leaves below.
    pub fn name_file(
        &mut self,
        geometry: &Geometry,
        group: &mut Group,
        name: &str,
        ino: Ino,
    ) -> Option<()> {
        self.count += 1;
        if self.large.is_some() || !self.add_small(geometry, group, name, ino)? {
            self.add_large(geometry, group, name, ino)?;
        }
        group.end_transaction()?;
        self.store_fork(geometry);
        Some(())
    }

    /// Adds a name that the inode or one block may hold; false if they do not.
    fn add_small(
        &mut self,
        geometry: &Geometry,
        group: &mut Group,
        name: &str,
        ino: Ino,
    ) -> Option<bool> {
        let ftype = geometry.features.ftype();
        self.names.push(Entry { name: name.to_string(), ino });
        let (entries, end) = self.placed_entries(geometry);
        let wide = ino.0 > u64::from(u32::MAX);
        let local = dir_sf::size(entries.iter().cloned(), wide, ftype) <= self.fork.len();
        let index = (entries.len() + 2) * LEAF_ENTRY;
        if self.space.extents.is_empty() {
            if local {
                return Some(true);
            }
            self.space.grow_fork(geometry, group, 0).then_some(())?;
        }
        let fits = end + index + BLOCK_TAIL <= geometry.dir_block_size as usize;
        if !fits {
            self.names.pop();
        }
        Some(fits)
    }

    fn add_large(
        &mut self,
        geometry: &Geometry,
        group: &mut Group,
        name: &str,
        ino: Ino,
    ) -> Option<()> {
        let block = self.large.is_none().then(|| self.as_block(geometry));
        let space = &mut self.space;
        let mut grow = |offset: u64| space.grow_fork(geometry, group, offset);
        if let Some(block) = block {
            self.large = Some(FreshDir::from_block(geometry, self.ino, block, &mut grow)?);
        }
        let name = Name { name: name.as_bytes(), ino, file_type: FileType::Regular };
        self.large.as_mut()?.name_file(name, &mut grow)
    }

    /// The names, and where the next one would lie in a block.
    fn placed_entries(&self, geometry: &Geometry) -> (Vec<SfEntry<'_>>, usize) {
        let ftype = geometry.features.ftype();
        let mut offset = DATA_HEADER + entry_size(1, ftype) + entry_size(2, ftype);
        let names = self.names.iter().map(|entry| {
            let place = offset as u16;
            offset += entry_size(entry.name.len(), ftype);
            let (name, file_type) = (entry.name.as_bytes(), FileType::Regular);
            SfEntry { name, offset: place, file_type, ino: entry.ino }
        });
        (names.collect(), offset)
    }

    /// The directory as one block.
    fn as_block(&self, geometry: &Geometry) -> Vec<u8> {
        let address = geometry.sector(self.space.extents[0].start);
        let mut data = vec![0; geometry.dir_block_size as usize];
        init_data(Kind::DirBlock, &mut data, &geometry.expect(address, Some(self.ino.0)));
        let (names, dots) = (self.placed_entries(geometry).0, [self.ino, self.above]);
        fill_block(&mut data, dots, &names, &geometry.features, At::Inode(self.ino))
            .expect("the names fit, as was checked");
        data
    }

    /// Brings the fork in the inode up to date.
    fn store_fork(&mut self, geometry: &Geometry) {
        let mut fork = std::mem::take(&mut self.fork);
        match self.space.map {
            _ if self.space.extents.is_empty() => {
                let names = self.placed_entries(geometry).0;
                dir_sf::emit(&mut fork, self.above, &names, geometry.features.ftype());
            }
            Some(run) => btree::emit_root(&mut fork, 1, &[(0, geometry.join(run.start).0)]),
            None => {
                let slots = fork.chunks_exact_mut(EXTENT_SIZE);
                self.space.extents.iter().zip(slots).for_each(|(extent, slot)| extent.write(slot));
            }
        }
        self.fork = fork;
    }

    /// Writes the fork into the inode, and what the inode says of it.
    pub fn emit_fork(&self, geometry: &Geometry, core: &mut InodeCore, fork: &mut [u8]) {
        fork.copy_from_slice(&self.fork);
        core.change_count = 2 + self.count;
        let extents = &self.space.extents;
        if extents.is_empty() {
            let (names, ftype) = (self.placed_entries(geometry).0, geometry.features.ftype());
            core.size = dir_sf::emit(fork, self.above, &names, ftype) as u64;
            return;
        }
        let tree = self.space.map.is_some();
        core.format = if tree { ForkFormat::Btree } else { ForkFormat::Extents };
        core.extents = extents.len() as _;
        let blocks: u64 = extents.iter().map(|extent| u64::from(extent.count)).sum();
        core.blocks = blocks + u64::from(tree);
        let one = u64::from(geometry.dir_block_size);
        core.size = self.large.as_ref().map_or(one, FreshDir::data_bytes);
    }

    /// What its blocks hold, by their places.
    pub fn writes(&self, geometry: &Geometry) -> Vec<(u64, Vec<u8>)> {
        let mut writes = Vec::new();
        let mut put = |kind, start, mut data: Vec<u8>| {
            let address = geometry.sector(start);
            verifier::stamp(kind, &mut data, &geometry.expect(address, Some(self.ino.0)));
            verifier::update_lsn_crc(kind, &mut data, 0);
            writes.push((address.bytes(), data));
        };
        let extents = &self.space.extents;
        match &self.large {
            None if extents.is_empty() => return writes,
            None => put(Kind::DirBlock, extents[0].start, self.as_block(geometry)),
            Some(large) => {
                for (offset, kind, data) in large.all_blocks() {
                    let extent = extents.iter().find(|extent| offset < extent.end());
                    let extent = extent.expect("each block has space");
                    let place = base::FsBlock(extent.start.0 + offset - extent.offset);
                    put(kind, place, data.to_vec());
                }
            }
        }
        if let Some(run) = self.space.map {
            let start = geometry.join(run.start);
            let mut data = vec![0; geometry.block_size as usize];
            let expect = geometry.expect(geometry.sector(start), Some(self.ino.0));
            btree::init(Kind::Bmap, &mut data, 0, &expect);
            btree::set_len(&mut data, extents.len());
            let slots = data[btree::Shape::of(Kind::Bmap).header..].chunks_exact_mut(EXTENT_SIZE);
            extents.iter().zip(slots).for_each(|(extent, slot)| extent.write(slot));
            put(Kind::Bmap, start, data);
        }
        writes
    }
}
