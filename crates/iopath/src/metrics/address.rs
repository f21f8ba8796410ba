//! Where metrics are served: a port of this machine, an address, or a socket in the file system.

use std::fmt;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use device::nbd::{Listener, ServerPlace, Stream};

/// A place of metrics.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Address {
    /// Over TCP.
    Tcp(SocketAddr),
    /// A socket in the file system, its path from the root.
    Unix(PathBuf),
}

impl FromStr for Address {
    type Err = String;

    /// # Errors
    /// A sentence with what there is.
    fn from_str(text: &str) -> Result<Address, String> {
        if text.contains('/') {
            return std::path::absolute(text)
                .map(Address::Unix)
                .map_err(|error| format!("`{text}`: {error}"));
        }
        let port = text.strip_prefix("localhost:").unwrap_or(text);
        if let Ok(port) = port.parse::<u16>() {
            return Ok(Address::Tcp((Ipv4Addr::LOCALHOST, port).into()));
        }
        text.parse().map(Address::Tcp).map_err(|_| {
            format!(
                "`{text}` is no place: give PORT (of this machine), ADDRESS:PORT, or the path of a \
                 socket, with a slash"
            )
        })
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Address::Tcp(address) => address.fmt(f),
            Address::Unix(path) => path.display().fmt(f),
        }
    }
}

impl Address {
    /// Where a listener is: port 0 stands for one that the host chooses.
    ///
    /// # Errors
    /// The host's.
    pub fn of(listener: &Listener) -> io::Result<Address> {
        Ok(match listener {
            Listener::Tcp(listener) => Address::Tcp(listener.local_addr()?),
            Listener::Unix(_, path) => Address::Unix(path.clone()),
        })
    }

    /// As a browser or a person takes it.
    pub fn url(&self) -> String {
        match self {
            Address::Tcp(address) => format!("http://{address}/metrics"),
            Address::Unix(path) => format!("{}, /metrics", path.display()),
        }
    }

    /// Listens. A socket at which nobody answers any more is replaced.
    ///
    /// # Errors
    /// The host's; the path is that of something else.
    pub fn bind(&self) -> io::Result<Listener> {
        let bound = Listener::bind(&self.to_string());
        let Address::Unix(path) = self else { return bound };
        match bound {
            Err(error) if error.kind() == io::ErrorKind::AddrInUse && is_dead(path) => {
                std::fs::remove_file(path)?;
                Listener::bind(&self.to_string())
            }
            bound => bound,
        }
    }

    /// Connects.
    ///
    /// # Errors
    /// The host's.
    pub fn connect(&self) -> io::Result<Stream> {
        Stream::connect(&match self {
            Address::Tcp(address) => ServerPlace::Tcp(address.to_string()),
            Address::Unix(path) => ServerPlace::Unix(path.clone()),
        })
    }
}

/// A socket that a process has left: nobody listens there. Connecting to a file is refused, too.
fn is_dead(path: &Path) -> bool {
    let is_socket = path.symlink_metadata().is_ok_and(|meta| meta.file_type().is_socket());
    let refused = |error: io::Error| error.kind() == io::ErrorKind::ConnectionRefused;
    is_socket && UnixStream::connect(path).err().is_some_and(refused)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_of_this_machine_unless_they_say_otherwise() {
        for (text, wanted) in [
            ("9478", "127.0.0.1:9478"),
            ("0", "127.0.0.1:0"),
            ("localhost:80", "127.0.0.1:80"),
            ("0.0.0.0:9478", "0.0.0.0:9478"),
            ("[::1]:9478", "[::1]:9478"),
            ("/run/m.sock", "/run/m.sock"),
        ] {
            assert_eq!(text.parse::<Address>().map(|place| place.to_string()), Ok(wanted.into()));
        }
        assert!(matches!("./m".parse::<Address>(), Ok(Address::Unix(path)) if path.is_absolute()));
        for text in ["", "65536", ":80", "host:80", "1.2.3.4", "1.2.3.4:", "-1", "m.sock"] {
            let error = text.parse::<Address>().expect_err(text);
            assert!(error.starts_with(&format!("`{text}` is no place")), "{error}");
        }
    }

    #[test]
    fn a_socket_that_is_left_is_replaced_and_one_in_use_is_not() {
        let folder = tempfile::tempdir().expect("a folder");
        let place = Address::Unix(folder.path().join("m.sock"));
        let listener = place.bind().expect("a socket");
        let error = place.bind().err().map(|error| error.kind());
        assert_eq!(error, Some(io::ErrorKind::AddrInUse));
        drop(listener);
        drop(place.bind().expect("nobody listens"));
        let file = Address::Unix(folder.path().join("file"));
        std::fs::write(folder.path().join("file"), "x").expect("a file");
        assert!(file.bind().is_err(), "a file is no socket");
        assert_eq!(std::fs::read(folder.path().join("file")).expect("it is there"), b"x");
    }
}
