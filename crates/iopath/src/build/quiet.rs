//! A device that is not flushed: of an image that nobody sees before it is complete.

use std::sync::Arc;

use block::{Device, DeviceInfo, DeviceIo};

/// Another device, said to keep what it has taken.
pub struct QuietDevice {
    inner: Arc<dyn Device>,
    info: DeviceInfo,
}

impl QuietDevice {
    /// The same device without a cache that can be lost. Whoever made it flushes `inner` at the
    /// end.
    pub fn new(inner: Arc<dyn Device>) -> QuietDevice {
        let info = DeviceInfo { volatile_cache: false, fua: false, ..inner.info().clone() };
        QuietDevice { inner, info }
    }
}

impl Device for QuietDevice {
    fn info(&self) -> &DeviceInfo {
        &self.info
    }

    fn submit(&self, io: DeviceIo) {
        self.inner.submit(io);
    }

    fn name(&self) -> String {
        self.inner.name()
    }
}
