//! The experiments that are programs, not files of runs: what each repeats.

use crate::{bh_lru, nfs_partial, xfs_buf_item};

/// An experiment that brings its own tables.
#[derive(Clone, Copy, Debug)]
pub struct Program {
    /// Its name.
    pub name: &'static str,
    /// Title of the document.
    pub title: &'static str,
    /// Its author.
    pub author: &'static str,
    /// Its date: year-month-day, or less where no more is known.
    pub date: &'static str,
    /// Where its figures come from.
    pub basis: &'static str,
    /// What it compares.
    pub variants: &'static [&'static str],
    /// What it runs.
    pub cases: &'static [&'static str],
}

/// All of them.
pub const PROGRAMS: [Program; 3] = [
    Program {
        name: bh_lru::NAME,
        title: "[PATCH] Allow increasing the buffer-head per-CPU LRU size",
        author: "Sebastien Buisson",
        date: "2014-07-04",
        basis: "measured",
        variants: &["8", "16", "ours"],
        cases: bh_lru::CASES,
    },
    Program {
        name: nfs_partial::NAME,
        title: "[PATCH] NFS: Pagecache usage optimization on nfs",
        author: "Hisashi Hifumi",
        date: "2009-02-17",
        basis: "exact counts, modelled times",
        variants: &["off", "request", "rmw", "ranges"],
        cases: &["rndrw"],
    },
    Program {
        name: xfs_buf_item::NAME,
        title: "xfs: optimise xfs_buf_item_size/format for contiguous regions",
        author: "Dave Chinner",
        date: "2021",
        basis: "exact, measured and modelled",
        variants: &["bitwise", "contiguous", "ours"],
        cases: &["create", "unlink"],
    },
];

/// The program of that name.
pub fn program(name: &str) -> Option<&'static Program> {
    PROGRAMS.iter().find(|program| program.name == name)
}
