//! Symbolic links: their targets lie in the inode, or in a block of their own; encrypted where the
//! directory is.

use std::borrow::Cow;
use std::sync::Arc;

use base::{Errno, Ino};
use fscrypt::Context;
use rt::Cx;
use vfs::{FileType, NewNode};

use crate::Ext4;
use crate::attr::inline;
use crate::crypto;
use crate::format::features::Incompat;
use crate::format::inode::BLOCK_AREA;
use crate::format::{At, CorruptKind, InodeFlags, extent};
use crate::inode::Inode;
use crate::trans::ext4_jbd2::Handle;

/// Bytes of a new target with its zero byte: those of a block, and no more than a path has.
fn target_limit(fs: &Ext4) -> usize {
    (fs.sb.geometry.block_size as usize).min(vfs::PATH_MAX)
}

/// Checks what a new symbolic link is to hold; returns how many bytes it stores, 0 for others.
pub(super) fn check_target(
    fs: &Ext4,
    node: &NewNode,
    context: Option<&Context>,
) -> Result<usize, Errno> {
    let limit = target_limit(fs);
    let target = match (node.kind, node.target) {
        (FileType::Symlink, None) => return Err(Errno::EINVAL),
        (FileType::Symlink, Some([])) => return Err(Errno::ENOENT),
        (FileType::Symlink, Some(target)) => target,
        _ => return Ok(0),
    };
    let stored = match context {
        // A zero byte ends the target, so it must fit with one.
        None if target.len() >= limit => return Err(Errno::ENAMETOOLONG),
        None => target.len(),
        Some(context) => {
            let size = context.policy.target_size(target.len(), limit);
            size.map_err(|error| crypto::errno(&error))?
        }
    };
    if target.contains(&0) { Err(Errno::EINVAL) } else { Ok(stored) }
}

/// Puts the target of a new symbolic link into the inode, or into a block of its own.
pub(super) fn write_target(
    fs: &Ext4,
    cx: &mut Cx,
    handle: &mut Handle,
    inode: &Arc<Inode>,
    target: &[u8],
) -> Result<(), Errno> {
    let limit = target_limit(fs);
    let target = match inode.crypt() {
        None => Cow::Borrowed(target),
        Some(crypt) => {
            let stored = crypt.key()?.encrypt_target(target, limit);
            Cow::Owned(stored.map_err(|error| crypto::errno(&error))?)
        }
    };
    if target.len() < BLOCK_AREA {
        inode.with(cx, |core| {
            core.block = [0; BLOCK_AREA];
            core.block[..target.len()].copy_from_slice(&target);
            core.size = target.len() as u64;
        });
        return fs.inodes.mark_dirty(cx, handle, inode);
    }
    if fs.sb.geometry.features.incompat.contains(Incompat::EXTENTS) {
        inode.with(cx, |core| {
            core.flags |= InodeFlags::EXTENTS;
            extent::init_node(&mut core.block, extent::ROOT_MAX, 0);
        });
    }
    let (_, buffer) = fs.inodes.bmap(inode).append_block(cx, handle)?;
    buffer.with_mut(|data| data[..target.len()].copy_from_slice(&target));
    handle.dirty(cx, &buffer)?;
    inode.with(cx, |core| core.size = target.len() as u64);
    fs.inodes.mark_dirty(cx, handle, inode)
}

/// Reads a symbolic link: see [`vfs::FileSystem::readlink`].
pub(crate) fn readlink(fs: &Ext4, cx: &mut Cx, ino: Ino) -> Result<Vec<u8>, Errno> {
    let inode = fs.iget(cx, ino)?;
    if inode.kind(cx) != FileType::Symlink {
        return Err(Errno::EINVAL);
    }
    target_of(fs, cx, &inode)
}

/// What is shown of the target of a symbolic link.
pub(super) fn target_of(fs: &Ext4, cx: &mut Cx, inode: &Arc<Inode>) -> Result<Vec<u8>, Errno> {
    let stored = stored_target(fs, cx, inode)?;
    let Some(crypt) = inode.crypt() else { return Ok(stored) };
    crypt.shown_target(&stored).map_err(|_| {
        let (size, limit) = (stored.len() as u64, u64::from(fs.sb.geometry.block_size));
        fs.sb.corrupt(cx, &CorruptKind::SymlinkSize { size, limit }.at(At::Inode(inode.ino)))
    })
}

/// What a symbolic link stores.
fn stored_target(fs: &Ext4, cx: &mut Cx, inode: &Arc<Inode>) -> Result<Vec<u8>, Errno> {
    let ino = inode.ino;
    let (size, inline, fast) = inode.with(cx, |core| {
        if core.dead {
            return Err(Errno::ESTALE);
        }
        let size = core.size as usize;
        Ok((
            size,
            core.is_inline(),
            core.is_fast_symlink().then(|| core.block[..size.min(BLOCK_AREA)].to_vec()),
        ))
    })?;
    let limit = u64::from(fs.sb.geometry.block_size);
    let bad = CorruptKind::SymlinkSize { size: size as u64, limit };
    if size == 0 || size as u64 >= limit {
        return Err(fs.sb.corrupt(cx, &bad.at(At::Inode(ino))));
    }
    if let Some(target) = fast {
        return Ok(target);
    }
    if inline {
        let mut content = inline::read(&fs.inodes, cx, inode)?;
        content.truncate(size);
        return Ok(content);
    }
    let target =
        fs.inodes.bmap(inode).bread(cx, 0)?.map(|buffer| buffer.with(|data| data[..size].to_vec()));
    if inode.with(cx, |core| core.dead) {
        // The block was being freed while we read it.
        return Err(Errno::ESTALE);
    }
    target.ok_or_else(|| fs.sb.corrupt(cx, &bad.at(At::Inode(ino))))
}
