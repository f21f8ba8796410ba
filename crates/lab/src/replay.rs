//! A recorded trace, run again on a modelled machine: what somebody's own workload would meet under
//! another elevator or on another device.
//!
//! Read are blktrace's binary records (versions 7 and 8, one file or one for each processor),
//! blkparse's text, and fio's lists of operations (versions 2 and 3, one for each job). What is
//! replayed is what callers asked for (events `Q`): the elevator is ours. Each process of the trace
//! is a task of its own.

mod blkparse;
mod blktrace;
mod iolog;
mod play;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use base::Nanos;
use block::{BioFlags, Op};

pub use play::{Outcome, Pace, Process, Setup, play};

/// Largest file that is read, in bytes.
const FILE_MAX: u64 = 4 << 30;
/// Most operations of a trace.
const IOS_MAX: usize = 1 << 24;
/// Most sectors of one operation: 1 GiB.
const IO_MAX: u64 = 1 << 21;
/// Farthest sector: a modelled device has 8 TiB at most.
const SECTORS_MAX: u64 = 1 << 34;
/// Most files of processors that one name stands for.
const CPUS_MAX: usize = 4096;

/// One operation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Io {
    /// When it was asked for, from the first one.
    pub at: Nanos,
    /// The process.
    pub pid: u32,
    /// What.
    pub op: Op,
    /// First sector of 512 bytes.
    pub sector: u64,
    /// Sectors; 0 of a flush.
    pub count: u64,
    /// What the issuer said beside it.
    pub flags: BioFlags,
    /// When it was done, if the trace has that.
    pub done: Option<Nanos>,
}

/// A trace.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Trace {
    /// The operations by time.
    pub ios: Vec<Io>,
    /// Names of processes.
    pub names: BTreeMap<u32, String>,
    /// What a reader of the result must know: what was left out, what stands for what.
    pub notes: Vec<String>,
}

impl Trace {
    /// Bytes that the device must have.
    pub fn bytes(&self) -> u64 {
        let ends = self.ios.iter().map(|io| io.sector + io.count);
        ends.max().unwrap_or(0).next_multiple_of(2048) * 512
    }

    /// The processes in the order of their first operation.
    pub fn processes(&self) -> Vec<u32> {
        let mut pids = Vec::new();
        for io in &self.ios {
            if !pids.contains(&io.pid) {
                pids.push(io.pid);
            }
        }
        pids
    }

    /// In the order of time, which begins with the first operation.
    fn settle(mut self) -> Result<Trace, String> {
        let odd = |io: &&Io| io.count > IO_MAX || io.sector > SECTORS_MAX;
        if let Some(Io { op, sector, count, .. }) = self.ios.iter().find(odd) {
            return Err(format!("a {op} of {count} sectors at {sector}: no device has that"));
        }
        self.ios.sort_by_key(|io| io.at);
        let Some(first) = self.ios.first().map(|io| io.at) else {
            return Err("no operation of a device is in it".to_owned());
        };
        for io in &mut self.ios {
            io.at = io.at - first;
            io.done = io.done.map(|done| done.max(first) - first);
        }
        Ok(self)
    }
}

/// Reads a trace from files: all of one sort. Of blktrace a name stands for its files of the
/// processors (`trace` for `trace.blktrace.0` and so on). `device` chooses one of several in it,
/// as major and minor number; otherwise the one with the most operations is taken.
///
/// # Errors
/// A file that cannot be read or is none of these, with its name and place.
pub fn read(files: &[PathBuf], device: Option<(u32, u32)>) -> Result<Trace, String> {
    let files: Vec<PathBuf> = files.iter().flat_map(|file| of_processors(file)).collect();
    let mut contents = Vec::new();
    for file in &files {
        contents.push((file.display().to_string(), content(file)?));
    }
    let is_list = |text: &[u8]| text.starts_with(b"fio version ");
    let lists = contents.iter().filter(|(_, text)| is_list(text)).count();
    let binary = contents.iter().filter(|(_, text)| blktrace::is_one(text)).count();
    let trace = match contents.len() {
        0 => return Err("no trace is named".to_owned()),
        all if all == lists => iolog::read(&contents)?,
        all if all == binary => blktrace::read(&contents, device)?,
        _ if lists + binary > 0 => {
            return Err(
                "the files are of several sorts: blktrace, text of blkparse, fio".to_owned()
            );
        }
        _ => blkparse::read(&contents, device)?,
    };
    trace.settle()
}

/// The files of the processors where the name is none of a file.
fn of_processors(path: &Path) -> Vec<PathBuf> {
    let own = |cpu: usize| {
        let mut name = path.as_os_str().to_owned();
        name.push(format!(".blktrace.{cpu}"));
        PathBuf::from(name)
    };
    let found: Vec<PathBuf> = match path.is_file() {
        true => Vec::new(),
        // Numbers of processors may have gaps.
        false => (0..CPUS_MAX).map(own).filter(|file| file.is_file()).collect(),
    };
    if found.is_empty() { vec![path.to_owned()] } else { found }
}

fn content(path: &Path) -> Result<Vec<u8>, String> {
    let failed = |what: String| format!("{}: {what}", path.display());
    let size = std::fs::metadata(path).map_err(|error| failed(error.to_string()))?.len();
    if size > FILE_MAX {
        return Err(failed(format!("{size} bytes are more than the {FILE_MAX} that are read")));
    }
    std::fs::read(path).map_err(|error| failed(error.to_string()))
}

/// An event of a block trace, before it is an operation.
#[derive(Clone, Copy, Debug)]
struct Event {
    time: u64,
    sequence: u32,
    device: (u32, u32),
    pid: u32,
    kind: Kind,
    op: Op,
    flags: BioFlags,
    sector: u64,
    count: u64,
}

/// Which event.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    /// Q: a caller asks.
    Asked,
    /// D: it goes to the device.
    Issued,
    /// C: it is done.
    Done,
}

/// Operations from events: those that callers asked for, or where the trace has none, those that
/// the device saw; each with the time of its completion.
fn of_events(mut events: Vec<Event>, device: Option<(u32, u32)>) -> Result<Trace, String> {
    let mut trace = Trace::default();
    let mut devices: BTreeMap<(u32, u32), usize> = BTreeMap::new();
    events.iter().for_each(|event| *devices.entry(event.device).or_default() += 1);
    let most = devices.iter().max_by_key(|(_, count)| **count).map(|(device, _)| *device);
    let name = |(major, minor): (u32, u32)| format!("{major},{minor}");
    let known = || devices.keys().map(|one| name(*one)).collect::<Vec<_>>().join(" ");
    let chosen = match device {
        Some(one) if !devices.contains_key(&one) => {
            return Err(format!("device {} is not in it; there are: {}", name(one), known()));
        }
        Some(one) => one,
        None => most.ok_or("no operation of a device is in it")?,
    };
    if devices.len() > 1 {
        trace.notes.push(format!("device {} of {}", name(chosen), known()));
    }
    events.retain(|event| event.device == chosen);
    events.sort_by_key(|event| (event.time, event.sequence));
    let asked = events.iter().any(|event| event.kind == Kind::Asked);
    let wanted = if asked { Kind::Asked } else { Kind::Issued };
    if !asked {
        trace
            .notes
            .push("no events Q: what the device saw (D) is sent through an elevator again".into());
    }
    // Operations that are not done yet, by direction and first sector.
    let mut open: BTreeMap<(bool, u64), Vec<usize>> = BTreeMap::new();
    for event in events {
        let way = event.op == Op::Read;
        if event.kind == wanted {
            if trace.ios.len() >= IOS_MAX {
                return Err(format!("more than {IOS_MAX} operations"));
            }
            let Event { pid, op, flags, sector, count, .. } = event;
            open.entry((way, sector)).or_default().push(trace.ios.len());
            trace.ios.push(Io { at: Nanos(event.time), pid, op, sector, count, flags, done: None });
        } else if event.kind == Kind::Done {
            // A request that is done has taken every bio that lies in it.
            let end = event.sector + event.count.max(1);
            let inside: Vec<_> =
                open.range((way, event.sector)..(way, end)).map(|(key, _)| *key).collect();
            for key in inside {
                let all = open.remove(&key).unwrap_or_default();
                all.iter().for_each(|index| trace.ios[*index].done = Some(Nanos(event.time)));
            }
        }
    }
    Ok(trace)
}
