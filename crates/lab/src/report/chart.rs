//! The pictures of a report.

mod forest;
mod scatter;
mod series;
mod timeline;

pub use forest::{forest, relations};
pub use scatter::{frontier, sweep};
pub use series::{idle_bars, latencies, throughput};
pub use timeline::timeline;
