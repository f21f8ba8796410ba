//! How far the check has come, in inodes. What else there is to do is put in proportion to them.

use super::Checker;

/// Inodes whose groups' btrees take as long as one inode.
const OF_GROUPS: u64 = 16;
/// Inodes for which the comparison of owners takes as long as one inode.
const OF_OWNERS: u64 = 4;

impl Checker<'_> {
    /// Reports that the work begins; how many inodes there are, the superblock says.
    pub(super) fn begin_with_groups(&self) {
        // No more than there is room for.
        let most = u64::from(self.reader.geometry.ag_count()) << 32;
        let inodes = self.raw.sb_icount.get().min(most);
        self.meter.begin("groups", inodes / OF_GROUPS + inodes + inodes / OF_OWNERS);
    }

    /// The share of one group in the btrees of all.
    pub(super) fn group_is_read(&self) {
        let inodes = self.raw.sb_icount.get();
        self.meter.add(inodes / OF_GROUPS / u64::from(self.reader.geometry.ag_count()));
    }

    /// Inodes that the chunks hold, in use or free.
    fn inodes_of_chunks(&self) -> u64 {
        self.groups.iter().map(|group| group.chunks.len() as u64 * 64).sum()
    }

    pub(super) fn go_on_with_inodes(&self) {
        let inodes = self.inodes_of_chunks();
        self.meter.go_on("inodes", inodes + inodes / OF_OWNERS);
    }

    /// All is read once more, for its records.
    pub(super) fn begin_again(&self) {
        let inodes = self.raw.sb_icount.get().min(u64::from(self.reader.geometry.ag_count()) << 32);
        self.meter.go_on("records", inodes / OF_GROUPS + inodes + inodes / OF_OWNERS);
    }

    pub(super) fn go_on_with_owners(&self) {
        self.meter.go_on("owners and names", self.inodes_of_chunks() / OF_OWNERS);
    }

    /// The share of one group in the comparison of owners; half of it is of the names.
    pub(super) fn owners_are_compared(&self) {
        let all = self.inodes_of_chunks() / OF_OWNERS;
        self.meter.add(all / 2 / u64::from(self.reader.geometry.ag_count()));
    }
}
