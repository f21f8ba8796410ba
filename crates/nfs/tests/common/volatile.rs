//! A file system whose data is lost in a crash unless it was made durable, and which can be told
//! to fail. Names and attributes are durable at once.

use std::collections::BTreeSet;
use std::sync::Arc;

use base::{Errno, Ino};
use rt::{Cx, SpinLock};
use testkit::memfs::MemFs;
use vfs::*;

/// What goes wrong: taken from the front, one for each call; `None` lets one pass.
#[derive(Default)]
pub struct Wrongs {
    pub read: Vec<Option<Errno>>,
    pub write: Vec<Option<Errno>>,
    pub fsync: Vec<Option<Errno>>,
}

/// Two file systems that see the same operations; data reaches the second with fsync.
pub struct Volatile {
    live: MemFs,
    stable: MemFs,
    files: SpinLock<BTreeSet<u64>>,
    pub wrongs: SpinLock<Wrongs>,
}

fn next(list: &mut Vec<Option<Errno>>) -> Result<(), Errno> {
    if list.is_empty() {
        return Ok(());
    }
    list.remove(0).map_or(Ok(()), Err)
}

impl Volatile {
    pub fn new() -> Arc<Volatile> {
        Arc::new(Volatile {
            live: MemFs::new(),
            stable: MemFs::new(),
            files: SpinLock::new(BTreeSet::new()),
            wrongs: SpinLock::new(Wrongs::default()),
        })
    }

    fn copy(cx: &mut Cx, from: &MemFs, to: &MemFs, ino: Ino) -> Result<(), Errno> {
        let size = from.getattr(cx, ino)?.size;
        let mut data = vec![0; size as usize];
        from.read(cx, ino, 0, &mut data)?;
        for size in [0, size] {
            to.setattr(cx, ino, &SetAttr { size: Some(size), ..SetAttr::default() })?;
        }
        to.write(cx, ino, 0, &data).map(drop)
    }

    /// Everything that was not made durable is gone.
    pub fn crash(&self, cx: &mut Cx) {
        let files: Vec<u64> = self.files.lock(cx).iter().copied().collect();
        for ino in files {
            let _gone_meanwhile = Volatile::copy(cx, &self.stable, &self.live, Ino(ino));
        }
    }

    /// The durable content of the file with a name in the root.
    pub fn durable(&self, cx: &mut Cx, name: &[u8]) -> Vec<u8> {
        let attr = self.stable.lookup(cx, self.stable.root(), name).unwrap();
        let mut data = vec![0; attr.size as usize];
        self.stable.read(cx, attr.ino, 0, &mut data).unwrap();
        data
    }
}

/// Both do it; the answer is that of the live one.
macro_rules! both {
    ($self:ident, $fs:ident => $call:expr) => {{
        {
            let $fs = &$self.stable;
            let _the_same_or_data_only = $call;
        }
        let $fs = &$self.live;
        $call
    }};
}

impl FileSystem for Volatile {
    vfs::forward!(live:
        root lookup getattr readlink readdir sync fallocate seek getxattr setxattr listxattr
        removexattr statfs unmount
    );
    fn name(&self) -> &'static str {
        "volatile"
    }
    fn setattr(&self, cx: &mut Cx, ino: Ino, set: &SetAttr) -> Result<Attr, Errno> {
        both!(self, fs => fs.setattr(cx, ino, set))
    }
    fn create(&self, cx: &mut Cx, dir: Ino, name: &[u8], node: &NewNode) -> Result<Attr, Errno> {
        let attr = both!(self, fs => fs.create(cx, dir, name, node))?;
        if attr.kind == FileType::Regular {
            self.files.lock(cx).insert(attr.ino.0);
        }
        Ok(attr)
    }
    fn link(&self, cx: &mut Cx, ino: Ino, dir: Ino, name: &[u8]) -> Result<Attr, Errno> {
        both!(self, fs => fs.link(cx, ino, dir, name))
    }
    fn unlink(&self, cx: &mut Cx, dir: Ino, name: &[u8]) -> Result<(), Errno> {
        both!(self, fs => fs.unlink(cx, dir, name))
    }
    fn rmdir(&self, cx: &mut Cx, dir: Ino, name: &[u8]) -> Result<(), Errno> {
        both!(self, fs => fs.rmdir(cx, dir, name))
    }
    fn rename(
        &self,
        cx: &mut Cx,
        old_dir: Ino,
        old: &[u8],
        new_dir: Ino,
        new: &[u8],
        flags: RenameFlags,
    ) -> Result<(), Errno> {
        both!(self, fs => fs.rename(cx, old_dir, old, new_dir, new, flags))
    }
    fn open(&self, cx: &mut Cx, ino: Ino) -> Result<(), Errno> {
        both!(self, fs => fs.open(cx, ino))
    }
    fn release(&self, cx: &mut Cx, ino: Ino) -> Result<(), Errno> {
        both!(self, fs => fs.release(cx, ino))
    }
    fn read(&self, cx: &mut Cx, ino: Ino, offset: u64, buf: &mut [u8]) -> Result<usize, Errno> {
        next(&mut self.wrongs.lock(cx).read)?;
        self.live.read(cx, ino, offset, buf)
    }
    fn write(&self, cx: &mut Cx, ino: Ino, offset: u64, data: &[u8]) -> Result<usize, Errno> {
        next(&mut self.wrongs.lock(cx).write)?;
        self.live.write(cx, ino, offset, data)
    }
    fn fsync(&self, cx: &mut Cx, ino: Ino, _datasync: bool) -> Result<(), Errno> {
        next(&mut self.wrongs.lock(cx).fsync)?;
        Volatile::copy(cx, &self.live, &self.stable, ino)
    }
    fn fiemap(&self, _: &mut Cx, _: Ino, _: u64, _: u64) -> Result<Vec<vfs::Iomap>, Errno> {
        Err(Errno::EOPNOTSUPP)
    }
    fn shutdown_hard(&self) {}
}
