//! `rust-fs-ext4`: every operation is a transaction of the journal.

use std::path::Path;
use std::sync::Arc;

use fs_ext4::block_io::FileDevice;
use fs_ext4::fs::Filesystem;

use crate::{Result, Target};

pub struct Way(Filesystem);

pub fn open(image: &Path) -> Result<Way> {
    let device = FileDevice::open_path_rw(image).map_err(|e| format!("{e:?}"))?;
    Ok(Way(Filesystem::mount(Arc::new(device)).map_err(|e| format!("{e:?}"))?))
}

impl Target for Way {
    type Dir = u32;

    fn root(&mut self) -> u32 {
        2
    }

    fn mkdir(&mut self, dir: &u32, name: &str) -> Result<u32> {
        let made = self.0.apply_mkdir_at(*dir, name.as_bytes(), 0o755);
        Ok(made.map_err(|e| format!("{e:?}"))?)
    }

    fn file(&mut self, dir: &u32, name: &str, content: &[u8]) -> Result<()> {
        let ino = self.0.apply_create_at(*dir, name.as_bytes(), 0o644);
        let ino = ino.map_err(|e| format!("{e:?}"))?;
        self.0.apply_pwrite_ino(ino, 0, content).map_err(|e| format!("{e:?}"))?;
        Ok(())
    }

    fn finish(self) -> Result<()> {
        Ok(self.0.flush().map_err(|e| format!("{e:?}"))?)
    }
}
