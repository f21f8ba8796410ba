//! `-o legacy_lookups`: the lookups by block number of an ext4 of 2.6.32 and of 3.10, in their
//! order, and no other difference.

use crate::support::*;
use block::Device;
use cache::LruKind;
use ext4::{Ext4, LegacyLookups, MountOptions};
use rt::Cx;
use std::sync::Arc;
use testkit::trials;
use vfs::{FileSystem, NewNode, SetAttr};

use LegacyLookups::{Linux2_6_32, Linux3_10, Off};

/// A cell that is mounted with the lookups of a kernel.
#[derive(Clone, Copy, Debug)]
struct Legacy(Cell, LegacyLookups);

impl Legacy {
    fn mount_with(self, cx: &mut Cx, device: Arc<dyn Device>, cache: u64) -> Arc<Ext4> {
        let legacy_lookups = self.1;
        let options = MountOptions { legacy_lookups, name_cache: 0, ..MountOptions::default() };
        try_mount(cx, device, cache, options).expect("it mounts").0
    }
}

impl Format for Legacy {
    type Fs = Ext4;

    fn fresh(&self, cx: &mut Cx, bytes: u64) -> Arc<device::MemoryDevice> {
        self.0.fresh(cx, bytes)
    }

    fn mount(&self, cx: &mut Cx, device: Arc<dyn Device>, cache: u64) -> Arc<Ext4> {
        self.mount_with(cx, device, cache)
    }

    fn check(&self, cx: &mut Cx, device: &Arc<device::MemoryDevice>) -> Result<(), String> {
        self.0.check(cx, device)
    }

    fn judge(&self, device: &device::MemoryDevice) -> Result<(), String> {
        self.0.judge(device)
    }
}

/// The blocks that one operation looked up, in order.
fn recorded(cx: &mut Cx, fs: &Arc<Ext4>, act: impl FnOnce(&mut Cx)) -> Vec<u64> {
    let buffers = fs.buffers();
    let mut spare = buffers.spare_lrus(LruKind::Recorded(64));
    buffers.exchange_lrus(&mut spare);
    act(cx);
    buffers.exchange_lrus(&mut spare);
    spare.take_recorded().concat()
}

/// Makes a directory of so many names, each block of which lies apart from the one before.
fn fragmented(cx: &mut Cx, fs: &Ext4, names: u64) -> base::Ino {
    let dir = mkdir(cx, fs, fs.root(), "dir");
    let others = mkdir(cx, fs, dir, "others");
    let mut size = 0;
    for n in 0..names {
        create(cx, fs, dir, &format!("some name of usual length {n}"));
        let now = fs.getattr(cx, dir).expect("stat").size;
        if now > size {
            let link = NewNode::symlink(&[b'x'; 100]);
            fs.create(cx, others, now.to_string().as_bytes(), &link).expect("a link");
            size = now;
        }
    }
    dir
}

/// What one create, one lookup, one removal and one chown look up in a large directory.
struct Lists {
    creates: [Vec<u64>; 2],
    lookup: Vec<u64>,
    remove: Vec<u64>,
    chown: Vec<u64>,
}

fn lists(features: &'static str, whose: LegacyLookups, names: u64) -> Lists {
    let cell = Cell::new("ext4", 1024).features(features);
    rt::testing::world(|cx| {
        let device = cell.fresh(cx, 128 << 20);
        let fs = Legacy(cell, whose).mount_with(cx, device.clone(), 16 << 20);
        let dir = fragmented(cx, &fs, names);
        // What is known of the directory's map is known, and both quota files have both owners.
        for n in 0..names {
            fs.lookup(cx, dir, format!("some name of usual length {n}").as_bytes()).expect("there");
        }
        let owner = SetAttr { uid: Some(7), gid: Some(8), ..SetAttr::default() };
        let other = create(cx, &*fs, dir, "other");
        fs.setattr(cx, other, &owner).expect("chown");
        let mut ino = other;
        let creates =
            ["one", "two"].map(|name| recorded(cx, &fs, |cx| ino = create(cx, &*fs, dir, name)));
        let chown = recorded(cx, &fs, |cx| {
            fs.setattr(cx, ino, &owner).expect("chown");
        });
        let lookup = recorded(cx, &fs, |cx| {
            fs.lookup(cx, dir, b"one").expect("there");
        });
        let remove = recorded(cx, &fs, |cx| fs.unlink(cx, dir, b"one").expect("removed"));
        fs.unmount(cx).expect("unmount");
        e2fsck(&device, &format!("{features}, {whose:?}"));
        Lists { creates, lookup, remove, chown }
    })
}

/// Goal: a create looks up what the page `docs/bh-lru.md` says, in that order: with quota 19 blocks
/// where the directory's map has one level of blocks and 25 where it has two, without quota two
/// fewer, without the map 13 and 11. Method: the blocks are recorded; which is which follows from
/// where they come again.
#[test]
fn a_create_looks_up_what_linux_did_in_its_order() {
    for (features, whose, names, levels) in [
        ("quota", Linux2_6_32, 2500, 1),
        ("quota", Linux2_6_32, 9000, 2),
        ("quota", Linux3_10, 9000, 0),
        ("", Linux2_6_32, 2500, 1),
        ("", Linux3_10, 2500, 0),
    ] {
        let what = format!("{features}, {whose:?}, {names} names");
        let Lists { creates: [one, two], lookup, remove, chown } = lists(features, whose, names);
        let quota = if features == "quota" { 2 } else { 0 };
        let walk = 3 * (levels + 1);
        assert_eq!(one.len(), 2 * walk + 5 + quota, "{what}: {one:?}");
        assert_eq!(lookup.len(), walk, "{what}: {lookup:?}");
        for list in [&one, &two] {
            let again = walk + 1 + quota + 2;
            assert_eq!(list[..walk], list[again..again + walk], "{what}: two walks, {list:?}");
            let slot = list[walk + 1 + quota];
            assert_eq!(list[walk + 2 + quota], slot, "{what}: {list:?}");
            assert_eq!(list[list.len() - 1], slot, "{what}: the new slot is last, {list:?}");
        }
        // The bitmap, the quota files and the directory's slot are the same for both, the leaves
        // not; all of them are different blocks.
        let fixed =
            |list: &[u64]| [&list[walk..walk + 1 + quota], &list[list.len() - 2..][..1]].concat();
        assert_eq!(fixed(&one), fixed(&two), "{what}");
        assert_ne!(one[walk - 1], two[walk - 1], "{what}: two leaves");
        let mut all = [fixed(&one), one[..walk].to_vec(), vec![one[walk + 1 + quota]]].concat();
        let count = all.len();
        all.sort_unstable();
        all.dedup();
        // Near ones share the blocks of the map.
        assert!(all.len() + 2 * levels >= count, "{what}: {one:?}");

        assert_eq!(remove.len(), walk + 1 + 4 + quota + 2, "{what}: {remove:?}");
        assert_eq!(remove.last(), Some(&one[walk]), "{what}: the bitmap is last, {remove:?}");
        assert_eq!(chown.len(), 2 * quota + 1, "{what}: {chown:?}");
    }
}

/// Goal: without the option no such lookup is made: a create in the same directory looks up six to
/// nine blocks.
#[test]
fn without_the_option_nothing_is_looked_up_twice() {
    let Lists { creates, .. } = lists("quota", Off, 2500);
    assert!(creates.iter().all(|list| (6..=10).contains(&list.len())), "{creates:?}");
}

/// Goal: what is written is the same. Method: power cuts in random operations with both kinds of
/// lookups and with quota; e2fsck and our check judge.
#[test]
fn what_is_written_survives_power_cuts_as_before() {
    let cells = [
        (Cell::new("ext4", 4096).journal(1024).features("quota"), Linux2_6_32),
        (Cell::new("ext4", 1024).journal(1024).features("quota"), Linux3_10),
        (Cell::new("ext3", 1024).journal(1024), Linux2_6_32),
    ];
    for ((cell, whose), seed) in cells.into_iter().zip(seeds(3)) {
        let format = Legacy(cell, whose);
        let run = Recording { cell: format, seed, bytes: 24 << 20, cache: 2 << 20 };
        trials::anything_goes(run, 60, &crate::support::campaign::config(seed, 20));
    }
}
