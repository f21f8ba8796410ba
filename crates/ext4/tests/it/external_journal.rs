//! File systems whose journal lies on a device of its own: written, cut off, recovered from, in
//! turns with the kernel. Both parts lie on one device in memory, so that a power cut takes from
//! both what no flush covers.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use base::Sector;
use block::{Device, DeviceInfo, Queue};
use cache::PageCacheConfig;
use device::{MemoryDevice, Partition};
use ext4::mkfs::{Release, plan};
use ext4::{CheckOptions, Ext4, ExternalJournal, JournalDevice, MkfsOptions, MountOptions};
use rt::Cx;
use testkit::crash::CrashConfig;
use testkit::format::{Format, Recording};
use testkit::judge::{self, LoopMount};
use testkit::lvm::Loop;
use testkit::manifest::{self, Manifest};
use testkit::{newest, trials};
use vfs::{FileSystem, RenameFlags};

use crate::mkfs::{SEED_TEXT, UUID, UUID_TEXT, around, differences, write};
use crate::support::recovered::{assert_equal, shell};
use crate::support::{create, mkdir, queue};

/// Bytes of the file system; the journal's device has the rest.
const DATA: u64 = 24 << 20;
const LOG: u64 = 5 << 20;

/// Blocks of so many bytes.
#[derive(Clone, Copy, Debug)]
struct External {
    block: u32,
    /// We have made it, not mke2fs.
    ours: bool,
    /// With fast commits.
    fast: bool,
}

fn parts(device: &Arc<dyn Device>) -> [Arc<dyn Device>; 2] {
    let (data, all) = (DATA / 512, device.info().sectors);
    [(0, data), (data, all - data)].map(|(start, count)| -> Arc<dyn Device> {
        Arc::new(Partition::part(device, Sector(start), count, 1).expect("a part"))
    })
}

impl External {
    /// Both parts.
    fn files(&self) -> [tempfile::NamedTempFile; 2] {
        if self.ours {
            let device: Arc<dyn Device> = Arc::new(MemoryDevice::new(DATA + LOG));
            let [data, log] = parts(&device);
            rt::testing::world(|cx| {
                let [data, log] = [data, log].map(|part| queue(cx, part));
                make(cx, &data, &log, &self.mkfs()).expect("made");
            });
            let mut image = vec![0; (DATA + LOG) as usize];
            rt::testing::world(|cx| {
                let whole = queue(cx, device.clone());
                for (at, part) in image.chunks_mut(1 << 20).enumerate() {
                    let start = Sector::from_bytes((at << 20) as u64);
                    part.copy_from_slice(&whole.read(cx, start, part.len()).expect("read"));
                }
            });
            let (data, log) = image.split_at(DATA as usize);
            return [data, log].map(testkit::image::write);
        }
        let [data, log] = [(); 2].map(|()| tempfile::NamedTempFile::new().expect("a file"));
        let block = self.block.to_string();
        judge::mke2fs(log.path(), LOG, &["-b", &block, "-O", "journal_dev"]);
        let device = Loop::new(log.path());
        let journal = format!("device={}", device.name());
        let mut args = vec!["-t", "ext4", "-b", &block, "-J", &journal];
        args.extend(if self.fast { &["-O", "fast_commit"][..] } else { &[] });
        judge::mke2fs(data.path(), DATA, &args);
        [data, log]
    }

    fn mkfs(&self) -> MkfsOptions {
        let features = if self.fast { "fast_commit" } else { "" }.to_string();
        MkfsOptions { block_size: Some(self.block), features, ..MkfsOptions::default() }
    }

    fn options(&self, log: &Arc<Queue>) -> MountOptions {
        let journal = Some(JournalDevice(log.clone()));
        MountOptions { journal, ..MountOptions::default() }
    }
}

/// Makes a journal device and a file system that logs there.
fn make(
    cx: &mut Cx,
    data: &Arc<Queue>,
    log: &Arc<Queue>,
    options: &MkfsOptions,
) -> Result<(), String> {
    let block_size = options.block_size;
    let features = "journal_dev".into();
    let device = MkfsOptions { block_size, features, ..MkfsOptions::default() };
    ext4::mkfs(cx, log, &device).map_err(|error| error.to_string())?;
    make_on(cx, data, log, options)
}

/// Makes a file system that logs to a device that is there.
fn make_on(
    cx: &mut Cx,
    data: &Arc<Queue>,
    log: &Arc<Queue>,
    options: &MkfsOptions,
) -> Result<(), String> {
    let log = JournalDevice(log.clone());
    let facts = log.free_for(cx, options.uuid).map_err(|error| error.to_string())?;
    let (uuid, block_size) = (facts.uuid, facts.block_size);
    let external_journal = Some(ExternalJournal { uuid, block_size, number: 0 });
    let options = MkfsOptions { external_journal, ..options.clone() };
    let report = ext4::mkfs(cx, data, &options).map_err(|error| error.to_string())?;
    log.enter(cx, report.uuid).map_err(|error| error.to_string())
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
    let cells = [(4096, false, false), (1024, true, false), (4096, true, true)];
    let cells = cells.map(|(block, ours, fast)| External { block, ours, fast });
    for (seed, cell) in cells.into_iter().enumerate() {
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
        let cell = External { block: 4096, ours: false, fast: false };
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
    for (block, ours) in [(4096, true), (1024, false)] {
        let cell = External { block, ours, fast: false };
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

/// Runs mke2fs, the host's or the newest one, at the time and with the seed of the tests of mkfs.
fn mke2fs(newest: bool, args: &[&str]) {
    let mut command = match newest {
        true => newest::command("mke2fs"),
        false => std::process::Command::new("mke2fs"),
    };
    let seed = format!("hash_seed={SEED_TEXT},lazy_itable_init=0,lazy_journal_init=0");
    let fixed = ["-q", "-F", "-U", UUID_TEXT, "-E", &seed];
    let time = crate::mkfs::NOW.to_string();
    let output = command.env("E2FSPROGS_FAKE_TIME", time).args(fixed).args(args).output();
    let output = output.expect("mke2fs runs");
    assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
}

/// The bytes that differ, but for `s_kbytes_written`, which mke2fs counts with `metadata_csum`, and
/// the checksum over it.
fn unlike(ours: &Path, theirs: &Path) -> Vec<u64> {
    // With blocks of 1 KiB the second group has a copy of the superblock.
    let supers = [1024, 8193 * 1024];
    let differs = |at: &u64| {
        let offset = supers.iter().find_map(|start| at.checked_sub(*start).filter(|&n| n < 1024));
        !matches!(offset, Some(0x178..0x180 | 0x3fc..0x400))
    };
    differences(ours, theirs).into_iter().filter(differs).collect()
}

/// Goal: a journal device, and a file system on it, are those of mke2fs, byte by byte. Method: same
/// options, UUID, seed and time; the host's mke2fs and the newest; over noise, that must go.
#[test]
fn what_mkfs_makes_is_that_of_mke2fs() {
    let scratch = crate::common::Scratch::new();
    let [ours, theirs, fs, their_fs] = ["a", "b", "c", "d"].map(|name| scratch.path(name));
    let name = |path: &Path| path.to_str().expect("a name").to_string();
    let noise = vec![0x5a; LOG as usize + 3 * 1024];
    let cases = [
        (Some(1024), "journal_dev", false),
        (Some(2048), "journal_dev,metadata_csum", true),
        (Some(4096), "journal_dev", true),
        (None, "journal_dev,metadata_csum", false),
    ];
    for (block_size, features, newest) in cases {
        let case = format!("{block_size:?} {features} {newest}");
        let features = features.to_string();
        let options =
            MkfsOptions { block_size, features, label: "jl".into(), ..MkfsOptions::default() };
        std::fs::write(&theirs, &noise).expect("written");
        let block = block_size.map(|size| size.to_string());
        let mut args = vec!["-O", &options.features, "-L", "jl"];
        args.extend(block.iter().flat_map(|block| ["-b", block.as_str()]));
        let path = name(&theirs);
        args.push(&path);
        mke2fs(newest, &args);
        let made = plan(&options, &around(noise.len() as u64)).expect("possible");
        write(&made, &ours, noise.len() as u64);
        // What is behind the last whole page is nobody's.
        std::fs::File::options()
            .write(true)
            .open(&theirs)
            .and_then(|f| f.set_len(LOG))
            .expect("cut");
        assert_eq!(made.zeroes, [(0, LOG)], "{case}");
        assert_eq!(unlike(&ours, &theirs), [0; 0], "{case}");

        let device = Loop::new(&theirs);
        std::fs::write(&their_fs, vec![0; DATA as usize]).expect("written");
        let journal = format!("device={}", device.name());
        mke2fs(newest, &["-t", "ext4", "-J", &journal, &name(&their_fs)]);
        let number = std::os::unix::fs::MetadataExt::rdev(
            &std::fs::metadata(device.name()).expect("a device"),
        ) as u32;
        drop(device);
        let block_size = made.report.block_size;
        let external_journal = Some(ExternalJournal { uuid: UUID, block_size, number });
        let release = if newest { Release::V1_47_4 } else { Release::V1_47_0 };
        let options = MkfsOptions { external_journal, release, ..MkfsOptions::default() };
        let made = plan(&options, &around(DATA)).expect("possible");
        write(&made, &fs, DATA);
        assert_eq!(unlike(&fs, &their_fs), [0; 0], "{case}");
        rt::testing::world(|cx| {
            let device = MemoryDevice::new(LOG);
            device.load(&std::fs::read(&ours).expect("read")[..LOG as usize]);
            let device = Arc::new(device);
            JournalDevice(queue(cx, device.clone())).enter(cx, UUID).expect("entered");
            std::fs::write(&ours, device.snapshot()).expect("written");
        });
        assert_eq!(unlike(&ours, &theirs), [0; 0], "{case}");
        judged(&fs, &ours).expect("e2fsck");
        let told = judge::run_ok("dumpe2fs", &[&ours]);
        assert!(told.contains(&format!("Journal users:            {UUID_TEXT}")), "{told}");
        let told = judge::run_ok("tune2fs", &[&"-l", &fs]);
        assert!(told.contains(&format!("Journal UUID:             {UUID_TEXT}")), "{told}");
    }
}

/// Goal: a journal that a file system cannot log to is refused before the file system is touched.
#[test]
fn a_journal_of_another_is_not_taken() {
    rt::testing::world(|cx| {
        let cell = External { block: 4096, ours: true, fast: false };
        let device: Arc<dyn Device> = joined(&cell.files());
        let [data, log] = parts(&device).map(|part| queue(cx, part));
        let before = data.read(cx, Sector(0), 1 << 20).expect("read").to_vec();
        let refused = |cx: &mut Cx, options: MkfsOptions| {
            make_on(cx, &data, &log, &options).expect_err("refused")
        };
        let text = refused(cx, cell.mkfs());
        assert!(text.contains("is that of file system"), "{text}");
        let user = JournalDevice(log.clone()).facts(cx).expect("a journal").users[0];
        let same = MkfsOptions { uuid: Some(user), ..cell.mkfs() };
        let text = refused(cx, MkfsOptions { block_size: Some(1024), ..same.clone() });
        assert!(text.contains("has blocks of 4096"), "{text}");
        let text = refused(cx, MkfsOptions { features: "^has_journal".into(), ..same.clone() });
        assert!(text.contains("needs has_journal"), "{text}");
        assert_eq!(data.read(cx, Sector(0), 1 << 20).expect("read").to_vec(), before);
        // The same file system again, which needs no -b.
        make_on(cx, &data, &log, &MkfsOptions { block_size: None, ..same.clone() }).expect("made");

        // Its log holds something.
        let config = PageCacheConfig::with_limit(4 << 20);
        let fs = Ext4::mount_alone(cx, &data, config, cell.options(&log)).expect("mounted");
        let root = fs.root();
        create(cx, &*fs, root, "a");
        fs.sync(cx).expect("synced");
        fs.shutdown_hard();
        let text = refused(cx, same.clone());
        assert!(text.contains("is not empty"), "{text}");
        JournalDevice(log.clone()).leave(cx, user).expect("left");
        assert!(JournalDevice(log.clone()).facts(cx).expect("a journal").users.is_empty());
        let text = JournalDevice(data.clone()).facts(cx).expect_err("none").to_string();
        assert!(text.contains("holds no external journal"), "{text}");
        let options = MkfsOptions { features: "journal_dev".into(), ..MkfsOptions::default() };
        let small = queue(cx, Arc::new(MemoryDevice::new(1 << 19)));
        let text = ext4::mkfs(cx, &small, &options).expect_err("too small").to_string();
        assert!(text.contains("512 blocks is not in 1024"), "{text}");
        let options = MkfsOptions { features: "journal_dev,quota".into(), ..options };
        let text = ext4::mkfs(cx, &log, &options).expect_err("a file system's").to_string();
        assert!(text.contains("metadata_csum alone"), "{text}");
    });
}

/// The image of both parts after each script of the kernel, whose last commits are fast.
fn images_of_the_kernel(cell: External, scripts: &[&str]) -> Vec<Vec<u8>> {
    let files = cell.files();
    let device = Loop::new(files[1].path());
    let options = format!("rw,commit=300,journal_path={}", device.name());
    let mounted = LoopMount::new(files[0].path(), "ext4", &options).expect("mounted");
    let image = || files.each_ref().map(|file| testkit::image::read(file.path())).concat();
    let run = |script: &&str| {
        shell(&mounted.path(), script);
        image()
    };
    scripts.iter().map(run).collect()
}

/// The files of both parts as the kernel, or e2fsck where it is named, recovers them.
fn recovered(image: &[u8], by_e2fsck: Option<bool>) -> Manifest {
    let (data, log) = image.split_at(DATA as usize);
    let [data, log] = [data, log].map(testkit::image::write);
    if let Some(newest) = by_e2fsck {
        let (data, log) = (data.path(), log.path());
        let args: [&dyn AsRef<std::ffi::OsStr>; 4] = [&"-fy", &"-j", &log, &data];
        let output =
            if newest { newest::run("e2fsck", &args) } else { judge::run("e2fsck", &args) };
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(matches!(output.status.code(), Some(0 | 1)), "{newest}: {text}");
    }
    let device = Loop::new(log.path());
    let options = format!("rw,journal_path={}", device.name());
    let mounted = LoopMount::new(data.path(), "ext4", &options).expect("mounted");
    let mut tree = manifest::of_dir(&mounted.path()).expect("readable");
    // Files that have lost their last name e2fsck brings back.
    tree.retain(|name, _| by_e2fsck.is_none() || !name.starts_with(b"lost+found/"));
    drop(mounted);
    drop(device);
    judged(data.path(), log.path()).expect("clean after the recovery");
    without_times(tree)
}

/// Who replays a fast commit sets the times of directories.
fn without_times(mut tree: Manifest) -> Manifest {
    for entry in tree.values_mut().filter(|entry| entry.kind == "directory") {
        entry.mtime_ns = 0;
    }
    tree
}

/// What we recover, with a look by check and by a mount that only reads before it.
fn recovered_by_us(cell: External, image: &[u8]) -> Manifest {
    let device = Arc::new(MemoryDevice::from_image(image));
    rt::testing::world(|cx| {
        let whole: Arc<dyn Device> = device.clone();
        let [data, log] = parts(&whole).map(|part| queue(cx, part));
        let options = CheckOptions {
            journal: Some(JournalDevice(log.clone())),
            replay: true,
            ..CheckOptions::default()
        };
        let report = ext4::check(cx, &data, &options).expect("a check");
        let text = format!("{:?}", report.findings);
        assert!(text.contains("fast commits") && report.findings.len() == 1, "{text}");
        let looks = MountOptions { read_only: true, ..cell.options(&log) };
        let config = PageCacheConfig::with_limit(4 << 20);
        let fs = Ext4::mount_alone(cx, &data, config, looks).expect("a look");
        let seen = manifest::of_fs(cx, &*fs).expect("readable");
        fs.unmount(cx).expect("unmount");
        assert!(device.snapshot() == image, "a look writes nothing");
        let fs = cell.mount(cx, device.clone(), 4 << 20);
        let tree = manifest::of_fs(cx, &*fs).expect("readable");
        assert!(fs.recovery().is_some_and(|report| report.fast_commits > 0), "fast commits");
        fs.unmount(cx).expect("unmount");
        assert!(seen == tree, "the look shows what is recovered");
        cell.check(cx, &device).expect("sound");
        without_times(tree)
    })
}

/// Goal: fast commits on an external journal are recovered alike by us, the kernel and e2fsck,
/// whoever wrote them. Method: images after fsyncs of the kernel, and of ours, by all.
#[test]
fn fast_commits_are_recovered_by_all() {
    let scripts = [
        "for n in $(seq 30); do echo old $n >f$n; done; sync -f .; echo 1 >p; sync p",
        "echo q >p; mv f1 f2; ln f3 l; rm f4; truncate -s 2 f5; head -c 50000 /dev/zero >z; sync z",
    ];
    for (block, ours) in [(4096, true), (1024, false)] {
        let cell = External { block, ours, fast: true };
        for (step, image) in images_of_the_kernel(cell, &scripts).iter().enumerate() {
            let tree = recovered_by_us(cell, image);
            let what = format!("{block}, step {step}");
            assert_equal(&tree, &recovered(image, None), &what);
            for newest in [false, true] {
                assert_equal(&tree, &recovered(image, Some(newest)), &what);
            }
        }
        let device = joined(&cell.files());
        rt::testing::world(|cx| {
            let fs = cell.mount(cx, device.clone(), 4 << 20);
            let root = fs.root();
            for index in 0..30 {
                create(cx, &*fs, root, &format!("f{index}"));
            }
            fs.sync(cx).expect("sync");
            for index in 20..25 {
                let file = create(cx, &*fs, root, &format!("new{index}"));
                fs.write(cx, file, 0, &[index; 9000]).expect("write");
                fs.unlink(cx, root, format!("f{index}").as_bytes()).expect("unlink");
                fs.fsync(cx, file, false).expect("fsync");
            }
            let stats = fs.journal_stats().expect("a journal");
            assert!(stats.fast_commits >= 3, "{stats:?}");
            fs.shutdown_hard();
        });
        let image = device.snapshot();
        let tree = recovered_by_us(cell, &image);
        assert!(tree.contains_key(&b"new24"[..]) && !tree.contains_key(&b"f24"[..]));
        assert_equal(&tree, &recovered(&image, None), "ours");
        for newest in [false, true] {
            assert_equal(&tree, &recovered(&image, Some(newest)), "ours by e2fsck");
        }
    }
}

/// A superblock that a cut tore, which only the external journal has whole, was refused. Method:
/// cuts of files without names; one of them (case 51) is within the superblock of an unmount.
#[test]
fn files_without_names_and_a_torn_superblock_are_recovered() {
    let cell = External { block: 4096, ours: true, fast: true };
    let run = Recording { cell, seed: 5, bytes: DATA + LOG, cache: 8 << 20 };
    let config = CrashConfig { random: 20, at_flushes_max: 40, ..CrashConfig::new(5) };
    trials::unnamed_files(run, &config);
}

/// Goal: what fsync promised is there after any cut over both devices, with fast commits. Method:
/// each file is written, synced and, some, renamed; half of the cuts go between flushes.
#[test]
fn fast_commits_keep_what_fsync_promised() {
    let cell = External { block: 4096, ours: true, fast: true };
    let run = Recording { cell, seed: 5, bytes: DATA + LOG, cache: 8 << 20 };
    // The first inodes, and names in their directories, commit whole.
    let prepare = |cx: &mut Cx, fs: &Arc<Ext4>| {
        for index in 0..20 {
            create(cx, &**fs, fs.root(), &format!("first{index}"));
        }
        mkdir(cx, &**fs, fs.root(), "d");
    };
    let recorded = run.run_after(prepare, |cx, fs, device| {
        let dir = fs.lookup(cx, fs.root(), b"d").expect("d").ino;
        for step in 0..40 {
            let file = create(cx, &**fs, dir, &format!("n{step}"));
            fs.write(cx, file, 0, &content(step)).expect("write");
            fs.fsync(cx, file, false).expect("fsync");
            device.mark(step);
            let (old, new) = (format!("n{step}"), format!("m{step}"));
            let (old, new) = (old.as_bytes(), new.as_bytes());
            if step % 3 == 0 {
                fs.rename(cx, dir, old, dir, new, RenameFlags::default()).expect("rename");
            }
        }
    });
    let config = CrashConfig { random: 60, at_flushes_max: 60, ..CrashConfig::new(5) };
    let fast = AtomicU32::new(0);
    let report = recorded.explore(&config, 20, |cx, fs, case| {
        let found = fs.recovery().map_or(0, |report| report.fast_commits);
        fast.fetch_add(found, Ordering::Relaxed);
        let Some(&last) = case.promised.last() else { return Ok(()) };
        let dir = fs.lookup(cx, fs.root(), b"d").map_err(|errno| format!("d: {errno}"))?.ino;
        for step in 0..=last {
            let names = [format!("n{step}"), format!("m{step}")];
            let found = names.iter().find_map(|name| fs.lookup(cx, dir, name.as_bytes()).ok());
            let file = found.ok_or_else(|| format!("n{step} is gone"))?.ino;
            let mut bytes = vec![0; 8192];
            let len = fs.read(cx, file, 0, &mut bytes).map_err(|errno| errno.to_string())?;
            if bytes[..len] != content(step) {
                return Err(format!("n{step} has {len} bytes, or others"));
            }
        }
        Ok(())
    });
    assert!(report.with_promises > 50, "{report:?}");
    let fast = fast.into_inner();
    assert!(fast > 200, "{fast} fast commits were replayed");
}

/// What a file of this step holds.
fn content(step: u64) -> Vec<u8> {
    vec![step as u8 + 1; 100 + 150 * step as usize]
}
