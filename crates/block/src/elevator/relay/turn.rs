//! Turns, and the bargain that decides whether they are taken.
//!
//! A group that has its turn has the device for itself. What every group gets by mixing is measured
//! in windows of time, what it would get alone and what a change to it costs in its turns.

use super::Relay;
use super::stream::{ASYNC, CONTEXTS, POOL, Sid, Stream, mean};
use crate::RequestId;
use crate::elevator::NoteKind;
use base::Nanos;

/// A process may think four times as long as it usually does and this; the device is not kept idle
/// for longer than `IDLE_MAX`.
const THINK_SLACK: Nanos = Nanos::from_micros(200);
const IDLE_MAX: Nanos = Nanos::from_millis(8);

/// A window of mixing ends when every group has ended so many requests in it, at last after
/// `WINDOW_MAX`.
const WINDOW_ENDS: u32 = 12;
const WINDOW_FAST: Nanos = Nanos::from_millis(20);
const WINDOW_SLOW: Nanos = Nanos::from_millis(120);
const WINDOW_MAX: Nanos = Nanos::from_millis(250);
const WINDOW_AGAIN: Nanos = Nanos::from_millis(120);
/// A round of turns is so many times as long as all changes in it: they cost a fourteenth.
const ROUND: u64 = 14;
const ROUND_MIN: Nanos = Nanos::from_millis(10);
/// Turns are taken where they leave so much of the time over.
const GAIN: f64 = 0.1;
/// After so long what mixing gives is measured again, later each time.
pub(super) const HOLD_FIRST: Nanos = Nanos::from_secs(3);
const HOLD_LAST: Nanos = Nanos::from_secs(30);
/// A trial of turns, short ones, is made so often; what parties get alone is forgotten after
/// `FORGET`.
const TRIAL_MAX: Nanos = Nanos::from_millis(40);
const PAUSE: Nanos = Nanos::from_secs(10);
const FORGET: Nanos = Nanos::from_secs(60);
/// So many requests of a turn show its pace.
const ENOUGH: u32 = 4;
/// Groups whose parts of what they would get alone differ by less than a fifth fare alike.
const ALIKE: f64 = 0.8;
/// Of so many groups each party gets one turn so that its pace is known: of so many requests, at
/// most so long, a fifth of the time at most.
const PROBED: usize = 4;
const PROBE_ENDS: u32 = 12;
const PROBE_MAX: Nanos = Nanos::from_millis(120);
const FIRST_EVERY: f64 = 5.0;
/// The turn of a favour.
const FAVOUR_MIN: Nanos = Nanos::from_millis(2);
const FAVOUR_MAX: Nanos = Nanos::from_millis(40);

/// A group has the device for itself.
#[derive(Clone, Copy)]
pub(super) struct Turn {
    pub group: Sid,
    pub began: Nanos,
    pub end: Nanos,
    /// Requests that have ended, when the first and the last one did, bytes of all but the first.
    pub ends: u32,
    pub first: Nanos,
    pub last: Nanos,
    pub bytes: u64,
}

/// Turns.
impl Relay {
    fn members(&self, group: Sid) -> impl Iterator<Item = Sid> {
        self.waiting().filter(move |&s| self.group(s) == group)
    }

    fn begin_turn(&mut self, group: Sid, span: Nanos) {
        let now = self.now;
        let turn =
            Turn { group, began: now, end: now + span, ends: 0, first: now, last: now, bytes: 0 };
        self.turn = Some(turn);
        self.note(NoteKind::SliceBegin, self.streams[group].owner, 0);
    }

    /// The group gives the device up; learns from its turn.
    pub(super) fn end_turn(&mut self, why: NoteKind) {
        self.end_idle(NoteKind::IdleCancelled);
        let Some(turn) = self.turn.take() else { return };
        let had = self.now.since(turn.began).0;
        let (span, owner) = (turn.last.since(turn.first).0, self.streams[turn.group].owner);
        self.note(why, owner, had);
        let every = self.favour_every(turn.group);
        let stream = &mut self.streams[turn.group];
        stream.served = self.now;
        let learns = self.hold.is_some() || stream.alone.is_none();
        if turn.ends >= ENOUGH || learns && why == NoteKind::SliceUsedUp {
            let usual = if turn.ends > 1 { span / (turn.ends as u64 - 1) } else { 0 };
            let first = if turn.ends > 0 { turn.first.since(turn.began).0 } else { had };
            // Its own service, and what was in the device before, are no cost of the change.
            stream.change = Some(mean(stream.change, first.saturating_sub(2 * usual), 4));
        }
        if turn.ends >= ENOUGH && span > 0 {
            // In a round of turns all that ended since its last one was done for this one.
            let change = stream.change.unwrap_or(0).min(had / 2);
            let pace = match self.hold {
                Some(_) => stream.bytes as f64 / (had - change).max(1) as f64,
                None => turn.bytes as f64 / span as f64,
            };
            stream.alone = Some(stream.alone.map_or(pace, |old| old * 0.75 + pace * 0.25));
        } else if self.hold.is_none() && stream.alone.is_none() {
            // It cannot do more by itself: maybe it waits for somebody who is not known.
            stream.alone = Some(turn.bytes.max(stream.size) as f64 / had.max(1) as f64);
        }
        match self.hold {
            Some(_) => stream.bytes = 0,
            None => {
                self.window_began += Nanos(had); // It goes on.
                // The way back takes as long as the way there.
                let cost = (had + self.change(turn.group)) as f64;
                self.next_favour = turn.began + Nanos((cost * every) as u64);
            }
        }
    }

    pub(super) fn end_idle(&mut self, why: NoteKind) {
        if let (Some((_, since)), Some(turn)) = (self.idle.take(), &self.turn) {
            let owner = self.streams[turn.group].owner;
            self.note(why, owner, self.now.since(since).0);
        }
    }

    /// Until when to wait for the next request of a party that has none: one that usually goes on
    /// soon, and whose work is not somebody's who does no I/O here.
    fn worth_waiting(&self, group: Sid) -> Option<Nanos> {
        let stream = &self.streams[group];
        if group < CONTEXTS || stream.gone || !self.works_here(stream.owner) {
            return None;
        }
        let wait = Nanos(4 * stream.think?) + THINK_SLACK;
        let until = stream.last_end + wait;
        (wait <= IDLE_MAX && until > self.now).then_some(until)
    }

    /// What the turn gives: a request, nothing for now (`Some(None)`), or its end.
    fn go_on(&mut self, turn: Turn) -> Option<Option<RequestId>> {
        let others = |r: &Relay| r.waiting().any(|s| r.group(s) != turn.group);
        let others = others(self);
        let probe = self.hold.is_none() && self.streams[turn.group].alone.is_none();
        let over = self.now >= turn.end || probe && turn.ends >= PROBE_ENDS;
        let group_urgency = self.streams[turn.group].prio.class();
        let outranked = self.waiting().any(|s| self.urgency(s) < group_urgency);
        if others && (over || outranked) {
            self.end_turn(if over { NoteKind::SliceUsedUp } else { NoteKind::Preempted });
            return None;
        }
        let asynchronous = !self.streams[turn.group].sync;
        let next = self.nearest(self.members(turn.group));
        if next.is_some() && (!asynchronous || self.in_flight[0] < self.async_depth()) {
            self.end_idle(NoteKind::IdleSatisfied);
            return Some(next);
        }
        let busy = |s: Sid| self.streams[s].in_flight > 0 && self.group(s) == turn.group;
        if self.idle.is_some() || (0..self.streams.len()).any(busy) {
            return Some(None);
        }
        if let Some(until) = self.worth_waiting(turn.group).filter(|_| others) {
            self.idle = Some((until, self.now));
            self.note(NoteKind::IdleArmed, self.streams[turn.group].owner, until.0);
            return Some(None);
        }
        self.end_turn(NoteKind::SliceGivenUp);
        None
    }

    /// Asynchronous requests in flight in their turn.
    fn async_depth(&self) -> u32 {
        (self.async_limit as u32).max(4).min(self.depth)
    }

    pub(super) fn choose(&mut self) -> Option<RequestId> {
        // A turn ends at once where its group has nothing to do.
        for _ in 0..3 {
            if let Some(turn) = self.turn
                && let Some(answer) = self.go_on(turn)
            {
                return answer;
            }
            match self.hold {
                Some(until) if until <= self.now => self.end_hold(),
                None if self.next_favour <= self.now => self.do_favour(),
                _ => {}
            }
            match (self.hold, self.turn) {
                (_, Some(_)) => {}
                (Some(_), None) => self.begin_round_robin(),
                (None, None) => break,
            }
        }
        self.choose_mixed()
    }

    /// The most urgent group, of those the one that had its turn longest ago.
    fn begin_round_robin(&mut self) {
        let first = self.waiting().map(|s| {
            let group = self.group(s);
            (self.urgency(s), self.streams[group].served, group)
        });
        if let Some((_, _, group)) = first.min() {
            self.begin_turn(group, self.span_of(group));
        }
    }
}

/// Which of the two.
impl Relay {
    /// What a change to the group costs, ns.
    fn change(&self, group: Sid) -> u64 {
        let guess = if self.rotational { 2_500_000 } else { 200_000 };
        self.streams[group].change.unwrap_or(guess)
    }

    /// The length of a round of turns, ns.
    fn round(&self) -> f64 {
        let changes: u64 = self.groups.iter().map(|&(g, _)| self.change(g)).sum();
        let most = Nanos(self.tunables.round as u64 * 1_000_000).max(ROUND_MIN);
        Nanos(changes * ROUND).clamp(ROUND_MIN, most).0 as f64
    }

    /// The part of the time that a group needs to get as much as by mixing. Where it had no turn
    /// yet, the best is hoped.
    fn need(&self, group: Sid) -> f64 {
        let stream = &self.streams[group];
        if !stream.sync {
            return 0.0; // Nobody waits for it: it is owed nothing.
        }
        let hoped = || match group {
            POOL => self.streams[CONTEXTS..].iter().filter(|s| s.active).map(Stream::hoped).sum(),
            _ => stream.hoped(),
        };
        let alone = stream.alone.unwrap_or_else(hoped);
        stream.mixed.unwrap_or(0.0) / alone.max(f64::MIN_POSITIVE)
    }

    /// The part of the time that is over when every group has got as much as by mixing.
    fn surplus(&self) -> f64 {
        let needs: f64 = self.groups.iter().map(|&(g, _)| self.need(g)).sum();
        let changes: u64 = self.groups.iter().map(|&(g, _)| self.change(g)).sum();
        1.0 - needs - changes as f64 / self.round()
    }

    /// The length of a group's turn.
    fn span_of(&self, group: Sid) -> Nanos {
        let weights: f64 = self.groups.iter().map(|&(_, weight)| weight).sum();
        let own = self.groups.iter().find(|&&(g, _)| g == group);
        let part = own.map_or(0.25, |&(_, weight)| weight / weights.max(1.0));
        let gift = self.surplus().max(0.0) * part;
        let time = self.round() * (self.need(group).min(1.0) + gift);
        let span = Nanos(self.change(group) + time as u64);
        if self.trial { span.min(TRIAL_MAX) } else { span }
    }

    fn clear_window(&mut self) {
        self.window_began = self.now;
        for stream in &mut self.streams {
            (stream.bytes, stream.ends, stream.active) = (0, 0, false);
        }
        for s in 0..self.streams.len() {
            let party = self.party(s);
            self.streams[party].active |= !self.streams[s].is_idle();
        }
    }

    /// The groups that have had something to do in this window, with their weights.
    fn groups_of_window(&self) -> Vec<(Sid, f64)> {
        let mut groups: Vec<(Sid, f64)> = Vec::new();
        for s in ASYNC..self.streams.len() {
            if !self.streams[s].active {
                continue;
            }
            let (group, weight) = (self.group(s), self.streams[s].weight());
            match groups.iter_mut().find(|(known, _)| *known == group) {
                Some((_, sum)) => *sum += weight,
                None => groups.push((group, weight)),
            }
        }
        groups.sort_by_key(|&(group, _)| group);
        groups
    }

    /// Closes the window of mixing where it is over, and decides how to go on.
    pub(super) fn tick(&mut self) {
        let span = self.now.since(self.window_began);
        let least = if self.rotational { WINDOW_SLOW } else { WINDOW_FAST };
        if self.turn.is_some() || self.hold.is_some() || span < least {
            return;
        }
        let groups = self.groups_of_window();
        let full = groups.iter().all(|&(g, _)| self.streams[g].ends >= WINDOW_ENDS);
        let most = if self.hold_span == HOLD_FIRST { WINDOW_MAX } else { WINDOW_AGAIN };
        if span < most && !full {
            return;
        }
        let same = groups == self.groups;
        for &(g, _) in &groups {
            let stream = &mut self.streams[g];
            let pace = stream.bytes as f64 / span.0 as f64;
            stream.mixed = same.then(|| stream.mixed.map_or(pace, |old| (old + pace) / 2.0));
        }
        self.groups = groups;
        self.favoured = None;
        match same {
            true => self.decide(),
            // A party came or went: this window says nothing of what follows.
            false => (self.hold_span, self.forget) = (HOLD_FIRST, self.now),
        }
        self.clear_window();
    }

    fn decide(&mut self) {
        self.favoured = None;
        if self.forget <= self.now {
            self.forget = self.now + FORGET;
            self.groups.iter().for_each(|&(g, _)| self.streams[g].alone = None);
        }
        if self.groups.len() < 2 {
            return;
        }
        let known = |g: Sid| self.streams[g].alone.is_some();
        let all = |of: fn(Sid) -> bool| self.groups.iter().all(|&(g, _)| known(g) || !of(g));
        let few = self.groups.len() <= PROBED;
        let suffers = self.groups.iter().any(|&(g, _)| self.need(g) < ALIKE);
        if all(|_| true) && self.surplus() >= GAIN {
            self.hold = Some(self.now + self.hold_span);
            self.hold_span = Nanos(3 * self.hold_span.0).min(HOLD_LAST);
        } else if all(|g| g >= CONTEXTS) && self.next_trial <= self.now && self.surplus() >= GAIN {
            self.trial = true;
            self.hold = Some(self.now + Nanos(self.round() as u64));
            self.next_trial = self.now + PAUSE;
        } else {
            let parties = self.groups.iter().map(|&(g, _)| g).filter(|&g| g >= CONTEXTS);
            let unknown = parties.filter(|&g| !known(g)).min().filter(|_| few && suffers);
            self.favoured = unknown.or_else(|| self.worst_off());
        }
    }

    /// The end of a time of turns: one that was a trial goes on where it left enough over.
    fn end_hold(&mut self) {
        self.hold = None;
        self.clear_window();
        if std::mem::take(&mut self.trial) {
            self.decide();
        }
    }

    /// The sequential party that mixing leaves the smallest part of what it would get alone.
    fn worst_off(&self) -> Option<Sid> {
        let mut parts: Vec<(f64, Sid)> =
            self.groups.iter().map(|&(g, _)| (self.need(g), g)).collect();
        parts.sort_by(|a, b| a.0.total_cmp(&b.0));
        match parts[..] {
            [worst, next, ..] if worst.0 < ALIKE * next.0 => {
                Some(worst.1).filter(|&g| g >= CONTEXTS)
            }
            _ => None,
        }
    }

    /// A favour comes again after so many times what it costs: the others give up `favour` of what
    /// they would get alone. The first one shows the pace.
    fn favour_every(&self, group: Sid) -> f64 {
        let others = self.groups.iter().filter(|&&(g, _)| g != group);
        let most = others.map(|&(g, _)| self.need(g)).fold(0.1, f64::max).min(1.0);
        match self.streams[group].alone {
            Some(_) => 1000.0 * most / self.tunables.favour.max(1) as f64,
            None => FIRST_EVERY,
        }
    }

    fn do_favour(&mut self) {
        let Some(group) = self.favoured.filter(|_| self.tunables.favour > 0) else { return };
        let stream = &self.streams[group];
        if stream.is_idle() && self.worth_waiting(group).is_none() {
            return;
        }
        let span = match stream.alone {
            Some(pace) => {
                let some = ((ENOUGH + 1) as f64 * stream.size as f64 / pace) as u64;
                Nanos(some.max(self.change(group) * ROUND)).clamp(FAVOUR_MIN, FAVOUR_MAX)
            }
            None => PROBE_MAX,
        };
        self.begin_turn(group, span);
    }
}
