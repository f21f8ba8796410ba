//! Inodes whose core has impossible values: corrected by what their forks hold.

use base::Ino;
use block::DeviceError;
use xfs::Rule;
use xfs::format::attr::parse_sf;
use xfs::format::btree::MapRoot;
use xfs::format::dir_sf::Shortform;
use xfs::format::extent;
use xfs::format::inode::{
    CORE_SIZE, Flags, Flags2, ForkFormat, InodeCore, MAGIC, RawInode, fork_ranges,
};
use xfs::format::record::{RMAP_ATTR_FORK, Rmap};
use xfs::format::{At, Corrupt, CorruptKind, Kind, verifier};

use super::forks::Device;
use super::{Fs, lossy};

/// Types of inodes whose content is no device number, by their bits in the mode.
const TYPES: [u16; 3] = [0x8000, 0x4000, 0xa000];
/// Tries to put one inode right.
const TRIES: usize = 8;

impl Fs<'_> {
    /// A slot whose checksum is wrong and that says of itself that it is this inode: what it says
    /// is taken, if the group calls it in use.
    pub fn doubtful_slot(
        &mut self,
        ino: Ino,
        slot: &[u8],
        was_free: bool,
    ) -> Result<Option<Vec<u8>>, DeviceError> {
        let raw = RawInode::view(slot).expect("a slot holds a core");
        let says = [raw.di_magic.get() == MAGIC, raw.di_ino.get() == ino.0, raw.di_version == 3];
        let own = says.iter().filter(|&&yes| yes).count() >= 2 && raw.di_mode.get() != 0;
        // Another inode, whole, is not this one.
        let whole =
            verifier::stored_checksum(Kind::Inode, slot) == verifier::checksum(Kind::Inode, slot);
        let another = whole && !says[1] && self.g.ino_valid(Ino(raw.di_ino.get()));
        if self.healing || was_free || !own || another {
            return Ok(None);
        }
        let mut slot = slot.to_vec();
        let raw = RawInode::view_mut(&mut slot).expect("a core");
        raw.di_magic.set(MAGIC);
        raw.di_version = 3;
        raw.di_ino.set(ino.0);
        raw.di_uuid = self.g.meta_uuid;
        let sane = match InodeCore::parse(&slot, ino, &self.g) {
            Ok(_) => self.is_plausible(ino, &slot)?,
            Err(corrupt) => self.sane_core(ino, &slot, &corrupt)?.is_some(),
        };
        if !sane {
            return Ok(None);
        }
        self.put_slot(ino, &mut slot)?;
        let (detail, action) = ("its checksum is wrong", "take what it says");
        let loss = "some of it may be wrong";
        self.note(lossy(Rule::Checksum, At::Inode(ino), detail, action, loss));
        Ok(Some(slot))
    }

    /// A core that is possible, with its slot.
    pub fn sane(
        &mut self,
        ino: Ino,
        slot: &[u8],
        corrupt: &Corrupt,
    ) -> Result<Option<(InodeCore, Vec<u8>)>, DeviceError> {
        if self.healing {
            return Ok(None);
        }
        let (both, action) = match self.sane_core(ino, slot, corrupt)? {
            Some(both) => (Some(both), "take what its forks show"),
            None => (self.without_map(ino, slot), "take what the reverse mappings say"),
        };
        let Some((core, mut slot)) = both else { return Ok(None) };
        self.put_slot(ino, &mut slot)?;
        let detail = corrupt.kind.to_string();
        let loss = "what is derived may be wrong";
        self.note(lossy(Rule::Inode, At::Inode(ino), detail, action, loss));
        Ok(Some((core, slot)))
    }

    /// An inode whose block map is gone, with an empty one in its place: if reverse mappings know
    /// what it maps.
    fn without_map(&self, ino: Ino, slot: &[u8]) -> Option<(InodeCore, Vec<u8>)> {
        let mut slot = slot.to_vec();
        let end = CORE_SIZE + Self::data_fork(&slot).len();
        let raw = RawInode::view_mut(&mut slot).expect("a core");
        let of_inode = |rmap: &Rmap| rmap.owner == ino.0 && rmap.offset & RMAP_ATTR_FORK == 0;
        let known = match in_section(raw) {
            // The reverse maps of the section are not read yet.
            true => self.g.section_trees() && self.g.features.rmapbt(),
            false => {
                let mut rmaps = self.all_records(Device::Data).flat_map(|it| it.rmaps.iter());
                rmaps.any(|list| list.iter().any(of_inode))
            }
        };
        if !known || raw.di_format != ForkFormat::Btree as u8 {
            return None;
        }
        raw.di_format = ForkFormat::Extents as u8;
        let wide = Flags2::from_bits_retain(raw.di_flags2.get()).contains(Flags2::NREXT64);
        match wide {
            true => raw.di_big_nextents.set(0),
            false => raw.di_nextents.set(0),
        }
        slot[CORE_SIZE..end].fill(0);
        let core = InodeCore::parse(&slot, ino, &self.g).ok()?;
        Some((core, slot))
    }

    fn sane_core(
        &mut self,
        ino: Ino,
        slot: &[u8],
        corrupt: &Corrupt,
    ) -> Result<Option<(InodeCore, Vec<u8>)>, DeviceError> {
        let (mut slot, mut kind) = (slot.to_vec(), corrupt.kind);
        for _ in 0..TRIES {
            if !self.correct_field(ino, &mut slot, &kind)? {
                return Ok(None);
            }
            match InodeCore::parse(&slot, ino, &self.g) {
                Ok(core) => return Ok(self.is_plausible(ino, &slot)?.then_some((core, slot))),
                Err(corrupt) => kind = corrupt.kind,
            }
        }
        Ok(None)
    }

    /// Changes the field that a check complains of; false if nothing is known of it.
    fn correct_field(
        &mut self,
        ino: Ino,
        slot: &mut [u8],
        kind: &CorruptKind,
    ) -> Result<bool, DeviceError> {
        use CorruptKind as K;
        match kind {
            K::InodeMode { .. } | K::ForkFormatOfMode { .. } => return self.type_of(ino, slot),
            K::ForkFormat { .. } if ForkFormat::from_number(slot[5]).is_none() => {
                return self.type_of(ino, slot);
            }
            K::ForkFormat { .. } | K::ForkOffset { .. } => return self.attr_form(ino, slot),
            K::ForkExtents { fork: "data", .. } => {
                return Ok(self.count_data(slot) || self.type_of(ino, slot)?);
            }
            K::ForkExtents { .. } => return self.attr_form(ino, slot),
            K::InodeBytes { .. } | K::LocalSize { .. } => return Ok(self.size_of(ino, slot)),
            K::InodeBlocks { .. } => {}
            _ => return Ok(false),
        }
        // Blocks are counted once the forks are read.
        let raw = RawInode::view_mut(slot).expect("a core");
        let wide = Flags2::from_bits_retain(raw.di_flags2.get()).contains(Flags2::NREXT64);
        let narrow = u64::from(raw.di_nextents.get());
        let counts = match wide {
            true => raw.di_big_nextents.get().saturating_add(narrow),
            false => narrow + u64::from(raw.di_anextents.get()),
        };
        raw.di_nblocks.set(counts);
        Ok(counts <= self.g.blocks_count())
    }

    /// The bytes of the data fork.
    fn data_fork(slot: &[u8]) -> &[u8] {
        let raw = RawInode::view(slot).expect("a core");
        let end = fork_ranges(raw.di_forkoff, slot.len()).0.end;
        &slot[CORE_SIZE..end.clamp(CORE_SIZE, slot.len())]
    }

    /// How many extents a list begins with that are possible, on the device or in the `realtime`
    /// section.
    fn list_len(&self, ino: Ino, bytes: &[u8], realtime: bool) -> usize {
        let mut end = 0;
        let possible = |extent: &xfs::format::Extent| {
            let behind = extent.offset >= end;
            end = extent.end();
            behind && extent.check(&self.g, realtime, At::Inode(ino)).is_ok()
        };
        extent::list(&bytes[..bytes.len() & !15]).take_while(possible).count()
    }

    /// Finds a type and a form of content that fit what the data fork holds: the type as it is, if
    /// that is possible, else what the content looks like.
    fn type_of(&mut self, ino: Ino, slot: &mut [u8]) -> Result<bool, DeviceError> {
        let bytes = Self::data_fork(slot).to_vec();
        let at = At::Inode(ino);
        let raw = RawInode::view(slot).expect("a core");
        let (mode, size, format) = (raw.di_mode.get(), raw.di_size.get(), raw.di_format);
        let used = &bytes[..(size as usize).min(bytes.len())];
        let local_dir = Shortform::parse(used, &self.g.features, at).is_ok();
        let text = !used.is_empty() && used.len() as u64 == size && !used.contains(&0);
        let realtime = in_section(raw);
        let extents = self.list_len(ino, &bytes, realtime);
        let first = extent::list(&bytes[..bytes.len() & !15]).next().filter(|_| extents > 0);
        let root = MapRoot::parse(&bytes, at).ok().filter(|root| {
            (0..root.len()).all(|index| self.g.block_valid(base::FsBlock(root.pointer(index))))
        });
        let is_root = root.is_some();
        let block = match first {
            Some(extent) if !realtime => self.recognised(ino, extent.start)?,
            _ => None,
        };
        let old = mode & 0xf000;
        let (new, form) = if local_dir && (old == 0x4000 || format == 1) {
            (0x4000, ForkFormat::Local)
        } else if text && (old == 0xa000 || format == 1) {
            (0xa000, ForkFormat::Local)
        } else if let Some(kind) = block {
            (if kind == Kind::Symlink { 0xa000 } else { 0x4000 }, ForkFormat::Extents)
        } else if is_root && extents == 0 {
            (if old == 0x4000 { old } else { 0x8000 }, ForkFormat::Btree)
        } else if extents > 0 {
            (0x8000, ForkFormat::Extents)
        } else if format == 0 && size == 0 && !TYPES.contains(&old) {
            (if old == 0 { 0x1000 } else { old }, ForkFormat::Device)
        } else if bytes.iter().all(|&byte| byte == 0) {
            (0x8000, ForkFormat::Extents)
        } else {
            return Ok(false);
        };
        let raw = RawInode::view_mut(slot).expect("a core");
        let same = (old, format) == (new, form as u8);
        raw.di_mode.set(new | mode & 0xfff);
        raw.di_format = form as u8;
        if form != ForkFormat::Btree {
            self.count_data(slot);
        }
        Ok(!same)
    }

    /// What a block says it is, if it is of this inode.
    fn recognised(&mut self, ino: Ino, block: base::FsBlock) -> Result<Option<Kind>, DeviceError> {
        let data = self.read_runs(&[(block, 1)])?;
        let expect = self.g.expect(self.g.sector(block), Some(ino.0));
        let kind = Kind::recognise(&data).filter(|kind| {
            let of_inode = [Kind::DirBlock, Kind::DirData, Kind::Symlink].contains(kind);
            let at = At::Inode(ino);
            of_inode && xfs::format::verifier::verify_identity(*kind, &data, &expect, at).is_ok()
        });
        Ok(kind)
    }

    /// Counts the extents of the data fork; false where that changes nothing.
    fn count_data(&self, slot: &mut [u8]) -> bool {
        let bytes = Self::data_fork(slot).to_vec();
        let raw = RawInode::view_mut(slot).expect("a core");
        let realtime = in_section(raw);
        let wide = Flags2::from_bits_retain(raw.di_flags2.get()).contains(Flags2::NREXT64);
        let old = if wide { raw.di_big_nextents.get() } else { raw.di_nextents.get().into() };
        let count = match ForkFormat::from_number(raw.di_format) {
            Some(ForkFormat::Extents) => {
                self.list_len(Ino(raw.di_ino.get()), &bytes, realtime) as u64
            }
            // More than fit into the inode: their number is counted later.
            Some(ForkFormat::Btree) => (bytes.len() / 16 + 1) as u64,
            _ => 0,
        };
        match wide {
            true => raw.di_big_nextents.set(count),
            false => raw.di_nextents.set(count as u32),
        }
        let least = raw.di_nblocks.get().max(count);
        raw.di_nblocks.set(least);
        old != count
    }

    /// A size that fits the content; false where none is known.
    fn size_of(&self, ino: Ino, slot: &mut [u8]) -> bool {
        let bytes = Self::data_fork(slot).to_vec();
        let raw = RawInode::view_mut(slot).expect("a core");
        let old = raw.di_size.get();
        let size = match (raw.di_format, raw.di_mode.get() & 0xf000) {
            (1, 0x4000) => (6..=bytes.len())
                .find(|&len| {
                    Shortform::parse(&bytes[..len], &self.g.features, At::Inode(ino)).is_ok()
                })
                .map(|len| len as u64),
            (1, 0xa000) => {
                Some(bytes.iter().position(|&byte| byte == 0).unwrap_or(bytes.len()) as u64)
            }
            (2, _) => {
                let count = self.list_len(ino, &bytes, in_section(raw));
                let last = extent::list(&bytes[..16 * count]).last();
                last.map(|extent| extent.end() << self.g.block_bits).or(Some(0))
            }
            _ => Some(old & i64::MAX as u64 & ((1 << 48) - 1)),
        };
        raw.di_size.set(size.unwrap_or(old));
        size.is_some_and(|size| size != old)
    }

    /// Finds where attributes begin, and their form; without any where none are found.
    fn attr_form(&mut self, ino: Ino, slot: &mut [u8]) -> Result<bool, DeviceError> {
        let at = At::Inode(ino);
        let raw = *RawInode::view(slot).expect("a core");
        let room = ((slot.len() - CORE_SIZE) / 8) as u8;
        let data = match raw.di_format {
            0 => 1,
            1 => (raw.di_size.get() as usize).div_ceil(8).min(room.into()) as u8,
            _ => 1,
        };
        let local = |offset: u8| {
            let fork = &slot[CORE_SIZE + 8 * usize::from(offset)..];
            parse_sf(fork, at).is_ok_and(|list| !list.is_empty())
        };
        let old = raw.di_forkoff;
        let places = [old, 24, 35, 15].into_iter().chain(data.max(1)..room);
        let mut found = None;
        for place in places.filter(|&place| (data.max(1)..room).contains(&place)) {
            let fork = &slot[CORE_SIZE + 8 * usize::from(place)..];
            if local(place) {
                found = Some((place, ForkFormat::Local, 0));
                break;
            }
            let count = self.list_len(ino, fork, false);
            let first = extent::list(&fork[..fork.len() & !15]).next().filter(|_| count > 0);
            if let Some(first) = first
                && self.is_attr_block(ino, first.start)?
            {
                found = Some((place, ForkFormat::Extents, count as u32));
                break;
            }
        }
        let (place, form, count) = found.unwrap_or((0, ForkFormat::Extents, 0));
        let raw = RawInode::view_mut(slot).expect("a core");
        let wide = Flags2::from_bits_retain(raw.di_flags2.get()).contains(Flags2::NREXT64);
        let same = raw.di_forkoff == place && raw.di_aformat == form as u8;
        raw.di_forkoff = place;
        raw.di_aformat = form as u8;
        let old = if wide { raw.di_nextents.get() } else { raw.di_anextents.get().into() };
        match wide {
            true => raw.di_nextents.set(count),
            false => raw.di_anextents.set(count as u16),
        }
        Ok(!same || old != count)
    }

    fn is_attr_block(&mut self, ino: Ino, block: base::FsBlock) -> Result<bool, DeviceError> {
        let data = self.read_runs(&[(block, 1)])?;
        let expect = self.g.expect(self.g.sector(block), Some(ino.0));
        Ok(Kind::recognise(&data).is_some_and(|kind| {
            let at = At::Inode(ino);
            matches!(kind, Kind::AttrLeaf | Kind::DaNode)
                && xfs::format::verifier::verify_identity(kind, &data, &expect, at).is_ok()
        }))
    }

    /// Whether the forks hold what the core says: nothing random was taken for an inode.
    fn is_plausible(&self, ino: Ino, slot: &[u8]) -> Result<bool, DeviceError> {
        let Ok(core) = InodeCore::parse(slot, ino, &self.g) else { return Ok(false) };
        let bytes = Self::data_fork(slot);
        Ok(match core.format {
            ForkFormat::Extents => {
                core.extents == 0
                    || self.list_len(ino, bytes, core.is_realtime()) as u64 * 2 >= core.extents
            }
            ForkFormat::Btree => MapRoot::parse(bytes, At::Inode(ino))
                .is_ok_and(|root| self.g.block_valid(base::FsBlock(root.pointer(0)))),
            ForkFormat::Device | ForkFormat::Local | ForkFormat::MetaBtree => true,
        })
    }
}

/// Does an inode say that its content lies in the realtime section?
fn in_section(raw: &RawInode) -> bool {
    raw.di_flags.get() & Flags::REALTIME.bits() != 0
}
