//! An experiment: a document, a question, and everything that is needed to answer it.
//!
//! One TOML file each (`docs/experiments.md` has the format). Ours are built in; a user's is
//! named by its path. A file is read, checked as a whole (every name that it uses exists in it) and
//! never changed by what a run finds.

mod check;
mod error;
mod expand;
mod figure;
mod file;
mod headline;
mod inherit;
mod knob;
pub(crate) mod options;
mod value;

pub use error::ExperimentError;
pub(crate) use expand::tunables;
pub use expand::{Load, Plan, Point, RunKey, RunSpec, Size, Varied};
pub use figure::Figure;
pub use file::{
    Basis, Case, Cell, Document, File, Filesystem, Fixes, Frontier, Layout, Lines, Machine, Metric,
    Name, OptionText, Relation, Search, Seeds, Share, StripeShape, Sweep, Table, Tool, Unknown,
    Variant, Vary, Workload,
};
pub use headline::Headline;
pub use knob::Knob;
pub(crate) use knob::limit;
pub use value::{ByteSize, CellName, Expression, Operator, SeedRange};

use crate::digest::digest;
use model::{Profile, ProfileError};
use rt::Registry;
use std::ops::Range;
use std::path::Path;

/// The experiments that are built in: name and text.
const BUILT_IN: &[(&str, &str)] = include!(concat!(env!("OUT_DIR"), "/experiments.rs"));

/// Largest experiment file that is read, in bytes.
const FILE_MAX: u64 = 4 << 20;

/// A checked experiment.
#[derive(Clone, Debug)]
pub struct Experiment {
    /// Its name: that of the file, without `.toml`.
    pub name: String,
    /// Where it came from: the name of a built-in one, or a path.
    pub source: String,
    /// A digest of the file's text: results of different texts are not merged.
    pub digest: String,
    /// What the file says.
    pub file: File,
    /// A machine instead of the file's.
    machine: Option<Profile>,
}

/// Experiments that a program has added.
static ADDED: Registry<&'static str> = Registry::new();

/// Adds an experiment to those that are found by name, for as long as the program runs.
///
/// # Errors
/// The name is taken, or is none; the text is no experiment, with its place.
pub fn register(name: &'static str, text: &'static str) -> Result<(), String> {
    Experiment::parse(name, name, text).map_err(|error| error.to_string())?;
    ADDED.add(built_in(), name, text)
}

fn built_in() -> impl Iterator<Item = &'static str> {
    BUILT_IN.iter().map(|&(name, _)| name)
}

/// Names of the experiments that are built in or were added.
pub fn experiments() -> impl Iterator<Item = &'static str> {
    built_in().chain(ADDED.names())
}

/// The text of an experiment of that name.
pub fn text(name: &str) -> Option<&'static str> {
    let built_in = BUILT_IN.iter().find(|&&(known, _)| known == name);
    built_in.map(|&(_, text)| text).or_else(|| ADDED.get(name))
}

impl Experiment {
    /// The experiment of that name, or in that file (a name with a slash or ending in `.toml`).
    ///
    /// # Errors
    /// Where there is no such experiment, it cannot be read, or it is not a valid one; the error
    /// names file, line and value.
    pub fn load(name_or_path: &str) -> Result<Experiment, ExperimentError> {
        if let Some(text) = text(name_or_path) {
            return Experiment::parse(name_or_path, name_or_path, text);
        }
        if !name_or_path.contains('/') && !name_or_path.ends_with(".toml") {
            let known = experiments().collect::<Vec<_>>().join(", ");
            return Err(ExperimentError::Unknown { name: name_or_path.to_owned(), known });
        }
        let failed = |error: std::io::Error| ExperimentError::Read {
            path: name_or_path.to_owned(),
            cause: error.to_string(),
        };
        let size = std::fs::metadata(name_or_path).map_err(failed)?.len();
        if size > FILE_MAX {
            let cause = format!("{size} bytes are more than the {FILE_MAX} that are read");
            return Err(ExperimentError::Read { path: name_or_path.to_owned(), cause });
        }
        let text = std::fs::read_to_string(name_or_path).map_err(failed)?;
        let stem = Path::new(name_or_path).file_stem().unwrap_or_default().to_string_lossy();
        Experiment::parse(&stem, name_or_path, &text)
    }

    /// The experiment with that text.
    ///
    /// # Errors
    /// As [`Experiment::load`].
    pub fn parse(name: &str, source: &str, text: &str) -> Result<Experiment, ExperimentError> {
        let whole = inherit::whole(text)
            .map_err(|wrong| ExperimentError::at(source, text, wrong.span, &wrong.message))?;
        // What was inherited has no place in the file; what is wrong there is found by its text.
        let place = |span: Option<Range<usize>>| match (&whole, span) {
            (None, span) => span,
            (Some(whole), Some(span)) => {
                let part = whole.get(span).filter(|part| !part.is_empty())?;
                text.find(part).map(|start| start..start + part.len())
            }
            (Some(_), None) => None,
        };
        let all = whole.as_deref().unwrap_or(text);
        let file = toml::from_str::<File>(all).map_err(|error| {
            ExperimentError::at(source, text, place(error.span()), error.message())
        })?;
        check::check(&file).map_err(|wrong| {
            ExperimentError::at(source, text, place(wrong.span), &wrong.message)
        })?;
        let digest = format!("{:016x}", digest(all.as_bytes()));
        Ok(Experiment {
            name: name.to_owned(),
            source: source.to_owned(),
            digest,
            file,
            machine: None,
        })
    }

    /// The same on another machine: the name or the path of a profile.
    ///
    /// # Errors
    /// The experiment models none; there is no such profile; a number that a sweep varies is none
    /// of that machine's.
    pub fn on_machine(mut self, machine: &str) -> Result<Experiment, ExperimentError> {
        let option = |known: String| ExperimentError::Option {
            experiment: self.name.clone(),
            option: format!("--machine {machine}"),
            known,
        };
        if self.file.machine.is_at_hand() {
            return Err(option("no modelled machines, only the one at hand".to_owned()));
        }
        Profile::load(machine).map_err(|error| option(error.to_string()))?;
        self.file.machine.profile = toml::Spanned::new(0..0, machine.to_owned());
        check::check(&self.file)
            .map_err(|wrong| ExperimentError::at(&self.source, "", None, &wrong.message))?;
        Ok(self)
    }

    /// The same on this machine.
    pub fn with_profile(&self, profile: Profile) -> Experiment {
        Experiment { machine: Some(profile), ..self.clone() }
    }

    /// The modelled machine; none where the experiment is about the machine at hand.
    ///
    /// # Errors
    /// The profile cannot be read.
    pub fn profile(&self) -> Result<Option<Profile>, ProfileError> {
        let machine = &self.file.machine;
        if let Some(own) = &self.machine {
            return Ok(Some(own.clone()));
        }
        (!machine.is_at_hand()).then(|| Profile::load(machine.profile.get_ref())).transpose()
    }

    /// The variant of that name.
    ///
    /// # Panics
    /// Where the experiment has none; its file was checked for the names that it uses.
    pub fn variant(&self, name: &str) -> Variant {
        expand::variant(&self.file, name)
    }
}
