//! A directory that is far larger than the memory given to it is built, walked, looked at and
//! emptied, and at no time does anything in memory outgrow its bound: buffers, inodes, names.

use crate::support::*;
use ext4::{Ext4, MountOptions};
use rt::Cx;
use vfs::FileSystem;

/// Names: a tree of two levels with blocks of 1 KiB, 20 times the inodes in memory.
const NAMES: u64 = 12_000;
const BLOCK: u64 = 1024;
const JOURNAL_BLOCKS: u64 = 1024;
const BUFFER_BYTES: u64 = 1 << 20;
const INODES: usize = 600;
const CACHED_NAMES: usize = 1024;
/// Operations between two looks at the counters.
const LOOK: u64 = 250;

/// The most that was held at any look.
#[derive(Default, Debug)]
struct Held {
    buffer_bytes: u64,
    inodes: usize,
    name_bytes: u64,
    looks: u64,
}

impl Held {
    fn look(&mut self, fs: &Ext4) {
        self.buffer_bytes = self.buffer_bytes.max(fs.buffers().stats().buffers * BLOCK);
        self.inodes = self.inodes.max(fs.cached_inodes());
        self.name_bytes = self.name_bytes.max(fs.name_cache_bytes());
        self.looks += 1;
    }
}

fn name(n: u64) -> String {
    format!("file.mdtest.0.{n}")
}

fn each(cx: &mut Cx, fs: &Ext4, held: &mut Held, mut work: impl FnMut(&mut Cx, &str)) {
    for n in 0..NAMES {
        work(cx, &name(n));
        if n % LOOK == 0 {
            held.look(fs);
        }
    }
}

#[test]
fn a_directory_larger_than_memory_is_built_walked_and_emptied_within_it() {
    // Goal: the buffers of the directory, of its inodes and of the journal are a multiple of what
    // is allowed, and so are inodes and names; each stays below its limit, the buffers apart from
    // what the journal cannot let go before its next checkpoint, which is at most its log.
    rt::testing::real(|cx| {
        let cell = Cell::new("ext4", BLOCK as u32).journal(JOURNAL_BLOCKS);
        let device = cell.fresh(cx, 64 << 20);
        let options = MountOptions {
            buffer_limit_bytes: BUFFER_BYTES,
            inode_cache: INODES,
            name_cache: CACHED_NAMES,
            ..MountOptions::default()
        };
        let (fs, _) = try_mount(cx, device.clone(), 2 << 20, options).expect("mount");
        let dir = mkdir(cx, &*fs, fs.root(), "dir");
        let mut held = Held::default();
        each(cx, &fs, &mut held, |cx, name| {
            create(cx, &*fs, dir, name);
        });
        let mut walked = 0;
        fs.readdir(cx, dir, 0, &mut |_| {
            walked += 1;
            if walked % LOOK == 0 {
                held.look(&fs);
            }
            true
        })
        .expect("readdir");
        assert_eq!(walked, NAMES + 2);
        each(cx, &fs, &mut held, |cx, name| {
            fs.lookup(cx, dir, name.as_bytes()).expect("stat");
        });
        each(cx, &fs, &mut held, |cx, name| {
            fs.unlink(cx, dir, name.as_bytes()).expect("unlink");
        });
        let made = fs.buffers().stats();
        fs.rmdir(cx, fs.root(), b"dir").expect("the directory is empty");
        fs.unmount(cx).expect("unmount");
        println!("{held:?}, {} buffers made, {} dropped", made.created, made.reclaimed);
        // It was larger than what it was given, or the test shows nothing.
        assert!(made.created * BLOCK > 4 * BUFFER_BYTES, "{made:?}");
        assert!(held.looks > 4 * (NAMES / LOOK) - 1);
        assert!(held.buffer_bytes <= BUFFER_BYTES + JOURNAL_BLOCKS * BLOCK, "{held:?}");
        assert!(held.inodes <= INODES + INODES / 4, "{held:?}");
        assert!(held.name_bytes <= 64 * CACHED_NAMES.next_power_of_two() as u64, "{held:?}");
        e2fsck(&device, "emptied");
    });
}

/// Goal: without a journal fresh inode tables are written as they fill, though nobody reads them.
/// Method: ten times as many inodes as the limit has room for.
#[test]
fn inodes_without_a_journal_are_written_within_the_limit() {
    rt::testing::real(|cx| {
        let device = Cell::new("ext4", BLOCK as u32).fresh(cx, 64 << 20);
        let options = MountOptions {
            buffer_limit_bytes: BUFFER_BYTES / 4,
            inode_cache: INODES,
            without_journal: true,
            ..MountOptions::default()
        };
        let (fs, _) = try_mount(cx, device.clone(), 2 << 20, options).expect("mount");
        let mut held = Held::default();
        each(cx, &fs, &mut held, |cx, name| {
            create(cx, &*fs, fs.root(), name);
        });
        fs.unmount(cx).expect("unmount");
        const { assert!(NAMES * 256 > 10 * BUFFER_BYTES / 4) };
        assert!(held.buffer_bytes <= BUFFER_BYTES / 4 + BUFFER_BYTES / 16, "{held:?}");
        e2fsck(&device, "filled");
    });
}
