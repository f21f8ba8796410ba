//! A stripe over equal members: chunks in turn, each member a machine behind a short queue.
//!
//! Neighbouring chunks of the stripe lie on neighbouring members, and the chunks of one member
//! follow each other on it. A command is cut at the ends of chunks, as the device mapper of 2006
//! did it or at sectors ([`Cutter`]; `docs/machines.md` has an example).
//!
//! Each member takes a number of commands at once; what is beyond waits in the host, where a
//! command that continues the last waiting one joins it. With an elevator in each member, one joins
//! any waiting neighbour, and what waits goes out in a sweep upward over the sectors.
//!
//! Not modelled: parity, failed members, members of different sizes.

use crate::ModelStats;
use crate::machine::{Command, Machine};
use base::{Nanos, Sector};
use block::{Op, Segment};
use device::stripe::Cutter;
use std::collections::VecDeque;

/// The parameters of a stripe.
#[derive(Clone, Debug, PartialEq)]
pub struct StripeParams {
    /// Members, from 1.
    pub members: usize,
    /// Bytes of a chunk.
    pub chunk: u64,
    /// Commands that a member takes at once.
    pub tags: u32,
    /// Largest command of a member, in bytes.
    pub max_bytes: u64,
    /// How commands are cut at the ends of chunks.
    pub cutter: Cutter,
    /// Each member has an elevator.
    pub elevator: bool,
}

/// A command that waits for a tag of its member, with the commands of the stripe that it serves.
struct Queued {
    command: Command,
    parents: Vec<u32>,
}

impl Queued {
    /// `part` can join it, in front or behind.
    fn takes(&self, part: &Command, most: u64) -> bool {
        let own = &self.command;
        let alike = own.op == part.op && part.op.has_data() && own.fua == part.fua;
        let touches = own.end() == part.sector.0 || part.end() == own.sector.0;
        alike && touches && own.bytes() + part.bytes() <= most
    }

    fn join(&mut self, part: &Command, parent: u32) {
        self.command.sector = self.command.sector.min(part.sector);
        self.command.count += part.count;
        self.parents.push(parent);
    }
}

struct Member {
    machine: Box<dyn Machine>,
    queue: VecDeque<Queued>,
    /// Where the last command ended, for the elevator.
    head: u64,
    /// What the member has, by its tag: whom it serves.
    serving: Vec<Vec<u32>>,
    free: Vec<u32>,
    next: Nanos,
}

pub(crate) struct Stripe {
    params: StripeParams,
    members: Vec<Member>,
    /// Parts that each command of the stripe still waits for.
    parents: Vec<u32>,
    commands: u64,
    parts: u64,
    merged: u64,
}

impl Stripe {
    pub fn new(params: StripeParams, mut make: impl FnMut() -> Box<dyn Machine>) -> Stripe {
        let member = || Member {
            machine: make(),
            queue: VecDeque::new(),
            head: 0,
            serving: vec![Vec::new(); params.tags as usize],
            free: (0..params.tags).rev().collect(),
            next: Nanos::MAX,
        };
        let members = std::iter::repeat_with(member).take(params.members).collect();
        Stripe { params, members, parents: Vec::new(), commands: 0, parts: 0, merged: 0 }
    }

    fn part(&mut self, now: Nanos, command: &Command, sector: u64, count: u64) {
        let chunk = self.params.chunk / 512;
        let (number, within) = (sector / chunk, sector % chunk);
        let width = self.params.members as u64;
        let at = Sector(number / width * chunk + within);
        let part = Command { sector: at, count, ..*command };
        self.send((number % width) as usize, now, part, command.tag);
    }

    fn send(&mut self, index: usize, now: Nanos, part: Command, parent: u32) {
        self.parents[parent as usize] += 1;
        self.parts += 1;
        let most = self.params.max_bytes;
        let member = &mut self.members[index];
        let joined = match self.params.elevator {
            true => member.queue.iter_mut().find(|one| one.takes(&part, most)),
            // Only behind the last one.
            false => {
                let last = member.queue.back_mut();
                last.filter(|last| last.command.end() == part.sector.0 && last.takes(&part, most))
            }
        };
        if let Some(joined) = joined {
            joined.join(&part, parent);
            self.merged += 1;
            return;
        }
        member.queue.push_back(Queued { command: part, parents: vec![parent] });
        member.feed(now, self.params.elevator);
    }
}

/// `count` sectors as lengths in bytes.
fn whole(count: u64) -> impl Iterator<Item = u32> {
    const MOST: u64 = 1 << 20;
    let full = std::iter::repeat_n((MOST * 512) as u32, (count / MOST) as usize);
    full.chain([(count % MOST * 512) as u32])
}

impl Member {
    fn feed(&mut self, now: Nanos, elevator: bool) {
        while !self.queue.is_empty()
            && let Some(tag) = self.free.pop()
        {
            let place = if elevator { self.nearest_above() } else { 0 };
            let queued = self.queue.remove(place).expect("it is not empty");
            self.head = queued.command.end();
            self.serving[tag as usize] = queued.parents;
            self.machine.submit(now, Command { tag, ..queued.command }, &[]);
        }
        self.next = self.machine.next().unwrap_or(Nanos::MAX);
    }

    /// The place of the first command above the head, else of the lowest.
    fn nearest_above(&self) -> usize {
        let way = |queued: &Queued| {
            let sector = queued.command.sector.0;
            (sector < self.head, sector)
        };
        let first = self.queue.iter().enumerate().min_by_key(|(_, queued)| way(queued));
        first.map_or(0, |(place, _)| place)
    }
}

impl Machine for Stripe {
    fn submit(&mut self, now: Nanos, command: Command, segments: &[Segment]) {
        self.commands += 1;
        let tag = command.tag as usize;
        if self.parents.len() <= tag {
            self.parents.resize(tag + 1, 0);
        }
        debug_assert_eq!(self.parents[tag], 0, "a tag names one command at a time");
        match command.op {
            Op::Flush => {
                (0..self.members.len()).for_each(|i| self.send(i, now, command, command.tag))
            }
            // What has no memory is cut at the ends of chunks only.
            _ => {
                let chunk = self.params.chunk / 512;
                let first = command.sector.0;
                let parts = match segments.is_empty() {
                    true => Cutter::Sectors.cut(chunk, first, whole(command.count)),
                    false => self.params.cutter.cut(chunk, first, segments.iter().map(|s| s.len)),
                };
                for (sector, count) in parts {
                    self.part(now, &command, sector, count);
                }
            }
        }
    }

    fn next(&mut self) -> Option<Nanos> {
        let next = self.members.iter().map(|member| member.next).min();
        next.filter(|&next| next < Nanos::MAX)
    }

    fn advance(&mut self, now: Nanos, done: &mut Vec<u32>) {
        let mut ended = Vec::new();
        for member in &mut self.members {
            while member.next <= now {
                let at = member.next;
                member.machine.advance(at, &mut ended);
                for tag in ended.drain(..) {
                    for parent in member.serving[tag as usize].drain(..) {
                        let left = &mut self.parents[parent as usize];
                        *left -= 1;
                        if *left == 0 {
                            done.push(parent);
                        }
                    }
                    member.free.push(tag);
                }
                member.feed(at, self.params.elevator);
            }
        }
    }

    fn stats(&self, now: Nanos) -> ModelStats {
        let mut sum = ModelStats::default();
        self.members.iter().for_each(|member| sum.add(&member.machine.stats(now)));
        sum.commands = self.commands;
        sum.member_commands = self.parts - self.merged;
        sum
    }

    fn losable(&self) -> Vec<u64> {
        Vec::new() // The profile's reader accepts only members that lose nothing.
    }
}

#[cfg(test)]
#[allow(clippy::disallowed_types, reason = "one thread, and a trait that wants Send")]
mod tests {
    use super::*;
    use std::sync::{Arc, Mutex};

    /// Takes one command at a time, a nanosecond each, and notes sectors and lengths.
    struct Notes(Arc<Mutex<Vec<(u64, u64)>>>, Option<(Nanos, u32)>);

    impl Machine for Notes {
        fn submit(&mut self, now: Nanos, command: Command, _segments: &[Segment]) {
            self.0.lock().expect("no panic").push((command.sector.0, command.count));
            self.1 = Some((now + Nanos(1), command.tag));
        }

        fn next(&mut self) -> Option<Nanos> {
            self.1.map(|(when, _)| when)
        }

        fn advance(&mut self, _now: Nanos, done: &mut Vec<u32>) {
            done.extend(self.1.take().map(|(_, tag)| tag));
        }

        fn stats(&self, _now: Nanos) -> ModelStats {
            ModelStats::default()
        }

        fn losable(&self) -> Vec<u64> {
            Vec::new()
        }
    }

    /// What one member with one tag is sent of reads at these sectors, of 8 each.
    fn sent(elevator: bool, sectors: &[u64]) -> Vec<(u64, u64)> {
        let seen = Arc::new(Mutex::new(Vec::new()));
        let params = StripeParams {
            members: 1,
            chunk: 1 << 30,
            tags: 1,
            max_bytes: 1 << 20,
            cutter: Cutter::Sectors,
            elevator,
        };
        let mut stripe = Stripe::new(params, || Box::new(Notes(seen.clone(), None)));
        for (tag, &sector) in sectors.iter().enumerate() {
            let (op, sector) = (Op::Read, Sector(sector));
            let command = Command { tag: tag as u32, op, sector, count: 8, fua: false };
            stripe.submit(Nanos::ZERO, command, &[]);
        }
        let mut done = Vec::new();
        while let Some(when) = stripe.next() {
            stripe.advance(when, &mut done);
        }
        assert_eq!(done.len(), sectors.len(), "each is done once");
        seen.lock().expect("no panic").clone()
    }

    #[test]
    fn a_member_with_an_elevator_sorts_and_joins_what_waits() {
        let sectors = [100, 400, 24, 16, 200, 300];
        assert_eq!(sent(false, &sectors), sectors.map(|sector| (sector, 8)));
        // Upward from 108, then from the lowest; 16 joins 24 in front.
        assert_eq!(sent(true, &sectors), [(100, 8), (200, 8), (300, 8), (400, 8), (16, 16)]);
    }
}
