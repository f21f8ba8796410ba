//! Both forks of an inode.

use super::{Fork, Which};
use crate::format::inode::{ForkFormat, InodeCore, fork_ranges};

/// Both forks of an inode, as its core says what they are; whoever changes a fork calls
/// [`Inode::log`], which brings the core in step.
#[derive(Debug)]
pub(crate) struct Forks {
    pub data: Fork,
    pub attr: Fork,
}

impl Forks {
    /// The forks in an inode's slot.
    pub fn new(slot: &[u8], core: &InodeCore) -> Forks {
        let (data, attr) = fork_ranges(core.forkoff, slot.len());
        let mut data = slot[data].to_vec();
        if core.format == ForkFormat::Local {
            data.truncate(core.size as usize);
        }
        Forks {
            data: Fork::new(core.format, data, core.extents).of_realtime(core.is_realtime()),
            attr: Fork::new(core.attr_format, slot[attr].to_vec(), u64::from(core.attr_extents)),
        }
    }

    /// One of them.
    pub fn get(&self, which: Which) -> &Fork {
        match which {
            Which::Data => &self.data,
            Which::Attr => &self.attr,
        }
    }

    pub fn get_mut(&mut self, which: Which) -> &mut Fork {
        match which {
            Which::Data => &mut self.data,
            Which::Attr => &mut self.attr,
        }
    }
}
