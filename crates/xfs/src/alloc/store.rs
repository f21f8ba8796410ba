//! Where the trees of a group keep their roots, and where their blocks come from.

use rt::Cx;

use super::{Agf, Space};
use crate::btree::Store;
use crate::buf::BufMap;
use crate::error::Result;
use crate::format::record::FreeExtent;
use crate::format::{AgBlock, AgExtent, At, Expect, Kind};
use crate::trans::Trans;

/// A tree whose root is in the AGF and whose blocks are the AGFL's: both of free space, and the
/// reverse map.
pub(crate) struct AgfTree<'a> {
    pub space: &'a Space,
    pub agf: &'a Agf,
    pub kind: Kind,
}

impl Store for AgfTree<'_> {
    fn kind(&self) -> Kind {
        self.kind
    }

    fn block_size(&self) -> usize {
        self.space.geometry.block_size as usize
    }

    fn root(&self) -> (u64, u32) {
        let root = self.agf.with(|raw| match self.kind {
            Kind::FreeByBlock => raw.by_block(),
            Kind::FreeBySize => raw.by_size(),
            _ => raw.rmap(),
        });
        (u64::from(root.block), root.levels)
    }

    fn set_root(&mut self, trans: &mut Trans, block: u64, levels: u32) {
        let kind = self.kind;
        self.agf.edit(trans, |raw| {
            let (root, level) = match kind {
                Kind::FreeByBlock => (&mut raw.agf_bno_root, &mut raw.agf_bno_level),
                Kind::FreeBySize => (&mut raw.agf_cnt_root, &mut raw.agf_cnt_level),
                _ => (&mut raw.agf_rmap_root, &mut raw.agf_rmap_level),
            };
            root.set(block as u32);
            level.set(levels);
        });
    }

    fn map(&self, block: u64) -> BufMap {
        self.space.block_map(AgBlock { ag: self.agf.ag, block: block as u32 })
    }

    fn expect(&self, block: u64) -> Expect {
        self.space.geometry.expect_ag(AgBlock { ag: self.agf.ag, block: block as u32 })
    }

    fn at(&self, block: u64) -> At {
        At::AgBlock(self.agf.ag, block as u32)
    }

    fn allocate(&mut self, cx: &mut Cx, trans: &mut Trans, _near: u64) -> Result<u64> {
        let block = self.space.list_take(cx, trans, self.agf)?;
        let rmap = self.kind == Kind::Rmap;
        self.agf.edit(trans, |raw| {
            raw.agf_btreeblks.set(raw.agf_btreeblks.get() + 1);
            if rmap {
                raw.agf_rmap_blocks.set(raw.agf_rmap_blocks.get() + 1);
            }
        });
        Ok(u64::from(block))
    }

    fn free(&mut self, cx: &mut Cx, trans: &mut Trans, block: u64) -> Result<()> {
        self.space.list_put(cx, trans, self.agf, block as u32)?;
        let rmap = self.kind == Kind::Rmap;
        self.agf.edit(trans, |raw| {
            raw.agf_btreeblks.set(raw.agf_btreeblks.get() - 1);
            if rmap {
                raw.agf_rmap_blocks.set(raw.agf_rmap_blocks.get() - 1);
            }
        });
        trans.free_busy(AgExtent::one(AgBlock { ag: self.agf.ag, block: block as u32 }));
        Ok(())
    }

    fn wants_last(&self) -> bool {
        self.kind == Kind::FreeBySize
    }

    fn last_changed(&mut self, trans: &mut Trans, last: Option<&[u8]>) {
        let longest = last.map_or(0, |record| FreeExtent::read(record).len);
        if self.agf.with(|raw| raw.agf_longest.get()) != longest {
            self.agf.edit(trans, |raw| raw.agf_longest.set(longest));
        }
    }
}

impl Space {
    /// Where one block lies on the device.
    pub fn block_map(&self, place: AgBlock) -> BufMap {
        let len = self.geometry.block_sectors() as u32;
        BufMap { daddr: self.geometry.ag_sector(place), len }
    }

    pub(super) fn by_block<'a>(&'a self, agf: &'a Agf) -> AgfTree<'a> {
        AgfTree { space: self, agf, kind: Kind::FreeByBlock }
    }

    pub(super) fn by_size<'a>(&'a self, agf: &'a Agf) -> AgfTree<'a> {
        AgfTree { space: self, agf, kind: Kind::FreeBySize }
    }
}
