//! System calls as values, carried out below one directory.

use std::fmt::Write as _;
use std::fs;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{
    Access, AtFlags, CWD, Dev, FallocateFlags, FileType, Gid, Mode, OFlags, RenameFlags, SeekFrom,
    Timespec, Timestamps, Uid, XattrFlags,
};
use rustix::io::Errno;

/// Who calls.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum User {
    Root,
    /// User and group 1000, also in group 100.
    Plain,
}

/// One system call. Paths are relative to the world's directory.
#[derive(Clone, Debug)]
pub enum Call {
    Open {
        slot: usize,
        path: String,
        flags: OFlags,
        mode: u32,
    },
    Close {
        slot: usize,
    },
    Read {
        slot: usize,
        offset: u64,
        len: usize,
    },
    Write {
        slot: usize,
        offset: u64,
        len: usize,
        byte: u8,
    },
    Append {
        slot: usize,
        len: usize,
        byte: u8,
    },
    Truncate {
        slot: usize,
        len: u64,
    },
    Fallocate {
        slot: usize,
        mode: u32,
        offset: u64,
        len: u64,
    },
    Seek {
        slot: usize,
        hole: bool,
        offset: u64,
    },
    CopyRange {
        from: usize,
        to: usize,
        offset_in: u64,
        offset_out: u64,
        len: usize,
    },
    Fsync {
        slot: usize,
    },
    Fstat {
        slot: usize,
    },
    Mkdir {
        path: String,
        mode: u32,
    },
    Mknod {
        path: String,
        kind: FileType,
        mode: u32,
    },
    Symlink {
        target: String,
        path: String,
    },
    Link {
        old: String,
        new: String,
        follow: bool,
    },
    /// Gives an open file a name, by its number in `/proc/self/fd`.
    LinkOpen {
        slot: usize,
        new: String,
    },
    Unlink {
        path: String,
    },
    Rmdir {
        path: String,
    },
    Rename {
        old: String,
        new: String,
        flags: u32,
    },
    Readlink {
        path: String,
    },
    Stat {
        path: String,
        follow: bool,
    },
    Access {
        path: String,
        mode: u8,
    },
    Chmod {
        path: String,
        mode: u32,
    },
    Chown {
        path: String,
        uid: Option<u32>,
        gid: Option<u32>,
        follow: bool,
    },
    Utimens {
        path: String,
        seconds: i64,
        nanos: i64,
    },
    Setxattr {
        path: String,
        name: String,
        value: Vec<u8>,
        flags: u32,
    },
    Getxattr {
        path: String,
        name: String,
        size: usize,
    },
    Listxattr {
        path: String,
    },
    Removexattr {
        path: String,
        name: String,
    },
    List {
        path: String,
    },
    NameMax,
}

pub const SLOTS: usize = 5;

/// A directory of a mount, with open files.
pub struct World {
    root: PathBuf,
    /// Where the calls happen: a directory below `root`.
    base: PathBuf,
    files: [Option<OwnedFd>; SLOTS],
}

type Answer = Result<String, Errno>;

/// Times that calls set explicitly are shown; all others are "now".
fn moment(seconds: i64, nanos: i64) -> String {
    if seconds < 1_500_000_000 { format!("{seconds}.{nanos:09}") } else { "now".to_owned() }
}

fn sum(bytes: &[u8]) -> u64 {
    bytes
        .iter()
        .fold(0xcbf2_9ce4_8422_2325, |h, b| (h ^ u64::from(*b)).wrapping_mul(0x0100_0000_01b3))
}

impl World {
    pub fn new(root: &Path) -> World {
        World { root: root.to_owned(), base: root.to_owned(), files: Default::default() }
    }

    /// Goes to a fresh directory of this name and mode, owned by root; all files are closed.
    pub fn enter(&mut self, name: &str, mode: u32) {
        self.files = Default::default();
        self.base = self.root.join(name);
        fs::create_dir(&self.base).expect("a fresh directory");
        rustix::fs::chmodat(CWD, &self.base, Mode::from_raw_mode(mode), AtFlags::empty())
            .expect("its mode");
    }

    /// Closes everything and removes the directory.
    pub fn leave(&mut self) {
        self.files = Default::default();
        fs::remove_dir_all(&self.base).expect("the directory can be removed");
    }

    fn at(&self, path: &str) -> PathBuf {
        // `join` would drop what is behind an absolute path, and a slash at the end matters.
        let mut whole = self.base.as_os_str().to_owned();
        whole.push("/");
        whole.push(path);
        PathBuf::from(whole)
    }

    fn file(&self, slot: usize) -> Result<&OwnedFd, Errno> {
        self.files[slot].as_ref().ok_or(Errno::BADF)
    }

    /// Carries a call out and tells its answer.
    pub fn run(&mut self, user: User, call: &Call) -> String {
        let _back_to_root = become_user(user);
        match self.answer(call) {
            Ok(text) => text,
            Err(errno) => format!("error {}", errno.raw_os_error()),
        }
    }

    fn answer(&mut self, call: &Call) -> Answer {
        match call {
            Call::Open { slot, path, flags, mode } => {
                self.files[*slot] = None;
                let flags = *flags | OFlags::NONBLOCK | OFlags::CLOEXEC;
                let mode = Mode::from_raw_mode(*mode);
                self.files[*slot] = Some(rustix::fs::open(self.at(path), flags, mode)?);
                Ok("ok".into())
            }
            Call::Close { slot } => {
                self.files[*slot] = None;
                Ok("ok".into())
            }
            Call::Read { .. }
            | Call::Write { .. }
            | Call::Append { .. }
            | Call::Truncate { .. }
            | Call::Fallocate { .. }
            | Call::Seek { .. }
            | Call::CopyRange { .. }
            | Call::Fsync { .. }
            | Call::LinkOpen { .. }
            | Call::Fstat { .. } => self.on_file(call),
            Call::Setxattr { .. }
            | Call::Getxattr { .. }
            | Call::Listxattr { .. }
            | Call::Removexattr { .. } => self.on_xattr(call),
            _ => self.on_name(call),
        }
    }

    fn on_file(&self, call: &Call) -> Answer {
        let count = match call {
            Call::Read { slot, offset, len } => {
                let mut buffer = vec![0; *len];
                let count = rustix::io::pread(self.file(*slot)?, &mut buffer, *offset)?;
                return Ok(format!("{count} bytes, sum {:x}", sum(&buffer[..count])));
            }
            Call::Write { slot, offset, len, byte } => {
                rustix::io::pwrite(self.file(*slot)?, &vec![*byte; *len], *offset)?
            }
            Call::Append { slot, len, byte } => {
                rustix::io::write(self.file(*slot)?, &vec![*byte; *len])?
            }
            Call::Truncate { slot, len } => {
                rustix::fs::ftruncate(self.file(*slot)?, *len)?;
                0
            }
            Call::Fallocate { slot, mode, offset, len } => {
                let mode = FallocateFlags::from_bits_retain(*mode);
                rustix::fs::fallocate(self.file(*slot)?, mode, *offset, *len)?;
                0
            }
            Call::Seek { slot, hole, offset } => {
                let to = if *hole { SeekFrom::Hole(*offset) } else { SeekFrom::Data(*offset) };
                return Ok(format!("at {}", rustix::fs::seek(self.file(*slot)?, to)?));
            }
            Call::CopyRange { from, to, offset_in, offset_out, len } => {
                let (from, to) = (self.file(*from)?, self.file(*to)?);
                let (mut a, mut b) = (*offset_in, *offset_out);
                rustix::fs::copy_file_range(from, Some(&mut a), to, Some(&mut b), *len)?
            }
            Call::Fsync { slot } => {
                rustix::fs::fsync(self.file(*slot)?)?;
                0
            }
            Call::LinkOpen { slot, new } => {
                let open = format!("/proc/thread-self/fd/{}", self.file(*slot)?.as_raw_fd());
                let (new, follow) = (self.at(new), AtFlags::SYMLINK_FOLLOW);
                rustix::fs::linkat(CWD, open, CWD, new, follow)?;
                0
            }
            Call::Fstat { slot } => return Ok(stat_text(&rustix::fs::fstat(self.file(*slot)?)?)),
            _ => unreachable!("not a call on a file"),
        };
        Ok(format!("{count}"))
    }

    fn on_name(&self, call: &Call) -> Answer {
        let empty = AtFlags::empty();
        match call {
            Call::Mkdir { path, mode } => {
                rustix::fs::mkdirat(CWD, self.at(path), Mode::from_raw_mode(*mode))?;
            }
            Call::Mknod { path, kind, mode } => {
                let dev: Dev = if *kind == FileType::CharacterDevice { 0x1_03 } else { 0 };
                let mode = Mode::from_raw_mode(*mode);
                rustix::fs::mknodat(CWD, self.at(path), *kind, mode, dev)?;
            }
            Call::Symlink { target, path } => {
                rustix::fs::symlinkat(target.as_str(), CWD, self.at(path))?;
            }
            Call::Link { old, new, follow } => {
                let flags = if *follow { AtFlags::SYMLINK_FOLLOW } else { empty };
                rustix::fs::linkat(CWD, self.at(old), CWD, self.at(new), flags)?;
            }
            Call::Unlink { path } => rustix::fs::unlinkat(CWD, self.at(path), empty)?,
            Call::Rmdir { path } => {
                rustix::fs::unlinkat(CWD, self.at(path), AtFlags::REMOVEDIR)?;
            }
            Call::Rename { old, new, flags } => {
                let flags = RenameFlags::from_bits_retain(*flags);
                rustix::fs::renameat_with(CWD, self.at(old), CWD, self.at(new), flags)?;
            }
            Call::Readlink { path } => {
                let target = rustix::fs::readlinkat(CWD, self.at(path), Vec::new())?;
                return Ok(format!("{target:?}"));
            }
            Call::Stat { path, follow } => {
                let flags = if *follow { empty } else { AtFlags::SYMLINK_NOFOLLOW };
                return Ok(stat_text(&rustix::fs::statat(CWD, self.at(path), flags)?));
            }
            Call::Access { path, mode } => {
                let mode = Access::from_bits_retain((*mode).into());
                rustix::fs::accessat(CWD, self.at(path), mode, AtFlags::EACCESS)?;
            }
            Call::Chmod { path, mode } => {
                rustix::fs::chmodat(CWD, self.at(path), Mode::from_raw_mode(*mode), empty)?;
            }
            Call::Chown { path, uid, gid, follow } => {
                let flags = if *follow { empty } else { AtFlags::SYMLINK_NOFOLLOW };
                let (uid, gid) = (uid.map(Uid::from_raw), gid.map(Gid::from_raw));
                rustix::fs::chownat(CWD, self.at(path), uid, gid, flags)?;
            }
            Call::Utimens { path, seconds, nanos } => {
                let time = Timespec { tv_sec: *seconds, tv_nsec: *nanos };
                let times = Timestamps { last_access: time, last_modification: time };
                rustix::fs::utimensat(CWD, self.at(path), &times, AtFlags::SYMLINK_NOFOLLOW)?;
            }
            Call::List { path } => return list(&self.at(path)),
            Call::NameMax => {
                return Ok(format!("{}", rustix::fs::statvfs(&self.base)?.f_namemax));
            }
            _ => unreachable!("not a call on a name"),
        }
        Ok("ok".into())
    }

    fn on_xattr(&self, call: &Call) -> Answer {
        match call {
            Call::Setxattr { path, name, value, flags } => {
                let flags = XattrFlags::from_bits_retain(*flags);
                rustix::fs::lsetxattr(self.at(path), name.as_str(), value, flags)?;
                Ok("ok".into())
            }
            Call::Getxattr { path, name, size } => {
                let mut value = vec![0; *size];
                let len = rustix::fs::lgetxattr(self.at(path), name.as_str(), &mut value[..])?;
                Ok(format!("{len}: {:?}", &value[..len.min(*size)]))
            }
            Call::Listxattr { path } => {
                let mut names = vec![0; 4096];
                let len = rustix::fs::llistxattr(self.at(path), &mut names[..])?;
                let mut names: Vec<&[u8]> = names[..len].split(|&b| b == 0).collect();
                names.sort();
                let names: Vec<_> = names.iter().map(|n| String::from_utf8_lossy(n)).collect();
                Ok(names.join(" "))
            }
            Call::Removexattr { path, name } => {
                rustix::fs::lremovexattr(self.at(path), name.as_str())?;
                Ok("ok".into())
            }
            _ => unreachable!("not a call on attributes"),
        }
    }

    /// Everything that can be seen of the tree, one line per name.
    pub fn snapshot(&self) -> String {
        let mut text = String::new();
        self.describe(&self.base, "", &mut text);
        text
    }

    fn describe(&self, path: &Path, name: &str, text: &mut String) {
        let meta = fs::symlink_metadata(path).expect("a name that was listed can be looked up");
        let kind = meta.file_type();
        let size = if kind.is_dir() { 0 } else { meta.len() };
        let time = moment(meta.mtime(), meta.mtime_nsec());
        let _infallible = write!(
            text,
            "{name:?} {:o} {}:{} n{} s{size} r{:x} m{time} a{}",
            meta.mode(),
            meta.uid(),
            meta.gid(),
            meta.nlink(),
            meta.rdev(),
            moment(meta.atime(), meta.atime_nsec()),
        );
        if kind.is_symlink() {
            let _infallible = write!(text, " -> {:?}", fs::read_link(path).expect("a target"));
        }
        if kind.is_file() && !kind.is_fifo() {
            let _infallible = write!(text, " {:x}", sum(&read_through(path)));
        }
        let mut names = vec![0; 4096];
        let len = rustix::fs::llistxattr(path, &mut names[..]).unwrap_or(0);
        let mut attributes: Vec<&[u8]> = names[..len].split(|&b| b == 0).collect();
        attributes.sort();
        for attribute in attributes.iter().filter(|name| !name.is_empty()) {
            let mut value = vec![0; 70_000];
            let got = rustix::fs::lgetxattr(path, *attribute, &mut value[..]);
            let value = got.map(|len| sum(&value[..len]));
            let _infallible = write!(text, " {}={value:x?}", String::from_utf8_lossy(attribute));
        }
        text.push('\n');
        if kind.is_dir() {
            let entries = fs::read_dir(path).expect("a listing");
            let mut children: Vec<PathBuf> =
                entries.map(|entry| entry.expect("an entry").path()).collect();
            children.sort();
            for child in children {
                let last = child.file_name().expect("a name").as_bytes();
                let below = format!("{name}/{}", String::from_utf8_lossy(last));
                self.describe(&child, &below, text);
            }
        }
    }
}

fn read_through(path: &Path) -> Vec<u8> {
    let mut content = Vec::new();
    let mut open = fs::OpenOptions::new();
    let mut file = open.read(true).custom_flags(OFlags::NOATIME.bits() as i32).open(path);
    let read = file.as_mut().map(|file| std::io::Read::read_to_end(file, &mut content));
    read.expect("it opens").expect("it can be read");
    content
}

fn stat_text(stat: &rustix::fs::Stat) -> String {
    let size = if stat.st_mode & 0o170_000 == 0o040_000 { 0 } else { stat.st_size };
    format!(
        "{:o} {}:{} n{} s{size} r{:x} m{}",
        stat.st_mode,
        stat.st_uid,
        stat.st_gid,
        stat.st_nlink,
        stat.st_rdev,
        moment(stat.st_mtime, stat.st_mtime_nsec as i64)
    )
}

fn list(path: &Path) -> Answer {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let dir = rustix::fs::open(path, flags, Mode::empty())?;
    let mut names = Vec::new();
    for entry in rustix::fs::Dir::read_from(&dir)? {
        let entry = entry?;
        names.push(format!("{:?}:{:?}", entry.file_name(), entry.file_type()));
    }
    names.sort();
    Ok(names.join(" "))
}

/// Gives this thread another identity until it is dropped.
struct Identity(User);

fn become_user(user: User) -> Identity {
    if user == User::Plain {
        let (uid, gid) = (Uid::from_raw(1000), Gid::from_raw(1000));
        rustix::thread::set_thread_groups(&[Gid::from_raw(100)]).expect("root sets groups");
        rustix::thread::set_thread_res_gid(gid, gid, Gid::ROOT).expect("root sets the group");
        rustix::thread::set_thread_res_uid(uid, uid, Uid::ROOT).expect("root sets the user");
    }
    Identity(user)
}

impl Drop for Identity {
    fn drop(&mut self) {
        if self.0 == User::Plain {
            rustix::thread::set_thread_res_uid(Uid::ROOT, Uid::ROOT, Uid::ROOT).expect("back");
            rustix::thread::set_thread_res_gid(Gid::ROOT, Gid::ROOT, Gid::ROOT).expect("back");
            rustix::thread::set_thread_groups(&[Gid::ROOT]).expect("back");
        }
    }
}
