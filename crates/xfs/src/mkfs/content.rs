//! From the superblock's numbers to bytes.

use base::{Ino, Timespec};
use zerocopy::IntoBytes;

use super::log_record::unmount_record;
use super::realtime::RealtimeContent;
use super::shape::Shape;
use super::{LogPlan, MkfsError, MkfsReport, Plan, Surroundings};
use crate::format::ag::{RawAgf, RawAgi, VERSION, set_agfl_block};
use crate::format::attr::{AttrFlags, SfAttr, emit_sf};
use crate::format::features::Version;
use crate::format::inode::{self, Flags, Flags2, ForkFormat, InodeCore};
use crate::format::record::{FreeExtent, InodeChunk, Rmap, owner};
use crate::format::{
    AgBlock, AgHeader, At, Geometry, Kind, NULL32, NULL64, RawSuper, btree, dir_sf, put_u32,
    verifier,
};

/// Bytes of the smallest attribute fork.
const ATTR_MIN: usize = 40;

/// One allocation group as it will be.
pub(super) struct Group {
    ag: u32,
    length: u32,
    /// Free extents, by block.
    free: Vec<FreeExtent>,
    /// Blocks of the free list.
    list: Vec<u32>,
    /// First block of the inode chunk, in the group that has one.
    chunk: Option<u32>,
}

/// Builds everything.
///
/// # Errors
/// The first group has no room for what it must hold.
pub(super) fn build(shape: &Shape, around: &Surroundings) -> Result<Plan, MkfsError> {
    let bits = u32::from(shape.raw.sb_inopblog);
    let geometry = numbers(shape);
    let mut groups: Vec<Group> =
        (0..geometry.ag_count).map(|ag| Group::new(shape, &geometry, ag)).collect();
    let section = RealtimeContent::place(shape, &geometry, &mut groups[0])?;
    let root = u64::from(groups[0].chunk.expect("the first group holds the root")) << bits;
    let free: u64 = groups.iter().map(|group| group.free_blocks() + group.list.len() as u64).sum();
    let mut raw = shape.raw;
    raw.sb_rootino.set(root);
    raw.sb_rbmino.set(root + 1);
    raw.sb_rsumino.set(root + 2);
    raw.sb_icount.set(64);
    raw.sb_ifree.set(61);
    raw.sb_fdblocks.set(free);
    let mut sector = vec![0; shape.options.sector_size as usize];
    seal_super(&mut sector, &raw);
    let geometry = Geometry::parse(&sector, At::Super(0)).expect("what mkfs chooses is valid");
    let mut writes = Vec::new();
    let mut head = Vec::new();
    for group in &groups {
        let mut bytes = group.headers(shape, &geometry);
        let offset = geometry.ag_sector(AgBlock { ag: group.ag, block: 0 }).bytes();
        if group.ag == 0 {
            bytes[..sector.len()].copy_from_slice(&sector);
            let rest = bytes.split_off((shape.first_root * geometry.block_size) as usize);
            head = bytes;
            writes.push((u64::from(shape.first_root * geometry.block_size), rest));
            let chunk = group.chunk.expect("the first group holds the root");
            let place = u64::from(chunk) * u64::from(geometry.block_size);
            writes.push((place, inode_chunk(shape, &geometry, around, section.as_ref())));
        } else {
            let backup = backup_super(shape, group.ag, &raw);
            seal_super(&mut bytes[..sector.len()], &backup);
            writes.push((offset, bytes));
        }
    }
    let inside = shape.options.log_device.is_none();
    let log = if inside { geometry.sector(geometry.log_start).bytes() } else { 0 };
    let zeroes = (log, u64::from(geometry.log_blocks) * u64::from(geometry.block_size));
    let record = log_start(shape, &geometry);
    let log = match inside {
        true => {
            writes.push((log, record));
            None
        }
        false => Some(LogPlan { bytes: zeroes.1, record }),
    };
    writes.extend(section.iter().flat_map(|section| section.writes(&geometry)));
    writes.sort_by_key(|write| write.0);
    let zeroes = if inside { vec![zeroes] } else { Vec::new() };
    let report = MkfsReport { features: geometry.features, geometry };
    Ok(Plan { zeroes, writes, head, log, report })
}

/// Headers and empty trees of a group that a file system of this shape gets; the superblock's
/// sector is left out.
pub(crate) fn group_headers(raw: &RawSuper, geometry: &Geometry, ag: u32) -> Vec<u8> {
    let shape = Shape::of_super(raw, geometry);
    Group::new(&shape, geometry, ag).headers(&shape, geometry)
}

/// The geometry before the root is known: a number that can be one stands in for it.
fn numbers(shape: &Shape) -> Geometry {
    let mut raw = shape.raw;
    raw.sb_rootino.set(u64::from(shape.roots_end) << raw.sb_inopblog);
    let mut sector = vec![0; shape.options.sector_size as usize];
    seal_super(&mut sector, &raw);
    Geometry::parse(&sector, At::Super(0)).expect("what mkfs chooses is valid")
}

fn seal_super(sector: &mut [u8], raw: &RawSuper) {
    sector.fill(0);
    sector[..raw.as_bytes().len()].copy_from_slice(raw.as_bytes());
    verifier::update_crc(Kind::Super, sector);
}

/// A backup as mkfs.xfs leaves it: written before there were inodes; two of them learn the root.
fn backup_super(shape: &Shape, ag: u32, raw: &RawSuper) -> RawSuper {
    let mut backup = *raw;
    let count = raw.sb_agcount.get();
    backup.sb_inprogress = 1;
    if !shape.options.parent {
        // Before the root had attributes.
        let version = Version::from_bits_retain(raw.sb_versionnum.get()) - Version::ATTR;
        backup.sb_versionnum.set(version.bits());
    }
    if ag != count - 1 && (count <= 2 || ag != (count - 1) / 2) {
        backup.sb_rootino.set(NULL64);
    }
    backup.sb_rbmino.set(NULL64);
    backup.sb_rsumino.set(NULL64);
    backup.sb_icount.set(0);
    backup.sb_ifree.set(0);
    let files = RealtimeContent::blocks(&shape.raw).iter().sum::<u32>();
    backup.sb_fdblocks.set(raw.sb_fdblocks.get() + u64::from(shape.chunk_blocks + files));
    backup.sb_frextents.set(0);
    backup
}

fn log_start(shape: &Shape, geometry: &Geometry) -> Vec<u8> {
    let mut record = unmount_record(geometry.uuid, shape.raw.sb_logsunit.get(), 1);
    record.resize(record.len().next_multiple_of(geometry.block_size as usize), 0);
    record
}

/// Takes `count` blocks from `place` on out of the free extent that holds them.
fn take(free: &mut Vec<FreeExtent>, index: usize, place: u32, count: u32) {
    let whole = free[index];
    let before = FreeExtent { start: whole.start, len: place - whole.start };
    let end = place + count;
    let after = FreeExtent { start: end, len: whole.start + whole.len - end };
    free.splice(index..=index, [before, after].into_iter().filter(|extent| extent.len > 0));
}

impl Group {
    fn new(shape: &Shape, geometry: &Geometry, ag: u32) -> Group {
        let length = geometry.ag_length(ag);
        let mut free = vec![FreeExtent { start: shape.roots_end, len: length - shape.roots_end }];
        if ag == shape.log_place.0 {
            take(&mut free, 0, shape.log_place.1, geometry.log_blocks);
        }
        // The free list takes its blocks from the smallest extent that has enough.
        let fits = free.iter().enumerate().filter(|(_, extent)| extent.len >= shape.free_list);
        let best = fits.min_by_key(|(_, extent)| (extent.len, extent.start));
        let index = best.map_or(0, |(index, _)| index);
        let first = free.get(index).map_or(0, |extent| extent.start);
        let count = free.get(index).map_or(0, |extent| extent.len.min(shape.free_list));
        if count > 0 {
            take(&mut free, index, first, count);
        }
        let list = (first..first + count).collect();
        let mut group = Group { ag, length, free, list, chunk: None };
        if ag == 0 {
            group.take_chunk(shape);
        }
        group
    }

    /// Takes blocks for a file near the root's chunk, all together: the first that are free, or
    /// since xfsprogs 6.13 those nearest to it. None if nowhere so many lie together.
    pub(super) fn take_file(&mut self, shape: &Shape, count: u32) -> Option<u32> {
        let target = self.chunk.filter(|_| shape.options.newest).unwrap_or(0);
        let fits = self.free.iter().enumerate().filter(|(_, extent)| extent.len >= count);
        let placed = fits.map(|(index, extent)| {
            let last = extent.start + extent.len - count;
            (index, target.saturating_sub(count).clamp(extent.start, last))
        });
        let (index, start) = placed.min_by_key(|&(_, start)| start.abs_diff(target))?;
        take(&mut self.free, index, start, count);
        Some(start)
    }

    fn take_chunk(&mut self, shape: &Shape) {
        let place = self.free.iter().enumerate().find_map(|(index, extent)| {
            let start = extent.start.next_multiple_of(shape.root_align);
            (start + shape.chunk_blocks <= extent.start + extent.len).then_some((index, start))
        });
        if let Some((index, start)) = place {
            take(&mut self.free, index, start, shape.chunk_blocks);
            self.chunk = Some(start);
        }
    }

    fn free_blocks(&self) -> u64 {
        self.free.iter().map(|extent| u64::from(extent.len)).sum()
    }

    /// Headers and roots, from the group's first block on; the superblock's sector is left out.
    fn headers(&self, shape: &Shape, geometry: &Geometry) -> Vec<u8> {
        let (block, sector) = (geometry.block_size as usize, geometry.sector_size as usize);
        let mut bytes = vec![0; shape.roots_end as usize * block];
        let (headers, roots) = bytes.split_at_mut(shape.first_root as usize * block);
        let mut sectors = headers.chunks_exact_mut(sector).skip(1);
        let mut next = || sectors.next().expect("room for four sectors");
        self.agf(shape, geometry, next());
        self.agi(shape, geometry, next());
        self.agfl(geometry, next());
        for (root, data) in self.roots(shape).into_iter().zip(roots.chunks_exact_mut(block)) {
            let place = AgBlock { ag: self.ag, block: root.block };
            btree::init(root.kind, data, 0, &geometry.expect_ag(place));
            let size = btree::Shape::of(root.kind).record;
            let at = btree::Shape::of(root.kind).header;
            let count = root.records.len() / size;
            data[at..at + root.records.len()].copy_from_slice(&root.records);
            btree::set_len(data, count);
            verifier::update_lsn_crc(root.kind, data, 0);
        }
        bytes
    }

    fn agf(&self, shape: &Shape, geometry: &Geometry, sector: &mut [u8]) {
        let options = &shape.options;
        let address = geometry.header_sector(self.ag, AgHeader::Agf);
        verifier::stamp(Kind::Agf, sector, &geometry.expect(address, None));
        let mut block = shape.first_root + 3 + u32::from(options.finobt);
        let agf = RawAgf::view_mut(sector).expect("a sector");
        agf.agf_versionnum.set(VERSION);
        agf.agf_seqno.set(self.ag);
        agf.agf_length.set(self.length);
        agf.agf_bno_root.set(shape.first_root);
        agf.agf_cnt_root.set(shape.first_root + 1);
        agf.agf_bno_level.set(1);
        agf.agf_cnt_level.set(1);
        if options.rmapbt {
            agf.agf_rmap_root.set(block);
            agf.agf_rmap_level.set(1);
            agf.agf_rmap_blocks.set(1);
            block += 1;
        }
        if options.reflink {
            agf.agf_refcount_root.set(block);
            agf.agf_refcount_level.set(1);
            agf.agf_refcount_blocks.set(1);
        }
        let count = self.list.len() as u32;
        agf.agf_flfirst.set(1);
        agf.agf_fllast.set(count);
        agf.agf_flcount.set(count);
        agf.agf_freeblks.set(self.free_blocks() as u32);
        agf.agf_longest.set(self.free.iter().map(|extent| extent.len).max().unwrap_or(0));
        verifier::update_lsn_crc(Kind::Agf, sector, 0);
    }

    fn agi(&self, shape: &Shape, geometry: &Geometry, sector: &mut [u8]) {
        let address = geometry.header_sector(self.ag, AgHeader::Agi);
        verifier::stamp(Kind::Agi, sector, &geometry.expect(address, None));
        let agi = RawAgi::view_mut(sector).expect("a sector");
        agi.agi_versionnum.set(VERSION);
        agi.agi_seqno.set(self.ag);
        agi.agi_length.set(self.length);
        agi.agi_root.set(shape.first_root + 2);
        agi.agi_level.set(1);
        agi.agi_newino.set(NULL32);
        agi.agi_dirino.set(NULL32);
        agi.agi_unlinked.iter_mut().for_each(|head| head.set(NULL32));
        if shape.options.finobt {
            agi.agi_free_root.set(shape.first_root + 3);
            agi.agi_free_level.set(1);
        }
        if shape.options.inobtcount {
            agi.agi_iblocks.set(1);
            agi.agi_fblocks.set(1);
        }
        if let Some(chunk) = self.chunk {
            agi.agi_count.set(64);
            agi.agi_freecount.set(61);
            agi.agi_newino.set(geometry.block_agino(chunk));
        }
        verifier::update_lsn_crc(Kind::Agi, sector, 0);
    }

    fn agfl(&self, geometry: &Geometry, sector: &mut [u8]) {
        let address = geometry.header_sector(self.ag, AgHeader::Agfl);
        sector.fill(0xff);
        sector[..crate::format::ag::AGFL_HEADER].fill(0);
        verifier::stamp(Kind::Agfl, sector, &geometry.expect(address, None));
        put_u32(sector, 4, self.ag);
        for (index, &block) in self.list.iter().enumerate() {
            set_agfl_block(sector, index as u32 + 1, block);
        }
        verifier::update_lsn_crc(Kind::Agfl, sector, 0);
    }

    /// The roots in the order of their blocks.
    fn roots(&self, shape: &Shape) -> Vec<RootBlock> {
        let options = &shape.options;
        let mut by_size = self.free.clone();
        by_size.sort_by_key(|extent| (extent.len, extent.start));
        let chunks = self.chunk.map(|chunk| self.chunk_record(shape, chunk));
        let mut kinds = vec![
            (Kind::FreeByBlock, bytes_of(&self.free, 8, FreeExtent::write)),
            (Kind::FreeBySize, bytes_of(&by_size, 8, FreeExtent::write)),
            (Kind::Inobt, chunks.clone().unwrap_or_default()),
        ];
        if options.finobt {
            kinds.push((Kind::Finobt, chunks.unwrap_or_default()));
        }
        if options.rmapbt {
            kinds.push((Kind::Rmap, bytes_of(&self.rmaps(shape), 24, Rmap::write)));
        }
        if options.reflink {
            kinds.push((Kind::Refcount, Vec::new()));
        }
        let blocks = shape.first_root..;
        let root = |((kind, records), block)| RootBlock { kind, block, records };
        kinds.into_iter().zip(blocks).map(root).collect()
    }

    fn chunk_record(&self, shape: &Shape, chunk: u32) -> Vec<u8> {
        let start = chunk << shape.raw.sb_inopblog;
        let record = InodeChunk { start, holes: 0, count: 64, free_count: 61, free: !7 };
        let mut bytes = vec![0; 16];
        record.write(&mut bytes, shape.options.sparse);
        bytes
    }

    /// The owners of all blocks in use, neighbours of one owner joined.
    fn rmaps(&self, shape: &Shape) -> Vec<Rmap> {
        let options = &shape.options;
        let first = shape.first_root;
        let inode_trees = 1 + u32::from(options.finobt);
        let mut list = vec![
            (0, first, owner::FS),
            (first, 2, owner::AG),
            (first + 2, inode_trees, owner::INOBT),
            (first + 2 + inode_trees, 1, owner::AG),
        ];
        if options.reflink {
            list.push((first + 3 + inode_trees, 1, owner::REFC));
        }
        if self.ag == shape.log_place.0 {
            list.push((shape.log_place.1, shape.raw.sb_logblocks.get(), owner::LOG));
        }
        list.extend(self.list.iter().map(|&block| (block, 1, owner::AG)));
        list.extend(self.chunk.map(|chunk| (chunk, shape.chunk_blocks, owner::INODES)));
        list.sort_unstable();
        let mut out: Vec<Rmap> = Vec::new();
        for (start, len, owner) in list {
            match out.last_mut() {
                Some(last) if last.owner == owner && last.start + last.len == start => {
                    last.len += len;
                }
                _ => out.push(Rmap { start, len, owner, offset: 0 }),
            }
        }
        out
    }
}

/// A btree that is one leaf.
struct RootBlock {
    kind: Kind,
    block: u32,
    records: Vec<u8>,
}

fn bytes_of<T>(list: &[T], size: usize, write: impl Fn(&T, &mut [u8])) -> Vec<u8> {
    let mut bytes = vec![0; list.len() * size];
    for (record, slot) in list.iter().zip(bytes.chunks_exact_mut(size)) {
        write(record, slot);
    }
    bytes
}

/// The chunk with the root directory and the two inodes of the realtime section.
fn inode_chunk(
    shape: &Shape,
    geometry: &Geometry,
    around: &Surroundings,
    section: Option<&RealtimeContent>,
) -> Vec<u8> {
    let now = around.now;
    let newest = shape.options.newest;
    let generation = if newest { around.generation } else { 0 };
    let size = geometry.inode_size as usize;
    let mut bytes = vec![0; 64 * size];
    for (index, slot) in bytes.chunks_exact_mut(size).enumerate() {
        let ino = Ino(geometry.root_ino.0 + index as u64);
        inode::emit_free(slot, ino, generation, geometry);
        let core = match index {
            0 => Some(new_core(shape, now, 0o040_755, Flags::empty())),
            1 => Some(new_core(shape, now, 0o100_000, Flags::NEWRTBM)),
            2 => Some(new_core(shape, now, 0o100_000, Flags::empty())),
            _ => None,
        };
        if let Some(mut core) = core {
            if newest && index != 1 {
                core.atime = now;
            }
            if index > 0 {
                core.generation = generation;
            } else {
                let fork = &mut slot[inode::CORE_SIZE..];
                core.size = dir_sf::emit(fork, geometry.root_ino, &[], true) as u64;
                core.format = ForkFormat::Local;
                core.links = 2;
                root_attributes(shape, &mut core, fork);
                hand_down(shape, &mut core);
            }
            if let (Some(section), 1 | 2) = (section, index) {
                section.fill_inode(index, geometry, &mut core, &mut slot[inode::CORE_SIZE..]);
            }
            core.emit(slot);
        }
        verifier::update_lsn_crc(Kind::Inode, slot, 0);
    }
    bytes
}

/// What the root hands down.
fn hand_down(shape: &Shape, core: &mut InodeCore) {
    let root = &shape.options.root;
    core.flags.set(Flags::RTINHERIT, root.realtime);
    core.flags.set(Flags::PROJINHERIT, root.project.is_some());
    core.project = root.project.unwrap_or(0);
    core.flags.set(Flags::EXTSZINHERIT, root.extent_blocks.is_some());
    core.extsize = root.extent_blocks.unwrap_or(0);
    core.flags2.set(Flags2::DAX, root.dax);
    core.flags2.set(Flags2::COWEXTSIZE, root.cow_blocks.is_some());
    core.cowextsize = root.cow_blocks.unwrap_or(0);
}

/// The attributes of the root.
fn root_attributes(shape: &Shape, core: &mut InodeCore, fork: &mut [u8]) {
    let Some(value) = shape.options.autofsck_value() else { return };
    // As few bytes as an attribute fork may have.
    let border = fork.len() - ATTR_MIN;
    core.forkoff = (border / 8) as u8;
    core.attr_format = ForkFormat::Local;
    core.change_count += 2;
    let (flags, name) = (AttrFlags::ROOT, &b"xfs:autofsck"[..]);
    emit_sf(&mut fork[border..], &[SfAttr { flags, name, value: value.as_bytes() }]);
}

fn new_core(shape: &Shape, now: Timespec, mode: u16, flags: Flags) -> InodeCore {
    let mut flags2 = Flags2::empty();
    flags2.set(Flags2::BIGTIME, shape.options.bigtime);
    flags2.set(Flags2::NREXT64, shape.options.nrext64);
    InodeCore {
        atime: Timespec::from_secs(0),
        flags,
        flags2,
        change_count: 2,
        ..InodeCore::fresh(mode, now)
    }
}
