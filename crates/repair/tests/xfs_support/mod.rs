//! Small images of XFS with one of everything, and the damage that is done to them.

#![allow(dead_code, reason = "every test program uses a part of it")]

use std::collections::BTreeSet;
use std::sync::Arc;

use base::{Ino, Rng};
use block::{Device, DeviceInfo, DeviceIo, Op};
use cache::{PageCache, PageCacheConfig};
use device::MemoryDevice;
use rt::{Cx, SpinLock};
use testkit::content::{create, mkdir, pattern};
use testkit::manifest::{self, Manifest};
use vfs::{FileSystem, FileType, NewNode, SetAttr};
use xfs::format::inode::MAGIC;
use xfs::format::{At, Geometry, Kind as Block, verifier};
use xfs::{MkfsOptions, MountOptions, Xfs};

use crate::support::queue;

/// A kind of image.
#[derive(Clone, Copy, Debug)]
pub struct Kind {
    pub name: &'static str,
    pub block: u32,
    /// The kernel whose features it has.
    pub compat: &'static str,
    pub rmapbt: bool,
    pub log_mib: u64,
}

/// Every kind that the campaigns damage.
pub const KINDS: &[Kind] = &[
    Kind { name: "xfs-4k", block: 4096, compat: "6.1", rmapbt: false, log_mib: 16 },
    Kind { name: "xfs-rmap-4k", block: 4096, compat: "6.12", rmapbt: true, log_mib: 16 },
    Kind { name: "xfs-1k", block: 1024, compat: "6.1", rmapbt: false, log_mib: 16 },
    Kind { name: "xfs-rmap-1k", block: 1024, compat: "6.12", rmapbt: true, log_mib: 16 },
    Kind { name: "xfs-old-4k", block: 4096, compat: "4.19", rmapbt: false, log_mib: 16 },
    Kind { name: "xfs-parent-4k", block: 4096, compat: "7.2", rmapbt: true, log_mib: 16 },
    Kind { name: "xfs-parent-1k", block: 1024, compat: "7.2", rmapbt: true, log_mib: 16 },
];

pub fn mount(cx: &mut Cx, device: Arc<dyn Device>) -> Result<Arc<Xfs>, xfs::MountError> {
    let queue = queue(cx, device);
    let pages = PageCache::new(cx.runtime(), PageCacheConfig::with_limit(32 << 20));
    let options = MountOptions { read_only: false, ..MountOptions::default() };
    Xfs::mount(cx, &queue, &pages, options)
}

impl Kind {
    fn empty(&self, cx: &mut Cx) -> Arc<MemoryDevice> {
        let device = Arc::new(MemoryDevice::new(64 << 20));
        let options = MkfsOptions {
            block_size: self.block,
            ag_count: Some(3),
            log_size: Some(self.log_mib << 20),
            rmapbt: self.rmapbt,
            uuid: Some([7; 16]),
            ..MkfsOptions::compat(self.compat).expect("a known kernel")
        };
        let queue = queue(cx, device.clone());
        xfs::mkfs(cx, &queue, &options).unwrap_or_else(|e| panic!("mkfs of {self:?}: {e}"));
        device
    }

    /// A sound image with one of everything.
    pub fn image(&self) -> Arc<MemoryDevice> {
        rt::testing::world(|cx| {
            let device = self.empty(cx);
            let fs = mount(cx, device.clone()).expect("a fresh image is mounted");
            populate(cx, &fs, u64::from(self.block));
            fs.unmount(cx).expect("unmount");
            device
        })
    }
}

fn write(cx: &mut Cx, fs: &Xfs, ino: Ino, number: u64, offset: u64, len: usize) {
    let mut bytes = vec![0; len];
    pattern(number, offset, &mut bytes);
    fs.write(cx, ino, offset, &bytes).expect("write");
}

fn populate(cx: &mut Cx, fs: &Xfs, block: u64) {
    let root = fs.root();
    let big = mkdir(cx, fs, root, "big");
    for n in 0..400u64 {
        let ino = create(cx, fs, big, &format!("a-rather-long-name-{n:05}"));
        if n % 4 == 0 {
            write(cx, fs, ino, n, 0, 100 + (n as usize * 37) % 3000);
        }
        if n % 50 == 0 {
            let value = vec![b'v'; if n % 100 == 0 { 900 } else { 20 }];
            fs.setxattr(cx, ino, b"user.test", &value, Default::default()).expect("setxattr");
        }
    }
    let mut at = root;
    for depth in 0..6u64 {
        at = mkdir(cx, fs, at, &format!("deep{depth}"));
        for n in 0..5 {
            let ino = create(cx, fs, at, &format!("file{n}"));
            write(cx, fs, ino, 1000 + depth * 10 + n, 0, 500 + 2000 * n as usize);
        }
        for n in 0..2 {
            mkdir(cx, fs, at, &format!("empty{n}"));
        }
    }
    let middle = mkdir(cx, fs, root, "middle");
    for n in 0..40u64 {
        create(cx, fs, middle, &format!("in-the-middle-{n:03}"));
    }
    for (name, pieces) in [("sparse", 150u64), ("holes", 600)] {
        let ino = create(cx, fs, root, name);
        for n in 0..pieces {
            write(cx, fs, ino, 2000, n * 2 * block, 700);
        }
    }
    let large = create(cx, fs, root, "large");
    write(cx, fs, large, 3000, 0, 600 << 10);
    let many = create(cx, fs, root, "attributes");
    for n in 0..60 {
        let (name, value) = (format!("user.number-{n}"), vec![b'a'; 100 + n]);
        fs.setxattr(cx, many, name.as_bytes(), &value, Default::default()).expect("setxattr");
    }
    let value = vec![b'l'; 9000];
    fs.setxattr(cx, many, b"user.large", &value, Default::default()).expect("setxattr");
    for (name, target) in [(&b"fast"[..], &b"big/there"[..]), (b"slow", &[b'x'; 700])] {
        let link = NewNode { target: Some(target), ..NewNode::new(FileType::Symlink, 0o777) };
        fs.create(cx, root, name, &link).expect("symlink");
    }
    fs.create(cx, root, b"fifo", &NewNode::new(FileType::Fifo, 0o600)).expect("fifo");
    fs.link(cx, large, at, b"another-name").expect("link");
    let owned = SetAttr { uid: Some(70_000), ..SetAttr::default() };
    fs.setattr(cx, large, &owned).expect("chown");
    fs.sync(cx).expect("sync");
}

/// A device that remembers which sectors were read.
struct Spy {
    below: Arc<MemoryDevice>,
    read: SpinLock<BTreeSet<u64>>,
}

impl Device for Spy {
    fn info(&self) -> &DeviceInfo {
        self.below.info()
    }

    fn submit(&self, io: DeviceIo) {
        if io.op == Op::Read {
            let first = io.sector.0;
            self.read.lock_irq().extend(first..first + io.count);
        }
        self.below.submit(io);
    }

    fn name(&self) -> String {
        "spy".into()
    }
}

/// The geometry of an image whose first superblock is sound.
pub fn geometry(image: &[u8]) -> Option<Geometry> {
    Geometry::parse(&image[..4096], At::Super(0)).ok()
}

/// The blocks that hold metadata: those that a check reads, unless they are empty or of the log.
pub fn metadata(device: &Arc<MemoryDevice>) -> Vec<u64> {
    let spy = Arc::new(Spy { below: device.clone(), read: SpinLock::new(BTreeSet::new()) });
    rt::testing::world(|cx| {
        let queue = queue(cx, spy.clone());
        let report = xfs::check(cx, &queue, &Default::default()).expect("check runs");
        assert!(report.findings.is_empty(), "{:?}", report.findings);
    });
    let image = device.snapshot();
    let g = geometry(&image).expect("a sound superblock");
    let block = u64::from(g.block_size);
    let sectors = spy.read.lock_irq();
    let blocks: BTreeSet<u64> = sectors.iter().map(|sector| sector * 512 / block).collect();
    let full = |n: &u64| image[(n * block) as usize..][..block as usize].iter().any(|&b| b != 0);
    let log = g.linear(g.split(g.log_start));
    let log = log..log + u64::from(g.log_blocks);
    let of_log = |n: &u64| log.contains(n);
    blocks.into_iter().filter(|n| !of_log(n)).filter(full).collect()
}

/// What was done to an image.
pub fn damage(image: &mut [u8], blocks: &[u64], g: &Geometry, rng: &mut Rng) -> String {
    let times = if rng.chance(0.15) { 2 + rng.below(3) } else { 1 };
    let all: Vec<String> = (0..times).map(|_| damage_once(image, blocks, g, rng)).collect();
    all.join(", ")
}

fn damage_once(image: &mut [u8], blocks: &[u64], g: &Geometry, rng: &mut Rng) -> String {
    let size = u64::from(g.block_size);
    let block = *rng.pick(blocks);
    let start = (block * size) as usize;
    let len = size as usize;
    match rng.below(10) {
        0..=2 => {
            let mut at = start + rng.below(size) as usize;
            if rng.chance(0.8) {
                at = (at..start + len).find(|&at| image[at] != 0).unwrap_or(at);
            }
            let old = image[at];
            image[at] ^= 1 + rng.below(255) as u8;
            format!("byte {at} (block {block}+{}) {old:#x} -> {:#x}", at - start, image[at])
        }
        3..=5 => field(image, g, rng),
        6 => {
            let other = *rng.pick(blocks);
            let theirs = image[(other * size) as usize..][..len].to_vec();
            let own = image[start..start + len].to_vec();
            image[start..start + len].copy_from_slice(&theirs);
            image[(other * size) as usize..][..len].copy_from_slice(&own);
            format!("blocks {block} and {other} swapped")
        }
        7 => {
            image[start..start + len].fill(0);
            format!("block {block} zeroed")
        }
        8 => {
            let count = 4096 << rng.below(5);
            let from = (start as u64 & !4095) as usize;
            let end = (from + count as usize).min(image.len());
            let log = (g.sector(g.log_start).bytes()) as usize;
            let end = if from < log { end.min(log) } else { end };
            image[from..end].fill(0);
            format!("{} bytes at {from} zeroed", end - from)
        }
        _ => {
            let at = start + (rng.below(size) & !511) as usize;
            rng.fill(&mut image[at..at + 512]);
            format!("sector {} (block {block}) random", at / 512)
        }
    }
}

/// A field of an inode in use, with its checksum right again.
fn field(image: &mut [u8], g: &Geometry, rng: &mut Rng) -> String {
    let size = g.inode_size as usize;
    let slots = image.len() / size;
    for _ in 0..200_000 {
        let at = rng.below(slots as u64) as usize * size;
        let slot = &mut image[at..at + size];
        let magic = u16::from_be_bytes([slot[0], slot[1]]);
        if magic != MAGIC || slot[2..4] == [0, 0] || slot[4] != 3 {
            continue;
        }
        let field = rng.below(240) as usize & !1;
        let word = match rng.below(4) {
            0 => 0,
            1 => 0xffff,
            2 => u16::from_be_bytes([slot[field], slot[field + 1]]) ^ 1 << rng.below(16),
            _ => rng.next_u32() as u16,
        };
        let ino = u64::from_be_bytes(slot[152..160].try_into().expect("eight bytes"));
        slot[field..field + 2].copy_from_slice(&word.to_be_bytes());
        verifier::update_crc(Block::Inode, slot);
        return format!("inode {ino}: field {field:#x} = {word:#x}");
    }
    "nothing".into()
}

/// What a mount of ours shows.
pub fn manifest(device: &Arc<MemoryDevice>) -> Option<Manifest> {
    let copy = Arc::new(device.fork());
    rt::testing::world(|cx| {
        let fs = mount(cx, copy).ok()?;
        manifest::of_fs(cx, &*fs).ok()
    })
}
