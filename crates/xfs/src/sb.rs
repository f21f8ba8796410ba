//! The superblock of a file system that is open for writing.

use rt::Cx;

use crate::alloc::Space;
use crate::buf::BufOps;
use crate::error::Result;
use crate::format::{AgHeader, Kind, RawSuper};
use crate::trans::{Trans, reservations};

static SUPER: BufOps =
    BufOps { name: "superblock", kinds: &[Kind::Super], check: None, unmapped: false };

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

/// Changes the superblock as part of a transaction. May park.
///
/// # Errors
/// A check of it; the device failed.
pub(crate) fn log(
    cx: &mut Cx,
    trans: &mut Trans,
    space: &Space,
    change: impl FnOnce(&mut RawSuper),
) -> Result<()> {
    let buf = trans.read_buf(cx, &[space.header_map(0, AgHeader::Super)], &SUPER)?;
    buf.with_mut(|bytes| {
        change(RawSuper::view_mut(bytes).expect("a sector holds a superblock"));
    });
    trans.log_buf(&buf, 0, size_of::<RawSuper>() - 1);
    Ok(())
}
