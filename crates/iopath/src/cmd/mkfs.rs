//! `mkfs`: makes a file system.

use std::ffi::{OsStr, OsString};
use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use clap::Args;
use ext4::format::features::{Compat, Incompat};
use ext4::{FsType, MkfsOptions, MkfsReport};
use serde_json::{Value, json};

use crate::app::{App, EngineArg};
use crate::build::output::Output;
use crate::build::{self, Content, Filled, Moment, Recipe, Report, SourceOptions, recipe};
use crate::journal_arg::{FreeJournal, JournalArg};
use crate::storage::{self, Storage};
use crate::target::{Target, TargetPath};
use crate::text;
use crate::{recognise, remains};
use xfs::mount::options::BesideDevice;

mod ext;
mod extended;
mod letters;

/// Make an ext2, ext3, ext4 or XFS file system
#[derive(Args)]
#[command(after_help = "\
With --size an image file is made, or emptied; without, the target keeps its size. With -d the
file system is filled, and without --size it gets the size that fits. Such an image takes the
place of TARGET when it is complete. With SOURCE_DATE_EPOCH set, nothing in it is later, and
equal sources and UUIDs make equal images.

Examples:
  iopath mkfs -t ext4 --size 64M disk.img
  iopath mkfs -t ext4 -d ./rootfs --owner 0:0 --free 20% disk.img
  iopath mkfs -t xfs -d rootfs.tar.zst disk.img
  docker save debian | iopath mkfs -d - debian.img
  SOURCE_DATE_EPOCH=0 iopath mkfs -d tree --owner-map table.txt disk.img
  iopath mkfs -t ext3 -b 1024 -L boot disk.img@1
  iopath mkfs -O ^has_journal,orphan_file --size 1G disk.img
  iopath mkfs -O journal_dev -b 4096 /dev/sdc
  iopath mkfs -J device=/dev/sdc /dev/sdb
  iopath mkfs -O casefold -E encoding=utf8,encoding_flags=strict --size 1G disk.img
  iopath mkfs --compat 1.47.4 -E stride=16,stripe_width=64 --size 1G disk.img
  iopath mkfs -t xfs --compat 7.2 --size 1G disk.img
  iopath mkfs -t xfs -d rtinherit=1 -r rtdev=/dev/sdc,extsize=1m /dev/sdb
  iopath mkfs -t xfs --compat 7.2 -m metadir=1 -r rtdev=/dev/sdc,rgcount=4 /dev/sdb
  iopath mkfs -t xfs -p prototype --size 1G disk.img
  iopath mkfs -t xfs -m rmapbt=1 -d su=64k,sw=4 -n size=16k --size 2G disk.img")]
pub struct Options {
    /// Image, device or partition: TARGET
    #[arg(value_name = "TARGET", required_unless_present = "naming")]
    target: Option<OsString>,
    /// ext2, ext3, ext4 or xfs
    #[arg(short = 't', long = "type", value_name = "TYPE", default_value = "ext4",
          value_parser = fs_type)]
    kind: Kind,
    /// Size of the image, e.g. 64M; it is made or emptied
    #[arg(long, value_name = "SIZE", value_parser = text::parse_size)]
    size: Option<u64>,
    /// Changes to the features of the type: NAME,^NAME,..; journal_dev makes the journal of another
    /// file system
    #[arg(short = 'O', value_name = "FEATURES", default_value = "", hide_default_value = true)]
    features: String,
    /// Words as mke2fs 1.47.4 has them: encoding=, encoding_flags=, stride=, stripe_width=,
    /// resize=, packed_meta_blocks, num_backup_sb=, quotatype=, mmp_update_interval=,
    /// orphan_file_size=, offset=, hash_seed=, root_owner=, root_perms=, root_selinux=, test_fs,
    /// revision=, no_copy_xattrs
    #[arg(short = 'E', value_name = "WORDS")]
    extended: Vec<String>,
    /// Bytes of a block: 1024 to 65536, -BYTES for that or more; for xfs also size=BYTES
    #[arg(short, value_name = "BYTES", allow_negative_numbers = true)]
    block_size: Option<String>,
    /// Bytes of a cluster with -O bigalloc, e.g. 64K; 16 blocks without
    #[arg(short = 'C', value_name = "BYTES", value_parser = text::parse_size)]
    cluster_size: Option<u64>,
    /// Name of the volume, at most 16 bytes (12 for xfs)
    #[arg(short = 'L', value_name = "LABEL", default_value = "", hide_default_value = true)]
    label: String,
    /// Bytes of an inode
    #[arg(short = 'I', value_name = "BYTES")]
    inode_size: Option<u32>,
    /// Bytes of space per inode; for xfs size=, maxpct=, sparse=, nrext64=,
    /// exchange=
    #[arg(short = 'i', value_name = "BYTES")]
    inode_ratio: Option<String>,
    /// Number of inodes
    #[arg(short = 'N', value_name = "COUNT")]
    inodes: Option<u32>,
    /// Size of the journal (size=MIB as for mke2fs), location=, fast_commit_size=KIB; or
    /// device=TARGET, device=UUID=.., device=LABEL=.. for an external one that -O journal_dev made
    #[arg(short = 'J', value_name = "SIZE|WORD")]
    journal: Option<JournalArg>,
    /// Share of the space that only root may use, percent (5 without); for xfs finobt=, rmapbt=,
    /// reflink=, bigtime=, inobtcount=, autofsck=, uuid=, metadir=, uquota, gquota, pquota,
    /// uqnoenforce, gqnoenforce, pqnoenforce
    #[arg(short = 'm', value_name = "PERCENT")]
    reserved: Option<String>,
    /// Content, as --source; for xfs also size=, agcount=, su=, sw=, sunit=,
    /// swidth=, noalign, rtinherit=, projinherit=, extszinherit=, cowextsize=
    #[arg(short = 'd', value_name = "SOURCE|WORDS")]
    data: Vec<OsString>,
    /// ext: a file with the numbers of broken blocks; xfs: size=, su=, sunit=, version=2,
    /// logdev=DEVICE for an external log
    #[arg(short = 'l', value_name = "WORDS")]
    log: Vec<String>,
    /// ext: only say what would be made; xfs: size= of directory blocks, version=2, ftype=1,
    /// parent=
    #[arg(short = 'n', value_name = "WORDS", num_args = 0..=1)]
    naming: Option<Vec<String>>,
    /// xfs: rtdev=DEVICE for a realtime section, extsize=, size=; with
    /// -m metadir=1 rgcount=, rgsize=
    #[arg(short = 'r', value_name = "WORDS")]
    realtime: Vec<String>,
    /// xfs: size= of sectors
    #[arg(short = 's', value_name = "WORDS")]
    sector: Vec<String>,
    /// xfs: content: a directory, or a prototype file as mkfs.xfs has it; file=, with
    /// slashes_are_spaces=1 names with spaces
    #[arg(short = 'p', value_name = "DIR|FILE")]
    prototype: Option<String>,
    /// ext: 1.47.0 or 1.47.4: what that mke2fs makes with its own mke2fs.conf. xfs: what mkfs.xfs
    /// 7.2 makes for this kernel: 4.19, 5.4, 5.10, 5.15, 6.1, 6.6, 6.12, 6.18, or 7.2 for its
    /// default; what mkfs.xfs 6.1 makes without
    #[arg(long, value_name = "VERSION")]
    compat: Option<String>,
    /// xfs: options=FILE, a file of options as mkfs.xfs has them; words of the command line count
    /// more
    #[arg(short = 'c', value_name = "WORDS")]
    conf: Option<String>,
    /// UUID; for ext also clear, random, time; default: a random one
    #[arg(short = 'U', value_name = "UUID")]
    uuid: Option<String>,
    #[command(flatten)]
    ext: letters::Letters,
    /// Overwrite another file system
    #[arg(short = 'F', long)]
    force: bool,
    #[command(flatten)]
    from: Box<SourceOptions>,
}

/// The words of `-d` for xfs.
const DATA_WORDS: [&str; 12] = [
    "size",
    "agcount",
    "agsize",
    "su",
    "sw",
    "sunit",
    "swidth",
    "rtinherit",
    "daxinherit",
    "projinherit",
    "extszinherit",
    "cowextsize",
];

impl Options {
    /// Where it is made. `-n` of mke2fs takes no value, but that of mkfs.xfs does.
    fn target(&self) -> Result<&OsStr> {
        let words = self.naming.as_ref().and_then(|words| words.last());
        match (&self.target, self.kind, words) {
            (Some(target), _, _) => Ok(target),
            (None, Kind::Ext(_), Some(word)) => Ok(OsStr::new(word)),
            (None, _, _) => bail!("give TARGET: an image, a device or a partition"),
        }
    }

    /// Whether nothing is to be written.
    fn is_dry_run(&self) -> bool {
        self.naming.is_some() && matches!(self.kind, Kind::Ext(_))
    }

    /// The UUID that is asked for.
    fn uuid(&self, app: &mut App) -> Result<Option<[u8; 16]>> {
        match (self.uuid.as_deref(), self.kind) {
            (Some("clear"), Kind::Ext(_)) => Ok(Some([0; 16])),
            (Some("random"), Kind::Ext(_)) => Ok(None),
            (Some("time"), Kind::Ext(_)) => Ok(Some(ext::uuid_of_time(app))),
            (uuid, _) => uuid.map(parse_uuid).transpose(),
        }
    }

    /// `-d` is a source as for mke2fs(8), or words as for mkfs.xfs(8), which have an equals sign.
    fn data(&self) -> Result<(Vec<String>, SourceOptions)> {
        let (mut words, mut from) = (Vec::new(), (*self.from).clone());
        let is_word = |word: &str| {
            let key = word.split_once('=').map(|(key, _)| key);
            word == "noalign" || key.is_some_and(|key| DATA_WORDS.contains(&key))
        };
        for given in &self.data {
            let text = given.to_str().filter(|text| text.split(',').all(is_word));
            match (self.kind, text) {
                (Kind::Xfs, Some(text)) => words.push(text.to_owned()),
                _ if from.source.is_some() => bail!("-d names a second source"),
                _ => from.source = Some(given.clone()),
            }
        }
        if let Some(given) = &self.prototype {
            if from.source.is_some() || !matches!(self.kind, Kind::Xfs) {
                bail!("-p is for xfs, and names its only source");
            }
            let (path, spaces) = prototype(given)?;
            let kind = if Path::new(path).is_dir() { "dir" } else { "proto" };
            (from.source, from.slashes_are_spaces) =
                (Some(format!("{kind}:{path}").into()), spaces);
        }
        from.no_xattrs = extended::has(&self.extended, "no_copy_xattrs");
        Ok((words, from))
    }
}

/// The file of `-p`, and whether its slashes are spaces.
///
/// # Errors
/// A word that it does not have.
fn prototype(given: &str) -> Result<(&str, bool)> {
    let (mut path, mut spaces) = (None, false);
    for word in given.split(',') {
        match word.split_once('=') {
            Some(("file", value)) => path = Some(value),
            Some(("slashes_are_spaces", "0" | "1")) => spaces = word.ends_with('1'),
            // Those of a directory are always kept, those of a prototype are the build's.
            Some(("atime", "0" | "1")) => {}
            None if path.is_none() => path = Some(word),
            _ => bail!("-p {given}: {word}: not file=, atime= or slashes_are_spaces="),
        }
    }
    Ok((path.with_context(|| format!("-p {given}: names no file"))?, spaces))
}

/// What to make.
#[derive(Clone, Copy)]
enum Kind {
    Ext(FsType),
    Xfs,
}

fn fs_type(text: &str) -> Result<Kind, String> {
    match text {
        "xfs" => Ok(Kind::Xfs),
        other => match other.parse() {
            Ok(kind) => Ok(Kind::Ext(kind)),
            Err(_) => Err(format!("unknown type `{other}`: not ext2, ext3, ext4 or xfs")),
        },
    }
}

/// A number of one of the options that have words for xfs.
fn number<T: std::str::FromStr>(letter: char, text: &Option<String>) -> Result<Option<T>> {
    let parse = |text: &String| {
        text.parse().ok().with_context(|| format!("-{letter} {text}: not a number in range"))
    };
    text.as_ref().map(parse).transpose()
}

/// Runs `mkfs`.
///
/// # Errors
/// Impossible options, a file system that is there already, a device that failed.
pub fn run(app: &mut App, options: &Options) -> Result<ExitCode> {
    let target = TargetPath::parse(options.target()?)?.target;
    let (_, from) = options.data()?;
    ext::apply_global(app, options)?;
    let journal = open_journal(app, options)?;
    let mut recipe = recipe(app, options, journal.as_ref())?;
    if options.is_dry_run() {
        return ext::dry_run(app, options, &target, &recipe);
    }
    if !options.force {
        let inside = app.options.offset.is_some() && target.path.exists();
        let anew = (options.size.is_some() && !inside) || from.source.is_some();
        refuse_occupied(app, &target, anew)?;
    }
    if from.source.is_some() {
        let filled = build(app, options, &from, &target, recipe)?;
        enter(app, journal.as_ref(), &filled.report)?;
        show(app, &target, &filled.report, Some(&filled))?;
        return Ok(ExitCode::SUCCESS);
    }
    let storage = match options.size {
        Some(_) if target.partition.is_some() => {
            bail!("{target}: a partition has its size; leave --size out")
        }
        Some(_) if target.remote_url().is_some() => Storage::open(app, &target, true)?,
        // What lies in front of it stays.
        Some(_) if app.options.offset.is_some() && target.path.exists() => {
            Storage::open(app, &target, true)?
        }
        Some(bytes) => {
            crate::rescue::refuse_write(app, &target)?;
            let open = storage::open_options(app, true);
            let bytes = bytes.saturating_add(app.options.offset.unwrap_or(0));
            let device = device::create_with(&target.path, bytes, open)?;
            Storage::on(app, &target, device, true)?
        }
        None => Storage::open(app, &target, true)
            .with_context(|| "give --size to make a new image".to_string())?,
    };
    let is_file = target.path.metadata().is_ok_and(|meta| meta.is_file());
    // A file that was just made or emptied reads as zeros.
    recipe.on_zeros(options.size.is_some() && is_file && app.options.offset.is_none());
    let moment = Moment::of_environment(app)?;
    if moment.pinned {
        recipe = recipe.pinned(moment.now);
    }
    let report = recipe.make(app.cx, &storage.queue).with_context(|| target.to_string())?;
    enter(app, journal.as_ref(), &report)?;
    show(app, &target, &report, None)?;
    Ok(ExitCode::SUCCESS)
}

/// Opens the external journal, where one is named.
fn open_journal(app: &mut App, options: &Options) -> Result<Option<FreeJournal>> {
    let (Some(journal), Kind::Ext(_)) = (&options.journal, options.kind) else { return Ok(None) };
    let uuid = options.uuid(app)?;
    journal.open(app, uuid)
}

/// Makes the new file system the user of its external journal.
fn enter(app: &mut App, journal: Option<&FreeJournal>, report: &Report) -> Result<()> {
    match (journal, report) {
        (Some(journal), Report::Ext(report)) => {
            journal.device.enter(app.cx, report.uuid).context("the external journal")
        }
        _ => Ok(()),
    }
}

/// Makes a file system with what `-d` names in it: on a new file, that takes the target's place at
/// the end, or on a device or partition as it is.
fn build(
    app: &mut App,
    options: &Options,
    from: &SourceOptions,
    target: &Target,
    recipe: Recipe,
) -> Result<Filled> {
    crate::rescue::refuse_write(app, target)?;
    build::refuse_address(target)?;
    // In virtual time a request ends where it begins.
    app.options.engine = EngineArg::Psync;
    let shown = || target.to_string();
    let place = target.path.metadata().ok();
    let is_new = place.as_ref().is_none_or(|meta| meta.is_file());
    let on_file = is_new && target.partition.is_none();
    let fits = on_file && options.size.is_none();
    let moment = Moment::of_environment(app)?;
    let content = Content::parse(app, from, &target.path, fits)?;
    let content = content.context("-d names a source")?;
    // On a device what cannot be read is found before anything is written.
    let counted = fits || !on_file || matches!(recipe.kind, build::recipe::Kind::Ext(_));
    let plan = build::plan(app, content, moment, recipe.uuid(), counted)?;
    let mut recipe = recipe.with_uuid(plan.uuid);
    if !on_file {
        let storage = Storage::open(app, target, true)?;
        let device = storage.queue.device().clone();
        let filled = build::fill_fixed(app, &device, &mut recipe, &plan, moment);
        let filled = filled.with_context(shown)?;
        storage.queue.flush(app.cx).with_context(shown)?;
        return Ok(filled);
    }
    if place.is_some() {
        // Nobody uses what is replaced.
        drop(device::open(&target.path, storage::open_options(app, true))?);
    }
    let output = Output::new(&target.path).with_context(shown)?;
    recipe.on_zeros(true);
    let mut make = |app: &mut App, bytes: u64| {
        Ok(device::create_with(&output.place(), bytes, storage::open_options(app, true))?)
    };
    let filled = match options.size {
        Some(bytes) => {
            let device = make(app, bytes)?;
            build::fill_fixed(app, &device, &mut recipe, &plan, moment)
        }
        None => build::fill_to_fit(app, &mut recipe, &plan, moment, from.free, &mut make),
    };
    let filled = filled.with_context(shown)?;
    let format = app.options.image_format;
    let format = format.unwrap_or_else(|| container::write::format_of_name(&target.path));
    crate::disk::publish(output, &target.path, format, plan.uuid)?;
    Ok(filled)
}

/// What the options ask for.
fn recipe(app: &mut App, options: &Options, journal: Option<&FreeJournal>) -> Result<Recipe> {
    let uuid = options.uuid(app)?;
    let kind = match options.kind {
        Kind::Ext(kind) => recipe::Kind::Ext(MkfsOptions {
            external_journal: journal.map(|journal| journal.facts),
            ..ext::options(options, kind, uuid)?
        }),
        Kind::Xfs => recipe::Kind::Xfs(xfs_options(app, options, uuid)?),
    };
    let mut beside = |word: Option<&str>| match (&kind, word) {
        (recipe::Kind::Xfs(_), Some(path)) => {
            let target = Target::parse(std::ffi::OsStr::new(path))?;
            anyhow::Ok(Some(BesideDevice(Storage::open(app, &target, true)?.queue)))
        }
        _ => Ok(None),
    };
    let log = beside(device_word(&options.log, "logdev="))?;
    let realtime = beside(device_word(&options.realtime, "rtdev="))?;
    Ok(Recipe { kind, mount: app.options.of_file_system().collect(), log, realtime })
}

fn xfs_options(app: &App, options: &Options, uuid: Option<[u8; 16]>) -> Result<xfs::MkfsOptions> {
    let journal = options.journal.is_some() || options.inodes.is_some();
    if !options.extended.is_empty() {
        bail!("-E is an option for ext2, ext3 and ext4 only");
    }
    if options.cluster_size.is_some() {
        bail!("-C is an option for ext4 only");
    }
    if journal || options.inode_size.is_some() || !options.features.is_empty() {
        bail!("-O, -I, -N and -J are options for ext2, ext3 and ext4 only");
    }
    options.ext.refuse_for_xfs()?;
    let mut mkfs = xfs::MkfsOptions {
        label: options.label.clone(),
        uuid,
        ..compat(options.compat.as_deref())?
    };
    if let Some(word) = &options.conf {
        let path = word.strip_prefix("options=");
        let path = path.with_context(|| format!("-c {word}: not options=FILE"))?;
        let text = std::fs::read_to_string(path).with_context(|| path.to_string())?;
        mkfs.edit_file(&text).with_context(|| path.to_string())?;
    }
    if let Some(block) = &options.block_size {
        let words = if block.contains('=') { block.clone() } else { format!("size={block}") };
        mkfs.edit('b', &words)?;
    }
    let given = |text: &Option<String>| text.iter().cloned().collect::<Vec<_>>();
    for (letter, list) in [
        ('s', options.sector.clone()),
        ('d', options.data()?.0),
        ('i', given(&options.inode_ratio)),
        ('m', given(&options.reserved)),
        ('l', log_words(app, &options.log, &mut mkfs)?),
        ('n', options.naming.clone().unwrap_or_default()),
        ('r', realtime_words(app, &options.realtime, &mut mkfs)?),
    ] {
        list.iter().try_for_each(|words| mkfs.edit(letter, words))?;
    }
    Ok(mkfs)
}

/// The words of `-r` that are left when the device of the section is known: its size is the
/// section's, unless words behind say otherwise.
fn realtime_words(app: &App, lists: &[String], mkfs: &mut xfs::MkfsOptions) -> Result<Vec<String>> {
    let mut left = Vec::new();
    for word in lists.iter().flat_map(|list| list.split(',')) {
        let Some(path) = word.strip_prefix("rtdev=") else {
            left.push(word.to_string());
            continue;
        };
        let device = storage::open_device(app, std::path::Path::new(path), true)?;
        mkfs.realtime = Some(device.info().bytes());
    }
    if mkfs.realtime.is_none() && !left.is_empty() {
        bail!("-r {}: needs rtdev=DEVICE", left.join(","));
    }
    Ok(left)
}

/// The device that words of an option name behind a key.
fn device_word<'a>(lists: &'a [String], key: &str) -> Option<&'a str> {
    let words = lists.iter().flat_map(|list| list.split(','));
    words.filter_map(|word| word.strip_prefix(key)).next_back()
}

/// The words of `-l` that are left when the device of the log is known.
fn log_words(app: &App, lists: &[String], mkfs: &mut xfs::MkfsOptions) -> Result<Vec<String>> {
    if let Some(path) = device_word(lists, "logdev=") {
        let device = storage::open_device(app, std::path::Path::new(path), true)?;
        mkfs.log_device = Some(device.info().bytes());
    }
    let words = lists.iter().flat_map(|list| list.split(','));
    Ok(words.filter(|word| !word.starts_with("logdev=")).map(str::to_string).collect())
}

/// What is made without other words.
fn compat(kernel: Option<&str>) -> Result<xfs::MkfsOptions> {
    let Some(kernel) = kernel else { return Ok(xfs::MkfsOptions::default()) };
    let known = xfs::mkfs::COMPAT.join(", ");
    xfs::MkfsOptions::compat(kernel)
        .with_context(|| format!("--compat {kernel}: not one of {known}"))
}

/// Refuses what holds something: the file, where it is made `anew`, else the disk in it.
fn refuse_occupied(app: &mut App, target: &Target, anew: bool) -> Result<()> {
    if !target.path.exists() {
        return Ok(());
    }
    let storage = Storage::open(app, target, false)?;
    let held = match storage.format(app)? {
        _ if anew && storage.container.is_some() => {
            let format = storage.container.as_ref().map(|image| image.format());
            format!("a {} image", format.unwrap_or_default())
        }
        recognise::Content::Ext(kind) => kind.to_string(),
        recognise::Content::Xfs => "xfs".to_string(),
        recognise::Content::Other(name, _) => name.to_string(),
        recognise::Content::Partitioned(table) => format!("a {table} partition table"),
        recognise::Content::Blank | recognise::Content::Unknown => match storage.remains(app)? {
            found if found.is_empty() => return Ok(()),
            found => remains::sentence(&found),
        },
    };
    bail!("{target}: holds {held}, which would be lost; give --force to make a new file system")
}

pub(super) fn parse_uuid(text: &str) -> Result<[u8; 16]> {
    let digits: Vec<u32> =
        text.chars().filter(|&c| c != '-').map_while(|c| c.to_digit(16)).collect();
    if digits.len() != 32 || text.chars().filter(|&c| c != '-').count() != 32 {
        bail!("`{text}` is not a UUID of 32 hexadecimal digits");
    }
    let mut uuid = [0; 16];
    for (byte, pair) in uuid.iter_mut().zip(digits.chunks(2)) {
        *byte = (pair[0] << 4 | pair[1]) as u8;
    }
    Ok(uuid)
}

fn show(app: &mut App, target: &Target, report: &Report, filled: Option<&Filled>) -> Result<()> {
    let (mut facts, mut line) = match report {
        Report::Ext(report) => describe(target, report),
        Report::Xfs(report) => crate::xfs_target::describe_made(target, report),
    };
    if let Some(filled) = filled {
        (facts["names"], facts["bytes"]) = (json!(filled.names), json!(filled.bytes));
        let content = text::size(filled.bytes);
        line.push_str(&format!("; {} names, {content} of content", filled.names));
    }
    if app.out.json {
        return Ok(app.out.document(&facts)?);
    }
    app.out.note(line);
    Ok(())
}

/// What was made, as keys and values, and as a line.
fn describe(target: &Target, report: &MkfsReport) -> (Value, String) {
    let size = report.blocks_count * u64::from(report.block_size);
    let features = report.features.to_string();
    let is_journal = report.features.incompat.contains(Incompat::JOURNAL_DEV);
    let outside = report.features.compat.contains(Compat::HAS_JOURNAL);
    let journal = match report.journal_blocks {
        _ if is_journal => "an external journal".to_string(),
        0 if outside => format!("{} inodes, journal on a device of its own", report.inodes_count),
        0 => format!("{} inodes, no journal", report.inodes_count),
        blocks => format!("{} inodes, journal of {blocks} blocks", report.inodes_count),
    };
    let facts = json!({
        "target": target.to_string(),
        "size": size,
        "block_size": report.block_size,
        "blocks": report.blocks_count,
        "inodes": report.inodes_count,
        "groups": report.groups_count,
        "journal_blocks": report.journal_blocks,
        "uuid": storage::uuid_text(&report.uuid),
        "features": features.split(' ').collect::<Vec<_>>(),
    });
    let line = format!(
        "{target}: {}, {} blocks of {} bytes, {journal}, UUID {}",
        text::size(size),
        report.blocks_count,
        report.block_size,
        storage::uuid_text(&report.uuid)
    );
    (facts, line)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_uuid_is_32_digits() {
        let uuid = parse_uuid("00112233-4455-6677-8899-aabbccddeeff").unwrap();
        assert_eq!((uuid[0], uuid[1], uuid[15]), (0, 0x11, 0xff));
        assert_eq!(storage::uuid_text(&uuid), "00112233-4455-6677-8899-aabbccddeeff");
        assert!(parse_uuid("00").is_err() && parse_uuid("zz").is_err());
    }
}
