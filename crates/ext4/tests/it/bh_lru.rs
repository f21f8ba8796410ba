//! What a transaction looks up: the size that each kind of file system declares for the LRU of
//! buffers is measured against real operations.

use crate::support::*;
use ext4::format::Geometry;
use ext4::format::super_block::SUPER_OFFSET;
use ext4::{BhLru, MountOptions, transaction_blocks};
use vfs::FileSystem;

/// Creates and removals that are counted.
const OPERATIONS: u64 = 800;

/// Hits by depth of creates and removals in a directory of `names`, in an array of 64.
fn hits(cell: Cell, names: u64) -> (Vec<u64>, usize) {
    let mut found = None;
    rt::testing::world(|cx| {
        let device = cell.fresh(cx, 64 << 20);
        let mut raw = vec![0; 1024];
        device.read_at(SUPER_OFFSET, &mut raw);
        let geometry = Geometry::parse(&raw, 0).expect("a superblock");
        let options = MountOptions { bh_lru: BhLru::Fixed(64), ..MountOptions::default() };
        let (fs, _) = try_mount(cx, device, 16 << 20, options).expect("mount");
        let dir = mkdir(cx, &*fs, fs.root(), "dir");
        for n in 0..names {
            create(cx, &*fs, dir, &format!("some name of usual length {n}"));
        }
        let before = fs.buffers().stats().lru_hits;
        for n in 0..OPERATIONS / 2 {
            create(cx, &*fs, dir, &format!("another name of usual length {n}"));
        }
        for n in 0..OPERATIONS / 2 {
            fs.unlink(cx, dir, format!("another name of usual length {n}").as_bytes()).unwrap();
        }
        let after = fs.buffers().stats().lru_hits;
        let hits = after.iter().zip(&before).map(|(after, before)| after - before).collect();
        fs.unmount(cx).expect("unmount");
        found = Some((hits, transaction_blocks(&geometry)));
    });
    found.expect("the world has run")
}

#[test]
fn what_is_declared_holds_what_is_used_again() {
    // Goal: the depths at which a fifth of the operations or more find a block in an array of 64
    // lie within what is declared; with quota of three kinds not within half of it.
    let small = Cell::new("ext4", 1024);
    for (cell, names) in [
        (Cell::new("ext2", 1024), 3000),
        (Cell::new("ext3", 1024), 3000),
        (small, 300),
        (small, 6000),
        (small.features("quota"), 6000),
        (small.features("quota,project"), 6000),
        (Cell::new("ext4", 4096).features("quota,project"), 6000),
    ] {
        let (hits, declared) = hits(cell, names);
        // What few operations use again is a leaf that comes round by chance.
        let needed = hits.iter().rposition(|&count| count >= OPERATIONS / 5).map_or(0, |d| d + 1);
        assert!(needed <= declared, "{cell:?}: {declared} entries, hits by depth {hits:?}");
        println!("{cell:?}, {names} names: {needed} needed, {declared} declared");
        if cell.features == "quota,project" {
            assert!(needed > declared / 2, "{cell:?}: {declared} entries are too many");
        }
    }
}

#[test]
fn quota_declares_more_and_the_user_may_overrule() {
    let kind = |features: &'static str, bh_lru: BhLru| {
        let mut kind = None;
        rt::testing::world(|cx| {
            let device = Cell::new("ext4", 4096).features(features).fresh(cx, 16 << 20);
            let options = MountOptions { bh_lru, ..MountOptions::default() };
            let (fs, _) = try_mount(cx, device, 4 << 20, options).expect("mount");
            kind = Some(fs.buffers().lru_kind());
            fs.unmount(cx).expect("unmount");
        });
        kind.expect("the world has run")
    };
    let entries = |features, bh_lru| kind(features, bh_lru).entries();
    assert!(entries("", BhLru::Array) < entries("quota,project", BhLru::Array));
    assert!(entries("", BhLru::Sets) <= entries("quota", BhLru::Sets));
    assert_eq!(kind("quota", BhLru::Fixed(12)), cache::LruKind::Array(12));
}
