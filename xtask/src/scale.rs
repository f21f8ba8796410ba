//! `docs/scale.md`: trees of many small files built, listed, extracted, compared, checked and
//! repaired beside the tools that people use, in one run on the machine at hand.
//!
//! Two trees, of which one is a hundred times the other: the time of a file should not grow.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use crate::peers::middle;
use crate::{newest, run};

const PAGE: &str = "docs/scale.md";
/// Files of a directory.
const IN_DIRECTORY: u64 = 100;
/// Bytes of a file.
const BYTES: usize = 1024;
/// Rounds of the small tree; the large one has one.
const ROUNDS: usize = 5;
/// The small tree has one file in so many of the large one.
const SMALLER: u64 = 100;

/// A way to do some work, in words of the shell: `$T` (tree), `$E` and `$X` (images that hold it),
/// `$D` and `$Y` (the same, damaged), `$O` (target), `$B` (our command), `$S` (bytes of an image),
/// `$N` (inodes), `$newest_TOOL` (a tool of today).
struct Way {
    name: &'static str,
    /// What is not measured.
    before: &'static str,
    script: &'static str,
    /// The exit status, of tools that say by it what they found or changed.
    status: i32,
}

/// Some work, the tool's way first, and the most that ours may take of its time.
struct Work {
    name: &'static str,
    ways: [Way; 2],
    goal: Option<f64>,
    /// What is removed behind it, so that not everything is in memory at once.
    gone: &'static str,
}

/// What one work leaves and no other one needs.
const LEFT: &str = "rm -rf $O $O.tar $D $D.undo $Y $Y.undo";

const fn way(name: &'static str, before: &'static str, script: &'static str) -> Way {
    Way { name, before, script, status: 0 }
}

/// A way that ends with 1: it has found a difference, or changed something.
const fn finding(name: &'static str, before: &'static str, script: &'static str) -> Way {
    Way { name, before, script, status: 1 }
}

const WORKS: &[Work] = &[
    Work {
        name: "build ext4",
        goal: Some(0.45),
        gone: "",
        ways: [
            way(
                "mke2fs -d",
                "rm -f $E",
                "exec mke2fs -q -F -t ext4 -N $N -d $T $E $(($S / 1024))k",
            ),
            way("iopath mkfs -d", "rm -f $E", "exec $B mkfs -q -t ext4 -N $N --size $S -d $T $E"),
        ],
    },
    Work {
        name: "extract from ext4, beside a copy in memory",
        goal: Some(0.6),
        gone: "",
        ways: [
            way("cp -a", "rm -rf $O", "exec cp -a $T $O"),
            way("iopath cp -a", "rm -rf $O; mkdir $O", "exec $B cp -q -a $E:/. $O"),
        ],
    },
    Work {
        name: "an archive of ext4, beside one of a tree in memory",
        goal: None,
        gone: "",
        ways: [
            way("tar -cf", "rm -f $O.tar", "exec tar -C $T -cf $O.tar ."),
            way("iopath cp -a", "rm -f $O.tar", "exec $B cp -q -a $E:/. $O.tar:"),
        ],
    },
    Work {
        name: "list ext4 with attributes, beside a tree in memory",
        goal: None,
        gone: "",
        ways: [
            way("find -ls", "", "exec find $T -ls >/dev/null"),
            way("iopath manifest", "", "exec $B manifest $E >/dev/null"),
        ],
    },
    Work {
        name: "compare ext4 with a tree, beside two trees",
        goal: None,
        gone: "",
        ways: [
            way("diff -r", "rm -rf $O; cp -a $T $O", "exec diff -r $T $O"),
            way("iopath diff", "", "exec $B diff $E:/ $T >/dev/null"),
        ],
    },
    Work {
        name: "check ext4",
        goal: Some(0.3),
        gone: "",
        ways: [
            way("e2fsck -fn", "", "exec $newest_e2fsck -fn $E >/dev/null 2>&1"),
            way("iopath check", "", "exec $B check -q $E >/dev/null"),
        ],
    },
    Work {
        name: "repair ext4, some names and counts wrong",
        goal: Some(0.5),
        gone: "rm $E",
        ways: [
            finding("e2fsck -fy", DAMAGE_EXT4, "exec $newest_e2fsck -fy $D >/dev/null 2>&1"),
            finding("iopath repair", DAMAGE_EXT4, REPAIR_EXT4),
        ],
    },
    Work {
        name: "build XFS",
        goal: Some(0.8),
        gone: "",
        ways: [
            way(
                "mkfs.xfs -p",
                "rm -f $X; truncate -s $S $X",
                "exec $newest_mkfs_xfs -q -f -p $T $X",
            ),
            way("iopath mkfs -d", "rm -f $X", "exec $B mkfs -q -t xfs --size $S -d $T $X"),
        ],
    },
    Work {
        name: "extract from XFS, beside a copy in memory",
        goal: Some(0.6),
        gone: "rm -rf $T",
        ways: [
            way("cp -a", "rm -rf $O", "exec cp -a $T $O"),
            way("iopath cp -a", "rm -rf $O; mkdir $O", "exec $B cp -q -a $X:/. $O"),
        ],
    },
    Work {
        name: "check XFS",
        goal: Some(0.5),
        gone: "",
        ways: [
            way("xfs_repair -n", "", "exec $newest_xfs_repair -n $X >/dev/null 2>&1"),
            way("iopath check", "", "exec $B check -q $X >/dev/null"),
        ],
    },
    Work {
        name: "repair XFS, some names and counts wrong",
        goal: Some(0.5),
        gone: "",
        ways: [
            way("xfs_repair", DAMAGE_XFS, "exec $newest_xfs_repair $Y >/dev/null 2>&1"),
            finding("iopath repair", DAMAGE_XFS, REPAIR_XFS),
        ],
    },
];

/// What the damage is repaired by; as e2fsck, it ends with 1 where it has changed something.
const REPAIR_EXT4: &str = "exec $B repair -q -y --undo-file $D.undo $D >/dev/null";
const REPAIR_XFS: &str = "exec $B repair -q -y --undo-file $Y.undo $Y >/dev/null";

/// Link counts that are wrong, and inodes that are gone while their names stay.
const DAMAGE_EXT4: &str = "rm -f $D $D.undo; cp --sparse=always $E $D
    { for n in 3 4 5; do echo sif /d00000/file0000$n links_count 9; done
      for n in 6 7 8; do echo clri /d00000/file0000$n; done
    } | $newest_debugfs -w $D >/dev/null 2>&1";

/// Link counts that are wrong, and a free space of a group that is wrong.
const DAMAGE_XFS: &str = "rm -f $Y $Y.undo; cp --sparse=always $X $Y
    for n in 3 4 5; do
      inode=$($B stat $Y:/d00000/file0000$n | sed -n 's/.*Inode: *\\([0-9]*\\).*/\\1/p')
      $newest_xfs_db -x -c \"inode $inode\" -c 'write -d core.nlinkv2 9' $Y >/dev/null 2>&1
    done
    $newest_xfs_db -x -c 'agf 1' -c 'write -d freeblks 1' $Y >/dev/null 2>&1";

/// The tools of today, and where their folder has them.
const TOOLS: [&str; 5] = ["mkfs.xfs", "xfs_repair", "xfs_db", "e2fsck", "debugfs"];

/// A tree and what is made of it.
struct Place {
    folder: PathBuf,
    files: u64,
    /// Our command.
    ours: PathBuf,
}

/// What one way took.
struct Figure {
    seconds: Vec<f64>,
    /// Most memory of the process, KiB.
    memory: u64,
}

impl Figure {
    fn median(&self) -> f64 {
        middle(&self.seconds)
    }
}

/// Measures and writes the page.
///
/// # Errors
/// A tool failed; there is no room.
pub fn write(args: &[&str]) -> Result<()> {
    let mut files = 1_000_000;
    for arg in args {
        files = arg.parse().with_context(|| format!("{arg}: not a number of files"))?;
    }
    let ours = match std::env::var_os("IOPATH_BIN") {
        Some(ours) => ours.into(),
        None => {
            run::cargo(&["build", "--release", "--quiet", "--bin", "iopath"])?;
            run::root().join("target/release/iopath")
        }
    };
    newest::require()?;
    let mut page = HEAD.replace("{machine}", &machine()?).replace("{files}", &spaced(files));
    page = page.replace("{small}", &spaced(files / SMALLER));
    page = page.replace("{rounds}", &ROUNDS.to_string());
    page = page.replace("{in_directory}", &IN_DIRECTORY.to_string());
    let small = Place::make(files / SMALLER, &ours)?;
    let of_small = small.figures(ROUNDS);
    fs::remove_dir_all(&small.folder)?;
    let of_small = of_small?;
    let large = Place::make(files, &ours)?;
    let of_large = large.figures(1);
    fs::remove_dir_all(&large.folder)?;
    let of_large = of_large?;
    for (work, (small, large)) in WORKS.iter().zip(of_small.iter().zip(&of_large)) {
        rows(&mut page, work, small, large)?;
    }
    fs::write(PAGE, page).with_context(|| PAGE.to_owned())
}

const HEAD: &str = "# At scale

What many small files cost, beside the tools that people use. `cargo xtask scale` writes this page:
files of 1 KiB, {in_directory} in each directory, trees and images in memory. *Measured* in one run
in a release build, on {machine}: medians of {rounds} rounds for {small} files, one round for
{files}.

*beside* is the ratio to the tool's time on the large tree. *a file* is how much longer a file of
the large tree takes than one of the small tree. Memory is the most that the process had, without
the host's page cache. mkfs.xfs, xfs_repair and e2fsck are those of Debian's newest suite.

| work | way | {small} files, s | {files} files, s | beside | goal | a file | MiB |
| --- | --- | --- | --- | --- | --- | --- | --- |
";

fn rows(page: &mut String, work: &Work, small: &[Figure; 2], large: &[Figure; 2]) -> Result<()> {
    for (index, way) in work.ways.iter().enumerate() {
        let (few, many) = (small[index].median(), large[index].median());
        let ratio = many / large[0].median();
        let goal = match work.goal.filter(|_| index == 1) {
            Some(goal) if ratio <= goal => format!("{goal}"),
            Some(goal) => format!("{goal}, missed"),
            None => String::new(),
        };
        let (name, way) = (work.name, way.name);
        let growth = many / few / SMALLER as f64;
        let memory = large[index].memory.div_ceil(1024);
        write!(page, "| {name} | {way} | {few:.3} | {many:.2} | {ratio:.2} | {goal} ")?;
        writeln!(page, "| {growth:.2} | {memory} |")?;
    }
    Ok(())
}

impl Place {
    fn make(files: u64, ours: &Path) -> Result<Place> {
        let folder = PathBuf::from(format!("/dev/shm/iopath-scale-{}", std::process::id()));
        for directory in 0..files / IN_DIRECTORY {
            let directory = folder.join(format!("tree/d{directory:05}"));
            fs::create_dir_all(&directory).with_context(|| directory.display().to_string())?;
            for file in 0..IN_DIRECTORY {
                let path = directory.join(format!("file{file:05}"));
                let text = path.display().to_string();
                fs::write(&path, text.bytes().cycle().take(BYTES).collect::<Vec<u8>>())?;
            }
        }
        Ok(Place { folder, files, ours: ours.to_owned() })
    }

    fn figures(&self, rounds: usize) -> Result<Vec<[Figure; 2]>> {
        WORKS.iter().map(|work| self.figure(work, rounds)).collect()
    }

    /// Every round runs both ways once.
    fn figure(&self, work: &Work, rounds: usize) -> Result<[Figure; 2]> {
        let mut figures = [(); 2].map(|()| Figure { seconds: Vec::new(), memory: 0 });
        for _ in 0..rounds {
            for (way, figure) in work.ways.iter().zip(&mut figures) {
                self.run(way.before, 0).with_context(|| way.name)?;
                let (seconds, memory) =
                    self.run(way.script, way.status).with_context(|| way.name)?;
                figure.seconds.push(seconds);
                figure.memory = figure.memory.max(memory);
            }
        }
        self.run(LEFT, 0)?;
        self.run(work.gone, 0)?;
        for (way, figure) in work.ways.iter().zip(&figures) {
            eprintln!(
                "{} files, {}: {}: {:.3} s",
                self.files,
                work.name,
                way.name,
                figure.median()
            );
        }
        Ok(figures)
    }

    /// Runs a script; answers seconds, and the most memory of its process in KiB.
    #[allow(clippy::disallowed_methods, reason = "a bench measures real time")]
    fn run(&self, script: &str, status: i32) -> Result<(f64, u64)> {
        let place = |name: &str| self.folder.join(name);
        let mut command = Command::new("bash");
        command.args(["-ec", script]).env("T", place("tree")).env("O", place("out"));
        command.env("E", place("ext4")).env("X", place("xfs"));
        command.env("D", place("ext4-damaged")).env("Y", place("xfs-damaged"));
        command.env("B", &self.ours).env("N", (self.files + self.files / 8).to_string());
        // A block for each file, one for each directory, inodes, a log.
        command.env("S", (self.files * (4096 + 1024) * 6 / 5 + (320 << 20)).to_string());
        for tool in TOOLS {
            let name = format!("newest_{}", tool.replace('.', "_"));
            command.env(name, newest::words(tool));
        }
        let begin = Instant::now();
        let mut child = command.spawn().context("cannot start bash")?;
        let (about, mut memory) = (format!("/proc/{}/status", child.id()), 0);
        let ended = loop {
            if let Some(ended) = child.try_wait()? {
                break ended;
            }
            memory = memory.max(peak(Path::new(&about)).unwrap_or(0));
            std::thread::sleep(Duration::from_millis(2));
        };
        if ended.code() != Some(status) {
            bail!("{ended}: {script}");
        }
        Ok((begin.elapsed().as_secs_f64(), memory))
    }
}

/// The most memory that a process had so far, KiB.
fn peak(status: &Path) -> Option<u64> {
    let text = fs::read_to_string(status).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    line.split_whitespace().next()?.parse().ok()
}

/// Processor, how many of it, kernel.
fn machine() -> Result<String> {
    let processors = fs::read_to_string("/proc/cpuinfo")?;
    let model = processors.lines().find_map(|line| line.strip_prefix("model name"));
    let model = model.map_or("", |name| name.trim_start_matches(['\t', ' ', ':'])).to_owned();
    let count = std::thread::available_parallelism().map_or(1, usize::from);
    Ok(format!("{count} processors ({model}), Linux {}", run::kernel()?))
}

/// A number with commas.
fn spaced(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}
