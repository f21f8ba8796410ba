//! Between requests of the kernel and the file system: one request is one task.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;
use std::time::Duration;

use base::{Errno, Ino};
use fuser::{FileAttr, INodeNo, Request};
use rt::{Cred, Cx, Nanos, Runtime, RwLock, SpinLock};
use vfs::{Attr, FileSystem, NewNode};

use crate::convert::{self, Numbers};
use crate::data;
use crate::nodes::Nodes;
use crate::options::Options;
use crate::seek::Seeks;

/// Buffers for reading that are kept for the next request.
const BUFFERS_MAX: usize = 32;

/// How often, and how long each time, a request that finds the disk full waits for inodes without
/// names whose space is on its way back.
const FULL_TRIES: usize = 50;
const FULL_WAIT: Nanos = Nanos::from_millis(1);

/// Lets requests in until the end of the mount.
pub(crate) struct Gate(RwLock<bool>);

impl Gate {
    pub fn new() -> Gate {
        Gate(RwLock::named("fuse gate", false))
    }

    /// Waits for the requests that are inside; later ones are answered `EIO`. May park.
    pub fn close(&self, cx: &mut Cx) {
        *self.0.write(cx) = true;
    }
}

/// Serves the requests of one mount.
pub(crate) struct Adapter {
    rt: Runtime,
    pub fs: Arc<dyn FileSystem>,
    pub numbers: Numbers,
    pub nodes: Nodes,
    pub fakeroot: bool,
    /// The kernel checks permissions.
    pub checked: bool,
    pub writeback: bool,
    pub shared: bool,
    /// How long the kernel may keep names and attributes.
    pub keep: Duration,
    pub seeks: Seeks,
    gate: Arc<Gate>,
    buffers: SpinLock<Vec<Vec<u8>>>,
}

impl Adapter {
    pub fn new(
        rt: &Runtime,
        fs: Arc<dyn FileSystem>,
        gate: Arc<Gate>,
        options: &Options,
    ) -> Adapter {
        Adapter {
            rt: rt.clone(),
            numbers: Numbers::new(fs.root()),
            fs,
            nodes: Nodes::new(),
            fakeroot: options.fakeroot,
            checked: options.is_checked(),
            writeback: options.writeback && !options.shared,
            shared: options.shared,
            keep: options.keep(),
            seeks: Seeks::new(),
            gate,
            buffers: SpinLock::named("fuse buffers", Vec::new()),
        }
    }

    /// Starts the task for seeks, which ends with the mount.
    pub fn start_seeks(&self) {
        let (fs, numbers, seeks) = (self.fs.clone(), self.numbers, self.seeks.clone());
        let gate = self.gate.clone();
        self.rt.spawn("fuse seeks", move |cx| {
            while let Some(seek) = seeks.next(cx) {
                let closed = gate.0.read(cx);
                let found = match *closed {
                    true => Err(Errno::EIO),
                    false => data::seek(cx, &*fs, numbers.ino(seek.node), seek.offset, seek.whence),
                };
                match found {
                    Ok(offset) => seek.reply.offset(offset as i64),
                    Err(error) => seek.reply.error(convert::errno(error)),
                }
            }
        });
    }

    /// Carries a request out as the process that made it: its credentials, and its I/O context for
    /// the elevators.
    pub fn serve<T>(
        &self,
        request: &Request,
        work: impl FnOnce(&mut Cx) -> Result<T, Errno>,
    ) -> Result<T, fuser::Errno> {
        self.rt.enter("fuse request", |cx| {
            cx.set_cred(Cred { umask: 0, ..Cred::user(request.uid(), request.gid()) });
            if request.pid() != 0 {
                cx.set_ioc(u64::from(request.pid()));
            }
            let closed = self.gate.0.read(cx);
            match *closed {
                true => Err(convert::errno(Errno::EIO)),
                false => work(cx).map_err(convert::errno),
            }
        })
    }

    /// As [`Adapter::serve`] for what takes space: where none is left, but inodes without names are
    /// just being freed, it waits for them and tries again.
    pub fn serve_growing<T>(
        &self,
        request: &Request,
        mut work: impl FnMut(&mut Cx) -> Result<T, Errno>,
    ) -> Result<T, fuser::Errno> {
        self.serve(request, |cx| {
            let mut result = work(cx);
            for _ in 0..FULL_TRIES {
                if result.as_ref().err() != Some(&Errno::ENOSPC) || self.nodes.pinned() == 0 {
                    break;
                }
                let before = self.nodes.pinned();
                cx.sleep(FULL_WAIT);
                if self.nodes.pinned() >= before {
                    break;
                }
                result = work(cx);
            }
            result
        })
    }

    /// The inode of a node.
    pub fn ino(&self, node: INodeNo) -> Ino {
        self.numbers.ino(node)
    }

    /// Where the kernel does not check permissions it does not expect that an ACL changes the mode
    /// either.
    pub fn acl_changed(&self, node: INodeNo, name: &OsStr) {
        if !self.checked && name.as_bytes().starts_with(b"system.posix_acl_") {
            self.seeks.drop_attributes(node);
        }
    }

    /// Attributes for an answer that names the inode to the kernel.
    pub fn tell(&self, attr: &Attr) -> FileAttr {
        self.nodes.told(attr.ino);
        self.numbers.attr(attr)
    }

    /// Creates a node in a directory with the caller's ids and the directory's inheritance.
    pub fn create(
        &self,
        cx: &mut Cx,
        dir: INodeNo,
        name: &[u8],
        node: NewNode,
        umask: u32,
    ) -> Result<Attr, Errno> {
        let dir = self.fs.getattr(cx, self.ino(dir))?;
        cx.set_cred(Cred { umask, ..cx.cred().clone() });
        vfs::create_in(cx, &*self.fs, &dir, name, node)
    }

    /// Removes or replaces a name. An inode that loses its last name stays for those who use it,
    /// until the kernel forgets it; a shared file system is told of those who have it open.
    pub fn remove(
        &self,
        cx: &mut Cx,
        victim: Option<Ino>,
        work: impl FnOnce(&mut Cx) -> Result<(), Errno>,
    ) -> Result<(), Errno> {
        let Some(ino) = victim.filter(|_| !self.shared) else { return work(cx) };
        self.fs.open(cx, ino)?;
        let result = work(cx);
        let unnamed = result.is_ok()
            && match self.fs.getattr(cx, ino) {
                Ok(attr) => attr.nlink == 0,
                Err(_) => false,
            };
        if !unnamed || !self.nodes.pin(ino) {
            self.fs.release(cx, ino)?;
        }
        result
    }

    /// The kernel gives references back.
    pub fn forget(&self, request: &Request, node: INodeNo, lookups: u64) {
        let ino = self.ino(node);
        let pins = self.nodes.forgotten(ino, lookups);
        if pins == 0 {
            return;
        }
        let _nobody_to_tell = self.serve(request, |cx| {
            for _ in 0..pins {
                // What fails here latches in the file system, which tells the next who writes.
                let _latched = self.fs.release(cx, ino);
            }
            Ok(())
        });
        self.nodes.freed(pins);
    }

    /// Lends a buffer of at least `size` bytes.
    pub fn with_buffer<T>(&self, size: usize, work: impl FnOnce(&mut [u8]) -> T) -> T {
        let mut buffer = self.buffers.lock_irq().pop().unwrap_or_default();
        if buffer.len() < size {
            buffer.resize(size, 0);
        }
        let result = work(&mut buffer[..size]);
        let mut kept = self.buffers.lock_irq();
        if kept.len() < BUFFERS_MAX {
            kept.push(buffer);
        }
        result
    }
}
