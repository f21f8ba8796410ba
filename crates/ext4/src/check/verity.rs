//! Files with verity: their descriptors.

use base::Ino;
use block::DeviceError;

use super::Checker;
use super::mapping::FileBlocks;
use super::rule::Rule;
use crate::format::features::RoCompat;
use crate::format::verity::{LocateError, locate};
use crate::format::{At, InodeFlags, InodeValues};

impl Checker<'_> {
    /// Checks the descriptor of a file whose blocks were walked over. That of an encrypted file is
    /// encrypted; without the feature the flag says nothing, as for e2fsck.
    pub fn verity(
        &mut self,
        ino: u32,
        values: &InodeValues,
        mapped: &FileBlocks,
    ) -> Result<(), DeviceError> {
        let at = At::Inode(Ino(ino.into()));
        let known = self.g.features.ro_compat.contains(RoCompat::VERITY);
        if !known || values.flags.contains(InodeFlags::ENCRYPT) {
            return Ok(());
        }
        let block = u64::from(self.g.block_size);
        let end = mapped.end * block;
        let found = locate(values.size, self.g.block_size, end, |at, len| {
            let mut bytes = Vec::new();
            for logical in at / block..(at + len as u64).div_ceil(block) {
                let run = mapped.runs.iter().find(|run| {
                    !run.unwritten && (run.logical..run.logical + run.len).contains(&logical)
                });
                match run {
                    Some(run) => {
                        let page = self.io.read(run.start + (logical - run.logical), 1)?;
                        bytes.extend_from_slice(&page);
                    }
                    None => bytes.resize(bytes.len() + block as usize, 0),
                }
            }
            let from = (at % block) as usize;
            Ok::<_, DeviceError>(bytes[from..from + len].to_vec())
        });
        match found {
            Ok(_) => {}
            Err(LocateError::Read(error)) => return Err(error),
            Err(LocateError::Verity(error)) => {
                self.findings.add(Rule::Verity, at, error.to_string());
            }
        }
        Ok(())
    }
}
