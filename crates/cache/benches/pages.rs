//! The hot paths of the page cache in real time: many small files, and one large one that is
//! cached, beside a plain copy. Run with `cargo bench -p iopath-cache --bench pages`; the ordinary
//! tests run it with tiny sizes.

use base::unit::SECTOR_SIZE;
use base::{Errno, Nanos, Sector};
use block::{Queue, QueueConfig};
use cache::{Backing, Mapping, PageCache, PageCacheConfig};
use cache::{Iomap, IomapIter, IomapKind, IomapOps, WritebackControl};
use device::MemoryDevice;
use rt::{Cx, Mutex, Runtime};
use std::ops::Range;
use std::sync::{Arc, Weak};

const BLOCK: u32 = 4096;
const PIECE: usize = 128 << 10;

/// A file system without metadata: file `n` lies at `n` times the size of a file.
struct Flat {
    file_bytes: u64,
    writeback: Mutex<()>,
}

impl Flat {
    fn sector(&self, file: u64, off: u64) -> Sector {
        Sector((file * self.file_bytes + off) / SECTOR_SIZE)
    }
}

impl IomapOps for Flat {
    fn begin(
        &self,
        _: &mut Cx,
        iter: &mut IomapIter<'_>,
        range: Range<u64>,
    ) -> Result<Iomap, Errno> {
        let kind = IomapKind::Mapped(self.sector(iter.file, range.start));
        Ok(Iomap { offset: range.start, len: range.end - range.start, kind })
    }

    fn writepages(
        &self,
        cx: &mut Cx,
        m: &Arc<Mapping>,
        wb: &mut WritebackControl<'_>,
    ) -> Result<(), Errno> {
        let guard = self.writeback.lock(cx);
        while let Some(range) = m.next_dirty(cx, wb)? {
            let sector = self.sector(m.id(), range.start);
            m.write_extent(cx, wb, range.start, range.end - range.start, sector);
        }
        drop(guard);
        Ok(())
    }
}

fn backing(cx: &Cx, bytes: u64) -> Arc<Backing> {
    let device = Arc::new(MemoryDevice::new(bytes));
    let queue = Queue::new(cx.runtime(), device, QueueConfig::default()).expect("a queue");
    let pages = PageCache::new(cx.runtime(), PageCacheConfig::with_limit(4 * bytes));
    pages.backing(queue, BLOCK)
}

fn flat(file_bytes: u64) -> Arc<Flat> {
    Arc::new(Flat { file_bytes, writeback: Mutex::new(()) })
}

fn file(backing: &Arc<Backing>, flat: &Arc<Flat>, id: u64) -> Arc<Mapping> {
    let ops: Arc<dyn IomapOps> = flat.clone();
    let ops: Weak<dyn IomapOps> = Arc::downgrade(&ops);
    Mapping::new(backing, id, 0, ops)
}

/// Makes `count` files of 4 KiB and writes them out.
fn small_files(cx: &mut Cx, count: u64) {
    let (backing, flat) = (backing(cx, count * 4096), flat(4096));
    let data = [7; 4096];
    let start = cx.now();
    let files: Vec<_> = (0..count).map(|id| file(&backing, &flat, id)).collect();
    let made = cx.now();
    files.iter().for_each(|file| file.write(cx, 0, &data).expect("writes"));
    let written = cx.now();
    backing.sync(cx).expect("syncs");
    let synced = cx.now();
    for (what, from, to) in
        [("make", start, made), ("write 4 KiB", made, written), ("sync", written, synced)]
    {
        println!("| small files: {what} | {count} | {} ns each |", to.since(from).0 / count);
    }
    drop(files);
    backing.shutdown(cx);
}

/// Writes one file of `pieces` times 128 KiB and reads it from memory.
fn large_file(cx: &mut Cx, pieces: u64) {
    let bytes = pieces * PIECE as u64;
    let (backing, flat) = (backing(cx, bytes), flat(bytes));
    let file = file(&backing, &flat, 0);
    let mut data = vec![7; PIECE];
    let rate = |time: Nanos| bytes as f64 / time.as_secs_f64().max(1e-9) / 1e9;
    let start = cx.now();
    for at in 0..pieces {
        file.write(cx, at * PIECE as u64, &data).expect("writes");
    }
    println!("| large file: write 128 KiB | {pieces} | {:.1} GB/s |", rate(cx.now().since(start)));
    let start = cx.now();
    for at in 0..pieces {
        assert_eq!(file.read(cx, at * PIECE as u64, &mut data), Ok(PIECE));
    }
    println!("| large file: cached read | {pieces} | {:.1} GB/s |", rate(cx.now().since(start)));
    let blocks = bytes / 4096;
    let start = cx.now();
    for at in 0..blocks {
        let off = at * 7919 % blocks * 4096;
        assert_eq!(file.read(cx, off, &mut data[..4096]), Ok(4096));
    }
    let each = cx.now().since(start).0 / blocks;
    println!("| large file: cached read of 4 KiB | {blocks} | {each} ns each |");
    let (from, start) = (vec![1u8; bytes as usize], cx.now());
    for chunk in from.chunks(PIECE) {
        data.copy_from_slice(std::hint::black_box(chunk));
        std::hint::black_box(&mut data);
    }
    println!("| plain copy of 128 KiB | {pieces} | {:.1} GB/s |", rate(cx.now().since(start)));
    drop(file);
    backing.sync(cx).expect("syncs");
    backing.shutdown(cx);
}

fn main() {
    // `cargo test` runs benches without `--bench`: then the sizes are tiny.
    let full = std::env::args().any(|arg| arg == "--bench");
    let (files, pieces) = if full { (10_000, 512) } else { (50, 4) };
    println!("| work | count | measured |\n|---|---|---|");
    Runtime::real(1).enter("bench", |cx| {
        small_files(cx, files);
        large_file(cx, pieces);
    });
}
