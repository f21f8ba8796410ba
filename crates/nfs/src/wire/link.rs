//! Records over a modelled link in virtual time, and what can happen to them on the way.

use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use base::{Errno, Nanos, Rng};
use model::{Link, LinkParams, LinkStats, Way};
use rt::{Cx, Runtime, SpinLock};

use super::{Back, Job, Nfsd, Receiver, Wire};

/// What happens to messages: probabilities, 0 to 1, of each message on either way.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Faults {
    /// It is lost.
    pub drop: f64,
    /// It arrives twice, the second time late.
    pub duplicate: f64,
    /// It is late, and others overtake it.
    pub delay: f64,
    /// The connection ends with it.
    pub cut: f64,
    /// How late a message can be.
    pub delay_max: Nanos,
}

/// A network between one server and its clients: all of them share one line each way.
pub struct Net {
    runtime: Runtime,
    link: SpinLock<Link>,
    faults: SpinLock<(Faults, Rng)>,
    nfsd: Arc<Nfsd>,
}

impl Net {
    /// A network without faults to the tasks of a server.
    pub fn new(runtime: &Runtime, params: LinkParams, nfsd: Arc<Nfsd>) -> Arc<Net> {
        let rng = Rng::new(runtime.seed(), 0x6e66_735f_6e65_7400);
        Arc::new(Net {
            runtime: runtime.clone(),
            link: SpinLock::named("link", Link::new(params)),
            faults: SpinLock::named("faults", (Faults::default(), rng)),
            nfsd,
        })
    }

    /// Sets what happens to messages from now on.
    pub fn set_faults(&self, faults: Faults) {
        self.faults.lock_irq().0 = faults;
    }

    /// What went over one way.
    pub fn stats(&self, way: Way) -> LinkStats {
        self.link.lock_irq().stats(way)
    }

    /// When a message of `bytes` bytes arrives: never, once, or twice; or the error that the
    /// connection ends.
    fn arrivals(&self, way: Way, bytes: usize) -> Result<Vec<Nanos>, Errno> {
        let at = self.link.lock_irq().send(self.runtime.now(), way, bytes as u64);
        let mut guard = self.faults.lock_irq();
        let (faults, rng) = &mut *guard;
        if *faults == Faults::default() {
            return Ok(vec![at]);
        }
        if rng.chance(faults.cut) {
            return Err(Errno::EPIPE);
        }
        let mut late = || Nanos(at.0 + rng.below(faults.delay_max.0.max(1)));
        let (again, later) = (late(), late());
        let mut when = Vec::new();
        if !rng.chance(faults.drop) {
            when.push(if rng.chance(faults.delay) { later } else { at });
        }
        if rng.chance(faults.duplicate) {
            when.push(again);
        }
        Ok(when)
    }
}

/// A client's connection over a [`Net`].
pub struct LinkWire {
    net: Arc<Net>,
    peer: IpAddr,
    receiver: SpinLock<Option<Weak<dyn Receiver>>>,
    /// Counts connections: what comes from an older one is lost.
    connection: AtomicU64,
    closed: AtomicBool,
    own: Weak<LinkWire>,
}

impl LinkWire {
    /// The connection of the client with this address.
    pub fn new(net: &Arc<Net>, peer: IpAddr) -> Arc<LinkWire> {
        Arc::new_cyclic(|own| LinkWire {
            net: net.clone(),
            peer,
            receiver: SpinLock::named("receiver", None),
            connection: AtomicU64::new(0),
            closed: AtomicBool::new(false),
            own: own.clone(),
        })
    }

    /// Ends the connection, as a reset does; the next message makes a new one.
    pub fn cut(&self) {
        self.connection.fetch_add(1, Ordering::Relaxed);
        let receiver = self.receiver.lock_irq().as_ref().and_then(Weak::upgrade);
        if let Some(receiver) = receiver {
            receiver.cut();
        }
    }
}

impl Wire for LinkWire {
    fn attach(&self, receiver: Weak<dyn Receiver>) {
        *self.receiver.lock_irq() = Some(receiver);
    }

    fn send(&self, _cx: &mut Cx, record: &[u8]) -> Result<(), Errno> {
        if self.closed.load(Ordering::Relaxed) || !self.net.nfsd.is_up() {
            return Err(Errno::ECONNREFUSED);
        }
        let when = self.net.arrivals(Way::Up, record.len()).inspect_err(|_| self.cut())?;
        let connection = self.connection.load(Ordering::Relaxed);
        for at in when {
            let Some(wire) = self.own.upgrade() else { break };
            let back: Arc<dyn Back> = Arc::new(LinkBack { wire, connection });
            let (net, peer, record) = (self.net.clone(), self.peer, record[4..].to_vec());
            let life = net.nfsd.life();
            let arrive = move |_| {
                // A server that came since has no such connection.
                if net.nfsd.life() == life {
                    let _lost_where_too_many_wait = net.nfsd.take(Job { peer, record, back });
                }
            };
            self.net.runtime.at(at, Box::new(arrive));
        }
        Ok(())
    }

    fn close(&self, _cx: &mut Cx) {
        self.closed.store(true, Ordering::Relaxed);
        self.connection.fetch_add(1, Ordering::Relaxed);
    }
}

struct LinkBack {
    wire: Arc<LinkWire>,
    connection: u64,
}

impl Back for LinkBack {
    fn reply(&self, _cx: &mut Cx, record: Vec<u8>) {
        let wire = &self.wire;
        if wire.connection.load(Ordering::Relaxed) != self.connection {
            return;
        }
        let Ok(when) = wire.net.arrivals(Way::Down, record.len()) else { return wire.cut() };
        for at in when {
            let runtime = wire.net.runtime.clone();
            let (wire, record, connection) = (wire.clone(), record.clone(), self.connection);
            let arrive = move |_| {
                let receiver = wire.receiver.lock_irq().as_ref().and_then(Weak::upgrade);
                let same = wire.connection.load(Ordering::Relaxed) == connection;
                if let (Some(receiver), true) = (receiver, same) {
                    receiver.record(record[4..].to_vec());
                }
            };
            runtime.at(at, Box::new(arrive));
        }
    }
}
