//! Quota reservations: limits are checked before space or inodes are taken.

use rt::Cx;

use super::Quota;
use crate::error::{Result, XfsError};
use crate::log::dquot_item::{DquotList, Owners, Usage};

/// Blocks and inodes that count against their owners' limits until this is dropped.
#[derive(Debug, Default)]
#[must_use = "what is reserved ends when it is dropped"]
pub(crate) struct QuotaHold {
    dquots: DquotList,
    usage: Usage,
}

impl QuotaHold {
    /// Takes over what was reserved otherwise.
    pub fn of(dquots: DquotList, usage: Usage) -> QuotaHold {
        QuotaHold { dquots, usage }
    }

    /// Lets the reservation go on without this.
    pub fn keep(mut self) {
        self.dquots.clear();
    }

    /// Lets a part of the reservation go on without this; the rest ends.
    pub fn keep_only(mut self, part: Usage) {
        self.usage -= part;
    }
}

impl Drop for QuotaHold {
    fn drop(&mut self) {
        self.dquots.iter().for_each(|dquot| dquot.unreserve(self.usage));
    }
}

impl Quota {
    /// Reserves for these owners, of all kinds or of none; `forced` asks for no limit. No
    /// transaction is open. May park.
    ///
    /// # Errors
    /// `EDQUOT`, `ENOSPC` of a project; as [`Quota::dquot`].
    pub fn reserve(
        &self,
        cx: &mut Cx,
        owners: &Owners,
        usage: Usage,
        forced: bool,
    ) -> Result<QuotaHold> {
        let list = self.dquots(cx, owners)?;
        self.reserve_from(cx, &list, usage, forced)
    }

    /// As [`Quota::reserve`], from records that are known. Nothing waits.
    ///
    /// # Errors
    /// `EDQUOT`, `ENOSPC` of a project.
    pub fn reserve_from(
        &self,
        cx: &Cx,
        list: &DquotList,
        usage: Usage,
        forced: bool,
    ) -> Result<QuotaHold> {
        let now = cx.realtime().sec.max(0) as u64;
        let mut hold = QuotaHold { dquots: DquotList::new(), usage };
        for dquot in list {
            let limited = !forced && self.enforced(dquot.id.kind);
            let limits = || (now, self.table.default_limits(dquot.id.kind));
            dquot.reserve(usage, limited.then(limits)).map_err(XfsError::Answer)?;
            hold.dquots.push(dquot.clone());
        }
        Ok(hold)
    }
}
