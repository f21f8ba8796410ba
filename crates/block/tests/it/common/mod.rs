//! A disk in the hands of the test: requests stay in it until the test lets them go.

pub mod mix;
pub mod script;
pub mod streams;

use base::{Page, Sector};
use block::{
    Bio, BioFlags, Cause, Device, DeviceError, DeviceInfo, DeviceIo, EndIo, Op, Queue, QueueConfig,
};
use rt::{Cx, SpinLock};
use std::sync::Arc;

pub struct Disk {
    info: DeviceInfo,
    held: SpinLock<Vec<DeviceIo>>,
    /// Everything that was ever submitted, as `describe` tells it.
    seen: SpinLock<Vec<String>>,
    data: SpinLock<Vec<u8>>,
    /// Complete inside submit.
    inline: bool,
}

/// A device of 1 MiB with room for `depth` requests.
pub fn info(depth: u32) -> DeviceInfo {
    DeviceInfo { depth, ..DeviceInfo::plain(2048) }
}

impl Disk {
    pub fn held(info: DeviceInfo) -> Arc<Disk> {
        Disk::make(info, false)
    }

    pub fn inline(info: DeviceInfo) -> Arc<Disk> {
        Disk::make(info, true)
    }

    fn make(info: DeviceInfo, inline: bool) -> Arc<Disk> {
        let data = SpinLock::new(vec![0; info.bytes() as usize]);
        let (held, seen) = (SpinLock::new(Vec::new()), SpinLock::new(Vec::new()));
        Arc::new(Disk { info, held, seen, data, inline })
    }

    /// Number of requests in the disk.
    pub fn held_count(&self) -> usize {
        self.held.lock_irq().len()
    }

    /// What was submitted since the last call.
    pub fn take_seen(&self) -> Vec<String> {
        std::mem::take(&mut self.seen.lock_irq())
    }

    pub fn content(&self) -> Vec<u8> {
        self.data.lock_irq().clone()
    }

    /// Carries out the request `index` of those held.
    pub fn finish(&self, index: usize) {
        let io = self.held.lock_irq().remove(index);
        self.carry_out(io);
    }

    /// Fails `count` sectors from `sector` of the request `index`; the rest is carried out.
    pub fn fail(&self, index: usize, sector: u64, count: u64) {
        let io = self.held.lock_irq().remove(index);
        let error = DeviceError { op: io.op, sector: Sector(sector), count, cause: Cause::Io };
        io.complete(Err(error));
    }

    /// Carries out everything, oldest first, until nothing comes any more.
    pub fn finish_all(&self) {
        while self.held_count() > 0 {
            self.finish(0);
        }
    }

    fn carry_out(&self, mut io: DeviceIo) {
        let mut at = io.sector.bytes() as usize;
        let mut data = self.data.lock_irq();
        for seg in &mut io.segs {
            let len = seg.len as usize;
            match io.op {
                Op::Read => seg.bytes_mut().copy_from_slice(&data[at..at + len]),
                _ => data[at..at + len].copy_from_slice(seg.bytes()),
            }
            at += len;
        }
        if matches!(io.op, Op::Discard | Op::WriteZeroes) {
            let end = at + io.bytes() as usize;
            data[at..end].fill(0);
        }
        drop(data);
        io.succeed();
    }
}

impl Device for Disk {
    fn info(&self) -> &DeviceInfo {
        &self.info
    }

    fn submit(&self, io: DeviceIo) {
        self.seen.lock_irq().push(describe(&io));
        if self.inline { self.carry_out(io) } else { self.held.lock_irq().push(io) }
    }

    fn name(&self) -> String {
        "test disk".to_owned()
    }
}

/// `R8+16`: operation, first sector, sectors; `!` for FUA; `F` for a flush.
fn describe(io: &DeviceIo) -> String {
    let letter = match io.op {
        Op::Read => "R",
        Op::Write => "W",
        Op::Flush => return "F".to_owned(),
        Op::Discard => "D",
        Op::WriteZeroes => "Z",
    };
    let fua = if io.flags.contains(BioFlags::FUA) { "!" } else { "" };
    format!("{letter}{}+{}{fua}", io.sector, io.count)
}

pub fn queue(cx: &Cx, disk: &Arc<Disk>, elevator: &str) -> Arc<Queue> {
    queue_with(cx, disk, QueueConfig::elevator(elevator))
}

pub fn queue_with(cx: &Cx, disk: &Arc<Disk>, config: QueueConfig) -> Arc<Queue> {
    Queue::new(cx.runtime(), disk.clone(), config).expect("a test queue")
}

/// Ends of bios in the order in which they came: a name and `ok` or the failed range.
#[derive(Clone, Default)]
pub struct Ends(Arc<SpinLock<Vec<String>>>);

impl Ends {
    pub fn end(&self, name: impl Into<String>) -> EndIo {
        let (ends, name) = (self.0.clone(), name.into());
        Box::new(move |done| {
            let text = match done.result {
                Ok(()) => format!("{name} ok"),
                Err(error) => format!("{name} failed {}+{}", error.sector, error.count),
            };
            ends.lock_irq().push(text);
        })
    }

    pub fn take(&self) -> Vec<String> {
        std::mem::take(&mut self.0.lock_irq())
    }
}

/// A bio from text as `describe` writes it: `W8+2`, `R0+1`, `W4+1!`, `W4+1F` (PREFLUSH), `W4+1F!`,
/// `F`.
pub fn bio(text: &str, end: EndIo) -> Bio {
    if text == "F" {
        return Bio::flush(end);
    }
    let fua = text.contains('!');
    let preflush = text.ends_with('F') || text.contains("F!");
    let numbers = text[1..].trim_end_matches(['!', 'F']);
    let (sector, count) = numbers.split_once('+').expect("sector+count");
    let (sector, count): (u64, u64) = (sector.parse().unwrap(), count.parse().unwrap());
    let mut flags = BioFlags::empty();
    flags.set(BioFlags::FUA, fua);
    flags.set(BioFlags::PREFLUSH, preflush);
    match &text[..1] {
        "D" => Bio::ranged(Op::Discard, Sector(sector), count, end),
        "Z" => Bio::ranged(Op::WriteZeroes, Sector(sector), count, end),
        letter => {
            let page = Page::from_slice(&vec![sector as u8; count as usize * 512]);
            let op = if letter == "R" { Op::Read } else { Op::Write };
            let segs = [block::Segment::whole(page)].into_iter().collect();
            Bio::new(op, Sector(sector), segs, flags, end)
        }
    }
}

/// Submits bios given as words; their ends bear their words as names.
pub fn submit(cx: &mut Cx, queue: &Arc<Queue>, ends: &Ends, words: &str) {
    for word in words.split_whitespace() {
        queue.submit(cx, bio(word, ends.end(word)));
    }
}
