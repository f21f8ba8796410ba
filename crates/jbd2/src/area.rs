//! Where a journal lies, and the reading and writing of its blocks.

use std::sync::Arc;

use base::unit::SECTOR_SIZE;
use base::{Page, Sector};
use block::{Bio, BioFlags, DeviceError, EndIo, IoGroup, Op, Plug, Queue, Segment};
use rt::{Cx, SpinLock};

use crate::error::JournalError;

/// Bytes of one bio of the log at the most.
const BIO_BYTES_MAX: u32 = 1 << 20;

/// A run of journal blocks that are consecutive on the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Extent {
    /// First block, counted from the journal's superblock.
    log: u32,
    /// Its place on the device, in blocks.
    block: u64,
    /// Blocks.
    len: u32,
}

/// The place of a journal: extents of the file system's device (the journal inode's), or a piece
/// of another device.
#[derive(Clone)]
pub struct JournalArea {
    device: Option<Arc<Queue>>,
    extents: Vec<Extent>,
    len: u32,
}

impl JournalArea {
    /// A journal inside of the file system: `(block, count)` of the journal inode's extents, in the
    /// order of the file.
    pub fn internal(extents: impl IntoIterator<Item = (u64, u32)>) -> JournalArea {
        let mut area = JournalArea { device: None, extents: Vec::new(), len: 0 };
        for (block, len) in extents {
            area.push(block, len);
        }
        area
    }

    /// A journal on another device of `len` blocks, whose superblock is in `block` (1 with blocks
    /// of 2 KiB and more, 2 with blocks of 1 KiB). All other blocks have the device's numbers.
    pub fn external(device: Arc<Queue>, block: u64, len: u32) -> JournalArea {
        let mut area = JournalArea { device: Some(device), extents: Vec::new(), len: 0 };
        area.push(block, len.min(1));
        area.push(1, len.saturating_sub(1));
        area
    }

    fn push(&mut self, block: u64, len: u32) {
        // More than 2^32 blocks cannot be addressed by a journal; the rest is out of reach.
        let len = len.min(u32::MAX - self.len);
        if let Some(last) = self.extents.last_mut()
            && last.block + u64::from(last.len) == block
        {
            last.len += len;
        } else if len > 0 {
            self.extents.push(Extent { log: self.len, block, len });
        }
        self.len += len;
    }

    /// Blocks that the area has.
    pub fn len(&self) -> u32 {
        self.len
    }

    /// True where it has none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// True where the journal has a device of its own.
    pub fn is_external(&self) -> bool {
        self.device.is_some()
    }

    /// Device block of a journal block, and how many follow it without a gap (itself included).
    ///
    /// # Panics
    /// Where the area ends before `log`.
    pub fn map(&self, log: u32) -> (u64, u32) {
        let index = self.extents.partition_point(|extent| extent.log <= log);
        let extent = self.extents[index.checked_sub(1).expect("the area has blocks")];
        let offset = log - extent.log;
        assert!(offset < extent.len, "journal block {log} is beyond the area's {}", self.len);
        (extent.block + u64::from(offset), extent.len - offset)
    }
}

/// Reads and writes journal blocks.
#[derive(Clone)]
pub(crate) struct LogDevice {
    pub queue: Arc<Queue>,
    pub area: JournalArea,
    pub block_size: u32,
    bio_blocks: u32,
}

impl LogDevice {
    pub fn new(
        fs: &Arc<Queue>,
        area: JournalArea,
        block_size: u32,
    ) -> Result<LogDevice, JournalError> {
        let queue = area.device.as_ref().unwrap_or(fs).clone();
        let info = queue.info();
        let end = info.sectors / (u64::from(block_size) / SECTOR_SIZE);
        for extent in &area.extents {
            let last = extent.block.saturating_add(u64::from(extent.len));
            if last > end {
                return Err(JournalError::Outside { block: last - 1, end });
            }
        }
        let by_bytes = info.max_bytes.clamp(block_size, BIO_BYTES_MAX.max(block_size)) / block_size;
        let bio_blocks = by_bytes.min(info.max_segments.max(1).into());
        Ok(LogDevice { queue, area, block_size, bio_blocks })
    }

    fn sector(&self, block: u64) -> Sector {
        Sector(block * (u64::from(self.block_size) / SECTOR_SIZE))
    }

    /// Reads one block. May park.
    pub fn read(&self, cx: &mut Cx, log: u32) -> Result<Page, DeviceError> {
        let (block, _) = self.area.map(log);
        self.queue.read(cx, self.sector(block), self.block_size as usize)
    }

    /// Reads `count` blocks from `log` on, which must not pass the end of the area. May park.
    pub fn read_run(&self, cx: &mut Cx, log: u32, count: u32) -> Result<Vec<Page>, DeviceError> {
        let pages = Arc::new(SpinLock::new(vec![None; count as usize]));
        let group = IoGroup::new();
        let mut plug = Plug::new();
        let mut done = 0;
        while done < count {
            let (block, run) = self.area.map(log + done);
            let run = run.min(count - done).min(self.bio_blocks);
            let pages = pages.clone();
            let (first, size) = (done as usize, self.block_size as usize);
            let segs = (0..run).map(|_| Segment::whole(Page::zeroed(size))).collect();
            let end = group.end_with(move |segs| {
                let mut pages = pages.lock_irq();
                for (place, segment) in pages[first..].iter_mut().zip(segs) {
                    *place = Some(segment.page);
                }
            });
            let flags = BioFlags::META | BioFlags::SYNC;
            let bio = Bio::new(Op::Read, self.sector(block), segs, flags, end);
            self.queue.submit_plugged(cx, &mut plug, bio);
            done += run;
        }
        plug.finish(cx);
        group.wait(cx)?;
        let pages = std::mem::take(&mut *pages.lock_irq());
        Ok(pages.into_iter().map(|page| page.expect("every bio gave its pages back")).collect())
    }

    /// Submits `pages` to consecutive log blocks from `log` on, without a wrap. May park.
    pub fn write_run(
        &self,
        cx: &mut Cx,
        log: u32,
        pages: &[Page],
        flags: BioFlags,
        io: (&mut Plug, &IoGroup),
    ) {
        let (plug, group) = io;
        let mut done = 0;
        while done < pages.len() {
            let (block, run) = self.area.map(log + done as u32);
            let run = (run.min(self.bio_blocks) as usize).min(pages.len() - done);
            let segs = pages[done..done + run].iter().cloned().map(Segment::whole).collect();
            let bio = Bio::new(Op::Write, self.sector(block), segs, flags, group.end());
            self.queue.submit_plugged(cx, plug, bio);
            done += run;
        }
    }

    /// The write of one block.
    pub fn write_of(&self, log: u32, page: Page, flags: BioFlags, end: EndIo) -> Bio {
        let (block, _) = self.area.map(log);
        Bio::write(self.sector(block), [page], flags, end)
    }

    /// Writes one block and waits. May park.
    pub fn write(
        &self,
        cx: &mut Cx,
        log: u32,
        page: Page,
        flags: BioFlags,
    ) -> Result<(), DeviceError> {
        let (block, _) = self.area.map(log);
        self.queue.write(cx, self.sector(block), page, flags)
    }
}
