//! The kinds of devices that are fitted: their numbers, and a profile of them.

use std::fmt::Write as _;

use block::DeviceInfo;
use serde::Serialize;

use super::fit::Probed;
use super::plan::BACKWARD;
use super::probe::{Durable, Pattern};

/// A kind of device, as a profile has it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// A latency and a bus.
    Memory,
    /// Flash.
    Flash,
    /// An array with a write cache.
    Array,
    /// A hard disk.
    Disk,
}

/// What a number is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Unit {
    Micros,
    MbPerSecond,
    Mib,
    /// A whole number.
    Count,
    Plain,
}

/// A number of a kind, and where the search for it begins.
#[derive(Clone, Debug)]
pub(super) struct Param {
    pub key: &'static str,
    pub unit: Unit,
    pub start: f64,
    /// The least and the most that it may be.
    pub range: [f64; 2],
}

impl Param {
    /// As a profile has it.
    pub fn text(&self, value: f64) -> String {
        match self.unit {
            Unit::Micros => format!("\"{} ns\"", (value * 1e3).round()),
            Unit::MbPerSecond => format!("\"{} B/s\"", (value * 1e6).round()),
            Unit::Mib => format!("\"{} B\"", (value * 2048.0).round().max(1.0) as u64 * 512),
            Unit::Count => format!("{}", value.round()),
            Unit::Plain => format!("{value:.4}"),
        }
    }

    /// For people.
    pub fn shown(&self, value: f64) -> String {
        match self.unit {
            Unit::Micros if value >= 1e3 => format!("{:.3} ms", value / 1e3),
            Unit::Micros => format!("{value:.2} us"),
            Unit::MbPerSecond => format!("{value:.1} MB/s"),
            Unit::Mib => format!("{value:.2} MiB"),
            Unit::Count => format!("{}", value.round()),
            Unit::Plain => format!("{value:.2}"),
        }
    }
}

impl std::str::FromStr for Kind {
    type Err = String;

    fn from_str(text: &str) -> Result<Kind, String> {
        let all = [Kind::Memory, Kind::Flash, Kind::Array, Kind::Disk];
        let known = all.into_iter().find(|kind| kind.word() == text);
        known.ok_or_else(|| format!("`{text}` is no kind: give memory, flash, array or disk"))
    }
}

/// The typical latency of the first probe that is so, in us.
fn micros(probed: &[Probed], is: impl Fn(&Probed) -> bool) -> Option<f64> {
    probed.iter().find(|one| is(one)).map(|one| one.typical_ns() / 1e3)
}

/// Of reads of 4 KiB, one at a time.
fn random_read(probed: &[Probed]) -> Option<f64> {
    micros(probed, |one| {
        let probe = &one.probe;
        let kind = probe.pattern == Pattern::Random && probe.writes == 0;
        kind && probe.size == 4096 && probe.depth == 1
    })
}

/// What a read of 4 KiB takes that was read ahead, in us: the electronics and the bus.
fn hit(probed: &[Probed]) -> f64 {
    let read = micros(probed, |one| {
        let probe = &one.probe;
        probe.pattern == Pattern::Sequential && probe.size == 4096 && probe.writes == 0
    });
    read.unwrap_or(150.0)
}

/// A turn in us and the sectors of a track, where the device turns. What lies s sectors before the
/// last comes round a turn less s sectors after it.
fn track(probed: &[Probed]) -> Option<(f64, f64)> {
    let of = |step: u64| micros(probed, |one| one.probe.pattern == Pattern::Backward(step));
    let [near, far] = BACKWARD.map(|step| (step as f64 / 512.0, of(step)));
    let (near, far) = ((near.0, near.1?), (far.0, far.1?));
    let sector = (near.1 - far.1) / (far.0 - near.0);
    let turn = near.1 + near.0 * sector;
    let is_one = (2_000.0..25_000.0).contains(&turn) && sector > 0.0;
    is_one.then(|| (turn, (turn / sector).clamp(64.0, 1e5)))
}

/// A number of a kind; the search begins within its range.
fn param(key: &'static str, unit: Unit, start: f64, low: f64, high: f64) -> Param {
    Param { key, unit, start: start.clamp(low, high), range: [low, high] }
}

/// The numbers of a disk, of which random reads take `read` us and whose best rate is `rate` MB/s.
fn disk(probed: &[Probed], read: f64, rate: f64) -> Vec<Param> {
    use Unit::{Count, MbPerSecond, Micros};
    let (turn, sectors) = track(probed).unwrap_or((60e6 / 7200.0, 1500.0));
    let seek = (read - turn / 2.0).max(500.0);
    vec![
        param("rpm", Count, 60e6 / turn, 3000.0, 20_000.0),
        param("track_seek", Micros, 600.0, 50.0, 2e4),
        param("average_seek", Micros, seek, 100.0, 5e4),
        param("full_seek", Micros, seek * 2.0, 200.0, 1e5),
        param("command_overhead", Micros, hit(probed) * 0.9, 1.0, 1e4),
        param("bus_rate", MbPerSecond, rate * 2.0, 1.0, 1e5),
        param("outer_track_sectors", Count, sectors * 1.1, 64.0, 1e5),
        param("inner_track_sectors", Count, sectors * 0.9, 64.0, 1e5),
    ]
}

impl Kind {
    /// As it is written.
    pub fn word(self) -> &'static str {
        match self {
            Kind::Memory => "memory",
            Kind::Flash => "flash",
            Kind::Array => "array",
            Kind::Disk => "disk",
        }
    }

    /// The kinds that what was found allows: what takes a millisecond to find a place has arms.
    pub(super) fn plausible(probed: &[Probed]) -> Vec<Kind> {
        let read = random_read(probed).unwrap_or(0.0);
        match read > 1_000.0 {
            true => vec![Kind::Memory, Kind::Array, Kind::Disk],
            false => vec![Kind::Memory, Kind::Flash],
        }
    }

    /// Its numbers with a first guess for each, out of what was found.
    pub(super) fn params(self, probed: &[Probed]) -> Vec<Param> {
        let read = random_read(probed).unwrap_or(100.0);
        let writes = probed.iter().any(|one| one.probe.writes > 0);
        let write = micros(probed, |one| {
            one.probe.writes > 0 && one.probe.depth == 1 && one.probe.durable == Durable::No
        });
        let write = write.unwrap_or(read);
        let best = probed.iter().map(|one| one.bytes_per_second() / 1e6);
        let rate = best.fold(1.0, f64::max);
        let operations = probed.iter().map(|one| one.sample.rate()).fold(1.0, f64::max);
        use Unit::{Count, MbPerSecond, Mib, Micros, Plain};
        let mut all = match self {
            Kind::Memory => vec![
                param("read_latency", Micros, read, 0.001, 1e8),
                param("rate", MbPerSecond, rate, 0.01, 1e6),
            ],
            Kind::Flash => vec![
                param("dies_per_channel", Count, 4.0, 1.0, 64.0),
                param("page_read", Micros, read * 0.7, 0.1, 1e5),
                param("read_overhead", Micros, read * 0.25, 0.01, 1e5),
                param("channel_rate", MbPerSecond, rate / 3.0, 1.0, 1e5),
                param("bus_rate", MbPerSecond, rate * 1.2, 1.0, 1e6),
                param("command_time", Micros, 0.8e6 / operations, 0.001, 1e4),
            ],
            Kind::Array => vec![
                param("random_read", Micros, read, 1.0, 1e6),
                param("spindles", Count, 8.0, 1.0, 512.0),
                param("read_hit_latency", Micros, 100.0, 0.1, 1e5),
                param("port_rate", MbPerSecond, rate * 1.2, 1.0, 1e5),
                param("stream_rate", MbPerSecond, rate, 1.0, 1e5),
            ],
            Kind::Disk => disk(probed, read, rate),
        };
        let more = match self {
            _ if !writes => vec![],
            Kind::Memory => vec![param("write_latency", Micros, write, 0.001, 1e8)],
            Kind::Flash => vec![
                param("write_overhead", Micros, write * 0.7, 0.01, 1e5),
                param("page_program", Micros, 800.0, 1.0, 1e5),
                param("write_buffer", Mib, 4.0, 0.04, 4096.0),
                param("random_write_amplification", Plain, 2.0, 1.0, 50.0),
                param("flush_overhead", Micros, 50.0, 0.1, 1e5),
            ],
            Kind::Array => vec![
                param("write_latency", Micros, write, 0.1, 1e5),
                param("write_cache", Mib, 64.0, 0.1, 65_536.0),
                param("destage_rate", MbPerSecond, rate, 1.0, 1e5),
                param("destage_seek", Micros, read / 14.0, 1.0, 1e5),
            ],
            Kind::Disk => vec![
                param("write_settle", Micros, 400.0, 1.0, 2e4),
                param("write_cache", Mib, 8.0, 0.001, 4096.0),
            ],
        };
        all.extend(more);
        all
    }

    /// A profile with these numbers.
    pub(super) fn profile(self, info: &DeviceInfo, values: &[(Param, f64, String)]) -> String {
        let mut text = format!(
            "[machine]\nname = \"calibrated\"\n\
             description = \"A device of {} bytes, calibrated as {}\"\n\
             source = \"iopath lab calibrate\"\n\n[device]\nkind = \"{}\"\n",
            info.bytes(),
            self.word(),
            self.word(),
        );
        let given = |key: &str| values.iter().find(|(param, _, _)| param.key == key);
        for (param, value, source) in values {
            let value = self.within(param, *value, values);
            let _ = writeln!(
                text,
                "{} = {{ value = {}, source = \"{source}\" }}",
                param.key,
                param.text(value)
            );
        }
        for (key, value) in self.rest(info, values) {
            if given(key).is_none() {
                let _ = writeln!(text, "{key} = {{ value = {value}, source = \"not measured\" }}");
            }
        }
        let _ = write!(
            text,
            "\n[queue]\nmax_sectors = {}\nmax_segments = {}\nnr_requests = 1024\ndepth = {}\n",
            info.max_bytes / 512,
            info.max_segments,
            info.depth
        );
        text
    }

    /// A value that a profile takes beside the others: seeks and tracks grow in their order.
    fn within(self, param: &Param, value: f64, all: &[(Param, f64, String)]) -> f64 {
        let of = |key: &str| all.iter().find(|one| one.0.key == key).map_or(0.0, |one| one.1);
        match param.key {
            "average_seek" => value.max(of("track_seek")),
            "full_seek" => value.max(of("average_seek")).max(of("track_seek")),
            "inner_track_sectors" => value.min(of("outer_track_sectors")),
            _ => value,
        }
    }

    /// What no probe asks.
    fn rest(
        self,
        info: &DeviceInfo,
        values: &[(Param, f64, String)],
    ) -> Vec<(&'static str, String)> {
        let time = |us: u64| format!("\"{us} us\"");
        let text = |text: &str| format!("\"{text}\"");
        let of = |key: &str| values.iter().find(|one| one.0.key == key).map(|one| one.1);
        let all: Vec<(&'static str, String)> = match self {
            Kind::Memory => {
                let read = of("read_latency").unwrap_or(0.0);
                vec![("write_latency", format!("\"{} ns\"", (read * 1e3).round()))]
            }
            Kind::Flash => vec![
                ("channels", "8".to_owned()),
                ("page_size", text("16 KiB")),
                ("pages_per_block", "256".to_owned()),
                ("page_program", time(800)),
                ("block_erase", time(3500)),
                ("write_overhead", time(30)),
                ("flush_overhead", time(50)),
                ("write_buffer", text("4 MiB")),
                ("volatile", info.volatile_cache.to_string()),
                ("random_write_amplification", "2".to_owned()),
            ],
            Kind::Array => vec![
                ("write_latency", time(500)),
                ("read_delays_write", time(0)),
                ("prefetch_chunk", text("128 KiB")),
                ("prefetch_window", text("512 KiB")),
                ("streams", "32".to_owned()),
                ("write_cache", text("512 MiB")),
                ("destage_rate", text("100 MB/s")),
                ("destage_seek", time(400)),
            ],
            Kind::Disk => {
                let tracks = of("outer_track_sectors").unwrap_or(1500.0);
                let inner = of("inner_track_sectors").unwrap_or(900.0).min(tracks);
                let mean = (tracks.round() + inner.round()) / 2.0;
                let cylinders = (info.sectors as f64 / (4.0 * mean) * 1.02).ceil() + 64.0;
                let settle = of("track_seek").unwrap_or(500.0);
                vec![
                    ("heads", "4".to_owned()),
                    ("cylinders", format!("{cylinders}")),
                    ("zones", "16".to_owned()),
                    ("write_settle", time(400)),
                    ("head_switch", format!("\"{} ns\"", (settle * 1e3).round())),
                    ("segments", "16".to_owned()),
                    ("segment_size", text("1 MiB")),
                    ("write_cache", text("0 B")),
                    ("volatile", info.volatile_cache.to_string()),
                    ("destage_idle", time(20_000)),
                    ("age_limit", time(1_000_000)),
                ]
            }
        };
        all
    }
}
