//! The program `xfs-buf-item`: "xfs: optimise xfs_buf_item_size/format for contiguous regions",
//! Dave Chinner, 2021, and what the thread leaves open.
//!
//! Three parts, kept apart in the report:
//!
//! - *exact*: steps of both passes on the bitmaps alone, and counts of real creates and unlinks in
//!   virtual time, where the three variants make the same image, log included;
//! - *measured*: real XFS on a device in memory, in real time, the variants in turns in one
//!   process; the basis is the CPU time of the process. With the checks of the document's debug
//!   kernel and without;
//! - *modelled*: sixteen processors in virtual time, a step of a walk costs what the document's
//!   profile says.
//!
//! Each directory is in node form from the beginning, and every round starts from the same image.
//! What is run, published and held is in `experiments/xfs-buf-item.toml`.

mod bed;
mod measure;
mod model;
mod parameters;
mod structure;

pub use bed::Way;

use std::sync::Arc;

use self::bed::Base;
use self::measure::Share;
use self::parameters::{PHASES, Parameters, Part};
use crate::experiment::{ByteSize, Experiment, RunSpec};
use crate::program::{
    Figures, Output, Played, Program, Shared, check_cases, in_real_time, parameters,
};
use crate::record::RunError;

/// Images and worlds that are kept.
const KEPT: usize = 64;

/// What a world is made of: image, tasks, way, seed.
type WorldKey = ([u64; 4], u64, &'static str, u64);

/// What a profile is made of: image, ways.
type ProfileKey = ([u64; 4], Vec<String>);

/// Creates and unlinks on XFS in memory.
struct XfsBufItem<'a> {
    experiment: &'a Experiment,
    images: Shared<[u64; 4], Base>,
    worlds: Shared<WorldKey, model::World>,
    profiles: Shared<ProfileKey, [Vec<Share>; 2]>,
}

/// The program for an experiment.
///
/// # Errors
/// A case or a variant that is none for this program.
pub fn new(experiment: &Experiment) -> Result<Box<dyn Program + '_>, String> {
    check_cases::<Parameters>(experiment)?;
    experiment.file.variant.keys().try_for_each(|name| Way::of(name).map(drop))?;
    let (images, worlds) = (Shared::new(KEPT), Shared::new(KEPT));
    Ok(Box::new(XfsBufItem { experiment, images, worlds, profiles: Shared::new(KEPT) }))
}

impl XfsBufItem<'_> {
    /// The world of counts, played once.
    fn counted(&self, plan: &Parameters, way: Way, seed: u64) -> Result<Arc<model::World>, String> {
        let key = (plan.image(), plan.tasks, way.name(), seed);
        let base = self.images.get(plan.image(), || Base::make(plan))?;
        self.worlds.get(key, || model::play(plan, &base, way, seed, None))
    }

    fn world(&self, spec: &RunSpec, plan: &Parameters) -> Result<(Figures, Played), String> {
        let (way, seed) = (Way::of(&spec.key.variant)?, spec.key.seed);
        let large = Parameters { dir_block: ByteSize(model::LARGE), ..plan.clone() };
        let counted = self.counted(plan, way, seed)?;
        let bitwise = self.counted(plan, Way::Bitwise, seed)?;
        let costs = model::costs(plan, &*self.counted(&large, Way::Bitwise, seed)?, &bitwise);
        let base = self.images.get(plan.image(), || Base::make(plan))?;
        let timed = model::play(plan, &base, way, seed, Some(costs))?;
        let hash = format!("{:016x}{:016x}", counted.hash, timed.hash);
        let seconds = timed.nanos.iter().sum::<f64>() * plan.files as f64 / 1e9;
        let figures = model::figures(plan, &counted, costs, &timed);
        Ok((figures, Played { seconds, event_hash: hash }))
    }

    fn measured(
        &self,
        spec: &RunSpec,
        plan: &Parameters,
        ways: &[Way],
    ) -> Result<Vec<Figures>, String> {
        let base = self.images.get(plan.image(), || Base::make(plan))?;
        let mut all = in_real_time(|cx| measure::measure(cx, plan, &base, ways))?;
        if plan.profile {
            // Walks and copies are the same with and without the checks of a debug kernel.
            let key = (plan.image(), spec.turns.clone());
            let shares = self
                .profiles
                .get(key, || in_real_time(|cx| measure::profile(cx, plan, &base, ways)))?;
            for (index, figures) in all.iter_mut().enumerate() {
                shares[0][index].figures(figures, PHASES[0], plan.debug);
                shares[1][index].figures(figures, PHASES[1], plan.debug);
            }
        }
        Ok(all)
    }

    fn outputs(&self, spec: &RunSpec) -> Result<Vec<Output>, String> {
        let plan = parameters::<Parameters>(&spec.key.case, &spec.with)?;
        if (plan.part != Part::World) != spec.measured {
            let case = &spec.key.case;
            return Err(format!("case {case}: `measured` is for `bitmap` and `measured` alone"));
        }
        let ways = spec.turns.iter().map(|name| Way::of(name)).collect::<Result<Vec<_>, _>>()?;
        let all: Vec<(Figures, Played)> = match plan.part {
            Part::World => vec![self.world(spec, &plan)?],
            Part::Bitmap => {
                let all = in_real_time(|cx| structure::bitmap(cx, &plan, &ways));
                all.into_iter().map(|figures| (figures, Played::default())).collect()
            }
            Part::Measured => {
                let all = self.measured(spec, &plan, &ways)?;
                all.into_iter().map(|figures| (figures, Played::default())).collect()
            }
        };
        let record = |(variant, (figures, played)): (&String, (Figures, Played))| {
            Output::of(figures.record(self.experiment, spec, variant, played))
        };
        Ok(spec.turns.iter().zip(all).map(record).collect())
    }
}

impl Program for XfsBufItem<'_> {
    fn figures(&self) -> Vec<String> {
        let phase = [
            "buffers",
            "clusters",
            "bits",
            "addresses",
            "steps",
            "regions",
            "dirty_bytes",
            "new_bytes",
            "copied_bytes",
            "ns",
            "cpu_us",
            "per_s",
            "to_bitwise",
            "walk_ns",
            "copy_ns",
            "least_ns",
            "limit_percent",
            "walk_percent",
            "copy_percent",
            "check_percent",
        ];
        let own = [
            "creates_per_s",
            "unlinks_per_s",
            "creates_s",
            "unlinks_s",
            "image",
            "step_ns",
            "byte_ns",
            "bitmap_steps",
            "bitmap_ns",
            "bitmap_regions",
            "bitmap_alike",
        ];
        let of = |what| phase.map(|name| format!("{what}_{name}"));
        PHASES.into_iter().flat_map(of).chain(own.map(str::to_owned)).collect()
    }

    fn traces(&self) -> bool {
        false
    }

    fn run(&self, spec: &RunSpec, _keep_trace: bool) -> Result<Vec<Output>, RunError> {
        self.outputs(spec).map_err(|what| RunError::of(spec.key.to_string(), what))
    }
}
