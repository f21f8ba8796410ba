//! What one task does in a phase.

use base::{Errno, Nanos};
use rt::Cx;
use vfs::OpenFlags;

use super::options::Options;
use super::run::{Failure, Operation};
use crate::{Stop, Target};

/// A task of an iteration.
pub(super) struct Task {
    pub target: Target,
    pub options: Options,
    pub stop: Stop,
    pub rank: u64,
    /// The directory of the iteration, in which the tree lies.
    pub top: String,
}

/// What a task measured in a phase.
pub(super) struct Measured {
    pub span: Nanos,
    pub done: u64,
}

/// The directory number `node` of the tree `root`: nodes count level by level.
pub(super) fn node_path(options: &Options, root: &str, node: u64) -> String {
    let mut names = Vec::new();
    let mut at = node;
    while at > 0 {
        names.push(at);
        at = (at - 1) / options.branch;
    }
    let mut path = root.to_owned();
    for name in names.into_iter().rev() {
        path.push_str(&format!("/mdtest_tree.{}{name}", rank_part(options, root)));
    }
    path
}

/// With `-u` the tree's directories carry the task's number, as its root does.
fn rank_part(options: &Options, root: &str) -> String {
    if !options.unique {
        return String::new();
    }
    let name = root.rsplit('/').next().unwrap_or_default();
    let number = name.split('.').nth(1).unwrap_or("0");
    format!("{number}.")
}

/// The root of the tree of a task.
pub(super) fn tree_root(options: &Options, top: &str, rank: u64) -> String {
    match options.unique {
        true => format!("{top}/mdtest_tree.{rank}.0"),
        false => format!("{top}/mdtest_tree.0"),
    }
}

impl Task {
    /// Carries a phase out: its time, and how many operations there were.
    pub fn phase(&self, cx: &mut Cx, operation: Operation) -> Result<Measured, Failure> {
        let places = self.places(cx, operation);
        let begin = cx.now();
        let mut done = 0;
        for path in &places {
            if self.stop.is_due(cx) {
                break;
            }
            let result = self.one(cx, operation, path);
            result.map_err(|errno| Failure { operation, path: path.clone(), errno })?;
            done += 1;
        }
        if self.options.sync_phase {
            let result = self.target.sync(cx);
            result.map_err(|errno| Failure { operation, path: self.top.clone(), errno })?;
        }
        Ok(Measured { span: cx.now().since(begin), done })
    }

    /// The items of a phase: those of this task, or with a stride those of another one.
    fn places(&self, cx: &mut Cx, operation: Operation) -> Vec<String> {
        let options = &self.options;
        let shift = match operation {
            Operation::DirCreate | Operation::FileCreate => 0,
            Operation::DirStat | Operation::FileStat => options.stride,
            Operation::FileRead => 2 * options.stride,
            _ => 3 * options.stride,
        };
        let maker = (self.rank + shift) % options.tasks;
        let root = tree_root(options, &self.top, maker);
        let kind = if operation.of_files() { "file" } else { "dir" };
        // A renamed directory is removed under its new name.
        let renamed = options.rename && operation == Operation::DirRemove;
        let suffix = if renamed { "-XX" } else { "" };
        let (first, count) = options.holders();
        let each = options.per_directory();
        let mut list = Vec::with_capacity((count * each) as usize);
        for holder in 0..count {
            let folder = node_path(options, &root, first + holder);
            for item in 0..each {
                let number = holder * each + item;
                list.push(format!("{folder}/{kind}.mdtest.{maker}.{number}{suffix}"));
            }
        }
        if options.random && matches!(operation, Operation::DirStat | Operation::FileStat) {
            for at in (1..list.len()).rev() {
                list.swap(at, cx.rng().below(at as u64 + 1) as usize);
            }
        }
        list
    }

    fn one(&self, cx: &mut Cx, operation: Operation, path: &str) -> Result<(), Errno> {
        let (target, bytes) = (&self.target, path.as_bytes());
        match operation {
            Operation::DirCreate => target.mkdir(cx, bytes),
            Operation::DirStat | Operation::FileStat => target.stat(cx, bytes).map(drop),
            Operation::DirRename => target.rename(cx, bytes, format!("{path}-XX").as_bytes()),
            Operation::DirRemove => target.rmdir(cx, bytes),
            Operation::FileCreate => self.create(cx, bytes),
            Operation::FileRead => self.read(cx, bytes),
            Operation::FileRemove => target.unlink(cx, bytes),
            Operation::TreeCreate | Operation::TreeRemove => Ok(()),
        }
    }

    fn create(&self, cx: &mut Cx, path: &[u8]) -> Result<(), Errno> {
        let flags = OpenFlags::CREATE | OpenFlags::READ | OpenFlags::WRITE;
        let file = self.target.open(cx, path, flags, 0o664)?;
        let mut offset = 0;
        let content = vec![0; self.options.write_bytes.min(1 << 20) as usize];
        while offset < self.options.write_bytes {
            let len = (self.options.write_bytes - offset).min(content.len() as u64);
            match file.write_at(cx, offset, &content[..len as usize])? {
                0 => return Err(Errno::ENOSPC),
                count => offset += count as u64,
            }
        }
        if self.options.fsync {
            file.fsync(cx, false)?;
        }
        file.close(cx)
    }

    fn read(&self, cx: &mut Cx, path: &[u8]) -> Result<(), Errno> {
        let file = self.target.open(cx, path, OpenFlags::READ, 0)?;
        let mut offset = 0;
        let mut content = vec![0; self.options.read_bytes.min(1 << 20) as usize];
        while offset < self.options.read_bytes {
            match file.read_at(cx, offset, &mut content)? {
                0 => break,
                count => offset += count as u64,
            }
        }
        file.close(cx)
    }
}
