//! A disk in memory that logs what is written to it and when it is flushed, and the building of a
//! journal on it.
#![allow(dead_code)]

use std::sync::Arc;

use base::{Page, Rng};
use block::{BioFlags, Cause, Device, DeviceInfo, DeviceIo, Op, Queue, QueueConfig};
use cache::{BufferCache, BufferConfig, BufferRef};
use jbd2::format::Superblock;
use jbd2::{Journal, JournalArea, JournalError, JournalOptions, RecoveryReport};
use rt::{Cx, SpinLock};

/// What happened to the disk.
#[derive(Clone, Debug)]
pub enum Event {
    Write {
        sector: u64,
        data: Page,
        fua: bool,
    },
    Flush,
    /// A note of the test.
    Mark(u64),
}

#[derive(Default)]
struct Content {
    bytes: Vec<u8>,
    log: Vec<Event>,
    /// Fail writes to these sectors.
    bad: Option<std::ops::Range<u64>>,
}

/// The disk.
pub struct Disk {
    info: DeviceInfo,
    content: SpinLock<Content>,
}

impl Disk {
    pub fn new(bytes: usize) -> Arc<Disk> {
        Disk::from_image(vec![0; bytes])
    }

    pub fn from_image(bytes: Vec<u8>) -> Arc<Disk> {
        let mut info = DeviceInfo::plain(bytes.len() as u64 / 512);
        info.volatile_cache = true;
        info.fua = true;
        Arc::new(Disk { info, content: SpinLock::new(Content { bytes, ..Content::default() }) })
    }

    pub fn image(&self) -> Vec<u8> {
        self.content.lock_irq().bytes.clone()
    }

    pub fn log(&self) -> Vec<Event> {
        self.content.lock_irq().log.clone()
    }

    pub fn clear_log(&self) {
        self.content.lock_irq().log.clear();
    }

    pub fn mark(&self, mark: u64) {
        self.content.lock_irq().log.push(Event::Mark(mark));
    }

    pub fn fail_writes(&self, sectors: Option<std::ops::Range<u64>>) {
        self.content.lock_irq().bad = sectors;
    }

    /// Flushes so far, a forced write counted as none.
    pub fn flushes(&self) -> usize {
        self.log().iter().filter(|event| matches!(event, Event::Flush)).count()
    }

    pub fn poke(&self, offset: usize, change: impl FnOnce(&mut u8)) {
        change(&mut self.content.lock_irq().bytes[offset]);
    }
}

impl Device for Disk {
    fn info(&self) -> &DeviceInfo {
        &self.info
    }

    fn name(&self) -> String {
        "test disk".into()
    }

    fn submit(&self, mut io: DeviceIo) {
        let mut content = self.content.lock_irq();
        let content = &mut *content;
        let mut at = io.sector.0 as usize * 512;
        match io.op {
            Op::Read => {
                for seg in &mut io.segs {
                    let len = seg.len as usize;
                    seg.bytes_mut().copy_from_slice(&content.bytes[at..at + len]);
                    at += len;
                }
            }
            Op::Write => {
                let bad = content.bad.as_ref();
                if bad.is_some_and(|bad| io.sector.0 < bad.end && io.end_sector().0 > bad.start) {
                    return io.fail(Cause::Io);
                }
                let fua = io.flags.contains(BioFlags::FUA);
                for seg in &io.segs {
                    let data = Page::from_slice(seg.bytes());
                    content.bytes[at..at + data.len()].copy_from_slice(&data);
                    content.log.push(Event::Write { sector: at as u64 / 512, data, fua });
                    at += seg.len as usize;
                }
            }
            Op::Flush => content.log.push(Event::Flush),
            _ => {}
        }
        io.succeed();
    }
}

/// A place where power fails: how much of the log happened, and which unflushed writes did not
/// reach the medium.
pub fn image_after(base: &[u8], log: &[Event], upto: usize, rng: &mut Rng) -> Vec<u8> {
    let mut image = base.to_vec();
    let mut loose: Vec<(u64, &Page)> = Vec::new();
    let put = |image: &mut Vec<u8>, sector: u64, data: &[u8]| {
        let at = sector as usize * 512;
        image[at..at + data.len()].copy_from_slice(data);
    };
    for event in &log[..upto] {
        match event {
            Event::Write { sector, data, fua: true } => put(&mut image, *sector, data),
            Event::Write { sector, data, fua: false } => loose.push((*sector, data)),
            Event::Flush => {
                for (sector, data) in loose.drain(..) {
                    put(&mut image, sector, data);
                }
            }
            Event::Mark(_) => {}
        }
    }
    let keep = rng.below(5);
    for (sector, data) in loose {
        let kept = match keep {
            0 => false,
            1 => true,
            _ => rng.chance(0.5),
        };
        if !kept {
            // A torn write: some sectors of it made it.
            if rng.chance(0.2) {
                for (index, piece) in data.chunks(512).enumerate() {
                    if rng.chance(0.5) {
                        put(&mut image, sector + index as u64, piece);
                    }
                }
            }
            continue;
        }
        put(&mut image, sector, data);
    }
    image
}

/// Where the journal lies on a test disk.
#[derive(Clone, Copy, Debug)]
pub struct JournalPlace {
    pub block_size: u32,
    pub start: u64,
    pub len: u32,
}

impl JournalPlace {
    /// Two extents that are not neighbours, in the wrong order.
    pub fn area(&self) -> JournalArea {
        let half = self.len / 2;
        let second = self.start + u64::from(self.len) + 3;
        JournalArea::internal([(second, half), (self.start, self.len - half)])
    }
}

/// Puts an empty journal onto the disk.
pub fn format(disk: &Disk, place: JournalPlace, change: impl FnOnce(&mut Superblock)) {
    let mut sb = Superblock::new(place.block_size, place.len, *b"journal-test-uid");
    change(&mut sb);
    let (block, _) = place.area().map(0);
    let at = block as usize * place.block_size as usize;
    sb.emit(&mut disk.content.lock_irq().bytes[at..at + 1024]);
}

/// The superblock of the journal in an image.
pub fn superblock(image: &[u8], place: JournalPlace) -> Superblock {
    let (block, _) = place.area().map(0);
    let at = block as usize * place.block_size as usize;
    Superblock::parse(&image[at..at + 1024]).expect("a journal")
}

/// A cache over the disk.
pub fn cache_on(cx: &mut Cx, disk: &Arc<Disk>, block_size: u32) -> Arc<BufferCache> {
    let device: Arc<dyn Device> = disk.clone();
    let queue = Queue::new(cx.runtime(), device, QueueConfig::default()).expect("a queue");
    let config = BufferConfig { block_size, ..BufferConfig::default() };
    BufferCache::new(queue, config)
}

pub type Opened = (Arc<Journal>, Arc<BufferCache>, Option<RecoveryReport>);

/// Opens the journal on the disk.
pub fn open(
    cx: &mut Cx,
    disk: &Arc<Disk>,
    place: JournalPlace,
    options: JournalOptions,
) -> Result<Opened, JournalError> {
    let cache = cache_on(cx, disk, place.block_size);
    let (journal, report) = Journal::open(cx, cache.clone(), place.area(), options)?;
    Ok((journal, cache, report))
}

/// One handle that fills the blocks with the byte.
pub fn fill(
    cx: &mut Cx,
    journal: &Journal,
    cache: &BufferCache,
    blocks: &[u64],
    byte: u8,
) -> jbd2::Tid {
    let mut handle = journal.start(cx, blocks.len() as u32).expect("a handle");
    for &block in blocks {
        let buffer: BufferRef = cache.read(cx, block).expect("a buffer");
        handle.write_access(cx, &buffer).expect("access");
        buffer.with_mut(|bytes| bytes.fill(byte));
        handle.dirty(cx, &buffer).expect("dirty");
    }
    let tid = handle.tid();
    handle.stop(cx).expect("stop");
    tid
}
