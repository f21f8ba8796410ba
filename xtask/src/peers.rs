//! `docs/peers.md`: our mount and command beside the peers, measured in one run on the machine at
//! hand. Every round runs every way once; medians and ranges are told, wins and losses alike.

use crate::run;
use anyhow::{Context, Result, bail};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

const PAGE: &str = "docs/peers.md";
const ROUNDS: usize = 5;

/// Shell functions for all scripts: `t LABEL COMMAND` tells how long a command takes; `up` and
/// `down` mount and unmount, and `down` waits until the process that serves has written all.
const PRELUDE: &str = r#"
t() { label=$1; shift; a=$(date +%s%N); "$@"; b=$(date +%s%N); echo "@ $label $((b-a))"; }
ready() { until mountpoint -q $M; do sleep 0.001; done; }
fresh() { rm -f $I; truncate -s $1 $I; mke2fs -q -F -t ext4 $I; }
off() { until umount $M 2>/dev/null; do sleep 0.005; done; }
"#;

/// A way to mount.
struct Mounter {
    name: &'static str,
    functions: &'static str,
}

const MOUNTERS: &[Mounter] = &[
    Mounter {
        name: "kernel, loop",
        functions: "up() { mount -o loop,noatime $I $M; }; down() { off; }",
    },
    Mounter {
        name: "fuse2fs",
        functions: "up() { fuse2fs -f $I $M -o rw 2>/dev/null & P=$!; ready; }
                    down() { off; wait $P || true; }",
    },
    Mounter {
        name: "iopath",
        functions: "up() { $B mount -f $I $M & P=$!; ready; }; down() { off; wait $P; }",
    },
];

/// What is done on every mount: a script with `t` around what is measured.
const WORKS: &[&str] = &[
    r#"fresh 1G; up; t "populate: cp -a of 10,000 files of 4 KiB" \
         sh -c "cp -a $T/. $M/"; t "  unmount after it" down"#,
    r#"fresh 1G; up; mkdir $M/d; names 2000 >$W; cd $M/d
       t "create 2,000 empty files in one directory" xargs -a $W touch; cd /; down; up; cd $M/d
       t "stat them after a remount" sh -c "xargs -a $W stat -c '' >/dev/null"
       t "unlink them" xargs -a $W rm; cd /; down"#,
    r#"fresh 2G; up; mkdir $M/d; names 20000 >$W; cd $M/d
       t "create 20,000 empty files in one directory" xargs -a $W touch; cd /; down; up; cd $M/d
       t "stat 20,000 after a remount" sh -c "xargs -a $W stat -c '' >/dev/null"
       t "unlink 20,000" xargs -a $W rm; cd /; down"#,
    r#"fresh 2G; up; cd $M; S="sysbench fileio --file-num=16 --file-total-size=512M"
       $S prepare >/dev/null
       t "sysbench rndrw of 2 KiB, 16 threads, 200,000 events" $S --file-test-mode=rndrw \
         --file-block-size=2048 --threads=16 --time=0 --events=200000 run >$W
       cd /; down; grep '@' $W"#,
    r#"fresh 3G; up; t "write 1 GiB, 1 MiB calls, fsync" \
         dd if=/dev/zero of=$M/f bs=1M count=1024 conv=fsync status=none
       down; up; t "read it after a remount" dd if=$M/f of=/dev/null bs=1M status=none; down"#,
    r#"rm -f $I; truncate -s 100G $I; mke2fs -q -F -t ext4 -E lazy_itable_init=1 $I
       t "mount a clean image of 100 GiB" up; down"#,
];

/// The same tree into a fresh image without a mount.
const BUILDERS: &[(&str, &str)] = &[
    ("mke2fs -d", r#"rm -f $I; t "build an image of the tree" mke2fs -q -F -t ext4 -d $T $I 1G"#),
    (
        "iopath mkfs, cp",
        r#"rm -f $I; t "build an image of the tree" sh -c \
           "$B mkfs -q -t ext4 --size 1G $I; $B cp -a $T/. $I:/""#,
    ),
    ("debugfs rdump", r#"t "extract the tree" debugfs -R "rdump / $O" $I 2>/dev/null"#),
    ("iopath cp", r#"t "extract the tree" $B cp -r $I:/. $O"#),
];

type Figures = BTreeMap<(usize, String), BTreeMap<&'static str, Vec<f64>>>;

/// Measures everything and writes the page.
pub fn write() -> Result<()> {
    let binary = match std::env::var_os("IOPATH_BIN") {
        Some(binary) => PathBuf::from(binary),
        None => {
            run::cargo(&["build", "--release", "--quiet"])?;
            run::root().join("target/release/iopath")
        }
    };
    let rounds = match std::env::var("IOPATH_ROUNDS") {
        Ok(text) => text.parse().context("IOPATH_ROUNDS is a number above 0")?,
        Err(_) => ROUNDS,
    };
    let place = PathBuf::from("/dev/shm").join(format!("iopath-peers-{}", std::process::id()));
    std::fs::create_dir_all(place.join("mnt")).with_context(|| place.display().to_string())?;
    let measured = measure(&place, &binary, rounds);
    std::fs::remove_dir_all(&place).context("removing the scratch folder")?;
    std::fs::write(PAGE, page(&measured?, rounds)?).context(PAGE)
}

fn measure(place: &Path, binary: &Path, rounds: usize) -> Result<Figures> {
    crate::bench::make_tree(&place.join("tree"))?;
    let mut figures = Figures::new();
    let mut order = Vec::new();
    for round in 0..rounds {
        eprintln!("    round {} of {rounds}", round + 1);
        for work in WORKS {
            for mounter in MOUNTERS {
                let script = format!("{}\n{work}", mounter.functions);
                note(&mut figures, &mut order, mounter.name, once(place, binary, &script)?);
            }
        }
        for (name, script) in BUILDERS {
            note(&mut figures, &mut order, name, once(place, binary, script)?);
        }
    }
    Ok(figures)
}

fn note(
    figures: &mut Figures,
    order: &mut Vec<String>,
    way: &'static str,
    told: Vec<(String, f64)>,
) {
    for (label, seconds) in told {
        let at = order.iter().position(|known| *known == label).unwrap_or_else(|| {
            order.push(label.clone());
            order.len() - 1
        });
        figures.entry((at, label)).or_default().entry(way).or_default().push(seconds);
    }
}

/// Runs a script; answers the labels and seconds that it tells.
fn once(place: &Path, binary: &Path, script: &str) -> Result<Vec<(String, f64)>> {
    let _none_left = std::fs::remove_dir_all(place.join("out"));
    std::fs::create_dir_all(place.join("out"))?;
    let names = "names() { seq -f 'file-%06.0f' $1; }";
    let output = Command::new("bash")
        .args(["-ec", &format!("{PRELUDE}{names}\n{script}")])
        .env("I", place.join("image"))
        .env("M", place.join("mnt"))
        .env("T", place.join("tree"))
        .env("O", place.join("out"))
        .env("W", place.join("work"))
        .env("B", binary)
        .output()
        .context("cannot start bash")?;
    if !output.status.success() {
        bail!("{script}\n{}: {}", output.status, String::from_utf8_lossy(&output.stderr));
    }
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let lines = text.lines().filter_map(|line| line.strip_prefix("@ "));
    Ok(lines
        .filter_map(|line| {
            let (label, nanos) = line.rsplit_once(' ')?;
            Some((label.to_owned(), nanos.parse::<f64>().ok()? / 1e9))
        })
        .collect())
}

fn page(figures: &Figures, rounds: usize) -> Result<String> {
    let versions = "uname -sr; nproc; mke2fs -V 2>&1 | head -1; fuse2fs -V 2>&1 | head -1";
    let output = Command::new("sh").args(["-c", versions]).output().context("cannot start sh")?;
    let versions: Vec<String> =
        String::from_utf8_lossy(&output.stdout).lines().map(str::to_owned).collect();
    let mut page = format!(
        "# Beside the peers\n\nWritten by `cargo xtask peers`; every figure is *measured*, in \
         seconds of wall-clock time, the median of\n{rounds} interleaved rounds with the range. \
         Images lie in memory. Machine: {}.\n\n\
         | work | way | median s | range s | to fuse2fs | to the kernel |\n\
         |---|---|---|---|---|---|\n",
        versions.join("; ")
    );
    for ((_, label), ways) in figures {
        let median = |way: &str| ways.get(way).map(|seconds| middle(seconds));
        for (way, seconds) in ways {
            let own = middle(seconds);
            let ratio = |other: Option<f64>| match other {
                Some(other) => format!("{:.2}", own / other),
                None => String::new(),
            };
            let low = seconds.iter().copied().fold(f64::MAX, f64::min);
            let high = seconds.iter().copied().fold(0.0, f64::max);
            let (fuse2fs, kernel) = (ratio(median("fuse2fs")), ratio(median("kernel, loop")));
            writeln!(
                page,
                "| {} | {way} | {own:.3} | {low:.3}..{high:.3} | {fuse2fs} | {kernel} |",
                label.trim()
            )?;
        }
    }
    page.push_str(
        "\nA ratio is our time over the other's: below 1 is faster. What is measured is in \
         `xtask/src/peers.rs`.\n",
    );
    Ok(page)
}

fn middle(seconds: &[f64]) -> f64 {
    let mut sorted = seconds.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted[sorted.len() / 2]
}
