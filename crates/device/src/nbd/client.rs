//! A server's export as a device: requests are in flight over one or several connections, and one
//! thread per connection takes the replies.

#![allow(clippy::disallowed_types, reason = "threads of the host, not tasks, meet here")]

use std::io::{self, Read, Write};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use base::map::HashMap;
use base::unit::SECTOR_SIZE;
use block::{BioFlags, Cause, Device, DeviceError, DeviceInfo, DeviceIo, Op};

use super::stream::{Address, Stream};
use super::wire::{self, ExportFlags, Fields, Request, cmd, info, opt, rep};

/// Connections to a server that allows several.
const CONNECTIONS: usize = 2;
/// Bytes of one request, where the server does not ask for less.
const MAX_BYTES: u32 = 4 << 20;
/// Longest reply to an option that is believed.
const REPLY_MAX: u32 = 64 << 10;
/// Bytes that are trimmed or zeroed by one request.
const RANGE_MAX: u64 = 1 << 30;

/// Why an export cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum NbdError {
    /// Not an address.
    #[error("`{0}` is no address: nbd://HOST[:PORT]/EXPORT or nbd+unix:///EXPORT?socket=PATH")]
    Address(String),
    /// The connection failed.
    #[error("{url}: {error}")]
    Io {
        /// Whereto.
        url: String,
        /// How.
        error: io::Error,
    },
    /// The server said no.
    #[error("{url}: the server refuses (reply 0x{reply:x}): {message}")]
    Refused {
        /// Whereto.
        url: String,
        /// Type of the reply.
        reply: u32,
        /// Its words.
        message: String,
    },
    /// The server says what the protocol does not allow, or what cannot be used.
    #[error("{url}: {what}")]
    Server {
        /// Whereto.
        url: String,
        /// What.
        what: String,
    },
}

/// What the server tells of its export.
struct About {
    size: u64,
    flags: ExportFlags,
    block_size: [u32; 3],
}

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
    let address = Address::parse(url).ok_or_else(|| NbdError::Address(url.to_owned()))?;
    let (first, about) = dial(url, &address)?;
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
            streams.push(dial(url, &address)?.0);
        }
    }
    let lines = streams.into_iter().map(|stream| Line::start(url, stream));
    let lines = lines.collect::<Result<Vec<_>, _>>()?;
    let (next, cookies) = (AtomicUsize::new(0), AtomicU64::new(1));
    Ok(Arc::new(NbdDevice { url: url.to_owned(), info, lines, next, cookies }))
}

/// Connects and leads the handshake into transmission.
fn dial(url: &str, address: &Address) -> Result<(Stream, About), NbdError> {
    let failed = |error: io::Error| NbdError::Io { url: url.to_owned(), error };
    let wrong = |what: &str| NbdError::Server { url: url.to_owned(), what: what.to_owned() };
    let mut stream = Stream::connect(&address.place).map_err(failed)?;
    let mut greeting = [0; 18];
    stream.read_exact(&mut greeting).map_err(failed)?;
    let mut fields = Fields(&greeting);
    let magics = (fields.u64(), fields.u64(), fields.u16());
    let (Some(wire::NBDMAGIC), Some(wire::IHAVEOPT), Some(flags)) = magics else {
        return Err(wrong("no newstyle NBD server answers"));
    };
    if flags & wire::FLAG_FIXED == 0 {
        return Err(wrong("the server is older than fixed newstyle"));
    }
    let ours = u32::from(flags & (wire::FLAG_FIXED | wire::FLAG_NO_ZEROES));
    stream.write_all(&ours.to_be_bytes()).map_err(failed)?;
    let name = address.export.as_bytes();
    let mut go = (name.len() as u32).to_be_bytes().to_vec();
    go.extend(name);
    go.extend(1u16.to_be_bytes());
    go.extend(info::BLOCK_SIZE.to_be_bytes());
    let mut option = wire::IHAVEOPT.to_be_bytes().to_vec();
    option.extend(opt::GO.to_be_bytes());
    option.extend((go.len() as u32).to_be_bytes());
    option.extend(go);
    stream.write_all(&option).map_err(failed)?;
    let mut export = None;
    let mut block_size = [1, 4096, MAX_BYTES];
    loop {
        let (reply, data) = option_reply(&mut stream).map_err(failed)?;
        let mut fields = Fields(&data);
        match reply {
            rep::ACK => break,
            rep::INFO => match fields.u16() {
                Some(info::EXPORT) => export = fields.u64().zip(fields.u16()),
                Some(info::BLOCK_SIZE) => {
                    if let (Some(a), Some(b), Some(c)) = (fields.u32(), fields.u32(), fields.u32())
                    {
                        block_size = [a, b, c];
                    }
                }
                _ => {}
            },
            reply => {
                let message = String::from_utf8_lossy(&data).into_owned();
                return Err(NbdError::Refused { url: url.to_owned(), reply, message });
            }
        }
    }
    let (size, flags) = export.ok_or_else(|| wrong("the server does not tell the size"))?;
    let flags = ExportFlags::from_bits_truncate(flags);
    Ok((stream, About { size, flags, block_size }))
}

fn option_reply(stream: &mut Stream) -> io::Result<(u32, Vec<u8>)> {
    let mut header = [0; 20];
    stream.read_exact(&mut header)?;
    let mut fields = Fields(&header);
    let parts = (fields.u64(), fields.u32(), fields.u32(), fields.u32());
    let (Some(wire::OPTION_REPLY), Some(opt::GO), Some(reply), Some(len @ 0..=REPLY_MAX)) = parts
    else {
        return Err(io::Error::other("the server's reply to an option is damaged"));
    };
    let mut data = vec![0; len as usize];
    stream.read_exact(&mut data)?;
    Ok((reply, data))
}

impl Line {
    fn start(url: &str, stream: Stream) -> Result<Arc<Line>, NbdError> {
        let failed = |error: io::Error| NbdError::Io { url: url.to_owned(), error };
        let input = stream.try_clone().map_err(failed)?;
        let (output, flying) = (Mutex::new(stream), Mutex::default());
        let line = Arc::new(Line { output, flying });
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
        if sent.is_err() {
            self.end();
        }
    }

    /// Takes replies until the connection ends.
    fn receive(&self, mut input: Stream) {
        while let Ok((cookie, error)) = read_reply(&mut input) {
            let Some(pending) = lock(&self.flying).requests.remove(&cookie) else { break };
            let mut cause = (error != 0).then(|| wire::cause(error));
            let mut broken = false;
            if cause.is_none() {
                let mut io = lock(&pending.io);
                if let Some(io) = io.as_mut().filter(|io| io.op == Op::Read) {
                    let filled =
                        io.segs.iter_mut().try_for_each(|seg| input.read_exact(seg.bytes_mut()));
                    broken = filled.is_err();
                }
            }
            if broken {
                cause = Some(Cause::Io);
            }
            pending.part_done(cause);
            if broken {
                break;
            }
        }
        self.end();
    }

    /// The connection is gone: everything in flight fails.
    fn end(&self) {
        let mut flying = lock(&self.flying);
        flying.broken = true;
        let mut lost: Vec<(u64, Arc<Pending>)> = flying.requests.drain().collect();
        drop(flying);
        lost.sort_by_key(|(cookie, _)| *cookie);
        for (_, pending) in lost {
            pending.part_done(Some(Cause::Io));
        }
    }
}

/// The header of a simple reply: cookie and error.
fn read_reply(input: &mut Stream) -> io::Result<(u64, u32)> {
    let mut header = [0; 16];
    input.read_exact(&mut header)?;
    let mut fields = Fields(&header);
    match (fields.u32(), fields.u32(), fields.u64()) {
        (Some(wire::SIMPLE_REPLY), Some(error), Some(cookie)) => Ok((cookie, error)),
        _ => Err(io::Error::other("a damaged reply")),
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
