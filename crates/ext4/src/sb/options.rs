//! The options of a mount.

use base::Nanos;
use fscrypt::KeyRing;
use jbd2::{CommitRecord, JournalIo, JournalMode};
use vfs::direct::DirectOptions;

use crate::format::quota::Form;
use crate::journal_device::JournalDevice;
use crate::sb::bh_lru::BhLru;
use crate::sb::legacy::LegacyLookups;

/// The name of a quota file in the root directory.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct QuotaName {
    bytes: [u8; QuotaName::MAX],
    len: u8,
}

impl QuotaName {
    /// The longest one, in bytes.
    pub const MAX: usize = 62;
    /// Those that quotacheck(8) makes: of users and of groups.
    pub const USUAL: [&str; 2] = ["aquota.user", "aquota.group"];

    /// A name without a directory; None where it is none, or too long.
    pub fn new(name: &str) -> Option<QuotaName> {
        let mut bytes = [0; QuotaName::MAX];
        bytes.get_mut(..name.len())?.copy_from_slice(name.as_bytes());
        let good = !name.is_empty() && !name.contains('/');
        good.then_some(QuotaName { bytes, len: name.len() as u8 })
    }

    /// Its bytes.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[..self.len.into()]
    }
}

impl std::fmt::Debug for QuotaName {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&String::from_utf8_lossy(self.as_bytes()))
    }
}

/// How to mount.
#[derive(Clone, Debug)]
pub struct MountOptions {
    /// Write nothing at all: a dirty journal is replayed in memory.
    pub read_only: bool,
    /// On a read-only mount of a dirty file system: read it as it lies on the disk, without what
    /// the journal holds.
    pub no_replay: bool,
    /// Write without the journal, which stays empty: of an image that nobody sees before it is
    /// unmounted. A cut before leaves nothing to recover from. Not done where the journal must be
    /// replayed.
    pub without_journal: bool,
    /// What goes through the journal. `Data` needs one; without a journal the other two are equal.
    pub data_mode: JournalMode,
    /// Age at which a transaction commits by itself.
    pub commit_interval: Nanos,
    /// How commit records keep their place behind what they seal. With `Plain` the device is never
    /// flushed: a power cut may lose all where its cache is volatile.
    pub barrier: CommitRecord,
    /// What the journal's writes carry.
    pub journal_io: JournalIo,
    /// Who waits for a commit yields his place in the elevator to the journal's task.
    pub journal_yield: bool,
    /// The commit record follows the log by an edge in the queue, not by a wait of the journal's
    /// task.
    pub journal_chain: bool,
    /// Committed metadata goes to its place by the page cache's `dirty_expire` and
    /// `dirty_interval`, by a flusher; else when log space is needed, and at the end.
    pub flush_metadata: bool,
    /// What each CPU keeps in front of the index of buffers. Of use for experiments only: by itself
    /// a mount takes what its transactions need.
    pub bh_lru: BhLru,
    /// Whose lookups of blocks by number it makes. Of use for experiments only: they cost time.
    pub legacy_lookups: LegacyLookups,
    /// Bytes of metadata buffers kept in memory.
    pub buffer_limit_bytes: u64,
    /// Inodes kept in memory.
    pub inode_cache: usize,
    /// Names kept in memory, of 64 bytes each, by which a lookup finds an inode that is in memory;
    /// 0: every lookup searches the directory.
    pub name_cache: usize,
    /// Bound of a readahead window in bytes; `None` leaves the page cache's.
    pub readahead_bytes: Option<u32>,
    /// How direct I/O builds its bios.
    pub direct: DirectOptions,
    /// Direct writes give blocks to holes inside the file; else the page cache does.
    pub direct_holes: bool,
    /// The blocks of a file without extents come out of a window that others keep off. `None` lays
    /// files out as ext3 did where `direct` has one of Linux's rules, and as ours where it has not.
    pub reservation: Option<bool>,
    /// The delayed data of a file get their blocks when it replaces another file by rename, and
    /// when it is closed after it was cut to nothing: then no power cut leaves it empty.
    pub auto_da_alloc: bool,
    /// Dirty pages get unwritten blocks, which become written ones when their content has arrived,
    /// and no commit waits for data: Linux's default since 5.6. After a power cut a new file that
    /// nobody synced may have its size and read as zeros, also where it replaced another one.
    /// For so long what has arrived is taken to be under way still, unless somebody syncs: a crash
    /// then leaves what it leaves on a slow or busy disk.
    pub dioread_nolock: Option<Nanos>,
    /// The device of an external journal. Without it such a file system is only read, if its log is
    /// empty.
    pub journal: Option<JournalDevice>,
    /// The old quota files in the root directory by which users and groups are counted; of no
    /// meaning with the feature `quota`.
    pub quota_files: [Option<QuotaName>; 2],
    /// The form that they must have; none: each its own.
    pub quota_form: Option<Form>,
    /// Master keys of encrypted directories. Where one is not here, names are shown in their no-key
    /// form and contents are refused (`ENOKEY`).
    pub keys: KeyRing,
    /// The name that others read who find the file system in use (`mmp`): at most 63 bytes count.
    pub node: String,
}

impl MountOptions {
    /// Sets [`dioread_nolock`](MountOptions::dioread_nolock), or takes it away; a delay stays.
    pub fn set_dioread_nolock(&mut self, on: bool) {
        self.dioread_nolock = on.then(|| self.dioread_nolock.unwrap_or_default());
    }
}

impl Default for MountOptions {
    fn default() -> MountOptions {
        MountOptions {
            read_only: false,
            no_replay: false,
            without_journal: false,
            data_mode: JournalMode::Ordered,
            commit_interval: Nanos::from_secs(5),
            barrier: CommitRecord::default(),
            journal_io: JournalIo::default(),
            journal_yield: false,
            journal_chain: false,
            flush_metadata: false,
            bh_lru: BhLru::default(),
            legacy_lookups: LegacyLookups::default(),
            buffer_limit_bytes: 256 << 20,
            inode_cache: 65536,
            name_cache: 65536,
            readahead_bytes: None,
            direct: DirectOptions::default(),
            direct_holes: true,
            reservation: None,
            auto_da_alloc: true,
            dioread_nolock: None,
            journal: None,
            quota_files: [None; 2],
            quota_form: None,
            keys: KeyRing::default(),
            node: "iopath".to_string(),
        }
    }
}
