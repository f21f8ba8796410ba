//! Content of regular files: read, write, truncate, fallocate, seek.

use base::{Errno, Ino};
use vfs::{FallocMode, FileRead, FileType, NewNode, SeekWhence, SetAttr};

use super::{Entry, Env};

pub const CASES: &[Entry] = &[
    ("files::reads_end_at_the_size", reads_end),
    ("files::a_write_beyond_the_end_leaves_zeros", sparse),
    ("files::truncate_cuts_and_zeroes", truncate),
    ("files::content_is_what_was_written_last", overwrite),
    ("files::only_regular_files_have_content", wrong_types),
    ("files::sizes_have_a_limit", limits),
    ("files::reads_together_answer_as_alone", reads_together),
    ("files::append_goes_to_the_end", append),
    ("files::fallocate_allocates_zeros", allocate),
    ("files::punching_makes_zeros", punch),
    ("files::zero_range_makes_zeros", zero_range),
    ("files::data_and_holes_are_found", seek),
];

fn set_size(env: &mut Env, ino: Ino, size: u64) -> Result<(), Errno> {
    let set = SetAttr { size: Some(size), ..SetAttr::default() };
    env.fs.setattr(env.cx, ino, &set).map(|attr| assert_eq!(attr.size, size))
}

/// Calls fallocate; false where the format cannot.
fn fallocate(env: &mut Env, ino: Ino, mode: FallocMode, offset: u64, len: u64) -> bool {
    match env.fs.fallocate(env.cx, ino, mode, offset, len) {
        Ok(()) => true,
        Err(Errno::EOPNOTSUPP) => false,
        Err(errno) => panic!("{}: {mode:?} failed: {errno}", env.case),
    }
}

fn pattern(len: usize, seed: u64) -> Vec<u8> {
    let mut data = vec![0; len];
    base::Rng::new(seed, 0).fill(&mut data);
    data
}

fn reads_end(env: &mut Env) {
    let file = env.file(env.dir, "f");
    assert_eq!(env.read(file, 0, 10), b"");
    env.write(file, 0, b"0123456789");
    assert_eq!(env.attr(file).size, 10);
    assert_eq!(env.read(file, 0, 100), b"0123456789");
    assert_eq!(env.read(file, 7, 100), b"789");
    assert_eq!(env.read(file, 10, 100), b"");
    assert_eq!(env.read(file, 1 << 40, 100), b"");
    assert_eq!(env.read(file, 3, 0), b"");
    env.write(file, 1 << 20, b"");
    assert_eq!(env.attr(file).size, 10, "an empty write changes nothing");
}

fn reads_together(env: &mut Env) {
    let mut files = Vec::new();
    for n in 0..20u64 {
        let file = env.file(env.dir, &format!("f{n}"));
        env.write(file, 0, &pattern(1 + n as usize * 1777, n));
        files.push(file);
    }
    let sparse = env.file(env.dir, "sparse");
    env.write(sparse, 50_000, b"end");
    let large = env.file(env.dir, "large");
    env.write(large, 0, &pattern(300_000, 99));
    files.extend([sparse, large, env.dir, Ino(1 << 40)]);
    // Before anything was written out, and afterwards.
    for synced in [false, true] {
        if synced {
            env.fs.sync(env.cx).unwrap();
        }
        for (offset, ino) in [0, 4096, 5000, 1 << 30].into_iter().zip([0, 3, 7, 9]) {
            check_together(env, &files, offset);
            env.write(files[ino], 100, b"newer");
        }
    }
}

/// Two reads of each file, all at once, against the same reads one by one.
fn check_together(env: &mut Env, files: &[Ino], offset: u64) {
    let places: Vec<(Ino, usize)> =
        files.iter().flat_map(|&ino| [(ino, 40_000), (ino, 100)]).collect();
    let mut memory: Vec<Vec<u8>> = places.iter().map(|place| vec![7; place.1]).collect();
    let mut reads: Vec<FileRead> = places
        .iter()
        .zip(&mut memory)
        .map(|(place, buf)| FileRead { ino: place.0, offset, buf, done: Ok(1) })
        .collect();
    env.fs.read_many(env.cx, &mut reads);
    let together: Vec<_> = reads.iter().map(|read| read.done).collect();
    for ((&(ino, len), answer), bytes) in places.iter().zip(together).zip(&memory) {
        let mut alone = vec![7; len];
        assert_eq!(answer, env.fs.read(env.cx, ino, offset, &mut alone), "{ino} {offset}");
        let count = answer.unwrap_or(0);
        assert_eq!(bytes[..count], alone[..count], "{ino} at {offset}");
    }
}

fn sparse(env: &mut Env) {
    let file = env.file(env.dir, "f");
    env.write(file, 0, b"start");
    env.write(file, 5_000_000_001, b"end");
    assert_eq!(env.attr(file).size, 5_000_000_004);
    assert!(env.attr(file).blocks < 1000, "the gap takes no space");
    assert_eq!(env.read(file, 0, 10), b"start\0\0\0\0\0");
    assert_eq!(env.read(file, 2_500_000_000, 100), [0; 100]);
    assert_eq!(env.read(file, 4_999_999_999, 100), b"\0\0end");
}

fn truncate(env: &mut Env) {
    let file = env.file(env.dir, "f");
    let data = pattern(100_000, 1);
    env.write(file, 0, &data);
    for size in [70_001, 70_000, 4096, 4095, 1, 0] {
        set_size(env, file, size).unwrap();
        assert_eq!(env.read(file, 0, 200_000), data[..size as usize], "cut to {size}");
    }
    env.write(file, 0, &data[..5000]);
    set_size(env, file, 100).unwrap();
    set_size(env, file, 10_000).unwrap();
    let mut want = data[..100].to_vec();
    want.resize(10_000, 0);
    assert_eq!(env.read(file, 0, 20_000), want, "what was cut off must not come back");
    set_size(env, file, 100).unwrap();
    env.write(file, 200, b"x");
    want.truncate(200);
    want.push(b'x');
    assert_eq!(env.read(file, 0, 20_000), want);
}

fn overwrite(env: &mut Env) {
    let file = env.file(env.dir, "f");
    let mut want = vec![0; 300_000];
    let mut rng = base::Rng::new(7, 0);
    for round in 0..200 {
        let len = 1 + rng.below(20_000) as usize;
        let offset = rng.below((want.len() - len) as u64);
        let data = pattern(len, round);
        env.write(file, offset, &data);
        want[offset as usize..offset as usize + len].copy_from_slice(&data);
        if round % 50 == 0 {
            env.ok("fsync", |fs, cx| fs.fsync(cx, file, round % 100 == 0));
        }
    }
    let size = env.attr(file).size as usize;
    assert!(env.read(file, 0, 400_000) == want[..size], "content differs");
}

fn wrong_types(env: &mut Env) {
    let dir = env.dir;
    let fifo = env.make(dir, "fifo", &NewNode::new(FileType::Fifo, 0o644)).ino;
    let link = env.make(dir, "link", &NewNode::symlink(b"target")).ino;
    env.err(Errno::EISDIR, "read", |fs, cx| fs.read(cx, dir, 0, &mut [0; 8]));
    env.err(Errno::EISDIR, "write", |fs, cx| fs.write(cx, dir, 0, b"x"));
    for ino in [fifo, link] {
        env.err(Errno::EINVAL, "read", |fs, cx| fs.read(cx, ino, 0, &mut [0; 8]));
        env.err(Errno::EINVAL, "write", |fs, cx| fs.write(cx, ino, 0, b"x"));
        assert_eq!(set_size(env, ino, 0), Err(Errno::EINVAL));
    }
    assert_eq!(set_size(env, dir, 0), Err(Errno::EISDIR));
    let mode = FallocMode::Allocate { keep_size: false };
    env.err(Errno::EISDIR, "fallocate", |fs, cx| fs.fallocate(cx, dir, mode, 0, 1));
    env.err(Errno::ENODEV, "fallocate", |fs, cx| fs.fallocate(cx, fifo, mode, 0, 1));
    env.err(Errno::EINVAL, "seek", |fs, cx| fs.seek(cx, fifo, 0, SeekWhence::Data));
}

fn limits(env: &mut Env) {
    let file = env.file(env.dir, "f");
    let far = 1 << 63;
    assert_eq!(set_size(env, file, far), Err(Errno::EFBIG));
    env.err(Errno::EFBIG, "write", |fs, cx| fs.write(cx, file, far, b"x"));
    assert_eq!(env.attr(file).size, 0);
    let mode = FallocMode::Allocate { keep_size: false };
    if fallocate(env, file, mode, 0, 4096) {
        env.err(Errno::EINVAL, "length 0", |fs, cx| fs.fallocate(cx, file, mode, 0, 0));
        env.err(Errno::EFBIG, "far", |fs, cx| fs.fallocate(cx, file, mode, far, 4096));
        let all = u64::MAX;
        env.err(Errno::EFBIG, "overflow", |fs, cx| fs.fallocate(cx, file, mode, 4096, all));
    }
}

fn append(env: &mut Env) {
    let file = env.file(env.dir, "f");
    let mut want = Vec::new();
    for i in 0..100u64 {
        let data = pattern(1 + 97 * i as usize, i);
        let (start, count) = env.ok("append", |fs, cx| fs.append(cx, file, &data));
        assert_eq!((start, count), (want.len() as u64, data.len()));
        want.extend_from_slice(&data);
    }
    assert!(env.read(file, 0, want.len() + 1) == want);
}

fn allocate(env: &mut Env) {
    let file = env.file(env.dir, "f");
    env.write(file, 0, b"data");
    if !fallocate(env, file, FallocMode::Allocate { keep_size: true }, 0, 1 << 20) {
        return;
    }
    assert_eq!(env.attr(file).size, 4);
    assert_eq!(env.read(file, 0, 100), b"data");
    fallocate(env, file, FallocMode::Allocate { keep_size: false }, 100_000, 50_000);
    assert_eq!(env.attr(file).size, 150_000);
    let mut want = b"data".to_vec();
    want.resize(150_000, 0);
    env.write(file, 70_000, b"middle");
    want[70_000..70_006].copy_from_slice(b"middle");
    env.ok("fsync", |fs, cx| fs.fsync(cx, file, false));
    assert!(env.read(file, 0, 200_000) == want);
    set_size(env, file, 4).unwrap();
    set_size(env, file, 80_000).unwrap();
    want[4..].fill(0);
    assert!(env.read(file, 0, 200_000) == want[..80_000]);
}

fn punch(env: &mut Env) {
    let file = env.file(env.dir, "f");
    let mut want = pattern(200_000, 3);
    env.write(file, 0, &want);
    for (offset, len) in [(10_000, 50_000), (0, 1), (199_000, 5000), (65_536, 4096), (1 << 40, 9)] {
        if !fallocate(env, file, FallocMode::PunchHole, offset, len) {
            return;
        }
        let end = (offset + len).min(200_000) as usize;
        want[(offset as usize).min(end)..end].fill(0);
        assert_eq!(env.attr(file).size, 200_000);
        assert!(env.read(file, 0, 300_000) == want, "after punching {offset}+{len}");
    }
    env.write(file, 20_000, b"again");
    want[20_000..20_005].copy_from_slice(b"again");
    assert!(env.read(file, 0, 300_000) == want);
}

fn zero_range(env: &mut Env) {
    let file = env.file(env.dir, "f");
    let mut want = pattern(50_000, 4);
    env.write(file, 0, &want);
    if !fallocate(env, file, FallocMode::ZeroRange { keep_size: true }, 40_000, 30_000) {
        return;
    }
    want[40_000..].fill(0);
    assert!(env.read(file, 0, 90_000) == want);
    fallocate(env, file, FallocMode::ZeroRange { keep_size: false }, 5, 70_000);
    want[5..].fill(0);
    want.resize(70_005, 0);
    assert!(env.read(file, 0, 90_000) == want);
}

fn seek(env: &mut Env) {
    let file = env.file(env.dir, "f");
    env.err(Errno::ENXIO, "empty file", |fs, cx| fs.seek(cx, file, 0, SeekWhence::Data));
    env.write(file, 1 << 20, &[1; 100]);
    set_size(env, file, 4 << 20).unwrap();
    let data = env.ok("data", |fs, cx| fs.seek(cx, file, 0, SeekWhence::Data));
    assert!(data > 0 && data <= 1 << 20, "data at {data}");
    let hole = env.ok("hole", |fs, cx| fs.seek(cx, file, 1 << 20, SeekWhence::Hole));
    assert!(((1 << 20) + 100..2 << 20).contains(&hole), "hole at {hole}");
    assert_eq!(env.ok("hole", |fs, cx| fs.seek(cx, file, 0, SeekWhence::Hole)), 0);
    env.err(Errno::ENXIO, "no more data", |fs, cx| fs.seek(cx, file, 2 << 20, SeekWhence::Data));
    env.err(Errno::ENXIO, "at the end", |fs, cx| fs.seek(cx, file, 4 << 20, SeekWhence::Hole));
    env.write(file, (4 << 20) - 1, b"x");
    let end = env.ok("hole", |fs, cx| fs.seek(cx, file, (4 << 20) - 1, SeekWhence::Hole));
    assert_eq!(end, 4 << 20, "the end of the file is a hole");
}
