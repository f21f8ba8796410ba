//! Reading a buffer, and what write-back sends to the device.

use std::sync::Arc;

use base::Page;
use block::{Bio, BioFlags, IoGroup, Op, Queue, Segment, Segments};
use rt::{Cx, SpinLock};

use super::lsn::Lsns;
use super::memory::PAGE_SIZE;
use super::{Buf, BufCacheConfig, BufOps, BufState};
use crate::error::Result;
use crate::format::verifier::{self, Expect};
use crate::format::{At, Kind};

/// The pages of one bio after it was read.
type Slot = Arc<SpinLock<Segments>>;

impl Buf {
    /// Reads the content from the device. The caller holds the lock. May park.
    pub(super) fn fill(&self, cx: &mut Cx, queue: &Arc<Queue>) -> Result<()> {
        let group = IoGroup::new();
        let slots: Vec<Slot> = (0..self.maps.len()).map(|_| Slot::default()).collect();
        for (map, slot) in self.maps.iter().zip(&slots) {
            let slot = slot.clone();
            let end = group.end_with(move |segs| *slot.lock_irq() = segs);
            let segs = self.fresh_pages(map.bytes());
            let flags = BioFlags::META | BioFlags::SYNC;
            queue.submit(cx, Bio::new(Op::Read, map.daddr, segs, flags, end));
        }
        group.wait(cx)?;
        let parts = slots.iter().map(|slot| std::mem::take(&mut *slot.lock_irq()));
        if self.maps.len() == 1 {
            self.replace_memory(parts.flatten().map(|seg| seg.page).collect());
        } else {
            let mut offset = 0;
            for seg in parts.flatten() {
                self.copy_in(offset, seg.bytes());
                offset += seg.len as usize;
            }
        }
        self.set_state(BufState::UPTODATE);
        Ok(())
    }

    fn fresh_pages(&self, bytes: usize) -> Segments {
        let whole = if self.is_unmapped() { PAGE_SIZE } else { bytes };
        let pages = bytes.div_ceil(whole);
        let len = |page: usize| whole.min(bytes - page * whole);
        (0..pages).map(|page| Segment::whole(Page::zeroed(len(page)))).collect()
    }

    /// Checks what was read and notes its kind. The caller holds the lock.
    pub(super) fn verify(&self, ops: &BufOps, config: &BufCacheConfig, lsns: &Lsns) -> Result<()> {
        if ops.kinds.is_empty() || ops.unmapped {
            return Ok(());
        }
        let at = At::Block(self.daddr().0);
        self.with(|bytes| {
            let fits = |kind: &&Kind| verifier::verify_magic(**kind, bytes, at).is_ok();
            let kind = *ops.kinds.iter().find(fits).unwrap_or(&ops.kinds[0]);
            let BufCacheConfig { uuid, v4, .. } = *config;
            let expect = Expect { uuid, address: self.daddr(), owner: None, v4 };
            verifier::verify(kind, bytes, &expect, at)?;
            self.set_kind(kind);
            if let Some(check) = ops.check {
                check(bytes, at)?;
            }
            lsns.note(self, verifier::written_behind(kind, bytes).filter(|_| !v4))
        })
    }

    /// Sets sequence number and checksum, as a block carries them on the device. Inode clusters
    /// are left alone: each inode was given its checksum when it was copied there.
    pub(crate) fn write_verify(&self, lsn: u64) {
        match self.kind() {
            None | Some(Kind::Inode) => {}
            Some(kind) => self.with_mut(|bytes| verifier::update_lsn_crc(kind, bytes, lsn)),
        }
    }

    /// The bios that write this buffer.
    pub(crate) fn write_bios(&self, group: &IoGroup) -> Vec<Bio> {
        let one = |map: usize| {
            let segs = self.segments(map);
            Bio::new(Op::Write, self.maps[map].daddr, segs, BioFlags::META, group.end())
        };
        (0..self.maps.len()).map(one).collect()
    }
}
