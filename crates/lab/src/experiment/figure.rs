//! The figures that a metric can be.

use std::str::FromStr;

/// A figure of a run. `docs/experiments.md` explains each.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Figure {
    /// fs_mark: the mean of the first so many lines of results, in files/s. Where not one line was
    /// finished: files by time, and a note says so.
    Lines(u32),
    /// fs_mark: all files by the whole time, in files/s.
    FilesPerSecond,
    /// fio: bytes read by time, in MB/s as fio prints them (10^6).
    ReadMb,
    /// fio: bytes written by time, in MB/s (10^6).
    WriteMb,
    /// fio: bytes written by time, in MiB/s.
    WriteMib,
    /// fio: bytes read by time, in MiB/s.
    ReadMib,
    /// Commands of the device, of a stripe's members where it is one, by the workload's time.
    CommandsPerSecond,
    /// Bytes of reads and writes of the device by its commands (a stripe's members'), in KiB.
    CommandKib,
    /// Bios of the workload's time, by MiB that it moved.
    BiosPerMib,
    /// System time that the profile's `[load]` gives for commands and pieces of memory, in percent
    /// of one processor.
    SystemPercent,
    /// Time in interrupts, likewise.
    InterruptPercent,
    /// Both of them.
    ProcessorPercent,
    /// System time and time in interrupts for each GiB that the workload moved, in seconds.
    LoadPerGib,
    /// A quantile of the workload's latency (fs_mark: a file from its creation to its close; fio:
    /// an I/O), in ms. 1.0 is the longest.
    LatencyMs(f64),
    /// The longest time between arrival of a request and its dispatch, in ms.
    WaitMaxMs,
    /// Times that the elevator began to idle, by file.
    IdleArmedPerFile,
    /// Times that the idle timer ran out, by file.
    IdleFiredPerFile,
    /// Times that a new request ended an idle, by file.
    IdleSatisfiedPerFile,
    /// Device writes by file.
    WritesPerFile,
    /// Part of the time in which the device had nothing to do, in percent.
    DeviceIdlePercent,
    /// Part of the time in which the device had nothing to do while requests waited in the
    /// elevator, in percent.
    HeldBackPercent,
}

impl Figure {
    /// Whether it is about one workload, which the metric must name.
    pub fn needs_workload(self) -> bool {
        use Figure::*;
        let of_files = matches!(self, Lines(_) | FilesPerSecond);
        let of_bytes = matches!(self, ReadMb | WriteMb | ReadMib | WriteMib | LatencyMs(_));
        of_files || of_bytes || self.by_transfer()
    }

    /// Whether it is about what a workload moved and the time that it took.
    pub fn by_transfer(self) -> bool {
        use Figure::*;
        matches!(
            self,
            CommandsPerSecond
                | BiosPerMib
                | SystemPercent
                | InterruptPercent
                | ProcessorPercent
                | LoadPerGib
        )
    }

    /// Whether it is divided by the number of files that fs_mark has written.
    pub fn per_file(self) -> bool {
        use Figure::*;
        matches!(self, IdleArmedPerFile | IdleFiredPerFile | IdleSatisfiedPerFile | WritesPerFile)
    }
}

const KNOWN: &str = "lines:N, files_per_second, read_mb_per_s, write_mb_per_s, latency_ms:Q, \
                     wait_max_ms, idle_armed_per_file, idle_fired_per_file, \
                     idle_satisfied_per_file, writes_per_file, device_idle_percent, \
                     held_back_percent, write_mib_per_s, read_mib_per_s, \
                     commands_per_second, command_kib, bios_per_mib, system_percent, \
                     interrupt_percent, processor_percent, load_per_gib";

impl FromStr for Figure {
    type Err = String;

    fn from_str(text: &str) -> Result<Figure, String> {
        let wrong = || format!("`{text}` is no figure; there are: {KNOWN}");
        let (name, argument) = text.split_once(':').map_or((text, None), |(n, a)| (n, Some(a)));
        let figure = match (name, argument) {
            ("lines", Some(count)) => {
                let count = count.parse().map_err(|_| wrong())?;
                (1..=1000).contains(&count).then_some(Figure::Lines(count))
            }
            ("latency_ms", Some(quantile)) => {
                let quantile: f64 = quantile.parse().map_err(|_| wrong())?;
                (0.0..=1.0).contains(&quantile).then_some(Figure::LatencyMs(quantile))
            }
            ("files_per_second", None) => Some(Figure::FilesPerSecond),
            ("read_mb_per_s", None) => Some(Figure::ReadMb),
            ("write_mb_per_s", None) => Some(Figure::WriteMb),
            ("wait_max_ms", None) => Some(Figure::WaitMaxMs),
            ("idle_armed_per_file", None) => Some(Figure::IdleArmedPerFile),
            ("idle_fired_per_file", None) => Some(Figure::IdleFiredPerFile),
            ("idle_satisfied_per_file", None) => Some(Figure::IdleSatisfiedPerFile),
            ("writes_per_file", None) => Some(Figure::WritesPerFile),
            ("device_idle_percent", None) => Some(Figure::DeviceIdlePercent),
            ("held_back_percent", None) => Some(Figure::HeldBackPercent),
            ("write_mib_per_s", None) => Some(Figure::WriteMib),
            ("read_mib_per_s", None) => Some(Figure::ReadMib),
            ("commands_per_second", None) => Some(Figure::CommandsPerSecond),
            ("command_kib", None) => Some(Figure::CommandKib),
            ("bios_per_mib", None) => Some(Figure::BiosPerMib),
            ("system_percent", None) => Some(Figure::SystemPercent),
            ("interrupt_percent", None) => Some(Figure::InterruptPercent),
            ("processor_percent", None) => Some(Figure::ProcessorPercent),
            ("load_per_gib", None) => Some(Figure::LoadPerGib),
            _ => None,
        };
        figure.ok_or_else(wrong)
    }
}
