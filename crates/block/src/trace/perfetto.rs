//! A trace for the Perfetto UI (ui.perfetto.dev): what each task asked for, what the device did,
//! what the elevator said, and how much waited.
//!
//! Slices of one track must nest, and bios of one task overlap; so every task has as many lanes as
//! it had bios at once, and the device as many slots. A flow leads from each bio to its request in
//! the device. Source: the field numbers of perfetto's track_event protocol, as an interface.

mod wire;

use super::pair::{Lives, RequestLife};
use super::{ProcessNames, TraceEvent, TraceKind};
use crate::BioFlags;
use base::Nanos;
use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Write};
use wire::Message;

/// Fields of a packet.
mod packet {
    pub const TIMESTAMP: u32 = 8;
    pub const SEQUENCE: u32 = 10;
    pub const EVENT: u32 = 11;
    pub const FLAGS: u32 = 13;
    pub const TRACK: u32 = 60;
}

/// Names of tracks that are there once.
const DEVICE: u64 = 1;
const ELEVATOR: u64 = 2;
const WAITING: u64 = 3;
const IN_DEVICE: u64 = 4;
/// Slots of the device, and tasks with their lanes, begin here.
const SLOTS: u64 = 1 << 16;
const TASKS: u64 = 1 << 32;
/// Names that each task has for its lanes.
const LANES: u64 = 1 << 20;

const BEGIN: u64 = 1;
const END: u64 = 2;
const INSTANT: u64 = 3;
const COUNTER: u64 = 4;

/// Packets by time; at one time ends come before begins.
#[derive(Default)]
struct Packets {
    tracks: Vec<Message>,
    events: Vec<(Nanos, bool, Message)>,
}

/// Which lanes of a track are taken, and until when.
#[derive(Default)]
struct Lanes(Vec<Nanos>);

impl Lanes {
    /// A lane that is free from `from` on; taken until `to`. True where it is new.
    fn take(&mut self, from: Nanos, to: Nanos) -> (u64, bool) {
        let free = self.0.iter().position(|&until| until <= from);
        let at = free.unwrap_or(self.0.len());
        if free.is_none() {
            self.0.push(to);
        }
        self.0[at] = to;
        (at as u64, free.is_none())
    }
}

impl Packets {
    fn track(&mut self, uuid: u64, parent: Option<u64>, name: &str, more: Option<(u32, Message)>) {
        let mut track = Message::default().uint(1, uuid).text(2, name);
        if let Some(parent) = parent {
            track = track.uint(5, parent);
        }
        if let Some((field, message)) = more {
            track = track.message(field, &message);
        }
        self.tracks.push(Message::default().message(packet::TRACK, &track));
    }

    fn event(&mut self, time: Nanos, kind: u64, track: u64, event: Message) {
        let event = event.uint(9, kind).uint(11, track);
        let packet =
            Message::default().uint(packet::TIMESTAMP, time.0).message(packet::EVENT, &event);
        self.events.push((time, kind != END, packet));
    }

    fn slice(&mut self, span: (Nanos, Nanos), track: u64, event: Message) {
        self.event(span.0, BEGIN, track, event);
        self.event(span.1, END, track, Message::default());
    }

    /// All packets on one sequence, the first with the flag that nothing came before.
    fn write(mut self, out: &mut dyn Write) -> io::Result<()> {
        // Stable: a slice without length must begin before it ends.
        self.events.sort_by_key(|&(time, begins, _)| (time, begins));
        let packets = self.tracks.into_iter().chain(self.events.into_iter().map(|event| event.2));
        for (index, packet) in packets.enumerate() {
            let packet = packet.uint(packet::SEQUENCE, 1);
            let packet = if index == 0 { packet.uint(packet::FLAGS, 1) } else { packet };
            out.write_all(&Message::default().message(1, &packet).0)?;
        }
        Ok(())
    }
}

fn named(category: &str, name: &str) -> Message {
    Message::default().text(22, category).text(23, name)
}

trait Annotated: Sized {
    fn number(self, name: &str, value: u64) -> Self;
    fn word(self, name: &str, value: &str) -> Self;
}

impl Annotated for Message {
    fn number(self, name: &str, value: u64) -> Message {
        self.message(4, &Message::default().text(10, name).uint(3, value))
    }

    fn word(self, name: &str, value: &str) -> Message {
        self.message(4, &Message::default().text(10, name).text(6, value))
    }
}

fn flags_text(flags: BioFlags) -> String {
    flags.iter_names().map(|(name, _)| name.to_lowercase()).collect::<Vec<_>>().join(" ")
}

/// Writes `events`, which are in the order of their times.
///
/// # Errors
/// Those of `out`.
pub fn write(out: &mut dyn Write, events: &[TraceEvent], names: &ProcessNames) -> io::Result<()> {
    let lives = Lives::of(events);
    let mut packets = Packets::default();
    packets.track(DEVICE, None, "block device", None);
    packets.track(ELEVATOR, Some(DEVICE), "elevator", None);
    for (uuid, name) in [(WAITING, "requests waiting"), (IN_DEVICE, "requests in the device")] {
        packets.track(uuid, Some(DEVICE), name, Some((8, Message::default())));
    }
    put_requests(&mut packets, &lives);
    put_bios(&mut packets, &lives, names);
    put_notes(&mut packets, events, names);
    put_counters(&mut packets, events);
    packets.write(out)
}

/// One slice in a slot for each time that the device had a request.
fn put_requests(packets: &mut Packets, lives: &Lives) {
    let times = |life: &RequestLife| Some((life.dispatched?, life.completed?));
    let mut ordered: Vec<_> =
        lives.requests.iter().filter_map(|life| Some((times(life)?, life))).collect();
    ordered.sort_by_key(|(span, life)| (*span, life.id));
    let mut slots = Lanes::default();
    for (span, life) in ordered {
        let (slot, new) = slots.take(span.0, span.1);
        if new {
            packets.track(SLOTS + slot, Some(DEVICE), &format!("slot {slot}"), None);
        }
        let name = format!("{} {} KiB", life.op, life.count / 2);
        let event = named("request", &name)
            .number("sector", life.sector.0)
            .number("sectors", life.count)
            .number("request", life.id)
            .number("bios", life.bios.len() as u64)
            .number("ioc", life.ioc)
            .word("flags", &flags_text(life.flags))
            .fixed64(48, life.id);
        packets.slice(span, SLOTS + slot, event);
    }
}

/// One slice in a lane of its task for each bio from its arrival to its end.
fn put_bios(packets: &mut Packets, lives: &Lives, names: &ProcessNames) {
    let mut tasks: BTreeMap<u32, Lanes> = BTreeMap::new();
    for bio in &lives.bios {
        let Some(request) = lives.request_of(bio) else { continue };
        let Some(end) = request.completed else { continue };
        let event = &bio.queued;
        let track = TASKS + u64::from(event.task) * LANES;
        let lanes = tasks.entry(event.task).or_insert_with(|| {
            let name = names.name(event.task);
            let process = Message::default().uint(1, event.task.into()).text(6, name);
            packets.track(track, None, name, Some((3, process)));
            Lanes::default()
        });
        let (lane, new) = lanes.take(event.time, end);
        if new {
            packets.track(track + 1 + lane, Some(track), &format!("bios {lane}"), None);
        }
        let slice = named("bio", &format!("{} {} KiB", event.op, event.count / 2))
            .number("sector", event.sector.0)
            .number("sectors", event.count)
            .number("request", request.id)
            .word("flags", &flags_text(event.flags));
        let slice =
            if request.dispatched.is_some() { slice.fixed64(47, request.id) } else { slice };
        packets.slice((event.time, end), track + 1 + lane, slice);
    }
}

fn put_notes(packets: &mut Packets, events: &[TraceEvent], names: &ProcessNames) {
    for event in events {
        if let Some(note) = event.elevator_note() {
            let name = note.to_string();
            let whose = names.name(u32::try_from(note.ioc).unwrap_or(u32::MAX));
            let slice = named("elevator", name.split(' ').next().unwrap_or(&name))
                .number("ioc", note.ioc)
                .number("value", note.value)
                .word("task", whose);
            packets.event(event.time, INSTANT, ELEVATOR, slice);
        }
    }
}

/// How many requests wait in the elevator, and how many the device has.
fn put_counters(packets: &mut Packets, events: &[TraceEvent]) {
    let (mut waiting, mut in_device) = (BTreeSet::new(), BTreeSet::new());
    for event in events {
        match event.kind {
            TraceKind::Inserted => drop(waiting.insert(event.request)),
            TraceKind::Dispatched => {
                waiting.remove(&event.request);
                in_device.insert(event.request);
            }
            TraceKind::Completed => drop(in_device.remove(&event.request)),
            _ => continue,
        }
        let count = |set: &BTreeSet<u64>| Message::default().uint(30, set.len() as u64);
        packets.event(event.time, COUNTER, WAITING, count(&waiting));
        packets.event(event.time, COUNTER, IN_DEVICE, count(&in_device));
    }
}
