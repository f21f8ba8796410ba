//! A realtime section of the old form: it is repaired without its device.

use std::ffi::OsStr;
use std::sync::Arc;

use base::{Ino, Rng};
use cache::{PageCache, PageCacheConfig};
use device::MemoryDevice;
use repair::Plan;
use testkit::campaign::seeds;
use testkit::content::{create, mkdir};
use testkit::manifest::Manifest;
use testkit::{judge, newest};
use vfs::FileSystem;
use xfs::mount::options::BesideDevice;
use xfs::{MountOptions, Xfs};

#[path = "section_groups.rs"]
mod groups;

use crate::xfs_support::{self, change_slot, geometry};
use crate::{RawInode, RawSuper, apply, plan, verifier};

const DATA: u64 = 96 << 20;
const SECTION: u64 = 24 << 20;

/// A kind of section.
#[derive(Clone, Copy, Debug)]
struct Kind {
    /// Words of the newest mkfs.xfs, up to the realtime device.
    words: &'static str,
    /// In groups, which the host's xfs_repair does not know.
    groups: bool,
}

impl Kind {
    /// A section of the old form.
    const fn plain(words: &'static str) -> Kind {
        Kind { words, groups: false }
    }

    const fn groups(words: &'static str) -> Kind {
        Kind { words, groups: true }
    }
}

const PLAIN_4K: Kind =
    Kind::plain("-l size=17m -n parent=0 -i exchange=0 -m reflink=0,rmapbt=0 -r extsize=4096,");
const PLAIN_16K: Kind =
    Kind::plain("-l size=17m -n parent=0 -i exchange=0 -m reflink=0,rmapbt=0 -r extsize=16384,");
const PLAIN_1K: Kind = Kind::plain(
    "-b size=1024 -l size=17m -n parent=0 -i exchange=0 -m reflink=0,rmapbt=0 -r extsize=28k,",
);
/// Every form that a section in groups has.
const GROUPS: [Kind; 5] = [
    Kind::groups("-l size=17m -m metadir=1 -r rgsize=8m,"),
    Kind::groups("-b size=1024 -l size=17m -m metadir=1 -n parent=1 -r rgsize=8m,"),
    Kind::groups("-l size=17m -m metadir=1,reflink=0 -r extsize=28k,"),
    Kind::groups("-l size=17m -m metadir=1,rmapbt=0 -n parent=1 -r rgsize=8m,"),
    Kind::groups("-l size=17m -m metadir=1,rmapbt=0,reflink=0 -r rgsize=8m,extsize=8k,"),
];

/// A file system and its section.
#[derive(Clone)]
struct Image {
    kind: Kind,
    data: Arc<MemoryDevice>,
    section: Arc<MemoryDevice>,
}

/// One with one of everything, and files of many extents in the section.
fn image(kind: Kind) -> (Image, Vec<Ino>) {
    let [data, section] = [DATA, SECTION].map(|len| {
        let file = tempfile::NamedTempFile::new().expect("a file");
        file.as_file().set_len(len).expect("the file takes its size");
        file
    });
    let words =
        format!("--unsupported -d rtinherit=1 {}rtdev={}", kind.words, section.path().display());
    let words: Vec<&str> = words.split(' ').collect();
    newest::mkfs_xfs(data.path(), DATA, &words);
    let image = Image {
        kind,
        data: Arc::new(testkit::image::load(data.path())),
        section: Arc::new(testkit::image::load(section.path())),
    };
    let inos = rt::testing::world(|cx| {
        let fs = image.mount(cx).expect("a fresh image");
        let block = u64::from(fs.geometry().block_size);
        let deepest = crate::support::directories(cx, &*fs, 600);
        crate::support::sparse_files(cx, &*fs, block, 400);
        let dir = mkdir(cx, &*fs, deepest, "dir");
        let inos = (0..20).map(|n| create(cx, &*fs, dir, &format!("file{n}"))).collect::<Vec<_>>();
        for round in 0..6 {
            for (n, &ino) in inos.iter().enumerate() {
                crate::support::write(cx, &*fs, ino, n as u64, round * 50_000, 3000 + 500 * n);
            }
        }
        if fs.geometry().features.reflink() {
            let copy = create(cx, &*fs, dir, "copy");
            fs.clone_range(cx, (inos[19], 0), (copy, 0), 250_000 / block * block).expect("clone");
        }
        fs.unmount(cx).expect("unmount");
        inos
    });
    (image, inos)
}

impl Image {
    fn fork(&self) -> Image {
        let [data, section] = [&self.data, &self.section].map(|part| Arc::new(part.fork()));
        Image { kind: self.kind, data, section }
    }

    fn mount(&self, cx: &mut rt::Cx) -> Result<Arc<Xfs>, xfs::MountError> {
        let [data, section] =
            [&self.data, &self.section].map(|part| crate::support::queue(cx, part.clone()));
        let pages = PageCache::new(cx.runtime(), PageCacheConfig::with_limit(32 << 20));
        let realtime = Some(BesideDevice(section));
        let options = MountOptions { read_only: false, realtime, ..MountOptions::default() };
        Xfs::mount(cx, &data, &pages, options)
    }

    fn manifest(&self) -> Manifest {
        let copy = self.fork();
        rt::testing::world(|cx| {
            let fs = copy.mount(cx).expect("mounted");
            testkit::manifest::of_fs(cx, &*fs).expect("read")
        })
    }

    /// It shows the same as before.
    #[track_caller]
    fn same(&self, before: &Manifest, what: &str) {
        let differs = testkit::manifest::diff(before, &self.manifest());
        assert!(differs.is_empty(), "{what}: {differs}");
    }

    /// What `xfs_repair -n` of the host and the newest one say.
    fn judge(&self) -> Result<(), String> {
        let [data, section] =
            [&self.data, &self.section].map(|part| testkit::image::write_device(part));
        let args: [&dyn AsRef<OsStr>; 4] = [&"-nP", &"-r", &section.path(), &data.path()];
        let host = (!self.kind.groups).then(|| judge::run("xfs_repair", &args));
        for output in host.into_iter().chain([newest::run("xfs_repair", &args)]) {
            if !output.status.success() {
                return Err(
                    String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into()
                );
            }
        }
        Ok(())
    }

    /// Repairs it in one run.
    #[track_caller]
    fn repaired(&self, what: &str) -> Plan {
        let planned = plan(&self.data).unwrap_or_else(|error| panic!("{what}: {error}"));
        assert_eq!(planned.left, [""; 0], "{what}: {:#?}", planned.findings);
        let dir = tempfile::tempdir().expect("a directory");
        apply(&(self.data.clone() as _), &planned, dir.path());
        self.judge().unwrap_or_else(|text| panic!("{what}: {text}\n{:#?}", planned.findings));
        assert!(plan(&self.data).expect("a plan").is_clean(), "{what}: again");
        planned
    }
}

/// Bitmap, summary and counter follow from the files: each of them may be gone, with its inode.
#[test]
fn a_section_is_counted_anew() {
    for kind in [PLAIN_4K, PLAIN_1K] {
        let (base, inos) = image(kind);
        base.judge().expect("sound");
        assert!(plan(&base.data).expect("a plan").is_clean());
        let before = base.manifest();
        let g = geometry(&base.data.snapshot()).expect("sound");
        let words = [0x5a, 0, 0xff];
        for ino in g.realtime_inos {
            for byte in words {
                let image = base.fork();
                let mut start = 0;
                change_slot(&image.data, ino, |slot| {
                    let first = xfs::format::Extent::read(&slot[crate::FORK..]).start;
                    start = g.linear(g.split(first)) * u64::from(g.block_size);
                });
                image.data.write_at(start + 8, &[byte; 60]);
                let planned = image.repaired(&format!("{byte:#x} in {ino}"));
                assert!(planned.is_safe(), "{planned:#?}");
                assert_eq!(image.manifest(), before, "{byte:#x} in {ino}");
            }
            let image = base.fork();
            change_slot(&image.data, ino, |slot| slot.fill(0));
            image.repaired(&format!("inode {ino} gone"));
            assert_eq!(image.manifest(), before, "inode {ino} gone");
        }
        let image = base.fork();
        let mut sector = image.data.snapshot()[..g.sector_size as usize].to_vec();
        RawSuper::view_mut(&mut sector).expect("a sector").sb_frextents.set(3);
        verifier::update_crc(xfs::format::Kind::Super, &mut sector);
        image.data.write_at(0, &sector);
        assert!(image.repaired("counter").is_safe());
        assert_eq!(image.manifest(), before, "counter");
        // A file has another's extents: one of them loses them, which is said.
        let image = base.fork();
        let mut fork = Vec::new();
        change_slot(&image.data, inos[3], |slot| {
            fork = slot[crate::FORK..crate::FORK + 96].to_vec();
        });
        change_slot(&image.data, inos[4], |slot| {
            slot[crate::FORK..crate::FORK + 96].copy_from_slice(&fork);
            let raw = RawInode::view_mut(slot).expect("a core");
            assert!(raw.di_nextents.get() >= 6 || raw.di_big_nextents.get() >= 6, "six extents");
        });
        let planned = image.repaired("twice");
        assert!(planned.findings.iter().any(|found| found.rule == "double-use"), "{planned:#?}");
        let after = image.manifest();
        let differ = before.keys().filter(|path| after.get(*path) != before.get(*path)).count();
        assert_eq!((differ, after.len()), (1, before.len()), "the one that had other extents");
    }
}

/// Whatever happens to the data part, one repair makes it clean.
#[test]
fn a_damaged_file_system_with_a_section_is_clean_after_one_repair() {
    for kind in [PLAIN_16K].into_iter().chain(GROUPS) {
        let (base, _) = image(kind);
        base.judge().unwrap_or_else(|text| panic!("{kind:?}: {text}"));
        assert!(plan(&base.data).expect("a plan").is_clean(), "{kind:?}");
        let blocks = xfs_support::metadata(&base.data);
        for seed in seeds(12) {
            damage_and_repair(&base, &blocks, seed);
        }
    }
}

fn damage_and_repair(base: &Image, blocks: &[u64], seed: u64) {
    let image = base.fork();
    let mut bytes = image.data.snapshot();
    let g = geometry(&bytes).expect("sound");
    let mut rng = Rng::new(seed, 79);
    let what = xfs_support::damage(&mut bytes, blocks, &g, &mut rng);
    if let Ok(path) = std::env::var("IOPATH_KEEP") {
        std::fs::write(&path, &bytes).expect("the mutant is kept");
        std::fs::write(path + ".section", image.section.snapshot()).expect("its section");
    }
    let damaged = Image { data: Arc::new(MemoryDevice::from_image(&bytes)), ..image };
    let what = format!("{:?}, seed {seed}: {what}", base.kind);
    match plan(&damaged.data) {
        Ok(_) => drop(damaged.repaired(&what)),
        Err(error) => println!("{what}: {error}"),
    }
}

/// The superblock has other numbers for bitmap and summary: they are the inodes behind the root.
#[test]
fn the_files_of_a_section_have_known_numbers() {
    let (base, _) = image(PLAIN_16K);
    let before = base.manifest();
    for number in [0, 1, 1733, 140] {
        for field in 0..2 {
            let image = base.fork();
            let mut sector = image.data.snapshot()[..512].to_vec();
            let raw = RawSuper::view_mut(&mut sector).expect("a sector");
            match field {
                0 => raw.sb_rbmino.set(number),
                _ => raw.sb_rsumino.set(number),
            }
            verifier::update_crc(xfs::format::Kind::Super, &mut sector);
            image.data.write_at(0, &sector);
            image.repaired(&format!("number {number} in {field}"));
            assert_eq!(image.manifest(), before, "number {number} in {field}");
        }
    }
}

/// A file that says that it begins where another one lies, and goes on in its own extent: it is
/// the other's.
#[test]
fn a_file_that_contradicts_itself_has_the_weaker_claim() {
    let (base, inos) = image(PLAIN_16K);
    let before = base.manifest();
    for (wrong, right) in [(3, 9), (9, 3)] {
        let image = base.fork();
        let extent = |slot: &[u8]| xfs::format::Extent::read(&slot[crate::FORK..]);
        let mut theirs = None;
        change_slot(&image.data, inos[right], |slot| theirs = Some(extent(slot)));
        change_slot(&image.data, inos[wrong], |slot| {
            let own = extent(slot);
            let next = xfs::format::Extent::read(&slot[crate::FORK + 16..]);
            assert!(
                own.goes_on(&next) && !next.start.0.is_multiple_of(4),
                "two parts of one extent"
            );
            let start = theirs.expect("read").start;
            xfs::format::Extent { start, ..own }.write(&mut slot[crate::FORK..][..16]);
        });
        image.repaired("another's extent");
        let after = image.manifest();
        let differ = before.iter().filter(|(path, entry)| after.get(*path) != Some(*entry));
        let names: Vec<_> = differ.map(|(path, _)| path.escape_ascii().to_string()).collect();
        let name = format!("/file{wrong}");
        assert!(names.len() == 1 && names[0].ends_with(&name), "{wrong}: {names:?}");
    }
}
