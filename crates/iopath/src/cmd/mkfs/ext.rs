//! What `mkfs` makes of its options for ext2, ext3 and ext4.

use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use ext4::mkfs::{Release, Surroundings};
use ext4::{FsType, MkfsOptions};

use super::{Options, describe, extended, number};
use crate::app::App;
use crate::build::{Recipe, recipe};
use crate::journal_arg::JournalArg;
use crate::storage::Storage;
use crate::target::Target;

/// What the options ask for.
///
/// # Errors
/// Options of XFS, and values that are none.
pub fn options(options: &Options, kind: FsType, uuid: Option<[u8; 16]>) -> Result<MkfsOptions> {
    if options.conf.is_some() {
        bail!(
            "-c is an option for xfs; broken blocks of ext are those of `-l FILE`, a list as \
             badblocks(8) writes it"
        );
    }
    if !options.realtime.is_empty() {
        bail!("-r is an option for xfs only; the old format of ext is -E revision=0");
    }
    if !options.sector.is_empty() {
        bail!("-s is an option for xfs only");
    }
    let words = options.naming.iter().flatten();
    if options.target.is_some() && words.count() > 0 {
        bail!("-n takes no words for ext");
    }
    let block_size = number::<i64>('b', &options.block_size)?;
    let size = |size: i64| u32::try_from(size.unsigned_abs()).context("-b");
    let is_inside = extended::offset(&options.extended)?.is_some();
    let is_device = options
        .target()
        .is_ok_and(|target| Path::new(target).metadata().is_ok_and(|meta| !meta.is_file()));
    let mut made = MkfsOptions {
        fstype: kind,
        size: options.size.filter(|_| is_inside || is_device),
        block_size: block_size.filter(|&size| size >= 0).map(size).transpose()?,
        block_size_min: block_size.filter(|&size| size < 0).map_or(Ok(0), size)?,
        cluster_size: options.cluster_size.map(u32::try_from).transpose().context("-C")?,
        inode_size: options.inode_size,
        inode_ratio: number('i', &options.inode_ratio)?,
        inodes_count: options.inodes,
        features: options.features.clone(),
        label: options.label.clone(),
        uuid,
        journal_size: options.journal.as_ref().and_then(JournalArg::size),
        journal_place: options.journal.as_ref().and_then(|journal| journal.place),
        fast_commit_size: options.journal.as_ref().and_then(|journal| journal.fast_commit_size),
        bad_blocks: bad_blocks(&options.log)?,
        reserved_percent: number('m', &options.reserved)?.unwrap_or(5.0),
        ..MkfsOptions::default()
    };
    match options.compat.as_deref() {
        None => {}
        Some("1.47.0") => made.release = Release::V1_47_0,
        Some("1.47.4") => made.newest_features = true,
        Some(other) => bail!("--compat {other}: for ext not 1.47.0 or 1.47.4"),
    }
    options.ext.apply(&mut made)?;
    extended::apply(&options.extended, &mut made)?;
    Ok(made)
}

/// The numbers of broken blocks in the file of `-l`: one a line, as badblocks(8) writes them.
fn bad_blocks(files: &[String]) -> Result<Vec<u64>> {
    let mut list = Vec::new();
    for file in files {
        let text = std::fs::read_to_string(file).with_context(|| format!("-l {file}"))?;
        for word in text.split_whitespace() {
            let number = word.parse().ok();
            list.push(number.with_context(|| format!("-l {file}: {word} is no block"))?);
        }
    }
    Ok(list)
}

/// Takes over what is an option of every command.
///
/// # Errors
/// Options that exclude each other.
pub fn apply_global(app: &mut App, options: &Options) -> Result<()> {
    app.options.direct |= options.ext.direct_io;
    if let Some(offset) = extended::offset(&options.extended)? {
        if app.options.offset.is_some_and(|given| given != offset) {
            bail!("-E offset={offset}, but --offset says otherwise");
        }
        app.options.offset = Some(offset);
    }
    let filled = options.data()?.1.source.is_some();
    if filled && app.options.offset.is_some() {
        bail!("-d fills a file system of its own: leave the offset out");
    }
    if filled && (options.ext.is_super_only() || options.is_dry_run()) {
        bail!("-d goes with neither -S nor -n");
    }
    Ok(())
}

/// A UUID that names a moment: version 1, with a random node that is no network card's.
pub fn uuid_of_time(app: &mut App) -> [u8; 16] {
    // Ticks of 100 ns since the calendar's reform of 1582.
    const REFORM: i128 = 0x01b2_1dd2_1381_4000;
    let now = app.cx.realtime();
    let ticks = i128::from(now.sec) * 10_000_000 + i128::from(now.nsec) / 100 + REFORM;
    let mut uuid = app.cx.random_uuid();
    uuid[..4].copy_from_slice(&(ticks as u32).to_be_bytes());
    uuid[4..6].copy_from_slice(&((ticks >> 32) as u16).to_be_bytes());
    uuid[6..8].copy_from_slice(&((ticks >> 48) as u16 & 0x0fff | 0x1000).to_be_bytes());
    uuid[10] |= 1;
    uuid
}

/// Says what would be made, and where copies of the superblock would be.
///
/// # Errors
/// Impossible options; without `--size` a target that cannot be opened.
pub fn dry_run(
    app: &mut App,
    options: &Options,
    target: &Target,
    recipe: &Recipe,
) -> Result<ExitCode> {
    let recipe::Kind::Ext(made) = &recipe.kind else { bail!("-n is for ext") };
    let (device_bytes, sector) = match options.size {
        Some(bytes) => (bytes, 512),
        None => {
            let storage = Storage::open(app, target, false)?;
            (storage.bytes(), storage.queue.info().logical_block)
        }
    };
    let (now, uuid, hash_seed) = (app.cx.realtime(), app.cx.random_uuid(), [0; 16]);
    let around = Surroundings { device_bytes, sector, now, uuid, hash_seed };
    let plan = ext4::mkfs::plan(made, &around).with_context(|| target.to_string())?;
    let (facts, line) = describe(target, &plan.report);
    if app.out.json {
        app.out.document(&facts)?;
        return Ok(ExitCode::SUCCESS);
    }
    app.out.line(format!("would be made: {line}"))?;
    if !plan.report.backups.is_empty() {
        let blocks: Vec<String> = plan.report.backups.iter().map(u64::to_string).collect();
        app.out.line(format!("copies of the superblock: blocks {}", blocks.join(", ")))?;
    }
    Ok(ExitCode::SUCCESS)
}
