//! From a dirty image to a clean one, without a mount.
//!
//! Recovery brings what the log promises to its places; then what it only announced is carried out
//! (intents, inodes without a name), the counters of the superblock are added up again, and an
//! unmount record ends the log. `xfs_repair` does none of that: it can only throw a log away.

use std::fmt;
use std::sync::Arc;

use base::Sector;
use block::{Overlay, Queue};
use rt::Cx;

use crate::alloc::Space;
use crate::buf::{BufCache, BufCacheConfig, BufMap, BufOps};
use crate::error::Result;
use crate::format::features::Access;
use crate::format::{At, Features, Geometry, Kind, RawSuper};
use crate::ialloc::Inodes;
use crate::inactive::Inactive;
use crate::log::recovery::{self, Recovered, RecoveryContext};
use crate::log::{Log, LogGeometry, LogOptions};
use crate::recover;
use crate::reservations;
use crate::trans::Trans;
use crate::writer::WriteSide;

static SUPER: BufOps =
    BufOps { name: "superblock", kinds: &[Kind::Super], check: None, unmapped: false };

/// What a replay did.
#[derive(Clone, Debug)]
pub struct Replayed {
    /// True where there was nothing to do.
    pub was_clean: bool,
    /// Transactions of the log.
    pub transactions: u64,
    /// Items in them.
    pub items: u64,
    /// Items that were on the device already, in this or a newer form.
    pub skipped: u64,
    /// Buffers that were written.
    pub buffers: u64,
    /// Intents that were carried out.
    pub intents: u64,
    /// Blocks that were staged for copy on write, and freed.
    pub staged: u64,
    /// Inodes without a name that were freed.
    pub unlinked: u64,
}

impl Replayed {
    /// What recovery did, before anything that the log only announced was carried out.
    fn of(recovered: &Recovered) -> Replayed {
        Replayed {
            was_clean: recovered.clean,
            transactions: recovered.transactions,
            items: recovered.items,
            skipped: recovered.skipped,
            buffers: recovered.buffers,
            intents: recovered.unfinished.len() as u64,
            staged: 0,
            unlinked: 0,
        }
    }
}

impl fmt::Display for Replayed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} transactions replayed ({} items, {} buffers written, {} intents carried out, {} \
             unlinked inodes freed)",
            self.transactions, self.items, self.buffers, self.intents, self.unlinked
        )
    }
}

/// Replays the log of the file system on a device and leaves it clean. May park.
///
/// # Errors
/// What the superblock or the log is wrong about; features that are refused by name. Where the log
/// announces work that cannot be carried out here, [`LogError::Unfinished`](crate::log::LogError)
/// names it, before anything was written: somebody else can replay the log.
pub fn replay(cx: &mut Cx, queue: &Arc<Queue>) -> Result<Replayed> {
    let geometry = Arc::new(read_super(cx, queue)?);
    let config = BufCacheConfig { uuid: geometry.meta_uuid, limit_bytes: 256 << 20 };
    let bufs = BufCache::new(queue.clone(), config);
    let (writer, replayed) = open(cx, bufs, geometry, LogOptions::default())?;
    match replayed.was_clean {
        true => writer.abandon(cx),
        false => writer.close(cx)?,
    }
    Ok(replayed)
}

/// The device as a replay of its log would leave it, and what that did: none where the log is
/// clean. What would be written stays in memory over the device, as much as the log holds. Where
/// features forbid writing, what the log only announced is not carried out, and refused by name
/// where files depend on it. May park.
///
/// # Errors
/// As [`replay`].
pub(crate) fn in_memory(
    cx: &mut Cx,
    queue: &Arc<Queue>,
    geometry: &Geometry,
) -> Result<Option<(Arc<Queue>, Replayed)>> {
    let external = geometry.log_start.0 == 0;
    if external || recovery::find(cx, queue, LogGeometry::of(geometry))?.clean {
        return Ok(None);
    }
    let over = Overlay::queue(queue);
    let replayed = match geometry.features.access().0 {
        Access::ReadWrite => replay(cx, &over)?,
        _ => {
            let context = RecoveryContext::of(geometry);
            Replayed::of(&recovery::recover(cx, &over, LogGeometry::of(geometry), &context)?)
        }
    };
    Ok(Some((over, replayed)))
}

/// Recovers the log of a file system that may be written, carries out what it only announced, and
/// starts it. May park.
///
/// # Errors
/// As [`replay`].
pub(crate) fn open(
    cx: &mut Cx,
    bufs: Arc<BufCache>,
    geometry: Arc<Geometry>,
    options: LogOptions,
) -> Result<(WriteSide, Replayed)> {
    let mut context = RecoveryContext::of(&geometry);
    context.can_finish = &recover::CAN_FINISH;
    let log_geometry = LogGeometry::of(&geometry);
    let recovered = recovery::recover(cx, bufs.queue(), log_geometry, &context)?;
    let mut replayed = Replayed::of(&recovered);
    // Recovery wrote past these buffers.
    bufs.drop_clean();
    let log = Log::start(cx, bufs, log_geometry, options, recovered.head);
    match complete(cx, &log, geometry, recovered, &mut replayed) {
        Ok(writer) => Ok((writer, replayed)),
        Err(error) => {
            // The finisher holds the log.
            log.clear_finisher();
            log.abandon(cx);
            Err(error)
        }
    }
}

/// Carries out what the log only announced.
fn complete(
    cx: &mut Cx,
    log: &Arc<Log>,
    geometry: Arc<Geometry>,
    recovered: Recovered,
    replayed: &mut Replayed,
) -> Result<WriteSide> {
    let space = Arc::new(Space::open(cx, geometry, log.clone())?);
    recover::finish_intents(cx, &space, recovered.unfinished)?;
    log.set_finisher(space.clone());
    replayed.staged = space.free_staged(cx)?;
    let inodes = Arc::new(Inodes::open(cx, space.clone())?);
    // A clean log has no lists either: an unmount frees what is on them.
    if !recovered.clean {
        replayed.unlinked = Inactive::new(&space, &inodes, log).free_all(cx)?;
        // What was freed leaves the log before its number is used again.
        log.empty(cx)?;
    }
    Ok(WriteSide { log: log.clone(), space, inodes })
}

fn read_super(cx: &mut Cx, queue: &Arc<Queue>) -> Result<Geometry> {
    let unit = queue.info().logical_block.max(512) as usize;
    let sector = queue.read(cx, Sector(0), unit)?;
    if let Some(raw) = RawSuper::view(&sector) {
        refuse(raw)?;
    }
    Ok(Geometry::parse(&sector, At::Super(0))?)
}

/// A log is replayed only where everything in it can be understood.
fn refuse(raw: &RawSuper) -> Result<()> {
    let (access, reasons) = Features::new(raw).access();
    match reasons.into_iter().next() {
        Some(reason) if access != Access::ReadWrite => Err(reason.into()),
        _ => Ok(()),
    }
}

fn header(geometry: &Geometry, ag: u32, index: u32) -> BufMap {
    BufMap { daddr: geometry.header_sector(ag, index), len: geometry.sector_size / 512 }
}

/// Writes the counters of the superblock: in a running file system that is done at unmount only.
///
/// # Errors
/// A group's header that fails a check; what the device says.
pub(crate) fn write_super(cx: &mut Cx, writer: &WriteSide) -> Result<()> {
    let WriteSide { log, space, inodes } = writer;
    let [count, free] = inodes.count_all(cx)?;
    let blocks = space.count_free(cx)?;
    let mut trans = Trans::alloc(cx, log, reservations::superblock(&space.geometry))?;
    let buf = trans.read_buf(cx, &[header(&space.geometry, 0, 0)], &SUPER)?;
    buf.with_mut(|bytes| {
        let raw = RawSuper::view_mut(bytes).expect("a sector holds a superblock");
        raw.sb_icount.set(count);
        raw.sb_ifree.set(free);
        raw.sb_fdblocks.set(blocks);
    });
    trans.log_buf(&buf, 0, size_of::<RawSuper>() - 1);
    trans.commit(cx)?;
    Ok(())
}
