//! What mounting reads: the time to mount a large image follows from it. Large reads of files.

use std::fs;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use base::Rng;
use rustix::fs::{Advice, FallocateFlags, Mode, OFlags, fadvise, fallocate, open};

use crate::host::{Mounted, check, image, iopath, on_each_format, place};

/// Requests and KiB read from the device by a mount of a clean image of 100 GiB that is taken away
/// at once, as the trace of the block layer counts them. ext4: the superblock, the group
/// descriptors, the journal's superblock, the root. XFS: the superblock, the log's ends, and the
/// headers of the allocation groups.
#[track_caller]
fn reads_of_a_mount(kind: &str) -> (u64, u64) {
    let place = place();
    let image = place.path().join("image");
    let made = iopath(&[&"mkfs", &"-q", &"-t", &kind, &"--size", &"100G", &image]).output();
    let made = made.expect("the command starts");
    assert!(made.status.success(), "{made:?}");
    let (dir, out) = (image.with_extension("mnt"), place.path().join("out"));
    fs::create_dir(&dir).expect("a mount point");
    let trace: [&dyn AsRef<std::ffi::OsStr>; 5] = [&"trace", &"-d", &out, &"--format=text", &"--"];
    let mount: [&dyn AsRef<std::ffi::OsStr>; 4] = [&"mount", &"-f", &image, &dir];
    Mounted::by(iopath(&[&trace[..], &mount[..]].concat()), &image).unmount();
    let summary = fs::read(out.join("summary.json")).expect("the trace has a summary");
    let summary: serde_json::Value = serde_json::from_slice(&summary).expect("it is JSON");
    let read = &summary["queues"][0]["operations"]["read"];
    let number = |name: &str| read[name].as_u64().unwrap_or_else(|| panic!("{name} in {summary}"));
    (number("requests"), number("bytes") >> 10)
}

#[test]
fn a_clean_ext4_of_100_gib_is_mounted_with_7_reads() {
    assert_eq!(reads_of_a_mount("ext4"), (7, 138));
}

#[test]
fn a_clean_xfs_of_100_gib_is_mounted_with_74_reads() {
    assert_eq!(reads_of_a_mount("xfs"), (74, 4253));
}

const MIB: u64 = 1 << 20;

/// Bytes that a process has read by read(2) and its kind, which splice(2) is not.
fn read_by(process: u32) -> u64 {
    let io = fs::read_to_string(format!("/proc/{process}/io")).expect("the process is there");
    let line = io.lines().find_map(|line| line.strip_prefix("rchar: "));
    line.and_then(|number| number.parse().ok()).expect("a number of bytes")
}

/// Reads a file past what the kernel has of it, in calls of 1 MiB.
fn read_anew(path: &Path) -> Vec<u8> {
    let file = fs::File::open(path).unwrap();
    file.sync_all().unwrap();
    fadvise(&file, 0, None, Advice::DontNeed).unwrap();
    let mut bytes = vec![0; file.metadata().unwrap().len() as usize];
    for (number, part) in bytes.chunks_mut(MIB as usize).enumerate() {
        file.read_exact_at(part, number as u64 * MIB).unwrap();
    }
    bytes
}

/// Large reads are moved by the kernel from the image, and give what was written: also in holes,
/// where blocks were given and not written, behind small writes, and at an odd end.
fn large_reads_come_straight_from_the_image(kind: &str) {
    let place = place();
    let image = image(place.path(), kind, 64 << 20);
    let mount = Mounted::new(&image, "");
    let path = mount.dir().join("file");
    let mut rng = Rng::new(7, 0);
    let mut expected = vec![0; 8 * MIB as usize + 4321];
    rng.fill(&mut expected);
    fs::write(&path, &expected).unwrap();
    let before = read_by(mount.pid());
    assert!(read_anew(&path) == expected, "{kind}");
    // Other ways are taken where requests come through rings.
    if std::env::var("IOPATH_MOUNT_OPTIONS").is_err() {
        let read = read_by(mount.pid()) - before;
        assert!(read < expected.len() as u64 / 2, "{kind}: {read} bytes went through the process");
    }
    let file = fs::File::options().write(true).open(&path).unwrap();
    for _ in 0..40 {
        let at = rng.below(expected.len() as u64 - 70_000);
        let part = &mut expected[at as usize..][..1 + rng.below(70_000) as usize];
        match rng.below(3) {
            0 => {
                let hole = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
                fallocate(&file, hole, at, part.len() as u64).unwrap();
                part.fill(0);
            }
            _ => {
                rng.fill(part);
                file.write_all_at(part, at).unwrap();
            }
        }
        if rng.below(4) == 0 {
            assert!(read_anew(&path) == expected, "{kind}");
        }
    }
    let unwritten = expected.len() as u64;
    fallocate(&file, FallocateFlags::empty(), unwritten, 2 * MIB).unwrap();
    expected.resize(unwritten as usize + 2 * MIB as usize, 0);
    drop(file);
    assert!(read_anew(&path) == expected, "{kind}");
    mount.unmount();
    check(&image);
}

/// While programs read a file past the kernel's cache, it is cut, another one takes its blocks, and
/// it is written again: nobody reads what is the other's.
fn reads_never_give_what_another_file_has(kind: &str) {
    const BYTES: usize = 1 << 20;
    let place = place();
    let image = image(place.path(), kind, 32 << 20);
    let mount = Mounted::new(&image, "");
    let (one, other) = (mount.dir().join("one"), mount.dir().join("other"));
    fs::write(&one, vec![1; BYTES]).unwrap();
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                let options = OFlags::RDONLY | OFlags::DIRECT;
                let file = fs::File::from(open(&one, options, Mode::empty()).unwrap());
                let mut bytes = vec![0; BYTES / 2];
                while !done.load(Ordering::SeqCst) {
                    for at in [0, BYTES / 2] {
                        let count = file.read_at(&mut bytes, at as u64).unwrap();
                        let strange = bytes[..count].iter().find(|&&byte| byte > 1);
                        assert_eq!(strange, None, "{kind}: another file's byte");
                    }
                }
            });
        }
        for _ in 0..100 {
            let file = fs::File::options().write(true).open(&one).unwrap();
            file.set_len(0).unwrap();
            fs::write(&other, vec![2; BYTES]).unwrap();
            fs::File::open(&other).unwrap().sync_data().unwrap();
            fs::remove_file(&other).unwrap();
            file.write_all_at(&vec![1; BYTES], 0).unwrap();
            file.sync_data().unwrap();
        }
        done.store(true, Ordering::SeqCst);
    });
    mount.unmount();
    check(&image);
}

on_each_format!(large_reads_come_straight_from_the_image, reads_never_give_what_another_file_has,);
