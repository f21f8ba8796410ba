//! The data part shrinks beside a realtime section, which stays as it is and is not read.

use std::ffi::OsStr;
use std::sync::Arc;

use cache::{PageCache, PageCacheConfig};
use device::MemoryDevice;
use rt::Cx;
use testkit::content::{create, mkdir};
use testkit::manifest::Manifest;
use testkit::{judge, newest};
use vfs::{FallocMode, FileSystem};
use xfs::format::inode::{Flags, RawInode};
use xfs::mount::options::BesideDevice;
use xfs::{MountOptions, Xfs};

use super::{DEVICE, MIB, carry_out, more, plan};
use crate::support::{cut_and_go_on, queue, write};
use crate::xfs_support::{change_slot, geometry, populate};

const SECTION: u64 = 64 * MIB;

/// A kind of section: words of the newest mkfs.xfs.
#[derive(Clone, Copy, Debug)]
struct Kind {
    words: &'static str,
    /// In groups, which the host's xfs_repair does not know.
    groups: bool,
    /// Files share blocks, on either part.
    shared: bool,
}

const PLAIN: Kind = Kind {
    words: "-l size=16m -n parent=0 -i exchange=0 -r extsize=28k,",
    groups: false,
    shared: false,
};
const COUNTED: Kind =
    Kind { words: "-l size=16m -m metadir=1,rmapbt=0 -r rgsize=16m,", groups: true, shared: true };
const SHARED: Kind =
    Kind { words: "-l size=12m -m metadir=1 -r rgsize=16m,", groups: true, shared: true };
const SMALL: Kind = Kind {
    words: "-l size=12m -b size=1024 -m metadir=1 -r rgsize=16m,",
    groups: true,
    shared: false,
};

/// A file system and its section.
struct Image {
    kind: Kind,
    data: Arc<MemoryDevice>,
    section: Arc<MemoryDevice>,
}

impl Image {
    /// One with files on both parts, in every group.
    fn new(kind: Kind) -> Image {
        let [data, section] = [DEVICE, SECTION].map(|len| {
            let file = tempfile::NamedTempFile::new().expect("a file");
            file.as_file().set_len(len).expect("the file takes its size");
            file
        });
        let words =
            format!("--unsupported -d agcount=6 {}rtdev={}", kind.words, section.path().display());
        let words: Vec<&str> = words.split(' ').collect();
        newest::mkfs_xfs(data.path(), DEVICE, &words);
        let image = Image {
            kind,
            data: Arc::new(testkit::image::load(data.path())),
            section: Arc::new(testkit::image::load(section.path())),
        };
        let top = image.with(|cx, fs| {
            populate(cx, fs, fs.geometry().block_size.into());
            // Where the log is large there must be room for it.
            if kind.words != COUNTED.words {
                more(cx, fs, kind.shared);
            }
            mkdir(cx, fs, fs.root(), "section")
        });
        change_slot(&image.data, top, |slot| {
            let raw = RawInode::view_mut(slot).expect("a slot");
            raw.di_flags.set(raw.di_flags.get() | Flags::RTINHERIT.bits());
        });
        image.with(|cx, fs| image.fill(cx, fs));
        image
    }

    /// Files of many extents, with shared blocks and such that nobody wrote.
    fn fill(&self, cx: &mut Cx, fs: &Xfs) {
        let top = fs.lookup(cx, fs.root(), b"section").expect("there").ino;
        for d in 0..8u64 {
            let dir = mkdir(cx, fs, top, &format!("dir{d}"));
            let files = (0..6).map(|n| create(cx, fs, dir, &format!("file{n}")));
            let files = files.collect::<Vec<_>>();
            for round in 0..12 {
                for (n, &ino) in files.iter().enumerate() {
                    write(cx, fs, ino, 50 + n as u64, round * 90_000, 30_000 + 500 * n);
                    fs.fsync(cx, ino, false).expect("fsync");
                }
            }
            let last = create(cx, fs, dir, "other");
            match self.kind.shared {
                true => fs.clone_range(cx, (files[0], 0), (last, 0), 1 << 19).expect("clone"),
                false => {
                    let all = FallocMode::Allocate { keep_size: false };
                    fs.fallocate(cx, last, all, 0, 1 << 18).expect("fallocate");
                }
            }
        }
    }

    fn with<R>(&self, work: impl FnOnce(&mut Cx, &Xfs) -> R) -> R {
        rt::testing::world(|cx| {
            let [data, section] = [&self.data, &self.section].map(|it| queue(cx, it.clone()));
            let pages = PageCache::new(cx.runtime(), PageCacheConfig::with_limit(32 << 20));
            let realtime = Some(BesideDevice(section));
            let options = MountOptions { read_only: false, realtime, ..MountOptions::default() };
            let fs = Xfs::mount(cx, &data, &pages, options).expect("it is mounted");
            let done = work(cx, &fs);
            fs.unmount(cx).expect("unmount");
            done
        })
    }

    fn manifest(&self) -> Manifest {
        self.with(|cx, fs| testkit::manifest::of_fs(cx, fs).expect("it is read"))
    }

    /// `xfs_repair -n` finds nothing.
    fn judge(&self, what: &str) {
        let g = geometry(&self.data.snapshot()).expect("a superblock");
        let end = (g.blocks_count() * u64::from(g.block_size)) as usize;
        let data = testkit::image::write(&self.data.snapshot()[..end]);
        let section = testkit::image::write_device(&self.section);
        let args: [&dyn AsRef<OsStr>; 4] = [&"-nP", &"-r", &section.path(), &data.path()];
        let host = (!self.kind.groups).then(|| judge::run("xfs_repair", &args));
        for said in host.into_iter().chain([newest::run("xfs_repair", &args)]) {
            let text = String::from_utf8_lossy(&[said.stdout, said.stderr].concat()).into_owned();
            assert!(said.status.success(), "{:?}: {what}: {text}", self.kind);
        }
    }

    /// Inodes of the metadata directory, where it has some.
    fn metadata(&self) -> String {
        if !self.kind.groups {
            return String::new();
        }
        let data = testkit::image::write_device(&self.data);
        newest::run_ok("xfs_db", &[&"-r", &"-c", &"ls -m /rtgroups", &data.path()])
    }
}

/// Goal: content, inodes and the log of the data part move beside a section; its files keep their
/// places there; maps, bitmaps and btrees of the section move and name the new numbers. Method: in
/// steps to below the groups with the metadata directory; written to and removed afterwards.
#[test]
fn the_data_part_shrinks_beside_a_section() {
    for kind in [PLAIN, COUNTED, SHARED, SMALL] {
        let image = Image::new(kind);
        image.judge("filled");
        let (tree, names) = (image.manifest(), image.metadata());
        let kept = image.section.snapshot();
        let mut moved = (0, 0);
        for mib in [133, 101, 70] {
            let what = format!("to {mib} MiB");
            let dir = tempfile::tempdir().expect("a directory");
            rt::testing::world(|cx| {
                let queue = queue(cx, image.data.clone());
                let plan = plan(cx, &queue, mib * MIB);
                let plan = plan.unwrap_or_else(|error| panic!("{kind:?} {what}: {error}"));
                carry_out(cx, &queue, &plan, &dir.path().join("undo"));
                moved.0 += plan.blocks_moved;
                moved.1 += plan.inodes_moved;
            });
            image.judge(&what);
            assert!(
                image.section.snapshot() == kept,
                "{kind:?} {what}: the section is not written"
            );
            assert_eq!(testkit::manifest::diff(&tree, &image.manifest()), "", "{kind:?} {what}");
        }
        assert!(moved.0 > 3000 && moved.1 > 50, "{kind:?}: {moved:?}");
        assert!(!kind.groups || names != image.metadata(), "{kind:?}: the files of groups moved");
        image.with(|cx, fs| {
            let top = fs.lookup(cx, fs.root(), b"section").expect("there").ino;
            for d in 0..4 {
                let dir = fs.lookup(cx, top, format!("dir{d}").as_bytes()).expect("there").ino;
                for n in 0..5 {
                    let name = format!("file{n}");
                    let ino = fs.lookup(cx, dir, name.as_bytes()).expect("there").ino;
                    write(cx, fs, ino, 90 + n, 40_000, 200_000);
                    if n % 2 == 0 {
                        fs.unlink(cx, dir, name.as_bytes()).expect("unlink");
                    }
                }
            }
        });
        image.judge("written to afterwards");
    }
}

/// Goal: a cut leaves the old size or one that is finished, here too.
#[test]
fn a_cut_beside_a_section_is_finished_or_undone() {
    let image = Image::new(SHARED);
    let first = image.data.snapshot();
    let old = geometry(&first).expect("a superblock").blocks_count();
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("undo");
    let record = Arc::new(device::RecordDevice::new(image.data.clone()));
    rt::testing::world(|cx| {
        let queue = queue(cx, record.clone());
        let plan = plan(cx, &queue, 70 * MIB).expect("a plan");
        carry_out(cx, &queue, &plan, &path);
    });
    let (log, last) = (record.take_log(), image.data.snapshot());
    let kinds = cut_and_go_on(&log, [&first[..], &last[..]], &path, |image, cut| {
        assert_eq!(super::state(image), (0, old), "{cut:?}");
    });
    assert!(kinds.iter().all(|&count| count > 0), "both sides of the first write: {kinds:?}");
}

/// What the guest does: disks of before, then those of after, the data first.
const JOB: &str = "modprobe xfs; mkdir -p /old /new
tree() { cd $1; find . -print0 | sort -z | xargs -0 stat -c '%n %f %h %u %g %s %Y'
  find . -type f -print0 | sort -z | xargs -0 sha256sum; cd /; }
mount -t xfs -o ro,nouuid,rtdev=/dev/vdb /dev/vda /old || echo REFUSED before
mount -t xfs -o nouuid,rtdev=/dev/vdd /dev/vdc /new || echo REFUSED after
tree /old >/tmp/old; tree /new >/tmp/new
cmp -s /tmp/old /tmp/new && echo SAME $(wc -l </tmp/new)
for d in 0 1 2 3; do rm /new/section/dir$d/file1
  head -c 300000 /dev/urandom >/new/section/dir$d/kernel
  dd if=/dev/urandom of=/new/section/dir$d/other bs=4096 seek=3 count=5 conv=notrunc; done
umount /old; umount /new && echo WRITTEN
";

/// Goal: a kernel that knows sections in groups reads what it had before, and writes to it. With
/// `IOPATH_GUEST` set.
#[test]
fn a_kernel_in_a_guest_takes_a_smaller_data_part_beside_its_section() {
    if !testkit::guest::is_there() {
        return;
    }
    let mut image = Image::new(SHARED);
    let files =
        |image: &Image| [&image.data, &image.section].map(|it| testkit::image::write_device(it));
    let before = files(&image);
    let dir = tempfile::tempdir().expect("a directory");
    rt::testing::world(|cx| {
        let queue = queue(cx, image.data.clone());
        let plan = plan(cx, &queue, 70 * MIB).expect("a plan");
        carry_out(cx, &queue, &plan, &dir.path().join("undo"));
    });
    let after = files(&image);
    let disks = before.iter().chain(&after).map(|file| file.path().to_owned());
    let said = testkit::guest::run(JOB, &disks.collect::<Vec<_>>()).expect("a guest");
    let right = said.contains("SAME ") && said.contains("WRITTEN") && !said.contains("REFUSED");
    assert!(right, "{said}");
    [image.data, image.section] =
        after.each_ref().map(|it| Arc::new(testkit::image::load(it.path())));
    image.judge("written by the guest");
}
