//! `resize` of XFS: what the file system's own crate can do at once, else a plan that moves what
//! lies behind the new end.

use anyhow::{Context, Result, bail};
use repair::resize::ShrinkPlan;
use serde_json::json;
use xfs::resize::ResizeReport;

use super::{Options, print};
use crate::app::{App, BesideWord};
use crate::cmd::{repair as repair_cmd, undoable};
use crate::session::open_beside;
use crate::storage::Storage;
use crate::text;

/// What was done, or would be: blocks and groups, then what moved.
struct Done {
    before: (u64, u32),
    after: (u64, u32),
    block_size: u32,
    moved: (u64, u64),
}

/// Makes an XFS larger or smaller.
///
/// # Errors
/// A size that cannot be; no room for what must move; the device failed.
pub fn resize(app: &mut App, storage: &Storage, options: &Options) -> Result<()> {
    let target = &storage.target;
    if options.of_ext() {
        bail!("{target}: -b, -s and --memory are for ext");
    }
    let named = || target.to_string();
    repair_cmd::finish_cut(app, storage, !options.dry_run && !options.print_min)?;
    if options.min || options.print_min {
        return least(app, storage, options).with_context(named);
    }
    let bytes = options.size.unwrap_or(storage.bytes());
    if options.dry_run {
        let done = match xfs::resize::look(app.cx, &storage.queue, bytes) {
            Ok(report) if report.after.0 >= report.before.0 => Done::at_once(&report),
            _ => Done::of(&plan(app, storage, bytes).with_context(named)?),
        };
        return show(app, storage, &done, false);
    }
    let log = open_beside(app, BesideWord::Log, true)?;
    let done = match xfs::resize::resize_beside(app.cx, &storage.queue, log, Some(bytes)) {
        Ok(report) => Done::at_once(&report),
        Err(error) if error.is_in_the_way() => {
            let plan = plan(app, storage, bytes).with_context(named)?;
            carry_out(app, storage, &plan, options)?
        }
        Err(error) => return Err(error).with_context(named),
    };
    let changed = done.before != done.after;
    show(app, storage, &done, changed)
}

/// Prints the smallest size, or shrinks to it.
fn least(app: &mut App, storage: &Storage, options: &Options) -> Result<()> {
    let target = &storage.target;
    let log = open_beside(app, BesideWord::Log, true)?;
    let progress = app.out.progress("planning");
    let plan = repair::plan_least_shrink(app.cx, &storage.queue, log.as_ref(), &progress.meter());
    progress.finish();
    let (least, plan) = plan?;
    if options.print_min {
        let text = format!("{target}: {} at the least ({least} bytes)", text::size(least));
        return print(app, &text, json!({ "target": target.to_string(), "minimum": least }));
    }
    let Some(plan) = plan else {
        let line = format!("{target}: keeps its size of {}", text::size(least));
        let document = json!({ "target": target.to_string(), "minimum": least, "changed": false });
        return print(app, &line, document);
    };
    let done = match options.dry_run {
        true => Done::of(&plan),
        false => carry_out(app, storage, &plan, options)?,
    };
    show(app, storage, &done, !options.dry_run)
}

fn carry_out(
    app: &mut App,
    storage: &Storage,
    plan: &ShrinkPlan,
    options: &Options,
) -> Result<Done> {
    let progress = app.out.progress("resizing");
    let prepared = plan.layout.prepare(app.cx, &storage.queue, &progress.meter());
    progress.finish();
    prepared.with_context(|| storage.target.to_string())?;
    undoable::carry_out(app, storage, &plan.layout.plan, options.undo_file.as_deref())?;
    Ok(Done::of(plan))
}

fn plan(app: &mut App, storage: &Storage, bytes: u64) -> Result<ShrinkPlan> {
    let log = open_beside(app, BesideWord::Log, true)?;
    let progress = app.out.progress("planning");
    let meter = progress.meter();
    let plan = repair::plan_shrink(app.cx, &storage.queue, log.as_ref(), bytes, &meter);
    progress.finish();
    Ok(plan?)
}

impl Done {
    fn at_once(report: &ResizeReport) -> Done {
        let ResizeReport { before, after, block_size } = *report;
        Done { before, after, block_size, moved: (0, 0) }
    }

    fn of(plan: &ShrinkPlan) -> Done {
        Done {
            before: plan.before,
            after: plan.after,
            block_size: plan.block_size,
            moved: (plan.blocks_moved, plan.inodes_moved),
        }
    }
}

fn show(app: &mut App, storage: &Storage, done: &Done, changed: bool) -> Result<()> {
    let target = &storage.target;
    let bytes = |blocks: u64| blocks * u64::from(done.block_size);
    let (before, after) = (bytes(done.before.0), bytes(done.after.0));
    let (blocks, inodes) = done.moved;
    let line = if before == after {
        format!("{target}: keeps its size of {}", text::size(after))
    } else {
        format!(
            "{target}: {}, {} before ({} groups, {} before; {blocks} blocks and {inodes} inodes \
             moved){}",
            text::size(after),
            text::size(before),
            done.after.1,
            done.before.1,
            if changed { "" } else { "; nothing was changed" },
        )
    };
    let document = json!({
        "target": target.to_string(),
        "before": { "size": before, "groups": done.before.1 },
        "after": { "size": after, "groups": done.after.1 },
        "blocks_moved": blocks,
        "inodes_moved": inodes,
        "changed": changed,
    });
    print(app, &line, document)
}
