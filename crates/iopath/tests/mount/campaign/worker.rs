//! One process of a round: random system calls in a directory of its own, where it knows what each
//! file holds, and in one that all share.
//!
//! A file whose content is safe has a record outside of the mount: its path, then its content. The
//! record is removed before the next call on that file begins.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use base::Rng;
use rustix::fs::{FallocateFlags, OFlags, XattrFlags};
use rustix::io::Errno;
use rustix::mm::{MapFlags, MsyncFlags, ProtFlags};

/// Directories that each process has of its own, made before it starts.
pub const DIRS: u64 = 2;
/// Names of files in each directory.
const NAMES: u64 = 30;
/// No file of known content becomes longer, bytes.
const SIZE_MAX: u64 = 1_500_000;
/// Names in the directory of all.
const SHARED: u64 = 8;
/// What direct I/O is aligned to, bytes.
const UNIT: usize = 4096;

/// Answers of a mount whose process is gone.
const DEAD: [Errno; 3] = [Errno::NOTCONN, Errno::CONNABORTED, Errno::SHUTDOWN];
/// Answers that others in the same directory explain.
const RACES: [Errno; 11] = [
    // A second name for a directory.
    Errno::PERM,
    Errno::NOENT,
    Errno::EXIST,
    Errno::NOTEMPTY,
    Errno::ISDIR,
    Errno::NOTDIR,
    Errno::NODATA,
    Errno::INVAL,
    Errno::STALE,
    Errno::MLINK,
    Errno::LOOP,
];
/// Answers of a full image, and of a format without extents.
const EXPECTED: [Errno; 2] = [Errno::NOSPC, Errno::OPNOTSUPP];

/// Why a process ends.
enum End {
    /// It was told to.
    Told,
    /// The mount is gone.
    Dead,
}

/// What a file holds; none where a call on it failed in the middle.
type Content = Option<Vec<u8>>;

/// A file with at least one name.
struct Known {
    content: Content,
    /// Stays open as long as there is the file, so that its pages are not written at once.
    kept: Option<File>,
    names: u32,
}

/// The work of one process.
pub struct Worker {
    mount: PathBuf,
    own: PathBuf,
    records: PathBuf,
    stop: PathBuf,
    rng: Rng,
    /// One in so many calls syncs, none if it is 0. Where there are few, much is in memory only.
    sync_one_in: u64,
    /// There is room for everything.
    roomy: bool,
    files: BTreeMap<u64, Known>,
    names: BTreeMap<PathBuf, u64>,
    last: u64,
    /// The call that runs, for messages.
    doing: &'static str,
}

impl Worker {
    /// The process that a round starts with these words: the mount, the folder for records, its
    /// number, the seed, one sync in so many calls, 1 where there is room for everything.
    pub fn new(words: &str) -> Worker {
        let words: Vec<&str> = words.split(' ').collect();
        let number = |at: usize| words[at].parse::<u64>().expect("a number");
        let [mount, outside] = [words[0], words[1]].map(Path::new);
        let own = format!("w{}", words[2]);
        Worker {
            mount: mount.to_owned(),
            own: mount.join(&own),
            records: outside.join(&own),
            stop: outside.join("stop"),
            rng: Rng::new(number(3), 700 + number(2)),
            sync_one_in: number(4),
            roomy: number(5) == 1,
            files: BTreeMap::new(),
            names: BTreeMap::new(),
            last: 0,
            doing: "",
        }
    }

    /// Works until it is told to stop, or until the mount is dead. Told so where there is room for
    /// everything, it records all that it knows: an unmount must write that.
    pub fn run(&mut self) {
        let mut end = None;
        while end.is_none() {
            end = self.step();
        }
        if let (Some(End::Told), true) = (end, self.roomy) {
            self.names.iter().for_each(|(path, id)| self.record(*id, path));
        }
    }

    fn step(&mut self) -> Option<End> {
        if self.stop.exists() {
            return Some(End::Told);
        }
        match self.call() {
            Err(errno) if DEAD.contains(&errno) => Some(End::Dead),
            Err(Errno::IO) if self.is_dead() => Some(End::Dead),
            Err(errno) if !EXPECTED.contains(&errno) => panic!("{}: {errno}", self.doing),
            _ => None,
        }
    }

    /// Pages that a dead mount does not take give EIO, maybe before the mount answers so itself.
    fn is_dead(&self) -> bool {
        (0..40).any(|_| {
            thread::sleep(Duration::from_millis(50));
            rustix::fs::stat(&self.mount).is_err_and(|errno| DEAD.contains(&errno))
        })
    }

    fn call(&mut self) -> Result<(), Errno> {
        let sync = self.sync_one_in > 0 && self.rng.below(self.sync_one_in) == 0;
        // Many files first; then each lives through many calls.
        let few = self.rng.below(DIRS * NAMES) > 2 * self.names.len() as u64;
        match if sync { 63 } else { self.rng.below(60) } {
            _ if few => self.create(),
            0..3 => self.create(),
            3..5 => self.link(),
            5..7 => self.rename(),
            7 => self.unlink(),
            8 => self.other_names().or_else(race),
            9..14 => self.shared().or_else(race),
            number => {
                let Some((path, id)) = self.pick() else { return self.create() };
                self.begin(id);
                let file = self.open(&path, id)?;
                let done = match number {
                    14..34 => self.write(&file, id),
                    34..39 => self.write_mapped(&file, id),
                    39..42 => self.write_direct(&path, id),
                    42..55 => self.allocate(&file, id),
                    55..57 => self.truncate(&file, id),
                    57..60 => self.xattr(&file),
                    _ => self.sync(&file, &path, id),
                };
                if done.is_err_and(|errno| errno != Errno::OPNOTSUPP) {
                    self.spoil(id);
                }
                done
            }
        }
    }

    fn name(&mut self) -> PathBuf {
        let (dir, name) = (self.rng.below(DIRS), self.rng.below(NAMES));
        self.own.join(format!("d{dir}/f{name}"))
    }

    fn pick(&mut self) -> Option<(PathBuf, u64)> {
        let at = self.rng.below(self.names.len().max(1) as u64) as usize;
        self.names.iter().nth(at).map(|(path, id)| (path.clone(), *id))
    }

    fn record_path(&self, id: u64) -> PathBuf {
        self.records.join(id.to_string())
    }

    /// Something begins that may change the file: nothing is promised any more.
    fn begin(&mut self, id: u64) {
        let _there_may_be_none = fs::remove_file(self.record_path(id));
    }

    /// The file is safe under this name.
    fn record(&self, id: u64, path: &Path) {
        let Some(content) = &self.files[&id].content else { return };
        let path = path.strip_prefix(&self.mount).expect("below the mount");
        let record = [path.as_os_str().as_bytes(), b"\n", content].concat();
        fs::write(self.record_path(id), record).expect("a record");
    }

    fn known(&mut self, id: u64) -> &mut Known {
        self.files.get_mut(&id).expect("a file with a name")
    }

    fn spoil(&mut self, id: u64) {
        self.known(id).content = None;
    }

    fn open(&mut self, path: &Path, id: u64) -> Result<File, Errno> {
        if let Some(kept) = &self.files[&id].kept {
            return Ok(kept.try_clone().expect("a descriptor"));
        }
        open(path, OFlags::RDWR)
    }

    /// A new file, or an old one that loses its content.
    fn create(&mut self) -> Result<(), Errno> {
        self.doing = "create";
        let path = self.name();
        if let Some(id) = self.names.get(&path).copied() {
            self.begin(id);
            self.spoil(id);
            open(&path, OFlags::RDWR | OFlags::TRUNC)?;
            self.known(id).content = Some(Vec::new());
            return Ok(());
        }
        let file = open(&path, OFlags::RDWR | OFlags::CREATE | OFlags::TRUNC)?;
        self.last += 1;
        let id = self.last;
        let kept = (self.rng.below(2) == 0).then(|| file.try_clone().expect("a descriptor"));
        self.files.insert(id, Known { content: Some(Vec::new()), kept, names: 1 });
        self.names.insert(path, id);
        let written = self.write(&file, id);
        if written.is_err() {
            self.spoil(id);
        }
        written
    }

    fn range(&mut self, len_max: u64) -> (u64, u64) {
        let len = 1 + self.rng.below(len_max);
        (self.rng.below(SIZE_MAX - len), len)
    }

    fn bytes(&mut self, len: u64) -> Vec<u8> {
        let mut bytes = vec![0; len as usize];
        self.rng.fill(&mut bytes);
        bytes
    }

    fn write(&mut self, file: &File, id: u64) -> Result<(), Errno> {
        self.doing = "write";
        // Small ones leave files in many pieces.
        let len_max = *self.rng.pick(&[1000, 6000, 30_000, 150_000]);
        let (mut at, len) = self.range(len_max);
        // Some go on where the file ends.
        if let (Some(content), 0) = (&self.files[&id].content, self.rng.below(4)) {
            at = (content.len() as u64).min(SIZE_MAX - len);
        }
        let bytes = self.bytes(len);
        answer(file.write_all_at(&bytes, at))?;
        self.put(id, at, &bytes);
        Ok(())
    }

    /// The file holds these bytes now.
    fn put(&mut self, id: u64, at: u64, bytes: &[u8]) {
        let Some(content) = &mut self.known(id).content else { return };
        let (at, end) = (at as usize, at as usize + bytes.len());
        content.resize(content.len().max(end), 0);
        content[at..end].copy_from_slice(bytes);
    }

    /// Through memory, a whole number of pages or a part of one; the file keeps its length.
    fn write_mapped(&mut self, file: &File, id: u64) -> Result<(), Errno> {
        self.doing = "write_mapped";
        let size = self.files[&id].content.as_ref().map_or(0, Vec::len) as u64;
        if size == 0 {
            return Ok(());
        }
        let at = self.rng.below(size);
        let len = 1 + self.rng.below((size - at).min(100_000));
        let bytes = self.bytes(len);
        let page = at / UNIT as u64 * UNIT as u64;
        let skip = (at - page) as usize;
        let all = skip + bytes.len();
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: the kernel chooses a place that nothing else uses, and nothing else refers to it
        // before it is unmapped below. Only this process changes the file's length, and not now.
        let memory = unsafe {
            rustix::mm::mmap(std::ptr::null_mut(), all, protection, MapFlags::SHARED, file, page)
        }?;
        // SAFETY: `all` bytes are mapped, `skip` and the content together; if the mount dies the
        // kernel ends the process with SIGBUS.
        unsafe { memory.cast::<u8>().add(skip).copy_from(bytes.as_ptr(), bytes.len()) };
        let synced = match self.rng.below(2) {
            // SAFETY: the mapping is still there.
            0 => unsafe { rustix::mm::msync(memory, all, MsyncFlags::SYNC) },
            _ => Ok(()),
        };
        // SAFETY: nobody refers to it any more.
        unsafe { rustix::mm::munmap(memory, all) }?;
        synced?;
        self.put(id, at, &bytes);
        Ok(())
    }

    fn write_direct(&mut self, path: &Path, id: u64) -> Result<(), Errno> {
        self.doing = "write_direct";
        let unit = UNIT as u64;
        let units = 1 + self.rng.below(16);
        let at = self.rng.below(SIZE_MAX / unit - units) * unit;
        let bytes = self.bytes(units * unit);
        let file = open(path, OFlags::RDWR | OFlags::DIRECT)?;
        let mut memory = vec![0; bytes.len() + UNIT];
        let skip = memory.as_ptr().align_offset(UNIT);
        memory[skip..skip + bytes.len()].copy_from_slice(&bytes);
        // A full image takes a part; nothing is an error, never a count of 0.
        let count = match answer(file.write_at(&memory[skip..skip + bytes.len()], at)) {
            // What the kernel had collected behind it was refused: it takes the short answer to a
            // write that it believes inside of the file for this.
            Err(Errno::IO) if !self.roomy => Err(Errno::NOSPC),
            count => count,
        }?;
        assert!(count > 0, "a direct write of {} bytes at {at} answers 0", bytes.len());
        self.put(id, at, &bytes[..count]);
        Ok(())
    }

    /// Preallocates, zeroes or punches.
    fn allocate(&mut self, file: &File, id: u64) -> Result<(), Errno> {
        self.doing = "allocate";
        let len_max = *self.rng.pick(&[8000, 100_000, 800_000]);
        let (at, len) = self.range(len_max);
        let keep = FallocateFlags::KEEP_SIZE;
        let choices = [
            FallocateFlags::empty(),
            keep,
            FallocateFlags::PUNCH_HOLE | keep,
            FallocateFlags::ZERO_RANGE,
            FallocateFlags::ZERO_RANGE | keep,
        ];
        let mode = *self.rng.pick(&choices);
        rustix::fs::fallocate(file, mode, at, len)?;
        let zeroed = FallocateFlags::PUNCH_HOLE | FallocateFlags::ZERO_RANGE;
        let Some(content) = &mut self.known(id).content else { return Ok(()) };
        let (at, end) = (at as usize, (at + len) as usize);
        if !mode.contains(keep) {
            content.resize(content.len().max(end), 0);
        }
        if mode.intersects(zeroed) && at < content.len() {
            let end = end.min(content.len());
            content[at..end].fill(0);
        }
        Ok(())
    }

    fn truncate(&mut self, file: &File, id: u64) -> Result<(), Errno> {
        self.doing = "truncate";
        let len = self.rng.below(SIZE_MAX);
        rustix::fs::ftruncate(file, len)?;
        if let Some(content) = &mut self.known(id).content {
            content.resize(len as usize, 0);
        }
        Ok(())
    }

    fn xattr(&mut self, file: &File) -> Result<(), Errno> {
        self.doing = "xattr";
        let name = format!("user.x{}", self.rng.below(3));
        if self.rng.below(4) == 0 {
            return rustix::fs::fremovexattr(file, name).or_else(race);
        }
        let len = [10, 200, 900][self.rng.below(3) as usize];
        let value = self.bytes(len);
        rustix::fs::fsetxattr(file, name, &value, XattrFlags::empty())
    }

    /// The file and its directory; then its content is safe under its name.
    fn sync(&mut self, file: &File, path: &Path, id: u64) -> Result<(), Errno> {
        self.doing = "sync";
        match self.rng.below(3) {
            0 => rustix::fs::fdatasync(file)?,
            _ => rustix::fs::fsync(file)?,
        }
        sync_dir(path.parent().expect("a directory"))?;
        self.record(id, path);
        Ok(())
    }

    fn link(&mut self) -> Result<(), Errno> {
        self.doing = "link";
        let new = self.name();
        let Some((path, id)) = self.pick() else { return Ok(()) };
        if self.names.contains_key(&new) {
            return Ok(());
        }
        self.begin(id);
        rustix::fs::link(&path, &new)?;
        self.names.insert(new, id);
        self.known(id).names += 1;
        Ok(())
    }

    fn rename(&mut self) -> Result<(), Errno> {
        self.doing = "rename";
        let new = self.name();
        let Some((path, id)) = self.pick() else { return Ok(()) };
        let old = self.names.get(&new).copied();
        self.begin(id);
        old.into_iter().for_each(|old| self.begin(old));
        rustix::fs::rename(&path, &new)?;
        // Two names of one file stay as they are.
        if old != Some(id) {
            old.into_iter().for_each(|old| self.drop_name(old));
            self.names.remove(&path);
            self.names.insert(new, id);
        }
        Ok(())
    }

    fn unlink(&mut self) -> Result<(), Errno> {
        self.doing = "unlink";
        let Some((path, id)) = self.pick() else { return Ok(()) };
        self.begin(id);
        rustix::fs::unlink(&path)?;
        self.names.remove(&path);
        self.drop_name(id);
        Ok(())
    }

    fn drop_name(&mut self, id: u64) {
        let file = self.known(id);
        file.names -= 1;
        if file.names == 0 {
            self.files.remove(&id);
        }
    }

    /// Directories and symbolic links.
    fn other_names(&mut self) -> Result<(), Errno> {
        self.doing = "other_names";
        let (dir, link) = (self.own.join("m"), self.own.join("s"));
        match self.rng.below(4) {
            0 => rustix::fs::mkdir(dir, 0o755.into()),
            1 => rustix::fs::rmdir(dir),
            2 => rustix::fs::unlink(link),
            _ => {
                let target = "t".repeat(1 + self.rng.below(900) as usize);
                rustix::fs::symlink(target, link)
            }
        }
    }

    /// A call where others do the same.
    fn shared(&mut self) -> Result<(), Errno> {
        self.doing = "shared";
        let all = self.mount.join("all");
        let [a, b] = [0, 1].map(|_| all.join(format!("s{}", self.rng.below(SHARED))));
        let (at, len) = self.range(150_000);
        match self.rng.below(10) {
            0 => rustix::fs::unlink(a),
            1 => rustix::fs::rename(a, b),
            2 => rustix::fs::link(a, b),
            3 => rustix::fs::mkdir(a, 0o755.into()),
            4 => rustix::fs::rmdir(a),
            5 if self.sync_one_in > 0 => sync_dir(&all),
            number => {
                let file = open(&a, OFlags::RDWR | OFlags::CREATE)?;
                match number {
                    6 => rustix::fs::ftruncate(&file, at),
                    7 => rustix::fs::fallocate(&file, FallocateFlags::KEEP_SIZE, at, len),
                    8 if self.sync_one_in > 0 => rustix::fs::fsync(&file),
                    _ => answer(file.write_all_at(&self.bytes(len), at)),
                }
            }
        }
    }
}

fn race(errno: Errno) -> Result<(), Errno> {
    if RACES.contains(&errno) { Ok(()) } else { Err(errno) }
}

fn answer<T>(result: std::io::Result<T>) -> Result<T, Errno> {
    result.map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))
}

fn open(path: &Path, flags: OFlags) -> Result<File, Errno> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).mode(0o644).create(flags.contains(OFlags::CREATE));
    options.truncate(flags.contains(OFlags::TRUNC));
    let rest = flags & OFlags::DIRECT;
    answer(options.custom_flags(rest.bits() as i32).open(path))
}

fn sync_dir(path: &Path) -> Result<(), Errno> {
    let dir = answer(File::open(path))?;
    rustix::fs::fsync(dir.as_fd())
}
