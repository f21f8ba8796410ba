//! Volumes between a disk and its file system: LUKS, LVM2, MD arrays, dm-verity. What lies on a
//! device is opened as long as it is such a volume and there is what it needs: a key, the name of a
//! logical volume, the members of an array.

use std::sync::Arc;

use anyhow::{Context, Result, bail};
use block::Device;
use container::volume::{self, Found, lvm, md, verity};
use container::{DeviceSource, Format, Image, Source, Target as Bytes};
use serde_json::{Value, json};

use crate::app::App;
use crate::inside::{self, where_readable};
use crate::storage::Storage;
use crate::target::{Layer, Target};

/// Volumes inside of each other.
const DEPTH_MAX: usize = 8;

/// What lies between a device and its file system.
pub struct Opened {
    /// The device of the file system.
    pub device: Arc<dyn Device>,
    /// The volumes that were opened, the outermost first.
    pub volumes: Vec<Arc<dyn Image>>,
    /// A volume that was not opened.
    pub closed: Option<Found>,
}

/// The members of a target that is a list of files, each with its partition; none where it is one
/// file.
fn members(target: &Target) -> Option<Vec<Target>> {
    let path = target.path.to_str()?;
    if !path.contains(',') || path.contains(':') || target.path.exists() {
        return None;
    }
    let whole = Target { layer: Layer::Any, ..target.clone() }.to_string();
    let parse = |text: &str| {
        let member = Target::parse(text.as_ref()).ok()?;
        Some(Target { layer: Layer::Member, ..member })
    };
    whole.split(',').map(parse).collect()
}

/// The device of a target whose members are several files: an array, or a volume group.
///
/// # Errors
/// A member cannot be opened, or they do not belong together.
pub fn of_members(app: &mut App, target: &Target, write: bool) -> Result<Option<Storage>> {
    let Some(members) = members(target) else { return Ok(None) };
    let mut devices = Vec::new();
    for member in &members {
        devices.push(Storage::open(app, member, write)?.queue.device().clone());
    }
    let (image, left) = join(target, &devices)?;
    let device = device_of(app, target, image.clone(), write)?;
    let mut opened = through(app, &left, device, write)?;
    opened.volumes.insert(0, image);
    Storage::volume(app, &Target { partition: None, ..target.clone() }, opened).map(Some)
}

/// What these devices make together, and what of the target is still to be opened.
fn join(target: &Target, devices: &[Arc<dyn Device>]) -> Result<(Arc<dyn Image>, Target)> {
    let (mut arrays, mut groups) = (Vec::new(), Vec::new());
    for device in devices {
        let source = Arc::new(DeviceSource::new(device.clone()));
        match volume::recognise(&*source)? {
            Some(Found::Md(member)) => arrays.push((*member, source as Arc<dyn Bytes>)),
            Some(Found::Lvm(physical)) => groups.push((*physical, source as Arc<dyn Bytes>)),
            _ => bail!("{target}: {} is no member of an array or of a volume group", device.name()),
        }
    }
    match (&target.layer, arrays.is_empty(), groups.is_empty()) {
        (_, false, true) => Ok((md::assemble(arrays)?, target.clone())),
        (Layer::Logical { group, name }, true, false) => {
            let image = lvm::open(groups, group, name)?;
            Ok((image, Target { layer: Layer::Any, ..target.clone() }))
        }
        (_, true, false) => bail!("{target}: a volume group: name a volume: {target}@GROUP/NAME"),
        _ => bail!("{target}: members of an array beside those of a volume group"),
    }
}

/// Opens the volumes on a device, as far as there is what they need.
///
/// # Errors
/// A volume is damaged, its key fits no slot, or what was asked for is not there.
pub fn through(
    app: &mut App,
    target: &Target,
    device: Arc<dyn Device>,
    write: bool,
) -> Result<Opened> {
    let mut opened = Opened { device, volumes: Vec::new(), closed: None };
    if app.options.image_format == Some(Format::Raw) || target.layer == Layer::Member {
        return Ok(opened);
    }
    let mut wanted = target.layer.clone();
    if let Some(image) = verified(app, target, &opened.device)? {
        push(app, target, &mut opened, image, write)?;
    }
    while opened.volumes.len() < DEPTH_MAX {
        let source = Arc::new(DeviceSource::new(opened.device.clone()));
        let found = where_readable(volume::recognise(&*source), write);
        let advice = "`--image-format raw` takes the target as it is";
        let image = match found.context(advice)? {
            None => break,
            Some(Found::Luks(header)) => match &app.options.key_file {
                Some(secret) => volume::luks::unlock(source, &header, secret)?,
                None => {
                    opened.closed = Some(Found::Luks(header));
                    break;
                }
            },
            Some(Found::Md(member)) => md::assemble(vec![(*member, source)])?,
            Some(Found::Lvm(physical)) => match std::mem::replace(&mut wanted, Layer::Any) {
                Layer::Logical { group, name } => {
                    lvm::open(vec![(*physical, source)], &group, &name)?
                }
                _ => {
                    opened.closed = Some(Found::Lvm(physical));
                    break;
                }
            },
        };
        push(app, target, &mut opened, image, write)?;
    }
    if let (Layer::Logical { group, name }, None) = (&wanted, &opened.closed) {
        bail!("{target}: no physical volume of LVM2, so there is no volume {group}/{name}");
    }
    Ok(opened)
}

/// The data behind `--root-hash`, checked by its tree.
fn verified(
    app: &mut App,
    target: &Target,
    device: &Arc<dyn Device>,
) -> Result<Option<Arc<dyn Image>>> {
    let Some(root) = app.options.root_hash.clone() else { return Ok(None) };
    let offset = app.options.hash_offset.unwrap_or(0);
    let data: Arc<dyn Source> = Arc::new(DeviceSource::new(device.clone()));
    let hashes = match app.options.hash_device.clone() {
        None if offset == 0 => {
            bail!("{target}: give the hash tree: --hash-device TARGET, or --hash-offset BYTES")
        }
        None => data.clone(),
        Some(path) => {
            let other = Target { layer: Layer::Member, ..Target::parse(&path)? };
            let storage = Storage::open(app, &other, false)?;
            Arc::new(DeviceSource::new(storage.queue.device().clone()))
        }
    };
    let tree = verity::Tree::read(&*hashes, offset)?;
    Ok(Some(verity::open(data, hashes, tree, &root)?))
}

fn push(
    app: &App,
    target: &Target,
    opened: &mut Opened,
    image: Arc<dyn Image>,
    write: bool,
) -> Result<()> {
    opened.device = device_of(app, target, image.clone(), write)?;
    opened.volumes.push(image);
    Ok(())
}

/// The device of an opened volume.
fn device_of(
    app: &App,
    target: &Target,
    image: Arc<dyn Image>,
    write: bool,
) -> Result<Arc<dyn Device>> {
    if write && !image.is_writable() {
        bail!("{target}: {} is read, not written", image.format());
    }
    Ok(inside::device_of(app, target, image)?.device)
}

/// Why a volume that was not opened holds nothing to work on, with what to do.
pub fn explain(target: &Target, closed: &Found) -> String {
    let format = closed.format();
    match closed {
        Found::Luks(_) => format!(
            "{target}: this is {format}: give --key-file FILE, or type its passphrase on a terminal"
        ),
        Found::Lvm(physical) => match (physical.group(), &physical.volumes()[..]) {
            (None, _) => format!("{target}: this is an {format} without a group"),
            (Some(group), []) => format!("{target}: the volume group `{group}` has no volumes"),
            (Some(group), names) => {
                let names = names.iter().map(|name| format!("{target}@{group}/{name}"));
                let names: Vec<String> = names.collect();
                format!("{target}: this is an {format}: name a volume: {}", names.join(", "))
            }
        },
        Found::Md(_) => format!("{target}: this is an {format}: give all members: a.img,b.img"),
    }
}

/// The volumes of a storage, as `info` shows them: a list of objects with `--json`, lines without.
///
/// # Errors
/// A volume cannot be read.
pub fn facts(app: &App, storage: &Storage) -> Result<Vec<(&'static str, Value)>> {
    let mut all = Vec::new();
    for image in &storage.volumes {
        all.push((image.format().to_owned(), image.facts()?));
    }
    all.extend(storage.closed.iter().map(|closed| (closed.format(), closed.facts())));
    if all.is_empty() {
        return Ok(Vec::new());
    }
    let mut lines = Vec::new();
    let mut objects = Vec::new();
    for (format, facts) in all {
        let mut object = serde_json::Map::new();
        object.insert("format".to_owned(), json!(format));
        lines.push(("volume", json!(format)));
        for (key, fact) in facts {
            let value = inside::value(fact);
            object.insert(key.to_owned(), value.clone());
            lines.push((key, value));
        }
        objects.push(Value::Object(object));
    }
    Ok(if app.out.json { vec![("volumes", objects.into())] } else { lines })
}
