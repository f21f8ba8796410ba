//! A server for any queue: takes clients, leads their handshakes within a time, and counts them.
//! What a client does then is in `transmission`.

use std::io::{self, Read, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use base::{Errno, Nanos};
use block::Queue;
use rt::Cx;

use super::handshake::{Export, Handshake, Next, Settled};
use super::map::Allocation;
use super::stream::{Listener, Stream};
use super::transmission::{self, LEN_MAX};
use super::wire::ExportFlags;

/// Clients that may shake hands beside those that are served.
const HANDSHAKES_MAX: usize = 64;
/// How long the server waits where the host has no descriptor for a client.
const ACCEPT_AGAIN: Nanos = Nanos::from_millis(50);

/// What clients may take of a server.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// Connections that are served at once. One more is refused in its handshake.
    pub connections: usize,
    /// Time for a handshake, after which the connection is closed.
    pub handshake: Nanos,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits { connections: 64, handshake: Nanos::from_secs(60) }
    }
}

/// Hears of every request that was carried out.
pub trait Observer: Send + Sync {
    /// A request of this kind ([`wire::cmd`](super::wire::cmd)) and length is done, after this time
    /// without that of its data on the way.
    fn done(&self, kind: u16, bytes: u64, took: Nanos, failed: Option<Errno>);
}

/// What is served, and how.
pub struct Served {
    /// The device.
    pub queue: Arc<Queue>,
    /// Name, size and abilities.
    pub export: Export,
    /// Where its holes are; none known without.
    pub allocation: Option<Box<dyn Allocation>>,
    /// Of all clients together.
    pub limits: Limits,
    /// Hears of requests, where there is one.
    pub observer: Option<Arc<dyn Observer>>,
    /// Hears of clients, where there is one: the address of one that comes (true) or goes.
    pub clients: Option<fn(&str, bool)>,
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
        Served {
            queue,
            export,
            allocation: None,
            limits: Limits::default(),
            observer: None,
            clients: None,
        }
    }
}

/// How many of something there are; a [`Permit`] is one of them.
#[derive(Clone)]
struct Permits {
    taken: Arc<AtomicUsize>,
    limit: usize,
}

struct Permit(Arc<AtomicUsize>);

impl Permits {
    fn new(limit: usize) -> Permits {
        Permits { taken: Arc::default(), limit }
    }

    fn take(&self) -> Option<Permit> {
        let more = |taken| (taken < self.limit).then_some(taken + 1);
        let took = self.taken.fetch_update(Ordering::AcqRel, Ordering::Acquire, more);
        took.is_ok().then(|| Permit(self.taken.clone()))
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

/// Takes clients until `listener` fails. Each gets tasks of its own. May park, and blocks the
/// thread.
///
/// # Errors
/// Those of accepting, but for those that pass.
pub fn serve(cx: &mut Cx, served: &Arc<Served>, listener: &Listener) -> io::Result<()> {
    let most = served.limits.connections;
    let (serving, open) = (Permits::new(most), Permits::new(most.saturating_add(HANDSHAKES_MAX)));
    loop {
        let stream = match listener.accept() {
            Ok(stream) => stream,
            Err(error) if passes(&error) => {
                cx.sleep(ACCEPT_AGAIN);
                continue;
            }
            Err(error) => return Err(error),
        };
        // One too many even for an answer is closed at once.
        let Some(place) = open.take() else { continue };
        let (served, serving) = (served.clone(), serving.clone());
        cx.spawn("nbd client", move |cx| {
            let _until_it_ends = place;
            let address = stream.peer();
            let hear = |comes| served.clients.iter().for_each(|hear| hear(&address, comes));
            hear(true);
            // A client that breaks off has not said why, and nobody is there to get an answer.
            let _gone = connection(cx, &served, &serving, stream);
            hear(false);
        });
    }
}

/// Whether accept(2) may succeed later: the client has gone, or the host is short of something.
fn passes(error: &io::Error) -> bool {
    use libc::{ECONNABORTED, EINTR, EMFILE, ENFILE, ENOBUFS, ENOMEM, EPROTO};
    let passing = [ECONNABORTED, EINTR, EMFILE, ENFILE, ENOBUFS, ENOMEM, EPROTO];
    error.raw_os_error().is_some_and(|number| passing.contains(&number))
}

fn connection(
    cx: &mut Cx,
    served: &Arc<Served>,
    serving: &Permits,
    mut stream: Stream,
) -> io::Result<()> {
    let deadline = Nanos(cx.now().0.saturating_add(served.limits.handshake.0));
    let shaken = shake_hands(cx, &served.export, serving, &mut stream, deadline)?;
    let Some((settled, _place)) = shaken else { return Ok(()) };
    stream.set_patience(None)?;
    transmission::run(cx, served, settled, stream)
}

/// Leads the handshake; none where the client leaves.
fn shake_hands(
    cx: &Cx,
    export: &Export,
    serving: &Permits,
    stream: &mut Stream,
    deadline: Nanos,
) -> io::Result<Option<(Settled, Permit)>> {
    let (mut handshake, mut out) = Handshake::new(export);
    let (mut bytes, mut place) = (Vec::new(), None);
    loop {
        stream.set_patience(Some(left(cx, deadline)?))?;
        stream.write_all(&out)?;
        out.clear();
        bytes.resize(handshake.wants(), 0);
        read_before(cx, stream, &mut bytes, deadline)?;
        let mut admit = || {
            place = serving.take();
            place.is_some()
        };
        match handshake.advance(&bytes, &mut out, &mut admit) {
            Next::More => {}
            Next::Transmission(settled) => {
                stream.write_all(&out)?;
                return Ok(place.map(|place| (settled, place)));
            }
            Next::Close => {
                stream.write_all(&out)?;
                return Ok(None);
            }
        }
    }
}

/// What is left until `deadline`.
///
/// # Errors
/// Nothing is.
fn left(cx: &Cx, deadline: Nanos) -> io::Result<Duration> {
    match deadline.since(cx.now()) {
        Nanos(0) => Err(io::ErrorKind::TimedOut.into()),
        // The host takes no time of 0, and counts in microseconds.
        Nanos(left) => Ok(Duration::from_nanos(left.max(1000))),
    }
}

/// Fills `bytes`, however slowly they come, before `deadline`.
fn read_before(cx: &Cx, stream: &mut Stream, bytes: &mut [u8], deadline: Nanos) -> io::Result<()> {
    let mut done = 0;
    while done < bytes.len() {
        stream.set_patience(Some(left(cx, deadline)?))?;
        match stream.read(&mut bytes[done..]) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(count) => done += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}
