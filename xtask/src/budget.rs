//! Instructions per operation, held by a budget file. Counts come from callgrind and are the same
//! on a busy machine and an idle one; a run with many operations minus a run with few leaves out
//! start and end.

use crate::run;
use anyhow::{Context, Result, bail};
use std::process::Command;

const BUDGET: &str = "xtask/budget.txt";
const FEW: u64 = 2_000;
const MANY: u64 = 7_000;
/// A count may exceed its budget by this share before the check fails: compilers differ a little.
const SLACK: f64 = 0.05;
const OPERATIONS: &[&str] = &["create", "stat", "unlink", "append"];

/// Measures every operation; compares with the budget, or writes it with `bless`.
pub fn check(bless: bool) -> Result<()> {
    run::cargo(&["build", "--release", "--quiet", "-p", "iopath-ext4", "--example", "operations"])?;
    let mut measured = Vec::new();
    for operation in OPERATIONS {
        let many = instructions(operation, MANY)?;
        let few = instructions(operation, FEW)?;
        measured.push((*operation, (many.saturating_sub(few)) / (MANY - FEW)));
    }
    for (operation, count) in &measured {
        eprintln!("    {operation}: {count} instructions (measured)");
    }
    if bless {
        let text: String =
            measured.iter().map(|(name, count)| format!("{name} {count}\n")).collect();
        return std::fs::write(BUDGET, text).context(BUDGET);
    }
    compare(&measured)
}

fn compare(measured: &[(&str, u64)]) -> Result<()> {
    let text = std::fs::read_to_string(BUDGET).context(BUDGET)?;
    for (operation, count) in measured {
        let budget: u64 = text
            .lines()
            .find_map(|line| line.strip_prefix(operation)?.trim().parse().ok())
            .with_context(|| format!("{BUDGET} has no line for `{operation}`"))?;
        if *count as f64 > budget as f64 * (1.0 + SLACK) {
            bail!(
                "{operation} takes {count} instructions, its budget is {budget} (+{:.0} %); make \
                 it cheaper, or raise the budget with `cargo xtask budget --bless` and say why",
                SLACK * 100.0
            );
        }
    }
    Ok(())
}

fn instructions(operation: &str, count: u64) -> Result<u64> {
    let program = run::root().join("target/release/examples/operations");
    let output = Command::new("valgrind")
        .args(["--tool=callgrind", "--callgrind-out-file=/dev/null"])
        .arg(program)
        .args([operation, &count.to_string()])
        .output()
        .context("cannot start valgrind")?;
    let text = String::from_utf8_lossy(&output.stderr);
    let collected = text.lines().find_map(|line| line.split_once("Collected :"));
    match collected.and_then(|(_, number)| number.trim().parse().ok()) {
        Some(number) if output.status.success() => Ok(number),
        _ => bail!("valgrind on `operations {operation} {count}` ({}): {text}", output.status),
    }
}
