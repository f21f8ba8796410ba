//! The suites of every operation, of random operations beside the model, of many tasks, of power
//! cuts and of damaged metadata on each kind of file system that Linux or a user asks for by name.
//! The newest `xfs_repair -n` judges; it knows all of them.

use std::sync::Arc;

use crate::realtime::{self as section, DATA, Section};
use crate::world::{checked, mount_with, queue, seed_count};
use base::Errno;
use block::Device;
use cache::{PageCache, PageCacheConfig};
use device::MemoryDevice;
use rt::Cx;
use testkit::chaos::Chaos;
use testkit::crash::CrashConfig;
use testkit::format::{Format, Recording};
use testkit::memfs::Limits;
use testkit::model::{Config, check_seeds};
use testkit::trials::{self, Modelled, Stress};
use testkit::{chaos, manifest, newest};
use vfs::FileSystem;
use xfs::format::{Kind as Block, verifier};
use xfs::mount::options::BesideDevice;
use xfs::{CheckOptions, MkfsOptions, MountOptions, Xfs};

/// A kind of file system.
#[derive(Clone, Copy, Debug)]
enum Kind {
    /// Of a kernel, with further words of mkfs.
    Of(&'static str, &'static [(char, &'static str)]),
    /// New files lie in a realtime section.
    Realtime(Section),
}

const LOG: (char, &str) = ('l', "size=12m");

const KINDS: [Kind; 11] = [
    Kind::Of("7.2", &[LOG]),
    Kind::Of("4.19", &[LOG]),
    Kind::Of("5.10", &[LOG]),
    Kind::Of("6.12", &[LOG]),
    Kind::Of("6.18", &[LOG]),
    Kind::Of("7.2", &[LOG, ('b', "size=1024")]),
    Kind::Of("7.2", &[('b', "size=64k"), ('l', "size=72m"), ('d', "agcount=2")]),
    Kind::Realtime(section::WIDE),
    Kind::Realtime(section::SHARED),
    Kind::Of("7.2", &[LOG, ('m', "uquota,gquota,pquota")]),
    Kind::Of("7.2", &[LOG, ('m', "rmapbt=0")]),
];

/// The kind that a seed chooses.
fn kind_of(seed: u64) -> Kind {
    KINDS[(seed % KINDS.len() as u64) as usize]
}

impl Kind {
    fn block_size(self) -> u64 {
        match self {
            Kind::Of(_, words) if words.contains(&('b', "size=1024")) => 1024,
            Kind::Of(_, words) if words.contains(&('b', "size=64k")) => 65536,
            _ => 4096,
        }
    }

    /// Bytes of a device that is large enough.
    fn bytes(self) -> u64 {
        match self {
            Kind::Of(..) if self.block_size() > 4096 => 256 << 20,
            Kind::Of(..) => 96 << 20,
            Kind::Realtime(_) => DATA + (96 << 20),
        }
    }

    fn try_mount(
        self,
        cx: &mut Cx,
        device: Arc<dyn Device>,
        cache: u64,
    ) -> Result<Arc<Xfs>, String> {
        let options = MountOptions { read_only: false, ..MountOptions::default() };
        let pages = PageCache::new(cx.runtime(), PageCacheConfig::with_limit(cache));
        let [data, beside] = match self {
            Kind::Of(..) => [device.clone(), device],
            Kind::Realtime(_) => section::parts(&device),
        }
        .map(|part| queue(cx, part));
        let realtime = matches!(self, Kind::Realtime(_)).then_some(BesideDevice(beside));
        let options = MountOptions { realtime, ..options };
        Xfs::mount(cx, &data, &pages, options).map_err(|error| error.to_string())
    }
}

/// A file system of a kernel, with further words of mkfs.
fn made(cx: &mut Cx, bytes: u64, kernel: &str, words: &[(char, &str)]) -> Arc<MemoryDevice> {
    let device = crate::world::loaded(&vec![0; bytes as usize]);
    let options = MkfsOptions::compat(kernel).expect("a kernel");
    let mut options = MkfsOptions { uuid: Some([7; 16]), assume_zeroes: true, ..options };
    for (letter, text) in words {
        options.edit(*letter, text).expect("words of mkfs");
    }
    let queue = queue(cx, device.clone());
    xfs::mkfs(cx, &queue, &options).unwrap_or_else(|error| panic!("{kernel}: {error}"));
    device
}

impl Format for Kind {
    type Fs = Xfs;

    fn fresh(&self, cx: &mut Cx, bytes: u64) -> Arc<MemoryDevice> {
        let device = match self {
            Kind::Of(kernel, words) => made(cx, bytes, kernel, words),
            Kind::Realtime(section) => section.fresh(cx, bytes),
        };
        // The model's root has no attribute of mkfs.
        let fs = self.mount(cx, device.clone(), 8 << 20);
        let removed = fs.removexattr(cx, fs.root(), b"trusted.xfs:autofsck");
        assert!(matches!(removed, Ok(()) | Err(Errno::ENODATA)), "{self:?}: {removed:?}");
        fs.unmount(cx).expect("unmount");
        device
    }

    fn mount(&self, cx: &mut Cx, device: Arc<dyn Device>, cache: u64) -> Arc<Xfs> {
        match self {
            Kind::Of(..) => mount_with(cx, device, cache, MountOptions::default()).0,
            Kind::Realtime(section) => section.mount(cx, device, cache),
        }
    }

    fn check(&self, cx: &mut Cx, device: &Arc<MemoryDevice>) -> Result<(), String> {
        match self {
            Kind::Of(..) => checked(cx, device),
            Kind::Realtime(section) => section.check(cx, device),
        }
    }

    fn judge(&self, device: &MemoryDevice) -> Result<(), String> {
        match self {
            Kind::Of(..) => newest::xfs_repair(testkit::image::write_device(device).path()),
            Kind::Realtime(section) => section.judge(device),
        }
    }

    fn error(fs: &Xfs) -> Option<String> {
        fs.error()
    }
}

/// Goal: every operation answers as POSIX and Linux ask, whatever the kind.
#[test]
fn every_operation_answers_as_it_should() {
    for kind in KINDS {
        rt::testing::world(|cx| {
            let device = kind.fresh(cx, kind.bytes());
            let fs = kind.mount(cx, device.clone(), 64 << 20);
            testkit::conformance::run_all(cx, &*fs);
            fs.unmount(cx).expect("unmount");
            kind.check(cx, &device).unwrap_or_else(|found| panic!("{kind:?}: {found}"));
            kind.judge(&device).unwrap_or_else(|found| panic!("{kind:?}: {found}"));
        });
    }
}

fn subject(cx: &mut Cx, seed: u64) -> Modelled<Kind> {
    let kind = kind_of(seed);
    Modelled::new(cx, kind.bytes(), kind, seed)
}

fn config(seed: u64, config: Config) -> Config {
    let kind = kind_of(seed);
    let old = matches!(kind, Kind::Of("4.19" | "5.10", _));
    let limits = Limits {
        size_max: i64::MAX as u64,
        links_max: 0x7fff_ffff,
        target_max: 1023,
        block_size: kind.block_size(),
        // Without `bigtime`.
        seconds_max: if old { i64::from(i32::MAX) } else { i64::MAX },
    };
    let xattr_max = if seed.is_multiple_of(2) { 300 } else { 9000 };
    Config { limits, xattr_max, clones: true, ..config }
}

/// Goal: what operations leave is what the reference leaves, by one task and by many, over
/// remounts. Method: one seed of each for each kind; `IOPATH_SEEDS=n` for more of them.
#[test]
fn random_operations_agree_with_the_reference() {
    let count = KINDS.len() as u64 * seed_count(1);
    check_seeds(0, count, |seed| config(seed, Config::new(seed)), subject);
    check_seeds(2002, count, |seed| config(seed, Config::many(seed)), subject);
}

/// Goal: tasks that do anything to the same names leave a sound file system, on threads and in
/// explored schedules.
#[test]
fn many_tasks_leave_a_sound_file_system() {
    let plan = Chaos { tasks: 6, steps: 250, size_max: 300_000, small: false, faults: false };
    for seed in 0..KINDS.len() as u64 * seed_count(1) {
        let kind = kind_of(seed);
        let stress = Stress { bytes: kind.bytes(), cache: 2 << 20, plan };
        stress.in_threads(kind, seed);
        let plan = Chaos { steps: 60, ..plan };
        Stress { plan, ..stress }.in_a_world(kind, seed);
    }
}

/// Goal: a power cut takes nothing that a sync promised.
#[test]
fn what_fsync_promised_is_kept() {
    for seed in 0..KINDS.len() as u64 * seed_count(1) {
        let cell = kind_of(seed);
        let run = Recording { cell, seed, bytes: cell.bytes(), cache: 16 << 20 };
        let config = CrashConfig { random: 4, at_flushes_max: 6, ..CrashConfig::new(seed) };
        trials::anything_goes(run, 40, &config);
    }
}

/// Goal: damaged metadata, mostly with right checksums, end in findings and errors of the check and
/// of everything that reads, never in a panic or a hang. Method: bytes of blocks of metadata that
/// tasks have filled.
#[test]
fn damaged_metadata_get_an_answer() {
    let plan = Chaos { tasks: 4, steps: 150, size_max: 100_000, small: false, faults: false };
    for seed in 0..KINDS.len() as u64 * seed_count(1) {
        let kind = kind_of(seed);
        rt::testing::world(|cx| {
            let device = kind.fresh(cx, kind.bytes());
            let fs = kind.mount(cx, device.clone(), 16 << 20);
            let shared: Arc<dyn FileSystem> = fs.clone();
            chaos::session(cx, &shared, seed, plan);
            fs.unmount(cx).expect("unmount");
            let image = device.snapshot();
            let sectors = image.chunks_exact(512).enumerate();
            let places: Vec<usize> = sectors
                .filter(|(_, sector)| Block::recognise(sector).is_some())
                .map(|(index, _)| index * 512)
                .collect();
            assert!(places.len() > 100, "{kind:?}: {} blocks of metadata", places.len());
            let mut rng = base::Rng::new(seed, 3);
            for _ in 0..12 {
                let damaged = Arc::new(device.fork());
                for _ in 0..6 {
                    let at = *rng.pick(&places);
                    damage(&mut rng, kind, &image, at, &damaged);
                }
                look(cx, kind, damaged);
            }
        });
    }
}

/// Changes a byte of the block of metadata at a place.
fn damage(rng: &mut base::Rng, kind: Kind, image: &[u8], at: usize, device: &MemoryDevice) {
    let what = Block::recognise(&image[at..]).expect("chosen by it");
    let size = match what {
        Block::Super | Block::Agf | Block::Agi | Block::Agfl | Block::Inode => 512,
        Block::DirBlock | Block::DirData | Block::DirLeaf1 | Block::DirLeafN | Block::DirFree => {
            kind.block_size().max(4096) as usize
        }
        _ => kind.block_size() as usize,
    };
    let Some(block) = image.get(at..at + size) else { return };
    let mut block = block.to_vec();
    block[rng.below(size as u64) as usize] = rng.next_u32() as u8;
    if rng.chance(0.8) {
        verifier::update_crc(what, &mut block);
    }
    device.write_at(at as u64, &block);
}

/// Checks and reads everything there is, whatever the answers.
fn look(cx: &mut Cx, kind: Kind, device: Arc<MemoryDevice>) {
    let whole: Arc<dyn Device> = device.clone();
    let data = match kind {
        Kind::Of(..) => whole.clone(),
        Kind::Realtime(_) => section::parts(&whole)[0].clone(),
    };
    let data = queue(cx, data);
    xfs::check(cx, &data, &CheckOptions::default()).expect("the device works");
    if let Ok(fs) = kind.try_mount(cx, whole, 16 << 20) {
        let _ = manifest::of_fs(cx, &*fs);
        let _ = fs.unmount(cx);
    }
}
