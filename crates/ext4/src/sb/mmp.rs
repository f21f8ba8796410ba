//! Multi-mount protection: a writable mount claims the block, changes its number while it lives,
//! and releases it at the end. Another mount that sees the number change is refused.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use base::{Errno, FsBlock, Nanos, Page, Sector};
use block::{BioFlags, DeviceError, Queue};
use rt::{Cx, JoinHandle, SpinLock, WaitQueue};

use crate::format::features::Incompat;
use crate::format::mmp::{self, CHECK_INTERVAL_MIN, CLEAN, FSCK, SEQUENCE_MAX};
use crate::format::{At, Corrupt, CorruptKind, Geometry, RawSuper};
use crate::sb::SuperBlock;

/// Who holds a file system that is not to be mounted.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error(
    "multi-mount protection: {what} on node {node:?}, device {device:?}, last seen {}; if that \
     is certainly over, clear it with: tune2fs -f -E clear_mmp DEVICE",
    base::calendar::date(*time as i64)
)]
pub struct Busy {
    /// In use, or being checked.
    pub what: &'static str,
    /// The machine.
    pub node: String,
    /// The name of its device.
    pub device: String,
    /// When the block was written, in seconds since 1970.
    pub time: u64,
}

/// Why the block was not taken.
#[derive(Debug, thiserror::Error)]
pub(crate) enum MmpError {
    #[error(transparent)]
    Busy(#[from] Busy),
    #[error(transparent)]
    Corrupt(#[from] Corrupt),
    #[error(transparent)]
    Device(#[from] DeviceError),
}

impl Busy {
    fn of(block: &mmp::Mmp) -> Busy {
        let what = if block.sequence == FSCK { "a check is at work" } else { "it is in use" };
        Busy { what, node: block.node.clone(), device: block.device.clone(), time: block.time }
    }
}

/// The block, held by this mount.
pub(crate) struct Protection {
    queue: Arc<Queue>,
    sector: Sector,
    block: FsBlock,
    block_size: usize,
    seed: Option<u32>,
    /// Between two changes of the number.
    interval: Nanos,
    /// What we wrote last.
    last: SpinLock<mmp::Mmp>,
    stop: AtomicBool,
    stopped: WaitQueue,
    task: SpinLock<Option<JoinHandle<()>>>,
    /// Somebody else has written the block: it is not ours any more.
    lost: AtomicBool,
}

impl Protection {
    /// Takes the block of a file system that has one. May sleep for some 20 seconds, to see whether
    /// a number that is not clean changes.
    ///
    /// # Errors
    /// [`Busy`]; a damaged block; the device's.
    pub fn acquire(
        cx: &mut Cx,
        queue: &Arc<Queue>,
        raw: &RawSuper,
        geometry: &Geometry,
        node: &str,
    ) -> Result<Option<Arc<Protection>>, MmpError> {
        if !geometry.features.incompat.contains(Incompat::MMP) {
            return Ok(None);
        }
        let block = FsBlock(raw.s_mmp_block.get());
        let update = raw.s_mmp_interval.get().clamp(1, 300);
        let held = Protection {
            queue: queue.clone(),
            sector: block.sector(geometry.block_size),
            block,
            block_size: geometry.block_size as usize,
            seed: geometry.checksums.metadata.then_some(geometry.checksums.seed),
            interval: Nanos::from_secs(u64::from(update)),
            last: SpinLock::new(mmp::Mmp {
                sequence: CLEAN,
                time: 0,
                node: node.to_string(),
                device: String::new(),
                check_interval: update.max(CHECK_INTERVAL_MIN),
            }),
            stop: AtomicBool::new(false),
            stopped: WaitQueue::named("multi-mount protection"),
            task: SpinLock::new(None),
            lost: AtomicBool::new(false),
        };
        if !geometry.data_blocks_valid(block.0, 1) {
            let (first, end) = (u64::from(geometry.first_data_block) + 1, geometry.blocks_count);
            let kind = CorruptKind::MmpPlace { block: block.0, first, end };
            return Err(kind.at(At::Super(0)).into());
        }
        let (found, wait) = held.observe(cx)?;
        let sequence = 1 + (cx.random() % u64::from(SEQUENCE_MAX - 1)) as u32;
        held.write(cx, sequence)?;
        if found != Some(CLEAN) {
            // Another one may have waited beside us.
            cx.sleep(wait);
            let again = held.read(cx)?;
            if again.sequence != sequence {
                return Err(Busy::of(&again).into());
            }
        }
        Ok(Some(Arc::new(held)))
    }

    /// Waits until it is seen that nobody changes the block, unless it is clean. Answers its number
    /// and how long that takes. The number is missing where the checksum is wrong and stays so: the
    /// power has failed while somebody wrote the block, who would have written it again since.
    fn observe(&self, cx: &mut Cx) -> Result<(Option<u32>, Nanos), MmpError> {
        let wait = |interval: u16| Nanos::from_secs(2 * u64::from(interval.min(60)) + 1);
        let usual = self.last.lock(cx).check_interval;
        let page = self.page(cx)?;
        let found = match self.parse(&page) {
            Err(Corrupt { kind: CorruptKind::MmpChecksum { .. }, .. }) => {
                cx.sleep(wait(usual));
                let again = self.page(cx)?;
                if *again == *page {
                    return Ok((None, wait(usual)));
                }
                self.parse(&again)?
            }
            found => found?,
        };
        if found.sequence == FSCK {
            return Err(Busy::of(&found).into());
        }
        let wait = wait(found.check_interval.max(usual));
        if found.sequence != CLEAN {
            cx.sleep(wait);
            let again = self.read(cx)?;
            if again.sequence != found.sequence {
                return Err(Busy::of(&again).into());
            }
        }
        Ok((Some(found.sequence), wait))
    }

    fn page(&self, cx: &mut Cx) -> Result<Page, DeviceError> {
        self.queue.read(cx, self.sector, self.block_size)
    }

    fn parse(&self, page: &Page) -> Result<mmp::Mmp, Corrupt> {
        let at = At::Device(self.block.0);
        mmp::Mmp::parse(page, self.seed).map_err(|kind| kind.at(at))
    }

    fn read(&self, cx: &mut Cx) -> Result<mmp::Mmp, MmpError> {
        let page = self.page(cx)?;
        Ok(self.parse(&page)?)
    }

    fn write(&self, cx: &mut Cx, sequence: u32) -> Result<(), DeviceError> {
        let time = cx.realtime().sec as u64;
        let mut page = Page::zeroed(self.block_size);
        {
            let mut last = self.last.lock(cx);
            (last.sequence, last.time) = (sequence, time);
            last.emit(page.make_mut(), self.seed);
        }
        self.queue.write(cx, self.sector, page, BioFlags::SYNC | BioFlags::FUA)
    }

    /// Starts the task that changes the number from now on; where somebody else has changed it, the
    /// mount takes no more changes.
    pub fn keep(self: &Arc<Self>, cx: &Cx, sb: &Arc<SuperBlock>) {
        let (held, sb) = (self.clone(), sb.clone());
        let task = cx.spawn("mmp", move |cx| {
            let stop = || held.stop.load(Ordering::Acquire);
            while !held.stopped.wait_until_timeout(cx, "multi-mount", held.interval, stop) {
                if let Err(text) = held.beat(cx) {
                    held.lost.store(true, Ordering::Release);
                    sb.latch(Errno::EBUSY, text, None);
                    return;
                }
            }
        });
        *self.task.lock_irq() = Some(task);
    }

    /// Sees that the number is the one that was written, and writes the next.
    fn beat(&self, cx: &mut Cx) -> Result<(), String> {
        let last = self.last.lock(cx).sequence;
        let found = self.read(cx).map_err(|error| error.to_string())?;
        if found.sequence != last {
            return Err(Busy::of(&found).to_string());
        }
        let next = if last >= SEQUENCE_MAX { 1 } else { last + 1 };
        self.write(cx, next).map_err(|error| error.to_string())
    }

    /// Ends the task, without waiting for it.
    pub fn die(&self) {
        self.stop.store(true, Ordering::Release);
        self.stopped.wake_all();
    }

    /// Gives the block back: others may mount.
    ///
    /// # Errors
    /// The device's.
    pub fn give_back(&self, cx: &mut Cx) -> Result<(), DeviceError> {
        self.die();
        let task = self.task.lock_irq().take();
        task.into_iter().for_each(|task| task.join(cx));
        match self.lost.load(Ordering::Acquire) {
            true => Ok(()),
            false => self.write(cx, CLEAN),
        }
    }
}
