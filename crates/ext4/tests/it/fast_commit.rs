//! Fast commits of the kernel: replayed by us, by the kernel and by e2fsck, with one outcome.

use crate::support::recovered::*;
use crate::support::*;
use base::Rng;
use base::crc::crc32c;
use cache::{PageCache, PageCacheConfig};
use device::{MemoryDevice, RecordDevice};
use ext4::{Ext4, MountOptions};
use std::path::Path;
use std::sync::Arc;
use testkit::judge::{self, LoopMount};
use testkit::manifest::{self, Manifest};
use vfs::FileSystem;

/// Files that are there before the first fast commit.
const BASE: &str = "\
    mkdir base base/dir base/gone; for n in $(seq 40); do echo old $n > base/f$n; done; \
    head -c 300000 /dev/urandom > base/big; ln base/big base/hard; echo x > base/gone/x; \
    head -c 90000 /dev/urandom > base/frag; ln -s target base/link; sync -f .";

/// Makes an image with mke2fs, lets the kernel work on it with fast commits, and copies it after
/// each script while it is mounted.
fn images_of_the_kernel(options: &[&str], scripts: &[&str]) -> Vec<Vec<u8>> {
    let file = tempfile::NamedTempFile::new().expect("a temporary file");
    let all = [&["-t", "ext4", "-O", "fast_commit"], options].concat();
    judge::mke2fs(file.path(), 40 << 20, &all);
    let mount = LoopMount::new(file.path(), "ext4", "rw,commit=300").expect("the kernel mounts it");
    shell(&mount.path(), BASE);
    let mut images = Vec::new();
    for script in scripts {
        shell(&mount.path(), script);
        images.push(testkit::image::read(file.path()));
    }
    drop(mount);
    images
}

/// Whether the journal of the image holds fast commits, as debugfs sees it.
fn has_fast_commits(image: &Path) -> bool {
    judge::run_ok("debugfs", &[&"-R", &"logdump -a", &image]).contains("Fast Commit Area")
}

/// Recovers the image in all ways; the trees are equal and our check and e2fsck's are silent. False
/// where e2fsck does not replay it.
fn compare(image: &[u8], what: &str) -> bool {
    let ours = compare_with_kernel(image, what);
    // And e2fsck gives up at a name in a new directory.
    if let Some(e2fsck) = by_e2fsck(image) {
        assert_equal(&of_names(&ours, true), &of_names(&e2fsck, true), &format!("{what}, e2fsck"));
        return true;
    }
    false
}

/// Recovers the image by us and by the kernel: the trees are equal, our check and e2fsck's are
/// silent. Returns the tree.
fn compare_with_kernel(image: &[u8], what: &str) -> Manifest {
    let file = testkit::image::write(image);
    assert!(has_fast_commits(file.path()), "{what}: there are fast commits to replay");
    let (ours, device) = recovered_by_us(image);
    e2fsck(&device, &format!("{what} after our replay"));
    // The kernel's replay leaves a new directory uncounted, in its group and its parent's links.
    let kernel = by_kernel(image);
    assert_equal(&of_names(&ours, false), &of_names(&kernel, false), &format!("{what}, kernel"));
    ours
}

/// The tree after the kernel's replay.
fn by_kernel(image: &[u8]) -> Manifest {
    let file = testkit::image::write(image);
    drop(LoopMount::new(file.path(), "ext4", "rw").expect("the kernel mounts it"));
    judge::kernel_manifest(file.path(), "ext4")
}

/// The tree after e2fsck's replay and what it then mends; `None` where it gives up.
fn by_e2fsck(image: &[u8]) -> Option<Manifest> {
    let file = testkit::image::write(image);
    let output = judge::run("e2fsck", &[&"-fy", &file.path()]);
    if String::from_utf8_lossy(&output.stderr).contains("while recovering journal") {
        return None;
    }
    judge::e2fsck(file.path()).expect("e2fsck accepts what it replayed");
    let mut manifest = judge::kernel_manifest(file.path(), "ext4");
    // Files that have lost their last name it brings back.
    manifest.retain(|name, _| !name.starts_with(b"lost+found/"));
    Some(manifest)
}

/// What fast commits say: not when a directory changed (whoever replays them sets the time of the
/// replay). `links`: those of directories too.
fn of_names(manifest: &Manifest, links: bool) -> Manifest {
    let mut manifest = manifest.clone();
    for entry in manifest.values_mut().filter(|entry| entry.kind == "directory") {
        entry.mtime_ns = 0;
        entry.nlink = if links { entry.nlink } else { 0 };
    }
    manifest
}

const STEPS: &[&str] = &[
    "echo 1 > p; sync p",
    "for n in $(seq 60); do echo $n > base/dir/long_name_$n; done; sync base/dir/long_name_3",
    "mv base/f1 base/f2; ln base/big l2; mv l2 l3; rm base/big; sync l3",
    "rm l3; echo q > p; sync p; mkdir z; rmdir z; echo f > z2; rm z2; echo g > g; sync g",
    "rm base/gone/x; rmdir base/gone; chmod 700 base base/dir; touch base/dir/n; \
     sync base base/dir/n",
    "truncate -s 5000 base/frag; head -c 20000 /dev/urandom >> base/frag; sync base/frag",
    "for n in 9 3 14 6 20 1; do \
     dd if=/dev/urandom of=holes bs=4096 seek=$n count=1 conv=notrunc,fsync 2>/dev/null; done; \
     fallocate -l 200000 pre; echo start | dd of=pre conv=notrunc,fsync 2>/dev/null",
    "fallocate -p -o 8192 -l 20000 base/hard; sync base/hard; \
     fallocate -z -o 40960 -l 9000 base/hard; sync base/hard",
    "for n in $(seq 3 40); do rm base/f$n; done; echo new > base/f9; sync base/f9",
    "mkdir d; echo a > d/a; sync d/a; for n in $(seq 60); do echo $n > d/long_name_$n; done; \
     mkdir d/e d/e/f; rm d/a; echo b > d/e/f/g; sync d/e/f/g",
];

#[test]
fn we_replay_the_fast_commits_of_the_kernel() {
    let images = images_of_the_kernel(&[], STEPS);
    let by_e2fsck = images
        .iter()
        .enumerate()
        .map(|(step, image)| u32::from(compare(image, &format!("step {step}"))))
        .sum::<u32>();
    assert!(by_e2fsck >= 4, "{by_e2fsck} of the steps are e2fsck's");
    for options in [&["-b", "1024", "-I", "128"][..], &["-O", "^metadata_csum,^orphan_file"]] {
        let images = images_of_the_kernel(options, STEPS);
        for (step, image) in images.iter().enumerate().skip(3).step_by(3) {
            compare(image, &format!("{options:?}, step {step}"));
        }
    }
}

/// Goal: fast commits of files and directories in their inodes, which leave for blocks in some.
/// e2fsck 1.47 leaves such a file empty, so the kernel judges alone.
#[test]
fn content_in_inodes_is_replayed() {
    let steps = [
        "echo small > base/dir/b; sync base/dir/b; echo more >> base/dir/b; sync base/dir/b",
        "head -c 3000 /dev/urandom >> base/dir/b; sync base/dir/b; echo x > base/f3; sync base/f3",
        "mkdir e; echo x > e/f; for n in 1 2 3; do echo $n > e/n$n; done; sync e/f",
        "for n in $(seq 30); do echo $n > e/long-name-$n; done; rm e/n1; sync e/n2",
        "mv e/n2 base/dir/moved; rm base/f4; ln base/f5 e/l; truncate -s 3 base/f6; sync base/f6",
        "head -c 100 /dev/zero | tr '\\0' y > base/f7; sync base/f7; rm base/dir/b; sync e/l",
    ];
    for block in ["4096", "1024"] {
        let options = ["-O", "inline_data,fast_commit", "-b", block];
        for (step, image) in images_of_the_kernel(&options, &steps).iter().enumerate() {
            compare_with_kernel(image, &format!("{options:?}, step {step}"));
        }
    }
}

/// An image with many changes in fast commits.
fn rich_image() -> Vec<u8> {
    let mut images = images_of_the_kernel(&["-b", "1024"], STEPS);
    images.swap_remove(STEPS.len() - 1)
}

/// Goal: a recovery that is cut at any write, with any loss of what no flush has made durable,
/// leaves the fast commits or what they ask for.
#[test]
fn a_replay_that_is_cut_is_repeated_or_done() {
    let image = rich_image();
    let device = Arc::new(MemoryDevice::from_image(&image));
    let record = Arc::new(RecordDevice::new(device.clone()));
    let wanted = rt::testing::world(|cx| {
        let (fs, _) = mount(cx, record.clone());
        let wanted = of_names(&manifest::of_fs(cx, &*fs).expect("readable"), true);
        fs.shutdown_hard();
        wanted
    });
    let (log, base) = (record.take_log(), MemoryDevice::from_image(&image));
    let mut rng = Rng::new(1, 24);
    let mut cuts: Vec<_> =
        log.cut_points().into_iter().map(|at| log.random_losses(at, &mut rng)).collect();
    cuts.extend(log.cuts_at_flushes());
    assert!(cuts.len() > 10, "{} cuts", cuts.len());
    for (index, cut) in cuts.iter().enumerate() {
        let device = Arc::new(log.device_after(&base, cut));
        rt::testing::world(|cx| {
            let (fs, _) = mount(cx, device.clone());
            let found = of_names(&manifest::of_fs(cx, &*fs).expect("readable"), true);
            assert_equal(&found, &wanted, &format!("{cut:?}"));
            fs.unmount(cx).expect("unmount");
            let queue = queue(cx, device.clone());
            let report = ext4::check(cx, &queue, &ext4::CheckOptions::default()).expect("check");
            assert!(report.is_clean(), "{cut:?}: {report:?}");
        });
        if index % 16 == 0 {
            e2fsck(&device, &format!("{cut:?}"));
        }
    }
}

/// Goal: a mount that only reads and a check see what a recovery would leave, and write nothing.
#[test]
fn a_mount_that_only_reads_shows_the_replay() {
    let image = rich_image();
    let wanted = of_names(&recovered_by_us(&image).0, true);
    let device = Arc::new(MemoryDevice::from_image(&image));
    rt::testing::world(|cx| {
        let queue = queue(cx, device.clone());
        let pages = PageCache::new(cx.runtime(), PageCacheConfig::with_limit(4 << 20));
        let options = MountOptions { read_only: true, ..MountOptions::default() };
        let fs = Ext4::mount(cx, &queue, &pages, options).expect("mount");
        let found = of_names(&manifest::of_fs(cx, &*fs).expect("readable"), true);
        assert_equal(&found, &wanted, "read-only");
        fs.unmount(cx).expect("unmount");
        let report = ext4::check(cx, &queue, &ext4::CheckOptions::default()).expect("check");
        assert!(format!("{report:?}").contains("fast commits"), "{report:?}");
        assert!(report.is_clean(), "{report:?}");
    });
    assert!(device.snapshot() == image, "nothing was written");
}

/// An image whose fast commits are to be replaced by others, and where they lie.
struct Bed {
    image: Vec<u8>,
    at: usize,
    tid: [u8; 4],
}

const BLOCK: usize = 4096;

impl Bed {
    fn new() -> Bed {
        let scripts = ["echo 1 > p; sync p; echo 2 >> p; sync p; echo 3 >> p; sync p"];
        let image = images_of_the_kernel(&["-b", "4096"], &scripts).remove(0);
        let file = testkit::image::write(&image);
        let bmap = |log: u32| {
            let ask = format!("bmap <8> {log}");
            let text = judge::run_ok("debugfs", &[&"-R", &ask, &file.path()]);
            text.trim().parse::<usize>().expect("a block number") * BLOCK
        };
        let super_block = bmap(0);
        let word = |at: usize| {
            let bytes = &image[super_block + at..super_block + at + 4];
            u32::from_be_bytes(bytes.try_into().expect("four bytes"))
        };
        let at = bmap(word(0x10) - word(0x54) + 1);
        let tid = image[at + 8..at + 12].try_into().expect("four bytes");
        Bed { image, at, tid }
    }

    /// With these records as the only fast commit.
    fn with(&self, records: &[(u16, Vec<u8>)]) -> Vec<u8> {
        let mut area = Vec::new();
        let mut put = |tag: u16, value: &[u8]| {
            area.extend(tag.to_le_bytes());
            area.extend((value.len() as u16).to_le_bytes());
            area.extend(value);
        };
        put(9, &[&[0; 4], &self.tid[..]].concat());
        records.iter().for_each(|(tag, value)| put(*tag, value));
        area.extend([8, 0]);
        area.extend((BLOCK as u16 - 2 - area.len() as u16).to_le_bytes());
        area.extend(self.tid);
        area.extend(crc32c(0, &area).to_le_bytes());
        area.resize(BLOCK, 0);
        let mut image = self.image.clone();
        image[self.at..self.at + BLOCK].copy_from_slice(&area);
        image
    }
}

/// The words of a record, and bytes behind them.
fn value(words: &[u32], rest: &[u8]) -> Vec<u8> {
    let mut value: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
    value.extend(rest);
    value
}

/// Why a mount is refused; the device is as it was then.
fn refusal(image: &[u8]) -> Option<String> {
    let device = Arc::new(MemoryDevice::from_image(image));
    let refused = rt::testing::world(|cx| {
        let queue = queue(cx, device.clone());
        let pages = PageCache::new(cx.runtime(), PageCacheConfig::with_limit(4 << 20));
        match Ext4::mount(cx, &queue, &pages, MountOptions::default()) {
            Ok(fs) => {
                let _result = fs.unmount(cx);
                None
            }
            Err(error) => Some(error.to_string()),
        }
    });
    assert!(refused.is_none() || device.snapshot() == image, "{refused:?}: written");
    refused
}

#[test]
fn a_record_that_makes_no_sense_is_named_and_nothing_is_written() {
    let bed = Bed::new();
    assert_eq!(refusal(&bed.with(&[(5, value(&[2, 9999], b"none"))])), None);
    let inode = |mode: u16| {
        let mut raw = vec![0; 160];
        raw[..2].copy_from_slice(&mode.to_le_bytes());
        raw
    };
    for (tag, value, says) in [
        (5, value(&[2, 8], b"a"), "inode 8 is none of 11..=10240"),
        (3, value(&[2, 70_000], b"a"), "inode 70000 is none of"),
        (4, value(&[2, 12], b"a/b"), "name of 3 bytes is not allowed"),
        (4, value(&[2, 12], b".."), "name of 2 bytes is not allowed"),
        (4, value(&[2], b"a"), "record of kind 4 has 5 bytes"),
        (2, value(&[13, 1, 1, 1], b""), "record of kind 2 has 16 bytes"),
        (1, value(&[13, 0, 0, 5000], b""), "0 logical blocks from 0 are no part of a file"),
        (1, value(&[13, u32::MAX, 2, 5000], b""), "2 logical blocks from 4294967295 are no part"),
        (1, value(&[13, 0, 4, 10_238], b""), "blocks 10238+4 are not for data"),
        (1, value(&[13, 0, 4, 2], b""), "blocks 2+4 are not for data"),
        (6, value(&[13], &inode(0)), "inode 13 has mode 0o0"),
        (6, value(&[2], &inode(0o100_644)), "inode 2 has mode 0o100644"),
        (6, value(&[13], &inode(0)[..100]), "record of kind 6 has 104 bytes"),
    ] {
        let refused =
            refusal(&bed.with(&[(tag, value)])).unwrap_or_else(|| panic!("{says}: mounted"));
        assert!(refused.contains(says) && refused.contains("byte 12"), "{refused}: not {says}");
    }
}

/// Goal: no content of the area, whose checksums are right, makes a mount panic or hang, or write
/// before it refuses.
#[test]
fn any_records_give_an_answer() {
    let bed = Bed::new();
    let (mut replayed, mut refused) = (0, 0);
    for seed in seeds(40) {
        let mut rng = Rng::new(seed, 25);
        let count = 1 + rng.below(12);
        let records: Vec<(u16, Vec<u8>)> = (0..count)
            .map(|_| {
                let small = |rng: &mut Rng| [2, 11, 12, 13, 14, 15, 20, 40][rng.below(8) as usize];
                match 1 + rng.below(6) as u16 {
                    1 => {
                        let len = [1, 3, 0x8002][rng.below(3) as usize];
                        let (block, at) = (rng.below(9) as u32, 4000 + rng.below(6000) as u32);
                        (1, value(&[small(&mut rng), block, len, at], b""))
                    }
                    2 => (
                        2,
                        value(
                            &[small(&mut rng), rng.below(9) as u32, u32::MAX >> rng.below(2)],
                            b"",
                        ),
                    ),
                    6 => {
                        let mut raw = vec![0; 160];
                        let mode = [0o100_644u16, 0o40_755, 0o120_777][rng.below(3) as usize];
                        raw[..2].copy_from_slice(&mode.to_le_bytes());
                        raw[26] = rng.below(3) as u8;
                        raw[34] = 8 * rng.below(2) as u8;
                        raw[100] = rng.below(2) as u8;
                        raw[128] = 32;
                        (6, value(&[small(&mut rng)], &raw))
                    }
                    tag => {
                        let name = [b'a' + rng.below(4) as u8];
                        (tag, value(&[small(&mut rng), small(&mut rng)], &name))
                    }
                }
            })
            .collect();
        match refusal(&bed.with(&records)) {
            None => replayed += 1,
            Some(_) => refused += 1,
        }
    }
    assert!(replayed > 0 && refused > 0, "{replayed} replayed, {refused} refused");
}
