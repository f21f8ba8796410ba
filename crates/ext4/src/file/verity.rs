//! Files with verity: their content is compared with a Merkle tree before anybody sees it, and
//! never changes again.
//!
//! Blocks of the tree are read and verified up to the root when a read maps its range, and kept
//! with the inode; content is hashed when it comes from the device ([`IomapOps::decode`]), so once
//! for each page in memory. Of an encrypted file the hashes are those of the plain content, and the
//! tree is encrypted like content.
//!
//! Enabling makes the inode an orphan while the tree is written: a crash before the end leaves a
//! file without verity, whose blocks behind its end the next mount frees.
//!
//! [`IomapOps::decode`]: cache::IomapOps::decode

use std::sync::Arc;

use base::{Errno, FsBlock, Page};
use block::BioFlags;
use cache::IomapKind;
use rt::Cx;

use crate::bmap::map::{Create, State};
use crate::format::InodeFlags;
use crate::format::verity::{Descriptor, LocateError, locate, tree_start};
use crate::inode::{Inode, Inodes};
use crate::trans::credits;
use crate::verity::{InodeVerity, Verity};

/// Bytes of the tree that are written at once.
const WRITE_STEP: usize = 1 << 20;

/// Has the hashes of a part of a file at hand before it is read. What is no content is zeros, which
/// are compared here.
///
/// # Errors
/// `EIO` the tree, or zeros, differ from what the hashes say; `EUCLEAN` the tree is damaged.
pub(crate) fn prepare(
    cx: &mut Cx,
    fs: &Inodes,
    inode: &Inode,
    known: &InodeVerity,
    part: &cache::Iomap,
) -> Result<(), Errno> {
    let verity = tree(cx, fs, inode, known)?;
    let zeros = !matches!(part.kind, IomapKind::Mapped(_));
    for number in verity.numbers(part.offset..part.end()) {
        leaf(cx, fs, inode, verity, number)?;
        if zeros && verity.expected(number).as_deref() != Some(verity.zeros()) {
            return Err(note_difference(fs, inode, number * verity.block_size()));
        }
    }
    Ok(())
}

/// Has the hash of block `number` of the content at hand.
fn leaf(
    cx: &mut Cx,
    fs: &Inodes,
    inode: &Inode,
    verity: &Verity,
    number: u64,
) -> Result<(), Errno> {
    // Up to a block that is verified, or to the root; then down again.
    let (mut level, mut at, mut missing) = (0, number, Vec::new());
    while let Some(place) = verity.levels.get(level) {
        at /= verity.per_block();
        if verity.blocks.lock(cx).contains_key(&(level, at)) {
            break;
        }
        missing.push((level, at, place));
        level += 1;
    }
    for (level, at, place) in missing.into_iter().rev() {
        let size = verity.block_size();
        let in_file = tree_start(verity.descriptor.data_size) + place.start + at * size;
        let block = read(cx, fs, inode, in_file, size as usize)?;
        let above = verity.blocks.lock(cx).get(&(level + 1, at / verity.per_block())).cloned();
        let expected = match &above {
            Some(above) => verity.hash_in(above, at),
            None => &verity.descriptor.root_hash,
        };
        if verity.descriptor.params.hash(&block) != expected {
            return Err(note_difference(fs, inode, in_file));
        }
        verity.blocks.lock(cx).insert((level, at), block.into());
    }
    Ok(())
}

/// The tree of a file, found at first use.
///
/// # Errors
/// `EUCLEAN` its descriptor is damaged or not supported; `EIO`.
pub(crate) fn tree<'a>(
    cx: &mut Cx,
    fs: &Inodes,
    inode: &Inode,
    known: &'a InodeVerity,
) -> Result<&'a Verity, Errno> {
    if let Some(found) = known.found() {
        return found;
    }
    match load(cx, fs, inode) {
        // Device errors may pass.
        Err(Errno::EIO) => Err(Errno::EIO),
        found => known.keep(found),
    }
}

/// Takes note of content that differs from its hash.
pub(crate) fn note_difference(fs: &Inodes, inode: &Inode, at: u64) -> Errno {
    let text = format!("inode {}: the block at byte {at} is not what verity says", inode.ino);
    fs.sb.note_read_error(text);
    Errno::EIO
}

/// Bytes behind the end of a file, decrypted.
fn read(cx: &mut Cx, fs: &Inodes, inode: &Inode, at: u64, len: usize) -> Result<Vec<u8>, Errno> {
    let bits = fs.sb.geometry.block_bits;
    let (first, end) = (at >> bits, (at + len as u64).div_ceil(1 << bits));
    let mut bytes = Vec::with_capacity(((end - first) << bits) as usize);
    for lblk in first..end {
        let number = u32::try_from(lblk).map_err(|_| Errno::EFBIG)?;
        let buffer = fs.bmap(inode).bread(cx, number)?.ok_or(Errno::EFSCORRUPTED)?;
        let from = bytes.len();
        buffer.with(|data| bytes.extend_from_slice(data));
        if let Some(crypt) = inode.crypt() {
            crypt.key()?.decrypt(lblk << bits, &mut bytes[from..]);
        }
    }
    let from = (at - (first << bits)) as usize;
    Ok(bytes[from..from + len].to_vec())
}

/// The end of a file's last block, in bytes: behind `from`, where its tree begins.
fn blocks_end(cx: &mut Cx, fs: &Inodes, inode: &Inode, from: u64) -> Result<u64, Errno> {
    let bits = fs.sb.geometry.block_bits;
    let mut at = u32::try_from(from >> bits).map_err(|_| Errno::EFBIG)?;
    let mut end = at;
    while at < u32::MAX {
        let run = fs.bmap(inode).map_lookup(cx, at, u32::MAX - at)?;
        at = run.lblk.saturating_add(run.len);
        if run.state == State::Written {
            end = at;
        }
    }
    Ok(u64::from(end) << bits)
}

fn load(cx: &mut Cx, fs: &Inodes, inode: &Inode) -> Result<Verity, Errno> {
    let size = inode.size(cx);
    let end = blocks_end(cx, fs, inode, tree_start(size))?;
    let block = fs.sb.geometry.block_size;
    match locate(size, block, end, |at, len| read(cx, fs, inode, at, len)) {
        Ok((descriptor, levels)) => Ok(Verity::new(descriptor, levels)),
        Err(LocateError::Read(errno)) => Err(errno),
        Err(LocateError::Verity(error)) => {
            fs.sb.note_read_error(format!("inode {}: {error}", inode.ino));
            Err(Errno::EFSCORRUPTED)
        }
    }
}

impl Inodes {
    /// Writes tree and descriptor behind the end of a file, and says that it has verity.
    pub(crate) fn write_verity(
        &self,
        cx: &mut Cx,
        inode: &Arc<Inode>,
        mut bytes: Vec<u8>,
        descriptor: &Descriptor,
    ) -> Result<(), Errno> {
        let block = self.sb.geometry.block_size as usize;
        bytes.resize(bytes.len().next_multiple_of(block), 0);
        let emitted = descriptor.emit();
        bytes.extend(&emitted);
        bytes.resize((bytes.len() + 4).next_multiple_of(block), 0);
        let end = bytes.len() - 4;
        bytes[end..].copy_from_slice(&(emitted.len() as u32).to_le_bytes());

        let mut handle = self.sb.journal_start(cx, credits::ORPHAN + credits::INODE)?;
        let orphan = self.orphan_add(cx, &mut handle, inode);
        let orphan = orphan.and_then(|()| self.mark_dirty(cx, &mut handle, inode));
        handle.stop(cx)?;
        orphan?;
        let start = tree_start(descriptor.data_size);
        self.write_behind(cx, inode, start, &mut bytes)?;
        let mut handle = self.sb.journal_start(cx, credits::ORPHAN + credits::INODE)?;
        inode.with(cx, |core| core.flags |= InodeFlags::VERITY);
        let done = self.orphan_del_named(cx, &mut handle, inode);
        let done = done.and_then(|()| self.mark_dirty(cx, &mut handle, inode));
        let stopped = handle.stop(cx);
        done.and(stopped)
    }

    /// Writes whole blocks behind the end of a file, whose size stays: first to the device, then
    /// into its map.
    fn write_behind(
        &self,
        cx: &mut Cx,
        inode: &Arc<Inode>,
        start: u64,
        bytes: &mut [u8],
    ) -> Result<(), Errno> {
        let bits = self.sb.geometry.block_bits;
        if let Some(crypt) = inode.crypt() {
            crypt.key()?.encrypt(start, bytes);
        }
        let end = (start + bytes.len() as u64) >> bits;
        let end = u32::try_from(end).map_err(|_| Errno::EFBIG)?;
        let mut lblk = (start >> bits) as u32;
        let mut retries = 0;
        while lblk < end {
            match self.preallocate_step(cx, inode, lblk..end) {
                Err(Errno::ENOSPC) if self.should_retry_alloc(cx, &mut retries) => {}
                step => lblk = step?,
            }
        }
        let mut lblk = (start >> bits) as u32;
        let mut rest = &*bytes;
        while lblk < end {
            let want = (end - lblk).min((WRITE_STEP >> bits).max(1) as u32);
            let run = self.bmap(inode).map_lookup(cx, lblk, want)?;
            if run.state != State::Unwritten {
                return Err(Errno::EFSCORRUPTED);
            }
            let (now, later) = rest.split_at((run.len as usize) << bits);
            let mut page = Page::zeroed(now.len());
            page.make_mut().copy_from_slice(now);
            self.sb.buffers.forget(cx, run.pblk, run.len.into());
            let sector = FsBlock(run.pblk).sector(self.sb.geometry.block_size);
            let written = self.sb.queue.write(cx, sector, page, BioFlags::empty());
            written.map_err(|error| error.to_errno())?;
            self.mark_written(cx, inode, lblk, run.len)?;
            (rest, lblk) = (later, lblk + run.len);
        }
        Ok(())
    }

    fn mark_written(
        &self,
        cx: &mut Cx,
        inode: &Inode,
        mut lblk: u32,
        len: u32,
    ) -> Result<(), Errno> {
        let end = lblk + len;
        while lblk < end {
            let mut handle = self.sb.journal_start(cx, self.bmap(inode).map_credits(cx))?;
            let create = Create::metadata();
            let created = self.bmap(inode).map_create(cx, &mut handle, lblk, end - lblk, create);
            let marked = self.mark_dirty(cx, &mut handle, inode);
            handle.stop(cx)?;
            marked?;
            lblk += created?.0.len;
        }
        Ok(())
    }
}
