//! Waiting requests of one queue, by position and by age. For elevators that keep several queues.

use crate::{Request, RequestId};
use base::{Nanos, Sector};
use std::collections::BTreeMap;

/// How steps backwards are judged.
#[derive(Clone, Copy, Debug)]
pub(super) struct BackSeek {
    /// Farther back than so many sectors is around the end.
    pub max: u64,
    /// A step backwards counts so many times.
    pub penalty: u64,
}

impl Default for BackSeek {
    /// 16 MiB, twice.
    fn default() -> BackSeek {
        BackSeek { max: 32_768, penalty: 2 }
    }
}

/// The list.
#[derive(Default)]
pub(super) struct Order {
    sorted: BTreeMap<(Sector, u64), RequestId>,
    /// By (expiry, number).
    fifo: BTreeMap<(Nanos, u64), RequestId>,
}

impl Order {
    pub fn is_empty(&self) -> bool {
        self.sorted.is_empty()
    }

    pub fn insert(&mut self, id: RequestId, request: &Request, expiry: Nanos) {
        self.sorted.insert((request.sector, request.number), id);
        self.fifo.insert((expiry, request.number), id);
    }

    /// Takes out a request that begins at `sector`.
    pub fn remove(&mut self, sector: Sector, number: u64, expiry: Nanos) {
        self.sorted.remove(&(sector, number));
        self.fifo.remove(&(expiry, number));
    }

    /// A request has grown at its front.
    pub fn moved(&mut self, id: RequestId, request: &Request, old_start: Sector) {
        self.sorted.remove(&(old_start, request.number));
        self.sorted.insert((request.sector, request.number), id);
    }

    /// A request is older than it was.
    pub fn aged(&mut self, id: RequestId, number: u64, from: Nanos, to: Nanos) {
        self.fifo.remove(&(from, number));
        self.fifo.insert((to, number), id);
    }

    /// The request that expires first, with that time.
    pub fn oldest(&self) -> Option<(Nanos, RequestId)> {
        self.fifo.first_key_value().map(|(&(expiry, _), &id)| (expiry, id))
    }

    /// The request that a device at `head` reaches best, with its first sector.
    pub fn nearest(&self, head: Sector, back: BackSeek) -> Option<(Sector, RequestId)> {
        let place = |(&(sector, _), &id): (&(Sector, u64), &RequestId)| (sector, id);
        let ahead = self.sorted.range((head, 0)..).next().map(place);
        let behind = self.sorted.range(..(head, 0)).next_back().map(place);
        let behind = behind.filter(|&(sector, _)| head.0 - sector.0 <= back.max);
        match (ahead, behind) {
            (Some(ahead), Some(behind)) => {
                let cost = (head.0 - behind.0.0).saturating_mul(back.penalty);
                Some(if cost < ahead.0.0 - head.0 { behind } else { ahead })
            }
            (ahead, behind) => ahead.or(behind).or_else(|| self.sorted.iter().next().map(place)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Bio;
    use base::Page;

    #[test]
    fn steps_backwards_count_twice_and_far_ones_lead_around() {
        let mut order = Order::default();
        for (index, sector) in [100u64, 900, 1_000_000].into_iter().enumerate() {
            let bio = Bio::read(Sector(sector), [Page::zeroed(512)], Box::new(|_| ()));
            let request = Request::new(bio, Nanos::ZERO, index as u64, 0);
            order.insert(RequestId(index as u32), &request, Nanos(10 - index as u64));
        }
        let at = |head| order.nearest(Sector(head), BackSeek::default()).map(|(at, _)| at.0);
        let found = [at(0), at(300), at(500), at(910), at(500_000), at(2_000_000)];
        assert_eq!(found, [100, 100, 900, 900, 1_000_000, 100].map(Some));
        assert_eq!(order.oldest(), Some((Nanos(8), RequestId(2))));
        order.remove(Sector(1_000_000), 2, Nanos(8));
        assert_eq!(order.oldest(), Some((Nanos(9), RequestId(1))));
    }
}
