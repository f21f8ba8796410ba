//! What a mount answers to the ioctl `XFS_IOC_FSGEOMETRY`.
//!
//! Source: ioctl_xfs_fsgeometry(2), and answers of Linux 6.18 for file systems with and without
//! each feature.

use base::Errno;
use rt::Cx;
use zerocopy::{Immutable, IntoBytes};

use super::read_super;
use crate::Xfs;
use crate::format::features::{Incompat, Version};
use crate::format::hash::Case;
use crate::format::{Geometry, RawSuper};
use crate::sb;

/// `struct xfs_fsop_geom`, in the host's byte order.
#[derive(IntoBytes, Immutable)]
#[repr(C)]
struct RawFsopGeom {
    blocksize: u32,
    rtextsize: u32,
    agblocks: u32,
    agcount: u32,
    logblocks: u32,
    sectsize: u32,
    inodesize: u32,
    imaxpct: u32,
    datablocks: u64,
    rtblocks: u64,
    rtextents: u64,
    logstart: u64,
    uuid: [u8; 16],
    sunit: u32,
    swidth: u32,
    version: i32,
    flags: u32,
    logsectsize: u32,
    rtsectsize: u32,
    dirblocksize: u32,
    logsunit: u32,
    sick: u32,
    checked: u32,
    rgextents: u32,
    rgcount: u32,
    rtstart: u64,
    rtreserved: u64,
    reserved: [u64; 14],
}

const _: () = assert!(size_of::<RawFsopGeom>() == 256);

/// The version of the structure.
const VERSION: i32 = 5;
/// Bits of `flags` that every file system of version 5 has.
const ALWAYS: u32 = 0x1_cdca;

fn flags(raw: &RawSuper, geometry: &Geometry) -> u32 {
    let version = Version::from_bits_retain(raw.sb_versionnum.get());
    let features = &geometry.features;
    let has = [
        (0, version.contains(Version::ATTR)),
        (2, version.contains(Version::QUOTA)),
        (4, geometry.stripe.0 > 0),
        (9, geometry.sector_size > 512),
        (12, features.case() == Case::Ignored),
        (17, features.finobt()),
        (18, features.sparse()),
        (19, features.rmapbt()),
        (20, features.reflink()),
        (21, features.bigtime()),
        (22, features.inobtcount()),
        (23, features.nrext64()),
        (24, features.exchange()),
        (25, features.parent()),
        (26, features.incompat.contains(Incompat::METADIR)),
    ];
    let bits = has.iter().filter(|(_, has)| *has).map(|(bit, _)| 1 << bit);
    bits.fold(ALWAYS, |all, bit: u32| all | bit)
}

impl Xfs {
    /// The structure of `XFS_IOC_FSGEOMETRY`. May park.
    ///
    /// # Errors
    /// `EOPNOTSUPP` for version 4; the device failed.
    pub(super) fn fsop_geometry(&self, cx: &mut Cx) -> Result<Vec<u8>, Errno> {
        self.check_alive()?;
        let geometry = self.geometry();
        if geometry.v4() {
            return Err(Errno::EOPNOTSUPP);
        }
        let raw = match &self.write {
            Some(writer) => sb::read(cx, &writer.space).map_err(|error| self.fail(error))?,
            None => read_super(cx, &self.queue).map_err(|error| error.to_errno())?.0,
        };
        let answer = RawFsopGeom {
            blocksize: geometry.block_size,
            rtextsize: raw.sb_rextsize.get(),
            agblocks: geometry.ag_blocks,
            agcount: geometry.ag_count(),
            logblocks: geometry.log_blocks,
            sectsize: geometry.sector_size,
            inodesize: geometry.inode_size,
            imaxpct: geometry.inode_percent_max.into(),
            datablocks: geometry.blocks_count(),
            rtblocks: raw.sb_rblocks.get(),
            rtextents: raw.sb_rextents.get(),
            logstart: geometry.log_start.0,
            uuid: geometry.uuid,
            sunit: geometry.stripe.0,
            swidth: geometry.stripe.1,
            version: VERSION,
            flags: flags(&raw, geometry),
            logsectsize: geometry.log_sector_size,
            rtsectsize: geometry.block_size,
            dirblocksize: geometry.dir_block_size,
            logsunit: geometry.log_sunit,
            sick: 0,
            checked: 0,
            rgextents: raw.sb_rgextents.get(),
            rgcount: raw.sb_rgcount.get(),
            rtstart: raw.sb_rtstart.get(),
            rtreserved: raw.sb_rtreserved.get(),
            reserved: [0; 14],
        };
        Ok(answer.as_bytes().to_vec())
    }
}
