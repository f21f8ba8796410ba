//! Small images with one of everything, and the damage that is done to them.

#![allow(dead_code, reason = "every test program uses a part of it")]

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use base::{Ino, Rng};
use block::{Device, DeviceInfo, DeviceIo, Op, Queue, QueueConfig};
use cache::PageCacheConfig;
use device::{Cut, MemoryDevice, WriteLog};
use ext4::format::verity::VerityParams;
use ext4::format::{Geometry, GroupDesc, InodeFlags, InodeValues};
use ext4::{Ext4, MkfsOptions, MountOptions, Rule};
use fscrypt::{KeyRing, MasterKey, Policy};
use repair::undo::{Repaired, UndoFile};
use repair::{Finding, Plan};
use rt::{Cx, SpinLock};
use testkit::content::{create, mkdir, pattern};
use testkit::manifest::{self, Manifest};
use vfs::{FileSystem, FileType, NewNode, SetAttr};

pub mod data;

/// A kind of image.
#[derive(Clone, Copy, Debug)]
pub struct Kind {
    pub name: &'static str,
    pub fstype: &'static str,
    pub block: u32,
    pub features: &'static str,
    /// Made by mke2fs of the host instead of our mkfs.
    pub mke2fs: bool,
    pub bytes: u64,
    /// Uses the features: called after the usual content was made, or before.
    pub extra: Extra,
}

/// What a kind has beside the usual content.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Extra {
    None,
    /// All directories ignore the case of names.
    Folded,
    /// Files with verity.
    Verity,
    /// Encrypted directories, one of which ignores case.
    Encrypted,
    /// Values of attributes in inodes of their own, one of which two files share.
    LargeValues,
    /// The last changes lie in fast commits that no mount has replayed.
    FastCommits,
    /// Data behind half of the names.
    Data,
}

const fn kind(name: &'static str, fstype: &'static str, block: u32) -> Kind {
    Kind { name, fstype, block, features: "", mke2fs: false, bytes: 12 << 20, extra: Extra::None }
}

/// Every kind that the campaigns damage.
pub const KINDS: &[Kind] = &[
    kind("ext4-1k", "ext4", 1024),
    Kind {
        mke2fs: true,
        features: "orphan_file,metadata_csum_seed",
        ..kind("mke2fs-1k", "ext4", 1024)
    },
    kind("ext2-1k", "ext2", 1024),
    Kind { bytes: 16 << 20, ..kind("ext4-4k", "ext4", 4096) },
    Kind {
        features: "^metadata_csum,uninit_bg",
        mke2fs: true,
        ..kind("ext4-uninit", "ext4", 1024)
    },
    kind("ext3-1k", "ext3", 1024),
    Kind {
        features: "^has_journal",
        mke2fs: true,
        bytes: 16 << 20,
        ..kind("ext4-nojournal", "ext4", 4096)
    },
    Kind { bytes: 16 << 20, ..kind("ext2-4k", "ext2", 4096) },
];

/// Features that not every image has.
pub const FEATURES: &[Kind] = &[
    Kind { features: "meta_bg,^resize_inode", bytes: 40 << 20, ..kind("meta-bg-1k", "ext4", 1024) },
    Kind {
        features: "sparse_super2,^resize_inode",
        bytes: 40 << 20,
        ..kind("sparse2-1k", "ext4", 1024)
    },
    Kind { features: "mmp", ..kind("mmp-1k", "ext4", 1024) },
    Kind { features: "casefold", extra: Extra::Folded, ..kind("casefold-1k", "ext4", 1024) },
    Kind { features: "verity", extra: Extra::Verity, ..kind("verity-1k", "ext4", 1024) },
    Kind { features: "inline_data", ..kind("inline-1k", "ext4", 1024) },
    Kind {
        features: "encrypt,casefold",
        extra: Extra::Encrypted,
        ..kind("encrypt-1k", "ext4", 1024)
    },
    Kind { features: "ea_inode", extra: Extra::LargeValues, ..kind("values-1k", "ext4", 1024) },
    Kind { features: "bigalloc", bytes: 40 << 20, ..kind("bigalloc-1k", "ext4", 1024) },
    Kind {
        features: "fast_commit",
        extra: Extra::FastCommits,
        ..kind("fast-commit-1k", "ext4", 1024)
    },
    Kind { extra: Extra::Data, ..kind("dirdata-1k", "ext4", 1024) },
    Kind {
        features: "^metadata_csum",
        extra: Extra::Data,
        bytes: 16 << 20,
        ..kind("dirdata-4k", "ext4", 4096)
    },
    Kind { bytes: 24 << 20, ..kind("ext4-8k", "ext4", 8192) },
    Kind {
        features: "^has_journal,verity",
        extra: Extra::Verity,
        bytes: 128 << 20,
        ..kind("verity-64k", "ext4", 65536)
    },
    Kind {
        features: "bigalloc,inline_data,quota",
        bytes: 32 << 20,
        ..kind("bigalloc-4k", "ext4", 4096)
    },
];

/// An image of mke2fs, whose identifiers are the same every time. `features` may be empty.
pub fn by_mke2fs(bytes: u64, features: &str, args: &[&str]) -> tempfile::NamedTempFile {
    let file = tempfile::NamedTempFile::new().expect("a temporary file");
    let mut args = args.to_vec();
    args.extend(["-U", "11223344-5566-4788-89aa-bbccddeeff01"]);
    args.extend(["-E", "hash_seed=11223344-5566-4788-89aa-0123456789ab"]);
    if !features.is_empty() {
        args.extend(["-O", features]);
    }
    testkit::judge::mke2fs(file.path(), bytes, &args);
    file
}

/// The options of mke2fs for small groups with many inodes.
pub fn small_groups(fstype: &str) -> [&str; 8] {
    ["-t", fstype, "-b", "1024", "-g", "1024", "-N", "1536"]
}

pub fn queue(cx: &Cx, device: Arc<dyn Device>) -> Arc<Queue> {
    Queue::new(cx.runtime(), device, QueueConfig::default()).expect("the device takes a queue")
}

/// The key of encrypted directories.
pub fn key() -> MasterKey {
    MasterKey::new(vec![b'K'; 64]).expect("64 bytes")
}

pub fn mount(cx: &mut Cx, device: Arc<dyn Device>) -> Result<Arc<Ext4>, ext4::MountError> {
    mount_with(cx, device, MountOptions::default())
}

fn mount_with(
    cx: &mut Cx,
    device: Arc<dyn Device>,
    options: MountOptions,
) -> Result<Arc<Ext4>, ext4::MountError> {
    let queue = queue(cx, device);
    let mut keys = KeyRing::default();
    keys.add(key());
    let options = MountOptions { keys, ..options };
    Ext4::mount_alone(cx, &queue, PageCacheConfig::with_limit(32 << 20), options)
}

impl Kind {
    fn empty(&self, cx: &mut Cx) -> Arc<MemoryDevice> {
        if self.mke2fs {
            let block = self.block.to_string();
            let args = ["-t", self.fstype, "-b", &block, "-N", "2048"];
            let file = by_mke2fs(self.bytes, self.features, &args);
            return Arc::new(testkit::image::load(file.path()));
        }
        let device = Arc::new(MemoryDevice::new(self.bytes));
        let options = MkfsOptions {
            fstype: self.fstype.parse().expect("a known type"),
            block_size: Some(self.block),
            features: self.features.to_owned(),
            uuid: Some([7; 16]),
            hash_seed: Some([9; 16]),
            ..MkfsOptions::default()
        };
        let queue = queue(cx, device.clone());
        ext4::mkfs(cx, &queue, &options).unwrap_or_else(|e| panic!("mkfs of {self:?}: {e}"));
        device
    }

    /// A sound image with one of everything.
    pub fn image(&self) -> Arc<MemoryDevice> {
        rt::testing::world(|cx| {
            let device = self.empty(cx);
            self.fill_in(cx, &device)
        })
    }

    /// Makes one of everything in an empty file system.
    pub fn fill(device: &Arc<MemoryDevice>, block: u32) {
        rt::testing::world(|cx| drop(kind("", "", block).fill_in(cx, device)));
    }

    fn fill_in(&self, cx: &mut Cx, device: &Arc<MemoryDevice>) -> Arc<MemoryDevice> {
        let fs = mount(cx, device.clone()).expect("a fresh image is mounted");
        if self.extra == Extra::Folded {
            fold_root(cx, &fs);
        }
        populate(cx, &fs, self.block.into());
        match self.extra {
            Extra::None | Extra::Folded | Extra::Data => {}
            Extra::Verity => verity_files(cx, &fs),
            Extra::LargeValues => large_values(cx, &fs),
            Extra::Encrypted => encrypted_directories(cx, &fs),
            Extra::FastCommits => {
                fs.unmount(cx).expect("unmount");
                let fs = mount(cx, device.clone()).expect("mounted again");
                fast_commits(cx, &fs);
                let pending = Arc::new(device.fork());
                fs.unmount(cx).expect("unmount");
                return pending;
            }
        }
        fs.unmount(cx).expect("unmount");
        if self.extra == Extra::Data {
            device.load(&data::give(&device.snapshot()));
        }
        device.clone()
    }
}

/// Lets the root directory ignore case, and with it all that will be below.
fn fold_root(cx: &mut Cx, fs: &Ext4) {
    let (root, found) = (fs.root(), b"lost+found");
    fs.rmdir(cx, root, found).expect("it is empty");
    folding(cx, fs, root);
    fs.create(cx, root, found, &NewNode::new(FileType::Directory, 0o700)).expect("room");
}

fn folding(cx: &mut Cx, fs: &Ext4, dir: Ino) {
    let flags = fs.getattr(cx, dir).expect("attributes").flags;
    fs.set_flags(cx, dir, flags | InodeFlags::CASEFOLD.bits()).expect("it is empty");
}

/// A file of several levels of hashes, and an empty one.
fn verity_files(cx: &mut Cx, fs: &Ext4) {
    let block_size = 1024;
    for (name, len) in [("sealed", 150_000), ("sealed-empty", 0)] {
        let ino = create(cx, fs, fs.root(), name);
        write(cx, fs, ino, 4000, 0, len);
        let params = VerityParams { block_size, salt: vec![7; 8], ..VerityParams::default() };
        fs.enable_verity(cx, ino, &params, &[]).expect("room");
    }
}

/// Files with large attributes: two of one value, one of two values.
fn large_values(cx: &mut Cx, fs: &Ext4) {
    for (name, values) in [("one", &[0][..]), ("twin", &[0]), ("three", &[1, 2, 3])] {
        let ino = create(cx, fs, fs.root(), name);
        for &number in values {
            let mut value = vec![0; [5000, 1500, 20_000, 2048][number as usize]];
            pattern(7000 + number, 0, &mut value);
            let name = format!("user.large{number}");
            fs.setxattr(cx, ino, name.as_bytes(), &value, Default::default()).expect("room");
        }
    }
}

/// Encrypted directories with a tree of names, a file and links.
fn encrypted_directories(cx: &mut Cx, fs: &Ext4) {
    for (name, folds) in [("secret", false), ("secret-folded", true)] {
        let dir = mkdir(cx, fs, fs.root(), name);
        if folds {
            folding(cx, fs, dir);
        }
        fs.encrypt_directory(cx, dir, Policy::new(key().identifier())).expect("a policy");
        for n in 0..60 {
            let ino = create(cx, fs, dir, &format!("Name-{n}-{}", "x".repeat(n * 3)));
            if n % 10 == 0 {
                write(cx, fs, ino, 5000 + n as u64, 0, 3000);
            }
        }
        let below = mkdir(cx, fs, dir, "below");
        create(cx, fs, below, "file");
        for target in ["short", &"long".repeat(40)] {
            let link = NewNode {
                target: Some(target.as_bytes()),
                ..NewNode::new(FileType::Symlink, 0o777)
            };
            fs.create(cx, below, &target.as_bytes()[..5], &link).expect("symlink");
        }
    }
}

/// Changes that only fast commits hold.
fn fast_commits(cx: &mut Cx, fs: &Ext4) {
    for n in 0..6u64 {
        let ino = create(cx, fs, fs.root(), &format!("quick{n}"));
        write(cx, fs, ino, 6000 + n, 0, 2000);
        fs.fsync(cx, ino, false).expect("fsync");
    }
    fs.unlink(cx, fs.root(), b"quick3").expect("unlink");
    let last = create(cx, fs, fs.root(), "quick-last");
    fs.fsync(cx, last, false).expect("fsync");
}

pub fn write(cx: &mut Cx, fs: &dyn FileSystem, ino: Ino, number: u64, offset: u64, len: usize) {
    let mut bytes = vec![0; len];
    pattern(number, offset, &mut bytes);
    fs.write(cx, ino, offset, &bytes).expect("write");
}

fn populate(cx: &mut Cx, fs: &Ext4, block: u64) {
    let deepest = directories(cx, fs, 600);
    sparse_files(cx, fs, block, 900);
    let large = create(cx, fs, fs.root(), "large");
    write(cx, fs, large, 3000, 0, 600 << 10);
    other_nodes(cx, fs, large, deepest, 200);
}

/// A directory of 400 names, some with attributes, of at most `value` bytes; six directories below
/// each other, with files and empty directories. Returns the deepest.
pub fn directories(cx: &mut Cx, fs: &dyn FileSystem, value: usize) -> Ino {
    let root = fs.root();
    let big = mkdir(cx, fs, root, "big");
    for n in 0..400u64 {
        let ino = create(cx, fs, big, &format!("a-rather-long-name-{n:05}"));
        if n % 4 == 0 {
            write(cx, fs, ino, n, 0, 100 + (n as usize * 37) % 3000);
        }
        if n % 50 == 0 {
            let value = vec![b'v'; if n % 100 == 0 { value } else { 20 }];
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
    at
}

/// A file of 150 blocks with holes between them, and one of `pieces`.
pub fn sparse_files(cx: &mut Cx, fs: &dyn FileSystem, block: u64, pieces: u64) {
    for (name, pieces) in [("sparse", 150u64), ("holes", pieces)] {
        let ino = create(cx, fs, fs.root(), name);
        for n in 0..pieces {
            write(cx, fs, ino, 2000, n * 2 * block, 700);
        }
    }
}

/// Symbolic links, one with a target of `slow` bytes; a FIFO; a second name and an owner for
/// `large`. Everything is synced.
pub fn other_nodes(cx: &mut Cx, fs: &dyn FileSystem, large: Ino, deepest: Ino, slow: usize) {
    let root = fs.root();
    for (name, target) in [(&b"fast"[..], b"big/there".to_vec()), (b"slow", vec![b'x'; slow])] {
        let link = NewNode { target: Some(&target), ..NewNode::new(FileType::Symlink, 0o777) };
        fs.create(cx, root, name, &link).expect("symlink");
    }
    fs.create(cx, root, b"fifo", &NewNode::new(FileType::Fifo, 0o600)).expect("fifo");
    fs.link(cx, large, deepest, b"another-name").expect("link");
    let owned = SetAttr { uid: Some(70_000), ..SetAttr::default() };
    fs.setattr(cx, large, &owned).expect("chown");
    fs.sync(cx).expect("sync");
}

/// A device that remembers which sectors were read, and how many reads there were.
struct Spy {
    below: Arc<MemoryDevice>,
    read: SpinLock<BTreeSet<u64>>,
    count: AtomicU64,
}

impl Spy {
    /// What `work` reads, which gets a queue on the device.
    fn on(device: &Arc<MemoryDevice>, work: impl FnOnce(&mut Cx, &Arc<Queue>)) -> Arc<Spy> {
        let (read, count) = (SpinLock::new(BTreeSet::new()), AtomicU64::new(0));
        let spy = Arc::new(Spy { below: device.clone(), read, count });
        rt::testing::world(|cx| {
            let queue = queue(cx, spy.clone());
            work(cx, &queue);
        });
        spy
    }
}

impl Device for Spy {
    fn info(&self) -> &DeviceInfo {
        self.below.info()
    }

    fn submit(&self, io: DeviceIo) {
        if io.op == Op::Read {
            let first = io.sector.0;
            self.read.lock_irq().extend(first..first + io.count);
            self.count.fetch_add(1, Ordering::Relaxed);
        }
        self.below.submit(io);
    }

    fn name(&self) -> String {
        "spy".into()
    }
}

/// The blocks of `block` bytes that `work` reads, which gets a queue on the device.
pub fn blocks_read(
    device: &Arc<MemoryDevice>,
    block: u64,
    work: impl FnOnce(&mut Cx, &Arc<Queue>),
) -> BTreeSet<u64> {
    let spy = Spy::on(device, work);
    let sectors = spy.read.lock_irq();
    sectors.iter().map(|sector| sector * 512 / block).collect()
}

/// How many reads `work` makes.
pub fn reads(device: &Arc<MemoryDevice>, work: impl FnOnce(&mut Cx, &Arc<Queue>)) -> u64 {
    Spy::on(device, work).count.load(Ordering::Relaxed)
}

/// The blocks that hold metadata: those that a check reads, unless they are empty.
pub fn metadata(device: &Arc<MemoryDevice>, block: u64) -> Vec<u64> {
    let blocks = blocks_read(device, block, |cx, queue| {
        let report = ext4::check(cx, queue, &Default::default()).expect("check runs");
        // Of a journal that waits for its replay it says so first.
        let waits = report.findings.first().is_none_or(|f| f.rule == Rule::JournalNeedsRecovery);
        assert!(waits, "{:?}", report.findings);
    });
    let image = device.snapshot();
    let full = |n: &u64| image[(n * block) as usize..][..block as usize].iter().any(|&b| b != 0);
    let g = Geometry::parse(&image[1024..2048], 0).expect("a sound superblock");
    let reserved = g.desc_place(0).0.0 + u64::from(g.desc_blocks);
    let reserved = reserved + 4..reserved + u64::from(g.reserved_gdt_blocks);
    // The reserved descriptor blocks are all alike: a few of them do.
    blocks.into_iter().filter(|block| !reserved.contains(block)).filter(full).collect()
}

/// What was done to an image.
pub fn damage(image: &mut [u8], blocks: &[u64], size: u64, rng: &mut Rng) -> String {
    let behind = image.len();
    Blows { blocks, size, field: &field, end_of_zeros: &|_, end| end.min(behind) }.hit(image, rng)
}

/// What damages an image of one format.
pub struct Blows<'a> {
    /// The blocks that are hit.
    pub blocks: &'a [u64],
    /// Bytes of a block.
    pub size: u64,
    /// Changes a field of an inode, with its checksum right again; says which.
    pub field: &'a dyn Fn(&mut [u8], &mut Rng) -> String,
    /// Where a zeroed region from a byte to another may end at the most.
    pub end_of_zeros: &'a dyn Fn(usize, usize) -> usize,
}

impl Blows<'_> {
    /// Damages an image once, or a few times; says how.
    pub fn hit(&self, image: &mut [u8], rng: &mut Rng) -> String {
        let times = if rng.chance(0.15) { 2 + rng.below(3) } else { 1 };
        let all: Vec<String> = (0..times).map(|_| self.once(image, rng)).collect();
        all.join(", ")
    }

    fn once(&self, image: &mut [u8], rng: &mut Rng) -> String {
        let Blows { blocks, size, .. } = *self;
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
            3..=5 => (self.field)(image, rng),
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
                let end = (self.end_of_zeros)(from, from + count as usize);
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
}

/// Where an inode lies in an image; none where its group's descriptor is damaged.
pub fn slot_place(image: &[u8], g: &Geometry, ino: u32) -> Option<std::ops::Range<usize>> {
    let (group, index) = g.inode_group(Ino(ino.into())).expect("in range");
    let (block, offset) = g.desc_place(group);
    let place = block.0 as usize * g.block_size as usize + offset;
    let desc = GroupDesc::read(&image[place..place + g.desc_size as usize]);
    desc.check_places(group, g).ok()?;
    let (block, offset) = g.inode_offset(index);
    let at = (desc.inode_table + block) as usize * g.block_size as usize + offset;
    Some(at..at + g.inode_size as usize)
}

/// A field of an inode, with its checksum right again.
fn field(image: &mut [u8], rng: &mut Rng) -> String {
    let Ok(g) = Geometry::parse(&image[1024..2048], 0) else { return "nothing".into() };
    for _ in 0..1000 {
        let ino = 1 + rng.below(u64::from(g.inodes_count)) as u32;
        let Some(place) = slot_place(image, &g, ino) else { continue };
        let slot = &mut image[place];
        let values = InodeValues::read(slot, &g);
        if values.links == 0 {
            continue;
        }
        let field = rng.below(160.min(u64::from(g.inode_size))) as usize & !1;
        let word = match rng.below(4) {
            0 => 0,
            1 => 0xffff,
            2 => u16::from_le_bytes([slot[field], slot[field + 1]]) ^ 1 << rng.below(16),
            _ => rng.next_u32() as u16,
        };
        slot[field..field + 2].copy_from_slice(&word.to_le_bytes());
        if g.checksums.metadata {
            let generation = InodeValues::generation_of(slot);
            g.checksums.inode_seed(Ino(ino.into()), generation).set_inode(slot);
        }
        return format!("inode {ino}: field {field:#x} = {word:#x}");
    }
    "nothing".into()
}

/// Plans with every action wanted.
pub fn plan(device: &Arc<MemoryDevice>) -> Result<Plan, repair::RepairError> {
    plan_with(device, &mut |_| true)
}

pub fn plan_with(
    device: &Arc<MemoryDevice>,
    decide: &mut dyn FnMut(&Finding) -> bool,
) -> Result<Plan, repair::RepairError> {
    rt::testing::world(|cx| {
        let queue = queue(cx, device.clone());
        repair::plan(cx, &queue, decide)
    })
}

/// Carries a plan out; answers the undo file.
pub fn apply(device: &Arc<dyn Device>, plan: &Plan, dir: &std::path::Path) -> UndoFile {
    let path = dir.join("undo");
    let _old = std::fs::remove_file(&path);
    let of = Repaired { target: b"disk.img", device_bytes: device.info().bytes() };
    let mut undo = UndoFile::create(&path, [3; 16], &of, plan).expect("undo file");
    rt::testing::world(|cx| {
        let queue = queue(cx, device.clone());
        repair::apply(cx, &queue, &mut undo).expect("apply");
    });
    undo
}

/// Cuts a change with an undo file at some of its writes and with random losses. Of each cut image
/// one copy is finished, where the change had begun there, and is `last` then; one is undone. Both
/// others are for `is_old`. Returns of how many copies the change had not begun, and had.
pub fn cut_and_go_on(
    log: &WriteLog,
    [first, last]: [&[u8]; 2],
    undo: &std::path::Path,
    is_old: impl Fn(&[u8], &Cut),
) -> [u32; 2] {
    let count = log.entries.len();
    let mut rng = Rng::new(7, 78);
    let whole = (0..=count).step_by((count / 8).max(1)).map(Cut::clean);
    let losses = (0..4).map(|_| log.random_cut(&mut rng)).collect::<Vec<_>>();
    let mut kinds = [0; 2];
    for cut in whole.chain(losses) {
        let image = log.image_after(first, &cut);
        for finish in [true, false] {
            let device = Arc::new(MemoryDevice::from_image(&image));
            // The state of the file is that of its end; the image says what was done.
            let copy = undo.with_extension("copy");
            let mut bytes = std::fs::read(undo).expect("the undo file");
            bytes[8] = 1;
            std::fs::write(&copy, bytes).expect("a copy");
            let mut undo = UndoFile::open(&copy).expect("a sound undo file");
            let begun = rt::testing::world(|cx| {
                let queue = queue(cx, device.clone());
                let begun = undo.is_begun(cx, &queue).expect("compare");
                match finish {
                    true if begun => repair::apply(cx, &queue, &mut undo).expect("finish"),
                    true => {}
                    false => undo.undo(cx, &queue).expect("undo"),
                }
                begun
            });
            kinds[usize::from(begun)] += 1;
            let now = device.snapshot();
            if finish && begun {
                assert!(now == *last, "{cut:?}: not finished");
            } else {
                is_old(&now, &cut);
            }
        }
    }
    kinds
}

/// What a mount of ours shows.
pub fn manifest(device: &Arc<MemoryDevice>) -> Option<Manifest> {
    manifest_with(device, MountOptions::default())
}

/// What a mount shows that does not write.
pub fn read_only_manifest(device: &Arc<MemoryDevice>) -> Option<Manifest> {
    manifest_with(device, MountOptions { read_only: true, ..MountOptions::default() })
}

fn manifest_with(device: &Arc<MemoryDevice>, options: MountOptions) -> Option<Manifest> {
    let copy = Arc::new(device.fork());
    rt::testing::world(|cx| {
        let fs = mount_with(cx, copy, options).ok()?;
        manifest::of_fs(cx, &*fs).ok()
    })
}
