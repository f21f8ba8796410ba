//! `lab run` of the experiments that are programs.

use std::io::IsTerminal;

use anyhow::{Result, bail};
use lab::bh_lru::Set;
use lab::bh_lru::instructions::Amount;
use lab::experiment::Size;
use lab::programs::Program;
use lab::report::ProgramReport;
use lab::{bh_lru, nfs_partial, xfs_buf_item};

use super::run::Options;
use crate::app::App;

/// Runs one.
///
/// # Errors
/// A run failed.
pub fn run(app: &mut App, program: &Program, options: &Options) -> Result<ProgramReport> {
    let shown = std::io::stderr().is_terminal() && !app.options.quiet && !app.out.json;
    let say = |what: &str| {
        if shown {
            eprintln!("{}: {what}", program.name);
        }
    };
    let size = if options.full { Size::Full } else { Size::Quick };
    let failed = |what: String| anyhow::anyhow!("{}: {what}", program.name);
    let holds = |outside: usize, all: usize| Some([all - outside, outside]);
    let (holds, markdown, figures) = match program.name {
        bh_lru::NAME => {
            let plan = bh_lru::Plan::of(size).only(&options.case).map_err(failed)?;
            let report = bh_lru::run(app.cx, &plan, &mut |what| say(what));
            let mut report = report.map_err(failed)?;
            if options.full && options.case.is_empty() || options.instructions {
                count_instructions(&mut report, options.full, &say)?;
            }
            (None, report.markdown(), report.json())
        }
        nfs_partial::NAME => {
            let seed = options.seeds.and_then(|seeds| seeds.iter().next()).unwrap_or(1);
            let report = nfs_partial::run(size, seed, &|title, mode, outcome| {
                say(&format!("{title}, {mode:?}: {:.1} simulated s", outcome.total));
            });
            let report = report.map_err(failed)?;
            let holds = holds(report.failed(), report.checks.len());
            (holds, report.markdown(), report.json())
        }
        xfs_buf_item::NAME => {
            let plan = xfs_buf_item::Plan::of(size);
            let report = xfs_buf_item::run(app.cx, &plan, &mut |what| say(what));
            let report = report.map_err(failed)?;
            let holds = holds(report.failed(), report.checks.len());
            (holds, report.markdown(), report.json())
        }
        other => bail!("`{other}` is no program of the lab"),
    };
    if let Some([inside, outside]) = holds
        && outside > 0
    {
        app.out.note(format!("{}: {outside} of {} do not hold", program.name, inside + outside));
    }
    Ok(ProgramReport::new(program, command(program, options), holds, markdown, figures))
}

fn count_instructions(report: &mut bh_lru::Report, full: bool, say: &dyn Fn(&str)) -> Result<()> {
    let amount = match full {
        true => Amount { names: 100_000, files: 2000 },
        false => Amount { names: 5000, files: 500 },
    };
    for set in [Set::A, Set::B, Set::C] {
        say(&format!("instructions of set ({})", set.letter()));
        report.instructions.extend(super::bh_lru::count(set, amount)?);
    }
    Ok(())
}

/// The command that gives the same again.
fn command(program: &Program, options: &Options) -> String {
    let mut command = format!("iopath lab run {}", program.name);
    if let Some(seeds) = options.seeds {
        command.push_str(&format!(" --seeds {seeds}"));
    }
    options.case.iter().for_each(|case| command.push_str(&format!(" --case {case}")));
    let flags = [(options.full, " --full"), (options.instructions, " --instructions")];
    flags.iter().filter(|(set, _)| *set).for_each(|(_, flag)| command.push_str(flag));
    command
}
