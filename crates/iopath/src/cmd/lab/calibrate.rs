//! `lab calibrate`: measures a device and fits a machine to it.

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::{Context, Result, bail};
use base::Nanos;
use block::Device;
use clap::Args;
use device::MemoryDevice;
use lab::calibrate::{Calibration, Kind, Setup, calibrate};
use lab::report::{Align, TextTable};
use rt::{World, WorldConfig};
use serde_json::json;

use crate::app::App;
use crate::sim::{self, SimTarget};
use crate::storage::Storage;
use crate::target::Target;

/// What `lab calibrate` takes.
#[derive(Args)]
#[command(after_help = "\
The device should be quiet. A file or a block device is measured past the host's cache with
--direct; what was never written answers without its medium: fill it first. With --write everything
on it is lost.

Examples:
  iopath --direct lab calibrate disk.img -o mine.toml
  iopath --direct lab calibrate /dev/sdb --write -o mine.toml
  iopath lab calibrate nbd://localhost/ -o mine.toml
  iopath lab calibrate sim:flash-sata --write -o again.toml
  iopath lab run cfq-yield --machine mine.toml")]
pub struct Options {
    /// A file, a block device, nbd://HOST/EXPORT, or sim:MACHINE (in virtual time)
    #[arg(value_name = "DEVICE")]
    target: OsString,
    /// The profile to write; also -o
    #[arg(long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Also measure writes, flushes and FUA; what is on the device is lost
    #[arg(long)]
    write: bool,
    /// Longest time of a probe, in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 2.0)]
    seconds: f64,
    /// Fit only this kind of model: memory, flash, array, disk
    #[arg(long, value_name = "KIND")]
    kind: Option<Kind>,
    /// Exit with status 3 if the prediction of the mix is off by more than this, in percent
    #[arg(long, value_name = "PERCENT", default_value_t = 10.0)]
    within: f64,
}

/// Runs `lab calibrate`.
pub fn run(app: &mut App, options: &Options) -> Result<ExitCode> {
    if !(options.seconds > 0.0 && options.seconds <= 3600.0) {
        bail!("--seconds {}: give a time above 0, up to an hour", options.seconds);
    }
    let setup = Setup {
        write: options.write,
        limit: Nanos((options.seconds * 1e9) as u64),
        kind: options.kind,
        late: Nanos::ZERO,
    };
    let quiet = app.out.json;
    let mut say = |text: String| {
        if !quiet {
            eprintln!("{text}");
        }
    };
    let name = options.target.to_string_lossy().into_owned();
    let found = match sim::is_sim(&options.target) {
        true => modelled(&options.target, &setup, &mut say)?,
        false => {
            let target = Target::parse(&options.target)?;
            let storage = Storage::open(app, &target, options.write)?;
            let device = storage.queue.device().clone();
            calibrate(app.cx, device, &setup, &mut say).map_err(anyhow::Error::msg)
        }
        .with_context(|| name.clone())?,
    };
    if let Some(path) = &options.output {
        std::fs::write(path, &found.profile).with_context(|| path.display().to_string())?;
    }
    let off = found.held_out.figures.first().map_or(0.0, |figure| figure.error_percent().abs());
    match app.out.json {
        true => app.out.document(&json!({ "target": name, "calibration": found }))?,
        false => app.out.bytes(text(&found, options).as_bytes())?,
    }
    Ok(ExitCode::from(if off > options.within { 3 } else { 0 }))
}

/// A machine of ours, in virtual time.
fn modelled(
    target: &std::ffi::OsStr,
    setup: &Setup,
    say: &mut dyn FnMut(String),
) -> Result<Calibration> {
    let sim = SimTarget::parse(target)?;
    World::new(WorldConfig::default()).run("calibrate", |cx| {
        let memory = Arc::new(MemoryDevice::new(sim.size));
        let device = sim.profile.device(cx.runtime(), memory)?;
        device.forget_content();
        let device: Arc<dyn Device> = device;
        calibrate(cx, device, setup, say).map_err(anyhow::Error::msg)
    })
}

fn text(found: &Calibration, options: &Options) -> String {
    use Align::{Left, Right};
    let mut probes = TextTable::new([
        ("probe", Left),
        ("measured us", Right),
        ("model us", Right),
        ("off", Right),
    ]);
    for one in &found.fit.probes {
        let off = (one.fitted_us / one.measured_us - 1.0) * 100.0;
        probes.row([
            one.name.clone(),
            format!("{:.1}", one.measured_us),
            format!("{:.1}", one.fitted_us),
            format!("{off:+.1} %"),
        ]);
    }
    let mut numbers =
        TextTable::new([("number", Left), ("value", Right), ("may be off by", Right)]);
    for number in &found.fit.numbers {
        let within = number
            .within_percent
            .map_or("no probe depends on it".to_owned(), |percent| format!("{percent:.1} %"));
        numbers.row([number.key.to_owned(), number.value.clone(), within]);
    }
    let mut mix = TextTable::new([
        ("the mix", Left),
        ("measured", Right),
        ("predicted", Right),
        ("off", Right),
    ]);
    for figure in &found.held_out.figures {
        mix.row([
            figure.name.to_owned(),
            format!("{:.1}", figure.measured),
            format!("{:.1}", figure.predicted),
            format!("{:+.1} %", figure.error_percent()),
        ]);
    }
    let ladder: Vec<String> = found
        .ladder
        .iter()
        .map(|rung| format!("{} {:.1} %", rung.kind.word(), rung.error_percent))
        .collect();
    let kept = match &options.output {
        Some(path) => format!("the machine is in {}", path.display()),
        None => "give -o FILE to keep the machine".to_owned(),
    };
    format!(
        "{}\n{}\nerror of each kind of model, root mean square over the probes: {}\n\
         taken off for the host: {:.1} us a request; it wakes tasks up to {:.0} us late\n\n\
         a mix that the model was not fitted to:\n{}{kept}\n",
        probes.text(),
        numbers.text(),
        ladder.join(", "),
        found.overhead_us,
        found.late_us,
        mix.text(),
    )
}
