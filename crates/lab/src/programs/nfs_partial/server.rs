//! The server's file system, before a run and in it.

use std::sync::Arc;

use block::{Queue, QueueConfig};
use cache::{PageCache, PageCacheConfig};
use device::MemoryDevice;
use ext4::{Ext4, MkfsOptions, mkfs};
use rt::{Cx, World, WorldConfig};
use vfs::{FileSystem, Namespace, OpenFlags};
use workload::Target;
use workload::sysbench;

use super::cell::{Cell, Phase};
use crate::experiment::options;

/// Memory for pages while the files are made, in bytes.
const LAYOUT_MEMORY: u64 = 64 << 20;

/// What the server is.
#[derive(Clone, Debug)]
pub struct Setup {
    /// Bytes of its device.
    pub device: u64,
    /// Bytes of its memory, next to nothing else is in it.
    pub memory: u64,
    /// Mount options of its ext3.
    pub mount: String,
}

impl Default for Setup {
    fn default() -> Setup {
        Setup { device: 2 << 30, memory: 2 << 30, mount: "data=writeback,barrier=0".to_owned() }
    }
}

/// The server's file system as it is before a run.
pub struct Image(pub(super) MemoryDevice);

impl Image {
    /// Makes a file system with the files of `sysbench prepare`. Takes no time that counts.
    ///
    /// # Errors
    /// What mkfs, mount or a write said.
    pub fn make(total_size: u64, setup: &Setup) -> Result<Image, String> {
        let mut world = World::new(WorldConfig::default());
        world.run("layout", |cx| {
            let memory = Arc::new(MemoryDevice::new(setup.device));
            let queue = Queue::new(cx.runtime(), memory.clone(), QueueConfig::default());
            let queue = queue.map_err(|error| error.to_string())?;
            let options = MkfsOptions {
                fstype: "ext3".parse().map_err(|_| "ext3 is known".to_owned())?,
                uuid: Some(*b"iopath lab image"),
                hash_seed: Some(*b"iopath lab hashe"),
                assume_zeroes: true,
                ..MkfsOptions::default()
            };
            mkfs(cx, &queue, &options).map_err(|error| error.to_string())?;
            let fs = mount_server(cx, &queue, &Setup { memory: LAYOUT_MEMORY, ..setup.clone() })?;
            let target = Target::ours(Namespace::new(fs.clone()), b"/");
            let cell = Cell::plain(total_size);
            let first = Phase { requests: 1, ..cell.phases[0].clone() };
            sysbench::prepare(cx, &target, &cell.options(&first)?)
                .map_err(|failure| failure.to_string())?;
            fs.unmount(cx).map_err(|errno| errno.to_string())?;
            queue.drain(cx);
            Ok(Image(memory.fork()))
        })
    }
}

/// Mounts it. May park.
pub(super) fn mount_server(
    cx: &mut Cx,
    queue: &Arc<Queue>,
    setup: &Setup,
) -> Result<Arc<Ext4>, String> {
    let pages = PageCache::new(cx.runtime(), PageCacheConfig::with_ratios(setup.memory, 10, 20));
    Ext4::mount(cx, queue, &pages, options::parse(&setup.mount)?).map_err(|e| e.to_string())
}

/// The server has the files in memory.
pub(super) fn warm(cx: &mut Cx, fs: &Arc<Ext4>, cell: &Cell) -> Result<(), String> {
    let names = Namespace::new(fs.clone());
    let mut buf = vec![0; 1 << 20];
    for index in 0..128 {
        let path = format!("/test_file.{index}");
        let file = names.open(cx, path.as_bytes(), OpenFlags::READ, 0);
        let file = file.map_err(|errno| format!("{path}: {errno}"))?;
        let mut at = 0;
        while at < cell.total_size / 128 {
            let len = file.read_at(cx, at, &mut buf).map_err(|errno| errno.to_string())?;
            if len == 0 {
                return Err(format!("{path} is shorter than the cell wants"));
            }
            at += len as u64;
        }
        file.close(cx).map_err(|errno| errno.to_string())?;
    }
    Ok(())
}
