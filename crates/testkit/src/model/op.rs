//! The operations of the model and how they are drawn.
//!
//! Operands are numbers that are taken modulo what exists when the operation runs, so that a list
//! from which operations were left out still means something.

use base::Rng;
use vfs::{FallocMode, FileType, RenameFlags, SetAttr, XattrFlags};

use super::{Config, stream};

/// Which of the inodes known to the task, modulo their number.
pub type Pick = u32;
/// Which of the task's names, modulo their number.
pub type Name = u32;

/// One operation.
#[derive(Clone, Debug)]
#[allow(missing_docs)]
pub enum Op {
    Create { dir: Pick, name: Name, kind: FileType, mode: u16 },
    Symlink { dir: Pick, name: Name, len: u32 },
    Link { node: Pick, dir: Pick, name: Name },
    Unlink { dir: Pick, name: Name },
    Rmdir { dir: Pick, name: Name },
    Rename { from: (Pick, Name), to: (Pick, Name), flags: RenameFlags },
    Lookup { dir: Pick, name: Name },
    Readdir { dir: Pick },
    Getattr { node: Pick },
    Setattr { node: Pick, set: SetAttr },
    Read { node: Pick, offset: u64, len: u32 },
    Write { node: Pick, offset: u64, len: u32, fill: u64 },
    Append { node: Pick, len: u32, fill: u64 },
    Stripe { file: u32, slot: u32, fill: u64 },
    Fallocate { node: Pick, mode: FallocMode, offset: u64, len: u64 },
    Clone { from: (Pick, u64), to: (Pick, u64), len: u64 },
    Fsync { node: Pick, data: bool },
    Sync,
    Setxattr { node: Pick, name: Name, len: u32, flags: XattrFlags },
    Getxattr { node: Pick, name: Name },
    Removexattr { node: Pick, name: Name },
    Open { node: Pick },
    Release { node: Pick },
}

/// Draws the operations of a run and deals them to its tasks.
pub fn draw(config: &Config) -> Vec<(usize, Op)> {
    let mut rng = stream(config, 1);
    let mut draw_one = |_| {
        let task = rng.below(config.tasks as u64) as usize;
        (task, one(&mut rng, config))
    };
    (0..config.ops).map(&mut draw_one).collect()
}

fn one(rng: &mut Rng, config: &Config) -> Op {
    let (dir, node, name) = (rng.next_u32(), rng.next_u32(), rng.next_u32());
    if config.clones && rng.chance(0.06) {
        return clone(rng, config, (node, name));
    }
    match rng.below(100) {
        0..=15 => Op::Create { dir, name, kind: kind(rng), mode: rng.below(0o10000) as u16 },
        16..=18 => Op::Symlink { dir, name, len: length(rng, 1000) },
        19..=22 => Op::Link { node, dir, name },
        23..=28 => Op::Unlink { dir, name },
        29..=31 => Op::Rmdir { dir, name },
        32..=38 => {
            let flags = match rng.below(6) {
                0 => RenameFlags::NOREPLACE,
                1 | 2 => RenameFlags::EXCHANGE,
                3 => RenameFlags::WHITEOUT,
                _ => RenameFlags::empty(),
            };
            Op::Rename { from: (dir, name), to: (rng.next_u32(), rng.next_u32()), flags }
        }
        39..=41 => Op::Lookup { dir, name },
        42..=43 => Op::Readdir { dir },
        44..=45 => Op::Getattr { node },
        46..=51 => Op::Setattr { node, set: attributes(rng, config) },
        52..=57 => Op::Read { node, offset: offset(rng, config), len: length(rng, 100_000) },
        58..=70 => Op::Write {
            node,
            offset: offset(rng, config),
            len: length(rng, config.write_max),
            fill: rng.next_u64(),
        },
        71..=74 => Op::Append { node, len: length(rng, config.write_max), fill: rng.next_u64() },
        75..=77 => Op::Stripe { file: node, slot: rng.below(64) as u32, fill: rng.next_u64() },
        78..=82 => {
            let (offset, len) = (offset(rng, config), length(rng, 200_000).into());
            Op::Fallocate { node, mode: falloc_mode(rng), offset, len }
        }
        83..=84 => Op::Fsync { node, data: rng.chance(0.5) },
        85 => Op::Sync,
        86..=89 => {
            let flags = [XattrFlags::empty(), XattrFlags::CREATE, XattrFlags::REPLACE];
            let flags = flags[rng.below(3) as usize];
            Op::Setxattr { node, name, len: length(rng, config.xattr_max), flags }
        }
        90..=92 => Op::Getxattr { node, name },
        93..=94 => Op::Removexattr { node, name },
        95..=97 => Op::Open { node },
        _ => Op::Release { node },
    }
}

fn kind(rng: &mut Rng) -> FileType {
    match rng.below(12) {
        0..=5 => FileType::Regular,
        6..=9 => FileType::Directory,
        10 => FileType::Fifo,
        _ => FileType::CharDevice,
    }
}

fn falloc_mode(rng: &mut Rng) -> FallocMode {
    let keep_size = rng.chance(0.5);
    match rng.below(3) {
        0 => FallocMode::Allocate { keep_size },
        1 => FallocMode::PunchHole,
        _ => FallocMode::ZeroRange { keep_size },
    }
}

/// Often of a whole file or from its start on, else of whole blocks, seldom of none.
fn clone(rng: &mut Rng, config: &Config, (from, to): (Pick, Pick)) -> Op {
    let mut place = || match rng.below(3) {
        0 => 0,
        1 => offset(rng, config) & !4095,
        _ => rng.below(8) << 12,
    };
    let (offset, target) = (place(), place());
    let len = match rng.below(4) {
        0 | 1 => 0,
        2 => rng.below(8) << 12,
        _ => length(rng, 100_000).into(),
    };
    Op::Clone { from: (from, offset), to: (to, target), len }
}

/// Mostly small, sometimes large, often a multiple of a block, in `0..=max`.
fn length(rng: &mut Rng, max: u64) -> u32 {
    let len = match rng.below(4) {
        0 => rng.below(16),
        1 => rng.below(4097),
        2 => 1024 << rng.below(5),
        _ => rng.below(max + 1),
    };
    len.min(max) as u32
}

fn offset(rng: &mut Rng, config: &Config) -> u64 {
    let offset = rng.below(config.offset_max + 1);
    match rng.below(4) {
        0 => 0,
        1 => offset & !4095,
        2 => offset % 20_000,
        _ => offset,
    }
}

fn attributes(rng: &mut Rng, config: &Config) -> SetAttr {
    let mut set = SetAttr::default();
    let time = |rng: &mut Rng| base::Timespec {
        sec: rng.below(1 << 33) as i64 - (1 << 31),
        nsec: rng.below(1_000_000_000) as u32,
    };
    match rng.below(6) {
        0 => set.mode = Some(rng.below(0o10000) as u16),
        1 => (set.uid, set.gid) = (Some(rng.next_u32() >> 8), Some(rng.below(9) as u32)),
        2 => (set.atime, set.mtime) = (Some(time(rng)), Some(time(rng))),
        _ => set.size = Some(offset(rng, config)),
    }
    set
}
