//! The first words with the kernel: what it may do by itself from now on. They are spoken by the
//! crate `fuser`, which also mounts; the requests that follow are ours to answer.

use std::io;

use fuser::{Filesystem, InitFlags, KernelConfig, Request};

use crate::options::Options;

/// Bytes of one read or write.
const MAX_WRITE: u32 = 1 << 20;
/// The largest request: a write, with what stands before its data.
pub(crate) const BUFFER_BYTES: usize = MAX_WRITE as usize + 4096;
/// Requests of the kernel's own, as its reading ahead and writing back, at once.
const MAX_BACKGROUND: u16 = 64;

/// What is asked of the kernel.
pub(crate) struct Handshake {
    wanted: InitFlags,
}

impl Handshake {
    pub fn new(options: &Options) -> Handshake {
        let mut wanted = InitFlags::FUSE_ASYNC_DIO
            | InitFlags::FUSE_PARALLEL_DIROPS
            | InitFlags::FUSE_DO_READDIRPLUS
            | InitFlags::FUSE_READDIRPLUS_AUTO
            | InitFlags::FUSE_CACHE_SYMLINKS
            | InitFlags::FUSE_HANDLE_KILLPRIV_V2
            | InitFlags::FUSE_DONT_MASK
            | InitFlags::FUSE_NO_OPENDIR_SUPPORT
            | InitFlags::FUSE_HAS_IOCTL_DIR;
        if options.writeback && !options.shared {
            wanted |= InitFlags::FUSE_WRITEBACK_CACHE;
        }
        wanted |= match options.shared {
            true => InitFlags::FUSE_AUTO_INVAL_DATA,
            false => InitFlags::FUSE_NO_OPEN_SUPPORT,
        };
        if options.is_checked() && !options.shared {
            wanted |= InitFlags::FUSE_POSIX_ACL;
        }
        Handshake { wanted }
    }
}

impl Filesystem for Handshake {
    fn init(&mut self, _request: &Request, config: &mut KernelConfig) -> io::Result<()> {
        let offered = config.capabilities();
        let needed = InitFlags::FUSE_NO_OPEN_SUPPORT | InitFlags::FUSE_NO_OPENDIR_SUPPORT;
        if !offered.contains(needed) {
            return Err(io::Error::other("the kernel's FUSE is older than 5.1"));
        }
        let _all_offered = config.add_capabilities(self.wanted & offered);
        let _granted = config.set_max_write(MAX_WRITE);
        let _granted = config.set_max_background(MAX_BACKGROUND);
        Ok(())
    }
}
