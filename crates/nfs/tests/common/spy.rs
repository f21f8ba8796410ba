//! A connection that notes what goes through it.
#![allow(dead_code, reason = "each test uses a part")]

use std::collections::BTreeSet;
use std::sync::{Arc, Weak};

use base::{Errno, Nanos};
use nfs::proto::{Call, Proc};
use nfs::rpc::{self, Auth};
use nfs::wire::{LinkWire, Receiver, Wire};
use rt::{Cx, Runtime, SpinLock};

/// A call as it was sent.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Sent {
    pub xid: u32,
    pub proc: Proc,
    pub uid: u32,
    /// Of a READ or WRITE: offset and bytes.
    pub range: (u64, u32),
    /// The whole record.
    pub record: Vec<u8>,
}

#[derive(Default)]
struct Log {
    sent: Vec<Sent>,
    open: BTreeSet<u32>,
    most: usize,
    /// Answers to this procedure come so much later, which calls they are, and whose clock it is.
    late: Option<(Proc, Nanos, Runtime)>,
    held: BTreeSet<u32>,
}

pub struct Spy {
    inner: Arc<LinkWire>,
    client: SpinLock<Option<Weak<dyn Receiver>>>,
    log: SpinLock<Log>,
    own: Weak<Spy>,
}

impl Spy {
    pub fn new(inner: Arc<LinkWire>) -> Arc<Spy> {
        Arc::new_cyclic(|own| Spy {
            inner,
            client: SpinLock::new(None),
            log: SpinLock::new(Log::default()),
            own: own.clone(),
        })
    }

    /// The calls of a procedure since the last look, in order.
    pub fn take(&self, proc: Proc) -> Vec<Sent> {
        let sent = std::mem::take(&mut self.log.lock_irq().sent);
        sent.into_iter().filter(|call| call.proc == proc).collect()
    }

    /// From now on answers to a procedure come so much later; others overtake them.
    pub fn delay(&self, cx: &Cx, proc: Proc, by: Nanos) {
        self.log.lock_irq().late = Some((proc, by, cx.runtime().clone()));
    }

    fn deliver(&self, record: Vec<u8>) {
        let client = self.client.lock_irq().as_ref().and_then(Weak::upgrade);
        if let Some(client) = client {
            client.record(record);
        }
    }

    /// Most calls that were under way at once.
    pub fn most_at_once(&self) -> usize {
        self.log.lock_irq().most
    }
}

impl Wire for Spy {
    fn attach(&self, receiver: Weak<dyn Receiver>) {
        *self.client.lock_irq() = Some(receiver);
        let own: Arc<dyn Receiver> = self.own.upgrade().expect("attached while it lives");
        self.inner.attach(Arc::downgrade(&own));
    }

    fn send(&self, cx: &mut Cx, record: &[u8]) -> Result<(), Errno> {
        if let Ok((head, mut args)) = rpc::read_call(&record[4..])
            && let Some(proc) = Proc::of(head.procedure)
            && let Ok(call) = Call::read(proc, &mut args)
        {
            let range = match call {
                Call::Read { offset, count, .. } => (offset, count),
                Call::Write { offset, data, .. } => (offset, data.len() as u32),
                _ => (0, 0),
            };
            let uid = match head.auth {
                Some(Auth::Sys { uid, .. }) => uid,
                _ => u32::MAX,
            };
            let mut log = self.log.lock_irq();
            if log.late.as_ref().is_some_and(|late| late.0 == proc) {
                log.held.insert(head.xid);
            }
            log.sent.push(Sent { xid: head.xid, proc, uid, range, record: record.to_vec() });
            log.open.insert(head.xid);
            log.most = log.most.max(log.open.len());
        }
        self.inner.send(cx, record)
    }

    fn close(&self, cx: &mut Cx) {
        self.inner.close(cx);
    }
}

impl Receiver for Spy {
    fn record(&self, record: Vec<u8>) {
        let mut late = None;
        if let Some(xid) = rpc::reply_xid(&record) {
            let mut log = self.log.lock_irq();
            log.open.remove(&xid);
            if log.held.remove(&xid) {
                late = log.late.clone();
            }
        }
        let Some((_, by, runtime)) = late else { return self.deliver(record) };
        let own = self.own.clone();
        let deliver = move |_| {
            if let Some(spy) = own.upgrade() {
                spy.deliver(record);
            }
        };
        runtime.at(Nanos(runtime.now().0 + by.0), Box::new(deliver));
    }

    fn cut(&self) {
        let client = self.client.lock_irq().as_ref().and_then(Weak::upgrade);
        if let Some(client) = client {
            client.cut();
        }
    }
}
