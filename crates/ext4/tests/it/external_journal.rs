//! File systems whose journal lies on a device of its own: written, cut off, recovered from, in
//! turns with the kernel. Both parts lie on one device in memory, so that a power cut takes from
//! both what no flush covers.

use std::path::Path;
use std::sync::Arc;

use base::Sector;
use block::{Device, DeviceInfo, Queue};
use cache::PageCacheConfig;
use device::{MemoryDevice, Partition};
use ext4::{CheckOptions, Ext4, JournalDevice, MountOptions};
use rt::Cx;
use testkit::crash::CrashConfig;
use testkit::format::{Format, Recording};
use testkit::judge::{self, LoopMount};
use testkit::lvm::Loop;
use testkit::{newest, trials};
use vfs::FileSystem;

use crate::support::{create, queue};

/// Bytes of the file system; the journal's device has the rest.
const DATA: u64 = 24 << 20;
const LOG: u64 = 5 << 20;

/// By the bytes of a block.
#[derive(Clone, Copy, Debug)]
struct External(u32);

fn parts(device: &Arc<dyn Device>) -> [Arc<dyn Device>; 2] {
    let (data, all) = (DATA / 512, device.info().sectors);
    [(0, data), (data, all - data)].map(|(start, count)| -> Arc<dyn Device> {
        Arc::new(Partition::part(device, Sector(start), count, 1).expect("a part"))
    })
}

impl External {
    /// Both parts, made by mke2fs.
    fn files(&self) -> [tempfile::NamedTempFile; 2] {
        let [data, log] = [(); 2].map(|()| tempfile::NamedTempFile::new().expect("a file"));
        let block = self.0.to_string();
        judge::mke2fs(log.path(), LOG, &["-b", &block, "-O", "journal_dev"]);
        let device = Loop::new(log.path());
        let journal = format!("device={}", device.name());
        let args = ["-t", "ext4", "-b", &block, "-J", &journal];
        judge::mke2fs(data.path(), DATA, &args);
        [data, log]
    }

    fn options(&self, log: &Arc<Queue>) -> MountOptions {
        let journal = Some(JournalDevice(log.clone()));
        MountOptions { journal, ..MountOptions::default() }
    }
}

/// Both parts behind each other, on a device with a volatile cache.
fn joined(files: &[tempfile::NamedTempFile; 2]) -> Arc<MemoryDevice> {
    let image = files.each_ref().map(|file| testkit::image::read(file.path())).concat();
    assert_eq!(image.len() as u64, DATA + LOG);
    let plain = DeviceInfo::plain((DATA + LOG) / 512);
    let info = DeviceInfo { volatile_cache: true, physical_block: 512, ..plain };
    let device = MemoryDevice::with_info(info);
    device.load(&image);
    Arc::new(device)
}

/// Files of both parts.
fn parted(device: &MemoryDevice) -> [tempfile::NamedTempFile; 2] {
    let image = device.snapshot();
    let (data, log) = image.split_at(DATA as usize);
    [data, log].map(testkit::image::write)
}

/// What `e2fsck -fn` of the host and the newest one say.
fn judged(data: &Path, log: &Path) -> Result<(), String> {
    let args: [&dyn AsRef<std::ffi::OsStr>; 4] = [&"-fn", &"-j", &log, &data];
    for output in [judge::run("e2fsck", &args), newest::run("e2fsck", &args)] {
        if !output.status.success() {
            let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
            return Err(text(&output.stdout) + &text(&output.stderr));
        }
    }
    Ok(())
}

impl Format for External {
    type Fs = Ext4;

    fn fresh(&self, _cx: &mut Cx, bytes: u64) -> Arc<MemoryDevice> {
        assert_eq!(bytes, DATA + LOG);
        joined(&self.files())
    }

    fn mount(&self, cx: &mut Cx, device: Arc<dyn Device>, cache: u64) -> Arc<Ext4> {
        let [data, log] = parts(&device).map(|part| queue(cx, part));
        let config = PageCacheConfig::with_limit(cache);
        Ext4::mount_alone(cx, &data, config, self.options(&log))
            .unwrap_or_else(|error| panic!("mount: {error}"))
    }

    fn check(&self, cx: &mut Cx, device: &Arc<MemoryDevice>) -> Result<(), String> {
        let whole: Arc<dyn Device> = device.clone();
        let [data, log] = parts(&whole).map(|part| queue(cx, part));
        let options = CheckOptions { journal: Some(JournalDevice(log)), ..CheckOptions::default() };
        let report = ext4::check(cx, &data, &options).map_err(|error| error.to_string())?;
        match &report.findings[..] {
            [] => Ok(()),
            list => Err(list.iter().map(|finding| format!("{finding}\n")).collect()),
        }
    }

    fn judge(&self, device: &MemoryDevice) -> Result<(), String> {
        let [data, log] = parted(device);
        judged(data.path(), log.path())
    }
}

/// Goal: every cut of unflushed writes of both devices is recovered to a file system in order.
/// Method: tasks do anything to the same names; cut at flushes and at random, both judges.
#[test]
fn cuts_over_both_devices_are_recovered() {
    for (seed, cell) in [External(4096), External(1024)].into_iter().enumerate() {
        let seed = seed as u64;
        let run = Recording { cell, seed, bytes: DATA + LOG, cache: 4 << 20 };
        let config = CrashConfig { random: 10, at_flushes_max: 15, ..CrashConfig::new(seed) };
        trials::anything_goes(run, 40, &config);
    }
}

/// Goal: without its device such a file system is not written, and only read where its log is
/// empty; another journal is refused by its UUID, and what is none by name.
#[test]
fn another_journal_is_refused() {
    rt::testing::world(|cx| {
        let cell = External(4096);
        let device: Arc<dyn Device> = joined(&cell.files());
        let [data, log] = parts(&device).map(|part| queue(cx, part));
        let other: Arc<dyn Device> = joined(&cell.files());
        let [_, others] = parts(&other).map(|part| queue(cx, part));
        let inside = crate::support::fresh(cx, DATA, "ext4", 4096);
        let inside = queue(cx, inside);
        let mut mounted = |of: &Arc<Queue>, log: Option<&Arc<Queue>>, read_only| {
            let journal = log.cloned().map(JournalDevice);
            let options = MountOptions { journal, read_only, ..MountOptions::default() };
            Ext4::mount_alone(cx, of, PageCacheConfig::with_limit(4 << 20), options)
                .map(|_| ())
                .map_err(|error| error.to_string())
        };
        let refused = mounted(&data, None, false).expect_err("no journal");
        assert!(refused.contains("on a device of its own"), "{refused}");
        mounted(&data, None, true).expect("its log is empty");
        let refused = mounted(&data, Some(&others), false).expect_err("another journal");
        assert!(refused.contains("the device given holds"), "{refused}");
        let refused = mounted(&data, Some(&inside), false).expect_err("no journal");
        assert!(refused.contains("no external journal"), "{refused}");
        let refused = mounted(&inside, Some(&log), false).expect_err("its journal is inside");
        assert!(refused.contains("without one"), "{refused}");
        mounted(&data, Some(&log), false).expect("its own");
        // That mount was dropped without an unmount: now the log must be replayed.
        let refused = mounted(&data, None, true).expect_err("a dirty log");
        assert!(refused.contains("on a device of its own"), "{refused}");
        let report = ext4::check(cx, &data, &CheckOptions::default()).expect("a check");
        let text = format!("{:?}", report.findings);
        assert!(text.contains("its device is not given"), "{text}");
    });
}

/// Goal: either side recovers the other's log. Method: the kernel is stopped with a dirty log,
/// which we recover; we write, are cut off, and the kernel recovers.
#[test]
fn journals_are_recovered_in_turns_with_the_kernel() {
    for block in [4096, 1024] {
        let cell = External(block);
        let files = cell.files();
        let mount = |log: &Loop| {
            let options = format!("rw,journal_path={}", log.name());
            LoopMount::new(files[0].path(), "ext4", &options)
                .unwrap_or_else(|message| panic!("{message}"))
        };
        {
            let device = Loop::new(files[1].path());
            let mounted = mount(&device);
            for index in 0..200 {
                let text = format!("file {index}").repeat(index);
                std::fs::write(mounted.path().join(format!("f{index}")), text).expect("written");
            }
            judge::run_ok("sync", &[&"-f", &mounted.path()]);
            judge::run_ok("xfs_io", &[&"-x", &"-c", &"shutdown -f", &mounted.path()]);
        }
        let device = joined(&files);
        rt::testing::world(|cx| {
            let fs = cell.mount(cx, device.clone(), 4 << 20);
            assert!(fs.recovery().is_some(), "the log was clean");
            let root = fs.root();
            let file = fs.lookup(cx, root, b"f7").expect("a name").ino;
            let mut bytes = [0; 64];
            let len = fs.read(cx, file, 0, &mut bytes).expect("read");
            assert_eq!(&bytes[..len], "file 7".repeat(7).as_bytes());
            for index in 0..100 {
                create(cx, &*fs, root, &format!("ours {index}"));
            }
            fs.sync(cx).expect("sync");
            fs.shutdown_hard();
        });
        let image = device.snapshot();
        let (data, log) = image.split_at(DATA as usize);
        std::fs::write(files[0].path(), data).expect("written");
        std::fs::write(files[1].path(), log).expect("written");
        {
            let device = Loop::new(files[1].path());
            let mounted = mount(&device);
            // And lost+found.
            assert_eq!(std::fs::read_dir(mounted.path()).expect("a directory").count(), 301);
        }
        judged(files[0].path(), files[1].path()).expect("e2fsck");
    }
}
