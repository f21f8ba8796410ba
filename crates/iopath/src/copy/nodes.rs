//! What a tree is, name by name, to be compared with another one: one name at a time, in an order
//! that all trees have in common, so that the trees may be of any size.

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::collections::btree_map::IntoValues;
use std::sync::Arc;

use anyhow::Result;
use base::map::HashMap;
use rt::Cx;
use sha2::{Digest, Sha256};
use vfs::FileType;

use super::exact::Exact;
use super::{Batch, Event, Meta, Problems, Reading, Source, count};
use crate::app::App;
use crate::out::Progress;

/// A node.
#[derive(Clone, Debug)]
pub struct Entry {
    /// What stat(2) says.
    pub meta: Meta,
    /// Where a symlink leads.
    pub target: Vec<u8>,
    /// Attributes by name.
    pub attributes: BTreeMap<Vec<u8>, Vec<u8>>,
    /// SHA-256 of the content with its places, whatever the holes.
    pub content: [u8; 32],
}

/// A name with its node.
#[derive(Clone, Debug)]
pub struct Named {
    /// Path below the root of the tree.
    pub path: Vec<u8>,
    /// What it names.
    pub entry: Arc<Entry>,
    /// The same number for all names of a file that has several.
    pub file: Option<u64>,
}

/// The order of a tree that is walked with names sorted by bytes: a directory, what is in it, and
/// then its neighbours.
pub fn order(one: &[u8], two: &[u8]) -> Ordering {
    // No name holds a zero byte.
    let key = |&byte: &u8| if byte == b'/' { 0 } else { byte };
    one.iter().map(key).cmp(two.iter().map(key))
}

/// A file whose content comes.
struct Open {
    named: Named,
    entry: Entry,
    hash: Sha256,
    /// Where the last bytes that are not zeros ended.
    end: u64,
}

/// The names of a tree, as they come from a source.
pub struct Nodes {
    reading: Reading,
    batch: Option<Batch>,
    /// Event of the batch that comes next.
    at: usize,
    open: Option<Open>,
    /// Nodes whose further names may come, by their first name.
    linked: HashMap<Vec<u8>, Named>,
    /// All of it, sorted: the source has an order of its own.
    collected: Option<IntoValues<Ordered, Named>>,
    problems: Problems,
}

/// A path that sorts as [`order`] has it.
#[derive(PartialEq, Eq)]
struct Ordered(Vec<u8>);

impl Ord for Ordered {
    fn cmp(&self, other: &Ordered) -> Ordering {
        order(&self.0, &other.0)
    }
}

impl PartialOrd for Ordered {
    fn partial_cmp(&self, other: &Ordered) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Nodes {
    /// Begins to read a source that keeps the order ([`Keep::sorted`](super::Keep::sorted)).
    pub fn start(cx: &mut Cx, source: Box<dyn Source>) -> Nodes {
        let reading = Reading::start(cx, source);
        let (linked, problems) = (HashMap::default(), Problems::new());
        Nodes { reading, batch: None, at: 0, open: None, linked, collected: None, problems }
    }

    /// Reads all of a source that has an order of its own: an archive.
    pub fn collect(cx: &mut Cx, source: Box<dyn Source>, progress: &mut Progress) -> Nodes {
        let mut nodes = Nodes::start(cx, source);
        let mut all = BTreeMap::new();
        while let Some(named) = nodes.next(cx, progress) {
            // Any member may be what a later one is a further name of.
            nodes.linked.insert(named.path.clone(), named.clone());
            all.insert(Ordered(named.path.clone()), named);
        }
        nodes.linked.clear();
        nodes.collected = Some(all.into_values());
        nodes
    }

    /// The next name; none after the last. May park.
    pub fn next(&mut self, cx: &mut Cx, progress: &mut Progress) -> Option<Named> {
        if let Some(collected) = &mut self.collected {
            return collected.next();
        }
        loop {
            let Some(batch) = self.batch.take() else {
                let batch = self.reading.next(cx)?;
                count(&batch, progress);
                (self.batch, self.at) = (Some(batch), 0);
                continue;
            };
            while self.at < batch.events.len() {
                self.at += 1;
                if let Some(named) = self.event(&batch, self.at - 1) {
                    self.batch = Some(batch);
                    return Some(named);
                }
            }
            self.reading.put_back(cx, batch);
        }
    }

    /// Ends the reading; returns what could not be read.
    ///
    /// # Errors
    /// The source failed as a whole.
    pub fn end(self, cx: &mut Cx) -> Result<Problems> {
        self.reading.end(cx).0?;
        Ok(self.problems)
    }

    /// Takes an event; returns a name that is complete.
    fn event(&mut self, batch: &Batch, at: usize) -> Option<Named> {
        match &batch.events[at] {
            Event::Node { .. } => return self.node(batch, at),
            Event::Link { path, to } => {
                let first = self.linked.get(batch.at(to))?;
                return Some(Named { path: batch.at(path).to_vec(), ..first.clone() });
            }
            Event::Data { offset, data } => self.data(*offset, batch.at(data)),
            Event::End => {
                let Open { mut named, mut entry, hash, .. } = self.open.take()?;
                entry.content = hash.finalize().into();
                named.entry = Arc::new(entry);
                return Some(self.known(named));
            }
            Event::Problem(text) => {
                self.problems.report(String::from_utf8_lossy(batch.at(text)));
                self.open = None;
            }
            Event::Xattr { .. } | Event::Shared(_) | Event::Stretches(_) => {}
        }
        None
    }

    fn node(&mut self, batch: &Batch, at: usize) -> Option<Named> {
        let Event::Node { path, meta, target, xattrs } = &batch.events[at] else { return None };
        let events = &batch.events[at + 1..at + 1 + *xattrs as usize];
        let pairs = events.iter().filter_map(|event| match event {
            Event::Xattr { name, value } => {
                Some((batch.at(name).to_vec(), batch.at(value).to_vec()))
            }
            _ => None,
        });
        let (target, content) = (batch.at(target).to_vec(), [0; 32]);
        let entry = Entry { meta: *meta, target, attributes: pairs.collect(), content };
        let file = meta.linked.then_some(self.linked.len() as u64);
        let path = batch.at(path).to_vec();
        let named = |entry| Named { path, entry, file };
        if meta.kind != FileType::Regular {
            let named = named(Arc::new(entry));
            return Some(self.known(named));
        }
        let named = named(Arc::new(entry.clone()));
        self.open = Some(Open { named, entry, hash: Sha256::new(), end: 0 });
        None
    }

    /// Remembers a node whose further names may come.
    fn known(&mut self, named: Named) -> Named {
        if named.file.is_some() {
            self.linked.insert(named.path.clone(), named.clone());
        }
        named
    }

    fn data(&mut self, offset: u64, data: &[u8]) {
        let Some(open) = &mut self.open else { return };
        let sectors = Exact { block: 512, ..Exact::default() };
        for run in sectors.runs(offset, data) {
            let start = offset + run.start as u64;
            if start != open.end {
                open.hash.update(start.to_le_bytes());
            }
            open.end = offset + run.end as u64;
            open.hash.update(&data[run]);
        }
    }
}

/// What is done about a path that one or both of two trees have.
pub type Work<'w> = dyn FnMut(&mut App, Option<&Named>, Option<&Named>) -> Result<()> + 'w;

/// Goes through two trees together, by their common order; returns what could not be read. May
/// park.
///
/// # Errors
/// Those of `work`; a source failed as a whole.
pub fn together(
    app: &mut App,
    mut first: Nodes,
    mut second: Option<Nodes>,
    progress: &mut Progress,
    work: &mut Work,
) -> Result<Problems> {
    let done = through(app, &mut first, second.as_mut(), progress, work);
    let one = first.end(app.cx);
    let two = second.map(|second| second.end(app.cx)).transpose();
    done?;
    let mut problems = one?;
    problems.append(two?.unwrap_or_default());
    Ok(problems)
}

fn through(
    app: &mut App,
    first: &mut Nodes,
    mut second: Option<&mut Nodes>,
    progress: &mut Progress,
    work: &mut Work,
) -> Result<()> {
    let mut one = first.next(app.cx, progress);
    let mut two = second.as_mut().and_then(|second| second.next(app.cx, progress));
    loop {
        let which = match (&one, &two) {
            (None, None) => return Ok(()),
            (Some(_), None) => Ordering::Less,
            (None, Some(_)) => Ordering::Greater,
            (Some(one), Some(two)) => order(&one.path, &two.path),
        };
        let (here, there) = (which.is_le(), which.is_ge());
        work(app, one.as_ref().filter(|_| here), two.as_ref().filter(|_| there))?;
        if here {
            one = first.next(app.cx, progress);
        }
        if there {
            two = second.as_mut().and_then(|second| second.next(app.cx, progress));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_comes_before_what_is_in_it_and_that_before_its_neighbours() {
        let sorted: [&[u8]; 7] = [b"", b"a", b"a/b", b"a/b/c", b"a/b!", b"a!", b"b"];
        for (at, one) in sorted.iter().enumerate() {
            for (to, two) in sorted.iter().enumerate() {
                assert_eq!(order(one, two), at.cmp(&to), "{one:?} {two:?}");
            }
        }
    }
}
