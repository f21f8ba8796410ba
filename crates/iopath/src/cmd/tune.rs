//! `tune`: label, UUID, defaults and features of an existing file system.

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use clap::{Args, ValueEnum};
use ext4::format::RawSuper;
use ext4::format::features::Compat;
use ext4::mkfs::Span;
use repair::tune as ext;
use repair::volume::Effort;
use serde_json::json;
use xfs::tune::TuneOptions;

use super::{resize, undoable};
use crate::app::App;
use crate::journal_arg::JournalArg;
use crate::session;
use crate::storage::{Known, Storage, ext_super, uuid_text};
use crate::target::TargetPath;

/// Change label, UUID, defaults and features of a file system
#[derive(Args)]
#[command(after_help = "\
Features of XFS are bigtime, nrext64 and exchange; there is no way back. Of ext2, ext3 and ext4
these are set and, with ^, cleared: metadata_csum, uninit_bg, metadata_csum_seed, has_journal,
fast_commit, quota, project, orphan_file; cleared: shared_blocks (files get copies of what they
share), resize_inode; and set: dir_index, large_dir, ea_inode, encrypt, extent, large_file,
huge_file, dir_nlink, stable_inodes. What changes goes through an undo file, as a repair does.
Nobody may have it mounted.

Examples:
  iopath tune -L archive disk.img
  iopath tune -U random disk.img@1
  iopath tune -O metadata_csum,^fast_commit disk.img
  iopath tune -J device=/dev/sdc /dev/sdb
  iopath tune -O ^has_journal -o journal_path=/dev/sdc /dev/sdb
  iopath tune -O bigtime,nrext64 xfs.img")]
pub struct Options {
    /// Image, device or partition: TARGET
    #[arg(value_name = "TARGET")]
    target: OsString,
    /// Name of the volume, at most 12 bytes (ext: 16); empty for none
    #[arg(short = 'L', value_name = "LABEL")]
    label: Option<String>,
    /// UUID, or random
    #[arg(short = 'U', value_name = "UUID")]
    uuid: Option<String>,
    /// Features to turn on; ext: ^NAME turns one off
    #[arg(short = 'O', value_name = "FEATURES", value_delimiter = ',')]
    features: Vec<String>,
    /// ext: kinds of quota: usrquota, grpquota, prjquota; ^NAME removes one
    #[arg(short = 'Q', value_name = "KINDS", value_delimiter = ',')]
    quota: Vec<String>,
    /// ext: orphan_file_size=BLOCKS, or bytes with a unit
    #[arg(short = 'E', value_name = "WORDS", value_parser = orphan_file_size)]
    extended: Option<Span>,
    /// ext: share of the blocks that only root may use, in percent, 0 to 50
    #[arg(short = 'm', value_name = "PERCENT", conflicts_with = "reserved")]
    percent: Option<f64>,
    /// ext: number of blocks that only root may use
    #[arg(short = 'r', value_name = "BLOCKS")]
    reserved: Option<u64>,
    /// ext: user that may use them too
    #[arg(short = 'u', value_name = "UID")]
    user: Option<u16>,
    /// ext: group that may use them too
    #[arg(short = 'g', value_name = "GID")]
    group: Option<u16>,
    /// ext: what the kernel does where it finds errors
    #[arg(short = 'e', value_name = "BEHAVIOUR")]
    errors: Option<Errors>,
    /// ext: mounts between two checks; 0 or -1 for no limit
    #[arg(short = 'c', value_name = "COUNT", allow_negative_numbers = true)]
    max_mounts: Option<i16>,
    /// ext: mounts since the last check
    #[arg(short = 'C', value_name = "COUNT")]
    mounts: Option<u16>,
    /// ext: time between two checks: days, or a number with d, w or m; 0 for no limit
    #[arg(short = 'i', value_name = "TIME", value_parser = parse_interval)]
    interval: Option<u32>,
    /// ext: default mount options, as -o of tune2fs: acl, journal_data, ..; ^NAME clears one
    #[arg(long = "default-options", value_name = "OPTIONS", value_delimiter = ',')]
    mount_options: Vec<String>,
    /// ext: mount options as a text, which the kernel adds; empty for none
    #[arg(long, value_name = "TEXT")]
    mount_text: Option<String>,
    /// ext: bytes of an inode, more than it has
    #[arg(short = 'I', value_name = "BYTES")]
    inode_size: Option<u32>,
    /// ext: make a journal, as -O has_journal
    #[arg(short = 'j')]
    journal: bool,
    /// ext: make a journal of so many bytes, e.g. 64M, or log to device=TARGET, device=UUID=..,
    /// device=LABEL=..
    #[arg(short = 'J', long, value_name = "SIZE|WORD")]
    journal_size: Option<JournalArg>,
    /// ext: use about this much memory at most for what changes; a plan that needs more is not made
    #[arg(long, value_name = "SIZE", value_parser = crate::text::parse_size)]
    memory: Option<u64>,
    /// ext: undo file that is kept; iopath undo reverts the change with it
    #[arg(short = 'z', long, value_name = "FILE")]
    undo_file: Option<PathBuf>,
}

/// What is done where errors are found.
#[derive(Clone, Copy, ValueEnum)]
enum Errors {
    /// Go on
    Continue,
    /// Become read-only
    RemountRo,
    /// Stop the machine
    Panic,
}

/// Runs `tune`.
///
/// # Errors
/// Another format; nothing to change, or what cannot be changed; the device failed.
pub fn run(app: &mut App, options: &Options) -> Result<ExitCode> {
    let target = TargetPath::parse(&options.target)?.target;
    let uuid = match options.uuid.as_deref() {
        Some("random") => Some(app.cx.random_uuid()),
        Some(text) => Some(super::mkfs::parse_uuid(text)?),
        None => None,
    };
    let of_ext = options.of_ext(uuid);
    if of_ext == ext::TuneOptions::default() {
        bail!("nothing to change: give -L, -U, -O or another option");
    }
    let storage = Storage::open_to_use(app, &target, true)?;
    if storage.must_be_known(app)? == Known::Ext {
        tune_ext(app, &storage, &of_ext, options)?;
    } else {
        tune_xfs(app, &storage, &of_ext, options)?;
    }
    if app.out.json {
        app.out.document(&json!({ "target": target.to_string(), "changed": true }))?;
    } else {
        app.out.line(format!("{target}: changed"))?;
    }
    Ok(ExitCode::SUCCESS)
}

impl Options {
    fn of_ext(&self, uuid: Option<[u8; 16]>) -> ext::TuneOptions {
        let mut features = self.features.clone();
        let journal = self.journal || self.journal_size.is_some();
        features.extend(journal.then(|| "has_journal".to_string()));
        let percent = self.percent.map(ext::Reserved::Percent);
        ext::TuneOptions {
            label: self.label.as_ref().map(|label| label.as_bytes().to_vec()),
            uuid,
            reserved: percent.or(self.reserved.map(ext::Reserved::Blocks)),
            reserved_owner: [self.user, self.group],
            errors: self.errors.map(|errors| match errors {
                Errors::Continue => ext::OnErrors::Continue,
                Errors::RemountRo => ext::OnErrors::RemountRo,
                Errors::Panic => ext::OnErrors::Panic,
            }),
            max_mounts: self.max_mounts,
            mounts: self.mounts,
            interval: self.interval,
            mount_options: self.mount_options.clone(),
            mount_text: self.mount_text.clone(),
            inode_size: self.inode_size,
            features,
            quota: self.quota.clone(),
            orphan_file_size: self.extended,
            journal_bytes: self.journal_size.as_ref().and_then(JournalArg::size),
            external_journal: None,
            journal_follows: false,
        }
    }
}

fn tune_ext(
    app: &mut App,
    storage: &Storage,
    wanted: &ext::TuneOptions,
    options: &Options,
) -> Result<()> {
    let named = || storage.target.to_string();
    resize::make_clean(app, storage, true)?;
    let raw = ext_super(app, storage)?;
    let beside = journal_of(app, storage, &raw, wanted)?;
    let new = match &options.journal_size {
        Some(journal) => journal.open(app, Some(raw.s_uuid))?,
        None => None,
    };
    let external_journal = new.as_ref().map(|journal| journal.facts);
    let journal_follows = beside.is_some();
    let wanted = ext::TuneOptions { external_journal, journal_follows, ..wanted.clone() };
    let progress = app.out.progress("planning");
    let effort = Effort { memory: options.memory, meter: progress.meter() };
    let planned = ext::plan(app.cx, &storage.queue, &wanted, &effort);
    progress.finish();
    let plan = planned.with_context(named)?;
    undoable::prepare(app, storage, &plan)?;
    undoable::carry_out(app, storage, &plan.plan, options.undo_file.as_deref())?;
    let uuid = wanted.uuid.unwrap_or(raw.s_uuid);
    if let Some(journal) = beside {
        match removes_journal(&wanted) {
            true => journal.leave(app.cx, raw.s_uuid),
            false => journal.replace_user(app.cx, raw.s_uuid, uuid),
        }
        .context("the external journal")?;
    }
    if let Some(journal) = new {
        journal.device.replace_user(app.cx, raw.s_uuid, uuid).context("the external journal")?;
    }
    Ok(())
}

fn removes_journal(wanted: &ext::TuneOptions) -> bool {
    wanted.features.iter().any(|word| word == "^has_journal")
}

/// The device of the external journal where the file system's entry there goes, or gets another
/// UUID.
fn journal_of(
    app: &mut App,
    storage: &Storage,
    raw: &RawSuper,
    wanted: &ext::TuneOptions,
) -> Result<Option<ext4::JournalDevice>> {
    let goes = removes_journal(wanted) || wanted.uuid.is_some();
    let has = raw.features().compat.contains(Compat::HAS_JOURNAL);
    if !goes || !has || raw.s_journal_inum.get() != 0 {
        return Ok(None);
    }
    let uuid = uuid_text(&raw.s_journal_uuid);
    let Some(device) = session::journal_beside(app, true)? else {
        bail!(
            "{}: its journal is {uuid}, on a device of its own: name that device by `-o \
             journal_path=DEVICE`, so that its entry there follows",
            storage.target
        );
    };
    let facts = device.facts(app.cx).context("the external journal")?;
    if facts.uuid != raw.s_journal_uuid {
        bail!("{}: its journal is {uuid}, not {}", storage.target, uuid_text(&facts.uuid));
    }
    Ok(Some(device))
}

fn tune_xfs(
    app: &mut App,
    storage: &Storage,
    given: &ext::TuneOptions,
    options: &Options,
) -> Result<()> {
    let (label, uuid) = (given.label.clone(), given.uuid);
    let known = ext::TuneOptions {
        label: label.clone(),
        uuid,
        features: options.features.clone(),
        ..ext::TuneOptions::default()
    };
    if *given != known || options.undo_file.is_some() || options.memory.is_some() {
        bail!("{}: XFS takes -L, -U and -O; the other options are for ext", storage.target);
    }
    // As for xfs_admin: `-O bigtime=1`.
    let features = options.features.iter().map(|name| name.trim_end_matches("=1").to_string());
    let wanted = TuneOptions { label, uuid, features: features.collect() };
    let done = xfs::tune::tune(app.cx, &storage.queue, &wanted);
    done.with_context(|| storage.target.to_string())
}

/// The word of `-E`.
fn orphan_file_size(word: &str) -> Result<Span, String> {
    let size = word.strip_prefix("orphan_file_size=");
    let size = size.ok_or_else(|| format!("{word} is not orphan_file_size=SIZE"))?;
    crate::text::parse_span(size)
}

/// Seconds of a time as tune2fs takes it: days, or a number with d, w or m (30 days).
fn parse_interval(text: &str) -> Result<u32, String> {
    const DAY: u32 = 86_400;
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let unit = match &text[digits.len()..] {
        "" | "d" => DAY,
        "w" => 7 * DAY,
        "m" => 30 * DAY,
        "s" => 1,
        other => return Err(format!("unit {other} is not d, w, m or s")),
    };
    let count: u32 = digits.parse().map_err(|_| format!("{text} is no time"))?;
    count.checked_mul(unit).ok_or_else(|| format!("{text} is too long"))
}
