//! Copying trees between the host, images and archives.
//!
//! ```text
//!   source (host, image, archive)  --batches-->  sink (image, host, archive)
//!        task "source"               channel           the calling task
//! ```
//!
//! A source walks a tree in an order where directories come before what they hold, and puts events
//! into [`Batch`]es: nodes, and the data of the file that came last. A sink carries them out. The
//! two run in two tasks, so that reading one side overlaps writing the other; a few batches go
//! round between them, and no name costs an allocation of its own.

use std::ops::Range;
use std::sync::Arc;

use anyhow::{Result, anyhow};
use base::Timespec;
use base::map::HashMap;
use rt::{Channel, Cx, JoinHandle};
use vfs::FileType;

use crate::interrupt;
use crate::out::Progress;
pub use problem::{Problems, Stopped};
pub use rules::{DIRECT_UNIT, Existing, FileId, Follow, Keep, Made, Old, Step};

mod capability;
pub mod content;
pub mod decompress;
pub mod exact;
mod host_meta;
pub mod host_sink;
pub mod host_source;
mod image_meta;
pub mod image_sink;
pub mod image_source;
mod late_dirs;
pub mod nodes;
pub mod open_dirs;
pub mod owner_map;
pub mod picks;
pub mod problem;
pub mod rules;
pub mod selection;
pub mod tar_index;
pub mod tar_sink;
pub mod tar_source;
pub mod tar_sparse;

/// What a source reports about a node. What of it is used says [`Keep`].
#[derive(Clone, Copy, Debug)]
pub struct Meta {
    /// Type.
    pub kind: FileType,
    /// Permission bits, 12 of them.
    pub mode: u16,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Device number as stat(2) gives it.
    pub rdev: u64,
    /// Size of a regular file in bytes.
    pub size: u64,
    /// Access time.
    pub atime: Timespec,
    /// Modification time.
    pub mtime: Timespec,
    /// The node has other names, which may come later.
    pub linked: bool,
    /// The device and number of a node whose further names come as nodes of their own
    /// ([`Keep::links_late`]).
    pub id: Option<FileId>,
    /// Its content is there already: none comes, and the file is not made anew.
    pub kept: bool,
}

/// One step of a copy. Ranges are for [`Batch::at`].
#[derive(Clone, Debug)]
pub enum Event {
    /// A node at a path relative to the root of the copy (empty: the root itself).
    Node {
        /// Where.
        path: Range<usize>,
        /// What.
        meta: Meta,
        /// Target of a symlink.
        target: Range<usize>,
        /// The next so many events of the kind `Xattr` belong to it.
        xattrs: u32,
    },
    /// An attribute of the node before.
    Xattr {
        /// Name with prefix.
        name: Range<usize>,
        /// Value.
        value: Range<usize>,
    },
    /// A further name of a node that came before.
    Link {
        /// The new name.
        path: Range<usize>,
        /// Path of the node.
        to: Range<usize>,
    },
    /// Content of the regular file that came last, in rising order; what is left out is a hole.
    Data {
        /// Place in the file, bytes.
        offset: u64,
        /// Content.
        data: Range<usize>,
    },
    /// The regular file that came last has the content of this inode of the same file system, whose
    /// blocks it shares. From sources that are asked to ([`ImageSource::sharing`]).
    ///
    /// [`ImageSource::sharing`]: image_source::ImageSource::sharing
    Shared(base::Ino),
    /// The regular file that came last is complete.
    End,
    /// The regular file just named has holes: where its data lies, as pairs of offset and length,
    /// 8 bytes each, rising. Follows the node at once.
    Stretches(Range<usize>),
    /// Something could not be read, with the message; a regular file that is not complete stays so.
    Problem(Range<usize>),
}

/// Events and the bytes that they refer to.
#[derive(Default)]
pub struct Batch {
    /// Paths, names, values, contents: `used` bytes of memory that stays when the batch is emptied.
    bytes: Vec<u8>,
    used: usize,
    /// What to do.
    pub events: Vec<Event>,
}

impl Batch {
    /// The bytes of a range.
    pub fn at(&self, range: &Range<usize>) -> &[u8] {
        &self.bytes[range.clone()]
    }

    /// The next `len` bytes of memory, whatever they hold, and where they are.
    fn room(&mut self, len: usize) -> (&mut [u8], usize) {
        let start = self.used;
        self.used += len;
        if self.bytes.len() < self.used {
            self.bytes.resize(self.used, 0);
        }
        (&mut self.bytes[start..start + len], start)
    }

    /// True for the name, in an event, of something below a directory that could not be made.
    fn is_lost(&self, event: &Event, problems: &Problems) -> bool {
        match event {
            Event::Node { path, .. } | Event::Link { path, .. } => problems.is_lost(self.at(path)),
            _ => false,
        }
    }

    /// Notes that the directory of an event could not be made.
    fn lose_directory(&self, event: &Event, problems: &mut Problems) {
        if let Event::Node { path, meta, .. } = event
            && meta.kind == FileType::Directory
        {
            problems.lose(self.at(path));
        }
    }

    fn clear(&mut self) {
        self.used = 0;
        self.events.clear();
    }
}

/// Largest piece of content in one event, bytes.
pub const PIECE: usize = 256 << 10;
const BATCH_BYTES: usize = 192 << 10;
const BATCH_EVENTS: usize = 512;
const BATCHES: usize = 4;

/// Where a source puts its events.
pub struct Outbox {
    batch: Batch,
    full: Arc<Channel<Batch>>,
    empty: Arc<Channel<Batch>>,
}

impl Outbox {
    /// Stores bytes of the event to come.
    pub fn store(&mut self, bytes: &[u8]) -> Range<usize> {
        let (room, start) = self.batch.room(bytes.len());
        room.copy_from_slice(bytes);
        start..start + bytes.len()
    }

    /// Makes room for `len` bytes and lets `fill` write into it; keeps as many as it answers.
    ///
    /// # Errors
    /// Those of `fill`.
    pub fn store_with(
        &mut self,
        len: usize,
        fill: impl FnOnce(&mut [u8]) -> Result<usize>,
    ) -> Result<Range<usize>> {
        let (room, start) = self.batch.room(len);
        let filled = fill(room);
        self.batch.used = start + *filled.as_ref().unwrap_or(&0);
        filled.map(|count| start..start + count)
    }

    /// Adds an event. A `Node` must be followed by its `Xattr` events before [`Outbox::breathe`].
    pub fn push(&mut self, event: Event) {
        self.batch.events.push(event);
    }

    /// Says that one name, or the rest of it, could not be read, and goes on.
    pub fn problem(&mut self, error: &anyhow::Error) {
        let text = self.store(format!("{error:#}").as_bytes());
        self.push(Event::Problem(text));
    }

    /// Reports what went wrong with one name, so that the source can go on with the next.
    ///
    /// # Errors
    /// The sink has stopped: that ends the source, too.
    pub fn go_on(&mut self, result: Result<()>) -> Result<()> {
        match result {
            Err(error) if !error.is::<Stopped>() => {
                self.problem(&error);
                Ok(())
            }
            other => other,
        }
    }

    /// Hands the batch over if it is full. Ranges stored before are void afterwards.
    ///
    /// # Errors
    /// The sink has stopped; its error is the one to report.
    pub fn breathe(&mut self, cx: &mut Cx) -> Result<()> {
        if self.batch.used >= BATCH_BYTES || self.batch.events.len() >= BATCH_EVENTS {
            self.hand_over(cx)?;
        }
        Ok(())
    }

    fn hand_over(&mut self, cx: &mut Cx) -> Result<()> {
        let mut next = self.empty.recv(cx).ok_or(Stopped)?;
        next.clear();
        let batch = std::mem::replace(&mut self.batch, next);
        Ok(self.full.send(cx, batch).map_err(|_| Stopped)?)
    }
}

/// Something to copy from.
pub trait Source: Send {
    /// Puts the whole tree into the outbox. What cannot be read of it is reported there.
    ///
    /// # Errors
    /// Nothing more can be read, or the sink has stopped.
    fn run(&mut self, cx: &mut Cx, out: &mut Outbox) -> Result<()>;

    /// The nodes that came before: taken from one source for the next one of the same command.
    fn links(&mut self) -> Option<&mut Links> {
        None
    }
}

/// Something to copy to.
pub trait Sink {
    /// Carries out event `at` of a batch.
    ///
    /// # Errors
    /// Writing failed; names the path.
    fn event(&mut self, cx: &mut Cx, batch: &Batch, at: usize) -> Result<()>;

    /// Leaves the regular file that came last as it is: its data that comes is dropped.
    fn abandon(&mut self);

    /// Whether nothing more can be written after this error of the sink's.
    fn is_over(&self, error: &anyhow::Error) -> bool;

    /// After the last batch: directories get their times, archives their end.
    ///
    /// # Errors
    /// Writing failed; names the path.
    fn finish(&mut self, cx: &mut Cx, problems: &mut Problems) -> Result<()>;
}

/// Carries out the events of a batch. Errors of one name are reported, and the rest goes on.
fn take(cx: &mut Cx, sink: &mut dyn Sink, batch: &Batch, problems: &mut Problems) -> Result<()> {
    for (at, event) in batch.events.iter().enumerate() {
        if batch.is_lost(event, problems) {
            sink.abandon();
            continue;
        }
        if let Event::Problem(text) = event {
            problems.report(String::from_utf8_lossy(batch.at(text)));
        }
        if let Err(error) = sink.event(cx, batch, at) {
            sink.abandon();
            if sink.is_over(&error) {
                return Err(error);
            }
            batch.lose_directory(event, problems);
            problems.report(format!("{error:#}"));
        }
    }
    Ok(())
}

/// Copies everything from `source` to `sink`; returns what could not be copied.
///
/// # Errors
/// What ended either side; of the sink's, if both failed.
pub fn run(
    cx: &mut Cx,
    source: Box<dyn Source>,
    sink: &mut dyn Sink,
    progress: &mut Progress,
) -> Result<Problems> {
    run_after(cx, source, sink, progress, &mut Links::default())
}

/// As [`run`], after other sources of the same command, whose names of files are `links`.
///
/// # Errors
/// Those of [`run`].
pub fn run_after(
    cx: &mut Cx,
    mut source: Box<dyn Source>,
    sink: &mut dyn Sink,
    progress: &mut Progress,
    links: &mut Links,
) -> Result<Problems> {
    if let Some(known) = source.links() {
        *known = std::mem::take(links);
    }
    let (known, problems) = Clocks { outer: None, cx }.run(source, sink, progress)?;
    *links = known.unwrap_or_default();
    Ok(problems)
}

/// Copies from a source that runs beside the task `outer` to a sink of the task `cx`, which belongs
/// to another clock. Waiting for the source takes no time there, so what the sink does depends on
/// what comes, and not on when.
///
/// # Errors
/// Those of [`run`].
pub fn run_between(
    outer: &mut Cx,
    cx: &mut Cx,
    source: Box<dyn Source>,
    sink: &mut dyn Sink,
    progress: &mut Progress,
) -> Result<Problems> {
    Ok(Clocks { outer: Some(outer), cx }.run(source, sink, progress)?.1)
}

/// Whose clock the two sides of a copy live by.
struct Clocks<'c> {
    /// The source's, if it is another one.
    outer: Option<&'c mut Cx>,
    /// The sink's.
    cx: &'c mut Cx,
}

impl Clocks<'_> {
    fn source(&mut self) -> &mut Cx {
        self.outer.as_deref_mut().unwrap_or(self.cx)
    }

    /// Copies everything; returns the names of files that the source knows, and what failed.
    fn run(
        &mut self,
        source: Box<dyn Source>,
        sink: &mut dyn Sink,
        progress: &mut Progress,
    ) -> Result<(Option<Links>, Problems)> {
        let mut reading = Reading::start(self.source(), source);
        let (mut written, mut problems) = (Ok(()), Problems::new());
        while let Some(batch) = reading.next(self.source()) {
            written = take(self.cx, sink, &batch, &mut problems);
            if written.is_err() {
                break;
            }
            count(&batch, progress);
            reading.put_back(self.source(), batch);
            if interrupt::asked() {
                let (names, bytes) = progress.so_far();
                let bytes = crate::text::size(bytes);
                written = Err(anyhow!("interrupted after {names} names and {bytes}"));
                sink.abandon();
                break;
            }
        }
        let (read, known) = reading.end(self.source());
        written?;
        read?;
        sink.finish(self.cx, &mut problems)?;
        Ok((known, problems))
    }
}

/// What a source that has ended leaves.
type Read = (Result<()>, Option<Links>);

/// A source that runs in a task of its own.
struct Reading {
    full: Arc<Channel<Batch>>,
    empty: Arc<Channel<Batch>>,
    producer: JoinHandle<Read>,
}

impl Reading {
    fn start(cx: &mut Cx, mut source: Box<dyn Source>) -> Reading {
        let full = Arc::new(Channel::named("copy batches", BATCHES));
        let empty = Arc::new(Channel::named("copy free batches", BATCHES));
        for _ in 0..BATCHES - 1 {
            let _room_for_all = empty.try_send(Batch::default());
        }
        let mut out = Outbox { batch: Batch::default(), full: full.clone(), empty: empty.clone() };
        let producer = cx.spawn("source", move |cx| {
            let mut result = source.run(cx, &mut out);
            if result.is_ok() {
                result = out.hand_over(cx);
            }
            out.full.close();
            (result, source.links().map(std::mem::take))
        });
        Reading { full, empty, producer }
    }

    fn next(&mut self, cx: &mut Cx) -> Option<Batch> {
        self.full.recv(cx)
    }

    fn put_back(&mut self, cx: &mut Cx, batch: Batch) {
        let _source_is_done = self.empty.send(cx, batch);
    }

    fn end(self, cx: &mut Cx) -> Read {
        // A source that waits for room or for an empty batch must not wait for ever.
        self.full.close();
        self.empty.close();
        while self.full.try_recv().is_ok() {}
        self.producer.join(cx)
    }
}

fn count(batch: &Batch, progress: &mut Progress) {
    let (mut names, mut bytes) = (0, 0);
    for event in &batch.events {
        match event {
            Event::Node { .. } | Event::Link { .. } => names += 1,
            Event::Data { data, .. } => bytes += data.len() as u64,
            _ => {}
        }
    }
    progress.add(names, bytes);
}

/// Finds the further names of nodes that have several: the first path of each device and inode
/// number.
#[derive(Default)]
pub struct Links {
    first: HashMap<(u64, u64), Box<[u8]>>,
}

impl Links {
    /// The path under which this node came before, if it did; else it is noted.
    pub fn seen(&mut self, dev: u64, ino: u64, path: &[u8]) -> Option<&[u8]> {
        use base::map::hash_map::Entry;
        match self.first.entry((dev, ino)) {
            Entry::Occupied(entry) => Some(&*entry.into_mut()),
            Entry::Vacant(entry) => {
                entry.insert(path.into());
                None
            }
        }
    }
}

/// Appends a name to a path; returns the length to truncate the path to afterwards.
pub fn descend(path: &mut Vec<u8>, name: &[u8]) -> usize {
    let len = path.len();
    if len > 0 {
        path.push(b'/');
    }
    path.extend_from_slice(name);
    len
}

/// Splits a relative path into its directory and its last name.
pub fn split(path: &[u8]) -> (&[u8], &[u8]) {
    match path.iter().rposition(|&b| b == b'/') {
        Some(at) => (&path[..at], &path[at + 1..]),
        None => (b"", path),
    }
}
