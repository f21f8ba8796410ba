//! Goal: nobody at the other end of a connection can hurt a server or a client. Method: real
//! sockets; a raw client says what the protocol forbids to our server, whose image is compared
//! afterwards, and raw servers say it to our client. `IOPATH_SEEDS=n` for more of the mutated
//! sessions.
#![allow(clippy::disallowed_methods, reason = "threads and sockets of the host meet here")]

#[path = "nbd/client.rs"]
mod client;
#[path = "nbd/raw.rs"]
mod raw;
#[path = "nbd/server.rs"]
mod server;
