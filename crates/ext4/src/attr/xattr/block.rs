//! Attribute blocks: reading, sharing, replacing.

use std::sync::Arc;

use base::Errno;
use cache::BufferRef;
use rt::Cx;

use super::{Edit, value};
use crate::format::At;
use crate::format::xattr::{self as area, REFCOUNT_MAX, Xattr, XattrArea};
use crate::inode::{Inode, Inodes};
use crate::mbcache::SharedBlocks;
use crate::trans::ext4_jbd2::Handle;

/// Reads an attribute block, checked when it comes into memory.
///
/// # Errors
/// `EUCLEAN` where it is damaged, `EIO`.
pub(super) fn read(
    fs: &Inodes,
    cx: &mut Cx,
    inode: &Inode,
    block: u64,
) -> Result<BufferRef, Errno> {
    let buffer = fs.sb.read_block(cx, block)?;
    if !buffer.verified() {
        let checked = buffer.with(|data| {
            if fs.sb.geometry.checksums.metadata {
                area::verify_checksum(&fs.sb.geometry.checksums, block, data)?;
            }
            area::check(data, XattrArea::Block, fs.sb.geometry.large_values())
        });
        checked.map_err(|kind| fs.sb.corrupt(cx, &kind.at(At::Block(inode.ino, block))))?;
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
pub(super) fn replace(edit: &mut Edit, cx: &mut Cx, list: &[Xattr]) -> Result<(), Errno> {
    let Edit { fs, inode, .. } = *edit;
    let old = inode.with(cx, |core| core.file_acl);
    let mut shared = fs.xattr_blocks.lock(cx);
    if list.is_empty() {
        return if old == 0 { Ok(()) } else { release(edit, cx, &mut shared, old) };
    }
    let mut content = vec![0; fs.sb.geometry.block_size as usize];
    let fits = area::emit(&mut content, XattrArea::Block, list);
    assert!(fits, "the space in the block was counted before");
    let hash = area::block_hash(&content);
    if let Some(buffer) = find_same(fs, cx, inode, &shared, hash, &content) {
        if buffer.block() == old {
            return Ok(());
        }
        if old == 0 {
            inode.reserve_quota(cx, &fs.sb, 1, 1)?;
        }
        change(fs, cx, edit.handle, &buffer, |data| {
            area::set_refcount(data, area::refcount(data) + 1)
        })?;
        return adopt(edit, cx, &mut shared, buffer.block());
    }
    if old != 0 {
        let buffer = read(fs, cx, inode, old)?;
        let (count, before) = buffer.with(|data| (area::refcount(data), area::block_hash(data)));
        if count == 1 {
            shared.blocks.remove(before, old);
            shared.blocks.insert(hash, old);
            let was = entries(fs, cx, inode, &buffer)?;
            value::follow(edit, cx, &mut shared, &was, list)?;
            return change(fs, cx, edit.handle, &buffer, |data| data.copy_from_slice(&content));
        }
    }
    if old == 0 && inode.is_regular(cx) {
        inode.reserve_quota(cx, &fs.sb, 1, 1)?;
    }
    let buffer = fs.bmap(inode).alloc_meta_block(cx, edit.handle)?;
    buffer.with_mut(|data| data.copy_from_slice(&content));
    buffer.set_verified(true);
    arm(fs, &buffer);
    edit.handle.dirty(cx, &buffer)?;
    shared.blocks.insert(hash, buffer.block());
    value::follow(edit, cx, &mut shared, &[], list)?;
    // The allocation has counted the new block for the inode.
    let sectors = fs.sb.geometry.cluster_sectors();
    inode.with(cx, |core| core.blocks -= sectors);
    adopt(edit, cx, &mut shared, buffer.block())
}

/// The attributes in a block.
pub(super) fn entries(
    fs: &Inodes,
    cx: &Cx,
    inode: &Inode,
    buffer: &BufferRef,
) -> Result<Vec<Xattr>, Errno> {
    let mut list = Vec::new();
    let large = fs.sb.geometry.large_values();
    let seen = buffer
        .with(|data| super::walk(data, XattrArea::Block, large, &mut |e| list.push(Xattr::of(e))));
    seen.map_err(|kind| fs.sb.corrupt(cx, &kind.at(At::Block(inode.ino, buffer.block()))))?;
    Ok(list)
}

/// Takes one value out of an inode's block where that belongs to it alone, else lets go of the
/// block. Returns what it charged for: the inode is being freed, a step at a time.
///
/// # Errors
/// `EUCLEAN`, `EIO`.
pub(super) fn shrink(edit: &mut Edit, cx: &mut Cx) -> Result<(), Errno> {
    let Edit { fs, inode, .. } = *edit;
    let old = inode.with(cx, |core| core.file_acl);
    let mut shared = fs.xattr_blocks.lock(cx);
    let buffer = read(fs, cx, inode, old)?;
    let (count, before) = buffer.with(|data| (area::refcount(data), area::block_hash(data)));
    let was = entries(fs, cx, inode, &buffer)?;
    let Some(at) = was.iter().position(|xattr| xattr.large.is_some()).filter(|_| count == 1) else {
        return release(edit, cx, &mut shared, old);
    };
    let mut left = was.clone();
    left.remove(at);
    value::follow(edit, cx, &mut shared, &was, &left)?;
    shared.blocks.remove(before, old);
    if left.is_empty() {
        return release_content(edit, cx, buffer, old);
    }
    change(fs, cx, edit.handle, &buffer, |data| {
        let fits = area::emit(data, XattrArea::Block, &left);
        assert!(fits, "there was room for one more");
    })
}

/// Makes `new`, which counts the inode already, its block instead of the one that it has.
fn adopt(edit: &mut Edit, cx: &mut Cx, shared: &mut SharedBlocks, new: u64) -> Result<(), Errno> {
    let Edit { fs, inode, .. } = *edit;
    let old = inode.with(cx, |core| core.file_acl);
    if old != 0 {
        release(edit, cx, shared, old)?;
    }
    // Every inode counts a shared block as its own.
    let sectors = fs.sb.geometry.cluster_sectors();
    inode.with(cx, |core| {
        core.file_acl = new;
        core.blocks += sectors;
    });
    Ok(())
}

/// Takes the inode's reference from its block; the last one frees the block.
fn release(
    edit: &mut Edit,
    cx: &mut Cx,
    shared: &mut SharedBlocks,
    block: u64,
) -> Result<(), Errno> {
    let Edit { fs, inode, .. } = *edit;
    let buffer = read(fs, cx, inode, block)?;
    let (count, hash) = buffer.with(|data| (area::refcount(data), area::block_hash(data)));
    let sectors = fs.sb.geometry.cluster_sectors();
    if count > 1 {
        shared.blocks.insert(hash, block);
        inode.with(cx, |core| {
            core.file_acl = 0;
            core.blocks = core.blocks.saturating_sub(sectors);
        });
        return change(fs, cx, edit.handle, &buffer, |data| area::set_refcount(data, count - 1));
    }
    shared.blocks.remove(hash, block);
    let was = entries(fs, cx, inode, &buffer)?;
    value::follow(edit, cx, shared, &was, &[])?;
    release_content(edit, cx, buffer, block)
}

/// Frees the block of an inode.
fn release_content(
    edit: &mut Edit,
    cx: &mut Cx,
    buffer: BufferRef,
    block: u64,
) -> Result<(), Errno> {
    let Edit { fs, inode, .. } = *edit;
    inode.with(cx, |core| core.file_acl = 0);
    drop(buffer);
    fs.bmap(inode).free_meta_block(cx, edit.handle, block)
}

/// A block with this content that may take one more reference.
fn find_same(
    fs: &Inodes,
    cx: &mut Cx,
    inode: &Inode,
    shared: &SharedBlocks,
    hash: u32,
    content: &[u8],
) -> Option<BufferRef> {
    for block in shared.blocks.candidates(hash) {
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
fn arm(fs: &Inodes, buffer: &BufferRef) {
    if fs.sb.geometry.checksums.metadata {
        let sums = fs.sb.geometry.checksums;
        buffer.set_trigger(Some(Arc::new(move |block, data: &mut [u8]| {
            area::set_checksum(&sums, block, data);
        })));
    }
}

fn change(
    fs: &Inodes,
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
