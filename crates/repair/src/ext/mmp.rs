//! The block of multi-mount protection (feature `mmp`).

use ext4::Rule;
use ext4::format::features::Incompat;
use ext4::format::mmp::{CHECK_INTERVAL_MIN, CLEAN, Mmp};
use ext4::format::{At, RawSuper};

use super::Fs;
use crate::RepairError;
use block::DeviceError;

impl Fs<'_> {
    fn has_mmp(&self) -> bool {
        self.g.features.incompat.contains(Incompat::MMP)
    }

    fn mmp_seed(&self) -> Option<u32> {
        self.g.checksums.metadata.then_some(self.g.checksums.seed)
    }

    /// Refuses a file system that somebody writes to.
    ///
    /// # Errors
    /// The device's; the block says so.
    pub fn ensure_unused(&mut self) -> Result<(), RepairError> {
        let block = self.raw.s_mmp_block.get();
        if !self.has_mmp() || !self.in_range(block..block + 1) {
            return Ok(());
        }
        let page = self.view.read(block)?;
        match Mmp::parse(&page, self.mmp_seed()) {
            Ok(found) if found.sequence != CLEAN => Err(RepairError::Hopeless(format!(
                "multi-mount protection: {} ({}) writes to it, or was stopped: if nobody does, \
                 mount it once (iopath replay), or clear it with: tune2fs -f -E clear_mmp DEVICE",
                found.node, found.device
            ))),
            _ => Ok(()),
        }
    }

    /// Takes the block as metadata, where it can be the one.
    pub fn mark_mmp(&mut self) {
        let block = self.raw.s_mmp_block.get();
        self.mmp_marked = self.has_mmp()
            && self.in_range(block..block + 1)
            && self.meta.is_clear(block..block + 1);
        if self.mmp_marked {
            self.meta.set_run(block..block + 1);
        }
    }

    /// Makes the block say that nobody writes, where it cannot be read or has no place.
    ///
    /// # Errors
    /// The device's.
    pub fn settle_mmp(&mut self) -> Result<(), DeviceError> {
        if !self.has_mmp() {
            return Ok(());
        }
        let mut block = self.raw.s_mmp_block.get();
        let (at, seed) = (At::Super(0), self.mmp_seed());
        if self.mmp_marked {
            let page = self.view.read(block)?;
            let Err(kind) = Mmp::parse(&page, seed) else { return Ok(()) };
            let act = "write one that says that nobody writes";
            if !self.safe(Rule::MmpBlock, At::Device(block), kind.to_string(), act) {
                return Ok(());
            }
        } else {
            let detail = format!("block {block} cannot be that of multi-mount protection");
            if !self.safe(Rule::MmpBlock, at, detail, "take another one") {
                return Ok(());
            }
            let Some(taken) = self.take_block(self.g.first_data_block.into())? else {
                return Ok(());
            };
            block = taken;
            self.edit_super(|raw: &mut RawSuper| raw.s_mmp_block.set(block))?;
            self.meta.set_run(block..block + 1);
        }
        let mut page = vec![0; self.g.block_size as usize];
        let unused = Mmp {
            sequence: CLEAN,
            time: 0,
            node: String::new(),
            device: String::new(),
            check_interval: CHECK_INTERVAL_MIN,
        };
        unused.emit(&mut page, seed);
        self.view.write(block, &page);
        Ok(())
    }
}
