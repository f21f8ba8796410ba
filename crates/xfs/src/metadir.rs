//! The metadata directory: a tree of directories beside that of the users, which holds inodes of
//! the file system itself. Its root is in the superblock; `/quota` has the records of quota,
//! `/rtgroups` the files of each group of the realtime section.
//!
//! Its inodes carry a flag, and in the place of an old link count what they hold. Users cannot
//! reach them.
//!
//! Source: images of mkfs.xfs 7.2 and of Linux 7.2, `xfs_db`.

use std::collections::BTreeMap;

use base::{Ino, Timespec};
use rt::Cx;
use vfs::quota::Kind;

use crate::bmap::{Forks, runs};
use crate::buf::meta::{ReadRequest, Reader};
use crate::error::{Fault, Result};
use crate::format::attr::{AttrFlags, PARENT_VALUE, SfAttr, emit_sf};
use crate::format::dir::{DATA_HEADER, DataBlock, FileType, Item, SPACES, check_entry, entry_size};
use crate::format::dir_sf::{self, SfEntry, Shortform};
use crate::format::extent::Extent;
use crate::format::inode::{
    Flags, Flags2, ForkFormat, InodeCore, MetadataType, RawInode, fork_ranges,
};
use crate::format::{
    At, Corrupt, CorruptKind, Geometry, Kind as BlockKind, RawSuper, put_u32, put_u64,
};
use crate::ialloc::Inodes;
use crate::trans::{Trans, reservations};
use crate::uncached::UncachedInode;

/// Units of eight bytes before the attributes of its inodes.
const BORDER: u8 = 24;
/// The directory of the files of groups of the realtime section.
pub(crate) const GROUPS: &[u8] = b"rtgroups";
/// The directory of quota files.
const QUOTA: &[u8] = b"quota";

/// A name of the tree.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct MetadataName {
    pub name: Vec<u8>,
    pub ino: Ino,
}

fn ensure_metadata(core: &InodeCore, wanted: u16, at: At) -> std::result::Result<(), Corrupt> {
    let fits = core.file_type() == wanted && core.flags2.contains(Flags2::METADATA);
    if fits { Ok(()) } else { Err(CorruptKind::MetadataInode { mode: core.mode }.at(at)) }
}

/// The names in a directory of the tree. May park.
///
/// # Errors
/// It is none; a block that fails a check; the device failed.
pub(crate) fn names(cx: &mut Cx, reader: &Reader, ino: Ino) -> Result<Vec<MetadataName>, Fault> {
    let (geometry, at) = (&reader.geometry, At::Inode(ino));
    let (slot, core) = reader.read_inode(cx, ino)?;
    ensure_metadata(&core, 0x4000, at)?;
    let forks = Forks::new(&slot, &core);
    let mut list = Vec::new();
    let mut add = |name: &[u8], ino: Ino, offset: usize, at: At| -> Result<(), Corrupt> {
        check_entry(name, ino, offset, geometry, at)?;
        if name != b"." && name != b".." {
            list.push(MetadataName { name: name.to_vec(), ino });
        }
        Ok(())
    };
    if core.format == ForkFormat::Local {
        let local = Shortform::parse(&forks.data.bytes, &geometry.features, at)?;
        for entry in local.entries() {
            add(entry.name, entry.ino, usize::from(entry.offset), at)?;
        }
        return Ok(list);
    }
    let extents = reader.read_extents(cx, ino, &forks.data, &mut |_| ())?;
    let (count, end) = (u64::from(geometry.dir_blocks()), SPACES[1] >> geometry.block_bits);
    let mut index = 0;
    while let Some(extent) = next_extent(&extents, index * count) {
        index = index.max(extent.offset / count);
        let start = index * count;
        if start >= end {
            break;
        }
        let at = At::InodeBlock(ino, start);
        let kind = CorruptKind::DirHole { block: start };
        let blocks = runs(&extents, start..start + count).ok_or_else(|| kind.at(at))?;
        let kinds = &[BlockKind::DirData, BlockKind::DirBlock];
        let want = ReadRequest { kinds, owner: Some(ino.0), at };
        let (kind, data) = reader.read(cx, &blocks, &want)?;
        let block = DataBlock::new(kind, &data, geometry.features.ftype(), at)?;
        for item in block.items(block.start(), at) {
            if let Item::Entry { offset, ino, name, .. } = item? {
                add(name, ino, offset, at)?;
            }
        }
        index += 1;
    }
    Ok(list)
}

/// The first extent that ends behind a block.
fn next_extent(extents: &[Extent], block: u64) -> Option<&Extent> {
    extents.get(extents.partition_point(|extent| extent.end() <= block))
}

/// The inode of a name in a directory of the tree. May park.
///
/// # Errors
/// As [`names`].
pub(crate) fn find(
    cx: &mut Cx,
    reader: &Reader,
    dir: Ino,
    name: &[u8],
) -> Result<Option<Ino>, Fault> {
    let list = names(cx, reader, dir)?;
    Ok(list.into_iter().find(|entry| entry.name == name).map(|entry| entry.ino))
}

/// The inodes that hold the records of quota, by kind. May park.
///
/// # Errors
/// As [`names`].
pub(crate) fn quota_inos(
    cx: &mut Cx,
    reader: &Reader,
    raw: &RawSuper,
) -> Result<[Option<u64>; 3], Fault> {
    let Some(root) = reader.geometry.metadata_root else {
        return Ok(Kind::ALL.map(|kind| raw.quota_ino(kind)));
    };
    let Some(dir) = find(cx, reader, root, QUOTA)? else { return Ok([None; 3]) };
    let list = names(cx, reader, dir)?;
    Ok(Kind::ALL.map(|kind| {
        let found = list.iter().find(|entry| entry.name == kind.name().as_bytes());
        found.map(|entry| entry.ino.0)
    }))
}

/// The inodes of a group of the realtime section, or of all of it where it is not divided.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct RealtimeInos {
    /// Bitmap and summary.
    pub files: [Ino; 2],
    /// Reverse map and reference counts, where the section has them.
    pub trees: [Option<Ino>; 2],
}

/// The inodes of each group of the realtime section. May park.
///
/// # Errors
/// As [`names`]; a name is missing.
pub(crate) fn realtime_inos(cx: &mut Cx, reader: &Reader) -> Result<Vec<RealtimeInos>, Fault> {
    let geometry = &reader.geometry;
    let Some(root) = geometry.metadata_root else {
        return Ok(vec![RealtimeInos { files: geometry.realtime_inos, trees: [None; 2] }]);
    };
    let dir = find(cx, reader, root, GROUPS)?;
    let missing = |group, what| CorruptKind::RealtimeName { group, what }.at(At::Inode(root));
    let dir = dir.ok_or_else(|| missing(0, "bitmap"))?;
    let list: BTreeMap<Vec<u8>, Ino> =
        names(cx, reader, dir)?.into_iter().map(|entry| (entry.name, entry.ino)).collect();
    let file = |group: u32, what: &'static str| {
        let name = format!("{group}.{what}");
        list.get(name.as_bytes()).copied().ok_or_else(|| missing(group, what))
    };
    let tree = |has: bool, group, what| has.then(|| file(group, what)).transpose();
    let features = geometry.features;
    let groups = 0..geometry.realtime.group_count();
    let all = groups.map(|group| {
        let rmap = tree(features.rmapbt(), group, "rmap")?;
        let trees = [rmap, tree(features.reflink(), group, "refcount")?];
        let files = match geometry.realtime.zoned {
            // No zone has them.
            true => [Ino(0); 2],
            false => [file(group, "bitmap")?, file(group, "summary")?],
        };
        Ok(RealtimeInos { files, trees })
    });
    all.collect()
}

/// Makes the inode that holds the records of a kind, and its directory if need be. No transaction
/// is open. May park.
///
/// # Errors
/// No space; the device failed.
pub(crate) fn make_quota(
    cx: &mut Cx,
    inodes: &Inodes,
    root: Ino,
    kind: Kind,
) -> Result<UncachedInode> {
    let log = &inodes.space.log;
    let reader = Reader { bufs: log.bufs().clone(), geometry: inodes.space.geometry.clone() };
    // Names are read from clusters.
    log.empty(cx)?;
    let dir = match find(cx, &reader, root, QUOTA)? {
        Some(dir) => dir,
        None => {
            let made = make(cx, inodes, root, QUOTA, MetadataType::Directory)?;
            log.empty(cx)?;
            made.ino
        }
    };
    let made = make(cx, inodes, dir, kind.name().as_bytes(), MetadataType::of_quota(kind))?;
    log.empty(cx)?;
    Ok(made)
}

/// Makes an inode in a directory of the tree whose newest image is in its cluster.
fn make(
    cx: &mut Cx,
    inodes: &Inodes,
    dir: Ino,
    name: &[u8],
    holds: MetadataType,
) -> Result<UncachedInode> {
    let space = &inodes.space;
    let mut trans = Trans::alloc(cx, &space.log, reservations::create(&space.geometry))?;
    match make_in(cx, &mut trans, inodes, dir, name, holds) {
        Ok(made) => {
            trans.commit(cx)?;
            Ok(made)
        }
        Err(error) => {
            match trans.is_dirty() && !trans.has_substance() {
                true => drop(trans.commit(cx)?),
                false => trans.cancel(),
            }
            Err(error)
        }
    }
}

fn make_in(
    cx: &mut Cx,
    trans: &mut Trans,
    inodes: &Inodes,
    dir: Ino,
    name: &[u8],
    holds: MetadataType,
) -> Result<UncachedInode> {
    let (space, directory) = (&inodes.space, holds == MetadataType::Directory);
    let geometry = &space.geometry;
    let mut parent = UncachedInode::read(cx, space, dir)?;
    ensure_metadata(&parent.core, 0x4000, At::Inode(dir))?;
    let ino = inodes.allocate(cx, trans, dir, directory)?;
    let file_type = if directory { FileType::Directory } else { FileType::Regular };
    append_entry(cx, geometry, &mut parent, name, ino, file_type)?;
    parent.log(trans);
    let birth = (cx.realtime(), cx.random() as u32);
    let core = new_core(geometry, directory, birth.0, birth.1);
    let mut inode = UncachedInode::new(geometry, ino, core);
    set_holds(&mut inode.image, holds);
    let (data, attr) = fork_ranges(inode.core.forkoff, inode.image.len());
    if directory {
        let used = dir_sf::emit(&mut inode.image[data], dir, &[], geometry.features.ftype());
        inode.core.size = used as u64;
    }
    if geometry.features.parent() {
        set_parent(&mut inode.image[attr], name, dir, parent.core.generation);
    }
    inode.core.emit(&mut inode.image);
    inode.log(trans);
    Ok(inode)
}

/// Stores what an inode holds where old inodes count links.
pub(crate) fn set_holds(image: &mut [u8], holds: MetadataType) {
    RawInode::view_mut(image).expect("an inode").di_onlink.set(holds as u16);
}

/// Writes the attribute of an inode of the tree that names its directory, of this generation.
pub(crate) fn set_parent(fork: &mut [u8], name: &[u8], dir: Ino, generation: u32) {
    let mut value = [0; PARENT_VALUE];
    put_u64(&mut value, 0, dir.0);
    put_u32(&mut value, 8, generation);
    emit_sf(fork, &[SfAttr { flags: AttrFlags::PARENT, name, value: &value }]);
}

/// The core of a new inode of the tree.
pub(crate) fn new_core(
    geometry: &Geometry,
    directory: bool,
    now: Timespec,
    generation: u32,
) -> InodeCore {
    let features = geometry.features;
    let flags = Flags::of_metadata(directory);
    let mut flags2 = Flags2::METADATA;
    flags2.set(Flags2::BIGTIME, features.bigtime());
    flags2.set(Flags2::NREXT64, features.nrext64());
    let (mode, format) = match directory {
        true => (0x4000, ForkFormat::Local),
        false => (0x8000, ForkFormat::Extents),
    };
    let attr_format = if features.parent() { ForkFormat::Local } else { ForkFormat::Extents };
    InodeCore {
        format,
        attr_format,
        links: if directory { 2 } else { 1 },
        forkoff: if features.parent() { BORDER } else { 0 },
        flags,
        flags2,
        generation,
        change_count: 1,
        ..InodeCore::fresh(mode, now)
    }
}

/// Adds a name to a directory, which stays a small one: those with further names are made by
/// mkfs.
fn append_entry(
    cx: &mut Cx,
    geometry: &Geometry,
    dir: &mut UncachedInode,
    name: &[u8],
    ino: Ino,
    file_type: FileType,
) -> Result<()> {
    let (at, ftype) = (At::Inode(dir.ino), geometry.features.ftype());
    let room = fork_ranges(dir.core.forkoff, dir.image.len()).0;
    let full = CorruptKind::LocalSize { size: dir.core.size, room: room.len() as u64 };
    if dir.core.format != ForkFormat::Local {
        return Err(full.at(at).into());
    }
    let used = dir.image[room.clone()][..dir.core.size as usize].to_vec();
    let small = Shortform::parse(&used, &geometry.features, at)?;
    let mut entries: Vec<SfEntry<'_>> = small.entries().collect();
    let first = DATA_HEADER + entry_size(1, ftype) + entry_size(2, ftype);
    let end = |entry: &SfEntry<'_>| usize::from(entry.offset) + entry_size(entry.name.len(), ftype);
    let offset = entries.last().map_or(first, end) as u16;
    entries.push(SfEntry { name, offset, file_type, ino });
    let wide = entries.iter().map(|entry| entry.ino).chain([small.parent]);
    let wide = wide.into_iter().any(|ino| ino.0 > u64::from(u32::MAX));
    if dir_sf::size(entries.iter().cloned(), wide, ftype) > room.len() {
        return Err(full.at(at).into());
    }
    let size = dir_sf::emit(&mut dir.image[room], small.parent, &entries, ftype);
    let now = cx.realtime();
    let core = &mut dir.core;
    core.size = size as u64;
    core.links += u32::from(file_type == FileType::Directory);
    (core.mtime, core.ctime) = (now, now);
    core.change_count += 1;
    core.emit(&mut dir.image);
    Ok(())
}
