//! What the campaigns over a whole ext4 share: making, mounting and judging images in memory.

pub mod campaign;
pub mod recovered;

use block::{Device, DeviceInfo, Queue, QueueConfig};
use cache::PageCacheConfig;
use device::MemoryDevice;
use ext4::format::InodeFlags;
use ext4::{Ext4, MkfsOptions, MountError, MountOptions};
use jbd2::JournalMode;
use rt::Cx;
use std::sync::Arc;
pub use testkit::campaign::{Watchdog, seed_count, seeds};
pub use testkit::content::{create, mkdir, pattern};
pub use testkit::format::{Format, Recording};
pub use testkit::timed::{FLASH, SAFE_FLASH, modelled, timed};
pub use testkit::{chaos, oracle, workload};
use vfs::{FileSystem, FileType, NewNode};

/// A queue over `device`.
pub fn queue(cx: &Cx, device: Arc<dyn Device>) -> Arc<Queue> {
    let config = QueueConfig { trace_events: 4096, ..QueueConfig::default() };
    Queue::new(cx.runtime(), device, config).expect("the device takes a queue")
}

/// A cell of the grid: what is made, and by whom.
#[derive(Clone, Copy, Debug)]
pub struct Cell {
    /// `ext2`, `ext3` or `ext4`.
    pub kind: &'static str,
    /// Bytes of a block.
    pub block: u32,
    /// Changes to the default features, as `-O` takes them.
    pub features: &'static str,
    /// Blocks of a cluster with bigalloc, 0 for the default.
    pub clusters: u32,
    /// Bytes of the journal, 0 for the default.
    pub journal: u64,
    /// Made by mke2fs of the host instead of our mkfs.
    pub mke2fs: bool,
}

impl Cell {
    pub const fn new(kind: &'static str, block: u32) -> Cell {
        Cell { kind, block, features: "", clusters: 0, journal: 0, mke2fs: false }
    }

    /// With a journal of `blocks` blocks, so that it wraps and fills.
    pub const fn journal(self, blocks: u64) -> Cell {
        Cell { journal: blocks * self.block as u64, ..self }
    }

    pub const fn features(self, features: &'static str) -> Cell {
        Cell { features, ..self }
    }

    /// With bigalloc, and clusters of `blocks` blocks.
    pub const fn clusters(self, blocks: u32) -> Cell {
        Cell { features: "bigalloc", clusters: blocks, ..self }
    }

    /// With clusters of so many blocks, where its features have bigalloc.
    pub const fn clustered(self, blocks: u32) -> Cell {
        Cell { clusters: blocks, ..self }
    }

    fn cluster_size(&self) -> Option<u32> {
        (self.clusters > 0).then_some(self.clusters * self.block)
    }

    pub const fn mke2fs(self) -> Cell {
        Cell { mke2fs: true, ..self }
    }

    /// Makes the file system on a new device of `bytes` bytes.
    pub fn fresh(&self, cx: &mut Cx, bytes: u64) -> Arc<MemoryDevice> {
        if self.mke2fs {
            return self.by_mke2fs(bytes);
        }
        let device = Arc::new(MemoryDevice::with_info(info(bytes)));
        let options = MkfsOptions {
            fstype: self.kind.parse().expect("a known type"),
            block_size: Some(self.block),
            cluster_size: self.cluster_size(),
            features: self.features.to_owned(),
            journal_size: (self.journal > 0).then_some(self.journal),
            // The same seed makes the same image.
            uuid: Some([7; 16]),
            hash_seed: Some([9; 16]),
            ..MkfsOptions::default()
        };
        let queue = queue(cx, device.clone());
        ext4::mkfs(cx, &queue, &options)
            .unwrap_or_else(|error| panic!("mkfs of {self:?}: {error}"));
        if self.features.contains("casefold") {
            fold_root(cx, &device);
        }
        device
    }

    fn by_mke2fs(&self, bytes: u64) -> Arc<MemoryDevice> {
        let block = self.block.to_string();
        let journal = format!("size={}", self.journal >> 20);
        let clusters = self.cluster_size().map(|size| size.to_string());
        let mut args = vec!["-t", self.kind, "-b", &block];
        if let Some(size) = &clusters {
            args.extend(["-C", size]);
        }
        if self.journal > 0 {
            args.extend(["-J", &journal]);
        }
        if !self.features.is_empty() {
            args.extend(["-O", self.features]);
        }
        let file = tempfile::NamedTempFile::new().expect("a temporary file");
        testkit::judge::mke2fs(file.path(), bytes, &args);
        let device = MemoryDevice::with_info(info(bytes));
        let image = testkit::image::read(file.path());
        for (index, chunk) in image.chunks(4096).enumerate() {
            if chunk.iter().any(|&byte| byte != 0) {
                device.write_at(index as u64 * 4096, chunk);
            }
        }
        Arc::new(device)
    }
}

/// Makes the root directory one that ignores case, and with it all that will be below.
pub fn fold_root(cx: &mut Cx, device: &Arc<MemoryDevice>) {
    let (fs, _) = mount(cx, device.clone());
    let (root, found) = (fs.root(), b"lost+found");
    fs.rmdir(cx, root, found).expect("it is empty");
    let flags = fs.getattr(cx, root).expect("attributes").flags;
    fs.set_flags(cx, root, flags | InodeFlags::CASEFOLD.bits()).expect("it is empty");
    fs.create(cx, root, found, &NewNode::new(FileType::Directory, 0o700)).expect("room");
    fs.unmount(cx).expect("unmount");
}

/// A device with a volatile cache, so that flushes reach it and are counted.
fn info(bytes: u64) -> DeviceInfo {
    DeviceInfo { volatile_cache: true, physical_block: 512, ..DeviceInfo::plain(bytes / 512) }
}

impl Format for Cell {
    type Fs = Ext4;

    fn fresh(&self, cx: &mut Cx, bytes: u64) -> Arc<MemoryDevice> {
        Cell::fresh(self, cx, bytes)
    }

    fn mount(&self, cx: &mut Cx, device: Arc<dyn Device>, cache: u64) -> Arc<Ext4> {
        mount_cached(cx, device, cache).0
    }

    fn check(&self, cx: &mut Cx, device: &Arc<MemoryDevice>) -> Result<(), String> {
        let queue = queue(cx, device.clone());
        let report = ext4::check(cx, &queue, &Default::default()).map_err(|e| e.to_string())?;
        match &report.findings[..] {
            [] => Ok(()),
            findings => Err(findings.iter().map(|finding| format!("{finding}\n")).collect()),
        }
    }

    fn judge(&self, device: &MemoryDevice) -> Result<(), String> {
        testkit::judge::e2fsck_device(device)
    }
}

/// A cell that is mounted with a mode of the journal.
#[derive(Clone, Copy, Debug)]
pub struct InMode(pub Cell, pub JournalMode);

impl Format for InMode {
    type Fs = Ext4;

    fn fresh(&self, cx: &mut Cx, bytes: u64) -> Arc<MemoryDevice> {
        self.0.fresh(cx, bytes)
    }

    fn mount(&self, cx: &mut Cx, device: Arc<dyn Device>, cache: u64) -> Arc<Ext4> {
        mount_as(cx, device, cache, self.1)
    }

    fn check(&self, cx: &mut Cx, device: &Arc<MemoryDevice>) -> Result<(), String> {
        self.0.check(cx, device)
    }

    fn judge(&self, device: &MemoryDevice) -> Result<(), String> {
        self.0.judge(device)
    }
}

/// A fresh file system in memory, not mounted.
pub fn fresh(cx: &mut Cx, bytes: u64, kind: &'static str, block: u32) -> Arc<MemoryDevice> {
    Cell::new(kind, block).fresh(cx, bytes)
}

/// Mounts over a new queue with a page cache of `cache` bytes.
///
/// # Errors
/// Those of the mount.
pub fn try_mount(
    cx: &mut Cx,
    device: Arc<dyn Device>,
    cache: u64,
    options: MountOptions,
) -> Result<(Arc<Ext4>, Arc<Queue>), MountError> {
    let queue = queue(cx, device);
    Ok((Ext4::mount_alone(cx, &queue, PageCacheConfig::with_limit(cache), options)?, queue))
}

/// Mounts with a page cache of `cache` bytes.
pub fn mount_cached(cx: &mut Cx, device: Arc<dyn Device>, cache: u64) -> (Arc<Ext4>, Arc<Queue>) {
    let mounted = try_mount(cx, device, cache, MountOptions::default());
    mounted.unwrap_or_else(|error| panic!("mount: {error}"))
}

/// Mounts with a page cache of 64 MiB.
pub fn mount(cx: &mut Cx, device: Arc<dyn Device>) -> (Arc<Ext4>, Arc<Queue>) {
    mount_cached(cx, device, 64 << 20)
}

/// Mounts with a mode of the journal and a page cache of `cache` bytes.
pub fn mount_as(
    cx: &mut Cx,
    device: Arc<dyn Device>,
    cache: u64,
    data_mode: JournalMode,
) -> Arc<Ext4> {
    let options = MountOptions { data_mode, ..MountOptions::default() };
    let mounted = try_mount(cx, device, cache, options);
    mounted.unwrap_or_else(|error| panic!("mount with {data_mode:?}: {error}")).0
}

/// What the device holds, as a file that both versions of `e2fsck -fn` take.
pub fn judged(device: &MemoryDevice, what: &str) -> tempfile::NamedTempFile {
    use testkit::judge;
    let file = testkit::image::write_device(device);
    judge::e2fsck(file.path()).unwrap_or_else(|message| panic!("{what}: {message}"));
    file
}

/// Unmounts; then our check and both versions of `e2fsck -fn` find nothing in the file that is
/// answered.
pub fn close(
    cx: &mut Cx,
    fs: &dyn FileSystem,
    device: &Arc<MemoryDevice>,
    what: &str,
) -> tempfile::NamedTempFile {
    fs.unmount(cx).expect("unmount");
    checked(cx, device, what);
    judged(device, what)
}

/// `e2fsck -fn` on what the device holds.
pub fn e2fsck(device: &MemoryDevice, what: &str) {
    testkit::judge::e2fsck_device(device).unwrap_or_else(|message| panic!("{what}: {message}"));
}

/// Our own check finds nothing.
pub fn checked(cx: &mut Cx, device: &Arc<MemoryDevice>, what: &str) {
    let cell = Cell::new("ext4", 4096);
    cell.check(cx, device).unwrap_or_else(|found| panic!("{what}: {found}"));
}
