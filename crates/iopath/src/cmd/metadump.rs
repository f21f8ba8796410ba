//! `metadump`: the metadata of a file system alone, for a bug report.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, BufReader, BufWriter, Read};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use clap::{Args, ValueEnum};
use container::write::{Disk, Qcow2Shape, write_qcow2};
use repair::metadump::stream::{self, Header, Version, Writer};
use repair::metadump::{self, Devices, DumpError, DumpOptions, Part, Report, Sink};
use serde_json::json;
use xfs::format::RawSuper;
use xfs::format::super_block::MAGIC;

use crate::app::{App, BesideWord};
use crate::build::output::Output;
use crate::out::Progress;
use crate::session::open_beside;
use crate::storage::{Known, Storage};
use crate::target::TargetPath;
use crate::text;

/// The standard input or output.
const STANDARD: &str = "-";
/// What was left out: lines that are shown.
const SHOWN: usize = 20;
/// Bytes that are written at once to a pipe or a file.
const BUFFER: usize = 1 << 20;

/// Copy the metadata of a file system, without file content
#[derive(Args)]
#[command(after_help = "\
For bug reports: names, attributes, targets of symlinks, labels are obscured; content is left out. A
dirty log is replayed in memory first. Damage stays. What cannot be parsed is left out, and named.
XFS names of up to 4 bytes stay, of 5 to 8 bytes in part: their hash must not change.
Formats: xfs and xfs2 (of xfs_metadump -v 1 and 2, for xfs_mdrestore), raw (a sparse image), qcow2
(version 2, as of e2image -Q). Without --format xfs for XFS, else qcow2. Images in raw and qcow2,
ours and e2image's, are targets as they are. -o logdev= and -o rtdev= name the devices beside that
of the data: xfs2 holds an external log, and the superblock of a realtime section.
Exit status: 0, or 1 where something was left out.

Examples:
  iopath metadump disk.img disk.dump
  iopath metadump disk.img - | zstd > disk.dump.zst
  iopath metadump --restore disk.dump copy.img
  iopath -o rtdev=rt.img metadump --format xfs2 disk.img disk.dump
  iopath -o rtdev=rt-copy.img metadump --restore disk.dump copy.img")]
pub struct Options {
    /// Image: TARGET; with --restore a dump of xfs_metadump, or - for the standard input
    #[arg(value_name = "TARGET")]
    target: OsString,
    /// File to make; for a dump in format xfs or xfs2 also - for the standard output
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Format of the dump
    #[arg(long, value_enum, value_name = "FORMAT")]
    format: Option<Format>,
    /// Do not obscure names; a dirty log is copied as it is, with all that it holds
    #[arg(short = 'k', long)]
    keep_names: bool,
    /// Make an image of a dump of xfs_metadump, version 1 or 2
    #[arg(long, conflicts_with_all = ["format", "keep_names"])]
    restore: bool,
    /// Replace FILE if it exists
    #[arg(short = 'F', long)]
    force: bool,
}

/// The formats that are written.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
enum Format {
    Xfs,
    Xfs2,
    Raw,
    Qcow2,
}

/// Runs `metadump`.
///
/// # Errors
/// A target that cannot be opened or read; a file that exists, or cannot be written.
pub fn run(app: &mut App, options: &Options) -> Result<ExitCode> {
    let shown = options.file.display();
    let standard = options.file.as_os_str() == STANDARD;
    if !standard && !options.force && options.file.exists() {
        bail!("{shown}: exists; -F replaces it");
    }
    if options.restore {
        return restore(app, options);
    }
    let target = TargetPath::parse(&options.target)?.target;
    if is_file(&options.file, &target.path) {
        bail!("{shown}: this is what is read; give another name");
    }
    let storage = Storage::open(app, &target, false)?;
    let known = storage.must_be_known(app)?;
    let format = options.format.unwrap_or(match known {
        Known::Xfs => Format::Xfs,
        Known::Ext => Format::Qcow2,
    });
    let stream = matches!(format, Format::Xfs | Format::Xfs2);
    if known == Known::Ext && stream {
        bail!("{target}: no XFS; its formats are raw and qcow2");
    }
    if standard && !stream {
        bail!("{target}: only the formats xfs and xfs2 can go to a pipe");
    }
    let devices = devices(app, format)?;
    let dump = Dump { storage: &storage, devices, options: dump_options(options)? };
    let report = match (format, standard) {
        (Format::Xfs, _) => dump.to_stream(app, Version::One, &options.file)?,
        (Format::Xfs2, _) => dump.to_stream(app, Version::Two, &options.file)?,
        (Format::Raw | Format::Qcow2, _) => dump.to_image(app, format, &options.file)?,
    };
    let status = if report.left_out.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE };
    let target = target.to_string();
    for what in report.left_out.iter().take(SHOWN) {
        app.out.problem(format!("{target}: left out: {what}"));
    }
    if let Some(more) = report.left_out.len().checked_sub(SHOWN).filter(|&more| more > 0) {
        app.out.problem(format!("{target}: and {more} more"));
    }
    if report.dirty_log && options.keep_names {
        app.out.note(format!("{target}: the log is in the dump as it is, with all that it holds"));
    }
    if report.names_kept > 0 {
        let count = report.names_kept;
        app.out.note(format!("{target}: {count} names stay, for too few others are as short"));
    }
    if standard {
        return Ok(status);
    }
    if app.out.json {
        app.out.document(&json!({
            "target": target,
            "file": shown.to_string(),
            "inodes": report.inodes,
            "bytes": report.bytes,
            "size": report.size,
            "obscured": !options.keep_names,
            "names_kept": report.names_kept,
            "dirty_log": report.dirty_log,
            "left_out": report.left_out,
        }))?;
    } else {
        let (inodes, bytes) = (report.inodes, text::size(report.bytes));
        let names = if options.keep_names { "as they are" } else { "obscured" };
        app.out.line(format!("{target}: {inodes} inodes, {bytes} in {shown}, names {names}"))?;
    }
    Ok(status)
}

/// The devices beside that of the data.
fn devices(app: &mut App, format: Format) -> Result<Devices> {
    let log = open_beside(app, BesideWord::Log, false)?;
    let realtime = open_beside(app, BesideWord::Realtime, false)?;
    if format != Format::Xfs2 && (log.is_some() || realtime.is_some()) {
        bail!("-o logdev= and -o rtdev=: only the format xfs2 holds more than one device");
    }
    Ok(Devices { log, realtime })
}

/// Whether two names are those of one file.
fn is_file(one: &Path, other: &Path) -> bool {
    one.canonicalize().is_ok_and(|one| other.canonicalize().is_ok_and(|other| one == other))
}

fn dump_options(options: &Options) -> Result<DumpOptions> {
    let mut key = [0; 16];
    let mut source = File::open("/dev/urandom").context("/dev/urandom")?;
    source.read_exact(&mut key).context("/dev/urandom")?;
    Ok(DumpOptions { keep_names: options.keep_names, key })
}

/// A sink that shows how much went through it.
struct Counted<'a> {
    sink: &'a mut dyn Sink,
    progress: Progress,
}

impl Sink for Counted<'_> {
    fn put(&mut self, part: Part, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.progress.add(0, bytes.len() as u64);
        self.sink.put(part, offset, bytes)
    }
}

/// An image with holes.
struct Sparse<'f> {
    file: &'f File,
    /// Behind the last byte that was written.
    end: u64,
    /// The first piece.
    start: Vec<u8>,
}

impl<'f> Sparse<'f> {
    fn new(file: &'f File) -> Sparse<'f> {
        Sparse { file, end: 0, start: Vec::new() }
    }

    /// The size of a device of an XFS whose superblock was the first piece.
    fn size_of_xfs(&self, part: Part) -> Option<u64> {
        let raw = RawSuper::view(&self.start).filter(|raw| raw.sb_magicnum.get() == MAGIC)?;
        let blocks = match part {
            Part::Data => raw.sb_dblocks.get(),
            Part::Log => raw.sb_logblocks.get().into(),
            Part::Realtime => raw.sb_rblocks.get(),
        };
        blocks.checked_mul(raw.sb_blocksize.get().into())
    }

    /// Makes the file as large as what it stands for, and says how large that is.
    fn finish(&self, size: u64) -> io::Result<u64> {
        let size = size.max(self.end);
        self.file.set_len(size)?;
        Ok(size)
    }
}

impl Sink for Sparse<'_> {
    fn put(&mut self, _: Part, offset: u64, bytes: &[u8]) -> io::Result<()> {
        if self.start.is_empty() {
            self.start = bytes.to_vec();
        }
        // What lies behind everything else is zeros already.
        if offset >= self.end && base::page::is_zero(bytes) {
            return Ok(());
        }
        self.end = self.end.max(offset + bytes.len() as u64);
        self.file.write_all_at(bytes, offset)
    }
}

/// The files of a restored dump, by the devices that they stand for.
struct Restored<'f>(BTreeMap<Part, Sparse<'f>>);

impl Sink for Restored<'_> {
    fn put(&mut self, part: Part, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.0.get_mut(&part).expect("the header names it").put(part, offset, bytes)
    }
}

/// Says which file is still to be named, if a dump holds more than those for `parts`.
fn must_be_named(header: &Header, parts: &BTreeSet<Part>) -> io::Result<()> {
    let wanted = [
        (header.log, Part::Log, "an external log", "logdev"),
        (header.realtime, Part::Realtime, "the superblock of a realtime section", "rtdev"),
    ];
    for (is, part, what, word) in wanted {
        if is && !parts.contains(&part) {
            let words = format!("it holds {what}: -o {word}=FILE names the file to make of it");
            return Err(io::Error::other(words));
        }
        if !is && parts.contains(&part) {
            return Err(io::Error::other(format!("-o {word}=: it does not hold {what}")));
        }
    }
    Ok(())
}

/// A dump that is to be written.
struct Dump<'a> {
    storage: &'a Storage,
    devices: Devices,
    options: DumpOptions,
}

impl Dump<'_> {
    fn fill(&self, app: &mut App, sink: &mut dyn Sink) -> Result<Report> {
        let mut counted = Counted { sink, progress: app.out.progress("dumping") };
        let report =
            metadump::dump(app.cx, &self.storage.queue, &self.devices, &self.options, &mut counted);
        counted.progress.finish();
        let target = &self.storage.target;
        report.map_err(|error| match error {
            DumpError::Sink(error) => anyhow::Error::from(error).context("writing the dump"),
            other => anyhow::Error::from(other).context(target.to_string()),
        })
    }

    fn to_stream(&self, app: &mut App, version: Version, file: &Path) -> Result<Report> {
        let header = Header {
            version,
            obscured: !self.options.keep_names,
            log: self.devices.log.is_some(),
            realtime: self.devices.realtime.is_some(),
        };
        if file.as_os_str() == STANDARD {
            let out = BufWriter::with_capacity(BUFFER, io::stdout().lock());
            let mut writer = Writer::new(out, header)?;
            let report = self.fill(app, &mut writer)?;
            writer.finish()?;
            return Ok(report);
        }
        let output = Output::new(file)?;
        let out = BufWriter::with_capacity(BUFFER, output.file());
        let mut writer = Writer::new(out, header)?;
        let report = self.fill(app, &mut writer)?;
        writer.finish().with_context(|| file.display().to_string())?;
        output.publish()?;
        Ok(report)
    }

    fn to_image(&self, app: &mut App, format: Format, file: &Path) -> Result<Report> {
        let shown = || file.display().to_string();
        let output = Output::new(file)?;
        let report = self.fill(app, &mut Sparse::new(output.file()))?;
        output.file().set_len(report.size).with_context(shown)?;
        if format == Format::Raw {
            output.publish()?;
            return Ok(report);
        }
        let packed = Output::new(file)?;
        let disk = Disk::new(output.file()).with_context(shown)?;
        // As large as most blocks; e2image takes version 2 alone.
        let shape = Qcow2Shape { version: 2, cluster_bits: 12 };
        let mut out = packed.file().try_clone().with_context(shown)?;
        write_qcow2(&disk, shape, &mut out).with_context(shown)?;
        packed.publish()?;
        Ok(report)
    }
}

/// Makes an image of a dump.
fn restore(app: &mut App, options: &Options) -> Result<ExitCode> {
    let (from, to) = (Path::new(&options.target), &options.file);
    if is_file(from, to) {
        bail!("{}: this is what is read; give another name", to.display());
    }
    if to.as_os_str() == STANDARD {
        bail!("an image is no stream; give the name of a file");
    }
    let named = || from.display().to_string();
    let mut input: Box<dyn Read> = match options.target.as_os_str() == OsStr::new(STANDARD) {
        true => Box::new(io::stdin().lock()),
        false => Box::new(File::open(from).with_context(named)?),
    };
    let mut start = [0; 4];
    input.read_exact(&mut start).with_context(named)?;
    if !stream::is_dump(&start) {
        bail!("{}: no dump of xfs_metadump; raw and qcow2 images are targets as they are", named());
    }
    let mut outputs = vec![(Part::Data, Output::new(to)?)];
    for (part, word) in [(Part::Log, BesideWord::Log), (Part::Realtime, BesideWord::Realtime)] {
        if let Some(path) = app.options.device_beside(word) {
            if !options.force && path.exists() {
                bail!("{}: exists; -F replaces it", path.display());
            }
            outputs.push((part, Output::new(path)?));
        }
    }
    let parts = outputs.iter().map(|(part, output)| (*part, Sparse::new(output.file())));
    let mut restored = Restored(parts.collect());
    let known = restored.0.keys().copied().collect();
    let mut counted = Counted { sink: &mut restored, progress: app.out.progress("restoring") };
    let input = BufReader::with_capacity(BUFFER, (&start[..]).chain(input));
    let header = stream::read(input, |header| must_be_named(header, &known), &mut counted);
    let (_, bytes) = counted.progress.finish();
    let header = header.with_context(named)?;
    let finish = |part| {
        let size = restored.0[&Part::Data].size_of_xfs(part).unwrap_or(0);
        restored.0[&part].finish(size).with_context(|| to.display().to_string())
    };
    let size = finish(Part::Data)?;
    for &(part, _) in &outputs[1..] {
        finish(part)?;
    }
    drop(restored);
    for (_, output) in outputs {
        output.publish()?;
    }
    let shown = to.display().to_string();
    if app.out.json {
        let obscured = header.obscured;
        let file = &shown;
        app.out.document(
            &json!({ "file": file, "bytes": bytes, "size": size, "obscured": obscured }),
        )?;
    } else {
        let names = if header.obscured { "obscured" } else { "as they are" };
        let bytes = text::size(bytes);
        app.out.line(format!("{shown}: {bytes} of metadata, names {names}"))?;
    }
    Ok(ExitCode::SUCCESS)
}
