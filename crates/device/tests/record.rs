//! The write log: what a power cut may lose, and what it may not.

use base::{Page, Rng, Sector};
use block::{BioFlags, Device, Queue, QueueConfig};
use device::{Cut, Event, MemoryDevice, RecordDevice};
use rt::Runtime;
use std::sync::Arc;

const SIZE: usize = 1 << 20;

fn page(value: u8) -> Page {
    Page::from_slice(&[value; 1024])
}

/// Writes 1 | flush | writes 2, 3 | mark | FUA write 4 | write 5, each of two sectors.
fn recorded() -> (Arc<RecordDevice>, Arc<MemoryDevice>) {
    let memory = Arc::new(MemoryDevice::new(SIZE as u64));
    let device = Arc::new(RecordDevice::new(memory.clone()));
    Runtime::real(1).enter("test", |cx| {
        let queue = Queue::new(cx.runtime(), device.clone(), QueueConfig::default()).unwrap();
        let none = BioFlags::empty();
        queue.write(cx, Sector(0), page(1), none).unwrap();
        queue.flush(cx).unwrap();
        queue.write(cx, Sector(2), page(2), none).unwrap();
        queue.write(cx, Sector(4), page(3), none).unwrap();
        device.mark(77);
        queue.write(cx, Sector(6), page(4), BioFlags::FUA).unwrap();
        queue.write(cx, Sector(8), page(5), none).unwrap();
    });
    (device, memory)
}

fn sectors(image: &[u8]) -> Vec<u8> {
    image.chunks(512).take(10).map(|sector| sector[0]).collect()
}

#[test]
fn a_cut_loses_what_no_flush_covers_and_nothing_else() {
    let (device, memory) = recorded();
    let log = device.log();
    let base = vec![0; SIZE];
    assert_eq!(log.entries.len(), 7);
    assert_eq!(log.image_after(&base, &Cut::clean(7)), memory.snapshot());
    assert_eq!(log.unflushed(7), [2, 3, 6]);
    assert_eq!(log.unflushed(1), [0]);
    assert_eq!((log.marks(4), log.marks(5)), (vec![], vec![77]));
    let cut = Cut { upto: 7, drop: vec![2, 6], torn: vec![(3, vec![false, true])], early: vec![] };
    assert_eq!(sectors(&log.image_after(&base, &cut)), [1, 1, 0, 0, 0, 3, 4, 4, 0, 0]);
    assert_eq!(log.cut_points(), [0, 1, 2, 5, 6, 7]);
    assert_eq!(log.cuts_at_flushes().len(), 6 + 4, "no losses at 0 and behind the flush");
}

#[test]
#[should_panic(expected = "was durable")]
fn a_cut_may_not_lose_what_was_durable() {
    let (device, _) = recorded();
    let cut = Cut { upto: 7, drop: vec![5], ..Cut::default() };
    device.log().image_after(&vec![0; SIZE], &cut);
}

#[test]
fn random_cuts_follow_their_seed_and_keep_what_is_durable() {
    let (device, _) = recorded();
    let log = device.log();
    let base = vec![0; SIZE];
    let mut losses = 0;
    for seed in 0..200 {
        let cut = log.random_cut(&mut Rng::new(seed, 0));
        assert_eq!(cut, log.random_cut(&mut Rng::new(seed, 0)));
        let image = sectors(&log.image_after(&base, &cut));
        if cut.upto >= 2 {
            assert_eq!(image[..2], [1, 1]);
        }
        if cut.upto >= 6 {
            assert_eq!(image[6..8], [4, 4]);
        }
        losses += !cut.drop.is_empty() as u32 + !cut.torn.is_empty() as u32;
    }
    assert!(losses > 50, "{losses} of 200 random cuts lost something");
}

/// Goal: what overlaps in time is told apart. Method: entries made by hand, as a device with a
/// queue would log them: a flush began before a write completed, and a write is in flight at a cut.
#[test]
fn a_flush_covers_only_what_had_completed_when_it_began() {
    let (device, _) = recorded();
    let mut log = device.log();
    // Entry 6 (write 5) came when 2 entries were there; now a flush that came at 6 completes.
    log.entries[6].came = 2;
    log.entries.push(device::Entry { came: 6, event: Event::Flush });
    assert_eq!(log.unflushed(8), [6]);
    // Entry 3 came when entry 2 had completed: it may have been on its way at a cut behind that.
    assert_eq!(log.in_flight(3), [3, 6]);
    let (base, drop) = (vec![0; SIZE], vec![2]);
    let fork = log
        .device_after(&MemoryDevice::from_image(&base), &Cut { upto: 3, drop, ..Cut::default() });
    assert_eq!(sectors(&fork.snapshot()), [1, 1, 0, 0, 0, 0, 0, 0, 0, 0]);
    let cut = Cut { upto: 3, drop: vec![2], early: vec![6], torn: vec![(6, vec![true])] };
    let image = log.image_after(&base, &cut);
    assert_eq!(sectors(&image), [1, 1, 0, 0, 0, 0, 0, 0, 5, 0]);
}

#[test]
fn the_record_is_cheap_and_shows_its_flushes() {
    let (device, _) = recorded();
    assert!(device.info().volatile_cache && device.info().fua);
    let log = device.log();
    let Event::Write { segs, .. } = &log.entries[0].event else { panic!("a write came first") };
    assert!(!segs[0].page.is_unique(), "the log shares its pages");
}
