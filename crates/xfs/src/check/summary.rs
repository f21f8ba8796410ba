//! The counters of the superblock against the sums over all groups.

use super::{Checker, Rule};
use crate::format::At;

impl Checker<'_> {
    /// Compares the sums. Silent where a header could not be read.
    pub(super) fn summary(&mut self) {
        let (mut inodes, mut free_inodes, mut free_blocks) = (0u64, 0u64, 0u64);
        for group in &self.groups {
            let (Some(agf), Some(agi)) = (&group.agf, &group.agi) else { return };
            inodes += u64::from(agi.agi_count.get());
            free_inodes += u64::from(agi.agi_freecount.get());
            let words = [&agf.agf_freeblks, &agf.agf_flcount, &agf.agf_btreeblks];
            free_blocks += words.iter().map(|word| u64::from(word.get())).sum::<u64>();
        }
        self.without_section();
        let rows = [
            ("inodes", self.raw.sb_icount.get(), inodes),
            ("free inodes", self.raw.sb_ifree.get(), free_inodes),
            ("free blocks", self.raw.sb_fdblocks.get(), free_blocks),
        ];
        for (what, found, expected) in rows {
            if found != expected {
                let text = format!("{what}: {found} should be {expected}");
                self.findings.add(Rule::SuperCount, At::Super(0), text);
            }
        }
    }

    /// Linux mounts nothing that has free realtime extents and no section.
    fn without_section(&mut self) {
        let extents = self.raw.sb_frextents.get();
        if self.raw.sb_rblocks.get() == 0 && extents != 0 {
            let text = format!("free realtime extents: {extents} should be 0");
            self.findings.add(Rule::SuperCount, At::Super(0), text);
        }
    }
}
