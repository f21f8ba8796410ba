//! The power cut of the demonstration.

use base::{Ino, Nanos, Rng};
use block::{Device, Queue, QueueConfig};
use cache::{PageCache, PageCacheConfig};
use device::{Cut, MemoryDevice, RecordDevice, WriteLog};
use ext4::{Ext4, MkfsOptions, MountOptions};
use model::Profile;
use rt::{Cx, SpinLock, World, WorldConfig};
use serde_json::{Value, json};
use std::fmt::Write;
use std::path::Path;
use std::sync::Arc;
use vfs::{FileSystem, FileType, NewNode};

const IMAGE_BYTES: u64 = 64 << 20;
const TREE_DIRECTORIES: u64 = 20;
const TREE_FILES: u64 = 200;
const TASKS: u64 = 8;
const FILES_EACH: u64 = 40;

/// A file whose fsync returned.
struct Promise {
    name: String,
    content: Vec<u8>,
    /// Entries of the write log when fsync returned.
    position: usize,
}

/// What happened.
pub struct Crash {
    seed: u64,
    hash: u64,
    took: Nanos,
    fsyncs: usize,
    commits: u64,
    log_entries: usize,
    cut: Cut,
    unflushed: usize,
    recovery: String,
    promised: usize,
    kept: usize,
    unpromised: usize,
    image: MemoryDevice,
    /// Promises that recovery did not keep.
    pub broken: Vec<String>,
    /// What the check of the recovered image found.
    pub findings: Vec<String>,
}

fn queue(cx: &Cx, device: Arc<dyn Device>) -> Arc<Queue> {
    let queue = Queue::new(cx.runtime(), device, QueueConfig::default());
    queue.expect("a memory device takes the default queue")
}

fn mount(cx: &mut Cx, device: Arc<dyn Device>) -> Arc<Ext4> {
    let queue = queue(cx, device);
    let pages = PageCache::new(cx.runtime(), PageCacheConfig::default());
    let fs = Ext4::mount(cx, &queue, &pages, MountOptions::default());
    fs.unwrap_or_else(|error| panic!("the demonstration's own image does not mount: {error}"))
}

fn content(seed: u64, name: &str) -> Vec<u8> {
    let stream = name.bytes().fold(7u64, |sum, byte| sum.wrapping_mul(31) + u64::from(byte));
    let mut rng = Rng::new(seed, stream);
    let mut bytes = vec![0; 500 + rng.below(20_000) as usize];
    rng.fill(&mut bytes);
    bytes
}

fn put(cx: &mut Cx, fs: &Ext4, dir: Ino, name: &str, bytes: &[u8]) -> Ino {
    let node = NewNode::new(FileType::Regular, 0o644);
    let file = fs.create(cx, dir, name.as_bytes(), &node).expect("room for a file").ino;
    fs.write(cx, file, 0, bytes).expect("room for its content");
    file
}

fn tree(cx: &mut Cx, fs: &Ext4, seed: u64) {
    let node = NewNode::new(FileType::Directory, 0o755);
    for d in 0..TREE_DIRECTORIES {
        let name = format!("dir{d:02}");
        let dir = fs.create(cx, fs.root(), name.as_bytes(), &node).expect("room").ino;
        for f in 0..TREE_FILES / TREE_DIRECTORIES {
            let name = format!("file{f}");
            put(cx, fs, dir, &name, &content(seed, &format!("dir{d:02}/{name}")));
        }
    }
    fs.sync(cx).expect("sync on a memory device");
}

/// `TASKS` tasks write and fsync files at once; returns what was promised.
fn burst(cx: &mut Cx, fs: &Arc<Ext4>, device: &Arc<RecordDevice>, seed: u64) -> Vec<Promise> {
    let promises = Arc::new(SpinLock::new(Vec::new()));
    let handles: Vec<_> = (0..TASKS)
        .map(|task| {
            let (fs, device, promises) = (fs.clone(), device.clone(), promises.clone());
            cx.spawn(&format!("writer{task}"), move |cx| {
                for n in 0..FILES_EACH {
                    let name = format!("burst-{task}-{n:02}");
                    let content = content(seed, &name);
                    let file = put(cx, &fs, fs.root(), &name, &content);
                    fs.fsync(cx, file, false).expect("fsync on a memory device");
                    let position = device.len();
                    promises.lock(cx).push(Promise { name, content, position });
                    cx.sleep(Nanos::from_micros(50));
                }
            })
        })
        .collect();
    handles.into_iter().for_each(|handle| handle.join(cx));
    std::mem::take(&mut *promises.lock(cx))
}

/// Runs everything in a world of its own.
pub fn run(seed: u64) -> Crash {
    let mut world = World::new(WorldConfig::exploring(seed));
    let mut crash = world.run("demo", |cx| crash(cx, seed));
    crash.hash = world.hash();
    crash.took = world.now();
    crash
}

fn crash(cx: &mut Cx, seed: u64) -> Crash {
    let memory = Arc::new(MemoryDevice::new(IMAGE_BYTES));
    let plain = queue(cx, memory.clone());
    ext4::mkfs(cx, &plain, &MkfsOptions::default()).expect("mkfs on a fresh device");
    let fs = mount(cx, memory.clone());
    tree(cx, &fs, seed);
    fs.unmount(cx).expect("unmount of a memory device");
    let base = memory.fork();

    let flash = Profile::built_in("flash-nvme").device(cx.runtime(), memory);
    let device = Arc::new(RecordDevice::new(flash.expect("flash of any size")));
    let fs = mount(cx, device.clone());
    let promises = burst(cx, &fs, &device, seed);
    fs.shutdown_hard();
    let log = device.log();

    let cut = draw_cut(&log, seed);
    let image = log.device_after(&base, &cut);
    let mut crash = Crash {
        seed,
        hash: 0,
        took: Nanos::ZERO,
        fsyncs: promises.len(),
        commits: fs.journal().map_or(0, |journal| journal.stats().commits),
        log_entries: log.entries.len(),
        unflushed: log.unflushed(cut.upto).len(),
        recovery: String::new(),
        promised: 0,
        kept: 0,
        unpromised: 0,
        broken: Vec::new(),
        findings: Vec::new(),
        image,
        cut,
    };
    crash.recover(cx, &promises);
    crash
}

/// The power fails somewhere in the second half of the burst, at a moment when the device holds
/// writes that no flush has covered.
fn draw_cut(log: &WriteLog, seed: u64) -> Cut {
    let mut rng = Rng::new(seed, 1);
    let entries = log.entries.len();
    let at_stake = |upto: &usize| log.unflushed(*upto).len() >= 3;
    let moments: Vec<usize> = (entries / 2..entries).filter(at_stake).collect();
    let upto = if moments.is_empty() { entries } else { *rng.pick(&moments) };
    log.random_losses(upto, &mut rng)
}

impl Crash {
    fn recover(&mut self, cx: &mut Cx, promises: &[Promise]) {
        let device = Arc::new(self.image.fork());
        let fs = mount(cx, device.clone());
        self.recovery = fs.recovery().map_or("nothing to replay".into(), |r| r.to_string());
        for promise in promises {
            let found = read(cx, &fs, &promise.name);
            let right = found.as_deref() == Some(&promise.content[..]);
            if promise.position > self.cut.upto {
                self.unpromised += usize::from(found.is_some());
                continue;
            }
            self.promised += 1;
            self.kept += usize::from(right);
            if !right {
                self.broken.push(promise.name.clone());
            }
        }
        fs.unmount(cx).expect("unmount of a memory device");
        let report = ext4::check(cx, &queue(cx, device.clone()), &Default::default());
        let report = report.expect("the check can read a memory device");
        self.findings = report.findings.iter().map(|finding| finding.to_string()).collect();
        self.image = device.fork();
    }

    /// Writes the recovered image to a file, with holes where it is zero.
    pub fn keep(&self, path: &Path) -> std::io::Result<()> {
        use std::os::unix::fs::FileExt;
        let file = std::fs::File::create(path)?;
        file.set_len(IMAGE_BYTES)?;
        for (index, chunk) in self.image.snapshot().chunks(4096).enumerate() {
            if chunk.iter().any(|&byte| byte != 0) {
                file.write_all_at(chunk, index as u64 * 4096)?;
            }
        }
        Ok(())
    }

    /// The story for a person.
    pub fn to_text(&self) -> String {
        let mut out = String::new();
        let mut line = |name: &str, text: String| {
            writeln!(out, "  {name:<10} {text}").expect("writing to a string");
        };
        line(
            "image",
            format!(
                "ext4, {} MiB, made by our mkfs, on modelled flash with a volatile cache",
                IMAGE_BYTES >> 20
            ),
        );
        line("tree", format!("{TREE_FILES} files in {TREE_DIRECTORIES} directories, synced"));
        line(
            "burst",
            format!(
                "{TASKS} tasks wrote and fsynced {} files in {} commits",
                self.fsyncs, self.commits
            ),
        );
        line(
            "power cut",
            format!(
                "after entry {} of {} of the write log; of {} unflushed writes {} lost, {} torn",
                self.cut.upto,
                self.log_entries,
                self.unflushed,
                self.cut.drop.len(),
                self.cut.torn.len()
            ),
        );
        line("recovery", self.recovery.clone());
        line(
            "promised",
            format!("{} files by fsync: {} are there, contents equal", self.promised, self.kept),
        );
        line("extra", format!("{} files are there that nobody had promised", self.unpromised));
        line(
            "check",
            match self.findings.len() {
                0 => "clean".into(),
                n => format!("{n} findings: {}", self.findings.join("; ")),
            },
        );
        line("repeat", format!("seed {} always gives event hash {:016x}", self.seed, self.hash));
        format!("A power cut in a burst of fsyncs (virtual time)\n\n{out}\n")
    }

    /// The same for a program.
    pub fn to_json(&self) -> Value {
        json!({
            "seed": self.seed,
            "event_hash": format!("{:016x}", self.hash),
            "virtual_ns": self.took.0,
            "fsyncs": self.fsyncs,
            "commits": self.commits,
            "cut": { "after": self.cut.upto, "of": self.log_entries, "unflushed": self.unflushed,
                     "lost": self.cut.drop.len(), "torn": self.cut.torn.len() },
            "recovery": self.recovery,
            "promised": self.promised,
            "kept": self.kept,
            "unpromised": self.unpromised,
            "broken": self.broken,
            "findings": self.findings,
        })
    }
}

fn read(cx: &mut Cx, fs: &Ext4, name: &str) -> Option<Vec<u8>> {
    let attr = fs.lookup(cx, fs.root(), name.as_bytes()).ok()?;
    let mut bytes = vec![0; attr.size as usize];
    let len = fs.read(cx, attr.ino, 0, &mut bytes).ok()?;
    bytes.truncate(len);
    Some(bytes)
}
