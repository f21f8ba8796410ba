//! `rust-fs-xfs`: every operation is a checkpoint in the log; the unmount writes all of it home.

use std::path::Path;
use std::sync::Arc;

use fs_core::{BlockDevice, FileDevice};
use fs_xfs::Filesystem;

use crate::{Result, Target};

pub struct Way(Filesystem);

pub fn open(image: &Path) -> Result<Way> {
    let device: Arc<dyn BlockDevice> =
        Arc::new(FileDevice::open_rw(image).map_err(|e| format!("{e:?}"))?);
    Ok(Way(Filesystem::mount_rw(device).map_err(|e| format!("{e:?}"))?))
}

impl Target for Way {
    type Dir = u64;

    fn root(&mut self) -> u64 {
        self.0.superblock().rootino
    }

    fn mkdir(&mut self, dir: &u64, name: &str) -> Result<u64> {
        let made = self.0.create_directory(*dir, name.as_bytes(), 0o040_755);
        Ok(made.map_err(|e| format!("{e:?}"))?.0)
    }

    fn file(&mut self, dir: &u64, name: &str, content: &[u8]) -> Result<()> {
        let made = self.0.create_file(*dir, name.as_bytes(), 0o100_644);
        let (ino, _) = made.map_err(|e| format!("{e:?}"))?;
        self.0.write(ino, 0, content).map_err(|e| format!("{e:?}"))?;
        Ok(())
    }

    fn finish(self) -> Result<()> {
        Ok(self.0.unmount().map_err(|e| format!("{e:?}"))?)
    }
}
