//! Larger and smaller: the plan of a resize of ext2, ext3 and ext4, and the form of that of XFS
//! ([`plan_shrink`](crate::plan_shrink)).
//!
//! 1. [`plan`] only reads. It decides the new geometry, where bitmaps and inode tables go, which
//!    blocks and inodes must move, and keeps the blocks that change in memory.
//! 2. [`LayoutPlan::prepare`] writes what nobody sees yet: zeros for new inode tables, and the
//!    contents of files into blocks that are free. A cut leaves the old size.
//! 3. [`LayoutPlan::judge`] runs the check over the result.
//! 4. The rest goes through an undo file, as a repair does.
//!
//! Source of the rules: resize2fs(8), and resize2fs 1.47 observed.

use std::sync::Arc;

use base::{Page, Sector};
use block::{BioFlags, DeviceError, Overlay, Queue};
use ext4::format::Geometry;
use ext4::shape;
use rt::{Cx, Meter};

use crate::plan::Plan;
use crate::volume::{self, EditError, Effort, Volume};

mod dirs;
mod finish;
mod least;
mod numbers;
pub(crate) mod place;
mod quota;
pub(crate) mod walk;

use place::Relayout;

/// Bytes that one copy moves at most.
const COPY_MAX: u64 = 1 << 20;

/// What size is wanted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Size {
    /// All of the device.
    Device,
    /// So many bytes, rounded down to blocks.
    Bytes(u64),
    /// As small as it can be.
    Least,
    /// As it is.
    Keep,
}

/// What is wanted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ResizeOptions {
    /// The size.
    pub size: Size,
    /// The feature `64bit` on or off; None leaves it.
    pub wide: Option<bool>,
    /// Bytes that the device will have when the plan is carried out; None: as many as it has.
    pub device_bytes: Option<u64>,
}

/// A size in numbers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Numbers {
    /// Blocks.
    pub blocks: u64,
    /// Groups.
    pub groups: u32,
    /// Inodes.
    pub inodes: u32,
    /// Bytes of a group descriptor.
    pub desc_size: u32,
}

/// A part of a file that moves, in blocks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Move {
    /// From here.
    pub from: u64,
    /// To there, which is free.
    pub to: u64,
    /// So many.
    pub len: u64,
}

/// What will be done.
#[derive(Debug)]
pub struct ResizePlan {
    /// Bytes of a block.
    pub block_size: u32,
    /// As it is.
    pub before: Numbers,
    /// As it will be.
    pub after: Numbers,
    /// Blocks of files that move.
    pub blocks_moved: u64,
    /// Inodes that get another number.
    pub inodes_moved: u64,
    /// What is written.
    pub layout: LayoutPlan,
}

/// What will be done to an XFS that shrinks.
#[derive(Debug)]
pub struct ShrinkPlan {
    /// Bytes of a block.
    pub block_size: u32,
    /// Blocks and groups as they are.
    pub before: (u64, u32),
    /// Blocks and groups as they will be.
    pub after: (u64, u32),
    /// Blocks of content, and of the log, that move.
    pub blocks_moved: u64,
    /// Inodes that get another number.
    pub inodes_moved: u64,
    /// What is written.
    pub layout: LayoutPlan,
}

/// What a change of the layout writes, first and then.
#[derive(Debug)]
pub struct LayoutPlan {
    /// Bytes of a block.
    pub(crate) block_size: u32,
    /// Runs of blocks that must read as zeros: start and length.
    pub(crate) zeroes: Vec<(u64, u64)>,
    pub(crate) moves: Vec<Move>,
    /// What goes through the undo file.
    pub plan: Plan,
}

/// Plans a resize. Reads only; parks.
///
/// # Errors
/// [`EditError`]: the file system stays as it is.
pub fn plan(
    cx: &mut Cx,
    queue: &Arc<Queue>,
    options: &ResizeOptions,
    effort: &Effort,
) -> Result<ResizePlan, EditError> {
    if options.size == Size::Least {
        return least::plan(cx, queue, options, effort);
    }
    let mut volume = Volume::open(cx, queue, effort)?;
    if let Some(bytes) = options.device_bytes {
        volume.view.lengthen(bytes);
    }
    let size = u64::from(volume.g.block_size);
    let blocks = match options.size {
        Size::Device => volume.view.blocks(),
        Size::Bytes(bytes) => bytes / size,
        Size::Least | Size::Keep => volume.g.blocks_count,
    };
    plan_blocks(volume, blocks, options.wide)
}

/// The fewest bytes that the file system can have, as far as counting shows it. Parks.
///
/// # Errors
/// As [`plan`].
pub fn least_bytes(cx: &mut Cx, queue: &Arc<Queue>) -> Result<u64, EditError> {
    let volume = Volume::open(cx, queue, &Effort::default())?;
    let size = u64::from(volume.g.block_size);
    Ok(least::blocks(&volume, 0)? * size)
}

fn plan_blocks(
    volume: Volume<'_>,
    blocks: u64,
    wide: Option<bool>,
) -> Result<ResizePlan, EditError> {
    let (raw, g) = shape::of_size(&volume.raw, &volume.g, blocks, wide)?;
    if g.blocks_count > volume.view.blocks() {
        let (there, wanted) = (volume.view.blocks(), g.blocks_count);
        return volume::refuse(format!("the device has {there} blocks, {wanted} are asked for"));
    }
    let same = Numbers::of(&volume.g) == Numbers::of(&g);
    let mut layout = Relayout::new(volume, raw, g);
    if !same {
        layout.place()?;
        layout.numbers()?;
        layout.walk()?;
        layout.finish()?;
    }
    ResizePlan::of(layout)
}

impl Numbers {
    fn of(g: &Geometry) -> Numbers {
        Numbers {
            blocks: g.blocks_count,
            groups: g.groups_count,
            inodes: g.inodes_count,
            desc_size: g.desc_size,
        }
    }
}

impl ResizePlan {
    /// What was decided. Parks.
    ///
    /// # Errors
    /// The device's.
    pub(crate) fn of(layout: Relayout<'_>) -> Result<ResizePlan, EditError> {
        let Relayout { v, g, zeroes, copies: moves, moved, numbers, .. } = layout;
        let (block_size, before, after) = (g.block_size, Numbers::of(&v.g), Numbers::of(&g));
        let layout = LayoutPlan { block_size, zeroes, moves, plan: v.into_plan()? };
        let inodes_moved = numbers.len() as u64;
        Ok(ResizePlan {
            block_size,
            before,
            after,
            blocks_moved: moved.blocks(),
            inodes_moved,
            layout,
        })
    }

    /// True where there is nothing to do.
    pub fn is_done(&self) -> bool {
        self.before == self.after
    }
}

impl LayoutPlan {
    /// Writes what nobody sees yet: zeros and copies of contents, into free blocks. Durable
    /// afterwards. Parks.
    ///
    /// # Errors
    /// The device's; the file system is as it was.
    pub fn prepare(
        &self,
        cx: &mut Cx,
        queue: &Arc<Queue>,
        meter: &Meter,
    ) -> Result<(), DeviceError> {
        let size = u64::from(self.block_size);
        meter.begin("moving blocks", self.moves.iter().map(|part| part.len).sum());
        for &(start, len) in &self.zeroes {
            queue.write_zeroes(cx, Sector::from_bytes(start * size), len * size / 512)?;
        }
        for part in &self.moves {
            let mut done = 0;
            while done < part.len {
                let len = (part.len - done).min(COPY_MAX / size);
                let place = |block: u64| Sector::from_bytes((block + done) * size);
                let page = queue.read(cx, place(part.from), (len * size) as usize)?;
                queue.write(cx, place(part.to), page, BioFlags::empty())?;
                done += len;
                meter.add(len);
            }
        }
        queue.flush(cx)
    }

    /// The check of what the plan leaves, after [`LayoutPlan::prepare`]. Parks.
    ///
    /// # Errors
    /// The device's, and [`EditError::Wrong`].
    pub fn judge(&self, cx: &mut Cx, queue: &Arc<Queue>, meter: &Meter) -> Result<(), EditError> {
        let (_overlay, over) = Overlay::shared(queue);
        for change in &self.plan.changes {
            let page = Page::from_slice(&change.new);
            over.write(cx, Sector::from_bytes(change.offset), page, BioFlags::empty())?;
        }
        match volume::judge(cx, &over, meter) {
            Err(EditError::Wrong(text)) => {
                // Was it wrong before?
                volume::judge(cx, queue, meter).map_err(|_| {
                    let why = format!("it is damaged: check it, and repair it first ({text})");
                    EditError::Refused(why)
                })?;
                Err(EditError::Wrong(text))
            }
            judged => judged,
        }
    }
}
