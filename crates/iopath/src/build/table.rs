//! The nodes that a table of owners makes.

use std::sync::Arc;

use anyhow::Result;
use rt::Cx;

use crate::copy::exact::Exact;
use crate::copy::{Event, Meta, Outbox, Source};

/// The nodes of the tables as a source.
pub struct TableSource {
    exact: Arc<Exact>,
}

impl TableSource {
    /// Those of `exact`.
    pub fn new(exact: Arc<Exact>) -> TableSource {
        TableSource { exact }
    }
}

impl Source for TableSource {
    fn run(&mut self, cx: &mut Cx, out: &mut Outbox) -> Result<()> {
        // Nodes of a table have the time of the build.
        let now = self.exact.pin.unwrap_or_else(|| cx.realtime());
        for node in self.exact.owners.nodes() {
            let path = out.store(&node.path);
            let meta = Meta { atime: now, mtime: now, ..node.meta };
            out.push(Event::Node { path, meta, target: 0..0, xattrs: 0 });
            out.breathe(cx)?;
        }
        Ok(())
    }
}
