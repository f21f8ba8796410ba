//! The events that end a mount.

use std::io;
use std::sync::Arc;

use rt::Channel;

/// Something that ends a mount.
pub(crate) enum Event {
    /// A signal, by its name, or another reason.
    Stop(&'static str),
    /// A worker or a ring has ended.
    Ended(io::Result<()>),
}

/// Where a mount learns what happens to it.
pub(crate) type Events = Arc<Channel<Event>>;
