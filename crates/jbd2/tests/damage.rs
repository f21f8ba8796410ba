//! Damaged, foreign and unusual journals: named errors or less to replay, never a panic, and
//! nothing written before the log is known to be good.

mod common;

use std::sync::Arc;

use base::{Errno, Rng};
use common::*;
use jbd2::format::Incompat;
use jbd2::{Checksums, Journal, JournalArea, JournalError, JournalOptions};
use rt::testing::{both, seeds, world};

const PLACE: JournalPlace = JournalPlace { block_size: 1024, start: 8192, len: 256 };
const SIZE: usize = 16 << 20;

fn options(checksums: Checksums) -> JournalOptions {
    JournalOptions { checksums: Some(checksums), ..JournalOptions::default() }
}

/// A disk with six transactions in the log; each is revoke?, descriptor, three blocks, commit.
fn dirty(checksums: Checksums) -> Arc<Disk> {
    let disk = Disk::new(SIZE);
    format(&disk, PLACE, |_| {});
    world(|cx| {
        let (journal, cache, _) = open(cx, &disk, PLACE, options(checksums)).unwrap();
        for round in 0..6 {
            let tid = fill(cx, &journal, &cache, &[1, 2, 10 + round], round as u8 + 1);
            journal.commit_tid(cx, tid).unwrap();
        }
        journal.kill(cx);
    });
    disk
}

fn poke_log(disk: &Disk, log: u32, offset: usize) {
    let (block, _) = PLACE.area().map(log);
    disk.poke(block as usize * 1024 + offset, |byte| *byte ^= 0x10);
}

fn recover(disk: &Arc<Disk>) -> Result<jbd2::RecoveryReport, JournalError> {
    world(|cx| {
        let (journal, _, report) = open(cx, disk, PLACE, JournalOptions::default())?;
        journal.kill(cx);
        Ok(report.expect("a dirty journal"))
    })
}

#[test]
fn a_damaged_copy_is_named_and_nothing_is_written() {
    for checksums in [Checksums::V2, Checksums::V3] {
        // The copy of block 12 in the third transaction: 2 * 5 + 1 + 3.
        let disk = dirty(checksums);
        poke_log(&disk, 14, 500);
        let before = disk.image();
        let error = recover(&disk).unwrap_err();
        assert!(
            matches!(error, JournalError::BlockChecksum { log: 14, sequence: 3, block: 12 }),
            "{error}"
        );
        assert_eq!(error.to_errno(), Errno::EBADMSG);
        assert!(before == disk.image());
        // A copy that is replaced by a later one does not matter.
        poke_log(&disk, 14, 500);
        poke_log(&disk, 12, 500);
        assert_eq!(recover(&disk).unwrap().transactions, 6);
    }
}

#[test]
fn a_damaged_commit_block_ends_the_log() {
    for checksums in [Checksums::V1, Checksums::V2, Checksums::V3] {
        let disk = dirty(checksums);
        // The fourth commit block; its checksum's first byte.
        poke_log(&disk, 20, 16);
        let report = recover(&disk).unwrap();
        assert_eq!((report.transactions, report.failed_commit), (3, Some(4)), "{checksums:?}");
        assert_eq!(disk.image()[1024], 3);
    }
    // With version 1 the blocks belong to that checksum.
    let disk = dirty(Checksums::V1);
    poke_log(&disk, 17, 600);
    assert_eq!(recover(&disk).unwrap().transactions, 3);
}

#[test]
fn a_damaged_descriptor_of_a_committed_transaction_is_an_error() {
    for checksums in [Checksums::V2, Checksums::V3] {
        let disk = dirty(checksums);
        poke_log(&disk, 16, 1000);
        let error = recover(&disk).unwrap_err();
        assert!(matches!(error, JournalError::Checksum { log: 16, sequence: 4, .. }), "{error}");
    }
    // Without a commit block it is only the end of the log.
    let disk = dirty(Checksums::V3);
    poke_log(&disk, 16, 1000);
    poke_log(&disk, 20, 0);
    assert_eq!(recover(&disk).unwrap().transactions, 3);
}

#[test]
fn any_damage_is_survived() {
    // Goal: random bytes in the superblock and the log, with and without valid checksums of the
    // superblock; recovery ends with a report or an error.
    for seed in seeds(300) {
        let mut rng = Rng::new(seed, 1);
        let checksums = [Checksums::None, Checksums::V1, Checksums::V2, Checksums::V3];
        let disk = dirty(checksums[seed as usize % 4]);
        for _ in 0..1 + rng.below(4) {
            let log = rng.below(32) as u32;
            let (block, _) = PLACE.area().map(log);
            let reach = if rng.chance(0.7) { 128 } else { 1024 };
            let offset = rng.below(reach) as usize;
            let value = rng.next_u32() as u8;
            disk.poke(block as usize * 1024 + offset, |byte| *byte = value);
        }
        if rng.chance(0.5) {
            format(&disk, PLACE, |sb| {
                sb.start = 1 + rng.below(40) as u32;
                sb.sequence = rng.below(8) as u32;
                sb.incompat = Incompat::from_bits_truncate(rng.next_u32() & 0x3f);
                sb.incompat.remove(Incompat::CSUM_V2);
                sb.fast_commit_blocks =
                    if sb.incompat.contains(Incompat::FAST_COMMIT) { 9 } else { 0 };
            });
        }
        world(|cx| match open(cx, &disk, PLACE, JournalOptions::default()) {
            Ok((journal, _, _)) => journal.kill(cx),
            Err(error) => assert!(!error.to_string().is_empty()),
        });
    }
}

#[test]
fn a_read_only_journal_shows_the_recovered_state_and_writes_nothing() {
    both(|cx| {
        let disk = dirty(Checksums::V3);
        let before = disk.image();
        let read_only = JournalOptions { read_only: true, ..JournalOptions::default() };
        let (journal, cache, report) = open(cx, &disk, PLACE, read_only).unwrap();
        let report = report.unwrap();
        assert!(report.in_memory && report.transactions == 6, "{report:?}");
        assert_eq!(cache.read(cx, 1).unwrap().with(|bytes| bytes[0]), 6);
        cache.drop_clean();
        assert_eq!(cache.read(cx, 2).unwrap().with(|bytes| bytes[0]), 6);
        assert_eq!(journal.start(cx, 1).err(), Some(Errno::EROFS));
        journal.shutdown(cx).unwrap();
        assert!(before == disk.image());
    });
}

#[test]
fn a_log_that_nobody_wants_is_emptied() {
    // Goal: nothing is replayed, and the numbers go on behind those that the log had.
    both(|cx| {
        let disk = dirty(Checksums::V3);
        let discard = JournalOptions { discard_log: true, ..JournalOptions::default() };
        let (journal, cache, report) = open(cx, &disk, PLACE, discard).unwrap();
        assert_eq!((report, disk.image()[1024]), (None, 0));
        let sb = superblock(&disk.image(), PLACE);
        assert_eq!((sb.start, sb.sequence), (0, 8));
        fill(cx, &journal, &cache, &[1], 99);
        journal.force_commit(cx).unwrap();
        journal.kill(cx);
        let (journal, _, report) = open(cx, &disk, PLACE, JournalOptions::default()).unwrap();
        assert_eq!(report.unwrap().transactions, 1);
        assert_eq!(disk.image()[1024], 99);
        journal.shutdown(cx).unwrap();
    });
}

#[test]
fn an_asynchronous_commit_without_its_blocks_has_not_happened() {
    // Goal: with that feature the commit block may be there before the blocks; a wrong checksum in
    // the last transaction ends the log, one before it is damage.
    for (log, transactions) in [(27, Some(5)), (24, None)] {
        let disk = dirty(Checksums::V3);
        let sb = superblock(&disk.image(), PLACE);
        format(&disk, PLACE, |new| {
            *new = sb;
            new.incompat |= Incompat::ASYNC_COMMIT;
        });
        poke_log(&disk, log, 100);
        match (recover(&disk), transactions) {
            (Ok(report), Some(transactions)) => {
                assert_eq!((report.transactions, report.failed_commit), (transactions, Some(6)));
            }
            (Err(JournalError::BlockChecksum { sequence: 5, .. }), None) => {}
            (other, _) => panic!("{log}: {other:?}"),
        }
    }
}

#[test]
fn a_journal_on_another_device_flushes_both() {
    // Goal: the log lies elsewhere; the data's device is flushed before the commit block counts,
    // and before the log's blocks are used again.
    both(|cx| {
        let (fs, log) = (Disk::new(SIZE), Disk::new(1 << 20));
        let mut sb = jbd2::format::Superblock::new(1024, 128, [5; 16]);
        sb.users = vec![*b"the file system!"];
        sb.first = 3;
        let mut bytes = [0; 1024];
        sb.emit(&mut bytes);
        for (index, byte) in bytes.into_iter().enumerate() {
            log.poke(2 * 1024 + index, |place| *place = byte);
        }
        let cache = cache_on(cx, &fs, 1024);
        let area = |cx: &mut rt::Cx| {
            let queue = cache_on(cx, &log, 1024).queue().clone();
            JournalArea::external(queue, 2, 200)
        };
        let with = |uuid| JournalOptions { fs_uuid: Some(uuid), ..JournalOptions::default() };
        let place = area(cx);
        let refused = Journal::open(cx, cache.clone(), place, with([1; 16]));
        assert!(matches!(refused.err(), Some(JournalError::NotUser(_))));
        let place = area(cx);
        let opened = Journal::open(cx, cache.clone(), place, with(*b"the file system!"));
        let (journal, _) = opened.unwrap();
        for round in 0..60 {
            let tid = fill(cx, &journal, &cache, &[1, 2, 10 + round], round as u8 + 1);
            journal.commit_tid(cx, tid).unwrap();
        }
        assert!(fs.flushes() >= 60 && log.flushes() >= 60);
        journal.kill(cx);
        cache.drop_clean();
        let cache = cache_on(cx, &fs, 1024);
        let place = area(cx);
        let (journal, report) = Journal::open(cx, cache, place, JournalOptions::default()).unwrap();
        assert!(report.unwrap().transactions > 0);
        assert_eq!(fs.image()[1024], 60);
        journal.shutdown(cx).unwrap();
    });
}

#[test]
fn old_and_unusual_superblocks_work() {
    both(|cx| {
        // Version 1 has no features; the first revoke makes it version 2.
        let disk = Disk::new(SIZE);
        format(&disk, PLACE, |sb| sb.version = 1);
        let (journal, cache, _) = open(cx, &disk, PLACE, JournalOptions::default()).unwrap();
        fill(cx, &journal, &cache, &[1], 1);
        journal.force_commit(cx).unwrap();
        assert_eq!(superblock(&disk.image(), PLACE).version, 1);
        let mut handle = journal.start(cx, 0).unwrap();
        handle.revoke(cx, 1).unwrap();
        handle.stop(cx).unwrap();
        journal.force_commit(cx).unwrap();
        journal.kill(cx);
        assert_eq!(superblock(&disk.image(), PLACE).incompat, Incompat::REVOKE);
        let (journal, _, report) = open(cx, &disk, PLACE, JournalOptions::default()).unwrap();
        assert_eq!(report.unwrap().revoke_hits, 1);
        journal.kill(cx);
        // The fast commit area is not part of the log.
        let disk = Disk::new(SIZE);
        format(&disk, PLACE, |sb| {
            sb.incompat = Incompat::FAST_COMMIT;
            sb.fast_commit_blocks = 100;
        });
        let (journal, cache, _) = open(cx, &disk, PLACE, JournalOptions::default()).unwrap();
        for round in 0..100 {
            fill(cx, &journal, &cache, &[1, 2, 3], round);
            journal.force_commit(cx).unwrap();
        }
        assert!(journal.stats().wraps > 0);
        for log in 156..256 {
            let (block, _) = PLACE.area().map(log);
            let at = block as usize * 1024;
            assert!(disk.image()[at..at + 1024].iter().all(|&byte| byte == 0), "{log}");
        }
        journal.shutdown(cx).unwrap();
        // A clean journal does not announce fast commits, and keeps their place, as Linux has it.
        assert!(!superblock(&disk.image(), PLACE).incompat.contains(Incompat::FAST_COMMIT));
        let at = PLACE.area().map(0).0 as usize * 1024 + 0x54;
        assert_eq!(disk.image()[at..at + 4], 100u32.to_be_bytes());
    });
}
