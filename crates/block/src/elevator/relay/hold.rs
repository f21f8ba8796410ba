//! Holding: one group of streams has the device for a slice of time, and it is kept idle for it
//! where that pays.
//!
//! Groups are the parties whose work is sequential, each by itself; all other synchronous streams
//! together, since they lose nothing by being mixed; and the asynchronous ones.

use super::Relay;
use super::stream::{Sid, THINK_SLACK};
use crate::RequestId;
use crate::elevator::NoteKind;
use base::Nanos;

/// Who shares a slice.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Group {
    Party(Sid),
    Pool,
    Async,
}

/// The device is never kept idle for longer.
const IDLE_MAX: Nanos = Nanos::from_millis(8);

/// The group that has the device.
pub(super) struct Turn {
    pub group: Group,
    pub began: Nanos,
    pub end: Nanos,
    /// Requests given out in it.
    pub dispatched: u32,
}

impl Relay {
    pub(super) fn group(&self, s: Sid) -> Group {
        let party = self.party(s);
        let stream = &self.streams[party];
        match (stream.sync, stream.is_sequential()) {
            (false, _) => Group::Async,
            (true, true) => Group::Party(party),
            (true, false) => Group::Pool,
        }
    }

    /// The streams of a group that have requests.
    fn members(&self, group: Group) -> impl Iterator<Item = Sid> {
        self.waiting_streams().filter(move |&s| self.group(s) == group)
    }

    fn in_flight_of(&self, group: Group) -> u32 {
        let busy = self.streams.ids().filter(|&s| self.streams[s].in_flight > 0);
        busy.filter(|&s| self.group(s) == group).map(|s| self.streams[s].in_flight).sum()
    }

    fn vtime(&self, group: Group) -> u64 {
        match group {
            Group::Party(s) => self.streams[s].vtime,
            Group::Pool => self.pool_vtime,
            Group::Async => self.async_vtime,
        }
    }

    /// The next request while holding with slices of `slice`.
    pub(super) fn choose_held(&mut self, slice: Nanos) -> Option<RequestId> {
        if let Some(turn) = &self.turn {
            let (group, over) = (turn.group, self.now >= turn.end);
            let others = self.waiting_streams().any(|s| self.group(s) != group);
            if over && others {
                self.end_turn(NoteKind::SliceUsedUp);
            } else if group == Group::Async && !self.has_room_for_async() {
                if self.in_flight != [0; 2] {
                    return None;
                }
                self.end_turn(NoteKind::SliceGivenUp);
            } else if let Some(id) = self.next_of_group(group) {
                self.end_idle(NoteKind::IdleSatisfied);
                return Some(id);
            } else if self.in_flight_of(group) > 0 || self.idle_until.is_some() {
                return None;
            } else if let Some(until) = self.worth_waiting(group).filter(|_| others) {
                self.idle_until = Some(until);
                self.idle_since = self.now;
                self.note_group(NoteKind::IdleArmed, group, until.0);
                return None;
            } else {
                self.end_turn(NoteKind::SliceGivenUp);
            }
        }
        let group = self.next_group(slice)?;
        self.turn = Some(Turn { group, began: self.now, end: self.now + slice, dispatched: 0 });
        self.note_group(NoteKind::SliceBegin, group, 0);
        self.next_of_group(group)
    }

    fn next_of_group(&self, group: Group) -> Option<RequestId> {
        let oldest = self.members(group).filter_map(|s| self.streams[s].order.oldest()).min();
        let (arrival, id) = oldest?;
        let limit =
            if group == Group::Async { self.tunables.async_wait } else { self.late_after() };
        if arrival + limit <= self.now {
            return Some(id);
        }
        self.nearest(self.members(group))
    }

    /// Until when to wait for the next request of a group that has nothing: a sequential party that
    /// usually goes on soon, and whose work is not somebody's who does no I/O here.
    fn worth_waiting(&self, group: Group) -> Option<Nanos> {
        let Group::Party(s) = group else { return None };
        let stream = &self.streams[s];
        if stream.gone || !self.works_here(stream.owner) {
            return None;
        }
        let wait = Nanos(2 * stream.party_think?.0) + THINK_SLACK;
        let until = stream.party_end + wait;
        (wait <= IDLE_MAX && until > self.now).then_some(until)
    }

    /// The group with the most urgent request; of equal ones that which would wait too long if
    /// another slice came first, then that which had the least time.
    fn next_group(&self, slice: Nanos) -> Option<Group> {
        let groups = self.waiting_streams().map(|s| {
            let (group, stream) = (self.group(s), &self.streams[s]);
            let arrival = stream.order.oldest().map_or(self.now, |(arrival, _)| arrival);
            let bound = if stream.sync { self.tunables.max_wait } else { self.tunables.async_wait };
            let due = slice < bound && arrival + bound <= self.now + slice;
            let turn = if due { (0, arrival.0) } else { (1, self.vtime(group)) };
            (self.urgency(s), turn, group)
        });
        groups.min().map(|(_, _, group)| group)
    }

    /// The group gives the device up, and is charged with the time that it had it.
    pub(super) fn end_turn(&mut self, why: NoteKind) {
        self.end_idle(NoteKind::IdleCancelled);
        let Some(turn) = self.turn.take() else { return };
        let had = self.now.since(turn.began).0;
        self.note_group(why, turn.group, had);
        // Whoever had nothing to do meanwhile has saved nothing.
        let least = self.waiting_streams().map(|s| self.vtime(self.group(s))).min();
        let least = least.unwrap_or(0);
        match turn.group {
            Group::Party(s) => {
                let stream = &mut self.streams[s];
                stream.vtime =
                    stream.vtime.max(least.saturating_sub(had)) + had * 4 / stream.weight();
            }
            Group::Pool => {
                let count = self.members(Group::Pool).count().max(1) as u64;
                self.pool_vtime = self.pool_vtime.max(least.saturating_sub(had)) + had / count;
            }
            Group::Async => {
                self.async_vtime = self.async_vtime.max(least.saturating_sub(had)) + had * 2;
            }
        }
    }

    pub(super) fn end_idle(&mut self, why: NoteKind) {
        if self.idle_until.take().is_some()
            && let Some(turn) = &self.turn
        {
            let group = turn.group;
            self.note_group(why, group, self.now.since(self.idle_since).0);
        }
    }

    fn note_group(&mut self, kind: NoteKind, group: Group, value: u64) {
        match group {
            Group::Party(s) => self.note(kind, s, value),
            _ => self.notes.push(crate::elevator::ElevatorNote { kind, ioc: 0, value }),
        }
    }
}
