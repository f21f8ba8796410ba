//! The io_uring engine: requests are in flight in the host while the caller goes on.
//!
//! One ring per device. Submitters push under a lock and enter the kernel unless another request
//! follows at once ([`DeviceIo::more`]); one reaper thread waits for completions and ends requests.
//! Whatever the host does not carry out whole (a short transfer, an error in a request of many
//! segments) is finished by the reaper with plain system calls, which find out what exactly failed.
//!
//! # Invariant of the unsafe code
//!
//! A request in the ring is a [`Job`] on the heap whose address is the entry's user data. The job
//! owns the pages that its vectors point to (unique ones for a read), and nobody touches it until
//! the reaper has taken its completion, of which there is exactly one. The submission side of the
//! ring is used under `pushing` only, the completion side by the reaper only. The reaper ends after
//! the device's stop entry and the last job, so the ring outlives every job. Tested by the round
//! trips of both engines in `tests/`.

#![allow(unsafe_code)]
#![allow(clippy::disallowed_types, reason = "threads of the host, not tasks, meet here")]

use super::file::FileDevice;
use base::Errno;
use block::{BioFlags, Cause, Device, DeviceInfo, DeviceIo, HostRange, Op};
use io_uring::register::Restriction;
use io_uring::{IoUring, opcode, squeue, types};
use std::io;
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

/// User data of the entry that ends the reaper.
const STOP: u64 = 0;

/// An open image file or block device behind a ring.
pub struct UringDevice {
    shared: Arc<Shared>,
    reaper: Option<JoinHandle<()>>,
}

struct Shared {
    file: FileDevice,
    ring: IoUring,
    /// Held while entries are pushed.
    pushing: Mutex<()>,
    /// Jobs that the reaper has not seen.
    jobs: AtomicUsize,
}

/// A request in the ring.
struct Job {
    io: DeviceIo,
    vectors: Vec<libc::iovec>,
}

// SAFETY: the vectors point into pages that the job owns; it moves between threads as a whole.
unsafe impl Send for Job {}

impl UringDevice {
    /// Puts a ring in front of `file`; gives the file back where the host has none.
    pub(super) fn new(file: FileDevice) -> Result<UringDevice, (Box<FileDevice>, io::Error)> {
        let ring = match restricted(file.info.depth) {
            Ok(ring) => ring,
            Err(error) => return Err((Box::new(file), error)),
        };
        let (pushing, jobs) = (Mutex::new(()), AtomicUsize::new(0));
        let shared = Arc::new(Shared { file, ring, pushing, jobs });
        let theirs = shared.clone();
        let reaper = std::thread::Builder::new()
            .name("iopath-uring".to_owned())
            .spawn(move || theirs.reap())
            .expect("the host starts a thread");
        Ok(UringDevice { shared, reaper: Some(reaper) })
    }
}

/// A ring that reads, writes and flushes, and nothing else: no filter of system calls sees what
/// goes through it.
fn restricted(depth: u32) -> io::Result<IoUring> {
    let ring = IoUring::builder().setup_r_disabled().build(depth)?;
    let [read, write] = [opcode::Readv::CODE, opcode::Writev::CODE];
    let mut allowed =
        [read, write, opcode::Fsync::CODE, opcode::Nop::CODE].map(Restriction::sqe_op);
    ring.submitter().register_restrictions(&mut allowed)?;
    ring.submitter().register_enable_rings()?;
    Ok(ring)
}

impl Device for UringDevice {
    fn info(&self) -> &DeviceInfo {
        &self.shared.file.info
    }

    fn lengthen(&self, bytes: u64) -> Option<u64> {
        self.shared.file.lengthen(bytes)
    }

    fn submit(&self, io: DeviceIo) {
        if matches!(io.op, Op::Discard | Op::WriteZeroes) {
            return self.shared.file.submit(io);
        }
        let enter = !io.more;
        let entry = self.shared.prepare(io);
        self.shared.push(&entry, enter);
    }

    fn name(&self) -> String {
        self.shared.file.name()
    }

    fn host_range(&self, offset: u64, len: u64) -> Option<HostRange<'_>> {
        self.shared.file.host_range(offset, len)
    }
}

impl Drop for UringDevice {
    fn drop(&mut self) {
        self.shared.push(&opcode::Nop::new().build().user_data(STOP), true);
        if let Some(reaper) = self.reaper.take()
            && reaper.thread().id() != std::thread::current().id()
        {
            // A reaper that panicked has reported that; the device is going away anyway.
            let _ = reaper.join();
        }
    }
}

impl Shared {
    /// Makes a job of a request, and the entry for it.
    fn prepare(&self, io: DeviceIo) -> squeue::Entry {
        let mut job = Box::new(Job { vectors: Vec::with_capacity(io.segs.len()), io });
        let Job { io, vectors } = &mut *job;
        for seg in &mut io.segs {
            let (base, len) = match io.op {
                Op::Read => {
                    let bytes = seg.bytes_mut();
                    (bytes.as_mut_ptr(), bytes.len())
                }
                _ => (seg.bytes().as_ptr().cast_mut(), seg.bytes().len()),
            };
            vectors.push(libc::iovec { iov_base: base.cast(), iov_len: len });
        }
        let fd = types::Fd(self.file.file.as_raw_fd());
        let (start, count, pointer) = (io.sector.bytes(), vectors.len() as u32, vectors.as_ptr());
        let entry = match io.op {
            Op::Read => opcode::Readv::new(fd, pointer, count).offset(start).build(),
            Op::Write => {
                let durable = io.flags.contains(BioFlags::FUA);
                let flags = if durable { libc::RWF_DSYNC } else { 0 };
                opcode::Writev::new(fd, pointer, count).offset(start).rw_flags(flags).build()
            }
            _ => opcode::Fsync::new(fd).flags(types::FsyncFlags::DATASYNC).build(),
        };
        self.jobs.fetch_add(1, Ordering::Relaxed);
        entry.user_data(Box::into_raw(job) as u64)
    }

    fn push(&self, entry: &squeue::Entry, enter: bool) {
        let guard = self.pushing.lock().unwrap_or_else(|e| e.into_inner());
        loop {
            // SAFETY: the submission side is used under `pushing` only; the entry's memory is a job
            // that lives until its completion (or it has none).
            let pushed = unsafe { self.ring.submission_shared().push(entry) };
            if pushed.is_ok() {
                break;
            }
            self.enter(); // The ring is full of entries that nobody has handed over.
        }
        drop(guard);
        if enter {
            self.enter();
        }
    }

    /// Hands over what has been pushed.
    fn enter(&self) {
        while let Err(error) = self.ring.submit() {
            match error.raw_os_error() {
                // The kernel is short of something; the reaper makes room.
                Some(libc::EINTR | libc::EAGAIN | libc::EBUSY) => std::thread::yield_now(),
                _ => panic!("io_uring_enter failed on a ring of our own: {error}"),
            }
        }
    }

    /// The reaper: ends requests until the device goes away.
    fn reap(&self) {
        let mut stop = false;
        let mut done = Vec::new();
        while !stop || self.jobs.load(Ordering::Relaxed) > 0 {
            if let Err(error) = self.ring.submit_and_wait(1)
                && !matches!(error.raw_os_error(), Some(libc::EINTR | libc::EAGAIN | libc::EBUSY))
            {
                panic!("io_uring_enter failed on a ring of our own: {error}");
            }
            // SAFETY: only this thread uses the completion side.
            let completions = unsafe { self.ring.completion_shared() };
            done.extend(completions.map(|entry| (entry.user_data(), entry.result())));
            for (user_data, result) in done.drain(..) {
                if user_data == STOP {
                    stop = true;
                    continue;
                }
                // SAFETY: the address is that of a job given to the ring by `prepare`, and this is
                // its one completion.
                let job = unsafe { Box::from_raw(user_data as *mut Job) };
                self.jobs.fetch_sub(1, Ordering::Relaxed);
                self.finish(job.io, result);
            }
        }
    }

    fn finish(&self, mut io: DeviceIo, result: i32) {
        if io.op == Op::Flush {
            return match result {
                0.. => io.succeed(),
                error => io.fail(Cause::from_errno(Errno(-error))),
            };
        }
        let moved = result.max(0) as u64;
        if moved == io.bytes() {
            return io.succeed();
        }
        let result = self.file.carry_out(&mut io, moved);
        io.complete(result);
    }
}
