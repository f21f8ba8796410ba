//! The AGF and the AGFL of one group, in a transaction.

use std::sync::Arc;

use rt::Cx;

use super::Space;
use crate::buf::{Buf, BufOps};
use crate::error::Result;
use crate::format::ag::{self, LEVELS_MAX, RawAgf};
use crate::format::{AgBlock, AgHeader, Corrupt, CorruptKind, Features, Geometry, Kind};
use crate::trans::Trans;

/// How AGFs are read.
pub(super) static AGF: BufOps =
    BufOps { name: "AGF", kinds: &[Kind::Agf], check: None, unmapped: false };

static AGFL: BufOps = BufOps { name: "AGFL", kinds: &[Kind::Agfl], check: None, unmapped: false };

/// Blocks of a group that are free, in its AGFL, or in its free-space trees.
pub(crate) fn all_free(
    data: &[u8],
    ag: u32,
    geometry: &Geometry,
) -> std::result::Result<u32, Corrupt> {
    let raw = RawAgf::parse_trusted(data, ag, geometry)?;
    Ok(raw.agf_freeblks.get() + raw.agf_flcount.get() + raw.agf_btreeblks.get())
}

/// The AGF of a group, locked.
#[derive(Clone)]
pub(crate) struct Agf {
    pub ag: u32,
    buf: Arc<Buf>,
}

impl Agf {
    /// Checks the header in `buf`.
    pub fn new(ag: u32, buf: Arc<Buf>, geometry: &Geometry) -> Result<Agf> {
        // The checksum was checked when it was read, and is old once it has been changed.
        buf.with(|data| RawAgf::parse_trusted(data, ag, geometry).map(|_| ()))?;
        Ok(Agf { ag, buf })
    }

    /// For a look.
    pub(super) fn unlocked(ag: u32, buf: &Arc<Buf>) -> Agf {
        Agf { ag, buf: buf.clone() }
    }

    pub fn with<T>(&self, f: impl FnOnce(&RawAgf) -> T) -> T {
        self.buf.with(|data| f(RawAgf::view(data).expect("a sector holds an AGF")))
    }

    pub fn edit(&self, trans: &mut Trans, f: impl FnOnce(&mut RawAgf)) {
        self.buf.with_mut(|data| f(RawAgf::view_mut(data).expect("a sector holds an AGF")));
        trans.log_buf(&self.buf, 0, size_of::<RawAgf>() - 1);
    }

    /// Blocks in the AGFL.
    pub fn list_len(&self) -> u32 {
        self.with(|raw| raw.agf_flcount.get())
    }

    /// Blocks that the AGFL must hold: each tree may grow a level and split all the way up.
    pub fn list_need(&self, features: Features) -> u32 {
        let per_tree = |levels: u32| (levels + 1).min(LEVELS_MAX);
        self.with(|raw| {
            let free = per_tree(raw.agf_bno_level.get()) + per_tree(raw.agf_cnt_level.get());
            free + if features.rmapbt() { per_tree(raw.agf_rmap_level.get()) } else { 0 }
        })
    }

    /// Free blocks of the group.
    pub fn free(&self) -> u32 {
        self.with(|raw| raw.agf_freeblks.get())
    }
}

impl Space {
    fn list(&self, cx: &mut Cx, trans: &mut Trans, agf: &Agf) -> Result<Arc<Buf>> {
        trans.read_buf(cx, &[self.header_map(agf.ag, AgHeader::Agfl)], &AGFL)
    }

    /// Takes the oldest block out of the AGFL. May park.
    pub(super) fn list_take(&self, cx: &mut Cx, trans: &mut Trans, agf: &Agf) -> Result<u32> {
        let list = self.list(cx, trans, agf)?;
        let (first, count) = agf.with(|raw| (raw.agf_flfirst.get(), raw.agf_flcount.get()));
        let size = ag::agfl_size(&self.geometry);
        if count == 0 {
            return Err(crate::XfsError::NoSpace);
        }
        let block = list.with(|data| ag::agfl_block(data, first));
        let place = AgBlock { ag: agf.ag, block };
        if !self.geometry.extent_valid(self.geometry.join(place), 1) {
            let kind = CorruptKind::FreeListBlock { slot: first, block };
            return Err(kind.at(crate::format::At::Agfl(agf.ag)).into());
        }
        agf.edit(trans, |raw| {
            raw.agf_flfirst.set((first + 1) % size);
            raw.agf_flcount.set(count - 1);
        });
        Ok(block)
    }

    /// Adds a block to the AGFL. May park.
    pub(super) fn list_put(
        &self,
        cx: &mut Cx,
        trans: &mut Trans,
        agf: &Agf,
        block: u32,
    ) -> Result<()> {
        let list = self.list(cx, trans, agf)?;
        let size = ag::agfl_size(&self.geometry);
        let (last, count) = agf.with(|raw| (raw.agf_fllast.get(), raw.agf_flcount.get()));
        let slot = (last + 1) % size;
        list.with_mut(|data| ag::set_agfl_block(data, slot, block));
        let at = ag::AGFL_HEADER + 4 * slot as usize;
        trans.log_buf(&list, at, at + 3);
        agf.edit(trans, |raw| {
            raw.agf_fllast.set(slot);
            raw.agf_flcount.set(count + 1);
        });
        Ok(())
    }
}
