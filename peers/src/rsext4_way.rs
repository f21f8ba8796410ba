//! `rsext4`: operations gather in a transaction until a sync. It has no device for files: this one
//! reads and writes at once, as a direct translation of its trait.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use rsext4::{
    BLOCK_SIZE, BlockIo, Clock, DeviceCapabilities, DeviceGeometry, Ext4, Ext4Error, Ext4Result,
    Ext4Timestamp, FileName, FilePermissions, InodeNumber, MountOptions, MountServices,
    MountedServices, MutationContext, NoopObserver, SectorId,
};

use crate::{Result, Target};

pub struct Image {
    file: File,
    blocks: u64,
}

fn failed(error: std::io::Error) -> Ext4Error {
    eprintln!("rsext4: {error}");
    Ext4Error::invalid_input()
}

impl BlockIo for Image {
    fn write(&mut self, buffer: &[u8], sector: SectorId, _count: u32) -> Ext4Result<()> {
        let at = sector.as_usize()? as u64 * BLOCK_SIZE as u64;
        self.file.write_all_at(buffer, at).map_err(failed)
    }

    fn read(&mut self, buffer: &mut [u8], sector: SectorId, _count: u32) -> Ext4Result<()> {
        let at = sector.as_usize()? as u64 * BLOCK_SIZE as u64;
        self.file.read_exact_at(buffer, at).map_err(failed)
    }

    fn flush(&mut self) -> Ext4Result<()> {
        self.file.sync_data().map_err(failed)
    }

    fn geometry(&self) -> DeviceGeometry {
        DeviceGeometry::new(BLOCK_SIZE as u32, self.blocks)
    }

    fn capabilities(&self) -> DeviceCapabilities {
        DeviceCapabilities { read_only: false, flush: true, ..DeviceCapabilities::default() }
    }
}

pub struct Now;

impl Clock for Now {
    fn now(&self) -> Ext4Result<Ext4Timestamp> {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Ok(Ext4Timestamp::new(now.as_secs() as i64, now.subsec_nanos()))
    }
}

type Services = MountedServices<(), NoopObserver, ()>;

pub struct Way(Ext4<Image, Services>);

pub fn open(image: &Path) -> Result<Way> {
    let file = File::options().read(true).write(true).open(image)?;
    let blocks = file.metadata()?.len() / BLOCK_SIZE as u64;
    let services = MountServices::new(Now, (), NoopObserver);
    let mounted = Ext4::mount(Image { file, blocks }, services, MountOptions::read_write());
    Ok(Way(mounted.map_err(|e| format!("{e:?}"))?))
}

fn context() -> MutationContext {
    MutationContext::new(0, 0, 0, 0)
}

impl Target for Way {
    type Dir = InodeNumber;

    fn root(&mut self) -> InodeNumber {
        self.0.root_inode()
    }

    fn mkdir(&mut self, dir: &InodeNumber, name: &str) -> Result<InodeNumber> {
        let name = FileName::new(name.as_bytes()).map_err(|e| format!("{e:?}"))?;
        let mode = FilePermissions::new(0o755).map_err(|e| format!("{e:?}"))?;
        let made = self.0.create_directory(context(), *dir, name, mode);
        Ok(made.map_err(|e| format!("{e:?}"))?.number)
    }

    fn file(&mut self, dir: &InodeNumber, name: &str, content: &[u8]) -> Result<()> {
        let name = FileName::new(name.as_bytes()).map_err(|e| format!("{e:?}"))?;
        let mode = FilePermissions::new(0o644).map_err(|e| format!("{e:?}"))?;
        let made = self.0.create_regular_file(context(), *dir, name, mode);
        let ino = made.map_err(|e| format!("{e:?}"))?.number;
        self.0.write_inode(ino, 0, content).map_err(|e| format!("{e:?}"))?;
        Ok(())
    }

    fn finish(mut self) -> Result<()> {
        Ok(self.0.unmount().map_err(|e| format!("{e:?}"))?)
    }
}
