//! The image that a run begins with: a file system with its files, made before the clock starts.

use std::sync::Arc;

use base::{Nanos, Sector};
use block::{Queue, QueueConfig};
use cache::{PageCache, PageCacheConfig};
use device::MemoryDevice;
use ext4::MkfsOptions;
use ext4::mkfs::Release;
use rt::{Cx, World, WorldConfig};
use vfs::{Namespace, OpenFlags};

use super::mount::{More, Mounted};
use crate::experiment::{Experiment, Filesystem, Layout};

/// Written at once while files are laid out; then their content is dropped again, so that a file of
/// zeros needs no memory.
const PIECE: u64 = 32 << 20;

/// A file system as it is when a run begins.
pub struct BaseImage {
    /// Its content.
    pub memory: MemoryDevice,
}

impl BaseImage {
    /// Makes the image of one of the experiment's file systems. Takes no simulated time that
    /// counts, and the same bytes every time.
    ///
    /// # Errors
    /// What mkfs, mount or a write said.
    pub fn make(experiment: &Experiment, name: &str) -> Result<BaseImage, String> {
        let filesystem = &experiment.file.filesystem[name];
        let bytes = experiment.file.machine.device.0;
        let mut world = World::new(WorldConfig::default());
        world.run("layout", |cx| make(cx, filesystem, bytes))
    }
}

fn make(cx: &mut Cx, filesystem: &Filesystem, bytes: u64) -> Result<BaseImage, String> {
    let memory = Arc::new(MemoryDevice::new(bytes));
    let queue = Queue::new(cx.runtime(), memory.clone(), QueueConfig::default());
    let queue = queue.map_err(|error| error.to_string())?;
    if filesystem.is_xfs() {
        let options = xfs_options(filesystem);
        xfs::mkfs(cx, &queue, &options).map_err(|error| error.to_string())?;
    } else {
        let options = mkfs_options(filesystem);
        ext4::mkfs(cx, &queue, &options).map_err(|error| error.to_string())?;
    }
    if !filesystem.files.is_empty() {
        lay_out(cx, &queue, filesystem)?;
    }
    queue.drain(cx);
    Ok(BaseImage { memory: memory.fork() })
}

fn xfs_options(filesystem: &Filesystem) -> xfs::MkfsOptions {
    xfs::MkfsOptions {
        uuid: Some(*b"iopath lab image"),
        log_size: filesystem.journal.map(|size| size.0),
        stripe: filesystem.stripe.map(|stripe| (stripe.unit.0 as u32, stripe.width)),
        assume_zeroes: true,
        ..xfs::MkfsOptions::default()
    }
}

fn mkfs_options(filesystem: &Filesystem) -> MkfsOptions {
    MkfsOptions {
        fstype: filesystem.kind.get_ref().parse().expect("checked with the file"),
        features: filesystem.features.clone(),
        journal_size: filesystem.journal.map(|size| size.0),
        // The same image every time: a run's seed belongs to its workloads.
        uuid: Some(*b"iopath lab image"),
        hash_seed: Some(*b"iopath lab hashe"),
        // The published figures are of its images.
        release: Release::V1_47_0,
        assume_zeroes: true,
        ..MkfsOptions::default()
    }
}

fn lay_out(cx: &mut Cx, queue: &Arc<Queue>, filesystem: &Filesystem) -> Result<(), String> {
    let pages = PageCache::new(cx.runtime(), PageCacheConfig::with_limit(4 * PIECE));
    let fs = Mounted::mount(cx, queue, &pages, filesystem, More::default())?.fs;
    let namespace = Namespace::new(fs.clone());
    for layout in &filesystem.files {
        let path = layout.path.get_ref();
        write_file(cx, queue, &namespace, layout)
            .map_err(|errno| format!("laying out {path}: {errno}"))?;
    }
    drop(namespace);
    fs.unmount(cx).map_err(|errno| format!("unmount after the layout: {errno}"))
}

fn write_file(
    cx: &mut Cx,
    queue: &Arc<Queue>,
    namespace: &Namespace,
    layout: &Layout,
) -> Result<(), base::Errno> {
    let path = layout.path.get_ref().as_bytes();
    for (end, _) in path.iter().enumerate().skip(1).filter(|(_, byte)| **byte == b'/') {
        match namespace.mkdir(cx, &path[..end], 0o777) {
            Ok(_) | Err(base::Errno::EEXIST) => {}
            Err(errno) => return Err(errno),
        }
    }
    let file = namespace.open(cx, path, OpenFlags::WRITE | OpenFlags::CREATE, 0o644)?;
    let zeros = vec![0; 1 << 20];
    let mut at = 0;
    while at < layout.size.0 {
        let end = (at + PIECE).min(layout.size.0);
        let start = at;
        while at < end {
            let part = (end - at).min(zeros.len() as u64) as usize;
            at += file.write_at(cx, at, &zeros[..part])? as u64;
        }
        file.fsync(cx)?;
        for extent in namespace.fs().fiemap(cx, file.ino(), start, end - start)? {
            let sectors = Sector::from_bytes(extent.len).0;
            queue
                .discard(cx, Sector::from_bytes(extent.physical()), sectors)
                .map_err(|error| error.to_errno())?;
        }
        cx.sleep(Nanos::from_secs(1));
    }
    file.close(cx)
}
