//! Our server against clients that say what they like.

use std::io::Write;
use std::net::Shutdown;

use base::{Nanos, Rng, Sector};
use block::{Queue, QueueConfig};
use device::nbd::wire::{cmd, opt, rep};
use device::nbd::{Limits, NbdError, connect};
use rt::Runtime;

use crate::raw::{Raw, SIZE, Site, go, meta, mutate, option, request};

const EPERM: u32 = 1;
const EINVAL: u32 = 22;
const ENOSPC: u32 = 28;

/// Our client reads what is served.
fn content(site: &Site) -> Result<Vec<u8>, NbdError> {
    Runtime::real(2).enter("client", |cx| {
        let device = connect(&site.url(), false)?;
        let queue = Queue::new(cx.runtime(), device, QueueConfig::default()).unwrap();
        Ok(queue.read(cx, Sector(0), SIZE).unwrap().to_vec())
    })
}

/// The last block.
const PAST: u64 = (SIZE - 512) as u64;

/// Requests with their flags, ranges and errors.
const WRONG: &[(u16, u16, u64, u32, u32)] = &[
    // Flags that do not belong to the request, or are not known.
    (cmd::NO_HOLE, cmd::READ, 0, 512, EINVAL),
    (cmd::DF, cmd::WRITE, 0, 512, EINVAL),
    (cmd::REQ_ONE, cmd::FLUSH, 0, 0, EINVAL),
    (cmd::NO_HOLE, cmd::TRIM, 0, 512, EINVAL),
    (1 << 4, cmd::WRITE_ZEROES, 0, 512, EINVAL),
    (1 << 5, cmd::WRITE, 0, 512, EINVAL),
    (1 << 15, cmd::BLOCK_STATUS, 0, 512, EINVAL),
    // Requests that are not known.
    (0, 5, 0, 512, EINVAL),
    (0, 8, 0, 512, EINVAL),
    (0, 0xffff, 0, 512, EINVAL),
    // Ranges.
    (0, cmd::READ, 0, 0, EINVAL),
    (0, cmd::WRITE, 0, 0, EINVAL),
    (0, cmd::TRIM, 0, 0, EINVAL),
    (0, cmd::WRITE_ZEROES, 0, 0, EINVAL),
    (0, cmd::BLOCK_STATUS, 0, 0, EINVAL),
    (0, cmd::READ, PAST, 1024, EINVAL),
    (0, cmd::READ, SIZE as u64, 512, EINVAL),
    (0, cmd::READ, u64::MAX, 512, EINVAL),
    (0, cmd::WRITE, PAST, 1024, ENOSPC),
    (0, cmd::WRITE, u64::MAX - 511, 512, ENOSPC),
    (0, cmd::WRITE_ZEROES, PAST, 1024, ENOSPC),
    (0, cmd::TRIM, PAST, 1024, EINVAL),
    (0, cmd::BLOCK_STATUS, PAST, 1024, EINVAL),
    (0, cmd::READ, 0, u32::MAX, EINVAL),
    (0, cmd::WRITE, 0, (32 << 20) + 512, ENOSPC),
    (0, cmd::FLUSH, 0, 512, EINVAL),
    (0, cmd::FLUSH, 512, 0, EINVAL),
    // Blocks.
    (0, cmd::READ, 1, 512, EINVAL),
    (0, cmd::WRITE, 0, 511, EINVAL),
    (0, cmd::TRIM, 100, 512, EINVAL),
    (0, cmd::WRITE_ZEROES, 512, 100, EINVAL),
];

/// What was not offered, does not belong to a request or lies outside is refused by the protocol's
/// number, with its data passed over; the connection goes on, and nothing has changed.
#[test]
fn requests_that_cannot_be_are_refused_one_by_one() {
    let site = Site::new(true, Limits::default());
    for structured in [false, true] {
        let mut raw = site.connect();
        raw.shake_hands(structured);
        for &(flags, kind, offset, len, error) in WRONG {
            raw.say(&request(flags, kind, offset, len));
            if kind == cmd::WRITE {
                raw.say(&vec![7; len as usize]);
            }
            let what = (structured, flags, kind, offset, len);
            assert_eq!(raw.reply(0).0, error, "{what:?}");
        }
        // DF, block status: only where they were settled.
        for (flags, kind) in [(cmd::DF, cmd::READ), (cmd::REQ_ONE, cmd::BLOCK_STATUS)] {
            raw.say(&request(flags, kind, PAST, 512));
            let (error, data) = raw.reply(512);
            assert_eq!(error, if structured { 0 } else { EINVAL });
            match kind {
                _ if !structured => {}
                cmd::READ => assert_eq!(data, site.content[SIZE - 512..]),
                // One context, one extent of 512 bytes of data.
                _ => assert_eq!(data, [[0, 0, 0, 1], [0, 0, 2, 0], [0; 4]].concat()),
            }
        }
        site.unchanged();
        // FUA may come with everything.
        for kind in [cmd::READ, cmd::FLUSH] {
            let len = if kind == cmd::READ { 512 } else { 0 };
            raw.say(&request(cmd::FUA, kind, 0, len));
            assert_eq!(raw.reply(len as usize), (0, vec![0; len as usize]));
        }
        raw.say(&request(0, cmd::DISC, 0, 0));
        assert_eq!(raw.rest(), 0);
    }
    let mut raw = site.connect();
    raw.shake_hands(false);
    let zeros = request(cmd::NO_HOLE | cmd::FUA, cmd::WRITE_ZEROES, SIZE as u64 / 2, 1 << 20);
    raw.say(&zeros);
    assert_eq!(raw.reply(0).0, 0);
    let mut expected = site.content.clone();
    expected[SIZE / 2..][..1 << 20].fill(0);
    assert!(std::fs::read(site.image()).unwrap() == expected);
    let held = std::os::unix::fs::MetadataExt::blocks(&site.image().metadata().unwrap()) * 512;
    assert!(held >= SIZE as u64 / 2, "zeros that were to be no hole: {held} bytes are left");
}

/// A read-only export refuses every change, and passes over its data.
#[test]
fn nothing_changes_a_read_only_export() {
    let site = Site::new(false, Limits::default());
    let mut raw = site.connect();
    raw.shake_hands(true);
    for kind in [cmd::WRITE, cmd::TRIM, cmd::WRITE_ZEROES] {
        raw.say(&request(0, kind, 0, 4096));
        if kind == cmd::WRITE {
            raw.say(&[7; 4096]);
        }
        assert_eq!(raw.reply(0).0, EPERM);
    }
    // Replies to what was asked before the end come yet; nothing is read behind it.
    raw.say(&[request(0, cmd::READ, 0, 1024), request(0, cmd::DISC, 0, 0), vec![9; 100]].concat());
    assert_eq!(raw.reply(1024).0, 0);
    raw.rest();
    site.unchanged();
}

/// One connection too many is told so in its handshake and may ask other things; when another
/// leaves it gets in. A client of ours makes do with what it gets.
#[test]
fn one_connection_too_many_is_refused_by_name() {
    let site = Site::new(false, Limits { connections: 1, ..Limits::default() });
    let mut first = site.connect();
    first.shake_hands(false);
    let mut second = site.connect();
    second.hear(18);
    second.say(&3u32.to_be_bytes());
    second.say(&[go(), option(opt::LIST, &[])].concat());
    for reply in [rep::ERR_POLICY, rep::SERVER, rep::ACK] {
        assert_eq!(second.option_reply(), reply);
    }
    let mut old = site.connect();
    old.hear(18);
    old.say(&[&3u32.to_be_bytes()[..], &option(opt::EXPORT_NAME, b"disk")].concat());
    assert_eq!(old.rest(), 0, "no reply of EXPORT_NAME can say no");
    let refused = connect(&site.url(), false).err().unwrap().to_string();
    assert!(refused.contains("too many connections are served already"), "{refused}");
    first.say(&request(0, cmd::DISC, 0, 0));
    first.rest();
    // Its place is free just after its connection.
    while {
        second.say(&go());
        second.option_reply() == rep::ERR_POLICY
    } {}
    drop(second);
    let found = loop {
        if let Ok(found) = content(&site) {
            break found;
        }
    };
    assert!(found == site.content);
}

/// Whoever says nothing, or says it too slowly, is left.
#[test]
fn a_handshake_ends_in_time() {
    let limits = Limits { handshake: Nanos::from_millis(30), ..Limits::default() };
    let site = Site::new(false, limits);
    let mut silent = site.connect();
    silent.hear(18);
    assert_eq!(silent.rest(), 0);
    let mut slow = site.connect();
    slow.hear(18);
    // A long option, byte by byte: every byte comes soon after the last.
    let begin = [&3u32.to_be_bytes()[..], &option(opt::INFO, &[0; 60_000])].concat();
    let gone = begin.iter().any(|byte| {
        std::thread::sleep(std::time::Duration::from_millis(1));
        slow.0.write_all(&[*byte]).is_err()
    });
    assert!(gone);
}

/// A session with all kinds of options and requests.
fn session(rng: &mut Rng) -> (Vec<u8>, Vec<u8>) {
    let mut hands = 3u32.to_be_bytes().to_vec();
    for _ in 0..rng.below(4) {
        hands.extend(match rng.below(6) {
            0 => option(opt::LIST, &[]),
            1 => option(opt::INFO, &[0; 6]),
            2 => meta(opt::LIST_META_CONTEXT),
            3 => option(opt::STARTTLS, &[]),
            4 => option(rng.below(14) as u32, &vec![1; rng.below(200) as usize]),
            _ => option(opt::STRUCTURED_REPLY, &[]),
        });
    }
    hands.extend(option(opt::STRUCTURED_REPLY, &[]));
    hands.extend(meta(opt::SET_META_CONTEXT));
    hands.extend(match rng.below(4) {
        0 => option(opt::EXPORT_NAME, b"disk"),
        _ => go(),
    });
    let mut requests = Vec::new();
    for _ in 0..rng.below(12) {
        let kinds = [cmd::READ, cmd::WRITE, cmd::FLUSH, cmd::TRIM, cmd::WRITE_ZEROES, 7, 5];
        let kind = kinds[rng.below(kinds.len() as u64) as usize];
        let len = if kind == cmd::FLUSH { 0 } else { 512 * (1 + rng.below(40)) };
        let offset = if kind == cmd::FLUSH { 0 } else { 512 * rng.below(SIZE as u64 / 512) };
        requests.extend(request(rng.below(2) as u16, kind, offset, len as u32));
        if kind == cmd::WRITE {
            requests.extend(vec![0x5a; len as usize]);
        }
    }
    (hands, requests)
}

/// One session with damage; answers when the server has closed.
fn damaged(site: &Site, seed: u64) {
    let mut rng = Rng::new(seed, 77);
    let (mut hands, mut requests) = session(&mut rng);
    match rng.below(4) {
        0 => {
            hands = vec![0; rng.below(3000) as usize];
            rng.fill(&mut hands);
        }
        1 => mutate(&mut rng, &mut hands),
        2 => mutate(&mut rng, &mut requests),
        _ => {
            mutate(&mut rng, &mut hands);
            mutate(&mut rng, &mut requests);
        }
    }
    let raw = site.connect();
    let mut talker = raw.0.try_clone().unwrap();
    let words = [hands, requests].concat();
    // It may hang up in the middle, and replies are read at the same time.
    let talking = std::thread::spawn(move || {
        let _hung_up = talker.write_all(&words);
        let _hung_up = talker.shutdown(Shutdown::Write);
    });
    Raw(raw.0).rest();
    talking.join().unwrap();
}

/// Damaged sessions, one after the other and some at once, end; they leak no place, change nothing
/// that is read-only, and the server serves the next client right.
#[test]
fn damaged_sessions_leave_server_and_image_alone() {
    let asked = std::env::var("IOPATH_SEEDS").ok().and_then(|text| text.parse().ok());
    let seeds: u64 = asked.unwrap_or(60);
    let limits = Limits { connections: 12, ..Limits::default() };
    let (fixed, open) = (Site::new(false, limits), Site::new(true, limits));
    for seed in 0..seeds {
        damaged(&fixed, seed);
        std::thread::scope(|scope| {
            for one in 0..3 {
                let open = &open;
                scope.spawn(move || damaged(open, seed * 3 + one));
            }
        });
        if seed % 20 == 19 || seed + 1 == seeds {
            assert!(content(&fixed).unwrap() == fixed.content, "seed {seed}");
            // What is well formed is carried out, damaged or not: it is what the image has.
            assert!(content(&open).unwrap() == std::fs::read(open.image()).unwrap(), "seed {seed}");
        }
    }
    fixed.unchanged();
    assert_eq!(std::fs::read(open.image()).unwrap().len(), SIZE);
}
