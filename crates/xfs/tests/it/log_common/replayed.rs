//! Replays of ours beside the kernel's.

use std::path::Path;

use base::Errno;
use cache::{PageCache, PageCacheConfig};
use testkit::judge::{self, LoopMount};
use testkit::manifest::{self, Manifest};
use vfs::{FileSystem, SetAttr};
use xfs::{CheckOptions, MountOptions, Result, Rule, Xfs};
use xfs::{RecoveryReport, recover};

use super::{Volume, copy, real, repair};

/// Replays the log of an image.
pub fn ours(image: &Path) -> Result<RecoveryReport> {
    real(|cx| {
        let volume = Volume::open(cx, image);
        let replayed = recover(cx, &volume.queue);
        volume.queue.drain(cx);
        replayed
    })
}

/// What a mount shows that replays the log into memory; the device cannot be written.
pub fn seen_without_writing(image: &Path) -> Manifest {
    real(|cx| {
        let volume = Volume::open_to_read(cx, image);
        let report = xfs::check(cx, &volume.queue, &CheckOptions::default()).expect("a check");
        let found: Vec<_> = report.findings.iter().map(|found| found.rule).collect();
        assert_eq!(found, [Rule::LogReplayed], "{:?}", report.findings);
        assert!(report.is_clean());
        let unlooked = CheckOptions { recover: false, ..CheckOptions::default() };
        let report = xfs::check(cx, &volume.queue, &unlooked).expect("a check");
        assert!(report.findings[0].rule == Rule::LogDirty && !report.is_clean());
        let pages = PageCache::new(cx.runtime(), PageCacheConfig::default());
        let fs = Xfs::mount(cx, &volume.queue, &pages, MountOptions::default()).expect("a mount");
        assert!(fs.recovery().is_some_and(|replayed| replayed.transactions > 0));
        let tree = manifest::of_fs(cx, &*fs).expect("the whole tree is read");
        let mode = SetAttr { mode: Some(0o700), ..SetAttr::default() };
        assert_eq!(fs.setattr(cx, fs.root(), &mode).expect_err("refused"), Errno::EROFS);
        fs.unmount(cx).expect("an unmount");
        tree
    })
}

/// Replays one copy and has the kernel replay another one; compares. Before that a mount that only
/// reads sees the same.
pub fn compare(dir: &Path, dirty: &Path) -> RecoveryReport {
    let theirs = dir.join("theirs.img");
    copy(dirty, &theirs);
    let seen = seen_without_writing(dirty);
    let replayed = ours(dirty).expect("replayed");
    drop(LoopMount::new(&theirs, "xfs", "rw").expect("the kernel mounts its own log"));
    repair(&theirs).expect("the kernel's replay is clean");
    repair(dirty).expect("our replay is clean");
    let again = ours(dirty).expect("replayed twice");
    assert!(again.was_clean, "a replayed log is clean");
    let kernel = tree(&theirs);
    assert_eq!(tree(dirty), kernel);
    assert_eq!(seen, kernel, "replayed into memory");
    replayed
}

/// The tree as the kernel sees it. The image that it was copied from may still be mounted.
pub fn tree(image: &Path) -> Manifest {
    let mount = LoopMount::new(image, "xfs", "ro").expect("the kernel mounts");
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
