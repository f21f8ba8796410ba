//! A server's export as a device: requests are in flight over one or several connections, and one
//! thread per connection takes the replies.

#![allow(clippy::disallowed_types, reason = "threads of the host, not tasks, meet here")]

use std::io::{self, Read, Write};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use base::map::HashMap;
use base::unit::SECTOR_SIZE;
use base::{Errno, Nanos};
use block::{BioFlags, Cause, Device, DeviceError, DeviceInfo, DeviceIo, Op};

use super::dial::{NbdError, dial};
use super::stream::{Address, Stream};
use super::wire::{self, ExportFlags, Fields, Request, cmd};

/// Connections to a server that allows several.
const CONNECTIONS: usize = 2;
/// Bytes of one request, where the server does not ask for less.
pub(super) const MAX_BYTES: u32 = 4 << 20;
/// Longest name of an export.
const NAME_MAX: usize = 4096;
/// Bytes that are trimmed or zeroed by one request.
const RANGE_MAX: u64 = 1 << 30;

/// How long a server is waited for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Patience {
    /// For the whole handshake.
    pub handshake: Nanos,
    /// For the next byte of a reply, and for room for the next byte of a request. A connection that
    /// is silent for longer while requests are in flight is given up, within a fifth more.
    pub answer: Nanos,
}

impl Default for Patience {
    fn default() -> Patience {
        Patience { handshake: Nanos::from_secs(60), answer: Nanos::from_secs(300) }
    }
}

/// The part of its patience after which a connection looks whether somebody waits.
const LOOKS: u32 = 5;

/// An export in use.
struct NbdDevice {
    url: String,
    info: DeviceInfo,
    lines: Vec<Arc<Line>>,
    next: AtomicUsize,
    cookies: AtomicU64,
}

/// One connection.
struct Line {
    output: Mutex<Stream>,
    /// For the end, which waits for nobody.
    hangup: Stream,
    flying: Mutex<Flying>,
}

#[derive(Default)]
struct Flying {
    requests: HashMap<u64, Arc<Pending>>,
    broken: bool,
}

/// A request of the queue, in one or several parts.
struct Pending {
    io: Mutex<Option<DeviceIo>>,
    left: AtomicUsize,
    failed: Mutex<Option<Cause>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Nothing panics while it holds one of these locks.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Connects to an export. Without `write` nothing that changes it is sent.
///
/// # Errors
/// No address, no server, no such export, or one that cannot be used: a size that is no multiple of
/// 512, or read-only where writing is wanted.
pub fn connect(url: &str, write: bool) -> Result<Arc<dyn Device>, NbdError> {
    connect_patiently(url, write, Patience::default())
}

/// As [`connect`], with another patience.
///
/// # Errors
/// Those of [`connect`].
pub fn connect_patiently(
    url: &str,
    write: bool,
    patience: Patience,
) -> Result<Arc<dyn Device>, NbdError> {
    let address = Address::parse(url).filter(|address| address.export.len() <= NAME_MAX);
    let address = address.ok_or_else(|| NbdError::Address(url.to_owned()))?;
    let handshake = Duration::from_nanos(patience.handshake.0);
    let (first, about) = dial(url, &address, handshake)?;
    let wrong = |what: String| NbdError::Server { url: url.to_owned(), what };
    let [least, preferred, most] = about.block_size;
    let logical_block = least.max(512);
    if !logical_block.is_power_of_two() || logical_block > 64 << 10 {
        return Err(wrong(format!("blocks of {least} bytes cannot be used")));
    }
    let read_only = about.flags.contains(ExportFlags::READ_ONLY);
    if write && read_only {
        return Err(wrong("the export is read-only".to_owned()));
    }
    let size = about.size - about.size % u64::from(logical_block);
    if size == 0 {
        return Err(wrong(format!("{} bytes are less than one block", about.size)));
    }
    let most = most.min(MAX_BYTES).max(logical_block);
    let can = |flag| about.flags.contains(flag);
    let info = DeviceInfo {
        logical_block,
        physical_block: preferred.clamp(logical_block, 64 << 10).next_power_of_two(),
        max_bytes: most - most % logical_block,
        // Without FLUSH an export is as durable as it ever gets when a write is answered.
        volatile_cache: can(ExportFlags::SEND_FLUSH),
        fua: can(ExportFlags::SEND_FUA),
        discard: can(ExportFlags::SEND_TRIM),
        write_zeroes: can(ExportFlags::SEND_WRITE_ZEROES),
        rotational: can(ExportFlags::ROTATIONAL),
        read_only: !write,
        depth: 64,
        ..DeviceInfo::plain(size / SECTOR_SIZE)
    };
    let mut streams = vec![first];
    if can(ExportFlags::CAN_MULTI_CONN) {
        while streams.len() < CONNECTIONS {
            match dial(url, &address, handshake) {
                Ok((stream, same)) if same == about => streams.push(stream),
                Ok(_) => return Err(wrong("the server names two exports alike".to_owned())),
                // It serves so many already: one will do.
                Err(NbdError::Refused { .. } | NbdError::Io { .. }) => break,
                Err(error) => return Err(error),
            }
        }
    }
    let answer = Duration::from_nanos(patience.answer.0.max(u64::from(LOOKS) * 1000));
    let lines = streams.into_iter().map(|stream| Line::start(url, stream, answer));
    let lines = lines.collect::<Result<Vec<_>, _>>()?;
    let (next, cookies) = (AtomicUsize::new(0), AtomicU64::new(1));
    Ok(Arc::new(NbdDevice { url: url.to_owned(), info, lines, next, cookies }))
}

impl Line {
    fn start(url: &str, stream: Stream, patience: Duration) -> Result<Arc<Line>, NbdError> {
        let failed = |error: io::Error| NbdError::Io { url: url.to_owned(), error };
        let input = stream.try_clone().map_err(failed)?;
        input.set_read_patience(Some(patience / LOOKS)).map_err(failed)?;
        input.set_write_patience(Some(patience)).map_err(failed)?;
        let hangup = stream.try_clone().map_err(failed)?;
        let (output, flying) = (Mutex::new(stream), Mutex::default());
        let line = Arc::new(Line { output, hangup, flying });
        let theirs = line.clone();
        let name = "iopath-nbd".to_owned();
        let thread = std::thread::Builder::new().name(name).spawn(move || theirs.receive(input));
        thread.map_err(failed)?;
        Ok(line)
    }

    /// Sends one part of a request.
    fn send(&self, request: &Request, pending: &Arc<Pending>) {
        let mut flying = lock(&self.flying);
        if flying.broken {
            drop(flying);
            return pending.part_done(Some(Cause::Io));
        }
        flying.requests.insert(request.cookie, pending.clone());
        drop(flying);
        let mut output = lock(&self.output);
        let mut sent = output.write_all(&request.emit());
        if request.kind == cmd::WRITE && sent.is_ok() {
            // The reply can only come after the data, so the request is still there.
            let io = lock(&pending.io);
            let segs = io.as_ref().map(|io| io.segs.as_slice()).unwrap_or_default();
            sent = segs.iter().try_for_each(|seg| output.write_all(seg.bytes()));
        }
        drop(output);
        if let Err(error) = sent {
            self.end(cause(&error));
        }
    }

    /// Takes replies until the connection ends.
    fn receive(&self, mut input: Stream) {
        let why = loop {
            if let Err(error) = self.take_reply(&mut input) {
                break cause(&error);
            }
        };
        self.end(why);
    }

    /// Takes a reply.
    ///
    /// # Errors
    /// The connection is of no use any more.
    fn take_reply(&self, input: &mut Stream) -> io::Result<()> {
        let mut header = [0; 16];
        self.fill(input, &mut header, true)?;
        let mut fields = Fields(&header);
        let (Some(wire::SIMPLE_REPLY), Some(error), Some(cookie)) =
            (fields.u32(), fields.u32(), fields.u64())
        else {
            return Err(io::Error::other("a damaged reply"));
        };
        let pending = lock(&self.flying).requests.remove(&cookie);
        let pending = pending.ok_or_else(|| io::Error::other("a reply to nothing"))?;
        if error != 0 {
            pending.part_done(Some(wire::cause(error)));
            return Ok(());
        }
        let mut filled = Ok(());
        if let Some(io) = lock(&pending.io).as_mut().filter(|io| io.op == Op::Read) {
            let mut segs = io.segs.iter_mut();
            filled = segs.try_for_each(|seg| self.fill(input, seg.bytes_mut(), false));
        }
        pending.part_done(filled.as_ref().err().map(cause));
        filled
    }

    /// Fills `bytes`. Before the first of them it waits for ever, while nothing is in flight and
    /// `idle` is allowed.
    fn fill(&self, input: &mut Stream, bytes: &mut [u8], idle: bool) -> io::Result<()> {
        let (mut done, mut looks) = (0, 0);
        while done < bytes.len() {
            match input.read(&mut bytes[done..]) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(count) => (done, looks) = (done + count, 0),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    looks += 1;
                    if idle && done == 0 && lock(&self.flying).requests.is_empty() {
                        looks = 0;
                    }
                    // Whoever waits may have begun just before the first look.
                    if looks > LOOKS {
                        return Err(io::ErrorKind::TimedOut.into());
                    }
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// The connection is gone: everything in flight fails.
    fn end(&self, why: Cause) {
        // Wakes whoever sends, or waits for replies.
        self.hangup.shutdown();
        let mut flying = lock(&self.flying);
        flying.broken = true;
        let mut lost: Vec<(u64, Arc<Pending>)> = flying.requests.drain().collect();
        drop(flying);
        lost.sort_by_key(|(cookie, _)| *cookie);
        for (_, pending) in lost {
            pending.part_done(Some(why));
        }
    }
}

/// Why requests fail where the connection does.
fn cause(error: &io::Error) -> Cause {
    match error.kind() {
        io::ErrorKind::TimedOut | io::ErrorKind::WouldBlock => Cause::Os(Errno::ETIMEDOUT),
        _ => Cause::Io,
    }
}

impl Pending {
    /// One part is done; the last one ends the request.
    fn part_done(&self, failed: Option<Cause>) {
        if let Some(cause) = failed {
            lock(&self.failed).get_or_insert(cause);
        }
        if self.left.fetch_sub(1, Ordering::AcqRel) > 1 {
            return;
        }
        let io = lock(&self.io).take();
        let failed = *lock(&self.failed);
        if let Some(io) = io {
            let error = failed.map(|cause| -> DeviceError { io.error(cause) });
            io.complete(error.map_or(Ok(()), Err));
        }
    }
}

impl Device for NbdDevice {
    fn info(&self) -> &DeviceInfo {
        &self.info
    }

    fn submit(&self, io: DeviceIo) {
        let (kind, step) = match io.op {
            Op::Read => (cmd::READ, u64::MAX),
            Op::Write => (cmd::WRITE, u64::MAX),
            Op::Flush => (cmd::FLUSH, u64::MAX),
            Op::Discard => (cmd::TRIM, RANGE_MAX),
            Op::WriteZeroes => (cmd::WRITE_ZEROES, RANGE_MAX),
        };
        let flags = if io.flags.contains(BioFlags::FUA) { cmd::FUA } else { 0 };
        let (start, bytes) = (io.sector.bytes(), io.bytes());
        let parts = bytes.div_ceil(step).max(1);
        let offset = if io.op == Op::Flush { 0 } else { start };
        let pending = Arc::new(Pending {
            io: Mutex::new(Some(io)),
            left: AtomicUsize::new(parts as usize),
            failed: Mutex::new(None),
        });
        for part in 0..parts {
            let done = part.saturating_mul(step);
            let len = (bytes - done).min(step) as u32;
            let cookie = self.cookies.fetch_add(1, Ordering::Relaxed);
            let request = Request { flags, kind, cookie, offset: offset + done, len };
            let line = self.next.fetch_add(1, Ordering::Relaxed) % self.lines.len();
            self.lines[line].send(&request, &pending);
        }
    }

    fn name(&self) -> String {
        self.url.clone()
    }
}

impl Drop for NbdDevice {
    fn drop(&mut self) {
        for line in &self.lines {
            let cookie = self.cookies.fetch_add(1, Ordering::Relaxed);
            let leave = Request { flags: 0, kind: cmd::DISC, cookie, offset: 0, len: 0 };
            let mut output = lock(&line.output);
            let _server_gone = output.write_all(&leave.emit());
            output.shutdown();
        }
    }
}
