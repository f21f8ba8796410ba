//! Speed beside the peers, as ratios measured in one run on the machine at hand: the commands are
//! interleaved, each round runs every one once, and medians with their ranges are printed.

use crate::run;
use anyhow::{Context, Result, bail};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

const ROUNDS: usize = 7;
const DIRECTORIES: usize = 100;
const FILES: usize = 100;

/// A way to do the work: shell text with `$I` (image), `$E` and `$X` (images that hold the tree,
/// of ext4 and XFS), `$T` (tree), `$S` (one of files of 100 bytes), `$P` (the tree as a prototype
/// file of mkfs.xfs), `$O` (target folder) and `$B` (our command).
struct Way {
    name: &'static str,
    script: &'static str,
}

const POPULATE_EXT4: &str =
    "rm -f $I; $B mkfs -q -t ext4 --size 1G $I; $B cp -a $T/. $I:/; sync $I";

const POPULATE: &[Way] = &[
    Way { name: "mke2fs -d", script: "rm -f $I; mke2fs -q -F -t ext4 -d $T $I 1G; sync $I" },
    Way { name: "iopath", script: POPULATE_EXT4 },
];

/// Files of 100 bytes: with `inline_data` their content lies in their inodes.
const POPULATE_SMALL: &[Way] = &[
    Way {
        name: "without inline_data",
        script: "rm -f $I; $B mkfs -q -t ext4 --size 1G $I; $B cp -a $S/. $I:/; sync $I",
    },
    Way {
        name: "with inline_data",
        script: "rm -f $I; $B mkfs -q -t ext4 -O inline_data --size 1G $I; $B cp -a $S/. $I:/
            sync $I",
    },
];

const EXTRACT: &[Way] = &[
    Way { name: "debugfs rdump", script: "debugfs -R \"rdump / $O\" $I 2>/dev/null" },
    Way { name: "iopath", script: "$B cp -r $I:/. $O" },
];

const POPULATE_XFS: &[Way] = &[
    Way {
        name: "mkfs.xfs -p",
        script: "rm -f $I; truncate -s 1G $I; mkfs.xfs -q -f -p $P $I; sync $I",
    },
    Way { name: "iopath, ext4", script: POPULATE_EXT4 },
    Way {
        name: "iopath, xfs",
        script: "rm -f $I; $B mkfs -q -t xfs --size 1G $I; $B cp -a $T/. $I:/; sync $I",
    },
];

const EXTRACT_XFS: &[Way] = &[
    Way { name: "iopath, ext4", script: "$B cp -r $E:/. $O" },
    Way { name: "iopath, xfs", script: "$B cp -r $X:/. $O" },
];

/// What the ways of XFS find: a prototype file, and both images.
const PREPARE: &str = "{ echo /; echo 0 0; echo 'd--755 0 0'; for d in $T/*; do
    echo \"${d##*/} d--755 0 0\"; for f in $d/*; do echo \"${f##*/} ---644 0 0 $f\"; done
    echo '$'; done; echo '$'; } >$P
    $B mkfs -q -t ext4 --size 1G $E; $B cp -a $T/. $E:/
    $B mkfs -q -t xfs --size 1G $X; $B cp -a $T/. $X:/";

/// Runs all comparisons and prints one table.
pub fn run_all() -> Result<()> {
    run::cargo(&["build", "--release", "--quiet"])?;
    let place = scratch()?;
    let tree = place.join("tree");
    make_tree(&tree)?;
    make_tree_of(&place.join("small"), 100)?;
    println!("| work | way | median s | range s | ratio to the first |\n|---|---|---|---|---|");
    let compared = compare("populate 10,000 x 4 KiB", POPULATE, &place)
        .and_then(|()| compare("extract them", EXTRACT, &place))
        .and_then(|()| compare("populate 10,000 x 100 bytes", POPULATE_SMALL, &place))
        .and_then(|()| run_script(PREPARE, &place))
        .and_then(|()| compare("populate XFS with them", POPULATE_XFS, &place))
        .and_then(|()| compare("extract them from XFS", EXTRACT_XFS, &place));
    std::fs::remove_dir_all(&place).context("removing the scratch folder")?;
    compared?;
    run::cargo(&["bench", "--quiet", "-p", "iopath-ext4", "--bench", "meta"])?;
    run::cargo(&["bench", "--quiet", "-p", "iopath-ext4", "--bench", "kernel"])?;
    run::cargo(&["bench", "--quiet", "-p", "iopath-ext4", "--bench", "encrypt"])?;
    run::cargo(&["bench", "--quiet", "-p", "iopath-xfs", "--bench", "kernel"])
}

fn scratch() -> Result<PathBuf> {
    let shm = Path::new("/dev/shm");
    let base = if shm.is_dir() { shm.to_path_buf() } else { std::env::temp_dir() };
    let place = base.join(format!("iopath-bench-{}", std::process::id()));
    std::fs::create_dir_all(&place).with_context(|| place.display().to_string())?;
    Ok(place)
}

pub(crate) fn make_tree(tree: &Path) -> Result<()> {
    make_tree_of(tree, 4096)
}

/// Files of so many bytes.
fn make_tree_of(tree: &Path, bytes: usize) -> Result<()> {
    let mut state = 1u64;
    for directory in 0..DIRECTORIES {
        let folder = tree.join(format!("d{directory:03}"));
        std::fs::create_dir_all(&folder)?;
        for file in 0..FILES {
            let mut content = Vec::with_capacity(bytes + 8);
            while content.len() < bytes {
                state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
                content.extend_from_slice(&state.to_le_bytes());
            }
            content.truncate(bytes);
            std::fs::write(folder.join(format!("file{file:05}")), content)?;
        }
    }
    Ok(())
}

#[allow(clippy::disallowed_methods, reason = "a bench measures real time")]
fn time_once(way: &Way, place: &Path) -> Result<f64> {
    let target = place.join("out");
    let _ = std::fs::remove_dir_all(&target);
    std::fs::create_dir_all(&target)?;
    let start = Instant::now();
    run_script(way.script, place)?;
    Ok(start.elapsed().as_secs_f64())
}

fn run_script(script: &str, place: &Path) -> Result<()> {
    let status = Command::new("sh")
        .args(["-ec", script])
        .env("I", place.join("image"))
        .env("E", place.join("ext4"))
        .env("X", place.join("xfs"))
        .env("T", place.join("tree"))
        .env("S", place.join("small"))
        .env("P", place.join("prototype"))
        .env("O", place.join("out"))
        .env("B", run::root().join("target/release/iopath"))
        .status()
        .context("cannot start sh")?;
    if !status.success() {
        bail!("failed ({status}): {script}");
    }
    Ok(())
}

fn compare(work: &str, ways: &[Way], place: &Path) -> Result<()> {
    let mut seconds = vec![Vec::new(); ways.len()];
    for _ in 0..ROUNDS {
        for (way, seconds) in ways.iter().zip(&mut seconds) {
            seconds.push(time_once(way, place)?);
        }
    }
    let mut first = None;
    for (way, seconds) in ways.iter().zip(&mut seconds) {
        seconds.sort_by(f64::total_cmp);
        let median = seconds[ROUNDS / 2];
        let base = *first.get_or_insert(median);
        println!(
            "| {work} | {} | {median:.3} | {:.3}..{:.3} | {:.2} |",
            way.name,
            seconds[0],
            seconds[ROUNDS - 1],
            median / base
        );
    }
    Ok(())
}
