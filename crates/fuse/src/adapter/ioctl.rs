//! The requests of ioctl(2): flags and hints of an inode, and the size of the file system.

use base::Errno;
use fuser::INodeNo;
use rt::Cx;
use vfs::{Attr, ExtentHints, FileType};

use super::Adapter;
use super::requests::Answered;
use crate::abi::*;
use crate::wire::{Answer, Request};

/// `FS_IOC_GETFLAGS`: what lsattr(1) asks.
const GETFLAGS: u32 = 0x8008_6601;
/// `FS_IOC_SETFLAGS`: what chattr(1) asks for.
const SETFLAGS: u32 = 0x4008_6602;
/// `FS_IOC_FSGETXATTR`: what the kernel asks too, before it changes a flag.
const FSGETXATTR: u32 = 0x801c_581f;
/// `FS_IOC_FSSETXATTR`.
const FSSETXATTR: u32 = 0x401c_5820;
/// Bytes of `struct fsxattr`: flags, unit of extents, their number, project, unit of copy on write.
const FSXATTR_BYTES: usize = 28;
/// The flags of `Attr::flags` that `struct fsxattr` has, and what they are there.
const XFLAGS: [(u32, u32); 6] =
    [(0x08, 0x20), (0x10, 0x08), (0x20, 0x10), (0x40, 0x80), (0x80, 0x40), (0x2000_0000, 0x200)];
/// Flags there that say which units count: of a file, for what is made in a directory, of either.
const EXTSIZE: u32 = 0x800;
const EXTSZINHERIT: u32 = 0x1000;
const COWEXTSIZE: u32 = 0x1_0000;
/// A file lies in the realtime section; what is made in a directory does.
const REALTIME: u32 = 0x1;
const RTINHERIT: u32 = 0x100;
/// Flags there that say what the file has, and are not changed: preallocated blocks, attributes.
const STATE: u32 = 0x8000_0002;

impl Adapter {
    pub(super) fn ioctl(
        &self,
        cx: &mut Cx,
        node: INodeNo,
        req: &Request,
        out: &mut Answer,
    ) -> Answered {
        let (arg, data) = req.take::<IoctlIn>()?;
        let answer = match arg.cmd {
            RESIZE_FS | XFS_GROW => {
                self.grow(cx, arg.cmd, data)?;
                Vec::new()
            }
            XFS_GEOMETRY => self.fs.xfs_geometry(cx)?,
            _ => {
                let attr = self.fs.getattr(cx, self.ino(node))?;
                self.ioctl_of_inode(cx, arg.cmd, &attr, data)?
            }
        };
        out.push(IoctlOut::default());
        out.bytes(&answer[..answer.len().min(arg.out_size as usize)]);
        Ok(())
    }

    fn ioctl_of_inode(
        &self,
        cx: &mut Cx,
        cmd: u32,
        attr: &Attr,
        data: &[u8],
    ) -> Result<Vec<u8>, Errno> {
        match cmd {
            GETFLAGS => Ok(u64::from(attr.flags).to_ne_bytes().to_vec()),
            SETFLAGS => {
                let word = data.first_chunk().ok_or(Errno::EINVAL)?;
                let flags = u32::from_ne_bytes(*word);
                vfs::permission::may_set_flags(cx.cred(), attr, flags)?;
                self.fs.set_flags(cx, attr.ino, flags)?;
                Ok(Vec::new())
            }
            FSGETXATTR => {
                let mut answer = vec![0; FSXATTR_BYTES];
                let hints = self.hints(cx, attr)?;
                let has = XFLAGS.iter().filter(|(flag, _)| attr.flags & flag != 0);
                let flags: u32 = has.fold(0, |flags, (_, same)| flags | same);
                let words = [flags | hint_flags(attr, hints), hints.extent, 0, 0, hints.cow];
                for (bytes, word) in answer.chunks_exact_mut(4).zip(words) {
                    bytes.copy_from_slice(&word.to_ne_bytes());
                }
                Ok(answer)
            }
            FSSETXATTR => {
                self.set_fsxattr(cx, attr, data.first_chunk().ok_or(Errno::EINVAL)?)?;
                Ok(Vec::new())
            }
            _ => Err(Errno::ENOTTY),
        }
    }

    /// None where the format keeps none.
    fn hints(&self, cx: &mut Cx, attr: &Attr) -> Result<ExtentHints, Errno> {
        match self.fs.extent_hints(cx, attr.ino) {
            Err(Errno::EOPNOTSUPP) => Ok(ExtentHints::default()),
            found => found,
        }
    }

    fn set_fsxattr(
        &self,
        cx: &mut Cx,
        attr: &Attr,
        data: &[u8; FSXATTR_BYTES],
    ) -> Result<(), Errno> {
        let word = |index: usize| {
            let bytes = data[4 * index..].first_chunk().expect("seven words");
            u32::from_ne_bytes(*bytes)
        };
        let (asked, project) = (word(0), word(3));
        let mine = XFLAGS.iter().fold(0, |flags, row| flags | row.0);
        let wanted = XFLAGS.iter().filter(|row| asked & row.1 != 0);
        let flags = wanted.fold(attr.flags & !mine, |flags, row| flags | row.0);
        let (kept, section) = flags_of(attr);
        let of = |flag: u32, bytes: u32| if asked & flag != 0 { bytes } else { 0 };
        let hints = ExtentHints {
            extent: of(kept, word(1)),
            cow: of(COWEXTSIZE, word(4)),
            realtime: asked & section != 0,
        };
        let units = kept | section | COWEXTSIZE | STATE;
        let known = XFLAGS.iter().fold(units, |flags, row| flags | row.1);
        if asked & !known != 0 || project != 0 {
            return Err(Errno::EOPNOTSUPP);
        }
        if (hints.extent, hints.cow) != (word(1), word(4)) {
            // A unit that does not count.
            return Err(Errno::EINVAL);
        }
        vfs::permission::may_set_flags(cx.cred(), attr, flags)?;
        if hints != self.hints(cx, attr)? {
            self.fs.set_extent_hints(cx, attr.ino, hints)?;
        }
        if flags != attr.flags {
            self.fs.set_flags(cx, attr.ino, flags)?;
        }
        Ok(())
    }

    /// Makes the file system larger, for root and for who mounted it.
    fn grow(&self, cx: &mut Cx, cmd: u32, data: &[u8]) -> Answered {
        // As Linux asks for CAP_SYS_RESOURCE or CAP_SYS_ADMIN: who mounted it has that here.
        if ![0, rustix::process::getuid().as_raw()].contains(&cx.cred().uid) {
            return Err(Errno::EPERM);
        }
        let blocks = u64::from_ne_bytes(*data.first_chunk().ok_or(Errno::EINVAL)?);
        if cmd == XFS_GROW {
            const IMAXPCT: std::ops::Range<usize> = 28..32;
            let geometry = self.fs.xfs_geometry(cx)?;
            if data.get(8..12) != geometry.get(IMAXPCT) {
                return Err(Errno::EOPNOTSUPP);
            }
        }
        self.fs.grow(cx, blocks)
    }
}

/// The flags for the unit of extents of an inode and for the section.
fn flags_of(attr: &Attr) -> (u32, u32) {
    match attr.kind == FileType::Directory {
        true => (EXTSZINHERIT, RTINHERIT),
        false => (EXTSIZE, REALTIME),
    }
}

/// The flags for what an inode has.
fn hint_flags(attr: &Attr, hints: ExtentHints) -> u32 {
    let (extent, section) = flags_of(attr);
    [(hints.extent > 0, extent), (hints.cow > 0, COWEXTSIZE), (hints.realtime, section)]
        .iter()
        .filter(|row| row.0)
        .fold(0, |flags, row| flags | row.1)
}
