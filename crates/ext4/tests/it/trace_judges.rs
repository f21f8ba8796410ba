//! Traces as the field's tools see them: blkparse, btt and fio read what we write of a run of ext4
//! with fsyncs, a reader, merges, flushes, cuts and a barrier; a decoder of its own reads what is
//! for Perfetto.

use crate::support::{Cell, FLASH, SAFE_FLASH, create};
use base::{Page, Sector};
use block::trace::{Format, Lives, ProcessNames, Summary, write_all};
use block::{BioFlags, Op, Queue, QueueConfig, TraceEvent, TraceKind};
use cache::{PageCache, PageCacheConfig};
use ext4::{Ext4, MountOptions};
use model::Profile;
use rt::Cx;
use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use vfs::FileSystem;

/// One trace of everything that the block layer does; `plain`: without flushes and discards.
fn record(plain: bool) -> (Vec<TraceEvent>, ProcessNames) {
    rt::testing::world(|cx| {
        let memory = Cell::new("ext4", 4096).journal(4096).fresh(cx, 64 << 20);
        let mut machine = Profile::built_in(if plain { SAFE_FLASH } else { FLASH });
        machine.queue.depth = 4;
        let device = machine.device(cx.runtime(), memory).expect("flash of any size");
        let config = QueueConfig { trace_events: 1 << 20, ..QueueConfig::elevator("deadline") };
        let queue = Queue::new(cx.runtime(), device, config).expect("a queue");
        let pages = PageCache::new(cx.runtime(), PageCacheConfig::with_limit(64 << 20));
        let fs = Ext4::mount(cx, &queue, &pages, MountOptions::default()).expect("mounts");
        work(cx, &fs, &queue);
        if !plain {
            by_hand(cx, &queue);
        }
        fs.unmount(cx).expect("unmounts");
        let (mut events, lost) = queue.take_trace();
        assert_eq!(lost, 0);
        // What an elevator with a mind of its own would have said.
        let note = TraceEvent {
            sector: Sector(8_000_000),
            count: block::elevator::NoteKind::IdleArmed as u64,
            ioc: 7,
            ..TraceEvent::blank(events[5].time, TraceKind::Message)
        };
        events.insert(6, note);
        (events, queue.task_names())
    })
}

fn work(cx: &mut Cx, fs: &Arc<Ext4>, queue: &Arc<Queue>) {
    let reads = queue.clone();
    let reader = cx.spawn("reader", move |cx| {
        for block in 0..200 {
            reads.read(cx, Sector(block * 8), 4096).expect("read");
        }
    });
    let writer = {
        let fs = fs.clone();
        cx.spawn("writer", move |cx| {
            for index in 0..10 {
                let ino = create(cx, &*fs, fs.root(), &format!("file {index}"));
                fs.write(cx, ino, 0, &[index; 65536]).expect("written");
                fs.fsync(cx, ino, false).expect("durable");
            }
        })
    };
    let ino = create(cx, &**fs, fs.root(), "large");
    for chunk in 0..40 {
        fs.write(cx, ino, chunk * 65536, &[9; 65536]).expect("written");
    }
    fs.sync(cx).expect("synced");
    reader.join(cx);
    writer.join(cx);
}

/// Past the file system's blocks in use: what is cut, drained, given back and flushed.
fn by_hand(cx: &mut Cx, queue: &Arc<Queue>) {
    let free = Sector(queue.info().sectors - 8192);
    let big = Page::zeroed(3 << 20);
    queue.write(cx, free, big, BioFlags::empty()).expect("written");
    let small = Page::zeroed(4096);
    queue.write(cx, free, small, BioFlags::BARRIER | BioFlags::FUA).expect("written");
    queue.discard(cx, free, 64).expect("discarded");
    queue.flush(cx).expect("flushed");
}

/// Runs a tool in `dir` and answers what it printed.
fn tool(dir: &Path, name: &str, args: &[&str]) -> String {
    let out = Command::new(name).args(args).current_dir(dir).env("LC_ALL", "C").output();
    let out = out.unwrap_or_else(|error| {
        panic!("{name}: {error}; install it with: apt-get install -y blktrace fio")
    });
    let text = String::from_utf8_lossy(&out.stdout).into_owned();
    let errors = String::from_utf8_lossy(&out.stderr);
    assert!(out.status.success(), "{name} {args:?}: {text}{errors}");
    text + &errors
}

/// A directory with all formats.
fn written(plain: bool, formats: &[Format]) -> (tempfile::TempDir, Vec<TraceEvent>, ProcessNames) {
    let dir = tempfile::tempdir().expect("a directory");
    let (events, names) = record(plain);
    write_all(dir.path(), formats, &events, &names).expect("written");
    (dir, events, names)
}

/// Goal: blkparse reads every record of every processor's file, and prints what our text says.
#[test]
fn blkparse_prints_our_text() {
    let (dir, events, _) = written(false, &[Format::Blktrace, Format::Text]);
    assert!(dir.path().join("trace.blktrace.1").exists(), "more than one processor");
    let out = tool(dir.path(), "blkparse", &["-i", "trace"]);
    assert!(!out.contains("error"), "{}", out.lines().take(20).collect::<Vec<_>>().join("\n"));
    let theirs: Vec<&str> = out.lines().take_while(|line| !line.starts_with("CPU")).collect();
    let text = std::fs::read_to_string(dir.path().join("trace.txt")).expect("our text");
    let ours: Vec<&str> = text.lines().collect();
    // Events of one time may come in another order: processors are merged.
    let sorted = |lines: &[&str]| {
        let mut lines: Vec<String> = lines.iter().map(|line| line.trim_end().to_owned()).collect();
        lines.sort_unstable();
        lines
    };
    let (theirs, ours) = (sorted(&theirs), sorted(&ours));
    for (their, our) in theirs.iter().zip(&ours) {
        assert_eq!(their, our);
    }
    assert_eq!(ours.len(), theirs.len());
    assert_eq!(ours.len(), events.len());
    for letter in "QGIDCMPUXm".chars() {
        let found = events.iter().any(|event| event.kind as u8 as char == letter);
        assert!(found, "the trace has no {letter}");
    }
    assert!(out.contains("Reads Queued:         "), "the summary follows");
}

/// Rows of the table that btt prints for all devices: mean in seconds, count.
fn btt_table(text: &str) -> BTreeMap<String, (f64, u64)> {
    let rows = text.lines().skip_while(|line| !line.contains("All Devices")).skip(5);
    let row = |line: &str| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let [name, _, mean, _, count] = words[..] else { return None };
        Some((name.to_owned(), (mean.parse().ok()?, count.parse().ok()?)))
    };
    rows.map_while(row).collect()
}

/// Goal: btt pairs our events as our own summary does: the same bios, the same mean times.
#[test]
fn btt_computes_our_summary() {
    let (dir, events, _) = written(true, &[Format::Blktrace]);
    let out = tool(dir.path(), "btt", &["-i", "trace.bin"]);
    let table = btt_table(&out);
    let summary = Summary::of(&events);
    let bios: u64 = summary.ops.values().map(|op| op.bios).sum();
    let total = |pick: fn(&block::trace::OpSummary) -> &block::LatencyHistogram| {
        let sum = |op| u128::from(pick(op).mean().0) * u128::from(pick(op).count());
        summary.ops.values().map(sum).sum::<u128>() as f64 / 1e9
    };
    let (q2c, count) = table["Q2C"];
    assert_eq!(count, bios, "{out}");
    let ours = total(|op| &op.q2c) / bios as f64;
    assert!((q2c - ours).abs() <= ours * 1e-3, "Q2C: btt {q2c}, we {ours}\n{summary}\n{out}");
    // btt counts the device's time once for each bio of a request, we once for each request.
    let (d2c, _) = table["D2C"];
    let per_bio: f64 = (total(|op| &op.q2c) - total(|op| &op.q2d)) / bios as f64;
    assert!((d2c - per_bio).abs() <= per_bio * 1e-3, "D2C: btt {d2c}, we {per_bio}\n{out}");
    let merges: u64 = summary.ops.values().map(|op| op.merges).sum();
    assert_eq!(table["Q2M"].1, merges);
}

/// Goal: fio replays each of our files: as many reads and writes as were queued. (It trims only
/// block devices, so the trace has no discards.)
#[test]
fn fio_replays_what_was_queued() {
    let (dir, events, _) = written(true, &[Format::Blktrace, Format::Iolog]);
    let target = dir.path().join("disk");
    std::fs::File::create(&target).and_then(|f| f.set_len(64 << 20)).expect("a target");
    let count = |op| {
        let queued = |e: &&TraceEvent| e.kind == TraceKind::Queued && e.op == op;
        events.iter().filter(queued).count()
    };
    let (reads, writes) = (count(Op::Read), count(Op::Write));
    for log in ["trace.bin", "trace.iolog", "trace.iolog2"] {
        let args = [
            "--name=replay",
            &format!("--read_iolog={log}"),
            &format!("--replay_redirect={}", target.display()),
            "--replay_no_stall=1",
        ];
        let out = tool(dir.path(), "fio", &args);
        let wanted = format!("issued rwts: total={reads},{writes},0,");
        assert!(out.contains(&wanted), "{log}: {wanted}\n{out}");
        assert!(out.contains("err= 0"), "{log}: {out}");
    }
}

/// A field of a protocol buffer: number and value. Knows the wire format and nothing else.
enum Field {
    Number(u64),
    Bytes(Vec<u8>),
}

/// The fields of a message.
fn decode(mut raw: &[u8]) -> Vec<(u64, Field)> {
    fn varint(raw: &mut &[u8]) -> u64 {
        let (mut value, mut shift) = (0, 0);
        loop {
            let byte = raw[0];
            *raw = &raw[1..];
            value |= u64::from(byte & 0x7f) << shift;
            shift += 7;
            if byte < 0x80 {
                return value;
            }
        }
    }
    let mut fields = Vec::new();
    while !raw.is_empty() {
        let key = varint(&mut raw);
        let value = match key & 7 {
            0 => Field::Number(varint(&mut raw)),
            1 => {
                let (word, rest) = raw.split_at(8);
                raw = rest;
                Field::Number(u64::from_le_bytes(word.try_into().expect("eight bytes")))
            }
            2 => {
                let len = varint(&mut raw) as usize;
                let (bytes, rest) = raw.split_at(len);
                raw = rest;
                Field::Bytes(bytes.to_vec())
            }
            other => panic!("wire type {other}"),
        };
        fields.push((key >> 3, value));
    }
    fields
}

fn number(message: &[(u64, Field)], field: u64) -> Option<u64> {
    message.iter().find_map(|(number, value)| match value {
        Field::Number(value) if *number == field => Some(*value),
        _ => None,
    })
}

fn inside(message: &[(u64, Field)], field: u64) -> Option<Vec<u8>> {
    message.iter().find_map(|(number, value)| match value {
        Field::Bytes(bytes) if *number == field => Some(bytes.clone()),
        _ => None,
    })
}

/// What the events of a Perfetto trace come to.
#[derive(Default)]
struct Tracks {
    names: BTreeMap<u64, String>,
    parents: BTreeMap<u64, u64>,
    open: BTreeMap<u64, u64>,
    slices: BTreeMap<u64, u64>,
    counters: BTreeMap<u64, Vec<u64>>,
    flows_out: Vec<u64>,
    flows_in: Vec<u64>,
    instants: Vec<String>,
    last: u64,
}

impl Tracks {
    fn packet(&mut self, index: usize, raw: &[u8]) {
        let packet = decode(raw);
        assert_eq!(number(&packet, 10), Some(1), "one sequence");
        assert_eq!(number(&packet, 13), (index == 0).then_some(1), "state cleared at first");
        if let Some(track) = inside(&packet, 60) {
            let track = decode(&track);
            let uuid = number(&track, 1).expect("a track has a name");
            let name = String::from_utf8(inside(&track, 2).expect("and a title")).expect("utf-8");
            assert!(self.names.insert(uuid, name).is_none(), "track {uuid} is described twice");
            if let Some(parent) = number(&track, 5) {
                assert!(self.names.contains_key(&parent), "a parent comes first");
                self.parents.insert(uuid, parent);
            }
            return;
        }
        let time = number(&packet, 8).expect("an event has a time");
        assert!(time >= self.last, "in the order of time");
        self.last = time;
        self.event(&decode(&inside(&packet, 11).expect("an event or a track")));
    }

    fn event(&mut self, event: &[(u64, Field)]) {
        let track = number(event, 11).expect("an event has a track");
        assert!(self.names.contains_key(&track), "track {track} is described before use");
        self.flows_out.extend(number(event, 47));
        self.flows_in.extend(number(event, 48));
        match number(event, 9) {
            Some(1) => {
                assert!(self.open.insert(track, 1).is_none(), "slices of {track} overlap");
                *self.slices.entry(track).or_default() += 1;
            }
            Some(2) => assert!(self.open.remove(&track).is_some(), "an end without a begin"),
            Some(3) => self
                .instants
                .push(String::from_utf8(inside(event, 23).expect("a name")).expect("utf-8")),
            Some(4) => self.counters.entry(track).or_default().extend(number(event, 30)),
            other => panic!("event type {other:?}"),
        }
    }
}

/// Goal: the Perfetto file holds a slice for every request and bio, without overlaps on a track,
/// flows from bios to requests, the counters and the elevator's words.
#[test]
fn perfetto_holds_every_bio_and_request() {
    let (dir, events, _) = written(false, &[Format::Perfetto]);
    let raw = std::fs::read(dir.path().join("trace.pftrace")).expect("the trace");
    let mut tracks = Tracks::default();
    for (index, (field, packet)) in decode(&raw).into_iter().enumerate() {
        let Field::Bytes(packet) = packet else { panic!("field {field} of a trace") };
        assert_eq!(field, 1);
        tracks.packet(index, &packet);
    }
    assert!(tracks.open.is_empty(), "slices without an end");
    let (summary, lives) = (Summary::of(&events), Lives::of(&events));
    let under = |name: &str| -> u64 {
        let of = |uuid: &u64| tracks.parents.get(uuid).map(|parent| tracks.names[parent].as_str());
        tracks.slices.iter().filter(|(uuid, _)| of(uuid) == Some(name)).map(|(_, n)| n).sum()
    };
    let finished = lives.requests.iter().filter(|life| life.dispatched.is_some()).count();
    assert_eq!(under("block device"), finished as u64);
    let bios: u64 = ["main", "reader", "writer", "jbd2", "flusher"].into_iter().map(under).sum();
    let all: u64 = summary.ops.values().map(|op| op.q2c.count()).sum();
    assert_eq!(bios, all, "{:?}", tracks.names);
    let by_name = |name: &str| {
        let found = tracks.names.iter().find(|(_, title)| *title == name);
        tracks.counters[found.expect("a counter").0].iter().copied().max()
    };
    assert_eq!(by_name("requests in the device"), Some(summary.depth_max));
    assert_eq!(tracks.instants, ["idle_armed"]);
    assert_eq!(tracks.flows_out.len() as u64, bios - summary.ops[&Op::Flush].bios);
    assert!(tracks.flows_out.iter().all(|flow| tracks.flows_in.contains(flow)));
}

/// Goal: the lives of a trace are whole: every bio has its request, every request its times in
/// order, and the bytes of the bios are those of the requests.
#[test]
fn every_bio_finds_its_request() {
    for plain in [false, true] {
        let (events, names) = record(plain);
        let lives = Lives::of(&events);
        let mut bytes = BTreeMap::<Op, (u64, u64)>::new();
        for bio in &lives.bios {
            let request = lives.request_of(bio).unwrap_or_else(|| panic!("{:?}", bio.queued));
            assert_eq!(request.op, bio.queued.op);
            if request.op != Op::Flush {
                assert!(request.dispatched >= Some(bio.queued.time), "{request:?}");
            }
            assert!(request.completed >= request.dispatched, "{request:?}");
            bytes.entry(request.op).or_default().0 += bio.queued.count;
            assert_ne!(names.name(bio.queued.task), "unknown");
        }
        for request in &lives.requests {
            bytes.entry(request.op).or_default().1 += request.count;
            let of_bios: u64 = request.bios.iter().map(|&bio| lives.bios[bio].queued.count).sum();
            assert_eq!(of_bios, request.count, "{request:?}");
        }
        assert!(bytes.values().all(|(of_bios, of_requests)| of_bios == of_requests), "{bytes:?}");
        assert_eq!(Summary::of(&events).unfinished, 0);
    }
}
