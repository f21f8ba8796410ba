//! Symbolic links: the target in the inode, or in blocks with a header for each run of them.

use base::Errno;
use rt::Cx;
use vfs::FileType;

use crate::Xfs;
use crate::alloc::AllocRequest;
use crate::bmap::Which;
use crate::buf::BufOps;
use crate::buf::meta::{ReadRequest, buf_maps};
use crate::error::Fault;
use crate::format::extent::Extent;
use crate::format::inode::ForkFormat;
use crate::format::{At, CorruptKind, Kind, Owner, remote};
use crate::fs::Resources;
use crate::inode::Inode;
use crate::trans::Trans;

/// The target of a symbolic link. May wait for the device.
///
/// # Errors
/// `EINVAL` not a symbolic link; `EUCLEAN`, `EIO`.
pub(crate) fn read_symlink(fs: &Xfs, cx: &mut Cx, inode: &Inode) -> Result<Vec<u8>, Errno> {
    if inode.kind(cx) != FileType::Symlink {
        return Err(Errno::EINVAL);
    }
    let guard = inode.lock_shared(cx)?;
    let (format, size) = inode.with(cx, |state| (state.core.format, state.core.size));
    if format == ForkFormat::Local {
        return Ok(inode.forks.read(cx).data.bytes.clone());
    }
    let target = remote_target(fs, cx, inode, size);
    drop(guard);
    target.map_err(|fault| fs.fault(fault))
}

fn remote_target(fs: &Xfs, cx: &mut Cx, inode: &Inode, size: u64) -> Result<Vec<u8>, Fault> {
    let at = At::Inode(inode.ino);
    if size == 0 || size > remote::SYMLINK_MAX {
        return Err(CorruptKind::SymlinkSize { size }.at(at).into());
    }
    let extents = inode.extents(cx, Which::Data, |list| list.to_vec())?;
    let mut target = Vec::with_capacity(size as usize);
    for extent in extents {
        if target.len() as u64 == size {
            break;
        }
        // A link needs at most a few blocks: a longer run is damage, not memory.
        let limit = remote::blocks(size, 512) as u32;
        if extent.count > limit {
            return Err(CorruptKind::SymlinkSize { size }.at(at).into());
        }
        let want = ReadRequest { kinds: &[Kind::Symlink], owner: Some(inode.ino.0), at };
        let run = [(extent.start, extent.count)];
        let (_, data) = fs.reader.read(cx, &run, &want)?;
        let left = target.len() as u64..size;
        let piece = remote::piece(&data, left, fs.geometry(), at)?;
        target.extend_from_slice(piece);
    }
    if target.len() as u64 != size {
        return Err(CorruptKind::RemoteBytes { found: target.len() as u64 }.at(at).into());
    }
    Ok(target)
}

/// Writes the target of a symbolic link into blocks of its own.
pub(crate) fn write_target(
    fs: &Xfs,
    cx: &mut Cx,
    trans: &mut Trans,
    resources: &mut Resources<'_>,
    inode: &Inode,
    target: &[u8],
) -> crate::Result<()> {
    let Resources { writer, reserved } = resources;
    let geometry = fs.geometry();
    let blocks = remote::blocks(target.len() as u64, geometry.block_size as usize);
    let (mut offset, mut done) = (0, 0);
    while done < target.len() {
        let want = AllocRequest {
            goal: geometry.ino_place(inode.ino).0,
            min_len: 1,
            max_len: (blocks - offset) as u32,
            align: 1,
            this_group: false,
            owner: Some(Owner::fork(inode.ino.0, false, offset, false)),
            metadata: true,
        };
        let found = writer.space.allocate(cx, trans, &want)?;
        reserved.take(u64::from(found.len));
        let start = geometry.join(found.start);
        let extent = Extent { offset, start, count: found.len, unwritten: false };
        inode.edit_map(cx, &writer.space, Which::Data, |cx, edit| {
            *edit.blocks += u64::from(found.len);
            edit.add(cx, trans, extent)
        })?;
        let maps = buf_maps(geometry, &[(start, found.len)]);
        let (name, kinds) = (Kind::Symlink.name(), Kind::Symlink.alone());
        let ops = BufOps { name, kinds, check: None, unmapped: false };
        let buf = trans.get_buf(cx, &maps, &ops)?;
        buf.zero();
        let part = &target[done..target.len().min(done + remote::room(buf.len()))];
        let expect = geometry.expect(maps[0].daddr, Some(inode.ino.0));
        buf.with_mut(|data| remote::emit(Kind::Symlink, data, done as u64, part, &expect));
        trans.log_buf(&buf, 0, buf.len() - 1);
        done += part.len();
        offset += u64::from(found.len);
    }
    inode.with(cx, |state| state.core.size = target.len() as u64);
    Ok(())
}
