//! File systems whose log lies on a device of its own: written, cut off, recovered from, in turns
//! with the kernel. Both parts lie on one device in memory, so that a power cut takes from both
//! what no flush covers.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use base::Sector;
use block::{Device, DeviceInfo};
use cache::{PageCache, PageCacheConfig};
use device::{MemoryDevice, Partition};
use rt::Cx;
use testkit::crash::CrashConfig;
use testkit::format::{Format, Recording};
use testkit::judge::{self, LoopMount};
use testkit::{newest, trials};
use vfs::FileSystem;
use xfs::mount::options::BesideDevice;
use xfs::{CheckOptions, MountError, MountOptions, Xfs};

use crate::log_common::replayed::stop;
use crate::support;
use crate::world::{self, seed_count};

/// Bytes of the data part; the log has the rest.
const DATA: u64 = 40 << 20;
const LOG: u64 = 12 << 20;

/// A file system with an external log, by options of mkfs.xfs.
#[derive(Clone, Copy, Debug)]
struct External(&'static str);

const PLAIN: External = External("");
const SMALL: External = External("-b size=1024 -m rmapbt=1");

fn parts(device: &Arc<dyn Device>) -> [Arc<dyn Device>; 2] {
    let (data, all) = (DATA / 512, device.info().sectors);
    [(0, data), (data, all - data)].map(|(start, count)| -> Arc<dyn Device> {
        Arc::new(Partition::part(device, Sector(start), count, 1).expect("a part"))
    })
}

impl External {
    /// Files of both parts, made by mkfs.xfs.
    fn files(&self, dir: &Path) -> [PathBuf; 2] {
        let [data, log] = ["data", "log"].map(|name| dir.join(name));
        std::fs::File::create(&log).and_then(|file| file.set_len(LOG)).expect("a file");
        let words = format!("-l logdev={},size=12m {}", log.display(), self.0);
        support::mkfs_xfs(&data, DATA >> 20, &words);
        [data, log]
    }
}

impl Format for External {
    type Fs = Xfs;

    fn fresh(&self, _cx: &mut Cx, bytes: u64) -> Arc<MemoryDevice> {
        let dir = tempfile::tempdir().expect("a directory");
        let files = self.files(dir.path());
        let image = files.map(|file| std::fs::read(file).expect("the image can be read")).concat();
        assert_eq!(image.len() as u64, bytes);
        let info = DeviceInfo {
            volatile_cache: true,
            physical_block: 512,
            ..DeviceInfo::plain(bytes / 512)
        };
        let device = MemoryDevice::with_info(info);
        device.write_at(0, &image);
        Arc::new(device)
    }

    fn mount(&self, cx: &mut Cx, device: Arc<dyn Device>, cache: u64) -> Arc<Xfs> {
        let [data, log] = parts(&device).map(|part| world::queue(cx, part));
        let pages = PageCache::new(cx.runtime(), PageCacheConfig::with_limit(cache));
        let log = Some(BesideDevice(log));
        let options = MountOptions { read_only: false, log, ..MountOptions::default() };
        Xfs::mount(cx, &data, &pages, options).unwrap_or_else(|error| panic!("mount: {error}"))
    }

    fn check(&self, cx: &mut Cx, device: &Arc<MemoryDevice>) -> Result<(), String> {
        let whole: Arc<dyn Device> = device.clone();
        let [data, log] = parts(&whole).map(|part| world::queue(cx, part));
        let (log, options) = (BesideDevice(log), CheckOptions::default());
        let report =
            xfs::check_beside(cx, &data, Some(&log), &options).map_err(|e| e.to_string())?;
        match &report.findings[..] {
            [] => Ok(()),
            list => Err(list.iter().map(|finding| format!("{finding}\n")).collect()),
        }
    }

    fn judge(&self, device: &MemoryDevice) -> Result<(), String> {
        let image = device.snapshot();
        let (data, log) = image.split_at(DATA as usize);
        let [data, log] = [testkit::image::write(data), testkit::image::write(log)];
        judged(data.path(), log.path())
    }

    fn error(fs: &Xfs) -> Option<String> {
        fs.error()
    }
}

/// What `xfs_repair -n` of the host and the newest one say.
fn judged(data: &Path, log: &Path) -> Result<(), String> {
    let args: [&dyn AsRef<std::ffi::OsStr>; 4] = [&"-n", &"-l", &log, &data];
    for output in [judge::run("xfs_repair", &args), newest::run("xfs_repair", &args)] {
        if !output.status.success() {
            return Err(support::text(&output));
        }
    }
    Ok(())
}

/// Goal: what fsync promised is there after power cuts that lose unflushed writes of both devices.
/// Method: random operations, cut at flushes and at random, recovered, both judges.
#[test]
fn what_fsync_promised_is_kept() {
    for seed in 0..seed_count(2) {
        let cell = [PLAIN, SMALL][seed as usize % 2];
        let run = Recording { cell, seed, bytes: DATA + LOG, cache: 4 << 20 };
        let config = CrashConfig { random: 20, at_flushes_max: 30, ..CrashConfig::new(seed) };
        trials::anything_goes(run, 60, &config);
    }
}

/// Goal: without its device such a file system is not written, and read as it lies; a device that
/// is too short, or of a file system with an internal log, is refused by name.
#[test]
fn a_mount_without_its_log_is_refused() {
    support::in_world(|cx| {
        let device = PLAIN.fresh(cx, DATA + LOG);
        let whole: Arc<dyn Device> = device.clone();
        let [data, log] = parts(&whole).map(|part| world::queue(cx, part));
        let pages = PageCache::new(cx.runtime(), PageCacheConfig::with_limit(4 << 20));
        let mut mounted = |log: Option<&Arc<block::Queue>>, read_only| {
            let log = log.cloned().map(BesideDevice);
            let options = MountOptions { read_only, log, ..MountOptions::default() };
            Xfs::mount(cx, &data, &pages, options).map(|_| ())
        };
        let refused = mounted(None, false).expect_err("no log");
        assert!(refused.to_string().contains("external-log"), "{refused}");
        mounted(None, true).expect("read as it lies");
        let short = Partition::part(&whole, Sector(DATA / 512), 1024, 1).expect("a part");
        let short = world::queue(cx, Arc::new(short));
        let internal = world::Cell(&[]).fresh(cx, 64 << 20);
        let internal = world::queue(cx, internal);
        let mut mounted = |log: &Arc<block::Queue>, of: &Arc<block::Queue>| {
            let log = Some(BesideDevice(log.clone()));
            let options = MountOptions { read_only: false, log, ..MountOptions::default() };
            Xfs::mount(cx, of, &pages, options).map(|_| ())
        };
        let refused = mounted(&short, &data);
        assert!(matches!(refused, Err(MountError::LogDevice { .. })), "{refused:?}");
        mounted(&log, &data).expect("its own");
        let refused = mounted(&log, &internal);
        assert!(matches!(refused, Err(MountError::Mode(_))), "{refused:?}");
    });
}

/// A loop device over a file; given back on drop.
struct Loop(String);

impl Loop {
    fn over(file: &Path) -> Loop {
        Loop(judge::run_ok("losetup", &[&"--find", &"--show", &file]).trim().to_string())
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        judge::run("losetup", &[&"-d", &self.0]);
    }
}

/// Goal: either side recovers the other's external log. Method: the kernel is stopped with a dirty
/// log, which we recover; we write, are cut off, and the kernel recovers.
#[test]
fn logs_are_recovered_in_turns_with_the_kernel() {
    let dir = tempfile::tempdir().expect("a directory");
    let [data, log] = PLAIN.files(dir.path());
    let mount = |log: &Loop| {
        let options = format!("rw,nouuid,logdev={}", log.0);
        LoopMount::new(&data, "xfs", &options).unwrap_or_else(|message| panic!("{message}"))
    };
    {
        let device = Loop::over(&log);
        let mounted = mount(&device);
        for index in 0..300 {
            let text = format!("file {index}").repeat(index);
            std::fs::write(mounted.path().join(format!("f{index}")), text).expect("written");
        }
        judge::run_ok("sync", &[&"-f", &mounted.path()]);
        stop(mounted);
    }
    let image = [&data, &log].map(|file| std::fs::read(file).expect("the image")).concat();
    let device = Arc::new(MemoryDevice::from_image(&image));
    let after = device.clone();
    support::in_world(move |cx| {
        let fs = PLAIN.mount(cx, device.clone(), 4 << 20);
        assert!(fs.recovery().is_some(), "the log was clean");
        let root = fs.root();
        let file = fs.lookup(cx, root, b"f7").expect("a name").ino;
        let mut bytes = [0; 64];
        assert_eq!(fs.read(cx, file, 0, &mut bytes).map(|len| bytes[..len].to_vec()).ok(), {
            Some("file 7".repeat(7).into_bytes())
        });
        for index in 0..200 {
            world::file(cx, &fs, root, &format!("ours {index}"));
        }
        fs.sync(cx).expect("sync");
        drop(fs);
    });
    let image = after.snapshot();
    std::fs::write(&data, &image[..DATA as usize]).expect("written");
    std::fs::write(&log, &image[DATA as usize..]).expect("written");
    {
        let device = Loop::over(&log);
        let mounted = mount(&device);
        assert_eq!(std::fs::read_dir(mounted.path()).expect("a directory").count(), 500);
    }
    judged(&data, &log).expect("xfs_repair");
}

/// Goal: a record that moves the log's tail comes after a flush of the data device, which holds
/// what was written home. (On one medium, as above, a flush of either part covers both.) Method:
/// two devices; a sync costs the device of the data a flush, and that of the log one.
#[test]
fn the_data_is_flushed_before_the_log_forgets() {
    support::in_world(|cx| {
        let dir = tempfile::tempdir().expect("a directory");
        let [data, log] = PLAIN.files(dir.path()).map(|file| {
            let image = std::fs::read(file).expect("the image can be read");
            let sectors = image.len() as u64 / 512;
            let info = DeviceInfo { volatile_cache: true, ..DeviceInfo::plain(sectors) };
            let device = MemoryDevice::with_info(info);
            device.write_at(0, &image);
            Arc::new(device)
        });
        let [of_data, of_log] = [&data, &log].map(|device| world::queue(cx, device.clone()));
        let pages = PageCache::new(cx.runtime(), PageCacheConfig::with_limit(4 << 20));
        let log_device = Some(BesideDevice(of_log.clone()));
        let options = MountOptions { read_only: false, log: log_device, ..MountOptions::default() };
        let fs = Xfs::mount(cx, &of_data, &pages, options).expect("a mount");
        for index in 0..50 {
            world::file(cx, &fs, fs.root(), &format!("file {index}"));
        }
        let flushes = |queue: &Arc<block::Queue>| queue.stats().flushes;
        let before = [&of_data, &of_log].map(flushes);
        fs.sync(cx).expect("sync");
        let after = [&of_data, &of_log].map(flushes);
        assert!(after[0] > before[0] && after[1] > before[1], "{before:?}, {after:?}");
        fs.unmount(cx).expect("unmount");
    });
}
