//! The share of a sequential stream while requests are mixed.
//!
//! Among n parties a stream that works in sequence is owed an n-th of what it would get alone. What
//! the others send beside it makes its requests slower; so they are slowed down, each now and then
//! by the rest of one request of the stream, as little as is needed: an integral controller keeps
//! the stream a little above its share.

use super::Relay;
use super::stream::{PROBE, Sid};
use crate::elevator::NoteKind;
use base::Nanos;

/// How much above its share a stream is kept.
const MARGIN: f64 = 1.065;
/// Parties whose shares differ by less are served alike: nobody is favoured.
const ALIKE: f64 = 0.97;
/// The share of a party whose pace is not known.
const UNKNOWN: f64 = -1.0;
/// Time between two corrections.
const WINDOW: Nanos = Nanos::from_millis(20);
/// Correction of the fraction of held requests per relative error.
const GAIN: f64 = 0.05;
/// Largest fraction of held requests.
const MOST: f64 = 0.8;
/// So often everybody waits for a row of requests of the stream, to learn its pace alone.
const PROBE_EVERY: Nanos = Nanos::from_secs(10);
/// A request is not held back for longer, and not for longer in a probe.
const HOLD_MAX: Nanos = Nanos::from_millis(4);
const PROBE_MAX: Nanos = Nanos::from_millis(25);

/// The controller.
#[derive(Default)]
pub(super) struct Guard {
    /// The stream that gets too little, and the fraction of others' requests that wait for it.
    stream: Option<Sid>,
    fraction: f64,
    /// Fractions since the last request that was held.
    sum: f64,
    began: Nanos,
    /// Smoothed rate, as a multiple of what the stream is owed.
    rate: f64,
    /// How many requests of the stream end the running probe.
    probe_until: u64,
}

impl Relay {
    /// Corrects the fraction where the window is over.
    pub(super) fn correct_share(&mut self) {
        let span = self.now.since(self.guard.began);
        if span < WINDOW {
            return;
        }
        let now = self.now;
        let parties = self.streams.ids().filter(|&s| {
            let stream = &self.streams[s];
            self.party(s) == s && stream.sync && (stream.guard_bytes > 0 || !stream.is_idle())
        });
        let parties: Vec<Sid> = parties.collect();
        let shares = parties.iter().map(|&s| (self.share(s, parties.len(), span), s));
        let mut shares: Vec<(f64, Sid)> = shares.collect();
        // Of those whose pace is not known the busiest comes first.
        let bytes = |s: Sid| u64::MAX - self.streams[s].guard_bytes;
        shares.sort_by(|a, b| a.0.total_cmp(&b.0).then(bytes(a.1).cmp(&bytes(b.1))));
        // The one that is farthest below its share; nobody, where all fare alike.
        let worst = match shares[..] {
            [worst, next, ..] if worst.0 < ALIKE * next.0 => Some(worst),
            _ => None,
        };
        self.guard.began = now;
        for stream in self.streams.iter_mut() {
            stream.guard_bytes = 0;
        }
        let Some((ratio, s)) = worst else {
            self.guard = Guard { began: now, ..Guard::default() };
            return;
        };
        if self.guard.stream != Some(s) {
            let (stream, fraction) = (Some(s), self.guard.fraction);
            self.guard = Guard { stream, fraction, began: now, rate: 1.0, ..Guard::default() };
        }
        if ratio == UNKNOWN {
            return; // The next request of another party begins a probe.
        }
        self.guard.rate += (ratio - self.guard.rate) / 4.0;
        let error = (1.0 - self.guard.rate).clamp(-0.5, 0.5);
        self.guard.fraction = (self.guard.fraction + GAIN * error).clamp(0.0, MOST);
    }

    /// What a party has got, as a multiple of what it is owed.
    fn share(&self, s: Sid, parties: usize, span: Nanos) -> f64 {
        let stream = &self.streams[s];
        if !stream.is_sequential() || stream.completed <= 16 {
            return f64::INFINITY; // It is owed nothing.
        }
        let Some(alone) = stream.pace.rate() else {
            return if self.may_probe(s) { UNKNOWN } else { f64::INFINITY };
        };
        let rate = stream.guard_bytes as f64 * 1e9 / span.0 as f64;
        rate * parties as f64 / (alone as f64 * MARGIN)
    }

    /// It is long ago that others were held back for a row of its requests.
    fn may_probe(&self, s: Sid) -> bool {
        self.streams[s].probed.is_none_or(|when| when + PROBE_EVERY <= self.now)
    }

    /// Decides whether a request that has just come into `s` waits for the stream that gets too
    /// little.
    pub(super) fn hold_back(&mut self, s: Sid) {
        let Some(favoured) = self.guard.stream else { return };
        let party = self.party(s);
        if party == favoured || self.streams[s].held.is_some() {
            return;
        }
        let completed = self.streams[favoured].completed;
        if self.may_probe(favoured) {
            self.streams[favoured].probed = Some(self.now);
            self.guard.probe_until = completed + u64::from(PROBE);
        }
        if completed < self.guard.probe_until {
            self.streams[s].held = Some((favoured, self.guard.probe_until));
            return;
        }
        self.guard.sum += self.guard.fraction;
        if self.guard.sum >= 1.0 {
            self.guard.sum -= 1.0;
            self.streams[s].held = Some((favoured, completed + 1));
            let owner = self.streams[s].owner;
            self.note(NoteKind::Injected, favoured, owner);
        }
    }

    /// Whether a stream is held back still.
    pub(super) fn is_held(&self, s: Sid) -> bool {
        self.looks_again_at(s).is_some_and(|when| when > self.now)
    }

    /// Where a stream is held back: when to look again, if nothing else happens before.
    pub(super) fn looks_again_at(&self, s: Sid) -> Option<Nanos> {
        let (favoured, until) = self.streams[s].held?;
        let favoured = &self.streams[favoured];
        let probes = until == self.guard.probe_until;
        let most = if probes { PROBE_MAX } else { HOLD_MAX };
        let (arrival, _) = self.streams[s].order.oldest()?;
        let end = arrival + most;
        match favoured.in_flight {
            _ if favoured.completed >= until => None,
            0 if probes => Some(end.min(favoured.goes_on_until())),
            0 => None,
            _ => Some(end),
        }
    }
}
