//! Blocks of a file taken until the disk is full, marked as written, given back: nothing is lost,
//! what was set aside is there, and the kernel reads our intents as we do.

use std::path::Path;
use std::sync::Arc;

use base::{Ino, Rng};
use rt::Cx;
use testkit::judge;

use super::blocks::{FileBlocks, worst_case};
use super::edit::MapEdit;
use super::{Extents, Fork, Which, lookup};
use crate::alloc::Space;
use crate::buf::INODE_CLUSTER;
use crate::error::XfsError;
use crate::format::inode::{ForkFormat, InodeCore, fork_ranges};
use crate::format::{AgBlock, Geometry};
use crate::log::inode_item::{InodeFields, InodeItem, InodePlace};
use crate::log::{Log, LogOptions};
use crate::log_common::{Volume, mkfs, real, repair, scratch};
use crate::trans::intent::Work;
use crate::trans::{Finished, IntentFinisher, LogReservation, Trans};

const INO: Ino = Ino(131);

/// A file that only this test knows.
struct File {
    fork: Fork,
    blocks: u64,
}

impl File {
    fn new() -> File {
        let mut fork = Fork::new(ForkFormat::Extents, vec![0; 336], 0);
        fork.extents = Some(Extents::new());
        File { fork, blocks: 0 }
    }

    fn edit<R>(&mut self, space: &Space, f: impl FnOnce(&mut FileBlocks<'_, '_>) -> R) -> R {
        let near = AgBlock { ag: 1, block: 0 };
        let (fork, blocks) = (&mut self.fork, &mut self.blocks);
        let mut edit =
            MapEdit { space, ino: INO, which: Which::Data, fork, blocks, near, content: None };
        f(&mut FileBlocks { edit: &mut edit, reflink: false })
    }
}

fn transaction(cx: &mut Cx, log: &Arc<Log>) -> Trans {
    Trans::alloc(cx, log, LogReservation::new(200 << 10).times(2)).expect("log space")
}

/// Goal: every block that can be reserved can be taken, in whatever pieces, and all come back.
/// Method: files of alternating blocks fill the disk; some runs are marked as written; then all is
/// given back. xfs_repair and the count of free blocks judge.
fn fill(args: &[&str]) {
    let dir = scratch();
    let image = mkfs(dir.path(), "fill", 320 << 20, args);
    real(|cx| {
        let volume = Volume::open(cx, &image);
        let log = volume.mount(cx, LogOptions::default());
        let space = Space::open(cx, Arc::new(volume.geometry.clone()), log.clone());
        let space = Arc::new(space.expect("groups"));
        log.set_finisher(space.clone());
        let before = (space.count_free(cx).expect("a count"), space.available());
        let (mut file, mut rng, mut offset) = (File::new(), Rng::new(3, 3), 0);
        let mut full = 0;
        while full < 3 {
            let most = if full > 0 { 1 } else { 1 + rng.below(3000) };
            let worst = worst_case(&space.geometry, INO, &file.fork, 1);
            if space.reserve(most + worst).is_err() {
                full += 1;
                continue;
            }
            let mut trans = transaction(cx, &log);
            let (map_before, taken) = (file.blocks, most);
            let extent = file.edit(&space, |blocks| {
                // Runs of one block now and then, so that neighbours do not join.
                let most = if rng.below(3) == 0 { 1 } else { taken };
                let taken =
                    blocks.allocate(cx, &mut trans, offset..offset + most).expect("allocated");
                taken.expect("it was set aside")
            });
            let grown = file.blocks - map_before - u64::from(extent.count);
            assert!(grown <= worst, "the map took {grown} blocks, {worst} were expected");
            space.give_back(most + worst - u64::from(extent.count));
            if rng.below(2) == 0 {
                let half = extent.offset..extent.offset + u64::from(extent.count).div_ceil(2);
                let run = file.edit(&space, |blocks| blocks.convert(cx, &mut trans, half));
                assert!(run.expect("it was set aside"));
                let list = file.fork.extents.as_deref().expect("a list");
                assert!(!lookup(list, extent.offset..extent.offset + 1).unwritten);
            }
            trans.commit(cx).expect("a commit");
            offset = extent.end() + rng.below(2);
        }
        assert!(file.fork.count > 300, "{} extents: the map stayed a list", file.fork.count);
        assert!(space.available() - space.kept_back() < 8, "blocks were left over");
        let mut trans = transaction(cx, &log);
        let third = offset / 3..offset / 2;
        while file.edit(&space, |b| b.unmap_last(cx, &mut trans, third.clone())).expect("a hole") {
            trans.commit(cx).expect("a commit");
            trans = transaction(cx, &log);
        }
        while file.edit(&space, |b| b.unmap_last(cx, &mut trans, 0..u64::MAX)).expect("gone") {
            trans.commit(cx).expect("a commit");
            trans = transaction(cx, &log);
        }
        trans.commit(cx).expect("a commit");
        assert_eq!((file.fork.format, file.blocks), (ForkFormat::Extents, 0));
        log.force(cx).expect("a force");
        let after = (space.count_free(cx).expect("a count"), space.available());
        assert_eq!(after, before, "blocks were lost");
        assert_eq!(log.stats().overruns, 0, "a transaction needed more than it had reserved");
        log.clear_finisher();
        log.unmount(cx).expect("an unmount");
    });
    repair(&image).unwrap_or_else(|text| panic!("xfs_repair -n {args:?}: {text}"));
}

#[test]
fn a_disk_is_filled_to_the_last_block_and_emptied() {
    fill(&["-b", "size=1024", "-m", "rmapbt=1"]);
    fill(&[]);
}

/// Carries nothing out, as if the power went when the intents were in the log.
struct Gone(Arc<Log>);

impl IntentFinisher for Gone {
    fn finish(&self, cx: &mut Cx, _: &mut Trans, _: &Work) -> crate::Result<Finished> {
        self.0.force(cx)?;
        Err(XfsError::Answer(base::Errno::EIO))
    }
}

/// Marks the second quarter of a file of one unwritten extent as written, and stops when the intent
/// is in the log.
fn convert_and_stop(cx: &mut Cx, image: &Path, ino: Ino) {
    let volume = Volume::open(cx, image);
    let log = volume.mount(cx, LogOptions::default());
    let geometry: Arc<Geometry> = Arc::new(volume.geometry.clone());
    let space = Space::open(cx, geometry.clone(), log.clone()).expect("groups");
    log.set_finisher(Arc::new(Gone(log.clone())));
    let (first, count, offset) = {
        let (place, offset) = geometry.ino_place(ino);
        let blocks = geometry.chunks.cluster_blocks;
        let inside = place.block % blocks;
        let first = AgBlock { block: place.block - inside, ..place };
        (first, blocks, offset + inside as usize * geometry.block_size as usize)
    };
    let cluster = crate::buf::BufMap {
        daddr: geometry.ag_sector(first),
        len: count * geometry.block_sectors() as u32,
    };
    let size = geometry.inode_size as usize;
    let buf = log.bufs().read(cx, &[cluster], &INODE_CLUSTER).expect("the cluster");
    let mut image = buf.with_range(offset, size, |slot| slot.to_vec());
    drop(buf);
    let mut core = InodeCore::parse(&image, ino, &geometry).expect("an inode");
    let (data, _) = fork_ranges(core.forkoff, size);
    let mut fork = Fork::new(core.format, image[data.clone()].to_vec(), core.extents);
    let list = crate::format::extent::list(&fork.bytes).take(core.extents as usize).collect();
    fork.extents = Some(list);
    let item = InodeItem::new(InodePlace { ino: ino.0, cluster, offset: offset as u32 });
    let mut trans = transaction(cx, &log);
    trans.join_inode(cx, &item);
    let (near, which) = (geometry.ino_place(ino).0, Which::Data);
    let (fork, blocks) = (&mut fork, &mut core.blocks);
    let mut edit = MapEdit { space: &space, ino, which, fork, blocks, near, content: None };
    let mut file = FileBlocks { edit: &mut edit, reflink: false };
    assert!(file.convert(cx, &mut trans, 64..128).expect("marked"));
    core.extents = fork.count;
    image[data].copy_from_slice(&fork.bytes);
    core.emit(&mut image);
    trans.log_inode(&item, &image, InodeFields::CORE | InodeFields::DATA);
    trans.commit(cx).expect_err("the power went");
    log.clear_finisher();
    log.abandon(cx);
}

/// Goal: an intent that marks blocks as written in the reverse map means the same to the kernel and
/// to us. Method: our transaction on a file of the kernel, cut behind the intent; either recovers
/// it, and xfs_repair compares the reverse map with the file.
#[test]
fn intents_that_mark_blocks_as_written_are_carried_out_by_the_kernel_and_by_us() {
    let dir = scratch();
    let image = mkfs(dir.path(), "ours", 320 << 20, &["-m", "rmapbt=1"]);
    let mount = judge::LoopMount::new(&image, "xfs", "rw").expect("mounted");
    let path = mount.path().join("file");
    judge::run_ok("xfs_io", &[&"-f", &"-c", &"falloc 0 1m", &"-c", &"fsync", &path]);
    let ino = std::os::unix::fs::MetadataExt::ino(&std::fs::metadata(&path).expect("stat"));
    drop(mount);
    real(|cx| convert_and_stop(cx, &image, Ino(ino)));
    let theirs = dir.path().join("theirs");
    crate::log_common::copy(&image, &theirs);
    real(|cx| {
        let volume = Volume::open(cx, &image);
        let replayed = crate::mount::recovery::recover(cx, &volume.queue).expect("replayed");
        assert_eq!(replayed.intents, 1);
    });
    repair(&image).unwrap_or_else(|text| panic!("our replay: {text}"));
    drop(judge::LoopMount::new(&theirs, "xfs", "rw").expect("the kernel mounts"));
    repair(&theirs).unwrap_or_else(|text| panic!("the kernel's replay: {text}"));
}
