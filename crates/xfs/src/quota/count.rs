//! Quotacheck: what the inodes have is counted, and the records are made to say so.

use std::collections::BTreeMap;

use base::Ino;
use rt::Cx;
use vfs::quota::Kind;

use super::Quota;
use crate::buf::INODE_CLUSTER;
use crate::error::Result;
use crate::format::Corrupt;
use crate::format::dquot::{self, DquotId};
use crate::format::inode::{self, InodeCore};
use crate::ialloc::{Inodes, cluster_of};
use crate::log::dquot_item::{Charge, DquotChange, Usage};
use crate::trans::{Trans, reservations};
use crate::uncached::UncachedInode;

/// Records that one transaction changes.
const AT_ONCE: usize = 30;

/// Usage by id.
pub(super) type Counted = BTreeMap<DquotId, Usage>;

impl Quota {
    /// What all inodes have, for the ids of these kinds. May park.
    ///
    /// # Errors
    /// An inode or a tree that fails a check; the device failed.
    pub(super) fn count(&self, cx: &mut Cx, inodes: &Inodes, kinds: &[Kind]) -> Result<Counted> {
        let space = &self.space;
        let mut counted = Counted::new();
        for ag in 0..space.geometry.ag_count() {
            for ino in inodes.all_used_in(cx, ag)? {
                if self.table.holds_records(ino.0) {
                    continue;
                }
                let charge = self.charge_of(cx, ino)?;
                for &kind in kinds {
                    *counted.entry(charge.owners.id(kind)).or_default() += charge.usage;
                }
            }
        }
        Ok(counted)
    }

    fn charge_of(&self, cx: &mut Cx, ino: Ino) -> Result<Charge> {
        let geometry = &self.space.geometry;
        let (cluster, offset) = cluster_of(geometry, ino);
        let size = geometry.inode_size as usize;
        let buf = self.space.log.bufs().read(cx, &[cluster], &INODE_CLUSTER)?;
        let found = buf.with_range(offset, size, |slot| {
            inode::verify(slot, ino, geometry)?;
            let core = InodeCore::parse(slot, ino, geometry)?;
            Ok::<_, Corrupt>((core.is_realtime(), Charge::of(slot, 0)))
        });
        drop(buf);
        match found? {
            // How much of its blocks lies in the section is in the map.
            (true, _) => Ok(UncachedInode::read(cx, &self.space, ino)?.item.charge()),
            (false, charge) => Ok(charge),
        }
    }

    /// Makes the records of a kind say what was counted. May park.
    ///
    /// # Errors
    /// A record that fails a check; no space for a new one; the device failed.
    pub(super) fn correct(&self, cx: &mut Cx, kind: Kind, counted: &Counted) -> Result<()> {
        let mut wrong = self.used_and_not_counted(cx, kind, counted)?;
        let of_kind = DquotId { kind, id: 0 }..=DquotId { kind, id: u32::MAX };
        wrong.extend(counted.range(of_kind).map(|(&id, &usage)| (id, usage)));
        let wrong: Vec<_> = wrong.into_iter().collect();
        for few in wrong.chunks(AT_ONCE) {
            let mut changes = Vec::new();
            for &(id, usage) in few {
                let item = self.dquot(cx, id)?;
                let missing = usage - Usage::of_record(&item.raw());
                if missing != Usage::default() {
                    changes.push((item, DquotChange::Add(missing)));
                }
            }
            let log = &self.space.log;
            let mut trans = Trans::alloc(cx, log, reservations::dquots(AT_ONCE as u32))?;
            changes.into_iter().for_each(|(item, change)| trans.log_dquot(item, change));
            trans.commit(cx)?;
        }
        Ok(())
    }

    /// Ids whose records say that they use something, of which nothing was counted.
    fn used_and_not_counted(&self, cx: &mut Cx, kind: Kind, counted: &Counted) -> Result<Counted> {
        let mut list = Counted::new();
        let Some(file) = self.file(kind) else { return Ok(list) };
        let file = file.lock(cx);
        let per_block = u64::from(dquot::per_block(self.space.geometry.block_size));
        for block in file.blocks() {
            for id in
                (block * per_block..(block + 1) * per_block).map_while(|id| id.try_into().ok())
            {
                let id = DquotId { kind, id };
                let Some(found) = file.read(cx, &self.space, id)? else { continue };
                if found.raw.is_used() && !counted.contains_key(&id) {
                    list.insert(id, Usage::default());
                }
            }
        }
        Ok(list)
    }
}
