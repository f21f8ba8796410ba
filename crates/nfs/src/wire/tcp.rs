//! Records over TCP.

use std::collections::BTreeMap;
use std::io::{BufReader, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use base::Errno;
use rt::{Cx, JoinHandle, Mutex, SpinLock};

use super::{Back, Job, Nfsd, Receiver, Wire};
use crate::rpc::Records;

const CONNECT_MAX: Duration = Duration::from_secs(10);
/// A peer that takes nothing for so long is given up.
const SEND_MAX: Duration = Duration::from_secs(60);
/// Largest answer that a client takes, bytes.
const ANSWER_MAX: usize = crate::proto::DATA_MAX + (64 << 10);
/// Connections that a listener serves at once.
const CONNECTIONS_MAX: usize = 512;
const BUFFER: usize = 64 << 10;

/// Reads one record; `None` where the stream ends, fails or says nonsense.
fn read_record(stream: &mut impl Read, records: &mut Records) -> Option<Vec<u8>> {
    loop {
        let mut mark = [0; 4];
        stream.read_exact(&mut mark).ok()?;
        let (part, last) = records.mark(mark).ok()?;
        stream.read_exact(part).ok()?;
        if last {
            return Some(records.take());
        }
    }
}

struct Connection {
    stream: TcpStream,
    alive: Arc<AtomicBool>,
    task: JoinHandle<()>,
}

/// A client's connection over TCP.
pub struct TcpWire {
    address: SocketAddr,
    receiver: SpinLock<Option<Weak<dyn Receiver>>>,
    connection: Mutex<Option<Connection>>,
    closed: AtomicBool,
}

impl TcpWire {
    /// To a server; nothing is connected yet.
    pub fn new(address: SocketAddr) -> Arc<TcpWire> {
        Arc::new(TcpWire {
            address,
            receiver: SpinLock::named("receiver", None),
            connection: Mutex::named("connection", None),
            closed: AtomicBool::new(false),
        })
    }

    fn connect(&self, cx: &Cx) -> std::io::Result<Connection> {
        let stream = TcpStream::connect_timeout(&self.address, CONNECT_MAX)?;
        stream.set_nodelay(true)?;
        stream.set_write_timeout(Some(SEND_MAX))?;
        let (theirs, receiver) = (stream.try_clone()?, self.receiver.lock(cx).clone());
        let alive = Arc::new(AtomicBool::new(true));
        let flag = alive.clone();
        let task = cx.spawn("nfs-receive", move |_| {
            let mut stream = BufReader::with_capacity(BUFFER, theirs);
            let mut records = Records::new(ANSWER_MAX);
            let up = || receiver.as_ref().and_then(Weak::upgrade);
            while let Some(record) = read_record(&mut stream, &mut records) {
                if let Some(receiver) = up() {
                    receiver.record(record);
                    if let Some(old) = receiver.spare() {
                        records.reuse(old);
                    }
                }
            }
            flag.store(false, Ordering::Release);
            let _ = stream.get_ref().shutdown(Shutdown::Both);
            if let Some(receiver) = up() {
                receiver.cut();
            }
        });
        Ok(Connection { stream, alive, task })
    }
}

impl Wire for TcpWire {
    fn attach(&self, receiver: Weak<dyn Receiver>) {
        *self.receiver.lock_irq() = Some(receiver);
    }

    fn send(&self, cx: &mut Cx, record: &[u8]) -> Result<(), Errno> {
        let mut connection = self.connection.lock(cx);
        if self.closed.load(Ordering::Acquire) {
            return Err(Errno::EPIPE);
        }
        if connection.as_ref().is_some_and(|c| !c.alive.load(Ordering::Acquire)) {
            *connection = None;
        }
        if connection.is_none() {
            *connection = Some(self.connect(cx).map_err(|error| Errno::from_io(&error))?);
        }
        let stream = &mut connection.as_mut().expect("made above").stream;
        stream.write_all(record).map_err(|error| {
            let _ = stream.shutdown(Shutdown::Both);
            Errno::from_io(&error)
        })
    }

    fn close(&self, cx: &mut Cx) {
        self.closed.store(true, Ordering::Release);
        let connection = self.connection.lock(cx).take();
        if let Some(connection) = connection {
            let _ = connection.stream.shutdown(Shutdown::Both);
            connection.task.join(cx);
        }
    }
}

/// A server's side of a connection.
struct TcpBack(Mutex<TcpStream>);

impl Back for TcpBack {
    fn reply(&self, cx: &mut Cx, record: Vec<u8>) {
        let mut stream = self.0.lock(cx);
        if stream.write_all(&record).is_err() {
            // Half an answer is of no use: the client connects again.
            let _ = stream.shutdown(Shutdown::Both);
        }
    }
}

#[derive(Default)]
struct Connections {
    streams: BTreeMap<u64, TcpStream>,
    tasks: Vec<JoinHandle<()>>,
    next: u64,
}

/// Takes connections for an [`Nfsd`].
pub struct Listener {
    address: SocketAddr,
    /// A second handle of the socket that listens.
    socket: TcpStream,
    over: Arc<AtomicBool>,
    task: JoinHandle<()>,
    connections: Arc<SpinLock<Connections>>,
}

impl Listener {
    /// Listens at an address; port 0 is any free one.
    ///
    /// # Errors
    /// Those of bind(2) and listen(2).
    pub fn start(cx: &mut Cx, address: SocketAddr, nfsd: Arc<Nfsd>) -> std::io::Result<Listener> {
        Listener::on(cx, TcpListener::bind(address)?, nfsd)
    }

    /// Takes the connections of a socket that listens.
    ///
    /// # Errors
    /// The socket has no address, or no second handle can be made.
    pub fn on(cx: &mut Cx, listener: TcpListener, nfsd: Arc<Nfsd>) -> std::io::Result<Listener> {
        Listener::heard(cx, listener, nfsd, |_, _| {})
    }

    /// As [`Listener::on`]; `clients` hears of connections that come (true) and go: the address of
    /// the client.
    ///
    /// # Errors
    /// As [`Listener::on`].
    pub fn heard(
        cx: &mut Cx,
        listener: TcpListener,
        nfsd: Arc<Nfsd>,
        clients: fn(&str, bool),
    ) -> std::io::Result<Listener> {
        let address = listener.local_addr()?;
        let socket = TcpStream::from(OwnedFd::from(listener.try_clone()?));
        let over = Arc::new(AtomicBool::new(false));
        let connections = Arc::new(SpinLock::named("connections", Connections::default()));
        let (flag, all) = (over.clone(), connections.clone());
        let task = cx.spawn("nfs-listen", move |cx| {
            while !flag.load(Ordering::Acquire) {
                match listener.accept() {
                    Ok((stream, peer)) if !flag.load(Ordering::Acquire) => {
                        accept(cx, stream, Client { peer, clients }, &nfsd, &all);
                    }
                    Ok(_) => {}
                    // Out of descriptors, mostly: connections end meanwhile.
                    Err(_) => cx.sleep(base::Nanos::from_millis(50)),
                }
            }
        });
        Ok(Listener { address, socket, over, task, connections })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Takes no more connections and ends those that there are. May park.
    pub fn stop(self, cx: &mut Cx) {
        self.over.store(true, Ordering::Release);
        // Wakes it from accept(2), which fails from now on.
        let _ = self.socket.shutdown(Shutdown::Both);
        self.task.join(cx);
        let tasks = {
            let mut all = self.connections.lock(cx);
            for stream in all.streams.values() {
                let _ = stream.shutdown(Shutdown::Both);
            }
            std::mem::take(&mut all.tasks)
        };
        for task in tasks {
            task.join(cx);
        }
    }
}

/// Whom a connection comes from, and who hears of it.
struct Client {
    peer: SocketAddr,
    clients: fn(&str, bool),
}

/// Serves a connection in a task of its own; one too many is closed at once.
fn accept(
    cx: &mut Cx,
    stream: TcpStream,
    client: Client,
    nfsd: &Arc<Nfsd>,
    all: &Arc<SpinLock<Connections>>,
) {
    let ready = stream.set_nodelay(true).and(stream.set_write_timeout(Some(SEND_MAX)));
    let (Ok(()), Ok(reader), Ok(kept)) = (ready, stream.try_clone(), stream.try_clone()) else {
        return;
    };
    let id = {
        let mut all = all.lock(cx);
        if all.streams.len() >= CONNECTIONS_MAX {
            return;
        }
        all.tasks.retain(|task| !task.is_finished());
        all.next += 1;
        let id = all.next;
        all.streams.insert(id, kept);
        id
    };
    let (nfsd, list) = (nfsd.clone(), all.clone());
    let task = cx.spawn("nfs-serve", move |cx| {
        let (peer, address) = (client.peer.ip(), client.peer.to_string());
        (client.clients)(&address, true);
        let back = Arc::new(TcpBack(Mutex::named("answers", stream)));
        let mut reader = BufReader::with_capacity(BUFFER, reader);
        let mut records = Records::new(crate::server::RECORD_MAX);
        while let Some(record) = read_record(&mut reader, &mut records) {
            let job = Job { peer, record, back: back.clone() };
            if !nfsd.take_waiting(cx, job) {
                break;
            }
        }
        let _ = reader.get_ref().shutdown(Shutdown::Both);
        list.lock(cx).streams.remove(&id);
        (client.clients)(&address, false);
    });
    all.lock(cx).tasks.push(task);
}
