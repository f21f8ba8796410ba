//! The pictures of a report.

mod forest;
mod scatter;
mod series;
mod timeline;

pub use forest::{forest, relations};
pub use scatter::{frontier, sweep};
pub use series::{idle_bars, latencies, throughput};
pub use timeline::timeline;

/// Width of every picture.
const WIDTH: f64 = 960.0;

/// The class of the `index`-th variant or task: six colours.
fn colour(index: usize) -> String {
    format!("c{}", index % 6)
}
