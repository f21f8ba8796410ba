//! Requests of one client: several tasks take turns in reading them, and carry them out beside each
//! other.

use std::io::{self, Read, Write};
use std::sync::Arc;

use base::unit::SECTOR_SIZE;
use base::{Errno, Page, Sector};
use block::BioFlags;
use rt::{Cx, Mutex};

use super::handshake::{ALLOCATION_ID, Settled};
use super::server::Served;
use super::stream::Stream;
use super::wire::{self, ExportFlags, Request, chunk, cmd};

/// Tasks that serve one connection.
const TASKS: usize = 4;
/// Bytes of one read or write.
pub(super) const LEN_MAX: u32 = 32 << 20;
/// Bytes that go to the queue, or come from the client, at once.
const PART: usize = 1 << 20;

struct Connection {
    served: Arc<Served>,
    settled: Settled,
    /// Held while a request is read; None once the client has left.
    input: Mutex<Option<Stream>>,
    /// Held while a reply is written.
    output: Mutex<Stream>,
}

/// Serves a client's requests until it leaves. May park, and blocks the thread.
///
/// # Errors
/// The host's.
pub(super) fn run(
    cx: &mut Cx,
    served: &Arc<Served>,
    settled: Settled,
    stream: Stream,
) -> io::Result<()> {
    let output = Mutex::named("nbd output", stream.try_clone()?);
    let input = Mutex::named("nbd input", Some(stream));
    let connection = Arc::new(Connection { served: served.clone(), settled, input, output });
    let helpers: Vec<_> = (1..TASKS)
        .map(|_| {
            let connection = connection.clone();
            cx.spawn("nbd", move |cx| connection.work(cx))
        })
        .collect();
    connection.work(cx);
    for helper in helpers {
        helper.join(cx);
    }
    Ok(())
}

/// What a request is answered with.
enum Answer {
    Done,
    Data(Vec<Page>),
    Status(Vec<(u64, u32)>),
}

impl Connection {
    /// Serves requests until the client leaves.
    fn work(&self, cx: &mut Cx) {
        while let Some((request, data)) = self.next(cx) {
            let observed = self.served.observer.as_ref().map(|observer| (observer, cx.now()));
            let result = data.and_then(|data| self.carry_out(cx, &request, &data));
            if let Some((observer, began)) = observed {
                let failed = result.as_ref().err().copied();
                observer.done(request.kind, request.len.into(), cx.now() - began, failed);
            }
            if self.reply(cx, &request, result).is_err() {
                *self.input.lock(cx) = None;
            }
        }
    }

    /// The next request with its data, or why it is refused; none at the end.
    fn next(&self, cx: &mut Cx) -> Option<(Request, Result<Vec<u8>, Errno>)> {
        let mut input = self.input.lock(cx);
        let request = self.read_request(input.as_mut()?);
        if request.is_none() {
            *input = None;
        }
        request
    }

    /// None where the client leaves or sends what cannot be understood.
    fn read_request(&self, stream: &mut Stream) -> Option<(Request, Result<Vec<u8>, Errno>)> {
        let mut header = [0; wire::REQUEST_BYTES];
        stream.read_exact(&mut header).ok()?;
        let request = Request::parse(&header)?;
        if request.kind == cmd::DISC {
            return None;
        }
        let checked = self.check(&request);
        if request.kind != cmd::WRITE {
            return Some((request, checked.map(|()| Vec::new())));
        }
        // What is refused has its data behind it too.
        let (len, mut data) = (request.len as usize, Vec::new());
        let (mut at, mut done) = (0, 0);
        while done < len {
            let part = (len - done).min(PART);
            // No memory is taken for what a client only says that it will send.
            data.resize(at + part, 0);
            stream.read_exact(&mut data[at..]).ok()?;
            done += part;
            at = if checked.is_ok() { done } else { 0 };
        }
        Some((request, checked.map(|()| data)))
    }

    /// Whether a request is one that was offered, with flags that belong to it, within the export.
    fn check(&self, request: &Request) -> Result<(), Errno> {
        let export = &self.served.export;
        let (kind, block) = (request.kind, u64::from(export.block_size[0]));
        let writes = matches!(kind, cmd::WRITE | cmd::TRIM | cmd::WRITE_ZEROES);
        if writes && export.flags.contains(ExportFlags::READ_ONLY) {
            return Err(Errno::EPERM);
        }
        let can = |flag| export.flags.contains(flag);
        let (offered, flags) = match kind {
            cmd::READ if self.settled.structured => (true, cmd::DF),
            cmd::READ | cmd::WRITE => (true, 0),
            cmd::FLUSH => (can(ExportFlags::SEND_FLUSH), 0),
            cmd::TRIM => (can(ExportFlags::SEND_TRIM), 0),
            cmd::WRITE_ZEROES => (can(ExportFlags::SEND_WRITE_ZEROES), cmd::NO_HOLE),
            cmd::BLOCK_STATUS => (self.settled.allocation, cmd::REQ_ONE),
            _ => (false, 0),
        };
        // FUA may come with everything.
        if !offered || request.flags & !(flags | cmd::FUA) != 0 {
            return Err(Errno::EINVAL);
        }
        if kind == cmd::FLUSH {
            let plain = request.offset == 0 && request.len == 0;
            return if plain { Ok(()) } else { Err(Errno::EINVAL) };
        }
        let end = request.offset.checked_add(request.len.into());
        if end.is_none_or(|end| end > export.size) {
            let grows = matches!(kind, cmd::WRITE | cmd::WRITE_ZEROES);
            return Err(if grows { Errno::ENOSPC } else { Errno::EINVAL });
        }
        let moves = matches!(kind, cmd::READ | cmd::WRITE);
        let aligned = (request.offset | u64::from(request.len)).is_multiple_of(block);
        match request.len == 0 || !aligned || (moves && request.len > LEN_MAX) {
            true => Err(Errno::EINVAL),
            false => Ok(()),
        }
    }

    fn carry_out(&self, cx: &mut Cx, request: &Request, data: &[u8]) -> Result<Answer, Errno> {
        let queue = &self.served.queue;
        let sector = Sector::from_bytes(request.offset);
        let sectors = u64::from(request.len) / SECTOR_SIZE;
        let durable = request.flags & cmd::FUA != 0;
        match request.kind {
            cmd::READ => {
                let mut pages = Vec::new();
                let mut done = 0;
                while done < request.len as usize {
                    let part = (request.len as usize - done).min(PART);
                    pages.push(queue.read(cx, sector + done as u64 / SECTOR_SIZE, part)?);
                    done += part;
                }
                return Ok(Answer::Data(pages));
            }
            cmd::WRITE => {
                let flags = if durable { BioFlags::FUA } else { BioFlags::empty() };
                for (index, part) in data.chunks(PART).enumerate() {
                    let at = sector + (index * PART) as u64 / SECTOR_SIZE;
                    queue.write(cx, at, Page::from_slice(part), flags | BioFlags::SYNC)?;
                }
            }
            cmd::FLUSH => queue.flush(cx)?,
            cmd::TRIM => {
                queue.discard(cx, sector, sectors)?;
                if durable {
                    queue.flush(cx)?;
                }
            }
            cmd::WRITE_ZEROES => {
                match request.flags & cmd::NO_HOLE != 0 {
                    // A device is free to make holes of zeros.
                    true => self.write_zeros(cx, sector, request.len as usize)?,
                    false => queue.write_zeroes(cx, sector, sectors)?,
                }
                if durable {
                    queue.flush(cx)?;
                }
            }
            cmd::BLOCK_STATUS => {
                let len = u64::from(request.len);
                let mut runs = match &self.served.allocation {
                    Some(map) => map.extents(request.offset, len),
                    None => vec![(len, 0)],
                };
                if request.flags & cmd::REQ_ONE != 0 {
                    runs.truncate(1);
                }
                return Ok(Answer::Status(runs));
            }
            _ => return Err(Errno::EINVAL),
        }
        Ok(Answer::Done)
    }

    /// Writes zeros as data.
    fn write_zeros(&self, cx: &mut Cx, sector: Sector, len: usize) -> Result<(), Errno> {
        let zeros = Page::zeroed(len.min(PART));
        for at in (0..len).step_by(PART) {
            let part = match len - at {
                whole if whole >= zeros.len() => zeros.clone(),
                rest => Page::zeroed(rest),
            };
            let to = sector + at as u64 / SECTOR_SIZE;
            self.served.queue.write(cx, to, part, BioFlags::SYNC)?;
        }
        Ok(())
    }

    fn reply(
        &self,
        cx: &mut Cx,
        request: &Request,
        result: Result<Answer, Errno>,
    ) -> io::Result<()> {
        let cookie = request.cookie;
        let mut out = self.output.lock(cx);
        let error = result.as_ref().err().map_or(0, |errno| wire::error_number(*errno));
        // With structured replies READ is answered in chunks, and so is every BLOCK_STATUS.
        let chunked =
            self.settled.structured && matches!(request.kind, cmd::READ | cmd::BLOCK_STATUS);
        match result {
            Ok(Answer::Data(pages)) => {
                if chunked {
                    let len = request.len + 8;
                    out.write_all(&wire::chunk_header(
                        chunk::DONE,
                        chunk::OFFSET_DATA,
                        cookie,
                        len,
                    ))?;
                    out.write_all(&request.offset.to_be_bytes())?;
                } else {
                    out.write_all(&wire::simple_reply(cookie, 0))?;
                }
                pages.iter().try_for_each(|page| out.write_all(page))
            }
            Ok(Answer::Status(runs)) => {
                let mut body = ALLOCATION_ID.to_be_bytes().to_vec();
                for (len, state) in runs {
                    body.extend((len.min(u64::from(u32::MAX)) as u32).to_be_bytes());
                    body.extend(state.to_be_bytes());
                }
                let len = body.len() as u32;
                out.write_all(&wire::chunk_header(chunk::DONE, chunk::BLOCK_STATUS, cookie, len))?;
                out.write_all(&body)
            }
            Err(_) if chunked => {
                out.write_all(&wire::chunk_header(chunk::DONE, chunk::ERROR, cookie, 6))?;
                out.write_all(&[&error.to_be_bytes()[..], &[0, 0]].concat())
            }
            Ok(Answer::Done) | Err(_) => out.write_all(&wire::simple_reply(cookie, error)),
        }
    }
}
