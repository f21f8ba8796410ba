//! Damaged containers of every format, by seed: each is read or refused with an error that names
//! the file, without a panic, without an endless walk, in little memory.

mod common;

use std::alloc::{GlobalAlloc, Layout, System};
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use base::rng::Rng;
use container::{Error, Format, How, ImageDevice, NoFiles, Source};
use testkit::judge::run_ok;

/// Mutants of each container; `IOPATH_SEEDS` sets another number.
const SEEDS: u64 = 2000;
/// Bytes of one allocation, for tables and the largest cluster.
const ALLOCATION_MAX: usize = 80 << 20;
/// Reads of the file for opening a mutant, counting its clusters and some reads.
const READS_MAX: u64 = 20_000;

/// Remembers the largest allocation.
struct Watched;

static LARGEST: AtomicUsize = AtomicUsize::new(0);

// SAFETY: every call goes to the system's allocator as it came.
unsafe impl GlobalAlloc for Watched {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        LARGEST.fetch_max(layout.size(), Ordering::Relaxed);
        // SAFETY: the caller's promise.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        LARGEST.fetch_max(layout.size(), Ordering::Relaxed);
        // SAFETY: the caller's promise.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        // SAFETY: the caller's promise.
        unsafe { System.dealloc(ptr, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Watched = Watched;

/// A file in memory; between its bytes and its last ones may lie a hole of any size, as in a
/// sparse file that pretends to be large.
struct Mutant {
    bytes: Vec<u8>,
    hole: u64,
    reads: AtomicU64,
}

/// Bytes behind the hole.
const TAIL: usize = 1536;

impl Source for Mutant {
    fn name(&self) -> &str {
        "mutant"
    }

    fn size(&self) -> u64 {
        self.bytes.len() as u64 + self.hole
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        self.reads.fetch_add(1, Ordering::Relaxed);
        let end = offset.checked_add(buf.len() as u64).filter(|&end| end <= self.size());
        let Some(end) = end else { return Err(io::ErrorKind::UnexpectedEof.into()) };
        buf.fill(0);
        let (head, tail) = self.bytes.split_at(self.bytes.len().saturating_sub(TAIL));
        for (start, part) in [(0, head), (head.len() as u64 + self.hole, tail)] {
            let (from, to) = (start.max(offset), (start + part.len() as u64).min(end));
            if from < to {
                let part = &part[(from - start) as usize..(to - start) as usize];
                buf[(from - offset) as usize..(to - offset) as usize].copy_from_slice(part);
            }
        }
        Ok(())
    }
}

/// Numbers that hurt.
fn number(rng: &mut Rng) -> u64 {
    match rng.below(6) {
        0 => 0,
        1 => u64::MAX >> rng.below(64),
        2 => 1 << rng.below(64),
        3 => rng.below(1 << 20),
        4 => (1 << rng.below(63)) + rng.below(512) - 1,
        _ => rng.next_u64(),
    }
}

/// Changes a container in one to four places, mostly where its headers and tables are.
fn mutate(whole: &[u8], places: &[(usize, usize)], rng: &mut Rng) -> Mutant {
    let mut bytes = whole.to_vec();
    for _ in 0..rng.range(1..5) {
        let (from, to) = *rng.pick(places);
        let at = rng.range(from as u64..to.min(bytes.len() - 8) as u64) as usize;
        // Fields are aligned, mostly.
        let at = if rng.chance(0.8) { at & !3 } else { at };
        let number = number(rng);
        match rng.below(5) {
            0 => bytes[at] = number as u8,
            1 => bytes[at..at + 4].copy_from_slice(&(number as u32).to_le_bytes()),
            2 => bytes[at..at + 4].copy_from_slice(&(number as u32).to_be_bytes()),
            3 => bytes[at..at + 8].copy_from_slice(&number.to_le_bytes()),
            _ => bytes[at..at + 8].copy_from_slice(&number.to_be_bytes()),
        }
    }
    if rng.chance(0.1) {
        bytes.truncate(rng.below(bytes.len() as u64) as usize);
    }
    let hole = if rng.chance(0.3) { 1 << rng.range(20..45) } else { 0 };
    Mutant { bytes, hole, reads: AtomicU64::new(0) }
}

/// Opens a mutant and reads here and there.
fn visit(mutant: &Arc<Mutant>, format: Format, rng: &mut Rng) -> Result<(), Error> {
    let how = How { format: Some(format), snapshot: rng.chance(0.1).then(|| "1".to_owned()) };
    let image = container::open(mutant.clone(), &how, &NoFiles)?;
    let size = image.size();
    let mut buf = vec![0; 200_000];
    let mut result = image.facts().map(|_| ());
    for _ in 0..12 {
        let at = rng.below(size.max(1));
        let len = (buf.len() as u64).min(size - at) as usize;
        let len = if rng.chance(0.5) { len.min(512) } else { len };
        result = result.and(image.read_at(at, &mut buf[..len]));
    }
    let _device = ImageDevice::new(image, "mutant");
    result
}

fn seeds() -> std::ops::Range<u64> {
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse().ok());
    match number("IOPATH_SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..number("IOPATH_SEEDS").unwrap_or(SEEDS),
    }
}

/// Where checksums stand that a reader looks at before everything else.
type Mend = fn(&mut [u8]);

/// Answers how many mutants were refused, and how many were read all the same.
fn campaign(path: &Path, format: Format, places: &[(usize, usize)], mend: Mend) {
    let whole = std::fs::read(path).unwrap();
    let places: Vec<_> =
        places.iter().map(|&(from, to)| (from.min(whole.len() - 16), to)).collect();
    let end = (whole.len() - 1024, whole.len());
    let places = [&places[..], &[end]].concat();
    let (mut refused, mut read) = (0, 0);
    for seed in seeds() {
        let rng = &mut Rng::new(seed, 0);
        let mut mutant = mutate(&whole, &places, rng);
        if rng.chance(0.8) && mutant.bytes.len() == whole.len() {
            mend(&mut mutant.bytes);
        }
        let mutant = Arc::new(mutant);
        let again = format!("{}: IOPATH_SEED={seed}", path.display());
        LARGEST.store(0, Ordering::Relaxed);
        let visited = catch_unwind(AssertUnwindSafe(|| visit(&mutant, format, rng)));
        match visited.unwrap_or_else(|_| panic!("{again}: it panicked")) {
            Ok(()) => read += 1,
            Err(error @ Error::Panic { .. }) => panic!("{again}: {error}"),
            Err(error) => {
                assert!(error.to_string().contains("mutant"), "{again}: {error}");
                refused += 1;
            }
        }
        let largest = LARGEST.load(Ordering::Relaxed);
        assert!(largest <= ALLOCATION_MAX, "{again}: {largest} bytes at once");
        let reads = mutant.reads.load(Ordering::Relaxed);
        assert!(reads <= READS_MAX, "{again}: {reads} reads");
    }
    // Neither all of them are refused at the first look, nor is everything believed.
    if seeds().count() > 1000 {
        assert!(refused > 100 && read > 100, "{}: {refused} refused, {read} read", path.display());
    }
}

fn none(_: &mut [u8]) {}

/// The sums of a VHD's footers and header.
fn mend_vhd(bytes: &mut [u8]) {
    let end = bytes.len() - 512;
    for (start, len, at) in [(0, 512, 64), (512, 1024, 36), (end, 512, 64)] {
        let part = &mut bytes[start..start + len];
        part[at..at + 4].fill(0);
        let sum = part.iter().fold(0u32, |sum, &byte| sum.wrapping_add(byte.into()));
        part[at..at + 4].copy_from_slice(&(!sum).to_be_bytes());
    }
}

/// The sums of a VHDX's headers and tables of regions.
fn mend_vhdx(bytes: &mut [u8]) {
    for (start, len) in
        [(64 << 10, 4096), (128 << 10, 4096), (192 << 10, 65536), (256 << 10, 65536)]
    {
        let part = &mut bytes[start..start + len];
        part[4..8].fill(0);
        let sum = !base::crc::crc32c(!0, part);
        part[4..8].copy_from_slice(&sum.to_le_bytes());
    }
}

/// A disk of 3 MiB in a container by `qemu-img`.
fn small(dir: &Path, name: &str, kind: &str, options: &str) -> std::path::PathBuf {
    let raw = common::disk(dir, &format!("{name}.raw"), 11);
    std::fs::File::options().write(true).open(&raw).unwrap().set_len(3 << 20).unwrap();
    let path = dir.join(name);
    common::convert(&raw, &path, kind, options, options.contains("compression"));
    path
}

#[test]
fn qcow2() {
    let dir = tempfile::tempdir().unwrap();
    for (name, options) in [
        ("a.qcow2", ""),
        ("b.qcow2", "compression_type=zstd"),
        ("c.qcow2", "extended_l2=on"),
        ("d.qcow2", "compat=0.10,cluster_size=4k"),
    ] {
        let path = small(dir.path(), name, "qcow2", options);
        run_ok("qemu-img", &[&"snapshot", &"-c", &"one", &path]);
        let whole = std::fs::read(&path).unwrap();
        // The header, and the tables of both levels that its entries name.
        let number = |at: usize| u64::from_be_bytes(whole[at..at + 8].try_into().unwrap()) as usize;
        let (l1, snapshots) = (number(40), number(64));
        let l2 = number(l1) & 0x00ff_ffff_ffff_fe00;
        let places =
            [(0, 120), (0, 400), (l1, l1 + 16), (l2, l2 + 512), (snapshots, snapshots + 80)];
        campaign(&path, Format::Qcow2, &places, none);
    }
}

#[test]
fn vmdk() {
    let dir = tempfile::tempdir().unwrap();
    let sparse = small(dir.path(), "a.vmdk", "vmdk", "subformat=monolithicSparse");
    campaign(&sparse, Format::Vmdk, &[(0, 80), (512, 1200), (10240, 32768)], none);
    let stream = small(dir.path(), "b.vmdk", "vmdk", "subformat=streamOptimized");
    campaign(&stream, Format::Vmdk, &[(0, 80), (512, 1200), (65536, 80000)], none);
}

#[test]
fn vhd() {
    let dir = tempfile::tempdir().unwrap();
    let path = small(dir.path(), "a.vhd", "vpc", "subformat=dynamic");
    campaign(&path, Format::Vhd, &[(0, 100), (512, 600), (1536, 1600)], mend_vhd);
}

#[test]
fn vhdx() {
    let dir = tempfile::tempdir().unwrap();
    let path = small(dir.path(), "a.vhdx", "vhdx", "");
    let (k, m) = (1 << 10, 1 << 20);
    let places = [
        (64 * k, 64 * k + 80),
        (128 * k, 128 * k + 80),
        (192 * k, 192 * k + 96),
        (256 * k, 256 * k + 96),
        (2 * m, 2 * m + 300),
        (2 * m + 64 * k, 2 * m + 65 * k),
        (3 * m, 3 * m + 64),
    ];
    campaign(&path, Format::Vhdx, &places, mend_vhdx);
}

#[test]
fn vdi() {
    let dir = tempfile::tempdir().unwrap();
    let path = small(dir.path(), "a.vdi", "vdi", "");
    campaign(&path, Format::Vdi, &[(64, 80), (340, 400), (512, 540)], none);
}

#[test]
fn android_sparse() {
    let dir = tempfile::tempdir().unwrap();
    let raw = common::disk(dir.path(), "disk.raw", 12);
    std::fs::File::options().write(true).open(&raw).unwrap().set_len(3 << 20).unwrap();
    let path = dir.path().join("a.simg");
    run_ok("img2simg", &[&raw, &path]);
    campaign(&path, Format::AndroidSparse, &[(0, 28), (28, 64)], none);
}

#[test]
fn seekable_zstd() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.zst");
    let size = zeekstd::FrameSizePolicy::Uncompressed(100_000);
    let options = zeekstd::EncodeOptions::new().frame_size_policy(size);
    let mut encoder = options.into_encoder(std::fs::File::create(&path).unwrap()).unwrap();
    let raw = std::fs::read(common::disk(dir.path(), "disk.raw", 13)).unwrap();
    io::Write::write_all(&mut encoder, &raw[..3 << 20]).unwrap();
    encoder.finish().unwrap();
    campaign(&path, Format::SeekableZstd, &[(0, 64)], none);
}
