//! The runs of an experiment that is its file: from (experiment, variant, workloads, seed) to a
//! record, as a pure function.
//!
//! ```text
//!   profile -> memory -> modelled device -> queue (elevator, tunables, flags, trace)
//!           -> ext3 or ext4, made and laid out before the clock starts -> mount -> namespace
//!           -> workloads as tasks, for a simulated time -> record
//! ```
//!
//! The image of a file system is made once for each experiment and forked for each run: a fork
//! shares pages until they are written.

mod base_image;
mod collect;
mod figures;
mod forget;
mod loads;
mod mount;
mod world;

use base_image::BaseImage;
use model::Profile;

use crate::experiment::{Experiment, RunSpec};
use crate::program::{Output, Program, Shared};
use crate::record::RunError;

/// Images that are kept at a time: more than an experiment has file systems.
const IMAGES: usize = 64;

/// Workloads on a modelled machine.
pub struct Workloads<'a> {
    experiment: &'a Experiment,
    profile: Profile,
    images: Shared<String, BaseImage>,
}

impl Workloads<'_> {
    /// Those of an experiment.
    ///
    /// # Errors
    /// The machine's profile cannot be read.
    pub fn new(experiment: &Experiment) -> Result<Workloads<'_>, String> {
        let profile = experiment.profile().map_err(|error| format!("machine: {error}"))?;
        let profile = profile.ok_or("machine: workloads need one")?;
        Ok(Workloads { experiment, profile, images: Shared::new(IMAGES) })
    }
}

impl Program for Workloads<'_> {
    fn figures(&self) -> Vec<String> {
        // Checked with the file: they have arguments.
        self.experiment.file.metric.values().map(|one| one.value.get_ref().clone()).collect()
    }

    fn traces(&self) -> bool {
        true
    }

    fn run(&self, spec: &RunSpec, keep_trace: bool) -> Result<Vec<Output>, RunError> {
        let name = &spec.key.filesystem;
        let image = self.images.get(name.clone(), || BaseImage::make(self.experiment, name));
        let image = image.map_err(|what| RunError::of(format!("image of {name}"), what))?;
        let scene =
            world::Scene { experiment: self.experiment, spec, profile: &self.profile, keep_trace };
        let output = scene.run(&image);
        Ok(vec![output.map_err(|what| RunError::of(spec.key.to_string(), what))?])
    }
}
