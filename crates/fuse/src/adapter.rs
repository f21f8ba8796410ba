//! Translates requests of the kernel into calls of the file system.

mod data;
mod ioctl;
mod requests;

use std::sync::Arc;

use base::{Errno, Ino};
use fuser::INodeNo;
use rt::{Cred, Cx, Nanos, Runtime, RwLock};
use vfs::{Attr, FileSystem};

use self::requests::Answered;
use crate::abi::{BatchForgetIn, ForgetIn, ForgetOne, LseekIn, LseekOut, op};
use crate::convert::Numbers;
use crate::forget::{ForgetQueue, Forgotten};
use crate::lead::Lead;
use crate::nodes::Nodes;
use crate::options::{Access, Options};
use crate::outside::Outside;
use crate::pages::Pages;
use crate::pm_qos::PmQos;
use crate::seek::{Seek, Seeks};
use crate::wire::{Answer, Request};
use crate::writeback_errors::WritebackErrors;
use crate::writeback_limits::WritebackLimits;

/// How often, how often in vain, and how long each time, a request that finds the disk full waits
/// for inodes without names whose space is on its way back. In vain: the kernel has not even
/// forgotten them, as where a program has them open.
const FULL_TRIES: usize = 1000;
const FULL_VAIN: usize = 30;
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

/// What became of a request.
pub(crate) enum Outcome {
    /// It is answered.
    Done(Answered),
    /// Nobody waits for an answer.
    Silent,
    /// The kernel must write its pages first: see `seek`.
    Seek(LseekIn),
}

/// Serves the requests of one mount.
pub(crate) struct Adapter {
    pub fs: Arc<dyn FileSystem>,
    pub numbers: Numbers,
    pub nodes: Nodes,
    pub fakeroot: bool,
    /// The kernel checks permissions.
    pub checked: bool,
    pub shared: bool,
    /// The kernel reports every open and close.
    pub opens: bool,
    /// How long the kernel may keep names and attributes, seconds.
    pub keep: u64,
    /// The same of names: the kernel compares them by their bytes, and would keep one whose
    /// other case is removed.
    pub keep_names: u64,
    pub seeks: Seeks,
    pub forget_queue: ForgetQueue,
    pub writeback_errors: WritebackErrors,
    pub writeback_limits: WritebackLimits,
    /// None if the mount never keeps processors from sleeping.
    pub pm_qos: Option<Arc<PmQos>>,
    /// Which worker reads the requests.
    pub lead: Arc<Lead>,
    gate: Arc<Gate>,
    access: Access,
    /// Who mounted it.
    owner: u32,
}

impl Adapter {
    pub fn new(
        fs: Arc<dyn FileSystem>,
        gate: Arc<Gate>,
        pm_qos: Option<Arc<PmQos>>,
        options: &Options,
    ) -> Adapter {
        let keep_names = if fs.ignores_case() { 0 } else { options.keep_seconds() };
        Adapter {
            numbers: Numbers::new(fs.root()),
            fs,
            nodes: Nodes::new(),
            fakeroot: options.fakeroot,
            checked: options.is_checked(),
            shared: options.shared,
            opens: options.reports_opens(),
            keep: options.keep_seconds(),
            keep_names,
            seeks: Seeks::new(),
            forget_queue: ForgetQueue::new(),
            writeback_errors: WritebackErrors::new(),
            writeback_limits: WritebackLimits::new(),
            pm_qos,
            lead: Arc::new(Lead::new()),
            gate,
            access: options.access,
            owner: rustix::process::geteuid().as_raw(),
        }
    }

    /// Starts the task for seeks, which ends with the mount.
    pub fn start_seeks(self: &Arc<Adapter>, rt: &Runtime, outside: Arc<Outside>) {
        let adapter = self.clone();
        let pages = Pages::start(outside);
        rt.spawn("fuse seeks", move |cx| {
            while let Some(seek) = adapter.seeks.next(cx) {
                let found = adapter.seek(cx, &pages, &seek);
                (seek.answer)(found.map(|offset| LseekOut { offset }));
            }
        });
    }

    /// Starts the task that invalidates the kernel's attributes of files with write-back errors. It
    /// is a task of its own, as the kernel may let it wait for write-back. It ends with the mount.
    pub fn start_writeback_errors(self: &Arc<Adapter>, rt: &Runtime) {
        let adapter = self.clone();
        rt.spawn("fuse writeback errors", move |cx| {
            adapter.writeback_errors.run(cx, |node| adapter.seeks.drop_attributes(node));
        });
    }

    /// Where data or a hole of a node is next, after the kernel has written its pages through other
    /// requests. May park, and blocks the thread.
    fn seek(&self, cx: &mut Cx, pages: &Pages, seek: &Seek) -> Result<u64, Errno> {
        let ino = self.ino(seek.node);
        let settled = self.seeks.settle(cx, pages, seek, ino);
        let closed = self.gate.0.read(cx);
        match *closed {
            true => Err(Errno::EIO),
            false => {
                settled?;
                data::seek(cx, &*self.fs, ino, seek.arg.offset, seek.arg.whence)
            }
        }
    }

    /// Carries a request out as the process that made it, with its credentials, and its I/O context
    /// for the elevators. What there is to answer is added to `out`. May park.
    pub fn answer(&self, cx: &mut Cx, req: &Request, out: &mut Answer) -> Outcome {
        if let Some(pm_qos) = &self.pm_qos {
            pm_qos.count_request();
        }
        let head = &req.header;
        cx.set_cred(Cred { umask: 0, ..Cred::user(head.uid, head.gid) });
        if head.pid != 0 {
            cx.set_ioc(u64::from(head.pid));
        }
        let closed = self.gate.0.read(cx);
        Outcome::Done(match head.opcode {
            _ if *closed => Err(Errno::EIO),
            op::FORGET | op::BATCH_FORGET => {
                // These are not answered. A message that is cut short is not from the kernel.
                let _no_answer = self.forget_nodes(cx, req);
                return Outcome::Silent;
            }
            op::DESTROY => Ok(()),
            _ if !self.lets_in(head.uid, head.opcode) => Err(Errno::EACCES),
            op::LSEEK => match req.take::<LseekIn>() {
                Ok((arg, _)) => return Outcome::Seek(arg),
                Err(error) => Err(error),
            },
            _ => self.carry_out(cx, req, out),
        })
    }

    /// The kernel lets nobody or everybody in besides who mounted; between these it is up to us. It
    /// works for others itself where it reads, writes back and tidies up.
    fn lets_in(&self, uid: u32, opcode: u32) -> bool {
        const FOR_OTHERS: [u32; 7] = [
            op::READ,
            op::READDIR,
            op::READDIRPLUS,
            op::WRITE,
            op::FSYNC,
            op::FSYNCDIR,
            op::RELEASE,
        ];
        let known = self.access == Access::Other || uid == self.owner || uid == 0;
        known || FOR_OTHERS.contains(&opcode)
    }

    /// Carries out what takes space. If none is left, or a limit of quota is reached, but inodes
    /// without names are just being freed, it waits for them and tries again. May park.
    pub fn growing<T>(
        &self,
        cx: &mut Cx,
        mut work: impl FnMut(&mut Cx) -> Result<T, Errno>,
    ) -> Result<T, Errno> {
        let mut seen = self.nodes.freed();
        let mut result = work(cx);
        let mut vain = 0;
        for _ in 0..FULL_TRIES {
            if !matches!(result, Err(Errno::ENOSPC | Errno::EDQUOT)) {
                break;
            }
            let none_waits = self.nodes.pinned() == 0;
            if self.nodes.freed() == seen {
                if none_waits || vain == FULL_VAIN {
                    break;
                }
                // The space comes back by FORGET.
                self.lead.let_others();
                cx.sleep(FULL_WAIT);
            }
            match self.nodes.freed() {
                freed if freed != seen => {
                    seen = freed;
                    result = work(cx);
                }
                _ if self.forget_queue.is_pending() => {}
                _ => vain += 1,
            }
        }
        result
    }

    /// The inode of a node.
    pub fn ino(&self, node: INodeNo) -> Ino {
        self.numbers.ino(node)
    }

    /// The node of an inode that an answer names to the kernel, which counts that as a lookup.
    pub fn count_lookup(&self, attr: &Attr) -> INodeNo {
        self.nodes.add_lookup(attr.ino);
        self.numbers.node(attr.ino)
    }

    fn forget_nodes(&self, cx: &mut Cx, req: &Request) -> Result<(), Errno> {
        if req.header.opcode == op::FORGET {
            let lookups = req.take::<ForgetIn>()?.0.nlookup;
            self.forget(cx, INodeNo(req.header.nodeid), lookups);
            return Ok(());
        }
        let (arg, rest) = req.take::<BatchForgetIn>()?;
        let each = rest.chunks_exact(size_of::<ForgetOne>()).take(arg.count as usize);
        for one in each {
            let one: ForgetOne =
                zerocopy::FromBytes::read_from_bytes(one).map_err(|_| Errno::EIO)?;
            self.forget(cx, INodeNo(one.nodeid), one.nlookup);
        }
        Ok(())
    }

    /// The kernel gives references back.
    fn forget(&self, cx: &mut Cx, node: INodeNo, lookups: u64) {
        let ino = self.ino(node);
        let pins = self.nodes.forget(ino, lookups);
        self.writeback_errors.forget(node);
        if pins == 0 {
            return;
        }
        if let Some(inode) = self.forget_queue.push((ino, pins)) {
            self.free(cx, inode);
        }
    }

    /// Frees the inodes of the forget queue, until the mount ends. May park.
    pub fn free_forgotten(&self, cx: &mut Cx) {
        self.forget_queue.run(cx, |cx, inode| {
            let closed = self.gate.0.read(cx);
            if !*closed {
                self.free(cx, inode);
            }
        });
    }

    /// Closes an inode without names as often as it is open, which frees its space.
    fn free(&self, cx: &mut Cx, (ino, pins): Forgotten) {
        for _ in 0..pins {
            // An error latches in the file system, which reports it to the next writer.
            let _latched = self.fs.release(cx, ino);
        }
        self.nodes.closed(pins);
    }
}
