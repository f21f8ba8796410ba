//! The bio: one operation on one run of sectors, with the pages that it moves.

use crate::{DeviceError, Op};
use base::unit::SECTOR_SIZE;
use base::{Page, Sector};
use rt::{Cgroup, Cx, IoPriority};
use smallvec::SmallVec;
use std::fmt;

bitflags::bitflags! {
    /// What the issuer says about a bio beside the operation.
    #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
    pub struct BioFlags: u16 {
        /// Somebody waits for it. Every read counts as synchronous, with or without this flag.
        const SYNC = 1 << 0;
        /// It carries metadata.
        const META = 1 << 1;
        /// The write is durable when it completes.
        const FUA = 1 << 2;
        /// Everything that completed before it is made durable first.
        const PREFLUSH = 1 << 3;
        /// Nothing follows soon: an elevator should not keep the device idle for this issuer.
        const NOIDLE = 1 << 4;
        /// Read ahead of need; may fail without a report.
        const RAHEAD = 1 << 5;
        /// A draining barrier, as block devices had it before 2.6.37: what the queue took before
        /// completes first, then this write runs alone, then what came later goes on. Of a write
        /// only; a device with a volatile cache is flushed as PREFLUSH and FUA ask beside it.
        const BARRIER = 1 << 6;
    }
}

/// A run of bytes of one page.
#[derive(Clone, Debug)]
pub struct Segment {
    /// The memory. A page that is to be read into should have no other reference: the device
    /// fills a private copy otherwise, which is what comes back.
    pub page: Page,
    /// First byte inside the page.
    pub offset: u32,
    /// Number of bytes, above zero; a multiple of the device's logical block.
    pub len: u32,
}

impl Segment {
    /// The whole page.
    pub fn whole(page: Page) -> Segment {
        let len = page.len() as u32;
        Segment { page, offset: 0, len }
    }

    /// The bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.page[self.offset as usize..][..self.len as usize]
    }

    /// The bytes for a device that reads into them; a private copy where the page is shared.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.page.make_mut()[self.offset as usize..][..self.len as usize]
    }
}

/// The memory of a bio or of a request.
pub type Segments = SmallVec<[Segment; 4]>;

/// What the issuer of a bio gets back.
#[derive(Debug)]
pub struct BioResult {
    /// The segments of the bio, in its order; those of a read are filled where it succeeded.
    pub segs: Segments,
    /// Success, or the part of the bio that failed.
    pub result: Result<(), DeviceError>,
}

/// Called once when the bio is done, in event context: from any thread, with no lock of the queue
/// held, maybe before `submit` returns. It may not wait and may not submit.
pub type EndIo = Box<dyn FnOnce(BioResult) + Send>;

/// One operation on one run of sectors.
pub struct Bio {
    /// What to do.
    pub op: Op,
    /// First sector of 512 bytes. Ignored by [`Op::Flush`].
    pub sector: Sector,
    /// The pages of a read or a write, in the order of the sectors.
    pub segs: Segments,
    /// Number of sectors of 512 bytes. Follows from `segs` for operations with data.
    pub sectors: u64,
    /// Hints and durability.
    pub flags: BioFlags,
    /// The I/O context that it is accounted to; 0 means that of the submitting task.
    pub ioc: u64,
    /// The I/O priority; `None` means that of the submitting task.
    pub ioprio: Option<IoPriority>,
    /// The control group that it counts against; `None` means that of the submitting task.
    pub cgroup: Option<Cgroup>,
    /// The task that submits it; the queue fills it in.
    pub issuer: Issuer,
    /// Who is called at the end.
    pub end: EndIo,
}

/// A task and the processor it runs on, for traces. Task 0 is the queue itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Issuer {
    /// The low half of the task's id.
    pub task: u32,
    /// Its processor.
    pub cpu: u16,
}

impl Issuer {
    fn of(cx: &Cx) -> Issuer {
        Issuer { task: cx.task().0 as u32, cpu: cx.cpu() as u16 }
    }
}

impl Bio {
    /// A bio with data.
    ///
    /// # Panics
    /// Where `op` carries no data.
    pub fn new(op: Op, sector: Sector, segs: Segments, flags: BioFlags, end: EndIo) -> Bio {
        assert!(op.has_data(), "a {op} has no pages");
        let sectors = bytes_of(&segs) / SECTOR_SIZE;
        Bio { segs, flags, ..Bio::bare(op, sector, sectors, end) }
    }

    /// A read into whole pages.
    pub fn read(sector: Sector, pages: impl IntoIterator<Item = Page>, end: EndIo) -> Bio {
        let segs = pages.into_iter().map(Segment::whole).collect();
        Bio::new(Op::Read, sector, segs, BioFlags::empty(), end)
    }

    /// A write of whole pages.
    pub fn write(
        sector: Sector,
        pages: impl IntoIterator<Item = Page>,
        flags: BioFlags,
        end: EndIo,
    ) -> Bio {
        let segs = pages.into_iter().map(Segment::whole).collect();
        Bio::new(Op::Write, sector, segs, flags, end)
    }

    /// A flush of the device's volatile cache.
    pub fn flush(end: EndIo) -> Bio {
        Bio::ranged(Op::Flush, Sector(0), 0, end)
    }

    /// A discard or a write of zeroes (or a flush) on `sectors` sectors.
    ///
    /// # Panics
    /// Where `op` carries data.
    pub fn ranged(op: Op, sector: Sector, sectors: u64, end: EndIo) -> Bio {
        assert!(!op.has_data(), "a {op} needs pages");
        Bio::bare(op, sector, sectors, end)
    }

    /// Without pages, flags or issuer.
    fn bare(op: Op, sector: Sector, sectors: u64, end: EndIo) -> Bio {
        Bio {
            op,
            sector,
            segs: Segments::new(),
            sectors,
            flags: BioFlags::empty(),
            ioc: 0,
            ioprio: None,
            cgroup: None,
            issuer: Issuer::default(),
            end,
        }
    }

    /// The first sector behind it.
    pub fn end_sector(&self) -> Sector {
        self.sector + self.sectors
    }

    /// Length in bytes.
    pub fn bytes(&self) -> u64 {
        self.sectors * SECTOR_SIZE
    }

    /// Fills in what the issuer left to the submitting task.
    pub(crate) fn own(&mut self, cx: &Cx) {
        if self.ioc == 0 {
            self.ioc = cx.ioc();
        }
        self.ioprio.get_or_insert(cx.ioprio());
        self.cgroup.get_or_insert(cx.cgroup());
        self.issuer = Issuer::of(cx);
    }

    /// Its control group; the root group where nobody named one.
    pub fn group(&self) -> Cgroup {
        self.cgroup.unwrap_or_default()
    }

    /// True where somebody waits for it: reads, and writes that say so.
    pub fn is_sync(&self) -> bool {
        is_sync(self.op, self.flags)
    }
}

impl fmt::Debug for Bio {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Bio({} {} + {}, {:?})", self.op, self.sector, self.sectors, self.flags)
    }
}

/// True for reads and for what carries [`BioFlags::SYNC`].
pub(crate) fn is_sync(op: Op, flags: BioFlags) -> bool {
    op == Op::Read || flags.contains(BioFlags::SYNC)
}

/// Bytes in a list of segments.
pub fn bytes_of(segs: &[Segment]) -> u64 {
    segs.iter().map(|seg| seg.len as u64).sum()
}
