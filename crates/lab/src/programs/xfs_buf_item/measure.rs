//! Creates and unlinks in real time, the ways in turns, and what formatting takes of them.

use std::sync::Arc;

use rt::{Cx, SpinLock};
use xfs::log::IopStats;

use super::bed::{Base, Use, Way};
use super::parameters::{PHASES, Parameters, Work, operations};
use crate::clock::cpu_nanos;
use crate::program::Figures;
use crate::stats::{Change, median};

/// Operations of a hundred that are left out as interrupted by other tasks.
const INTERRUPTED: usize = 2;

/// What rounds gave, by phase and way.
type Rounds = [Vec<Vec<f64>>; 2];

/// Measures creates and unlinks, the ways in turns: figures of each way. May park.
pub(super) fn measure(
    cx: &mut Cx,
    plan: &Parameters,
    base: &Base,
    ways: &[Way],
) -> Result<Vec<Figures>, String> {
    let files = operations(plan.files, plan.tasks);
    let none = || -> Rounds { std::array::from_fn(|_| vec![Vec::new(); ways.len()]) };
    let (mut cpu, mut wall) = (none(), none());
    for round in 0..plan.rounds {
        for turn in 0..ways.len() {
            // Forth and back: whoever comes first in one round comes last in the next.
            let index = if round % 2 == 0 { turn } else { ways.len() - 1 - turn };
            let bed =
                base.mount(cx, Use { way: ways[index], debug: plan.debug, iop_stats: false })?;
            bed.phase(cx, plan.warm_up(plan.tasks), |_, _| ())?;
            bed.sync(cx)?;
            for phase in 0..2 {
                let (start, begin) = (cpu_nanos(), cx.now());
                bed.phase(cx, plan.work(plan.tasks, phase), |_, _| ())?;
                bed.sync(cx)?;
                cpu[phase][index].push((cpu_nanos() - start) / files as f64);
                wall[phase][index].push(cx.now().since(begin).0 as f64 / files as f64);
            }
            bed.end(cx)?;
        }
    }
    let bitwise = ways.iter().position(|way| *way == Way::Bitwise);
    let figures = |index: usize| {
        let mut figures = Figures::default();
        for (phase, what) in PHASES.into_iter().enumerate() {
            figures.set(format!("{what}_cpu_us"), median(&cpu[phase][index]) / 1e3);
            figures.set(format!("{what}_per_s"), 1e9 / median(&wall[phase][index]));
            // Rounds are pairs.
            if let Some(first) = bitwise.filter(|first| *first != index) {
                let pairs = cpu[phase][first].iter().zip(&cpu[phase][index]);
                let ratios: Vec<f64> = pairs.map(|(before, after)| before / after).collect();
                figures.set_change(&format!("{what}_to_bitwise"), &Change::of(&ratios));
            }
        }
        figures
    };
    Ok((0..ways.len()).map(figures).collect())
}

/// What of an operation's time goes into formatting, in nanoseconds.
#[derive(Clone, Copy, Debug)]
pub struct Share {
    /// The size pass and the walks of the format pass.
    pub walk: f64,
    /// The copies.
    pub copy: f64,
    /// The checks of a debug kernel.
    pub check: f64,
    /// The copies of what became dirty alone.
    pub least: f64,
}

impl Share {
    /// The mean of all operations but the [`INTERRUPTED`] slowest in a hundred.
    fn of(looks: &[IopStats]) -> Share {
        let mean = |field: fn(&IopStats) -> u64| {
            let spans = looks.windows(2).map(|pair| field(&pair[1]) - field(&pair[0]));
            let mut spans: Vec<u64> = spans.collect();
            spans.sort_unstable();
            spans.truncate(spans.len() - spans.len() * INTERRUPTED / 100);
            spans.iter().sum::<u64>() as f64 / spans.len().max(1) as f64
        };
        Share {
            walk: mean(|look| look.walk_ns),
            copy: mean(|look| look.copy_ns),
            check: mean(|look| look.check_ns),
            least: mean(|look| look.least_ns),
        }
    }

    /// What of a phase goes into formatting: nanoseconds, and per cent of its CPU time.
    pub(super) fn figures(&self, figures: &mut Figures, phase: &str, debug: bool) {
        let Share { walk, copy, check, least } = *self;
        let whole = 1e3 * figures.get(&format!("{phase}_cpu_us")).unwrap_or(f64::NAN);
        for (name, value) in [
            ("walk_ns", walk),
            ("copy_ns", copy),
            ("least_ns", least),
            ("limit_percent", 100.0 * least / (walk + copy).max(1e-9)),
            ("walk_percent", 100.0 * walk / whole),
            ("copy_percent", 100.0 * copy / whole),
            // Without the checks of a debug kernel there is nothing to have a share.
            ("check_percent", if debug { 100.0 * check / whole } else { f64::NAN }),
        ] {
            figures.set(format!("{phase}_{name}"), value);
        }
    }

    fn least(self, other: Share) -> Share {
        Share {
            walk: self.walk.min(other.walk),
            copy: self.copy.min(other.copy),
            check: self.check.min(other.check),
            least: self.least.min(other.least),
        }
    }
}

/// The difference of two looks at the figures.
pub(super) fn since(now: IopStats, before: IopStats) -> IopStats {
    IopStats {
        items: now.items - before.items,
        unmapped: now.unmapped - before.unmapped,
        bits: now.bits - before.bits,
        addresses: now.addresses - before.addresses,
        dirty: now.dirty - before.dirty,
        fresh: now.fresh - before.fresh,
        regions: now.regions - before.regions,
        copied: now.copied - before.copied,
        walk_ns: now.walk_ns - before.walk_ns,
        copy_ns: now.copy_ns - before.copy_ns,
        least_ns: now.least_ns - before.least_ns,
        check_ns: now.check_ns - before.check_ns,
    }
}

/// Where the time of formatting goes, by phase and way, with the checks of a debug kernel: of one
/// task, that nobody interrupts; the least of a few rounds. May park.
pub(super) fn profile(
    cx: &mut Cx,
    plan: &Parameters,
    base: &Base,
    ways: &[Way],
) -> Result<[Vec<Share>; 2], String> {
    let none = Share { walk: f64::MAX, copy: f64::MAX, check: f64::MAX, least: f64::MAX };
    let mut shares = [vec![none; ways.len()], vec![none; ways.len()]];
    for _ in 0..plan.rounds.min(3) {
        for (index, &way) in ways.iter().enumerate() {
            let bed = base.mount(cx, Use { way, debug: true, iop_stats: true })?;
            bed.phase(cx, Work { files: plan.files / 4, ..plan.warm_up(1) }, |_, _| ())?;
            for (phase, shares) in shares.iter_mut().enumerate() {
                let first = vec![bed.fs.iop_stats().unwrap_or_default()];
                let looks = Arc::new(SpinLock::named("looks", first));
                let taken = looks.clone();
                let work = Work { files: plan.files, ..plan.work(1, phase) };
                bed.phase(cx, work, move |cx, fs| {
                    taken.lock(cx).push(fs.iop_stats().unwrap_or_default());
                })?;
                let share = Share::of(&looks.lock(cx));
                shares[index] = shares[index].least(share);
            }
            bed.end(cx)?;
        }
    }
    Ok(shares)
}
