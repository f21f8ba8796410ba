//! `lab instructions`: what the buffer-head LRU costs, counted by callgrind.

use std::process::ExitCode;

use anyhow::Result;
use clap::Args;
use lab::programs::bh_lru::instructions::{self, Amount, InstructionRow};
use lab::programs::bh_lru::{self, Set};
use serde_json::json;

use crate::app::App;

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
pub fn run(app: &mut App, options: &Instructions) -> Result<ExitCode> {
    let set = Set::of(&options.set).map_err(anyhow::Error::msg)?;
    let amount = Amount { names: options.names, files: options.files };
    if options.work {
        instructions::work(app.cx, set, amount).map_err(anyhow::Error::msg)?;
        return Ok(ExitCode::SUCCESS);
    }
    let rows = instructions::count_in_command(set, amount).map_err(anyhow::Error::msg)?;
    match app.out.json {
        true => app.out.document(&json!(rows.iter().map(row).collect::<Vec<_>>()))?,
        false => app.out.bytes(instructions::table(&rows).text().as_bytes())?,
    }
    Ok(ExitCode::SUCCESS)
}

fn row(row: &InstructionRow) -> serde_json::Value {
    json!({
        "set": row.set.letter(), "lru": row.variant.name(),
        "phases": bh_lru::PHASES, "instructions": row.instructions,
    })
}
