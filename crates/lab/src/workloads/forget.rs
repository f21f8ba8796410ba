//! A device that keeps what a file system must read again, and forgets what files hold.
//!
//! A run writes gigabytes that nobody reads: fs_mark's files, the journal of a machine that will
//! not crash. Their time is the model's; their content would only cost memory. Writes that carry
//! [`BioFlags::META`] are kept, all others leave one shared page of zeros behind.

use std::sync::Arc;

use base::Page;
use block::{BioFlags, Device, DeviceInfo, DeviceIo, Op};

/// Length of the pages that are replaced.
const PAGE: usize = 4096;

/// See the module.
pub struct Forgetful {
    below: Arc<dyn Device>,
    zeros: Page,
}

impl Forgetful {
    /// In front of `below`.
    pub fn new(below: Arc<dyn Device>) -> Forgetful {
        Forgetful { below, zeros: Page::zeroed(PAGE) }
    }
}

impl Device for Forgetful {
    fn info(&self) -> &DeviceInfo {
        self.below.info()
    }

    fn submit(&self, io: DeviceIo) {
        if io.op != Op::Write || io.flags.contains(BioFlags::META) {
            return self.below.submit(io);
        }
        let own = io.segs.clone();
        let mut other = io.wrap(move |mut io, result| {
            io.segs = own;
            io.complete(result);
        });
        let whole = other.segs.iter_mut().filter(|seg| seg.page.len() == PAGE);
        whole.for_each(|seg| seg.page = self.zeros.clone());
        self.below.submit(other);
    }

    fn name(&self) -> String {
        self.below.name()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::Sector;
    use block::{Queue, QueueConfig};
    use device::MemoryDevice;
    use rt::Runtime;

    #[test]
    fn metadata_stays_and_content_needs_no_memory_of_its_own() {
        Runtime::real(1).enter("test", |cx| {
            let memory = Arc::new(MemoryDevice::new(1 << 20));
            let device = Arc::new(Forgetful::new(memory.clone()));
            let queue = Queue::new(cx.runtime(), device, QueueConfig::default()).unwrap();
            let page = Page::from_slice(&[7; PAGE]);
            queue.write(cx, Sector(0), page.clone(), BioFlags::META).unwrap();
            queue.write(cx, Sector(8), page.clone(), BioFlags::SYNC).unwrap();
            assert!(queue.read(cx, Sector(0), PAGE).unwrap().ptr_eq(&page));
            assert!(queue.read(cx, Sector(8), PAGE).unwrap().iter().all(|&byte| byte == 0));
            assert_eq!(page[0], 7, "the writer's page is his own");
        });
    }
}
