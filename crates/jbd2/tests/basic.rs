//! Commit, recovery, wrap, revoke, abort: one journal, few tasks.

mod common;

use base::{Errno, Nanos};
use common::*;
use jbd2::JournalOptions;
use jbd2::format::{BlockType, Checksums, Header, Incompat, Layout, descriptor};
use rt::testing::both;

const PLACE: JournalPlace = JournalPlace { block_size: 1024, start: 8192, len: 256 };
const SIZE: usize = 16 << 20;

fn block_of(image: &[u8], block: u64) -> &[u8] {
    &image[block as usize * 1024..][..1024]
}

fn log_block(image: &[u8], log: u32) -> &[u8] {
    block_of(image, PLACE.area().map(log).0)
}

#[test]
fn a_commit_has_the_bytes_that_the_format_demands() {
    // Goal: what lies on disk after one commit, block by block.
    both(|cx| {
        let disk = Disk::new(SIZE);
        format(&disk, PLACE, |_| {});
        let options =
            JournalOptions { checksums: Some(Checksums::V3), bit64: true, ..Default::default() };
        let (journal, cache, report) = open(cx, &disk, PLACE, options).unwrap();
        assert_eq!(report, None);
        let tid = fill(cx, &journal, &cache, &[100, 7, 300], 0xab);
        journal.commit_tid(cx, tid).unwrap();
        let image = disk.image();
        assert_eq!(block_of(&image, 7)[0], 0, "nothing is at its place yet");
        let sb = superblock(&image, PLACE);
        assert_eq!((sb.start, sb.sequence), (1, 1));
        assert_eq!(sb.incompat, Incompat::CSUM_V3 | Incompat::BIT64);
        let layout = Layout::new(&sb);
        let first = log_block(&image, 1);
        let kind = Ok(BlockType::Descriptor);
        assert_eq!(Header::parse(first), Some(Header { kind, sequence: 1 }));
        layout.verify_tail(first).unwrap();
        let tags = descriptor::parse(&layout, first);
        assert_eq!(tags.iter().map(|tag| tag.block).collect::<Vec<_>>(), [7, 100, 300]);
        for (index, tag) in tags.iter().enumerate() {
            let logged = log_block(&image, 2 + index as u32);
            assert_eq!(logged, [0xab; 1024]);
            assert!(tag.verify(&layout, 1, logged));
        }
        let commit = log_block(&image, 5);
        assert_eq!(Header::parse(commit).unwrap().kind, Ok(BlockType::Commit));
        jbd2::format::CommitBlock::verify(&layout, commit).unwrap();
        journal.shutdown(cx).unwrap();
        let image = disk.image();
        assert_eq!(block_of(&image, 300), [0xab; 1024]);
        let sb = superblock(&image, PLACE);
        assert_eq!((sb.start, sb.sequence), (0, 2));
    });
}

#[test]
fn a_commit_costs_one_flush_and_one_forced_write() {
    // Goal: 500 operations and one sync are one flush; the checkpoint and the clean mark one more.
    both(|cx| {
        let disk = Disk::new(SIZE);
        format(&disk, PLACE, |_| {});
        let (journal, cache, _) = open(cx, &disk, PLACE, JournalOptions::default()).unwrap();
        disk.clear_log();
        for n in 0..500 {
            fill(cx, &journal, &cache, &[n % 20, 500 + n % 7], n as u8);
        }
        assert!(disk.log().is_empty(), "nothing is written before somebody asks for it");
        journal.force_commit(cx).unwrap();
        assert_eq!(disk.flushes(), 1);
        let forced = |event: &Event| matches!(event, Event::Write { fua: true, .. });
        assert_eq!(disk.log().iter().filter(|event| forced(event)).count(), 1);
        journal.shutdown(cx).unwrap();
        assert_eq!(disk.flushes(), 2);
    });
}

#[test]
fn a_dirty_log_is_replayed_and_left_empty() {
    // Goal: for all checksum versions and tag sizes, what was committed comes back; escaped blocks
    // too; a block that was committed twice has its last content.
    let checksums = [Checksums::None, Checksums::V1, Checksums::V2, Checksums::V3];
    for checksums in checksums {
        for bit64 in [false, true] {
            both(|cx| {
                let disk = Disk::new(SIZE);
                format(&disk, PLACE, |_| {});
                let options =
                    JournalOptions { checksums: Some(checksums), bit64, ..Default::default() };
                let (journal, cache, _) = open(cx, &disk, PLACE, options.clone()).unwrap();
                let blocks: Vec<u64> = (0..60).map(|n| n * 3 + 1).collect();
                let tid = fill(cx, &journal, &cache, &blocks, 1);
                journal.commit_tid(cx, tid).unwrap();
                fill(cx, &journal, &cache, &[4, 7], 2);
                let mut handle = journal.start(cx, 1).unwrap();
                let buffer = cache.read(cx, 10).unwrap();
                handle.write_access(cx, &buffer).unwrap();
                buffer.with_mut(|bytes| bytes[..4].copy_from_slice(&[0xc0, 0x3b, 0x39, 0x98]));
                handle.dirty(cx, &buffer).unwrap();
                handle.set_sync();
                handle.stop(cx).unwrap();
                let lost = fill(cx, &journal, &cache, &[1], 3);
                assert!(journal.will_send_barrier(lost));
                journal.kill(cx);
                assert_eq!(journal.start(cx, 1).err(), Some(Errno::EROFS));
                let before = disk.image();
                assert_eq!(block_of(&before, 4)[0], 0);
                let (journal, cache, report) = open(cx, &disk, PLACE, options).unwrap();
                let report = report.expect("a recovery");
                assert_eq!((report.transactions, report.written), (2, 60), "{report:?}");
                let after = disk.image();
                assert_eq!(block_of(&after, 1), [1; 1024]);
                assert_eq!(block_of(&after, 4), [2; 1024]);
                assert_eq!(block_of(&after, 10)[..6], [0xc0, 0x3b, 0x39, 0x98, 1, 1]);
                assert_eq!(superblock(&after, PLACE).start, 0);
                assert_eq!(cache.read(cx, 7).unwrap().with(|bytes| bytes[9]), 2);
                journal.shutdown(cx).unwrap();
            });
        }
    }
}

#[test]
fn the_log_wraps_and_old_blocks_in_it_do_no_harm() {
    // Goal: many turns around a small log, with hot and cold blocks, then a crash at once.
    both(|cx| {
        let disk = Disk::new(SIZE);
        format(&disk, PLACE, |sb| sb.sequence = u32::MAX - 20);
        let options = JournalOptions { checksums: Some(Checksums::V3), ..Default::default() };
        let (journal, cache, _) = open(cx, &disk, PLACE, options.clone()).unwrap();
        for round in 0..100u64 {
            let blocks: Vec<u64> = [1, 2, 3]
                .into_iter()
                .chain((0..20).map(|n| 10 + (round * 20 + n) % 2000))
                .collect();
            let tid = fill(cx, &journal, &cache, &blocks, round as u8);
            journal.commit_tid(cx, tid).unwrap();
        }
        let stats = journal.stats();
        assert!(stats.wraps >= 8 && stats.checkpoints >= 8, "{stats:?}");
        journal.kill(cx);
        let (journal, _, report) = open(cx, &disk, PLACE, options).unwrap();
        assert!(report.unwrap().transactions > 0);
        let image = disk.image();
        assert_eq!(block_of(&image, 1)[0], 99);
        for round in 0..100 {
            assert_eq!(block_of(&image, 10 + round * 20)[0], round as u8);
        }
        journal.shutdown(cx).unwrap();
    });
}

#[test]
fn a_revoked_block_is_not_replayed_over_its_new_use() {
    // Goal: a metadata block is freed and used for data; replay leaves the data alone. A block that
    // becomes metadata again in the same transaction is replayed.
    both(|cx| {
        let disk = Disk::new(SIZE);
        format(&disk, PLACE, |_| {});
        let (journal, cache, _) = open(cx, &disk, PLACE, JournalOptions::default()).unwrap();
        let tid = fill(cx, &journal, &cache, &[50, 51, 52], 1);
        journal.commit_tid(cx, tid).unwrap();
        let mut handle = journal.start(cx, 4).unwrap();
        handle.revoke(cx, 50).unwrap();
        handle.revoke(cx, 51).unwrap();
        let again = cache.get(cx, 51);
        handle.create_access(cx, &again).unwrap();
        again.with_mut(|bytes| bytes.fill(7));
        handle.dirty(cx, &again).unwrap();
        let reusable = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
        let flag = reusable.clone();
        handle.on_commit(
            cx,
            Box::new(move |_| flag.store(true, std::sync::atomic::Ordering::Relaxed)),
        );
        let tid = handle.tid();
        handle.stop(cx).unwrap();
        journal.commit_tid(cx, tid).unwrap();
        assert!(reusable.load(std::sync::atomic::Ordering::Relaxed));
        let data = base::Page::from_slice(&[9; 1024]);
        cache.queue().write(cx, base::Sector(100), data, block::BioFlags::FUA).unwrap();
        journal.kill(cx);
        let (journal, _, report) = open(cx, &disk, PLACE, JournalOptions::default()).unwrap();
        let report = report.unwrap();
        assert_eq!((report.revokes, report.revoke_hits), (1, 1), "{report:?}");
        let image = disk.image();
        assert_eq!(
            (block_of(&image, 50)[0], block_of(&image, 51)[0], block_of(&image, 52)[0]),
            (9, 7, 1)
        );
        journal.shutdown(cx).unwrap();
    });
}

#[test]
fn a_block_that_is_freed_does_not_go_home_after_all() {
    // Goal: the checkpoint must not write the old metadata over the new data either.
    both(|cx| {
        let disk = Disk::new(SIZE);
        format(&disk, PLACE, |_| {});
        let (journal, cache, _) = open(cx, &disk, PLACE, JournalOptions::default()).unwrap();
        fill(cx, &journal, &cache, &[50], 1);
        journal.force_commit(cx).unwrap();
        let mut handle = journal.start(cx, 1).unwrap();
        handle.revoke(cx, 50).unwrap();
        handle.stop(cx).unwrap();
        journal.force_commit(cx).unwrap();
        let data = base::Page::from_slice(&[9; 1024]);
        cache.queue().write(cx, base::Sector(100), data, block::BioFlags::empty()).unwrap();
        journal.shutdown(cx).unwrap();
        assert_eq!(block_of(&disk.image(), 50)[0], 9);
    });
}

#[test]
fn a_device_error_in_the_log_aborts_and_leaves_a_note() {
    both(|cx| {
        let disk = Disk::new(SIZE);
        format(&disk, PLACE, |_| {});
        let (journal, cache, _) = open(cx, &disk, PLACE, JournalOptions::default()).unwrap();
        fill(cx, &journal, &cache, &[50], 1);
        let (block, _) = PLACE.area().map(1);
        disk.fail_writes(Some(block * 2..block * 2 + 2));
        assert_eq!(journal.force_commit(cx), Err(Errno::EIO), "it failed now");
        assert_eq!(journal.force_commit(cx), Err(Errno::EROFS), "it failed before");
        assert_eq!(journal.aborted(), Some(Errno::EIO));
        assert_eq!(journal.start(cx, 1).err(), Some(Errno::EROFS));
        assert_eq!(journal.shutdown(cx), Err(Errno::EROFS));
        disk.fail_writes(None);
        assert_eq!(superblock(&disk.image(), PLACE).errno, 5);
        let (journal, _, _) = open(cx, &disk, PLACE, JournalOptions::default()).unwrap();
        assert_eq!(journal.recorded_errno(), Some(Errno::EIO));
        journal.shutdown(cx).unwrap();
        assert_eq!(superblock(&disk.image(), PLACE).errno, 0);
    });
}

#[test]
fn an_old_transaction_commits_by_itself() {
    rt::testing::world(|cx| {
        let disk = Disk::new(SIZE);
        format(&disk, PLACE, |_| {});
        let (journal, cache, _) = open(cx, &disk, PLACE, JournalOptions::default()).unwrap();
        cx.sleep(Nanos::from_secs(60));
        let tid = fill(cx, &journal, &cache, &[50], 1);
        cx.sleep(Nanos::from_millis(4_990));
        assert!(journal.committed_tid() < tid);
        cx.sleep(Nanos::from_millis(20));
        assert_eq!(journal.committed_tid(), tid);
        journal.shutdown(cx).unwrap();
    });
}

#[test]
fn a_journal_that_cannot_be_used_is_refused_by_name() {
    both(|cx| {
        let disk = Disk::new(SIZE);
        let refused = |cx: &mut _, disk: &_| match open(cx, disk, PLACE, JournalOptions::default())
        {
            Ok(_) => panic!("opened"),
            Err(error) => error.to_string(),
        };
        assert!(refused(cx, &disk).contains("magic 0x00000000"));
        format(&disk, PLACE, |sb| sb.maxlen = 1000);
        assert!(refused(cx, &disk).contains("says it has 1000 blocks, its area has 256"));
        format(&disk, PLACE, |sb| sb.start = 300);
        assert!(refused(cx, &disk).contains("starts at block 300"));
        format(&disk, PLACE, |sb| sb.incompat = Incompat::from_bits_retain(0x40));
        assert!(refused(cx, &disk).contains("unsupported"));
        format(&disk, PLACE, |sb| {
            sb.incompat = Incompat::FAST_COMMIT;
            sb.fast_commit_blocks = 16;
            sb.start = 1;
            sb.sequence = 77;
        });
        let (block, _) = PLACE.area().map(256 - 16 + 1);
        let area = fast_commit(77);
        for (index, &byte) in area.iter().enumerate() {
            disk.poke(block as usize * 1024 + index, |place| *place = byte);
        }
        assert!(refused(cx, &disk).contains("1 fast commits of transaction 77"));
        disk.poke(block as usize * 1024 + 4, |place| *place = 1);
        assert!(refused(cx, &disk).contains("unknown features 0x1"));
        disk.poke(block as usize * 1024 + 4, |place| *place = 0);
        disk.poke(block as usize * 1024 + 8, |place| *place = 76);
        let (journal, _, _) = open(cx, &disk, PLACE, JournalOptions::default()).unwrap();
        journal.shutdown(cx).unwrap();
    });
}

/// A block with one fast commit: a head, the removal of a name, and a tail.
fn fast_commit(tid: u32) -> Vec<u8> {
    let mut area = vec![9, 0, 8, 0, 0, 0, 0, 0];
    area.extend(tid.to_le_bytes());
    area.extend([5, 0, 9, 0, 2, 0, 0, 0, 12, 0, 0, 0, b'a']);
    area.extend([8, 0]);
    area.extend((1024 - area.len() as u16 - 2).to_le_bytes());
    area.extend(tid.to_le_bytes());
    area.extend(base::crc::crc32c(0, &area).to_le_bytes());
    area.resize(1024, 0);
    area
}

#[test]
fn kept_fast_commits_stay_until_the_first_transaction_has_committed() {
    both(|cx| {
        let disk = Disk::new(SIZE);
        format(&disk, PLACE, |sb| {
            sb.incompat = Incompat::FAST_COMMIT;
            sb.fast_commit_blocks = 16;
            sb.start = 9;
            sb.sequence = 77;
        });
        let (block, _) = PLACE.area().map(256 - 16 + 1);
        for (index, &byte) in fast_commit(77).iter().enumerate() {
            disk.poke(block as usize * 1024 + index, |place| *place = byte);
        }
        let keep = || JournalOptions { keep_fast_commits: true, ..JournalOptions::default() };
        for _ in 0..2 {
            let (journal, _, report) = open(cx, &disk, PLACE, keep()).unwrap();
            assert_eq!(report.unwrap().fast_commits, 1);
            journal.kill(cx);
        }
        let (journal, cache, _) = open(cx, &disk, PLACE, keep()).unwrap();
        let buffer = cache.get(cx, 3);
        let page = base::Page::from_slice(&[7; 1024]);
        let all = vec![(buffer.clone(), page.clone()); 300];
        let error = journal.commit_replay(cx, &all).unwrap_err().to_string();
        assert_eq!(error, "a replay changes 300 blocks, the log has room for 234");
        journal.commit_replay(cx, &[(buffer, page)]).unwrap();
        journal.kill(cx);
        let (journal, _, report) = open(cx, &disk, PLACE, keep()).unwrap();
        let report = report.unwrap();
        assert_eq!((report.fast_commits, report.transactions, report.written), (0, 1, 1));
        journal.shutdown(cx).unwrap();
    });
}

#[test]
fn a_commit_of_nothing_keeps_the_promise_of_a_flush() {
    // Goal: an fsync of overwritten data joins a transaction without changes: one flush, no log.
    both(|cx| {
        let disk = Disk::new(SIZE);
        format(&disk, PLACE, |_| {});
        let (journal, _, _) = open(cx, &disk, PLACE, JournalOptions::default()).unwrap();
        disk.clear_log();
        let handle = journal.start(cx, 3).unwrap();
        let tid = handle.tid();
        handle.stop(cx).unwrap();
        assert!(journal.will_send_barrier(tid));
        journal.commit_tid(cx, tid).unwrap();
        assert!(!journal.will_send_barrier(tid));
        assert_eq!((disk.log().len(), disk.flushes()), (1, 1));
        // The next one with changes continues the sequence on disk.
        let (journal, cache) = {
            journal.shutdown(cx).unwrap();
            let (journal, cache, _) = open(cx, &disk, PLACE, JournalOptions::default()).unwrap();
            journal.start(cx, 1).unwrap().stop(cx).unwrap();
            journal.force_commit(cx).unwrap();
            (journal, cache)
        };
        for byte in 1..4 {
            fill(cx, &journal, &cache, &[9], byte);
            journal.force_commit(cx).unwrap();
        }
        journal.kill(cx);
        let (journal, _, report) = open(cx, &disk, PLACE, JournalOptions::default()).unwrap();
        assert_eq!(report.unwrap().transactions, 3);
        journal.shutdown(cx).unwrap();
    });
}

#[test]
fn a_killed_journal_lets_go_of_everything() {
    // Goal: callbacks usually hold the file system, which holds the journal: no ring may stay.
    both(|cx| {
        let disk = Disk::new(SIZE);
        format(&disk, PLACE, |_| {});
        let (journal, cache, _) = open(cx, &disk, PLACE, JournalOptions::default()).unwrap();
        let mut handle = journal.start(cx, 1).unwrap();
        let buffer = cache.read(cx, 5).unwrap();
        handle.write_access(cx, &buffer).unwrap();
        handle.dirty(cx, &buffer).unwrap();
        let held = journal.clone();
        handle.on_commit(cx, Box::new(move |_| drop(held)));
        handle.stop(cx).unwrap();
        journal.kill(cx);
        assert_eq!(std::sync::Arc::strong_count(&journal), 1);
        assert_eq!(std::sync::Arc::strong_count(&buffer), 2, "the index and we");
    });
}
