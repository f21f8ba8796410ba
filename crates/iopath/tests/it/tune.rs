//! `iopath tune` of ext as a user runs it.

use testkit::judge::{self, LoopMount};

use crate::command::{iopath_in as iopath, ok_in as ok};

/// Goal: what was asked for is there, the kernel mounts it, undo gives the old image back, and what
/// is not done is named. Method: one image of each family.
#[test]
fn fields_features_and_undo() {
    let bed = tempfile::tempdir().expect("a directory");
    let (place, path) = (bed.path(), bed.path().join("disk.img"));
    ok(place, "mkfs -q -t ext4 -b 1024 -O ^metadata_csum --size 24M disk.img");
    std::fs::write(place.join("file"), vec![7u8; 50_000]).expect("a file");
    ok(place, "cp file disk.img:/file");
    let before = std::fs::read(&path).expect("the image");
    let words = "-L archive -U random -m 1 -e remount-ro -i 2w -O metadata_csum -z kept";
    ok(place, &format!("tune {words} disk.img"));
    judge::e2fsck(&path).unwrap_or_else(|text| panic!("{text}"));
    let text = judge::run_ok("dumpe2fs", &[&"-h", &path]);
    for part in ["archive", "metadata_csum", "Remount read-only", "1209600", "count:     245"] {
        assert!(text.contains(part), "{part}: {text}");
    }
    let kernel = LoopMount::new(&path, "ext4", "rw").expect("the kernel mounts it");
    let file = std::fs::read(kernel.path().join("file")).expect("a file");
    drop(kernel);
    assert_eq!(file, vec![7u8; 50_000]);
    std::fs::write(&path, &before).expect("the image");
    ok(place, "tune -O ^has_journal -z again disk.img");
    judge::e2fsck(&path).unwrap_or_else(|text| panic!("{text}"));
    ok(place, "undo again");
    assert!(std::fs::read(&path).expect("the image") == before, "byte for byte");
    let failed = iopath(place, "tune -O bigalloc disk.img");
    let text = String::from_utf8_lossy(&failed.stderr).into_owned();
    assert!(!failed.status.success() && text.contains("bigalloc cannot be set"), "{text}");
}

/// Goal: the words of `mkfs -E` do what those of mke2fs do, and `tune -Q` and `-E` what those of
/// tune2fs. Method: the same image by both; the words that one of them does not know are refused.
#[test]
fn words_of_mke2fs_and_tune2fs() {
    let bed = tempfile::tempdir().expect("a directory");
    let place = bed.path();
    let [ours, theirs] = ["ours.img", "theirs.img"].map(|name| place.join(name));
    let seed = "a1a2a3a4-a5a6-47a8-89aa-abacadaeafa0";
    let words = format!("hash_seed={seed},root_owner=7:8,orphan_file_size=16k,nodiscard");
    let mkfs = format!("mkfs -q -t ext4 -b 1024 -O orphan_file -E {words}");
    ok(place, &format!("{mkfs},root_perms=0710 --size 24M ours.img"));
    let args = ["-t", "ext4", "-b", "1024", "-O", "orphan_file", "-E", &words];
    judge::mke2fs(&theirs, 24 << 20, &args);
    ok(place, "tune -Q usrquota,prjquota -E orphan_file_size=24k ours.img");
    let tuned: [&dyn AsRef<std::ffi::OsStr>; 5] =
        [&"-Q", &"usrquota,prjquota", &"-E", &"orphan_file_size=24k", &theirs];
    judge::run_ok("tune2fs", &tuned);
    let facts = |path: &std::path::PathBuf| {
        judge::e2fsck(path).unwrap_or_else(|text| panic!("{text}"));
        let head = judge::run_ok("dumpe2fs", &[&"-h", path]);
        let wanted = ["Directory Hash Seed", "Orphan", "User quota", "Project quota", "features"];
        let head: Vec<String> = head
            .lines()
            .filter(|line| wanted.iter().any(|word| line.contains(word)))
            .map(str::to_owned)
            .collect();
        let inode = |number: &str| judge::run_ok("debugfs", &[&"-R", &number, path]);
        let owner =
            inode("stat <2>").lines().find(|line| line.contains("User:")).map(str::to_owned);
        let orphans = inode("stat <12>");
        (head, owner, orphans.lines().find(|line| line.contains("Size:")).map(str::to_owned))
    };
    let (found, wanted) = (facts(&ours), facts(&theirs));
    assert_eq!(found, wanted);
    assert!(found.0.iter().any(|line| line.ends_with(seed)), "{found:?}");
    assert!(judge::run_ok("debugfs", &[&"-R", &"stat <2>", &ours]).contains("Mode:  0710"));
    for line in ["mkfs -E iops=4 --size 24M x.img", "mkfs -E root_owner=7 --size 24M x.img"] {
        let text = String::from_utf8_lossy(&iopath(place, line).stderr).into_owned();
        assert!(text.contains("-E "), "{line}: {text}");
    }
}
