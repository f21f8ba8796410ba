//! The texts of an experiment that belong to others: mount options, command lines and job files.

use ext4::MountOptions;
use ext4::mount::options::MountOption;
use workload::fio::JobFile;
use workload::fs_mark;

use super::file::Tool;

/// The mount options of a list with commas; later ones win. An empty text gives the defaults.
///
/// # Errors
/// The option that is not known, and what is.
pub fn parse(text: &str) -> Result<MountOptions, String> {
    let mut options = MountOptions::default();
    for one in text.split(',').map(str::trim).filter(|one| !one.is_empty()) {
        one.parse::<MountOption>()?.apply(&mut options);
    }
    Ok(options)
}

/// The same for XFS, which a run may write to.
///
/// # Errors
/// As [`parse`].
pub fn parse_xfs(text: &str) -> Result<xfs::MountOptions, String> {
    let mut options = xfs::MountOptions { read_only: false, ..xfs::MountOptions::default() };
    for one in text.split(',').map(str::trim).filter(|one| !one.is_empty()) {
        one.parse::<xfs::mount::options::MountOption>()?.apply(&mut options);
    }
    Ok(options)
}

/// Whether the tool takes this text.
///
/// # Errors
/// What the tool says.
pub fn check(tool: Tool, text: &str) -> Result<(), String> {
    match tool {
        Tool::FsMark => fs_mark_options(text).map(drop),
        Tool::Fio => job_file(text).map(drop),
    }
}

/// The options of a command line, without or with the tool's name in front.
///
/// # Errors
/// What the tool says.
pub fn fs_mark_options(text: &str) -> Result<fs_mark::Options, String> {
    let words: Vec<&str> = text.split_whitespace().collect();
    let words = words.strip_prefix(&["fs_mark"]).unwrap_or(&words);
    fs_mark::Options::parse(words).map_err(|usage| usage.to_string())
}

pub fn job_file(text: &str) -> Result<JobFile, String> {
    JobFile::parse(text, &[]).map_err(|errors| {
        let first = errors.0.first().map(|error| (error.span.line, error.message.clone()));
        let (line, message) = first.unwrap_or_default();
        format!("line {line} of the job: {message}")
    })
}
