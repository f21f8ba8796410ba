//! Data of regular files: buffered reads and writes, delayed allocation, write-back.
//!
//! A write only reserves space ([`IomapOps::reserve`]); blocks are taken when the pages are
//! written out, in runs as long as the dirty data. The bios are on their way before the handle that
//! made the blocks known ends, and the commit waits for them ([`jbd2::OrderedData`]): so no crash
//! shows what was on the disk before. The size on the disk grows in the same handle. With
//! [`dioread_nolock`](crate::MountOptions::dioread_nolock) no commit waits: see [`arrived`].

mod arrived;
pub(crate) mod delalloc;
pub(crate) mod direct;
pub(crate) mod fallocate;
mod fast_commit;
pub(crate) mod fsync;
pub(crate) mod inline;
pub(crate) mod iomap;
pub(crate) mod journal_data;
pub(crate) mod truncate;
pub(crate) mod verity;

use std::ops::Range;
use std::sync::Arc;

use base::Errno;
use cache::{InMemory, Intent, Iomap, IomapIter, IomapOps, Mapping, WritebackControl};
use jbd2::JournalMode;
use rt::Cx;

use crate::alloc::mballoc::Purpose;
use crate::attr::inline as content;
use crate::bmap::map::{Create, Mapped, State};
use crate::inode::{Inode, Inodes};
use crate::trans::credits;
use crate::trans::ext4_jbd2::Handle;

impl Inode {
    fn mount(&self) -> Result<Arc<Inodes>, Errno> {
        self.fs.upgrade().ok_or(Errno::EIO)
    }

    /// Compares content with the tree of hashes, if the file has one.
    fn verify(&self, offset: u64, bytes: &mut [u8]) -> Result<(), Errno> {
        match self.verity().map(|known| known.compare(offset, bytes)) {
            Some(Err(at)) => Err(verity::note_difference(&*self.mount()?, self, at)),
            _ => Ok(()),
        }
    }
}

impl IomapOps for Inode {
    fn begin(
        &self,
        cx: &mut Cx,
        iter: &mut IomapIter<'_>,
        range: Range<u64>,
    ) -> Result<Iomap, Errno> {
        if iter.intent != Intent::Report {
            self.check_key()?;
        }
        let fs = self.mount()?;
        let part = fs.map_part(cx, self, iter, range)?;
        if let Some(known) = self.verity()
            && iter.intent == Intent::Read
        {
            verity::prepare(cx, &fs, self, known, &part)?;
        }
        Ok(part)
    }

    fn end(
        &self,
        cx: &mut Cx,
        iter: &mut IomapIter<'_>,
        range: Range<u64>,
        complete: bool,
    ) -> (u64, Result<(), Errno>) {
        match self.mount() {
            Ok(fs) => fs.end_direct_write(cx, self, iter, range, complete),
            Err(errno) => (range.start, Err(errno)),
        }
    }

    fn boundary(&self, cx: &mut Cx, part: &Iomap) -> bool {
        let Ok(fs) = self.mount() else { return false };
        let bits = fs.sb.geometry.block_bits;
        let (lblk, len) = ((part.offset >> bits) as u32, (part.len >> bits) as u32);
        !self.has_extents(cx) && fs.bmap(self).indirect_boundary(lblk, len)
    }

    fn prefetch(&self, cx: &mut Cx, at: u64) -> bool {
        let Ok(fs) = self.mount() else { return false };
        let lblk = u32::try_from(at >> fs.sb.geometry.block_bits);
        !self.has_extents(cx) && lblk.is_ok_and(|lblk| fs.bmap(self).indirect_prefetch(cx, lblk))
    }

    fn in_memory(&self, cx: &mut Cx, part: &Iomap) -> InMemory {
        let mut newer = self.mount().map(|fs| fs.newer_blocks(cx, self, part)).unwrap_or_default();
        if let Some(known) = self.verity() {
            // The device is asked for what differs, and that is compared again.
            newer.retain(|(offset, page)| known.compare(*offset, page.make_mut()).is_ok());
        }
        newer
    }

    fn reserve(&self, cx: &mut Cx, range: Range<u64>) -> Result<(), Errno> {
        self.check_key()?;
        let fs = self.mount()?;
        let bits = fs.sb.geometry.block_bits;
        let from = u32::try_from(range.start >> bits).map_err(|_| Errno::EFBIG)?;
        let to = u32::try_from(range.end.div_ceil(1 << bits)).map_err(|_| Errno::EFBIG)?;
        fs.reserve_range(cx, self, from, to)
    }

    fn is_encoded(&self) -> bool {
        self.crypt().is_some() || self.verity().is_some()
    }

    fn decode(&self, offset: u64, bytes: &mut [u8]) -> Result<(), Errno> {
        if let Some(crypt) = self.crypt() {
            crypt.key()?.decrypt(offset, bytes);
        }
        self.verify(offset, bytes)
    }

    fn decode_to(&self, offset: u64, from: &[u8], to: &mut [u8]) -> Result<(), Errno> {
        match self.crypt() {
            Some(crypt) => crypt.key()?.decrypt_to(offset, from, to),
            None => to.copy_from_slice(from),
        }
        self.verify(offset, to)
    }

    fn encode(&self, offset: u64, bytes: &mut [u8]) {
        if let Some(crypt) = self.crypt() {
            crypt.key().expect("only who has the key writes").encrypt(offset, bytes);
        }
    }

    fn ioend(&self, range: Range<u64>, result: Result<(), Errno>) {
        let fs = self.fs.upgrade().filter(|fs| fs.sb.options.dioread_nolock.is_some());
        if result.is_ok()
            && let Some(fs) = fs
        {
            fs.content_arrived(self, range);
        }
    }

    fn writepages(
        &self,
        cx: &mut Cx,
        mapping: &Arc<Mapping>,
        wb: &mut WritebackControl<'_>,
    ) -> Result<(), Errno> {
        let fs = self.mount()?;
        let guard = self.writeback.lock(cx);
        let mut result = fs.write_dirty_pages(cx, self, mapping, wb);
        if result.is_ok() && self.with(cx, |core| core.times_dirty && !core.dead) {
            result = fs.write_inode(cx, self);
        }
        drop(guard);
        result
    }
}

impl jbd2::OrderedData for Inode {
    fn flush(&self, cx: &mut Cx) -> Result<(), Errno> {
        match self.mapping_if_any() {
            Some(mapping) => mapping.wait(cx),
            None => Ok(()),
        }
    }

    fn taken(&self, cx: &Cx) {
        self.with(cx, |core| core.ordered_tid = None);
    }
}

impl Inodes {
    /// Writes an inode whose times changed without a handle.
    pub(crate) fn write_inode(&self, cx: &mut Cx, inode: &Inode) -> Result<(), Errno> {
        let mut handle = self.fields_handle(cx, inode)?;
        self.mark_dirty(cx, &mut handle, inode)?;
        handle.stop(cx)
    }

    /// A handle for the fields of an inode: fast commits report those of regular files.
    pub(crate) fn fields_handle(&self, cx: &mut Cx, inode: &Inode) -> Result<Handle, Errno> {
        let credits = credits::INODE + credits::SUPER;
        match inode.is_regular(cx) {
            true => self.sb.journal_start_tracked(cx, credits),
            false => self.sb.journal_start(cx, credits),
        }
    }

    /// The body of `writepages`, under the inode's write-back lock.
    fn write_dirty_pages(
        &self,
        cx: &mut Cx,
        inode: &Inode,
        mapping: &Arc<Mapping>,
        wb: &mut WritebackControl<'_>,
    ) -> Result<(), Errno> {
        let bits = self.sb.geometry.block_bits;
        let journaled = inode.journals_data(cx, &self.sb);
        let mut result = Ok(());
        while let Some(range) = mapping.next_dirty(cx, wb)? {
            self.sb.check_alive()?;
            let from = (range.start >> bits) as u32;
            let mut to = range.end.div_ceil(1 << bits) as u32;
            if journaled {
                to = to.min(from + journal_data::BLOCKS_MAX);
            }
            let mapped = self.bmap(inode).map_lookup(cx, from, to - from)?;
            let end = range.end.min(mapping.size());
            let on_disk = inode.with(cx, |core| core.values.size);
            let run_end = (u64::from(from + mapped.len) << bits).min(end);
            if mapped.state == State::Written && run_end <= on_disk && !journaled {
                self.write_run(cx, mapping, wb, &mapped);
                continue;
            }
            if let Err(errno) = self.write_new_run(cx, inode, mapping, wb, &mapped) {
                // A mount that takes no changes any more leaves everything as it is.
                self.sb.check_writable()?;
                self.give_up(cx, inode, mapping, &mapped, errno);
                result = result.and(Err(errno));
            }
        }
        result
    }

    /// A dirty run cannot be placed: its pages are dropped, with what was reserved for them, as
    /// Linux drops them. Waiting would not help: what was reserved is at hand, so this is what
    /// nobody reserved, or an error of the device.
    fn give_up(
        &self,
        cx: &mut Cx,
        inode: &Inode,
        mapping: &Arc<Mapping>,
        run: &Mapped,
        errno: Errno,
    ) {
        let bits = self.sb.geometry.block_bits;
        let (from, to) = (run.lblk, run.lblk + run.len);
        mapping.give_up(cx, u64::from(from) << bits..u64::from(to) << bits, errno);
        inode.release_delayed(cx, &self.alloc, from, to);
    }

    fn write_run(
        &self,
        cx: &mut Cx,
        mapping: &Arc<Mapping>,
        wb: &mut WritebackControl<'_>,
        mapped: &Mapped,
    ) {
        let bits = self.sb.geometry.block_bits;
        let sector = base::FsBlock(mapped.pblk).sector(self.sb.geometry.block_size);
        let (off, len) = (u64::from(mapped.lblk) << bits, u64::from(mapped.len) << bits);
        mapping.write_extent(cx, wb, off, len, sector);
    }

    /// Writes a run that needs blocks, another state, or a larger size on the disk.
    fn write_new_run(
        &self,
        cx: &mut Cx,
        inode: &Inode,
        mapping: &Arc<Mapping>,
        wb: &mut WritebackControl<'_>,
        run: &Mapped,
    ) -> Result<(), Errno> {
        self.commit_unmapped(cx, inode)?;
        let (len, purpose) = self.run_purpose(cx, inode, run);
        let journaled = inode.journals_data(cx, &self.sb);
        let need = self.bmap(inode).map_credits(cx) + if journaled { len } else { 0 };
        let mut handle = self.sb.journal_start_tracked(cx, need)?;
        if journaled {
            handle.mark_ineligible();
        }
        let unwritten = self.places_unwritten(cx, inode);
        if unwritten {
            self.arrivals.run_in(cx);
        }
        let create = Create { unwritten, ..Create::delayed(purpose, mapping.size()) };
        let taken = self.take_inline(cx, &mut handle, inode)?;
        let created = self.bmap(inode).map_create(cx, &mut handle, run.lblk, len, create);
        let (mapped, _) = match created {
            Ok(created) => created,
            Err(errno) => {
                if let Some(bytes) = taken {
                    content::write(self, cx, &mut handle, &inode.arc(), &bytes)?;
                }
                // Nodes may have been split before the space ran out.
                self.mark_dirty(cx, &mut handle, inode)?;
                handle.stop(cx)?;
                return Err(errno);
            }
        };
        if journaled {
            self.journal_run(cx, &mut handle, mapping, wb, &mapped)?;
        } else {
            self.write_run(cx, mapping, wb, &mapped);
        }
        self.mark_dirty(cx, &mut handle, inode)?;
        if !journaled && !unwritten {
            self.order_data(cx, &mut handle, inode);
        }
        handle.stop(cx)
    }

    /// How many blocks of the run to ask for at once, and whether they were reserved.
    fn run_purpose(&self, cx: &Cx, inode: &Inode, run: &Mapped) -> (u32, Purpose) {
        if run.state != State::Hole {
            return (run.len, Purpose::Data);
        }
        let delayed = inode.delayed.lock(cx);
        let first = delayed.holes().within(run.lblk..run.lblk + run.len).next();
        match first {
            Some(range) if range.start == run.lblk => (range.end - range.start, Purpose::Delayed),
            Some(range) => (range.start - run.lblk, Purpose::Data),
            None => (run.len, Purpose::Data),
        }
    }

    /// Has the commit wait for the inode's data in flight.
    fn order_data(&self, cx: &mut Cx, handle: &mut Handle, inode: &Inode) {
        if let Handle::Journal(journal, _) = handle
            && self.sb.options.data_mode == JournalMode::Ordered
        {
            let tid = Some(journal.tid());
            let first = inode.with(cx, |core| std::mem::replace(&mut core.ordered_tid, tid) != tid);
            if first {
                journal.add_ordered(cx, inode.arc());
            }
        }
    }

    /// The content changes now; the times go to the disk with the data.
    #[inline]
    pub(crate) fn stamp_times(&self, cx: &Cx, inode: &Inode) {
        let now = self.sb.now(cx);
        inode.with(cx, |core| {
            core.mtime = now;
            core.ctime = now;
            core.times_dirty = true;
        });
    }
}
