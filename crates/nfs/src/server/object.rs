//! Procedures on objects: attributes, content, limits.

use std::sync::atomic::Ordering;

use base::Errno;
use rt::Cx;
use vfs::permission::{self, Access};
use vfs::{Attr, FileType};

use super::Server;
use crate::proto::*;
use crate::xdr::Writer;

type Done = Result<(), Status>;

impl Server {
    /// Every procedure whose results borrow nothing from the file system.
    pub(super) fn object_call(&self, cx: &mut Cx, call: &Call<'_>, reply: &mut Reply<'_>) -> Done {
        match call {
            Call::Null => Ok(()),
            Call::Getattr { handle } => {
                let attr = self.object(cx, handle)?;
                reply.attr = Some(self.fattr(&attr));
                Ok(())
            }
            Call::Setattr { handle, set, guard } => self.setattr(cx, handle, set, *guard, reply),
            Call::Lookup { dir, name } => self.lookup(cx, dir, name, reply),
            Call::Access { handle, access } => {
                let attr = self.object(cx, handle)?;
                reply.attr = Some(self.fattr(&attr));
                reply.body = Body::Access(self.access(cx, &attr, *access));
                Ok(())
            }
            Call::Write { handle, offset, stable, data } => {
                self.write(cx, handle, *offset, *stable, data, reply)
            }
            Call::Commit { handle, .. } => self.commit(cx, handle, reply),
            Call::Create { .. }
            | Call::Mkdir { .. }
            | Call::Symlink { .. }
            | Call::Mknod { .. } => self.make(cx, call, reply),
            Call::Remove { dir, name } => self.remove(cx, dir, name, false, reply),
            Call::Rmdir { dir, name } => self.remove(cx, dir, name, true, reply),
            Call::Rename { from, old, to, new } => self.rename(cx, (from, old), (to, new), reply),
            Call::Link { handle, dir, name } => self.link(cx, handle, dir, name, reply),
            Call::Fsstat { handle } => self.fsstat(cx, handle, reply),
            Call::Fsinfo { handle } => {
                let attr = self.object(cx, handle)?;
                reply.attr = Some(self.fattr(&attr));
                reply.body = Body::Fsinfo(limits());
                Ok(())
            }
            Call::Pathconf { handle } => {
                let attr = self.object(cx, handle)?;
                let state = self.fs.statfs(cx).map_err(Status::of)?;
                reply.attr = Some(self.fattr(&attr));
                reply.body = Body::Pathconf { linkmax: 65000, name_max: state.name_max };
                Ok(())
            }
            Call::Read { .. }
            | Call::Readlink { .. }
            | Call::Readdir { .. }
            | Call::Readdirplus { .. } => Err(Status::SERVERFAULT),
        }
    }

    fn setattr(
        &self,
        cx: &mut Cx,
        handle: &Handle,
        set: &Sattr,
        guard: Option<NfsTime>,
        reply: &mut Reply<'_>,
    ) -> Done {
        let _alone = self.changing(handle).lock(cx);
        let attr = self.object(cx, handle)?;
        let done = self.set_attributes(cx, &attr, set, guard);
        reply.wcc = self.wcc(cx, &attr);
        done
    }

    fn set_attributes(
        &self,
        cx: &mut Cx,
        attr: &Attr,
        set: &Sattr,
        guard: Option<NfsTime>,
    ) -> Done {
        self.must_write()?;
        if guard.is_some_and(|ctime| ctime != NfsTime::of(attr.ctime)) {
            return Err(Status::NOT_SYNC);
        }
        if set.size.is_some() {
            self.may_change(cx, attr, Access::WRITE)?;
        }
        let wanted = set.resolve(cx.realtime());
        // Who may write may set the times to now.
        let now = |time: SetTime| time != SetTime::Keep;
        let touches = (now(set.atime) && set.atime == SetTime::Now)
            || (now(set.mtime) && set.mtime == SetTime::Now);
        let exact = matches!(set.atime, SetTime::To(_)) || matches!(set.mtime, SetTime::To(_));
        let others = set.mode.is_some() || set.uid.is_some() || set.gid.is_some() || exact;
        let wanted =
            if touches && !others && permission::access(cx, &*self.fs, attr, Access::WRITE).is_ok()
            {
                wanted
            } else {
                permission::may_set(cx.cred(), attr, &wanted).map_err(Status::of)?
            };
        self.fs.setattr(cx, attr.ino, &wanted).map(drop).map_err(Status::of)
    }

    /// May the caller read or change the content? The owner always: his client has checked at open,
    /// when the mode may have been another.
    pub(super) fn may_change(&self, cx: &mut Cx, attr: &Attr, want: Access) -> Done {
        let immutable = attr.flags & permission::IMMUTABLE != 0 && want.contains(Access::WRITE);
        if cx.cred().uid == attr.uid && !immutable {
            return Ok(());
        }
        permission::access(cx, &*self.fs, attr, want).map_err(Status::of)
    }

    fn access(&self, cx: &mut Cx, attr: &Attr, wanted: u32) -> u32 {
        let mut may = |want| permission::access(cx, &*self.fs, attr, want).is_ok();
        let (read, exec) = (may(Access::READ), may(Access::EXEC));
        let write = may(Access::WRITE) && !self.export.read_only;
        let dir = attr.is_dir();
        let mut granted = 0;
        for (bit, may) in [
            (ACCESS_READ, read),
            (ACCESS_LOOKUP, dir && exec),
            (ACCESS_MODIFY, write && (!dir || exec)),
            (ACCESS_EXTEND, write && (!dir || exec)),
            (ACCESS_DELETE, dir && write && exec),
            (ACCESS_EXECUTE, !dir && exec),
        ] {
            granted |= if may { bit } else { 0 };
        }
        granted & wanted
    }

    /// Reads directly into the answer.
    pub(super) fn read(
        &self,
        cx: &mut Cx,
        handle: &Handle,
        offset: u64,
        count: u32,
        w: &mut Writer,
    ) {
        let start = w.out.len();
        let mut reply = Reply::of(Status::OK);
        let mut done = || -> Done {
            let attr = self.object(cx, handle)?;
            reply.attr = Some(self.fattr(&attr));
            attr.kind.check_regular().map_err(Status::of)?;
            // A program is read to be executed, too.
            if self.may_change(cx, &attr, Access::READ).is_err() {
                self.may_change(cx, &attr, Access::EXEC)?;
            }
            let count = u64::from(count).min(DATA_MAX as u64);
            let count = count.min(attr.size.saturating_sub(offset)) as usize;
            reply.body = Body::Read { eof: true, data: &[] };
            reply.write(Proc::Read, w);
            let data = w.out.len();
            w.out.resize(data + count, 0);
            let read = self.fs.read(cx, attr.ino, offset, &mut w.out[data..]);
            let read = read.map_err(Status::of)?;
            w.out.truncate(data + read);
            w.pad(read);
            let eof = u32::from(offset.saturating_add(read as u64) >= attr.size);
            // Count, end and length lie in front of the data.
            for (at, word) in [(12, read as u32), (8, eof), (4, read as u32)] {
                w.out[data - at..data - at + 4].copy_from_slice(&word.to_be_bytes());
            }
            self.counters.read_bytes.fetch_add(read as u64, Ordering::Relaxed);
            Ok(())
        };
        if let Err(status) = done() {
            w.out.truncate(start);
            Reply { status, body: Body::None, ..reply }.write(Proc::Read, w);
        }
    }

    pub(super) fn readlink(&self, cx: &mut Cx, handle: &Handle, w: &mut Writer) {
        let mut reply = Reply::of(Status::OK);
        let mut target = || -> Result<Vec<u8>, Status> {
            let attr = self.object(cx, handle)?;
            reply.attr = Some(self.fattr(&attr));
            if attr.kind != FileType::Symlink {
                return Err(Status::of(Errno::EINVAL));
            }
            self.fs.readlink(cx, attr.ino).map_err(Status::of)
        };
        match target() {
            Ok(target) => {
                Reply { body: Body::Target(&target), ..reply }.write(Proc::Readlink, w);
            }
            Err(status) => Reply { status, ..reply }.write(Proc::Readlink, w),
        }
    }

    fn write(
        &self,
        cx: &mut Cx,
        handle: &Handle,
        offset: u64,
        stable: Stable,
        data: &[u8],
        reply: &mut Reply<'_>,
    ) -> Done {
        let alone = self.changing(handle).lock(cx);
        let attr = self.object(cx, handle)?;
        let written = self.write_data(cx, &attr, offset, data);
        reply.wcc = self.wcc(cx, &attr);
        drop(alone);
        let count = written?;
        if stable != Stable::Unstable {
            self.sync(cx, &attr, stable == Stable::DataSync)?;
        }
        self.counters.write_bytes.fetch_add(count as u64, Ordering::Relaxed);
        let stable_write = u64::from(stable != Stable::Unstable);
        self.counters.stable_writes.fetch_add(stable_write, Ordering::Relaxed);
        reply.body = Body::Write { count: count as u32, committed: stable, verf: self.verf() };
        Ok(())
    }

    fn write_data(
        &self,
        cx: &mut Cx,
        attr: &Attr,
        offset: u64,
        data: &[u8],
    ) -> Result<usize, Status> {
        self.must_write()?;
        attr.kind.check_regular().map_err(Status::of)?;
        self.may_change(cx, attr, Access::WRITE)?;
        if !cx.cred().is_root() && permission::without_set_id(attr.mode) != attr.mode {
            let mode = Some(permission::without_set_id(attr.mode));
            let set = vfs::SetAttr { mode, ..vfs::SetAttr::default() };
            self.fs.setattr(cx, attr.ino, &set).map_err(Status::of)?;
        }
        match data.is_empty() {
            true => Ok(0),
            false => self.fs.write(cx, attr.ino, offset, data).map_err(Status::of),
        }
    }

    /// Makes a file durable. After an error nobody's unstable data is taken for granted.
    fn sync(&self, cx: &mut Cx, attr: &Attr, datasync: bool) -> Done {
        self.fs.fsync(cx, attr.ino, datasync).map_err(|errno| {
            self.verf.fetch_add(1, Ordering::Relaxed);
            Status::of(errno)
        })
    }

    fn commit(&self, cx: &mut Cx, handle: &Handle, reply: &mut Reply<'_>) -> Done {
        let attr = self.object(cx, handle)?;
        // Of before the sync: a life that ends meanwhile is not the one that made it durable.
        let verf = self.verf();
        let done = self.must_write().and_then(|()| {
            attr.kind.check_regular().map_err(Status::of)?;
            self.may_change(cx, &attr, Access::WRITE)?;
            self.sync(cx, &attr, false)
        });
        // It changes no attribute; what others have changed meanwhile is not to look like it.
        if let Ok(attr) = self.fs.getattr(cx, attr.ino) {
            let attr = self.fattr(&attr);
            reply.wcc = Wcc { before: Some(attr.stamp()), after: Some(attr) };
        }
        reply.body = Body::Commit { verf };
        done
    }

    fn fsstat(&self, cx: &mut Cx, handle: &Handle, reply: &mut Reply<'_>) -> Done {
        let attr = self.object(cx, handle)?;
        let state = self.fs.statfs(cx).map_err(Status::of)?;
        let bytes = |blocks: u64| blocks.saturating_mul(state.block_size.into());
        reply.attr = Some(self.fattr(&attr));
        reply.body = Body::Fsstat(FsStat {
            bytes: [state.blocks, state.blocks_free, state.blocks_available].map(bytes),
            files: [state.inodes, state.inodes_free, state.inodes_free],
        });
        Ok(())
    }
}

/// What the server takes and gives.
fn limits() -> FsInfo {
    FsInfo {
        rtmax: DATA_MAX as u32,
        rtpref: DATA_MAX as u32,
        wtmax: DATA_MAX as u32,
        wtpref: DATA_MAX as u32,
        dtpref: 64 << 10,
        maxfilesize: i64::MAX as u64,
        time_delta: NfsTime { sec: 0, nsec: 1 },
        // Links, symlinks, the same everywhere, times can be set.
        properties: 1 | 2 | 8 | 16,
    }
}
