//! Trees of dirty images as each side recovers them.

use super::*;
use std::path::Path;
use std::process::Command;
use testkit::judge::{self, LoopMount};
use testkit::manifest::{self, Manifest};
use vfs::FileSystem;

/// The image's tree after our own recovery, and the recovered device.
pub fn recovered_by_us(image: &[u8]) -> (Manifest, Arc<MemoryDevice>) {
    let device = Arc::new(MemoryDevice::from_image(image));
    let manifest = rt::testing::real(|cx| {
        let (fs, _) = mount(cx, device.clone());
        let manifest = manifest::of_fs(cx, &*fs).expect("the recovered tree is readable");
        fs.unmount(cx).expect("unmount");
        manifest
    });
    (manifest, device)
}

/// The image's tree after e2fsck has replayed the journal (and done nothing else).
pub fn recovered_by_e2fsck(image: &[u8], kind: &str) -> Manifest {
    let file = testkit::image::write(image);
    judge::run("e2fsck", &[&"-E", &"journal_only", &"-fy", &file.path()]);
    judge::e2fsck(file.path()).expect("e2fsck accepts what it replayed");
    judge::kernel_manifest(file.path(), kind)
}

/// The image's tree after the kernel has mounted it read-write, which replays the journal.
pub fn recovered_by_kernel(image: &[u8], kind: &str) -> Manifest {
    let file = testkit::image::write(image);
    {
        let mount = LoopMount::new(file.path(), kind, "rw").expect("the kernel mounts our image");
        drop(mount);
    }
    judge::e2fsck(file.path()).expect("the image is clean after the kernel");
    judge::kernel_manifest(file.path(), kind)
}

pub fn assert_equal(ours: &Manifest, theirs: &Manifest, what: &str) {
    let difference = manifest::diff(ours, theirs);
    assert!(difference.is_empty(), "{what}: ours left, theirs right:\n{difference}");
}

/// Runs a shell script in a directory.
pub fn shell(directory: &Path, script: &str) {
    let status = Command::new("sh").args(["-ec", script]).current_dir(directory).status();
    assert!(status.expect("sh starts").success(), "{script}");
}
