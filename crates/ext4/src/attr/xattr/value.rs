//! Values in inodes of their own (feature `ea_inode`): large ones, and those for which an inode and
//! its attribute block have no room. Entries with equal values name the same inode, which counts
//! them.
//!
//! An inode is made, or found by its hash, before the handle that puts its name into an entry, and
//! held ([`Prepared`]). Until an entry names it, it is an orphan: a power cut in between leaves
//! nothing behind. When the last entry goes it is one again, and freed when the handle has ended
//! ([`Dropped`]).
//!
//! Locks: references change under [`Inodes::xattr_blocks`].

use std::sync::Arc;

use base::{Errno, Ino, Timespec};
use rt::Cx;

use super::Edit;
use crate::bmap::map::Create;
use crate::evict;
use crate::format::features::Incompat;
use crate::format::xattr::{self as area, LargeValue, Xattr};
use crate::format::{At, CorruptKind, Geometry, InodeFlags};
use crate::inode::{Inode, InodeCore};
use crate::inode::{Inodes, NewInode};
use crate::mbcache::SharedBlocks;
use crate::trans::credits;
use crate::trans::ext4_jbd2::Handle;

/// Blocks of a value that one handle takes: a quarter of what the smallest journal allows.
const BLOCKS_MAX: u32 = 64;

/// Credits for one more reference to a value, or one less.
pub(crate) const REFERENCE: u32 = credits::INODE + credits::ORPHAN;

impl Geometry {
    /// May values lie in inodes of their own?
    pub(crate) fn large_values(&self) -> bool {
        self.features.incompat.contains(Incompat::EA_INODE)
    }

    /// Bytes that an owner is charged for a value of `size` bytes in an inode.
    fn charged_bytes(&self, size: u32) -> u64 {
        u64::from(size).next_multiple_of(self.cluster_sectors() * 512)
    }
}

impl Xattr {
    /// Whether it must not lie in the inode itself: a symbolic link that has blocks (those of a
    /// large value count) and no attribute block is taken for one with its target in a block by
    /// e2fsck.
    pub(crate) fn belongs_outside(&self, symlink: bool) -> bool {
        symlink && self.large.is_some()
    }
}

/// What an inode's values in other inodes add to it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Totals {
    /// How many there are: quota counts each as an inode.
    pub count: u32,
    /// Units of 512 bytes in `i_blocks`.
    pub sectors: u64,
}

impl Totals {
    /// Those of these attributes.
    pub fn of<'a>(g: &Geometry, list: impl Iterator<Item = &'a Xattr>) -> Totals {
        list.filter_map(|xattr| xattr.large)
            .fold(Totals::default(), |sum, large| sum.plus(g, large))
    }

    /// With one value more.
    pub fn plus(self, g: &Geometry, large: LargeValue) -> Totals {
        let sectors = self.sectors + g.charged_bytes(large.size) / 512;
        Totals { count: self.count + 1, sectors }
    }
}

/// The number of the only inode that names this value, as Lustre's older form has it in the place
/// of a hash. (Source: kernel `Documentation/filesystems/ext4/attributes.rst`.)
fn lustre_owner(core: &InodeCore) -> u32 {
    core.mtime.sec as u32
}

/// The hash of the value that an inode stores.
fn stored_hash(core: &InodeCore) -> u32 {
    core.atime.sec as u32
}

/// A value in an inode, held: it stays until [`Prepared::release`], whether an entry names it or
/// not.
pub(crate) struct Prepared {
    inode: Arc<Inode>,
    size: u32,
    hash: u32,
}

impl Prepared {
    /// What an entry of this name says.
    pub fn entry(&self, name: &[u8]) -> LargeValue {
        let hash = area::hash_large(name, self.hash);
        LargeValue { ino: self.inode.ino.0 as u32, size: self.size, hash }
    }

    /// Lets go of it; frees it where no entry names it. No handle is open.
    ///
    /// # Errors
    /// `EUCLEAN`, `EIO`.
    pub fn release(self, fs: &Inodes, cx: &mut Cx) -> Result<(), Errno> {
        self.inode.with(cx, |core| core.opens = core.opens.saturating_sub(1));
        evict::delete_if_unused(fs, cx, &self.inode)
    }
}

/// Inodes whose last reference went in a handle.
#[derive(Default)]
pub(crate) struct Dropped(Vec<Arc<Inode>>);

impl Dropped {
    /// Frees them, unless somebody found them meanwhile. No handle is open.
    ///
    /// # Errors
    /// `EUCLEAN`, `EIO`.
    pub fn free(self, fs: &Inodes, cx: &mut Cx) -> Result<(), Errno> {
        self.0.into_iter().try_for_each(|inode| evict::delete_if_unused(fs, cx, &inode))
    }
}

/// An inode with this value: one that there is, or a new one near `owner`. No handle is open.
///
/// # Errors
/// `ENOSPC`, `EUCLEAN`, `EIO`, `EROFS`.
pub(crate) fn prepare(
    fs: &Inodes,
    cx: &mut Cx,
    owner: &Inode,
    value: &[u8],
) -> Result<Prepared, Errno> {
    let hash = area::value_hash(&fs.sb.geometry.checksums, value);
    let size = value.len() as u32;
    let candidates = fs.xattr_blocks.lock(cx).values.candidates(hash);
    for ino in candidates {
        if let Some(inode) = hold_same(fs, cx, Ino(ino), hash, value)? {
            return Ok(Prepared { inode, size, hash });
        }
    }
    let inode = fs.retry_alloc(cx, |cx| make(fs, cx, owner, value, hash))?;
    fs.xattr_blocks.lock(cx).values.insert(hash, inode.ino.0);
    Ok(Prepared { inode, size, hash })
}

/// Holds the inode where it has this value.
fn hold_same(
    fs: &Inodes,
    cx: &mut Cx,
    ino: Ino,
    hash: u32,
    value: &[u8],
) -> Result<Option<Arc<Inode>>, Errno> {
    // The number may belong to something else by now.
    let Ok(inode) = fs.iget_value(cx, ino) else { return Ok(None) };
    let held = inode.with(cx, |core| {
        let fits = !core.dead && stored_hash(core) == hash && core.size == value.len() as u64;
        core.opens += u32::from(fits);
        fits
    });
    if !held {
        return Ok(None);
    }
    match content(fs, cx, &inode, value.len()) {
        Ok(found) if found == value => Ok(Some(inode)),
        other => {
            let prepared = Prepared { inode, size: 0, hash };
            prepared.release(fs, cx)?;
            other.map(|_| None)
        }
    }
}

/// Makes an inode with this value, held and without a reference: an orphan.
fn make(
    fs: &Inodes,
    cx: &mut Cx,
    owner: &Inode,
    value: &[u8],
    hash: u32,
) -> Result<Arc<Inode>, Errno> {
    let need = credits::NEW_INODE + credits::INODE + credits::ORPHAN + credits::SUPER;
    let mut handle = fs.sb.journal_start(cx, need)?;
    let begun = begin(fs, cx, &mut handle, owner, value.len(), hash);
    let stopped = handle.stop(cx);
    let inode = begun?;
    let filled = stopped.and_then(|()| fill(fs, cx, &inode, value));
    if let Err(errno) = filled {
        Prepared { inode, size: 0, hash }.release(fs, cx)?;
        return Err(errno);
    }
    Ok(inode)
}

fn begin(
    fs: &Inodes,
    cx: &mut Cx,
    handle: &mut Handle,
    owner: &Inode,
    len: usize,
    hash: u32,
) -> Result<Arc<Inode>, Errno> {
    let (uid, gid) = owner.with(cx, |core| (core.uid, core.gid));
    let new = NewInode { mode: 0o100_600, uid, gid, times: None };
    let inode = fs.new_inode(cx, handle, owner, &new, None)?;
    inode.with(cx, |core| {
        core.opens = 1;
        core.links = 0;
        core.flags = core.flags & InodeFlags::EXTENTS | InodeFlags::EA_INODE;
        core.projid = 0;
        (core.size, core.values.size) = (len as u64, len as u64);
        // The sign keeps all 32 bits where a time has no more.
        core.atime = Timespec { sec: i64::from(hash as i32), nsec: 0 };
        core.set_references(0);
    });
    fs.mark_dirty(cx, handle, &inode)?;
    fs.orphan_add(cx, handle, &inode)?;
    Ok(inode)
}

/// Writes the value through the journal, in as many handles as it takes.
fn fill(fs: &Inodes, cx: &mut Cx, inode: &Inode, value: &[u8]) -> Result<(), Errno> {
    let size = fs.sb.geometry.block_size as usize;
    let mut chunks = value.chunks(size);
    let (mut lblk, blocks) = (0, value.len().div_ceil(size) as u32);
    while lblk < blocks {
        let want = (blocks - lblk).min(BLOCKS_MAX);
        let mut handle = fs.sb.journal_start(cx, fs.bmap(inode).map_credits(cx) + want)?;
        let result = fs.bmap(inode).map_create(cx, &mut handle, lblk, want, Create::metadata());
        let result = result.and_then(|(mapped, _)| {
            for (n, chunk) in chunks.by_ref().take(mapped.len as usize).enumerate() {
                let buffer = fs.sb.new_buffer(cx, &mut handle, mapped.pblk + n as u64)?;
                buffer.with_mut(|data| data[..chunk.len()].copy_from_slice(chunk));
                handle.dirty(cx, &buffer)?;
            }
            lblk += mapped.len;
            fs.mark_dirty(cx, &mut handle, inode)
        });
        let stopped = handle.stop(cx);
        result?;
        stopped?;
    }
    Ok(())
}

/// The inode that an entry names.
///
/// # Errors
/// `EUCLEAN` it holds no value; `EIO`.
fn named(fs: &Inodes, cx: &mut Cx, ino: u32) -> Result<Arc<Inode>, Errno> {
    match fs.iget_value(cx, Ino(ino.into())) {
        Err(Errno::ESTALE) => {
            let kind = CorruptKind::XattrInodeFlag { inode: ino };
            Err(fs.sb.corrupt_kind(cx, kind, At::Inode(Ino(ino.into()))))
        }
        result => result,
    }
}

fn content(fs: &Inodes, cx: &mut Cx, inode: &Inode, len: usize) -> Result<Vec<u8>, Errno> {
    let size = fs.sb.geometry.block_size as usize;
    let mut value = Vec::with_capacity(len);
    while value.len() < len {
        let lblk = (value.len() / size) as u32;
        let part = (len - value.len()).min(size);
        let Some(buffer) = fs.bmap(inode).bread(cx, lblk)? else {
            let (inode, found) = (inode.ino.0 as u32, value.len() as u64);
            let kind = CorruptKind::XattrInodeSize { inode, found, expected: len as u32 };
            return Err(fs.sb.corrupt_kind(cx, kind, At::Inode(Ino(inode.into()))));
        };
        buffer.with(|data| value.extend_from_slice(&data[..part]));
    }
    Ok(value)
}

/// The value that an entry of this name and of `owner` names, its hashes checked. The caller holds
/// the `xattr_lock` of an inode with that entry.
///
/// # Errors
/// `EUCLEAN`, `EIO`; `EOPNOTSUPP` for Lustre's older form.
pub(crate) fn read(
    fs: &Inodes,
    cx: &mut Cx,
    owner: &Inode,
    name: &[u8],
    large: &LargeValue,
) -> Result<Vec<u8>, Errno> {
    let inode = named(fs, cx, large.ino)?;
    let at = At::Inode(inode.ino);
    let (found, hash) = inode.with(cx, |core| (core.size, stored_hash(core)));
    if found != u64::from(large.size) {
        let kind = CorruptKind::XattrInodeSize { inode: large.ino, found, expected: large.size };
        return Err(fs.sb.corrupt_kind(cx, kind, at));
    }
    let value = content(fs, cx, &inode, large.size as usize)?;
    let expected = area::value_hash(&fs.sb.geometry.checksums, &value);
    let entry = [area::hash_large(name, hash), area::hash_large_signed(name, hash)];
    let wrong = match () {
        () if hash != expected => Some((hash, expected)),
        () if !entry.contains(&large.hash) => Some((large.hash, entry[0])),
        () => None,
    };
    if wrong.is_some() && belongs_to(cx, &inode, owner) {
        let kind = CorruptKind::XattrInodeLustre { inode: large.ino, owner: owner.ino.0 as u32 };
        fs.sb.note_read_error(kind.at(at).to_string());
        return Err(Errno::EOPNOTSUPP);
    }
    if let Some((found, expected)) = wrong {
        let kind = CorruptKind::XattrInodeHash { inode: large.ino, found, expected };
        return Err(fs.sb.corrupt_kind(cx, kind, at));
    }
    fs.xattr_blocks.lock(cx).values.insert(hash, inode.ino.0);
    Ok(value)
}

/// Whether the inode of a value says of itself what Lustre's older form says: whose it is.
fn belongs_to(cx: &Cx, inode: &Inode, owner: &Inode) -> bool {
    let generation = owner.with(cx, |core| core.generation);
    let said = inode.with(cx, |core| (u64::from(lustre_owner(core)), core.generation));
    said == (owner.ino.0, generation)
}

/// Refuses to let go of a value of Lustre's older form: it counts no references.
///
/// # Errors
/// `EOPNOTSUPP` it has that form; `EUCLEAN`, `EIO`.
pub(super) fn refuse_old_form(
    fs: &Inodes,
    cx: &mut Cx,
    owner: &Inode,
    name: &[u8],
    large: &LargeValue,
) -> Result<(), Errno> {
    let inode = named(fs, cx, large.ino)?;
    // Only the content shows whether its hash is one.
    if belongs_to(cx, &inode, owner) { read(fs, cx, owner, name, large).map(drop) } else { Ok(()) }
}

/// Follows the entries of an area from `before` to `after`: those that come take a reference, those
/// that go give theirs back, as part of `handle`: [`REFERENCE`] for each.
///
/// # Errors
/// `EUCLEAN`, `EIO`; the journal's errno once it has aborted.
pub(super) fn follow(
    edit: &mut Edit,
    cx: &mut Cx,
    _shared: &mut SharedBlocks,
    before: &[Xattr],
    after: &[Xattr],
) -> Result<(), Errno> {
    let fs = edit.fs;
    let only_in = |list: &[Xattr], other: &[Xattr]| -> Vec<u32> {
        let values = list.iter().filter(|xattr| !other.contains(xattr));
        values.filter_map(|xattr| Some(xattr.large?.ino)).collect()
    };
    for ino in only_in(after, before) {
        let inode = named(fs, cx, ino)?;
        let first = inode.with(cx, |core| {
            let count = core.references() + 1;
            core.set_references(count);
            std::mem::replace(&mut core.links, 1) == 0
        });
        if first {
            fs.orphan_del(cx, edit.handle, &inode)?;
        }
        fs.mark_dirty(cx, edit.handle, &inode)?;
    }
    for ino in only_in(before, after) {
        let inode = named(fs, cx, ino)?;
        let left = inode.with(cx, |core| {
            let left = core.references().checked_sub(1)?;
            core.set_references(left);
            core.links = u16::from(left > 0);
            Some(left)
        });
        let Some(left) = left else {
            let kind = CorruptKind::XattrInodeReferences { count: 0 };
            return Err(fs.sb.corrupt_kind(cx, kind, At::Inode(inode.ino)));
        };
        if left == 0 {
            fs.orphan_add(cx, edit.handle, &inode)?;
            edit.dropped.0.push(inode.clone());
        }
        fs.mark_dirty(cx, edit.handle, &inode)?;
    }
    Ok(())
}
