//! Answers to calls that must not be carried out twice: a client that did not hear the answer sends
//! the call again with the same xid (Chet Juszczak, Improving the Performance and Correctness of an
//! NFS Server, 1989).

use std::collections::VecDeque;
use std::net::IpAddr;
use std::sync::Arc;

use base::map::HashMap;
use rt::SpinLock;

/// Answers that are kept.
const ANSWERS_MAX: usize = 4096;
/// Bytes of a call by which two calls of one xid differ: a client may begin again with its xids.
const SAMPLE: usize = 512;

/// What identifies a call: address of the client, xid, checksum of the call. Not the port: a
/// client that connects again has another.
pub(super) type Key = (IpAddr, u32, u32);

pub(super) fn key(peer: IpAddr, xid: u32, record: &[u8]) -> Key {
    let sum = base::crc::crc32c(0, &record[..record.len().min(SAMPLE)]);
    (peer, xid, sum ^ record.len() as u32)
}

/// What is known of a call.
pub(super) enum Seen {
    Never,
    Running,
    Done(Arc<[u8]>),
}

#[derive(Default)]
struct State {
    answers: HashMap<Key, Option<Arc<[u8]>>>,
    /// Those that have ended, oldest first.
    order: VecDeque<Key>,
}

pub(super) struct Drc(SpinLock<State>);

impl Drc {
    pub(super) fn new() -> Drc {
        Drc(SpinLock::named("duplicate requests", State::default()))
    }

    /// Asks for a call, and notes that it runs where it was never seen.
    pub(super) fn begin(&self, key: Key) -> Seen {
        let mut state = self.0.lock_irq();
        match state.answers.get(&key) {
            Some(None) => return Seen::Running,
            Some(Some(reply)) => return Seen::Done(reply.clone()),
            None => {}
        }
        state.answers.insert(key, None);
        Seen::Never
    }

    /// Keeps the answer.
    pub(super) fn end(&self, key: Key, reply: &[u8]) {
        let mut state = self.0.lock_irq();
        state.answers.insert(key, Some(reply.into()));
        state.order.push_back(key);
        if state.order.len() > ANSWERS_MAX
            && let Some(oldest) = state.order.pop_front()
        {
            state.answers.remove(&oldest);
        }
    }
}
