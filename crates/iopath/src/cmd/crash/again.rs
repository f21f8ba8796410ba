//! One state again: by the cut that a report names.

use std::path::Path;

use anyhow::{Context, Result};
use crash::{Exploration, Finding, Judge, Log, Outcome};
use device::Cut;

use super::explore::{Options, Recover};
use crate::text::shell_word;

/// Judges the state after a cut; first writes its disk to a new file, where somebody wants it.
///
/// # Errors
/// The log cannot be read, or the file not be written.
pub fn judge(
    log: &Log,
    how: &Exploration,
    judge: &dyn Judge,
    cut: Cut,
    image: Option<&Path>,
) -> Result<Outcome> {
    if let Some(path) = image {
        let medium = crash::explore::medium(log, &cut)?;
        crash::host::write_new(&medium, path).with_context(|| path.display().to_string())?;
    }
    let wrong = crash::explore::repeat(log, how, judge, &cut)?.err();
    let finding = |(verdict, message)| Finding { index: 0, verdict, message, cut, also: 0 };
    let findings: Vec<Finding> = wrong.map(finding).into_iter().collect();
    Ok(Outcome {
        planned: 1,
        distinct: 1,
        judged: 1,
        recovered: 1,
        wrong: findings.len() as u64,
        findings,
        complete: true,
        ..Outcome::default()
    })
}

/// The command that judges a state of an exploration again.
pub fn command(options: &Options, cut: &str) -> String {
    let mut words = vec!["iopath crash explore".to_owned(), shell_word(options.log.as_os_str())];
    if let Some(kind) = options.fs {
        words.push(format!("--fs {kind}"));
    }
    if let Some(rules) = options.oracle {
        words.push(format!("--oracle {rules}"));
    }
    if let Some(who) = options.recover {
        words.push(format!("--recover {}", if who == Recover::Kernel { "kernel" } else { "ours" }));
    }
    if options.no_fsck {
        words.push("--no-fsck".to_owned());
    }
    if options.outside > 0 {
        words.push("--outside 1".to_owned());
    }
    if options.timeout != Options::TIMEOUT {
        words.push(format!("--timeout {}", options.timeout));
    }
    words.push(format!("--cut {cut}"));
    if !options.check.is_empty() {
        words.push("--".to_owned());
        words.extend(options.check.iter().map(|word| shell_word(word)));
    }
    words.join(" ")
}
