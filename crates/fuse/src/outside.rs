//! What a mount needs of the host besides `/dev/fuse`: done here, or by the keeper if this process
//! is locked.

use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use base::Ino;
use rustix::fs::{Mode, OFlags};

use crate::keeper::Keeper;
use crate::kernel::{self, Bdi};
use crate::mounting;
use crate::open_file::{self, OpenFile};
use crate::options::Options;

/// The file of PM QoS; see the kernel's Documentation/power/pm_qos_interface.rst.
pub(crate) const QOS_FILE: &str = "/dev/cpu_dma_latency";

/// The host's side of one mount.
pub(crate) struct Outside {
    dir: PathBuf,
    options: Options,
    keeper: Option<Arc<Keeper>>,
    /// The numbers of the mount's device, as `MAJOR:MINOR`; none where they are not known.
    device: OnceLock<Option<String>>,
    bdi: OnceLock<Option<Bdi>>,
}

impl Outside {
    /// Done by this process.
    pub fn here(dir: &Path, options: &Options) -> Outside {
        Outside::new(dir, options, None)
    }

    /// Done by the keeper, where there is one.
    pub fn new(dir: &Path, options: &Options, keeper: Option<Arc<Keeper>>) -> Outside {
        Outside {
            dir: dir.to_owned(),
            options: options.clone(),
            keeper,
            device: OnceLock::new(),
            bdi: OnceLock::new(),
        }
    }

    /// Where it is mounted.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Whether this process may start threads that leave its open files: a locked one need not.
    pub fn has_keeper(&self) -> bool {
        self.keeper.is_some()
    }

    /// Mounts; returns the device to serve.
    pub fn mount(&self) -> io::Result<OwnedFd> {
        match &self.keeper {
            Some(keeper) => keeper.mount(),
            None => mounting::mount(&self.dir, &self.options),
        }
    }

    /// The numbers of the mount's device, as `MAJOR:MINOR`.
    fn device(&self) -> Option<&str> {
        self.device.get_or_init(|| kernel::mounted(&self.dir).ok().flatten()).as_deref()
    }

    /// Lets the kernel read ahead and collect writes as for a local disk: after its first words.
    pub fn tune(&self) {
        match &self.keeper {
            Some(keeper) => keeper.tune(),
            None => {
                self.device().inspect(|device| kernel::tune(device));
            }
        }
    }

    /// The same in numbers.
    pub fn device_numbers(&self) -> Option<(u32, u32)> {
        self.device().and_then(kernel::numbers)
    }

    /// The kernel's limit for what it collects of all mounts together, where that of this one can
    /// be set.
    pub fn whole_limit(&self) -> Option<u64> {
        if !self.options.collects() {
            return None;
        }
        self.bdi().map(Bdi::whole)
    }

    fn bdi(&self) -> Option<&Bdi> {
        self.bdi.get_or_init(|| self.device().and_then(Bdi::of)).as_ref()
    }

    /// Holds the kernel to so many dirty bytes of this mount.
    pub fn limit_dirty(&self, bytes: u64) {
        match &self.keeper {
            Some(keeper) => keeper.limit_dirty(bytes),
            None => {
                self.bdi().inspect(|bdi| bdi.limit_dirty(bytes));
            }
        }
    }

    /// A file of this mount that a thread has open.
    pub fn open_file(&self, pid: u32, ino: Ino) -> Option<OpenFile> {
        Some(OpenFile { pid, ino, device: self.device_numbers()? })
    }

    /// Returns when the kernel's pages of a file have come to us. None where it cannot be asked:
    /// the file is not found in its program's table. Blocks the thread.
    pub fn write_pages(&self, file: OpenFile) -> Option<io::Result<()>> {
        match &self.keeper {
            Some(keeper) => keeper.write_pages(file),
            None => open_file::write(file),
        }
    }

    /// Lets the kernel hand over its pages, then unmounts; where programs use the mount, from the
    /// tree only, and returns false. Blocks the thread.
    pub fn end(&self) -> bool {
        if let Some(keeper) = &self.keeper {
            return keeper.end();
        }
        mounting::sync(&self.dir);
        let done = mounting::unmount(&self.dir, false).is_ok();
        if !done {
            let _torn_anyway = mounting::unmount(&self.dir, true);
        }
        done
    }

    /// Takes away a mount that broke.
    pub fn detach(&self) {
        match &self.keeper {
            Some(keeper) => keeper.detach(),
            None => {
                let is_there = kernel::mounted(&self.dir).ok().flatten();
                if is_there.is_some() && is_there.as_deref() == self.device() {
                    let _gone_anyway = mounting::unmount(&self.dir, true);
                }
            }
        }
    }

    /// The file of PM QoS, to read and write.
    pub fn open_qos(&self) -> io::Result<OwnedFd> {
        match &self.keeper {
            Some(keeper) => keeper.open_qos(),
            None => {
                let flags = OFlags::RDWR | OFlags::CLOEXEC;
                Ok(rustix::fs::open(QOS_FILE, flags, Mode::empty())?)
            }
        }
    }
}
