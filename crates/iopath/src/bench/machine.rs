//! A modelled machine as a place for workloads: [`crate::sim`] with options of the command line.

use std::ffi::{OsStr, OsString};

use anyhow::{Result, bail};
use base::Nanos;
use rt::Cx;
use vfs::Namespace;
use workload::{Stop, Target};

use super::{Finished, Prepare, stop_at};
use crate::app::App;
use crate::mount_arg::MountArg;
use crate::out::Out;
use crate::sim::{self, SimTarget};

/// What the command line says of a modelled machine, beside its name.
#[derive(Clone, Debug, Default)]
pub struct Machine {
    /// `--fs`.
    pub fs: Option<String>,
    /// `--elevator`.
    pub elevator: Option<String>,
    /// `--tunable`, each `NAME=VALUE`.
    pub tunables: Vec<String>,
    /// `--noidle`.
    pub noidle: bool,
    /// `--seed`.
    pub seed: Option<u64>,
    /// `--size`, bytes.
    pub size: Option<u64>,
}

impl Machine {
    /// # Errors
    /// Names the first option that belongs to a modelled machine.
    pub(super) fn refuse_without_sim(&self) -> Result<()> {
        match self.settings().first() {
            Some((name, _)) => {
                bail!("--{name} belongs to a modelled machine: --target sim:PROFILE")
            }
            None => Ok(()),
        }
    }

    fn settings(&self) -> Vec<(&'static str, String)> {
        let given = [
            ("fs", self.fs.clone()),
            ("elevator", self.elevator.clone()),
            ("seed", self.seed.map(|seed| seed.to_string())),
            ("size", self.size.map(|size| size.to_string())),
        ];
        let given = given.into_iter().filter_map(|(name, value)| Some((name, value?)));
        let noidle = self.noidle.then(|| ("noidle", "1".to_owned()));
        let tunables = self.tunables.iter().map(|pair| ("tunable", pair.replacen('=', ":", 1)));
        given.chain(noidle).chain(tunables).collect()
    }

    /// Reads `sim:PROFILE?..`; options of the command line win over what stands in it.
    ///
    /// # Errors
    /// Those of [`SimTarget::parse`].
    pub(super) fn target(&self, text: &OsStr) -> Result<SimTarget> {
        let mut whole = OsString::from(text);
        let mut mark = if text.as_encoded_bytes().contains(&b'?') { "&" } else { "?" };
        for (name, value) in self.settings() {
            whole.push(format!("{mark}{name}={value}"));
            mark = "&";
        }
        SimTarget::parse(&whole)
    }
}

/// Makes the machine and its file system, prepares, starts it, and works.
pub(super) fn run<T>(
    app: &mut App,
    sim: &SimTarget,
    stop_after: Option<Nanos>,
    prepare: Option<Prepare>,
    work: impl FnOnce(&mut Cx, &mut Out, &Target, &Stop) -> T,
) -> Result<Finished<T>> {
    let options: Vec<MountArg> = app.options.of_file_system().collect();
    let (out, recorder) = (&mut app.out, &mut app.recorder);
    let mut sim = sim.clone();
    sim.trace_events = recorder.as_ref().map_or(0, |recorder| recorder.events);
    let prepare_at = |cx: &mut Cx, names: &Namespace| match prepare {
        Some(prepare) => prepare(cx, &Target::ours(names.clone(), b"/")),
        None => Ok(()),
    };
    let prepared: Option<sim::Prepare> = match prepare {
        Some(_) => Some(&prepare_at),
        None => None,
    };
    let (result, report) = sim.run_after(prepared, &options, |cx, machine| {
        if let Some(recorder) = recorder {
            recorder.queues.push((sim.profile.name.clone(), machine.queue.clone()));
        }
        let target = Target::ours(machine.names.clone(), b"/");
        let stop = stop_at(cx, stop_after);
        Ok(work(cx, out, &target, &stop))
    })?;
    let note = format!(
        "modelled: {}, {}, {}, seed {}; {:.3} s of virtual time, event hash {:016x}",
        sim.profile.name,
        sim.fs,
        sim.elevator,
        sim.seed,
        report.time.as_secs_f64(),
        report.hash
    );
    Ok(Finished { result, note: Some(note) })
}
