//! Groups that become longer or shorter.

use rt::Cx;

use super::{Agf, Space, agf};
use crate::error::{Result, XfsError};
use crate::format::{AgBlock, AgExtent, AgHeader, Geometry};
use crate::trans::Trans;

impl Space {
    /// Takes in the groups that `new` has behind the last one: their headers are on the device,
    /// with `free` free blocks, and the change of the size is in the log. May park.
    ///
    /// # Errors
    /// A header that fails a check; the device failed: nothing is allocated in its group then.
    pub fn publish_groups(&self, cx: &mut Cx, new: &Geometry, free: u64) -> Result<()> {
        let groups = self.geometry.ag_count()..new.ag_count();
        self.groups.push(groups.clone().map(|_| super::Summary::default()).collect());
        self.geometry.set_blocks_count(new.blocks_count());
        for ag in groups {
            let mut trans = Trans::empty(&self.log);
            let agf = self.lock(cx, &mut trans, ag)?;
            self.note(&agf);
            trans.cancel();
        }
        self.give_back(free);
        Ok(())
    }

    /// Gives a group the length that the shape of the file system says; blocks that come are free.
    /// The AGI is left to the caller. May park.
    ///
    /// # Errors
    /// [`XfsError::NoSpace`] where blocks that go are in use, before anything was changed; the
    /// device failed.
    pub fn set_length(&self, cx: &mut Cx, trans: &mut Trans, ag: u32, old: u32) -> Result<()> {
        let new = self.geometry.ag_length(ag);
        let rest = |start: u32, end: u32| AgExtent {
            start: AgBlock { ag, block: start },
            len: end - start,
        };
        if new > old {
            self.write_length(cx, trans, ag, new)?;
            return self.free(cx, trans, rest(old, new), None);
        }
        let buf = trans.read_buf(cx, &[self.header_map(ag, AgHeader::Agf)], &agf::AGF)?;
        let agf = Agf::unlocked(ag, &buf);
        let (before, _) = self.free_at(cx, trans, &agf, new)?;
        if before.is_none_or(|free| free.start + free.len < old) {
            return Err(XfsError::NoSpace);
        }
        self.carve(cx, trans, &agf, rest(new, old))?;
        self.write_length(cx, trans, ag, new)
    }

    /// Writes a length into the AGF of a group.
    fn write_length(&self, cx: &mut Cx, trans: &mut Trans, ag: u32, length: u32) -> Result<()> {
        let buf = trans.read_buf(cx, &[self.header_map(ag, AgHeader::Agf)], &agf::AGF)?;
        Agf::unlocked(ag, &buf).edit(trans, |raw| raw.agf_length.set(length));
        Ok(())
    }

    /// Whether a group holds nothing but its headers and the roots of empty trees. May park.
    ///
    /// # Errors
    /// A header that fails a check; the device failed.
    pub fn is_empty_group(&self, cx: &mut Cx, ag: u32) -> Result<bool> {
        let features = self.geometry.features;
        let roots = 3 + [features.finobt(), features.rmapbt(), features.reflink()]
            .map(u32::from)
            .iter()
            .sum::<u32>();
        let fixed = self.geometry.header_blocks() + roots;
        let buf = self.log.bufs().read(cx, &[self.header_map(ag, AgHeader::Agf)], &agf::AGF)?;
        let free = buf.with(|data| agf::all_free(data, ag, &self.geometry))?;
        Ok(free.checked_add(fixed) == Some(self.geometry.ag_length(ag)))
    }
}
