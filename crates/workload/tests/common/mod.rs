//! What the tests of the workloads share: targets, and the outside tools.
#![allow(dead_code, reason = "each test binary uses its own part")]

use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use block::{Device, Queue, QueueConfig};
use cache::{PageCache, PageCacheConfig};
use device::MemoryDevice;
use rt::Cx;
use testkit::timed::{DISK, modelled};
use vfs::{FileSystem, Namespace};
use workload::Target;

/// A directory of the host in memory, where that has one: an fsync takes no time there.
pub fn place_in_memory() -> tempfile::TempDir {
    let shm = Path::new("/dev/shm");
    let place = if shm.is_dir() { tempfile::tempdir_in(shm) } else { tempfile::tempdir() };
    place.expect("a temporary directory")
}

/// A target in memory, without costs.
pub fn memory_target() -> Target {
    Target::ours(Namespace::new(Arc::new(testkit::memfs::MemFs::new())), b"/")
}

/// An ext4 of `bytes` on a device in memory.
pub fn ext4_in_memory(cx: &mut Cx, bytes: u64) -> (Target, Arc<dyn FileSystem>) {
    let device = Arc::new(MemoryDevice::new(bytes));
    ext4_on(cx, device)
}

/// An ext4 of `bytes` on a modelled disk.
pub fn ext4_on_disk(cx: &mut Cx, bytes: u64) -> (Target, Arc<dyn FileSystem>) {
    let memory = Arc::new(MemoryDevice::new(bytes));
    let disk = modelled(cx, DISK, memory);
    ext4_on(cx, disk)
}

/// An ext4 over a whole device.
pub fn ext4_on(cx: &mut Cx, device: Arc<dyn Device>) -> (Target, Arc<dyn FileSystem>) {
    let queue = Queue::new(cx.runtime(), device, QueueConfig::elevator("deadline"));
    let queue = queue.expect("there is a deadline elevator");
    make_ext4(cx, &queue);
    mount_ext4(cx, &queue)
}

/// Makes an ext4 on all of a device.
pub fn make_ext4(cx: &mut Cx, queue: &Arc<Queue>) {
    let options = ext4::MkfsOptions { assume_zeroes: true, ..ext4::MkfsOptions::default() };
    ext4::mkfs(cx, queue, &options).expect("a file system fits");
}

/// Mounts it, with nothing cached.
pub fn mount_ext4(cx: &mut Cx, queue: &Arc<Queue>) -> (Target, Arc<dyn FileSystem>) {
    let pages = PageCache::new(cx.runtime(), PageCacheConfig::default());
    let fs = ext4::Ext4::mount(cx, queue, &pages, ext4::MountOptions::default());
    let fs: Arc<dyn FileSystem> = fs.expect("a fresh file system mounts");
    (Target::ours(Namespace::new(fs.clone()), b"/"), fs)
}

/// Runs an outside tool in a directory; answers exit code, standard output, standard error.
///
/// # Panics
/// With the command that installs it, where the tool is missing.
pub fn tool(name: &str, package: &str, directory: &Path, args: &[&str]) -> (i32, String, String) {
    let output = Command::new(name)
        .args(args)
        .current_dir(directory)
        .env("TZ", "UTC")
        .env("LC_ALL", "C")
        .output()
        .unwrap_or_else(|_| panic!("{name} is missing: apt-get install -y {package}"));
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (output.status.code().unwrap_or(-1), text(&output.stdout), text(&output.stderr))
}

/// Every number becomes `#`, and blanks before it one blank, so that columns of numbers compare.
pub fn masked(text: &str) -> String {
    let mut out = String::new();
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        if !c.is_ascii_digit() {
            out.push(c);
            continue;
        }
        while chars.peek().is_some_and(|c| c.is_ascii_digit() || *c == '.') {
            chars.next();
        }
        if out.ends_with(' ') {
            out.truncate(out.trim_end_matches(' ').len());
            out.push(' ');
        }
        out.push('#');
    }
    out
}
