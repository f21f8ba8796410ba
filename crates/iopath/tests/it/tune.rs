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
