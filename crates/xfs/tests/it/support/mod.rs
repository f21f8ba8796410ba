//! Making, filling, mounting and judging XFS images.

pub mod fill;

use std::path::Path;
use std::process::{Command, Output};
use std::sync::Arc;

use block::{Device, Queue, QueueConfig};
use cache::{PageCache, PageCacheConfig};
use device::MemoryDevice;
use rt::Cx;
pub use testkit::judge::xfs_repair;
use testkit::{judge, manifest};
use xfs::{MountError, MountOptions, Xfs};

/// UUID of all images.
pub const UUID: &str = "6b1f4c2e-9d3a-4e57-8a10-5c7d2e9f0b34";

/// Runs a tool of xfsprogs as its own tests do, so that it also takes small file systems.
pub fn tool(program: &str, args: &[&str], image: &Path) -> Output {
    small(Command::new(program))
        .args(args)
        .arg(image)
        .output()
        .unwrap_or_else(|error| panic!("{program}: {error}"))
}

fn small(mut command: Command) -> Command {
    for name in ["TEST_DIR", "TEST_DEV", "QA_CHECK_FS"] {
        command.env(name, "1");
    }
    command
}

/// Makes a file system with the newest mkfs.xfs, which may be a small one.
pub fn newest_mkfs_xfs(image: &Path, bytes: u64, args: &str) {
    let file = std::fs::File::create(image).expect("the image can be created");
    file.set_len(bytes).expect("the image takes its size");
    let mut command = small(testkit::newest::command("mkfs.xfs"));
    command.args(["-q", "-f"]).args(args.split_whitespace()).arg(image);
    let output = command.output().expect("mkfs.xfs runs");
    assert!(output.status.success(), "mkfs.xfs {args}: {}", text(&output));
}

/// Makes a file system with mkfs.xfs.
pub fn mkfs_xfs(image: &Path, size_mib: u64, args: &str) {
    let file = std::fs::File::create(image).expect("the image can be created");
    file.set_len(size_mib << 20).expect("the image takes its size");
    let uuid = format!("uuid={UUID}");
    let mut all = vec!["-q", "-f", "-m", &uuid];
    all.extend(args.split_whitespace());
    let output = tool("mkfs.xfs", &all, image);
    assert!(output.status.success(), "mkfs.xfs {args}: {}", text(&output));
}

/// Everything that a tool printed.
pub fn text(output: &Output) -> String {
    let parts = [&output.stdout, &output.stderr].map(|part| String::from_utf8_lossy(part));
    parts.concat()
}

/// The device of an image file, in memory.
pub fn load(image: &Path) -> Arc<MemoryDevice> {
    Arc::new(testkit::image::load(image))
}

/// A queue in front of a device.
pub fn queue(cx: &mut Cx, device: Arc<dyn Device>) -> Arc<Queue> {
    Queue::new(cx.runtime(), device, QueueConfig::default()).expect("a queue")
}

/// Mounts what is on a device for reading, if it can be mounted.
pub fn try_mount(cx: &mut Cx, device: Arc<dyn Device>) -> Result<Arc<Xfs>, MountError> {
    let queue = queue(cx, device);
    let pages = PageCache::new(cx.runtime(), PageCacheConfig::default());
    Xfs::mount(cx, &queue, &pages, MountOptions::default())
}

/// Runs `work` as a task in virtual time.
pub fn in_world<R: Send + 'static>(work: impl FnOnce(&mut Cx) -> R + Send + 'static) -> R {
    rt::World::new(rt::WorldConfig::default()).run("test", work)
}

/// The kernel's mount, writable.
pub fn kernel(image: &Path) -> judge::LoopMount {
    judge::LoopMount::new(image, "xfs", "rw").unwrap_or_else(|message| panic!("{message}"))
}

/// The kernel's view of an image, without the names under which it shows ACLs a second time.
pub fn kernel_tree(image: &Path) -> manifest::Manifest {
    let mount = judge::LoopMount::new(image, "xfs", "ro");
    let mount = mount.unwrap_or_else(|message| panic!("{message}"));
    let mut tree = manifest::of_dir(&mount.path()).expect("the kernel reads the whole tree");
    for entry in tree.values_mut() {
        entry.xattrs.retain(|name, _| !name.starts_with("trusted.SGI_ACL_"));
    }
    tree
}
