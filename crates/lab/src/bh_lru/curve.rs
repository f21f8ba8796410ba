//! Beyond the document: all sizes, several file systems, and what each pins.

use rt::Cx;

use super::Plan;
use super::bed::{Base, Setup, Variant};
use super::cell::{Cell, Change, PerOperation, changes};
use super::published::Set;
use super::slices::{self, Slices, Work};
use crate::stats::trimmed_mean;

/// A file system over the sizes.
#[derive(Clone, Debug)]
pub struct Curve {
    /// In words.
    pub title: &'static str,
    /// How it is made.
    pub setup: Setup,
    /// The sizes, and ours at last.
    pub points: Vec<CurvePoint>,
}

/// A size on a curve.
#[derive(Clone, Debug)]
pub struct CurvePoint {
    /// The size, or ours.
    pub variant: Variant,
    /// CPU time of an operation by phase, nanoseconds.
    pub nanos: [f64; 3],
    /// Ours against this size, by phase.
    pub ours: Vec<Change>,
    /// Counters of a create.
    pub create: PerOperation,
    /// Bytes pinned by all CPUs.
    pub pinned: u64,
}

impl Curve {
    /// Slices of each size.
    pub fn slices(&self) -> usize {
        self.points.first().and_then(|point| point.ours.first()).map_or(0, |change| change.pairs)
    }

    /// The array that is the fastest in a phase, and ours against it.
    pub fn best_fixed(&self, phase: usize) -> Option<(Variant, &Change)> {
        let fixed = self.points.iter().filter(|point| point.variant != Variant::Ours);
        let best = fixed.min_by(|a, b| a.nanos[phase].total_cmp(&b.nanos[phase]))?;
        Some((best.variant, &best.ours[phase]))
    }
}

/// Names that fill one, two and three levels of a hash tree with blocks of 1 KiB.
const DEPTHS: [u64; 3] = [400, 20_000, 60_000];

/// The curves.
pub(super) fn all() -> Vec<Curve> {
    let make = |title, kind, features, block, names| Curve {
        title,
        setup: Setup { kind, features, block, acl: false, label: false, names },
        points: Vec::new(),
    };
    vec![
        make("ext3", "ext3", "", 4096, 20_000),
        make("ext4", "ext4", "", 4096, 20_000),
        make("ext4 with quota", "ext4", "quota", 4096, 20_000),
        make("ext4 with quota of three kinds", "ext4", "quota,project", 4096, 20_000),
        make("ext4, 1 KiB blocks, tree of depth 1", "ext4", "large_dir,quota", 1024, DEPTHS[0]),
        make("ext4, 1 KiB blocks, tree of depth 2", "ext4", "large_dir,quota", 1024, DEPTHS[1]),
        make("ext4, 1 KiB blocks, deeper tree", "ext4", "large_dir,quota", 1024, DEPTHS[2]),
    ]
}

/// Measures a curve: the variants take turns. May park.
pub(super) fn measure(cx: &mut Cx, plan: &Plan, mut curve: Curve) -> Result<Curve, String> {
    let names = curve.setup.names.min(plan.names);
    curve.setup.names = names;
    let base = Base::make(cx, &curve.setup, 1)?;
    let arrays = plan.curve_sizes.iter().map(|&size| Variant::Array(size));
    let variants: Vec<Variant> = arrays.chain([Variant::Ours]).collect();
    let ours = variants.len() - 1;
    let cell = Cell { set: Set::C, names, dirs: 1, tasks: 1 };
    let bed = base.mount(cx, Variant::Ours)?;
    let enough = |slices: &Slices| {
        (0..ours).all(|index| changes(slices, index, ours).iter().all(Change::enough))
    };
    let (effort, enough) = (plan.curves, &enough);
    let work = Work { bed: &bed, cell: &cell, variants: &variants, effort, enough };
    let slices = slices::in_turns(cx, work)?;
    bed.end(cx)?;
    for (index, variant) in variants.into_iter().enumerate() {
        let counts = &slices.counts[0][index];
        curve.points.push(CurvePoint {
            variant,
            nanos: std::array::from_fn(|phase| trimmed_mean(&slices.nanos[phase][index]).0),
            ours: changes(&slices, index, ours),
            create: PerOperation::of(counts, slices.operations),
            pinned: counts.pinned,
        });
    }
    Ok(curve)
}
