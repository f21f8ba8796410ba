//! What formatting buffers takes, counted exactly and timed, and the checks of a debug kernel.
//!
//! Off by default: a mount pays for it only where it is asked for. The counts are those of the
//! walks that the log makes; the times are of the same walks and copies made once more, apart from
//! each other and before the log's own, less what reading the clock costs.

use rt::{Cx, Nanos, SpinLock};

use super::Log;
use super::item::LogVec;
use crate::buf::Buf;
use crate::error::Result;
use crate::format::dir_index::Leaf;
use crate::format::{At, Kind};
use crate::log::buf_item::BufItemFlags;
use crate::log::buf_item::walk::{Size, Visits};

/// What formatting buffers took since the mount.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct IopStats {
    /// Buffers that were formatted.
    pub items: u64,
    /// Of these, unmapped ones: clusters of inodes.
    pub unmapped: u64,
    /// Searches for a set or a clear bit, and runs that were looked at, in both passes.
    pub bits: u64,
    /// Computations of addresses, in both passes.
    pub addresses: u64,
    /// Dirty chunks of 128 bytes in the buffers.
    pub dirty: u64,
    /// Dirty chunks that no earlier format had.
    pub fresh: u64,
    /// Regions of data.
    pub regions: u64,
    /// Bytes of data that were copied.
    pub copied: u64,
    /// Time of the size pass and of the walks of the format pass, in nanoseconds.
    pub walk_ns: u64,
    /// Time of the copies.
    pub copy_ns: u64,
    /// Time in which the fresh chunks alone can be copied: what no variant can be faster than.
    pub least_ns: u64,
    /// Time of the checks of a debug kernel.
    pub check_ns: u64,
}

/// One formatted buffer, as [`crate::log::buf_item::BufItem::iop_stats`] describes it.
pub(crate) struct Formatted {
    pub unmapped: bool,
    pub visits: Visits,
    pub dirty: u64,
    pub fresh: u64,
    pub regions: u64,
    pub copied: u64,
}

/// Keeps the figures of a log.
pub(crate) struct Keeper {
    figures: SpinLock<IopStats>,
    /// Nanoseconds between two looks at the clock.
    clock: u64,
}

impl Keeper {
    pub fn new(cx: &Cx) -> Keeper {
        let look = |_| {
            let start = cx.now();
            cx.now().since(start).0
        };
        let clock = (0..64).map(look).min().unwrap_or(0);
        Keeper { figures: SpinLock::named("xfs iop_stats", IopStats::default()), clock }
    }

    fn span(&self, from: Nanos, to: Nanos) -> u64 {
        to.since(from).0.saturating_sub(self.clock)
    }
}

impl Log {
    /// The figures so far; none unless [`LogOptions::iop_stats`](super::LogOptions::iop_stats)
    /// asked.
    pub fn iop_stats(&self) -> Option<IopStats> {
        self.iop_stats.as_ref().map(|keeper| *keeper.figures.lock_irq())
    }

    /// Both passes of a buffer's item: `vec` becomes its log vector. `known` says that `vec` is as
    /// the last format left it. Returns whether its blocks were freed.
    pub(super) fn format_buf(&self, cx: &Cx, buf: &Buf, vec: &mut LogVec, known: bool) -> bool {
        let variant = self.options.variant;
        let mut item = buf.item.lock_irq();
        let stale = item.flags.contains(BufItemFlags::STALE);
        let reuses = item.reuses(variant, known);
        let Some(keeper) = &self.iop_stats else {
            if !reuses {
                let size = item.size(variant);
                vec.reserve(size.bytes.saturating_sub(vec.len()).next_multiple_of(512));
            }
            buf.with_memory(|memory| item.format(variant, buf.kind(), vec, known, memory));
            return stale;
        };
        let formatted = item.iop_stats(variant, known);
        let start = cx.now();
        let size = if reuses { Size::default() } else { item.size(variant) };
        item.walk_only(variant, known);
        let walked = cx.now();
        let (ranges, fresh) = (item.ranges(variant, known), item.fresh());
        vec.reserve(size.bytes.saturating_sub(vec.len()).next_multiple_of(512));
        let [copy, least] = buf.with_memory(|memory| {
            let spans = [&ranges, &fresh].map(|ranges| {
                let mut scratch = Vec::with_capacity(buf.len());
                let start = cx.now();
                for (offset, len) in ranges {
                    memory.append_to(*offset, *len, &mut scratch);
                }
                std::hint::black_box(&scratch);
                keeper.span(start, cx.now())
            });
            item.format(variant, buf.kind(), vec, known, memory);
            spans
        });
        let walk = keeper.span(start, walked);
        let mut figures = keeper.figures.lock_irq();
        figures.items += 1;
        figures.unmapped += u64::from(formatted.unmapped);
        figures.bits += formatted.visits.bits;
        figures.addresses += formatted.visits.addresses;
        figures.dirty += formatted.dirty;
        figures.fresh += formatted.fresh;
        figures.regions += formatted.regions;
        figures.copied += formatted.copied;
        figures.walk_ns += walk;
        figures.copy_ns += copy;
        figures.least_ns += least;
        stale
    }

    /// If a mount asked for the checks of a debug kernel: all of a directory's leaf.
    ///
    /// # Errors
    /// The first check that fails.
    pub(crate) fn debug_check(&self, cx: &Cx, buf: &Buf) -> Result<()> {
        let leaf = |kind: &Kind| matches!(kind, Kind::DirLeaf1 | Kind::DirLeafN);
        let Some(kind) = buf.kind().filter(leaf).filter(|_| self.options.debug_checks) else {
            return Ok(());
        };
        let start = cx.now();
        let at = At::Block(buf.daddr().0);
        buf.with(|data| Leaf::parse(kind, data, at).map(|_| ()))?;
        if let Some(keeper) = &self.iop_stats {
            let span = keeper.span(start, cx.now());
            keeper.figures.lock_irq().check_ns += span;
        }
        Ok(())
    }
}
