//! A server for any queue: several tasks per connection take turns in reading requests, and carry
//! them out beside each other.

use std::io::{self, Read, Write};
use std::sync::Arc;

use base::unit::SECTOR_SIZE;
use base::{Errno, Page, Sector};
use block::{BioFlags, Queue};
use rt::{Cx, Mutex};

use super::handshake::{ALLOCATION_ID, Export, Handshake, Next, Settled};
use super::map::Allocation;
use super::stream::{Listener, Stream};
use super::wire::{self, ExportFlags, Request, chunk, cmd};

/// Tasks that serve one connection.
const TASKS: usize = 4;
/// Bytes of one read or write.
const LEN_MAX: u32 = 32 << 20;
/// Bytes that go to the queue at once.
const PART: usize = 1 << 20;

/// What is served, and how.
pub struct Served {
    /// The device.
    pub queue: Arc<Queue>,
    /// Name, size and abilities.
    pub export: Export,
    /// Where its holes are; none known without.
    pub allocation: Option<Box<dyn Allocation>>,
}

impl Served {
    /// Serves a queue under a name; without `write` nothing can be changed.
    pub fn new(queue: Arc<Queue>, name: &str, write: bool) -> Served {
        let info = queue.info();
        let mut flags = ExportFlags::SEND_FLUSH | ExportFlags::SEND_FUA | ExportFlags::SEND_DF;
        // Every connection goes to one queue: a flush of any covers them all.
        flags |= ExportFlags::CAN_MULTI_CONN;
        flags.set(ExportFlags::ROTATIONAL, info.rotational);
        if write && !info.read_only {
            flags.set(ExportFlags::SEND_TRIM, info.discard);
            flags.set(ExportFlags::SEND_WRITE_ZEROES, info.write_zeroes);
        } else {
            flags |= ExportFlags::READ_ONLY;
        }
        let block_size = [info.logical_block, info.physical_block, LEN_MAX];
        let export = Export { name: name.to_owned(), size: info.bytes(), flags, block_size };
        Served { queue, export, allocation: None }
    }
}

/// Takes clients until `listener` fails. Each gets tasks of its own. May park, and blocks the
/// thread.
///
/// # Errors
/// Those of accepting.
pub fn serve(cx: &mut Cx, served: &Arc<Served>, listener: &Listener) -> io::Result<()> {
    loop {
        let stream = listener.accept()?;
        let served = served.clone();
        cx.spawn("nbd client", move |cx| {
            // A client that breaks off has told nobody why, and nobody is there to be told.
            let _gone = connection(cx, &served, stream);
        });
    }
}

struct Connection {
    served: Arc<Served>,
    settled: Settled,
    /// Held while a request is read; None once the client has left.
    input: Mutex<Option<Stream>>,
    /// Held while a reply is written.
    output: Mutex<Stream>,
}

fn connection(cx: &mut Cx, served: &Arc<Served>, mut stream: Stream) -> io::Result<()> {
    let Some(settled) = shake_hands(&served.export, &mut stream)? else { return Ok(()) };
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

/// Leads the handshake; none where the client leaves.
fn shake_hands(export: &Export, stream: &mut Stream) -> io::Result<Option<Settled>> {
    let (mut handshake, mut out) = Handshake::new(export);
    let mut bytes = Vec::new();
    loop {
        stream.write_all(&out)?;
        out.clear();
        bytes.resize(handshake.wants(), 0);
        stream.read_exact(&mut bytes)?;
        let next = handshake.advance(&bytes, &mut out);
        match next {
            Next::More => {}
            Next::Transmission(settled) => {
                stream.write_all(&out)?;
                return Ok(Some(settled));
            }
            Next::Close => {
                stream.write_all(&out)?;
                return Ok(None);
            }
        }
    }
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
            let result = match self.check(&request) {
                Ok(()) => self.carry_out(cx, &request, &data),
                Err(errno) => Err(errno),
            };
            if self.reply(cx, &request, result).is_err() {
                *self.input.lock(cx) = None;
            }
        }
    }

    /// The next request with its data; none at the end.
    fn next(&self, cx: &mut Cx) -> Option<(Request, Vec<u8>)> {
        let mut input = self.input.lock(cx);
        let request = read_request(input.as_mut()?);
        if request.is_none() {
            *input = None;
        }
        request
    }

    fn check(&self, request: &Request) -> Result<(), Errno> {
        let export = &self.served.export;
        let block = u64::from(export.block_size[0]);
        let writes = matches!(request.kind, cmd::WRITE | cmd::TRIM | cmd::WRITE_ZEROES);
        if writes && export.flags.contains(ExportFlags::READ_ONLY) {
            return Err(Errno::EPERM);
        }
        if request.kind == cmd::FLUSH {
            return Ok(());
        }
        let end = request.offset.checked_add(request.len.into());
        if end.is_none_or(|end| end > export.size) {
            return Err(if writes { Errno::ENOSPC } else { Errno::EINVAL });
        }
        let moves = matches!(request.kind, cmd::READ | cmd::WRITE);
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
                queue.write_zeroes(cx, sector, sectors)?;
                if durable {
                    queue.flush(cx)?;
                }
            }
            cmd::BLOCK_STATUS if self.settled.allocation => {
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

/// Reads a request and its data; none where the client leaves or sends what cannot be understood.
fn read_request(stream: &mut Stream) -> Option<(Request, Vec<u8>)> {
    let mut header = [0; wire::REQUEST_BYTES];
    stream.read_exact(&mut header).ok()?;
    let request = Request::parse(&header)?;
    if request.kind == cmd::DISC {
        return None;
    }
    let mut data = Vec::new();
    if request.kind == cmd::WRITE {
        if request.len > LEN_MAX {
            return None; // The data behind it cannot be skipped sensibly.
        }
        data.resize(request.len as usize, 0);
        stream.read_exact(&mut data).ok()?;
    }
    Some((request, data))
}
