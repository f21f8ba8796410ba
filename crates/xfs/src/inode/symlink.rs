//! Symbolic links: the target in the inode, or in blocks with a header for each run of them.

use base::Errno;
use rt::Cx;
use vfs::FileType;

use crate::Xfs;
use crate::bmap::Which;
use crate::buf::meta::ReadRequest;
use crate::error::Fault;
use crate::format::inode::ForkFormat;
use crate::format::{At, CorruptKind, Kind, remote};
use crate::inode::Inode;

impl Xfs {
    /// The target of a symbolic link. May wait for the device.
    ///
    /// # Errors
    /// `EINVAL` not a symbolic link; `EUCLEAN`, `EIO`.
    pub(crate) fn read_symlink(&self, cx: &mut Cx, inode: &Inode) -> Result<Vec<u8>, Errno> {
        if inode.kind(cx) != FileType::Symlink {
            return Err(Errno::EINVAL);
        }
        let guard = inode.lock_shared(cx)?;
        let (format, size) = inode.with(cx, |state| (state.core.format, state.core.size));
        if format == ForkFormat::Local {
            return Ok(inode.forks.read(cx).data.bytes.clone());
        }
        let target = self.remote_target(cx, inode, size);
        drop(guard);
        target.map_err(|fault| self.fault(fault))
    }

    fn remote_target(&self, cx: &mut Cx, inode: &Inode, size: u64) -> Result<Vec<u8>, Fault> {
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
            let (_, data) = self.reader.read(cx, &run, &want)?;
            let left = target.len() as u64..size;
            let piece = remote::piece(&data, left, self.geometry(), at)?;
            target.extend_from_slice(piece);
        }
        if target.len() as u64 != size {
            return Err(CorruptKind::RemoteBytes { found: target.len() as u64 }.at(at).into());
        }
        Ok(target)
    }
}
