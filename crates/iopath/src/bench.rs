//! Where a workload runs, and how it gets there.

pub mod fio;
pub mod fs_mark;
mod machine;
pub mod mds_survey;
pub mod mdtest;
pub mod sysbench;

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use base::Nanos;
use rt::Cx;
use workload::{Sink, Stop, Target};

use crate::app::App;
use crate::out::Out;
use crate::session;
use crate::sim::{SimTarget, is_sim};
use crate::target::TargetPath;

pub use machine::Machine;

/// Where a workload runs.
#[derive(Clone, Debug)]
pub enum Where {
    /// On the host; relative paths lie below this directory.
    Host(PathBuf),
    /// On our path, below a place in an image.
    Image(TargetPath),
    /// On a modelled machine.
    Sim(Box<SimTarget>),
}

impl Where {
    /// Reads `host`, `host:DIR`, `sim:PROFILE?..` or `TARGET[:/path]`.
    ///
    /// # Errors
    /// A bad machine, an image that does not exist, options of a machine without one.
    pub fn parse(text: &OsStr, machine: &Machine) -> Result<Where> {
        let bytes = text.as_bytes();
        if is_sim(text) {
            return Ok(Where::Sim(Box::new(machine.target(text)?)));
        }
        machine.refuse_without_sim()?;
        if bytes == b"host" {
            return Ok(Where::Host(PathBuf::new()));
        }
        if let Some(directory) = bytes.strip_prefix(b"host:") {
            return Ok(Where::Host(PathBuf::from(OsStr::from_bytes(directory))));
        }
        let place = TargetPath::parse(text)?;
        if place.target.nfs_url().is_none() && !place.target.path.exists() {
            bail!(
                "--target {}: no such image or device; it is `host`, an image or `sim:PROFILE`",
                text.display()
            );
        }
        Ok(Where::Image(place))
    }
}

/// `IMAGE:/path`, where IMAGE exists as a file or block device and the whole does not.
fn split_image(path: &str) -> Option<TargetPath> {
    if Path::new(path).exists() {
        return None;
    }
    let place = TargetPath::parse(OsStr::new(path)).ok()?;
    let is_place = path.contains(":/") && place.target.path.is_file();
    let is_device = path.contains(":/") && place.target.path.starts_with("/dev");
    (is_place || is_device).then_some(place)
}

/// The place that `-d IMAGE:/dir` names: all directories must name the same image, or none. They
/// become paths on it.
///
/// # Errors
/// Two places; a directory on an image whose name is no text.
pub fn of_directories(directories: &mut [String]) -> Result<Where> {
    let places: Vec<Option<TargetPath>> =
        directories.iter().map(|path| split_image(path)).collect();
    let Some(first) = places.iter().flatten().next().cloned() else {
        return Ok(Where::Host(PathBuf::new()));
    };
    for (path, place) in directories.iter_mut().zip(places) {
        match place {
            Some(place) if place.target == first.target => {
                *path = String::from_utf8(place.path).context("a directory's name is text")?;
            }
            _ => bail!("-d {path}: another place than {}; one run has one place", first.target),
        }
    }
    Ok(Where::Image(TargetPath { target: first.target, path: b"/".to_vec() }))
}

/// What is done before a run so that its files are there; afterwards nothing of it is cached.
pub type Prepare<'p> = &'p dyn Fn(&mut Cx, &Target) -> Result<()>;

/// A finished run: its result, and what a modelled machine reports of itself.
pub struct Finished<T> {
    /// What the workload answered.
    pub result: T,
    /// One line on the machine, its clock and its event hash.
    pub note: Option<String>,
}

/// Runs a workload at a place.
///
/// # Errors
/// The place cannot be opened, `prepare` failed, writing out failed.
pub fn run_at<T>(
    app: &mut App,
    place: &Where,
    stop_after: Option<Nanos>,
    prepare: Option<Prepare>,
    work: impl FnOnce(&mut Cx, &mut Out, &Target, &Stop) -> T,
) -> Result<Finished<T>> {
    match place {
        Where::Host(directory) => {
            let target = Target::host(directory);
            if let Some(prepare) = prepare {
                prepare(app.cx, &target)?;
            }
            let stop = stop_at(app.cx, stop_after);
            let result = work(app.cx, &mut app.out, &target, &stop);
            Ok(Finished { result, note: None })
        }
        Where::Image(place) => {
            if let Some(prepare) = prepare {
                session::with(app, &place.target, true, |app, session| {
                    prepare(app.cx, &Target::ours(session.names.clone(), &place.path))
                })?;
            }
            let result = session::with(app, &place.target, true, |app, session| {
                let target = Target::ours(session.names.clone(), &place.path);
                let stop = stop_at(app.cx, stop_after);
                Ok(work(app.cx, &mut app.out, &target, &stop))
            })?;
            Ok(Finished { result, note: None })
        }
        Where::Sim(sim) => machine::run(app, sim, stop_after, prepare, work),
    }
}

fn stop_at(cx: &Cx, after: Option<Nanos>) -> Stop {
    after.map_or_else(Stop::never, |after| Stop::at(cx.now() + after))
}

/// Reads a time with `ms`, `s` or `m`; seconds without.
///
/// # Errors
/// A sentence on what would be right.
pub fn parse_time(text: &str) -> Result<Nanos, String> {
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    let unit = match unit {
        "" | "s" => 1e9,
        "ms" => 1e6,
        "m" => 60e9,
        _ => return Err("a time is a number with ms, s or m, as 30s".into()),
    };
    match number.parse::<f64>() {
        Ok(number) if number > 0.0 && number * unit < 1e18 => Ok(Nanos((number * unit) as u64)),
        _ => Err("a time is a number above 0 with ms, s or m, as 30s".into()),
    }
}

/// Standard output and standard error of a tool without a log file.
struct TextSink<'o> {
    out: &'o mut Out,
    failed: Option<std::io::Error>,
}

impl Sink for TextSink<'_> {
    fn out(&mut self, text: &str) {
        if self.out.json {
            return;
        }
        if let Err(error) = self.out.bytes(text.as_bytes()).and_then(|()| self.out.flush()) {
            self.failed.get_or_insert(error);
        }
    }

    fn err(&mut self, text: &str) {
        eprint!("{text}");
    }

    fn log(&mut self, _text: &str) {}
}

/// The tool's arguments as text.
///
/// # Errors
/// One of them is not.
fn texts(arguments: &[OsString]) -> Result<Vec<String>> {
    let text = |argument: &OsString| {
        let text = argument.to_str().map(str::to_owned);
        text.with_context(|| format!("the argument `{}` is not text", argument.display()))
    };
    arguments.iter().map(text).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_units() {
        assert_eq!(parse_time("30s"), Ok(Nanos::from_secs(30)));
        assert_eq!(parse_time("1.5"), Ok(Nanos::from_millis(1500)));
        assert_eq!(parse_time("20ms"), Ok(Nanos::from_millis(20)));
        for bad in ["", "s", "-1", "0", "3h", "1e9", "99999999999999999999"] {
            assert!(parse_time(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn the_host_is_the_host_and_a_typing_error_is_told() {
        let machine = Machine::default();
        let parse = |text: &str| Where::parse(OsStr::new(text), &machine);
        assert!(matches!(parse("host"), Ok(Where::Host(dir)) if dir == Path::new("")));
        assert!(matches!(parse("host:/tmp"), Ok(Where::Host(dir)) if dir == Path::new("/tmp")));
        let error = parse("hosst").unwrap_err().to_string();
        assert!(error.contains("`host`, an image or `sim:PROFILE`"), "{error}");
        let seeded = Machine { seed: Some(3), ..Machine::default() };
        let error = Where::parse(OsStr::new("host"), &seeded).unwrap_err().to_string();
        assert!(error.contains("--seed"), "{error}");
    }
}
