//! Quota: how much space and how many inodes each owner uses and may use.
//!
//! Usage follows from the inodes: what an inode's image says (blocks, owner, group, project) is
//! charged, and the one function that notes images ([`crate::trans::Trans::log_image`]) charges the
//! difference to the one before in the same transaction. So no crash parts usage and inodes,
//! whatever the change was.
//!
//! Limits are asked before: where space is reserved or taken, where an inode is made, where an
//! owner changes. What is reserved counts against the limit until the commit has counted it, and a
//! little longer: never is something counted neither here nor there.
//!
//! The records of an id are brought into memory, and made if need be in a transaction of their
//! own, before anything can be charged to it: when an inode of its is read, and before one is
//! made. They stay there until the unmount.
//!
//! Locks: a quota inode's mutex before its transaction begins; [`crate::log::dquot_item`] states
//! the rest.
//!
//! Compared with Linux: a mount without options goes on counting what the superblock says was
//! counted. Nobody is warned.

mod count;
mod file;
mod hold;
mod mount;

use std::sync::{Arc, OnceLock};

use base::Errno;
use rt::{Cx, Mutex};
use vfs::quota::Kind;

use crate::alloc::Space;
use crate::error::Result;
use crate::format::dquot::{DquotId, QuotaFlags};
use crate::format::inode::InodeCore;
use crate::log::dquot_item::{DquotItem, DquotList, DquotTable, Owners};
use file::QuotaFile;

pub(crate) use file::places;
pub(crate) use hold::QuotaHold;
pub use mount::QuotaMode;
pub(crate) use mount::begin;

/// The quota of a mount.
pub(crate) struct Quota {
    space: Arc<Space>,
    pub table: Arc<DquotTable>,
    files: [OnceLock<Mutex<QuotaFile>>; 3],
}

impl InodeCore {
    /// Who pays for the inode.
    pub(crate) fn owners(&self) -> Owners {
        Owners { uid: self.uid, gid: self.gid, project: self.project }
    }
}

impl Quota {
    fn new(space: &Arc<Space>, table: Arc<DquotTable>) -> Quota {
        let files = [OnceLock::new(), OnceLock::new(), OnceLock::new()];
        Quota { space: space.clone(), table, files }
    }

    pub(crate) fn file(&self, kind: Kind) -> Option<&Mutex<QuotaFile>> {
        self.files[kind as usize].get()
    }

    /// The record of an id of a kind that is counted; it is made if there is none. No transaction
    /// is open. May park.
    ///
    /// # Errors
    /// A record that fails a check; no space for a new one; the device failed.
    pub(crate) fn dquot(&self, cx: &mut Cx, id: DquotId) -> Result<Arc<DquotItem>> {
        if let Some(item) = self.table.find(id) {
            return Ok(item);
        }
        let file = self.file(id.kind).ok_or(Errno::ESRCH)?;
        let mut file = file.lock(cx);
        let found = file.read(cx, &self.space, id)?;
        let raw = match found {
            Some(found) => found,
            None => file.make(cx, &self.space, id)?,
        };
        Ok(self.table.keep(DquotItem::new(id, raw.place, raw.raw)))
    }

    /// The records of these owners, of all kinds that are counted. As [`Quota::dquot`].
    ///
    /// # Errors
    /// As [`Quota::dquot`].
    pub(crate) fn dquots(&self, cx: &mut Cx, owners: &Owners) -> Result<DquotList> {
        let mut list = DquotList::new();
        for kind in self.table.kinds() {
            list.push(self.dquot(cx, owners.id(kind))?);
        }
        Ok(list)
    }

    /// Whether the limits of a kind hold.
    fn enforced(&self, kind: Kind) -> bool {
        self.table.flags().contains(QuotaFlags::enforced(kind))
    }
}
