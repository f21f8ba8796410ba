//! Which probes a device is measured with, and the mix that is held out.

use base::Nanos;
use block::DeviceInfo;

use super::probe::{Durable, Pattern, Probe};

/// Smallest device: the probes must not meet their own tracks.
pub const LEAST: u64 = 32 << 20;
/// Between two probes, so that one does not end the work of the one before.
pub const PAUSE: Nanos = Nanos::from_millis(300);

const KIB: u64 = 1 << 10;

/// Steps of the probes that go backward.
pub const BACKWARD: [u64; 2] = [4 * KIB, 64 * KIB];

/// Reads, one at a time; enough for a mean of what turns and seeks.
fn probe(name: String, pattern: Pattern, size: u64) -> Probe {
    let (durable, writes, tail) = (Durable::No, 0, false);
    Probe { name, pattern, writes, size, depth: 1, count: 120, durable, tail }
}

/// The same with more under way at once.
fn deep(probe: Probe, depth: u64) -> Probe {
    Probe { depth, count: (60 * depth.clamp(1, 8)).max(120), ..probe }
}

/// A read of 4 KiB, one at a time.
pub fn plain_read() -> Probe {
    probe("random reads of 4 KiB".to_owned(), Pattern::Random, 4 * KIB)
}

fn reads(info: &DeviceInfo) -> Vec<Probe> {
    let random = |size: u64, depth: u64| {
        let name = format!("random reads of {} KiB, depth {depth}", size / KIB);
        deep(probe(name, Pattern::Random, size), depth)
    };
    let sequential = |size: u64, depth: u64| {
        let name = format!("sequential reads of {} KiB, depth {depth}", size / KIB);
        deep(probe(name, Pattern::Sequential, size), depth)
    };
    let backward = |step: u64| {
        let name = format!("reads of 4 KiB, each {} KiB before the last", step / KIB);
        Probe { count: 60, ..probe(name, Pattern::Backward(step), 4 * KIB) }
    };
    let jump = |part: u64| {
        let far = info.bytes() / part / 4096 * 4096;
        let name = format!("reads a {part}th of the device apart");
        Probe { count: 240, ..probe(name, Pattern::Jump(far), 4 * KIB) }
    };
    let most = info.max_bytes.min(1 << 20) as u64 / KIB / 4 * 4 * KIB;
    let depths = [2, 4, 8, 16, 32, 64, 128].into_iter().filter(|&n| n <= u64::from(info.depth));
    let mut all = vec![random(4 * KIB, 1), random(32 * KIB, 1), random(most.max(4 * KIB), 1)];
    all[0].count = 240;
    all.extend(depths.map(|depth| random(4 * KIB, depth)));
    all.push(random(64 * KIB, 8));
    all.extend([sequential(4 * KIB, 1), sequential(128 * KIB, 1), sequential(128 * KIB, 8)]);
    all.extend([16_384, 1024, 64, 8, 2].map(jump));
    all.extend(BACKWARD.map(backward));
    all
}

fn writes(info: &DeviceInfo) -> Vec<Probe> {
    let write = |pattern: Pattern, size: u64, depth: u64| {
        let how = if pattern == Pattern::Random { "random" } else { "sequential" };
        let name = format!("{how} writes of {} KiB, depth {depth}", size / KIB);
        Probe { writes: 100, ..deep(probe(name, pattern, size), depth) }
    };
    let (random, sequential) = (Pattern::Random, Pattern::Sequential);
    let lasting = |probe: Probe, bytes: u64| Probe {
        name: format!("{}, {} MiB of them", probe.name, bytes >> 20),
        count: (bytes / probe.size).max(probe.count),
        tail: true,
        ..probe
    };
    let flush = write(random, 4 * KIB, 1);
    let (durable, name) = (Durable::Flush, "a flush behind a write of 4 KiB".to_owned());
    let flush = Probe { durable, name, count: 60, ..flush };
    let fua =
        Probe { durable: Durable::Fua, name: "a write of 4 KiB with FUA".to_owned(), ..flush };
    let mut all = vec![
        write(random, 4 * KIB, 1),
        write(random, 4 * KIB, 8),
        write(random, 64 * KIB, 1),
        write(sequential, 128 * KIB, 4),
    ];
    let long = (info.bytes() / 4).min(192 << 20);
    all.push(lasting(write(sequential, 256 * KIB, 8), long));
    all.push(lasting(write(random, 16 * KIB, 16), (long / 4).min(24 << 20)));
    if info.volatile_cache {
        all.push(flush);
        all.push(fua);
    }
    all
}

/// The probes, from the least to the most that they change.
pub fn probes(info: &DeviceInfo, write: bool) -> Vec<Probe> {
    let mut all = reads(info);
    if write {
        all.extend(writes(info));
    }
    all
}

/// A mix that no model is fitted to.
pub fn mix(write: bool) -> Probe {
    let name = "a mix of sizes, half of them in sequence, depth 4".to_owned();
    let writes = if write { 30 } else { 0 };
    Probe { writes, count: 800, ..deep(probe(name, Pattern::Mix, 4 * KIB), 4) }
}

/// The mix as a job of fio. What is written stands for what is done: a half of the requests are of
/// 4 KiB in sequence, the others at random places, of 4, 16 and 64 KiB.
pub fn job(write: bool) -> String {
    let rw = if write { "rw\nrwmixread=70" } else { "read" };
    format!(
        "[mix]\nrw={rw}\nbssplit=4k/80:16k/10:64k/10\npercentage_random=50\niodepth=4\ndirect=1"
    )
}
