//! What `kyber` gives out: the order of domains, and how many tokens they have.

use crate::common::{Disk, Ends, info, queue_with, submit};
use base::Nanos;
use block::QueueConfig;
use rt::{Cx, World, WorldConfig};
use std::sync::Arc;

fn in_world(depth: u32, act: impl FnOnce(&mut Cx, &Arc<Disk>, &Arc<block::Queue>, &Ends)) {
    World::new(WorldConfig::default()).run("test", |cx| {
        let disk = Disk::held(info(depth));
        let config = QueueConfig { nr_requests: 512, ..QueueConfig::elevator("kyber") };
        let queue = queue_with(cx, &disk, config);
        let ends = Ends::default();
        act(cx, &disk, &queue, &ends);
        disk.finish_all();
    });
}

/// Goal: domains take turns, 16 reads, 8 writes, one discard, one of the rest; inside a domain the
/// order is that of arrival. Method: all wait while the device is busy with one read, which counts.
#[test]
fn domains_take_turns_in_batches() {
    in_world(1, |cx, disk, queue, ends| {
        submit(cx, queue, ends, "R2000+1");
        disk.take_seen();
        for n in (0..20).rev() {
            submit(cx, queue, ends, &format!("W{}+1 R{}+1", 4 * n, 1000 + 4 * n));
        }
        submit(cx, queue, ends, "D500+1 D504+1 Z600+1 Z604+1");
        disk.finish_all();
        let seen = disk.take_seen();
        let mut runs: Vec<(char, usize)> = Vec::new();
        for word in &seen {
            let letter = word.chars().next().expect("a letter");
            match runs.last_mut() {
                Some((last, count)) if *last == letter => *count += 1,
                _ => runs.push((letter, 1)),
            }
        }
        let expected = [
            ('R', 15),
            ('W', 8),
            ('D', 1),
            ('Z', 1),
            ('R', 5),
            ('W', 8),
            ('D', 1),
            ('Z', 1),
            ('W', 4),
        ];
        assert_eq!(runs, expected, "{seen:?}");
        let reads: Vec<&String> = seen.iter().filter(|word| word.starts_with('R')).collect();
        assert_eq!((reads[0].as_str(), reads[1].as_str()), ("R1076+1", "R1072+1"));
    });
}

/// Ends requests of both domains after so many microseconds, for so many seconds.
fn load(cx: &mut Cx, disk: &Arc<Disk>, queue: &Arc<block::Queue>, micros: u64, seconds: u64) {
    let ends = Ends::default();
    for _ in 0..seconds * 1_000_000 / micros {
        submit(cx, queue, &ends, "R1000+1 W8+1");
        cx.sleep(Nanos::from_micros(micros));
        disk.finish_all();
    }
}

/// Writes that the device gets at once.
fn write_tokens(cx: &mut Cx, disk: &Arc<Disk>, queue: &Arc<block::Queue>) -> usize {
    let ends = Ends::default();
    for n in 0..130 {
        submit(cx, queue, &ends, &format!("W{}+1", 4 * n));
    }
    let count = disk.held_count();
    disk.finish_all();
    count
}

/// Goal: writes within their target lose tokens while reads miss theirs, down to one, and none
/// while both meet them. Method: reads and writes of 3 ms each (targets 2 and 10 ms: buckets 5 and
/// 1), which halves the writes' tokens with each percentile.
#[test]
fn a_domain_within_its_target_yields_to_one_that_is_not() {
    in_world(1000, |cx, disk, queue, _| {
        assert_eq!(write_tokens(cx, disk, queue), 128);
        load(cx, disk, queue, 1500, 4);
        assert_eq!(write_tokens(cx, disk, queue), 128, "both meet their targets");
        load(cx, disk, queue, 3000, 3);
        let fewer = write_tokens(cx, disk, queue);
        assert!((16..=64).contains(&fewer), "{fewer} tokens after some percentiles");
        load(cx, disk, queue, 3000, 12);
        assert_eq!(write_tokens(cx, disk, queue), 1, "never none");
    });
}

/// Goal: a target is set by its name in nanoseconds, and nothing else is taken.
#[test]
fn targets_are_tunables() {
    in_world(1, |_, _, queue, _| {
        queue.set_tunable("read_lat_nsec", "500000").expect("a target");
        let error = queue.set_tunable("read_lat_nsec", "0").unwrap_err().to_string();
        assert!(error.contains("read_lat_nsec") && error.contains("nanoseconds"), "{error}");
        let error = queue.set_tunable("fifo_batch", "4").unwrap_err().to_string();
        assert!(error.contains("kyber") && error.contains("write_lat_nsec"), "{error}");
    });
}
