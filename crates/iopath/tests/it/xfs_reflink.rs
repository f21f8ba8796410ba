//! `cp --reflink` on an XFS image: nothing is copied, each file has its own content afterwards.

use std::path::Path;
use std::process::{Command, Output};

use testkit::judge::{self, LoopMount};

fn iopath(args: &[&str]) -> Output {
    let output = Command::new(env!("CARGO_BIN_EXE_iopath")).args(args).output();
    output.expect("iopath runs")
}

fn ok(args: &[&str]) -> String {
    let output = iopath(args);
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "iopath {args:?}: {text}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn free_blocks(image: &str) -> u64 {
    let told = ok(&["df", "--json", image]);
    let told: serde_json::Value = serde_json::from_str(&told).expect("JSON");
    told["blocks_free"].as_u64().expect("df tells what is free")
}

fn host(dir: &Path, name: &str, byte: u8, len: usize) -> String {
    let path = dir.join(name);
    let data: Vec<u8> = (0..len).map(|at| byte.wrapping_add((at / 1000) as u8)).collect();
    std::fs::write(&path, data).expect("written");
    path.to_str().expect("UTF-8").to_owned()
}

#[test]
fn files_share_blocks_and_part_again() {
    let dir = tempfile::tempdir().expect("a directory");
    let image = dir.path().join("disk.img").to_str().expect("UTF-8").to_owned();
    ok(&["mkfs", "-q", "-t", "xfs", "--size", "512M", &image]);
    let (large, small) =
        (host(dir.path(), "large", 1, 6_000_000), host(dir.path(), "small", 9, 3_000));
    ok(&["mkdir", &format!("{image}:/tree")]);
    ok(&["cp", &large, &small, &format!("{image}:/tree")]);
    let before = free_blocks(&image);
    ok(&["cp", "-a", "--reflink", &format!("{image}:/tree"), &format!("{image}:/twin")]);
    let taken = before - free_blocks(&image);
    assert!(taken < 40, "sharing 6 MB took {taken} blocks");
    // A file that is replaced leaves the other one alone.
    ok(&["cp", &small, &format!("{image}:/tree/large")]);
    let back = dir.path().join("back");
    ok(&["cp", &format!("{image}:/twin/large"), back.to_str().expect("UTF-8")]);
    assert!(std::fs::read(&back).expect("read") == std::fs::read(&large).expect("read"));
    ok(&["check", &image]);
    judge::xfs_repair(Path::new(&image)).unwrap_or_else(|text| panic!("{text}"));
    let mount = LoopMount::new(Path::new(&image), "xfs", "ro").expect("the kernel mounts");
    let found = std::fs::read(mount.path().join("twin/large")).expect("read");
    assert!(found == std::fs::read(&large).expect("read"), "the kernel reads otherwise");
    drop(mount);
    let refused = iopath(&["cp", "--reflink", &small, &format!("{image}:/x")]);
    let text = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(!refused.status.success() && text.contains("--reflink"), "{text}");
}
