//! Disks made from a plan: a partition table, and what the partitions hold.
//!
//! [`plan`] reads the file, [`layout`] decides where each partition lies, [`table`] writes GPT or
//! MBR, [`fat`] fills a FAT file system, [`swap`] makes swap space; ext2, ext3, ext4 and XFS are
//! built by [`crate::build`]. The disk has no name before it is complete.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, Result, bail};
use base::Sector;
use block::Device;
use container::Format;
use sha2::{Digest, Sha256};

use crate::app::{App, EngineArg};
use crate::build::output::Output;
use crate::build::{self, Content, Filled, Moment, Plan as Source, Recipe, SourceOptions};
use crate::storage;

mod fat;
mod fat_dots;
mod layout;
mod plan;
mod swap;
mod table;
mod types;

pub use layout::{Part, Place};
pub use plan::{Holds, Plan};

/// Bytes of a file that are copied at once.
const PIECE: usize = 1 << 20;

/// A disk that was made.
pub struct Made {
    /// Bytes of it.
    pub bytes: u64,
    /// Its identity.
    pub uuid: [u8; 16],
    /// Its partitions in the order of their numbers.
    pub parts: Vec<Part>,
}

/// A partition's content before it has a place.
struct Prepared {
    /// Of ext2, ext3, ext4, XFS: how it is made, and from what.
    recipe: Option<(Recipe, Source)>,
    /// Bytes that it needs.
    least: u64,
}

/// Makes the disk of a plan in `path`, in a format.
///
/// # Errors
/// What of the plan is impossible, with the partition; the host refuses. Nothing has changed then.
pub fn create(app: &mut App, plan: &Plan, path: &Path, format: Format) -> Result<Made> {
    let moment = Moment::of_environment(app)?;
    // In virtual time a request ends where it begins.
    app.options.engine = EngineArg::Psync;
    let mut prepared = Vec::new();
    for index in 0..plan.partitions.len() {
        let part = prepare(app, plan, index, moment, path);
        prepared.push(part.with_context(|| plan.shown(index))?);
    }
    let uuid = identity(app, plan, &prepared, moment);
    let needs: Vec<u64> = prepared.iter().map(|part| part.least).collect();
    let place = layout::arrange(plan, &needs, uuid)?;
    let raw = Output::new(path).with_context(|| path.display().to_string())?;
    let open = storage::open_options(app, true);
    let disk = device::create_with(&raw.place(), place.bytes, open)?;
    for (index, part) in place.parts.iter().enumerate() {
        let content = prepared[index].recipe.take();
        let done = fill(app, plan, index, part, content, &disk, raw.file(), moment);
        done.with_context(|| plan.shown(index))?;
    }
    drop(disk);
    for file in &plan.files {
        let from = plan.file(&file.path)?;
        copy_file(&from, raw.file(), file.offset.0, file.path.display())?;
    }
    table::write(plan, &place, uuid, raw.file())?;
    publish(raw, path, format, uuid)?;
    Ok(Made { bytes: place.bytes, uuid, parts: place.parts })
}

/// Gives the disk its name, in its format.
pub fn publish(raw: Output, path: &Path, format: Format, identity: [u8; 16]) -> Result<()> {
    if format == Format::Raw {
        return raw.publish();
    }
    let shown = || path.display().to_string();
    let out = Output::new(path).with_context(shown)?;
    let disk = container::write::Disk::new(raw.file()).with_context(shown)?;
    let mut file = out.file().try_clone().with_context(shown)?;
    container::write::write(&disk, format, identity, &mut file).with_context(shown)?;
    out.publish()
}

/// The identity of the disk: the one of the plan, one that follows from the plan and its sources,
/// or a random one.
fn identity(app: &mut App, plan: &Plan, prepared: &[Prepared], moment: Moment) -> [u8; 16] {
    if let Some(uuid) = plan.uuid {
        return uuid.0;
    }
    if !moment.pinned {
        return app.cx.random_uuid();
    }
    let mut digest = Sha256::new();
    digest.update(&plan.text);
    for (_, source) in prepared.iter().filter_map(|part| part.recipe.as_ref()) {
        digest.update(source.uuid);
    }
    numbered(&digest.finalize(), 0)
}

/// A UUID that follows from another one and a number.
pub(crate) fn numbered(seed: &[u8], number: u32) -> [u8; 16] {
    let digest = Sha256::digest([b"iopath disk", seed, &number.to_le_bytes()].concat());
    let mut uuid: [u8; 16] = digest[..16].try_into().expect("sixteen of 32 bytes");
    uuid[6] = uuid[6] & 0x0f | 0x80;
    uuid[8] = uuid[8] & 0x3f | 0x80;
    uuid
}

/// Looks at what a partition is to hold.
fn prepare(
    app: &mut App,
    plan: &Plan,
    index: usize,
    moment: Moment,
    path: &Path,
) -> Result<Prepared> {
    let part = &plan.partitions[index];
    let source = part.source.as_ref().map(|source| plan.folder.join(source));
    let least = match part.holds()? {
        Holds::Nothing | Holds::Swap => 0,
        Holds::Image(image) => plan.file(image)?.metadata()?.len(),
        Holds::Fat => fat::size(source.as_deref(), part.free)?,
        Holds::Tree(kind) => {
            let mount = app.options.of_file_system().collect();
            let mut recipe = Recipe { kind, mount, log: None, realtime: None };
            let options = SourceOptions {
                source: source.map(Into::into),
                owner: part.owner.clone(),
                owner_map: part.owner_map.iter().map(|map| plan.folder.join(map)).collect(),
                exclude: part.exclude.clone(),
                ..SourceOptions::default()
            };
            let uuid = part.fs_uuid.map(|uuid| uuid.0);
            let content = match Content::parse(app, &options, path, true)? {
                Some(content) => content,
                None => Content::empty(),
            };
            let source = build::plan(app, content, moment, uuid, true)?;
            let least = match (&source.census, part.size) {
                (Some(census), None) => {
                    let spare = census.sectors_bytes() / 64;
                    build::fit::size(&mut recipe, census, part.free, spare)?
                }
                _ => 0,
            };
            return Ok(Prepared { recipe: Some((recipe, source)), least });
        }
    };
    Ok(Prepared { recipe: None, least })
}

/// Writes what a partition holds.
#[allow(clippy::too_many_arguments, reason = "one call, of what all partitions share")]
fn fill(
    app: &mut App,
    plan: &Plan,
    index: usize,
    part: &Part,
    content: Option<(Recipe, Source)>,
    disk: &Arc<dyn Device>,
    file: &File,
    moment: Moment,
) -> Result<Option<Filled>> {
    let wanted = &plan.partitions[index];
    if let Some((recipe, mut source)) = content {
        if wanted.fs_uuid.is_none() {
            source.uuid = part.fs_uuid;
        }
        let mut recipe = recipe.with_uuid(source.uuid);
        recipe.on_zeros(true);
        let number = index as u32 + 1;
        let start = Sector::from_bytes(part.offset);
        let device = device::Partition::part(disk, start, part.bytes / 512, number)?;
        let device: Arc<dyn Device> = Arc::new(device);
        return build::fill_fixed(app, &device, &mut recipe, &source, moment).map(Some);
    }
    match wanted.holds()? {
        Holds::Image(image) => {
            let from = plan.file(image)?;
            let size = from.metadata()?.len();
            if size > part.bytes {
                bail!("{}: {size} bytes, the partition has {}", image.display(), part.bytes);
            }
            copy_file(&from, file, part.offset, image.display())?;
        }
        Holds::Fat => {
            let source = wanted.source.as_ref().map(|source| plan.folder.join(source));
            fat::make(file, part, wanted, source.as_deref(), moment)?;
        }
        Holds::Swap => swap::make(file, part, &wanted.label)?,
        Holds::Nothing | Holds::Tree(_) => {}
    }
    Ok(None)
}

/// Copies a file to a place of the disk.
fn copy_file(from: &File, to: &File, offset: u64, shown: std::path::Display) -> Result<()> {
    let mut piece = vec![0; PIECE];
    let mut at = 0;
    loop {
        let count = from.read_at(&mut piece, at).with_context(|| shown.to_string())?;
        if count == 0 {
            return Ok(());
        }
        if !base::page::is_zero(&piece[..count]) {
            to.write_all_at(&piece[..count], offset + at)?;
        }
        at += count as u64;
    }
}
