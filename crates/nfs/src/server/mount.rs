//! MOUNT version 3 (RFC 1813, appendix I).

use base::Errno;
use rt::{Cred, Cx};
use vfs::Attr;

use super::Server;
use crate::proto::PATH_MAX;
use crate::rpc::Refusal;
use crate::xdr::{Reader, Writer};

impl Server {
    /// Carries out a procedure of MOUNT and writes its results.
    pub(super) fn mount(
        &self,
        cx: &mut Cx,
        procedure: u32,
        mut args: Reader<'_>,
        w: &mut Writer,
    ) -> Result<(), Refusal> {
        match procedure {
            // NULL; UMNT and UMNTALL, of which nothing is remembered.
            0 | 3 | 4 => {}
            1 => {
                let path = args.opaque(PATH_MAX).map_err(|_| Refusal::Garbage)?;
                match self.mounted(cx, path) {
                    Ok(attr) => {
                        w.u32(0);
                        self.handle(&attr).write(w);
                        // AUTH_SYS is understood.
                        w.u32(1);
                        w.u32(1);
                    }
                    Err(errno) => w.u32(mount_status(errno)),
                }
            }
            // DUMP: nobody, since nothing is remembered.
            2 => w.bool(false),
            // EXPORT: the one, for no groups by name.
            5 => {
                w.bool(true);
                w.opaque(&self.export.path);
                w.bool(false);
                w.bool(false);
            }
            _ => return Err(Refusal::Procedure),
        }
        Ok(())
    }

    /// The directory that a MOUNT of `path` names: the root of the export or one in it. Symlinks
    /// are not followed.
    fn mounted(&self, cx: &mut Cx, path: &[u8]) -> Result<Attr, Errno> {
        let inside = self.export.inside(path).ok_or(Errno::EACCES)?;
        let own = cx.set_cred(Cred::root());
        let mut found = self.fs.getattr(cx, self.fs.root());
        for name in inside.split(|&byte| byte == b'/') {
            if let (Ok(dir), false) = (&found, name.is_empty() || name == b".") {
                found = self.fs.lookup(cx, dir.ino, name);
            }
        }
        cx.set_cred(own);
        found.and_then(|attr| if attr.is_dir() { Ok(attr) } else { Err(Errno::ENOTDIR) })
    }
}

/// `mountstat3` of an error.
fn mount_status(errno: Errno) -> u32 {
    match errno {
        Errno::EPERM | Errno::ENOENT | Errno::EIO | Errno::EACCES | Errno::ENOTDIR => {
            errno.0 as u32
        }
        Errno::EINVAL => 22,
        Errno::ENAMETOOLONG => 63,
        _ => 10006,
    }
}
