//! Traces of every sort that is read, and their replay on a modelled machine.

use std::path::PathBuf;

use base::Nanos;
use block::{BioFlags, Op};
use lab::replay::{Io, Pace, Setup, Trace, play, read};
use model::Profile;

/// A record of blktrace: version and byte order, time in us, event and category, process, sector,
/// bytes, payload.
struct Raw<'a> {
    version: u8,
    little: bool,
    time: u64,
    action: u32,
    pid: u32,
    device: u32,
    sector: u64,
    bytes: u32,
    payload: &'a [u8],
}

const SDA: u32 = 8 << 20;
const SDB: u32 = 8 << 20 | 16;
const READ: u32 = 1 << 16;
const WRITE: u32 = 1 << 17;
const SYNC: u32 = 1 << 19;
const NOTIFY: u32 = 1 << 26;
const OF_GROUP: u32 = 1 << 8;

impl Raw<'_> {
    fn put(&self, out: &mut Vec<u8>) {
        let mut word = |value: u64, len: usize| match self.little {
            true => out.extend_from_slice(&value.to_le_bytes()[..len]),
            false => out.extend_from_slice(&value.to_be_bytes()[8 - len..]),
        };
        word(u64::from(0x6561_7400 | u32::from(self.version)), 4);
        word(self.time, 4);
        word(self.time * 1000, 8);
        word(self.sector, 8);
        word(u64::from(self.bytes), 4);
        if self.version == 8 {
            word(u64::from(self.pid), 4);
            word(u64::from(self.action), 8);
        } else {
            word(u64::from(self.action), 4);
            word(u64::from(self.pid), 4);
        }
        word(u64::from(self.device), 4);
        word(0, 4);
        word(0, 2);
        word(self.payload.len() as u64, 2);
        if self.version == 8 {
            word(0, 8);
            word(0, 4);
        }
        out.extend_from_slice(self.payload);
    }
}

fn trace_of(version: u8, little: bool) -> Vec<u8> {
    let mut out = Vec::new();
    let mut put = |time, action, pid, device, sector, bytes, payload: &[u8]| {
        Raw { version, little, time, action, pid, device, sector, bytes, payload }.put(&mut out);
    };
    put(0, NOTIFY, 7, 0, 0, 0, b"writer\0\0\0\0\0\0\0\0\0\0");
    put(10, WRITE | SYNC | 1, 7, SDA, 800, 4096, &[]);
    // From a group: the id of the group is in front, and the bit is no part of the event.
    put(15, READ | OF_GROUP | 1, 9, SDA, 2048, 8192, &[1; 8]);
    put(16, READ | 1, 9, SDB, 0, 512, &[]);
    put(20, WRITE | SYNC | 7, 0, SDA, 800, 4096, &[]);
    put(900, WRITE | SYNC | 8, 0, SDA, 800, 4096, &[]);
    put(950, READ | 8, 0, SDA, 2048, 8192, &[]);
    out
}

fn in_file(name: &str, bytes: &[u8]) -> (tempfile::TempDir, Vec<PathBuf>) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join(name);
    std::fs::write(&path, bytes).unwrap();
    (folder, vec![path])
}

fn read_bytes(bytes: &[u8]) -> Result<Trace, String> {
    let (_folder, files) = in_file("t", bytes);
    read(&files, None)
}

fn wanted() -> Vec<Io> {
    let us = Nanos::from_micros;
    let flags = BioFlags::SYNC;
    vec![
        Io { at: us(0), pid: 7, op: Op::Write, sector: 800, count: 8, flags, done: Some(us(890)) },
        Io {
            at: us(5),
            pid: 9,
            op: Op::Read,
            sector: 2048,
            count: 16,
            flags: BioFlags::empty(),
            done: Some(us(940)),
        },
    ]
}

#[test]
fn records_of_both_versions_and_byte_orders_are_read() {
    for (version, little) in [(7, true), (7, false), (8, true), (8, false)] {
        let trace = read_bytes(&trace_of(version, little)).unwrap();
        assert_eq!(trace.ios, wanted(), "version {version}, little-endian {little}");
        assert_eq!(trace.names.get(&7).map(String::as_str), Some("writer"));
        assert_eq!(trace.notes, ["device 8,0 of 8,0 8,16"]);
    }
    // A record that is torn at the end is left out and named.
    let whole = trace_of(7, true);
    let torn = read_bytes(&whole[..whole.len() - 5]).unwrap();
    assert_eq!((torn.ios.len(), torn.ios[1].done), (2, None));
    assert!(torn.notes.iter().any(|note| note.contains("ends inside of a record")));
    let (_folder, files) = in_file("t.blktrace.3", &whole);
    let name = files[0].to_str().unwrap().strip_suffix(".blktrace.3").unwrap();
    assert_eq!(read(&[PathBuf::from(name)], None).unwrap().ios, wanted());
    let other = read(&files, Some((8, 16))).unwrap();
    assert_eq!((other.ios.len(), other.ios[0].count), (1, 1));
}

#[test]
fn text_of_blkparse_and_lists_of_fio_are_read() {
    let text = "  8,0    0        1     0.000010000     7  Q  WS 800 + 8 [writer]\n\
                8,0    0        2     0.000015000     9  Q   R 2048 + 16 [reader]\n\
                8,0    0        3     0.000020000     0  D  WS 800 + 8 [swapper]\n\
                8,0    0        4     0.000030000     7  P   N [writer]\n\
                8,0    1        5     0.000900000     0  C  WS 800 + 8 [0]\n\
                8,0    1        6     0.000950000     0  C   R 2048 + 16 [0]\n\
                CPU0 (t):\n";
    let trace = read_bytes(text.as_bytes()).unwrap();
    assert_eq!(trace.ios, wanted());
    assert!(trace.notes[0].contains("2 lines that are no Q, D or C"), "{:?}", trace.notes);
    let folder = tempfile::tempdir().unwrap();
    let list = |name: &str, text: &str| {
        let path = folder.path().join(name);
        std::fs::write(&path, text).unwrap();
        path
    };
    let three = list(
        "a",
        "fio version 3 iolog\n5 f add\n9 f write 4096 8192\n20 g read 0 512\n30 f sync 0 0\n",
    );
    let two =
        list("b", "fio version 2 iolog\nf add\nf read 0 4096\nwait 100\nf read 1048576 4096\n");
    let trace = read(&[three, two], None).unwrap();
    let what = |io: &Io| (io.at.0 / 1000, io.pid, io.op, io.sector, io.count);
    // `f` needs 1 MiB and 4 KiB, so `g` begins at 2 MiB. The first operation is at 0.
    let found: Vec<_> = trace.ios.iter().map(what).collect();
    assert_eq!(
        found,
        [
            (0, 2, Op::Read, 0, 8),
            (9, 1, Op::Write, 8, 16),
            (20, 1, Op::Read, 4096, 1),
            (30, 1, Op::Flush, 0, 0),
            (100, 2, Op::Read, 2048, 8),
        ]
    );
}

#[test]
fn what_is_no_trace_is_named() {
    for (bytes, message) in [
        (&b"hello\n"[..], "neither blktrace, nor text of blkparse, nor a list of fio"),
        (b"", "neither blktrace"),
        (b"fio version 2 iolog\nf dance 0 1\n", ":2: `dance` is not an action"),
        (b"fio version 2 iolog\n", "no operation"),
    ] {
        let error = read_bytes(bytes).unwrap_err();
        assert!(error.contains(message), "{error}");
    }
    let mut broken = trace_of(7, true);
    broken[48 + 16] = 0xff;
    let error = read_bytes(&broken).unwrap_err();
    assert!(error.contains("byte 64: no record of blktrace"), "{error}");
    let (_folder, files) = in_file("t", &trace_of(7, true));
    let error = read(&files, Some((9, 9))).unwrap_err();
    assert!(error.contains("device 9,9 is not in it; there are: 8,0 8,16"), "{error}");
    assert!(read(&[PathBuf::from("/no/such")], None).unwrap_err().contains("/no/such"));
}

fn replay(trace: &Trace, elevator: &str, pace: Pace) -> lab::replay::Outcome {
    on("disk-7200", trace, elevator, pace)
}

fn on(machine: &str, trace: &Trace, elevator: &str, pace: Pace) -> lab::replay::Outcome {
    let profile = Profile::load(machine).unwrap();
    let setup = Setup { profile: &profile, elevator, pace, scale: 1.0, seed: 1 };
    play(trace, &setup).unwrap()
}

/// Goal: an open replay keeps the trace's times and shows the backlog, a closed one waits for each
/// operation, a thinking one thinks as the trace did; equal replays have equal event hashes.
#[test]
fn paces_are_what_they_say() {
    let ms = Nanos::from_millis;
    // 100 reads far apart, one each millisecond: more than a disk can do.
    let io = |n: u64| Io {
        at: ms(n),
        pid: 1,
        op: Op::Read,
        sector: n * 7_919 % 1000 * 20_480,
        count: 8,
        flags: BioFlags::empty(),
        done: Some(ms(n) + Nanos::from_micros(500)),
    };
    let trace = Trace { ios: (0..100).map(io).collect(), ..Trace::default() };
    let open = replay(&trace, "none", Pace::Open);
    let closed = replay(&trace, "none", Pace::Closed);
    assert!(
        open.in_flight > 20 && closed.in_flight == 1,
        "{} {}",
        open.in_flight,
        closed.in_flight
    );
    let median = |outcome: &lab::replay::Outcome| outcome.processes[0].latency_ms[0];
    assert!(median(&open) > 5.0 * median(&closed), "{} {}", median(&open), median(&closed));
    // It thinks half a millisecond between two operations, which memory does not hide as a disk's
    // turns do.
    let at_once = on("ram", &trace, "none", Pace::Closed);
    let think = on("ram", &trace, "none", Pace::Think);
    let thought = think.seconds - at_once.seconds;
    assert!((0.049..0.051).contains(&thought), "{thought}");
    assert_eq!(closed.requests, 100);
    assert_eq!(replay(&trace, "none", Pace::Open).event_hash, open.event_hash);
    // A deep queue is where an elevator has something to choose from.
    let sorted = replay(&trace, "deadline", Pace::Open);
    assert_ne!((sorted.event_hash, sorted.requests), (open.event_hash, 0));
}

#[test]
fn processes_are_tasks_of_their_own_and_a_device_too_small_is_refused() {
    let mut ios = Vec::new();
    for n in 0..50u64 {
        for pid in [1, 2] {
            let (op, sector) =
                if pid == 1 { (Op::Read, n * 8) } else { (Op::Write, 900_000 + n * 8) };
            let at = Nanos::from_micros(n);
            ios.push(Io { at, pid, op, sector, count: 8, flags: BioFlags::SYNC, done: None });
        }
    }
    let mut trace = Trace { ios, ..Trace::default() };
    let both = replay(&trace, "cfq", Pace::Closed);
    let seen: Vec<_> = both.processes.iter().map(|one| (one.pid, one.ios, one.failed)).collect();
    assert_eq!((seen, both.in_flight), (vec![(1, 50, 0), (2, 50, 0)], 2));
    trace.ios[0].sector = 1 << 32;
    let profile = Profile::load("disk-7200").unwrap();
    let setup =
        Setup { profile: &profile, elevator: "none", pace: Pace::Open, scale: 1.0, seed: 1 };
    let error = play(&trace, &setup).unwrap_err();
    assert!(error.contains("do not fit on its device"), "{error}");
    let setup = Setup { elevator: "lift", ..setup };
    trace.ios[0].sector = 0;
    assert!(play(&trace, &setup).unwrap_err().contains("lift"));
}
