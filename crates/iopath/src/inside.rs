//! Targets that are containers (qcow2, VMDK and others, recognised by content or by
//! `--image-format`), or lie on servers: read, and qcow2 in files of the host written too.

use std::os::unix::fs::FileTypeExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::{Result, anyhow, bail};
use block::Device;
use container::{
    DeviceSource, Fact, FileSource, FileTarget, Files, Format, HostFiles, How, Image, ImageDevice,
    Source,
};
use serde_json::{Map, Value, json};

#[cfg(feature = "network")]
use crate::ahead;
use crate::app::App;
use crate::target::Target;

/// Messages about one image that are printed; behind a damaged table every read fails.
const MESSAGES_MAX: usize = 16;

/// An opened container.
pub struct Inside {
    /// The disk in it.
    pub device: Arc<dyn Device>,
    /// The container, to ask for its facts.
    pub image: Arc<dyn Image>,
}

/// The container that a file of the host is; none where it is the disk itself.
///
/// # Errors
/// The host refuses, the container is damaged or uses what is not supported, or it should be
/// written to.
pub fn of_file(app: &App, target: &Target, write: bool) -> Result<Option<Inside>> {
    // A look, without a lock: what the file is decides who opens it, and how.
    let look = FileSource::look(&target.path, None)?;
    let Some(format) = format_of(app, &look, write)? else { return Ok(None) };
    if write && format == Format::Qcow2 {
        let how = How { format: Some(format), snapshot: app.options.snapshot.clone() };
        let file = Arc::new(FileTarget::open(&target.path)?);
        let image = container::open_to_change(file, &how, &files_of(app, &target.path))?;
        return device_of(app, target, image).map(Some);
    }
    refuse_write(target, format, write)?;
    let source = Arc::new(FileSource::open(&target.path)?);
    open(app, target, format, source, &files_of(app, &target.path)).map(Some)
}

/// The container that an open device holds; none where it is the disk itself.
///
/// # Errors
/// As [`of_file`].
pub fn of_device(
    app: &App,
    target: &Target,
    device: &Arc<dyn Device>,
    write: bool,
) -> Result<Option<Inside>> {
    let source = DeviceSource::new(device.clone());
    let Some(format) = format_of(app, &source, write)? else { return Ok(None) };
    refuse_write(target, format, write)?;
    let is_block = target.path.metadata().is_ok_and(|meta| meta.file_type().is_block_device());
    let none = container::NoFiles;
    let files = files_of(app, &target.path);
    let files: &dyn Files = if is_block { &files } else { &none };
    open(app, target, format, Arc::new(source), files).map(Some)
}

/// The disk of an image on a server, or of a container there.
///
/// # Errors
/// The server refuses, and as [`of_file`].
#[cfg(feature = "network")]
pub fn of_url(app: &App, target: &Target, url: &str, write: bool) -> Result<Inside> {
    let options = network_options(app);
    if let Some(file) = &app.options.overlay {
        let image = crate::overlay::Pinned::open(url, &options)?.under(file, write)?;
        return device_of(app, target, image);
    }
    if write {
        let shown = target.path.display();
        bail!(
            "{shown}: images on servers are read, not written; with --overlay FILE the changes go \
             to a file, and `iopath push` replaces an image on S3"
        );
    }
    let source = network::open(url, &options)?;
    for range in ahead::of_disk(&*source)? {
        source.will_read(range);
    }
    let format = format_of(app, &*source, write)?.unwrap_or(Format::Raw);
    let files = network::RemoteFiles::beside(url, &options);
    open(app, target, format, source, &files)
}

/// How images on servers are read.
#[cfg(feature = "network")]
pub fn network_options(app: &App) -> network::Options {
    network::Options {
        memory: (app.options.cache_size / 4).min(64 << 20),
        cache_dir: app.options.cache_dir.clone(),
        anonymous: app.options.anonymous,
    }
}

/// Replaces the object at `url` by what its overlay shows, with its properties unless `new`;
/// returns the bytes that were sent, and those that the store copied.
///
/// # Errors
/// There is no overlay, the object is another version by now, or the store refuses.
#[cfg(feature = "network")]
pub fn push(app: &App, target: &Target, url: &str, new: bool) -> Result<(u64, u64)> {
    let how = network::Replacing { anonymous: app.options.anonymous, new_properties: new };
    let done = crate::overlay::push(app, target, url, &network_options(app), how)?;
    Ok((done.sent, done.copied))
}

/// As with the feature, refused by name.
///
/// # Errors
/// Always.
#[cfg(not(feature = "network"))]
pub fn push(_: &App, target: &Target, _: &str, _: bool) -> Result<(u64, u64)> {
    bail!("{target}: this iopath was built without the cargo feature `network`")
}

/// As with the feature, refused by name.
///
/// # Errors
/// Always.
#[cfg(not(feature = "network"))]
pub fn of_url(_: &App, target: &Target, _: &str, _: bool) -> Result<Inside> {
    bail!("{target}: this iopath was built without the cargo feature `network`")
}

fn files_of(app: &App, path: &Path) -> HostFiles {
    let folders = app.options.image_dir.iter();
    folders.fold(HostFiles::beside(path), |files, folder| files.and(folder))
}

/// What was recognised; nothing where it is in bad sectors that would say it, of what is only read.
///
/// # Errors
/// Any other.
pub fn where_readable<T>(
    found: Result<Option<T>, container::Error>,
    write: bool,
) -> Result<Option<T>, container::Error> {
    match found {
        Err(error) if error.is_bad_sector() && !write => Ok(None),
        found => found,
    }
}

/// What the user said, else what the content says; none for raw.
fn format_of(app: &App, source: &dyn Source, write: bool) -> Result<Option<Format>> {
    let format = match app.options.image_format {
        Some(format) => Some(format),
        None => where_readable(container::recognise(source), write)?,
    };
    let format = format.filter(|&format| format != Format::Raw);
    if let (None, Some(snapshot)) = (format, &app.options.snapshot) {
        bail!("{}: a raw image has no snapshots, so there is no `{snapshot}`", source.name());
    }
    Ok(format)
}

fn refuse_write(target: &Target, format: Format, write: bool) -> Result<()> {
    if !write {
        return Ok(());
    }
    let path = target.path.display();
    let convert = match format.qemu_name() {
        Some(name) => format!("qemu-img convert -f {name} -O raw {path} disk.img"),
        None if format == Format::AndroidSparse => format!("simg2img {path} disk.img"),
        None => format!("zstd -d {path} -o disk.img"),
    };
    bail!("{target}: {format} images are read, not written; to change one: {convert}")
}

fn open(
    app: &App,
    target: &Target,
    format: Format,
    source: Arc<dyn Source>,
    files: &dyn Files,
) -> Result<Inside> {
    let how = How { format: Some(format), snapshot: app.options.snapshot.clone() };
    let image = container::open(source, &how, files)?;
    device_of(app, target, image)
}

/// A device of an image, whose errors are printed.
///
/// # Errors
/// The disk is shorter than a sector.
pub fn device_of(app: &App, target: &Target, image: Arc<dyn Image>) -> Result<Inside> {
    if image.size() < 512 {
        return Err(anyhow!("{target}: a disk of {} bytes", image.size()));
    }
    let (json, reported) = (app.options.json, AtomicUsize::new(0));
    let report = move |error: &container::Error| {
        if reported.fetch_add(1, Ordering::Relaxed) < MESSAGES_MAX {
            crate::out::problem(json, &error.to_string());
        }
    };
    let name = target.path.display().to_string();
    let device = Arc::new(ImageDevice::reporting(image.clone(), &name, report));
    Ok(Inside { device, image })
}

/// The facts of a container, as `info` shows them: one object with `--json`, lines of their own
/// without.
///
/// # Errors
/// A table that is counted cannot be read.
pub fn facts(app: &App, image: &dyn Image) -> Result<Vec<(&'static str, Value)>> {
    if image.format() == Format::Raw.name() {
        return Ok(Vec::new());
    }
    let facts = image.facts()?.into_iter().map(|(key, fact)| (key, value(fact)));
    if app.out.json {
        let mut object = Map::new();
        object.insert("format".to_owned(), json!(image.format()));
        object.extend(facts.map(|(key, value)| (key.to_owned(), value)));
        return Ok(vec![("container", Value::Object(object))]);
    }
    let head = [("container", json!(image.format()))];
    Ok(head.into_iter().chain(facts).collect())
}

/// A fact as JSON.
pub fn value(fact: Fact) -> Value {
    match fact {
        Fact::Text(text) => json!(text),
        Fact::Number(number) => json!(number),
        Fact::Flag(flag) => json!(flag),
        Fact::Lines(lines) => json!(lines),
        Fact::Rows(rows) => {
            let object = |row: Vec<(&str, Fact)>| -> Value {
                row.into_iter().map(|(key, fact)| (key.to_owned(), value(fact))).collect()
            };
            rows.into_iter().map(object).collect()
        }
    }
}
