//! `machines`: the modelled machines, and every number of one with its source.

use std::process::ExitCode;

use anyhow::Result;
use clap::Args;
use model::Profile;
use serde_json::{Value, json};

use crate::app::App;
use crate::text;

/// List the modelled machines, or show one with the source of every number
#[derive(Args)]
#[command(after_help = "Examples:
  iopath machines
  iopath machines array-2010
  iopath machines array-2010 --toml > my-array.toml
  iopath machines ./my-array.toml
  iopath machines --json | jq -r .name

A machine is a target for workloads: sim:NAME?size=4G&fs=ext4&elevator=deadline&seed=1")]
pub struct Options {
    /// Name of a machine, or the path of a profile
    #[arg(value_name = "MACHINE")]
    machine: Option<String>,
    /// Print the machine as a file that can be changed and used: a name's or a path's
    #[arg(long, requires = "machine")]
    toml: bool,
}

/// Runs `machines`.
///
/// # Errors
/// A profile that does not exist or is wrong, with the line and what would be right.
pub fn run(app: &mut App, options: &Options) -> Result<ExitCode> {
    match &options.machine {
        Some(name) if options.toml => app.out.bytes(Profile::load(name)?.text.as_bytes())?,
        Some(name) => show(app, &Profile::load(name)?)?,
        None => list(app)?,
    }
    Ok(ExitCode::SUCCESS)
}

fn list(app: &mut App) -> Result<()> {
    let profiles: Vec<Profile> = model::names().map(Profile::load).collect::<Result<_, _>>()?;
    if app.out.json {
        let mut lines = profiles.iter().map(describe);
        return Ok(lines.try_for_each(|line| app.out.document(&line))?);
    }
    let widest = profiles.iter().map(|profile| profile.name.len()).max().unwrap_or(0);
    for profile in &profiles {
        let (name, kind) = (&profile.name, profile.device.kind());
        app.out.line(format!("{name:<widest$}  {kind:<6}  {}", profile.description))?;
    }
    Ok(())
}

fn show(app: &mut App, profile: &Profile) -> Result<()> {
    if app.out.json {
        let mut whole = describe(profile);
        let parameters = profile.parameters.iter().map(|parameter| {
            json!({
                "key": parameter.key,
                "value": parameter.value,
                "source": parameter.source,
            })
        });
        whole["parameters"] = parameters.collect();
        return Ok(app.out.document(&whole)?);
    }
    app.out.line(format!("{}: {}", profile.name, profile.description))?;
    app.out.line(format!("Source: {}", profile.source))?;
    let shown = ["machine.name", "machine.description", "machine.source"];
    let rows = profile.parameters.iter().filter(|parameter| !shown.contains(&&*parameter.key));
    let rows: Vec<_> = rows.collect();
    let widest = |of: fn(&model::Parameter) -> &str| {
        rows.iter().map(|row| of(row).chars().count()).max().unwrap_or(0)
    };
    let (keys, values) = (widest(|row| &row.key), widest(|row| &row.value));
    for row in rows {
        let source = row.source.as_deref().unwrap_or("");
        let line = format!("  {:<keys$}  {:<values$}  {source}", row.key, row.value);
        app.out.line(line.trim_end())?;
    }
    Ok(())
}

fn describe(profile: &Profile) -> Value {
    json!({
        "name": profile.name,
        "kind": profile.device.kind(),
        "description": profile.description,
        "source": profile.source,
        "cpus": profile.cpus,
        "memory": profile.memory,
        "memory_text": text::size(profile.memory),
        "page_size": profile.page_size,
        "hz": profile.hz,
        "link": profile.link.is_some(),
    })
}
