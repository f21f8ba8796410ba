//! `lab search`: which plausible machine comes nearest to all published cells.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::Args;
use lab::experiment::Experiment;
use lab::search::{self, Effort, Found, Tried};

use crate::app::App;

/// What `lab search` takes.
#[derive(Args)]
#[command(after_help = "\
The experiment names in [search] what its document does not say, with plausible values. No machine
that is found becomes the default of anything.

Examples:
  iopath lab search cfq-yield --tries 40
  iopath lab search cfq-yield --tries 300 --markdown machines.md")]
pub struct Options {
    /// An experiment by name, or its file
    #[arg(value_name = "NAME")]
    name: String,
    /// Machines to try
    #[arg(long, value_name = "N", default_value_t = 100,
          value_parser = clap::value_parser!(u64).range(1..=100_000))]
    tries: u64,
    /// Seed of the random choices
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Runs at a time; default: one for each processor
    #[arg(long, value_name = "N", default_value_t = 0, hide_default_value = true,
          value_parser = clap::value_parser!(u64).range(0..=4096))]
    jobs: u64,
    /// Machines to show beside the frontier
    #[arg(long, value_name = "N", default_value_t = 8)]
    nearest: usize,
    /// Write what was found as Markdown
    #[arg(long, value_name = "FILE")]
    markdown: Option<PathBuf>,
}

/// Runs `lab search`.
pub fn run(app: &mut App, options: &Options) -> Result<ExitCode> {
    let experiment = Experiment::load(&options.name)?;
    let effort =
        Effort { tries: options.tries as usize, seed: options.seed, jobs: options.jobs as usize };
    let quiet = app.out.json;
    let say = |number: usize, one: &Tried| {
        if !quiet {
            let (all, typical) = (options.tries, one.typical);
            eprintln!("{number} of {all}: {}, typically x {typical:.2}", one.filesystem);
        }
    };
    let found = search::search(&experiment, effort, &say)?;
    let beside = experiment.file.search.as_ref().and_then(|search| search.beside.as_ref());
    let beside = beside.map_or("-".to_owned(), |cell| cell.get_ref().to_string());
    let table = found.table(&beside, options.nearest);
    if let Some(path) = &options.markdown {
        let note = experiment.file.search.as_ref().map_or("", |search| search.note.trim());
        let text = page(&options.name, effort, note, &found, &table.markdown());
        std::fs::write(path, text).with_context(|| path.display().to_string())?;
    }
    match quiet {
        true => {
            app.out.document(&serde_json::json!({ "experiment": options.name, "found": found }))?
        }
        false => {
            app.out.bytes(table.text().as_bytes())?;
            app.out.line(unreached(&found))?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn unreached(found: &Found) -> String {
    let far = found.unreached(1.2);
    match far.is_empty() {
        true => {
            "each cell is met within a fifth by some machine, though by none all at once".into()
        }
        false => format!("no machine comes within a fifth of: {}", far.join(", ")),
    }
}

fn page(name: &str, effort: Effort, note: &str, found: &Found, table: &str) -> String {
    let Effort { tries, seed, .. } = effort;
    format!(
        "# {name}: plausible machines\n\n{note}\n\n\
         Made by `iopath lab search {name} --tries {tries} --seed {seed}`: {} different machines. \
         Typical is the root mean square of the logarithms of obtained over published, over all \
         cells, as a factor; worst is the largest of them. *Modelled.* None of these machines is \
         a default of anything.\n\n{table}\n{}.\n",
        found.tried.len(),
        unreached(found),
    )
}
