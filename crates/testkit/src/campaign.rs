//! What campaigns have in common: their seeds, and who watches them.

use std::ops::Range;

use rt::testing;

/// How many seeds a campaign runs: `default`, or the environment's `IOPATH_SEEDS`.
pub fn seed_count(default: u64) -> u64 {
    std::env::var("IOPATH_SEEDS").ok().and_then(|n| n.trim().parse().ok()).unwrap_or(default)
}

/// The seeds of a campaign: the one in `IOPATH_SEED`, else 0 to [`seed_count`], or the part of them
/// that `IOPATH_SHARD` names.
///
/// # Panics
/// On a part that is not I/N.
pub fn seeds(default: u64) -> Range<u64> {
    let seeds = testing::seeds(seed_count(default));
    match std::env::var("IOPATH_SHARD") {
        Err(_) => seeds,
        Ok(shard) => part(seeds, &shard).unwrap_or_else(|| {
            panic!("IOPATH_SHARD={shard}: a part is I/N, with I from 1 to N");
        }),
    }
}

/// The part `I/N` of some seeds.
fn part(seeds: Range<u64>, shard: &str) -> Option<Range<u64>> {
    let (number, parts) = shard.split_once('/')?;
    let (number, parts): (u64, u64) = (number.parse().ok()?, parts.parse().ok()?);
    let count = seeds.end - seeds.start;
    let border = |number: u64| seeds.start + count * number / parts;
    (1..=parts).contains(&number).then(|| border(number - 1)..border(number))
}

/// Ends the whole test program, with a report, unless it is dropped in time: against deadlocks and
/// endless loops in real time.
pub struct Watchdog(Option<std::sync::mpsc::Sender<()>>);

impl Watchdog {
    /// Allows `seconds` of real time for `what`.
    #[allow(clippy::disallowed_methods, reason = "it watches real time from outside of every task")]
    pub fn new(what: String, seconds: u64) -> Watchdog {
        let (sender, receiver) = std::sync::mpsc::channel::<()>();
        std::thread::spawn(move || {
            let waited = receiver.recv_timeout(std::time::Duration::from_secs(seconds));
            if waited == Err(std::sync::mpsc::RecvTimeoutError::Timeout) {
                eprintln!("{what}: not done after {seconds} s; the threads are:");
                print_threads();
                std::process::abort();
            }
        });
        Watchdog(Some(sender))
    }
}

impl Drop for Watchdog {
    fn drop(&mut self) {
        self.0.take();
    }
}

/// What every thread of this process does, as far as the kernel says.
fn print_threads() {
    let tasks = std::fs::read_dir("/proc/self/task").into_iter().flatten().flatten();
    for task in tasks {
        let read = |file: &str| std::fs::read_to_string(task.path().join(file)).unwrap_or_default();
        let stat = read("stat");
        let state = stat.rsplit(')').next().unwrap_or_default().trim().chars().next();
        eprintln!("  {} {:?} {}", read("comm").trim(), state, read("wchan"));
    }
}

#[cfg(test)]
mod tests {
    use super::part;

    #[test]
    fn parts_of_seeds_are_all_seeds() {
        let parts: Vec<u64> =
            (1..=3).filter_map(|n| part(4..14, &format!("{n}/3"))).flatten().collect();
        assert_eq!(parts, (4..14).collect::<Vec<u64>>());
        assert_eq!(part(0..1, "2/2"), Some(0..1));
        for wrong in ["", "1", "0/2", "3/2", "a/2", "1/0"] {
            assert_eq!(part(0..9, wrong), None, "{wrong}");
        }
    }
}
