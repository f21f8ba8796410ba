//! One file on a mount under a seeded stream of operations: write, mapped write and `O_DIRECT`,
//! read all three ways, copy_file_range, holes, zeros, space ahead, truncation, fsync, close and
//! umount. Every byte that is read is compared with a copy in memory. A neighbour fills the image
//! and removes its files again. Two parts for each format:
//!
//! - *full*, mounted with `nowriteback`: the image is full part of the time. Every call is refused
//!   where it is made, so that each `ENOSPC` is judged: while the neighbour rests fewer blocks are
//!   free than the call needs at the worst, and the file is as the kernel defines it: of a short
//!   write what was counted, of others whole blocks (FUSE knows no short count of an `O_DIRECT`
//!   write). A mapping is written back by the kernel also here: what msync(2) says was refused is
//!   lost block by block, and the next call that writes, or waits for what is written, may be told
//!   once more. After a refused hole or zeroing the kernel's cache is emptied before the look: it
//!   still has what is zero below it;
//! - *roomy*, mounted as by default: the kernel collects writes and could lose some where the image
//!   is full, so that it never is. Nothing may be refused.
//!
//! The operations follow from the seed; how the neighbour comes between them does not.
//! `IOPATH_FSX_OPS` makes as many operations in each part and tells how far it has come,
//! `IOPATH_SEED` chooses the seed. After a failure the image is kept.

use std::collections::BTreeSet;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use base::Errno;
use rustix::fs::{Advice, FallocateFlags, OFlags};
use testkit::campaign::seeds;
use testkit::content::pattern;
use testkit::fsx::neighbour::{Gate, Ground, Neighbour};
use testkit::fsx::run::{Report, Trial, run};
use testkit::fsx::space::Cost;
use testkit::fsx::{FsxTarget, Op, Plan, Refused, SOURCE_NUMBER, SOURCE_SIZE, Sort, Way};
use testkit::judge;

use crate::host::{Mounted, check, place};
use crate::mapped::Mapping;

const MIB: u64 = 1 << 20;
const SIZE_MAX: u64 = MIB;
/// Bytes that the filler leaves to the file and the neighbour.
const LEFT: u64 = 7 * MIB / 4;

/// A format under test.
#[derive(Clone, Copy, Debug)]
struct Format {
    kind: &'static str,
    block: u64,
    bytes: u64,
}

impl Format {
    fn image(&self, dir: &Path) -> PathBuf {
        let image = dir.join(format!("{}.img", self.kind));
        let block = self.block.to_string();
        match self.kind {
            "xfs" => return crate::host::image(dir, "xfs", self.bytes),
            kind => judge::mke2fs(&image, self.bytes, &["-t", kind, "-b", &block]),
        }
        image
    }

    fn cost(&self, dir: &Path) -> Cost {
        let blocks = self.bytes / self.block;
        match self.kind {
            // mkfs.xfs makes four groups of a small image.
            "xfs" => Cost::xfs(self.block, rustix::fs::statvfs(dir).expect("statvfs").f_blocks, 4),
            kind => Cost::ext4(self.block, blocks, kind != "ext4"),
        }
    }

    /// What the mount cannot: the file system in process could clone, the kernel asks no FUSE
    /// server to shift ranges, and tables of pointers know no space ahead.
    fn left_out(&self) -> BTreeSet<Sort> {
        let mut sorts = BTreeSet::from([Sort::Collapse, Sort::Insert]);
        if self.kind == "ext3" {
            sorts.extend([Sort::Zero, Sort::Allocate]);
        }
        sorts
    }
}

fn errno(error: io::Error) -> Errno {
    Errno(error.raw_os_error().unwrap_or(Errno::EIO.0))
}

fn refused(error: impl Into<io::Error>) -> Refused {
    Refused::Errno(errno(error.into()))
}

/// The open files.
struct Files {
    cached: File,
    direct: File,
    second: File,
}

impl Files {
    fn open(dir: &Path) -> io::Result<Files> {
        let mut options = OpenOptions::new();
        options.read(true).write(true);
        let cached = options.open(dir.join("fsx"))?;
        let second = options.open(dir.join("second"))?;
        let direct = options.custom_flags(OFlags::DIRECT.bits() as i32).open(dir.join("fsx"))?;
        Ok(Files { cached, direct, second })
    }
}

/// The file on the mount.
struct OnMount<'a> {
    image: &'a Path,
    options: &'a str,
    mount: Option<Mounted>,
    files: Option<Files>,
    gate: &'a Gate,
}

impl OnMount<'_> {
    fn files(&self) -> &Files {
        self.files.as_ref().expect("the files are open")
    }

    fn dir(&self) -> &Path {
        self.mount.as_ref().expect("it is mounted").dir()
    }

    fn write(&self, way: Way, at: u64, bytes: &[u8]) -> Result<u64, Refused> {
        let files = self.files();
        match way {
            Way::Cached => files.cached.write_at(bytes, at).map(|n| n as u64).map_err(refused),
            Way::Direct => files.direct.write_at(bytes, at).map(|n| n as u64).map_err(refused),
            Way::Mapped => {
                let mapping = Mapping::new(&files.cached, at, bytes.len() as u64);
                let mapping = mapping.map_err(refused)?;
                mapping.write(bytes);
                mapping.sync().map_err(refused)?;
                Ok(bytes.len() as u64)
            }
        }
    }

    fn read(&self, way: Way, at: u64, bytes: &mut [u8]) -> Result<u64, Refused> {
        let file = match way {
            Way::Cached => &self.files().cached,
            Way::Direct => &self.files().direct,
            Way::Mapped => return self.read_mapped(at, bytes),
        };
        let mut done = 0;
        // The kernel may cut a read in pieces at the borders of requests.
        while done < bytes.len() {
            match file.read_at(&mut bytes[done..], at + done as u64).map_err(refused)? {
                0 => break,
                count => done += count,
            }
        }
        Ok(done as u64)
    }

    fn read_mapped(&self, at: u64, bytes: &mut [u8]) -> Result<u64, Refused> {
        let file = &self.files().cached;
        let size = file.metadata().map_err(refused)?.len();
        let mapping = Mapping::new(file, at, bytes.len() as u64).map_err(refused)?;
        mapping.read(bytes);
        let mut room = vec![0; mapping.room()];
        mapping.read(&mut room);
        let behind = room.get((size - at) as usize..).unwrap_or(&[]);
        match behind.iter().position(|&byte| byte != 0) {
            Some(index) => {
                let message = format!("byte {index} behind the end is {:#x}", behind[index]);
                Err(Refused::Wrong(message))
            }
            None => Ok(bytes.len() as u64),
        }
    }

    fn copy(&self, second: bool, from: u64, to: u64, len: u64) -> Result<u64, Refused> {
        let files = self.files();
        let source = if second { &files.second } else { &files.cached };
        let (mut from, mut to) = (from, to);
        let copied = rustix::fs::copy_file_range(
            source,
            Some(&mut from),
            &files.cached,
            Some(&mut to),
            len as usize,
        );
        copied.map(|count| count as u64).map_err(refused)
    }

    fn drop_caches(&self) -> io::Result<()> {
        let file = &self.files().cached;
        file.sync_all()?;
        Ok(rustix::fs::fadvise(file, 0, None, Advice::DontNeed)?)
    }

    fn remount(&mut self) {
        self.gate.close(nap);
        self.files = None;
        if let Some(mount) = self.mount.take() {
            mount.unmount();
        }
        let mount = Mounted::new(self.image, self.options);
        self.files = Some(Files::open(mount.dir()).expect("the files are there"));
        self.mount = Some(mount);
    }

    fn allocate(
        &self,
        flags: FallocateFlags,
        keep_size: bool,
        at: u64,
        len: u64,
    ) -> io::Result<()> {
        let keep = if keep_size { FallocateFlags::KEEP_SIZE } else { FallocateFlags::empty() };
        Ok(rustix::fs::fallocate(&self.files().cached, flags | keep, at, len)?)
    }
}

fn nap() {
    thread::sleep(Duration::from_micros(200));
}

impl FsxTarget for OnMount<'_> {
    fn run(&mut self, op: &Op, bytes: &mut [u8]) -> Result<u64, Refused> {
        let done = match *op {
            Op::Write { way, at, .. } => return self.write(way, at, bytes),
            Op::Read { way, at, len } => {
                let size = self.size()?;
                // A mapping ends with the file.
                let len = if way == Way::Mapped { len.min(size.saturating_sub(at)) } else { len };
                return self.read(way, at, &mut bytes[..len as usize]);
            }
            Op::Copy { second, from, to, len } => return self.copy(second, from, to, len),
            Op::Clone { .. } => Err(io::ErrorKind::Unsupported.into()),
            Op::Punch { at, len } => self.allocate(FallocateFlags::PUNCH_HOLE, true, at, len),
            Op::Zero { at, len, keep_size } => {
                self.allocate(FallocateFlags::ZERO_RANGE, keep_size, at, len)
            }
            Op::Allocate { at, len, keep_size } => {
                self.allocate(FallocateFlags::empty(), keep_size, at, len)
            }
            Op::Collapse { at, len } => {
                self.allocate(FallocateFlags::COLLAPSE_RANGE, false, at, len)
            }
            Op::Insert { at, len } => self.allocate(FallocateFlags::INSERT_RANGE, false, at, len),
            Op::Truncate { size } => self.files().cached.set_len(size),
            Op::Sync { data_only: true } => self.files().cached.sync_data(),
            Op::Sync { data_only: false } => self.files().cached.sync_all(),
            Op::Reopen => Files::open(self.dir()).map(|files| self.files = Some(files)),
            Op::DropCaches => self.drop_caches(),
            Op::Remount => {
                self.remount();
                Ok(())
            }
        };
        done.map(|()| 0).map_err(refused)
    }

    fn size(&mut self) -> Result<u64, Refused> {
        self.files().cached.metadata().map(|meta| meta.len()).map_err(refused)
    }

    fn free(&mut self) -> u64 {
        rustix::fs::statvfs(self.dir()).expect("statvfs").f_bfree
    }

    fn rest(&mut self, rest: bool) {
        match rest {
            true => self.gate.close(nap),
            false => self.gate.open(),
        }
    }
}

/// The neighbour's directory.
struct Beside(PathBuf);

impl Ground for Beside {
    fn write(&mut self, name: &str, at: u64, bytes: &[u8]) -> Result<u64, Errno> {
        let path = self.0.join(name);
        let file = OpenOptions::new().write(true).create(true).truncate(false).open(path);
        let written = file.and_then(|file| file.write_at(bytes, at));
        written.map(|count| count as u64).map_err(errno)
    }

    fn read(&mut self, name: &str, bytes: &mut [u8]) -> Result<u64, Errno> {
        let content = fs::read(self.0.join(name)).map_err(errno)?;
        let count = content.len().min(bytes.len());
        bytes[..count].copy_from_slice(&content[..count]);
        Ok(count as u64)
    }

    fn remove(&mut self, name: &str) -> Result<(), Errno> {
        match fs::remove_file(self.0.join(name)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(errno(error)),
            _ => Ok(()),
        }
    }

    fn nap(&mut self) {
        nap();
    }
}

/// Makes the files.
fn prepare(dir: &Path, full: bool) -> io::Result<()> {
    File::create(dir.join("fsx"))?;
    fs::create_dir(dir.join("beside"))?;
    let mut bytes = vec![0; SOURCE_SIZE as usize];
    pattern(SOURCE_NUMBER, 0, &mut bytes);
    fs::write(dir.join("second"), bytes)?;
    if full { fill(dir) } else { Ok(()) }
}

/// Fills the image by one file until [`LEFT`] bytes are left that writes may have.
fn fill(dir: &Path) -> io::Result<()> {
    let filler = File::create(dir.join("filler"))?;
    let part = vec![1; MIB as usize];
    let (mut size, mut len, mut ahead) = (0, 64 * MIB, true);
    while len >= 64 << 10 {
        let none = FallocateFlags::empty();
        let taken = match ahead {
            true => rustix::fs::fallocate(&filler, none, size, len).map_err(io::Error::from),
            false => filler.write_all_at(&part[..len as usize], size),
        };
        match taken {
            Ok(()) => size += len,
            Err(error) if error.kind() == io::ErrorKind::StorageFull => len /= 2,
            Err(_) if ahead => (len, ahead) = (MIB, false),
            Err(error) => return Err(error),
        }
    }
    filler.set_len(size - LEFT)?;
    filler.sync_all()
}

/// Keeps the image of a failed test.
struct Keep(Option<tempfile::TempDir>);

impl Drop for Keep {
    fn drop(&mut self) {
        if thread::panicking()
            && let Some(place) = self.0.take()
        {
            eprintln!("the image is kept in {}", place.keep().display());
        }
    }
}

/// One part: full, or roomy.
fn part(format: Format, full: bool, seed: u64) -> Report {
    let keep = Keep(Some(place()));
    let dir = keep.0.as_ref().expect("the place is there").path();
    let image = format.image(dir);
    let options = if full { ",nowriteback" } else { "" };
    let mount = Mounted::new(&image, options);
    let cost = full.then(|| format.cost(mount.dir()));
    prepare(mount.dir(), full).expect("the files are made");
    let wished = std::env::var("IOPATH_FSX_OPS").ok();
    let ops = wished.as_ref().map_or(1000, |text| text.parse().expect("a number of operations"));
    let plan = Plan {
        ops,
        size_max: SIZE_MAX,
        len_max: 128 << 10,
        align: 512,
        block: format.block,
        without: vec![Sort::Clone],
    };
    let trial = Trial { seed, plan, cost, fuse: true, progress: wished.is_some() };
    let (gate, beside) = (Gate::default(), Beside(mount.dir().join("beside")));
    let neighbour = Neighbour::new(seed, if full { u64::MAX } else { 4 * MIB });
    let files = Some(Files::open(mount.dir()).expect("the files are there"));
    let mount = Some(mount);
    let mut on_mount = OnMount { image: &image, options, mount, files, gate: &gate };
    let result = thread::scope(|scope| {
        let mut beside = beside;
        let gate = &gate;
        let lives = scope.spawn(move || neighbour.live(&mut beside, gate));
        let result = run(&mut on_mount, &trial);
        gate.end();
        gate.open();
        let lived = lives.join().expect("the neighbour ends");
        result.and_then(|report| lived.map(|times| (report, times)))
    });
    let (report, times) = result.unwrap_or_else(|message| panic!("{format:?}{options}: {message}"));
    println!(
        "{format:?}{options}: seed {seed}: the neighbour was refused {times} times; {report:?}"
    );
    on_mount.files = None;
    on_mount.mount.take().expect("it is mounted").unmount();
    check(&image);
    report
}

/// Both parts; every sort that the mount has was done, and each part was what it is called.
fn exercise(kind: &'static str, block: u64, bytes: u64) {
    let format = Format { kind, block, bytes };
    for seed in seeds(1) {
        for full in [true, false] {
            let report = part(format, full, seed);
            assert_eq!(report.left_out, format.left_out(), "{format:?}");
            let refusals: u64 = report.refused.values().sum();
            assert_eq!(refusals > 0, full, "{format:?}: {report:?}");
            assert_eq!(report.done.len() + report.left_out.len(), 17, "{format:?}: {report:?}");
        }
    }
}

#[test]
fn a_file_of_ext4_holds_what_it_was_given() {
    exercise("ext4", 4096, 32 * MIB);
}

#[test]
fn a_file_of_ext4_with_small_blocks_holds_what_it_was_given() {
    exercise("ext4", 1024, 24 * MIB);
}

#[test]
fn a_file_of_ext3_holds_what_it_was_given() {
    exercise("ext3", 1024, 24 * MIB);
}

#[test]
fn a_file_of_xfs_holds_what_it_was_given() {
    exercise("xfs", 4096, 304 * MIB);
}
