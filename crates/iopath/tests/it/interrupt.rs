//! Ctrl-C while an archive is copied in: the image is sound, and the command says how far it came.

#![allow(clippy::disallowed_methods, reason = "the host's own programs are tested, in real time")]

use std::fs;
use std::io::{Read, Write};
use std::process::{Command, Stdio};

use crate::command::ok_in;
use testkit::judge::{e2fsck, run_ok, xfs_repair};

#[test]
fn an_interrupted_copy_leaves_a_sound_image_and_says_how_far_it_came() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    fs::create_dir(dir.join("tree")).unwrap();
    for number in 0..100 {
        fs::write(dir.join(format!("tree/{number}")), vec![number + 1; 20_000]).unwrap();
    }
    let tar = dir.join("tree.tar");
    run_ok("tar", &[&"-C", &dir, &"-cf", &tar, &"tree"]);
    let mut members = fs::read(&tar).unwrap();
    let end = members.iter().rposition(|&b| b != 0).unwrap() + 1;
    members.truncate(end.next_multiple_of(512));
    for kind in ["ext4", "xfs"] {
        let image = dir.join(format!("{kind}.img"));
        ok_in(dir, &format!("mkfs -q -t {kind} --size 320M {kind}.img"));
        let mut child = Command::new(env!("CARGO_BIN_EXE_iopath"))
            .args(["cp", "-a", "-", &format!("{kind}.img:/")])
            .current_dir(dir)
            .stdin(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut pipe = child.stdin.take().unwrap();
        pipe.write_all(&members).unwrap();
        run_ok("kill", &[&"-INT", &child.id().to_string()]);
        // The archive goes on until nobody reads it: the same names again and again.
        let mut copies = 1;
        while copies < 1000 && pipe.write_all(&members).is_ok() {
            copies += 1;
        }
        drop(pipe);
        let mut said = String::new();
        child.stderr.take().unwrap().read_to_string(&mut said).unwrap();
        assert_eq!(child.wait().unwrap().code(), Some(130), "{kind}: {said}");
        assert!(said.contains("interrupted after"), "{kind}: {said}");
        match kind {
            "ext4" => e2fsck(&image).unwrap(),
            _ => xfs_repair(&image).unwrap(),
        }
    }
}

#[test]
fn an_interrupted_build_leaves_no_image() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    fs::write(dir.join("old.img"), vec![b'o'; 1 << 20]).unwrap();
    let mut child = Command::new(env!("CARGO_BIN_EXE_iopath"))
        .args(["mkfs", "-F", "--size", "320M", "-d", "-", "old.img"])
        .current_dir(dir)
        .stdin(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let member = {
        let tar = dir.join("a.tar");
        fs::write(dir.join("a"), vec![1; 500_000]).unwrap();
        run_ok("tar", &[&"-C", &dir, &"-cf", &tar, &"a"]);
        let mut bytes = fs::read(&tar).unwrap();
        bytes.truncate(512 + 500_000usize.next_multiple_of(512));
        bytes
    };
    let mut pipe = child.stdin.take().unwrap();
    pipe.write_all(&member).unwrap();
    run_ok("kill", &[&"-INT", &child.id().to_string()]);
    let mut copies = 1;
    while copies < 1000 && pipe.write_all(&member).is_ok() {
        copies += 1;
    }
    drop(pipe);
    let mut said = String::new();
    child.stderr.take().unwrap().read_to_string(&mut said).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(130), "{said}");
    assert!(fs::read(dir.join("old.img")).unwrap() == vec![b'o'; 1 << 20], "{said}");
}
