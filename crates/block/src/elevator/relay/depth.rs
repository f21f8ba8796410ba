//! How many asynchronous requests may be in the device beside synchronous ones: as many as do not
//! make those much slower. One more per eight that were not slow, half as many after one that was,
//! none after one that was very slow (a device that hides writes in a cache gives no other sign).
//! Below one, only those go that have waited `async_wait`, one at a time.

use super::Relay;
use super::stream::Sid;
use crate::Request;
use base::Nanos;

/// A request is slow when it took so many times its best recent time ..
const SLOW: u64 = 8;
/// .. and this more; longer than `SLOW_MAX` it is slow whatever its best time is.
const SLACK: Nanos = Nanos::from_millis(2);
const SLOW_MAX: Nanos = Nanos::from_millis(60);
/// So many times as long is very slow.
const VERY: u64 = 4;
/// Asynchronous requests have the device for themselves when no synchronous one has ended for so
/// long.
const QUIET: Nanos = Nanos::from_millis(50);

impl Relay {
    /// Learns from a request of `s` that was in the device for `took`.
    pub(super) fn learn_async_limit(&mut self, s: Sid, request: &Request, took: Nanos) {
        let stream = &self.streams[s];
        if !stream.sync {
            return;
        }
        let Some(best) = stream.best.get() else { return };
        let slow = (SLOW * best * request.bytes() / 1024 + SLACK.0).min(SLOW_MAX.0);
        self.async_limit = match took.0 / slow {
            0 => self.async_limit + 0.125,
            _ if self.in_flight[0] == 0 => self.async_limit,
            times if times >= VERY => 0.0,
            _ => self.async_limit / 2.0,
        }
        .clamp(0.0, self.depth as f64);
    }

    fn async_is_late(&self) -> bool {
        let waiting = self.async_streams.iter().flatten();
        let oldest = waiting.filter_map(|&s| self.streams[s].order.oldest()).min();
        oldest.is_some_and(|(arrival, _)| arrival + self.tunables.async_wait <= self.now)
    }

    /// When asynchronous requests that wait for the quiet of synchronous ones may go, where nothing
    /// else will happen.
    pub(super) fn async_wakes(&self) -> Option<Nanos> {
        let alone = self.waiting > 0 && self.in_flight == [0; 2] && !self.has_room_for_async();
        let end = self.last_sync_end.filter(|_| alone)?;
        Some(end + QUIET).filter(|&when| when > self.now)
    }

    /// Whether one more asynchronous request may go out.
    pub(super) fn has_room_for_async(&self) -> bool {
        let waits = self.waiting_streams().any(|s| self.streams[s].sync);
        let recent = |end| self.now.since(end) < QUIET;
        let quiet = !waits && self.in_flight[1] == 0 && !self.last_sync_end.is_some_and(recent);
        let most = if quiet { self.depth } else { self.async_limit as u32 };
        self.in_flight[0] < most || self.in_flight[0] == 0 && self.async_is_late()
    }
}
