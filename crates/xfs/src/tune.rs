//! Changes the label, the UUID and some features of an existing file system that is not mounted.
//! Only features that leave existing structures valid can be set.
//!
//! Label and features change in one transaction. The UUID is in the log, too, and who mounts asks
//! for that of the last record: so an unmount record without a UUID is written, which fits both;
//! then the superblock and its copies; then a record with the new one. A mount that finds the
//! record without one writes the copies again. The blocks of metadata keep the old UUID
//! (`sb_meta_uuid`), as with xfs_admin.
//!
//! Source: xfs_admin(8); "XFS Algorithms and Data Structures", `sb_meta_uuid`.

use std::sync::Arc;

use base::Page;
use block::{BioFlags, Queue};
use rt::Cx;

use crate::buf::meta::Reader;
use crate::buf::{BufCache, BufCacheConfig};
use crate::error::Result as XfsResult;
use crate::format::features::{Beside, Incompat, RoCompat};
use crate::format::{AgHeader, Geometry, Kind, RawSuper, verifier};
use crate::fs::WriteSide;
use crate::ialloc::tree_blocks;
use crate::log::recovery::{self as log_recovery, RecoveryContext};
use crate::log::{Log, LogGeometry, LogOptions};
use crate::mount::copies::write_copies;
use crate::mount::recovery::{self, recover};
use crate::mount::{self, MountError};
use crate::sb;
use crate::trans::{Trans, reservations};

/// The feature whose numbers must be right before it is set.
const COUNTED: &str = "inobtcount";

/// Bytes of a label.
const LABEL_MAX: usize = 12;

/// Bytes of a log that is long enough with any features, and blocks.
const LOG_MIN: u64 = 64 << 20;
const LOG_BLOCKS_MIN: u64 = 1280;

/// What to change.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct TuneOptions {
    /// The label, at most 12 bytes; empty for none.
    pub label: Option<Vec<u8>>,
    /// The UUID.
    pub uuid: Option<[u8; 16]>,
    /// Features to turn on, by the names of `xfs_admin -O`: there is no way back.
    pub features: Vec<String>,
}

/// Why something cannot be changed.
#[derive(Clone, Debug, thiserror::Error)]
pub enum TuneError {
    /// It cannot be written, or is damaged.
    #[error(transparent)]
    Mount(#[from] MountError),
    /// Too long.
    #[error("a label of {0} bytes has more than 12")]
    Label(usize),
    /// Linux would refuse the log: changes of such a file system are larger.
    #[error("nrext64 needs a log of 64 MiB, and of 1280 blocks; this one has {0} bytes")]
    Log(u64),
    /// A feature that cannot be turned on afterwards.
    #[error("{0}: not one of bigtime, nrext64, exchange, inobtcount")]
    Feature(String),
    /// As xfs_admin has it.
    #[error("exchange needs reflink")]
    Reflink,
    /// Without the tree of free inodes there is nothing that could be counted.
    #[error("inobtcount needs finobt, which is set at mkfs only")]
    Finobt,
}

impl From<crate::XfsError> for TuneError {
    fn from(error: crate::XfsError) -> TuneError {
        TuneError::Mount(error.into())
    }
}

impl From<block::DeviceError> for TuneError {
    fn from(error: block::DeviceError) -> TuneError {
        TuneError::Mount(error.into())
    }
}

/// The bits of the features.
fn bits(features: &[String]) -> Result<(Incompat, RoCompat), TuneError> {
    let counted = features.iter().any(|name| name == COUNTED);
    let ro_compat = if counted { RoCompat::INOBTCOUNT } else { RoCompat::empty() };
    let mut incompat = features.iter().filter(|name| *name != COUNTED);
    let incompat = incompat.try_fold(Incompat::empty(), |bits, name| match name.as_str() {
        "bigtime" => Ok(bits | Incompat::BIGTIME),
        "nrext64" => Ok(bits | Incompat::NREXT64),
        "exchange" => Ok(bits | Incompat::EXCHRANGE),
        other => Err(TuneError::Feature(other.to_string())),
    });
    Ok((incompat?, ro_compat))
}

/// Stores in each group how many blocks its trees of inodes have. While the feature is off nobody
/// reads that. May park.
fn count_trees(cx: &mut Cx, reader: &Reader, writer: &WriteSide) -> XfsResult<()> {
    let geometry = &reader.geometry;
    for ag in 0..geometry.ag_count() {
        let [inodes, free] = tree_blocks(cx, reader, &writer.space, ag)?;
        let mut trans = Trans::alloc(cx, &writer.log, reservations::superblock(geometry))?;
        writer.inodes.lock(cx, &mut trans, ag)?.edit(&mut trans, |raw| {
            raw.agi_iblocks.set(inodes);
            raw.agi_fblocks.set(free);
        });
        trans.commit(cx)?;
    }
    writer.log.force(cx)
}

/// Changes what is asked for. A log that is dirty is recovered first. May park.
///
/// # Errors
/// What forbids it, before anything was changed but the log recovered; the device failed.
pub fn tune(cx: &mut Cx, queue: &Arc<Queue>, options: &TuneOptions) -> Result<(), TuneError> {
    let (bits, ro_compat) = bits(&options.features)?;
    if let Some(label) = options.label.as_ref().filter(|label| label.len() > LABEL_MAX) {
        return Err(TuneError::Label(label.len()));
    }
    let (_, geometry) = mount::read_super(cx, queue)?;
    mount::check_features(&geometry, false, Beside::default())?;
    let block = u64::from(geometry.block_size);
    let log = u64::from(geometry.log_blocks) * block;
    if bits.contains(Incompat::NREXT64) && log < LOG_MIN.max(LOG_BLOCKS_MIN * block) {
        return Err(TuneError::Log(log));
    }
    if bits.contains(Incompat::EXCHRANGE) && !geometry.features.reflink() {
        return Err(TuneError::Reflink);
    }
    let counts = !ro_compat.is_empty() && !geometry.features.inobtcount();
    if counts && !geometry.features.finobt() {
        return Err(TuneError::Finobt);
    }
    recover(cx, queue)?;
    if options.label.is_some() || !bits.is_empty() || counts {
        let reader = mount::reader(queue, geometry.clone(), 16 << 20);
        let options_of_log = LogOptions::default();
        let (bufs, shared) = (reader.bufs.clone(), reader.geometry.clone());
        let (writer, _) = recovery::open(cx, bufs, shared, options_of_log, None)?;
        if counts {
            count_trees(cx, &reader, &writer)?;
        }
        sb::edit(cx, &writer.space, |raw| {
            if let Some(label) = &options.label {
                raw.sb_fname = [0; LABEL_MAX];
                raw.sb_fname[..label.len()].copy_from_slice(label);
            }
            let incompat = raw.sb_features_incompat.get() | bits.bits();
            raw.sb_features_incompat.set(incompat);
            let ro_compat = raw.sb_features_ro_compat.get() | ro_compat.bits();
            raw.sb_features_ro_compat.set(ro_compat);
        })?;
        writer.log.force(cx)?;
        let raw = sb::read(cx, &writer.space)?;
        write_copies(cx, queue, &geometry, &raw)?;
        queue.flush(cx)?;
        writer.close(cx)?;
    }
    if let Some(uuid) = options.uuid {
        set_uuid(cx, queue, &geometry, uuid)?;
    }
    Ok(())
}

/// Writes an unmount record with this UUID behind the last one.
fn end_log(cx: &mut Cx, queue: &Arc<Queue>, geometry: &Geometry, uuid: [u8; 16]) -> XfsResult<()> {
    let context = RecoveryContext::of(geometry);
    let found = log_recovery::recover(cx, queue, LogGeometry::of(geometry), &context)?;
    let bufs = BufCache::new(queue.clone(), BufCacheConfig::of(geometry, 1 << 20));
    let marked = LogGeometry { uuid, ..LogGeometry::of(geometry) };
    Log::start(cx, bufs, marked, LogOptions::default(), found.head).unmount(cx)
}

fn set_uuid(
    cx: &mut Cx,
    queue: &Arc<Queue>,
    geometry: &Geometry,
    uuid: [u8; 16],
) -> Result<(), TuneError> {
    end_log(cx, queue, geometry, [0; 16])?;
    let mut start = mount::super_bytes(cx, queue)?.to_vec();
    let size = geometry.sector_size as usize;
    let raw = RawSuper::view_mut(&mut start).expect("it was read before");
    raw.sb_uuid = uuid;
    raw.sb_meta_uuid = geometry.meta_uuid;
    // Metadata carry the file system's own one again, or not.
    let differs = uuid != geometry.meta_uuid;
    let mut incompat = Incompat::from_bits_retain(raw.sb_features_incompat.get());
    incompat.set(Incompat::META_UUID, differs);
    raw.sb_features_incompat.set(incompat.bits());
    if !differs {
        raw.sb_meta_uuid = [0; 16];
    }
    verifier::update_crc(Kind::Super, &mut start[..size]);
    let sector = size.max(queue.info().logical_block as usize);
    let place = geometry.header_sector(0, AgHeader::Super);
    queue.write(cx, place, Page::from_slice(&start[..sector]), BioFlags::META)?;
    queue.flush(cx)?;
    let (raw, geometry) = mount::read_super(cx, queue)?;
    write_copies(cx, queue, &geometry, &raw)?;
    queue.flush(cx)?;
    Ok(end_log(cx, queue, &geometry, uuid)?)
}
