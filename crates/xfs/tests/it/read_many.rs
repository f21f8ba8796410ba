//! Many small files read at once: the same bytes as one by one, with few requests. Beside that:
//! tasks that append to one file, and what reports say of shared blocks and of content in inodes.

use crate::world::{Cell, file, mount, mount_read_only, repaired};
use base::Rng;
use cache::IomapKind;
use testkit::read_many::{alone, files, neighbours, requests_for, together};
use vfs::{FileSystem, NewNode};

/// Goal: reading together gives what reading alone gives. Method: random files, first dirty, then
/// on the device only, then some of them changed again.
#[test]
fn files_read_together_are_those_read_alone() {
    for seed in crate::world::seeds(3) {
        rt::testing::world(|cx| {
            let device = Cell(&[]).fresh(cx, 64 << 20);
            let (fs, _) = mount(cx, device.clone(), 8 << 20);
            let files = files(cx, &*fs, &mut Rng::new(seed, 12));
            let dirty = together(cx, &*fs, &files);
            assert_eq!(dirty, alone(cx, &*fs, &files), "dirty");
            fs.unmount(cx).expect("unmount");
            let (fs, _) = mount(cx, device, 8 << 20);
            assert_eq!(together(cx, &*fs, &files), dirty, "on the device");
            for at in [3, 17, 40] {
                fs.write(cx, files[at], 50, b"newer").expect("write");
            }
            let mixed = together(cx, &*fs, &files);
            assert_ne!(mixed, dirty);
            assert_eq!(mixed, alone(cx, &*fs, &files), "some dirty");
            fs.unmount(cx).expect("unmount");
        });
    }
}

/// Goal: files that lie side by side cost few requests. Method: 200 files of 4 KiB, counted.
#[test]
fn neighbours_cost_few_requests() {
    rt::testing::world(|cx| {
        let device = Cell(&[]).fresh(cx, 64 << 20);
        let (fs, _) = mount(cx, device.clone(), 8 << 20);
        let files = neighbours(cx, &*fs);
        fs.unmount(cx).expect("unmount");
        let (fs, queue) = mount(cx, device, 8 << 20);
        let requests = requests_for(cx, &*fs, &queue, &files);
        assert!(requests <= 8, "{requests} requests for 200 neighbours");
        fs.unmount(cx).expect("unmount");
    });
}

/// Goal: what two tasks append is all there.
#[test]
fn appenders_do_not_write_over_each_other() {
    for seed in crate::world::seeds(4) {
        rt::World::new(rt::WorldConfig::exploring(seed)).run("append", |cx| {
            let device = Cell(&[]).fresh(cx, 64 << 20);
            let (fs, _) = mount(cx, device, 8 << 20);
            testkit::content::appended_at_once(cx, &fs, 40, 1000);
            fs.unmount(cx).expect("unmount");
        });
    }
}

/// Goal: a report says which blocks others share, on a mount that writes and on one that does not,
/// and what lies in the inode. Method: a clone of the middle of a file.
#[test]
fn reports_show_what_is_shared_and_what_is_inline() {
    rt::testing::world(|cx| {
        let device = Cell(&[]).fresh(cx, 64 << 20);
        let (fs, _) = mount(cx, device.clone(), 8 << 20);
        let (a, b) = (file(cx, &fs, fs.root(), "a"), file(cx, &fs, fs.root(), "b"));
        fs.write(cx, a, 0, &[7; 10 * 4096]).expect("write");
        fs.clone_range(cx, (a, 3 * 4096), (b, 0), 4 * 4096).expect("clone");
        let link =
            fs.create(cx, fs.root(), b"link", &NewNode::symlink(b"target")).expect("symlink").ino;
        let mut fs = fs;
        for _ in 0..2 {
            let parts = fs.fiemap(cx, a, 0, u64::MAX).expect("fiemap");
            let parts: Vec<(u64, bool)> = parts
                .iter()
                .map(|part| (part.len / 4096, matches!(part.kind, IomapKind::Shared(_))))
                .collect();
            assert_eq!(parts, [(3, false), (4, true), (3, false)]);
            let parts = fs.fiemap(cx, b, 0, u64::MAX).expect("fiemap");
            assert!(matches!(parts[..], [part] if matches!(part.kind, IomapKind::Shared(_))));
            let parts = fs.fiemap(cx, link, 0, u64::MAX).expect("fiemap");
            assert!(matches!(parts[..], [part] if part.kind == IomapKind::Inline && part.len == 6));
            fs.unmount(cx).expect("unmount");
            fs = mount_read_only(cx, device.clone());
        }
        fs.unmount(cx).expect("unmount");
        repaired(&device).expect("xfs_repair finds nothing");
    });
}
