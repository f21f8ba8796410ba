//! The first exchange with the kernel (INIT): which features it may use. The crate `fuser` carries
//! it out; we answer the requests that follow.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use fuser::{Filesystem, InitFlags, KernelConfig, Request};

use crate::options::Options;
use crate::ring;

/// Bytes of one read or write.
const MAX_WRITE: u32 = 1 << 20;
/// The largest payload of a request or an answer.
pub(crate) const PAYLOAD_BYTES: usize = MAX_WRITE as usize;
/// The largest request: a write, with what stands before its data.
pub(crate) const BUFFER_BYTES: usize = MAX_WRITE as usize + 4096;
/// Requests of the kernel's own, as its reading ahead and writing back, at once.
const MAX_BACKGROUND: u16 = 64;

/// What is asked of the kernel.
pub(crate) struct Handshake {
    wanted: InitFlags,
    rings: bool,
    /// Requests will come through rings.
    agreed: Arc<AtomicBool>,
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
        if options.collects() {
            wanted |= InitFlags::FUSE_WRITEBACK_CACHE;
        }
        if options.shared {
            wanted |= InitFlags::FUSE_AUTO_INVAL_DATA;
        }
        if !options.reports_opens() {
            wanted |= InitFlags::FUSE_NO_OPEN_SUPPORT;
        }
        if options.is_checked() && !options.shared {
            wanted |= InitFlags::FUSE_POSIX_ACL;
        }
        Handshake { wanted, rings: options.io_uring, agreed: Arc::default() }
    }

    /// Whether requests come through rings; known after the handshake.
    pub fn agreed(&self) -> Arc<AtomicBool> {
        self.agreed.clone()
    }

    /// Asks for rings where the options do. Once asked for they must come: the kernel waits.
    fn ask_for_rings(&mut self, offered: InitFlags) -> io::Result<()> {
        if !self.rings {
            return Ok(());
        }
        if !offered.contains(InitFlags::FUSE_OVER_IO_URING) {
            return Err(io::Error::other(
                "io_uring: the kernel does not offer FUSE over io_uring; Linux 6.14 and later does \
                 after: echo Y >/sys/module/fuse/parameters/enable_uring",
            ));
        }
        ring::try_one().map_err(|e| io::Error::other(format!("io_uring: not for us: {e}")))?;
        self.wanted |= InitFlags::FUSE_OVER_IO_URING;
        self.agreed.store(true, Ordering::SeqCst);
        Ok(())
    }
}

impl Filesystem for Handshake {
    fn init(&mut self, _request: &Request, config: &mut KernelConfig) -> io::Result<()> {
        let offered = config.capabilities();
        let needed = InitFlags::FUSE_NO_OPEN_SUPPORT | InitFlags::FUSE_NO_OPENDIR_SUPPORT;
        if !offered.contains(needed) {
            return Err(io::Error::other("the kernel's FUSE is older than 5.1"));
        }
        self.ask_for_rings(offered)?;
        let _all_offered = config.add_capabilities(self.wanted & offered);
        let _granted = config.set_max_write(MAX_WRITE);
        let _granted = config.set_max_background(MAX_BACKGROUND);
        Ok(())
    }
}
