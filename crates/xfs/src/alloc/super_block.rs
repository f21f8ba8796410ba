//! The superblock as part of a transaction.

use rt::Cx;

use super::Space;
use crate::buf::BufOps;
use crate::error::Result;
use crate::format::{AgHeader, Kind, RawSuper};
use crate::trans::Trans;

pub(crate) static SUPER: BufOps =
    BufOps { name: "superblock", kinds: &[Kind::Super], check: None, unmapped: false };

/// Changes the superblock as part of a transaction. May park.
///
/// # Errors
/// A check of it; the device failed.
pub(crate) fn log_super(
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
