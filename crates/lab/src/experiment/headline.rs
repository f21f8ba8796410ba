//! The line that stands for an experiment where several are shown.

use serde::Deserialize;
use toml::Spanned;

use super::file::Name;
use super::value::CellName;

/// One figure of the document, the same of ours, and what ours makes of it.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Headline {
    /// What the figure is, with its unit.
    pub title: String,
    /// The published cell that is repeated.
    pub cell: Spanned<CellName>,
    /// The same figure of a variant of ours, which the document does not have.
    pub ours: Option<Spanned<CellName>>,
    /// The file system of both.
    pub filesystem: Name,
}
