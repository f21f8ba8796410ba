//! Small images of XFS with one of everything, and the damage that is done to them.

#![allow(dead_code, reason = "every test program uses a part of it")]

use std::collections::BTreeMap;
use std::sync::Arc;

use base::Rng;
use block::Device;
use cache::{PageCache, PageCacheConfig};
use device::MemoryDevice;
use rt::Cx;
use testkit::content::{create, mkdir};
use vfs::FileSystem;
use vfs::quota::{self, Account, Limits, Quota};
use xfs::format::inode::MAGIC;
use xfs::format::log::Lsn;
use xfs::format::{AgHeader, At, Geometry, Kind as Block, verifier};
use xfs::log::LogGeometry;
use xfs::log::recovery::{self, FoundHead};
use xfs::{MkfsOptions, MountOptions, QuotaMode, Xfs};

use crate::support::{Blows, blocks_read, directories, other_nodes, queue, sparse_files, write};

/// A kind of image.
#[derive(Clone, Copy, Debug)]
pub struct Kind {
    pub name: &'static str,
    pub block: u32,
    /// The kernel whose features it has.
    pub compat: &'static str,
    pub rmapbt: bool,
    pub log_mib: u64,
    /// Quota is counted.
    pub quota: bool,
    /// Options of the newest mkfs.xfs, where that makes it.
    pub newest: Option<&'static str>,
}

/// Every kind that the campaigns damage.
pub const KINDS: &[Kind] = &[
    Kind {
        name: "xfs-4k",
        block: 4096,
        compat: "6.1",
        rmapbt: false,
        log_mib: 16,
        quota: false,
        newest: None,
    },
    Kind {
        name: "xfs-rmap-4k",
        block: 4096,
        compat: "6.12",
        rmapbt: true,
        log_mib: 16,
        quota: false,
        newest: None,
    },
    Kind {
        name: "xfs-1k",
        block: 1024,
        compat: "6.1",
        rmapbt: false,
        log_mib: 16,
        quota: false,
        newest: None,
    },
    Kind {
        name: "xfs-rmap-1k",
        block: 1024,
        compat: "6.12",
        rmapbt: true,
        log_mib: 16,
        quota: false,
        newest: None,
    },
    Kind {
        name: "xfs-old-4k",
        block: 4096,
        compat: "4.19",
        rmapbt: false,
        log_mib: 16,
        quota: false,
        newest: None,
    },
    Kind {
        name: "xfs-parent-4k",
        block: 4096,
        compat: "7.2",
        rmapbt: true,
        log_mib: 16,
        quota: false,
        newest: None,
    },
    Kind {
        name: "xfs-parent-1k",
        block: 1024,
        compat: "7.2",
        rmapbt: true,
        log_mib: 16,
        quota: false,
        newest: None,
    },
    Kind {
        name: "xfs-dir16k-4k",
        block: 4096,
        compat: "7.2",
        rmapbt: true,
        log_mib: 0,
        quota: false,
        newest: Some("-n size=16384"),
    },
    Kind {
        name: "xfs-metadir-4k",
        block: 4096,
        compat: "7.2",
        rmapbt: true,
        log_mib: 0,
        quota: true,
        newest: Some("-m metadir=1 -n parent=0"),
    },
    Kind {
        name: "xfs-metadir-1k",
        block: 1024,
        compat: "7.2",
        rmapbt: true,
        log_mib: 0,
        quota: true,
        newest: Some("-m metadir=1 -n parent=1 -b size=1024"),
    },
    Kind {
        name: "xfs-quota-4k",
        block: 4096,
        compat: "6.12",
        rmapbt: true,
        log_mib: 16,
        quota: true,
        newest: None,
    },
    Kind {
        name: "xfs-16k",
        block: 16384,
        compat: "6.12",
        rmapbt: true,
        log_mib: 24,
        quota: false,
        newest: None,
    },
    Kind {
        name: "xfs-64k",
        block: 65536,
        compat: "7.2",
        rmapbt: true,
        log_mib: 0,
        quota: false,
        newest: Some("-b size=65536"),
    },
    Kind {
        name: "xfs-quota-1k",
        block: 1024,
        compat: "6.1",
        rmapbt: false,
        log_mib: 16,
        quota: true,
        newest: None,
    },
];

pub fn mount(cx: &mut Cx, device: Arc<dyn Device>) -> Result<Arc<Xfs>, xfs::MountError> {
    mount_with(cx, device, QuotaMode::AsBefore)
}

fn mount_with(
    cx: &mut Cx,
    device: Arc<dyn Device>,
    quota: QuotaMode,
) -> Result<Arc<Xfs>, xfs::MountError> {
    let queue = queue(cx, device);
    let config = PageCacheConfig { folio_size: 65536, ..PageCacheConfig::with_limit(32 << 20) };
    let pages = PageCache::new(cx.runtime(), config);
    let options = MountOptions { read_only: false, quota, ..MountOptions::default() };
    Xfs::mount(cx, &queue, &pages, options)
}

impl Kind {
    fn empty(&self, cx: &mut Cx) -> Arc<MemoryDevice> {
        if let Some(words) = self.newest {
            return of_mkfs(words);
        }
        let bytes = if self.block > 4096 { 160 << 20 } else { 64 << 20 };
        let device = Arc::new(MemoryDevice::new(bytes));
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
        let block = u64::from(self.block);
        self.image_with(|cx, fs| populate(cx, fs, block)).0
    }

    /// A sound image that is filled by `fill`, and what that answers.
    pub fn image_with<R>(&self, fill: impl FnOnce(&mut Cx, &Xfs) -> R) -> (Arc<MemoryDevice>, R) {
        rt::testing::world(|cx| {
            let device = self.empty(cx);
            let quota = match self.quota {
                true => QuotaMode::Count([Some(true); 3]),
                false => QuotaMode::AsBefore,
            };
            let fs = mount_with(cx, device.clone(), quota).expect("a fresh image is mounted");
            if self.quota {
                limits(cx, &fs);
            }
            let filled = fill(cx, &fs);
            fs.unmount(cx).expect("unmount");
            (device, filled)
        })
    }
}

/// An image of the newest mkfs.xfs.
fn of_mkfs(words: &str) -> Arc<MemoryDevice> {
    let file = tempfile::NamedTempFile::new().expect("a file");
    file.as_file().set_len(512 << 20).expect("a size");
    let mut command = testkit::newest::command("mkfs.xfs");
    let output = command.args(["-q", "-f"]).args(words.split(' ')).arg(file.path()).output();
    let output = output.expect("it starts");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Arc::new(testkit::image::load(file.path()))
}

/// Limits of 30 ids of each kind.
fn limits(cx: &mut Cx, fs: &Xfs) {
    for kind in quota::Kind::ALL {
        for id in 1..=30 {
            let block_hard = (u64::from(id) + 100 * kind as u64 + 7) << 10;
            let limits = Limits { block_hard, ..Limits::default() };
            fs.set_limits(cx, kind, id, &limits).expect("limits");
        }
    }
}

/// The accounts of all kinds, as a mount that counts has them.
pub fn accounts(device: &Arc<MemoryDevice>) -> Vec<Vec<Account>> {
    let copy = Arc::new(device.fork());
    rt::testing::world(|cx| {
        let quota = QuotaMode::Count([Some(true); 3]);
        let fs = mount_with(cx, copy, quota).expect("it is mounted");
        let kinds = quota::Kind::ALL.into_iter();
        kinds.map(|kind| fs.report(cx, kind).expect("accounts")).collect()
    })
}

/// One of everything.
pub fn populate(cx: &mut Cx, fs: &Xfs, block: u64) {
    let root = fs.root();
    let deepest = directories(cx, fs, 900);
    let middle = mkdir(cx, fs, root, "middle");
    for n in 0..40u64 {
        create(cx, fs, middle, &format!("in-the-middle-{n:03}"));
    }
    sparse_files(cx, fs, block, 600);
    let large = create(cx, fs, root, "large");
    write(cx, fs, large, 3000, 0, 600 << 10);
    let many = create(cx, fs, root, "attributes");
    for n in 0..60 {
        let (name, value) = (format!("user.number-{n}"), vec![b'a'; 100 + n]);
        fs.setxattr(cx, many, name.as_bytes(), &value, Default::default()).expect("setxattr");
    }
    let value = vec![b'l'; 9000];
    fs.setxattr(cx, many, b"user.large", &value, Default::default()).expect("setxattr");
    other_nodes(cx, fs, large, deepest, 700);
}

/// The geometry of an image whose first superblock is sound.
pub fn geometry(image: &[u8]) -> Option<Geometry> {
    Geometry::parse(&image[..4096], At::Super(0)).ok()
}

/// Where the log of an image ends.
pub fn log_head(image: &MemoryDevice) -> FoundHead {
    let g = geometry(&image.snapshot()).expect("sound");
    rt::testing::world(|cx| {
        let queue = queue(cx, Arc::new(image.fork()));
        recovery::find(cx, &queue, LogGeometry::of(&g)).expect("an end")
    })
}

/// The blocks that hold metadata: those that a check reads, unless they are empty or of the log.
pub fn metadata(device: &Arc<MemoryDevice>) -> Vec<u64> {
    let image = device.snapshot();
    let g = geometry(&image).expect("a sound superblock");
    let block = u64::from(g.block_size);
    let blocks = blocks_read(device, block, |cx, queue| {
        let report = xfs::check(cx, queue, &Default::default()).expect("check runs");
        assert!(report.findings.is_empty(), "{:?}", report.findings);
    });
    let full = |n: &u64| image[(n * block) as usize..][..block as usize].iter().any(|&b| b != 0);
    let log = g.linear(g.split(g.log_start));
    let log = log..log + u64::from(g.log_blocks);
    let of_log = |n: &u64| log.contains(n);
    blocks.into_iter().filter(|n| !of_log(n)).filter(full).collect()
}

/// What was done to an image. Its log stays as it is.
pub fn damage(image: &mut [u8], blocks: &[u64], g: &Geometry, rng: &mut Rng) -> String {
    let (behind, log) = (image.len(), g.sector(g.log_start).bytes() as usize);
    let end_of_zeros = |from: usize, end: usize| {
        let end = end.min(behind);
        if from < log { end.min(log) } else { end }
    };
    let field = |image: &mut [u8], rng: &mut Rng| field(image, g, rng);
    let size = u64::from(g.block_size);
    Blows { blocks, size, field: &field, end_of_zeros: &end_of_zeros }.hit(image, rng)
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
pub fn manifest(device: &Arc<MemoryDevice>) -> Option<testkit::manifest::Manifest> {
    let copy = Arc::new(device.fork());
    rt::testing::world(|cx| {
        let fs = mount(cx, copy).ok()?;
        testkit::manifest::of_fs(cx, &*fs).ok()
    })
}

/// Changes the slot of an inode of an image, and sets its checksum.
pub fn change_slot(device: &MemoryDevice, ino: base::Ino, change: impl FnOnce(&mut [u8])) {
    let mut image = device.snapshot();
    let g = geometry(&image).expect("a sound superblock");
    let (place, offset) = g.ino_place(ino);
    let at = g.linear(place) as usize * g.block_size as usize + offset;
    let slot = &mut image[at..at + g.inode_size as usize];
    change(slot);
    verifier::update_crc(Block::Inode, slot);
    device.write_at(at as u64, slot);
}

/// All metadata of an image by kind: where each piece lies, in bytes, and how long it is.
pub fn pieces(device: &Arc<MemoryDevice>, g: &Geometry) -> BTreeMap<u8, Vec<(u64, usize)>> {
    let image = device.snapshot();
    let mut found: BTreeMap<u8, Vec<(u64, usize)>> = BTreeMap::new();
    for ag in 0..g.ag_count() {
        let headers = [
            (AgHeader::Super, Block::Super),
            (AgHeader::Agf, Block::Agf),
            (AgHeader::Agi, Block::Agi),
            (AgHeader::Agfl, Block::Agfl),
        ];
        for (header, kind) in headers {
            let at = g.header_sector(ag, header).bytes();
            found.entry(kind as u8).or_default().push((at, g.sector_size as usize));
        }
    }
    let size = g.block_size as usize;
    for block in metadata(device) {
        let at = block * size as u64;
        let data = &image[at as usize..][..size];
        let kind = Block::recognise(data).filter(|&kind| match kind {
            Block::Inode => true,
            kind => verifier::checksum(kind, data) == verifier::stored_checksum(kind, data),
        });
        match kind {
            Some(Block::Inode) => {
                let slots = (at..at + size as u64).step_by(g.inode_size as usize);
                let slots = slots.map(|at| (at, g.inode_size as usize));
                found.entry(Block::Inode as u8).or_default().extend(slots);
            }
            Some(kind) => found.entry(kind as u8).or_default().push((at, size)),
            None => {}
        }
    }
    found
}

/// The image with another number in some pieces of one kind.
pub fn written_behind(
    device: &MemoryDevice,
    kind: Block,
    places: &[(u64, usize)],
    lsn: Lsn,
) -> Arc<MemoryDevice> {
    let (image, changed) = (device.snapshot(), Arc::new(device.fork()));
    for &(at, len) in places {
        let mut data = image[at as usize..][..len].to_vec();
        verifier::update_lsn_crc(kind, &mut data, lsn.bits());
        changed.write_at(at, &data);
    }
    changed
}
