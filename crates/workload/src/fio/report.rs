//! What a run of fio found out.

use base::{Errno, Nanos, Timespec};

use super::job::{Direction, Job};
use super::measure::{Latency, LatencyBands};
use crate::{Stats, Timeline};

/// One direction of a job.
#[derive(Clone, Debug)]
pub struct DirectionReport {
    /// Operations.
    pub ios: u64,
    /// Bytes.
    pub bytes: u64,
    /// Operations that were shorter than asked.
    pub short_ios: u64,
    /// From the choice of an operation until it is submitted; asynchronous engines only.
    pub slat: Latency,
    /// From its submission until it is complete.
    pub clat: Latency,
    /// From its choice until it is complete.
    pub lat: Latency,
    /// Samples of the bandwidth, KiB a second.
    pub bw: Stats,
    /// Samples of the rate, operations a second.
    pub iops: Stats,
    /// How long the job worked.
    pub runtime: Nanos,
    /// Operations and bytes per 100 ms since the run began.
    pub timeline: Timeline,
}

impl DirectionReport {
    pub(super) fn new(start: Nanos) -> DirectionReport {
        DirectionReport {
            ios: 0,
            bytes: 0,
            short_ios: 0,
            slat: Latency::default(),
            clat: Latency::default(),
            lat: Latency::default(),
            bw: Stats::new(),
            iops: Stats::new(),
            runtime: Nanos::ZERO,
            timeline: Timeline::new(start, Nanos::from_millis(100)),
        }
    }

    /// Whole milliseconds, at least 1 where anything was done: what rates are divided by.
    pub(super) fn runtime_ms(&self) -> u64 {
        let ms = self.runtime.0 / 1_000_000;
        if self.ios > 0 { ms.max(1) } else { ms }
    }

    /// Bytes a second.
    pub fn bandwidth(&self) -> f64 {
        match self.runtime_ms() {
            0 => 0.0,
            ms => self.bytes as f64 * 1000.0 / ms as f64,
        }
    }

    /// Operations a second.
    pub fn rate(&self) -> f64 {
        match self.runtime_ms() {
            0 => 0.0,
            ms => self.ios as f64 * 1000.0 / ms as f64,
        }
    }

    fn merge(&mut self, other: &DirectionReport) {
        self.ios += other.ios;
        self.bytes += other.bytes;
        self.short_ios += other.short_ios;
        self.slat.merge(&other.slat);
        self.clat.merge(&other.clat);
        self.lat.merge(&other.lat);
        self.bw.merge(&other.bw);
        self.iops.merge(&other.iops);
        self.runtime = self.runtime.max(other.runtime);
        self.timeline.merge(&other.timeline);
    }
}

/// One copy of a job, or with `group_reporting` all of a group.
#[derive(Clone, Debug)]
pub struct JobReport {
    /// What was asked.
    pub job: Job,
    /// Number of its group.
    pub group: u32,
    /// Copies that this covers.
    pub copies: u32,
    /// The task's number, where fio prints a process.
    pub pid: u64,
    /// What ended it before its time.
    pub error: Option<Errno>,
    /// The error in words, with the place.
    pub error_text: String,
    /// Reads, writes, trims.
    pub directions: [DirectionReport; 3],
    /// fsync and fdatasync.
    pub sync: Latency,
    /// All operations by their latency.
    pub bands: LatencyBands,
    /// Operations by how many were under way: 1, 2, 4, 8, 16, 32, 64 and more.
    pub depths: [u64; 7],
    /// When it ended.
    pub ended: Timespec,
    /// How long it worked.
    pub runtime: Nanos,
    /// Log files: name and content.
    pub logs: Vec<(String, String)>,
}

impl JobReport {
    /// A direction.
    pub fn direction(&self, direction: Direction) -> &DirectionReport {
        &self.directions[direction as usize]
    }

    pub(super) fn merge(&mut self, other: JobReport) {
        for (own, more) in self.directions.iter_mut().zip(&other.directions) {
            own.merge(more);
        }
        self.copies += other.copies;
        if self.error.is_none() {
            self.error = other.error;
            self.error_text = other.error_text;
        }
        self.sync.merge(&other.sync);
        self.bands.merge(&other.bands);
        self.depths.iter_mut().zip(other.depths).for_each(|(own, more)| *own += more);
        self.runtime = self.runtime.max(other.runtime);
        self.ended = self.ended.max(other.ended);
        self.logs.extend(other.logs);
    }
}

/// A whole run.
#[derive(Clone, Debug)]
pub struct FioReport {
    /// Copies of jobs, or groups with `group_reporting`, in order.
    pub jobs: Vec<JobReport>,
    /// The settings of `[global]`.
    pub globals: Vec<(String, String)>,
    /// The lines that fio prints before it runs: jobs, version, processes, files laid out.
    pub preamble: String,
    /// Notes for standard error.
    pub messages: Vec<String>,
    /// When the run ended.
    pub ended: Timespec,
    /// True where a [`crate::Stop`] ended it.
    pub stopped: bool,
}

impl FioReport {
    /// The exit status of fio: 1 where a job failed.
    pub fn exit_status(&self) -> u8 {
        u8::from(self.jobs.iter().any(|job| job.error.is_some()))
    }

    /// Bytes that all jobs moved in a direction.
    pub fn bytes(&self, direction: Direction) -> u64 {
        self.jobs.iter().map(|job| job.direction(direction).bytes).sum()
    }

    /// Log files of all jobs: name and content.
    pub fn logs(&self) -> impl Iterator<Item = &(String, String)> {
        self.jobs.iter().flat_map(|job| &job.logs)
    }
}
