//! The count that shows whether walks over directories are still good: see
//! [`FileSystem::walk_version`](crate::FileSystem::walk_version).

use std::sync::atomic::{AtomicU64, Ordering};

use super::NameCache;

/// In a cache line of its own, which every walk reads.
#[derive(Default)]
#[repr(align(64))]
pub(crate) struct Walks(AtomicU64);

impl NameCache {
    /// The count for [`FileSystem::walk_version`](crate::FileSystem::walk_version); none where
    /// names are not cached.
    pub fn walk_version(&self) -> Option<u64> {
        self.is_used().then(|| self.walks.0.load(Ordering::Acquire))
    }

    /// After a change of a directory's place, owner, mode, flags or ACL can be seen, before the
    /// operation returns.
    pub fn outdate_walks(&self) {
        self.walks.0.fetch_add(1, Ordering::AcqRel);
    }

    /// The same where the change concerned a directory.
    pub fn outdate_walks_if(&self, directory: bool) {
        if directory {
            self.outdate_walks();
        }
    }

    /// The same after an extended attribute was set or removed: an ACL may let other tasks pass a
    /// directory.
    pub fn outdate_walks_if_acl(&self, name: &[u8]) {
        self.outdate_walks_if(name.starts_with(b"system."));
    }
}
