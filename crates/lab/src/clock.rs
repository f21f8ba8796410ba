//! The clock of measured experiments.

use rustix::time::{ClockId, clock_gettime};

/// CPU time of the process in nanoseconds.
pub(crate) fn cpu_nanos() -> f64 {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    time.tv_sec as f64 * 1e9 + time.tv_nsec as f64
}

/// CPU time of the calling thread in nanoseconds.
pub(crate) fn thread_nanos() -> f64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as f64 * 1e9 + time.tv_nsec as f64
}
