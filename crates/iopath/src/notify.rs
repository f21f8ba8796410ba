//! Notifications to the service manager, in the format of sd_notify(3).

use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};

/// The manager's socket; connected before the process is locked.
pub struct Manager(Option<UnixDatagram>);

impl Manager {
    /// The manager that `NOTIFY_SOCKET` names; nobody listens where it names none.
    pub fn connect() -> Manager {
        Manager(std::env::var_os("NOTIFY_SOCKET").and_then(|name| {
            let socket = UnixDatagram::unbound().ok()?;
            match name.as_bytes().strip_prefix(b"@") {
                Some(name) => {
                    socket.connect_addr(&SocketAddr::from_abstract_name(name).ok()?).ok()?
                }
                None => socket.connect(name).ok()?,
            }
            Some(socket)
        }))
    }

    /// It serves.
    pub fn ready(&self, what: &str) {
        self.say(&format!("READY=1\nSTATUS={what}"));
    }

    /// It ends, and writes what is left.
    pub fn stopping(&self) {
        self.say("STOPPING=1\nSTATUS=writing what is left");
    }

    fn say(&self, text: &str) {
        if let Some(socket) = &self.0 {
            let _nobody_listens = socket.send(text.as_bytes());
        }
    }
}
