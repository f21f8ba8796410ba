//! Many small files read at once: the same bytes as one by one, with few requests.

use std::sync::Arc;

use base::{Errno, Ino, Rng};
use block::Queue;
use rt::Cx;
use vfs::{FallocMode, FileRead, FileSystem};

use crate::content::create;

/// Files of many sizes, some with holes and, where the format has them, unwritten blocks.
pub fn files(cx: &mut Cx, fs: &dyn FileSystem, rng: &mut Rng) -> Vec<Ino> {
    let root = fs.root();
    (0..60)
        .map(|n| {
            let file = create(cx, fs, root, &format!("f{n}"));
            let mut data = vec![0; rng.below(90_000) as usize];
            rng.fill(&mut data);
            let offset = if n % 5 == 1 { rng.below(50_000) } else { 0 };
            fs.write(cx, file, offset, &data).expect("write");
            if n % 7 == 3 {
                let mode = FallocMode::Allocate { keep_size: false };
                let done = fs.fallocate(cx, file, mode, 0, 99_999);
                assert!(matches!(done, Ok(()) | Err(Errno::EOPNOTSUPP)), "{done:?}");
            }
            file
        })
        .collect()
}

/// Reads the start of every file, together.
pub fn together(cx: &mut Cx, fs: &dyn FileSystem, files: &[Ino]) -> Vec<Result<Vec<u8>, Errno>> {
    let mut memory: Vec<Vec<u8>> = (0..files.len()).map(|n| vec![9; 1 + n * 1700]).collect();
    let mut reads: Vec<FileRead> = files
        .iter()
        .zip(&mut memory)
        .map(|(&ino, buf)| FileRead { ino, offset: 0, buf, done: Ok(0) })
        .collect();
    fs.read_many(cx, &mut reads);
    let done: Vec<_> = reads.iter().map(|read| read.done).collect();
    done.into_iter().zip(memory).map(|(done, bytes)| done.map(|n| bytes[..n].to_vec())).collect()
}

/// As [`together`], one after another.
pub fn alone(cx: &mut Cx, fs: &dyn FileSystem, files: &[Ino]) -> Vec<Result<Vec<u8>, Errno>> {
    let read = |(n, &ino): (usize, &Ino)| {
        let mut bytes = vec![3; 1 + n * 1700];
        fs.read(cx, ino, 0, &mut bytes).map(|n| bytes[..n].to_vec())
    };
    files.iter().enumerate().map(read).collect()
}

/// 200 files of 4 KiB, made one after another; each is one byte repeated.
pub fn neighbours(cx: &mut Cx, fs: &dyn FileSystem) -> Vec<Ino> {
    (0..200)
        .map(|n| {
            let file = create(cx, fs, fs.root(), &format!("f{n}"));
            fs.write(cx, file, 0, &[n as u8; 4096]).expect("write");
            file
        })
        .collect()
}

/// Reads the [`neighbours`], whose inodes are read before; returns how many requests that takes.
pub fn requests_for(cx: &mut Cx, fs: &dyn FileSystem, queue: &Arc<Queue>, files: &[Ino]) -> u64 {
    for &ino in files {
        fs.getattr(cx, ino).expect("attributes");
    }
    let before = queue.stats().reads;
    for (n, bytes) in together(cx, fs, files).into_iter().enumerate() {
        assert_eq!(bytes.expect("read"), vec![n as u8; (1 + n * 1700).min(4096)]);
    }
    queue.stats().reads - before
}
