//! `iopath repair` and `iopath undo` as a user runs them: exit statuses, the plan, the undo file.

use std::path::Path;

use crate::command::{iopath_in as iopath, ok_in as ok};

#[track_caller]
fn run(place: &Path, line: &str, code: i32) -> String {
    let output = iopath(place, line);
    let text = [output.stdout, output.stderr].concat();
    let text = String::from_utf8_lossy(&text).into_owned();
    assert_eq!(output.status.code(), Some(code), "iopath {line}: {text}");
    text
}

/// An image whose superblock and a part of whose first directory are gone.
fn damaged(place: &Path) -> Vec<u8> {
    ok(place, "mkfs -q -t ext4 -b 1024 --size 24M disk.img");
    std::fs::write(place.join("file"), vec![7u8; 50_000]).expect("a file");
    ok(place, "cp file disk.img:/file");
    let path = place.join("disk.img");
    let mut image = std::fs::read(&path).expect("the image");
    image[1024..2048].fill(0);
    std::fs::write(&path, &image).expect("the image");
    image
}

/// Goal: the plan of a dry run writes nothing, a repair leaves a clean image and an undo file, and
/// undo gives the damaged image back. Method: an image without its superblock, e2fsck as judge.
#[test]
fn a_repair_is_planned_done_and_undone() {
    let bed = tempfile::tempdir().expect("a directory");
    let place = bed.path();
    let image = damaged(place);
    let read = || std::fs::read(place.join("disk.img")).expect("the image");
    let plan = run(place, "repair -n disk.img", 4);
    assert!(plan.contains("super-magic: superblock in block 0"), "{plan}");
    assert!(plan.contains("restore it from the copy in block 8193"), "{plan}");
    assert!(read() == image, "a dry run writes nothing");
    assert!(!place.join("disk.img.undo").exists());
    assert!(run(place, "repair disk.img", 16).contains("nobody to ask"));
    let done = run(place, "repair -y disk.img", 1);
    assert!(done.contains("to undo: iopath undo disk.img.undo"), "{done}");
    testkit::judge::e2fsck(&place.join("disk.img")).unwrap_or_else(|text| panic!("{text}"));
    ok(place, "cp disk.img:/file back");
    assert_eq!(std::fs::read(place.join("back")).expect("a file"), vec![7u8; 50_000]);
    assert!(run(place, "repair -y disk.img", 0).contains("clean"));
    assert!(run(place, "undo disk.img.undo", 0).contains("as before the change"));
    assert!(read() == image, "byte for byte");
    assert!(run(place, "undo disk.img.undo", 8).contains("undone before"));
    let second = run(place, "repair --json -y disk.img", 1);
    assert!(second.contains("\"rule\":\"super-magic\""), "{second}");
    assert!(place.join("disk.img.undo.2").exists());
}

/// Goal: the same for XFS. Method: an image without its first superblock and AGF, xfs_repair as
/// judge; a superblock that asks for a repair.
#[test]
fn a_repair_of_xfs_is_planned_done_and_undone() {
    let bed = tempfile::tempdir().expect("a directory");
    let (place, path) = (bed.path(), bed.path().join("x.img"));
    ok(place, "mkfs -q -t xfs --size 300M x.img");
    std::fs::write(place.join("file"), vec![7u8; 50_000]).expect("a file");
    ok(place, "cp file x.img:/file");
    let mut image = std::fs::read(&path).expect("the image");
    image[..1024].fill(0);
    std::fs::write(&path, &image).expect("the image");
    let plan = run(place, "repair -n x.img", 4);
    assert!(plan.contains("superblock of group 0: cannot be read: take a copy"), "{plan}");
    let done = run(place, "repair -y x.img", 1);
    assert!(done.contains("to undo: iopath undo x.img.undo"), "{done}");
    testkit::judge::xfs_repair(&path).unwrap_or_else(|text| panic!("{text}"));
    ok(place, "cp x.img:/file back");
    assert_eq!(std::fs::read(place.join("back")).expect("a file"), vec![7u8; 50_000]);
    assert!(run(place, "repair -y x.img", 0).contains("clean"));
    assert!(run(place, "undo x.img.undo", 0).contains("as before the change"));
    assert!(std::fs::read(&path).expect("the image") == image, "byte for byte");
}

/// Goal: what cannot be done is named, and nothing is changed. Method: an undo file where there
/// is no room for one, an image without any superblock.
#[test]
fn what_cannot_be_repaired_is_named() {
    let bed = tempfile::tempdir().expect("a directory");
    let place = bed.path();
    let image = damaged(place);
    let full = run(place, "repair -y --undo-file /dev/full disk.img", 8);
    assert!(full.contains("nothing was changed"), "{full}");
    let lost = run(place, "repair -y --undo-file none/undo disk.img", 8);
    assert!(lost.contains("none/undo: nothing was changed"), "{lost}");
    assert!(std::fs::read(place.join("disk.img")).expect("the image") == image);
    std::fs::write(place.join("empty.img"), vec![0; 1 << 20]).expect("an image");
    assert!(run(place, "repair -n empty.img", 8).contains("no superblock"));
}
