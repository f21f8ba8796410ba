//! The program `nfs-partial`: "[PATCH] NFS: Pagecache usage optimization on nfs", Hisashi Hifumi,
//! 17 February 2009, and what the thread asks beyond it.
//!
//! A client, a link, a server with a file system, an elevator and a disk in one world. The client's
//! page cache runs in each of its modes ([`nfs::Mode`]), which are the variants; the counts of what
//! it did are exact, the times are modelled. It is a program because a run has two machines; what
//! is run, published and held is in `experiments/nfs-partial.toml`.
//!
//! Assumed, since the mails do not say: the server has the files in memory (they were just
//! prepared through it), the client has nothing in memory, no readahead takes part (it would add
//! READs at the start of each file), and the server has 8 tasks. A stable WRITE on it is what
//! `fsync` of ext3 is: the data, and now and then a commit of the journal for the times; the disk
//! with its write cache off makes it durable.
//!
//! Two things decide the times and are not of the mechanism: how fast the server makes one page
//! durable, and how fast many. One parameter of the server's disk, the commands that it takes at
//! once, is calibrated on one cell, the time in requests before the patch; all else is predicted.
//! The counts of the mechanism alone are in a case of their own, without the write-back of what is
//! older than 30 s, which depends on how long the run takes.

mod cell;
mod scene;
mod server;

pub use cell::{Cell, Files, Phase};
pub use scene::{Outcome, Scene};
pub use server::{Image, Setup};

use model::Profile;
use nfs::Mode;
use serde::Deserialize;

use crate::experiment::{ByteSize, Experiment, RunSpec};
use crate::program::{Figures, Output, Played, Program, Shared, check_cases, parameters};
use crate::record::RunError;

/// Its machine.
pub const MACHINE: &str = "nfs-2008";
/// Images that are kept: one for each size of the files.
const IMAGES: usize = 8;

/// What a case says.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Parameters {
    /// Bytes of a folio of the client.
    folio: ByteSize,
    /// Bytes of a request.
    block: ByteSize,
    /// Bytes of all files.
    files: ByteSize,
    /// Bytes of the client's page cache.
    cache: ByteSize,
    /// Dirty data older than 30 s is written.
    by_age: bool,
    /// The client makes the files itself, by setting their sizes.
    sparse: bool,
    /// Another client has made them so.
    sparse_of_others: bool,
    /// Largest WRITE; 0: what the server prefers.
    wsize: ByteSize,
    /// Requests of all phases.
    requests: u64,
    /// `--file-test-mode` of each phase.
    phases: Vec<String>,
    /// The first phase ends with an fsync of all files.
    fsync_end: bool,
}

impl Parameters {
    fn cell(&self, mode: Mode) -> Cell {
        let requests = self.requests / self.phases.len().max(1) as u64;
        let phase = |(index, mode): (usize, &String)| Phase {
            mode: mode.clone(),
            requests,
            fsync_end: self.fsync_end && index == 0,
        };
        Cell {
            mode,
            folio_size: self.folio.0 as u32,
            block_size: self.block.0,
            total_size: self.files.0,
            cache_bytes: self.cache.0,
            by_age: self.by_age,
            files: match (self.sparse, self.sparse_of_others) {
                (true, _) => Files::Sparse,
                (_, true) => Files::SparseOfOthers,
                _ => Files::Prepared,
            },
            wsize: (self.wsize.0 > 0).then_some(self.wsize.0 as u32),
            phases: self.phases.iter().enumerate().map(phase).collect(),
        }
    }
}

/// A client and a server on the machine of an experiment.
struct NfsPartial<'a> {
    experiment: &'a Experiment,
    profile: Profile,
    server: Setup,
    images: Shared<u64, Image>,
}

/// The mode of that name.
fn mode(variant: &str) -> Result<Mode, String> {
    let known = Mode::ALL.iter().find(|(name, _)| *name == variant);
    known.map(|(_, mode)| *mode).ok_or_else(|| {
        let names: Vec<&str> = Mode::ALL.iter().map(|(name, _)| *name).collect();
        format!("variant {variant}: the client's modes are {}", names.join(", "))
    })
}

/// The program for an experiment.
///
/// # Errors
/// A case, a variant or a machine that is none for this program.
pub fn new(experiment: &Experiment) -> Result<Box<dyn Program + '_>, String> {
    let file = &experiment.file;
    check_cases::<Parameters>(experiment)?;
    file.variant.keys().try_for_each(|name| mode(name).map(drop))?;
    let profile = experiment.profile().map_err(|error| format!("machine: {error}"))?;
    let profile = profile.ok_or("machine: it needs one with a link")?;
    if profile.link.is_none() {
        return Err(format!("machine: {} has no link", file.machine.profile.get_ref()));
    }
    let filesystem = file.filesystem.values().next();
    let server = Setup {
        device: file.machine.device.0,
        memory: file.machine.memory.0,
        mount: filesystem.map(|one| one.mount.text().to_owned()).unwrap_or_default(),
    };
    Ok(Box::new(NfsPartial { experiment, profile, server, images: Shared::new(IMAGES) }))
}

impl NfsPartial<'_> {
    fn output(&self, spec: &RunSpec, keep_trace: bool) -> Result<Output, String> {
        let cell = parameters::<Parameters>(&spec.key.case, &spec.with)?;
        let cell = cell.cell(mode(&spec.key.variant)?);
        let image =
            self.images.get(cell.total_size, || Image::make(cell.total_size, &self.server))?;
        let (profile, server) = (&self.profile, &self.server);
        let scene = Scene { profile, server, image: &image, cell: &cell, keep_trace };
        let (outcome, trace) = scene.run(spec.key.seed)?;
        let mut figures = Figures::default();
        figures.set_all(outcome.figures());
        let played = Played { seconds: outcome.total, event_hash: outcome.event_hash };
        let record = figures.record(self.experiment, spec, &spec.key.variant, played);
        Ok(Output { record, trace: trace.events, names: trace.names })
    }
}

impl Program for NfsPartial<'_> {
    fn figures(&self) -> Vec<String> {
        let all = Outcome::default().figures();
        all.into_iter().map(|(name, _)| name.to_owned()).collect()
    }

    fn traces(&self) -> bool {
        true
    }

    fn run(&self, spec: &RunSpec, keep_trace: bool) -> Result<Vec<Output>, RunError> {
        let output = self.output(spec, keep_trace);
        Ok(vec![output.map_err(|what| RunError::of(spec.key.to_string(), what))?])
    }
}
