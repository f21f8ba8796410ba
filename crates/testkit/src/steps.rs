//! What a meter has reported.

use std::sync::mpsc::{self, Receiver};

use rt::{Meter, Step};

/// The steps of a [`Meter`].
pub struct Steps(Receiver<Step>);

/// A meter, and what it reports.
pub fn recorded() -> (Meter, Steps) {
    let (to, steps) = mpsc::channel();
    // Whoever does not look at the steps does not need them.
    (Meter::new(move |step| to.send(step).unwrap_or_default()), Steps(steps))
}

impl Steps {
    /// One piece of work was done, from its beginning to its end, by these stages, with several
    /// steps in each.
    ///
    /// # Panics
    /// It was not.
    #[track_caller]
    pub fn assert_whole(&self, stages: &[&str]) {
        let steps: Vec<Step> = self.0.try_iter().collect();
        assert!(steps.is_sorted_by_key(|step| step.done), "{steps:?}");
        assert_eq!(steps.first().map(|step| step.done), Some(0));
        assert_eq!(steps.last().map(|step| step.part()), Some(1.0), "{steps:?}");
        let of_stages = steps.chunk_by(|one, two| one.what == two.what);
        let of_stages: Vec<_> = of_stages.map(|of| (of[0].what, of.len() > 1)).collect();
        let wanted: Vec<_> = stages.iter().map(|&stage| (stage, true)).collect();
        assert_eq!(of_stages, wanted, "{steps:?}");
    }
}
