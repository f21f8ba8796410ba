//! Files in a realtime section, of the old form and in groups: written, cut short, punched,
//! removed; bitmaps, summaries and the counter follow. The section lies behind the data on one
//! device in memory, so that a power cut takes from both what no flush covers. Our check and
//! `xfs_repair -n` of the host and of the newest xfsprogs find nothing after each; groups are known
//! to the newest one alone.

use std::sync::Arc;

use crate::world::{loaded, seed_count};
use base::{Errno, Ino, Sector};
use block::Device;
use cache::{PageCache, PageCacheConfig};
use device::{MemoryDevice, Partition};
use rt::Cx;
use testkit::crash::CrashConfig;
use testkit::format::{Format, Recording};
use testkit::fsx::space::Cost;
use testkit::{judge, newest, trials};
use vfs::quota::{Grace, Kind, Limits, Quota};
use vfs::{FallocMode, FileSystem, SetAttr};
use xfs::mount::options::BesideDevice;
use xfs::{CheckOptions, MountOptions, QuotaMode, Xfs};

/// Bytes of the data part; the section has the rest.
pub const DATA: u64 = 40 << 20;

/// A file system with a section whose extents have so many bytes; new files lie there.
#[derive(Clone, Copy, Debug)]
pub struct Section {
    block: u32,
    extent: u32,
    /// Bytes of a group; 0 for none.
    pub group: u32,
    /// Features of mkfs, which give groups their btrees.
    pub trees: &'static str,
}

const NONE: &str = "reflink=0,rmapbt=0";
const SINGLE: Section = Section { block: 4096, extent: 4096, group: 0, trees: NONE };
pub const WIDE: Section = Section { extent: 28 << 10, ..SINGLE };
const SMALL: Section = Section { block: 1024, ..SINGLE };
/// Block numbers go on from one group to the next; here they do not.
pub const GROUPS: Section = Section { group: 8 << 20, ..SINGLE };
const WIDE_GROUPS: Section = Section { block: 1024, group: 350 * (28 << 10), ..WIDE };
/// As mkfs makes them by default.
pub const SHARED: Section = Section { trees: "reflink=1,rmapbt=1", ..GROUPS };
pub const COUNTED: Section = Section { trees: "reflink=1,rmapbt=0", ..GROUPS };
pub const MAPPED: Section = Section { trees: "reflink=0,rmapbt=1", ..WIDE_GROUPS };
const ALL: [Section; 8] = [SINGLE, WIDE, SMALL, GROUPS, WIDE_GROUPS, SHARED, COUNTED, MAPPED];

/// Both parts of a device.
pub fn parts(device: &Arc<dyn Device>) -> [Arc<dyn Device>; 2] {
    let (data, all) = (DATA / 512, device.info().sectors);
    let part = |start: u64, count: u64| -> Arc<dyn Device> {
        Arc::new(Partition::part(device, Sector(start), count, 1).expect("a part"))
    };
    [part(0, data), part(data, all - data)]
}

pub fn mount(cx: &mut Cx, device: Arc<dyn Device>, cache: u64, options: MountOptions) -> Arc<Xfs> {
    let [data, section] = parts(&device).map(|part| crate::world::queue(cx, part));
    let pages = PageCache::new(cx.runtime(), PageCacheConfig::with_limit(cache));
    let options = MountOptions { realtime: Some(BesideDevice(section)), ..options };
    Xfs::mount(cx, &data, &pages, options).unwrap_or_else(|error| panic!("mount: {error}"))
}

impl Section {
    /// The image that mkfs.xfs makes: both parts.
    fn image(&self, bytes: u64) -> Vec<u8> {
        let data = tempfile::NamedTempFile::new().expect("a file");
        let section = tempfile::NamedTempFile::new().expect("a file");
        section.as_file().set_len(bytes - DATA).expect("the file takes its size");
        let (block, extent) = (self.block, self.extent);
        let path = section.path().display();
        // Where blocks may be shared mkfs.xfs takes no size of extents, not even that of a block.
        let extent = match self.trees.starts_with("reflink=1") {
            true => String::new(),
            false => format!(",extsize={extent}"),
        };
        let words = format!("-b size={block} -l size=12m -d rtinherit=1 -r rtdev={path}{extent}");
        match self.group {
            0 => {
                crate::support::mkfs_xfs(data.path(), DATA >> 20, &format!("-m reflink=0 {words}"))
            }
            group => {
                let words = format!("-m metadir=1,{} {words},rgsize={group}", self.trees);
                crate::support::newest_mkfs_xfs(data.path(), DATA, &words);
            }
        }
        let mut image = testkit::image::read(data.path());
        image.resize(DATA as usize, 0);
        image.extend(testkit::image::read(section.path()));
        image
    }
}

/// Writes both parts into files.
fn files(device: &MemoryDevice) -> [tempfile::NamedTempFile; 2] {
    let image = device.snapshot();
    let (data, section) = image.split_at(DATA as usize);
    [testkit::image::write(data), testkit::image::write(section)]
}

/// What `xfs_repair -n` of the host and the newest one say.
fn repaired(section: Section, device: &MemoryDevice) -> Result<(), String> {
    let host = section.group == 0;
    let [data, section] = files(device);
    let args: [&dyn AsRef<std::ffi::OsStr>; 4] = [&"-nP", &"-r", &section.path(), &data.path()];
    let old = host.then(|| judge::run("xfs_repair", &args));
    for output in old.into_iter().chain([newest::run("xfs_repair", &args)]) {
        if !output.status.success() {
            let _ = (data.keep(), section.keep());
            return Err(crate::support::text(&output));
        }
    }
    Ok(())
}

impl Format for Section {
    type Fs = Xfs;

    fn fresh(&self, _cx: &mut Cx, bytes: u64) -> Arc<MemoryDevice> {
        loaded(&self.image(bytes))
    }

    fn mount(&self, cx: &mut Cx, device: Arc<dyn Device>, cache: u64) -> Arc<Xfs> {
        mount(cx, device, cache, MountOptions { read_only: false, ..MountOptions::default() })
    }

    fn check(&self, cx: &mut Cx, device: &Arc<MemoryDevice>) -> Result<(), String> {
        let whole: Arc<dyn Device> = device.clone();
        let queue = crate::world::queue(cx, parts(&whole)[0].clone());
        let report = xfs::check(cx, &queue, &CheckOptions::default()).map_err(|e| e.to_string())?;
        match &report.findings[..] {
            [] => Ok(()),
            list => Err(list.iter().map(|finding| format!("{finding}\n")).collect()),
        }
    }

    fn judge(&self, device: &MemoryDevice) -> Result<(), String> {
        repaired(*self, device)
    }

    fn error(fs: &Xfs) -> Option<String> {
        fs.error()
    }
}

pub fn sound(section: Section, cx: &mut Cx, device: &Arc<MemoryDevice>, what: &str) {
    section.check(cx, device).unwrap_or_else(|found| panic!("{section:?}, {what}: {found}"));
    repaired(section, device).unwrap_or_else(|found| panic!("{section:?}, {what}: {found}"));
}

pub fn fill(seed: u64, len: usize) -> Vec<u8> {
    let mut rng = base::Rng::new(seed, 1);
    (0..len).map(|_| rng.below(256) as u8).collect()
}

pub fn read_all(cx: &mut Cx, fs: &Xfs, ino: Ino, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    let got = fs.read(cx, ino, 0, &mut bytes).expect("read");
    bytes.truncate(got);
    bytes
}

/// Goal: a file system with hundreds of realtime groups, whose directory is a tree and whose
/// reverse map has two levels, is checked, mounted and filled. Method: one of our mkfs, files over
/// most groups, some of which go again.
#[test]
fn hundreds_of_groups_are_filled() {
    let section = Section { group: 256 << 10, ..SHARED };
    crate::support::in_world(move |cx| {
        let device = Arc::new(MemoryDevice::new(DATA + (75 << 20)));
        let whole: Arc<dyn Device> = device.clone();
        let [data, part] = parts(&whole).map(|part| crate::world::queue(cx, part));
        let mut options = xfs::MkfsOptions::compat("7.2").expect("known");
        let words = format!("size={},rgsize={}", 75 << 20, section.group);
        for (letter, words) in
            [('m', "metadir=1"), ('l', "size=12m"), ('d', "rtinherit=1"), ('r', &words)]
        {
            options.edit(letter, words).expect("known words");
        }
        let devices = xfs::mkfs::Devices { realtime: Some(&part), ..Default::default() };
        xfs::mkfs::mkfs_beside(cx, &data, &devices, &options).expect("mkfs");
        sound(section, cx, &device, "made");
        let fs = section.mount(cx, device.clone(), 8 << 20);
        let root = fs.root();
        let name = |number: u64| format!("file-{number}");
        for number in 0..30 {
            let ino = crate::world::file(cx, &fs, root, &name(number));
            fs.write(cx, ino, 0, &fill(number, 2 << 20)).expect("write");
        }
        for number in (0..30).step_by(2) {
            fs.unlink(cx, root, name(number).as_bytes()).expect("unlink");
        }
        fs.unmount(cx).expect("unmount");
        sound(section, cx, &device, "filled");
        let fs = section.mount(cx, device.clone(), 8 << 20);
        let ino = fs.lookup(cx, fs.root(), name(7).as_bytes()).expect("lookup").ino;
        assert!(read_all(cx, &fs, ino, 4 << 20) == fill(7, 2 << 20));
        fs.unmount(cx).expect("unmount");
    });
}

/// Goal: content comes back over remounts, edges of extents read as zeros after a punch and a
/// truncation, and space that is given back is there again. Method: one file of each step, in
/// extents of one block, of seven blocks, and of four blocks of 1 KiB.
#[test]
fn files_of_the_section_come_and_go() {
    for section in ALL {
        crate::support::in_world(move |cx| {
            let device = section.fresh(cx, DATA + (64 << 20));
            let fs = section.mount(cx, device.clone(), 8 << 20);
            let free = fs.statfs(cx).expect("statfs").blocks_free;
            let root = fs.root();
            let ino = crate::world::file(cx, &fs, root, "a");
            let mut content = fill(1, 300_000);
            fs.write(cx, ino, 0, &content).expect("write");
            fs.fsync(cx, ino, false).expect("fsync");
            fs.fallocate(cx, ino, FallocMode::PunchHole, 50_000, 100_000).expect("punch");
            content[50_000..150_000].fill(0);
            assert!(read_all(cx, &fs, ino, 400_000) == content);
            let set = |size| SetAttr { size: Some(size), ..SetAttr::default() };
            fs.setattr(cx, ino, &set(201_000)).expect("truncate");
            fs.setattr(cx, ino, &set(290_000)).expect("extend");
            content.truncate(290_000);
            content[201_000..].fill(0);
            fs.write_direct(cx, ino, 4096 * 60, &fill(2, 8192)).expect("direct write");
            content[4096 * 60..4096 * 62].copy_from_slice(&fill(2, 8192));
            fs.unmount(cx).expect("unmount");
            sound(section, cx, &device, "written and punched");
            let fs = section.mount(cx, device.clone(), 8 << 20);
            assert!(read_all(cx, &fs, ino, 400_000) == content);
            fs.unlink(cx, root, b"a").expect("unlink");
            assert_eq!(fs.statfs(cx).expect("statfs").blocks_free, free);
            fs.unmount(cx).expect("unmount");
            sound(section, cx, &device, "removed");
        });
    }
}

/// Goal: the section may be full while the data device is not, and the other way; nothing is half
/// done. Method: files until ENOSPC, every second one removed, one that needs all of their space.
#[test]
fn a_full_section_gives_enospc_and_its_space_again() {
    for section in [WIDE, SHARED] {
        full(section);
    }
}

fn full(section: Section) {
    crate::support::in_world(move |cx| {
        let device = section.fresh(cx, DATA + (12 << 20));
        let fs = section.mount(cx, device.clone(), 8 << 20);
        let root = fs.root();
        let mut made = Vec::new();
        let refused = loop {
            let name = format!("f{}", made.len());
            let ino = crate::world::file(cx, &fs, root, &name);
            made.push(name);
            if let Err(errno) = fs.write(cx, ino, 0, &fill(made.len() as u64, 200_000)) {
                break errno;
            }
        };
        assert_eq!(refused, Errno::ENOSPC);
        assert!(made.len() > 50, "{} files", made.len());
        fs.sync(cx).expect("sync");
        for name in made.iter().step_by(2) {
            fs.unlink(cx, root, name.as_bytes()).expect("unlink");
        }
        let free = fs.statfs(cx).expect("statfs").blocks_free * 4096;
        let ino = crate::world::file(cx, &fs, root, "large");
        let content = fill(99, free as usize);
        fs.write(cx, ino, 0, &content).expect("the space of those that went");
        fs.fsync(cx, ino, false).expect("fsync");
        assert_eq!(fs.write(cx, ino, free, &[1]), Err(Errno::ENOSPC));
        fs.unmount(cx).expect("unmount");
        sound(section, cx, &device, "full");
        let fs = section.mount(cx, device.clone(), 8 << 20);
        assert!(read_all(cx, &fs, ino, content.len() + 10) == content);
        fs.unmount(cx).expect("unmount");
    });
}

#[test]
fn a_file_holds_what_it_was_given() {
    for seed in 0..seed_count(8) {
        let section = ALL[seed as usize % ALL.len()];
        // Space is given out, and moved, in extents.
        let (bytes, block) = (DATA + (24 << 20), u64::from(section.extent));
        trials::one_file(section, bytes, Cost::xfs(block, bytes / block, 4), seed);
    }
}

#[test]
fn what_fsync_promised_is_kept() {
    for seed in 0..seed_count(4) {
        let cells = [SHARED, MAPPED, WIDE, GROUPS, COUNTED, WIDE_GROUPS, SMALL, SINGLE];
        let cell = cells[seed as usize % cells.len()];
        let run = Recording { cell, seed, bytes: DATA + (24 << 20), cache: 8 << 20 };
        let config = CrashConfig { random: 25, at_flushes_max: 40, ..CrashConfig::new(seed) };
        trials::anything_goes(run, 80, &config);
    }
}

/// Goal: files of the section share blocks and get their own where one of them is written, through
/// pages and directly; the btrees of the section grow to two levels and back into their inodes; a
/// device of another kind is refused. Method: every second block of one file is cloned, then both
/// are changed and removed.
#[test]
fn files_of_the_section_share_blocks() {
    for section in [SHARED, COUNTED] {
        crate::support::in_world(move |cx| {
            let device = section.fresh(cx, DATA + (24 << 20));
            let fs = section.mount(cx, device.clone(), 8 << 20);
            let (root, free) = (fs.root(), fs.statfs(cx).expect("statfs").blocks_free);
            let [a, b] = ["a", "b"].map(|name| crate::world::file(cx, &fs, root, name));
            let first = fill(1, 1200 * 4096);
            fs.write(cx, a, 0, &first).expect("write");
            let mut second = vec![0; first.len()];
            for block in (0..1200).step_by(2) {
                let at = block * 4096;
                fs.clone_range(cx, (a, at as u64), (b, at as u64), 4096).expect("clone");
                second[at..at + 4096].copy_from_slice(&first[at..at + 4096]);
            }
            second.truncate(1199 * 4096);
            let mut first = first;
            let new = fill(2, 70_000);
            fs.write(cx, a, 10_000, &new).expect("write");
            first[10_000..80_000].copy_from_slice(&new);
            fs.write_direct(cx, b, 100 * 4096, &new[..8 * 4096]).expect("direct write");
            second[100 * 4096..108 * 4096].copy_from_slice(&new[..8 * 4096]);
            fs.unmount(cx).expect("unmount");
            sound(section, cx, &device, "shared");
            let fs = section.mount(cx, device.clone(), 8 << 20);
            assert!(read_all(cx, &fs, a, first.len() + 1) == first);
            assert!(read_all(cx, &fs, b, first.len() + 1) == second);
            fs.fallocate(cx, a, FallocMode::PunchHole, 300_000, 2_000_000).expect("punch");
            fs.unshare_range(cx, b, 3_000_000, 500_000).expect("unshare");
            fs.unlink(cx, root, b"a").expect("unlink");
            assert!(read_all(cx, &fs, b, first.len() + 1) == second);
            fs.unlink(cx, root, b"b").expect("unlink");
            assert_eq!(fs.statfs(cx).expect("statfs").blocks_free, free);
            fs.unmount(cx).expect("unmount");
            sound(section, cx, &device, "removed");
        });
    }
}

/// Goal: a punch ends, and gives everything back, where an extent that nobody wrote begins inside
/// of an extent of the section that has many pieces. Method: single blocks of the first one
/// written, all behind them only allocated.
#[test]
fn an_extent_in_many_pieces_is_given_back() {
    for section in [WIDE, MAPPED] {
        crate::support::in_world(move |cx| {
            let device = section.fresh(cx, DATA + (24 << 20));
            let fs = section.mount(cx, device.clone(), 8 << 20);
            let free = fs.statfs(cx).expect("statfs").blocks_free;
            let ino = crate::world::file(cx, &fs, fs.root(), "a");
            let block = u64::from(section.block);
            let all = FallocMode::Allocate { keep_size: false };
            fs.fallocate(cx, ino, all, 0, 40 * u64::from(section.extent)).expect("fallocate");
            for at in (0..u64::from(section.extent) - block).step_by(2 * section.block as usize) {
                fs.write(cx, ino, at, &fill(at, 100)).expect("write");
                fs.fsync(cx, ino, false).expect("fsync");
            }
            fs.fallocate(cx, ino, FallocMode::PunchHole, 0, 1 << 30).expect("punch");
            assert_eq!(fs.statfs(cx).expect("statfs").blocks_free, free);
            fs.unmount(cx).expect("unmount");
            sound(section, cx, &device, "punched");
        });
    }
}

/// Everybody is counted, and limits hold.
fn mount_counted(cx: &mut Cx, device: &Arc<MemoryDevice>) -> Arc<Xfs> {
    let quota = QuotaMode::Count([Some(true); 3]);
    let options = MountOptions { read_only: false, quota, ..MountOptions::default() };
    mount(cx, device.clone(), 8 << 20, options)
}

/// Goal: what files have of the section is counted apart, after every change, over a power cut and
/// by a count of all inodes. Method: operations in turns as user 7 and with other owners; our check
/// and both `xfs_repair -n` compare the records with the inodes; the last mount counts anew.
#[test]
fn what_files_have_of_the_section_is_counted() {
    for section in [WIDE, SHARED, MAPPED] {
        crate::support::in_world(move |cx| {
            let device = section.fresh(cx, DATA + (24 << 20));
            let fs = mount_counted(cx, &device);
            let root = fs.root();
            let open = SetAttr { mode: Some(0o777), ..SetAttr::default() };
            fs.setattr(cx, root, &open).expect("chmod");
            let [a, b] = ["a", "b"].map(|name| crate::world::file(cx, &fs, root, name));
            let give = SetAttr { uid: Some(7), gid: Some(8), ..SetAttr::default() };
            fs.setattr(cx, a, &give).expect("chown");
            fs.write(cx, a, 0, &fill(1, 900_000)).expect("write");
            fs.fallocate(cx, a, FallocMode::PunchHole, 100_000, 300_000).expect("punch");
            fs.write(cx, b, 500_000, &fill(2, 100_000)).expect("write");
            if section.trees.starts_with("reflink=1") {
                fs.clone_range(cx, (a, 0), (b, 0), 65536).expect("clone");
                fs.write(cx, b, 5000, &fill(3, 10_000)).expect("write");
            }
            fs.fallocate(cx, b, FallocMode::Allocate { keep_size: false }, 600_000, 1_000_000)
                .expect("fallocate");
            fs.setattr(cx, b, &give).expect("chown");
            fs.sync(cx).expect("sync");
            let cut = loaded(&device.snapshot());
            let short = SetAttr { size: Some(10_000), ..SetAttr::default() };
            fs.setattr(cx, a, &short).expect("truncate");
            fs.unlink(cx, root, b"b").expect("unlink");
            fs.unmount(cx).expect("unmount");
            sound(section, cx, &device, "changed");
            let fs = mount_counted(cx, &cut);
            fs.unlink(cx, root, b"a").expect("unlink");
            fs.unmount(cx).expect("unmount");
            sound(section, cx, &cut, "cut");
            // A mount that counts nobody forgets what was counted.
            let off = MountOptions { quota: QuotaMode::Off, ..MountOptions::default() };
            let fs = mount(cx, cut.clone(), 8 << 20, MountOptions { read_only: false, ..off });
            crate::world::file(cx, &fs, root, "c");
            fs.unmount(cx).expect("unmount");
            let fs = mount_counted(cx, &cut);
            fs.unmount(cx).expect("unmount");
            sound(section, cx, &cut, "counted anew");
        });
    }
}

/// Goal: limits of the section hold: `EDQUOT` when the hard one is reached, and nothing more is
/// taken, for copies of shared blocks neither; the soft one when its grace is over. Method: what is
/// set is read back by the newest xfs_db.
#[test]
fn limits_of_the_section_hold() {
    crate::support::in_world(|cx| {
        let section = SHARED;
        let device = section.fresh(cx, DATA + (24 << 20));
        let fs = mount_counted(cx, &device);
        let root = fs.root();
        let [a, b] = ["a", "b"].map(|name| crate::world::file(cx, &fs, root, name));
        let give = SetAttr { uid: Some(7), ..SetAttr::default() };
        fs.setattr(cx, a, &give).expect("chown");
        let limits = Limits { realtime_hard: 40, realtime_soft: 32, ..Limits::default() };
        fs.set_limits(cx, Kind::User, 7, &limits).expect("limits");
        let grace = Grace { blocks: 7000, inodes: 6000, realtime: 100 };
        fs.set_grace(cx, Kind::User, grace).expect("grace");
        fs.write(cx, a, 0, &fill(1, 8192)).expect("write");
        fs.unmount(cx).expect("unmount");
        let [data, rest] = files(&device);
        let args: [&dyn AsRef<std::ffi::OsStr>; 7] =
            [&"-R", &rest.path(), &"-c", &"dquot -u 7", &"-c", &"p", &data.path()];
        let shown = newest::run_ok("xfs_db", &args);
        for line in ["diskdq.rtb_hardlimit = 10", "diskdq.rtb_softlimit = 8", "rtbcount = 2"] {
            assert!(shown.contains(line), "{line}: {shown}");
        }
        let fs = mount_counted(cx, &device);
        assert_eq!(fs.grace(cx, Kind::User), Ok(grace));
        fs.write(cx, a, 8192, &fill(2, 8 * 4096)).expect("ten blocks");
        assert_eq!(fs.write(cx, a, 10 * 4096, b"x"), Err(Errno::EDQUOT));
        let all = FallocMode::Allocate { keep_size: false };
        assert_eq!(fs.fallocate(cx, a, all, 0, 11 * 4096), Err(Errno::EDQUOT));
        fs.write(cx, a, 100, b"within").expect("no new block");
        fs.clone_range(cx, (a, 0), (b, 0), 4 * 4096).expect("clone");
        assert_eq!(fs.write(cx, a, 0, b"a copy"), Err(Errno::EDQUOT));
        fs.fallocate(cx, a, FallocMode::PunchHole, 9 * 4096, 4096).expect("punch");
        fs.write(cx, a, 0, b"a copy").expect("one more");
        assert_eq!(fs.write(cx, a, 4096, b"another"), Err(Errno::EDQUOT));
        fs.fsync(cx, a, false).expect("fsync");
        fs.write(cx, a, 4096, b"another").expect("the first one is in place");
        fs.fsync(cx, a, false).expect("fsync");
        cx.sleep(base::Nanos::from_secs(200));
        assert_eq!(fs.write(cx, a, 2 * 4096, b"too late"), Err(Errno::EDQUOT));
        let account = fs.report(cx, Kind::User).expect("a report");
        let entry = account.into_iter().find(|account| account.id == 7).expect("user 7").entry;
        assert_eq!((entry.realtime, entry.realtime_soft, entry.space), (9 * 4096, 32, 0));
        assert!(entry.realtime_time > 0, "the grace runs");
        fs.unmount(cx).expect("unmount");
        sound(section, cx, &device, "limited");
    });
}

/// Bytes of a file of the images that kernel 7.2 made.
fn lines(index: usize) -> Vec<u8> {
    let line = format!("line of file {index}\n");
    line.bytes().cycle().take(index * 190_001 + 1000).collect()
}

/// A device with the image that is kept packed beside this file.
fn packed(name: &str) -> Arc<MemoryDevice> {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/realtime").join(name);
    let image = dir.path().join("image");
    testkit::packed::unpack(&path, &image);
    crate::support::load(&image)
}

/// Goal: files in groups of a realtime section (metadir) are read, those that share blocks too;
/// from a clean image, and from one whose log holds intents of the section, which a mount for
/// writing carries out. Method: images of kernel 7.2, their content by rule.
#[test]
fn groups_of_a_section_are_read() {
    for (name, clean) in [("groups", true), ("groups-dirty", false)] {
        crate::support::in_world(move |cx| {
            let data = packed(&format!("{name}.data.img.zst"));
            let section = packed(&format!("{name}.section.img.zst"));
            let before = data.snapshot();
            let queues = [&data, &section].map(|part| crate::world::queue(cx, part.clone()));
            let pages = PageCache::new(cx.runtime(), PageCacheConfig::with_limit(8 << 20));
            let options = MountOptions {
                realtime: Some(BesideDevice(queues[1].clone())),
                ..MountOptions::default()
            };
            let fs = Xfs::mount(cx, &queues[0], &pages, options.clone()).expect("a mount");
            assert_eq!(fs.recovery().is_none(), clean, "{name}");
            let dir = fs.lookup(cx, fs.root(), b"d").expect("d").ino;
            for index in (0..24).filter(|&index| index != 7) {
                let ino = fs.lookup(cx, dir, format!("f{index}").as_bytes()).expect("a name").ino;
                assert!(read_all(cx, &fs, ino, 8 << 20) == lines(index), "{name}: f{index}");
            }
            assert_eq!(fs.lookup(cx, dir, b"f7").map(|attr| attr.ino), Err(Errno::ENOENT));
            let shared = fs.lookup(cx, fs.root(), b"g5").expect("g5").ino;
            let mut expected = lines(5);
            if !clean {
                expected[..4096].fill(0x41);
            }
            assert!(read_all(cx, &fs, shared, 8 << 20) == expected, "{name}: g5");
            fs.unmount(cx).expect("unmount");
            assert!(data.snapshot() == before, "{name}: the device was written");
            let options = MountOptions { read_only: false, ..options };
            let fs = Xfs::mount(cx, &queues[0], &pages, options).expect("a mount for writing");
            let shared = fs.lookup(cx, fs.root(), b"g5").expect("g5").ino;
            fs.write(cx, shared, 4096, &[7; 4096]).expect("write");
            expected[4096..8192].fill(7);
            fs.unlink(cx, dir, b"f3").expect("unlink");
            fs.fsync(cx, shared, false).expect("fsync");
            assert!(read_all(cx, &fs, shared, 8 << 20) == expected, "{name}: g5");
            fs.unmount(cx).expect("unmount");
            let report = xfs::check(cx, &queues[0], &CheckOptions::default()).expect("memory");
            assert_eq!(report.findings, [], "{name}");
            let files = [&data, &section].map(|part| testkit::image::write_device(part));
            let args: [&dyn AsRef<std::ffi::OsStr>; 4] =
                [&"-n", &"-r", &files[1].path(), &files[0].path()];
            let output = newest::run("xfs_repair", &args);
            assert!(output.status.success(), "{name}: {}", crate::support::text(&output));
        });
    }
}
