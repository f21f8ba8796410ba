//! What is left of the layers of a container image: later ones replace and remove what earlier ones
//! brought, so that in the end every node is written once.
//!
//! Source: the OCI image specification 1.1, layer.md.

use std::collections::BTreeMap;
use std::sync::Arc;

use anyhow::{Context, Result};
use rt::Cx;
use vfs::FileType;

use super::oci::Layer;
use crate::app::App;
use crate::copy::picks::Picks;
use crate::copy::tar_source::TarSource;
use crate::copy::{self, Batch, Event, Keep, Problems, Sink, decompress, split};

/// Before the name of what is removed ..
const WHITEOUT: &[u8] = b".wh.";
/// .. and the name that removes all that lower layers have in its directory.
const OPAQUE: &[u8] = b".wh..wh..opq";

/// A node: a member of a layer.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
struct Node {
    layer: usize,
    member: u64,
    directory: bool,
}

/// The tree so far, and the layer that is read.
#[derive(Default)]
struct Merged {
    tree: BTreeMap<Vec<u8>, Node>,
    layer: usize,
    members: u64,
    /// What this layer removes from those below.
    removed: Vec<Vec<u8>>,
    /// Directories of which it removes the content.
    emptied: Vec<Vec<u8>>,
    /// What it brings: a node, or another name of one.
    brought: Vec<(Vec<u8>, Brought)>,
}

enum Brought {
    Node(Node),
    Link(Vec<u8>),
}

/// Reads the names of all layers, and notes with each layer which of its members are left.
///
/// # Errors
/// A layer is damaged.
pub fn settle(app: &mut App, layers: &mut [Layer], keep: &Keep) -> Result<()> {
    let mut merged = Merged::default();
    let mut progress = app.out.progress("reading layers");
    let keep = Keep { names_only: true, ..keep.clone() };
    for (index, layer) in layers.iter().enumerate() {
        layer.verify()?;
        let shown = || layer.shown.clone();
        let input = decompress::unpacked(layer.open()?).with_context(shown)?;
        let source = Box::new(TarSource::new(input, Vec::new(), keep.clone()));
        (merged.layer, merged.members) = (index, 0);
        let problems = copy::run(app.cx, source, &mut merged, &mut progress).with_context(shown)?;
        super::refuse_problems(app, &problems)?;
        merged.apply().with_context(shown)?;
    }
    progress.finish();
    let mut picks: Vec<Picks> = layers.iter().map(|_| Picks::default()).collect();
    let mut names: BTreeMap<Node, Vec<Box<[u8]>>> = BTreeMap::new();
    for (path, node) in merged.tree {
        names.entry(node).or_default().push(path.into());
    }
    for (node, names) in names {
        picks[node.layer].insert(node.member, names.into());
    }
    for (layer, picks) in layers.iter_mut().zip(picks) {
        layer.picks = Arc::new(picks);
    }
    Ok(())
}

impl Merged {
    /// Carries out what the layer says: it removes from the layers below, whatever the order of its
    /// members, and then brings its own.
    fn apply(&mut self) -> Result<()> {
        for path in std::mem::take(&mut self.removed) {
            self.tree.remove(&path);
            self.empty(&path);
        }
        for path in std::mem::take(&mut self.emptied) {
            self.empty(&path);
        }
        for (path, brought) in std::mem::take(&mut self.brought) {
            let node = match brought {
                Brought::Node(node) => node,
                Brought::Link(to) => *self.tree.get(&to).with_context(|| {
                    let (path, to) = (crate::text::escape(&path), crate::text::escape(&to));
                    format!("{path}: a link to {to}, which is not there")
                })?,
            };
            if !node.directory {
                self.empty(&path);
            }
            self.clear_above(&path);
            self.tree.insert(path, node);
        }
        Ok(())
    }

    /// What stands in the way as a file, and is to be a directory, goes.
    fn clear_above(&mut self, path: &[u8]) {
        let mut above = split(path).0;
        while !above.is_empty() {
            if self.tree.get(above).is_some_and(|node| !node.directory) {
                self.tree.remove(above);
            }
            above = split(above).0;
        }
    }

    /// Removes everything below a path.
    fn empty(&mut self, path: &[u8]) {
        let prefix = if path.is_empty() { Vec::new() } else { [path, b"/"].concat() };
        let below = |name: &Vec<u8>| name.starts_with(&prefix) && !name.is_empty();
        let range = self.tree.range(prefix.clone()..).map(|(name, _)| name);
        let names: Vec<Vec<u8>> =
            range.skip_while(|name| name.is_empty()).take_while(|n| below(n)).cloned().collect();
        for name in &names {
            self.tree.remove(name);
        }
    }

    fn node(&mut self, path: &[u8], directory: bool) {
        let node = Node { layer: self.layer, member: self.members, directory };
        self.bring(path, Brought::Node(node));
    }

    /// Takes a member: what it brings, or what its name says is removed.
    fn bring(&mut self, path: &[u8], brought: Brought) {
        self.members += 1;
        let (above, name) = split(path);
        match name.strip_prefix(WHITEOUT) {
            Some(_) if name == OPAQUE => self.emptied.push(above.to_vec()),
            Some(name) => {
                let mut path = above.to_vec();
                copy::descend(&mut path, name);
                self.removed.push(path);
            }
            None => self.brought.push((path.to_vec(), brought)),
        }
    }
}

impl Sink for Merged {
    fn event(&mut self, _cx: &mut Cx, batch: &Batch, at: usize) -> Result<()> {
        match &batch.events[at] {
            Event::Node { path, meta, .. } => {
                self.node(batch.at(path), meta.kind == FileType::Directory);
            }
            Event::Link { path, to } => {
                self.bring(batch.at(path), Brought::Link(batch.at(to).to_vec()));
            }
            _ => {}
        }
        Ok(())
    }

    fn abandon(&mut self) {}

    fn is_over(&self, _error: &anyhow::Error) -> bool {
        false
    }

    fn finish(&mut self, _cx: &mut Cx, _problems: &mut Problems) -> Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn layer(merged: &mut Merged, number: usize, names: &[&str]) {
        (merged.layer, merged.members) = (number, 0);
        for name in names {
            let path = name.trim_end_matches('/').as_bytes();
            match name.split_once(" = ") {
                Some((path, to)) => {
                    merged.bring(path.as_bytes(), Brought::Link(to.as_bytes().to_vec()));
                }
                None => merged.node(path, name.ends_with('/')),
            }
        }
        merged.apply().expect("applied");
    }

    fn shown(merged: &Merged) -> String {
        let name = |(path, node): (&Vec<u8>, &Node)| {
            format!("{} {}.{}", String::from_utf8_lossy(path), node.layer, node.member)
        };
        merged.tree.iter().map(name).collect::<Vec<_>>().join(", ")
    }

    #[test]
    fn later_layers_replace_and_remove() {
        let mut merged = Merged::default();
        layer(&mut merged, 0, &["a/", "a/x", "a/y", "b", "c/", "c/z", "ab"]);
        // A whiteout is of the layers below, wherever it stands.
        layer(&mut merged, 1, &["a/x", "a/.wh.x", ".wh.b", "c", "d = a/y"]);
        assert_eq!(shown(&merged), "a 0.0, a/x 1.0, a/y 0.2, ab 0.6, c 1.3, d 0.2");
        layer(&mut merged, 2, &["a/", "a/new", "a/.wh..wh..opq", "c/", "c/w"]);
        assert_eq!(shown(&merged), "a 2.0, a/new 2.1, ab 0.6, c 2.3, c/w 2.4, d 0.2");
        layer(&mut merged, 3, &["", ".wh..wh..opq", "only"]);
        assert_eq!(shown(&merged), " 3.0, only 3.2");
    }
}
