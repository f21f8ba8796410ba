//! Keeps the host's idle processors awake while programs use the mount.
//!
//! A program that waits for an answer leaves its processor idle. One that has gone to sleep wakes
//! late: after microseconds on bare metal, after tens of them where a hypervisor takes it away. The
//! kernel's interface for programs that cannot wait so long is a file: as long as somebody has it
//! open, processors sleep no deeper than the time written to it allows.

use std::fs::File;
use std::io::{self, Write};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use base::Nanos;
use rt::{Cx, WaitQueue};

/// The file; see the kernel's Documentation/power/pm_qos_interface.rst.
const FILE: &str = "/dev/cpu_dma_latency";
/// So long without a request, and the processors may sleep again.
const QUIET: Nanos = Nanos::from_millis(100);

/// Watches how a mount is used.
pub(crate) struct Awake {
    requests: AtomicU64,
    /// The task sleeps until a request comes.
    quiet: AtomicBool,
    ended: AtomicBool,
    task: WaitQueue,
}

/// No processor sleeps as long as this lives.
fn hold() -> io::Result<File> {
    let mut file = File::options().write(true).open(FILE)?;
    // Microseconds.
    file.write_all(&0_i32.to_ne_bytes())?;
    Ok(file)
}

impl Awake {
    /// # Errors
    /// The host has no such file, or not for us.
    pub fn new() -> io::Result<Awake> {
        hold().map_err(|error| io::Error::other(format!("awake: {FILE}: {error}")))?;
        Ok(Awake {
            requests: AtomicU64::new(0),
            quiet: AtomicBool::new(false),
            ended: AtomicBool::new(false),
            task: WaitQueue::named("fuse awake"),
        })
    }

    /// A request has come. Never waits.
    pub fn note(&self) {
        self.requests.fetch_add(1, Ordering::SeqCst);
        if self.quiet.load(Ordering::SeqCst) {
            self.task.wake_one();
        }
    }

    /// Keeps processors awake while requests come, until [`Awake::end`]. May park.
    pub fn keep(&self, cx: &mut Cx) {
        let requests = || self.requests.load(Ordering::SeqCst);
        let ended = || self.ended.load(Ordering::SeqCst);
        let mut seen = requests();
        while !ended() {
            self.quiet.store(true, Ordering::SeqCst);
            self.task.wait_until(cx, "requests", || ended() || requests() != seen);
            self.quiet.store(false, Ordering::SeqCst);
            // Refused after it was allowed: then they sleep, and all is only slower.
            let _held = hold();
            while requests() != seen && !ended() {
                seen = requests();
                self.task.wait_until_timeout(cx, "quiet", QUIET, ended);
            }
        }
    }

    /// The mount ends.
    pub fn end(&self) {
        self.ended.store(true, Ordering::SeqCst);
        self.task.wake_all();
    }
}
