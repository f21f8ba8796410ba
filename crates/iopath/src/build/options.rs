//! What is copied into an image that is built.

use std::sync::Arc;

use anyhow::Result;

use super::census::Census;
use super::input::Input;
use super::table::TableSource;
use super::{Moment, SourceOptions};
use crate::app::App;
use crate::copy::{self, Existing, Keep, Source};

/// A source and what of it is kept.
pub struct Content {
    /// What is read.
    pub input: Input,
    /// How.
    pub keep: Keep,
}

impl Content {
    /// Nothing.
    pub fn empty() -> Content {
        Content { input: Input::Nothing, keep: Keep::ALL }
    }

    /// What the options name; none if they name no source. A stream is stored beside the output
    /// first, if it must be read `twice`.
    ///
    /// # Errors
    /// There is no such source, or a table is wrong.
    pub fn parse(
        app: &mut App,
        options: &SourceOptions,
        beside: &std::path::Path,
        twice: bool,
    ) -> Result<Option<Content>> {
        let Some(source) = &options.source else { return Ok(None) };
        let mut keep = super::keep_of(app, options)?;
        let mut input = Input::open(source, options.platform.as_deref(), beside, twice)?;
        if let Input::Prototype(_, spaces) = &mut input {
            *spaces = options.slashes_are_spaces;
            keep.exact.as_mut().map(Arc::make_mut).expect("a build has it").link_modes = true;
        }
        Ok(Some(Content { input, keep }))
    }

    /// Decides on times, and on what of several layers is left.
    ///
    /// # Errors
    /// The layers cannot be read.
    pub(super) fn settle(&mut self, app: &mut App, moment: Moment) -> Result<()> {
        if let (true, Some(exact)) = (moment.pinned, self.keep.exact.as_mut()) {
            Arc::make_mut(exact).pin = Some(moment.now);
        }
        if self.input.is_archive() {
            self.keep.existing = Existing::Archive;
        }
        self.input.settle(app, &self.keep)
    }

    /// How much there is.
    ///
    /// # Errors
    /// Something cannot be read.
    pub(super) fn count(&self, app: &mut App) -> Result<Census> {
        let mut progress = app.out.progress("counting");
        let pinned = self.keep.exact.as_ref().is_some_and(|exact| exact.pin.is_some());
        let keep = Keep { names_only: !pinned, ..self.keep.clone() };
        let mut census = Census::new(&keep);
        for source in self.sources(&keep)? {
            let problems = copy::run(app.cx, source, &mut census, &mut progress)?;
            super::refuse_problems(app, &problems)?;
        }
        progress.finish();
        Ok(census)
    }

    /// What is read, one after the other: the last are the nodes of the tables.
    ///
    /// # Errors
    /// A file cannot be opened.
    pub(super) fn sources(&self, keep: &Keep) -> Result<Vec<Box<dyn Source>>> {
        let mut sources = self.input.sources(keep)?;
        if let Some(exact) = keep.exact.as_ref().filter(|exact| !exact.owners.nodes().is_empty()) {
            sources.push(Box::new(TableSource::new(exact.clone())));
        }
        Ok(sources)
    }
}
