//! Direct I/O from the command: `cp --direct` and the fio front end, on images that the kernel's
//! mount and the real fio judge.

use std::ffi::OsStr;
use std::path::Path;

use crate::command::{iopath_in, ok_in};
use testkit::judge;

/// Bytes with a period that no block has.
fn content(bytes: usize) -> Vec<u8> {
    (0..bytes).map(|at| (at % 251) as u8 ^ (at / 4096) as u8).collect()
}

/// Runs the real fio on a file.
fn fio(file: &Path, more: &[&str]) {
    let file = format!("--filename={}", file.display());
    let common = ["--name=x", &file, "--direct=1", "--ioengine=libaio"];
    let words = common.iter().chain(more).map(|word| word as &dyn AsRef<OsStr>);
    judge::run_ok("fio", &words.collect::<Vec<_>>());
}

/// Goal: a file that was copied in past all caches comes out again, directly and through the
/// caches, also where its length is no multiple of a sector. Method: ext3, ext4 and XFS made by the
/// command; the judges of each.
#[test]
fn copies_past_all_caches() {
    for kind in ["ext3", "ext4", "xfs"] {
        let dir = tempfile::tempdir().expect("a directory");
        let data = content((5 << 20) + 700);
        std::fs::write(dir.path().join("in"), &data).expect("written");
        ok_in(dir.path(), &format!("mkfs -q -t {kind} --size 320M disk.img"));
        ok_in(dir.path(), "cp --direct in disk.img:/file");
        ok_in(dir.path(), "cp --direct disk.img:/file direct");
        ok_in(dir.path(), "cp disk.img:/file cached");
        for out in ["direct", "cached"] {
            let found = std::fs::read(dir.path().join(out)).expect("read");
            assert!(found == data, "{kind}: {out}");
        }
        let image = dir.path().join("disk.img");
        let judged = match kind {
            "xfs" => judge::xfs_repair(&image),
            _ => judge::e2fsck(&image),
        };
        judged.unwrap_or_else(|found| panic!("{kind}: {found}"));
    }
}

/// Goal: what our fio wrote directly (a file that grows, with calls in flight; a file full of holes
/// that is filled; calls of 64 MiB and more), the real fio verifies on the kernel's mount, and what
/// the real one wrote there ours verifies. Method: patterns, on ext3 and XFS; a wrong pattern must
/// be found by both.
#[test]
fn each_fio_verifies_the_others_writes() {
    for kind in ["ext3", "xfs"] {
        let dir = tempfile::tempdir().expect("a directory");
        ok_in(dir.path(), &format!("mkfs -q -t {kind} --size 480M disk.img"));
        let ours = |line: &str| {
            format!("bench --target disk.img --direct fio {line} --direct=1 --ioengine=libaio")
        };
        for (name, more) in [
            ("grows", "--rw=write --bs=1m --iodepth=8 --size=24m --fallocate=none"),
            ("large", "--rw=write --bs=96m --size=96m --fallocate=none"),
            ("holes", "--rw=randwrite --bs=64k --iodepth=4 --size=16m --fallocate=truncate"),
        ] {
            let job = format!("--name={name} --filename=/{name} --buffer_pattern=0xa5 {more}");
            ok_in(dir.path(), &ours(&job));
        }
        let image = dir.path().join("disk.img");
        {
            let mount = judge::LoopMount::new(&image, kind, "rw").expect("the kernel mounts it");
            for (name, size) in [("grows", "24m"), ("large", "96m"), ("holes", "16m")] {
                let size = format!("--size={size}");
                let verify = ["--verify=pattern", "--verify_pattern=0xa5"];
                let more = ["--rw=read", "--bs=1m", &size, verify[0], verify[1]];
                fio(&mount.path().join(name), &more);
            }
            let more = ["--bs=1m", "--size=24m", "--iodepth=4", "--buffer_pattern=0x5a"];
            let theirs = mount.path().join("theirs");
            fio(&theirs, &[&["--rw=write", "--fallocate=none"], &more[..]].concat());
        }
        let verify = "--name=v --filename=/theirs --rw=read --bs=4m --size=24m --iodepth=4 \
                      --verify=pattern --verify_fatal=1";
        ok_in(dir.path(), &ours(&format!("{verify} --verify_pattern=0x5a")));
        let wrong = iopath_in(dir.path(), &ours(&format!("{verify} --verify_pattern=0x5b")));
        assert!(!wrong.status.success(), "{kind}: a wrong pattern was taken for right");
    }
}
