//! What mounting reads: the time to mount a large image follows from it.

use std::fs;

use crate::host::{Mounted, iopath, place};

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
