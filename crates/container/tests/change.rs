//! qcow2 images written in place, beside qemu-img and qemu-io.

#![allow(clippy::disallowed_types, reason = "threads of the host, not tasks, meet here")]

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use base::rng::Rng;
use container::{Error, FileSource, FileTarget, Files, HostFiles, How, Image, Source, Target};
use testkit::judge;

/// Bytes of the disks: more than one table of the second level where clusters are small.
const DISK: usize = 3 << 20;
const BLOCK: usize = 4096;

/// An argument of a program.
type Word<'a> = &'a dyn AsRef<std::ffi::OsStr>;

/// How an image is made: options of `qemu-img create`, and what is done to it then.
struct Kind {
    name: &'static str,
    options: &'static str,
    /// On top of an image with content.
    backed: bool,
    /// Its content is compressed.
    packed: bool,
    /// With a snapshot of its content.
    snapshot: bool,
}

const KINDS: [Kind; 6] = [
    Kind { name: "v3", options: "compat=1.1", backed: false, packed: false, snapshot: false },
    Kind {
        name: "v2",
        options: "compat=0.10,cluster_size=4k",
        backed: true,
        packed: false,
        snapshot: false,
    },
    Kind {
        name: "tiny",
        options: "cluster_size=512,refcount_bits=64",
        backed: false,
        packed: false,
        snapshot: false,
    },
    Kind {
        name: "bits",
        options: "cluster_size=4k,refcount_bits=2",
        backed: false,
        packed: false,
        snapshot: true,
    },
    Kind {
        name: "zlib",
        options: "cluster_size=16k",
        backed: false,
        packed: true,
        snapshot: false,
    },
    Kind {
        name: "zstd",
        options: "compression_type=zstd,cluster_size=4k",
        backed: false,
        packed: true,
        snapshot: true,
    },
];

/// Makes an image; answers its path and what is on the disk.
fn make(dir: &Path, kind: &Kind) -> (PathBuf, Vec<u8>) {
    let at = |name: &str| dir.join(format!("{}-{name}", kind.name));
    let (raw, image) = (at("raw"), at("disk.qcow2"));
    let mut content = vec![0; DISK];
    for (number, block) in content.chunks_mut(BLOCK).enumerate().filter(|(n, _)| n % 7 < 3) {
        block.fill(number as u8 | 1);
    }
    std::fs::write(&raw, &content).expect("written");
    let (options, image_at) = (kind.options, &image);
    match kind {
        Kind { backed: true, .. } => {
            let args: [Word<'_>; 10] =
                [&"create", &"-f", &"qcow2", &"-o", &options, &"-F", &"raw", &"-b", &raw, image_at];
            judge::run_ok("qemu-img", &args);
        }
        Kind { packed, .. } => {
            let mut args: Vec<Word<'_>> =
                vec![&"convert", &"-f", &"raw", &"-O", &"qcow2", &"-o", &options];
            if *packed {
                args.push(&"-c");
            }
            args.push(&raw);
            args.push(image_at);
            judge::run_ok("qemu-img", &args);
        }
    }
    if kind.snapshot {
        judge::run_ok("qemu-img", &[&"snapshot", &"-c", &"before", &image]);
    }
    (image, content)
}

/// The disk of an image, as qemu-img reads it.
fn read_by_qemu(image: &Path, snapshot: Option<&str>) -> Vec<u8> {
    let out = image.with_extension("out");
    let mut args: Vec<Word<'_>> = vec![&"convert", &"-O", &"raw"];
    if let Some(name) = &snapshot {
        args.push(&"-l");
        args.push(name);
    }
    args.push(&image);
    args.push(&out);
    judge::run_ok("qemu-img", &args);
    std::fs::read(&out).expect("the disk")
}

/// What `qemu-img check` ends with: 0 sound, 2 damaged, 3 something is counted that nobody uses.
fn check(image: &Path) -> (i32, String) {
    let output = judge::run("qemu-img", &[&"check", &"-f", &"qcow2", &image]);
    let text = [&output.stdout[..], &output.stderr].concat();
    (output.status.code().unwrap_or(-1), String::from_utf8_lossy(&text).into_owned())
}

fn open(target: Arc<dyn Target>, path: &Path) -> Arc<dyn Image> {
    container::open_to_change(target, &How::default(), &HostFiles::beside(path)).expect("opens")
}

/// Opens files without a lock, so that qemu-img may look at them at the same time.
struct Unlocked;

impl Files for Unlocked {
    fn open(&self, _: &str, _: &'static str, name: &str) -> Result<Arc<dyn Source>, Error> {
        Ok(Arc::new(FileSource::look(Path::new(name), None)?))
    }
}

/// A file in memory that keeps what was written since the last flush apart.
struct Recorder {
    name: String,
    state: Mutex<Recorded>,
}

#[derive(Default)]
struct Recorded {
    bytes: Vec<u8>,
    durable: Vec<u8>,
    pending: Vec<(usize, Vec<u8>)>,
    /// States that a power cut can leave, with the number of writes of the disk before.
    cuts: Vec<Vec<u8>>,
    rng: Option<Rng>,
}

fn put(bytes: &mut Vec<u8>, at: usize, new: &[u8]) {
    if bytes.len() < at + new.len() {
        bytes.resize(at + new.len(), 0);
    }
    bytes[at..at + new.len()].copy_from_slice(new);
}

impl Recorded {
    /// Any sectors of what was not flushed are there, and the others are not.
    fn cut(&mut self) {
        let Some(rng) = &mut self.rng else { return };
        let mut left = self.durable.clone();
        let share = rng.below(5);
        for (at, bytes) in &self.pending {
            for (number, sector) in bytes.chunks(512).enumerate() {
                if rng.below(4) < share {
                    put(&mut left, at + number * 512, sector);
                }
            }
        }
        self.cuts.push(left);
    }
}

impl Source for Recorder {
    fn name(&self) -> &str {
        &self.name
    }

    fn size(&self) -> u64 {
        self.state.lock().expect("a lock").bytes.len() as u64
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        let state = self.state.lock().expect("a lock");
        let range = offset as usize..offset as usize + buf.len();
        buf.copy_from_slice(state.bytes.get(range).ok_or(io::ErrorKind::UnexpectedEof)?);
        Ok(())
    }
}

impl Target for Recorder {
    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        if offset > 256 << 20 {
            return Err(io::ErrorKind::StorageFull.into());
        }
        let mut state = self.state.lock().expect("a lock");
        put(&mut state.bytes, offset as usize, bytes);
        state.pending.push((offset as usize, bytes.to_vec()));
        Ok(())
    }

    fn punch(&self, range: std::ops::Range<u64>) -> io::Result<()> {
        self.write_at(range.start, &vec![0; (range.end - range.start) as usize])
    }

    fn flush(&self) -> io::Result<()> {
        let mut state = self.state.lock().expect("a lock");
        state.cut();
        for (at, bytes) in std::mem::take(&mut state.pending) {
            put(&mut state.durable, at, &bytes);
        }
        Ok(())
    }
}

/// Goal: what is written is what QEMU reads, nothing is lost or counted in vain, a snapshot and
/// what is behind stay as they were. Method: random writes and flushes on images of all kinds.
#[test]
fn what_is_written_is_what_qemu_reads() {
    let dir = tempfile::tempdir().expect("a directory");
    for (seed, kind) in KINDS.iter().enumerate() {
        let (path, mut disk) = make(dir.path(), kind);
        let before = disk.clone();
        let image = open(Arc::new(FileTarget::open(&path).expect("opens")), &path);
        let mut rng = Rng::new(seed as u64, 0);
        for step in 0..90_u64 {
            let at = rng.below(DISK as u64 / 512) as usize * 512;
            let len = (1 + rng.below(64) as usize) * 512;
            let len = len.min(DISK - at);
            let bytes = vec![step as u8; len];
            image.write_at(at as u64, &bytes).expect("writes");
            disk[at..at + len].copy_from_slice(&bytes);
            let mut read = vec![0; 3 * BLOCK];
            let at = rng.below((DISK - read.len()) as u64) as usize;
            image.read_at(at as u64, &mut read).expect("reads");
            assert!(read == disk[at..at + read.len()], "{}: read at {at}", kind.name);
            if step.is_multiple_of(30) {
                image.flush().expect("flushes");
            }
            if step % 8 == 5 {
                let at = rng.below(DISK as u64 / 512) as usize * 512;
                let range = at..(at + 400_000).min(DISK);
                discard(&*image, range, &mut disk);
            }
        }
        image.flush().expect("flushes");
        drop(image);
        assert_eq!(check(&path).0, 0, "{}: {}", kind.name, check(&path).1);
        assert!(read_by_qemu(&path, None) == disk, "{}", kind.name);
        if kind.snapshot {
            assert!(read_by_qemu(&path, Some("before")) == before, "{}", kind.name);
        }
        // QEMU writes to it, and we go on.
        judge::run_ok("qemu-io", &[&"-f", &"qcow2", &"-c", &"write -P 77 1M 100k", &path]);
        disk[1 << 20..(1 << 20) + 102_400].fill(77);
        let image = open(Arc::new(FileTarget::open(&path).expect("opens")), &path);
        image.write_at(0, &[9; 512]).expect("writes");
        disk[..512].fill(9);
        drop(image);
        assert!(read_by_qemu(&path, None) == disk, "{}: after QEMU", kind.name);
        assert_eq!(check(&path).0, 0, "{}: {}", kind.name, check(&path).1);
    }
}

/// Discards a range; `disk` becomes what is read then: zeros, or what was there.
fn discard(image: &dyn Image, range: std::ops::Range<usize>, disk: &mut [u8]) {
    let len = range.end - range.start;
    image.discard(range.start as u64..range.end as u64).expect("discards");
    let mut read = vec![1; len];
    image.read_at(range.start as u64, &mut read).expect("reads");
    let before = &mut disk[range];
    assert!(read.iter().zip(&*before).all(|(new, old)| *new == 0 || new == old));
    before.copy_from_slice(&read);
}

/// Goal: what is discarded is given back to the host, and to what is written next. Clusters stayed
/// in the file for ever.
#[test]
fn what_is_discarded_is_given_back() {
    use std::os::unix::fs::MetadataExt;
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("disk.qcow2");
    judge::run_ok("qemu-img", &[&"create", &"-q", &"-f", &"qcow2", &path, &"64M"]);
    let image = open(Arc::new(FileTarget::open(&path).expect("opens")), &path);
    let fill = |value: u8| {
        for at in (0..16_u64 << 20).step_by(1 << 20) {
            image.write_at(at, &vec![value; 1 << 20]).expect("writes");
        }
        image.flush().expect("flushes");
        let meta = std::fs::metadata(&path).expect("the image");
        (meta.len(), meta.blocks() * 512)
    };
    let (len, full) = fill(1);
    assert!(full >= 16 << 20, "{full}");
    let mut disk = vec![1; 16 << 20];
    // Clusters that lie in the range in part stay.
    discard(&*image, (1 << 20) + 1000..(15 << 20) - 1000, &mut disk);
    image.flush().expect("flushes");
    let given = std::fs::metadata(&path).expect("the image").blocks() * 512;
    assert!(given + (13 << 20) <= full, "{full} bytes, then {given}");
    assert!(disk[..(1 << 20) + 1000].iter().all(|&byte| byte == 1));
    let (again, _) = fill(2);
    assert!(again <= len + (1 << 20), "{len} bytes, then {again}");
    drop(image);
    assert_eq!(check(&path).0, 0, "{}", check(&path).1);
    assert!(read_by_qemu(&path, None)[..16 << 20].iter().all(|&byte| byte == 2));
}

/// Goal: a power cut at any flush, with any of the sectors that were not flushed, leaves an image
/// without errors, in which every block holds what was flushed or something that was written since.
#[test]
fn power_cuts_leave_sound_images() {
    let dir = tempfile::tempdir().expect("a directory");
    for (seed, kind) in KINDS.iter().enumerate() {
        let (path, disk) = make(dir.path(), kind);
        let bytes = std::fs::read(&path).expect("the image");
        let rng = Some(Rng::new(100 + seed as u64, 0));
        let state = Recorded { durable: bytes.clone(), bytes, rng, ..Recorded::default() };
        let name = path.display().to_string();
        let target = Arc::new(Recorder { name, state: Mutex::new(state) });
        let image = container::open_to_change(target.clone(), &How::default(), &Unlocked);
        let image = image.expect("opens");
        // For each block the numbers of the writes to it since the last flush, that one first.
        let mut may: BTreeMap<usize, Vec<u8>> = BTreeMap::new();
        let mut rng = Rng::new(seed as u64, 0);
        let (mut number, mut now) = (0_u8, disk.clone());
        for _ in 0..4 {
            for _ in 0..12 {
                number += 1;
                let block = rng.below((DISK / BLOCK) as u64) as usize;
                image.write_at((block * BLOCK) as u64, &[number; BLOCK]).expect("writes");
                may.entry(block).or_insert_with(|| vec![disk[block * BLOCK]]).push(number);
                now[block * BLOCK..(block + 1) * BLOCK].fill(number);
                if number % 4 == 3 {
                    let first = rng.below((DISK / BLOCK) as u64) as usize;
                    let blocks = first..(first + 24).min(DISK / BLOCK);
                    discard(&*image, blocks.start * BLOCK..blocks.end * BLOCK, &mut now);
                    for block in blocks {
                        let values = may.entry(block).or_insert_with(|| vec![disk[block * BLOCK]]);
                        values.push(now[block * BLOCK]);
                    }
                }
            }
            image.flush().expect("flushes");
            let cuts = std::mem::take(&mut target.state.lock().expect("a lock").cuts);
            assert!(!cuts.is_empty(), "a flush is a flush");
            for cut in cuts {
                judge_cut(&path, kind, &cut, &may, &disk);
            }
            may.values_mut().for_each(|values| drop(values.drain(..values.len() - 1)));
        }
    }
}

/// Looks at what a cut has left.
fn judge_cut(path: &Path, kind: &Kind, cut: &[u8], may: &BTreeMap<usize, Vec<u8>>, disk: &[u8]) {
    let left = path.with_extension("cut");
    std::fs::write(&left, cut).expect("written");
    let (status, text) = check(&left);
    assert!(status == 0 || status == 3, "{}: {status}: {text}", kind.name);
    let source = Arc::new(FileSource::open(&left).expect("opens"));
    let image = container::open(source, &How::default(), &HostFiles::beside(&left)).expect("opens");
    let mut found = vec![0; DISK];
    image.read_at(0, &mut found).expect("reads");
    for (number, block) in found.chunks(BLOCK).enumerate() {
        match may.get(&number) {
            Some(values) => {
                let odd = block.iter().find(|byte| !values.contains(byte));
                assert_eq!(odd, None, "{}: block {number}: {values:?}", kind.name);
            }
            None => {
                let same = block == &disk[number * BLOCK..(number + 1) * BLOCK];
                assert!(same, "{}: block {number} was not written to", kind.name);
            }
        }
    }
}

/// What would not be kept correct is refused by name, and nothing of it changes.
#[test]
fn what_is_not_written_is_refused() {
    let dir = tempfile::tempdir().expect("a directory");
    for (name, options, what) in [
        ("extended", "extended_l2=on,cluster_size=64k", "extended tables"),
        ("data", "data_file=data.raw,data_file_raw=on", "data file"),
        ("lazy", "lazy_refcounts=on", "dirty"),
        ("bitmap", "compat=1.1", "bitmaps"),
    ] {
        let path = dir.path().join(format!("{name}.qcow2"));
        let options =
            options.replace("data.raw", &dir.path().join("data.raw").display().to_string());
        judge::run_ok("qemu-img", &[&"create", &"-f", &"qcow2", &"-o", &options, &path, &"8M"]);
        if name == "bitmap" {
            judge::run_ok("qemu-img", &[&"bitmap", &"--add", &path, &"b0"]);
        }
        let mut bytes = std::fs::read(&path).expect("the image");
        if name == "lazy" {
            bytes[79] |= 1;
            std::fs::write(&path, &bytes).expect("written");
        }
        let target = Arc::new(FileTarget::open(&path).expect("opens"));
        let files = HostFiles::beside(&path);
        let error = container::open_to_change(target, &How::default(), &files).err();
        let error = error.expect("it is refused").to_string();
        assert!(error.contains(what), "{name}: {error}");
        assert!(std::fs::read(&path).expect("the image") == bytes, "{name}");
    }
}

/// Goal: a damaged image is written or refused, without a panic, without an endless search for a
/// free cluster, and what an error leaves does not panic at its end either. Method: random words in
/// the header, the counts and the tables of small images.
#[test]
fn damaged_images_are_written_or_refused() {
    let dir = tempfile::tempdir().expect("a directory");
    let seeds = std::env::var("IOPATH_SEEDS").ok().and_then(|text| text.parse().ok());
    let seeds: u64 = seeds.unwrap_or(120);
    let (mut refused, mut written) = (0, 0);
    for kind in &KINDS[2..] {
        let (path, _) = make(dir.path(), kind);
        let whole = std::fs::read(&path).expect("the image");
        for seed in 0..seeds {
            let mut rng = Rng::new(seed, 1);
            let mut bytes = whole.clone();
            for _ in 0..rng.range(1..5) {
                let word = |at: usize| u64::from_be_bytes(whole[at..at + 8].try_into().expect("8"));
                let starts =
                    [0, word(40), word(48), word(word(48) as usize), word(word(40) as usize)];
                let start = (*rng.pick(&starts) & !(1 << 63)) as usize;
                let at = start + rng.below(64) as usize * if start == 0 { 2 } else { 8 };
                let words =
                    [0, u64::MAX, 1 << rng.below(64), rng.below(1 << 22) & !511, rng.next_u64()];
                let end = bytes.len().min(at + 8);
                let bytes = bytes.get_mut(at.min(end)..end).expect("within");
                bytes.copy_from_slice(&rng.pick(&words).to_be_bytes()[..bytes.len()]);
            }
            let state = Recorded { durable: bytes.clone(), bytes, ..Recorded::default() };
            let name = format!("{} mutant {seed}", kind.name);
            let target = Arc::new(Recorder { name: name.clone(), state: Mutex::new(state) });
            let image = match container::open_to_change(target, &How::default(), &Unlocked) {
                Ok(image) if image.size() >= 512 => image,
                Ok(_) | Err(_) => {
                    refused += 1;
                    continue;
                }
            };
            let mut done = Ok(());
            for _ in 0..8 {
                let at = rng.below(image.size().min(DISK as u64) / 512) * 512;
                let len = image.size().saturating_sub(at).min(5000) / 512 * 512;
                done = done.and_then(|()| image.write_at(at, &vec![7; len as usize]));
            }
            let done = done.and_then(|()| image.flush());
            written += u64::from(done.is_ok());
            if let Err(error) = done {
                let text = error.to_string();
                assert!(text.contains(&name), "{text}");
            }
        }
    }
    assert!(refused > 0 && written > 0, "{refused} refused, {written} written");
}

/// Puts a tail behind the content of a backing file, which a longer disk must not show.
fn lengthen_backing(dir: &Path, kind: &Kind) {
    let raw = dir.join(format!("{}-raw", kind.name));
    let mut bytes = std::fs::read(&raw).expect("the file behind");
    bytes.resize(DISK + (1 << 20), 0xee);
    std::fs::write(&raw, bytes).expect("written");
}

/// Goal: a disk that became longer reads as before and then as zeros, for QEMU too; what is new can
/// be written; a snapshot keeps its length. Method: all kinds, by less than a cluster, by a table
/// of the first level, and by more than one cluster of it; a longer file behind.
#[test]
fn a_longer_disk_is_what_qemu_reads() {
    let dir = tempfile::tempdir().expect("a directory");
    for kind in &KINDS {
        let (path, mut disk) = make(dir.path(), kind);
        if kind.backed {
            lengthen_backing(dir.path(), kind);
        }
        let before = disk.clone();
        for size in [DISK + 1000, DISK + (3 << 20), 40 << 20, 70 << 20] {
            let image = open(Arc::new(FileTarget::open(&path).expect("opens")), &path);
            image.grow(size as u64).unwrap_or_else(|error| panic!("{}: {error}", kind.name));
            disk.resize(size.next_multiple_of(512), 0);
            assert_eq!(image.size(), disk.len() as u64, "{}", kind.name);
            let mut read = vec![1; disk.len()];
            image.read_at(0, &mut read).expect("reads");
            assert!(read == disk, "{}: {size}: what is read at once", kind.name);
            let at = disk.len() - 5000;
            image.write_at(at as u64, &[size as u8 | 1; 5000]).expect("writes");
            disk[at..].fill(size as u8 | 1);
            drop(image);
            assert_eq!(check(&path).0, 0, "{}: {size}: {}", kind.name, check(&path).1);
            assert!(read_by_qemu(&path, None) == disk, "{}: {size}", kind.name);
            if kind.snapshot {
                // QEMU shows zeros behind its end.
                let mut theirs = read_by_qemu(&path, Some("before"));
                let behind = theirs.split_off(DISK);
                assert!(theirs == before, "{}", kind.name);
                assert!(behind.iter().all(|&byte| byte == 0), "{}", kind.name);
            }
        }
        let image = open(Arc::new(FileTarget::open(&path).expect("opens")), &path);
        assert!(image.grow(1 << 62).is_err(), "{}: no table is so long", kind.name);
        image.grow(1 << 20).expect("it is longer already");
        assert_eq!(image.size(), disk.len() as u64);
    }
}

/// Goal: a power cut while a disk becomes longer leaves the old or the new length, sound, with the
/// same content. Method: each flush of the growth, with any of the sectors since the one before.
#[test]
fn a_growth_that_is_cut_leaves_one_of_both_lengths() {
    let dir = tempfile::tempdir().expect("a directory");
    for (seed, kind) in KINDS.iter().enumerate() {
        let (path, disk) = make(dir.path(), kind);
        if kind.backed {
            lengthen_backing(dir.path(), kind);
        }
        let bytes = std::fs::read(&path).expect("the image");
        let name = path.display().to_string();
        let mut lengths = [0; 2];
        let size = 40 << 20;
        for round in 0..6 {
            let rng = Some(Rng::new(100 + seed as u64, round));
            let state = Recorded {
                durable: bytes.clone(),
                bytes: bytes.clone(),
                rng,
                ..Recorded::default()
            };
            let target = Arc::new(Recorder { name: name.clone(), state: Mutex::new(state) });
            let image = container::open_to_change(target.clone(), &How::default(), &Unlocked);
            image.expect("opens").grow(size as u64).expect("grows");
            let mut state = target.state.lock().expect("a lock");
            let whole = state.bytes.clone();
            for cut in std::mem::take(&mut state.cuts).into_iter().chain([whole]) {
                let left = path.with_extension("cut");
                std::fs::write(&left, cut).expect("written");
                let (status, text) = check(&left);
                assert!(status == 0 || status == 3, "{}: {status}: {text}", kind.name);
                let mut found = read_by_qemu(&left, None);
                let longer = found.len() == size;
                assert!(longer || found.len() == DISK, "{}: {}", kind.name, found.len());
                lengths[usize::from(longer)] += 1;
                let new = found.split_off(DISK);
                assert!(found == disk && new.iter().all(|&byte| byte == 0), "{}", kind.name);
            }
        }
        assert!(lengths[0] > 0 && lengths[1] > 0, "{}: {lengths:?}", kind.name);
    }
}
