//! Bytes of the protocol as both ends say them, and a running server.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use base::Rng;
use block::{Queue, QueueConfig};
use device::OpenOptions;
use device::nbd::wire::{self, Request, opt};
use device::nbd::{FileMap, Limits, Listener, Served, serve};
use rt::Runtime;

pub const SIZE: usize = 4 << 20;
/// Nothing waits so long in a test that works.
const HUNG: Duration = Duration::from_secs(240);

/// A server of an image of random bytes with a hole, which serves until the process ends.
pub struct Site {
    pub dir: tempfile::TempDir,
    pub content: Vec<u8>,
}

impl Site {
    pub fn new(write: bool, limits: Limits) -> Site {
        let dir = tempfile::tempdir().unwrap();
        let mut content = vec![0; SIZE];
        Rng::new(1, 2).fill(&mut content[SIZE / 2..]);
        let site = Site { dir, content };
        let file = std::fs::File::create(site.image()).unwrap();
        file.set_len(SIZE as u64).unwrap();
        std::os::unix::fs::FileExt::write_all_at(&file, &site.content[SIZE / 2..], SIZE as u64 / 2)
            .unwrap();
        let listener = Listener::bind(site.socket().to_str().unwrap()).unwrap();
        let image = site.image();
        std::thread::spawn(move || {
            Runtime::real(2).enter("server", |cx| {
                let options = OpenOptions { write, ..OpenOptions::default() };
                let device = device::open(&image, options).unwrap();
                let queue = Queue::new(cx.runtime(), device, QueueConfig::default()).unwrap();
                let mut served = Served::new(queue, "disk", write);
                served.allocation = Some(Box::new(FileMap::new(&image, 0).unwrap()));
                served.limits = limits;
                serve(cx, &Arc::new(served), &listener).unwrap();
            });
        });
        site
    }

    pub fn image(&self) -> PathBuf {
        self.dir.path().join("disk.img")
    }

    pub fn socket(&self) -> PathBuf {
        self.dir.path().join("nbd.sock")
    }

    pub fn url(&self) -> String {
        format!("nbd+unix:///disk?socket={}", self.socket().display())
    }

    pub fn connect(&self) -> Raw {
        Raw::new(UnixStream::connect(self.socket()).unwrap())
    }

    #[track_caller]
    pub fn unchanged(&self) {
        assert!(std::fs::read(self.image()).unwrap() == self.content, "the image has changed");
    }
}

/// One end of a connection that says what it likes.
pub struct Raw(pub UnixStream);

impl Raw {
    pub fn new(stream: UnixStream) -> Raw {
        stream.set_read_timeout(Some(HUNG)).unwrap();
        stream.set_write_timeout(Some(HUNG)).unwrap();
        Raw(stream)
    }

    pub fn say(&mut self, bytes: &[u8]) {
        self.0.write_all(bytes).unwrap();
    }

    #[track_caller]
    pub fn hear(&mut self, count: usize) -> Vec<u8> {
        let mut bytes = vec![0; count];
        self.0.read_exact(&mut bytes).unwrap();
        bytes
    }

    /// Everything until the other end closes.
    #[track_caller]
    pub fn rest(&mut self) -> usize {
        let (mut buffer, mut all) = ([0; 65536], 0);
        loop {
            match self.0.read(&mut buffer) {
                Ok(0) => return all,
                Ok(count) => all += count,
                Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => return all,
                Err(error) => panic!("after {all} bytes: {error}"),
            }
        }
    }

    /// A client's way into transmission.
    #[track_caller]
    pub fn shake_hands(&mut self, structured: bool) {
        self.hear(18);
        self.say(&3u32.to_be_bytes());
        if structured {
            self.say(&option(opt::STRUCTURED_REPLY, &[]));
            assert_eq!(self.option_reply(), wire::rep::ACK);
            self.say(&meta(opt::SET_META_CONTEXT));
            assert_eq!(self.option_reply(), wire::rep::META_CONTEXT);
            assert_eq!(self.option_reply(), wire::rep::ACK);
        }
        self.say(&go());
        for reply in [wire::rep::INFO, wire::rep::INFO, wire::rep::ACK] {
            assert_eq!(self.option_reply(), reply);
        }
    }

    /// The type of the next reply to an option.
    #[track_caller]
    pub fn option_reply(&mut self) -> u32 {
        let header = self.hear(20);
        let word = |at: usize| u32::from_be_bytes(header[at..at + 4].try_into().unwrap());
        self.hear(word(16) as usize);
        word(12)
    }

    /// The error of the next reply, and its data.
    #[track_caller]
    pub fn reply(&mut self, data: usize) -> (u32, Vec<u8>) {
        let magic = u32::from_be_bytes(self.hear(4).try_into().unwrap());
        if magic == wire::SIMPLE_REPLY {
            let error = u32::from_be_bytes(self.hear(4).try_into().unwrap());
            self.hear(8);
            return (error, if error == 0 { self.hear(data) } else { Vec::new() });
        }
        assert_eq!(magic, wire::STRUCTURED_REPLY);
        let head = self.hear(16);
        let len = u32::from_be_bytes(head[12..].try_into().unwrap());
        let body = self.hear(len as usize);
        match u16::from_be_bytes(head[2..4].try_into().unwrap()) {
            wire::chunk::ERROR => (u32::from_be_bytes(body[..4].try_into().unwrap()), Vec::new()),
            wire::chunk::OFFSET_DATA => (0, body[8..].to_vec()),
            _ => (0, body),
        }
    }
}

pub fn option(kind: u32, data: &[u8]) -> Vec<u8> {
    let mut bytes = wire::IHAVEOPT.to_be_bytes().to_vec();
    bytes.extend(kind.to_be_bytes());
    bytes.extend((data.len() as u32).to_be_bytes());
    bytes.extend(data);
    bytes
}

pub fn go() -> Vec<u8> {
    option(opt::GO, &[&4u32.to_be_bytes()[..], b"disk", &[0, 0]].concat())
}

pub fn meta(kind: u32) -> Vec<u8> {
    let context = b"base:allocation";
    let lens = [4u32, 1, context.len() as u32].map(u32::to_be_bytes);
    option(kind, &[&lens[0][..], b"disk", &lens[1], &lens[2], context].concat())
}

pub fn request(flags: u16, kind: u16, offset: u64, len: u32) -> Vec<u8> {
    Request { flags, kind, cookie: 0x1234_5678, offset, len }.emit().to_vec()
}

/// Changes, cuts, doubles or makes up a few bytes.
pub fn mutate(rng: &mut Rng, bytes: &mut Vec<u8>) {
    for _ in 0..=rng.below(4) {
        let at = rng.below(bytes.len().max(1) as u64) as usize;
        let until = (at + 1 + rng.below(24) as usize).min(bytes.len());
        match rng.below(6) {
            _ if bytes.is_empty() => bytes.push(rng.below(256) as u8),
            0 => bytes[at] ^= 1 << rng.below(8),
            1 => rng.fill(&mut bytes[at..until]),
            2 => drop(bytes.drain(at..until)),
            3 => {
                let again = bytes[at..until].to_vec();
                bytes.splice(at..at, again);
            }
            4 => bytes[at..until].fill([0, 0xff][rng.below(2) as usize]),
            _ => bytes.truncate(at),
        }
    }
}
