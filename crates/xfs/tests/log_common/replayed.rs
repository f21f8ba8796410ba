//! Replays of ours beside the kernel's.

use std::path::Path;

use testkit::judge::{self, LoopMount};
use testkit::manifest::{self, Manifest};
use xfs::Result;
use xfs::replay::{Replayed, replay};

use super::{Volume, copy, real, repair};

/// Replays the log of an image.
pub fn ours(image: &Path) -> Result<Replayed> {
    real(|cx| {
        let volume = Volume::open(cx, image);
        let replayed = replay(cx, &volume.queue);
        volume.queue.drain(cx);
        replayed
    })
}

/// Replays one copy and has the kernel replay another one; compares.
pub fn compare(dir: &Path, dirty: &Path) -> Replayed {
    let theirs = dir.join("theirs.img");
    copy(dirty, &theirs);
    let replayed = ours(dirty).expect("replayed");
    drop(LoopMount::new(&theirs, "xfs", "rw,nouuid").expect("the kernel mounts its own log"));
    repair(&theirs).expect("the kernel's replay is clean");
    repair(dirty).expect("our replay is clean");
    let again = ours(dirty).expect("replayed twice");
    assert!(again.was_clean, "a replayed log is clean");
    assert_eq!(tree(dirty), tree(&theirs));
    replayed
}

/// The tree as the kernel sees it. The image that it was copied from may still be mounted.
pub fn tree(image: &Path) -> Manifest {
    let mount = LoopMount::new(image, "xfs", "ro,nouuid").expect("the kernel mounts");
    manifest::of_dir(&mount.path()).expect("the kernel reads the whole tree")
}

/// The kernel shuts itself down after its log was forced.
pub fn stop(mount: LoopMount) {
    judge::run_ok("xfs_io", &[&"-x", &"-c", &"shutdown -f", &mount.path()]);
}

/// Waits until the kernel has freed what was removed: it does that in the background.
pub fn settle(mount: &LoopMount) {
    for _ in 0..3 {
        judge::run_ok("stat", &[&"-f", &mount.path()]);
        judge::run_ok("sleep", &[&"0.1"]);
    }
}
