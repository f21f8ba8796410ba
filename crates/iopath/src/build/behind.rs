//! A device for an image that nobody sees before it is complete: it is not flushed, and a task of
//! its own writes what comes, while more is being made.

use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, SyncSender};

use block::{BioFlags, Cause, Device, DeviceError, DeviceInfo, DeviceIo, Op, Segments};
use rt::{Cx, JoinHandle, SpinLock};

/// Requests that wait, at most: each is of 4 MiB or less, most are of some 100 KiB.
const WAITING: usize = 8;

/// Something for the task.
enum Job {
    /// A write, a discard or a write of zeroes.
    Change { op: Op, sector: base::Sector, count: u64, segs: Segments },
    /// Everything that came before is done: the other end hears of it.
    Settle(mpsc::Sender<()>),
    /// Nothing comes any more.
    End,
}

/// Another device, said to keep what it has taken. A change is complete for the caller when it is
/// in line; its pages stay as they were, since whoever changes a page that others hold takes a
/// copy. A read waits for all of them.
pub struct BehindDevice {
    inner: Arc<dyn Device>,
    info: DeviceInfo,
    jobs: SyncSender<Job>,
    failed: Arc<SpinLock<Option<DeviceError>>>,
}

/// The task that writes.
pub struct Behind {
    task: JoinHandle<()>,
    jobs: SyncSender<Job>,
    failed: Arc<SpinLock<Option<DeviceError>>>,
}

impl BehindDevice {
    /// The same device without a cache that can be lost; `cx` is a task of the host's time, beside
    /// which the writes are done. Whoever made `inner` flushes it at the end.
    pub fn new(cx: &mut Cx, inner: Arc<dyn Device>) -> (BehindDevice, Behind) {
        let info = DeviceInfo { volatile_cache: false, fua: false, ..inner.info().clone() };
        let (jobs, coming) = mpsc::sync_channel(WAITING);
        let failed = Arc::new(SpinLock::named("writes behind", None));
        let (device, noted) = (inner.clone(), failed.clone());
        let task = cx.spawn("writes", move |_cx| write(&*device, &coming, &noted));
        let behind = Behind { task, jobs: jobs.clone(), failed: failed.clone() };
        (BehindDevice { inner, info, jobs, failed }, behind)
    }

    /// Blocks until everything that came before is done; false behind the end.
    fn settle(&self) -> bool {
        let (done, heard) = mpsc::channel();
        self.jobs.send(Job::Settle(done)).is_ok() && heard.recv().is_ok()
    }
}

impl Behind {
    /// Waits until everything is written that has come. Later requests fail.
    ///
    /// # Errors
    /// The first that a request met: the image is of no use.
    pub fn end(self, cx: &mut Cx) -> Result<(), DeviceError> {
        let _it_ends_then = self.jobs.send(Job::End);
        self.task.join(cx);
        self.failed.lock_irq().take().map_or(Ok(()), Err)
    }
}

/// Carries out what comes, in order. After an error nothing more is written.
fn write(device: &dyn Device, coming: &Receiver<Job>, failed: &Arc<SpinLock<Option<DeviceError>>>) {
    while let Ok(job) = coming.recv() {
        match job {
            Job::End => return,
            Job::Settle(done) => {
                let _it_may_have_gone = done.send(());
            }
            Job::Change { .. } if failed.lock_irq().is_some() => {}
            Job::Change { op, sector, count, segs } => {
                let (done, heard) = mpsc::channel();
                let end = move |_, result| {
                    let _it_waits = done.send(result);
                };
                let none = BioFlags::empty();
                device.submit(match op {
                    Op::Write => DeviceIo::new(op, sector, segs, none, end),
                    _ => DeviceIo::ranged(op, sector, count, none, end),
                });
                if let Err(error) = heard.recv().expect("each request is completed") {
                    failed.lock_irq().get_or_insert(error);
                }
            }
        }
    }
}

impl Device for BehindDevice {
    fn info(&self) -> &DeviceInfo {
        &self.info
    }

    fn submit(&self, io: DeviceIo) {
        let failed = self.failed.lock_irq().as_ref().map(|error| error.cause);
        if let Some(cause) = failed {
            return io.fail(cause);
        }
        let taken = match io.op {
            Op::Read | Op::Flush if self.settle() => return self.inner.submit(io),
            Op::Read | Op::Flush => false,
            Op::Write | Op::Discard | Op::WriteZeroes => {
                let (op, sector, count, segs) = (io.op, io.sector, io.count, io.segs.clone());
                self.jobs.send(Job::Change { op, sector, count, segs }).is_ok()
            }
        };
        match taken {
            true => io.succeed(),
            false => io.fail(Cause::Dropped),
        }
    }

    fn name(&self) -> String {
        self.inner.name()
    }
}
