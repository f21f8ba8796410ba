//! What a tree is, name by name, to be compared with another one.

use std::collections::BTreeMap;
use std::sync::Arc;

use anyhow::Result;
use rt::Cx;
use sha2::{Digest, Sha256};
use vfs::FileType;

use super::exact::Exact;
use super::{Batch, Event, Meta, Problems, Sink, Source};
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

/// A sink that keeps every name with its node.
#[derive(Default)]
pub struct Tree {
    /// By path.
    pub entries: BTreeMap<Vec<u8>, Arc<Entry>>,
    /// The regular file that comes.
    open: Option<Open>,
}

/// A file whose content comes.
struct Open {
    path: Vec<u8>,
    hash: Sha256,
    /// Where the last bytes that are not zeros ended.
    end: u64,
}

impl Tree {
    /// Reads all of a source.
    ///
    /// # Errors
    /// The source failed as a whole. What of it could not be read is in the answer.
    pub fn read(
        cx: &mut Cx,
        source: Box<dyn Source>,
        mut progress: Progress,
    ) -> Result<(Tree, Problems)> {
        let mut tree = Tree::default();
        let done = super::run(cx, source, &mut tree, &mut progress);
        progress.finish();
        Ok((tree, done?))
    }

    fn node(&mut self, batch: &Batch, at: usize) {
        let Event::Node { path, meta, target, xattrs } = &batch.events[at] else { return };
        let path = batch.at(path).to_vec();
        let events = &batch.events[at + 1..at + 1 + *xattrs as usize];
        let pairs = events.iter().filter_map(|event| match event {
            Event::Xattr { name, value } => {
                Some((batch.at(name).to_vec(), batch.at(value).to_vec()))
            }
            _ => None,
        });
        self.open = (meta.kind == FileType::Regular).then(|| Open {
            path: path.clone(),
            hash: Sha256::new(),
            end: 0,
        });
        let entry = Entry {
            meta: *meta,
            target: batch.at(target).to_vec(),
            attributes: pairs.collect(),
            content: [0; 32],
        };
        self.entries.insert(path, Arc::new(entry));
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

    fn end(&mut self) {
        let Some(open) = self.open.take() else { return };
        if let Some(entry) = self.entries.get_mut(&open.path) {
            Arc::make_mut(entry).content = open.hash.finalize().into();
        }
    }
}

impl Sink for Tree {
    fn event(&mut self, _cx: &mut Cx, batch: &Batch, at: usize) -> Result<()> {
        match &batch.events[at] {
            Event::Node { .. } => self.node(batch, at),
            Event::Link { path, to } => {
                if let Some(entry) = self.entries.get(batch.at(to)).cloned() {
                    self.entries.insert(batch.at(path).to_vec(), entry);
                }
            }
            Event::Data { offset, data } => self.data(*offset, batch.at(data)),
            Event::End => self.end(),
            _ => {}
        }
        Ok(())
    }

    fn abandon(&mut self) {
        self.open = None;
    }

    fn is_over(&self, _error: &anyhow::Error) -> bool {
        false
    }

    fn finish(&mut self, _cx: &mut Cx, _problems: &mut Problems) -> Result<()> {
        Ok(())
    }
}
