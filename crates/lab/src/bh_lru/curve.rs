//! Beyond the document: all sizes, several file systems, and what each pins.

use rt::Cx;

use super::Plan;
use super::bed::{Base, Counts, Setup, Variant};
use super::cell::{Cell, run_phase};
use super::published::Set;
use crate::clock::cpu_nanos;
use crate::stats::median;

/// A file system over the sizes.
#[derive(Clone, Debug)]
pub struct Curve {
    /// In words.
    pub title: &'static str,
    /// How it is made.
    pub setup: Setup,
    /// Different blocks that a create looks up, as the file system declares them; `None` before
    /// it was mounted.
    pub points: Vec<CurvePoint>,
}

/// A size on a curve.
#[derive(Clone, Debug)]
pub struct CurvePoint {
    /// The size, or ours.
    pub variant: Variant,
    /// CPU time of a create, nanoseconds; the median of the rounds.
    pub nanos: f64,
    /// Lookups of a create.
    pub lookups: f64,
    /// Misses of a create.
    pub misses: f64,
    /// Compares of a create.
    pub compares: f64,
    /// Bytes pinned by all CPUs.
    pub pinned: u64,
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
    let cell = Cell { set: Set::C, names, dirs: 1, tasks: 1 };
    let mut beds = Vec::new();
    for &variant in &variants {
        beds.push(base.mount(cx, variant)?);
    }
    let mut nanos = vec![Vec::new(); variants.len()];
    let mut counts = vec![Counts::default(); variants.len()];
    for round in 0..=plan.rounds_min {
        for turn in 0..variants.len() {
            let index = if round % 2 == 0 { turn } else { variants.len() - 1 - turn };
            let bed = &beds[index];
            let before = Counts::of(&bed.fs);
            let start = cpu_nanos();
            run_phase(cx, bed, &cell, plan.files, 0)?;
            let span = cpu_nanos() - start;
            if round > 0 {
                nanos[index].push(span / plan.files as f64);
                counts[index].add(Counts::of(&bed.fs).since(before));
            }
            run_phase(cx, bed, &cell, plan.files, 2)?;
        }
    }
    for bed in beds {
        bed.end(cx)?;
    }
    let operations = (plan.files * plan.rounds_min as u64) as f64;
    for ((variant, nanos), counts) in variants.into_iter().zip(nanos).zip(counts) {
        curve.points.push(CurvePoint {
            variant,
            nanos: median(&nanos),
            lookups: counts.lookups as f64 / operations,
            misses: counts.misses as f64 / operations,
            compares: counts.compares as f64 / operations,
            pinned: counts.pinned,
        });
    }
    Ok(curve)
}
