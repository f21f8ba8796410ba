//! Disks with a known content, and containers of them by the tools that everybody uses.

#![allow(dead_code, reason = "every test file uses its part")]

use std::fs;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use base::rng::Rng;
use container::{Error, FileSource, Format, HostFiles, How, Image};
use testkit::judge::run_ok;

/// Bytes of the disk: no multiple of any cluster.
pub const SIZE: u64 = (20 << 20) + 3 * 512;

/// A raw disk: holes, text, noise, in runs of 1 to 200 KiB.
pub fn disk(dir: &Path, name: &str, seed: u64) -> PathBuf {
    let path = dir.join(name);
    let file = fs::File::create(&path).unwrap();
    file.set_len(SIZE).unwrap();
    let mut rng = Rng::new(seed, 0);
    let mut at = 0;
    while at < SIZE {
        let len = rng.range(1 << 10..200 << 10).min(SIZE - at);
        let mut bytes = vec![0; len as usize];
        match rng.below(4) {
            0 => rng.fill(&mut bytes),
            1 => bytes.iter_mut().enumerate().for_each(|(i, b)| *b = (i / 7) as u8),
            2 => bytes.fill(b'x'),
            _ => {
                at += rng.below(1 << 20);
                continue;
            }
        }
        file.write_all_at(&bytes, at).unwrap();
        at += len;
    }
    file.set_len(SIZE).unwrap();
    path
}

/// `qemu-img convert` of a raw disk.
pub fn convert(raw: &Path, to: &Path, kind: &str, options: &str, compress: bool) {
    let mut args: Vec<&dyn AsRef<std::ffi::OsStr>> = vec![&"convert", &"-f", &"raw", &"-O", &kind];
    if !options.is_empty() {
        args.extend([&"-o" as &dyn AsRef<std::ffi::OsStr>, &options]);
    }
    if compress {
        args.push(&"-c");
    }
    args.extend([&raw as &dyn AsRef<std::ffi::OsStr>, &to]);
    run_ok("qemu-img", &args);
}

/// Opens a container with the files beside it.
pub fn open(path: &Path) -> Result<Arc<dyn Image>, Error> {
    open_how(path, &How::default())
}

/// As [`open`], with options.
pub fn open_how(path: &Path, how: &How) -> Result<Arc<dyn Image>, Error> {
    let source = Arc::new(FileSource::open(path)?);
    container::open(source, how, &HostFiles::beside(path))
}

/// All of a disk, read in pieces of many lengths, whose places depend on the seed.
pub fn content(image: &dyn Image, seed: u64) -> Vec<u8> {
    let mut rng = Rng::new(seed, 1);
    let mut all = vec![0xee; image.size() as usize];
    let mut at = 0;
    while at < all.len() {
        let len = match rng.below(3) {
            0 => rng.range(1..700),
            1 => rng.range(512..70_000),
            _ => rng.range(60_000..3 << 20),
        };
        let end = (at + len as usize).min(all.len());
        image.read_at(at as u64, &mut all[at..end]).unwrap();
        at = end;
    }
    all
}

/// Asserts that the container holds what the raw disk does, from the start of it on.
pub fn assert_holds(path: &Path, format: Format, raw: &Path) {
    let image = open(path).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(image.format(), format.name(), "{}", path.display());
    let wanted = fs::read(raw).unwrap();
    let found = content(&*image, 7);
    // Virtual PC's disks have a whole number of cylinders.
    assert!(found.len() >= wanted.len(), "{}: {} bytes", path.display(), found.len());
    let differs = wanted.iter().zip(&found).position(|(a, b)| a != b);
    assert_eq!(differs, None, "{}: first byte that differs", path.display());
    assert!(found[wanted.len()..].iter().all(|&byte| byte == 0), "{}", path.display());
}
