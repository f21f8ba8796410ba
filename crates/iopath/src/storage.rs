//! The device of a target: file or block device, whole or a partition, with a queue in front of it.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Context, Result, anyhow, bail};
use block::{Device, Queue, QueueConfig};
use container::volume::Found;
use device::{Engine, OpenOptions};
use ext4::format::features::Access;
use ext4::format::{NotedError, RawSuper};
use serde_json::{Value, json};

/// A family of file systems that is known.
pub use image::Format as Known;

use crate::app::{App, EngineArg};
use crate::inside::{self, Inside};
use crate::passphrase;
use crate::recognise::{self, Content, PROBE};
use crate::remains::{self, Remain};
use crate::rescue;
use crate::target::{STRIPE, Target};
use crate::text;
use crate::volumes::{self, Opened};

/// An open target.
pub struct Storage {
    /// What was opened.
    pub target: Target,
    /// The queue in front of the device.
    pub queue: Arc<Queue>,
    /// The container around the disk, where there is one.
    pub container: Option<Arc<dyn container::Image>>,
    /// The volumes between it and the file system, the outermost first.
    pub volumes: Vec<Arc<dyn container::Image>>,
    /// A volume that was not opened: there is no key, or no name.
    pub closed: Option<Found>,
    /// The last look at its start found the mark of a change that was cut.
    pub cut: AtomicBool,
}

/// How the global options want devices opened.
pub fn open_options(app: &App, write: bool) -> OpenOptions {
    let engine = match app.options.engine {
        EngineArg::Auto => Engine::Auto,
        EngineArg::Uring => Engine::Uring,
        EngineArg::Psync => Engine::Psync,
    };
    OpenOptions { write, direct: app.options.direct, engine }
}

/// Opens what a path names: an image file, a block device, or a stripe over several.
///
/// # Errors
/// The host refuses, somebody else uses it, or the parts make no stripe.
pub fn open_device(app: &App, path: &Path, write: bool) -> Result<Arc<dyn Device>> {
    let options = open_options(app, write);
    let Some(list) = path.to_str().and_then(|text| text.strip_prefix(STRIPE)) else {
        return Ok(device::open(path, options)?);
    };
    let named = || path.display().to_string();
    let (chunk, members) = list.split_once(',').with_context(|| {
        format!("{}: a stripe is written stripe:CHUNK,PATH,PATH,..", path.display())
    })?;
    let chunk = base::unit::parse_size(chunk).map_err(|e| anyhow!("{}: {e}", path.display()))?;
    let members: Result<Vec<Arc<dyn Device>>, device::OpenError> =
        members.split(',').map(|member| device::open(Path::new(member), options)).collect();
    let cutter = device::stripe::Cutter::Sectors;
    let stripe = device::StripeDevice::new(members?, chunk, cutter).with_context(named)?;
    Ok(Arc::new(stripe))
}

/// The device of an open storage, once more, without a lock of its own.
///
/// # Errors
/// The host refuses.
pub fn open_again(app: &App, storage: &Storage) -> Result<Arc<dyn Device>> {
    let options = &app.options;
    if storage.is_layered() || options.rescue || options.offset.is_some() {
        return Ok(storage.queue.device().clone());
    }
    let path = &storage.target.path;
    match path.metadata().is_ok_and(|meta| meta.is_file()) {
        true => Ok(device::open_unlocked(path, open_options(app, false))?),
        false => open_device(app, path, false),
    }
}

/// How often a passphrase is asked for, as by cryptsetup.
const PASSPHRASES: u32 = 3;

/// Whether a key fits no slot.
fn is_wrong_key(error: &anyhow::Error) -> bool {
    error
        .chain()
        .any(|cause| matches!(cause.downcast_ref(), Some(container::Error::WrongKey { .. })))
}

impl Storage {
    /// Opens a target. It stays locked against other openers until the storage is dropped; other
    /// partitions of an image file may be opened.
    ///
    /// # Errors
    /// The host refuses, somebody else uses it, or there is no such partition.
    pub fn open(app: &mut App, target: &Target, write: bool) -> Result<Storage> {
        if target.nfs_url().is_some() {
            bail!("{target}: an NFS export is files, not a device; give an image or a device");
        }
        if write {
            rescue::refuse_write(app, target)?;
        }
        if let Some(storage) = volumes::of_members(app, target, write)? {
            return Ok(storage);
        }
        if let Some(url) = target.remote_url() {
            let inside = inside::of_url(app, target, url, write)?;
            return Storage::inside(app, target, inside, write);
        }
        let is_file = target.path.metadata().is_ok_and(|meta| meta.is_file());
        if is_file && let Some(inside) = inside::of_file(app, target, write)? {
            return Storage::inside(app, target, inside, write);
        }
        if let (Some(number), true) = (target.partition, is_file) {
            let options = open_options(app, write);
            let table = device::open_unlocked(&target.path, options)?;
            let entry = device::Partition::find(app.cx, &table, number);
            let entry = entry.with_context(|| target.to_string())?;
            let start = entry.start.bytes();
            let bytes = start..start + entry.count * 512;
            let whole = device::open_part(&target.path, options, bytes)?;
            let part = device::Partition::part(&whole, entry.start, entry.count, number);
            let part: Arc<dyn Device> = Arc::new(part.with_context(|| target.to_string())?);
            return Storage::queued(app, target, part, start, write);
        }
        let device = open_device(app, &target.path, write)?;
        let alone = !is_file && !target.path.as_os_str().as_encoded_bytes().starts_with(b"stripe:");
        if alone && let Some(inside) = inside::of_device(app, target, &device, write)? {
            return Storage::inside(app, target, inside, write);
        }
        Storage::on(app, target, device, write)
    }

    /// As [`Storage::open`], to use the file system on it: asks for the passphrase of a LUKS volume
    /// where no key was given and the user sits at a terminal.
    ///
    /// # Errors
    /// As [`Storage::open`]; no passphrase fits.
    pub fn open_to_use(app: &mut App, target: &Target, write: bool) -> Result<Storage> {
        let before = app.rescued.len();
        let storage = Storage::open(app, target, write)?;
        if !matches!(storage.closed, Some(Found::Luks(_))) || app.options.key_file.is_some() {
            return Ok(storage);
        }
        let name = target.to_string();
        let known = app.passphrases.iter().find(|(of, _)| *of == name);
        let mut known = known.map(|(_, phrase)| phrase.clone());
        let mut closed = storage;
        for _ in 0..PASSPHRASES {
            let phrase = match known.take() {
                Some(phrase) => Some(phrase),
                None => passphrase::ask(&format!("Passphrase for {name}: "))?,
            };
            let Some(phrase) = phrase else { break };
            drop(closed);
            app.rescued.truncate(before);
            app.options.key_file = Some(phrase.clone());
            let opened = Storage::open(app, target, write);
            app.options.key_file = None;
            match opened {
                Err(error) if is_wrong_key(&error) => app.out.problem(format!("{error:#}")),
                Err(error) => return Err(error),
                Ok(storage) => {
                    app.passphrases.push((name, phrase));
                    return Ok(storage);
                }
            }
            closed = Storage::open(app, target, write)?;
        }
        Ok(closed)
    }

    /// The disk inside of a container, or its partition.
    fn inside(app: &mut App, target: &Target, inside: Inside, write: bool) -> Result<Storage> {
        if app.options.map.is_some() {
            bail!("{target}: --map is of a raw disk, and this is a container or on a server");
        }
        let mut storage = Storage::on(app, target, inside.device, write)?;
        storage.container = Some(inside.image);
        Ok(storage)
    }

    /// Puts a queue in front of a device of this target, or of its partition.
    ///
    /// # Errors
    /// There is no such partition.
    pub fn on(
        app: &mut App,
        target: &Target,
        device: Arc<dyn Device>,
        write: bool,
    ) -> Result<Storage> {
        let Some(number) = target.partition else {
            return Storage::queued(app, target, device, 0, write);
        };
        let part = device::Partition::open(app.cx, &device, number);
        let part = part.with_context(|| target.to_string())?;
        let start = part.start().bytes();
        Storage::queued(app, target, Arc::new(part), start, write)
    }

    /// Puts a queue in front of the device of a target, which begins at byte `start` of the disk.
    fn queued(
        app: &mut App,
        target: &Target,
        device: Arc<dyn Device>,
        start: u64,
        write: bool,
    ) -> Result<Storage> {
        let before = app.rescued.len();
        let device = rescue::through(app, target, device, start)?;
        let opened = volumes::through(app, target, device, write)?;
        // Whoever looked for volumes has met zeros that are nobody's loss.
        app.rescued[before..].iter().for_each(|opened| opened.rescued.forget());
        Storage::volume(app, target, opened)
    }

    /// Puts a queue in front of an opened volume, or of a plain device.
    ///
    /// # Errors
    /// The device takes no requests.
    pub(crate) fn volume(app: &mut App, target: &Target, opened: Opened) -> Result<Storage> {
        let Opened { device, volumes, closed } = opened;
        let trace_events = app.recorder.as_ref().map_or(0, |recorder| recorder.events);
        let config = QueueConfig { trace_events, ..QueueConfig::default() };
        let queue = Queue::new(app.cx.runtime(), device, config);
        let queue = queue.map_err(|e| anyhow!("{target}: {e}"))?;
        if let Some(recorder) = &mut app.recorder {
            recorder.queues.push((target.to_string(), queue.clone()));
        }
        let (target, cut) = (target.clone(), AtomicBool::new(false));
        Ok(Storage { target, queue, container: None, volumes, closed, cut })
    }

    /// Whether its bytes are not those of the file or device that the target names.
    pub fn is_layered(&self) -> bool {
        self.container.is_some() || !self.volumes.is_empty()
    }

    /// Bytes of the device.
    pub fn bytes(&self) -> u64 {
        self.queue.info().bytes()
    }

    /// Reads from the start of the device: up to `len` bytes, a multiple of 4096.
    ///
    /// # Errors
    /// The device failed.
    pub fn start(&self, app: &mut App, len: usize) -> Result<Vec<u8>> {
        let start = recognise::read_start(app.cx, &self.queue, len);
        start.with_context(|| self.target.to_string())
    }

    /// What is on the device.
    ///
    /// # Errors
    /// The device failed.
    pub fn format(&self, app: &mut App) -> Result<Content> {
        let start = self.start(app, PROBE)?;
        self.cut.store(repair::undo::mark_of(&start).is_some(), Ordering::Relaxed);
        Ok(recognise::recognise(&start))
    }

    /// A repair, resize or tune was cut, as the last look at the start has shown.
    pub fn is_cut(&self) -> bool {
        self.cut.load(Ordering::Relaxed)
    }

    /// Refuses everything but the file systems that are known, by name and with what to do about
    /// it.
    ///
    /// # Errors
    /// What is there instead.
    pub fn must_be_known(&self, app: &mut App) -> Result<Known> {
        let target = &self.target;
        if let Some(closed) = &self.closed {
            bail!("{}", volumes::explain(target, closed));
        }
        let content = self.format(app)?;
        match (content, Known::of(content)) {
            (_, Ok(known)) => Ok(known),
            (Content::Blank | Content::Unknown, _) => self.refuse_unknown(app, content),
            (Content::Partitioned(_), Err(words)) => bail!("{target}: {words}: {target}@1"),
            (_, Err(words)) => bail!("{target}: {words}"),
        }
    }

    /// What is left on it of a file system or a partition table.
    ///
    /// # Errors
    /// The device failed.
    pub fn remains(&self, app: &mut App) -> Result<Vec<Remain>> {
        let whole = match self.target.partition {
            None => open_again(app, self).ok(),
            Some(_) => None,
        };
        remains::search(app.cx, &self.queue, &self.target, whole.as_ref())
    }

    /// Refuses a device whose start says nothing, with what else is there.
    fn refuse_unknown(&self, app: &mut App, format: Content) -> Result<Known> {
        let target = &self.target;
        let start = match format {
            Content::Blank => "is blank at its start",
            _ => {
                "no known file system: the word at byte 1080 is not 0xef53, and no other magic \
                 number fits"
            }
        };
        let found = self.remains(app)?;
        if !found.is_empty() {
            bail!("{target}: {start}, but something was here: {}", remains::sentence(&found));
        }
        match format {
            Content::Blank => bail!(
                "{target}: {start}, and nothing else was found; make a file system: iopath mkfs \
                 -t ext4 {target}"
            ),
            _ => bail!("{target}: {start}"),
        }
    }
}

/// The partitions of a target, as JSON, with what they hold.
///
/// # Errors
/// The table is damaged.
pub fn partitions(app: &mut App, storage: &Storage) -> Result<Value> {
    let target = &storage.target;
    let device = open_again(app, storage)?;
    let table = device::Partition::list(app.cx, &device).with_context(|| target.to_string())?;
    let mut all = Vec::new();
    for entry in &table.partitions {
        let len = (entry.count * 512).min(PROBE as u64) as usize / 4096 * 4096;
        let start = match len {
            0 => Vec::new(),
            len => storage.queue.read(app.cx, entry.start, len).map_or(Vec::new(), |p| p.to_vec()),
        };
        let holds = match recognise::recognise(&start) {
            Content::Ext(kind) => kind.to_string(),
            Content::Xfs => "xfs".into(),
            Content::Other(name, _) => name.into(),
            Content::Partitioned(table) => format!("{table} partition table"),
            Content::Blank => "blank".into(),
            Content::Unknown => "unknown".into(),
        };
        all.push(json!({
            "number": entry.number,
            "offset": entry.start.bytes(),
            "size": entry.count * 512,
            "type": entry.kind,
            "name": entry.name,
            "holds": holds,
            "target": format!("{}@{}", target.path.display(), entry.number),
        }));
    }
    Ok(all.into())
}

/// The first superblock of ext2, ext3 or ext4, as it is.
///
/// # Errors
/// The device failed or is too short.
pub fn ext_super(app: &mut App, storage: &Storage) -> Result<RawSuper> {
    let start = storage.start(app, 4096)?;
    let raw = start.get(1024..2048).and_then(RawSuper::read);
    raw.with_context(|| format!("{}: too short for a superblock", storage.target))
}

/// What the superblock says, as keys and values for `info`.
///
/// # Errors
/// The device failed or is too short.
pub fn ext_facts(app: &mut App, storage: &Storage) -> Result<Vec<(&'static str, Value)>> {
    let raw = ext_super(app, storage)?;
    let block_size = 1024u64.checked_shl(raw.s_log_block_size.get()).unwrap_or(0);
    let features = raw.features();
    let (access, reasons) = features.access();
    let state = match (features.to_string().contains("needs_recovery"), raw.s_state.get()) {
        (true, _) => "in use, or its journal must be replayed (iopath replay)",
        (_, state) if state & 2 != 0 => "errors noted (iopath check)",
        (_, state) if state & 1 != 0 => "clean",
        _ => "not unmounted cleanly (iopath check)",
    };
    let name = |bytes: &[u8]| json!(text::escape(bytes));
    let time = |secs: u32| {
        let stamp = base::Timespec::from_secs(secs.into());
        if secs == 0 { Value::Null } else { json!(text::full_time(stamp)) }
    };
    let access = match access {
        Access::ReadWrite => "read-write",
        Access::ReadOnly => "read-only",
        Access::Refused => "refused",
    };
    let unsupported: Vec<String> = reasons.iter().map(|reason| reason.to_string()).collect();
    Ok(vec![
        ("label", name(raw.label())),
        ("uuid", json!(uuid_text(&raw.s_uuid))),
        ("state", json!(state)),
        ("block_size", json!(block_size)),
        ("blocks", json!(raw.blocks_count())),
        ("blocks_free", json!(raw.free_blocks())),
        ("blocks_reserved", json!(raw.reserved_blocks())),
        ("inodes", json!(raw.s_inodes_count.get())),
        ("inodes_free", json!(raw.s_free_inodes_count.get())),
        ("inode_size", json!(raw.s_inode_size.get())),
        ("blocks_per_group", json!(raw.s_blocks_per_group.get())),
        ("features", features.to_string().split(' ').map(|name| json!(name)).collect()),
        ("access", json!(access)),
        ("obstacles", json!(unsupported)),
        ("last_mounted", name(raw.last_mounted())),
        ("made", time(raw.s_mkfs_time.get())),
        ("last_mount", time(raw.s_mtime.get())),
        ("last_write", time(raw.s_wtime.get())),
        ("mounts", json!(raw.s_mnt_count.get())),
        ("errors", json!(raw.s_error_count.get())),
        ("first_error", error_fact(raw.first_error())),
        ("last_error", error_fact(raw.last_error())),
    ])
}

/// What the device of an external journal says, as keys and values for `info`; none of another.
///
/// # Errors
/// The device failed.
pub fn journal_facts(app: &mut App, storage: &Storage) -> Result<Vec<(&'static str, Value)>> {
    if storage.format(app)? != recognise::EXT_JOURNAL {
        return Ok(Vec::new());
    }
    let device = ext4::JournalDevice(storage.queue.clone());
    let facts = match device.facts(app.cx) {
        Ok(facts) => facts,
        Err(error) => return Ok(vec![("damage", json!(error.to_string()))]),
    };
    let state = if facts.dirty { "not empty: its file system must replay it" } else { "empty" };
    Ok(vec![
        ("label", json!(text::escape(&facts.label))),
        ("uuid", json!(uuid_text(&facts.uuid))),
        ("state", json!(state)),
        ("block_size", json!(facts.block_size)),
        ("blocks", json!(facts.blocks)),
        ("users", facts.users.iter().map(|uuid| json!(uuid_text(uuid))).collect()),
    ])
}

/// What the superblock says of an error that was found while the file system was mounted.
fn error_fact(noted: Option<NotedError>) -> Value {
    let Some(noted) = noted else { return Value::Null };
    let mut text = text::full_time(base::Timespec::from_secs(noted.time));
    let mut add = |what: &str, number: u64| {
        if number > 0 {
            text.push_str(&format!(", {what} {number}"));
        }
    };
    add("inode", noted.ino.into());
    add("block", noted.block);
    add("line", noted.line.into());
    let place = text::escape(&noted.place);
    json!(if place.is_empty() { text } else { format!("{text}: {place}") })
}

/// A UUID as text.
pub fn uuid_text(uuid: &[u8; 16]) -> String {
    let hex = text::hex(uuid);
    let parts = [&hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..]];
    parts.join("-")
}
