//! A web server with faults, for tests.

#![allow(
    clippy::disallowed_types,
    clippy::disallowed_methods,
    dead_code,
    reason = "a server for tests, in real time; every test file uses its part"
)]

use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// What a server does wrong.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Fault {
    /// Nothing.
    #[default]
    None,
    /// Ranges are not known: the whole object comes.
    NoRanges,
    /// Each body ends after so many bytes, for so many requests behind the first.
    Cut(usize, u64),
    /// The answer is for another range.
    WrongRange,
    /// The body is for another range, under the right words.
    ShortRange,
    /// The object gets another ETag after so many requests.
    Changes(u64),
    /// The object gets another ETag, and the server does not look at If-Match.
    ChangesSilently(u64),
    /// Errors of the server for so many requests behind the first.
    Overloaded(u64),
    /// Errors for ever behind the first request.
    Down,
    /// The size differs from answer to answer.
    Grows,
    /// No such object.
    Missing,
    /// Not without credentials.
    Forbidden,
}

/// A server of one object.
pub struct Server {
    pub url: String,
    shared: Arc<Shared>,
}

struct Shared {
    file: Mutex<File>,
    fault: Mutex<Fault>,
    etag: Mutex<Option<String>>,
    latency: Duration,
    /// Bytes a second of all connections together; 0: as fast as it goes.
    rate: u64,
    requests: AtomicU64,
    bytes: AtomicU64,
    if_match: AtomicU64,
    stop: AtomicBool,
    line: Mutex<()>,
}

impl Server {
    pub fn new(path: &Path, fault: Fault) -> Server {
        Server::slow(path, fault, Duration::ZERO, 0)
    }

    /// With so much time before each answer, and a bandwidth.
    pub fn slow(path: &Path, fault: Fault, latency: Duration, rate: u64) -> Server {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let name = path.file_name().unwrap().to_str().unwrap();
        let url = format!("http://{}/{name}", listener.local_addr().unwrap());
        let shared = Arc::new(Shared {
            file: Mutex::new(File::open(path).unwrap()),
            fault: Mutex::new(fault),
            etag: Mutex::new(Some("\"one\"".to_owned())),
            latency,
            rate,
            requests: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
            if_match: AtomicU64::new(0),
            stop: AtomicBool::new(false),
            line: Mutex::new(()),
        });
        let theirs = shared.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                if theirs.stop.load(Ordering::Relaxed) {
                    return;
                }
                let (Ok(stream), shared) = (stream, theirs.clone()) else { continue };
                std::thread::spawn(move || {
                    let _connection_ends = shared.serve(stream);
                });
            }
        });
        Server { url, shared }
    }

    pub fn set_fault(&self, fault: Fault) {
        *self.shared.fault.lock().unwrap() = fault;
    }

    pub fn set_etag(&self, etag: Option<&str>) {
        *self.shared.etag.lock().unwrap() = etag.map(str::to_owned);
    }

    /// Another content under the same address.
    pub fn set_file(&self, path: &Path) {
        *self.shared.file.lock().unwrap() = File::open(path).unwrap();
    }

    pub fn requests(&self) -> u64 {
        self.shared.requests.load(Ordering::Relaxed)
    }

    /// Requests that asked for one version.
    pub fn conditional(&self) -> u64 {
        self.shared.if_match.load(Ordering::Relaxed)
    }

    /// Bytes of bodies.
    pub fn bytes(&self) -> u64 {
        self.shared.bytes.load(Ordering::Relaxed)
    }

    /// Forgets what was counted.
    pub fn reset(&self) {
        self.shared.requests.store(0, Ordering::Relaxed);
        self.shared.bytes.store(0, Ordering::Relaxed);
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Relaxed);
        let at = self.url.trim_start_matches("http://").split('/').next().unwrap();
        let _wakes_it = TcpStream::connect(at);
    }
}

impl Shared {
    fn serve(&self, stream: TcpStream) -> std::io::Result<()> {
        stream.set_nodelay(true)?;
        let mut input = BufReader::new(stream.try_clone()?);
        let mut output = stream;
        loop {
            let (mut range, mut condition) = (None, None);
            let mut line = String::new();
            if input.read_line(&mut line)? == 0 {
                return Ok(());
            }
            loop {
                let mut line = String::new();
                input.read_line(&mut line)?;
                let Some((key, value)) = line.trim().split_once(": ") else { break };
                match key.to_ascii_lowercase().as_str() {
                    "range" => range = Some(value.to_owned()),
                    "if-match" => condition = Some(value.to_owned()),
                    _ => {}
                }
            }
            if !self.answer(&mut output, range, condition)? {
                return Ok(());
            }
        }
    }

    /// Answers one request; whether the connection goes on.
    fn answer(
        &self,
        output: &mut TcpStream,
        range: Option<String>,
        condition: Option<String>,
    ) -> std::io::Result<bool> {
        let number = self.requests.fetch_add(1, Ordering::Relaxed);
        self.if_match.fetch_add(u64::from(condition.is_some()), Ordering::Relaxed);
        std::thread::sleep(self.latency);
        let fault = *self.fault.lock().unwrap();
        let mut etag = self.etag.lock().unwrap().clone();
        let mut size = self.file.lock().unwrap().metadata()?.len();
        let mut checks = true;
        match fault {
            Fault::Missing => return refuse(output, "404 Not Found"),
            Fault::Forbidden => return refuse(output, "403 Forbidden"),
            Fault::Overloaded(count) if (1..=count).contains(&number) => {
                return refuse(output, "503 Service Unavailable");
            }
            Fault::Down if number > 0 => return refuse(output, "500 Internal Server Error"),
            Fault::Changes(after) if number >= after => etag = Some("\"two\"".to_owned()),
            Fault::ChangesSilently(after) if number >= after => {
                etag = Some("\"two\"".to_owned());
                checks = false;
            }
            Fault::Grows => size += number,
            _ => {}
        }
        if checks && condition.is_some() && condition != etag {
            return refuse(output, "412 Precondition Failed");
        }
        let tag = etag.map(|etag| format!("ETag: {etag}\r\n")).unwrap_or_default();
        let Some(range) = range.filter(|_| fault != Fault::NoRanges) else {
            write!(output, "HTTP/1.1 200 OK\r\n{tag}Content-Length: {size}\r\n\r\n")?;
            return self.body(output, 0, size.min(1 << 20), None);
        };
        let (first, last) = range.trim_start_matches("bytes=").split_once('-').unwrap();
        let first: u64 = first.parse().unwrap();
        let last = last.parse::<u64>().unwrap().min(size.saturating_sub(1));
        if first >= size {
            return refuse(output, "416 Range Not Satisfiable");
        }
        let shown = if fault == Fault::WrongRange && number > 0 { first + 512 } else { first };
        let mut len = last - first + 1;
        if fault == Fault::ShortRange && number > 0 {
            len -= 512;
        }
        write!(
            output,
            "HTTP/1.1 206 Partial Content\r\n{tag}Content-Range: bytes {shown}-{}/{size}\r\n\
             Content-Length: {len}\r\n\r\n",
            shown + len - 1
        )?;
        let cut = match fault {
            Fault::Cut(after, count) if (1..=count).contains(&number) => Some(after as u64),
            _ => None,
        };
        self.body(output, first, len, cut)
    }

    fn body(
        &self,
        output: &mut TcpStream,
        first: u64,
        len: u64,
        cut: Option<u64>,
    ) -> std::io::Result<bool> {
        let mut at = 0;
        let mut bytes = vec![0; 256 << 10];
        let end = cut.map_or(len, |cut| cut.min(len));
        while at < end {
            let part = (bytes.len() as u64).min(end - at) as usize;
            let part = &mut bytes[..part];
            let there = self.file.lock().unwrap().read_at(part, first + at)?;
            part[there..].fill(0);
            // Counted before it goes out: the reader may ask as soon as it has the last byte.
            self.bytes.fetch_add(part.len() as u64, Ordering::Relaxed);
            if let Some(nanos) = (part.len() as u64 * 1_000_000_000).checked_div(self.rate) {
                // One line for all: who sends, occupies it.
                let _line = self.line.lock().unwrap();
                std::thread::sleep(Duration::from_nanos(nanos));
                output.write_all(part)?;
            } else {
                output.write_all(part)?;
            }
            at += part.len() as u64;
        }
        Ok(end == len)
    }
}

fn refuse(output: &mut TcpStream, status: &str) -> std::io::Result<bool> {
    write!(output, "HTTP/1.1 {status}\r\nContent-Length: 0\r\n\r\n")?;
    Ok(true)
}
