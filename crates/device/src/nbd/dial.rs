//! Connects a client, and negotiates the export.

use std::io::{self, Read, Write};
use std::time::{Duration, Instant};

use super::client::MAX_BYTES;
use super::stream::{Address, Stream};
use super::wire::{self, ExportFlags, Fields, info, opt, rep};

/// Longest reply to an option that is believed, and how many of them.
const REPLY_MAX: u32 = 64 << 10;
const REPLIES_MAX: u32 = 256;
/// Characters of a server's words that are repeated.
const WORDS_MAX: usize = 200;
/// Largest size that the protocol knows.
const SIZE_MAX: u64 = i64::MAX as u64;

/// Why an export cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum NbdError {
    /// Not an address.
    #[error("`{0}` is no address: nbd://HOST[:PORT]/EXPORT or nbd+unix:///EXPORT?socket=PATH")]
    Address(String),
    /// The connection failed.
    #[error("{url}: {error}")]
    Io {
        /// Whereto.
        url: String,
        /// How.
        error: io::Error,
    },
    /// The server said no.
    #[error("{url}: the server refuses ({what}): {message}")]
    Refused {
        /// Whereto.
        url: String,
        /// What its reply means.
        what: String,
        /// Its words.
        message: String,
    },
    /// The server says what the protocol does not allow, or what cannot be used.
    #[error("{url}: {what}")]
    Server {
        /// Whereto.
        url: String,
        /// What.
        what: String,
    },
}

/// What the server reports of its export.
#[derive(PartialEq, Eq)]
pub(super) struct About {
    pub size: u64,
    pub flags: ExportFlags,
    pub block_size: [u32; 3],
}

/// Connects and leads the handshake into transmission, within `patience`.
pub(super) fn dial(
    url: &str,
    address: &Address,
    patience: Duration,
) -> Result<(Stream, About), NbdError> {
    let failed = |error: io::Error| NbdError::Io { url: url.to_owned(), error };
    let wrong = |what: String| NbdError::Server { url: url.to_owned(), what };
    let mut talk = Talk { stream: Stream::connect(&address.place).map_err(failed)?, end: None };
    #[allow(clippy::disallowed_methods, reason = "a socket of the host is waited for")]
    let end = Instant::now().checked_add(patience);
    talk.end = end;
    let greeting = talk.read(18).map_err(failed)?;
    let mut fields = Fields(&greeting);
    let magics = (fields.u64(), fields.u64(), fields.u16());
    let (Some(wire::NBDMAGIC), Some(wire::IHAVEOPT), Some(flags)) = magics else {
        return Err(wrong("no newstyle NBD server answers".to_owned()));
    };
    if flags & wire::FLAG_FIXED == 0 {
        return Err(wrong("the server is older than fixed newstyle".to_owned()));
    }
    let ours = u32::from(flags & (wire::FLAG_FIXED | wire::FLAG_NO_ZEROES));
    let words = [&ours.to_be_bytes()[..], &go(&address.export)].concat();
    talk.stream.write_all(&words).map_err(failed)?;
    let mut export = None;
    let mut block_size = [1, 4096, MAX_BYTES];
    for _ in 0..REPLIES_MAX {
        let (reply, data) = talk.option_reply().map_err(failed)?;
        let mut fields = Fields(&data);
        match reply {
            rep::ACK => {
                let sent = export.ok_or_else(|| wrong("the server does not send the size".into()));
                let (size, flags) = sent?;
                if size > SIZE_MAX {
                    return Err(wrong(format!("a size of {size} bytes cannot be")));
                }
                let flags = ExportFlags::from_bits_truncate(flags);
                talk.stream.set_patience(None).map_err(failed)?;
                return Ok((talk.stream, About { size, flags, block_size }));
            }
            rep::INFO => match fields.u16() {
                Some(info::EXPORT) => export = fields.u64().zip(fields.u16()),
                Some(info::BLOCK_SIZE) => {
                    if let (Some(a), Some(b), Some(c)) = (fields.u32(), fields.u32(), fields.u32())
                    {
                        block_size = [a, b, c];
                    }
                }
                _ => {}
            },
            reply => {
                let (url, what) = (url.to_owned(), refusal(reply));
                return Err(NbdError::Refused { url, what, message: shown(&data) });
            }
        }
    }
    Err(wrong("the server's replies to an option do not end".to_owned()))
}

/// The option GO with a wish for the sizes of blocks.
fn go(export: &str) -> Vec<u8> {
    let name = export.as_bytes();
    let mut go = (name.len() as u32).to_be_bytes().to_vec();
    go.extend(name);
    go.extend(1u16.to_be_bytes());
    go.extend(info::BLOCK_SIZE.to_be_bytes());
    let mut option = wire::IHAVEOPT.to_be_bytes().to_vec();
    option.extend(opt::GO.to_be_bytes());
    option.extend((go.len() as u32).to_be_bytes());
    option.extend(go);
    option
}

/// What a reply other than yes means.
fn refusal(reply: u32) -> String {
    let known = match reply {
        rep::ERR_UNSUP => "it does not know GO",
        rep::ERR_POLICY => "its policy",
        rep::ERR_TLS_REQD => "it wants TLS",
        rep::ERR_UNKNOWN => "no such export",
        _ => return format!("reply 0x{reply:x}"),
    };
    known.to_owned()
}

/// A server's words, as they may be shown on a terminal.
fn shown(words: &[u8]) -> String {
    let words = String::from_utf8_lossy(words);
    let plain = |c: char| if c.is_control() { ' ' } else { c };
    words.chars().take(WORDS_MAX).map(plain).collect()
}

/// A handshake that must come to its end.
struct Talk {
    stream: Stream,
    end: Option<Instant>,
}

impl Talk {
    fn read(&mut self, len: usize) -> io::Result<Vec<u8>> {
        let mut bytes = vec![0; len];
        let mut done = 0;
        while done < len {
            self.stream.set_patience(self.left()?)?;
            match self.stream.read(&mut bytes[done..]) {
                Ok(0) => return Err(io::Error::other("the server closes the connection")),
                Ok(count) => done += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Err(error),
            }
        }
        Ok(bytes)
    }

    fn left(&self) -> io::Result<Option<Duration>> {
        let Some(end) = self.end else { return Ok(None) };
        #[allow(clippy::disallowed_methods, reason = "a socket of the host is waited for")]
        let left = end.saturating_duration_since(Instant::now());
        match left.is_zero() {
            true => Err(io::Error::other("the server says nothing")),
            false => Ok(Some(left.max(Duration::from_micros(1)))),
        }
    }

    fn option_reply(&mut self) -> io::Result<(u32, Vec<u8>)> {
        let header = self.read(20)?;
        let mut fields = Fields(&header);
        let parts = (fields.u64(), fields.u32(), fields.u32(), fields.u32());
        match parts {
            (Some(wire::OPTION_REPLY), Some(opt::GO), Some(reply), Some(len @ 0..=REPLY_MAX)) => {
                Ok((reply, self.read(len as usize)?))
            }
            _ => Err(io::Error::other("the server's reply to an option is damaged")),
        }
    }
}
