//! Lists of inodes without a name that are still in use, or were not yet freed.
//!
//! Each AGI has 64 of them, chained through the inodes on the device, so that recovery finds what a
//! crash left over. Who is in front of whom is kept in memory, so that an inode in the middle can
//! leave.

use std::collections::BTreeMap;

use base::Ino;
use rt::Cx;

use super::Inodes;
use crate::buf::{BufMap, INODE_CLUSTER};
use crate::error::Result;
use crate::format::ag::UNLINKED_BUCKETS;
use crate::format::{AgInode, At, CorruptKind, Geometry, Kind, NULL32, put_u32, verifier};
use crate::trans::Trans;

/// Where an inode holds the next one of its list.
const NEXT_AT: usize = 96;

/// For each inode of a list, by group and number: the one in front of it.
#[derive(Default)]
pub(super) struct Links {
    /// The one in front (none for the head), and the one behind.
    all: BTreeMap<(u32, u32), (Option<u32>, Option<u32>)>,
}

/// The cluster that holds an inode, and the inode's first byte in it.
pub(crate) fn cluster_of(geometry: &Geometry, ino: Ino) -> (BufMap, usize) {
    let (first, blocks, offset) = geometry.ino_cluster(ino);
    let len = blocks * geometry.block_sectors() as u32;
    (BufMap { daddr: geometry.ag_sector(first), len }, offset)
}

impl Inodes {
    /// The cluster that holds an inode, and the inode's first byte in it.
    pub fn cluster_of(&self, ino: Ino) -> (BufMap, usize) {
        cluster_of(&self.space.geometry, ino)
    }

    /// Stores the next inode of its list in an inode on the device. Where it is stored already the
    /// cluster is not logged: the only one of a list points nowhere, before and after.
    fn set_next(&self, cx: &mut Cx, trans: &mut Trans, ino: Ino, next: Option<u32>) -> Result<()> {
        let (map, offset) = self.cluster_of(ino);
        let size = self.space.geometry.inode_size as usize;
        let next = next.unwrap_or(NULL32);
        let buf = trans.read_buf(cx, &[map], &INODE_CLUSTER)?;
        let stored = buf.with_range(offset, size, |slot| crate::format::u32_at(slot, NEXT_AT));
        if stored == next {
            return Ok(());
        }
        buf.with_range_mut(offset, size, |slot| {
            put_u32(slot, NEXT_AT, next);
            verifier::update_crc(Kind::Inode, slot);
        });
        trans.inode_buf(&buf);
        trans.log_buf(&buf, offset + NEXT_AT, offset + NEXT_AT + 3);
        Ok(())
    }

    /// Puts an inode in front of its list. May park.
    ///
    /// # Errors
    /// One that is in it already; the device failed.
    pub fn add_unlinked(&self, cx: &mut Cx, trans: &mut Trans, ino: Ino) -> Result<()> {
        let AgInode { ag, agino } = self.space.geometry.ino_split(ino);
        let agi = self.lock(cx, trans, ag)?;
        let bucket = agino as usize % UNLINKED_BUCKETS;
        let head = agi.with(|raw| raw.agi_unlinked[bucket].get());
        let head = Some(head).filter(|&head| head != NULL32);
        if head == Some(agino) || self.links.lock(cx).all.contains_key(&(ag, agino)) {
            return Err(CorruptKind::UnlinkedTwice.at(At::Inode(ino)).into());
        }
        self.set_next(cx, trans, ino, head)?;
        agi.set_bucket(trans, bucket, agino);
        let mut links = self.links.lock(cx);
        if let Some(head) = head
            && let Some(link) = links.all.get_mut(&(ag, head))
        {
            link.0 = Some(agino);
        }
        links.all.insert((ag, agino), (None, head));
        Ok(())
    }

    /// Takes an inode out of its list. May park.
    ///
    /// # Errors
    /// One that is not in it; the device failed.
    pub fn remove_unlinked(&self, cx: &mut Cx, trans: &mut Trans, ino: Ino) -> Result<()> {
        let AgInode { ag, agino } = self.space.geometry.ino_split(ino);
        let agi = self.lock(cx, trans, ag)?;
        let bucket = agino as usize % UNLINKED_BUCKETS;
        let link = self.links.lock(cx).all.remove(&(ag, agino));
        let Some((front, behind)) = link else {
            return Err(CorruptKind::NotUnlinked.at(At::Inode(ino)).into());
        };
        match front {
            None => agi.set_bucket(trans, bucket, behind.unwrap_or(NULL32)),
            Some(front) => {
                let front = self.space.geometry.ino_join(AgInode { ag, agino: front });
                self.set_next(cx, trans, front, behind)?;
            }
        }
        self.set_next(cx, trans, ino, None)?;
        let mut links = self.links.lock(cx);
        if let Some(link) = front.and_then(|front| links.all.get_mut(&(ag, front))) {
            link.1 = behind;
        }
        if let Some(link) = behind.and_then(|behind| links.all.get_mut(&(ag, behind))) {
            link.0 = front;
        }
        Ok(())
    }

    /// Learns a list that is on the device, from its head: after recovery. May park.
    ///
    /// # Errors
    /// A list that runs in a circle or leaves the group; the device failed.
    pub fn learn_unlinked(
        &self,
        cx: &mut Cx,
        trans: &mut Trans,
        ag: u32,
        bucket: usize,
    ) -> Result<Vec<Ino>> {
        let agi = self.lock(cx, trans, ag)?;
        let mut at = agi.with(|raw| raw.agi_unlinked[bucket].get());
        let (mut list, mut front) = (Vec::new(), None);
        while at != NULL32 {
            let ino = self.space.geometry.ino_join(AgInode { ag, agino: at });
            let known = self.links.lock(cx).all.contains_key(&(ag, at));
            if known
                || at as usize % UNLINKED_BUCKETS != bucket
                || !self.space.geometry.ino_valid(ino)
            {
                return Err(CorruptKind::UnlinkedTwice.at(At::Inode(ino)).into());
            }
            let (map, offset) = self.cluster_of(ino);
            let buf = trans.read_buf(cx, &[map], &INODE_CLUSTER)?;
            let next = buf.with_range(offset, 100, |slot| crate::format::u32_at(slot, NEXT_AT));
            let behind = Some(next).filter(|&next| next != NULL32);
            self.links.lock(cx).all.insert((ag, at), (front, behind));
            list.push(ino);
            (front, at) = (Some(at), next);
        }
        Ok(list)
    }
}
