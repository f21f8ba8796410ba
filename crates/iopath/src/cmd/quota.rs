//! `quota`: usage and limits of users, groups and projects on an ext4 image.

use std::ffi::OsString;
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::{Result, bail};
use clap::{Args, Subcommand, ValueEnum};
use ext4::format::quota::{Dqblk, Kind};
use ext4::quota::{Grace, Limits};
use ext4::{CheckOptions, Ext4, Rule};
use serde_json::json;
use vfs::FileSystem;

use crate::app::{App, at};
use crate::session::{self, Session};
use crate::storage::{Known, Storage};
use crate::target::{Target, TargetPath};

/// Show, set and check the quota of users, groups and projects on an ext4 image
///
/// Limits of space are in KiB, grace periods in seconds; 0 is no limit.
#[derive(Args)]
#[command(after_help = "Examples:
  iopath mkfs -O quota,project --size 1G disk.img
  iopath quota report disk.img
  iopath quota report --kind project --json disk.img
  iopath quota set --kind user --id 1000 --block-hard 102400 --inode-soft 5000 disk.img
  iopath quota grace --kind user --block 86400 disk.img
  iopath quota project --inherit disk.img:/srv/a 77
  iopath quota check disk.img")]
pub struct Options {
    #[command(subcommand)]
    action: Action,
}

#[derive(Subcommand)]
enum Action {
    /// Usage and limits of every id
    Report {
        /// The image
        target: OsString,
        /// Only of this kind
        #[arg(long, value_enum)]
        kind: Option<KindName>,
    },
    /// Set limits; those that are not given stay
    Set {
        /// The image
        target: OsString,
        /// Whose
        #[arg(long, value_enum)]
        kind: KindName,
        /// Number of the user, group or project
        #[arg(long)]
        id: u32,
        /// KiB that may be exceeded for the grace period
        #[arg(long, value_name = "KIB")]
        block_soft: Option<u64>,
        /// KiB that may never be exceeded
        #[arg(long, value_name = "KIB")]
        block_hard: Option<u64>,
        /// Inodes that may be exceeded for the grace period
        #[arg(long, value_name = "N")]
        inode_soft: Option<u64>,
        /// Inodes that may never be exceeded
        #[arg(long, value_name = "N")]
        inode_hard: Option<u64>,
    },
    /// Set grace periods; one that is not given stays
    Grace {
        /// The image
        target: OsString,
        /// Whose
        #[arg(long, value_enum)]
        kind: KindName,
        /// Of space
        #[arg(long, value_name = "SECONDS")]
        block: Option<u32>,
        /// Of inodes
        #[arg(long, value_name = "SECONDS")]
        inode: Option<u32>,
    },
    /// Show the project of a file or directory, or set it
    Project {
        /// TARGET:/path
        place: OsString,
        /// The new project; without it the present one is shown
        id: Option<u32>,
        /// What is made in the directory belongs to the project too
        #[arg(long, requires = "id")]
        inherit: bool,
    },
    /// Compare usage with what the inodes have; exit status 4 where they differ
    Check {
        /// The image
        target: OsString,
    },
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum KindName {
    User,
    Group,
    Project,
}

impl From<KindName> for Kind {
    fn from(name: KindName) -> Kind {
        match name {
            KindName::User => Kind::User,
            KindName::Group => Kind::Group,
            KindName::Project => Kind::Project,
        }
    }
}

/// Runs `quota`.
///
/// # Errors
/// The image cannot be opened or has no quota; a limit cannot be set.
pub fn run(app: &mut App, options: &Options) -> Result<ExitCode> {
    match &options.action {
        Action::Report { target, kind } => {
            let target = TargetPath::parse(target)?.target;
            with_ext4(app, &target, false, |app, fs| report(app, &target, fs, *kind))?;
        }
        Action::Set { target, kind, id, block_soft, block_hard, inode_soft, inode_hard } => {
            let (target, kind) = (TargetPath::parse(target)?.target, Kind::from(*kind));
            with_ext4(app, &target, true, |app, fs| {
                counted(&target, fs, kind)?;
                let report = fs.quota_report(app.cx, kind).map_err(at(&target))?;
                let old = report.into_iter().find(|(found, _)| found == id);
                let old = old.map(|(_, entry)| entry).unwrap_or_default();
                let limits = Limits {
                    block_soft: block_soft.unwrap_or(old.block_soft),
                    block_hard: block_hard.unwrap_or(old.block_hard),
                    inode_soft: inode_soft.unwrap_or(old.inode_soft),
                    inode_hard: inode_hard.unwrap_or(old.inode_hard),
                };
                fs.quota_set(app.cx, kind, *id, &limits).map_err(at(&target))
            })?;
        }
        Action::Grace { target, kind, block, inode } => {
            let (target, kind) = (TargetPath::parse(target)?.target, Kind::from(*kind));
            with_ext4(app, &target, true, |app, fs| {
                counted(&target, fs, kind)?;
                let old = fs.quota_grace(kind).map_err(at(&target))?;
                let grace = Grace {
                    blocks: block.unwrap_or(old.blocks),
                    inodes: inode.unwrap_or(old.inodes),
                };
                fs.quota_set_grace(app.cx, kind, grace).map_err(at(&target))
            })?;
        }
        Action::Project { place, id, inherit } => {
            let place = TargetPath::parse(place)?;
            with_ext4(app, &place.target, id.is_some(), |app, fs| {
                project(app, &place, fs, *id, *inherit)
            })?;
        }
        Action::Check { target } => return check(app, &TargetPath::parse(target)?.target),
    }
    Ok(ExitCode::SUCCESS)
}

/// Mounts an ext4 image, works on it and unmounts.
fn with_ext4(
    app: &mut App,
    target: &Target,
    write: bool,
    work: impl FnOnce(&mut App, &Arc<Ext4>) -> Result<()>,
) -> Result<()> {
    let storage = Storage::open(app, target, write)?;
    if storage.must_be_known(app)? != Known::Ext {
        bail!("{target}: only ext4 has quota here");
    }
    let fs = session::mount_ext(app, &storage, write)?;
    let result = work(app, &fs);
    let closed = session::close(app, Session::on(target.clone(), fs));
    result?;
    closed
}

fn counted(target: &Target, fs: &Ext4, kind: Kind) -> Result<()> {
    if fs.quota_kinds().contains(&kind) {
        return Ok(());
    }
    bail!("{target}: {} quota is not counted: `iopath mkfs -O quota,project`", kind.name())
}

fn report(app: &mut App, target: &Target, fs: &Ext4, only: Option<KindName>) -> Result<()> {
    let kinds = fs.quota_kinds();
    if let Some(only) = only {
        counted(target, fs, only.into())?;
    } else if kinds.is_empty() {
        bail!("{target}: no quota is counted: `iopath mkfs -O quota,project`");
    }
    let wanted = |kind: &Kind| only.is_none_or(|only| Kind::from(only) == *kind);
    for kind in kinds.into_iter().filter(wanted) {
        let list = fs.quota_report(app.cx, kind).map_err(at(target))?;
        let grace = fs.quota_grace(kind).map_err(at(target))?;
        if app.out.json {
            for (id, entry) in list {
                app.out.document(&document(kind, id, &entry))?;
            }
            continue;
        }
        let now = app.cx.realtime().sec.max(0) as u64;
        app.out.line(format!("*** Report for {} quotas on device {target}", kind.name()))?;
        let (blocks, inodes) = (span(grace.blocks.into()), span(grace.inodes.into()));
        app.out.line(format!("Block grace time: {blocks}; Inode grace time: {inodes}"))?;
        app.out.line("                        Block limits                File limits")?;
        let title = format!("{}{}", kind.name()[..1].to_uppercase(), &kind.name()[1..]);
        app.out
            .line(format!("{title:<15} used    soft    hard  grace    used  soft  hard  grace"))?;
        app.out.line("-".repeat(70))?;
        for (id, entry) in list {
            app.out.line(row(id, &entry, now))?;
        }
    }
    Ok(())
}

/// A line as repquota(8) prints it; ids are shown as numbers.
fn row(id: u32, entry: &Dqblk, now: u64) -> String {
    let used = entry.space.div_ceil(1024);
    let over = |used: u64, soft: u64| if soft != 0 && used > soft { '+' } else { '-' };
    let (blocks, inodes) = (over(used, entry.block_soft), over(entry.inodes, entry.inode_soft));
    let left = |time: u64| match time {
        0 => String::new(),
        time if time <= now => "none".into(),
        time => span(time - now),
    };
    format!(
        "{:<10}{blocks}{inodes} {used:>7} {:>7} {:>7} {:>6} {:>7} {:>5} {:>5} {:>6}",
        format!("#{id}"),
        entry.block_soft,
        entry.block_hard,
        left(entry.block_time),
        entry.inodes,
        entry.inode_soft,
        entry.inode_hard,
        left(entry.inode_time)
    )
    .trim_end()
    .to_string()
}

fn span(seconds: u64) -> String {
    match seconds {
        172_800.. => format!("{}days", (seconds + 43_200) / 86_400),
        _ => format!("{:02}:{:02}", seconds / 3600, seconds / 60 % 60),
    }
}

fn document(kind: Kind, id: u32, entry: &Dqblk) -> serde_json::Value {
    json!({
        "kind": kind.name(),
        "id": id,
        "bytes": entry.space,
        "block_soft_kib": entry.block_soft,
        "block_hard_kib": entry.block_hard,
        "block_grace_ends": entry.block_time,
        "inodes": entry.inodes,
        "inode_soft": entry.inode_soft,
        "inode_hard": entry.inode_hard,
        "inode_grace_ends": entry.inode_time,
    })
}

fn project(
    app: &mut App,
    place: &TargetPath,
    fs: &Arc<Ext4>,
    id: Option<u32>,
    inherit: bool,
) -> Result<()> {
    let shared: Arc<dyn FileSystem> = fs.clone();
    let session = Session::on(place.target.clone(), shared);
    let ino = session.find(app, &place.path, false)?.ino;
    if let Some(id) = id {
        return fs.set_project(app.cx, ino, id, inherit).map_err(at(place));
    }
    let (id, inherit) = fs.project(app.cx, ino).map_err(at(place))?;
    if app.out.json {
        return Ok(app.out.document(&json!({ "project": id, "inherit": inherit }))?);
    }
    Ok(app.out.line(format!("{id}{}", if inherit { " inherited" } else { "" }))?)
}

fn check(app: &mut App, target: &Target) -> Result<ExitCode> {
    let storage = Storage::open(app, target, false)?;
    if storage.must_be_known(app)? != Known::Ext {
        bail!("{target}: only ext4 has quota here");
    }
    let report = ext4::check(app.cx, &storage.queue, &CheckOptions::default())?;
    let quota = |rule: Rule| matches!(rule, Rule::QuotaFile | Rule::QuotaUsage);
    let (wrong, others): (Vec<_>, Vec<_>) =
        report.findings.iter().partition(|found| quota(found.rule));
    for found in &wrong {
        app.out.line(format!("{target}: {found}"))?;
    }
    if !others.is_empty() {
        let count = others.len();
        app.out.note(format!("{target}: {count} other findings: `iopath check {target}`"));
    }
    Ok(if wrong.is_empty() { ExitCode::SUCCESS } else { ExitCode::from(4) })
}
