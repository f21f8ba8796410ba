//! Recovery: replays what a crash left in the log onto the device.
//!
//! 1. [`head`] finds the last record that is whole: by cycle numbers, then by checksums over the
//!    last records, which may have been written in any order or torn.
//! 2. [`record`] reads the records from the tail that it names; [`transaction`] puts the regions
//!    of each transaction together, over as many records as it takes.
//! 3. The first pass looks at every item: kinds that cannot be recovered are refused by name before
//!    anything is written; buffers that were freed go into the table of cancelled ones.
//! 4. The second pass recovers the transactions in their order, each block only where it is older
//!    than the transaction ([`buffer`], [`inode`]).
//! 5. Intents that were never finished, and inodes without a name, are left to the caller, who has
//!    the allocator.
//!
//! Everything in a log is checked before it is believed; there is one error for each check.
//!
//! Source: "XFS Algorithms and Data Structures", chapter on the journaling log; kernel
//! `Documentation/filesystems/xfs/xfs-self-describing-metadata.rst` on sequence numbers.

mod buffer;
mod damage;
mod dquot;
mod head;
mod icreate;
mod inode;
mod intent;
mod pass;
mod record;
mod report;
mod stamp;
mod transaction;

use std::collections::BTreeMap;
use std::sync::Arc;

use block::Queue;
use rt::Cx;

use super::{LogError, LogGeometry, LogHead};
use crate::buf::{BufCache, BufCacheConfig, BufMap};
use crate::error::{Result, XfsError};
use crate::format::Geometry;
use crate::format::dquot::QuotaFlags;
use crate::format::features::LogIncompat;
use crate::format::log::Lsn;
use crate::format::log_item::ItemKind;
use crate::log::BesideDevice;
use crate::trans::intent::Work;

pub use damage::{Change, Damaged, restore_records};
pub(crate) use head::is_clean;
pub use head::{FoundHead, HOLE, find, is_zeroed, starts_whole};
pub use intent::Unfinished;
pub use report::RecoveryReport;

/// Bytes of buffers that recovery keeps in memory.
const CACHE_BYTES: u64 = 256 << 20;

/// What recovery must know of the file system.
#[derive(Clone, Debug)]
pub struct RecoveryContext {
    /// The device of an external log.
    pub log: Option<BesideDevice>,
    /// Bytes of an inode.
    pub inode_size: u32,
    /// The UUID in blocks of metadata.
    pub meta_uuid: [u8; 16],
    /// Blocks have the forms of version 4.
    pub v4: bool,
    /// The realtime section is divided into groups, whose blocks describe themselves.
    pub realtime_groups: bool,
    /// The log may hold intents of ordinary attributes.
    pub logged_attributes: bool,
    /// Sectors of the file system.
    pub sectors: u64,
    /// Blocks of an inode cluster.
    pub cluster_blocks: u32,
    /// Bytes of a block.
    pub block_size: u32,
    /// Blocks of an allocation group, and the bits of a block number that count them.
    pub ag_blocks: (u32, u32),
    /// Number of allocation groups.
    pub ag_count: u32,
    /// The kinds of intents that can be carried out afterwards.
    pub can_finish: &'static [ItemKind],
    /// What cannot be recovered is left out and counted, for a repair that empties the log
    /// afterwards: of a damaged record what it holds, with the items that reach into it.
    pub leave_out: bool,
}

impl RecoveryContext {
    /// What recovery must know of this file system. Intents cannot be finished unless the caller
    /// says so.
    pub fn of(geometry: &Geometry) -> RecoveryContext {
        RecoveryContext {
            log: None,
            inode_size: geometry.inode_size,
            meta_uuid: geometry.meta_uuid,
            v4: geometry.v4(),
            realtime_groups: geometry.realtime.groups.is_some(),
            logged_attributes: geometry.features.log_incompat.contains(LogIncompat::XATTRS),
            sectors: geometry.blocks_count() * geometry.block_sectors(),
            cluster_blocks: geometry.chunks.cluster_blocks,
            block_size: geometry.block_size,
            ag_blocks: (geometry.ag_blocks, geometry.ag_block_bits),
            ag_count: geometry.ag_count(),
            can_finish: &[],
            leave_out: false,
        }
    }
}

impl RecoveryContext {
    /// The result, or none of something that is left out; devices that fail stop everything.
    fn or_left_out<T>(&self, result: Result<T>, left_out: &mut u64) -> Result<Option<T>> {
        match result {
            Ok(done) => Ok(Some(done)),
            Err(XfsError::Device(error)) => Err(XfsError::Device(error)),
            Err(XfsError::Log(LogError::Device(error))) => Err(LogError::Device(error).into()),
            Err(_) if self.leave_out => {
                *left_out += 1;
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    /// The file system has so many blocks.
    fn grow(&mut self, blocks: u64) {
        self.sectors = blocks * u64::from(self.block_size / 512);
        self.ag_count = blocks.div_ceil(self.ag_blocks.0.into()) as u32;
    }
}

/// What recovery did.
#[derive(Clone, Debug)]
pub struct Recovered {
    /// Where the log goes on.
    pub head: LogHead,
    /// True if there was nothing to recover.
    pub clean: bool,
    /// The last record carries no UUID: a change of the file system's was cut off.
    pub unnamed: bool,
    /// Records that were read.
    pub records: u64,
    /// Transactions that were recovered.
    pub transactions: u64,
    /// Items of them.
    pub items: u64,
    /// Buffers that were written.
    pub buffers: u64,
    /// Items that were older than what was on the device.
    pub skipped: u64,
    /// Recovery ended before a damaged record.
    pub damaged: Option<Damaged>,
    /// Items and records that could not be recovered, where that is allowed.
    pub left_out: u64,
    /// Intents without a done item, oldest first. While there are any, `head.tail` stays before
    /// them.
    pub unfinished: Vec<Unfinished>,
    /// Kinds of quota that the log says are no longer counted.
    pub quota_off: QuotaFlags,
}

/// Recovers a log: afterwards the device holds everything that the log promises but the unfinished
/// intents, and the log is to be started at the returned head. May park.
///
/// # Errors
/// [`LogError`] with what is wrong and where; nothing was written then, unless the error is the
/// device's or a target block's own.
pub fn recover(
    cx: &mut Cx,
    queue: &Arc<Queue>,
    geometry: LogGeometry,
    context: &RecoveryContext,
) -> Result<Recovered> {
    let log = context.log.as_ref().map_or(queue, |device| &device.0);
    let mut found = find(cx, log, geometry)?;
    if let Some(damaged) = found.damaged.filter(|_| context.leave_out) {
        (found.clean, found.head.head) = (false, damaged.end);
    }
    let mut recovered = Recovered {
        head: found.head,
        clean: found.clean,
        unnamed: found.unnamed,
        records: 0,
        transactions: 0,
        items: 0,
        buffers: 0,
        skipped: 0,
        damaged: found.damaged,
        left_out: 0,
        unfinished: Vec::new(),
        quota_off: QuotaFlags::empty(),
    };
    if !found.clean {
        if queue.info().read_only || log.info().read_only {
            return Err(LogError::ReadOnly.into());
        }
        let mut first = pass::FirstPass::new(context, queue.bytes() / 512);
        let walk = Walk { queue: log, geometry: &geometry, head: found.head, context };
        recovered.records = walk.pass(cx, &mut first, &mut recovered.left_out)?;
        recovered.quota_off = first.quota_off();
        let (cancelled, grown) = first.finish()?;
        // Buffers of its own: they are neither verified on read nor on write as a mount's are.
        let config =
            BufCacheConfig { uuid: grown.meta_uuid, v4: grown.v4, limit_bytes: CACHE_BYTES };
        let bufs = BufCache::new(queue.clone(), config);
        let mut second = pass::SecondPass::new(bufs, &grown, cancelled, recovered.quota_off);
        walk.pass(cx, &mut second, &mut 0)?;
        second.finish(cx, &mut recovered)?;
    }
    if !log.info().read_only && !context.leave_out {
        head::clear_ahead(cx, log, &geometry, &recovered.head)?;
    }
    Ok(recovered)
}

/// The records from the tail to the head.
struct Walk<'a> {
    queue: &'a Arc<Queue>,
    geometry: &'a LogGeometry,
    head: LogHead,
    context: &'a RecoveryContext,
}

impl Walk<'_> {
    /// One walk over all of them. The number of those that were read.
    fn pass(
        &self,
        cx: &mut Cx,
        sink: &mut dyn transaction::Sink,
        left_out: &mut u64,
    ) -> Result<u64> {
        let Walk { queue, geometry, head, context } = *self;
        let mut assembly = transaction::Assembly::new(geometry);
        let (mut at, mut records) = (head.tail, 0);
        while at != head.head {
            let taken = self.record(cx, at, &mut assembly, sink);
            if let Some(next) = context.or_left_out(taken, left_out)? {
                (at, records) = (next, records + 1);
                continue;
            }
            assembly.leave_out();
            match damage::next_record(cx, queue, geometry, at, head.head)? {
                Some(next) => at = next,
                None => break,
            }
        }
        context.or_left_out(assembly.end(cx, sink), left_out)?;
        Ok(records)
    }

    /// Takes one; answers where the next one lies.
    fn record(
        &self,
        cx: &mut Cx,
        at: Lsn,
        assembly: &mut transaction::Assembly,
        sink: &mut dyn transaction::Sink,
    ) -> Result<Lsn> {
        let geometry = self.geometry;
        let record = record::read(cx, self.queue, geometry, at)?;
        record.verify(geometry)?;
        let end = record.end(geometry);
        if geometry.position(end) > geometry.position(self.head.head) {
            return Err(LogError::NoRecord { block: end.block }.into());
        }
        assembly.record(cx, &record, sink)?;
        Ok(end)
    }
}

/// Buffers that were freed: how many cancel items name each, by first sector and length.
pub(super) type Cancelled = BTreeMap<BufMap, u32>;

/// Where an intent was logged, and its work.
type IntentWork = (Lsn, Vec<Work>);
