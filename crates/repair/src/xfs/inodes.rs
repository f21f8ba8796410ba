//! The inodes: which are in use, their cores, their forks.

use base::Ino;
use block::DeviceError;
use xfs::Rule;
use xfs::format::inode::{self, InodeCore};
use xfs::format::record::InodeChunk;
use xfs::format::{At, Kind, verifier};

use super::attributes::Attribute;
use super::forks::{Fork, Which};
use super::lsn::Place;
use super::meta::restored;
use super::{Fs, lossy, safe};

/// An inode in use.
pub struct Inode {
    /// Its core.
    pub core: InodeCore,
    /// The data fork.
    pub data: Fork,
    /// The attribute fork.
    pub attr: Fork,
    /// Names that directories have for it.
    pub names: u32,
    /// Its parent pointers.
    pub pointers: Vec<Attribute>,
    /// Its attributes are to be written anew.
    pub attr_wrong: bool,
    /// It is to be written.
    pub dirty: bool,
    /// Content that is to lie in the inode itself.
    pub small_data: Option<Vec<u8>>,
    /// Attributes that are to lie in the inode itself.
    pub small_attr: Option<Vec<u8>>,
    /// The map of a fork is to be written anew.
    pub map_data: bool,
    /// The same for attributes.
    pub map_attr: bool,
}

impl Inode {
    /// An inode without content, as it is on the device.
    pub fn new(core: InodeCore) -> Inode {
        Inode {
            core,
            data: Fork::default(),
            attr: Fork::default(),
            names: 0,
            pointers: Vec::new(),
            attr_wrong: false,
            dirty: false,
            small_data: None,
            small_attr: None,
            map_data: false,
            map_attr: false,
        }
    }

    /// A fork.
    pub fn fork(&self, which: Which) -> &Fork {
        match which {
            Which::Data => &self.data,
            Which::Attr => &self.attr,
        }
    }

    /// A fork that is changed: see [`Inode::renew`].
    pub fn fork_mut(&mut self, which: Which) -> &mut Fork {
        match which {
            Which::Data => &mut self.data,
            Which::Attr => &mut self.attr,
        }
    }

    /// Says that the map of a fork is to be written anew.
    pub fn renew(&mut self, which: Which) {
        self.dirty = true;
        match which {
            Which::Data => self.map_data = true,
            Which::Attr => self.map_attr = true,
        }
    }

    /// Whether the map of a fork is to be written anew.
    pub fn is_new(&self, which: Which) -> bool {
        match which {
            Which::Data => self.map_data,
            Which::Attr => self.map_attr,
        }
    }
}

impl Fs<'_> {
    /// Where an inode's slot lies on the device, in bytes.
    pub fn slot_place(&self, ino: Ino) -> u64 {
        let (place, offset) = self.g.ino_place(ino);
        self.g.linear(place) * u64::from(self.g.block_size) + offset as u64
    }

    /// The slot of an inode as it is.
    pub fn slot(&mut self, ino: Ino) -> Result<Vec<u8>, DeviceError> {
        self.view.read_bytes(self.slot_place(ino), self.g.inode_size as usize)
    }

    /// Writes an inode's slot with its checksum.
    pub fn put_slot(&mut self, ino: Ino, slot: &mut [u8]) -> Result<(), DeviceError> {
        verifier::update_crc(Kind::Inode, slot);
        self.view.write_bytes(self.slot_place(ino), slot)
    }

    /// Reads all inodes, and says which of each chunk are in use.
    pub fn read_inodes(&mut self) -> Result<(), DeviceError> {
        self.inodes.clear();
        self.tree_records.clear();
        let all = self.groups.iter().map(|group| group.chunks.len() as u64).sum();
        self.view.meter.begin("reading inodes", all);
        for ag in 0..self.g.ag_count() {
            for index in 0..self.groups[ag as usize].chunks.len() {
                self.view.meter.add(1);
                let chunk = self.groups[ag as usize].chunks[index];
                let holes = chunk.hole_mask();
                let mut free = holes;
                for bit in (0..64).filter(|bit| holes >> bit & 1 == 0) {
                    let ino = self.ino(ag, chunk.start + bit);
                    let was_free = chunk.free >> bit & 1 == 1;
                    if !self.read_inode(ino, was_free)? {
                        free |= 1 << bit;
                    }
                }
                let free_count = (free & !holes).count_ones() as u8;
                let now = InodeChunk { free, free_count, ..chunk };
                if now != chunk {
                    self.touched.insert(ag);
                }
                self.groups[ag as usize].chunks[index] = now;
            }
        }
        self.read_section()
    }

    /// Reads an inode; false if it is free.
    fn read_inode(&mut self, ino: Ino, was_free: bool) -> Result<bool, DeviceError> {
        let slot = self.slot(ino)?;
        let slot = match inode::verify(&slot, ino, &self.g) {
            Ok(()) => {
                self.note_lsn(Kind::Inode, &slot, At::Inode(ino), || Place::Slot(ino));
                slot
            }
            Err(_) => match self.healed_slot(ino, &slot)? {
                Some(slot) => slot,
                None => match self.doubtful_slot(ino, &slot, was_free)? {
                    Some(slot) => slot,
                    None => {
                        self.clear(ino, &slot, was_free, "cannot be read")?;
                        return Ok(false);
                    }
                },
            },
        };
        if slot[2..4] == [0, 0] {
            if let Some(flaw) = inode::free_flaw(&slot) {
                self.clear(ino, &slot, true, &flaw)?;
            }
            return Ok(false);
        }
        let slot = self.corrected_slot(ino, slot)?;
        let (core, slot) = match InodeCore::parse(&slot, ino, &self.g) {
            Ok(core) => (core, slot),
            Err(corrupt) => match self.sane(ino, &slot, &corrupt)? {
                Some(both) => both,
                None => {
                    self.clear(ino, &slot, false, &corrupt.kind.to_string())?;
                    return Ok(false);
                }
            },
        };
        let data = self.read_fork(ino, &slot, &core, Which::Data)?;
        let attr = self.read_fork(ino, &slot, &core, Which::Attr)?;
        let mut core = core;
        let blocks = data.blocks() + attr.blocks();
        let known = data.wrong.is_none() && attr.wrong.is_none() && !self.healing;
        if known && core.blocks != blocks {
            let detail = format!("{} blocks should be {blocks}", core.blocks);
            core.blocks = blocks;
            let mut slot = slot;
            core.emit(&mut slot);
            self.put_slot(ino, &mut slot)?;
            self.note(safe(Rule::InodeBlocks, At::Inode(ino), detail, "store that"));
        }
        self.inodes.insert(ino.0, Inode { data, attr, ..Inode::new(core) });
        Ok(true)
    }

    /// The slot with fields put right that can have one value only.
    fn corrected_slot(&mut self, ino: Ino, mut slot: Vec<u8>) -> Result<Vec<u8>, DeviceError> {
        let raw = inode::RawInode::view_mut(&mut slot).expect("a slot holds a core");
        let (right, wrong) = inode::corrected(raw, ino, &self.g);
        if wrong.is_empty() || self.healing {
            return Ok(slot);
        }
        *raw = right;
        self.put_slot(ino, &mut slot)?;
        for field in wrong {
            self.note(safe(Rule::Inode, At::Inode(ino), field.to_string(), "store that"));
        }
        Ok(slot)
    }

    /// The slot as it should be, if anything says so.
    fn healed_slot(&mut self, ino: Ino, slot: &[u8]) -> Result<Option<Vec<u8>>, DeviceError> {
        if let Some(fixed) = self.restored_slot(ino, slot)? {
            return Ok(Some(fixed));
        }
        let astray = self.notice_stray_inode(ino, slot)?;
        if let Some(own) = self.take_stray_inode(ino)? {
            return Ok(Some(own));
        }
        if astray {
            return Ok(None);
        }
        if let Some(fixed) = self.renamed_slot(ino, slot)? {
            return Ok(Some(fixed));
        }
        let (place, _) = self.g.ino_place(ino);
        let here = self.g.linear(place);
        if self.take_stray(here, At::Inode(ino))?.is_none() {
            let bytes = self.view.read(here)?;
            self.notice_stray(here, &bytes);
            return Ok(None);
        }
        let slot = self.slot(ino)?;
        Ok(inode::verify(&slot, ino, &self.g).is_ok().then_some(slot))
    }

    /// The slot with its self-description put right, if its checksum is and only one part of that
    /// is wrong.
    fn renamed_slot(&mut self, ino: Ino, slot: &[u8]) -> Result<Option<Vec<u8>>, DeviceError> {
        let sum = verifier::checksum(Kind::Inode, slot);
        let raw = *inode::RawInode::view(slot).expect("a slot holds a core");
        let parts = [
            raw.di_magic.get() == inode::MAGIC,
            raw.di_version == 3,
            raw.di_ino.get() == ino.0,
            raw.di_uuid == self.g.meta_uuid,
        ];
        let right = parts.iter().filter(|&&right| right).count();
        if right != 3 || verifier::stored_checksum(Kind::Inode, slot) != sum {
            return Ok(None);
        }
        // A number of its own says that the block lies here by mistake, if its neighbours do.
        if !parts[2] && self.g.ino_valid(Ino(raw.di_ino.get())) && !self.block_is_here(ino)? {
            return Ok(None);
        }
        let mut fixed = slot.to_vec();
        verifier::stamp(Kind::Inode, &mut fixed, &self.g.expect(base::Sector(0), Some(ino.0)));
        inode::RawInode::view_mut(&mut fixed).expect("a core").di_version = 3;
        self.put_slot(ino, &mut fixed)?;
        let detail = "a part of its self-description is wrong";
        self.note(safe(Rule::Identity, At::Inode(ino), detail, "put that right"));
        Ok(Some(fixed))
    }

    /// Whether more inodes in the block of an inode have the numbers of this place than others.
    fn block_is_here(&mut self, ino: Ino) -> Result<bool, DeviceError> {
        let (place, offset) = self.g.ino_place(ino);
        let size = self.g.inode_size as usize;
        let first = ino.0 - (offset / size) as u64;
        let here = self.g.linear(place);
        // Inodes that were cleared since say nothing.
        if self.elsewhere.contains(&here) {
            return Ok(false);
        }
        let block = self.view.read(here)?;
        let (mut right, mut others) = (0, 0);
        for (number, slot) in (first..).zip(block.chunks_exact(size)) {
            let raw = inode::RawInode::view(slot).expect("a slot holds a core");
            match raw.di_ino.get() {
                found if found == number => right += 1,
                found if self.g.ino_valid(Ino(found)) => others += 1,
                _ => {}
            }
        }
        if right <= others {
            self.elsewhere.insert(here);
        }
        Ok(right > others)
    }

    /// The slot with one byte put right.
    fn restored_slot(&mut self, ino: Ino, slot: &[u8]) -> Result<Option<Vec<u8>>, DeviceError> {
        let (at, expect) = (At::Inode(ino), self.g.expect(base::Sector(0), Some(ino.0)));
        let fixed = restored(&[Kind::Inode], slot, &expect, at);
        let fixed = fixed.filter(|(_, slot)| inode::verify(slot, ino, &self.g).is_ok());
        let Some((kind, mut fixed)) = fixed else { return Ok(None) };
        self.put_slot(ino, &mut fixed)?;
        self.note_mended(kind, at);
        Ok(Some(fixed))
    }

    /// Makes an inode free.
    pub fn clear(
        &mut self,
        ino: Ino,
        slot: &[u8],
        was_free: bool,
        why: &str,
    ) -> Result<(), DeviceError> {
        if self.healing {
            return Ok(());
        }
        let raw = inode::RawInode::view(slot).expect("a slot holds a core");
        let generation = raw.di_gen.get().wrapping_add(1);
        let mut slot = vec![0; slot.len()];
        inode::emit_free(&mut slot, ino, generation, &self.g);
        self.put_slot(ino, &mut slot)?;
        let (at, action) = (At::Inode(ino), "clear it");
        self.note(match was_free {
            true => safe(Rule::Inode, at, why, action),
            false => lossy(Rule::Inode, at, why, action, "the inode and its content"),
        });
        Ok(())
    }
}
