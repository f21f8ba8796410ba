//! What `sync` has to do: two trees are compared name by name, and the list of what differs takes a
//! few bytes a name.

use anyhow::Result;
use base::map::{HashMap, HashSet};
use serde_json::json;
use vfs::FileType;

use super::Options;
use crate::app::App;
use crate::copy::nodes::{Entry, Named};
use crate::copy::selection::{Part, Selection, is_below};
use crate::text;

/// What is to be done.
#[derive(Default)]
pub struct Plan {
    /// Paths below the destination that go, with all below.
    pub remove: Selection,
    /// What is copied, and all directories.
    pub carry: Selection,
    /// How much there is to do.
    pub changes: u64,
}

/// A running comparison.
pub struct Comparing<'o> {
    options: &'o Options,
    pub plan: Plan,
    /// Files of several names here, by file there, and the reverse.
    ours: HashMap<u64, u64>,
    theirs: HashMap<u64, u64>,
    /// Names so far of a file that is the same, by file here.
    same: HashMap<u64, Vec<Vec<u8>>>,
    /// Files here that are made anew, under all their names.
    again: HashSet<u64>,
    /// A directory that is copied whole.
    whole: Option<Vec<u8>>,
    /// A path there that goes with all below, or stays so.
    gone: Option<Vec<u8>>,
}

impl<'o> Comparing<'o> {
    pub fn new(options: &'o Options) -> Comparing<'o> {
        Comparing {
            options,
            plan: Plan::default(),
            ours: HashMap::default(),
            theirs: HashMap::default(),
            same: HashMap::default(),
            again: HashSet::default(),
            whole: None,
            gone: None,
        }
    }

    /// Decides on a path that one or both have.
    ///
    /// # Errors
    /// The output is closed.
    pub fn name(
        &mut self,
        app: &mut App,
        here: Option<&Named>,
        there: Option<&Named>,
    ) -> Result<()> {
        match (here, there) {
            (Some(here), Some(there)) => self.both(app, here, there),
            (Some(here), None) => self.new_name(app, here),
            (None, Some(there)) => self.old_name(app, there),
            (None, None) => Ok(()),
        }
    }

    fn both(&mut self, app: &mut App, here: &Named, there: &Named) -> Result<()> {
        let directory = |named: &Named| named.entry.meta.kind == FileType::Directory;
        // A directory makes way for a file, and the reverse.
        if directory(here) != directory(there) {
            self.remove(app, &there.path)?;
            return self.new_name(app, here);
        }
        let part = match self.is_paired(here, there) {
            true => difference(&here.entry, &there.entry, self.options),
            false => Some(Part::All),
        };
        match part {
            Some(Part::All) => self.new_name(app, here),
            Some(part) => {
                self.plan.carry.push(&here.path, part);
                self.keep_name(here);
                self.change(app, "change", &here.path)
            }
            None => {
                if directory(here) {
                    self.plan.carry.push(&here.path, Part::Attributes);
                }
                self.keep_name(here);
                Ok(())
            }
        }
    }

    /// Whether the names of one file are those of one file on the other side, as far as they came.
    fn is_paired(&mut self, here: &Named, there: &Named) -> bool {
        if here.file.is_some_and(|file| self.again.contains(&file)) {
            return false;
        }
        match (here.file, there.file) {
            (None, None) => true,
            (Some(ours), Some(theirs)) => {
                *self.ours.entry(ours).or_insert(theirs) == theirs
                    && *self.theirs.entry(theirs).or_insert(ours) == ours
            }
            _ => false,
        }
    }

    fn keep_name(&mut self, here: &Named) {
        if let Some(file) = here.file {
            self.same.entry(file).or_default().push(here.path.clone());
        }
    }

    /// All of a name is copied.
    fn new_name(&mut self, app: &mut App, here: &Named) -> Result<()> {
        let directory = here.entry.meta.kind == FileType::Directory;
        let inside = self.whole.as_ref().is_some_and(|whole| is_below(&here.path, whole));
        if !inside {
            let part = if directory { Part::Tree } else { Part::All };
            self.plan.carry.push(&here.path, part);
            self.whole = directory.then(|| here.path.clone());
        }
        if let Some(file) = here.file {
            self.again.insert(file);
            for path in self.same.remove(&file).unwrap_or_default() {
                self.change(app, "copy", &path)?;
                self.plan.carry.push_late(path);
            }
        }
        self.change(app, "copy", &here.path)
    }

    fn old_name(&mut self, app: &mut App, there: &Named) -> Result<()> {
        let inside = self.gone.as_ref().is_some_and(|gone| is_below(&there.path, gone));
        if inside || !self.options.delete {
            return Ok(());
        }
        if there.path == b"lost+found" {
            self.gone = Some(there.path.clone());
            return Ok(());
        }
        self.remove(app, &there.path)
    }

    /// A path there goes, with all below.
    fn remove(&mut self, app: &mut App, path: &[u8]) -> Result<()> {
        self.plan.remove.push(path, Part::Tree);
        self.gone = Some(path.to_vec());
        self.change(app, "remove", path)
    }

    /// Counts what is to be done, and says it.
    fn change(&mut self, app: &mut App, what: &str, path: &[u8]) -> Result<()> {
        self.plan.changes += 1;
        let path = if path.is_empty() { ".".to_owned() } else { text::escape(path) };
        if app.out.json {
            return Ok(app.out.document(&json!({ "what": what, "path": path }))?);
        }
        match self.options.verbose || self.options.dry_run {
            true => Ok(app.out.line(format!("{what} {path}"))?),
            false => Ok(()),
        }
    }
}

/// What has to be done about a node.
fn difference(entry: &Entry, old: &Entry, options: &Options) -> Option<Part> {
    let (a, b) = (&entry.meta, &old.meta);
    let regular = a.kind == FileType::Regular;
    let content = match options.checksum {
        true => entry.content == old.content,
        false => a.mtime == b.mtime,
    };
    let same = a.kind == b.kind
        && (a.rdev == b.rdev || !a.kind.is_device())
        && entry.target == old.target
        && (!regular || a.size == b.size && content);
    let attributes = (a.mode == b.mode || a.kind == FileType::Symlink)
        && (a.uid, a.gid) == (b.uid, b.gid)
        && a.mtime == b.mtime
        && entry.attributes == old.attributes;
    match (same, attributes) {
        (true, true) => None,
        (true, false) if regular || a.kind == FileType::Directory => Some(Part::Attributes),
        _ => Some(Part::All),
    }
}
