use std::sync::Arc;

use base::Sector;
use device::Cut;
use rt::SpinLock;

use super::*;
use crate::explore::medium;

/// The bytes of a log that somebody writes.
fn written(work: impl FnOnce(&mut LogWriter)) -> Vec<u8> {
    struct Shared(Arc<SpinLock<Vec<u8>>>);
    impl std::io::Write for Shared {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.lock_irq().extend_from_slice(bytes);
            Ok(bytes.len())
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }
    let bytes = Arc::new(SpinLock::new(Vec::new()));
    let header = Header { sectors: 2048, file_system: "ext4".into(), ..Header::default() };
    let mut writer = LogWriter::new(Box::new(Shared(bytes.clone())), header).unwrap();
    work(&mut writer);
    writer.finish().unwrap();
    std::mem::take(&mut *bytes.lock_irq())
}

struct Bytes(u64);

impl Content for Bytes {
    fn bytes(&self) -> u64 {
        self.0
    }
}

fn put(writer: &mut LogWriter, sector: u64, bytes: &[u8], fua: bool) {
    let event = Event::Write { sector: Sector(sector), segs: Bytes(bytes.len() as u64), fua };
    writer.entry(writer.len(), &event, std::iter::once(bytes));
}

/// Writes of all shapes, notes and a base.
fn sample() -> Vec<u8> {
    written(|writer| {
        writer.base_block(1, &[7; PIECE]);
        writer.base_block(9, &[8; PIECE]);
        put(writer, 3, &[1; 512 * 9], false);
        put(writer, 8, &[7; PIECE], true);
        writer.entry(1, &Event::<Bytes>::Flush, std::iter::empty());
        let zero = Event::<Bytes>::Zero { sector: Sector(72), count: 2, discard: true };
        writer.entry(3, &zero, std::iter::empty());
        writer.note(4, &Note::Mark("committed 17".into()));
    })
}

#[test]
fn what_was_written_is_read_and_equal_content_is_kept_once() {
    let log = Log::from_bytes(sample()).unwrap();
    assert_eq!(log.header().sectors, 2048);
    assert_eq!((log.len(), log.marks(5), log.marks(4)), (5, vec!["committed 17"], vec![]));
    assert_eq!(log.writes().entries[2].came, 1);
    assert_eq!([log.flushed(2), log.flushed(3)], [0, 1]);
    // The whole block of sevens is that of the base.
    let pieces: Vec<_> = log.pieces(&log.writes().entries[1]).collect();
    assert_eq!(pieces, [(4096, 4096, log.base()[0].1)]);
    let after = medium(&log, &Cut::clean(5)).unwrap();
    assert_eq!(after.bytes(3 * 512, 512 * 5).unwrap(), [1; 512 * 5]);
    assert_eq!(after.bytes(8 * 512, PIECE).unwrap(), [7; PIECE]);
    assert_eq!(after.bytes(72 * 512, 1024).unwrap(), [0; 1024]);
    assert_eq!(after.bytes(74 * 512, 1024).unwrap(), [8; 1024]);
}

/// A part has what lies in it: of writes across its borders too, with their flushes and marks.
#[test]
fn a_part_is_what_the_disk_has_there() {
    let log = Log::from_bytes(sample()).unwrap();
    for (start, count) in [(8, 8), (8, 3), (0, 80), (72, 1), (64, 100)] {
        let part = log.part(Sector(start), count).unwrap();
        assert_eq!((part.header().sectors, part.marks(part.len())), (count, vec!["committed 17"]));
        let (whole, part) = (Cut::clean(log.len()), (Cut::clean(part.len()), part));
        let (whole, part) = (medium(&log, &whole).unwrap(), medium(&part.1, &part.0).unwrap());
        let bytes = count as usize * 512;
        assert_eq!(whole.bytes(start * 512, bytes).unwrap(), part.bytes(0, bytes).unwrap());
    }
    let part = log.part(Sector(8), 8).unwrap();
    // The discard lies beside it; the flush covers the first write only.
    assert_eq!((part.len(), part.flushed(3)), (4, 1));
    assert_ne!(part.digest(), log.digest());
    for (start, count) in [(0, 2049), (2048, 1), (8, 0), (9, 1), (u64::MAX - 7, 16)] {
        let refused = log.part(Sector(start), count).unwrap_err();
        assert!(matches!(refused, LogError::Part { .. }), "{refused}");
    }
}

/// The hash of a medium depends on its content, not on the way to it.
#[test]
fn equal_content_has_equal_hashes() {
    let log = Log::from_bytes(sample()).unwrap();
    let clean = medium(&log, &Cut::clean(0)).unwrap();
    let lost = medium(&log, &Cut { drop: vec![0], ..Cut::clean(2) }).unwrap();
    let torn = medium(&log, &Cut { torn: vec![(0, vec![true; 5])], ..Cut::clean(1) }).unwrap();
    let whole = medium(&log, &Cut::clean(2)).unwrap();
    assert_eq!(clean.hash(), lost.hash(), "the second write brings what was there");
    assert_eq!(torn.hash(), whole.hash(), "five sectors, and the rest is written over");
    assert_ne!(clean.hash(), whole.hash());
}

#[test]
fn what_is_no_whole_log_is_refused_by_name() {
    let good = sample();
    let refused = |bytes: Vec<u8>| Log::from_bytes(bytes).unwrap_err().to_string();
    assert!(refused(b"PK\x03\x04 something".to_vec()).starts_with("not a crash log"));
    assert!(refused(Vec::new()).starts_with("not a crash log"));
    let mut newer = good.clone();
    newer[8] = 9;
    assert!(refused(newer).contains("of version 9"));
    for len in 0..16 {
        let wanted = if len < 8 { "not a crash log" } else { "cut short" };
        assert!(refused(good[..len].to_vec()).contains(wanted), "{len}");
    }
}

/// A log that is cut short anywhere has the entries up to there, or says that there are none; so it
/// is where zeroes follow.
#[test]
fn a_log_that_is_cut_short_has_its_first_entries() {
    let good = written(|writer| {
        writer.base_block(1, &[7; PIECE]);
        // Content that fills a frame, three times.
        let mut rng = base::Rng::new(1, 1);
        for number in 0..800 {
            let mut bytes = [0; PIECE];
            rng.fill(&mut bytes);
            put(writer, number * 2 % 1024, &bytes, false);
        }
    });
    let whole = Log::from_bytes(good.clone()).unwrap();
    assert_eq!((whole.len(), whole.cut_short()), (800, None));
    let mut lengths = std::collections::BTreeSet::new();
    for len in (16..good.len()).step_by(good.len() / 97) {
        for padding in [0, 4000] {
            let mut bytes = good[..len].to_vec();
            bytes.resize(len + padding, 0);
            match Log::from_bytes(bytes) {
                Err(error) => {
                    assert!(
                        matches!(error, LogError::Cut(_) | LogError::Damaged { .. }),
                        "{error}"
                    );
                }
                Ok(log) => {
                    assert_eq!(log.cut_short(), Some((len + padding) as u64));
                    let last = log.len() - 1;
                    let entry = |log: &Log| format!("{:?}", log.writes().entries[last]);
                    assert_eq!(entry(&log), entry(&whole));
                    let pieces =
                        |log: &Log| log.pieces(&log.writes().entries[last]).next().unwrap();
                    let page = |log: &Log| log.page(pieces(log).2).unwrap();
                    assert_eq!(page(&log)[..], page(&whole)[..]);
                    lengths.insert(log.len());
                }
            }
        }
    }
    assert!(lengths.len() >= 3, "{lengths:?}");
}

/// No byte of a log can be wrong without notice, and none makes the reader panic.
#[test]
fn every_wrong_byte_is_noticed() {
    let good = sample();
    for at in 16..good.len() {
        let mut bad = good.clone();
        bad[at] ^= 0x40;
        let read = Log::from_bytes(bad)
            .and_then(|log| (1..4).try_for_each(|piece| log.page(PieceId(piece)).map(drop)));
        assert!(read.is_err(), "byte {at} of {}", good.len());
    }
}
