//! Instructions per operation, held by a budget file. Counts come from callgrind; a run with many
//! operations minus a run with few leaves out start and end. The operations run in virtual time,
//! where no other thread takes part: two measurements of one build are equal.

use crate::{run, suite};
use anyhow::{Context, Result, bail};
use std::process::Command;

const BUDGET: &str = "xtask/budget.txt";
const FEW: u64 = 2_000;
const MANY: u64 = 7_000;
/// A count may exceed its budget by this share before the check fails.
const SLACK: f64 = 0.01;

/// An operation that is measured.
struct Measured {
    /// Its name in the budget.
    name: &'static str,
    /// The example that does it.
    example: &'static str,
    /// The operation that the example is asked for.
    operation: &'static str,
}

const OPERATIONS: &[Measured] = &[
    Measured { name: "create", example: "operations", operation: "create" },
    Measured { name: "stat", example: "operations", operation: "stat" },
    Measured { name: "unlink", example: "operations", operation: "unlink" },
    Measured { name: "append", example: "operations", operation: "append" },
    Measured { name: "xfs-create", example: "xfs_operations", operation: "create" },
    Measured { name: "xfs-unlink", example: "xfs_operations", operation: "unlink" },
];

/// Measures every operation; compares with the budget, or writes it with `bless`.
pub fn check(bless: bool) -> Result<()> {
    let build = ["build", "--release", "--quiet", "-p", "iopath-ext4", "--example", "operations"];
    run::cargo(&[&build[..], &["-p", "iopath-xfs", "--example", "xfs_operations"]].concat())?;
    // Counts do not depend on what runs beside.
    let workers = std::thread::available_parallelism().map_or(1, usize::from);
    let counted = suite::each(workers, OPERATIONS, |one| {
        let (many, few) = (instructions(one, MANY)?, instructions(one, FEW)?);
        Ok((one.name, (many.saturating_sub(few)) / (MANY - FEW)))
    });
    let measured = counted.into_iter().collect::<Result<Vec<_>>>()?;
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
            .find_map(|line| line.strip_prefix(operation)?.strip_prefix(' ')?.parse().ok())
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

fn instructions(one: &Measured, count: u64) -> Result<u64> {
    let Measured { example, operation, .. } = one;
    let program = run::root().join("target/release/examples").join(example);
    let output = Command::new("valgrind")
        .args(["--tool=callgrind", "--callgrind-out-file=/dev/null"])
        .arg(program)
        .args([*operation, &count.to_string()])
        .output()
        .context("cannot start valgrind")?;
    let text = String::from_utf8_lossy(&output.stderr);
    let collected = text.lines().find_map(|line| line.split_once("Collected :"));
    match collected.and_then(|(_, number)| number.trim().parse().ok()) {
        Some(number) if output.status.success() => Ok(number),
        _ => bail!("valgrind on `{example} {operation} {count}` ({}): {text}", output.status),
    }
}
