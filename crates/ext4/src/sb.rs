//! The superblock of a mount, and what everything else rests on: the device, the metadata buffers,
//! the journal, and the first error, which ends all writing (Linux: `ext4_sb_info`).

pub(crate) mod bh_lru;
pub(crate) mod legacy;
pub(crate) mod mmp;
pub(crate) mod options;
mod write;

use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use std::sync::{Arc, OnceLock};

use base::grown::Newest;
use base::{Errno, Timespec};
use block::{DeviceError, Queue};
use cache::{BufferCache, BufferRef};
use fscrypt::Policy;
use jbd2::{FastChanges, Journal, RecoveryReport};
use rt::{Cx, SpinLock};

use crate::format::features::RoCompat;
use crate::format::{At, Corrupt, CorruptKind, Geometry};
use crate::sb::options::MountOptions;
use crate::sb::write::FirstError;
use crate::trans::ext4_jbd2::Handle;

/// The superblock and what belongs to it.
pub(crate) struct SuperBlock {
    pub queue: Arc<Queue>,
    pub buffers: Arc<BufferCache>,
    journal: OnceLock<(Arc<Journal>, Option<RecoveryReport>)>,
    /// The shape of the file system. Numbers of blocks, groups and inodes, and where descriptors of
    /// further groups lie, change when it grows; everything else never does.
    pub geometry: Newest<Geometry>,
    pub options: MountOptions,
    /// The block with the superblock, and where in it.
    pub buffer: BufferRef,
    pub offset: usize,
    /// Errno of the first error that stopped writing; 0 while there was none.
    error: AtomicI32,
    /// What the first error was, in words.
    first_error: SpinLock<Option<FirstError>>,
    /// The first metadata block that could not be read, in words.
    read_error: SpinLock<Option<String>>,
    /// The first inode whose key was not given, in words.
    missing_key: SpinLock<Option<String>>,
    /// The log may have the superblock, which is not at its place.
    pub(crate) super_logged: AtomicBool,
    /// Unmounted or shut down: every call returns `EIO`.
    stopped: AtomicBool,
    /// What every handle asks for beside its own credits.
    quota_credits: u32,
}

impl SuperBlock {
    /// Puts together what mounting has read. Nothing waits.
    pub(crate) fn from_parts(
        queue: &Arc<Queue>,
        buffers: &Arc<BufferCache>,
        geometry: Geometry,
        options: &MountOptions,
        buffer: BufferRef,
        offset: usize,
    ) -> SuperBlock {
        SuperBlock {
            queue: queue.clone(),
            buffers: buffers.clone(),
            journal: OnceLock::new(),
            quota_credits: quota_credits(&geometry, options),
            geometry: Newest::new(geometry),
            options: options.clone(),
            buffer,
            offset,
            error: AtomicI32::new(0),
            first_error: SpinLock::new(None),
            read_error: SpinLock::new(None),
            missing_key: SpinLock::new(None),
            super_logged: AtomicBool::new(false),
            stopped: AtomicBool::new(false),
        }
    }

    /// The journal, where there is one.
    #[inline]
    pub fn journal(&self) -> Option<&Arc<Journal>> {
        self.journal.get().map(|(journal, _)| journal)
    }

    /// What the mount replayed from the journal, where it had to.
    pub fn recovery(&self) -> Option<&RecoveryReport> {
        self.journal.get().and_then(|(_, report)| report.as_ref())
    }

    pub(crate) fn set_journal(&self, journal: Arc<Journal>, report: Option<RecoveryReport>) {
        let first = self.journal.set((journal, report)).is_ok();
        assert!(first, "a mount opens its journal once");
    }

    /// The time for time stamps.
    #[inline]
    pub(crate) fn now(&self, cx: &Cx) -> Timespec {
        self.stamp(cx.realtime())
    }

    /// A time as inodes can store it: whole seconds up to 2038 in those of 128 bytes, nanoseconds
    /// up to 2446 in larger ones, the nearest where it lies outside; the first and the last second
    /// are whole ones.
    #[inline]
    pub(crate) fn stamp(&self, time: Timespec) -> Timespec {
        let wide = self.geometry.inode_size > 128;
        let max = i64::from(i32::MAX) + if wide { 3 << 32 } else { 0 };
        let min = i64::from(i32::MIN);
        let nsec = if wide && (min + 1..max).contains(&time.sec) { time.nsec } else { 0 };
        Timespec { sec: time.sec.clamp(min, max), nsec }
    }

    /// Whether changes are possible.
    ///
    /// # Errors
    /// `EROFS` on a read-only mount and after an error, `EIO` after the end of the mount.
    #[inline]
    pub(crate) fn check_writable(&self) -> Result<(), Errno> {
        self.check_alive()?;
        if self.options.read_only || self.error.load(Ordering::Relaxed) != 0 {
            return Err(Errno::EROFS);
        }
        if let Some(errno) = self.journal().and_then(|journal| journal.aborted()) {
            self.latch(errno, format!("the journal was aborted: {errno}"), None);
            return Err(Errno::EROFS);
        }
        Ok(())
    }

    /// Whether the mount still answers.
    ///
    /// # Errors
    /// `EIO` after unmount or shutdown.
    #[inline]
    pub(crate) fn check_alive(&self) -> Result<(), Errno> {
        if self.stopped.load(Ordering::Relaxed) { Err(Errno::EIO) } else { Ok(()) }
    }

    /// Makes every later call answer `EIO`. True the first time.
    pub(crate) fn stop(&self) -> bool {
        !self.stopped.swap(true, Ordering::AcqRel)
    }

    /// The error that stopped writing, in words: for messages.
    pub fn error(&self) -> Option<String> {
        self.first_error.lock_irq().as_ref().map(|first| first.text.clone())
    }

    /// Keeps what [`SuperBlock::read_error`] answers, if it is the first.
    pub(crate) fn note_read_error(&self, text: String) {
        self.read_error.lock_irq().get_or_insert(text);
    }

    /// An inode's key was not given: keeps what [`SuperBlock::missing_key`] answers, if it is the
    /// first, and is what cannot be read.
    pub(crate) fn note_missing_key(&self, ino: u32, policy: &Policy) {
        let text = format!("inode {ino} is {}", self.options.keys.refusal(policy));
        self.missing_key.lock_irq().get_or_insert_with(|| text.clone());
        self.note_read_error(text);
    }

    /// The first inode that was met whose key was not given, with the names of the key that its
    /// policy asks for and of those that were given: for messages.
    pub fn missing_key(&self) -> Option<String> {
        self.missing_key.lock_irq().clone()
    }

    /// The first metadata that could not be read, in words. The mount goes on: whoever needed it
    /// was answered `EIO`, or `EOPNOTSUPP` where its form is not supported.
    pub fn read_error(&self) -> Option<String> {
        self.read_error.lock_irq().clone()
    }

    /// True once an error has stopped writing.
    pub(crate) fn has_error(&self) -> bool {
        self.error.load(Ordering::Relaxed) != 0
    }

    /// Latches the first error: the mount becomes read-only, and unmount marks the file system so
    /// that the next check is a full one.
    pub(crate) fn latch(&self, errno: Errno, text: String, at: Option<At>) {
        let first = self.error.compare_exchange(0, errno.0, Ordering::AcqRel, Ordering::Relaxed);
        if first.is_ok() {
            *self.first_error.lock_irq() = Some(FirstError { text, errno, at });
        }
    }

    /// Takes note of a damaged structure and gives the errno for the caller.
    ///
    /// A wrong checksum and every other damage answer `EUCLEAN`; the mount becomes read-only.
    pub(crate) fn corrupt(&self, _cx: &Cx, corrupt: &Corrupt) -> Errno {
        self.latch(Errno::EFSCORRUPTED, corrupt.to_string(), Some(corrupt.at));
        Errno::EFSCORRUPTED
    }

    /// Takes note of a damaged structure; as [`SuperBlock::corrupt`].
    pub(crate) fn corrupt_kind(&self, cx: &Cx, kind: CorruptKind, at: At) -> Errno {
        self.corrupt(cx, &kind.at(at))
    }

    /// The errno of a device error. A failed write latches: what is in memory can no longer be
    /// kept in step with the disk. A failed read does not.
    pub(crate) fn device_error(&self, _cx: &Cx, error: &DeviceError) -> Errno {
        let errno = error.to_errno();
        if error.op != block::Op::Read {
            self.latch(errno, error.to_string(), None);
        }
        errno
    }

    /// Reads a metadata block.
    ///
    /// # Errors
    /// `EIO` and what else the device answers.
    pub(crate) fn read_block(&self, cx: &mut Cx, block: u64) -> Result<BufferRef, Errno> {
        match self.buffers.read(cx, block) {
            Ok(buffer) => Ok(buffer),
            Err(error) => {
                self.note_read_error(format!("block {block}: {error}"));
                Err(self.device_error(cx, &error))
            }
        }
    }

    /// Whether usage is counted.
    #[inline]
    pub(crate) fn counts_quota(&self) -> bool {
        self.quota_credits > 0
    }

    /// The buffer of a block that was just taken: zeroed, with access, without a trigger.
    pub(crate) fn new_buffer(
        &self,
        cx: &mut Cx,
        handle: &mut Handle,
        block: u64,
    ) -> Result<BufferRef, Errno> {
        let buffer = self.buffers.get(cx, block);
        handle.create_access(cx, &buffer)?;
        buffer.with_mut(|data| data.fill(0));
        buffer.set_trigger(None);
        buffer.set_uptodate();
        buffer.set_verified(true);
        Ok(buffer)
    }

    /// Begins a change of up to `credits` blocks. May wait for log space or for a commit. Fast
    /// commits do not report the change.
    ///
    /// # Errors
    /// `EROFS` on a read-only mount or after an error, `EIO` after a shutdown, the journal's errno
    /// once it has aborted.
    pub(crate) fn journal_start(&self, cx: &mut Cx, credits: u32) -> Result<Handle, Errno> {
        let handle = self.journal_start_tracked(cx, credits)?;
        handle.mark_ineligible();
        Ok(handle)
    }

    /// As [`SuperBlock::journal_start`], for a change that is tracked for fast commits.
    ///
    /// # Errors
    /// As [`SuperBlock::journal_start`].
    pub(crate) fn journal_start_tracked(&self, cx: &mut Cx, credits: u32) -> Result<Handle, Errno> {
        self.check_writable()?;
        match self.journal() {
            Some(journal) => {
                let quota = self.quota_credits;
                Ok(Handle::Journal(journal.start(cx, credits + quota)?, quota))
            }
            None => {
                // Blocks that nobody reads first, as those of fresh inode tables, count too.
                let balanced = self.buffers.balance(cx);
                balanced.map_err(|error| self.device_error(cx, &error))?;
                Ok(Handle::Direct(self.buffers.clone()))
            }
        }
    }

    /// Waits for transaction `tid`, or flushes the device where that will not.
    pub(crate) fn make_durable(&self, cx: &mut Cx, tid: Option<jbd2::Tid>) -> Result<(), Errno> {
        self.make_durable_by(cx, tid, None)
    }

    /// As [`SuperBlock::make_durable`], by a fast commit of `changes` where one can report them.
    pub(crate) fn make_durable_by(
        &self,
        cx: &mut Cx,
        tid: Option<jbd2::Tid>,
        changes: Option<&dyn FastChanges>,
    ) -> Result<(), Errno> {
        let Some(journal) = self.journal().cloned() else {
            let synced = self.buffers.sync(cx);
            synced.map_err(|error| self.device_error(cx, &error))?;
            return self.flush_device(cx);
        };
        let Some(tid) = tid else { return self.flush_device(cx) };
        let barrier = journal.will_send_barrier(tid);
        if let Some(changes) = changes
            && journal.fast_commit(cx, tid, changes)?
        {
            return Ok(());
        }
        journal.commit_tid(cx, tid)?;
        if barrier { Ok(()) } else { self.flush_device(cx) }
    }

    /// Flushes the device's cache, unless the mount goes without barriers.
    ///
    /// # Errors
    /// The device's.
    pub(crate) fn flush_device(&self, cx: &mut Cx) -> Result<(), Errno> {
        if !self.options.barrier.is_safe() {
            return Ok(());
        }
        let flushed = self.queue.flush(cx);
        flushed.map_err(|error| self.device_error(cx, &error))
    }
}

/// The entries of the owners of two inodes, and of the owners that one of them had before.
fn quota_credits(geometry: &Geometry, options: &MountOptions) -> u32 {
    let files = match geometry.features.ro_compat.contains(RoCompat::QUOTA) {
        true => geometry.quota_inos.iter().filter(|ino| **ino != 0).count(),
        false => options.quota_files.iter().flatten().count(),
    };
    4 * files as u32
}
