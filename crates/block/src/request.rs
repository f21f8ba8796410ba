//! The request: one or several merged bios on their way to the device.

use crate::bio::is_sync;
use crate::{Bio, BioFlags, BioResult, DeviceError, Issuer, Op, Segments};
use base::unit::SECTOR_SIZE;
use base::{Nanos, Sector};
use rt::{Cgroup, IoPriority};
use smallvec::SmallVec;
use std::fmt;

/// Neighbouring bios of one operation that go to the device together.
pub struct Request {
    /// What to do.
    pub op: Op,
    /// First sector of 512 bytes.
    pub sector: Sector,
    /// Number of sectors; 0 for a flush.
    pub count: u64,
    /// The flags of the first bio.
    pub flags: BioFlags,
    /// The I/O context of the first bio.
    pub ioc: u64,
    /// The most urgent I/O priority of its bios.
    pub ioprio: IoPriority,
    /// The control group of all of its bios.
    pub cgroup: Cgroup,
    /// When the first bio came.
    pub queued: Nanos,
    /// Place in the order of arrival, unique in its queue. Breaks ties.
    pub number: u64,
    /// Its name in traces, unique in its queue, from 1.
    pub id: u64,
    /// The task that submitted the first bio.
    pub issuer: Issuer,
    segments: u32,
    bios: SmallVec<[Bio; 1]>,
    /// The elevator gave it out, so it must hear of its end.
    pub(crate) by_elevator: bool,
    /// It counts against `nr_requests`.
    pub(crate) allocated: bool,
    /// A flush follows the data before the bios end.
    pub(crate) post_flush: bool,
}

/// Largest size and most segments of a request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    pub bytes: u64,
    pub segments: u32,
}

impl Request {
    pub(crate) fn new(bio: Bio, now: Nanos, number: u64, id: u64) -> Box<Request> {
        Box::new(Request {
            op: bio.op,
            sector: bio.sector,
            count: bio.sectors,
            flags: bio.flags,
            ioc: bio.ioc,
            ioprio: bio.ioprio.unwrap_or_default(),
            cgroup: bio.group(),
            queued: now,
            number,
            id,
            issuer: bio.issuer,
            segments: bio.segs.len() as u32,
            bios: SmallVec::from_buf([bio]),
            by_elevator: false,
            allocated: false,
            post_flush: false,
        })
    }

    /// A flush that the queue itself makes.
    pub(crate) fn flush(now: Nanos, number: u64, id: u64) -> Box<Request> {
        Box::new(Request {
            op: Op::Flush,
            sector: Sector(0),
            count: 0,
            flags: BioFlags::SYNC,
            ioc: 0,
            ioprio: IoPriority::default(),
            cgroup: Cgroup::ROOT,
            queued: now,
            number,
            id,
            issuer: Issuer::default(),
            segments: 0,
            bios: SmallVec::new(),
            by_elevator: false,
            allocated: false,
            post_flush: false,
        })
    }

    /// The first sector behind it.
    pub fn end_sector(&self) -> Sector {
        self.sector + self.count
    }

    /// Length in bytes.
    pub fn bytes(&self) -> u64 {
        self.count * SECTOR_SIZE
    }

    /// True where somebody waits for it.
    pub fn is_sync(&self) -> bool {
        is_sync(self.op, self.flags)
    }

    /// True where its kind of operation may grow by neighbours at all.
    pub(crate) fn mergeable(op: Op, flags: BioFlags) -> bool {
        op.has_data() && !flags.intersects(BioFlags::PREFLUSH.union(BioFlags::BARRIER))
    }

    fn alike(&self, op: Op, flags: BioFlags) -> bool {
        self.op == op
            && Request::mergeable(self.op, self.flags)
            && Request::mergeable(op, flags)
            && self.flags.contains(BioFlags::FUA) == flags.contains(BioFlags::FUA)
    }

    fn fits(&self, bytes: u64, segments: usize, limits: Limits) -> bool {
        self.bytes() + bytes <= limits.bytes && self.segments + segments as u32 <= limits.segments
    }

    /// True where `bio` may join, wherever it lies.
    pub(crate) fn takes(&self, bio: &Bio, limits: Limits) -> bool {
        self.cgroup == bio.group()
            && self.alike(bio.op, bio.flags)
            && self.fits(bio.bytes(), bio.segs.len(), limits)
    }

    /// True where `next` begins at the end of this request and may join it.
    pub(crate) fn takes_request(&self, next: &Request, limits: Limits) -> bool {
        self.end_sector() == next.sector
            && self.cgroup == next.cgroup
            && self.alike(next.op, next.flags)
            && self.fits(next.bytes(), next.segments as usize, limits)
    }

    pub(crate) fn push_back(&mut self, bio: Bio) {
        self.ioprio = self.ioprio.min(bio.ioprio.unwrap_or_default());
        self.count += bio.sectors;
        self.segments += bio.segs.len() as u32;
        self.bios.push(bio);
    }

    pub(crate) fn push_front(&mut self, bio: Bio) {
        self.ioprio = self.ioprio.min(bio.ioprio.unwrap_or_default());
        self.sector = bio.sector;
        self.count += bio.sectors;
        self.segments += bio.segs.len() as u32;
        self.bios.insert(0, bio);
    }

    /// Takes over all bios of the request that follows. The earlier arrival counts for both.
    pub(crate) fn absorb(&mut self, next: Box<Request>) {
        self.count += next.count;
        self.segments += next.segments;
        self.queued = self.queued.min(next.queued);
        self.ioprio = self.ioprio.min(next.ioprio);
        self.bios.extend(next.bios);
    }

    /// The memory for the device, which gives it back to [`Request::end`].
    pub(crate) fn take_segments(&mut self) -> Segments {
        if let [bio] = &mut self.bios[..] {
            return std::mem::take(&mut bio.segs);
        }
        let mut segs = Segments::with_capacity(self.segments as usize);
        for bio in &mut self.bios {
            segs.append(&mut bio.segs);
        }
        segs
    }

    /// Ends every bio with its own segments and its own part of the result.
    pub(crate) fn end(self: Box<Self>, mut segs: Segments, result: &Result<(), DeviceError>) {
        let alone = self.bios.len() == 1;
        let mut rest = SmallVec::<[_; 4]>::new();
        if !alone {
            rest.extend(std::mem::take(&mut segs));
        }
        let mut rest = rest.into_iter();
        for bio in self.bios {
            let own = if alone {
                std::mem::take(&mut segs)
            } else {
                let mut missing = if bio.op.has_data() { bio.bytes() } else { 0 };
                let mut own = Segments::new();
                while missing > 0 {
                    let Some(seg): Option<crate::Segment> = rest.next() else { break };
                    missing = missing.saturating_sub(seg.len as u64);
                    own.push(seg);
                }
                own
            };
            let result = match result {
                Ok(()) => Ok(()),
                Err(error) => match error.within(bio.sector, bio.sectors) {
                    Some(error) => Err(error),
                    None => Ok(()),
                },
            };
            (bio.end)(BioResult { segs: own, result });
        }
    }
}

impl fmt::Debug for Request {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bios = self.bios.len();
        write!(
            f,
            "Request({} {} + {}, {bios} bios, {:?})",
            self.op, self.sector, self.count, self.flags
        )
    }
}

/// Name of a request while it waits in a queue. Given to another request later.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct RequestId(pub(crate) u32);

/// The requests that wait in one queue.
#[derive(Default)]
pub struct Requests {
    slots: Vec<Option<Box<Request>>>,
    free: Vec<u32>,
    len: usize,
}

impl Requests {
    /// The request of that name.
    ///
    /// # Panics
    /// Where no such request waits.
    pub fn get(&self, id: RequestId) -> &Request {
        self.slots[id.0 as usize].as_deref().expect("an elevator names only waiting requests")
    }

    pub(crate) fn get_mut(&mut self, id: RequestId) -> &mut Request {
        self.slots[id.0 as usize].as_deref_mut().expect("an index names only waiting requests")
    }

    /// How many requests wait.
    pub fn len(&self) -> usize {
        self.len
    }

    /// True where none waits.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    pub(crate) fn add(&mut self, request: Box<Request>) -> RequestId {
        self.len += 1;
        match self.free.pop() {
            Some(slot) => {
                self.slots[slot as usize] = Some(request);
                RequestId(slot)
            }
            None => {
                self.slots.push(Some(request));
                RequestId(self.slots.len() as u32 - 1)
            }
        }
    }

    pub(crate) fn remove(&mut self, id: RequestId) -> Box<Request> {
        let request = self.slots[id.0 as usize].take();
        self.free.push(id.0);
        self.len -= 1;
        request.expect("an elevator gives a request out once")
    }

    /// Names of all waiting requests in the order of arrival.
    pub(crate) fn in_order(&self) -> Vec<RequestId> {
        let mut ids: Vec<RequestId> = (0..self.slots.len() as u32)
            .map(RequestId)
            .filter(|id| self.slots[id.0 as usize].is_some())
            .collect();
        ids.sort_by_key(|&id| self.get(id).number);
        ids
    }
}
