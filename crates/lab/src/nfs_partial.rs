//! The experiment `nfs-partial`: "[PATCH] NFS: Pagecache usage optimization on nfs", Hisashi
//! Hifumi, 17 February 2009, and what the thread asks beyond it.
//!
//! A client, a link, a server with ext3, an elevator and a disk in one world: machine `nfs-2008`.
//! The client's page cache runs in each of its modes ([`nfs::Mode`]); the counts of what it did are
//! exact, the times are modelled. It has its own file of cells instead of a TOML file, because a
//! run has two machines.
//!
//! Assumed, since the mails do not tell: the server has the files in memory (they were just
//! prepared through it), the client has nothing in memory, no readahead takes part (it would add
//! READs at the start of each file), and the server has 8 tasks. A stable WRITE on it is what
//! `fsync` of ext3 is: the data, and now and then a commit of the journal for the times; the disk
//! with its write cache off makes it durable.
//!
//! Two things decide the times and are not of the mechanism: how fast the server makes one page
//! durable, and how fast many. One parameter of the server's disk, the commands that it takes at
//! once, is calibrated on one cell, the time in requests before the patch; all else is predicted.
//! The counts of the mechanism alone are in a row of their own, without
//! the write-back of what is older than 30 s, which depends on how long the run takes.

mod cell;
mod report;

pub use cell::{Cell, Files, Image, Outcome, Phase, run_cell};
pub use report::{Check, Report, Row};

use model::Profile;
use nfs::Mode;
use rayon::prelude::*;

use crate::experiment::Size;

/// Its name.
pub const NAME: &str = "nfs-partial";
/// Its machine.
pub const MACHINE: &str = "nfs-2008";

/// What the document says of a variant.
#[derive(Clone, Copy, Debug)]
pub struct Published {
    /// Reads and writes.
    pub operations: (u64, u64),
    /// Requests a second.
    pub rate: f64,
    /// Total time, s.
    pub total: f64,
    /// Time in events by thread, s.
    pub phase: f64,
    /// Mean time of a request, ms.
    pub mean: f64,
    /// 95 % of the requests, ms.
    pub p95: f64,
    /// Longest, s.
    pub max: f64,
}

/// The document's figures without and with the patch.
pub const PUBLISHED: [(Mode, Published); 2] = [
    (
        Mode::Off,
        Published {
            operations: (33356, 66682),
            rate: 1591.97,
            total: 62.8391,
            phase: 52.61,
            mean: 8.4,
            p95: 44.6,
            max: 16.4564,
        },
    ),
    (
        Mode::Request,
        Published {
            operations: (33346, 66662),
            rate: 2565.81,
            total: 38.9772,
            phase: 21.2301,
            mean: 3.4,
            p95: 20.0,
            max: 1.6768,
        },
    ),
];

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;

/// The row of the counts alone.
pub(crate) const COUNTS: &str = "the same without write-back by age";
/// The row on which Hifumi's claim for large pages is checked.
pub(crate) const LARGE_PAGES: &str = "4 KiB on 16 KiB pages (Hifumi)";

/// A row of cells: what is asked, and the cell in the mode `off`.
fn rows(requests: u64) -> Vec<(&'static str, Cell)> {
    let document = Cell {
        mode: Mode::Off,
        folio_size: 4096,
        block_size: 2 * KIB,
        total_size: 200 * MIB,
        cache_bytes: cell::MEMORY,
        by_age: true,
        files: Files::Prepared,
        phases: vec![Phase { mode: "rndrw", requests, fsync_end: true }],
    };
    let sized =
        |folio: u32, block: u64| Cell { folio_size: folio, block_size: block, ..document.clone() };
    let two = |fsync_end| {
        let write = Phase { mode: "rndwr", requests: requests / 2, fsync_end };
        vec![write, Phase { mode: "rndrd", requests: requests / 2, fsync_end: false }]
    };
    vec![
        ("2 KiB on 4 KiB pages (the document)", document.clone()),
        (COUNTS, Cell { by_age: false, ..document.clone() }),
        ("4 KiB on 4 KiB pages (Piggin)", sized(4096, 4 * KIB)),
        (LARGE_PAGES, sized(16384, 4 * KIB)),
        ("8 KiB on 16 KiB pages (Hifumi)", sized(16384, 8 * KIB)),
        ("4 KiB on 64 KiB pages (Hifumi)", sized(65536, 4 * KIB)),
        ("8 KiB on 64 KiB pages (Hifumi)", sized(65536, 8 * KIB)),
        (
            "file larger than the cache (Myklebust)",
            Cell { cache_bytes: 64 * MIB, ..document.clone() },
        ),
        ("reads after writes", Cell { phases: two(false), ..document.clone() }),
        ("reads after a flush", Cell { phases: two(true), ..document.clone() }),
        ("sparse files of the client", Cell { files: Files::Sparse, ..document }),
    ]
}

/// The modes that a row compares.
const MODES: [Mode; 4] = [Mode::Off, Mode::Request, Mode::Rmw, Mode::Ranges];

/// Runs the experiment on both machines of the profile, all cells beside each other. `done` is told
/// of each.
///
/// # Errors
/// What failed inside of a world.
pub fn run(
    size: Size,
    seed: u64,
    done: &(dyn Fn(&str, Mode, &Outcome) + Sync),
) -> Result<Report, String> {
    let requests = if size == Size::Full { 100_000 } else { 30_000 };
    let profile = Profile::load(MACHINE).map_err(|error| error.to_string())?;
    let all = rows(requests);
    let mut cells = Vec::new();
    for (index, (title, cell)) in all.iter().enumerate() {
        // What the document's figures are held to has the document's number of requests.
        let whole = |phase: &Phase| Phase { requests: 100_000, ..phase.clone() };
        let phases = match index == 0 || [COUNTS, LARGE_PAGES].contains(title) {
            true => cell.phases.iter().map(whole).collect(),
            false => cell.phases.clone(),
        };
        for mode in MODES {
            cells.push((*title, Cell { mode, phases: phases.clone(), ..cell.clone() }));
        }
    }
    let image = cell::Image::make(200 * MIB)?;
    let outcomes: Result<Vec<Outcome>, String> = cells
        .par_iter()
        .map(|(title, cell)| {
            let outcome = run_cell(&profile, &image, cell, seed)
                .map_err(|error| format!("{title}, {:?}: {error}", cell.mode))?;
            done(title, cell.mode, &outcome);
            Ok(outcome)
        })
        .collect();
    let mut outcomes = outcomes?.into_iter();
    let rows = all
        .into_iter()
        .map(|(title, _)| {
            let outcomes = MODES.map(|mode| (mode, outcomes.next().expect("one for each")));
            Row { title: title.to_owned(), outcomes: outcomes.to_vec() }
        })
        .collect();
    Ok(Report::build(seed, rows))
}
