//! Zoned sections: read, behind the data or on a device of their own; writing is refused by name.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::support::*;
use base::{FsBlock, Ino};
use device::MemoryDevice;
use rt::Cx;
use testkit::{manifest, newest};
use vfs::FileSystem;
use xfs::format::inode::{Flags, RawInode, fork_ranges};
use xfs::format::record::Rmap;
use xfs::format::{At, Extent, Geometry, Kind, verifier};
use xfs::mount::options::BesideDevice;
use xfs::{CheckOptions, MountError, MountOptions, Xfs};

const DATA: u64 = 1 << 30;
const ZONES: u64 = 3 << 30;
/// Where a file lies: zone, block in it, blocks.
const PLACE: (u64, u64, u32) = (3, 5, 10);

/// A file system that mkfs.xfs fills on the data part alone, and the device of its zones.
struct Image {
    data: PathBuf,
    section: Option<PathBuf>,
}

impl Image {
    fn new(dir: &Path, inside: bool) -> Image {
        let tree = dir.join("tree");
        std::fs::create_dir_all(tree.join("below")).expect("a directory");
        std::fs::write(tree.join("below/text"), "content".repeat(9000)).expect("a file");
        std::fs::write(tree.join("zoned"), "").expect("a file");
        let (data, section) = (dir.join("data"), dir.join("section"));
        std::fs::File::create(&section).and_then(|file| file.set_len(ZONES)).expect("a file");
        let from = format!("-m metadir=1 -d rtinherit=0 -p {}", tree.display());
        if inside {
            let words = format!("{from} -d size={DATA} -r zoned=1,size={ZONES}");
            newest_mkfs_xfs(&data, DATA + ZONES, &words);
            return Image { data, section: None };
        }
        let words = format!("{from} -r zoned=1,rtdev={}", section.display());
        newest_mkfs_xfs(&data, DATA, &words);
        Image { data, section: Some(section) }
    }

    fn geometry(&self) -> Geometry {
        let bytes = testkit::image::read(&self.data);
        Geometry::parse(&bytes[..512], At::Super(0)).expect("a superblock")
    }

    /// Changes an inode.
    fn change(&self, ino: Ino, change: impl FnOnce(&mut [u8])) {
        let g = self.geometry();
        let (place, offset) = g.ino_place(ino);
        let at = g.ag_sector(place).bytes() + offset as u64;
        let mut slot = vec![0; g.inode_size as usize];
        let file = std::fs::File::options().read(true).write(true).open(&self.data).expect("open");
        std::os::unix::fs::FileExt::read_exact_at(&file, &mut slot, at).expect("read");
        change(&mut slot);
        verifier::update_crc(Kind::Inode, &mut slot);
        std::os::unix::fs::FileExt::write_all_at(&file, &slot, at).expect("write");
    }

    /// The number of an inode by its path in one of both trees, as xfs_db knows it.
    fn ino(&self, path: &str) -> Ino {
        let path = format!("path {path}");
        let said =
            newest::run_ok("xfs_db", &[&"-r", &"-c", &path, &"-c", &"p v3.inumber", &self.data]);
        Ino(said.trim().rsplit(' ').next().and_then(|word| word.parse().ok()).expect("a number"))
    }

    /// Gives the file `zoned` content in a zone; returns it.
    fn fill(&self) -> Vec<u8> {
        let (g, (zone, block, count)) = (self.geometry(), PLACE);
        let bits = g.realtime.groups.expect("zones").block_bits;
        let start = FsBlock(zone << bits | block);
        let content: Vec<u8> = (0..count * 4096).map(|at| (at / 7) as u8).collect();
        let path = self.section.as_ref().unwrap_or(&self.data);
        let behind = if self.section.is_some() { 0 } else { DATA };
        let at =
            behind + (zone * u64::from(g.realtime.groups.expect("zones").extents) + block) * 4096;
        let file = std::fs::File::options().write(true).open(path).expect("open");
        std::os::unix::fs::FileExt::write_all_at(&file, &content, at).expect("write");
        let ino = self.ino("/zoned");
        self.change(ino, |slot| {
            let raw = RawInode::view_mut(slot).expect("a slot");
            raw.di_flags.set(raw.di_flags.get() | Flags::REALTIME.bits());
            raw.di_size.set(content.len() as u64);
            raw.di_nblocks.set(count.into());
            raw.di_big_nextents.set(1);
            let fork = fork_ranges(raw.di_forkoff, slot.len()).0;
            Extent { offset: 0, start, count, unwritten: false }.write(&mut slot[fork]);
        });
        self.change(self.ino(&format!("-m /rtgroups/{zone}.rmap")), |slot| {
            let raw = RawInode::view_mut(slot).expect("a slot");
            // The blocks of the zone that are in use.
            raw.di_cowextsize.set(count);
            let fork = fork_ranges(raw.di_forkoff, slot.len()).0;
            let root = &mut slot[fork];
            root[2..4].copy_from_slice(&[0, 1]);
            let record = Rmap { start: block as u32, len: count, owner: ino.0, offset: 0 };
            record.write(&mut root[4..]);
        });
        content
    }

    fn mount(&self, cx: &mut Cx, read_only: bool) -> Result<Arc<Xfs>, MountError> {
        let data = queue(cx, device(&self.data));
        let realtime = self.section.as_ref().map(|path| BesideDevice(queue(cx, device(path))));
        let options = MountOptions { read_only, realtime, ..MountOptions::default() };
        Xfs::mount_alone(cx, &data, cache::PageCacheConfig::with_limit(8 << 20), options)
    }
}

fn device(path: &Path) -> Arc<MemoryDevice> {
    Arc::new(testkit::image::load(path))
}

/// Goal: names and content of either part are read, the check finds nothing, and nothing is
/// written. Method: a tree that mkfs.xfs 7.2 copies in, and a file in a zone; its xfs_repair finds
/// nothing either.
#[test]
fn zones_are_read_and_not_written() {
    for inside in [true, false] {
        let dir = tempfile::tempdir().expect("a directory");
        let image = Image::new(dir.path(), inside);
        let content = image.fill();
        let said = match &image.section {
            Some(section) => newest::run("xfs_repair", &[&"-n", &"-r", section, &image.data]),
            None => newest::run("xfs_repair", &[&"-n", &image.data]),
        };
        assert!(said.status.success(), "inside {inside}: {}", text(&said));
        let tree = dir.path().join("tree");
        std::fs::write(tree.join("zoned"), &content).expect("the same content");
        let mut expected = manifest::of_dir(&tree).expect("the tree");
        in_world(move |cx| {
            let fs = image.mount(cx, true).expect("it is mounted");
            let mut ours = manifest::of_fs(cx, &*fs).expect("it is read");
            fs.unmount(cx).expect("unmount");
            // When it was written, and the root, are not copied.
            for list in [&mut ours, &mut expected] {
                list.values_mut().for_each(|entry| entry.mtime_ns = 0);
                list.remove(&b""[..]);
            }
            assert_eq!(manifest::diff(&expected, &ours), "", "inside {inside}");
            let refused = image.mount(cx, false).map(drop).expect_err("refused");
            assert!(refused.to_string().contains("zoned"), "{refused}");
            let data = queue(cx, device(&image.data));
            let report = xfs::check(cx, &data, &CheckOptions::default()).expect("it works");
            let findings: Vec<_> = report.findings.iter().map(ToString::to_string).collect();
            assert!(findings.is_empty(), "inside {inside}: {findings:?}");
            let _dir = dir;
        });
    }
}

/// What the guest does: files in zones, some of them changed and removed, and their sums.
const JOB: &str = "modprobe xfs; mkdir -p /m
mount -t xfs -o rtdev=/dev/vdb /dev/vda /m || echo REFUSED
mkdir /m/dir; i=0
while [ $i -lt 30 ]; do head -c $((i*9000+1)) /dev/urandom >/m/dir/f$i; i=$((i+1)); done
sync; rm /m/dir/f1 /m/dir/f7
dd if=/dev/urandom of=/m/dir/f20 bs=4096 count=5 seek=3 conv=notrunc; sync
cd /m/dir; md5sum *; cd /; umount /m && echo WRITTEN
";

/// Goal: what a kernel has written to zones is read. With `IOPATH_GUEST` set. Method: its sums.
#[test]
fn zones_of_a_kernel_in_a_guest_are_read() {
    if !testkit::guest::is_there() {
        return;
    }
    let dir = tempfile::tempdir().expect("a directory");
    let (data, section) = (dir.path().join("data"), dir.path().join("section"));
    std::fs::File::create(&section).and_then(|file| file.set_len(ZONES)).expect("a file");
    let words = format!("-m metadir=1 -r zoned=1,rtdev={}", section.display());
    newest_mkfs_xfs(&data, DATA, &words);
    let said = testkit::guest::run(JOB, &[data.clone(), section.clone()]).expect("a guest");
    assert!(said.contains("WRITTEN") && !said.contains("REFUSED"), "{said}");
    let image = Image { data, section: Some(section) };
    let copy = dir.path().join("copy");
    std::fs::create_dir(&copy).expect("a directory");
    let to = copy.clone();
    in_world(move |cx| {
        let fs = image.mount(cx, true).expect("it is mounted");
        let top = fs.lookup(cx, fs.root(), b"dir").expect("there").ino;
        for n in (0..30).filter(|n| ![1, 7].contains(n)) {
            let name = format!("f{n}");
            let attr = fs.lookup(cx, top, name.as_bytes()).expect("there");
            let bytes = crate::realtime::read_all(cx, &fs, attr.ino, attr.size as usize);
            std::fs::write(to.join(name), &bytes).expect("a copy");
        }
        fs.unmount(cx).expect("unmount");
        let data = queue(cx, device(&image.data));
        let report = xfs::check(cx, &data, &CheckOptions::default()).expect("it works");
        assert!(report.findings.is_empty(), "{:?}", report.findings);
    });
    let mut sums = std::process::Command::new("md5sum");
    sums.args(["-c", "--quiet", "-"]).current_dir(&copy).stdin(std::process::Stdio::piped());
    let mut sums = sums.spawn().expect("md5sum");
    let lines =
        said.lines().filter(|line| line.split("  ").next().is_some_and(|sum| sum.len() == 32));
    let lines: String = lines.map(|line| format!("{}\n", line.trim_end())).collect();
    assert_eq!(lines.lines().count(), 28, "{said}");
    std::io::Write::write_all(&mut sums.stdin.take().expect("a pipe"), lines.as_bytes())
        .expect("sums");
    assert!(sums.wait().expect("md5sum ends").success(), "{lines}");
}
