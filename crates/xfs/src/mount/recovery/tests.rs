//! A clone of blocks from one file into another, promised in the log by all four kinds of intents
//! and cut off after each step: the kernel carries the rest out, and so do we.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use base::{Errno, Ino};
use rt::Cx;

use crate::alloc::Space;
use crate::bmap::Which;
use crate::error::{Result, XfsError};
use crate::format::Section;
use crate::format::extent::Extent;
use crate::format::log_item::RefcountOp;
use crate::log::{Log, LogOptions};
use crate::log_common::replayed::{ours, tree};
use crate::log_common::{Volume, copy, mkfs, real, repair, scratch};
use crate::mount::recovery::intents::{Finisher, MAP, UNMAP};
use crate::trans::intent::Work;
use crate::trans::{Finished, IntentFinisher, LogReservation, Trans};
use crate::uncached::UncachedInode;
use testkit::judge::{self, LoopMount};

/// Carries out so many pieces of work, then makes everything durable, and the power goes.
struct Crash {
    log: Arc<Log>,
    real: Finisher,
    left: AtomicU32,
}

impl IntentFinisher for Crash {
    fn finish(&self, cx: &mut Cx, trans: &mut Trans, work: &Work) -> Result<Finished> {
        if self.left.load(Ordering::Relaxed) == 0 {
            self.log.force(cx)?;
            return Err(XfsError::Answer(Errno::EIO));
        }
        self.left.fetch_sub(1, Ordering::Relaxed);
        self.real.finish(cx, trans, work)
    }
}

fn extents(cx: &mut Cx, space: &Space, ino: u64) -> Vec<Extent> {
    let inode = UncachedInode::read(cx, space, Ino(ino)).expect("an inode");
    let fork = inode.whole_fork(cx, space, Which::Data).expect("a map");
    fork.extents.expect("they were read").into_vec()
}

/// What a clone of `from` over `to` defers, for each extent.
fn works(cx: &mut Cx, space: &Space, from: u64, to: u64) -> Vec<Work> {
    let mut works = Vec::new();
    let map = |op, ino, extent: &Extent| Work::Bmap {
        flags: op,
        ino,
        start: extent.start.0,
        offset: extent.offset,
        len: extent.count,
    };
    let count = |op: RefcountOp, extent: &Extent| Work::Refcount {
        section: Section::Data,
        flags: op as u32,
        start: extent.start.0,
        len: extent.count,
    };
    for extent in extents(cx, space, to) {
        works.push(map(UNMAP, to, &extent));
        works.push(count(RefcountOp::Decrease, &extent));
    }
    for extent in extents(cx, space, from) {
        works.push(count(RefcountOp::Increase, &extent));
        works.push(map(MAP, to, &extent));
    }
    works
}

/// Two files with the blocks of which the kernel has done some sharing already.
fn fill(root: &Path) -> (u64, u64) {
    let (from, to) = (root.join("from"), root.join("to"));
    for (path, byte) in [(&from, 1u8), (&to, 2)] {
        let file = fs::File::create(path).expect("created");
        for piece in 0..4u64 {
            use std::os::unix::fs::FileExt;
            let data = vec![byte + piece as u8 * 16; 20 << 10];
            file.write_all_at(&data, piece * (64 << 10)).expect("written");
        }
        file.sync_all().expect("synced");
        judge::run_ok("cp", &[&"--reflink=always", path, &path.with_extension("copy")]);
    }
    let ino = |path| fs::metadata(path).expect("a file").ino();
    (ino(&from), ino(&to))
}

/// Cuts the work off after `steps` pieces; false if it was done by then.
fn cut(image: &Path, (from, to): (u64, u64), steps: u32) -> bool {
    real(|cx| {
        let volume = Volume::open(cx, image);
        let log = volume.mount(cx, LogOptions::default());
        let geometry = Arc::new(volume.geometry.clone());
        let space = Arc::new(Space::open(cx, geometry, log.clone()).expect("groups"));
        let works = works(cx, &space, from, to);
        let real = Finisher::new(space);
        let left = AtomicU32::new(steps);
        log.set_finisher(Arc::new(Crash { log: log.clone(), real, left }));
        let mut trans = Trans::alloc(cx, &log, LogReservation::new(160 << 10)).expect("space");
        works.into_iter().for_each(|work| trans.defer(work));
        let cut = trans.commit(cx).is_err();
        log.force(cx).ok();
        log.clear_finisher();
        log.abandon(cx);
        cut
    })
}

#[test]
fn a_clone_that_was_cut_off_is_carried_out() {
    let dir = scratch();
    for rmapbt in ["rmapbt=0", "rmapbt=1"] {
        let image = mkfs(dir.path(), "whole.img", 320 << 20, &["-m", "reflink=1", "-m", rmapbt]);
        let mount = LoopMount::new(&image, "xfs", "rw").expect("mounted");
        let inodes = fill(&mount.path());
        drop(mount);
        let mut wanted = None;
        for steps in (0..40).step_by(3) {
            let dirty = dir.path().join("dirty.img");
            let theirs = dir.path().join("theirs.img");
            copy(&image, &dirty);
            let open = cut(&dirty, inodes, steps);
            copy(&dirty, &theirs);
            drop(LoopMount::new(&theirs, "xfs", "rw").expect("the kernel replays"));
            let replayed = ours(&dirty).expect("replayed");
            assert_eq!(open, replayed.intents > 0, "{rmapbt}, {steps} steps: {replayed:?}");
            for (who, image) in [("the kernel's", &theirs), ("our", &dirty)] {
                let text = format!("{rmapbt}, {steps} steps: {who} replay");
                repair(image).unwrap_or_else(|said| panic!("{text}: {said}"));
                let tree = tree(image);
                let file = |name: &str| tree[name.as_bytes()].sha256.clone();
                assert_eq!(file("to"), file("from"), "{text}");
                assert_ne!(file("to"), file("to.copy"), "{text}");
                assert_eq!(*wanted.get_or_insert(tree.clone()), tree, "{text}");
            }
            if !open {
                break;
            }
        }
    }
}
