//! The upper quantiles of latencies, of the main table's runs that kept their distributions.

use super::model::Report;
use super::number;
use super::table::{Align, TextTable};

/// The quantiles that are shown, in thousandths.
const QUANTILES: [(u64, &str); 4] = [(500, "p50"), (950, "p95"), (990, "p99"), (999, "p99.9")];

/// One row for each distribution; empty where no run kept one.
pub fn table(report: &Report) -> TextTable {
    use Align::{Left, Right};
    let words = [("fs", Left), ("case", Left), ("variant", Left), ("operations of", Left)];
    let quantiles = QUANTILES.map(|(_, name)| (name, Right));
    let figures = [("n", Right)].into_iter().chain(quantiles).chain([("max", Right)]);
    let mut table = TextTable::new(words.into_iter().chain(figures));
    let main = |variant: &str| {
        let rows = report.tables.first().map_or(&[][..], |table| &table.rows);
        rows.iter().any(|row| row.variant == variant)
    };
    for run in report.runs.iter().filter(|run| main(&run.key.variant)) {
        for latency in run.detail.iter().flat_map(|detail| &detail.latencies) {
            let n: u64 = latency.buckets.iter().map(|bucket| bucket.1).sum();
            let key = &run.key;
            let words =
                [&key.filesystem, &key.case, &key.variant, &latency.name].map(String::clone);
            let quantiles =
                QUANTILES.map(|(part, _)| milliseconds(quantile(&latency.buckets, part)));
            let most = milliseconds(latency.buckets.last().map(|bucket| bucket.0));
            let figures = [n.to_string()].into_iter().chain(quantiles).chain([most]);
            if n > 0 {
                table.row(words.into_iter().chain(figures));
            }
        }
    }
    table
}

fn milliseconds(nanos: Option<u64>) -> String {
    number::optional(nanos.map(|nanos| nanos as f64 / 1e6), 2)
}

/// The upper end of the bucket in which a part of the samples ends; none where fewer than ten lie
/// beyond it.
fn quantile(buckets: &[(u64, u64)], thousandths: u64) -> Option<u64> {
    let n: u64 = buckets.iter().map(|bucket| bucket.1).sum();
    if n * (1000 - thousandths) < 10 * 1000 {
        return None;
    }
    let mut seen = 0;
    let holds = |bucket: &&(u64, u64)| {
        seen += bucket.1;
        seen * 1000 >= n * thousandths
    };
    buckets.iter().find(holds).map(|bucket| bucket.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quantile_needs_ten_samples_beyond_it() {
        let buckets = [(1_000, 50), (2_000, 45), (9_000, 5)];
        assert_eq!(quantile(&buckets, 500), Some(1_000));
        assert_eq!(quantile(&buckets, 900), Some(2_000));
        assert_eq!(quantile(&buckets, 950), None, "five lie beyond it");
        let many = buckets.map(|(value, count)| (value, 100 * count));
        assert_eq!(quantile(&many, 950), Some(2_000));
        assert_eq!(quantile(&many, 990), Some(9_000));
    }
}
