//! A crash between an intent and its done item: the kernel finishes what we began, and so do we.

use std::path::Path;
use std::sync::Arc;

use rt::Cx;

use crate::alloc::{AllocRequest, Space};
use crate::error::{Result, XfsError};
use crate::format::record::owner;
use crate::format::{AgBlock, Owner};
use crate::log::{Log, LogOptions};
use crate::log_common::{Volume, copy, logprint, mkfs, real, repair, scratch};
use crate::mount::recovery::recover;
use crate::trans::intent::Work;
use crate::trans::{Finished, IntentFinisher, LogReservation, Trans};
use base::Errno;
use testkit::judge::LoopMount;

/// Makes the intent durable, and then the power goes.
struct Crash(Arc<Log>);

impl IntentFinisher for Crash {
    fn finish(&self, cx: &mut Cx, _trans: &mut Trans, _work: &Work) -> Result<Finished> {
        self.0.force(cx)?;
        Err(XfsError::Answer(Errno::EIO))
    }
}

/// Allocates extents for nobody known, then defers freeing them and crashes. Returns the free
/// blocks of before.
fn cut(image: &Path, rmapbt: bool) -> u64 {
    real(|cx| {
        let volume = Volume::open(cx, image);
        let log = volume.mount(cx, LogOptions::default());
        let geometry = Arc::new(volume.geometry.clone());
        let space = Arc::new(Space::open(cx, geometry, log.clone()).expect("groups"));
        log.set_finisher(space.clone());
        let before = space.count_free(cx).expect("a count");
        let mut works = Vec::new();
        for index in 0..40 {
            let mut trans = Trans::alloc(cx, &log, LogReservation::new(160 << 10)).expect("space");
            let goal = AgBlock { ag: index % 3, block: 1000 + index * 20 };
            let found =
                space.allocate(cx, &mut trans, &AllocRequest::block(goal, OWNER)).expect("a block");
            let start = space.geometry.join(found.start).0;
            let owner = rmapbt.then_some(OWNER);
            works.push(Work::free(start, found.len, owner));
            trans.commit(cx).expect("committed");
        }
        log.set_finisher(Arc::new(Crash(log.clone())));
        let mut trans = Trans::alloc(cx, &log, LogReservation::new(160 << 10)).expect("space");
        works.into_iter().for_each(|work| trans.defer(work));
        assert!(trans.commit(cx).is_err(), "the power went");
        assert!(log.shut_down().is_some());
        log.clear_finisher();
        log.abandon(cx);
        before
    })
}

const OWNER: Owner = Owner { owner: owner::INODES, offset: 0 };

fn free_blocks(image: &Path) -> u64 {
    real(|cx| {
        let volume = Volume::open(cx, image);
        let log = volume.mount(cx, LogOptions::default());
        let geometry = Arc::new(volume.geometry.clone());
        let space = Space::open(cx, geometry, log.clone()).expect("groups");
        let count = space.count_free(cx).expect("a count");
        log.unmount(cx).expect("unmounted");
        count
    })
}

/// Goal: an EFI without an EFD is finished by recovery, ours and the kernel's, with the same end.
#[test]
fn an_intent_that_was_cut_is_finished_by_recovery() {
    let dir = scratch();
    for rmapbt in [false, true] {
        let option = if rmapbt { "rmapbt=1" } else { "rmapbt=0" };
        let image = mkfs(dir.path(), "efi.img", 320 << 20, &["-m", option]);
        let before = cut(&image, rmapbt);
        let text = logprint(&image, &["-t"]);
        assert!(text.contains("EFI") && !text.contains("EFD"), "{text}");
        let theirs = dir.path().join("theirs.img");
        copy(&image, &theirs);
        drop(LoopMount::new(&theirs, "xfs", "rw").expect("the kernel mounts"));
        repair(&theirs).expect("clean after the kernel");
        let replayed = real(|cx| {
            let volume = Volume::open(cx, &image);
            recover(cx, &volume.queue).expect("replayed")
        });
        // Sixteen extents are in one intent.
        assert_eq!(replayed.intents, 3);
        repair(&image).expect("clean after us");
        assert_eq!(free_blocks(&image), before);
        assert_eq!(free_blocks(&theirs), before);
    }
}
