//! From what a run did to its counts and metrics.

use std::collections::BTreeMap;

use base::Nanos;
use block::TraceEvent;
use block::trace::ProcessNames;
use model::LoadSpec;

use super::collect::{Collected, Collector};
use super::loads::Outcome;
use crate::experiment::{Figure, Metric};
use crate::record::{IdleCause, RunRecord};

const MIB: f64 = (1 << 20) as f64;

/// What the world leaves when the workloads have ended.
pub struct Played {
    pub start: Nanos,
    pub end: Nanos,
    pub journal: u64,
    pub outcomes: BTreeMap<String, Outcome>,
    pub stats: block::QueueStats,
    pub model: model::ModelStats,
    pub commits: u64,
    pub collector: Option<Collector>,
    pub trace: Vec<TraceEvent>,
    pub names: ProcessNames,
}

/// Everything countable, by name.
pub fn counts(record: &mut RunRecord, played: &Played, collected: &Collected) {
    let mut put = |name: &str, value: f64| record.counts.insert(name.to_owned(), value);
    let stats = &played.stats;
    for (name, value) in [
        ("device_reads", stats.reads),
        ("device_writes", stats.writes),
        ("device_read_bytes", stats.read_bytes),
        ("device_write_bytes", stats.write_bytes),
        ("flushes", stats.flushes),
        ("bios", stats.bios),
        ("commits", played.commits),
        ("model_media_busy_ns", played.model.media_busy.0),
        ("model_destage_busy_ns", played.model.destage_busy.0),
        ("model_seeks", played.model.seeks),
        ("model_prefetch_hits", played.model.prefetch_hits),
        ("model_read_hits", played.model.read_hits),
        ("model_read_misses", played.model.read_misses),
        ("wait_max_ns", collected.wait_max.0),
        ("model_commands", played.model.commands),
        ("model_member_commands", played.model.member_commands),
        ("model_segments", played.model.segments),
    ] {
        put(name, value as f64);
    }
    collected.notes.iter().for_each(|(name, count)| {
        put(name, *count as f64);
    });
    let files: u64 = played.outcomes.values().map(|outcome| outcome.files).sum();
    put("files", files as f64);
}

/// The value of a metric with a note on it; or, where there is none, why.
pub fn value(
    metric: &Metric,
    record: &RunRecord,
    outcomes: &BTreeMap<String, Outcome>,
    collected: &Collected,
    load: &LoadSpec,
) -> Result<(f64, Option<String>), Option<String>> {
    let figure: Figure = metric.value.get_ref().parse().expect("checked with the file");
    let outcome = metric.of.as_ref().and_then(|of| outcomes.get(of.get_ref()));
    let count = |name: &str| record.counts.get(name).copied().unwrap_or(0.0);
    let seconds = record.seconds.max(1e-9);
    let value = match (figure, outcome) {
        (Figure::Lines(wanted), Some(outcome)) => return lines(wanted, outcome, seconds),
        (Figure::FilesPerSecond, Some(outcome)) => outcome.files as f64 / seconds,
        (Figure::ReadMb, Some(outcome)) => outcome.read_rate / 1e6,
        (Figure::WriteMb, Some(outcome)) => outcome.write_rate / 1e6,
        (Figure::WriteMib, Some(outcome)) => outcome.write_rate / MIB,
        (Figure::ReadMib, Some(outcome)) => outcome.read_rate / MIB,
        (figure, Some(outcome)) if figure.by_transfer() => {
            return by_transfer(figure, record, outcome, load).ok_or(None).map(|v| (v, None));
        }
        (Figure::CommandKib, _) => {
            let bytes = count("device_read_bytes") + count("device_write_bytes");
            match commands(record) > 0.0 {
                true => bytes / commands(record) / 1024.0,
                false => return Err(None),
            }
        }
        (Figure::LatencyMs(q), Some(outcome)) => return latency(q, outcome),
        (Figure::WaitMaxMs, _) => collected.wait_max.as_secs_f64() * 1e3,
        (Figure::IdleArmedPerFile, _) => return per_file(count("idle_armed"), count("files")),
        (Figure::IdleFiredPerFile, _) => return per_file(count("idle_fired"), count("files")),
        (Figure::IdleSatisfiedPerFile, _) => {
            return per_file(count("idle_satisfied"), count("files"));
        }
        (Figure::WritesPerFile, _) => return per_file(count("device_writes"), count("files")),
        (Figure::DeviceIdlePercent, _) => {
            record.idle_ns.values().sum::<u64>() as f64 / 1e7 / seconds
        }
        (Figure::HeldBackPercent, _) => {
            let held = [IdleCause::IdlingOthersWait, IdleCause::HeldOtherwise];
            let held = held.iter().filter_map(|cause| record.idle_ns.get(cause)).sum::<u64>();
            held as f64 / 1e7 / seconds
        }
        _ => return Err(None),
    };
    Ok((value, None))
}

/// Commands of the device; a stripe's members'.
fn commands(record: &RunRecord) -> f64 {
    let count = |name: &str| record.counts.get(name).copied().unwrap_or(0.0);
    match count("model_member_commands") {
        0.0 => count("model_commands"),
        members => members,
    }
}

/// A figure of what a workload moved, and of its time.
fn by_transfer(
    figure: Figure,
    record: &RunRecord,
    outcome: &Outcome,
    load: &LoadSpec,
) -> Option<f64> {
    let count = |name: &str| record.counts.get(name).copied().unwrap_or(0.0);
    let rate = outcome.read_rate + outcome.write_rate;
    let seconds = outcome.bytes as f64 / rate;
    if outcome.bytes == 0 || !seconds.is_finite() {
        return None;
    }
    let (commands, segments) = (commands(record), count("model_segments"));
    let busy = |command: Nanos, segment: Nanos| {
        commands * command.as_secs_f64() + segments * segment.as_secs_f64()
    };
    let system = busy(load.system_command, load.system_segment);
    let interrupt = busy(load.interrupt_command, load.interrupt_segment);
    Some(match figure {
        Figure::CommandsPerSecond => commands / seconds,
        Figure::BiosPerMib => count("bios") / (outcome.bytes as f64 / MIB),
        Figure::SystemPercent => system / seconds * 100.0,
        Figure::InterruptPercent => interrupt / seconds * 100.0,
        Figure::ProcessorPercent => (system + interrupt) / seconds * 100.0,
        _ => (system + interrupt) / (outcome.bytes as f64 / MIB / 1024.0),
    })
}

type Valued = Result<(f64, Option<String>), Option<String>>;

fn per_file(count: f64, files: f64) -> Valued {
    // No file, no quotient: a case without fs_mark, or one in which it was starved.
    if files > 0.0 { Ok((count / files, None)) } else { Err(None) }
}

fn lines(wanted: u32, outcome: &Outcome, seconds: f64) -> Valued {
    let first: Vec<f64> = outcome.lines.iter().copied().take(wanted as usize).collect();
    if first.is_empty() {
        let (files, name) = (outcome.files, &outcome.name);
        let note = format!("{name} finished no line: {files} files by {seconds} s");
        return Ok((files as f64 / seconds, Some(note)));
    }
    let note = (first.len() < wanted as usize)
        .then(|| format!("{} of {wanted} lines of {} were finished", first.len(), outcome.name));
    Ok((crate::stats::mean(&first), note))
}

/// A quantile, where there are enough values for it: ten beyond it (the longest needs one).
fn latency(q: f64, outcome: &Outcome) -> Valued {
    let buckets: Vec<(u64, u64)> =
        outcome.latencies.iter().flat_map(|latency| latency.buckets.iter().copied()).collect();
    let total: u64 = buckets.iter().map(|bucket| bucket.1).sum();
    let needed = if q < 1.0 { 10.0 / (1.0 - q) } else { 1.0 };
    if (total as f64) < needed {
        let name = &outcome.name;
        return Err(Some(format!("{name}: {total} latencies are too few for the quantile {q}")));
    }
    let rank = ((total as f64 * q).ceil() as u64).clamp(1, total);
    let mut seen = 0;
    let at = buckets.iter().find(|bucket| {
        seen += bucket.1;
        seen >= rank
    });
    Ok((at.map_or(0.0, |bucket| bucket.0 as f64 / 1e6), None))
}
