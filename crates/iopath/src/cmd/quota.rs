//! `quota`: usage and limits of users, groups and projects on an ext4 or XFS image.

use std::ffi::OsString;
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::{Result, bail};
use clap::{Args, Subcommand, ValueEnum};
use ext4::format::quota::Form;
use serde_json::json;
use vfs::FileSystem;
use vfs::quota::{Account, Dqblk, Grace, Kind, Limits, Project, Quota};
use xfs::mount::options::MountOption;

use crate::app::{App, at};
use crate::mount_arg::{MountArg, apply_ext};
use crate::session::{self, Session};
use crate::storage::{Known, Storage};
use crate::target::{Target, TargetPath};

/// Show, set and check the quota of users, groups and projects on an ext4 or XFS image
///
/// Limits of space are in KiB, grace periods in seconds; 0 is no limit. XFS counts from the mount
/// on that asks for it with `-o uquota,gquota,pquota`; later ones go on, until `-o noquota`.
#[derive(Args)]
#[command(after_help = "Examples:
  iopath mkfs -O quota,project --size 1G disk.img
  iopath quota report disk.img
  iopath quota report --kind project --json disk.img
  iopath quota set --kind user --id 1000 --block-hard 102400 --inode-soft 5000 disk.img
  iopath quota grace --kind user --block 86400 disk.img
  iopath quota project --inherit disk.img:/srv/a 77
  iopath quota report -o uquota,gquota,pquota xfs.img
  iopath quota set -o rtdev=rt.img --kind user --id 1000 --realtime-hard 1048576 xfs.img
  iopath quota check disk.img
  iopath quota report -o usrquota,grpquota old.img   aquota.user, aquota.group in its root
  iopath quota check --count -o usrjquota=aquota.user,jqfmt=vfsv0 old.img")]
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
        /// Kind of owner: user, group or project
        #[arg(long, value_enum)]
        kind: KindName,
        /// Number of the user, group or project
        #[arg(long)]
        id: u32,
        #[command(flatten)]
        limits: NewLimits,
    },
    /// Set grace periods; one that is not given stays
    Grace {
        /// The image
        target: OsString,
        /// Kind of owner: user, group or project
        #[arg(long, value_enum)]
        kind: KindName,
        /// Grace period of space
        #[arg(long, value_name = "SECONDS")]
        block: Option<u32>,
        /// Grace period of inodes
        #[arg(long, value_name = "SECONDS")]
        inode: Option<u32>,
        /// Grace period of space in a realtime section
        #[arg(long, value_name = "SECONDS")]
        realtime: Option<u32>,
    },
    /// Show the project of a file or directory, or set it
    Project {
        /// TARGET:/path
        place: OsString,
        /// The new project; without it the present one is shown
        id: Option<u32>,
        /// New files in the directory inherit the project
        #[arg(long, requires = "id")]
        inherit: bool,
    },
    /// Compare usage with what the inodes have; exit status 4 where they differ
    Check {
        /// The image
        target: OsString,
        /// Old quota files of ext: put what was counted into them
        #[arg(long)]
        count: bool,
    },
}

#[derive(Args)]
struct NewLimits {
    /// Soft limit of space in KiB
    #[arg(long, value_name = "KIB")]
    block_soft: Option<u64>,
    /// Hard limit of space in KiB
    #[arg(long, value_name = "KIB")]
    block_hard: Option<u64>,
    /// Soft limit of inodes
    #[arg(long, value_name = "N")]
    inode_soft: Option<u64>,
    /// Hard limit of inodes
    #[arg(long, value_name = "N")]
    inode_hard: Option<u64>,
    /// Soft limit of space in the realtime section in KiB
    #[arg(long, value_name = "KIB")]
    realtime_soft: Option<u64>,
    /// Hard limit of space in the realtime section in KiB
    #[arg(long, value_name = "KIB")]
    realtime_hard: Option<u64>,
}

impl NewLimits {
    /// These limits, and the old ones where none are given.
    fn over(&self, old: &Dqblk) -> Limits {
        Limits {
            block_soft: self.block_soft.unwrap_or(old.block_soft),
            block_hard: self.block_hard.unwrap_or(old.block_hard),
            inode_soft: self.inode_soft.unwrap_or(old.inode_soft),
            inode_hard: self.inode_hard.unwrap_or(old.inode_hard),
            realtime_soft: self.realtime_soft.unwrap_or(old.realtime_soft),
            realtime_hard: self.realtime_hard.unwrap_or(old.realtime_hard),
        }
    }
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
            with_quota(app, &target, false, |app, fs| report(app, &target, fs, *kind))?;
        }
        Action::Set { target, kind, id, limits } => {
            let (target, kind) = (TargetPath::parse(target)?.target, Kind::from(*kind));
            with_quota(app, &target, true, |app, fs| {
                counted(&target, fs, kind)?;
                let report = fs.quota.report(app.cx, kind).map_err(at(&target))?;
                let old = report.into_iter().find(|account| account.id == *id);
                let old = old.map(|account| account.entry).unwrap_or_default();
                let limits = limits.over(&old);
                fs.quota.set_limits(app.cx, kind, *id, &limits).map_err(at(&target))
            })?;
        }
        Action::Grace { target, kind, block, inode, realtime } => {
            let (target, kind) = (TargetPath::parse(target)?.target, Kind::from(*kind));
            with_quota(app, &target, true, |app, fs| {
                counted(&target, fs, kind)?;
                let old = fs.quota.grace(app.cx, kind).map_err(at(&target))?;
                let grace = Grace {
                    blocks: block.unwrap_or(old.blocks),
                    inodes: inode.unwrap_or(old.inodes),
                    realtime: realtime.unwrap_or(old.realtime),
                };
                fs.quota.set_grace(app.cx, kind, grace).map_err(at(&target))
            })?;
        }
        Action::Project { place, id, inherit } => {
            let place = TargetPath::parse(place)?;
            with_quota(app, &place.target, id.is_some(), |app, fs| {
                project(app, &place, fs, *id, *inherit)
            })?;
        }
        Action::Check { target, count } => {
            return check(app, &TargetPath::parse(target)?.target, *count);
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// A mounted file system that can count.
struct Mounted {
    fs: Arc<dyn FileSystem>,
    quota: Arc<dyn Quota>,
    /// How an image gets what is counted.
    how: &'static str,
}

/// Mounts an image, works on it and unmounts.
fn with_quota(
    app: &mut App,
    target: &Target,
    write: bool,
    work: impl FnOnce(&mut App, &Mounted) -> Result<()>,
) -> Result<()> {
    // A mount that is to count from now on writes.
    let counts = |arg| matches!(arg, MountArg::Xfs(MountOption::Quota(..) | MountOption::NoQuota));
    let write = write || app.options.of_file_system().any(counts);
    let storage = Storage::open_to_use(app, target, write)?;
    let mounted = match storage.must_be_known(app)? {
        Known::Ext => {
            let fs = session::mount_ext(app, &storage, write)?;
            Mounted { fs: fs.clone(), quota: fs, how: EXT }
        }
        Known::Xfs => {
            let fs = session::mount_xfs(app, &storage, write)?;
            Mounted { fs: fs.clone(), quota: fs, how: "`-o uquota,gquota,pquota`" }
        }
    };
    let result = work(app, &mounted);
    let closed = session::close(app, Session::on(target.clone(), mounted.fs));
    result?;
    closed
}

/// How an ext4 image gets quota.
const EXT: &str = "`iopath mkfs -O quota,project`, or `-o usrquota,grpquota` with the files of \
                   quotacheck(8)";

fn counted(target: &Target, fs: &Mounted, kind: Kind) -> Result<()> {
    if fs.quota.kinds().contains(&kind) {
        return Ok(());
    }
    bail!("{target}: {} quota is not counted: {}", kind.name(), fs.how)
}

fn report(app: &mut App, target: &Target, fs: &Mounted, only: Option<KindName>) -> Result<()> {
    let kinds = fs.quota.kinds();
    if let Some(only) = only {
        counted(target, fs, only.into())?;
    } else if kinds.is_empty() {
        bail!("{target}: no quota is counted: {}", fs.how);
    }
    let wanted = |kind: &Kind| only.is_none_or(|only| Kind::from(only) == *kind);
    for kind in kinds.into_iter().filter(wanted) {
        let list = fs.quota.report(app.cx, kind).map_err(at(target))?;
        let grace = fs.quota.grace(app.cx, kind).map_err(at(target))?;
        if app.out.json {
            for Account { id, entry } in list {
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
        for Account { id, entry } in &list {
            app.out.line(row(*id, entry, now))?;
        }
        if list.iter().any(|Account { entry, .. }| has_realtime(entry)) {
            let grace = span(grace.realtime.into());
            app.out.line(format!("Realtime section; grace time: {grace}"))?;
            app.out.line(format!("{title:<15} used    soft    hard  grace"))?;
            app.out.line("-".repeat(70))?;
            for Account { id, entry } in &list {
                app.out.line(realtime_row(*id, entry, now))?;
            }
        }
    }
    Ok(())
}

/// Whether an account has anything of a realtime section.
fn has_realtime(entry: &Dqblk) -> bool {
    entry.realtime | entry.realtime_soft | entry.realtime_hard != 0
}

/// Something that an account has, in the units of a report.
struct Used {
    used: u64,
    soft: u64,
    hard: u64,
    /// When the grace ends, in seconds since 1970; 0 where it does not run.
    ends: u64,
}

impl Used {
    /// Space, inodes, and space of a realtime section.
    fn all_of(entry: &Dqblk) -> [Used; 3] {
        let Dqblk { block_soft, block_hard, inode_soft, inode_hard, .. } = *entry;
        let Dqblk { realtime_soft, realtime_hard, .. } = *entry;
        let (space, realtime) = (entry.space.div_ceil(1024), entry.realtime.div_ceil(1024));
        let ends = [entry.block_time, entry.inode_time, entry.realtime_time];
        [
            Used { used: space, soft: block_soft, hard: block_hard, ends: ends[0] },
            Used { used: entry.inodes, soft: inode_soft, hard: inode_hard, ends: ends[1] },
            Used { used: realtime, soft: realtime_soft, hard: realtime_hard, ends: ends[2] },
        ]
    }

    /// Whether the soft limit is passed, as repquota(8) shows it.
    fn mark(&self) -> char {
        if self.soft != 0 && self.used > self.soft { '+' } else { '-' }
    }

    /// How long the grace goes on.
    fn left(&self, now: u64) -> String {
        match self.ends {
            0 => String::new(),
            time if time <= now => "none".into(),
            time => span(time - now),
        }
    }
}

/// A line as repquota(8) prints it; ids are shown as numbers.
fn row(id: u32, entry: &Dqblk, now: u64) -> String {
    let [space, inodes, _] = Used::all_of(entry);
    format!(
        "{:<10}{}{} {:>7} {:>7} {:>7} {:>6} {:>7} {:>5} {:>5} {:>6}",
        format!("#{id}"),
        space.mark(),
        inodes.mark(),
        space.used,
        space.soft,
        space.hard,
        space.left(now),
        inodes.used,
        inodes.soft,
        inodes.hard,
        inodes.left(now)
    )
    .trim_end()
    .to_string()
}

/// The same for space of the realtime section.
fn realtime_row(id: u32, entry: &Dqblk, now: u64) -> String {
    let [_, _, space] = Used::all_of(entry);
    let Used { used, soft, hard, .. } = space;
    let (id, mark, left) = (format!("#{id}"), space.mark(), space.left(now));
    format!("{id:<10}{mark}  {used:>7} {soft:>7} {hard:>7} {left:>6}").trim_end().to_string()
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
        "realtime_bytes": entry.realtime,
        "realtime_soft_kib": entry.realtime_soft,
        "realtime_hard_kib": entry.realtime_hard,
        "realtime_grace_ends": entry.realtime_time,
    })
}

fn project(
    app: &mut App,
    place: &TargetPath,
    fs: &Mounted,
    id: Option<u32>,
    inherit: bool,
) -> Result<()> {
    let session = Session::on(place.target.clone(), fs.fs.clone());
    let ino = session.find(app, &place.path, false)?.ino;
    if let Some(id) = id {
        let project = Project { id, inherit };
        return fs.quota.set_project(app.cx, ino, project).map_err(at(place));
    }
    let Project { id, inherit } = fs.quota.project(app.cx, ino).map_err(at(place))?;
    if app.out.json {
        return Ok(app.out.document(&json!({ "project": id, "inherit": inherit }))?);
    }
    Ok(app.out.line(format!("{id}{}", if inherit { " inherited" } else { "" }))?)
}

/// What a check says of quota, and how much else it found.
struct QuotaFindings {
    wrong: Vec<String>,
    others: usize,
}

fn check(app: &mut App, target: &Target, count: bool) -> Result<ExitCode> {
    let storage = Storage::open_to_use(app, target, count)?;
    let known = storage.must_be_known(app)?;
    let mut options = ext4::MountOptions::default();
    if known == Known::Ext {
        apply_ext(app.options.of_file_system(), &mut options)?;
    }
    let old = options.quota_files != [None; 2];
    if count && !old {
        bail!("{target}: --count is for old quota files (-o usrquota,grpquota); else: repair");
    }
    let QuotaFindings { wrong, others } = match known {
        Known::Ext if old => {
            QuotaFindings { wrong: check_old(app, &storage, count, &options)?, others: 0 }
        }
        Known::Ext => {
            let quota = |rule| matches!(rule, ext4::Rule::QuotaFile | ext4::Rule::QuotaUsage);
            let report = ext4::check(app.cx, &storage.queue, &ext4::CheckOptions::default())?;
            split(&report.findings, |found| quota(found.rule))
        }
        Known::Xfs => {
            let quota = |rule| matches!(rule, xfs::Rule::QuotaFile | xfs::Rule::QuotaUsage);
            let report = xfs::check(app.cx, &storage.queue, &xfs::CheckOptions::default())?;
            split(&report.findings, |found| quota(found.rule))
        }
    };
    for found in &wrong {
        app.out.line(format!("{target}: {found}"))?;
    }
    if others > 0 {
        app.out.note(format!("{target}: {others} other findings: `iopath check {target}`"));
    }
    Ok(if wrong.is_empty() { ExitCode::SUCCESS } else { ExitCode::from(4) })
}

/// The damage of old quota files; with `count` damaged ones are made anew, with the limits that
/// could be read.
fn damage_of_old(
    app: &mut App,
    storage: &Storage,
    count: bool,
    options: &ext4::MountOptions,
) -> Result<Vec<String>> {
    let target = &storage.target;
    let fs = session::mount_ext_with(app, storage, count, |plain| plain.quota_files = [None; 2])?;
    let mut damaged = Vec::new();
    for (kind, name) in [Kind::User, Kind::Group].into_iter().zip(options.quota_files) {
        let Some(name) = name else { continue };
        let found = fs.old_quota_file(app.cx, kind, name.as_bytes()).map_err(at(target))?;
        let Some(file) = found else { continue };
        let Some(damage) = file.damage else { continue };
        let kept = file.entries.len();
        damaged.push(format!("{name:?}: damaged: {damage} ({kept} entries could be read)"));
        if count {
            let form = file.form.or(options.quota_form).unwrap_or(Form::V1);
            fs.replace_old_quota_file(app.cx, kind, name.as_bytes(), form, &file.entries)
                .map_err(at(target))?;
            app.out.note(format!("{target}: {name:?}: made anew, with {kept} entries' limits"));
        }
    }
    session::close(app, Session::on(target.clone(), fs))?;
    Ok(damaged)
}

/// What old quota files say beside what the inodes have; with `count` they are made right.
fn check_old(
    app: &mut App,
    storage: &Storage,
    count: bool,
    options: &ext4::MountOptions,
) -> Result<Vec<String>> {
    let target = &storage.target;
    let damaged = damage_of_old(app, storage, count, options)?;
    if !damaged.is_empty() && !count {
        return Ok(damaged);
    }
    let fs = session::mount_ext(app, storage, count)?;
    let mut wrong = Vec::new();
    for kind in fs.quota_kinds() {
        let mut counted = fs.quota_count(app.cx, kind).map_err(at(target))?;
        let mut said = std::collections::BTreeMap::new();
        for (id, entry) in fs.quota_report(app.cx, kind).map_err(at(target))? {
            said.insert(id, (entry.space, entry.inodes));
            counted.entry(id).or_default();
        }
        for (id, (bytes, inodes)) in counted {
            let found = said.get(&id).copied().unwrap_or_default();
            if found != (bytes, inodes) {
                wrong.push(format!(
                    "{} {id} has {} bytes and {} inodes, counted {bytes} and {inodes}",
                    kind.name(),
                    found.0,
                    found.1
                ));
            }
        }
        if count {
            fs.quota_recount(app.cx, kind).map_err(at(target))?;
        }
    }
    session::close(app, Session::on(target.clone(), fs))?;
    Ok(if count { Vec::new() } else { wrong })
}

fn split<F: std::fmt::Display>(findings: &[F], of_quota: impl Fn(&F) -> bool) -> QuotaFindings {
    let wrong: Vec<_> = findings.iter().filter(|found| of_quota(found)).collect();
    let others = findings.len() - wrong.len();
    QuotaFindings { wrong: wrong.into_iter().map(ToString::to_string).collect(), others }
}
