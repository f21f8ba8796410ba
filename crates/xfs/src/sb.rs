//! The superblock of a file system that is open for writing.

use rt::Cx;

use crate::alloc::Space;
use crate::alloc::super_block::SUPER;
pub(crate) use crate::alloc::super_block::log_super as log;
use crate::error::Result;
use crate::format::{AgHeader, RawSuper};
use crate::trans::{Trans, reservations};

/// The superblock as it is now. May park.
///
/// # Errors
/// A check of it; the device failed.
pub(crate) fn read(cx: &mut Cx, space: &Space) -> Result<RawSuper> {
    let map = space.header_map(0, AgHeader::Super);
    let buf = space.log.bufs().read(cx, &[map], &SUPER)?;
    Ok(buf.with(|bytes| *RawSuper::view(bytes).expect("a sector holds a superblock")))
}

/// Changes the superblock in a transaction of its own. May park.
///
/// # Errors
/// A check of it; the device failed.
pub(crate) fn edit(cx: &mut Cx, space: &Space, change: impl FnOnce(&mut RawSuper)) -> Result<()> {
    let mut trans = Trans::alloc(cx, &space.log, reservations::superblock(&space.geometry))?;
    log(cx, &mut trans, space, change)?;
    trans.commit(cx)?;
    Ok(())
}
