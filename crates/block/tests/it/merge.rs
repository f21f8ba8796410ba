//! Which bios become one request.

use crate::common::{Disk, Ends, bio, info, queue, queue_with, submit};
use block::{BioFlags, DeviceInfo, Plug, Queue, QueueConfig};
use rt::{Cx, Runtime};
use std::sync::Arc;

fn with<T>(f: impl FnOnce(&mut Cx) -> T) -> T {
    Runtime::real(1).enter("test", f)
}

/// Submits `first`, which occupies the device, then `words`; gives what the device sees of these.
fn behind_a_busy_device(cx: &mut Cx, queue: &Arc<Queue>, disk: &Disk, words: &str) -> String {
    let ends = Ends::default();
    submit(cx, queue, &ends, "R2000+1");
    disk.take_seen();
    submit(cx, queue, &ends, words);
    disk.finish_all();
    let all = words.split_whitespace().count() + 1;
    let ended = ends.take();
    assert_eq!(ended.len(), all, "every bio ends: {ended:?}");
    assert!(ended.iter().all(|end| end.ends_with("ok")), "{ended:?}");
    disk.take_seen().join(" ")
}

/// Goal: the rules of merging. Method: a table of bios that come while the device is busy, and of
/// the requests that follow. Requests hold at most 8 sectors and 4 segments.
#[test]
fn neighbours_merge_within_the_limits() {
    let table = [
        ("", "none", "W0+1 W1+1 W2+1", "W0+3"),
        ("back, front and across", "none", "W4+1 W3+1 W5+1", "W3+3"),
        ("a gap is closed", "none", "W0+1 W2+1 W1+1", "W0+3"),
        ("operations keep apart", "none", "W0+1 R1+1 W2+1", "W0+1 R1+1 W2+1"),
        ("8 sectors at most", "none", "W0+4 W4+4 W8+1", "W0+8 W8+1"),
        ("no gap closed beyond 8", "none", "W0+4 W5+4 W4+1", "W0+5 W5+4"),
        ("4 segments at most", "none", "W0+1 W1+1 W2+1 W3+1 W4+1", "W0+4 W4+1"),
        ("FUA joins FUA only", "none", "W0+1 W1+1! W2+1!", "W0+1 W1+2!"),
        ("discards do not merge", "none", "D0+8 D8+8", "D0+8 D8+8"),
        ("reads too", "none", "R8+2 R10+2 R6+2", "R6+6"),
        ("sorted as well", "deadline", "W9+1 W1+1 W0+1 W10+1", "W9+2 W0+2"),
    ];
    for (what, elevator, words, expected) in table {
        with(|cx| {
            let limits = DeviceInfo { max_bytes: 4096, max_segments: 4, fua: true, ..info(1) };
            let disk = Disk::held(DeviceInfo { volatile_cache: true, ..limits });
            let queue = queue(cx, &disk, elevator);
            let seen = behind_a_busy_device(cx, &queue, &disk, words);
            assert_eq!(seen, expected, "{what}: {words}");
        });
    }
}

#[test]
fn merging_can_be_switched_off_and_front_merges_too() {
    with(|cx| {
        let disk = Disk::held(info(1));
        let queue = queue(cx, &disk, "deadline");
        queue.set_tunable("front_merges", "0").unwrap();
        assert_eq!(behind_a_busy_device(cx, &queue, &disk, "W1+1 W0+1"), "W1+1 W0+1");
        assert_eq!(behind_a_busy_device(cx, &queue, &disk, "W0+1 W1+1"), "W0+2");
        queue.set_tunable("nomerges", "2").unwrap();
        assert_eq!(behind_a_busy_device(cx, &queue, &disk, "W0+1 W1+1"), "W0+1 W1+1");
        let stats = queue.stats();
        assert_eq!((stats.merges_back, stats.merges_front), (1, 0));
    });
}

#[test]
fn a_large_bio_is_cut_and_ends_once() {
    with(|cx| {
        let disk = Disk::held(DeviceInfo { max_bytes: 2048, max_segments: 4, ..info(8) });
        let queue = queue(cx, &disk, "none");
        let ends = Ends::default();
        submit(cx, &queue, &ends, "W0+10");
        assert_eq!(disk.take_seen().join(" "), "W0+4 W4+4 W8+2");
        disk.finish(2);
        disk.fail(1, 6, 1);
        assert!(ends.take().is_empty());
        disk.finish(0);
        assert_eq!(ends.take(), ["W0+10 failed 6+1"]);
        assert_eq!((queue.stats().splits, queue.stats().writes), (1, 3));
    });
    // A read that is cut through its page gets every part back in its place.
    with(|cx| {
        let disk = Disk::inline(DeviceInfo { max_bytes: 1024, ..info(2) });
        let queue = queue(cx, &disk, "none");
        let ends = Ends::default();
        submit(cx, &queue, &ends, "W0+1 W1+1 W2+1 W3+1 W4+1");
        let page = queue.read(cx, base::Sector(0), 2560).unwrap();
        let firsts: Vec<u8> = page.chunks(512).map(|sector| sector[511]).collect();
        assert_eq!(firsts, [0, 1, 2, 3, 4]);
    });
}

/// Goal: a plug hands over whole neighbours, in the order of submission. Method: what an idle
/// device sees, with and without a plug.
#[test]
fn a_plug_lets_neighbours_meet_before_the_device_sees_them() {
    let seen = |plugged: bool| {
        with(|cx| {
            let disk = Disk::inline(info(64));
            let queue = queue(cx, &disk, "none");
            let ends = Ends::default();
            let mut plug = Plug::new();
            for word in ["W9+1", "W0+1", "W1+1", "W8+1", "R3+1", "W2+1"] {
                let bio = bio(word, ends.end(word));
                if plugged {
                    queue.submit_plugged(cx, &mut plug, bio);
                } else {
                    queue.submit(cx, bio);
                }
            }
            assert_eq!(ends.take().len(), if plugged { 0 } else { 6 });
            plug.finish(cx);
            disk.take_seen().join(" ")
        })
    };
    assert_eq!(seen(false), "W9+1 W0+1 W1+1 W8+1 R3+1 W2+1");
    assert_eq!(seen(true), "W8+2 W0+3 R3+1");
}

#[test]
fn a_plug_is_handed_over_when_full_or_dropped_and_flushes_pass_it() {
    with(|cx| {
        let disk = Disk::inline(DeviceInfo { volatile_cache: true, ..info(64) });
        let queue = queue(cx, &disk, "none");
        let ends = Ends::default();
        let mut plug = Plug::new();
        for index in 0..block::PLUG_REQUESTS as u64 + 1 {
            let word = format!("W{}+1", index * 2);
            queue.submit_plugged(cx, &mut plug, bio(&word, ends.end(&word)));
        }
        assert_eq!(disk.take_seen().len(), block::PLUG_REQUESTS);
        queue.submit_plugged(cx, &mut plug, bio("F", ends.end("F")));
        assert_eq!(disk.take_seen(), ["F"]);
        assert!(!plug.is_empty());
        drop(plug);
        assert_eq!(disk.take_seen().len(), 1);
        assert_eq!(queue.stats().bios, block::PLUG_REQUESTS as u64 + 2);
    });
}

#[test]
fn a_plugged_request_joins_what_waits() {
    with(|cx| {
        let disk = Disk::held(info(1));
        let queue = queue(cx, &disk, "none");
        let ends = Ends::default();
        submit(cx, &queue, &ends, "R100+1 W0+2");
        let mut plug = Plug::new();
        for word in ["W2+1", "W3+1"] {
            queue.submit_plugged(cx, &mut plug, bio(word, ends.end(word)));
        }
        plug.finish(cx);
        disk.finish_all();
        assert_eq!(disk.take_seen().join(" "), "R100+1 W0+4");
        assert_eq!(ends.take().len(), 4);
        assert_eq!(queue.stats().merges_requests, 1);
    });
}

/// Goal: an error in a merged request reaches exactly the bios that it touches. Method: four bios
/// in one request, every range of failed sectors.
#[test]
fn an_error_reaches_exactly_its_bios() {
    for start in 0..8u64 {
        for count in 1..=(8 - start) {
            with(|cx| {
                let disk = Disk::held(info(1));
                let queue = queue(cx, &disk, "none");
                let ends = Ends::default();
                submit(cx, &queue, &ends, "R100+1 W2+2 W4+2 W0+2 W6+2");
                ends.take();
                disk.finish(0);
                disk.fail(0, start, count);
                let mut expected = vec!["R100+1 ok".to_owned()];
                for at in [0, 2, 4, 6] {
                    let (from, to) = (start.max(at), (start + count).min(at + 2));
                    expected.push(match from < to {
                        true => format!("W{at}+2 failed {from}+{}", to - from),
                        false => format!("W{at}+2 ok"),
                    });
                }
                assert_eq!(ends.take(), expected, "{count} sectors failed at {start}");
                assert_eq!(queue.stats().errors, 1);
            });
        }
    }
}

#[test]
fn what_cannot_be_done_ends_with_its_reason() {
    with(|cx| {
        let disk = Disk::inline(DeviceInfo { discard: false, logical_block: 1024, ..info(4) });
        let queue = queue(cx, &disk, "none");
        let cause = |cx: &mut Cx, word: &str| {
            let page = Arc::new(rt::Completion::new());
            let theirs = page.clone();
            queue.submit(cx, bio(word, Box::new(move |done| theirs.complete(done.result))));
            page.wait(cx).map_err(|error| error.cause)
        };
        assert_eq!(cause(cx, "W0+2"), Ok(()));
        assert_eq!(cause(cx, "W1+2"), Err(block::Cause::Unaligned));
        assert_eq!(cause(cx, "W0+1"), Err(block::Cause::Unaligned));
        assert_eq!(cause(cx, "R2046+4"), Err(block::Cause::OutOfRange));
        assert_eq!(cause(cx, "D0+2"), Err(block::Cause::Unsupported));
        assert_eq!(disk.take_seen(), ["W0+2"]);
    });
}

#[test]
fn zeroes_are_written_where_the_device_cannot_make_them() {
    with(|cx| {
        let disk = Disk::inline(DeviceInfo { write_zeroes: false, max_bytes: 65536, ..info(4) });
        let queue = queue(cx, &disk, "none");
        let page = base::Page::from_slice(&[1; 4096]);
        queue.write(cx, base::Sector(0), page, BioFlags::empty()).unwrap();
        disk.take_seen();
        queue.write_zeroes(cx, base::Sector(0), 200).unwrap();
        assert_eq!(disk.take_seen().join(" "), "W0+128 W128+72");
        assert!(disk.content().iter().all(|&byte| byte == 0));
    });
}

#[test]
fn the_ring_tells_the_story_of_a_merge() {
    with(|cx| {
        let disk = Disk::held(info(1));
        let config = QueueConfig { trace_events: 100, ..QueueConfig::default() };
        let queue = queue_with(cx, &disk, config);
        let ends = Ends::default();
        submit(cx, &queue, &ends, "R9+1 W4+1 W5+1 W3+1");
        let mut plug = Plug::new();
        queue.submit_plugged(cx, &mut plug, bio("R0+1", ends.end("R0+1")));
        plug.finish(cx);
        disk.finish_all();
        let (events, lost) = queue.take_trace();
        let letters: String = events.iter().map(|event| event.kind as u8 as char).collect();
        assert_eq!((letters.as_str(), lost), ("QGIDQGIQMQFQGPUICDCDC", 0));
        assert!(events.iter().all(|event| event.ioc == cx.ioc()));
        assert!(events.is_sorted_by_key(|event| event.time));
    });
}
