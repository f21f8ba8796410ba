//! The copies of the superblock, one in each group but the first: for repair, and for tools that
//! look for a file system. They change after the first one.

use std::sync::Arc;

use base::Page;
use block::{BioFlags, DeviceError, Queue};
use rt::Cx;

use crate::format::{AgHeader, Geometry, Kind, RawSuper, verifier};

/// Puts a superblock into its sector.
pub(crate) fn seal(sector: &mut [u8], raw: &RawSuper) {
    sector.fill(0);
    *RawSuper::view_mut(sector).expect("a sector holds a superblock") = *raw;
    verifier::update_crc(Kind::Super, sector);
}

/// What a change of size, label, UUID or features makes another.
fn identity(raw: &RawSuper) -> impl PartialEq + use<> {
    let features = [raw.sb_features_incompat.get(), raw.sb_features_ro_compat.get()];
    let words = (features, raw.sb_agcount.get());
    (words, raw.sb_dblocks.get(), raw.sb_fname, raw.sb_uuid, raw.sb_meta_uuid)
}

/// Makes every copy say what the superblock says. Does not wait until they are durable. May park.
///
/// # Errors
/// The device failed.
pub(crate) fn write_copies(
    cx: &mut Cx,
    queue: &Arc<Queue>,
    geometry: &Geometry,
    raw: &RawSuper,
) -> Result<(), DeviceError> {
    change_copies(cx, queue, geometry, raw, |_| true)
}

/// The same for the copies that are of before a change which was cut off. Those that are damaged
/// are left to repair.
///
/// # Errors
/// The device failed.
pub(crate) fn refresh_copies(
    cx: &mut Cx,
    queue: &Arc<Queue>,
    geometry: &Geometry,
    raw: &RawSuper,
) -> Result<(), DeviceError> {
    change_copies(cx, queue, geometry, raw, |sector| {
        let whole = verifier::checksum(Kind::Super, sector);
        let whole = whole == verifier::stored_checksum(Kind::Super, sector);
        whole && RawSuper::view(sector).is_some_and(|copy| identity(copy) != identity(raw))
    })
}

fn change_copies(
    cx: &mut Cx,
    queue: &Arc<Queue>,
    geometry: &Geometry,
    raw: &RawSuper,
    wanted: impl Fn(&[u8]) -> bool,
) -> Result<(), DeviceError> {
    if geometry.v4() {
        return Ok(());
    }
    let size = geometry.sector_size as usize;
    let physical = geometry.sector_size.max(queue.info().logical_block) as usize;
    for ag in 1..geometry.ag_count() {
        let place = geometry.header_sector(ag, AgHeader::Super);
        let mut bytes = queue.read(cx, place, physical)?.to_vec();
        if wanted(&bytes[..size]) {
            seal(&mut bytes[..size], &raw.without_quota());
            queue.write(cx, place, Page::from_slice(&bytes), BioFlags::META)?;
        }
    }
    Ok(())
}
