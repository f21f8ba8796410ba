//! Bad input: blocks of metadata are changed by seed, then the image is mounted, walked, written to
//! and checked. Nothing panics, hangs or allocates without bound; what is refused is refused with
//! one named error.

use crate::support::*;
use base::{Ino, Rng};
use cache::PageCacheConfig;
use device::MemoryDevice;
use ext4::{Ext4, MountOptions};
use rt::Cx;
use std::ops::Range;
use std::sync::Arc;
use vfs::{FileSystem, RenameFlags, SetAttr};

/// The image that is changed.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// Bytes of a block.
    pub block: u32,
    /// Bytes of the image.
    pub bytes: u64,
    /// It is left in the middle of work: the journal has to be replayed.
    pub dirty: bool,
}

/// An image with every structure: directories of all forms, extents of depth one, attributes.
fn rich_image<F: Format>(cx: &mut Cx, cell: F, plan: Plan) -> Arc<MemoryDevice> {
    let Plan { block, bytes, dirty } = plan;
    let device = cell.fresh(cx, bytes);
    let fs = cell.mount(cx, device.clone(), 64 << 20);
    let dir = mkdir(cx, &*fs, fs.root(), "dir");
    for n in 0..600 {
        let file = create(cx, &*fs, dir, &format!("name-{n:04}"));
        if n % 20 == 0 {
            fs.setxattr(cx, file, b"user.test", &vec![7; n / 2 + 1], Default::default()).ok();
        }
    }
    let sparse = create(cx, &*fs, fs.root(), "sparse");
    for n in 0..300u64 {
        fs.write(cx, sparse, n * 3 * u64::from(block), b"piece").expect("sparse write");
    }
    if dirty {
        fs.sync(cx).expect("sync");
        fs.unlink(cx, dir, b"name-0007").expect("unlink");
        fs.sync(cx).expect("sync");
        fs.shutdown_hard();
    } else {
        fs.unmount(cx).expect("unmount");
    }
    device
}

/// Changes a few bytes: in every third case of the superblock or the group descriptors, else of any
/// block that is used, and mostly where something is.
fn mutate(device: &MemoryDevice, rng: &mut Rng, used: &[u64], block: u64) {
    for _ in 0..1 + rng.below(4) {
        let first = rng.chance(0.3);
        let start = if first { 1024 } else { *rng.pick(used) * block };
        let len = if first { 1024 + block } else { block };
        let mut content = vec![0; len as usize];
        device.read_at(start, &mut content);
        let mut at = rng.below(len) as usize;
        if rng.chance(0.9) {
            at = (at..content.len()).find(|&at| content[at] != 0).unwrap_or(at);
        }
        let mut bytes = content[at..content.len().min(at + 1 + rng.below(8) as usize)].to_vec();
        match rng.below(5) {
            0 => bytes.fill(0xff),
            1 => bytes.fill(0),
            2 => bytes[0] ^= 1 << rng.below(8),
            3 => bytes[0] = bytes[0].wrapping_add(1),
            _ => rng.fill(&mut bytes),
        }
        device.write_at(start + at as u64, &bytes);
    }
}

/// Everything a user may do to an image that he does not trust. Errors are welcome.
fn exercise(cx: &mut Cx, fs: &Ext4) {
    let mut folders = vec![fs.root()];
    let mut seen: Vec<Ino> = Vec::new();
    while let Some(dir) = folders.pop() {
        let mut names = Vec::new();
        let _ = fs.readdir(cx, dir, 0, &mut |entry| {
            names.push(entry.name.to_vec());
            names.len() < 5000
        });
        for name in names.iter().filter(|name| *name != b"." && *name != b"..") {
            let Ok(attr) = fs.lookup(cx, dir, name) else { continue };
            if seen.contains(&attr.ino) || seen.len() > 2000 {
                continue;
            }
            seen.push(attr.ino);
            if attr.is_dir() {
                folders.push(attr.ino);
            }
            let mut bytes = [0; 8192];
            let _ = fs.read(cx, attr.ino, 0, &mut bytes);
            let _ = fs.read(cx, attr.ino, attr.size.saturating_sub(100), &mut bytes);
            let _ = fs.readlink(cx, attr.ino);
            for xattr in fs.listxattr(cx, attr.ino).unwrap_or_default() {
                let _ = fs.getxattr(cx, attr.ino, &xattr);
            }
        }
    }
    for (n, ino) in seen.iter().enumerate().take(60) {
        let _ = fs.write(cx, *ino, n as u64 * 1000, b"changed");
        let _ = fs.setxattr(cx, *ino, b"user.new", b"value", Default::default());
        let shrink = SetAttr { size: Some(n as u64), ..SetAttr::default() };
        let _ = fs.setattr(cx, *ino, &shrink);
    }
    let root = fs.root();
    let node = vfs::NewNode::new(vfs::FileType::Directory, 0o755);
    let made = fs.create(cx, root, b"made", &node);
    let _ = fs.rename(cx, root, b"sparse", root, b"moved", RenameFlags::empty());
    let _ = fs.unlink(cx, root, b"moved");
    let _ = made.map(|attr| fs.create(cx, attr.ino, b"below", &node));
    let _ = fs.rmdir(cx, root, b"made");
    let _ = fs.statfs(cx);
    let _ = fs.sync(cx);
    let _ = fs.unmount(cx);
}

/// Blocks that hold something, so that most mutations hit a structure.
fn used_blocks(device: &MemoryDevice, block: u64) -> Vec<u64> {
    let image = device.snapshot();
    let used = |n: &u64| {
        let at = (n * block) as usize;
        image[at..at + block as usize].iter().any(|&byte| byte != 0)
    };
    (0..image.len() as u64 / block).filter(used).collect()
}

fn campaign(cell: Cell, dirty: bool, seeds: Range<u64>) {
    let plan = Plan { block: cell.block, bytes: 24 << 20, dirty };
    campaign_on(cell, plan, seeds);
}

pub fn campaign_on<F: Format>(cell: F, plan: Plan, seeds: Range<u64>) {
    let image = rt::testing::world(|cx| rich_image(cx, cell, plan));
    campaign_of(&format!("{cell:?}, {plan:?}"), &image, plan.block.into(), seeds);
}

/// On copies of an image.
pub fn campaign_of(name: &str, image: &Arc<MemoryDevice>, block: u64, seeds: Range<u64>) {
    let used = used_blocks(image, block);
    let (mut refused, mut mounted, mut found) = (0, 0, 0);
    for seed in seeds {
        let _watchdog = Watchdog::new(format!("{name} seed {seed}"), 100);
        let mut rng = Rng::new(seed, 60);
        let device = Arc::new(image.fork());
        mutate(&device, &mut rng, &used, block);
        let tried = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            rt::testing::world(|cx| {
                let queue = queue(cx, device.clone());
                let report = ext4::check(cx, &queue, &Default::default());
                found += u32::from(report.map_or(true, |report| !report.findings.is_empty()));
                let pages = PageCacheConfig::with_limit((8 << 20).max(1024 * block));
                let keys = crate::casefold_encrypt::ring();
                let options = MountOptions { keys, ..MountOptions::default() };
                match Ext4::mount_alone(cx, &queue, pages, options) {
                    Ok(fs) => {
                        mounted += 1;
                        exercise(cx, &fs);
                    }
                    Err(error) => {
                        refused += 1;
                        let text = error.to_string();
                        assert!(!text.is_empty() && !text.contains('\n'), "not one line: {text}");
                    }
                }
            });
        }));
        assert!(tried.is_ok(), "{name}: IOPATH_SEED={seed} fails");
    }
    println!("{name}: {found} with findings, {mounted} exercised, {refused} refused by name");
    assert!(found > 0 && mounted > 0, "the changes are noticed, and not all are refused");
}

/// Without checksums the damage is believed, so that every later check is met.
const UNPROTECTED: &str = "^metadata_csum,uninit_bg";
/// The same, with content in inodes.
const INLINE: &str = "^metadata_csum,uninit_bg,inline_data";

#[test]
fn mutated_ext4_images_never_break_us() {
    campaign(Cell::new("ext4", 4096), false, seeds(60));
    campaign(Cell::new("ext4", 1024), false, seeds(60));
}

#[test]
fn mutated_images_without_checksums_never_break_us() {
    campaign(Cell::new("ext4", 4096).features(UNPROTECTED), false, seeds(150));
    campaign(Cell::new("ext4", 1024).features(UNPROTECTED), false, seeds(150));
    campaign(Cell::new("ext4", 1024).features(INLINE), false, seeds(100));
    campaign(Cell::new("ext3", 1024), false, seeds(100));
    campaign(Cell::new("ext2", 4096), false, seeds(100));
}

#[test]
fn mutated_journals_never_break_us() {
    campaign(Cell::new("ext4", 1024).journal(1024), true, seeds(60));
    campaign(Cell::new("ext4", 4096).features(UNPROTECTED).journal(1024), true, seeds(60));
    campaign(Cell::new("ext3", 1024).journal(1024), true, seeds(100));
}
