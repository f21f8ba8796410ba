//! What campaigns have in common: their seeds, and who watches them.

use rt::testing;

/// How many seeds a campaign runs: `default`, or the environment's `IOPATH_SEEDS`.
pub fn seed_count(default: u64) -> u64 {
    std::env::var("IOPATH_SEEDS").ok().and_then(|n| n.trim().parse().ok()).unwrap_or(default)
}

/// The seeds of a campaign: the one in `IOPATH_SEED`, else 0 to [`seed_count`].
pub fn seeds(default: u64) -> std::ops::Range<u64> {
    testing::seeds(seed_count(default))
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
