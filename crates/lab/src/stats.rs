//! Statistics of runs: centres, intervals, tests, effects, verdicts.
//!
//! The unit is a *run*, never an I/O. Everything here is a pure function; what is drawn at random
//! (bootstrap resamples) comes from a fixed seed, so that a report is the same every time.
//!
//! Checked in the tests against published worked examples and against values of SciPy 1.x, which
//! are written there.

pub mod bootstrap;
pub mod center;
pub mod change;
pub mod effect;
pub mod normal;
pub mod order;
pub mod rank;
pub mod trimmed;
pub mod verdict;

pub use bootstrap::{Interval, RESAMPLES};
pub use center::{geometric_mean, harmonic_mean, mean, median, quantile};
pub use change::Change;
pub use effect::{cliffs_delta, hodges_lehmann, pseudo_median};
pub use order::{abba, drift};
pub use rank::{mann_whitney, wilcoxon};
pub use trimmed::trimmed_mean;
pub use verdict::{Better, Comparison, Verdict, compare, compare_paired, holm};
