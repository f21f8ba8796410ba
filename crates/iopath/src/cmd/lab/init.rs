//! `lab init`: prints an experiment as a file to change.

use std::process::ExitCode;

use anyhow::{Result, bail};
use clap::Args;

use crate::app::App;

/// What `lab init` prints.
#[derive(Args)]
pub struct Options {
    /// A built-in experiment
    #[arg(value_name = "NAME")]
    name: String,
    /// Only what is needed to start from it: everything else is inherited
    #[arg(long)]
    like: bool,
}

/// Runs `lab init`.
pub fn run(app: &mut App, options: &Options) -> Result<ExitCode> {
    let name = &options.name;
    let Some(text) = lab::experiment::text(name) else {
        let known = lab::experiments().collect::<Vec<_>>().join(", ");
        bail!("there is no experiment `{name}`; there are: {known}");
    };
    let text = if options.like { short(name)? } else { text.to_owned() };
    app.out.bytes(text.as_bytes())?;
    Ok(ExitCode::SUCCESS)
}

/// A file that inherits everything, with the places where a change usually goes.
fn short(name: &str) -> Result<String> {
    let file = lab::Experiment::load(name)?.file;
    let variant = file.variant.keys().next().cloned().unwrap_or_default();
    let table = file.table.first().map_or("", |table| table.title.as_str());
    Ok(format!(
        "# Everything of {name} (`iopath lab init {name}`), and below it what is different.\n\
         like = \"{name}\"\n\n\
         # Another machine: a name of `iopath machines`, or a file (`machines NAME --toml`).\n\
         # [machine]\n# profile = \"./my-machine.toml\"\n\n\
         # A variant of your own beside the others; a list such as [[table]] replaces the\n\
         # inherited one (the first is \"{table}\").\n\
         # [variant.mine]\n# like = \"{variant}\"\n"
    ))
}
