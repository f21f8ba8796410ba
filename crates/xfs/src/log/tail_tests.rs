//! The tail never passes what recovery still needs: items that are logged anew with less than the
//! log alone has of them.

use std::sync::Arc;

use base::{Ino, Sector};
use block::{Queue, QueueConfig};
use cache::{PageCache, PageCacheConfig};
use device::MemoryDevice;
use rt::{Cx, World, WorldConfig};
use testkit::judge;
use vfs::{FileSystem, NewNode};

use super::{Log, LogOptions};
use crate::alloc::Space;
use crate::bmap::Which;
use crate::buf::{BufCache, BufMap, INODE_CLUSTER};
use crate::format::{AgInode, At, Geometry, Kind, NULL32, verifier};
use crate::ialloc::{FreedInode, Inodes, cluster_of};
use crate::log::inode_item::{InodeFields, InodeItem, InodePlace};
use crate::log_common::Volume;
use crate::trans::{LogReservation, Trans};
use crate::{MkfsOptions, MountOptions, Xfs};

/// A log without its task, so that nothing is written but by the test.
struct Stage {
    device: Arc<MemoryDevice>,
    geometry: Arc<Geometry>,
    log: Arc<Log>,
    inodes: Inodes,
}

/// A new file system with the least log, and its device.
fn fresh(cx: &mut Cx, block_size: u32) -> (Arc<MemoryDevice>, Arc<Queue>) {
    let device = Arc::new(MemoryDevice::new(160 << 20));
    let queue = Queue::new(cx.runtime(), device.clone(), QueueConfig::default());
    let queue = queue.expect("a queue");
    let (log_size, assume_zeroes) = (Some(10 << 20), true);
    let options = MkfsOptions { log_size, assume_zeroes, block_size, ..MkfsOptions::default() };
    crate::mkfs(cx, &queue, &options).expect("a file system");
    (device, queue)
}

fn stage(body: impl FnOnce(&mut Cx, Stage) + Send + 'static) {
    World::new(WorldConfig::default()).run("test", |cx| {
        let (device, _) = fresh(cx, 4096);
        let volume = Volume::on(cx, device.clone());
        let log = volume.mount(cx, LogOptions { background: false, ..LogOptions::default() });
        let geometry = Arc::new(volume.geometry.clone());
        let space = Arc::new(Space::open(cx, geometry.clone(), log.clone()).expect("groups"));
        log.set_finisher(space.clone());
        let inodes = Inodes::open(cx, space).expect("inodes");
        let stage = Stage { device, geometry, log, inodes };
        let log = stage.log.clone();
        body(cx, stage);
        log.clear_finisher();
    });
}

/// A stage with one inode in the second group, which is at its place.
fn with_inode(body: impl FnOnce(&mut Cx, Stage, Ino) + Send + 'static) {
    stage(|cx, stage| {
        let ino = stage.take(cx);
        stage.force(cx);
        stage.write_back(cx);
        body(cx, stage, ino);
    });
}

impl Stage {
    fn trans(&self, cx: &mut Cx) -> Trans {
        let reservation = LogReservation::new(150 << 10).times(2);
        Trans::alloc(cx, &self.log, reservation).expect("log space")
    }

    /// Takes an inode in the second group, which has none but what this makes.
    fn take(&self, cx: &mut Cx) -> Ino {
        let mut trans = self.trans(cx);
        let parent = self.geometry.ino_join(AgInode { ag: 1, agino: 64 });
        // A new chunk goes where the first one went, if there is room.
        let agi = self.inodes.lock(cx, &mut trans, 1).expect("the AGI");
        agi.edit(&mut trans, |raw| raw.agi_newino.set(NULL32));
        let ino = self.inodes.allocate(cx, &mut trans, parent, false).expect("an inode");
        trans.commit(cx).expect("committed");
        ino
    }

    /// Gives the only inode of a chunk back, and the chunk with it.
    fn give_back(&self, cx: &mut Cx, ino: Ino, item: Option<&Arc<InodeItem>>) {
        let mut trans = self.trans(cx);
        let freed = self.inodes.free(cx, &mut trans, ino).expect("freed");
        assert!(matches!(freed, FreedInode::Chunk(_)));
        if let Some(item) = item {
            trans.invalidate_inode(item);
        }
        trans.commit(cx).expect("committed");
    }

    /// Everything that is not pinned goes to its place.
    fn write_back(&self, cx: &mut Cx) {
        self.log.write_back(cx, self.log.newest()).expect("written back");
    }

    fn force(&self, cx: &mut Cx) {
        self.log.force(cx).expect("forced");
    }

    fn cluster(&self, ino: Ino) -> (BufMap, usize) {
        cluster_of(&self.geometry, ino)
    }

    /// An item for an inode, and its image with content in the data fork.
    fn content(&self, cx: &mut Cx, ino: Ino) -> (Arc<InodeItem>, Vec<u8>) {
        let (cluster, offset) = self.cluster(ino);
        let mut image = self.slot(cx, self.log.bufs(), ino);
        image[5] = 1;
        image[56..64].copy_from_slice(&8u64.to_be_bytes());
        image[176..184].copy_from_slice(b"promised");
        let place = InodePlace { ino: ino.0, cluster, offset: offset as u32 };
        (InodeItem::new(place), image)
    }

    fn log_inode(&self, cx: &mut Cx, item: &Arc<InodeItem>, image: &[u8], fields: InodeFields) {
        let mut trans = self.trans(cx);
        trans.log_inode(item, image, fields);
        trans.commit(cx).expect("committed");
    }

    fn slot(&self, cx: &mut Cx, bufs: &Arc<BufCache>, ino: Ino) -> Vec<u8> {
        let (map, offset) = self.cluster(ino);
        let size = self.geometry.inode_size as usize;
        let buf = bufs.read(cx, &[map], &INODE_CLUSTER).expect("the cluster");
        buf.with_range(offset, size, |slot| slot.to_vec())
    }

    /// The inodes of a cluster after a power cut, which comes when a record has named the tail.
    fn after_a_cut(&self, cx: &mut Cx, first: Ino) -> Vec<Vec<u8>> {
        self.log.push(cx, None, true).expect("an empty checkpoint");
        let volume = Volume::on(cx, Arc::new(self.device.fork()));
        volume.recover(cx).expect("recovered");
        let bufs = volume.bufs();
        let count = self.cluster(first).0.bytes() / self.geometry.inode_size as usize;
        let inodes = (0..count as u64).map(|index| self.slot(cx, &bufs, Ino(first.0 + index)));
        let inodes: Vec<Vec<u8>> = inodes.collect();
        for (index, slot) in inodes.iter().enumerate() {
            let ino = first.0 + index as u64;
            let expect = self.geometry.expect(Sector(0), Some(ino));
            verifier::verify(Kind::Inode, slot, &expect, At::Inode(Ino(ino))).expect("an inode");
        }
        inodes
    }
}

/// Only the unlinked pointers of a new cluster are logged anew, while what made its inodes is
/// pinned and cannot be written: the cluster moved up to the newer record, and the tail passed the
/// older one.
#[test]
fn new_inodes_stay_in_the_log_while_their_lists_change() {
    stage(|cx, stage| {
        let ino = stage.take(cx);
        stage.force(cx);
        let made = stage.log.ail.tail();
        let mut trans = stage.trans(cx);
        stage.inodes.add_unlinked(cx, &mut trans, ino).expect("in the list");
        stage.inodes.remove_unlinked(cx, &mut trans, ino).expect("out of it");
        let (map, offset) = stage.cluster(ino);
        let buf = trans.read_buf(cx, &[map], &INODE_CLUSTER).expect("the cluster");
        trans.inode_buf(&buf);
        trans.log_buf(&buf, offset + 96, offset + 99);
        trans.commit(cx).expect("committed");
        stage.write_back(cx);
        stage.force(cx);
        assert_eq!(stage.log.ail.tail(), made, "the tail has passed what made the inodes");
        stage.after_a_cut(cx, ino);
        stage.write_back(cx);
        assert!(stage.log.ail.is_empty());
    });
}

/// Inodes are made where others were: the cluster's buffer is the one that was freed, and was
/// taken for freed still, so that nothing kept the record that makes the new ones.
#[test]
fn inodes_made_where_others_went_stay_in_the_log() {
    with_inode(|cx, stage, ino| {
        stage.give_back(cx, ino, None);
        stage.force(cx);
        stage.write_back(cx);
        assert_eq!(stage.take(cx), ino, "another place");
        stage.force(cx);
        stage.write_back(cx);
        let made = stage.slot(cx, stage.log.bufs(), ino);
        assert!(stage.log.ail.is_empty());
        assert_eq!(stage.after_a_cut(cx, ino)[0][92..96], made[92..96], "the generation of before");
    });
}

/// While an inode is on its way to its place it is logged again, with less: until it is there, the
/// log alone has the rest.
#[test]
fn an_inode_under_way_is_logged_whole() {
    with_inode(|cx, stage, ino| {
        let (item, mut image) = stage.content(cx, ino);
        stage.log_inode(cx, &item, &image, InodeFields::CORE | InodeFields::DATA);
        stage.force(cx);
        let (map, _) = stage.cluster(ino);
        let under_way = stage.log.bufs().read(cx, &[map], &INODE_CLUSTER).expect("the cluster");
        let lsn = item.core().lock().lsn;
        assert!(item.flush(&under_way, lsn));
        image[104..112].copy_from_slice(&77u64.to_be_bytes());
        stage.log_inode(cx, &item, &image, InodeFields::CORE);
        stage.force(cx);
        assert!(stage.log.ail.tail() > Some(lsn));
        let found = &stage.after_a_cut(cx, ino)[0];
        assert_eq!((&found[104..112], &found[176..184]), (&image[104..112], &b"promised"[..]));
        drop(under_way);
    });
}

/// A transaction is about to free a chunk; until it is in the log, a change of one of the inodes
/// must not be lost.
#[test]
fn an_inode_of_a_chunk_about_to_go_stays_in_the_log() {
    with_inode(|cx, stage, ino| {
        let (item, image) = stage.content(cx, ino);
        stage.log_inode(cx, &item, &image, InodeFields::CORE | InodeFields::DATA);
        let mut trans = stage.trans(cx);
        trans.invalidate_inode(&item);
        stage.force(cx);
        assert_eq!(stage.after_a_cut(cx, ino)[0][176..184], *b"promised");
        trans.cancel();
    });
}

/// The inodes of a chunk that is gone leave the list, whether the checkpoint has them before their
/// cluster or behind it.
#[test]
fn inodes_of_a_freed_chunk_leave_the_list() {
    with_inode(|cx, stage, ino| {
        let (item, image) = stage.content(cx, ino);
        stage.log_inode(cx, &item, &image, InodeFields::CORE);
        stage.force(cx);
        stage.log_inode(cx, &item, &image, InodeFields::CORE);
        stage.give_back(cx, ino, Some(&item));
        stage.force(cx);
        stage.write_back(cx);
        assert!(stage.log.ail.is_empty());

        let ino = stage.take(cx);
        let (item, image) = stage.content(cx, ino);
        stage.log_inode(cx, &item, &image, InodeFields::CORE);
        stage.give_back(cx, ino, Some(&item));
        stage.force(cx);
        stage.write_back(cx);
        assert!(stage.log.ail.is_empty());
    });
}

/// A checkpoint that only names the tail is one that the kernel recovers.
#[test]
fn a_checkpoint_that_changes_nothing_is_recovered_by_the_kernel() {
    stage(|cx, stage| {
        let mut trans = stage.trans(cx);
        let agi = stage.inodes.lock(cx, &mut trans, 1).expect("the AGI");
        agi.edit(&mut trans, |raw| raw.agi_newino.set(NULL32));
        trans.commit(cx).expect("committed");
        stage.force(cx);
        stage.log.push(cx, None, true).expect("an empty checkpoint");
        let image = testkit::image::write_device(&stage.device);
        let mounted = judge::LoopMount::new(image.path(), "xfs", "rw");
        drop(mounted.unwrap_or_else(|message| panic!("{message}")));
        let volume = Volume::on(cx, Arc::new(stage.device.fork()));
        let recovered = volume.recover(cx).expect("recovered");
        assert_eq!((recovered.transactions, recovered.unfinished.len()), (2, 0));
    });
}

/// Recovery knows freed blocks by the place and the length that the log has of them: also those of
/// a symbolic link's buffer of two blocks that memory has dropped since.
#[test]
fn a_forgotten_buffer_is_freed_as_it_was_logged() {
    World::new(WorldConfig::default()).run("test", |cx| {
        let (_, queue) = fresh(cx, 1024);
        let pages = PageCache::new(cx.runtime(), PageCacheConfig::default());
        let options = MountOptions { read_only: false, ..MountOptions::default() };
        let fs = Xfs::mount(cx, &queue, &pages, options).expect("mounted");
        let link = NewNode::symlink(&[b't'; 1000]);
        let ino = fs.create(cx, fs.root(), b"link", &link).expect("a link").ino;
        let inode = fs.iget(cx, ino).expect("the link");
        let extents = inode.extents(cx, Which::Data, |list| list.to_vec());
        let place = fs.geometry().sector(extents.expect("extents")[0].start);
        drop(inode);
        let log = fs.writer().expect("a writer").log.clone();
        log.force(cx).expect("forced");
        log.write_back(cx, log.newest()).expect("written back");
        log.bufs().drop_clean();
        assert!(log.bufs().find(place.0).is_none(), "it is in memory still");
        fs.unlink(cx, fs.root(), b"link").expect("unlinked");
        let freed = log.bufs().find(place.0).expect("the buffer that was freed");
        assert!(freed.is_stale());
        assert_eq!(freed.len(), 2048);
        fs.unmount(cx).expect("unmounted");
    });
}

/// Inodes whose changes wait in the log stayed in memory until the log was three quarters full: a
/// tree of 100,000 new files took 500 MB.
#[test]
fn what_waits_in_the_log_is_bounded() {
    World::new(WorldConfig::default()).run("test", |cx| {
        let (_, queue) = fresh(cx, 4096);
        let pages = PageCache::new(cx.runtime(), PageCacheConfig::with_limit(1 << 20));
        let (inode_cache, dirty_max) = (256, 256 << 10);
        let options =
            MountOptions { read_only: false, inode_cache, dirty_max, ..Default::default() };
        let fs = Xfs::mount(cx, &queue, &pages, options).expect("a mount");
        let node = NewNode::new(vfs::FileType::Regular, 0o644);
        for number in 0..4000 {
            let name = format!("{number}");
            fs.create(cx, fs.root(), name.as_bytes(), &node).expect("a file");
        }
        assert!(fs.inodes.count() < 2000, "{} inodes are in memory", fs.inodes.count());
        fs.unmount(cx).expect("unmounts");
    });
}
