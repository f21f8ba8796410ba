//! The page: the goals first, then every figure.

use super::ways::{
    EMPTY, FLAT_MAX, FUSE2FS, GOALS, Goal, KERNEL_EXT4, KERNEL_XFS, MOUNT, MOUNT_GOAL_S, MOUNTERS,
    OURS_EXT4,
};
use super::{Figures, middle};
use anyhow::{Context, Result};
use std::fmt::Write as _;
use std::process::Command;

/// Where the figures come from, in words.
fn machine() -> Result<String> {
    let script = "uname -sr; echo $(nproc) processors; mke2fs -V 2>&1 | head -1
                  fuse2fs -V 2>&1 | head -1; mkfs.xfs -V; sysbench --version
                  echo load $(cut -d' ' -f1 /proc/loadavg) at the end";
    let output = Command::new("sh").args(["-c", script]).output().context("cannot start sh")?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    Ok(text.lines().collect::<Vec<_>>().join("; "))
}

pub fn page(figures: &Figures, rounds: usize) -> Result<String> {
    let mut page = format!(
        "# Beside the peers\n\nWritten by `cargo xtask peers`. Every figure is *measured*: seconds \
         of wall-clock time, the median of {rounds} rounds\nwith the range; a round runs every way \
         once, one after the other. Images and trees lie in memory. What exactly is run is in\n\
         `xtask/src/peers/ways.rs`.\n\nMachine: {}.\n\n",
        machine()?
    );
    goals(figures, &mut page)?;
    table(figures, &mut page)?;
    if !figures.judged.is_empty() {
        page.push_str("\nWhat the judges of the format said of images that were built:\n\n");
        for (way, said) in &figures.judged {
            writeln!(page, "- {way}: {said}")?;
        }
    }
    Ok(page)
}

fn verdict(met: bool) -> &'static str {
    if met { "met" } else { "**missed**" }
}

fn goals(figures: &Figures, page: &mut String) -> Result<()> {
    page.push_str(
        "## Goals\n\nA ratio is our time over the other's: below 1 is faster. The last column is \
         what the kernel's own mount\nreaches in the same run and format, by the same ratio; the \
         one before, what a FUSE server reaches that does\nnothing (`peers/src/null.rs`): no \
         server of one thread is quicker with the same requests.\n\n\
         | work | beside | ratio | at most | | an empty server | the kernel |\n\
         |---|---|---|---|---|---|---|\n",
    );
    let figure = |work: &str, way: &str| {
        figures.median(work, way).with_context(|| format!("{work}: {way}: no figure"))
    };
    for Goal { ours: (work, ours), beside, most } in GOALS {
        let theirs = figure(beside.0, beside.1)?;
        let ratio = figure(work, ours)? / theirs;
        let met = verdict(ratio <= *most);
        let of = |ways: &[&str]| {
            let seconds = ways.iter().find_map(|way| figures.median(work, way));
            seconds.map_or(String::new(), |seconds| format!("{:.2}", seconds / theirs))
        };
        let (other, empty, kernel) = (beside.1, of(&[EMPTY]), of(&[KERNEL_EXT4, KERNEL_XFS]));
        writeln!(
            page,
            "| {work} | {other} | {ratio:.2} | {most:.2} | {met} | {empty} | {kernel} |"
        )?;
    }
    for what in ["create # empty files in one directory", "stat # after a remount", "unlink #"] {
        let each = |way, count: &str, number: f64| {
            let seconds = figure(&what.replace('#', count), way)?;
            Ok::<_, anyhow::Error>(seconds / number)
        };
        let ratio = |way| {
            let ratio = each(way, "100,000", 100_000.0)? / each(way, "2,000", 2_000.0)?;
            Ok::<_, anyhow::Error>(ratio)
        };
        let (ratio, kernel) = (ratio(OURS_EXT4)?, ratio(KERNEL_EXT4)?);
        let (what, met) = (what.replace("# ", "").replace(" #", ""), verdict(ratio <= FLAT_MAX));
        writeln!(
            page,
            "| {what}, per name | its own, 100,000 names beside 2,000 | {ratio:.2} | {FLAT_MAX:.2} \
             | {met} | | {kernel:.2} |"
        )?;
    }
    let (seconds, kernel) = (figure(MOUNT, OURS_EXT4)?, figure(MOUNT, KERNEL_EXT4)?);
    let met = verdict(seconds <= MOUNT_GOAL_S);
    writeln!(
        page,
        "| {MOUNT} | seconds | {seconds:.3} | {MOUNT_GOAL_S:.2} | {met} | | {kernel:.3} |"
    )?;
    Ok(())
}

fn table(figures: &Figures, page: &mut String) -> Result<()> {
    page.push_str(
        "\n## Figures\n\n\
         | work | way | median s | range s | to fuse2fs | to the kernel, same format |\n\
         |---|---|---|---|---|---|\n",
    );
    for ((_, work), ways) in &figures.seconds {
        for (way, seconds) in ways {
            let own = middle(seconds);
            let ratio = |other: &str| match ways.get(other) {
                Some(other) => format!("{:.2}", own / middle(other)),
                None => String::new(),
            };
            let kernel = MOUNTERS.iter().find(|m| m.name == *way).map_or("", |m| m.kernel);
            let low = seconds.iter().copied().fold(f64::MAX, f64::min);
            let high = seconds.iter().copied().fold(0.0, f64::max);
            let (fuse2fs, kernel) = (ratio(FUSE2FS), ratio(kernel));
            let range = format!("{low:.3}..{high:.3}");
            writeln!(page, "| {work} | {way} | {own:.3} | {range} | {fuse2fs} | {kernel} |")?;
        }
    }
    Ok(())
}
