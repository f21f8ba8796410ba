//! `iopath resize` of ext as a user runs it, beside resize2fs and the kernel.

use std::path::Path;

use testkit::judge::{self, LoopMount};
use testkit::manifest;

use crate::command::{iopath_in as iopath, ok_in as ok};

/// What dumpe2fs says of the geometry.
fn geometry(image: &Path) -> Vec<String> {
    let text = judge::run_ok("dumpe2fs", &[&"-h", &image]);
    let wanted =
        ["Inode count", "Block count", "Reserved", "Free", "Group", "Blocks per", "Inodes"];
    let line = |line: &&str| wanted.iter().any(|start| line.starts_with(start));
    text.lines().filter(line).map(str::to_owned).collect()
}

/// Goal: larger, smaller and wide as resize2fs makes it, the tree unchanged for the kernel. Method:
/// the same steps by both on copies of one image.
#[test]
fn as_resize2fs_does_it() {
    let bed = tempfile::tempdir().expect("a directory");
    let place = bed.path();
    let tree = place.join("tree");
    std::fs::create_dir_all(tree.join("below")).expect("a directory");
    for n in 0..300u32 {
        std::fs::write(tree.join(format!("below/file-{n}")), vec![n as u8; 3000]).expect("a file");
    }
    ok(place, "mkfs -q -t ext4 -b 1024 -O ^64bit --size 24M -d tree ours.img");
    let [ours, theirs] = ["ours.img", "theirs.img"].map(|name| place.join(name));
    std::fs::copy(&ours, &theirs).expect("a copy");
    for (line, reference) in
        [("ours.img 300M", "300M"), ("ours.img 40M", "40M"), ("-b ours.img", "-b")]
    {
        let len = || std::fs::metadata(&ours).expect("an image").len();
        let before = len();
        let planned = ok(place, &format!("resize -n {line}"));
        assert_eq!(len(), before, "{planned}");
        let done = ok(place, &format!("resize {line}"));
        assert_eq!(planned.replace("; nothing was changed", ""), done);
        if reference == "300M" {
            let file = std::fs::File::options().write(true).open(&theirs).expect("an image");
            file.set_len(300 << 20).expect("longer");
        }
        let words: &[&dyn AsRef<std::ffi::OsStr>] = match reference {
            "-b" => &[&"-b", &theirs],
            _ => &[&"-f", &theirs, &reference],
        };
        judge::run_ok("resize2fs", words);
        assert_eq!(geometry(&ours), geometry(&theirs), "{done}");
        judge::e2fsck(&ours).unwrap_or_else(|text| panic!("{line}: {text}"));
    }
    assert!(!place.join("ours.img.undo").exists(), "the undo file is removed");
    let least = ok(place, "resize -P --json ours.img");
    assert!(least.contains("\"minimum\":"), "{least}");
    let before = std::fs::read(&ours).expect("the image");
    assert!(ok(place, "resize -n -M ours.img").contains("nothing was changed"));
    assert!(std::fs::read(&ours).expect("the image") == before, "a dry run writes nothing");
    ok(place, "resize -M -z kept ours.img");
    judge::e2fsck(&ours).unwrap_or_else(|text| panic!("the least: {text}"));
    let kernel = LoopMount::new(&ours, "ext4", "ro").expect("the kernel mounts it");
    let theirs = manifest::of_dir(&kernel.path().join("below")).expect("the kernel reads");
    drop(kernel);
    let wanted = manifest::of_dir(&tree.join("below")).expect("what went in");
    assert!(manifest::diff(&wanted, &theirs).is_empty());
    ok(place, "undo kept");
    judge::e2fsck(&ours).unwrap_or_else(|text| panic!("undone: {text}"));
    assert!(std::fs::read(&ours).expect("the image")[..2048] == before[..2048], "the old size");
}

/// Goal: XFS shrinks where its end is in use, as a user runs it. Method: a dry run changes nothing,
/// the tree stays for the kernel, the undo file restores the old size.
#[test]
fn xfs_shrinks_by_moving() {
    let bed = tempfile::tempdir().expect("a directory");
    let place = bed.path();
    let tree = place.join("tree");
    for d in 0..16 {
        std::fs::create_dir_all(tree.join(format!("d{d}"))).expect("a directory");
        for n in 0..20u32 {
            let bytes = vec![n as u8 + 1; 30_000];
            std::fs::write(tree.join(format!("d{d}/file-{n}")), bytes).expect("a file");
        }
    }
    ok(place, "mkfs -q -t xfs --size 512M ours.img");
    ok(place, "cp -a tree/. ours.img:/");
    let ours = place.join("ours.img");
    let before = std::fs::read(&ours).expect("an image");
    let planned = ok(place, "resize -n ours.img 300M");
    assert!(planned.contains("nothing was changed"), "{planned}");
    assert!(std::fs::read(&ours).expect("the image") == before, "a dry run writes nothing");
    let done = ok(place, "resize -z kept ours.img 300M");
    assert_eq!(planned.replace("; nothing was changed", ""), done);
    assert!(!done.contains(" 0 inodes"), "{done}");
    judge::xfs_repair(&ours).unwrap_or_else(|text| panic!("{done}: {text}"));
    let kernel = LoopMount::new(&ours, "xfs", "ro").expect("the kernel mounts it");
    let theirs = manifest::of_dir(&kernel.path()).expect("the kernel reads");
    drop(kernel);
    let wanted = manifest::of_dir(&tree).expect("what went in");
    assert_eq!(manifest::diff(&wanted, &theirs), "");
    ok(place, "undo kept");
    judge::xfs_repair(&ours).unwrap_or_else(|text| panic!("undone: {text}"));
    assert!(std::fs::read(&ours).expect("the image")[..512] == before[..512], "the old size");
    let again = ok(place, "resize --json ours.img 300M");
    assert!(again.contains("\"changed\":true"), "{again}");
    assert!(!place.join("ours.img.undo").exists(), "the undo file is removed");
    let planned = ok(place, "resize -n ours.img 600M");
    let larger = ok(place, "resize ours.img 600M");
    assert!(larger.contains("0 blocks and 0 inodes moved"), "{larger}");
    assert_eq!(planned.replace("; nothing was changed", ""), larger);
}

/// Goal: an XFS beside an external log changes its size where its log is named. Method: made by
/// mkfs.xfs; larger and back.
#[test]
fn xfs_changes_its_size_beside_an_external_log() {
    let bed = tempfile::tempdir().expect("a directory");
    let place = bed.path();
    let [data, log] = ["ours.img", "log"].map(|name| place.join(name));
    for (path, mib) in [(&data, 320), (&log, 64)] {
        let file = std::fs::File::create(path).expect("a file");
        file.set_len(mib << 20).expect("its size");
    }
    let option = format!("logdev={},size=64m", log.display());
    judge::run_ok("mkfs.xfs", &[&"-q", &"-l", &option, &data]);
    let refused = iopath(place, "resize ours.img 500M");
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(!refused.status.success() && said.contains("log"), "{said}");
    std::fs::write(place.join("small"), "content").expect("a file");
    ok(place, "cp -o logdev=log small ours.img:/copy");
    for size in ["500M", "321M"] {
        let done = ok(place, &format!("resize -o logdev=log ours.img {size}"));
        assert!(done.contains("0 inodes moved"), "{done}");
        let said = judge::run("xfs_repair", &[&"-n", &"-l", &log, &data]);
        assert!(said.status.success(), "{size}: {said:?}");
    }
}

/// Goal: what cannot be is refused, with how to go on. Method: a size behind a partition's end.
#[test]
fn what_cannot_be_is_named() {
    let bed = tempfile::tempdir().expect("a directory");
    let place = bed.path();
    ok(place, "mkfs -q -t ext4 --size 24M disk.img");
    let failed = iopath(place, "resize disk.img 1M");
    let text = String::from_utf8_lossy(&failed.stderr).into_owned();
    assert!(!failed.status.success() && text.contains("find no place"), "{text}");
    ok(place, "mkfs -q -t xfs --size 300M x.img");
    let failed = iopath(place, "resize -b x.img");
    let text = String::from_utf8_lossy(&failed.stderr).into_owned();
    assert!(!failed.status.success() && text.contains("are for ext"), "{text}");
}

/// Goal: the disk in a qcow2 becomes longer with its file system, as by `qemu-img resize` and then
/// resize2fs. Method: ext4 and XFS, beyond one table; what QEMU reads of it is judged.
#[test]
fn a_disk_in_a_container_becomes_longer() {
    let bed = tempfile::tempdir().expect("a directory");
    let place = bed.path();
    std::fs::write(place.join("file"), vec![7; 3 << 20]).expect("a file");
    for (fstype, small, large) in [("ext4", 24u64, 700u64), ("xfs", 300, 900)] {
        let image = place.join(format!("{fstype}.qcow2"));
        let options = "cluster_size=4k";
        let bytes = (small << 20).to_string();
        judge::run_ok("qemu-img", &[&"create", &"-fqcow2", &"-o", &options, &image, &bytes]);
        ok(place, &format!("mkfs -q -t {fstype} {fstype}.qcow2"));
        ok(place, &format!("cp file {fstype}.qcow2:/"));
        let before = std::fs::read(&image).expect("an image");
        let line = format!("{fstype}.qcow2 {large}M");
        if fstype == "ext4" {
            let planned = ok(place, &format!("resize -n {line}"));
            assert!(std::fs::read(&image).expect("the image") == before, "{planned}");
        }
        let done = ok(place, &format!("resize {line}"));
        assert!(done.contains(&format!(": {large} MiB, {small}")), "{done}");
        judge::run_ok("qemu-img", &[&"check", &image]);
        let raw = place.join("raw");
        judge::run_ok("qemu-img", &[&"convert", &"-Oraw", &image, &raw]);
        assert_eq!(std::fs::metadata(&raw).expect("the disk").len(), large << 20);
        match fstype {
            "ext4" => judge::e2fsck(&raw),
            _ => judge::xfs_repair(&raw),
        }
        .unwrap_or_else(|text| panic!("{fstype}: {text}"));
        let kernel = LoopMount::new(&raw, fstype, "ro").expect("the kernel mounts it");
        assert!(std::fs::read(kernel.path().join("file")).expect("read") == vec![7; 3 << 20]);
    }
}
