//! `which`: the file or structure that holds a place.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::process::ExitCode;

use anyhow::{Context, Result, anyhow};
use base::unit::SECTOR_SIZE;
use base::{FsBlock, Ino};
use clap::Args;
use serde_json::json;
use vfs::check::Holder;

use crate::app::App;
use crate::session::{self, Session};
use crate::storage::{Known, Storage};
use crate::target::{Target, TargetPath};
use crate::{text, trees};

/// Print which file or structure holds a block, sector or byte
#[derive(Args)]
#[command(after_help = "\
Blocks count from the start of the file system, in its own block size, for XFS too. A dirty journal
is replayed in memory first. All metadata is read once. One line for each holder of a place: several
where files share it or contradict each other. `iopath stat -e` says the reverse.
Exit status: 0, or 1 where a place lies outside.

Examples:
  iopath which disk.img 34816
  iopath which --sectors disk.img@2 5242880    # as the kernel's log counts them, from the partition
  iopath which --bytes disk.img 1M 1052672")]
pub struct Options {
    /// Image: TARGET
    #[arg(value_name = "TARGET")]
    target: OsString,
    /// Places: blocks of the file system
    #[arg(required = true, value_name = "PLACE")]
    places: Vec<String>,
    /// The places are sectors of 512 bytes
    #[arg(long)]
    sectors: bool,
    /// The places are bytes, with suffixes as 4K
    #[arg(long, conflicts_with = "sectors")]
    bytes: bool,
}

/// Runs `which`.
///
/// # Errors
/// A target that cannot be opened or read, a place that is no number.
pub fn run(app: &mut App, options: &Options) -> Result<ExitCode> {
    let target = TargetPath::parse(&options.target)?.target;
    let storage = Storage::open(app, &target, false)?;
    let known = storage.must_be_known(app)?;
    let session = session::mount(app, &storage, false)?;
    let stat = session.fs.statfs(app.cx).map_err(crate::app::at(&target))?;
    let places = places(options, stat.block_size.into())?;
    let blocks: BTreeSet<u64> = places.iter().map(|&(_, block)| block).collect();
    let blocks: Vec<u64> = blocks.into_iter().collect();
    let progress = app.out.progress("reading");
    let held = match known {
        Known::Xfs => xfs::holders(app.cx, &storage.queue, &blocks),
        Known::Ext => {
            let blocks: Vec<FsBlock> = blocks.iter().copied().map(FsBlock).collect();
            ext4::holders(app.cx, &storage.queue, &blocks)
        }
    };
    progress.finish();
    let held = held.with_context(|| target.to_string())?;
    let inos = held.values().flatten().filter_map(|holder| holder.ino).collect();
    let names = names(app, &session, inos)?;
    session::close(app, session)?;
    let (size, end) = (u64::from(stat.block_size), storage.bytes());
    let mut status = ExitCode::SUCCESS;
    for (word, block) in places {
        if block.saturating_mul(size) >= end {
            app.out.problem(format!("{target}: {word} lies behind the end at byte {end}"));
            status = ExitCode::FAILURE;
            continue;
        }
        let holders = held.get(&block).map_or(&[][..], Vec::as_slice);
        let found = Found { target: &target, known, word: &word, block, size };
        show(app, &found, holders, &names)?;
    }
    Ok(status)
}

/// The places as the user wrote them, with their blocks.
fn places(options: &Options, size: u64) -> Result<Vec<(String, u64)>> {
    let block = |word: &String| {
        let number = match options.bytes {
            true => text::parse_size(word).map_err(|error| anyhow!("{word}: {error}"))?,
            false => word.parse::<u64>().with_context(|| format!("`{word}` is no number"))?,
        };
        let block = match (options.bytes, options.sectors) {
            (true, _) => number / size,
            (_, true) => number.checked_mul(SECTOR_SIZE).map_or(u64::MAX, |byte| byte / size),
            _ => number,
        };
        Ok((word.clone(), block))
    };
    options.places.iter().map(block).collect()
}

/// A name of each of these inodes, where there is one.
fn names(
    app: &mut App,
    session: &Session,
    mut wanted: BTreeSet<Ino>,
) -> Result<BTreeMap<Ino, Vec<u8>>> {
    let mut names = BTreeMap::new();
    if wanted.is_empty() {
        return Ok(names);
    }
    let top = session.find(app, b"/", false)?;
    trees::each(app, session, b"/", &top, &mut |_, path, attr| {
        if wanted.remove(&attr.ino) {
            names.insert(attr.ino, path.to_vec());
        }
        Ok(())
    })?;
    Ok(names)
}

/// A place that was asked for.
struct Found<'a> {
    target: &'a Target,
    known: Known,
    word: &'a str,
    block: u64,
    size: u64,
}

fn show(
    app: &mut App,
    found: &Found,
    holders: &[Holder],
    names: &BTreeMap<Ino, Vec<u8>>,
) -> Result<()> {
    let Found { target, known, word, block, size } = *found;
    let from = block * size;
    let named = |holder: &Holder| holder.ino.and_then(|ino| names.get(&ino));
    if app.out.json {
        let holders: Vec<_> = holders
            .iter()
            .map(|holder| {
                json!({
                    "what": holder.what,
                    "ino": holder.ino.map(|ino| ino.0),
                    "path": named(holder).map(|path| text::escape(path)),
                    "file_offset": holder.offset,
                })
            })
            .collect();
        return Ok(app.out.document(&json!({
            "target": target.to_string(),
            "place": word,
            "block": block,
            "start": from,
            "end": from + size,
            "holders": holders,
        }))?);
    }
    let head = format!("{target}: block {block} (bytes {from} to {})", from + size - 1);
    if holders.is_empty() {
        return Ok(app.out.line(format!("{head}: free, or held by nobody that can be read"))?);
    }
    for holder in holders {
        let mut line = format!("{head}: {}", holder.what);
        match (holder.ino, named(holder)) {
            (_, Some(path)) => line.push_str(&format!(" of {}", text::escape(path))),
            (Some(ino), None) => line.push_str(&format!(" of inode {}", of_system(known, ino))),
            _ => (),
        }
        if let Some(offset) = holder.offset {
            line.push_str(&format!(", from its byte {offset} on"));
        }
        app.out.line(line)?;
    }
    Ok(())
}

/// An inode without a name.
fn of_system(known: Known, ino: Ino) -> String {
    let what = match ino.0 {
        _ if known == Known::Xfs => return ino.0.to_string(),
        2 => "the root directory",
        3 | 4 => "quota",
        7 => "the reserved descriptors",
        8 => "the journal",
        _ => return ino.0.to_string(),
    };
    format!("{} ({what})", ino.0)
}
