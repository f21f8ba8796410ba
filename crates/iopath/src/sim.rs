//! Modelled machines as targets: `sim:PROFILE?size=4G&fs=ext4&elevator=deadline&seed=1`.
//!
//! Such a target begins with a file system that was just made, lives in virtual time, and ends with
//! the command. So it is one for workloads; commands that look into an image refuse it by name.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;

use anyhow::{Context, Result, anyhow, bail};
use base::Nanos;
use block::{Queue, QueueConfig, SyncWrites};
use cache::{PageCache, PageCacheConfig};
use device::MemoryDevice;
use ext4::Ext4;
use model::{ModelDevice, ModelStats, Profile};
use rt::{Cx, World};
use vfs::{FileSystem, Namespace};
use xfs::Xfs;

use crate::mount_arg::{MountArg, apply_ext, apply_xfs};
use crate::text;

/// What is known behind the question mark, for messages.
const KNOWN: &str = "size=SIZE, fs=ext2|ext3|ext4|xfs, elevator=NAME, tunable=NAME:VALUE, \
     noidle=0|1, seed=N, memory=SIZE";

/// What a machine's device can hold.
const FILE_SYSTEMS: [&str; 4] = ["ext2", "ext3", "ext4", "xfs"];

/// A modelled machine with a file system.
#[derive(Clone, Debug)]
pub struct SimTarget {
    /// The machine.
    pub profile: Profile,
    /// Bytes of its device.
    pub size: u64,
    /// `ext2`, `ext3`, `ext4` or `xfs`.
    pub fs: String,
    /// The elevator in front of the device.
    pub elevator: String,
    /// Tunables of the queue and of the elevator, by the kernel's names.
    pub tunables: Vec<(String, String)>,
    /// Synchronous writes carry NOIDLE, as in Linux 2.6.30 to 2.6.37.
    pub noidle: bool,
    /// Where every random choice begins.
    pub seed: u64,
    /// Bytes of memory for the page cache; half of the machine's by default.
    pub memory: u64,
    /// Trace events that the queue keeps, from the mount on; 0 keeps none.
    pub trace_events: usize,
    /// As it was written.
    text: String,
}

/// A machine that runs.
pub struct Machine {
    /// The file system, seen through paths.
    pub names: Namespace,
    /// The queue in front of the device.
    pub queue: Arc<Queue>,
    /// The device.
    pub device: Arc<ModelDevice>,
}

/// What is done with the file system before the machine starts. It takes no time of the machine.
pub type Prepare<'p> = &'p dyn Fn(&mut Cx, &Namespace) -> Result<()>;

/// What a machine did.
#[derive(Clone, Debug)]
pub struct SimReport {
    /// Simulated time from the mount to the end of the unmount.
    pub time: Nanos,
    /// The device's counters over that time.
    pub stats: ModelStats,
    /// Hash of every event: the same for the same target and work.
    pub hash: u64,
}

/// True where an argument names a modelled machine.
pub fn is_sim(arg: &OsStr) -> bool {
    arg.as_bytes().starts_with(b"sim:")
}

impl SimTarget {
    /// Reads `sim:PROFILE` or `sim:PROFILE?KEY=VALUE&..`; PROFILE is a name that `iopath machines`
    /// lists, or the path of a profile.
    ///
    /// # Errors
    /// No such machine, or a key or value that is not known, with what is.
    pub fn parse(arg: &OsStr) -> Result<SimTarget> {
        let arg = arg.to_str().with_context(|| format!("{}: not UTF-8", arg.display()))?;
        let rest =
            arg.strip_prefix("sim:").with_context(|| format!("`{arg}` is no sim: target"))?;
        let rest = rest.trim_start_matches("//");
        let (name, query) = rest.split_once('?').unwrap_or((rest, ""));
        if name.is_empty() {
            let names: Vec<&str> = model::names().collect();
            bail!("`{arg}` names no machine; there are: {}", names.join(", "));
        }
        let profile = Profile::load(name)?;
        let mut target = SimTarget {
            size: 4 << 30,
            fs: "ext4".to_owned(),
            elevator: "deadline".to_owned(),
            tunables: vec![],
            noidle: false,
            seed: 1,
            memory: profile.memory / 2,
            trace_events: 0,
            text: arg.to_owned(),
            profile,
        };
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            target.set(pair).with_context(|| arg.to_owned())?;
        }
        Ok(target)
    }

    fn set(&mut self, pair: &str) -> Result<()> {
        let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
        let size = || text::parse_size(value).map_err(|error| anyhow!("{key}: {error}"));
        match key {
            "size" => self.size = size()?,
            "memory" => self.memory = size()?.max(4 << 20),
            "seed" => {
                let number = value.parse().map_err(|_| anyhow!("seed: `{value}` is no number"));
                self.seed = number?;
            }
            "fs" if FILE_SYSTEMS.contains(&value) => self.fs = value.to_owned(),
            "fs" => bail!("fs: `{value}`; known are {}", FILE_SYSTEMS.join(", ")),
            "elevator" => {
                let known: Vec<&str> = block::elevator::names().collect();
                if !known.contains(&value) {
                    bail!("elevator: there is no `{value}`; there are: {}", known.join(", "));
                }
                self.elevator = value.to_owned();
            }
            "noidle" => match value {
                "0" => self.noidle = false,
                "1" => self.noidle = true,
                _ => bail!("noidle: `{value}`; known are 0 and 1"),
            },
            "tunable" => match value.split_once(':') {
                Some((name, value)) => self.tunables.push((name.to_owned(), value.to_owned())),
                None => bail!("tunable: `{value}`; write NAME:VALUE, such as slice_idle:0"),
            },
            _ => bail!("`{pair}` is not known; known are {KNOWN}"),
        }
        if self.size < 1 << 20 {
            bail!("size: {} bytes are too few; give at least 1M", self.size);
        }
        Ok(())
    }

    /// Makes the file system, starts the machine, mounts, runs `work` and unmounts. Only the time
    /// from the mount on counts.
    ///
    /// # Errors
    /// The device does not fit the machine; an option is for another file system; mkfs, mount or
    /// unmount fail; those of `work`.
    pub fn run<T>(
        &self,
        options: &[MountArg],
        work: impl FnOnce(&mut Cx, &Machine) -> Result<T>,
    ) -> Result<(T, SimReport)> {
        self.run_after(None, options, work)
    }

    /// As [`run`](Self::run), after `prepare` on the new file system: what it leaves is on the
    /// device, and nothing of it is cached.
    ///
    /// # Errors
    /// As [`run`](Self::run); those of `prepare`.
    pub fn run_after<T>(
        &self,
        prepare: Option<Prepare>,
        options: &[MountArg],
        work: impl FnOnce(&mut Cx, &Machine) -> Result<T>,
    ) -> Result<(T, SimReport)> {
        let memory = Arc::new(self.make_fs(prepare).with_context(|| self.text.clone())?);
        let mut world = World::new(self.profile.world_config(self.seed));
        let runtime = world.runtime();
        let device = self.profile.device(&runtime, memory)?;
        let config = self.profile.queue_config(&self.elevator);
        let sync_writes = SyncWrites { noidle: self.noidle };
        let config = QueueConfig { trace_events: self.trace_events, sync_writes, ..config };
        let queue = Queue::new(&runtime, device.clone(), config);
        let queue = queue.map_err(|error| anyhow!("{}: {error}", self.text))?;
        self.tune(&queue).with_context(|| self.text.clone())?;
        let value = world.run("main", |cx| {
            let pages = PageCache::new(cx.runtime(), PageCacheConfig::with_limit(self.memory));
            let fs = self.mount(cx, &queue, &pages, options).with_context(|| self.text.clone())?;
            let names = Namespace::new(fs.clone());
            let machine = Machine { names, queue: queue.clone(), device: device.clone() };
            let value = work(cx, &machine)?;
            drop(machine);
            fs.unmount(cx).map_err(|errno| anyhow!("{}: unmount: {errno}", self.text))?;
            Ok::<T, anyhow::Error>(value)
        })?;
        let (time, hash) = (world.now(), world.hash());
        Ok((value, SimReport { time, stats: device.stats(), hash }))
    }

    /// Mounts what [`SimTarget::make_fs`] has made.
    fn mount(
        &self,
        cx: &mut Cx,
        queue: &Arc<Queue>,
        pages: &Arc<PageCache>,
        args: &[MountArg],
    ) -> Result<Arc<dyn FileSystem>> {
        let args = args.iter().copied();
        if self.fs == "xfs" {
            let mut options = xfs::MountOptions { read_only: false, ..Default::default() };
            apply_xfs(args, &mut options)?;
            return Ok(Xfs::mount(cx, queue, pages, options).context("mount")?);
        }
        let mut options = ext4::MountOptions::default();
        apply_ext(args, &mut options)?;
        Ok(Ext4::mount(cx, queue, pages, options).context("mount")?)
    }

    fn mkfs(&self, cx: &mut Cx, queue: &Arc<Queue>) -> Result<()> {
        let uuid = Some(*b"iopath sim image");
        if self.fs == "xfs" {
            let options =
                xfs::MkfsOptions { uuid, assume_zeroes: true, ..xfs::MkfsOptions::default() };
            xfs::mkfs(cx, queue, &options)?;
            return Ok(());
        }
        let options = ext4::MkfsOptions {
            fstype: self.fs.parse().map_err(|error| anyhow!("{error}"))?,
            uuid,
            hash_seed: Some(*b"iopath sim hashe"),
            assume_zeroes: true,
            ..ext4::MkfsOptions::default()
        };
        ext4::mkfs(cx, queue, &options)?;
        Ok(())
    }

    /// The machine's device in real time, behind the machine's elevator: each request takes as long
    /// as the model says, on the clock of the host.
    ///
    /// # Errors
    /// The device does not fit the machine; mkfs fails.
    pub fn in_real_time(&self, runtime: &rt::Runtime) -> Result<Arc<Queue>> {
        let memory = Arc::new(self.make_fs(None).with_context(|| self.text.clone())?);
        let device = self.profile.device(runtime, memory)?;
        let queue = Queue::new(runtime, device, self.profile.queue_config(&self.elevator));
        let queue = queue.map_err(|error| anyhow!("{}: {error}", self.text))?;
        self.tune(&queue).with_context(|| self.text.clone())?;
        Ok(queue)
    }

    /// Sets the machine's ticks where the elevator counts in them, then what was asked for.
    fn tune(&self, queue: &Arc<Queue>) -> Result<()> {
        let tunables = self.tunables.iter().map(|(name, value)| (name.as_str(), value.as_str()));
        Ok(self.profile.tune(queue, tunables)?)
    }

    fn make_fs(&self, prepare: Option<Prepare>) -> Result<MemoryDevice> {
        let memory = Arc::new(MemoryDevice::new(self.size));
        let mut world = World::new(rt::WorldConfig { seed: self.seed, ..Default::default() });
        world.run("mkfs", |cx| {
            let queue = Queue::new(cx.runtime(), memory.clone(), QueueConfig::default())?;
            self.mkfs(cx, &queue)?;
            if let Some(prepare) = prepare {
                let pages = PageCache::new(cx.runtime(), PageCacheConfig::with_limit(256 << 20));
                let fs = self.mount(cx, &queue, &pages, &[])?;
                let prepared = prepare(cx, &Namespace::new(fs.clone()));
                fs.unmount(cx)?;
                prepared?;
            }
            queue.drain(cx);
            Ok::<(), anyhow::Error>(())
        })?;
        Ok(memory.fork())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use vfs::OpenFlags;

    fn parse(text: &str) -> Result<SimTarget> {
        SimTarget::parse(text.as_ref())
    }

    #[test]
    fn a_target_names_machine_size_and_the_rest() {
        let target = parse("sim:disk-7200?size=512M&fs=ext3&elevator=none&seed=9").unwrap();
        assert_eq!((&*target.profile.name, target.size), ("disk-7200", 512 << 20));
        assert_eq!((&*target.fs, &*target.elevator, target.seed), ("ext3", "none", 9));
        assert_eq!(parse("sim:ram").unwrap().size, 4 << 30);
        for (text, part) in [
            ("sim:", "names no machine; there are: array-2010"),
            ("sim:floppy", "there is no machine `floppy`"),
            ("sim:ram?size=5 apples", "size"),
            ("sim:ram?size=1k", "too few"),
            ("sim:ram?fs=zfs", "known are ext2, ext3, ext4, xfs"),
            ("sim:ram?elevator=lift", "there is no `lift`"),
            ("sim:ram?sise=1G", "`sise=1G` is not known; known are size="),
            ("sim:ram?noidle=yes", "known are 0 and 1"),
            ("sim:ram?tunable=hz", "write NAME:VALUE"),
        ] {
            let error = format!("{:#}", parse(text).unwrap_err());
            assert!(error.contains(part), "{text}: {error}");
        }
    }

    /// Goal: a machine runs the real path in its own time, the same each time.
    #[test]
    fn a_machine_runs_and_repeats() {
        let run = |target: &str| {
            let target = parse(target).unwrap();
            let work = |cx: &mut Cx, machine: &Machine| {
                let flags = OpenFlags::CREATE | OpenFlags::WRITE;
                let file = machine.names.open(cx, b"/a", flags, 0o644).unwrap();
                file.write(cx, &[7; 100_000]).unwrap();
                file.fsync(cx).unwrap();
                file.close(cx).unwrap();
                Ok(cx.now())
            };
            let (synced, report) = target.run(&[], work).unwrap();
            assert!(synced > Nanos::ZERO && report.time >= synced);
            (synced, report.time, report.hash, report.stats)
        };
        let disk = run("sim:disk-7200?size=64M");
        assert_eq!(disk, run("sim:disk-7200?size=64M"));
        let xfs = run("sim:disk-7200?size=512M&fs=xfs");
        assert_eq!(xfs, run("sim:disk-7200?size=512M&fs=xfs"));
        assert_ne!(xfs.2, disk.2, "another file system does other things");
        let ram = run("sim:ram?size=64M");
        assert!(disk.0.0 > 20 * ram.0.0, "{} on a disk, {} in memory", disk.0, ram.0);
    }

    /// Creates, writes, also past the cache, syncs and reads back, all small.
    fn little_work(cx: &mut Cx, machine: &Machine) -> Result<()> {
        let names = &machine.names;
        for name in [b"/a", b"/b"] {
            let file = names.open(cx, name, OpenFlags::CREATE | OpenFlags::WRITE, 0o644)?;
            file.write(cx, &[7; 50_000])?;
            file.fsync(cx)?;
            file.close(cx)?;
        }
        let past = OpenFlags::CREATE | OpenFlags::WRITE | OpenFlags::DIRECT;
        let file = names.open(cx, b"/c", past, 0o644)?;
        file.write(cx, &[7; 8192])?;
        file.close(cx)?;
        let file = names.open(cx, b"/a", OpenFlags::READ, 0)?;
        let mut back = vec![0; 50_000];
        assert_eq!(file.read(cx, &mut back)?, 50_000);
        file.close(cx)?;
        Ok(())
    }

    /// Goal: every named cost is charged somewhere on the path. Method: one cost at a time, a
    /// millisecond each; the same work must then take longer by at least one of them.
    #[test]
    fn every_named_cost_is_charged_somewhere() {
        let time = |charges: rt::Charges| {
            let mut target = parse("sim:ram?size=64M").unwrap();
            target.profile.charges = charges;
            target.run(&[], little_work).unwrap().1.time
        };
        let free = time(rt::Charges::default());
        for charge in rt::Charge::ALL {
            let span = Nanos::from_millis(1);
            let taken = time(rt::Charges::default().with(charge, span));
            assert!(taken >= free + span, "{charge:?}: {free} without, {taken} with");
        }
    }
}
