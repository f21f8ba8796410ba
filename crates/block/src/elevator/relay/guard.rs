//! The share of a sequential stream while requests are mixed.
//!
//! Among n parties a stream that works in sequence is owed an n-th of what it would get alone. What
//! the others send beside it makes its requests slower; so they are slowed down, each now and then
//! by the rest of one request of the stream, as little as is needed: an integral controller keeps
//! the stream a little above its share.

use super::Relay;
use super::stream::Sid;
use crate::elevator::NoteKind;
use base::Nanos;

/// How much above its share a stream is kept.
const MARGIN: f64 = 1.07;
/// Time between two corrections.
const WINDOW: Nanos = Nanos::from_millis(20);
/// Correction of the fraction of held requests per relative error.
const GAIN: f64 = 0.05;
/// Largest fraction of held requests.
const MOST: f64 = 0.8;
/// So often everybody waits for a few requests of the stream, to learn what it would get alone.
const PROBE_EVERY: Nanos = Nanos::from_secs(1);
/// Number of these requests.
const PROBE: u64 = 2;
/// A request is not held back for longer.
const HOLD_MAX: Nanos = Nanos::from_millis(4);

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
    /// When the next probe begins, and how many requests of the stream end the running one.
    next_probe: Nanos,
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
        // The one that is farthest below its share.
        let rate = |s: Sid| self.streams[s].guard_bytes as f64 * 1e9 / span.0 as f64;
        let worst = parties
            .iter()
            .filter(|&&s| self.streams[s].is_sequential() && self.streams[s].completed > 16)
            .filter_map(|&s| {
                let owed = self.streams[s].alone_rate()? as f64 * MARGIN / parties.len() as f64;
                Some((rate(s) / owed, s))
            })
            .min_by(|a, b| a.0.total_cmp(&b.0));
        self.guard.began = now;
        for stream in self.streams.iter_mut() {
            stream.guard_bytes = 0;
        }
        let Some((ratio, s)) = worst.filter(|_| parties.len() > 1) else {
            let next_probe = self.guard.next_probe;
            self.guard = Guard { began: now, next_probe, ..Guard::default() };
            return;
        };
        if self.guard.stream != Some(s) {
            let (fraction, next_probe) = (self.guard.fraction, self.guard.next_probe);
            let stream = Some(s);
            let fresh = Guard { stream, fraction, began: now, rate: ratio, ..Guard::default() };
            self.guard = Guard { next_probe, ..fresh };
        }
        self.guard.rate += (ratio - self.guard.rate) / 4.0;
        let error = (1.0 - self.guard.rate).clamp(-0.5, 0.5);
        self.guard.fraction = (self.guard.fraction + GAIN * error).clamp(0.0, MOST);
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
        if self.now >= self.guard.next_probe {
            self.guard.next_probe = self.now + PROBE_EVERY;
            self.guard.probe_until = completed + PROBE;
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
        let Some((favoured, until)) = self.streams[s].held else { return false };
        let favoured = &self.streams[favoured];
        let over = self.released_at(s).is_none_or(|when| when <= self.now);
        favoured.completed < until && favoured.in_flight > 0 && !over
    }

    /// When a stream is held back no longer, whatever happens.
    pub(super) fn released_at(&self, s: Sid) -> Option<Nanos> {
        self.streams[s].order.oldest().map(|(arrival, _)| arrival + HOLD_MAX)
    }
}
