//! The device of an external journal (`mke2fs -O journal_dev`): what it says, and its users.
//!
//! It has a superblock of the file system's kind, with the feature `journal_dev`, and in the next
//! block the journal's, which lists the UUIDs of the file systems that log there. Neither Linux nor
//! e2fsck take a journal with two of them.

use std::fmt;
use std::sync::Arc;

use base::{Page, Sector};
use block::{BioFlags, DeviceError, Queue};
use jbd2::format::{Superblock, SuperblockError};
use rt::Cx;
use uuid::Uuid;

use crate::format::RawSuper;
use crate::format::features::Incompat;
use crate::format::super_block::{MAGIC, SUPER_OFFSET, SUPER_SIZE};

/// The device of an external journal. Cheap to clone.
#[derive(Clone)]
pub struct JournalDevice(pub Arc<Queue>);

impl fmt::Debug for JournalDevice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "JournalDevice({} sectors)", self.0.info().sectors)
    }
}

/// Why a device is not the journal of a file system.
#[derive(Clone, Debug, thiserror::Error)]
pub enum JournalDeviceError {
    /// The device failed.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// No room for a superblock.
    #[error("its device has only {0} bytes")]
    Short(u64),
    /// No superblock with the feature `journal_dev`.
    #[error("the device given for it holds no external journal")]
    NotOne,
    /// Blocks above 64 KiB.
    #[error("its superblock has blocks of 2^{0} KiB")]
    BlockSize(u32),
    /// The journal's own superblock is damaged, or has features that are not known.
    #[error("its log: {0}")]
    Log(#[from] SuperblockError),
    /// A journal without a list of users.
    #[error("its log has version 1, which lists no users: make it anew")]
    Version,
    /// Another file system logs there.
    #[error(
        "journal {journal} is that of file system {user}: remove it there first (iopath tune -O \
         ^has_journal), or make the journal anew (iopath mkfs -F -O journal_dev)"
    )]
    InUse {
        /// UUID of the journal.
        journal: Uuid,
        /// UUID of the first other file system.
        user: Uuid,
    },
    /// There is something to replay.
    #[error("the log of journal {0} is not empty: its file system must replay it first")]
    Dirty(Uuid),
}

/// What the device of an external journal says.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct JournalFacts {
    /// UUID of the journal, which the superblock of its file system names.
    pub uuid: [u8; 16],
    /// Name of the volume.
    pub label: Vec<u8>,
    /// Bytes of a block, the file system's too.
    pub block_size: u32,
    /// Blocks, those before the log included.
    pub blocks: u32,
    /// UUIDs of the file systems that log there.
    pub users: Vec<[u8; 16]>,
    /// The log holds something.
    pub dirty: bool,
}

/// The journal's superblock, and where it lies.
struct Log {
    start: Sector,
    bytes: Vec<u8>,
    sb: Superblock,
}

impl JournalDevice {
    /// The block of the journal's superblock, with blocks of so many bytes.
    pub(crate) fn log_block(block_size: u32) -> u64 {
        SUPER_OFFSET / u64::from(block_size) + 1
    }

    /// The superblock of the device. May park.
    ///
    /// # Errors
    /// The device holds no external journal; the device's.
    pub(crate) fn super_block(&self, cx: &mut Cx) -> Result<RawSuper, JournalDeviceError> {
        let len = 2048.max(self.0.info().logical_block as usize);
        if self.0.info().bytes() < len as u64 {
            return Err(JournalDeviceError::Short(self.0.info().bytes()));
        }
        let page = self.0.read(cx, Sector(0), len)?;
        let bytes = &page[SUPER_OFFSET as usize..SUPER_OFFSET as usize + SUPER_SIZE];
        let raw = RawSuper::read(bytes).expect("the slice has the size");
        let is_journal = raw.features().incompat.contains(Incompat::JOURNAL_DEV);
        if raw.s_magic.get() != MAGIC || !is_journal {
            return Err(JournalDeviceError::NotOne);
        }
        match raw.s_log_block_size.get() {
            0..=6 => Ok(raw),
            log => Err(JournalDeviceError::BlockSize(log)),
        }
    }

    fn read_log(&self, cx: &mut Cx, raw: &RawSuper) -> Result<Log, JournalDeviceError> {
        let block_size = 1024 << raw.s_log_block_size.get();
        let start =
            Sector::from_bytes(JournalDevice::log_block(block_size) * u64::from(block_size));
        let bytes = self.0.read(cx, start, block_size as usize)?.to_vec();
        let sb = Superblock::parse(&bytes)?;
        match sb.version {
            1 => Err(JournalDeviceError::Version),
            _ => Ok(Log { start, bytes, sb }),
        }
    }

    /// What the device says. May park.
    ///
    /// # Errors
    /// The device holds no external journal, or a damaged one; the device's.
    pub fn facts(&self, cx: &mut Cx) -> Result<JournalFacts, JournalDeviceError> {
        let raw = self.super_block(cx)?;
        let sb = self.read_log(cx, &raw)?.sb;
        Ok(JournalFacts {
            uuid: raw.s_uuid,
            label: raw.label().to_vec(),
            block_size: 1024 << raw.s_log_block_size.get(),
            blocks: raw.s_blocks_count_lo.get(),
            users: sb.users,
            dirty: sb.start != 0,
        })
    }

    /// What the device says, if a file system may begin to log there: one with this UUID, where it
    /// is known. May park.
    ///
    /// # Errors
    /// As [`facts`](JournalDevice::facts); another file system's journal; a log that is not empty.
    pub fn free_for(
        &self,
        cx: &mut Cx,
        uuid: Option<[u8; 16]>,
    ) -> Result<JournalFacts, JournalDeviceError> {
        let facts = self.facts(cx)?;
        let journal = Uuid::from_bytes(facts.uuid);
        if let Some(&user) = facts.users.iter().find(|&&user| Some(user) != uuid) {
            return Err(JournalDeviceError::InUse { journal, user: Uuid::from_bytes(user) });
        }
        match facts.dirty {
            true => Err(JournalDeviceError::Dirty(journal)),
            false => Ok(facts),
        }
    }

    /// Makes the file system with this UUID the journal's user; durable. May park.
    ///
    /// # Errors
    /// As [`free_for`](JournalDevice::free_for).
    pub fn enter(&self, cx: &mut Cx, uuid: [u8; 16]) -> Result<(), JournalDeviceError> {
        self.free_for(cx, Some(uuid))?;
        self.set_users(cx, |users| *users = vec![uuid])
    }

    /// The journal's user has another UUID; durable. Nothing to do where that was done. May park.
    ///
    /// # Errors
    /// As [`free_for`](JournalDevice::free_for).
    pub fn replace_user(
        &self,
        cx: &mut Cx,
        from: [u8; 16],
        to: [u8; 16],
    ) -> Result<(), JournalDeviceError> {
        let users = self.facts(cx)?.users;
        let known = if users.contains(&to) { to } else { from };
        self.free_for(cx, Some(known))?;
        self.set_users(cx, |users| *users = vec![to])
    }

    /// Takes the file system with this UUID from the journal's users, if it is one; durable. May
    /// park.
    ///
    /// # Errors
    /// As [`facts`](JournalDevice::facts).
    pub fn leave(&self, cx: &mut Cx, uuid: [u8; 16]) -> Result<(), JournalDeviceError> {
        self.set_users(cx, |users| users.retain(|&user| user != uuid))
    }

    fn set_users(
        &self,
        cx: &mut Cx,
        change: impl FnOnce(&mut Vec<[u8; 16]>),
    ) -> Result<(), JournalDeviceError> {
        let raw = self.super_block(cx)?;
        let Log { start, mut bytes, mut sb } = self.read_log(cx, &raw)?;
        let before = sb.users.clone();
        change(&mut sb.users);
        if sb.users != before {
            sb.emit_users(&mut bytes);
            self.0.write(cx, start, Page::from_slice(&bytes), BioFlags::META)?;
            self.0.flush(cx)?;
        }
        Ok(())
    }
}
