//! Blocks that are set aside for a change before its transaction begins.

use std::sync::Arc;

use super::Space;
use crate::error::Result;

/// Blocks that were set aside for a change; what it did not take goes back when it is dropped.
pub(crate) struct BlockReservation {
    space: Arc<Space>,
    left: u64,
}

impl BlockReservation {
    /// Sets blocks aside.
    ///
    /// # Errors
    /// [`XfsError::NoSpace`](crate::XfsError::NoSpace).
    pub fn new(space: &Arc<Space>, blocks: u64) -> Result<BlockReservation> {
        if blocks > 0 {
            space.reserve(blocks)?;
        }
        Ok(BlockReservation { space: space.clone(), left: blocks })
    }

    /// Blocks that are left.
    pub fn left(&self) -> u64 {
        self.left
    }

    /// So many of them were allocated.
    pub fn take(&mut self, blocks: u64) {
        self.left = self.left.checked_sub(blocks).expect("no more than was set aside");
    }
}

impl Drop for BlockReservation {
    fn drop(&mut self) {
        self.space.give_back(self.left);
    }
}
