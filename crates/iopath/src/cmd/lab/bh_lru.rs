//! `lab run bh-lru`, which is measured and has no file, and `lab instructions`.

use std::ffi::OsString;
use std::io::IsTerminal;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::Args;
use lab::bh_lru::instructions::{self, Amount, InstructionRow};
use lab::bh_lru::{self, Set};
use lab::experiment::Size;
use lab::report::ProgramReport;
use serde_json::json;

use crate::app::App;

/// Title, author and date of the document.
pub const TITLE: &str =
    "[PATCH] Allow increasing the buffer-head per-CPU LRU size, Sebastien Buisson, 2014";

/// What `lab instructions` counts.
#[derive(Args)]
pub struct Instructions {
    /// A set of the document: a (large ACL, labels), b (large ACL), c (quota), d
    #[arg(long, value_name = "LETTER", default_value = "c")]
    set: String,
    /// Names in the directory before
    #[arg(long, value_name = "N", default_value_t = 5000,
          value_parser = clap::value_parser!(u64).range(0..=10_000_000))]
    names: u64,
    /// Operations of each phase
    #[arg(long, value_name = "N", default_value_t = 500,
          value_parser = clap::value_parser!(u64).range(1..=50_000))]
    files: u64,
    /// Do the work, under callgrind
    #[arg(long, hide = true)]
    work: bool,
}

/// Runs `lab instructions`.
pub fn instructions(app: &mut App, options: &Instructions) -> Result<ExitCode> {
    let set = instructions::set_of(&options.set).map_err(anyhow::Error::msg)?;
    let amount = Amount { names: options.names, files: options.files };
    if options.work {
        instructions::work(app.cx, set, amount).map_err(anyhow::Error::msg)?;
        return Ok(ExitCode::SUCCESS);
    }
    let rows = count(set, amount)?;
    match app.out.json {
        true => app.out.document(&json!(rows.iter().map(row).collect::<Vec<_>>()))?,
        false => app.out.bytes(instructions::table(&rows).text().as_bytes())?,
    }
    Ok(ExitCode::SUCCESS)
}

fn row(row: &InstructionRow) -> serde_json::Value {
    json!({
        "set": row.set.letter().to_string(), "lru": row.variant.name(),
        "phases": bh_lru::PHASES, "instructions": row.instructions,
    })
}

/// Lets callgrind count in another process of ours.
fn count(set: Set, amount: Amount) -> Result<Vec<InstructionRow>> {
    let program = std::env::current_exe().context("the name of this program")?;
    let words = ["lab", "instructions", "--work", "--set"].map(OsString::from);
    let mut arguments = words.to_vec();
    arguments.push(set.letter().to_string().into());
    arguments.extend(["--names".into(), amount.names.to_string().into()]);
    arguments.extend(["--files".into(), amount.files.to_string().into()]);
    instructions::count(&program, &arguments, set, amount).map_err(anyhow::Error::msg)
}

/// Runs the experiment.
pub fn run(app: &mut App, options: &super::run::Options) -> Result<ProgramReport> {
    let size = if options.full { Size::Full } else { Size::Quick };
    let shown = std::io::stderr().is_terminal() && !app.options.quiet && !app.out.json;
    let say = &mut |what: &str| {
        if shown {
            eprintln!("{}: {what}", bh_lru::NAME);
        }
    };
    let report = bh_lru::run(app.cx, &bh_lru::Plan::of(size), say);
    let mut report = report.map_err(anyhow::Error::msg)?;
    if options.full || options.instructions {
        let amount = match options.full {
            true => Amount { names: 100_000, files: 2000 },
            false => Amount { names: 5000, files: 500 },
        };
        for set in [Set::A, Set::B, Set::C] {
            say(&format!("instructions of set ({})", set.letter()));
            report.instructions.extend(count(set, amount)?);
        }
    }
    let write = |path: &Option<PathBuf>, text: String| match path {
        Some(path) => std::fs::write(path, text).with_context(|| path.display().to_string()),
        None => Ok(()),
    };
    write(&options.outputs.json_file, format!("{:#}\n", report.json()))?;
    write(&options.outputs.markdown, report.markdown())?;
    match app.out.json {
        true => app.out.document(&report.json())?,
        false => app.out.bytes(report.text().as_bytes())?,
    }
    Ok(super::run::program(bh_lru::NAME, TITLE.to_owned(), options, report.markdown()))
}
