//! Free blocks for what a repair writes anew.

use base::FsBlock;
use xfs::format::AgBlock;
use xfs::format::record::FreeExtent;

use super::Fs;
use super::space::complement;
use crate::RepairError;

/// The first `count` blocks of runs that lie there last run first; they are taken out.
pub fn first_blocks(runs: &mut Vec<(FsBlock, u32)>, count: u32) -> Vec<(FsBlock, u32)> {
    let (mut left, mut first) = (count, Vec::new());
    while left > 0 {
        let (start, len) = runs.pop().expect("as many blocks as were taken");
        let take = len.min(left);
        first.push((start, take));
        if take < len {
            runs.push((FsBlock(start.0 + u64::from(take)), len - take));
        }
        left -= take;
    }
    first
}

impl Fs<'_> {
    /// Takes `count` free blocks, together if that is possible, from the end of the group that has
    /// most of them: the group's own btrees go to the start.
    ///
    /// # Errors
    /// There are not so many.
    pub fn take_blocks(&mut self, count: u32) -> Result<Vec<(FsBlock, u32)>, RepairError> {
        if self.spare.is_none() {
            let claims = self.claims();
            let groups = (0..self.g.ag_count()).zip(&claims);
            self.spare =
                Some(groups.map(|(ag, claims)| complement(claims, self.g.ag_length(ag))).collect());
        }
        let spare = self.spare.as_mut().expect("just counted");
        let (mut left, mut runs) = (count, Vec::new());
        while left > 0 {
            let fits = |extent: &FreeExtent| (extent.len.min(left), extent.len);
            let best = spare.iter().enumerate().filter_map(|(ag, list)| {
                let at = list.iter().enumerate().max_by_key(|(_, extent)| fits(extent))?;
                Some((ag, at.0, at.1.len))
            });
            let best = best.max_by_key(|&(_, _, len)| len).filter(|&(_, _, len)| len > 0);
            let Some((ag, at, len)) = best else {
                let text = "there are not enough free blocks for what must be written anew";
                return Err(RepairError::Hopeless(text.into()));
            };
            let take = len.min(left);
            let extent = &mut spare[ag][at];
            extent.len -= take;
            let block = extent.start + extent.len;
            runs.push((self.g.join(AgBlock { ag: ag as u32, block }), take));
            left -= take;
        }
        Ok(runs)
    }
}
