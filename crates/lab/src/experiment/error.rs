//! What can be wrong with an experiment.

use std::ops::Range;

/// An experiment cannot be used.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ExperimentError {
    /// No built-in experiment has this name.
    #[error("there is no experiment `{name}`; there are: {known} (or name a file by its path)")]
    Unknown {
        /// The name that was asked for.
        name: String,
        /// The names that exist.
        known: String,
    },
    /// An option names something that the experiment does not have.
    #[error("{experiment} has nothing for `{option}`; there are: {known}")]
    Option {
        /// The experiment.
        experiment: String,
        /// The option with its value.
        option: String,
        /// The names that exist.
        known: String,
    },
    /// The file cannot be read.
    #[error("{path}: {cause}")]
    Read {
        /// The file.
        path: String,
        /// Why.
        cause: String,
    },
    /// The text is not an experiment.
    #[error("{source_name}:{line}:{column}: {message}")]
    Invalid {
        /// The file, or the name of a built-in experiment.
        source_name: String,
        /// The line, from 1.
        line: usize,
        /// The column, from 1.
        column: usize,
        /// What is wrong there.
        message: String,
    },
}

impl ExperimentError {
    /// An error at a byte range of the text; without one, at its first line.
    pub(super) fn at(
        source: &str,
        text: &str,
        span: Option<Range<usize>>,
        message: &str,
    ) -> ExperimentError {
        let start = span.map_or(0, |span| span.start).min(text.len());
        let before = &text.as_bytes()[..start];
        let line = before.iter().filter(|&&byte| byte == b'\n').count() + 1;
        let column = before.iter().rev().take_while(|&&byte| byte != b'\n').count() + 1;
        // A message of several lines lists what would have been accepted: one line of it is enough.
        let message = message.trim().replace('\n', ", ");
        ExperimentError::Invalid { source_name: source.to_owned(), line, column, message }
    }
}
