//! The journal: as it is, or an empty one.

use ext4::format::extent::FileRun;

use super::Dump;
use crate::metadump::DumpError;

impl Dump<'_> {
    /// Passes on the journal's superblock; its content if names are kept and it is dirty.
    pub fn journal(&mut self, runs: &[FileRun]) -> Result<(), DumpError> {
        let Some(first) = runs.first().map(|run| run.start) else { return Ok(()) };
        let whole = self.out.keeps_names() && self.out.report.dirty_log;
        for block in runs.iter().flat_map(|run| run.start..run.start + run.len) {
            if block != first && !whole {
                return Ok(());
            }
            let mut data = self.view.read(block)?;
            if block == first && !whole {
                let Ok(mut log) = jbd2::format::Superblock::parse(&data) else {
                    self.out.leave_out("the superblock of the journal");
                    return Ok(());
                };
                if self.replayed {
                    log.start = 0;
                    data.fill(0);
                    log.emit(&mut data);
                }
            }
            self.put(block, &data)?;
        }
        Ok(())
    }
}
