//! Our client against servers that say what they like.

use std::io::{Read, Write};
use std::os::unix::net::UnixListener;

use base::{Nanos, Rng, Sector};
use block::{Queue, QueueConfig};
use device::nbd::wire::{self, info, opt, rep};
use device::nbd::{Patience, connect_patiently};
use rt::Runtime;

use crate::raw::{Raw, mutate};

const LONG: Nanos = Nanos::from_secs(240);
const SHORT: Nanos = Nanos::from_millis(40);

/// What a server does after its words.
#[derive(Clone, Copy, PartialEq)]
enum Then {
    Closes,
    /// The same, also where no request comes: a client may wait for more of the handshake.
    ClosesSoon,
    IsSilent,
}

/// Bytes of a client of ours up to its first request, and with it.
const ASKED: usize = 4 + 16 + 12 + wire::REQUEST_BYTES;

/// Connects to a server that says the first words, whatever is said to it, and the second when a
/// request has come; reads, and answers the first error.
fn read_from(
    (hands, replies): (&[u8], &[u8]),
    then: Then,
    patience: Patience,
) -> Result<Vec<u8>, String> {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("s");
    let listener = UnixListener::bind(&path).unwrap();
    let (hands, replies) = (hands.to_vec(), replies.to_vec());
    let server = std::thread::spawn(move || {
        let mut raw = Raw::new(listener.accept().unwrap().0);
        let _hung_up = raw.0.write_all(&hands);
        if then == Then::ClosesSoon {
            raw.0.set_read_timeout(Some(std::time::Duration::from_millis(30))).unwrap();
        }
        if !replies.is_empty() && raw.0.read_exact(&mut [0; ASKED]).is_ok() {
            let _hung_up = raw.0.write_all(&replies);
        }
        let mut raw = Raw::new(raw.0);
        if then != Then::IsSilent {
            let _hung_up = raw.0.shutdown(std::net::Shutdown::Write);
        }
        raw.rest();
    });
    let url = format!("nbd+unix:///disk?socket={}", path.display());
    let found = connect_patiently(&url, false, patience).map_err(|error| error.to_string());
    let found = found.and_then(|device| {
        Runtime::real(2).enter("client", |cx| {
            let queue = Queue::new(cx.runtime(), device, QueueConfig::default());
            let queue = queue.map_err(|error| format!("{error:?}"))?;
            let read = queue.read(cx, Sector(0), 4096);
            read.map(|page| page.to_vec()).map_err(|error| error.to_string())
        })
    });
    server.join().unwrap();
    found
}

fn greeting() -> Vec<u8> {
    [&wire::NBDMAGIC.to_be_bytes()[..], &wire::IHAVEOPT.to_be_bytes(), &[0, 3]].concat()
}

fn reply(kind: u32, data: &[u8]) -> Vec<u8> {
    let words = [opt::GO, kind, data.len() as u32].map(u32::to_be_bytes).concat();
    [&wire::OPTION_REPLY.to_be_bytes()[..], &words, data].concat()
}

fn export(size: u64) -> Vec<u8> {
    let data = [&info::EXPORT.to_be_bytes()[..], &size.to_be_bytes(), &3u16.to_be_bytes()];
    reply(rep::INFO, &data.concat())
}

fn blocks(sizes: [u32; 3]) -> Vec<u8> {
    reply(rep::INFO, &[&[0, 3][..], &sizes.map(u32::to_be_bytes).concat()].concat())
}

fn hands() -> Vec<u8> {
    [greeting(), export(1 << 20), reply(rep::ACK, &[])].concat()
}

/// Cookies of a client begin with 1.
fn answer(cookie: u64, error: u32, data: &[u8]) -> Vec<u8> {
    [&wire::simple_reply(cookie, error)[..], data].concat()
}

#[test]
fn a_server_that_keeps_to_the_protocol_is_read() {
    let patience = Patience { handshake: LONG, answer: LONG };
    let read = read_from((&hands(), &answer(1, 0, &[7; 4096])), Then::IsSilent, patience).unwrap();
    assert!(read == [7; 4096]);
}

#[test]
fn a_server_that_does_not_is_told_in_one_error() {
    let endless = [greeting(), export(512).repeat(300), reply(rep::ACK, &[])].concat();
    let mut long = [greeting(), reply(rep::INFO, &[])].concat();
    let at = long.len() - 4;
    long[at..].fill(0xff);
    let other = [&wire::OPTION_REPLY.to_be_bytes()[..], &[0; 12]].concat();
    let cases = [
        (vec![], "closes the connection"),
        (b"HTTP/1.1 400 Bad Request\r\n".to_vec(), "no newstyle NBD server"),
        ([&greeting()[..16], &[0, 0]].concat(), "older than fixed newstyle"),
        (greeting(), "closes the connection"),
        ([greeting(), other].concat(), "damaged"),
        (long, "damaged"),
        (endless, "do not end"),
        ([greeting(), reply(rep::ACK, &[])].concat(), "does not send the size"),
        ([greeting(), reply(rep::INFO, &[0]), reply(rep::ACK, &[])].concat(), "send the size"),
        ([greeting(), export(u64::MAX), reply(rep::ACK, &[])].concat(), "bytes cannot be"),
        ([greeting(), export(0), reply(rep::ACK, &[])].concat(), "less than one block"),
        (
            [greeting(), export(1 << 30), blocks([3000, 4, 5]), reply(rep::ACK, &[])].concat(),
            "blocks of 3000 bytes",
        ),
        (
            [greeting(), export(1 << 30), blocks([1 << 31, 4, 5]), reply(rep::ACK, &[])].concat(),
            "blocks of 2147483648 bytes",
        ),
        (
            [greeting(), reply(rep::ERR_POLICY, b"go \x1b[31maway")].concat(),
            "policy): go  [31maway",
        ),
        ([greeting(), reply(rep::ERR_TLS_REQD, b"")].concat(), "it wants TLS"),
        (hands(), "input/output error"),
    ];
    for (words, told) in cases {
        is_told((&words, &[]), told);
    }
    for (replies, told) in [
        (vec![0; 16], "input/output error"),
        (answer(99, 0, &[]), "input/output error"),
        (answer(1, 5, &[]), "input/output error"),
        (answer(1, 0xdead, &[]), "input/output error"),
        (answer(1, 22, &[]), "Invalid argument"),
        (answer(1, 0, &[7; 4095]), "input/output error"),
        (wire::chunk_header(1, 1, 1, 8).to_vec(), "input/output error"),
    ] {
        is_told((&hands(), &replies), told);
    }
}

#[track_caller]
fn is_told(words: (&[u8], &[u8]), told: &str) {
    let patience = Patience { handshake: LONG, answer: LONG };
    let error = read_from(words, Then::Closes, patience).expect_err(told);
    assert!(error.contains(told), "{error}, not {told}");
    assert!(!error.contains('\x1b'), "{error:?}");
}

/// Silence in the handshake, before an answer, and in the middle of one.
#[test]
fn a_server_that_falls_silent_is_given_up() {
    let half = answer(1, 0, &[7; 1000]);
    for (words, replies, handshake, answer, told) in [
        (vec![], vec![], SHORT, LONG, "says nothing"),
        (greeting(), vec![], SHORT, LONG, "says nothing"),
        (hands(), vec![], LONG, SHORT, "timed out"),
        (hands(), half, LONG, SHORT, "timed out"),
    ] {
        let patience = Patience { handshake, answer };
        let error = read_from((&words, &replies), Then::IsSilent, patience).expect_err(told);
        assert!(error.to_lowercase().contains(told), "{error}, not {told}");
    }
}

/// Whatever a server says before it closes, the client comes to an end.
#[test]
fn damaged_servers_do_no_harm() {
    let asked = std::env::var("IOPATH_SEEDS").ok().and_then(|text| text.parse().ok());
    for seed in 0..asked.unwrap_or(60) {
        let mut rng = Rng::new(seed, 78);
        let (mut hands, mut replies) = (hands(), answer(1, 0, &[]));
        match rng.below(2) {
            0 => mutate(&mut rng, &mut hands),
            _ => mutate(&mut rng, &mut replies),
        }
        replies.extend([7; 4096]);
        let patience = Patience { handshake: LONG, answer: LONG };
        let _either = read_from((&hands, &replies), Then::ClosesSoon, patience);
    }
}
