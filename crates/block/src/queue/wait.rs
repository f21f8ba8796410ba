//! Bios with a task that waits for them.

use super::{Queue, charge_submit};
use crate::{Bio, BioFlags, BioResult, DeviceError, EndIo, Op, Segment, Segments};
use base::{Page, Sector};
use rt::{Charge, Completion, Cx, SpinLock, WaitQueue};
use smallvec::smallvec;
use std::sync::Arc;
use std::sync::atomic::Ordering;

impl Queue {
    /// Submits a bio with data and waits for its end. The bio counts as synchronous.
    ///
    /// Blocking: parks until the device is done.
    pub fn execute(
        self: &Arc<Self>,
        cx: &mut Cx,
        op: Op,
        sector: Sector,
        segs: Segments,
        flags: BioFlags,
    ) -> BioResult {
        self.wait_for(cx, |end| Bio::new(op, sector, segs, flags | BioFlags::SYNC, end))
    }

    fn wait_for(self: &Arc<Self>, cx: &mut Cx, make: impl FnOnce(EndIo) -> Bio) -> BioResult {
        let done = Arc::new(Completion::named("bio"));
        let theirs = done.clone();
        self.submit(cx, make(Box::new(move |result| theirs.complete(result))));
        let result = done.wait(cx);
        cx.charge_for(Charge::Interrupt, 1);
        cx.charge_for(Charge::BioComplete, 1);
        result
    }

    /// Reads `len` bytes, a multiple of the logical block above zero. Parks.
    ///
    /// # Errors
    /// The device's, or that of a range that the queue refuses.
    pub fn read(
        self: &Arc<Self>,
        cx: &mut Cx,
        sector: Sector,
        len: usize,
    ) -> Result<Page, DeviceError> {
        let segs = smallvec![Segment::whole(Page::zeroed(len))];
        let mut done = self.execute(cx, Op::Read, sector, segs, BioFlags::empty());
        done.result?;
        Ok(done.segs.pop().expect("a bio gives its segments back").page)
    }

    /// Writes a whole page. Parks. Durable afterwards only with FUA or a later flush.
    ///
    /// # Errors
    /// The device's, or that of a range that the queue refuses.
    pub fn write(
        self: &Arc<Self>,
        cx: &mut Cx,
        sector: Sector,
        page: Page,
        flags: BioFlags,
    ) -> Result<(), DeviceError> {
        self.execute(cx, Op::Write, sector, smallvec![Segment::whole(page)], flags).result
    }

    /// Makes every write that has ended durable. Parks, except without a volatile cache.
    ///
    /// # Errors
    /// The device's: then nothing is known about what is durable.
    pub fn flush(self: &Arc<Self>, cx: &mut Cx) -> Result<(), DeviceError> {
        if !self.info.volatile_cache {
            self.state.lock_irq().stats.flushes_dropped += 1;
            return Ok(());
        }
        self.wait_for(cx, Bio::flush).result
    }

    /// Discards a range: the device need not keep its content. Parks.
    ///
    /// # Errors
    /// As for [`Queue::write`]; [`Cause::Unsupported`](crate::Cause::Unsupported) without discard.
    pub fn discard(
        self: &Arc<Self>,
        cx: &mut Cx,
        sector: Sector,
        sectors: u64,
    ) -> Result<(), DeviceError> {
        self.wait_for(cx, |end| Bio::ranged(Op::Discard, sector, sectors, end)).result
    }

    /// Makes a range read as zeros. Parks.
    ///
    /// # Errors
    /// As for [`Queue::write`].
    pub fn write_zeroes(
        self: &Arc<Self>,
        cx: &mut Cx,
        sector: Sector,
        sectors: u64,
    ) -> Result<(), DeviceError> {
        self.wait_for(cx, |end| Bio::ranged(Op::WriteZeroes, sector, sectors, end)).result
    }

    /// Waits until every bio that was submitted has ended. New ones may come meanwhile. Parks.
    pub fn drain(&self, cx: &mut Cx) {
        self.idle.wait_until(cx, "block: drain", || {
            self.state.lock_irq().is_idle() && self.ending.load(Ordering::Acquire) == 0
        });
    }
}

/// Many bios that one task waits for together.
///
/// ```
/// # use base::{Page, Sector};
/// # use block::{Bio, BioFlags, DeviceError, IoGroup, Plug, Queue};
/// # use std::sync::Arc;
/// fn write_run(cx: &mut rt::Cx, queue: &Arc<Queue>, pages: Vec<Page>) -> Result<(), DeviceError> {
///     let (group, mut plug) = (IoGroup::new(), Plug::new());
///     for (index, page) in pages.into_iter().enumerate() {
///         let sector = Sector(index as u64 * 8);
///         let bio = Bio::write(sector, [page], BioFlags::SYNC, group.end());
///         queue.submit_plugged(cx, &mut plug, bio);
///     }
///     plug.finish(cx);
///     group.wait(cx)
/// }
/// ```
#[derive(Clone, Default)]
pub struct IoGroup(Arc<Group>);

/// Where the bios of a group stand.
#[derive(Default)]
struct Ends {
    /// Not ended yet.
    pending: u64,
    /// Ended since the last wait.
    ended: u64,
    /// The first error since the last wait.
    error: Option<DeviceError>,
    /// What is sent when nothing is pending.
    next: Option<(Arc<Queue>, Bio)>,
}

/// A bio that follows a group, and why it is not to be sent.
type Next = (Arc<Queue>, Bio, Option<DeviceError>);

impl Ends {
    fn take_next(&mut self) -> Option<Next> {
        let (queue, bio) = self.next.take()?;
        Some((queue, bio, self.error.clone()))
    }
}

fn send(next: Option<Next>) {
    match next {
        Some((queue, bio, None)) => queue.submit_in_event(bio),
        Some((_, bio, Some(error))) => {
            (bio.end)(BioResult { segs: bio.segs, result: Err(error) });
        }
        None => {}
    }
}

#[derive(Default)]
struct Group {
    state: SpinLock<Ends>,
    waiters: WaitQueue,
}

impl IoGroup {
    /// An empty group.
    pub fn new() -> IoGroup {
        IoGroup::default()
    }

    /// The end for one more bio; its segments are dropped.
    pub fn end(&self) -> EndIo {
        self.end_with(|_| ())
    }

    /// The end for one more bio; `then` gets its segments where it succeeded, in event context.
    pub fn end_with(&self, then: impl FnOnce(Segments) + Send + 'static) -> EndIo {
        self.0.state.lock_irq().pending += 1;
        let group = self.0.clone();
        Box::new(move |done| {
            if done.result.is_ok() {
                then(done.segs);
            }
            let mut state = group.state.lock_irq();
            state.pending -= 1;
            state.ended += 1;
            if let Err(error) = done.result {
                state.error.get_or_insert(error);
            }
            let last = state.pending == 0;
            let next = if last { state.take_next() } else { None };
            drop(state);
            if last {
                send(next);
                group.waiters.wake_all();
            }
        })
    }

    /// An edge between requests: `bio` is sent when every bio of the group has ended, in event
    /// context, so that no task has to wake up in between. Where one of them has failed, `bio` ends
    /// with that error and is not sent. It may go beyond `nr_requests`. Does not park.
    ///
    /// # Panics
    /// Where another bio follows the group already.
    pub fn then(&self, cx: &mut Cx, queue: &Arc<Queue>, mut bio: Bio) {
        queue.own(cx, &mut bio);
        charge_submit(cx, &bio);
        cx.settle();
        let mut state = self.0.state.lock_irq();
        let before = state.next.replace((queue.clone(), bio));
        assert!(before.is_none(), "one bio follows a group");
        let next = if state.pending == 0 { state.take_next() } else { None };
        drop(state);
        send(next);
    }

    /// Waits until all bios of the group have ended. Parks.
    ///
    /// # Errors
    /// The first error of any of them since the last wait.
    pub fn wait(&self, cx: &mut Cx) -> Result<(), DeviceError> {
        let done = || self.0.state.lock_irq().pending == 0;
        self.0.waiters.wait_until(cx, "block: a group of bios", done);
        let (ended, error) = {
            let mut state = self.0.state.lock_irq();
            (std::mem::take(&mut state.ended), state.error.take())
        };
        cx.charge_for(Charge::Interrupt, ended.min(1));
        cx.charge_for(Charge::BioComplete, ended);
        match error {
            Some(error) => Err(error),
            None => Ok(()),
        }
    }
}
