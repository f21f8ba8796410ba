//! The same journal in other hands: e2fsprogs and the kernel read and replay ours, we replay the
//! kernel's. Needs root, e2fsprogs and mount.

mod common;
mod judge;

use std::fs;
use std::path::Path;

use common::*;
use jbd2::format::{Compat, Incompat};
use jbd2::{Checksums, Journal, JournalArea, JournalOptions};
use judge::{LoopMount, assert_clean, debugfs, mke2fs, run, run_ok, temporary};

/// Extents of the journal inode, as debugfs lists them: `(log-log):block-block`, with the blocks of
/// the map itself under a name in the parentheses.
fn journal_extents(image: &Path) -> Vec<(u64, u32)> {
    let stat = debugfs(image, false, "stat <8>\n");
    let mut extents = Vec::new();
    for entry in stat.split([',', '\n', ' ']) {
        let Some((range, place)) = entry.split_once("):") else { continue };
        if !range.trim_start_matches('(').starts_with(|c: char| c.is_ascii_digit()) {
            continue;
        }
        let (first, last) = place.split_once('-').unwrap_or((place, place));
        let first: u64 = first.parse().unwrap();
        let last: u64 = last.parse().unwrap();
        extents.push((first, (last - first + 1) as u32));
    }
    assert!(!extents.is_empty(), "no extents in {stat}");
    extents
}

/// Blocks at the end of the image that no file uses.
const FREE: std::ops::Range<u64> = 60_000..60_200;

/// An image of 64 MiB with blocks of 1 KiB.
fn make_image(path: &Path, features: &str) -> Vec<(u64, u32)> {
    mke2fs(path, 64 << 20, &["-t", "ext4", "-b", "1024", "-O", features]);
    journal_extents(path)
}

/// Writes transactions to free blocks of the image and crashes.
fn write_ours(path: &Path, extents: &[(u64, u32)], options: &JournalOptions) {
    let disk = Disk::from_image(fs::read(path).unwrap());
    rt::testing::world(|cx| {
        let cache = cache_on(cx, &disk, 1024);
        let area = JournalArea::internal(extents.iter().copied());
        let (journal, report) = Journal::open(cx, cache.clone(), area, options.clone()).unwrap();
        assert_eq!(report, None);
        for round in 0..30u64 {
            let blocks: Vec<u64> = (0..60).map(|n| FREE.start + (round * 7 + n) % 150).collect();
            let tid = fill(cx, &journal, &cache, &blocks, round as u8 + 1);
            journal.commit_tid(cx, tid).unwrap();
        }
        // One block like the journal's own, and one that is given up and used for data.
        let mut handle = journal.start(cx, 2).unwrap();
        let buffer = cache.read(cx, FREE.start + 160).unwrap();
        handle.write_access(cx, &buffer).unwrap();
        buffer.with_mut(|bytes| bytes[..4].copy_from_slice(&[0xc0, 0x3b, 0x39, 0x98]));
        handle.dirty(cx, &buffer).unwrap();
        handle.revoke(cx, FREE.start + 3).unwrap();
        handle.set_sync();
        handle.stop(cx).unwrap();
        let data = base::Page::from_slice(&[0xdd; 1024]);
        let sector = base::Sector((FREE.start + 3) * 2);
        cache.queue().write(cx, sector, data, block::BioFlags::FUA).unwrap();
        journal.kill(cx);
    });
    fs::write(path, disk.image()).unwrap();
    debugfs(path, true, "feature needs_recovery\n");
}

fn check_replayed(path: &Path) {
    let image = fs::read(path).unwrap();
    let mut expected = vec![0u8; 150];
    for round in 0..30u64 {
        for n in 0..60 {
            expected[((round * 7 + n) % 150) as usize] = round as u8 + 1;
        }
    }
    expected[3] = 0xdd;
    for (index, byte) in expected.into_iter().enumerate() {
        let at = (FREE.start as usize + index) * 1024;
        assert!(image[at..at + 1024].iter().all(|&found| found == byte), "block {index}");
    }
    let at = (FREE.start as usize + 160) * 1024;
    assert_eq!(image[at..at + 5], [0xc0, 0x3b, 0x39, 0x98, 0]);
}

/// mke2fs features, and what our journal uses on them.
fn variants() -> Vec<(&'static str, JournalOptions)> {
    let options = |checksums, bit64| JournalOptions {
        checksums: Some(checksums),
        bit64,
        ..JournalOptions::default()
    };
    vec![
        ("metadata_csum,64bit", options(Checksums::V3, true)),
        ("metadata_csum,^64bit", options(Checksums::V3, false)),
        ("^metadata_csum,64bit", options(Checksums::None, true)),
        ("^metadata_csum,^64bit", options(Checksums::None, false)),
        ("^metadata_csum,64bit", options(Checksums::V1, true)),
        ("^metadata_csum,^64bit", options(Checksums::V1, false)),
        ("metadata_csum,64bit", options(Checksums::V2, true)),
        ("metadata_csum,^64bit", options(Checksums::V2, false)),
    ]
}

#[test]
fn e2fsck_replays_our_journal() {
    for (features, options) in variants() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.img");
        let extents = make_image(&path, features);
        write_ours(&path, &extents, &options);
        let dump = debugfs(&path, false, "logdump -a\n");
        assert!(dump.contains("Found expected sequence 31, type 5 (revoke table)"), "{dump}");
        let output = run("e2fsck", &[&"-fy", &path]);
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(matches!(output.status.code(), Some(0 | 1)), "{features} {options:?}: {text}");
        check_replayed(&path);
        assert_clean(&path);
    }
}

#[test]
fn the_kernel_replays_our_journal() {
    for (features, options) in variants() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.img");
        let extents = make_image(&path, features);
        write_ours(&path, &extents, &options);
        drop(LoopMount::new(&path, "rw"));
        check_replayed(&path);
        assert_clean(&path);
    }
}

/// Uses a mounted file system: many names, deleted trees (revoked blocks), a rewritten file.
fn use_mount(root: &Path) {
    for round in 0..6 {
        for dir in 0..5 {
            let dir = root.join(format!("dir{round}-{dir}"));
            fs::create_dir(&dir).unwrap();
            for file in 0..200 {
                let name = format!("a-name-that-takes-some-room-in-the-directory-{file}");
                fs::write(dir.join(name), format!("file {file} of round {round}")).unwrap();
            }
        }
        run_ok("sync", &[&"-f", &root]);
        if round % 2 == 0 {
            for dir in 0..4 {
                fs::remove_dir_all(root.join(format!("dir{round}-{dir}"))).unwrap();
            }
            fs::write(root.join("big"), vec![round as u8; 3 << 20]).unwrap();
            run_ok("sync", &[&"-f", &root]);
        }
    }
    // Small transactions last, so that the log still holds these revokes.
    for round in 0..4 {
        let dir = root.join(format!("last{round}"));
        fs::create_dir(&dir).unwrap();
        fs::write(dir.join("file"), "x").unwrap();
        run_ok("sync", &[&"-f", &root]);
        fs::remove_dir_all(dir).unwrap();
        run_ok("sync", &[&"-f", &root]);
    }
}

#[test]
fn we_replay_the_kernels_journal_as_debugfs_does() {
    // Goal: the image of a mounted file system, replayed by us and by debugfs, is the same but for
    // the superblock and the log itself.
    let cases = [
        ("ext4", "metadata_csum,64bit", "rw", "4096"),
        ("ext4", "metadata_csum,64bit", "rw,data=journal", "1024"),
        ("ext4", "^metadata_csum,^64bit", "rw,journal_checksum", "1024"),
        ("ext4", "^metadata_csum,64bit", "rw,journal_async_commit,data=writeback", "2048"),
        ("ext3", "^metadata_csum", "rw,data=journal", "1024"),
        ("ext3", "^metadata_csum", "rw", "4096"),
    ];
    for (kind, features, mount, block_size) in cases {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.img");
        mke2fs(&path, 48 << 20, &["-t", kind, "-b", block_size, "-O", features]);
        let extents = journal_extents(&path);
        let mounted = LoopMount::new(&path, mount);
        use_mount(&mounted.path());
        let dirty = fs::read(&path).unwrap();
        drop(mounted);
        let block_size: u32 = block_size.parse().unwrap();
        let case = format!("{kind} {features} {mount} {block_size}");

        let disk = Disk::from_image(dirty.clone());
        let report = rt::testing::world(|cx| {
            let cache = cache_on(cx, &disk, block_size);
            let area = JournalArea::internal(extents.iter().copied());
            let (journal, report) = Journal::open(cx, cache, area, Default::default()).unwrap();
            journal.shutdown(cx).unwrap();
            report.unwrap_or_else(|| panic!("{case}: the journal is clean"))
        });
        assert!(report.transactions > 1, "{case}: {report:?}");
        // With data=journal Linux logs every reuse of a block, so it revokes nothing.
        assert!(report.revokes > 0 || mount.contains("data=journal"), "{case}: {report:?}");
        println!("{case}: {report:?}");

        let theirs = temporary(&dirty);
        // Not `e2fsck -E journal_only`: that one corrects the group descriptors as well.
        debugfs(theirs.path(), true, "journal_run\n");
        compare(&case, &disk.image(), &fs::read(theirs.path()).unwrap(), &extents, block_size);

        let ours = temporary(&disk.image());
        debugfs(ours.path(), true, "feature -needs_recovery\n");
        assert_clean(ours.path());
    }
}

fn compare(case: &str, ours: &[u8], theirs: &[u8], journal: &[(u64, u32)], block_size: u32) {
    let size = block_size as usize;
    for (block, (a, b)) in ours.chunks(size).zip(theirs.chunks(size)).enumerate() {
        let in_log = journal
            .iter()
            .any(|&(first, len)| (first..first + u64::from(len)).contains(&(block as u64)));
        let in_superblock = block * size <= 1024 && 1024 < (block + 1) * size;
        assert!(a == b || in_log || in_superblock, "{case}: block {block} differs");
    }
}

#[test]
fn the_kernel_goes_on_with_a_journal_that_we_have_left() {
    // Goal: kernel, we, kernel, we on one image; features that the kernel set stay.
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.img");
    let extents = make_image(&path, "metadata_csum,64bit");
    {
        let mounted = LoopMount::new(&path, "rw");
        fs::write(mounted.path().join("first"), "1").unwrap();
    }
    let disk = Disk::from_image(fs::read(&path).unwrap());
    rt::testing::world(|cx| {
        let cache = cache_on(cx, &disk, 1024);
        let area = JournalArea::internal(extents.iter().copied());
        let (journal, report) = Journal::open(cx, cache.clone(), area, Default::default()).unwrap();
        assert_eq!(report, None);
        fill(cx, &journal, &cache, &[FREE.start], 5);
        journal.shutdown(cx).unwrap();
    });
    let image = disk.image();
    let at = extents[0].0 as usize * 1024;
    let sb = jbd2::format::Superblock::parse(&image[at..at + 1024]).unwrap();
    assert!(sb.incompat.contains(Incompat::CSUM_V3 | Incompat::BIT64), "{sb:?}");
    assert_eq!(sb.compat, Compat::empty());
    fs::write(&path, image).unwrap();
    assert_clean(&path);
    {
        let mounted = LoopMount::new(&path, "rw");
        assert_eq!(fs::read(mounted.path().join("first")).unwrap(), b"1");
        fs::write(mounted.path().join("second"), "2").unwrap();
    }
    assert_clean(&path);
}
