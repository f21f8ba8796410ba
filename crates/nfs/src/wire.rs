//! Transports that carry records from one end to the other.

mod link;
mod nfsd;
mod tcp;

pub use link::{Faults, LinkWire, Net};
pub use nfsd::{Back, Job, Nfsd};
pub use tcp::{Listener, TcpWire};

use std::sync::Weak;

use base::Errno;
use rt::Cx;

/// A client's end of a connection. It connects by itself, again and again.
pub trait Wire: Send + Sync {
    /// Who takes what comes. Set once, before the first `send`.
    fn attach(&self, receiver: Weak<dyn Receiver>);

    /// Hands over a record with its mark. May park: connects, waits for room.
    ///
    /// # Errors
    /// There is no connection. The record may have arrived or not.
    fn send(&self, cx: &mut Cx, record: &[u8]) -> Result<(), Errno>;

    /// Ends the connection. May park: waits for its task.
    fn close(&self, cx: &mut Cx);
}

/// Takes what comes from the other end. Event context: neither function waits.
pub trait Receiver: Send + Sync {
    /// A record without its mark.
    fn record(&self, record: Vec<u8>);

    /// Memory of a record that is no longer needed, for the next one.
    fn spare(&self) -> Option<Vec<u8>> {
        None
    }

    /// The connection ended: what was sent and not answered must be sent again.
    fn cut(&self);
}
