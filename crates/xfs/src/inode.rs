//! Inodes in memory: their values, their forks, their locks, and the cache that finds them.

pub(crate) mod create_batch;
pub(crate) mod dir_space;
pub(crate) mod io;

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, OnceLock, Weak};

use base::{Errno, Ino, Sector};
use cache::Mapping;
use rt::{Cx, Mutex, ReadGuard, RwLock, SpinLock, WriteGuard};
use vfs::{Attr, CachedInode, FileType};

use crate::Xfs;
use crate::alloc::Space;
use crate::bmap::blocks::FileBlocks;
use crate::bmap::cow_fork::CowFork;
use crate::bmap::edit::MapEdit;
use crate::bmap::{Fork, Forks, Which};
use crate::buf::RecentBlocks;
use crate::buf::meta::buf_maps;
use crate::error::Fault;
use crate::format::extent::{EXTENT_SIZE, Extent};
use crate::format::inode::{CORE_SIZE, Flags, Flags2, ForkFormat, InodeCore, fork_ranges};
use crate::format::{At, CorruptKind, Geometry, Kind, u32_at, verifier};
use crate::inode::create_batch::CreateBatch;
use crate::inode::io::FileIo;
use crate::log::inode_item::{Image, InodeFields, InodeItem, InodePlace};
use crate::trans::Trans;
use dir_space::SpaceHints;

/// What may change of an inode, under its spin lock.
#[derive(Debug)]
pub(crate) struct State {
    /// The values that go to the disk.
    pub core: InodeCore,
    /// How many times the inode is open.
    pub opens: u32,
    /// It never had a name, and may get one.
    pub linkable: bool,
    /// Its last name went and it was marked as free; what is left waits for write-back.
    pub freed: bool,
}

/// An inode in memory.
pub(crate) struct Inode {
    pub ino: Ino,
    pub fs: Weak<Xfs>,
    weak: Weak<Inode>,
    /// Directories: entries. Files: size, and data against truncation.
    pub rwsem: RwLock<()>,
    /// The forks; taken below `rwsem`.
    pub forks: RwLock<Forks>,
    pub state: SpinLock<State>,
    /// What goes to the log, and from there to the disk.
    pub item: Arc<InodeItem>,
    /// Held while dirty pages get their places, and while blocks are taken away.
    pub writeback: Mutex<()>,
    /// Content on its way to the disk.
    pub io: SpinLock<FileIo>,
    /// Blocks for content that must not overwrite shared ones.
    pub cow_fork: SpinLock<CowFork>,
    /// Tasks that wait for the content to get there, and finish it then.
    pub waited: AtomicU32,
    /// Of a large directory: where to look for room.
    pub room: SpinLock<SpaceHints>,
    /// Of a directory: blocks that were used lately.
    pub recent: SpinLock<RecentBlocks>,
    /// Of a directory: files that its lock's holder is to make.
    pub creates: CreateBatch,
    /// The file's pages, made at first use by [`crate::file`].
    pub mapping: OnceLock<Arc<Mapping>>,
    pub referenced: AtomicBool,
}

impl Inode {
    /// An inode in memory. `item` is that of the inode that had its number before, where that is
    /// still on its way to the disk.
    pub fn new(fs: &Xfs, item: Arc<InodeItem>, forks: Forks, core: InodeCore) -> Arc<Inode> {
        let (ino, fs) = (Ino(item.place().ino), fs.weak.clone());
        Arc::new_cyclic(|weak| Inode {
            ino,
            fs,
            weak: weak.clone(),
            rwsem: RwLock::named("xfs inode rwsem", ()),
            forks: RwLock::named("xfs inode forks", forks),
            state: SpinLock::named(
                "xfs inode state",
                State { core, opens: 0, linkable: false, freed: false },
            ),
            item,
            writeback: Mutex::named("xfs inode write-back", ()),
            io: SpinLock::named("xfs file content", FileIo::default()),
            cow_fork: SpinLock::named("xfs CoW fork", CowFork::default()),
            waited: AtomicU32::new(0),
            room: SpinLock::named("xfs directory room", SpaceHints::default()),
            recent: SpinLock::named("xfs directory blocks", RecentBlocks::default()),
            creates: CreateBatch::default(),
            mapping: OnceLock::new(),
            referenced: AtomicBool::new(true),
        })
    }

    /// Looks at or changes the values, in a short section that cannot wait.
    pub fn with<R>(&self, cx: &Cx, f: impl FnOnce(&mut State) -> R) -> R {
        f(&mut self.state.lock(cx))
    }

    /// Locks it for reading. May park.
    ///
    /// # Errors
    /// `ESTALE`: it was freed meanwhile, and its number may be another's.
    pub fn lock_shared(&self, cx: &mut Cx) -> Result<ReadGuard<'_, ()>, Errno> {
        let guard = self.rwsem.read(cx);
        self.check_there(cx).map(|()| guard)
    }

    /// Locks it for changes. May park.
    ///
    /// # Errors
    /// As [`Inode::lock_shared`].
    pub fn lock_alone(&self, cx: &mut Cx) -> Result<WriteGuard<'_, ()>, Errno> {
        let guard = self.rwsem.write(cx);
        self.check_there(cx).map(|()| guard)
    }

    /// An error where it was freed, for who has locked it.
    ///
    /// # Errors
    /// As [`Inode::lock_shared`].
    pub fn check_there(&self, cx: &Cx) -> Result<(), Errno> {
        if self.with(cx, |state| state.freed) { Err(Errno::ESTALE) } else { Ok(()) }
    }

    /// This inode, counted.
    pub fn arc(&self) -> Arc<Inode> {
        self.weak.upgrade().expect("whoever has a reference holds the inode")
    }

    /// Whether its content lies in the realtime section.
    pub fn is_realtime(&self, cx: &Cx) -> bool {
        self.with(cx, |state| state.core.is_realtime())
    }

    /// The type. It never changes.
    pub fn kind(&self, cx: &Cx) -> FileType {
        self.with(cx, |state| kind_of(&state.core))
    }

    /// Size in bytes.
    pub fn size(&self, cx: &Cx) -> u64 {
        self.mapping.get().map_or_else(|| self.disk_size(cx), |mapping| mapping.size())
    }

    /// Size in bytes as it goes to the disk: that of a file grows when the content is there.
    pub fn disk_size(&self, cx: &Cx) -> u64 {
        self.with(cx, |state| state.core.size)
    }

    /// The inode as it stands on the disk, from core and forks, which are brought in step.
    pub fn image(&self, cx: &mut Cx, geometry: &Geometry) -> Image {
        let size = geometry.inode_size as usize;
        let mut head = [0; CORE_SIZE];
        verifier::stamp(Kind::Inode, &mut head, &geometry.expect(Sector(0), Some(self.ino.0)));
        let forks = self.forks.read(cx);
        let forkoff = self.with(cx, |State { core, .. }| {
            (core.format, core.extents) = (forks.data.format, forks.data.count);
            (core.attr_format, core.attr_extents) = (forks.attr.format, forks.attr.count as u32);
            if core.format == ForkFormat::Local {
                core.size = forks.data.bytes.len() as u64;
            }
            core.emit(&mut head);
            core.forkoff
        });
        let data = &forks.data;
        let used = match data.format {
            _ if forkoff != 0 => size - CORE_SIZE,
            ForkFormat::Local => data.bytes.len().next_multiple_of(8),
            ForkFormat::Extents => data.count as usize * EXTENT_SIZE,
            ForkFormat::Device | ForkFormat::Btree | ForkFormat::MetaBtree => size - CORE_SIZE,
        };
        // Of one size mostly, so that the memory of the one before serves the next.
        let mut bytes = Vec::with_capacity(CORE_SIZE + used.max(4 * EXTENT_SIZE));
        bytes.extend_from_slice(&head);
        data.append_to(used, &mut bytes);
        let (_, attr) = fork_ranges(forkoff, bytes.len());
        bytes[attr][..forks.attr.bytes.len()].copy_from_slice(&forks.attr.bytes);
        Image { bytes, size }
    }

    /// Puts the inode as it is now into a transaction; `fields` are the parts that changed. The
    /// caller holds `rwsem` for writing until the transaction has ended.
    pub fn log(&self, cx: &mut Cx, trans: &mut Trans, geometry: &Geometry, fields: InodeFields) {
        self.with(cx, |state| state.core.change_count += 1);
        let image = self.image(cx, geometry);
        trans.log_image(&self.item, image, fields);
    }

    /// Changes the map of a fork. The caller holds `rwsem` for writing, and logs the inode
    /// afterwards. May wait for the device.
    ///
    /// # Errors
    /// The extents cannot be read; what `change` answers.
    pub fn edit_map<R>(
        &self,
        cx: &mut Cx,
        space: &Space,
        which: Which,
        change: impl FnOnce(&mut Cx, &mut MapEdit<'_>) -> crate::Result<R>,
    ) -> crate::Result<R> {
        self.extents(cx, which, |_| ())?;
        let mut forks = self.forks.write(cx);
        let mut blocks = self.with(cx, |state| state.core.blocks);
        let geometry = &space.geometry;
        let fork = forks.get_mut(which);
        let mut edit = MapEdit {
            space,
            ino: self.ino,
            which,
            fork,
            blocks: &mut blocks,
            near: geometry.ino_place(self.ino).0,
            content: Some(self.item.content()),
        };
        let result = change(cx, &mut edit);
        self.with(cx, |state| state.core.blocks = blocks);
        result
    }

    /// As [`Inode::edit_map`], for the blocks of a file's content.
    ///
    /// # Errors
    /// As [`Inode::edit_map`].
    pub fn edit_blocks<R>(
        &self,
        cx: &mut Cx,
        space: &Space,
        change: impl FnOnce(&mut Cx, &mut FileBlocks<'_, '_>) -> crate::Result<R>,
    ) -> crate::Result<R> {
        let reflink = self.with(cx, |state| state.core.flags2.contains(Flags2::REFLINK));
        self.edit_map(cx, space, Which::Data, |cx, edit| {
            change(cx, &mut FileBlocks { edit, reflink })
        })
    }

    /// True if it has no blocks, and no content in memory. The caller holds `rwsem` for writing.
    /// May park.
    pub fn is_bare(&self, cx: &mut Cx) -> bool {
        let without = |fork: &Fork| match fork.format {
            ForkFormat::Extents => fork.count == 0,
            ForkFormat::Btree | ForkFormat::MetaBtree => false,
            ForkFormat::Local | ForkFormat::Device => true,
        };
        let forks = self.forks.read(cx);
        let bare = without(&forks.data) && without(&forks.attr);
        bare && self.mapping.get().is_none() && self.cow_fork.lock(cx).is_empty()
    }

    /// What stat returns.
    pub fn attr(&self, cx: &mut Cx, geometry: &Geometry) -> Attr {
        self.attr_if(cx, geometry, |_| true).expect("nothing is refused")
    }

    /// The same where `usable` says so.
    pub fn attr_if(
        &self,
        cx: &mut Cx,
        geometry: &Geometry,
        usable: impl FnOnce(&State) -> bool,
    ) -> Option<Attr> {
        let mapped = self.mapping.get().map(|mapping| mapping.size());
        // First: while a reservation becomes a block it may be counted twice, but never as neither.
        let delayed = mapped.map_or(0, |_| self.io.lock(cx).delayed.len());
        let mut attr = self.with(cx, |state| {
            let core = &state.core;
            usable(state).then(|| Attr {
                ino: self.ino,
                kind: kind_of(core),
                mode: core.mode & 0o7777,
                nlink: core.links,
                uid: core.uid,
                gid: core.gid,
                rdev: 0,
                size: mapped.unwrap_or(core.size),
                blocks: (core.blocks + delayed) * geometry.block_sectors(),
                atime: core.atime,
                mtime: core.mtime,
                ctime: core.ctime,
                btime: (!geometry.v4()).then_some(core.crtime),
                generation: core.generation,
                flags: user_flags(core.flags),
                blksize: geometry.block_size,
            })
        })?;
        if attr.kind.is_device() {
            attr.rdev = self.device_number(cx);
        }
        Some(attr)
    }

    /// The number of a device's node, from its fork.
    fn device_number(&self, cx: &mut Cx) -> u64 {
        let forks = self.forks.read(cx);
        let data = &forks.data;
        if data.format != ForkFormat::Device || data.bytes.len() < 4 {
            return 0;
        }
        // As System V does: 14 bits of major, 18 of minor.
        let raw = u32_at(&data.bytes, 0);
        vfs::makedev(raw >> 18, raw & 0x3_ffff)
    }

    /// The file's pages, if anybody has asked for them.
    pub fn mapping_if_any(&self) -> Option<&Arc<Mapping>> {
        self.mapping.get()
    }

    /// Lets `look` see the extents of a fork, which are read at first use. May wait for the device.
    ///
    /// # Errors
    /// The extents cannot be read.
    pub fn extents<R>(
        &self,
        cx: &mut Cx,
        which: Which,
        look: impl FnOnce(&[Extent]) -> R,
    ) -> Result<R, Fault> {
        {
            let forks = self.forks.read(cx);
            if let Some(extents) = &forks.get(which).extents {
                return Ok(look(extents));
            }
        }
        let Some(fs) = self.fs.upgrade() else {
            return Err(Fault::Unsupported("reading after the end of the mount"));
        };
        let mut forks = self.forks.write(cx);
        if forks.get(which).extents.is_none() {
            let list = fs.reader.read_extents(cx, self.ino, forks.get(which), &mut |_| ())?;
            forks.get_mut(which).extents = Some(list.into());
        }
        Ok(look(forks.get(which).extents.as_deref().expect("just read")))
    }
}

impl CachedInode for Inode {
    fn ino(&self) -> Ino {
        self.ino
    }

    fn referenced(&self) -> &AtomicBool {
        &self.referenced
    }

    fn evictable(&self) -> bool {
        if self.referenced.swap(false, Ordering::Relaxed) {
            return false;
        }
        let Some(state) = self.state.try_lock() else { return false };
        let item = &self.item;
        state.opens == 0
            && self.mapping.get().is_none_or(|mapping| mapping.is_idle())
            && self.io.try_lock().is_some_and(|io| io.is_idle())
            && self.cow_fork.try_lock().is_some_and(|cow| cow.is_empty())
            && (!item.is_dirty() || item.is_stale())
    }
}

impl std::fmt::Debug for Inode {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Inode({})", self.ino)
    }
}

/// The type of an inode.
pub(crate) fn kind_of(core: &InodeCore) -> FileType {
    FileType::from_mode(u32::from(core.mode)).expect("checked when the inode was read")
}

/// The flags that `lsattr` shows and `chattr` sets.
pub(crate) const USER_FLAGS: [(Flags, u32); 6] = [
    (Flags::SYNC, 0x8),
    (Flags::IMMUTABLE, 0x10),
    (Flags::APPEND, 0x20),
    (Flags::NODUMP, 0x40),
    (Flags::NOATIME, 0x80),
    (Flags::PROJINHERIT, 0x2000_0000),
];

fn user_flags(flags: Flags) -> u32 {
    USER_FLAGS.iter().filter(|row| flags.contains(row.0)).fold(0, |word, row| word | row.1)
}

impl Xfs {
    /// The inode with this number, from the cache or from the disk. May wait for the device.
    ///
    /// # Errors
    /// `ESTALE` where the inode is not in use or the number is out of range, `EUCLEAN` where it is
    /// damaged, `EIO`.
    pub(crate) fn iget(&self, cx: &mut Cx, ino: Ino) -> Result<Arc<Inode>, Errno> {
        self.check_alive()?;
        let inode = match self.inodes.find(ino) {
            Some(inode) => inode,
            None => self.read_in(cx, ino)?,
        };
        match inode.with(cx, |state| state.freed) {
            true => Err(Errno::ESTALE),
            false => Ok(inode),
        }
    }

    /// Brings an inode into the cache.
    fn read_in(&self, cx: &mut Cx, ino: Ino) -> Result<Arc<Inode>, Errno> {
        if !self.geometry().ino_valid(ino) {
            return Err(Errno::ESTALE);
        }
        self.inodes.read_in(ino, || self.read_inode(cx, ino))
    }

    fn read_inode(&self, cx: &mut Cx, ino: Ino) -> Result<Arc<Inode>, Errno> {
        if let Some(writer) = &self.write {
            let used = writer.inodes.is_used(cx, ino).map_err(|error| self.fail(error))?;
            if !used {
                return Err(Errno::ESTALE);
            }
        }
        let (slot, core) = match self.reader.read_inode(cx, ino) {
            Err(Fault::Corrupt(corrupt)) if corrupt.kind == CorruptKind::InodeFree => {
                return Err(Errno::ESTALE);
            }
            other => other.map_err(|fault| self.fault(fault))?,
        };
        if core.links == 0 || core.flags2.contains(Flags2::METADATA) {
            return Err(Errno::ESTALE);
        }
        if core.is_realtime() && self.realtime.is_none() {
            let what = "a file in the realtime section, without its device (-o rtdev=DEVICE),";
            return Err(self.fault(Fault::Unsupported(what)));
        }
        if core.format == ForkFormat::Local && core.file_type() == 0xa000 && core.size == 0 {
            let kind = CorruptKind::SymlinkSize { size: 0 };
            return Err(self.fault(kind.at(At::Inode(ino)).into()));
        }
        let forks = Forks::new(&slot, &core);
        let item = self.new_item(ino);
        if let Some(quota) = self.quota() {
            if quota.table.holds_records(ino.0) {
                return Err(Errno::ESTALE);
            }
            self.attach_quota(cx, &core)?;
            let content = match core.is_realtime() {
                true => self.reader.read_extents(cx, ino, &forks.data, &mut |_| ()),
                false => Ok(Vec::new()),
            };
            item.begin_charge(&slot, &content.map_err(|fault| self.fault(fault))?);
        }
        Ok(Inode::new(self, item, forks, core))
    }

    /// A clean log item for an inode.
    pub(crate) fn new_item(&self, ino: Ino) -> Arc<InodeItem> {
        let (first, blocks, offset) = self.geometry().ino_cluster(ino);
        let run = [(self.geometry().join(first), blocks)];
        let cluster = buf_maps(self.geometry(), &run)[0];
        InodeItem::new(InodePlace { ino: ino.0, cluster, offset: offset as u32 })
    }
}
