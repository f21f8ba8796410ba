//! Which states are visited, and in which order.
//!
//! Every length of the log is a place at which the power may fail. At each one the state without
//! losses is visited: these are the ordered prefixes. At the places that matter (before a flush or
//! an FUA write completes, at each mark and each call that returned, at the end) the losses that
//! the [`Disk`] allows are visited beside: everything lost, each write lost alone, each write left
//! alone, all subsets where they are few, torn writes, writes in flight, and random ones by seed.

use std::collections::BTreeSet;

use base::Rng;
use base::unit::SECTOR_SIZE;
use device::{Cut, Event};

use crate::disk::Disk;
use crate::log::{Log, Note};

/// The version of the order of states: results of another one number other states.
pub const VERSION: u32 = 1;

/// How much is visited at a place that matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// All subsets are visited up to this many writes at stake.
    pub all_subsets: u32,
    /// Random subsets, with random tears, at each place where not all are visited.
    pub samples: u32,
    /// Writes that are lost alone, left alone or torn, at most, at each place; evenly chosen.
    pub singles: u32,
}

impl Default for Limits {
    /// All subsets of 5 writes, 12 samples, 64 singles.
    fn default() -> Limits {
        Limits { all_subsets: 5, samples: 12, singles: 64 }
    }
}

/// A plan for a log.
pub struct Plan {
    log: Log,
    disk: Disk,
    seed: u64,
    limits: Limits,
    /// Writes sorted by when they came: those in flight are found from here.
    by_came: Vec<(u32, u32)>,
}

impl Plan {
    /// A plan; the seed decides about the random part.
    pub fn new(log: &Log, disk: Disk, seed: u64, limits: Limits) -> Plan {
        let entries = log.writes().entries.iter().enumerate();
        let mut by_came: Vec<(u32, u32)> = entries
            .filter(|(index, entry)| entry.changes() && entry.came < *index)
            .map(|(index, entry)| (entry.came as u32, index as u32))
            .collect();
        by_came.sort_unstable();
        Plan { log: log.clone(), disk, seed, limits, by_came }
    }

    /// All states, place by place. The states of one place have the same durable part.
    pub fn places(&self) -> impl Iterator<Item = Vec<Cut>> {
        let mut flight: BTreeSet<usize> = BTreeSet::new();
        let mut next = 0;
        (0..=self.log.len()).map(move |upto| {
            while let Some(&(came, index)) = self.by_came.get(next)
                && came as usize <= upto
            {
                flight.insert(index as usize);
                next += 1;
            }
            flight = flight.split_off(&upto);
            match self.repeats(upto) {
                true => Vec::new(),
                false => self.at(upto, &flight),
            }
        })
    }

    /// Only a call that promises nothing lies between this place and the one before: both have the
    /// same states.
    fn repeats(&self, upto: usize) -> bool {
        let last = upto.checked_sub(1).and_then(|last| self.log.note(last));
        last.is_some_and(|note| !note.decides()) && !self.matters(upto)
    }

    /// Does anything but the ordered prefix matter behind `upto` entries?
    fn matters(&self, upto: usize) -> bool {
        let entries = &self.log.writes().entries;
        let next = entries.get(upto).is_none_or(|entry| {
            matches!(entry.event, Event::Flush | Event::Write { fua: true, .. })
        });
        next || upto.checked_sub(1).is_some_and(|last| match entries[last].event {
            Event::Mark(_) => self.log.note(last).is_some_and(Note::decides),
            Event::Write { fua, .. } => fua,
            _ => false,
        })
    }

    fn at(&self, upto: usize, flight: &BTreeSet<usize>) -> Vec<Cut> {
        let mut cuts = vec![Cut::clean(upto)];
        if !self.matters(upto) {
            return cuts;
        }
        let at_stake = self.disk.at_stake(&self.log, upto);
        match self.disk {
            Disk::VolatileCache | Disk::Atomic(_) | Disk::Lying => {
                self.any_order(upto, &at_stake, &mut cuts)
            }
            Disk::Barrier => self.prefixes(upto, &at_stake, &mut cuts),
            Disk::Smr(zone) => self.zones(upto, &at_stake, zone, &mut cuts),
            Disk::Protected => {}
        }
        self.in_flight(upto, flight, &mut cuts);
        cuts
    }

    /// At most `limits.singles` of these, evenly chosen.
    fn some<'a>(&self, indexes: &'a [usize]) -> impl Iterator<Item = (usize, usize)> + 'a {
        let step = indexes.len().div_ceil(self.limits.singles.max(1) as usize).max(1);
        indexes.iter().copied().enumerate().step_by(step)
    }

    fn any_order(&self, upto: usize, at_stake: &[usize], cuts: &mut Vec<Cut>) {
        if at_stake.is_empty() {
            return;
        }
        let lost = |drop: Vec<usize>| Cut { drop, ..Cut::clean(upto) };
        for (_, index) in self.some(at_stake) {
            cuts.push(lost(vec![index]));
        }
        cuts.push(lost(at_stake.to_vec()));
        for (_, index) in self.some(at_stake) {
            cuts.push(lost(at_stake.iter().copied().filter(|other| *other != index).collect()));
        }
        for (_, index) in self.some(at_stake) {
            self.tears(upto, index, &[], cuts);
        }
        if at_stake.len() <= self.limits.all_subsets as usize {
            for set in 1..1u64 << at_stake.len() {
                let chosen = at_stake.iter().enumerate().filter(|(bit, _)| set >> bit & 1 == 1);
                cuts.push(lost(chosen.map(|(_, index)| *index).collect()));
            }
            return;
        }
        let mut rng = Rng::new(self.seed, upto as u64);
        for _ in 0..self.limits.samples {
            cuts.push(self.random(upto, at_stake, &mut rng));
        }
    }

    /// Some lost, some torn; few of them, half, or most.
    fn random(&self, upto: usize, at_stake: &[usize], rng: &mut Rng) -> Cut {
        let loss = [0.05, 0.5, 0.95][rng.below(3) as usize];
        let mut cut = Cut::clean(upto);
        for &index in at_stake {
            if rng.chance(loss) {
                cut.drop.push(index);
            } else if rng.chance(0.1)
                && let units @ 2.. = self.units(index)
            {
                let there: Vec<bool> = (0..units).map(|_| rng.chance(0.5)).collect();
                cut.torn.push((index, self.by_sector(index, |unit| there[unit])));
            }
        }
        cut
    }

    /// Units of a write that the disk writes whole.
    fn units(&self, index: usize) -> usize {
        let entry = &self.log.writes().entries[index];
        if !matches!(entry.event, Event::Write { .. }) {
            return 1;
        }
        let unit = self.disk.atomic_bytes();
        let start = entry.start().bytes();
        ((start + entry.sectors() * SECTOR_SIZE).div_ceil(unit) - start / unit) as usize
    }

    /// For each sector of a write whether its unit is there.
    fn by_sector(&self, index: usize, there: impl Fn(usize) -> bool) -> Vec<bool> {
        let entry = &self.log.writes().entries[index];
        let unit = self.disk.atomic_bytes() / SECTOR_SIZE;
        let first = entry.start().0 / unit;
        let unit_of = |sector: u64| ((entry.start().0 + sector) / unit - first) as usize;
        (0..entry.sectors()).map(|sector| there(unit_of(sector))).collect()
    }

    /// One write torn: its first unit, its first half, its second half, all but its first unit.
    fn tears(&self, upto: usize, index: usize, drop: &[usize], cuts: &mut Vec<Cut>) {
        let units = self.units(index);
        if units < 2 {
            return;
        }
        let half = units / 2;
        let mut parts = vec![(0..1), (0..half), (half..units), (1..units)];
        parts.sort_by_key(|part| (part.start, part.end));
        parts.dedup();
        let early = if index >= upto { vec![index] } else { Vec::new() };
        for part in parts {
            let there = self.by_sector(index, |unit| part.contains(&unit));
            cuts.push(Cut {
                upto,
                drop: drop.to_vec(),
                torn: vec![(index, there)],
                early: early.clone(),
            });
        }
    }

    /// Every prefix of what is at stake, the last write of it whole and torn.
    fn prefixes(&self, upto: usize, at_stake: &[usize], cuts: &mut Vec<Cut>) {
        for (kept, index) in self.some(at_stake) {
            cuts.push(Cut { drop: at_stake[kept..].to_vec(), ..Cut::clean(upto) });
            self.tears(upto, index, &at_stake[kept + 1..], cuts);
        }
    }

    /// A prefix in each zone: all but one zone whole, all but one empty, and random ones.
    fn zones(&self, upto: usize, at_stake: &[usize], zone: u64, cuts: &mut Vec<Cut>) {
        let zone_of = |index: usize| self.log.writes().entries[index].start().bytes() / zone;
        let zones: BTreeSet<u64> = at_stake.iter().map(|index| zone_of(*index)).collect();
        let lost = |drop: Vec<usize>| Cut { drop, ..Cut::clean(upto) };
        for (kept, index) in self.some(at_stake) {
            let own = |other: &usize| zone_of(*other) == zone_of(index);
            let later: Vec<usize> = at_stake[kept..].iter().copied().filter(own).collect();
            let others = at_stake.iter().enumerate();
            let others = others.filter(|(at, other)| !own(other) || *at >= kept);
            cuts.push(lost(others.map(|(_, other)| *other).collect()));
            cuts.push(lost(later));
        }
        if !at_stake.is_empty() {
            cuts.push(lost(at_stake.to_vec()));
        }
        let mut rng = Rng::new(self.seed, upto as u64);
        for _ in 0..if zones.len() > 1 { self.limits.samples } else { 0 } {
            let places: Vec<(u64, usize)> = zones
                .iter()
                .map(|zone| (*zone, rng.below(at_stake.len() as u64 + 1) as usize))
                .collect();
            let kept = |at: usize, index: usize| {
                places.iter().any(|(zone, prefix)| *zone == zone_of(index) && at < *prefix)
            };
            let drop = at_stake.iter().enumerate().filter(|(at, index)| !kept(*at, **index));
            cuts.push(lost(drop.map(|(_, index)| *index).collect()));
        }
    }

    /// What had come and not completed: all of it, each alone, and torn.
    fn in_flight(&self, upto: usize, flight: &BTreeSet<usize>, cuts: &mut Vec<Cut>) {
        let flight: Vec<usize> = flight.iter().copied().collect();
        if flight.len() > 1 {
            cuts.push(Cut { early: flight.clone(), ..Cut::clean(upto) });
        }
        for (_, index) in self.some(&flight) {
            cuts.push(Cut { early: vec![index], ..Cut::clean(upto) });
            self.tears(upto, index, &[], cuts);
        }
    }
}
