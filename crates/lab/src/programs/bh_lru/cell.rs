//! One row of the document's tables.

use rt::Cx;

use super::bed::{Base, Variant};
use super::operations::{Cell, PHASES};
use super::slices::{self, Effort, Slices, Work};
use crate::program::Figures;
use crate::stats::{Change, trimmed_mean};

/// How a cell is measured.
pub(super) struct Measure<'a> {
    pub cell: &'a Cell,
    /// They take turns.
    pub variants: &'a [Variant],
    /// Each is compared with those before it; else ours alone, with every size.
    pub with_all: bool,
    pub effort: Effort,
    /// Of several tasks at once.
    pub at_once: Option<Effort>,
}

impl Measure<'_> {
    /// The pairs that are compared, by their places.
    fn pairs(&self) -> Vec<(usize, usize)> {
        let ours = |at: &usize| self.with_all || self.variants[*at] == Variant::Ours;
        let all = (0..self.variants.len()).filter(ours);
        all.flat_map(|to| (0..to).map(move |from| (from, to))).collect()
    }

    /// The figures of each variant. May park.
    pub fn run(&self, cx: &mut Cx, base: &Base) -> Result<Vec<Figures>, String> {
        let bed = base.mount(cx, self.cell.legacy)?;
        let pairs = self.pairs();
        let enough = |slices: &Slices| {
            pairs.iter().all(|&(from, to)| changes(slices, from, to).iter().all(Change::enough))
        };
        let (cell, variants, effort) = (self.cell, self.variants, self.effort);
        let work = Work { bed: &bed, cell, variants, effort, enough: &enough };
        let slices = slices::in_turns(cx, work)?;
        let mut all = vec![Figures::default(); variants.len()];
        self.figures(&slices, "", &mut all);
        counts(&slices, &mut all);
        if let Some(effort) = self.at_once {
            let slices = slices::at_once(cx, Work { effort, ..work })?;
            self.figures(&slices, "at_once_", &mut all);
        }
        bed.end(cx)?;
        Ok(all)
    }

    /// Times and changes.
    fn figures(&self, slices: &Slices, prefix: &str, all: &mut [Figures]) {
        let nanos = |phase: usize, at: usize| trimmed_mean(&slices.nanos[phase][at]).0;
        for (phase, what) in PHASES.iter().enumerate() {
            for (at, figures) in all.iter_mut().enumerate() {
                figures.set(format!("{what}_{prefix}ns"), nanos(phase, at));
            }
        }
        for (from, to) in self.pairs() {
            let name = self.variants[from].name();
            for (change, what) in changes(slices, from, to).iter().zip(PHASES) {
                match self.with_all {
                    true => all[to].set_change(&format!("{what}_{prefix}to_{name}"), change),
                    false => all[from].set_change(&format!("{what}_ours_to_it"), change),
                }
            }
        }
        let ours = self.variants.iter().position(|one| *one == Variant::Ours);
        let (Some(ours), false) = (ours, self.with_all) else { return };
        for (phase, what) in PHASES.iter().enumerate() {
            let fixed = (0..ours).min_by(|&a, &b| nanos(phase, a).total_cmp(&nanos(phase, b)));
            if let Some(best) = fixed {
                let change = &changes(slices, best, ours)[phase];
                all[ours].set_change(&format!("{what}_to_best"), change);
            }
        }
    }
}

/// Counters of an operation, and the memory that entries pin.
fn counts(slices: &Slices, all: &mut [Figures]) {
    let each = |count: u64| count as f64 / slices.operations as f64;
    for (at, figures) in all.iter_mut().enumerate() {
        for (what, counts) in PHASES.iter().zip(&slices.counts) {
            figures.set(format!("{what}_lookups"), each(counts[at].lookups));
            figures.set(format!("{what}_misses"), each(counts[at].misses));
            figures.set(format!("{what}_compares"), each(counts[at].compares));
        }
        figures.set("pinned_kib", slices.counts[0][at].pinned as f64 / 1024.0);
        figures.set("slices", slices.count() as f64);
    }
}

/// The changes of each phase from one variant to another, paired by groups of slices.
fn changes(slices: &Slices, from: usize, to: usize) -> Vec<Change> {
    (0..PHASES.len()).map(|phase| Change::trimmed(&slices.ratios(phase, from, to))).collect()
}
