//! The circular log: its head, its tail, and the superblock that names the tail.

use std::sync::Arc;

use base::Page;
use block::{Bio, BioFlags, DeviceError, EndIo, IoGroup, Plug, Queue};
use rt::Cx;

use crate::area::LogDevice;
use crate::error::JournalError;
use crate::format::superblock::SUPERBLOCK_SIZE;
use crate::format::{Incompat, Layout, Superblock, SuperblockError, TagLayout};
use crate::options::JournalOptions;

/// Blocks of a log beside which fast commits are written (`mke2fs` makes no smaller journal).
const LOG_LEAST: u32 = 1024;

/// The log on its device. Only the journal's task (or recovery, before it) has one.
pub(crate) struct Log {
    pub device: LogDevice,
    pub sb: Superblock,
    /// The superblock's whole block: what we do not own in it stays as it is.
    sb_page: Page,
    pub layout: Layout,
    /// Next block to write.
    pub head: u32,
    /// Sequence number of the next transaction on disk.
    pub sequence: u32,
    /// Blocks from the tail *on disk* to the head: they must not be overwritten.
    pub used: u32,
    /// The superblock on disk lacks something that is set in `sb`.
    pub sb_stale: bool,
    /// The superblock on disk says that there may be fast commits.
    fast_on_disk: bool,
}

impl Log {
    /// Reads and checks the superblock. May park.
    pub fn load(
        cx: &mut Cx,
        mut device: LogDevice,
        options: &JournalOptions,
    ) -> Result<Log, JournalError> {
        if device.area.is_empty() {
            return Err(JournalError::Area { maxlen: 0, mapped: 0 });
        }
        let sb_page = device.read(cx, 0)?;
        let mut sb = Superblock::parse(&sb_page[..SUPERBLOCK_SIZE.min(sb_page.len())])?;
        if sb.block_size != device.block_size {
            let (journal, fs) = (sb.block_size, device.block_size);
            return Err(JournalError::BlockSize { journal, fs });
        }
        let mapped = device.area.len();
        if sb.maxlen > mapped {
            return Err(JournalError::Area { maxlen: sb.maxlen, mapped: mapped.into() });
        }
        if device.area.is_external()
            && let Some(uuid) = options.fs_uuid
            && !sb.users.contains(&uuid)
        {
            return Err(JournalError::NotUser(uuid::Uuid::from_bytes(uuid)));
        }
        if device.area.is_external() && u64::from(sb.first) <= device.area.map(0).0 {
            // A log that would run over its own superblock.
            let Superblock { maxlen, first, fast_commit_blocks: fast_commit, .. } = sb;
            return Err(SuperblockError::Length { maxlen, first, fast_commit }.into());
        }
        device.block_size = sb.block_size;
        if sb.version == 1 {
            sb.users.clear();
        }
        Ok(Log {
            layout: Layout::new(&sb),
            head: sb.first,
            sequence: sb.sequence,
            used: 0,
            sb_stale: false,
            fast_on_disk: sb.incompat.contains(Incompat::FAST_COMMIT),
            device,
            sb,
            sb_page,
        })
    }

    /// Blocks of the log.
    pub fn capacity(&self) -> u32 {
        self.sb.log_end() - self.sb.first
    }

    /// Blocks that may be written without touching what the superblock on disk protects. One block
    /// is always kept, so that a full log and an empty one differ.
    pub fn free(&self) -> u32 {
        self.capacity() - 1 - self.used
    }

    /// Buffers that one transaction may hold: a quarter of the log, as Linux has it; so its
    /// descriptors, revokes and commit block always fit as well.
    pub fn max_transaction(&self) -> u32 {
        (self.capacity() / 4).max(1)
    }

    /// Buffers that a transaction may hold where the log is empty: with their descriptors, the
    /// commit block, and the block that is always kept.
    pub fn room(&self) -> u32 {
        let per_descriptor = TagLayout::new(&self.layout).per_block(&self.layout) as u32;
        let most = self.capacity().saturating_sub(3);
        most - most.div_ceil(per_descriptor + 1)
    }

    /// The block that follows `log` in the circle by `n`.
    pub fn advance(&self, log: u32, n: u32) -> u32 {
        let (first, capacity) = (self.sb.first, self.capacity());
        let offset = u64::from(log - first) + u64::from(n);
        first + (offset % u64::from(capacity)) as u32
    }

    /// Blocks from `from` forward to `to`.
    pub fn distance(&self, from: u32, to: u32) -> u32 {
        if to >= from { to - from } else { self.capacity() - (from - to) }
    }

    /// Submits `pages` at the head and moves it. The caller has made sure of the space.
    pub fn append(
        &mut self,
        cx: &mut Cx,
        pages: &[Page],
        flags: BioFlags,
        io: (&mut Plug, &IoGroup),
    ) {
        let (plug, group) = io;
        let until_end = (self.sb.log_end() - self.head) as usize;
        let (here, wrapped) = pages.split_at(pages.len().min(until_end));
        self.device.write_run(cx, self.head, here, flags, (&mut *plug, group));
        if !wrapped.is_empty() {
            self.device.write_run(cx, self.sb.first, wrapped, flags, (plug, group));
        }
        self.head = self.advance(self.head, pages.len() as u32);
        self.used += pages.len() as u32;
    }

    /// The write of one page at the head, which moves. The caller has made sure of the space.
    pub fn append_later(&mut self, page: Page, flags: BioFlags, end: EndIo) -> Bio {
        let bio = self.device.write_of(self.head, page, flags, end);
        self.head = self.advance(self.head, 1);
        self.used += 1;
        bio
    }

    /// The superblock's block as it shall be on disk now.
    pub fn superblock_page(&mut self) -> Page {
        self.sb.emit(self.sb_page.make_mut());
        self.sb_stale = false;
        self.fast_on_disk = self.sb.incompat.contains(Incompat::FAST_COMMIT);
        self.sb_page.clone()
    }

    /// Keeps the last blocks for fast commits, where enough is left for the log. The log is empty.
    pub fn keep_fast_commits(&mut self) {
        let blocks = Superblock::fast_commit_blocks_of(&self.sb_page);
        let least = LOG_LEAST;
        if blocks >= 2 && self.sb.maxlen.checked_sub(blocks).is_some_and(|end| end >= least) {
            self.sb.version = 2;
            self.sb.incompat |= Incompat::FAST_COMMIT;
            self.sb.fast_commit_blocks = blocks;
        }
    }

    /// The journal ends, and with it what the superblock says of fast commits. True where that is
    /// to be written.
    pub fn drop_fast_commits(&mut self) -> bool {
        self.sb.incompat.remove(Incompat::FAST_COMMIT);
        self.fast_on_disk
    }

    /// Whether the superblock on disk makes recovery look for fast commits.
    pub fn allows_fast_commits(&self) -> bool {
        self.fast_on_disk && self.sb.start != 0 && !self.sb_stale
    }

    /// Writes the superblock and waits. May park.
    pub fn write_superblock(&mut self, cx: &mut Cx, flags: BioFlags) -> Result<(), DeviceError> {
        let page = self.superblock_page();
        self.device.write(cx, 0, page, flags)
    }

    /// Makes `start` and `sequence` the tail on disk, after everything that was written to its
    /// place is on the medium: only then may the blocks before the tail be overwritten. May park.
    pub fn move_tail(
        &mut self,
        cx: &mut Cx,
        fs: &Arc<Queue>,
        (start, sequence): (u32, u32),
        options: &JournalOptions,
    ) -> Result<(), DeviceError> {
        if options.commit_record.is_safe() && self.device.area.is_external() {
            fs.flush(cx)?;
        }
        self.sb.start = start;
        self.sb.sequence = sequence;
        self.write_superblock(cx, options.tail_flags(&self.device.queue))?;
        self.used = if start == 0 { 0 } else { self.distance(start, self.head) };
        Ok(())
    }
}
