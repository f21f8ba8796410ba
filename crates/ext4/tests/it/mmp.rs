//! Multi-mount protection: one writer at a time, whoever and wherever he is.

use std::sync::Arc;

use crate::support::*;
use base::{Errno, Nanos};
use device::MemoryDevice;
use ext4::format::mmp::{self, CLEAN, FSCK, Mmp};
use ext4::format::{Geometry, RawSuper};
use ext4::{MountError, MountOptions};
use rt::Cx;
use testkit::judge::{self, LoopMount};
use vfs::FileSystem;

const CELL: Cell = Cell::new("ext4", 4096).features("mmp");

fn geometry(device: &MemoryDevice) -> (RawSuper, Geometry) {
    let mut bytes = [0; 1024];
    device.read_at(1024, &mut bytes);
    let raw = RawSuper::read(&bytes).expect("it has the size");
    (raw, Geometry::parse(&bytes, 0).expect("a sound superblock"))
}

fn seed(geometry: &Geometry) -> Option<u32> {
    geometry.checksums.metadata.then_some(geometry.checksums.seed)
}

fn look(device: &MemoryDevice) -> Mmp {
    let (raw, geometry) = geometry(device);
    let mut block = [0; mmp::SIZE];
    device.read_at(raw.s_mmp_block.get() * u64::from(geometry.block_size), &mut block);
    Mmp::parse(&block, seed(&geometry)).expect("a sound block")
}

fn put(device: &MemoryDevice, sequence: u32, node: &str) {
    let (raw, geometry) = geometry(device);
    let mut block = [0; mmp::SIZE];
    let found = look(device);
    Mmp { sequence, node: node.to_string(), ..found }.emit(&mut block, seed(&geometry));
    device.write_at(raw.s_mmp_block.get() * u64::from(geometry.block_size), &block);
}

fn options() -> MountOptions {
    MountOptions { node: "we".to_string(), ..MountOptions::default() }
}

fn attempt(cx: &mut Cx, device: &Arc<MemoryDevice>) -> Result<Arc<ext4::Ext4>, MountError> {
    try_mount(cx, device.clone(), 4 << 20, options()).map(|(fs, _)| fs)
}

/// Goal: while a mount lives its number changes, another mount waits, sees that and is refused with
/// the name of the node; afterwards the number is that of a clean file system.
#[test]
fn a_second_mount_is_refused_while_the_first_lives() {
    for cell in [CELL, CELL.features("mmp,^metadata_csum").mke2fs()] {
        rt::testing::world(|cx| {
            let device = cell.fresh(cx, 24 << 20);
            assert_eq!(look(&device).sequence, CLEAN);
            let begun = cx.now();
            let fs = attempt(cx, &device).expect("nobody has it");
            assert!(cx.now().since(begun) < Nanos::from_secs(1), "a clean one is not waited for");
            let first = look(&device);
            assert_eq!(first.node, "we");
            create(cx, &*fs, fs.root(), "file");
            cx.sleep(Nanos::from_secs(12));
            assert_eq!(look(&device).sequence, first.sequence + 2);
            let refused = attempt(cx, &device).map(drop).expect_err("it is in use");
            assert_eq!(refused.to_errno(), Errno::EBUSY);
            assert!(refused.to_string().contains("\"we\""), "{refused}");
            let (reader, _) = {
                let read_only = MountOptions { read_only: true, ..options() };
                try_mount(cx, device.clone(), 4 << 20, read_only).expect("reading is allowed")
            };
            reader.unmount(cx).expect("unmount");
            fs.unmount(cx).expect("unmount");
            assert_eq!(look(&device).sequence, CLEAN);
            checked(cx, &device, "after the mount");
            e2fsck(&device, "after the mount");
        });
    }
}

/// Goal: what a crashed mount left is taken over after the waits, what a check left is not.
#[test]
fn a_dead_number_is_taken_over_and_a_check_is_not_disturbed() {
    rt::testing::world(|cx| {
        let device = CELL.fresh(cx, 24 << 20);
        let fs = attempt(cx, &device).expect("nobody has it");
        create(cx, &*fs, fs.root(), "file");
        fs.sync(cx).expect("sync");
        fs.shutdown_hard();
        cx.sleep(Nanos::from_secs(30));
        let begun = cx.now();
        let fs = attempt(cx, &device).expect("nobody is alive");
        assert!(cx.now().since(begun) >= Nanos::from_secs(22), "two waits");
        assert!(fs.lookup(cx, fs.root(), b"file").is_ok());
        fs.unmount(cx).expect("unmount");
        put(&device, FSCK, "checker");
        let refused = attempt(cx, &device).map(drop).expect_err("a check is at work");
        assert!(refused.to_string().contains("checker"), "{refused}");
        put(&device, CLEAN, "checker");
        attempt(cx, &device).expect("it is over").unmount(cx).expect("unmount");
    });
}

/// The power fails while the block is written: its first sector is new, and its checksum is of the
/// old one. The mount was refused as damaged; nobody writes the block, so that it is taken over. A
/// block whose writer lives is not.
#[test]
fn a_torn_block_is_taken_over_where_nobody_writes_it() {
    rt::testing::world(|cx| {
        let device = CELL.fresh(cx, 24 << 20);
        let fs = attempt(cx, &device).expect("nobody has it");
        create(cx, &*fs, fs.root(), "file");
        fs.sync(cx).expect("sync");
        fs.shutdown_hard();
        cx.sleep(Nanos::from_secs(30));
        let (raw, geometry) = geometry(&device);
        let place = raw.s_mmp_block.get() * u64::from(geometry.block_size);
        device.write_at(place + 4, &77u32.to_le_bytes());
        let fs = attempt(cx, &device).expect("nobody is alive");
        assert!(fs.lookup(cx, fs.root(), b"file").is_ok());
        // Torn for somebody who looks while the other one lives.
        device.write_at(place + 4, &look(&device).sequence.wrapping_add(9).to_le_bytes());
        let mut block = [0; mmp::SIZE];
        device.read_at(place, &mut block);
        let healer = device.clone();
        let alive = cx.spawn("alive", move |cx| {
            cx.sleep(Nanos::from_secs(3));
            let mut whole = block;
            for beat in 0..9u32 {
                let found =
                    Mmp { sequence: 500 + beat, ..Mmp::parse(&whole, None).expect("magic") };
                found.emit(&mut whole, seed(&geometry));
                healer.write_at(place, &whole);
                cx.sleep(Nanos::from_secs(5));
            }
        });
        let refused = attempt(cx, &device).map(drop).expect_err("it is in use");
        assert_eq!(refused.to_errno(), Errno::EBUSY, "{refused}");
        alive.join(cx);
        fs.shutdown_hard();
    });
}

/// Goal: whoever finds another number in the block stops writing, and leaves the block to him.
#[test]
fn a_mount_whose_block_was_taken_stops() {
    rt::testing::world(|cx| {
        let device = CELL.fresh(cx, 24 << 20);
        let fs = attempt(cx, &device).expect("nobody has it");
        put(&device, 77, "thief");
        cx.sleep(Nanos::from_secs(6));
        let node = vfs::NewNode::new(vfs::FileType::Regular, 0o600);
        assert!(fs.create(cx, fs.root(), b"late", &node).is_err());
        assert!(fs.error().is_some_and(|text| text.contains("thief")));
        let _failed = fs.unmount(cx);
        assert_eq!(look(&device).sequence, 77, "it is the other's");
    });
}

/// Goal: a block that is none refuses the mount by name, and nothing is written.
#[test]
fn a_damaged_block_is_refused() {
    rt::testing::world(|cx| {
        let device = CELL.fresh(cx, 24 << 20);
        let (raw, geometry) = geometry(&device);
        device.write_at(raw.s_mmp_block.get() * u64::from(geometry.block_size), b"x");
        let before = device.snapshot();
        let refused = attempt(cx, &device).map(drop).expect_err("a wrong magic number");
        assert!(refused.to_string().contains("multi-mount"), "{refused}");
        assert!(before == device.snapshot(), "nothing was written");
    });
}

/// Goal: the kernel mounts what we left, and we what it left.
#[test]
fn the_kernel_and_we_take_turns() {
    rt::testing::world(|cx| {
        let device = CELL.fresh(cx, 24 << 20);
        let fs = attempt(cx, &device).expect("nobody has it");
        create(cx, &*fs, fs.root(), "ours");
        fs.unmount(cx).expect("unmount");
        let file = testkit::image::write_device(&device);
        let kernel = LoopMount::new(file.path(), "ext4", "rw").expect("the kernel mounts it");
        std::fs::write(kernel.path().join("theirs"), b"content").expect("a file");
        drop(kernel);
        judge::e2fsck(file.path()).expect("sound");
        let device = Arc::new(testkit::image::load(file.path()));
        let fs = attempt(cx, &device).expect("the kernel gave it back");
        assert!(fs.lookup(cx, fs.root(), b"theirs").is_ok());
        fs.unmount(cx).expect("unmount");
        e2fsck(&device, "after both");
    });
}
