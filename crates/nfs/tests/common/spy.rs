//! A connection that notes what goes through it.

use std::collections::BTreeSet;
use std::sync::{Arc, Weak};

use base::Errno;
use nfs::proto::{Call, Proc};
use nfs::rpc::{self, Auth};
use nfs::wire::{LinkWire, Receiver, Wire};
use rt::{Cx, SpinLock};

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
        if let Some(xid) = rpc::reply_xid(&record) {
            self.log.lock_irq().open.remove(&xid);
        }
        let client = self.client.lock_irq().as_ref().and_then(Weak::upgrade);
        if let Some(client) = client {
            client.record(record);
        }
    }

    fn cut(&self) {
        let client = self.client.lock_irq().as_ref().and_then(Weak::upgrade);
        if let Some(client) = client {
            client.cut();
        }
    }
}
