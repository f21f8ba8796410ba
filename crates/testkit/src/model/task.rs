//! One task of the model: carries out operations on both file systems and compares the answers.

use base::{Errno, Ino, Rng};
use rt::Cx;
use vfs::{Attr, FileSystem, FileType, NewNode, RenameFlags};

use super::op::{Name, Op, Pick};
use super::{MemFs, NOWHERE};

/// An inode that a task knows, by its number in the file system and in the reference.
#[derive(Clone, Debug)]
pub struct Known {
    pub fs: Ino,
    pub mem: Ino,
    pub kind: FileType,
    pub opens: u32,
    /// Other tasks use it too: its attributes are not compared and not changed.
    pub shared: bool,
}

/// A task's view. The first of `nodes` is its own directory, the next are the shared ones.
pub struct Task {
    index: usize,
    count: usize,
    nodes: Vec<Known>,
    stripes: Vec<Known>,
}

const NAMES: u32 = 14;
const STRIPE: u64 = 3000;

type Answer<T> = Result<T, Errno>;

impl Task {
    pub fn new(index: usize, count: usize, nodes: Vec<Known>, stripes: Vec<Known>) -> Task {
        Task { index, count, nodes, stripes }
    }

    /// Closes everything; what has no name is freed by that.
    ///
    /// # Errors
    /// A sentence with both answers, where they differ.
    pub fn close_all(
        &mut self,
        cx: &mut Cx,
        fs: &dyn FileSystem,
        mem: &MemFs,
    ) -> Result<(), String> {
        for node in &mut self.nodes {
            while node.opens > 0 {
                node.opens -= 1;
                same(fs.release(cx, node.fs), |()| mem.release(cx, node.mem))?;
            }
        }
        Ok(())
    }

    /// Carries out one operation on both.
    ///
    /// # Errors
    /// A sentence with both answers, where they differ.
    pub fn apply(
        &mut self,
        cx: &mut Cx,
        fs: &dyn FileSystem,
        mem: &MemFs,
        op: &Op,
    ) -> Result<(), String> {
        self.forget_dead(cx, mem);
        match op {
            Op::Create { .. } | Op::Symlink { .. } | Op::Link { .. } => self.add(cx, fs, mem, op),
            Op::Unlink { .. } | Op::Rmdir { .. } | Op::Rename { .. } => {
                self.change_names(cx, fs, mem, op)
            }
            Op::Lookup { .. } | Op::Readdir { .. } | Op::Getattr { .. } | Op::Setattr { .. } => {
                self.attributes(cx, fs, mem, op)
            }
            Op::Setxattr { .. } | Op::Getxattr { .. } | Op::Removexattr { .. } => {
                self.xattrs(cx, fs, mem, op)
            }
            Op::Open { node } => {
                let node = self.pick_mut(*node);
                let answer = same(fs.open(cx, node.fs), |()| mem.open(cx, node.mem))?;
                node.opens += u32::from(answer.is_some());
                Ok(())
            }
            Op::Release { node } => {
                let open = self.nodes.iter_mut().filter(|known| known.opens > 0);
                let mut open: Vec<_> = open.collect();
                let count = open.len();
                let Some(node) = open.get_mut(*node as usize % count.max(1)) else { return Ok(()) };
                node.opens -= 1;
                same(fs.release(cx, node.fs), |()| mem.release(cx, node.mem)).map(drop)
            }
            Op::Fsync { node, data } => {
                let node = self.pick(*node);
                same(fs.fsync(cx, node.fs, *data), |()| mem.fsync(cx, node.mem, *data)).map(drop)
            }
            Op::Sync => same(fs.sync(cx), |()| mem.sync(cx)).map(drop),
            _ => self.content(cx, fs, mem, op),
        }
    }

    /// Drops inodes that are gone: their numbers may be used anew.
    fn forget_dead(&mut self, cx: &mut Cx, mem: &MemFs) {
        self.nodes.retain(|node| node.shared || mem.getattr(cx, node.mem).is_ok());
    }

    fn pick(&self, pick: Pick) -> Known {
        self.nodes[pick as usize % self.nodes.len()].clone()
    }

    fn pick_mut(&mut self, pick: Pick) -> &mut Known {
        let count = self.nodes.len();
        &mut self.nodes[pick as usize % count]
    }

    /// A file; one time in sixteen any inode.
    fn file(&self, pick: Pick) -> Known {
        let files = self.nodes.iter().filter(|node| node.kind == FileType::Regular);
        let files: Vec<_> = files.collect();
        match files.len() {
            count if count > 0 && !pick.is_multiple_of(16) => {
                files[pick as usize / 16 % count].clone()
            }
            _ => self.pick(pick / 16),
        }
    }

    /// A directory; one time in sixteen any inode.
    fn dir(&self, pick: Pick) -> Known {
        if pick.is_multiple_of(16) {
            return self.pick(pick / 16);
        }
        let dirs = self.nodes.iter().filter(|node| node.kind == FileType::Directory);
        let dirs: Vec<_> = dirs.collect();
        match dirs.len() {
            0 => Known {
                fs: NOWHERE,
                mem: NOWHERE,
                kind: FileType::Directory,
                opens: 0,
                shared: true,
            },
            count => dirs[pick as usize / 16 % count].clone(),
        }
    }

    /// A name that only this task uses; their lengths differ widely.
    fn name(&self, name: Name) -> Vec<u8> {
        let index = name % NAMES;
        let mut text = format!("t{}-{index}", self.index).into_bytes();
        if index % 5 == 4 {
            text.resize(60 * (index as usize % 4) + 40, b'.');
        }
        text
    }

    fn add(
        &mut self,
        cx: &mut Cx,
        fs: &dyn FileSystem,
        mem: &MemFs,
        op: &Op,
    ) -> Result<(), String> {
        let (dir, name) = match op {
            Op::Create { dir, name, .. } | Op::Symlink { dir, name, .. } => (dir, name),
            Op::Link { dir, name, .. } => (dir, name),
            _ => return Ok(()),
        };
        let (dir, name) = (self.dir(*dir), self.name(*name));
        if let Op::Link { node, .. } = op {
            let node = self.pick(*node);
            let real = fs.link(cx, node.fs, dir.fs, &name);
            return same_attr(real, || mem.link(cx, node.mem, dir.mem, &name), false).map(drop);
        }
        let target = vec![b'l'; if let Op::Symlink { len, .. } = op { *len as usize } else { 0 }];
        let node = match op {
            Op::Create { kind, mode, .. } => {
                // XFS takes majors of nine bits.
                let rdev =
                    if kind.is_device() { vfs::makedev(u32::from(*mode) % 512, 3) } else { 0 };
                NewNode { rdev, ..NewNode::new(*kind, *mode).owner(1, 70_000) }
            }
            _ => NewNode::symlink(&target),
        };
        let real = fs.create(cx, dir.fs, &name, &node);
        let model = || mem.create(cx, dir.mem, &name, &node);
        if let Some((real, model)) = same_attr(real, model, false)? {
            let (fs, mem) = (real.ino, model.ino);
            self.nodes.push(Known { fs, mem, kind: node.kind, opens: 0, shared: false });
        }
        Ok(())
    }

    fn change_names(
        &mut self,
        cx: &mut Cx,
        fs: &dyn FileSystem,
        mem: &MemFs,
        op: &Op,
    ) -> Result<(), String> {
        match op {
            Op::Unlink { dir, name } => {
                let (dir, name) = (self.dir(*dir), self.name(*name));
                same(fs.unlink(cx, dir.fs, &name), |()| mem.unlink(cx, dir.mem, &name)).map(drop)
            }
            Op::Rmdir { dir, name } => {
                let (dir, name) = (self.dir(*dir), self.name(*name));
                same(fs.rmdir(cx, dir.fs, &name), |()| mem.rmdir(cx, dir.mem, &name)).map(drop)
            }
            Op::Rename { from, to, flags } => {
                let (d1, n1) = (self.dir(from.0), self.name(from.1));
                let (d2, n2) = (self.dir(to.0), self.name(to.1));
                let real = fs.rename(cx, d1.fs, &n1, d2.fs, &n2, *flags);
                let over = !flags.intersects(RenameFlags::NOREPLACE | RenameFlags::EXCHANGE);
                let full = real == Err(Errno::EEXIST) && over;
                same(real, |()| match mem.rename(cx, d1.mem, &n1, d2.mem, &n2, *flags) {
                    // A directory with entries in the way: POSIX allows both, and Linux answers
                    // the other one on XFS.
                    Err(Errno::ENOTEMPTY) if full => real,
                    answer => answer,
                })
                .map(drop)
            }
            _ => Ok(()),
        }
    }

    fn attributes(
        &mut self,
        cx: &mut Cx,
        fs: &dyn FileSystem,
        mem: &MemFs,
        op: &Op,
    ) -> Result<(), String> {
        match op {
            Op::Lookup { dir, name } => {
                let (dir, name) = (self.dir(*dir), self.name(*name));
                let real = fs.lookup(cx, dir.fs, &name);
                same_attr(real, || mem.lookup(cx, dir.mem, &name), false).map(drop)
            }
            Op::Readdir { dir } => {
                let dir = self.dir(*dir);
                let prefix = format!("t{}-", self.index);
                let real = listing(cx, fs, dir.fs, prefix.as_bytes());
                let model = listing(cx, mem, dir.mem, prefix.as_bytes());
                equal(&real, &model)
            }
            Op::Getattr { node } => {
                let node = self.pick(*node);
                let real = fs.getattr(cx, node.fs);
                same_attr(real, || mem.getattr(cx, node.mem), node.shared).map(drop)
            }
            Op::Setattr { node, set } => {
                let node = self.pick(*node);
                if node.shared {
                    return Ok(());
                }
                let real = fs.setattr(cx, node.fs, set);
                let pair = same_attr(real, || mem.setattr(cx, node.mem, set), false)?;
                let Some((real, model)) = pair else { return Ok(()) };
                let given = set.mtime.is_some();
                let times = |attr: &Attr| (attr.atime, attr.mtime);
                if given && times(&real) != times(&model) {
                    return Err(format!("times {:?}, not {:?}", times(&real), times(&model)));
                }
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn content(
        &mut self,
        cx: &mut Cx,
        fs: &dyn FileSystem,
        mem: &MemFs,
        op: &Op,
    ) -> Result<(), String> {
        match op {
            Op::Read { node, offset, len } => {
                let node = self.pick(*node);
                let (mut a, mut b) = (vec![1; *len as usize], vec![2; *len as usize]);
                let real = fs.read(cx, node.fs, *offset, &mut a);
                let model = mem.read(cx, node.mem, *offset, &mut b);
                equal(&real, &model)?;
                let count = real.unwrap_or(0);
                match (0..count).find(|&i| a[i] != b[i]) {
                    Some(i) => {
                        Err(format!("byte {} is {:#x}, not {:#x}", offset + i as u64, a[i], b[i]))
                    }
                    None => Ok(()),
                }
            }
            Op::Write { node, offset, len, fill } => {
                let (node, data) = (self.pick(*node), bytes(*len, *fill));
                let real = fs.write(cx, node.fs, *offset, &data);
                same(real, |n| mem.write(cx, node.mem, *offset, &data[..n])).map(drop)
            }
            Op::Append { node, len, fill } => {
                let (node, data) = (self.pick(*node), bytes(*len, *fill));
                let real = fs.append(cx, node.fs, &data);
                same(real, |(_, n)| mem.append(cx, node.mem, &data[..n])).map(drop)
            }
            Op::Stripe { file, slot, fill } => {
                let file = self.stripes[*file as usize % self.stripes.len()].clone();
                let slot = u64::from(*slot) * self.count as u64 + self.index as u64;
                let data = bytes(STRIPE as u32, *fill);
                let real = fs.write(cx, file.fs, slot * STRIPE, &data);
                same(real, |n| mem.write(cx, file.mem, slot * STRIPE, &data[..n])).map(drop)
            }
            Op::Fallocate { node, mode, offset, len } => {
                let node = self.pick(*node);
                let real = fs.fallocate(cx, node.fs, *mode, *offset, *len);
                same(real, |()| mem.fallocate(cx, node.mem, *mode, *offset, *len)).map(drop)
            }
            Op::Clone { from, to, len } => {
                let (source, target) = (self.file(from.0), self.file(to.0));
                let real = fs.clone_range(cx, (source.fs, from.1), (target.fs, to.1), *len);
                same(real, |()| mem.clone_range(cx, (source.mem, from.1), (target.mem, to.1), *len))
                    .map(drop)
            }
            _ => Ok(()),
        }
    }

    fn xattrs(
        &mut self,
        cx: &mut Cx,
        fs: &dyn FileSystem,
        mem: &MemFs,
        op: &Op,
    ) -> Result<(), String> {
        let (node, name) = match op {
            Op::Setxattr { node, name, .. } | Op::Getxattr { node, name } => (node, name),
            Op::Removexattr { node, name } => (node, name),
            _ => return Ok(()),
        };
        let node = self.pick(*node);
        let prefix = ["user.", "trusted.", "security."][*name as usize % 3];
        // A shared directory has attributes of every task.
        let name = format!("{prefix}t{}-{}", self.index, name / 3 % 4).into_bytes();
        match op {
            Op::Setxattr { len, flags, .. } => {
                let value = bytes(*len, u64::from(*len) ^ 77);
                let real = fs.setxattr(cx, node.fs, &name, &value, *flags);
                same(real, |()| mem.setxattr(cx, node.mem, &name, &value, *flags)).map(drop)
            }
            Op::Getxattr { .. } => {
                let real = fs.getxattr(cx, node.fs, &name);
                equal(&real, &mem.getxattr(cx, node.mem, &name))
            }
            _ => {
                let real = fs.removexattr(cx, node.fs, &name);
                same(real, |()| mem.removexattr(cx, node.mem, &name)).map(drop)
            }
        }
    }
}

fn bytes(len: u32, fill: u64) -> Vec<u8> {
    let mut data = vec![0; len as usize];
    Rng::new(fill, 0).fill(&mut data);
    data
}

/// May the file system answer this where the reference would not?
fn is_its_right<T>(answer: &Answer<T>) -> bool {
    matches!(answer, Err(Errno::ENOSPC | Errno::EOPNOTSUPP))
}

/// Compares two answers; the reference is asked only if the operation was done. `None` on an error.
fn same<T: PartialEq + std::fmt::Debug + Copy + Default>(
    real: Answer<T>,
    model: impl FnOnce(T) -> Answer<T>,
) -> Result<Option<T>, String> {
    if is_its_right(&real) {
        return Ok(None);
    }
    // What an operation that failed would have done is asked with the whole request.
    let model = match real {
        Ok(value) => model(value),
        Err(_) => model(T::default()),
    };
    match (real, model) {
        (Ok(a), Ok(b)) if a == b => Ok(Some(a)),
        (Err(a), Err(b)) if a == b => Ok(None),
        (a, b) => Err(format!("answered {a:?}, the reference {b:?}")),
    }
}

fn equal<T: PartialEq + std::fmt::Debug>(
    real: &Answer<T>,
    model: &Answer<T>,
) -> Result<(), String> {
    if real == model {
        return Ok(());
    }
    Err(format!("answered {real:?}, the reference {model:?}"))
}

/// Compares two attribute answers without numbers, times and space.
fn same_attr(
    real: Answer<Attr>,
    model: impl FnOnce() -> Answer<Attr>,
    shared: bool,
) -> Result<Option<(Attr, Attr)>, String> {
    if is_its_right(&real) {
        return Ok(None);
    }
    let key = |attr: &Attr| {
        let size = if attr.is_dir() { 0 } else { attr.size };
        let nlink = if shared { 0 } else { attr.nlink };
        (attr.kind, attr.mode, nlink, attr.uid, attr.gid, attr.rdev, size)
    };
    match (real, model()) {
        (Ok(a), Ok(b)) if key(&a) == key(&b) => Ok(Some((a, b))),
        (Err(a), Err(b)) if a == b => Ok(None),
        (Ok(a), Ok(b)) => Err(format!("answered {:?}, the reference {:?}", key(&a), key(&b))),
        (a, b) => Err(format!("answered {a:?}, the reference {b:?}")),
    }
}

/// The task's own names in a directory, sorted, with types; twice if they are listed twice.
fn listing(
    cx: &mut Cx,
    fs: &dyn FileSystem,
    dir: Ino,
    prefix: &[u8],
) -> Answer<Vec<(Vec<u8>, Option<FileType>)>> {
    let mut names = Vec::new();
    fs.readdir(cx, dir, 0, &mut |entry| {
        if entry.name.starts_with(prefix) {
            names.push((entry.name.to_vec(), entry.kind));
        }
        true
    })?;
    names.sort();
    Ok(names)
}
