//! A removed tree of 10,000 files, brought back at once.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use testkit::judge::LoopMount;

use crate::rescue::run;

const DIRECTORIES: u64 = 100;
const FILES: u64 = 100;

fn sh(place: &Path, script: &str) {
    let mut bash = Command::new("bash");
    let done = bash.args(["-ec", script]).current_dir(place).output().expect("bash");
    let text = String::from_utf8_lossy(&done.stderr).into_owned();
    assert!(done.status.success(), "{script}: {text}");
}

/// The content of a file: up to three blocks.
fn content(number: u64) -> Vec<u8> {
    let mut bytes = vec![0; (number * 37 % 9000 + 1) as usize];
    testkit::content::pattern(number, 0, &mut bytes);
    bytes
}

/// Goal: of a tree of 10,000 files that the kernel removed, every file comes back under its name
/// with its content, from ext3, ext4 and XFS. The figures are printed.
#[test]
fn ten_thousand_removed_files_come_back_at_once() {
    let bed = tempfile::tempdir().expect("a directory");
    let place = bed.path();
    let mut tree = BTreeMap::new();
    for number in 0..DIRECTORIES * FILES {
        let (directory, file) = (number / FILES, number % FILES);
        let name = format!("directory-{directory}/file-{file}");
        let path = place.join("kept").join(&name);
        std::fs::create_dir_all(path.parent().expect("a directory")).expect("a directory");
        std::fs::write(path, content(number)).expect("a file");
        tree.insert(name, number);
    }
    for (fstype, mkfs) in [
        ("ext3", "mke2fs -q -F -t ext3"),
        ("ext4", "mke2fs -q -F -t ext4"),
        ("xfs", "mkfs.xfs -q -f"),
    ] {
        sh(place, &format!("rm -rf disk.img back; truncate -s 512M disk.img; {mkfs} disk.img"));
        for script in ["cp -a kept $mnt/tree", "rm -r $mnt/tree"] {
            let mount = LoopMount::new(&place.join("disk.img"), fstype, "rw");
            let mount = mount.expect("the kernel mounts it");
            sh(place, &format!("mnt={}; {script}", mount.path().display()));
        }
        run(place, "undelete disk.img --to back /tree", 0);
        let (mut right, mut wrong, mut gone) = (0, 0, 0);
        for (name, &number) in &tree {
            match std::fs::read(place.join("back/tree").join(name)) {
                Ok(bytes) if bytes == content(number) => right += 1,
                Ok(_) => wrong += 1,
                Err(_) => gone += 1,
            }
        }
        println!("{fstype}: {right} with their content, {wrong} with another, {gone} gone");
        assert_eq!((right, wrong, gone), (DIRECTORIES * FILES, 0, 0), "{fstype}");
    }
}
