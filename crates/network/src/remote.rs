//! An object as a source of bytes.

#![allow(
    clippy::disallowed_types,
    clippy::disallowed_methods,
    reason = "threads of the host, not tasks, meet here"
)]

use std::io;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use container::{Files, Source};
use object_store::RetryConfig;
use tokio::runtime::{Builder, Handle};

use crate::Error;
use crate::address::Address;
use crate::blocks::{BLOCK, Blocks};
use crate::disk::Disk;
use crate::fetch::Object;
use crate::http::HttpObject;
use crate::store::StoreObject;
use crate::version::Version;

/// Blocks of one request: 4 MiB.
const RUN: u64 = (4 << 20) / BLOCK;
/// Requests of readers at once; reading ahead has as many again.
const THREADS: usize = 8;

/// How to read objects.
#[derive(Clone, Debug)]
pub struct Options {
    /// Bytes of blocks in memory, for each object; at least 4 MiB are used.
    pub memory: u64,
    /// Folder for blocks on disk, shared by processes. It is made where it is missing; only objects
    /// with a strong ETag are kept there.
    pub cache_dir: Option<PathBuf>,
    /// No credentials are looked for.
    pub anonymous: bool,
}

impl Default for Options {
    fn default() -> Options {
        Options { memory: 64 << 20, cache_dir: None, anonymous: false }
    }
}

/// Opens an object: asks for its first 64 KiB, and notes size and version. Waits in the calling
/// thread.
///
/// # Errors
/// No address, no such object, no way to it, or a server that does not send ranges.
pub fn open(address: &str, options: &Options) -> Result<Arc<dyn Source>, Error> {
    open_version(address, options).map(|(source, _)| source)
}

/// As [`open`], with the object's strong ETag, where it has one.
///
/// # Errors
/// As [`open`].
pub fn open_version(
    address: &str,
    options: &Options,
) -> Result<(Arc<dyn Source>, Option<String>), Error> {
    let address = Address::parse(address)?;
    let runtime = runtime(&address)?;
    let _inside = runtime.enter();
    let object = match address.url.scheme() {
        "http" | "https" => Object::Http(HttpObject::new(&address)?),
        _ => Object::Store(StoreObject::new(&address, options.anonymous, read_again())?),
    };
    let object = Arc::new(object);
    let first = {
        let object = object.clone();
        wait_for(&runtime, async move { object.fetch(0..BLOCK, None).await })?
    };
    let name = address.shown();
    let disk = match &options.cache_dir {
        None => None,
        Some(folder) => Disk::open(folder, &name, &first.version).map_err(|error| {
            let what = format!("the cache in {}: {error}", folder.display());
            Error::Setup { address: name.clone(), what }
        })?,
    };
    let mut blocks = Blocks::new(options.memory);
    if let Some(disk) = &disk {
        disk.write(0, &first.bytes);
    }
    blocks.put(0, first.bytes);
    let state = (Mutex::new(blocks), Condvar::new());
    let etag = first.version.strong().map(str::to_owned);
    let remote = Remote(Arc::new(Core {
        name,
        object,
        version: first.version,
        disk,
        state: state.0,
        arrived: state.1,
        runtime,
    }));
    Ok((Arc::new(remote), etag))
}

/// Ranges are tried again above, bodies too; credentials are, here.
fn read_again() -> RetryConfig {
    RetryConfig { max_retries: 1, retry_timeout: Duration::from_secs(10), ..RetryConfig::default() }
}

/// The thread that carries requests out, for the whole process.
pub(crate) fn runtime(address: &Address) -> Result<Handle, Error> {
    static RUNTIME: OnceLock<Result<Handle, String>> = OnceLock::new();
    let started = RUNTIME.get_or_init(|| {
        // Whoever came first has the same.
        let _set_already = rustls::crypto::ring::default_provider().install_default();
        let runtime = Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(|error| error.to_string())?;
        let handle = runtime.handle().clone();
        let thread = std::thread::Builder::new().name("iopath-network".to_owned());
        let run = move || runtime.block_on(std::future::pending::<()>());
        thread.spawn(run).map_err(|error| error.to_string())?;
        Ok(handle)
    });
    started.clone().map_err(|what| Error::Setup { address: address.shown(), what })
}

/// Runs a future on the network's thread, and waits for it here.
pub(crate) fn wait_for<T: Send + 'static>(
    runtime: &Handle,
    future: impl Future<Output = Result<T, Error>> + Send + 'static,
) -> Result<T, Error> {
    let (sender, receiver) = std::sync::mpsc::sync_channel(1);
    runtime.spawn(async move {
        let _receiver_waits = sender.send(future.await);
    });
    receiver.recv().unwrap_or_else(|_| {
        let (address, what) = (String::new(), "the thread of the network ended".to_owned());
        Err(Error::Setup { address, what })
    })
}

struct Core {
    name: String,
    object: Arc<Object>,
    version: Version,
    disk: Option<Disk>,
    state: Mutex<Blocks>,
    /// Some blocks came, or did not.
    arrived: Condvar,
    runtime: Handle,
}

struct Remote(Arc<Core>);

impl Core {
    fn lock(&self) -> MutexGuard<'_, Blocks> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The bytes of a run of blocks.
    fn bytes(&self, run: &Range<u64>) -> Range<u64> {
        run.start * BLOCK..(run.end * BLOCK).min(self.version.size)
    }

    /// Fetches runs that were taken. `wanted`: somebody waits for them.
    fn fetch(self: &Arc<Core>, runs: Vec<Range<u64>>, wanted: bool) {
        for run in runs {
            let core = self.clone();
            self.runtime.spawn(async move {
                let range = core.bytes(&run);
                let result = core.object.fetch(range, Some(&core.version)).await;
                match result {
                    Ok(part) => core.keep(run, &part.bytes),
                    Err(error) => core.lock().fail(run, Arc::new(error), wanted),
                }
                core.arrived.notify_all();
            });
        }
    }

    fn keep(&self, run: Range<u64>, bytes: &[u8]) {
        for (index, bytes) in run.zip(bytes.chunks(BLOCK as usize)) {
            if let Some(disk) = &self.disk {
                disk.write(index, bytes);
            }
            self.lock().put(index, bytes.to_vec());
        }
    }

    /// Takes from the disk what is there, of runs that were taken; returns the rest.
    fn look_on_disk(&self, runs: Vec<Range<u64>>) -> Vec<Range<u64>> {
        let Some(disk) = &self.disk else { return runs };
        let mut rest: Vec<Range<u64>> = Vec::new();
        for run in runs {
            let most = run.start;
            for index in run {
                let bytes = self.bytes(&(index..index + 1));
                let len = (bytes.end - bytes.start) as usize;
                match disk.read(index, len) {
                    Some(bytes) => self.lock().put(index, bytes),
                    None => match rest.last_mut() {
                        Some(last) if last.end == index && last.start >= most => last.end += 1,
                        _ => rest.push(index..index + 1),
                    },
                }
            }
        }
        self.arrived.notify_all();
        rest
    }

    fn read(self: &Arc<Core>, offset: u64, buf: &mut [u8]) -> Result<(), Arc<Error>> {
        let range = offset..offset + buf.len() as u64;
        let blocks = range.start / BLOCK..range.end.div_ceil(BLOCK);
        let mut left: Vec<u64> = blocks.clone().collect();
        let mut state = self.lock();
        if let Some(error) = &state.broken {
            return Err(error.clone());
        }
        let runs = state.take_missing(blocks.clone(), RUN);
        let ahead = state.streams.read(&range);
        drop(state);
        // What is waited for goes first.
        self.fetch(self.look_on_disk(runs), true);
        self.read_ahead(&ahead, blocks.end);
        let mut state = self.lock();
        loop {
            // All that is there, before the lock is given up: what comes while it is copied is seen
            // by the next look, not waited for.
            let there = state.take_there(&mut left)?;
            if !there.is_empty() {
                drop(state);
                for (block, bytes) in there {
                    copy(&bytes, block * BLOCK, &range, buf);
                }
                state = self.lock();
                continue;
            }
            if left.is_empty() {
                return Ok(());
            }
            // Fetched by somebody else ahead of need and lost, or driven out again.
            let mut runs = Vec::new();
            for &block in &left {
                runs.extend(state.take_missing(block..block + 1, RUN));
            }
            if !runs.is_empty() {
                drop(state);
                self.fetch(self.look_on_disk(runs), true);
                state = self.lock();
                continue;
            }
            state = self.arrived.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Fetches what will be read soon, in large requests: a smaller rest waits for the next time.
    fn read_ahead(self: &Arc<Core>, ahead: &Range<u64>, from: u64) {
        if ahead.is_empty() {
            return;
        }
        let last = self.version.size.div_ceil(BLOCK);
        let unit = ((ahead.end - ahead.start) / BLOCK / 2).clamp(1, RUN);
        let runs = {
            let mut state = self.lock();
            let end = (ahead.end / BLOCK).min(from + state.room_ahead());
            let end = if end >= last { last } else { end / unit * unit };
            state.take_missing(from..end, RUN)
        };
        self.fetch(self.look_on_disk(runs), false);
    }
}

/// Copies the part of a block that lies in `range`.
fn copy(bytes: &[u8], start: u64, range: &Range<u64>, buf: &mut [u8]) {
    let (from, to) = (start.max(range.start), (start + bytes.len() as u64).min(range.end));
    let target = &mut buf[(from - range.start) as usize..(to - range.start) as usize];
    target.copy_from_slice(&bytes[(from - start) as usize..(to - start) as usize]);
}

impl Source for Remote {
    fn name(&self) -> &str {
        &self.0.name
    }

    fn size(&self) -> u64 {
        self.0.version.size
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        let end = offset.checked_add(buf.len() as u64).filter(|&end| end <= self.size());
        if end.is_none() {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        if buf.is_empty() {
            return Ok(());
        }
        self.0.read(offset, buf).map_err(io::Error::other)
    }

    fn will_read(&self, range: Range<u64>) {
        let end = range.end.min(self.size()).div_ceil(BLOCK);
        let runs = self.0.lock().take_missing(range.start / BLOCK..end, RUN);
        self.0.fetch(self.0.look_on_disk(runs), false);
    }

    fn threads(&self) -> usize {
        THREADS
    }
}

/// Opens the files that an image on a server names: those beside it or below, on the same server.
pub struct RemoteFiles {
    address: String,
    options: Options,
}

impl RemoteFiles {
    /// The files beside the image at `address`.
    pub fn beside(address: &str, options: &Options) -> RemoteFiles {
        RemoteFiles { address: address.to_owned(), options: options.clone() }
    }
}

impl Files for RemoteFiles {
    fn open(
        &self,
        of: &str,
        format: &'static str,
        name: &str,
    ) -> Result<Arc<dyn Source>, container::Error> {
        let refused = |what: String| container::Error::Unsupported {
            name: of.to_owned(),
            format,
            what,
            hint: String::new(),
        };
        let outside = name.starts_with('/')
            || name.contains([':', '?', '#', '\\', '%'])
            || name.split('/').any(|part| part == "..");
        if outside {
            return Err(refused(format!("it names `{name}`, which does not lie beside it")));
        }
        let joined = Address::parse(&self.address).ok().and_then(|a| a.url.join(name).ok());
        let joined = joined.ok_or_else(|| refused(format!("it names `{name}`")))?;
        open(joined.as_str(), &self.options).map_err(|error| refused(error.to_string()))
    }
}
