//! A FUSE server that does nothing: names and attributes in tables in memory, content thrown away.
//! What it takes is what the kernel, the protocol and the machine's wake-ups cost; no server of the
//! same operations can be quicker. It asks the kernel for the same as `iopath mount` does, so that
//! it gets the same requests, looks for the next one as long before it sleeps, and keeps processors
//! awake. One thread. Its image is a file with a line for each name, read and written whole.

use std::collections::HashMap;
use std::fs::{self, File};
use std::io::{self, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use fuser::{Config, Filesystem, InitFlags, KernelConfig, MountOption, Session};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use zerocopy::{FromBytes, IntoBytes};

use crate::Result;
use crate::abi::*;

const MAX_WRITE: u32 = 1 << 20;
const SPIN: Duration = Duration::from_micros(50);
/// Seconds that the kernel may keep what it was told.
const KEEP: u64 = 1 << 30;
const IS_DIR: u32 = 0o040_000;

struct Handshake;

impl Filesystem for Handshake {
    fn init(&mut self, _: &fuser::Request, config: &mut KernelConfig) -> io::Result<()> {
        let wanted = InitFlags::FUSE_ASYNC_DIO
            | InitFlags::FUSE_PARALLEL_DIROPS
            | InitFlags::FUSE_DO_READDIRPLUS
            | InitFlags::FUSE_READDIRPLUS_AUTO
            | InitFlags::FUSE_CACHE_SYMLINKS
            | InitFlags::FUSE_HANDLE_KILLPRIV_V2
            | InitFlags::FUSE_DONT_MASK
            | InitFlags::FUSE_NO_OPEN_SUPPORT
            | InitFlags::FUSE_NO_OPENDIR_SUPPORT
            | InitFlags::FUSE_HAS_IOCTL_DIR
            | InitFlags::FUSE_WRITEBACK_CACHE;
        let offered = config.capabilities();
        let _all_offered = config.add_capabilities(wanted & offered);
        let _granted = config.set_max_write(MAX_WRITE);
        let _granted = config.set_max_background(64);
        Ok(())
    }
}

/// Serves the names of `image` on `dir` until it is unmounted.
pub fn serve(image: &Path, dir: &Path) -> Result<()> {
    let mut table = Table::load(&fs::read_to_string(image)?)?;
    let mut config = Config::default();
    let name = MountOption::FSName("null".to_owned());
    config.mount_options = vec![name, MountOption::NoAtime, MountOption::RW];
    let session = Session::new(Handshake, dir, &config)?;
    // Where others than root cannot hold it, processors sleep.
    let held = File::options().write(true).open("/dev/cpu_dma_latency").and_then(|mut file| {
        file.write_all(&0_i32.to_ne_bytes())?;
        Ok(file)
    });
    let device = session.as_fd();
    let flags = rustix::fs::fcntl_getfl(device)?;
    rustix::fs::fcntl_setfl(device, flags | rustix::fs::OFlags::NONBLOCK)?;
    let mut request = vec![0; MAX_WRITE as usize + 4096];
    let mut answer = Vec::with_capacity(request.len());
    while let Some(len) = next(device, &mut request)? {
        let Ok((head, body)) = InHeader::read_from_prefix(&request[..len]) else { continue };
        answer.clear();
        answer.resize(size_of::<OutHeader>(), 0);
        let Some(error) = table.answer(&head, body, &mut answer) else { continue };
        if error != 0 {
            answer.truncate(size_of::<OutHeader>());
        }
        let out = OutHeader { len: answer.len() as u32, error: -error, unique: head.unique };
        answer[..size_of::<OutHeader>()].copy_from_slice(out.as_bytes());
        let _nobody_waits = rustix::io::write(device, &answer);
    }
    drop(held);
    Ok(fs::write(image, table.save())?)
}

/// The next request; none after the end of the mount.
fn next(device: BorrowedFd<'_>, buffer: &mut [u8]) -> Result<Option<usize>> {
    let start = Instant::now();
    loop {
        match rustix::io::read(device, &mut *buffer) {
            Ok(len) => return Ok(Some(len)),
            Err(Errno::INTR | Errno::NOENT) => {}
            Err(Errno::NODEV) => return Ok(None),
            Err(Errno::AGAIN) if start.elapsed() < SPIN => thread::yield_now(),
            Err(Errno::AGAIN) => {
                poll(&mut [PollFd::new(&device, PollFlags::IN)], None)?;
            }
            Err(error) => return Err(error.into()),
        }
    }
}

/// Names and nodes; the node numbered `n` is at `n - 1`.
struct Table {
    names: HashMap<(u64, Vec<u8>), u64>,
    nodes: Vec<Attributes>,
}

impl Table {
    fn load(text: &str) -> Result<Table> {
        let mut table = Table { names: HashMap::new(), nodes: Vec::new() };
        table.add(IS_DIR | 0o755, 0);
        for line in text.lines() {
            let mut parts = line.splitn(5, ' ');
            let mut number = || parts.next().unwrap_or_default().parse::<u64>();
            let (dir, node, mode, size) = (number()?, number()?, number()?, number()?);
            while (table.nodes.len() as u64) < node {
                table.add(0, 0);
            }
            let at = &mut table.nodes[node as usize - 1];
            (at.mode, at.size) = (mode as u32, size);
            let name = parts.next().unwrap_or_default();
            table.names.insert((dir, name.into()), node);
        }
        Ok(table)
    }

    fn save(&self) -> String {
        let line = |((dir, name), &node): (&(u64, Vec<u8>), &u64)| {
            let at = &self.nodes[node as usize - 1];
            format!("{dir} {node} {} {} {}\n", at.mode, at.size, String::from_utf8_lossy(name))
        };
        self.names.iter().map(line).collect()
    }

    fn add(&mut self, mode: u32, rdev: u32) -> u64 {
        let ino = self.nodes.len() as u64 + 1;
        let fixed = Attributes { nlink: 1, blksize: 4096, ..Attributes::default() };
        self.nodes.push(Attributes { ino, mode, rdev, ..fixed });
        ino
    }

    fn node(&mut self, node: u64) -> std::result::Result<&mut Attributes, Errno> {
        self.nodes.get_mut((node as usize).wrapping_sub(1)).ok_or(Errno::STALE)
    }

    /// Adds what there is to answer to `out`; the errno or 0, none where nobody waits.
    fn answer(&mut self, head: &InHeader, body: &[u8], out: &mut Vec<u8>) -> Option<i32> {
        match head.opcode {
            op::FORGET | op::BATCH_FORGET => None,
            _ => Some(self.carry_out(head, body, out).map_or_else(Errno::raw_os_error, |()| 0)),
        }
    }

    fn carry_out(
        &mut self,
        head: &InHeader,
        body: &[u8],
        out: &mut Vec<u8>,
    ) -> std::result::Result<(), Errno> {
        match head.opcode {
            op::LOOKUP => {
                let node = self.names.get(&(head.nodeid, name(body).into())).copied();
                let entry = node.map(|node| self.entry(node)).transpose()?;
                let none = EntryOut { entry_valid: KEEP, ..EntryOut::default() };
                out.extend(entry.unwrap_or(none).as_bytes());
            }
            op::GETATTR => {
                out.extend(attr_out(self.node(head.nodeid)?).as_bytes());
            }
            op::SETATTR => {
                let arg: SetattrIn = take(body)?.0;
                let at = self.node(head.nodeid)?;
                if arg.valid & fattr::SIZE != 0 {
                    at.size = arg.size;
                }
                if arg.valid & fattr::MODE != 0 {
                    at.mode = arg.mode;
                }
                out.extend(attr_out(at).as_bytes());
            }
            op::MKNOD => {
                let (arg, rest) = take::<MknodIn>(body)?;
                let node = self.add(arg.mode, arg.rdev);
                self.names.insert((head.nodeid, name(rest).into()), node);
                out.extend(self.entry(node)?.as_bytes());
            }
            op::MKDIR => {
                let (arg, rest) = take::<MkdirIn>(body)?;
                let node = self.add(IS_DIR | arg.mode, 0);
                self.names.insert((head.nodeid, name(rest).into()), node);
                out.extend(self.entry(node)?.as_bytes());
            }
            op::UNLINK | op::RMDIR => {
                let gone = self.names.remove(&(head.nodeid, name(body).into()));
                self.node(gone.ok_or(Errno::NOENT)?)?.nlink = 0;
            }
            op::WRITE => {
                let arg: WriteIn = take(body)?.0;
                let at = self.node(head.nodeid)?;
                at.size = at.size.max(arg.offset + u64::from(arg.size));
                out.extend(WriteOut { size: arg.size, padding: 0 }.as_bytes());
            }
            op::READ => {
                let arg: ReadIn = take(body)?.0;
                let left = self.node(head.nodeid)?.size.saturating_sub(arg.offset);
                let len = left.min(arg.size.into()) as usize;
                out.resize(out.len() + len, 0);
            }
            op::STATFS => {
                let free = StatfsOut { blocks: 1 << 30, bfree: 1 << 30, bavail: 1 << 30, ..NONE };
                out.extend(free.as_bytes());
            }
            op::GETXATTR => return Err(Errno::NODATA),
            op::LISTXATTR => out.extend(GetxattrOut { size: 0, padding: 0 }.as_bytes()),
            op::SETXATTR | op::REMOVEXATTR | op::FSYNC | op::READDIR | op::READDIRPLUS => {}
            _ => return Err(Errno::NOSYS),
        }
        Ok(())
    }

    fn entry(&mut self, node: u64) -> std::result::Result<EntryOut, Errno> {
        let attr = *self.node(node)?;
        let (entry_valid, attr_valid) = (KEEP, KEEP);
        Ok(EntryOut { nodeid: node, entry_valid, attr_valid, attr, ..EntryOut::default() })
    }
}

/// An empty file system.
const NONE: StatfsOut = StatfsOut {
    blocks: 0,
    bfree: 0,
    bavail: 0,
    files: 1 << 30,
    ffree: 1 << 30,
    bsize: 4096,
    namelen: 255,
    frsize: 4096,
    padding: 0,
    spare: [0; 6],
};

fn attr_out(attr: &Attributes) -> AttrOut {
    AttrOut { attr_valid: KEEP, attr: *attr, ..AttrOut::default() }
}

fn name(bytes: &[u8]) -> &[u8] {
    bytes.split(|&byte| byte == 0).next().unwrap_or_default()
}

fn take<T: FromBytes>(body: &[u8]) -> std::result::Result<(T, &[u8]), Errno> {
    T::read_from_prefix(body).map_err(|_| Errno::IO)
}
