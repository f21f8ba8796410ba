//! `metadump`: dumps that the real tools take, without what is private; dumps of theirs.

use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use crate::command::{iopath_in as iopath, ok_in as ok};
use crate::rescue::run;
use testkit::{judge, newest};

/// What no dump may hold.
const SECRETS: [&str; 3] = ["zebra-", "Quagga", "okapi okapi"];

/// A tree with secrets in names, targets, attributes and content: directories of every form.
fn tree(place: &Path, many: usize) -> PathBuf {
    let tree = place.join("tree");
    for (folder, count) in [("few", 3), ("some", 60), ("zebra-many", many)] {
        std::fs::create_dir_all(tree.join(folder)).expect("a directory");
        for n in 0..count {
            let name = format!("{folder}/zebra-{n:05}{}", "-Quagga".repeat(n % 4));
            std::fs::write(tree.join(name), if n == 1 { "okapi okapi okapi" } else { "" })
                .expect("a file");
        }
    }
    symlink("zebra-many/zebra-Quagga", tree.join("few/zebra-fast")).expect("a link");
    symlink("zebra-many/".repeat(40), tree.join("few/zebra-slow")).expect("a link");
    tree
}

/// Sets attributes that lie in inodes, in blocks, and in blocks of their own.
fn attributes(place: &Path, large: bool) {
    for (name, len) in [("zebra-short", 20), ("zebra-local", 300), ("zebra-large", 3000)] {
        let value = "Quagga".repeat(if large { len } else { len.min(100) } / 6);
        let file = "disk.img:/tree/few/zebra-00002-Quagga-Quagga";
        ok(place, &format!("xattr set {file} user.{name} {value}"));
    }
}

/// Whether a text is in there.
fn holds(bytes: &[u8], text: &[u8]) -> bool {
    let mut at = 0;
    while let Some(found) = bytes[at..].iter().position(|&byte| byte == text[0]) {
        at += found;
        if bytes[at..].starts_with(text) {
            return true;
        }
        at += 1;
    }
    false
}

#[track_caller]
fn has_no_secret(path: &Path) {
    let bytes = testkit::image::read(path);
    for secret in SECRETS {
        assert!(!holds(&bytes, secret.as_bytes()), "{}: {secret:?}", path.display());
    }
}

/// Goal: a dump of XFS in either version is restored by xfs_mdrestore of two releases and by ours
/// to the same image, sound and without a secret; with names kept it holds them.
#[test]
fn dumps_of_xfs_are_restored_by_the_real_tools() {
    let bed = tempfile::tempdir().expect("a directory");
    let place = bed.path();
    let tree = tree(place, 700);
    ok(place, "mkfs -q -t xfs --size 320M -l size=16M -m rmapbt=1 -n parent=1 -L Quagga disk.img");
    ok(place, &format!("cp -a {} disk.img:/", tree.display()));
    attributes(place, true);
    let out = ok(place, "metadump disk.img one.dump");
    assert!(out.contains("names obscured"), "{out}");
    ok(place, "metadump --format xfs2 disk.img two.dump");
    for dump in ["one.dump", "two.dump"] {
        has_no_secret(&place.join(dump));
        ok(place, &format!("metadump --restore {dump} ours.img"));
        newest::run_ok("xfs_mdrestore", &[&place.join(dump), &place.join("newest.img")]);
        if dump == "one.dump" {
            judge::run_ok("xfs_mdrestore", &[&place.join(dump), &place.join("host.img")]);
            assert!(same(place, "host.img", "ours.img"));
        }
        assert!(same(place, "newest.img", "ours.img"));
        judge::xfs_repair(&place.join("ours.img")).expect("sound");
        ok(place, "check ours.img");
        std::fs::remove_file(place.join("ours.img")).expect("an image");
    }
    assert!(!iopath(place, "metadump disk.img two.dump").status.success(), "it exists");
    ok(place, "metadump -F -k --format raw disk.img two.dump");
    let bytes = testkit::image::read(&place.join("two.dump"));
    assert!(holds(&bytes, b"zebra-00699") && !holds(&bytes, b"okapi okapi"));
    judge::xfs_repair(&place.join("two.dump")).expect("sound");
    let listed = |image: &str| ok(place, &format!("find {image}:/"));
    assert_eq!(listed("two.dump"), listed("disk.img").replace("disk.img", "two.dump"));
}

/// Whether two images are the same behind the first sector: in the superblock xfs_mdrestore writes
/// the numbers of quota inodes anew.
fn same(place: &Path, one: &str, other: &str) -> bool {
    let [one, other] = [one, other].map(|name| testkit::image::read(&place.join(name)));
    one.len() == other.len() && one[512..] == other[512..]
}

/// Goal: ours restores what xfs_metadump writes, of both versions, as xfs_mdrestore does; a cut
/// dump, and what is none, are refused, and leave nothing behind.
#[test]
fn dumps_of_xfs_metadump_are_restored() {
    let bed = tempfile::tempdir().expect("a directory");
    let place = bed.path();
    ok(place, "mkfs -q -t xfs --size 320M -l size=16M disk.img");
    std::fs::write(place.join("value"), "x").expect("a file");
    ok(place, "cp value disk.img:/");
    for version in ["1", "2"] {
        let dump = place.join("theirs.dump");
        let command = format!("metadump -v {version} {}", dump.display());
        let image = place.join("disk.img");
        newest::run_ok("xfs_db", &[&"-f", &"-i", &"-p", &"xfs_metadump", &"-c", &command, &image]);
        newest::run_ok("xfs_mdrestore", &[&dump, &place.join("theirs.img")]);
        ok(place, "metadump -F --restore theirs.dump ours.img");
        assert!(same(place, "theirs.img", "ours.img"), "version {version}");
        let bytes = std::fs::read(&dump).expect("the dump");
        std::fs::write(place.join("cut.dump"), &bytes[..bytes.len() / 2 + 1]).expect("a dump");
        let output = iopath(place, "metadump --restore cut.dump cut.img");
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(error.contains("cut short") && !place.join("cut.img").exists(), "{error}");
    }
    let output = iopath(place, "metadump --restore disk.img cut.img");
    assert!(String::from_utf8_lossy(&output.stderr).contains("no dump of xfs_metadump"));
}

/// Goal: dumps of a file system on three devices, ours and those of xfs_metadump, are restored by
/// ours and by xfs_mdrestore to the same three files; a device that is not named is asked for.
#[test]
fn dumps_of_three_devices_are_restored() {
    let bed = tempfile::tempdir().expect("a directory");
    let place = bed.path();
    let tree = tree(place, 20);
    let mkfs = "mkfs -q -t xfs --compat 7.2 --size 320M -m metadir=1 -L Quagga";
    for (name, size) in [("log.img", 64 << 20), ("rt.img", 128 << 20)] {
        let file = std::fs::File::create(place.join(name)).expect("a file");
        file.set_len(size).expect("a size");
    }
    ok(place, &format!("{mkfs} -l logdev=log.img -r rtdev=rt.img,rgcount=2 disk.img"));
    let on = |log: &str, rt: &str| format!("-o logdev={log} -o rtdev={rt}");
    let here = on("log.img", "rt.img");
    ok(place, &format!("{here} cp -a {} disk.img:/", tree.display()));
    let [disk, log, rt] = ["disk.img", "log.img", "rt.img"].map(|name| place.join(name));
    let dump = place.join("theirs.dump");
    let command = format!("metadump -v 2 {}", dump.display());
    let args: [&dyn AsRef<std::ffi::OsStr>; 11] =
        [&"-f", &"-i", &"-p", &"xfs_metadump", &"-l", &log, &"-R", &rt, &"-c", &command, &disk];
    newest::run_ok("xfs_db", &args);
    ok(place, &format!("{here} metadump --format xfs2 disk.img ours.dump"));
    has_no_secret(&place.join("ours.dump"));
    ok(place, &format!("{here} metadump -k --format xfs2 disk.img kept.dump"));
    for name in ["theirs.dump", "ours.dump", "kept.dump"] {
        let refused = iopath(place, &format!("metadump --restore {name} one.img"));
        let error = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert!(error.contains("-o logdev=FILE") && !place.join("one.img").exists(), "{error}");
        let restored = ["r.img", "r.log", "r.rt"];
        ok(place, &format!("{} metadump -F --restore {name} r.img", on("r.log", "r.rt")));
        let by_theirs = ["m.img", "m.log", "m.rt"];
        let [image, log, rt] = by_theirs.map(|name| place.join(name));
        newest::run_ok("xfs_mdrestore", &[&"-l", &log, &"-r", &rt, &place.join(name), &image]);
        for (one, other) in restored.into_iter().zip(by_theirs) {
            assert!(same(place, one, other), "{name}: {one}");
        }
        let [image, log, rt] = restored.map(|name| place.join(name));
        newest::run_ok("xfs_repair", &[&"-n", &"-l", &log, &"-r", &rt, &image]);
        ok(place, &format!("{} check r.img", on("r.log", "r.rt")));
        for name in by_theirs {
            std::fs::remove_file(place.join(name)).expect("it is there");
        }
    }
    let listed = |image: &str, on: &str| ok(place, &format!("{on} find {image}:/"));
    let theirs = listed("r.img", &on("r.log", "r.rt")).replace("r.img", "disk.img");
    assert_eq!(theirs, listed("disk.img", &here));
    let alone = iopath(place, "metadump -F --format xfs2 disk.img alone.dump");
    assert_eq!(alone.status.code(), Some(1), "the log is left out");
}

/// Goal: dumps of ext4 as raw and qcow2 images are what e2fsck, debugfs, e2image and our own check
/// take, without a secret; with directories that are hash trees, ignore case, or lie in inodes.
#[test]
fn dumps_of_ext4_are_taken_by_the_real_tools() {
    let bed = tempfile::tempdir().expect("a directory");
    let place = bed.path();
    let tree = tree(place, 900);
    for (features, large) in [("^has_journal", false), ("inline_data,ea_inode", true)] {
        let mkfs = "mkfs -q -F -t ext4 -b 1024 --size 24M -L Quagga";
        ok(place, &format!("{mkfs} -O {features} disk.img"));
        ok(place, &format!("cp -a {} disk.img:/", tree.display()));
        attributes(place, large);
        judge::e2fsck(&place.join("disk.img")).expect("the image is sound");
        ok(place, "metadump -F --format raw disk.img raw.img");
        ok(place, "metadump -F disk.img dump.qcow2");
        judge::e2fsck(&place.join("raw.img")).expect("sound");
        has_no_secret(&place.join("raw.img"));
        has_no_secret(&place.join("dump.qcow2"));
        ok(place, "check dump.qcow2");
        judge::run_ok("e2image", &[&"-r", &place.join("dump.qcow2"), &place.join("back.img")]);
        judge::e2fsck(&place.join("back.img")).expect("sound");
        judge::run_ok("qemu-img", &[&"check", &place.join("dump.qcow2")]);
        judge::debugfs(&place.join("raw.img"), false, "ls -p /tree/zebra-many\nstats");
        ok(place, "metadump -F -k disk.img dump.qcow2");
        let find = |image: &str| ok(place, &format!("find {image}:/")).replace(image, "");
        assert_eq!(find("dump.qcow2"), find("disk.img"));
        judge::run_ok("e2image", &[&"-Q", &place.join("disk.img"), &place.join("theirs.qcow2")]);
        // The copies of the superblock are not in it.
        // Nor are values in inodes of their own, whose hash the check compares.
        let code = if large { 4 } else { 0 };
        let (found, _) = run(place, "check theirs.qcow2", code);
        assert!(found.contains("super-backup") && found.contains("zeros"), "{found}");
        assert_eq!(find("theirs.qcow2"), find("disk.img"));
        std::fs::remove_file(place.join("theirs.qcow2")).expect("an image");
    }
}

/// Goal: a block of a directory that cannot be read is left out and named, and the rest is there:
/// e2fsck finds this damage and no other.
#[test]
fn what_cannot_be_parsed_is_left_out_and_named() {
    let bed = tempfile::tempdir().expect("a directory");
    let place = bed.path();
    let tree = tree(place, 900);
    ok(place, "mkfs -q -t ext4 -b 1024 -O ^has_journal --size 24M disk.img");
    ok(place, &format!("cp -a {} disk.img:/", tree.display()));
    let image = place.join("disk.img");
    let mut bytes = testkit::image::read(&image);
    let blocks = || 0..bytes.len() / 1024;
    let leaf = blocks().rev().find(|at| holds(&bytes[at * 1024..][..1024], b"zebra-00500"));
    let leaf = leaf.expect("the leaf of that name") * 1024;
    bytes[leaf + 4] = 7;
    std::fs::write(&image, &bytes).expect("the image");
    let output = iopath(place, "metadump --format raw disk.img raw.img");
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1), "{error}");
    assert!(error.contains("left out: entries of inode") && error.lines().count() == 1, "{error}");
    has_no_secret(&place.join("raw.img"));
    let verdict = judge::e2fsck(&place.join("raw.img")).expect_err("it is damaged");
    assert!(verdict.contains("Directory inode"), "{verdict}");
}

/// Goal: a log that was not replayed, with content in it, leaves no secret in a dump, and the dump
/// has the state behind it. Method: a kernel's ext4 with data=journal, copied while it is mounted.
#[test]
fn dumps_of_dirty_logs_hold_their_state_and_no_content() {
    let bed = tempfile::tempdir().expect("a directory");
    let place = bed.path();
    let image = place.join("disk.img");
    ok(place, "mkfs -q -t ext4 --size 64M disk.img");
    let mount = judge::LoopMount::new(&image, "ext4", "rw,data=journal").expect("a mount");
    for n in 0..20 {
        std::fs::write(mount.path().join(format!("zebra-Quagga-{n}")), "okapi okapi".repeat(300))
            .expect("a file");
    }
    judge::run_ok("sync", &[&"-f", &mount.path()]);
    std::fs::copy(&image, place.join("dirty.img")).expect("a copy");
    drop(mount);
    assert!(holds(&testkit::image::read(&place.join("dirty.img")), b"okapi okapi"));
    ok(place, "metadump --format raw dirty.img raw.img");
    has_no_secret(&place.join("raw.img"));
    // The sums in the superblock are those of the last unmount, as the kernel leaves them.
    ok(place, "check raw.img");
    let names = ok(place, "find raw.img:/");
    assert_eq!(names.lines().count(), 20 + 2, "{names}");
    ok(place, "metadump -k -F --format raw dirty.img raw.img");
    assert!(ok(place, "find raw.img:/").contains("zebra-Quagga-19"));
}

/// Goal: of an encrypted tree and of a file with verity the dump is sound, without their content;
/// of an XFS with a realtime section it is what xfs_mdrestore and xfs_repair take.
#[test]
fn dumps_of_encrypted_trees_and_realtime_sections_are_sound() {
    let bed = tempfile::tempdir().expect("a directory");
    let place = bed.path();
    let tree = tree(place, 60);
    std::fs::write(place.join("key"), [b'K'; 64]).expect("a key");
    std::fs::write(place.join("sealed"), "okapi okapi".repeat(9000)).expect("a file");
    ok(place, "mkfs -q -t ext4 -b 4096 -O encrypt,verity --size 64M disk.img");
    ok(place, "mkdir disk.img:/secret");
    ok(place, "--key key encrypt set disk.img:/secret");
    ok(place, &format!("--key key cp -a {} disk.img:/secret/", tree.display()));
    ok(place, "cp sealed disk.img:/sealed");
    ok(place, "verity enable disk.img:/sealed");
    let count = ok(place, "find disk.img:/").lines().count();
    ok(place, "metadump --format raw disk.img raw.img");
    has_no_secret(&place.join("raw.img"));
    judge::e2fsck(&place.join("raw.img")).expect("sound");
    assert_eq!(ok(place, "find raw.img:/").lines().count(), count);

    let (image, section) = (place.join("x.img"), place.join("section.img"));
    for path in [&image, &section] {
        std::fs::File::create(path).and_then(|file| file.set_len(320 << 20)).expect("an image");
    }
    let rtdev = format!("rtdev={}", section.display());
    judge::run_ok("mkfs.xfs", &[&"-q", &"-f", &"-r", &rtdev, &image]);
    ok(place, "metadump x.img x.dump");
    judge::run_ok("xfs_mdrestore", &[&place.join("x.dump"), &place.join("back.img")]);
    judge::run_ok("xfs_repair", &[&"-n", &"-f", &"-r", &section, &place.join("back.img")]);
}
