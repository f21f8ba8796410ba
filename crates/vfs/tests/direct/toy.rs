//! A map that is a table of runs, and a device that notes what it is told.

#![allow(dead_code, reason = "shared by several test binaries")]

use std::ops::Range;
use std::sync::Arc;

use base::{Errno, Page, Sector};
use block::{Device, DeviceInfo, DeviceIo, Op, Queue, QueueConfig, Segment};
use cache::{Intent, Iomap, IomapIter, IomapKind, IomapOps, Mapping, WritebackControl};
use device::MemoryDevice;
use rt::{Cx, SpinLock, World, WorldConfig};
use vfs::direct::{Boundary, DirectOptions, Engine, Memory, Transfer};

/// What happened, in its order.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Happened {
    /// A bio reached the device: write, first sector, lengths of its segments.
    Bio(bool, u64, Vec<u32>),
    /// The map had to wait for that block.
    Read(u64),
    /// The map was told to begin reading that block.
    Ahead(u64),
}

/// One run of the table.
#[derive(Clone)]
pub struct Entry {
    first: u64,
    count: u64,
    block: Option<u64>,
    mark: bool,
    new: bool,
    metadata: Option<u64>,
}

impl Entry {
    pub fn marked(&mut self) -> &mut Entry {
        self.mark = true;
        self
    }

    /// Needs that block to be read.
    pub fn reads(&mut self, block: u64) -> &mut Entry {
        self.metadata = Some(block);
        self
    }

    pub fn fresh(&mut self) -> &mut Entry {
        self.new = true;
        self
    }
}

/// A table of runs.
#[derive(Clone)]
pub struct Toy {
    bits: u32,
    pub page_size: u32,
    info: DeviceInfo,
    entries: Vec<Entry>,
}

impl Toy {
    pub fn new(bits: u32) -> Toy {
        let info = DeviceInfo { depth: 1 << 15, ..DeviceInfo::plain(4 << 20) };
        Toy { bits, page_size: 4096, info, entries: Vec::new() }
    }

    /// Bios of at most so many bytes.
    pub fn limit(mut self, bytes: u32) -> Toy {
        self.info.max_bytes = bytes;
        self
    }

    pub fn chunk(mut self, bytes: u32) -> Toy {
        self.info.chunk = bytes;
        self
    }

    pub fn pages_of(mut self, bytes: u32) -> Toy {
        self.page_size = bytes;
        self
    }

    pub fn run(&mut self, first: u64, count: u64, block: u64) -> &mut Entry {
        self.entry(first, count, Some(block))
    }

    pub fn hole(&mut self, first: u64, count: u64) {
        self.entry(first, count, None);
    }

    fn entry(&mut self, first: u64, count: u64, block: Option<u64>) -> &mut Entry {
        let (mark, new, metadata) = (false, false, None);
        self.entries.push(Entry { first, count, block, mark, new, metadata });
        self.entries.last_mut().expect("just pushed")
    }
}

/// The mappings of 512 MiB on an empty ext3 of 4 KiB blocks, as the document's kernel lays them.
pub fn document_ext3() -> Toy {
    const GROUP: u64 = 32768;
    const OWN: u64 = 514;
    let mut toy = Toy::new(12).limit(512 << 10).pages_of(16384);
    toy.info.max_segments = 128;
    let (mut block, mut next) = (GROUP + OWN, 0u64);
    let total = (512 << 20) / 4096;
    while next < total {
        let in_table = if next < 12 { 12 } else { 1024 };
        let from = if next < 12 { next } else { (next - 12) % 1024 };
        let tables = match next {
            12 => 1,
            1036 => 2,
            n if n > 1036 && (n - 12) % 1024 == 0 => 1,
            _ => 0,
        };
        if block % GROUP == 0 {
            block += OWN;
        }
        block += tables;
        let count = (in_table - from).min(GROUP - block % GROUP).min(total - next);
        let entry = toy.run(next, count, block);
        entry.mark = from + count == in_table;
        entry.new = true;
        next += count;
        block += count;
    }
    toy
}

/// The toy at work.
struct Map<'a> {
    toy: &'a Toy,
    log: Arc<SpinLock<Vec<Happened>>>,
    ahead: SpinLock<Vec<u64>>,
    mappings: SpinLock<usize>,
}

impl Map<'_> {
    fn entry(&self, block: u64) -> Option<&Entry> {
        self.toy.entries.iter().find(|e| e.first <= block && block < e.first + e.count)
    }
}

impl IomapOps for Map<'_> {
    fn begin(
        &self,
        _: &mut Cx,
        iter: &mut IomapIter<'_>,
        range: Range<u64>,
    ) -> Result<Iomap, Errno> {
        *self.mappings.lock_irq() += 1;
        let bits = self.toy.bits;
        let (block, count) = (range.start >> bits, (range.end - range.start) >> bits);
        let entry = self.entry(block).ok_or(Errno::ENOSPC)?;
        if let Some(metadata) =
            entry.metadata.filter(|block| !self.ahead.lock_irq().contains(block))
        {
            self.log.lock_irq().push(Happened::Read(metadata));
        }
        let skip = block - entry.first;
        let given = (entry.count - skip).min(count);
        let kind = match entry.block.map(|start| Sector((start + skip) << (bits - 9))) {
            None => IomapKind::Hole,
            Some(sector) if entry.new && iter.intent == Intent::Write => {
                IomapKind::Unwritten(sector)
            }
            Some(sector) => IomapKind::Mapped(sector),
        };
        Ok(Iomap { offset: range.start, len: given << bits, kind })
    }

    fn boundary(&self, _: &mut Cx, part: &Iomap) -> bool {
        let entry = self.entry(part.offset >> self.toy.bits).expect("it gave the part");
        entry.mark && part.end() == (entry.first + entry.count) << self.toy.bits
    }

    fn prefetch(&self, _: &mut Cx, at: u64) -> bool {
        let block = at >> self.toy.bits;
        let next = self.toy.entries.iter().find(|entry| entry.first == block);
        let Some(metadata) = next.and_then(|entry| entry.metadata) else { return false };
        self.ahead.lock_irq().push(metadata);
        self.log.lock_irq().push(Happened::Ahead(metadata));
        true
    }

    fn writepages(
        &self,
        _: &mut Cx,
        _: &Arc<Mapping>,
        _: &mut WritebackControl<'_>,
    ) -> Result<(), Errno> {
        unreachable!("nothing here goes through the page cache")
    }
}

/// Notes requests and carries them out in memory.
struct Noting {
    below: MemoryDevice,
    log: Arc<SpinLock<Vec<Happened>>>,
}

impl Device for Noting {
    fn info(&self) -> &DeviceInfo {
        self.below.info()
    }

    fn submit(&self, io: DeviceIo) {
        let lengths = io.segs.iter().map(|seg| seg.len).collect();
        self.log.lock_irq().push(Happened::Bio(io.op == Op::Write, io.sector.0, lengths));
        io.succeed();
    }

    fn name(&self) -> String {
        "noting".to_owned()
    }
}

/// What a call did.
pub struct Log {
    bits: u32,
    pub happened: Vec<Happened>,
    pub mappings: usize,
    pub transfer: Transfer,
}

impl Log {
    /// First block and bytes of each bio.
    pub fn bios(&self) -> Vec<(u64, u64)> {
        let bio = |happened: &Happened| match happened {
            Happened::Bio(_, sector, segs) => {
                Some((sector >> (self.bits - 9), segs.iter().map(|&len| u64::from(len)).sum()))
            }
            _ => None,
        };
        self.happened.iter().filter_map(bio).collect()
    }

    /// Lengths of the segments of each bio.
    pub fn segments(&self) -> Vec<Vec<u32>> {
        let segs = |happened: &Happened| match happened {
            Happened::Bio(_, _, segs) => Some(segs.clone()),
            _ => None,
        };
        self.happened.iter().filter_map(segs).collect()
    }

    /// The bios that the device had when the map read that block.
    pub fn bios_before_read(&self, block: u64) -> Vec<(u64, u64)> {
        let read = self.happened.iter().position(|happened| *happened == Happened::Read(block));
        let before = read.expect("the block was read");
        let bits = self.bits;
        let part = Log { bits, happened: self.happened[..before].to_vec(), ..*self };
        part.bios()
    }

    /// In short: `R` a wait for metadata, `A` a read ahead, `W` a bio in blocks; neighbours of one
    /// kind that continue each other are one.
    pub fn order(&self) -> String {
        let mut words: Vec<(char, u64, u64)> = Vec::new();
        for happened in &self.happened {
            let (kind, at, count) = match happened {
                Happened::Read(block) => ('R', *block, 0),
                Happened::Ahead(block) => ('A', *block, 0),
                Happened::Bio(_, sector, segs) => {
                    let bytes: u64 = segs.iter().map(|&len| u64::from(len)).sum();
                    ('W', sector >> (self.bits - 9), bytes >> self.bits)
                }
            };
            match words.last_mut() {
                Some(last) if kind == 'W' && last.0 == 'W' && last.1 + last.2 == at => {
                    last.2 += count;
                }
                _ => words.push((kind, at, count)),
            }
        }
        let word = |&(kind, at, count): &(char, u64, u64)| match kind {
            'W' => format!("W{at}+{count}"),
            _ => format!("{kind}{at}"),
        };
        words.iter().map(word).collect::<Vec<_>>().join(" ")
    }

    /// All of it: bios by sector and segment lengths in units of 512 bytes.
    pub fn line(&self) -> String {
        let word = |happened: &Happened| match happened {
            Happened::Read(block) => format!("meta {block}"),
            Happened::Ahead(block) => format!("ahead {block}"),
            Happened::Bio(write, sector, segs) => {
                let segs: Vec<String> = segs.iter().map(|len| (len / 512).to_string()).collect();
                format!("{}{sector}[{}]", if *write { 'w' } else { 'r' }, segs.join(" "))
            }
        };
        let mut words: Vec<String> = self.happened.iter().map(word).collect();
        words.push(format!("-> {} {:?}", self.transfer.bytes, self.transfer.stop));
        words.join(" ")
    }
}

/// A call of `len` bytes at `off`.
pub fn run(toy: &Toy, rule: Boundary, off: u64, len: u64, write: bool) -> Log {
    let page = Page::zeroed(65536);
    let mut left = len;
    let mut pages = Vec::new();
    while left > 0 {
        let now = left.min(65536) as u32;
        pages.push(Segment { page: page.clone(), offset: 0, len: now });
        left -= u64::from(now);
    }
    play(toy, rule, write, |cx, engine, map| match write {
        true => engine.write(cx, map, off, Memory::Pages(&pages)),
        false => engine.read(cx, map, off, off + len, &mut |_| ()),
    })
}

/// A write of pieces of one page of 64 KiB: offset in it, length.
pub fn run_pages(toy: &Toy, rule: Boundary, off: u64, pieces: &[(u32, u32)]) -> Log {
    let page = Page::zeroed(65536);
    let pieces: Vec<Segment> =
        pieces.iter().map(|&(offset, len)| Segment { page: page.clone(), offset, len }).collect();
    play(toy, rule, true, |cx, engine, map| engine.write(cx, map, off, Memory::Pages(&pieces)))
}

fn play(
    toy: &Toy,
    rule: Boundary,
    writes: bool,
    call: impl FnOnce(&mut Cx, &Engine<'_>, &mut IomapIter<'_>) -> Transfer,
) -> Log {
    let log = Arc::new(SpinLock::new(Vec::new()));
    let mut world = World::new(WorldConfig::default());
    let (mappings, transfer) = world.run("main", |cx| {
        let below = MemoryDevice::with_info(toy.info.clone());
        let device = Arc::new(Noting { below, log: log.clone() });
        let config = QueueConfig { nr_requests: 1 << 16, ..QueueConfig::default() };
        let queue = Queue::new(cx.runtime(), device, config).expect("a queue");
        let options = DirectOptions { boundary: rule, page_size: toy.page_size };
        let engine = Engine { queue: &queue, block_bits: toy.bits, options };
        let (ahead, mappings) = (SpinLock::new(Vec::new()), SpinLock::new(0));
        let map = Map { toy, log: log.clone(), ahead, mappings };
        let intent = if writes { Intent::Write } else { Intent::Read };
        let transfer = call(cx, &engine, &mut IomapIter::new(&map, intent, 0..0));
        let mappings = *map.mappings.lock_irq();
        (mappings, transfer)
    });
    let happened = std::mem::take(&mut *log.lock_irq());
    Log { bits: toy.bits, happened, mappings, transfer }
}
