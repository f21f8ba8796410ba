//! Attribute blocks: reading, sharing, replacing.

use std::sync::Arc;

use base::Errno;
use cache::BufferRef;
use rt::Cx;

use super::ByHash;
use crate::Ext4;
use crate::ext4_jbd2::Handle;
use crate::format::At;
use crate::format::xattr::{self as area, Place, REFCOUNT_MAX, Xattr};
use crate::inode::Inode;

/// How many blocks are remembered as candidates for sharing.
const SHARED_LIMIT: usize = 4096;

/// Attribute blocks that were written or read, by the hash of their content: where an inode gets
/// the same attributes it uses the same block.
#[derive(Default)]
pub(crate) struct SharedBlocks {
    by_hash: ByHash,
    count: usize,
}

impl SharedBlocks {
    fn insert(&mut self, hash: u32, block: u64) {
        if self.count >= SHARED_LIMIT {
            self.by_hash.clear();
            self.count = 0;
        }
        let blocks = self.by_hash.entry(hash).or_default();
        if !blocks.contains(&block) {
            blocks.push(block);
            self.count += 1;
        }
    }

    fn remove(&mut self, hash: u32, block: u64) {
        let Some(blocks) = self.by_hash.get_mut(&hash) else { return };
        let before = blocks.len();
        blocks.retain(|&b| b != block);
        self.count -= before - blocks.len();
        if blocks.is_empty() {
            self.by_hash.remove(&hash);
        }
    }

    fn candidates(&self, hash: u32) -> Vec<u64> {
        self.by_hash.get(&hash).cloned().unwrap_or_default()
    }
}

/// Reads an attribute block, checked when it comes into memory.
///
/// # Errors
/// `EUCLEAN` where it is damaged, `EIO`.
pub(super) fn read(fs: &Ext4, cx: &mut Cx, inode: &Inode, block: u64) -> Result<BufferRef, Errno> {
    let buffer = fs.read_block(cx, block)?;
    if !buffer.verified() {
        let checked = buffer.with(|data| {
            if fs.geometry.checksums.metadata {
                area::verify_checksum(&fs.geometry.checksums, block, data)?;
            }
            area::check(data, Place::Block)
        });
        checked.map_err(|kind| fs.corrupt(cx, &kind.at(At::Block(inode.ino, block))))?;
        buffer.set_verified(true);
    }
    Ok(buffer)
}

/// Makes `list` the attributes in the block of an inode, whose `xattr_lock` is held: shares a block
/// with the same content, or rewrites its own, or takes a new one; an empty list needs none. The
/// caller writes the inode.
///
/// # Errors
/// `ENOSPC`; `EUCLEAN`, `EIO`.
pub(super) fn replace(
    fs: &Ext4,
    cx: &mut Cx,
    handle: &mut Handle,
    inode: &Arc<Inode>,
    list: &[Xattr],
) -> Result<(), Errno> {
    let old = inode.with(cx, |core| core.file_acl);
    let mut shared = fs.names.xattr_blocks.lock(cx);
    if list.is_empty() {
        return if old == 0 { Ok(()) } else { release(fs, cx, handle, inode, old, &mut shared) };
    }
    let mut content = vec![0; fs.geometry.block_size as usize];
    let fits = area::emit(&mut content, Place::Block, list);
    assert!(fits, "the space in the block was counted before");
    let hash = area::block_hash(&content);
    if let Some(buffer) = find_same(fs, cx, inode, &shared, hash, &content) {
        if buffer.block() == old {
            return Ok(());
        }
        if old == 0 {
            fs.promise_quota(cx, inode, 1, 1)?;
        }
        change(fs, cx, handle, &buffer, |data| area::set_refcount(data, area::refcount(data) + 1))?;
        return adopt(fs, cx, handle, inode, old, buffer.block(), &mut shared);
    }
    if old != 0 {
        let buffer = read(fs, cx, inode, old)?;
        let (count, before) = buffer.with(|data| (area::refcount(data), area::block_hash(data)));
        if count == 1 {
            shared.remove(before, old);
            shared.insert(hash, old);
            return change(fs, cx, handle, &buffer, |data| data.copy_from_slice(&content));
        }
    }
    if old == 0 && inode.is_regular(cx) {
        fs.promise_quota(cx, inode, 1, 1)?;
    }
    let buffer = fs.alloc_meta_block(cx, handle, inode)?;
    buffer.with_mut(|data| data.copy_from_slice(&content));
    buffer.set_verified(true);
    arm(fs, &buffer);
    handle.dirty(cx, &buffer)?;
    shared.insert(hash, buffer.block());
    // The allocation has counted the new block for the inode.
    let sectors = u64::from(fs.geometry.block_size / 512);
    inode.with(cx, |core| core.blocks -= sectors);
    adopt(fs, cx, handle, inode, old, buffer.block(), &mut shared)
}

/// Makes `new`, which counts the inode already, its block instead of `old` (0: none).
fn adopt(
    fs: &Ext4,
    cx: &mut Cx,
    handle: &mut Handle,
    inode: &Arc<Inode>,
    old: u64,
    new: u64,
    shared: &mut SharedBlocks,
) -> Result<(), Errno> {
    if old != 0 {
        release(fs, cx, handle, inode, old, shared)?;
    }
    // Every inode counts a shared block as its own.
    let sectors = u64::from(fs.geometry.block_size / 512);
    inode.with(cx, |core| {
        core.file_acl = new;
        core.blocks += sectors;
    });
    Ok(())
}

/// Takes the inode's reference from its block; the last one frees the block.
fn release(
    fs: &Ext4,
    cx: &mut Cx,
    handle: &mut Handle,
    inode: &Arc<Inode>,
    block: u64,
    shared: &mut SharedBlocks,
) -> Result<(), Errno> {
    let buffer = read(fs, cx, inode, block)?;
    let (count, hash) = buffer.with(|data| (area::refcount(data), area::block_hash(data)));
    let sectors = u64::from(fs.geometry.block_size / 512);
    inode.with(cx, |core| core.file_acl = 0);
    if count > 1 {
        shared.insert(hash, block);
        inode.with(cx, |core| core.blocks = core.blocks.saturating_sub(sectors));
        return change(fs, cx, handle, &buffer, |data| area::set_refcount(data, count - 1));
    }
    shared.remove(hash, block);
    drop(buffer);
    fs.free_meta_block(cx, handle, inode, block)
}

/// A block with this content that may take one more reference.
fn find_same(
    fs: &Ext4,
    cx: &mut Cx,
    inode: &Inode,
    shared: &SharedBlocks,
    hash: u32,
    content: &[u8],
) -> Option<BufferRef> {
    for block in shared.candidates(hash) {
        let Ok(buffer) = read(fs, cx, inode, block) else { continue };
        let fits = buffer
            .with(|data| area::same_content(data, content) && area::refcount(data) < REFCOUNT_MAX);
        if fits {
            return Some(buffer);
        }
    }
    None
}

/// Makes sure that the block's checksum is set whenever it is written.
fn arm(fs: &Ext4, buffer: &BufferRef) {
    if fs.geometry.checksums.metadata {
        let sums = fs.geometry.checksums;
        buffer.set_trigger(Some(Arc::new(move |block, data: &mut [u8]| {
            area::set_checksum(&sums, block, data);
        })));
    }
}

fn change(
    fs: &Ext4,
    cx: &mut Cx,
    handle: &mut Handle,
    buffer: &BufferRef,
    change: impl FnOnce(&mut [u8]),
) -> Result<(), Errno> {
    handle.write_access(cx, buffer)?;
    buffer.with_mut(change);
    if !buffer.has_trigger() {
        arm(fs, buffer);
    }
    handle.dirty(cx, buffer)
}
