//! Connections over TCP and Unix sockets, and the addresses that name them.

use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::time::Duration;

const DEFAULT_PORT: u16 = 10809;

/// Where a server is: `nbd://host:port/export` or `nbd+unix:///export?socket=/path`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Address {
    /// The way to the server.
    pub place: ServerPlace,
    /// Name of the export, maybe empty.
    pub export: String,
}

/// The way to a server.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ServerPlace {
    /// `host:port`.
    Tcp(String),
    /// A socket in the file system.
    Unix(PathBuf),
}

impl Address {
    /// Reads an address; none where it is not one.
    pub fn parse(url: &str) -> Option<Address> {
        if let Some(rest) = url.strip_prefix("nbd+unix://") {
            let (export, query) = rest.strip_prefix('/')?.split_once('?')?;
            let socket = query.split('&').find_map(|pair| pair.strip_prefix("socket="))?;
            let place = ServerPlace::Unix(PathBuf::from(socket));
            return Some(Address { place, export: export.to_owned() });
        }
        let rest = url.strip_prefix("nbd://")?;
        let (host, export) = rest.split_once('/').unwrap_or((rest, ""));
        if host.is_empty() {
            return None;
        }
        let has_port = host.rsplit_once(':').is_some_and(|(before, port)| {
            let whole = !before.contains(':') || before.ends_with(']');
            whole && port.bytes().all(|b| b.is_ascii_digit())
        });
        let host = if has_port { host.to_owned() } else { format!("{host}:{DEFAULT_PORT}") };
        Some(Address { place: ServerPlace::Tcp(host), export: export.to_owned() })
    }
}

/// A connection.
pub enum Stream {
    /// TCP.
    Tcp(TcpStream),
    /// Unix.
    Unix(UnixStream),
}

impl Stream {
    /// Connects.
    ///
    /// # Errors
    /// The host's.
    pub fn connect(place: &ServerPlace) -> io::Result<Stream> {
        match place {
            ServerPlace::Tcp(host) => {
                let stream = TcpStream::connect(host)?;
                stream.set_nodelay(true)?;
                Ok(Stream::Tcp(stream))
            }
            ServerPlace::Unix(path) => Ok(Stream::Unix(UnixStream::connect(path)?)),
        }
    }

    /// A second handle of the same connection.
    ///
    /// # Errors
    /// The host's.
    pub fn try_clone(&self) -> io::Result<Stream> {
        Ok(match self {
            Stream::Tcp(stream) => Stream::Tcp(stream.try_clone()?),
            Stream::Unix(stream) => Stream::Unix(stream.try_clone()?),
        })
    }

    /// The address of the other end: `unix` where it has none.
    pub fn peer(&self) -> String {
        match self {
            Stream::Tcp(stream) => {
                stream.peer_addr().map_or_else(|e| e.to_string(), |a| a.to_string())
            }
            Stream::Unix(_) => "unix".to_owned(),
        }
    }

    /// How long one read or write may wait; none: for ever. Of all its handles.
    ///
    /// # Errors
    /// The host's; a time of 0.
    pub fn set_patience(&self, time: Option<Duration>) -> io::Result<()> {
        self.set_read_patience(time).and_then(|()| self.set_write_patience(time))
    }

    /// How long one read may wait; none: for ever. Of all its handles.
    ///
    /// # Errors
    /// The host's; a time of 0.
    pub fn set_read_patience(&self, time: Option<Duration>) -> io::Result<()> {
        match self {
            Stream::Tcp(stream) => stream.set_read_timeout(time),
            Stream::Unix(stream) => stream.set_read_timeout(time),
        }
    }

    /// How long one write may wait; none: for ever. Of all its handles.
    ///
    /// # Errors
    /// The host's; a time of 0.
    pub fn set_write_patience(&self, time: Option<Duration>) -> io::Result<()> {
        match self {
            Stream::Tcp(stream) => stream.set_write_timeout(time),
            Stream::Unix(stream) => stream.set_write_timeout(time),
        }
    }

    /// Ends the connection for all its handles.
    pub fn shutdown(&self) {
        let both = std::net::Shutdown::Both;
        let _closed_already = match self {
            Stream::Tcp(stream) => stream.shutdown(both),
            Stream::Unix(stream) => stream.shutdown(both),
        };
    }
}

impl Read for Stream {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Stream::Tcp(stream) => stream.read(buffer),
            Stream::Unix(stream) => stream.read(buffer),
        }
    }
}

impl Write for Stream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Stream::Tcp(stream) => stream.write(bytes),
            Stream::Unix(stream) => stream.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Listens at a path. A socket there at which nobody listens any more is replaced: a server that
/// was killed has left it.
///
/// # Errors
/// Another server listens there, something else is there, or the host refuses.
pub fn bind(path: &Path) -> io::Result<UnixListener> {
    UnixListener::bind(path).or_else(|error| {
        let is_socket = path.symlink_metadata().is_ok_and(|there| there.file_type().is_socket());
        let gone = |error: io::Error| error.kind() == io::ErrorKind::ConnectionRefused;
        if !is_socket || !UnixStream::connect(path).is_err_and(gone) {
            return Err(error);
        }
        std::fs::remove_file(path)?;
        UnixListener::bind(path)
    })
}

/// Where a server waits for clients.
pub enum Listener {
    /// TCP.
    Tcp(TcpListener),
    /// Unix, and the path of the socket: whoever ends the server removes it.
    Unix(UnixListener, PathBuf),
}

impl Listener {
    /// Listens at `host:port`, or at a path that contains a slash, as [`bind`] does.
    ///
    /// # Errors
    /// The host's.
    pub fn bind(place: &str) -> io::Result<Listener> {
        if place.contains('/') {
            let path = PathBuf::from(place);
            return Ok(Listener::Unix(bind(&path)?, path));
        }
        Ok(Listener::Tcp(TcpListener::bind(place)?))
    }

    /// The next client.
    ///
    /// # Errors
    /// The host's.
    pub fn accept(&self) -> io::Result<Stream> {
        match self {
            Listener::Tcp(listener) => {
                let (stream, _) = listener.accept()?;
                stream.set_nodelay(true)?;
                Ok(Stream::Tcp(stream))
            }
            Listener::Unix(listener, _) => Ok(Stream::Unix(listener.accept()?.0)),
        }
    }

    /// The path of the socket, where it is one.
    pub fn socket(&self) -> Option<PathBuf> {
        match self {
            Listener::Tcp(_) => None,
            Listener::Unix(_, path) => Some(path.clone()),
        }
    }

    /// The address of an export here.
    ///
    /// # Errors
    /// The host's.
    pub fn url(&self, export: &str) -> io::Result<String> {
        Ok(match self {
            Listener::Tcp(listener) => format!("nbd://{}/{export}", listener.local_addr()?),
            Listener::Unix(_, path) => format!("nbd+unix:///{export}?socket={}", path.display()),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_name_place_and_export() {
        let tcp = |host: &str, export: &str| {
            Some(Address { place: ServerPlace::Tcp(host.into()), export: export.into() })
        };
        assert_eq!(Address::parse("nbd://h"), tcp("h:10809", ""));
        assert_eq!(Address::parse("nbd://h:1/a/b"), tcp("h:1", "a/b"));
        assert_eq!(Address::parse("nbd://[::1]/x"), tcp("[::1]:10809", "x"));
        let unix = Address::parse("nbd+unix:///e?socket=/tmp/s").unwrap();
        assert_eq!(unix.place, ServerPlace::Unix("/tmp/s".into()));
        assert_eq!(Address::parse("nbd:///x"), None);
        assert_eq!(Address::parse("nbd+unix:///x"), None);
    }
}
