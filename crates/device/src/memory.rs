//! A device in memory: sparse, shared by pages, done at once.

use base::Page;
use base::page::is_zero;
use base::unit::SECTOR_SIZE;
use block::{BioFlags, Cause, Device, DeviceInfo, DeviceIo, Op, Segment};
use rt::SpinLock;

/// Bytes of one stored page.
const CHUNK: usize = 4096;
/// Stored pages under one lock: 4 MiB.
const GROUP: usize = 1024;

/// The stored pages of one group; empty until one is written. A missing page is zeros.
type Group = Vec<Option<Page>>;

/// Stores sectors in memory and completes every request inside `submit`.
///
/// Whole aligned pages of 4 KiB are stored and handed out by reference, so that neither a write nor
/// a read copies them; whoever changes one afterwards gets a copy of his own. Memory is used for
/// what was written only, and whole pages of zeros are one page of zeros. There is no volatile
/// cache: what has completed is there.
pub struct MemoryDevice {
    info: DeviceInfo,
    groups: Vec<SpinLock<Group>>,
    /// What a page that is not stored reads as.
    zeros: Page,
}

impl MemoryDevice {
    /// An empty device of `bytes` bytes, rounded up to whole sectors; it reads as zeros.
    pub fn new(bytes: u64) -> MemoryDevice {
        let info = DeviceInfo::plain(bytes.div_ceil(SECTOR_SIZE));
        MemoryDevice::with_info(DeviceInfo { physical_block: 512, ..info })
    }

    /// An empty device that describes itself as `info`. With `volatile_cache` it takes flushes (and
    /// FUA, where `info` says so), which then cost a request but do nothing.
    pub fn with_info(info: DeviceInfo) -> MemoryDevice {
        let groups = info.bytes().div_ceil((CHUNK * GROUP) as u64) as usize;
        let groups = (0..groups).map(|_| SpinLock::named("memory device", Group::new())).collect();
        MemoryDevice { info, groups, zeros: Page::zeroed(CHUNK) }
    }

    /// A device with the content of `image`; pages of zeros use no memory.
    pub fn from_image(image: &[u8]) -> MemoryDevice {
        let device = MemoryDevice::new(image.len() as u64);
        device.load(image);
        device
    }

    /// Writes `image` from the first byte on, except for its pages of zeros: of a new device, which
    /// has at least as many bytes, it becomes the content.
    pub fn load(&self, image: &[u8]) {
        self.load_at(0, image);
    }

    /// The same for a piece of an image, from the byte `start` on, which is a multiple of 4096.
    pub fn load_at(&self, start: u64, piece: &[u8]) {
        for (index, chunk) in piece.chunks(CHUNK).enumerate() {
            if !is_zero(chunk) {
                self.write_at(start + (index * CHUNK) as u64, chunk);
            }
        }
    }

    /// Another device with the same content. Shares the pages, so it costs no copy; later changes
    /// of one are not seen by the other.
    pub fn fork(&self) -> MemoryDevice {
        let copy =
            |group: &SpinLock<Group>| SpinLock::named("memory device", group.lock_irq().clone());
        let groups = self.groups.iter().map(copy).collect();
        MemoryDevice { info: self.info.clone(), groups, zeros: self.zeros.clone() }
    }

    /// The whole content.
    pub fn snapshot(&self) -> Vec<u8> {
        let mut image = vec![0; self.info.bytes() as usize];
        self.each_page(|start, page| image[start as usize..][..page.len()].copy_from_slice(page));
        image
    }

    /// Calls `f` for each page that holds content, in order, with its first byte's place. Pages
    /// have 4096 bytes, the last one what the device has of it.
    pub fn each_page(&self, mut f: impl FnMut(u64, &[u8])) {
        for (index, group) in self.groups.iter().enumerate() {
            for (at, page) in group.lock_irq().iter().enumerate() {
                if let Some(page) = page {
                    let start = ((index * GROUP + at) * CHUNK) as u64;
                    let len = (self.info.bytes() - start).min(CHUNK as u64) as usize;
                    f(start, &page[..len]);
                }
            }
        }
    }

    /// Bytes of memory in use for content.
    pub fn used_bytes(&self) -> u64 {
        let used = |group: &SpinLock<Group>| group.lock_irq().iter().flatten().count();
        self.groups.iter().map(used).sum::<usize>() as u64 * CHUNK as u64
    }

    /// Reads past the queue: for tests and tools.
    ///
    /// # Panics
    /// Where the range does not lie on the device.
    pub fn read_at(&self, offset: u64, bytes: &mut [u8]) {
        self.check(offset, bytes.len());
        self.each_chunk(offset, bytes.len(), |page, within, done, len| match page {
            Some(page) => bytes[done..done + len].copy_from_slice(&page[within..within + len]),
            None => bytes[done..done + len].fill(0),
        });
    }

    /// Writes past the queue: for tests and tools.
    ///
    /// # Panics
    /// Where the range does not lie on the device.
    pub fn write_at(&self, offset: u64, bytes: &[u8]) {
        self.check(offset, bytes.len());
        self.each_chunk(offset, bytes.len(), |page, within, done, len| {
            let page = page.get_or_insert_with(|| Page::zeroed(CHUNK));
            page.make_mut()[within..within + len].copy_from_slice(&bytes[done..done + len]);
        });
    }

    fn check(&self, offset: u64, len: usize) {
        let size = self.info.bytes();
        assert!(
            offset.checked_add(len as u64).is_some_and(|end| end <= size),
            "{len} bytes at {offset} do not lie on a device of {size} bytes"
        );
    }

    /// Calls `f` for each stored page that the range touches: page, first byte within it, bytes
    /// done before it, bytes of it.
    fn each_chunk(
        &self,
        offset: u64,
        len: usize,
        mut f: impl FnMut(&mut Option<Page>, usize, usize, usize),
    ) {
        let mut done = 0;
        while done < len {
            let at = offset + done as u64;
            let chunk = (at / CHUNK as u64) as usize;
            let mut group = self.groups[chunk / GROUP].lock_irq();
            if group.is_empty() {
                group.resize(GROUP, None);
            }
            // All of the range that lies in this group, under one lock.
            let mut slot = chunk % GROUP;
            let mut within = (at % CHUNK as u64) as usize;
            while done < len && slot < GROUP {
                let part = (CHUNK - within).min(len - done);
                f(&mut group[slot], within, done, part);
                done += part;
                slot += 1;
                within = 0;
            }
        }
    }

    fn read(&self, offset: u64, seg: &mut Segment) {
        if seg.offset == 0 && seg.len as usize == CHUNK && seg.page.len() == CHUNK {
            self.each_chunk(offset, CHUNK, |page, within, done, len| match page {
                Some(page) if len == CHUNK => seg.page = page.clone(),
                Some(page) => {
                    seg.page.make_mut()[done..done + len]
                        .copy_from_slice(&page[within..within + len]);
                }
                None if len == CHUNK => seg.page = self.zeros.clone(),
                None => seg.page.make_mut()[done..done + len].fill(0),
            });
        } else {
            self.read_at(offset, seg.bytes_mut());
        }
    }

    fn write(&self, offset: u64, seg: &Segment) {
        let bytes = seg.bytes();
        let whole = seg.page.len() == CHUNK && bytes.len() == CHUNK;
        self.each_chunk(offset, bytes.len(), |page, within, done, len| {
            let part = &bytes[done..done + len];
            if len == CHUNK && is_zero(part) {
                *page = None;
                return;
            }
            if whole && len == CHUNK {
                *page = Some(seg.page.clone());
                return;
            }
            match page {
                None if len == CHUNK => *page = Some(Page::from_slice(part)),
                _ => {
                    let page = page.get_or_insert_with(|| Page::zeroed(CHUNK));
                    page.make_mut()[within..within + len].copy_from_slice(part);
                }
            }
        });
    }

    fn clear(&self, offset: u64, len: u64) {
        let mut at = offset;
        while at < offset + len {
            let part = (offset + len - at).min(CHUNK as u64 * GROUP as u64) as usize;
            self.each_chunk(at, part, |page, within, _, len| {
                if len == CHUNK {
                    *page = None;
                } else if let Some(page) = page {
                    page.make_mut()[within..within + len].fill(0);
                }
            });
            at += part as u64;
        }
    }

    /// Carries a request out on the stored pages, without completing it.
    pub(crate) fn apply(&self, io: &mut DeviceIo) -> Result<(), Cause> {
        if io.op != Op::Flush && io.sector.0.saturating_add(io.count) > self.info.sectors {
            return Err(Cause::OutOfRange);
        }
        debug_assert!(!io.flags.contains(BioFlags::PREFLUSH), "the queue carries out PREFLUSH");
        let mut offset = io.sector.bytes();
        match io.op {
            Op::Read => {
                for seg in &mut io.segs {
                    self.read(offset, seg);
                    offset += seg.len as u64;
                }
            }
            Op::Write => {
                for seg in &io.segs {
                    self.write(offset, seg);
                    offset += seg.len as u64;
                }
            }
            Op::Discard | Op::WriteZeroes => self.clear(offset, io.bytes()),
            Op::Flush => {}
        }
        Ok(())
    }
}

impl Device for MemoryDevice {
    fn info(&self) -> &DeviceInfo {
        &self.info
    }

    fn submit(&self, mut io: DeviceIo) {
        match self.apply(&mut io) {
            Ok(()) => io.succeed(),
            Err(cause) => io.fail(cause),
        }
    }

    fn name(&self) -> String {
        format!("memory of {} bytes", self.info.bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::Sector;
    use block::{Queue, QueueConfig};
    use rt::Runtime;
    use std::sync::Arc;

    #[test]
    fn content_comes_back_and_forks_part_ways() {
        let device = Arc::new(MemoryDevice::new(8 << 20));
        Runtime::real(1).enter("test", |cx| {
            let queue = Queue::new(cx.runtime(), device.clone(), QueueConfig::default()).unwrap();
            let page = Page::from_slice(&[7; CHUNK]);
            queue.write(cx, Sector(8), page.clone(), BioFlags::empty()).unwrap();
            // A read of a whole stored page hands out the page itself.
            assert!(queue.read(cx, Sector(8), CHUNK).unwrap().ptr_eq(&page));
            let fork = device.fork();
            queue.write(cx, Sector(9), Page::from_slice(&[8; 512]), BioFlags::empty()).unwrap();
            let mut bytes = [0; 1024];
            fork.read_at(4096, &mut bytes);
            assert_eq!(bytes, [7; 1024]);
            let used = device.used_bytes();
            queue.write(cx, Sector(16), Page::zeroed(CHUNK), BioFlags::empty()).unwrap();
            let [one, two] = [16, 24].map(|s| queue.read(cx, Sector(s), CHUNK).unwrap());
            assert!(one.ptr_eq(&two) && one.iter().all(|&byte| byte == 0));
            assert_eq!(device.used_bytes(), used, "zeros use no memory");
            let back = queue.read(cx, Sector(7), 2048).unwrap();
            assert_eq!([back[0], back[512], back[1024], back[1536]], [0, 7, 8, 7]);
            assert_eq!(page[512], 7, "the writer's page is his own");
            queue.discard(cx, Sector(8), 8).unwrap();
            assert_eq!(device.used_bytes(), 0);
            queue.write_zeroes(cx, Sector(0), device.info().sectors).unwrap();
        });
        assert!(device.snapshot().iter().all(|&byte| byte == 0));
    }

    #[test]
    fn an_odd_size_and_a_range_across_groups_are_served() {
        let size = (CHUNK * GROUP + 1536) as u64;
        let mut image = vec![0u8; size as usize];
        image.iter_mut().enumerate().for_each(|(i, byte)| *byte = (i / 512) as u8);
        let device = MemoryDevice::from_image(&image);
        assert_eq!(device.snapshot(), image);
        let mut bytes = vec![0; 4096];
        device.read_at(size - 4096, &mut bytes);
        assert_eq!(bytes, image[image.len() - 4096..]);
    }
}
