//! `mkfs`: makes a file system.

use std::ffi::OsString;
use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use clap::Args;
use ext4::{FsType, MkfsOptions, MkfsReport};
use serde_json::json;

use crate::app::App;
use crate::recognise::Format;
use crate::remains;
use crate::storage::{self, Storage};
use crate::target::{Target, TargetPath};
use crate::text;

/// Make an ext2, ext3, ext4 or XFS file system
#[derive(Args)]
#[command(after_help = "\
With --size an image file is made, or emptied; without, the target keeps its size.

Examples:
  iopath mkfs -t ext4 --size 64M disk.img
  iopath mkfs -t ext3 -b 1024 -L boot disk.img@1
  iopath mkfs -O ^has_journal,orphan_file --size 1G disk.img
  iopath mkfs -t xfs --compat 7.2 --size 1G disk.img
  iopath mkfs -t xfs -m rmapbt=1 -d su=64k,sw=4 -n size=16k --size 2G disk.img")]
pub struct Options {
    /// Image, device or partition: TARGET
    #[arg(value_name = "TARGET")]
    target: OsString,
    /// ext2, ext3, ext4 or xfs
    #[arg(short = 't', long = "type", value_name = "TYPE", default_value = "ext4",
          value_parser = fs_type)]
    kind: Kind,
    /// Size of the image, e.g. 64M; it is made or emptied
    #[arg(long, value_name = "SIZE", value_parser = text::parse_size)]
    size: Option<u64>,
    /// Changes to the features of the type: NAME,^NAME,..
    #[arg(short = 'O', value_name = "FEATURES", default_value = "", hide_default_value = true)]
    features: String,
    /// Bytes of a block: 1024, 2048 or 4096; for xfs also size=BYTES
    #[arg(short, value_name = "BYTES")]
    block_size: Option<String>,
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
    /// Size of the journal
    #[arg(short = 'J', value_name = "SIZE", value_parser = text::parse_size)]
    journal: Option<u64>,
    /// Share of the space that only root may use, percent (5 without); for xfs finobt=, rmapbt=,
    /// reflink=, bigtime=, inobtcount=, autofsck=, uuid=
    #[arg(short = 'm', value_name = "PERCENT")]
    reserved: Option<String>,
    /// xfs: size=, agcount=, su=, sw=, sunit=, swidth=, noalign
    #[arg(short = 'd', value_name = "WORDS")]
    data: Vec<String>,
    /// xfs: size=, su=, sunit=, version=2
    #[arg(short = 'l', value_name = "WORDS")]
    log: Vec<String>,
    /// xfs: size= of directory blocks, version=2, ftype=1, parent=
    #[arg(short = 'n', value_name = "WORDS")]
    naming: Vec<String>,
    /// xfs: size= of sectors
    #[arg(short = 's', value_name = "WORDS")]
    sector: Vec<String>,
    /// xfs: what mkfs.xfs 7.2 makes for this kernel: 4.19, 5.4, 5.10, 5.15, 6.1, 6.6, 6.12, 6.18,
    /// or 7.2 for its default; what mkfs.xfs 6.1 makes without
    #[arg(long, value_name = "KERNEL")]
    compat: Option<String>,
    /// UUID; random without
    #[arg(short = 'U', value_name = "UUID")]
    uuid: Option<String>,
    /// Also over another file system
    #[arg(short = 'F', long)]
    force: bool,
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
    let target = TargetPath::parse(&options.target)?.target;
    let uuid = options.uuid.as_deref().map(parse_uuid).transpose()?;
    if !options.force {
        refuse_occupied(app, &target)?;
    }
    let storage = match options.size {
        Some(_) if target.partition.is_some() => {
            bail!("{target}: a partition has its size; leave --size out")
        }
        Some(_) if target.remote_url().is_some() => Storage::open(app, &target, true)?,
        Some(bytes) => {
            crate::rescue::refuse_write(app, &target)?;
            let open = storage::open_options(app, true);
            let device = device::create_with(&target.path, bytes, open)?;
            Storage::on(app, &target, device)?
        }
        None => Storage::open(app, &target, true)
            .with_context(|| "give --size to make a new image".to_string())?,
    };
    let is_file = target.path.metadata().is_ok_and(|meta| meta.is_file());
    // A file that was just made or emptied reads as zeros.
    let assume_zeroes = options.size.is_some() && is_file;
    match options.kind {
        Kind::Ext(kind) => make_ext(app, &storage, options, kind, uuid, assume_zeroes)?,
        Kind::Xfs => make_xfs(app, &storage, options, uuid, assume_zeroes)?,
    }
    Ok(ExitCode::SUCCESS)
}

fn make_ext(
    app: &mut App,
    storage: &Storage,
    options: &Options,
    kind: FsType,
    uuid: Option<[u8; 16]>,
    assume_zeroes: bool,
) -> Result<()> {
    for (letter, words) in
        [('d', &options.data), ('l', &options.log), ('n', &options.naming), ('s', &options.sector)]
    {
        if !words.is_empty() {
            bail!("-{letter} is an option for xfs only");
        }
    }
    let mkfs = MkfsOptions {
        fstype: kind,
        block_size: number('b', &options.block_size)?,
        inode_size: options.inode_size,
        inode_ratio: number('i', &options.inode_ratio)?,
        inodes_count: options.inodes,
        features: options.features.clone(),
        label: options.label.clone(),
        uuid,
        journal_size: options.journal,
        reserved_percent: number('m', &options.reserved)?.unwrap_or(5.0),
        assume_zeroes,
        ..MkfsOptions::default()
    };
    let target = &storage.target;
    let report = ext4::mkfs(app.cx, &storage.queue, &mkfs);
    let report = report.with_context(|| target.to_string())?;
    show(app, target, &report)
}

fn make_xfs(
    app: &mut App,
    storage: &Storage,
    options: &Options,
    uuid: Option<[u8; 16]>,
    assume_zeroes: bool,
) -> Result<()> {
    let journal = options.journal.is_some() || options.inodes.is_some();
    if journal || options.inode_size.is_some() || !options.features.is_empty() {
        bail!("-O, -I, -N and -J are options for ext2, ext3 and ext4 only");
    }
    let mut mkfs = xfs::MkfsOptions {
        label: options.label.clone(),
        uuid,
        assume_zeroes,
        ..compat(options.compat.as_deref())?
    };
    if let Some(block) = &options.block_size {
        let words = if block.contains('=') { block.clone() } else { format!("size={block}") };
        mkfs.edit('b', &words)?;
    }
    let given = |text: &Option<String>| text.iter().cloned().collect::<Vec<_>>();
    for (letter, list) in [
        ('s', options.sector.clone()),
        ('d', options.data.clone()),
        ('i', given(&options.inode_ratio)),
        ('m', given(&options.reserved)),
        ('l', options.log.clone()),
        ('n', options.naming.clone()),
    ] {
        list.iter().try_for_each(|words| mkfs.edit(letter, words))?;
    }
    let target = &storage.target;
    let report = xfs::mkfs(app.cx, &storage.queue, &mkfs);
    let report = report.with_context(|| target.to_string())?;
    crate::xfs_target::show_made(app, target, &report)
}

/// What is made without other words.
fn compat(kernel: Option<&str>) -> Result<xfs::MkfsOptions> {
    let Some(kernel) = kernel else { return Ok(xfs::MkfsOptions::default()) };
    let known = xfs::mkfs::COMPAT.join(", ");
    xfs::MkfsOptions::compat(kernel)
        .with_context(|| format!("--compat {kernel}: not one of {known}"))
}

fn refuse_occupied(app: &mut App, target: &Target) -> Result<()> {
    if !target.path.exists() {
        return Ok(());
    }
    let storage = Storage::open(app, target, false)?;
    let held = match storage.format(app)? {
        _ if storage.container.is_some() => {
            let format = storage.container.as_ref().map(|image| image.format().name());
            format!("a {} image", format.unwrap_or_default())
        }
        Format::Ext(kind) => kind.to_string(),
        Format::Xfs => "xfs".to_string(),
        Format::Other(name, _) => name.to_string(),
        Format::Partitioned(table) => format!("a {table} partition table"),
        Format::Blank | Format::Unknown => match storage.remains(app)? {
            found if found.is_empty() => return Ok(()),
            found => remains::sentence(&found),
        },
    };
    bail!("{target}: holds {held}, which would be lost; give --force to make a new file system")
}

fn parse_uuid(text: &str) -> Result<[u8; 16]> {
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

fn show(app: &mut App, target: &Target, report: &MkfsReport) -> Result<()> {
    let size = report.blocks_count * u64::from(report.block_size);
    if app.out.json {
        let features = report.features.to_string();
        return Ok(app.out.document(&json!({
            "target": target.to_string(),
            "size": size,
            "block_size": report.block_size,
            "blocks": report.blocks_count,
            "inodes": report.inodes_count,
            "groups": report.groups_count,
            "journal_blocks": report.journal_blocks,
            "uuid": storage::uuid_text(&report.uuid),
            "features": features.split(' ').collect::<Vec<_>>(),
        }))?);
    }
    app.out.note(format!(
        "{target}: {}, {} blocks of {} bytes, {} inodes, journal of {} blocks, UUID {}",
        text::size(size),
        report.blocks_count,
        report.block_size,
        report.inodes_count,
        report.journal_blocks,
        storage::uuid_text(&report.uuid)
    ));
    Ok(())
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
