//! Images with large directories, and mounts of them by each way.

use std::sync::Arc;

use base::{Errno, Ino, Rng};
use block::{Queue, QueueConfig};
use cache::{PageCache, PageCacheConfig};
use device::MemoryDevice;
use rt::{Cx, World, WorldConfig};
use vfs::{FileSystem, FileType, NewNode};
use xfs::log::buf_item::walk::Variant;
use xfs::{MkfsOptions, MountOptions, Xfs};

use super::parameters::{Parameters, Work};

/// A way to bring names into the log.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Way {
    /// Bit by bit: before the patch.
    Bitwise,
    /// The patch.
    Contiguous,
    /// Ours, with the directories of Linux.
    Runs,
    /// Ours, with gaps in the leaves of directories: the default of a mount.
    Gaps,
}

impl Way {
    /// All of them.
    pub const ALL: [Way; 4] = [Way::Bitwise, Way::Contiguous, Way::Runs, Way::Gaps];

    /// How buffers are formatted.
    pub fn variant(self) -> Variant {
        match self {
            Way::Bitwise => Variant::Bitwise,
            Way::Contiguous => Variant::Contiguous,
            Way::Runs | Way::Gaps => Variant::Runs,
        }
    }

    /// Its name among the variants.
    pub fn name(self) -> &'static str {
        match self {
            Way::Bitwise => "bitwise",
            Way::Contiguous => "contiguous",
            Way::Runs => "dense",
            Way::Gaps => "ours",
        }
    }

    /// The way of that name.
    ///
    /// # Errors
    /// The names there are.
    pub fn of(name: &str) -> Result<Way, String> {
        let found = Way::ALL.into_iter().find(|way| way.name() == name);
        found.ok_or_else(|| {
            let known = Way::ALL.map(Way::name).join(", ");
            format!("variant {name}: buffers are formatted as {known}")
        })
    }
}

/// An image with filled directories, to be forked.
pub(super) struct Base {
    device: MemoryDevice,
    dirs: u64,
}

/// A mounted fork.
pub(super) struct Bed {
    pub fs: Arc<Xfs>,
    pub device: Arc<MemoryDevice>,
    dirs: Vec<Ino>,
}

/// What a mount of a bed is for.
#[derive(Clone, Copy)]
pub(super) struct Use {
    pub way: Way,
    pub debug: bool,
    pub iop_stats: bool,
}

fn said<T>(what: &str, result: Result<T, Errno>) -> Result<T, String> {
    result.map_err(|errno| format!("{what}: {errno}"))
}

/// A name as fs_mark makes it: 40 characters, most of them random.
fn name(task: u64, number: u64) -> String {
    let mut rng = Rng::new(task << 32 | number, 9);
    let (high, low) = (rng.next_u64(), rng.next_u64());
    format!("{:08x}{high:016x}{low:016x}", task << 24 | number)
}

fn queue(cx: &Cx, device: &Arc<MemoryDevice>) -> Result<Arc<Queue>, String> {
    let queue = Queue::new(cx.runtime(), device.clone(), QueueConfig::elevator("none"));
    queue.map_err(|error| error.to_string())
}

impl Base {
    /// Makes an image and fills its directories, in a world of its own: always the same.
    pub fn make(plan: &Parameters) -> Result<Base, String> {
        let device = World::new(WorldConfig::default()).run("fill", |cx| {
            let files = plan.names * plan.dirs + 2 * plan.files;
            let bytes = (files * 1536).next_multiple_of(64 << 20) + (256 << 20);
            let device = Arc::new(MemoryDevice::new(bytes));
            let options = MkfsOptions {
                dir_block_size: Some(plan.dir_block.0 as u32),
                log_size: Some(64 << 20),
                uuid: Some([7; 16]),
                assume_zeroes: true,
                ..MkfsOptions::default()
            };
            let made = xfs::mkfs(cx, &queue(cx, &device)?, &options);
            made.map_err(|error| format!("mkfs: {error}"))?;
            let plain = Use { way: Way::Runs, debug: false, iop_stats: false };
            let bed = mount(cx, device.clone(), plain, 0)?;
            for number in 0..plan.dirs {
                let node = NewNode::new(FileType::Directory, 0o755);
                let (root, dir) = (bed.fs.root(), directory(number));
                let dir = said("mkdir", bed.fs.create(cx, root, dir.as_bytes(), &node))?.ino;
                let node = NewNode::new(FileType::Regular, 0o644);
                for file in 0..plan.names {
                    let name = name(1000 + number, file);
                    said("fill", bed.fs.create(cx, dir, name.as_bytes(), &node).map(drop))?;
                }
            }
            bed.end(cx)?;
            Ok::<_, String>(device.fork())
        })?;
        Ok(Base { device, dirs: plan.dirs })
    }

    /// A fork, mounted. May park.
    pub fn mount(&self, cx: &mut Cx, of: Use) -> Result<Bed, String> {
        mount(cx, Arc::new(self.device.fork()), of, self.dirs)
    }
}

fn directory(number: u64) -> String {
    format!("dir{number}")
}

fn mount(cx: &mut Cx, device: Arc<MemoryDevice>, of: Use, dirs: u64) -> Result<Bed, String> {
    let queue = queue(cx, &device)?;
    let pages = PageCache::new(cx.runtime(), PageCacheConfig::with_limit(16 << 20));
    let options = MountOptions {
        read_only: false,
        buf_item: of.way.variant(),
        leaf_gaps: of.way == Way::Gaps,
        debug_checks: of.debug,
        iop_stats: of.iop_stats,
        log_record_bytes: 256 << 10,
        buffer_limit_bytes: 1 << 30,
        inode_cache: 1 << 20,
        ..MountOptions::default()
    };
    let fs = Xfs::mount(cx, &queue, &pages, options).map_err(|error| format!("mount: {error}"))?;
    let mut found = Vec::new();
    for number in 0..dirs {
        let root = fs.root();
        found.push(said("lookup", fs.lookup(cx, root, directory(number).as_bytes()))?.ino);
    }
    Ok(Bed { fs, device, dirs: found })
}

impl Bed {
    /// All tasks create their part of `files` names, or unlink them, in a stretch of numbers of
    /// their own; `each` is called behind every operation. May park.
    pub fn phase(
        &self,
        cx: &mut Cx,
        Work { tasks, files, from, unlink }: Work,
        each: impl Fn(&mut Cx, &Xfs) + Send + Sync + 'static,
    ) -> Result<(), String> {
        let each = Arc::new(each);
        let running: Vec<_> = (0..tasks)
            .map(|task| {
                let (fs, each) = (self.fs.clone(), each.clone());
                let dir = self.dirs[(task % self.dirs.len() as u64) as usize];
                cx.spawn("worker", move |cx| {
                    for number in from..from + files / tasks {
                        let name = name(task, number);
                        if unlink {
                            fs.unlink(cx, dir, name.as_bytes())?;
                        } else {
                            let node = NewNode::new(FileType::Regular, 0o644);
                            fs.create(cx, dir, name.as_bytes(), &node)?;
                        }
                        each(cx, &fs);
                    }
                    Ok(())
                })
            })
            .collect();
        let done: Vec<Result<(), Errno>> = running.into_iter().map(|task| task.join(cx)).collect();
        let all = done.into_iter().collect::<Result<(), Errno>>();
        said(if unlink { "unlink" } else { "create" }, all)
    }

    /// Everything to the log.
    pub fn sync(&self, cx: &mut Cx) -> Result<(), String> {
        said("sync", self.fs.sync(cx))
    }

    /// Unmounts and forgets.
    pub fn end(self, cx: &mut Cx) -> Result<(), String> {
        said("unmount", self.fs.unmount(cx))
    }
}
