//! Reading a damaged file system without writing: the plan of its repair is carried out in memory,
//! over a device whose unreadable places read as zeros.

use std::sync::Arc;

use base::range::RangeSet64;
use base::unit::SECTOR_SIZE;
use base::{Page, Sector};
use block::{BioFlags, Device, DeviceError, Overlay, Queue, QueueConfig};
use rt::Cx;

use crate::holes::Holes;
use crate::{Format, Plan, PlanOptions, RepairError, plan_with};

/// A device with less than this part of its file system is not read: so much memory is not spent on
/// the word of a superblock.
const MOST_MISSING: u64 = 1024;

/// A damaged medium as it can be read.
pub struct Rescued {
    /// What was found and put right in memory; None where the file system cannot be repaired.
    pub plan: Result<Plan, RepairError>,
    /// Bytes that the file system has more than its device.
    pub missing: u64,
    /// What the plan met and could not read: sectors.
    pub unread: RangeSet64,
    holes: Arc<Holes>,
    device: Arc<dyn Device>,
}

impl Rescued {
    /// Reads `device` as well as it can be read, the `format` that was there if that is known. What
    /// is `lost` of it, in sectors, is not asked for. Reads all metadata once; memory as for
    /// [`plan`](fn@crate::plan). Parks.
    ///
    /// # Errors
    /// The overlay's.
    pub fn new(
        cx: &mut Cx,
        device: &Arc<dyn Device>,
        lost: &RangeSet64,
        format: Option<Format>,
    ) -> Result<Rescued, DeviceError> {
        let own = device.info().bytes();
        let mut holes = Arc::new(Holes::new(device.clone(), own, lost));
        let mut made = plan_of(cx, &holes, format);
        let mut missing = 0;
        if let Err(RepairError::CutShort { bytes, .. }) = made
            && bytes / MOST_MISSING <= own
        {
            holes = Arc::new(Holes::new(device.clone(), bytes, lost));
            made = plan_of(cx, &holes, format);
            missing = bytes.saturating_sub(own);
        }
        let device = match &made {
            Ok(plan) => restored(cx, &holes, plan)?,
            Err(_) => holes.clone(),
        };
        let unread = holes.met();
        holes.forget();
        Ok(Rescued { plan: made, missing, unread, holes, device })
    }

    /// The device to mount, read-only. What is written to it stays in memory.
    pub fn device(&self) -> &Arc<dyn Device> {
        &self.device
    }

    /// From now on only what is read then counts as met.
    pub fn forget(&self) {
        self.holes.forget();
    }

    /// What was read since, and is not there: sectors.
    pub fn met(&self) -> RangeSet64 {
        let mut met = self.holes.met();
        // What the plan writes anew is asked for below it, and not seen.
        for change in self.plan.iter().flat_map(|plan| &plan.changes) {
            let end = change.offset + change.new.len() as u64;
            met.remove(change.offset / SECTOR_SIZE..end / SECTOR_SIZE);
        }
        met
    }
}

fn queue_of(cx: &Cx, device: Arc<dyn Device>) -> Arc<Queue> {
    Queue::new(cx.runtime(), device, QueueConfig::default()).expect("the default elevator exists")
}

fn plan_of(cx: &mut Cx, holes: &Arc<Holes>, format: Option<Format>) -> Result<Plan, RepairError> {
    let queue = queue_of(cx, holes.clone());
    // Nothing is written: what a log holds that cannot be replayed is not lost by that.
    let options = PlanOptions { zero_log: true, format, ..PlanOptions::default() };
    plan_with(cx, &queue, options, &mut |_| true)
}

/// The device with the changes of a plan over it.
fn restored(cx: &mut Cx, holes: &Arc<Holes>, plan: &Plan) -> Result<Arc<dyn Device>, DeviceError> {
    let overlay = Arc::new(Overlay::new(holes.clone()));
    let queue = queue_of(cx, overlay.clone());
    for change in &plan.changes {
        let page = Page::from_slice(&change.new);
        queue.write(cx, Sector::from_bytes(change.offset), page, BioFlags::empty())?;
    }
    Ok(overlay)
}
